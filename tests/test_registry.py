"""What every probe, check, scenario and module owes the others, found by looking at all of them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import servecheck
from servecheck import features, scenario, schema
from servecheck.judging import BUILT_IN_CHECKS
from servecheck.model import Check, Kind
from servecheck.probes import discover
from servecheck.reference import mutants
from servecheck.schema import publish, results_v1

ROOT = Path(servecheck.__file__).parent
PROBES = discover()
CHECKS = [check for probe in PROBES.values() for check in probe.checks] + list(BUILT_IN_CHECKS)
SCENARIOS = scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID)
EXAMPLES = scenario.load_all([scenario.examples_dir()], probes=PROBES, features=features.BY_ID)
MODULES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


# --------------------------------------------------------------------------- probes and checks


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_says_what_it_does_why_it_matters_and_how_it_could_be_fooled(name):
    doc = PROBES[name].doc
    first, blank, *_ = doc.splitlines()
    assert first.endswith(".")
    assert blank == ""
    headings = re.findall(r"^(What it does|Why it matters|How it could be fooled):", doc, re.MULTILINE)
    assert headings == ["What it does", "Why it matters", "How it could be fooled"]
    for paragraph in re.split(r"^(?:What it does|Why it matters|How it could be fooled):", doc, flags=re.MULTILINE)[1:]:
        assert len(paragraph.split()) >= 8


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_is_named_as_its_module_and_costs_something(name):
    probe = PROBES[name]
    assert f"probes/{name}.py" in MODULES
    assert probe.requests >= 1
    rows = {features.get(found.feature).kind for found in SCENARIOS if found.probe == name}
    assert probe.checks or probe.by_params or rows == {Kind.PROPERTY}, "only a value needs no rule"
    for field in probe.params.model_fields.values():
        assert field.description, f"{name}: every parameter is described"


def test_every_check_id_is_used_once():
    assert [name for name, count in Counter(check.id for check in CHECKS).items() if count > 1] == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_check_is_a_rule_with_a_source(check: Check):
    assert _ID.fullmatch(check.id)
    assert re.match(r"https://[^/\s]+\.[^/\s]+/\S*$", check.source)
    assert check.rule.endswith((".", "…"))
    assert len(check.rule.split()) >= 3


def test_mutants_belong_to_probes_and_trip_checks_that_exist():
    owned = {name: {check.id for check in (*probe.checks, *BUILT_IN_CHECKS)} for name, probe in PROBES.items()}
    for found in EXAMPLES:
        owned[found.probe] |= {check.id for check in PROBES[found.probe].of(found.params).checks}
    for name, (seeded, _) in mutants.discover().items():
        assert name in owned
        for mutant in seeded:
            assert mutant.trips, mutant.id
            assert {check for check, _ in mutant.trips} <= owned[name], mutant.id


# --------------------------------------------------------------------------- scenarios and schemas


@pytest.mark.parametrize("found", SCENARIOS, ids=lambda found: found.id)
def test_every_scenario_is_named_as_its_file_and_counts_for_a_row_of_its_folder(found):
    assert found.path.stem == found.id
    assert _ID.fullmatch(found.id)
    assert found.feature in features.BY_ID
    assert found.path.parent.name == features.get(found.feature).group


def test_every_probe_is_used_by_a_scenario():
    assert set(PROBES) == {found.probe for found in [*SCENARIOS, *EXAMPLES]}


def test_no_example_is_part_of_the_built_in_suite_or_of_a_built_in_row():
    assert {found.id for found in SCENARIOS} & {found.id for found in EXAMPLES} == set()
    assert all(features.is_own(found.feature) for found in EXAMPLES)


def test_a_scenario_cannot_take_the_name_of_a_check_that_every_probe_has():
    assert {check.id for check in BUILT_IN_CHECKS} == set(scenario.RESERVED)


def test_the_published_schemas_are_fresh():
    folder = Path(schema.__file__).parent
    for name, text in publish.published().items():
        assert (folder / name).read_text("utf-8") == text, "run: python -m servecheck.schema.publish"
    assert results_v1.SCHEMA_PATH.read_text("utf-8") == results_v1.schema_text()


# --------------------------------------------------------------------------- modules


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of every module (and of everything taken from one) that a file imports, wherever."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def ours(tree: ast.AST) -> Iterator[str]:
    """Yield the units of this package that a file imports."""
    for name in imported(tree):
        head, _, rest = name.partition(".")
        unit = rest.partition(".")[0]
        if head == "servecheck" and unit and (f"{unit}.py" in MODULES or f"{unit}/__init__.py" in MODULES):
            yield unit


_TALKS = {"wire", "runner", "run", "report", "store", "cli", "plan", "judging", "reference", "embedded"}


@pytest.mark.parametrize("path", [path for path in MODULES if path.startswith("probes/")])
def test_a_probe_reaches_neither_transport_nor_runner_nor_report(path):
    assert set(ours(MODULES[path])) & _TALKS == set()


def roots(tree: ast.AST) -> set[str]:
    return {name.partition(".")[0] for name in imported(tree)}


@pytest.mark.parametrize("path", MODULES)
def test_only_wire_imports_an_http_client(path):
    clients = roots(MODULES[path]) & {"httpx", "httpx2", "httpcore", "requests", "aiohttp", "urllib3", "http"}
    # The embedded engine's readiness is its own business, without a client library.
    assert clients == set() or path.startswith(("wire/", "embedded/")) or path == "read/sdk.py"
    # The SDK's client is handed a transport that stands in for a server: nothing is sent.
    if not path.startswith("wire/") and path != "read/sdk.py":
        assert clients & {"httpx", "httpx2", "httpcore"} == set()


def at_import(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports as it is imported: not inside functions, not for the type checker alone."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(node)
        elif isinstance(node, ast.Try):
            yield from (name for inner in node.body for name in imported(inner))


@pytest.mark.parametrize("path", MODULES)
def test_no_module_waits_for_the_sdk_at_import(path):
    assert "openai" not in {name.partition(".")[0] for name in at_import(MODULES[path])}


def catches_all(tree: ast.AST) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            named = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(each is None or (isinstance(each, ast.Name) and each.id == "Exception") for each in named):
                yield node


def test_our_own_faults_are_caught_in_one_place():
    """The reference server hands a fault to whoever reads its tokens, where it is raised again: no second place."""
    found = [path for path, tree in MODULES.items() for _ in catches_all(tree) if not path.startswith("reference/")]
    assert found == ["runner.py"]


@pytest.mark.parametrize("path", MODULES)
def test_every_module_says_in_a_sentence_what_it_is_for(path):
    doc = ast.get_docstring(MODULES[path])
    if not path.endswith("__init__.py"):
        assert doc
        assert doc.splitlines()[0].strip()
