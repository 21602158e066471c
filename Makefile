# Needs python3 (3.11 or newer) and make; uv makes it faster. Every target makes .venv and installs what it needs.
VENV := .venv
PY := $(VENV)/bin/python
UV := $(shell command -v uv 2>/dev/null)
STAMP := $(VENV)/.installed

LABS := vllm sglang dasllama transformers litellm llamacpp

.PHONY: demo test lint goldens docs clean engine-pages sample-report $(LABS:%=lab-%)

demo: $(STAMP)
	rm -rf demo-run
	$(PY) -m servecheck demo --out demo-run
	@echo "your own servers: $(VENV)/bin/servecheck run URL --suite smoke (README.md, First run)"

test: lint
	$(PY) -m pytest -q -n 2 -m "not engine"
	$(PY) -m pytest -q -m engine

lint: $(STAMP)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

goldens: $(STAMP)
	UPDATE_GOLDENS=1 $(PY) -m pytest -q -n 2 -m "not engine"

docs: $(STAMP)
	$(PY) -m servecheck.docs

# A real engine: set up if needed, started, probed, stopped. The report is in .lab/runs. See lab/README.md.
$(LABS:%=lab-%): lab-%: $(STAMP)
	SERVECHECK_PYTHON=$(abspath $(PY)) lab/run $*

engine-pages: $(STAMP)
	$(PY) -m lab.pages $(wildcard $(LABS:%=.lab/runs/%))

# The sample report of two recorded runs: make sample-report LEFT=.lab/runs/vllm RIGHT=.lab/runs/sglang TITLE="…"
sample-report: export SAMPLE_TITLE := $(TITLE)
sample-report: $(STAMP)
	$(PY) -m lab.sample $(LEFT) $(RIGHT) --title "$$SAMPLE_TITLE" $(UNLIKE:%=--unlike %)

clean:
	rm -rf $(VENV) demo-run

$(STAMP): pyproject.toml
	@echo "making $(VENV) and installing into it, which takes a minute or more"
ifdef UV
	$(UV) venv --quiet --allow-existing $(VENV)
	$(UV) pip install --quiet --python $(PY) -e ".[demo,dev]"
else
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e ".[demo,dev]"
endif
	touch $(STAMP)
