"""ARCHITECTURE.md is true: modules import upwards only, and packages stay in the homes it gives them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
LAYERS = [line.split() for line in TEXT.partition("```layers\n")[2].partition("```")[0].splitlines()]
PLACES = {name: place for place, names in enumerate(LAYERS) for name in names}
HOMES = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", TEXT, re.MULTILINE))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_name(path): path for path in sorted((ROOT / "servecheck").rglob("*.py"))}


def imported(source: str) -> Iterator[str]:
    """Yield every module that a text imports, at its top or within a function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in FILES else node.module


def place(module: str) -> int | None:
    """Return the layer of a module, by the longest name that the list gives to it or to its package."""
    parts = module.split(".")[1:]
    found = (PLACES.get(".".join(parts[:length])) for length in range(len(parts), 0, -1))
    return next((each for each in found if each is not None), None)


@pytest.mark.parametrize("module", [name for name in FILES if name != "servecheck"])
def test_a_module_has_a_layer_and_imports_upwards_only(module):
    mine = place(module)
    assert mine is not None, f"{module} is in no layer of ARCHITECTURE.md"
    ours = {name for name in imported(FILES[module].read_text("utf-8")) if name.startswith("servecheck.")}
    downwards = sorted(name for name in ours if (theirs := place(name)) is None or theirs > mine)
    assert downwards == []


@pytest.mark.parametrize(("package", "home"), HOMES.items())
def test_a_package_is_imported_in_its_home_only(package, home):
    users = {
        name.removeprefix("servecheck.").partition(".")[0]
        for name, path in FILES.items()
        if package in {each.partition(".")[0] for each in imported(path.read_text("utf-8"))}
    }
    assert users <= {home}


def test_the_list_of_layers_names_nothing_that_is_gone():
    assert set(PLACES) <= {name.removeprefix("servecheck.") for name in FILES}


def test_an_import_downwards_is_noticed():
    assert list(imported("def f():\n    from servecheck import runner")) == ["servecheck.runner"]
    runner, probes, publish = (
        place("servecheck.runner"),
        place("servecheck.probes.x"),
        place("servecheck.schema.publish"),
    )
    assert runner is not None
    assert probes is not None
    assert publish is not None
    assert probes < runner < publish
