"""The texts are true: generated pages are fresh, commands exist, links lead somewhere, every check is documented."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer
from markdown_it import MarkdownIt

from servecheck import cli, docs, features, scenario, verdict
from servecheck.model import Status
from servecheck.probes import discover
from servecheck.reference import mutants
from servecheck.reference.killmatrix import KillMatrix, Seen
from servecheck.run import instrument_check, probes_digest

ROOT = docs.ROOT
PROBES = discover()
VARIANTS = {name: known for name, known in mutants.discover().items() if name in PROBES}
SCENARIOS = scenario.load_all([scenario.builtin_dir()], probes=PROBES, features=features.BY_ID)
PAGES = docs.pages(PROBES, SCENARIOS, mutants.discover())
INSTRUMENT = json.loads((ROOT / "servecheck" / "instrument.json").read_text("utf-8"))
TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHOWN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
SHOWN += sorted((ROOT / "docs" / "tutorials").glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --------------------------------------------------------------------------- generated pages


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_fresh(page):
    assert PAGES[page] == (ROOT / "docs" / page).read_text("utf-8"), "stale: run `make docs`"


def test_no_page_is_left_of_a_probe_that_is_gone():
    assert {f"{name}.md" for name in PROBES} == {path.name for path in (ROOT / "docs" / "probes").iterdir()}


def test_the_instrument_check_is_of_these_probes_and_of_every_mutant():
    seeded = sum(len(faults) for faults, _ in VARIANTS.values())
    odd = sum(len(harmless) for _, harmless in VARIANTS.values())
    assert {
        "probes_digest": probes_digest(PROBES),
        "seeded": seeded,
        "variations": len(PROBES) + odd,
    } == {name: INSTRUMENT[name] for name in ("probes_digest", "seeded", "variations")}, "stale: run `make docs`"


def test_every_seeded_fault_is_caught_and_nothing_harmless_flagged():
    assert (INSTRUMENT["seeded"], 0) == (INSTRUMENT["caught"], INSTRUMENT["false_alarms"])


def test_the_page_about_the_instrument_says_what_the_file_says():
    """A clean matrix is known without trying anything: it is every server with nothing missed."""
    servers = [(name, each.id, True) for name, (faults, _) in VARIANTS.items() for each in faults]
    servers += [(name, each.id, False) for name, (_, harmless) in VARIANTS.items() for each in harmless]
    servers += [(name, "reference-server", False) for name in PROBES]
    matrix = KillMatrix(
        seen=tuple(Seen(probe=name, server=server, model="any", fault=fault) for name, server, fault in servers)
    )
    assert docs.counts(matrix, INSTRUMENT["probes_digest"]) == INSTRUMENT
    expected = docs.instrument_page(matrix, PROBES, mutants.discover(), INSTRUMENT["probes_digest"])
    assert expected == (ROOT / "docs" / "instrument.md").read_text("utf-8"), "stale: run `make docs`"


def test_a_missed_fault_is_published_as_missed():
    name, (faults, _) = next((name, known) for name, known in VARIANTS.items() if known[0])
    missed = Seen(probe=name, server=faults[0].id, model="babbling", fault=True, problem="saw nothing wrong")
    page = docs.instrument_page(KillMatrix(seen=(missed,)), PROBES, mutants.discover(), "d")
    assert "0 of 1 seeded faults caught" in page
    assert f"missed: {name} on {faults[0].id} (babbling): saw nothing wrong" in page
    assert f"`{faults[0].id}` ({faults[0].trips[0][1]}, missed)" in page


def test_a_run_knows_the_instrument_check_of_its_own_probes_only():
    known = instrument_check(PROBES)
    assert known is not None
    assert (INSTRUMENT["seeded"], INSTRUMENT["caught"]) == (known.seeded, known.caught)
    fewer = {name: probe for name, probe in PROBES.items() if name != "chat_basic"}
    assert instrument_check(fewer) is None


def test_every_check_has_a_heading_that_is_its_anchor():
    headings = re.findall(r"^## (.+)$", PAGES["checks.md"], re.MULTILINE)
    assert sorted(check.id for _, check in cli.listing.checks()) == headings
    assert len(set(headings)) == len(headings)


def test_every_row_is_listed_in_display_order():
    assert [feature.id for feature in features.FEATURES] == re.findall(
        r"^\| `([a-z_.0-9]+)` \|", PAGES["features.md"], re.MULTILINE
    )


def test_every_exit_code_is_documented():
    codes = [code for code, _, _ in docs.EXITS]
    assert codes == [0, 1, cli.EXIT_USAGE, cli.EXIT_NOTHING, cli.EXIT_COULD_NOT_TELL, cli.EXIT_INTERRUPTED]
    for level in verdict.FailOn:
        assert f"| `{level.value}` |" in PAGES["exit-codes.md"]


# --------------------------------------------------------------------------- links


@pytest.mark.parametrize("text", TEXTS, ids=name_of)
def test_every_link_within_the_project_leads_somewhere(text):
    broken = [link for link in links(text) if not leads_somewhere(text, link)]
    assert broken == []


def links(text: Path) -> Iterator[str]:
    for token in MarkdownIt("commonmark").enable("table").parse(text.read_text("utf-8")):
        for child in token.children or ():
            if child.type == "link_open":
                href = str(child.attrs["href"])
                if not href.startswith(("https://", "http://", "mailto:")):
                    yield href


def leads_somewhere(text: Path, link: str) -> bool:
    path, _, anchor = unquote(link).partition("#")
    target = (text.parent / path).resolve() if path else text
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or anchor in anchors(target)


def anchors(text: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them of its headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_link_to_nothing_is_noticed():
    readme = ROOT / "README.md"
    assert not leads_somewhere(readme, "docs/nothing.md")
    assert not leads_somewhere(readme, "docs/checks.md#no-such-check")
    assert not leads_somewhere(readme, "../elsewhere.md")
    assert leads_somewhere(readme, "docs/checks.md#server-stays-healthy")


# --------------------------------------------------------------------------- commands


def commands(text: Path) -> Iterator[str]:
    """Yield the servecheck commands of a text: of its shell blocks, continued lines joined, and of its code spans."""
    source = text.read_text("utf-8")
    for language, block in FENCE.findall(source):
        if language in ("sh", "bash", "console"):
            typed = (line.removeprefix("$ ").strip() for line in block.replace("\\\n", " ").splitlines())
            yield from (line for line in typed if line.startswith("servecheck "))
    yield from re.findall(r"`(servecheck [^`]+)`", FENCE.sub("", source))


SAID = sorted({(name_of(text), line) for text in SHOWN for line in commands(text)})


@pytest.mark.parametrize(("text", "line"), SAID)
def test_a_command_of_the_texts_exists_with_all_its_options(text, line):
    words = shlex.split(line, comments=True)[1:]
    command: typer.core.TyperGroup | typer.core.TyperCommand = typer.main.get_command(cli.app)  # type: ignore[assignment]
    while isinstance(command, typer.core.TyperGroup) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]  # type: ignore[assignment]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"-h", "--help"}
    assert not isinstance(command, typer.core.TyperGroup) or not words or words[0].startswith("-")
    unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    assert unknown == []


def test_the_texts_show_every_command_there_is():
    shown = {line.split()[1] for _, line in SAID}
    group = typer.main.get_command(cli.app)
    assert isinstance(group, typer.core.TyperGroup)
    assert set(group.commands) <= shown


@pytest.mark.parametrize("text", SHOWN, ids=name_of)
def test_a_make_target_of_the_texts_exists(text):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    (labs,) = re.findall(r"^LABS := (.*)$", makefile, re.MULTILINE)
    targets |= {f"lab-{name}" for name in labs.split()}
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text.read_text("utf-8"), re.MULTILINE)) <= targets


# --------------------------------------------------------------------------- README


def readme() -> str:
    return (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("status", Status)
def test_the_readme_explains_every_mark(status):
    assert f"| {status.mark} {status.value} |" in readme()


@pytest.mark.parametrize(("code", "meaning"), [(code, meaning) for code, meaning, _ in docs.EXITS])
def test_the_readme_explains_every_exit_code(code, meaning):
    assert f"| {code} | {meaning} |" in readme()


def test_the_readme_counts_what_has_no_probe_yet():
    with_probe = re.findall(r"^\| `[a-z_.0-9]+` .*\(probes/", PAGES["features.md"], re.MULTILINE)
    assert f"**{len(with_probe)} of {len(features.FEATURES)} rows**" in readme(), "stale: run `make docs`"
    assert docs.with_counts(readme(), SCENARIOS) == readme(), "stale: run `make docs`"


def test_the_scenario_of_the_readme_is_valid(tmp_path):
    block = next(block for language, block in FENCE.findall(readme()) if language == "yaml")
    identifier = re.search(r"^id: (.+)$", block, re.MULTILINE)
    assert identifier is not None
    path = tmp_path / f"{identifier[1]}.yaml"
    path.write_text(block, encoding="utf-8")
    assert scenario.load(path, probes=PROBES, features=features.BY_ID).id == identifier[1]
