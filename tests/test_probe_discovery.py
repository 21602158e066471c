"""Probes are found, never listed; a module that breaks the rule is named."""

from __future__ import annotations

import importlib
import itertools
import sys

import pytest

from servecheck import probes
from servecheck.errors import ServecheckError

_numbers = itertools.count()

PROBE = """\
from servecheck.probe import Params, Probe

async def drive(session, params, reference): ...

def judge(transcript, params):
    return ()

PROBE = Probe(id={probe_id!r}, doc="d", checks=(), params=Params, drive=drive, judge=judge)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that makes a package of modules (by name, with their text) and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def make(**modules: str) -> str:
        name = f"made_up_probes_{next(_numbers)}"
        folder = tmp_path / name
        folder.mkdir()
        for module, text in {"__init__": "", **modules}.items():
            (folder / f"{module}.py").write_text(text)
        importlib.invalidate_caches()
        made.append(name)
        return name

    yield make
    for name in list(sys.modules):
        if name.partition(".")[0] in made:
            del sys.modules[name]


def test_every_module_is_a_probe_but_those_with_an_underscore(package):
    name = package(
        b=PROBE.format(probe_id="first"),
        a=PROBE.format(probe_id="second"),
        _helper="raise RuntimeError('a helper is not imported')",
    )

    assert list(probes.probes_in(name)) == ["first", "second"]


@pytest.mark.parametrize("text", ["", "PROBE = 'text'"])
def test_a_module_without_a_probe_is_named(package, text):
    name = package(lonely=text)

    with pytest.raises(ServecheckError) as caught:
        probes.probes_in(name)

    assert f"the module {name}.lonely exports no PROBE (name it _lonely if it is a helper)" == str(caught.value)


def test_an_id_that_two_modules_claim_names_both(package):
    name = package(a=PROBE.format(probe_id="same"), b=PROBE.format(probe_id="same"))

    with pytest.raises(ServecheckError) as caught:
        probes.probes_in(name)

    assert f"the probe 'same' is exported by {name}.a and by {name}.b" == str(caught.value)


def test_a_module_that_cannot_be_imported_is_not_passed_over(package):
    with pytest.raises(ZeroDivisionError):
        probes.probes_in(package(bad="1 / 0"))


def test_the_probes_are_looked_for_once_and_the_answer_is_the_callers_own(monkeypatch):
    first = probes.discover()
    first["intruder"] = None  # type: ignore[assignment]
    monkeypatch.setattr(probes, "probes_in", lambda package: pytest.fail("looked again"))

    assert "intruder" not in probes.discover()
