"""Runs of different days compared: copied into one folder, judged as one run, unlike things refused or said first."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from servecheck.errors import StoreError, UnknownName, UsageError
from servecheck.join import Unlike, join
from servecheck.model import Delta, Outcome, SkipCode, Status
from servecheck.probe import Params, Probe
from servecheck.reference.asgi import json_reply
from servecheck.report.data import RunReport
from servecheck.report.view import view
from servecheck.run import read_back
from tests.lab import Lab, Odd, answers, ask_once, cell_of, finding, make_probe, make_scenario

PLAIN = make_scenario("chat.basic")
STOP = make_scenario("chat.stop")


def refusing() -> Odd:
    return Odd(answers(400, "no such thing"))


def compared(
    tmp_path: Path, left: str, right: str, probes: Mapping[str, Probe[Params]], **how: Any
) -> tuple[tuple[str, str], RunReport]:
    names = join(left, right, tmp_path / "both", command=["servecheck", "compare"], **how)
    return names, read_back(tmp_path / "both", probes)


def test_two_runs_compare_as_one_run_of_both_would(tmp_path):
    together = Lab(tmp_path / "one", {"gpu": Odd(), "tpu": refusing()}, [PLAIN, STOP], reference="gpu", trials=2)
    gpu = Lab(tmp_path / "a", {"gpu": Odd()}, [PLAIN, STOP], trials=2)
    tpu = Lab(tmp_path / "b", {"tpu": refusing()}, [PLAIN, STOP], trials=2)
    expected = together.run()
    gpu.run()
    tpu.run()
    names, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), gpu.probes)
    assert names == ("gpu", "tpu")
    assert found.reference == "gpu"
    assert [(cell.feature, cell.endpoint, cell.status, cell.trials) for cell in found.cells] == [
        (cell.feature, cell.endpoint, cell.status, cell.trials) for cell in expected.cells
    ]
    assert [(each.feature, each.delta, each.side) for each in found.comparisons] == [
        ("chat.basic", Delta.BEHIND, "tpu"),
        ("chat.stop", Delta.BEHIND, "tpu"),
    ]
    assert found.verdict == expected.verdict
    assert found.requests == expected.requests
    assert found.complete
    assert (expected.joined, found.joined) == (False, True)
    # How long it took to compare two recordings is nobody's question.
    told = [
        re.search(r"\d\d:\d\d UTC(.*), \d+ requests?", view(each, lambda *_: "").provenance)
        for each in (expected, found)
    ]
    assert [each.group(1) != "" for each in told if each] == [True, False]


def test_the_evidence_of_each_side_is_its_own(tmp_path):
    Lab(tmp_path / "a", {"e": Odd()}, [PLAIN]).run()
    lab = Lab(tmp_path / "b", {"e": refusing()}, [PLAIN], trials=3)
    lab.run()
    names, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), lab.probes)
    assert names == ("e-left", "e-right")
    for name, status in (("e-left", 200), ("e-right", 400)):
        cell = cell_of(found, "chat.basic", name)
        shown = [found.exchanges[one].status for finding in cell.findings for one in finding.evidence]
        assert set(shown) == {status}
    assert len({one for cell in found.cells for each in cell.findings for one in each.evidence}) == 1 + 3


def test_large_bodies_come_along(tmp_path):
    async def large(*_):
        return json_reply({"choices": [], "padding": "x" * 100_000})

    lab = Lab(tmp_path / "a", {"a": Odd(large)}, [PLAIN])
    lab.run()
    assert list((tmp_path / "a/blobs").iterdir())
    Lab(tmp_path / "b", {"b": Odd(large)}, [PLAIN]).run()
    _, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), lab.probes)
    sizes = [len(exchange.body) for exchange in found.exchanges.values()]
    assert len(sizes) >= 2
    assert min(sizes) > 100_000


def test_a_row_that_one_run_left_out_is_no_difference(tmp_path):
    lab = Lab(tmp_path / "a", {"a": Odd()}, [PLAIN, STOP])
    lab.run()
    Lab(tmp_path / "b", {"b": Odd()}, [PLAIN]).run()
    _, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), lab.probes)
    left_out = cell_of(found, "chat.stop", "b")
    assert (left_out.status, left_out.skip_code) == (Status.SKIPPED, SkipCode.NOT_SELECTED)
    assert left_out.reason == "not part of the run b"
    assert [each.delta for each in found.compared("chat.stop")] == [Delta.UNCLEAR]


def test_what_was_asked_differently_is_not_compared(tmp_path):
    tuned = dataclasses.replace(PLAIN, params=Params(), tune={})
    other = dataclasses.replace(tuned, feature="chat.basic", probe="q")
    probes = [make_probe(), make_probe("q")]
    lab = Lab(tmp_path / "a", {"a": Odd()}, [tuned, STOP], probes)
    lab.run()
    Lab(tmp_path / "b", {"b": Odd()}, [other, STOP], probes).run()
    _, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), lab.probes)
    assert {cell_of(found, "chat.basic", name).status for name in ("a", "b")} == {Status.SKIPPED}
    assert "asked this differently" in cell_of(found, "chat.basic", "a").reason
    assert cell_of(found, "chat.stop", "a").status is Status.SUPPORTED


def test_how_the_recordings_differ_is_said_before_anything_else(tmp_path):
    lab = Lab(tmp_path / "a", {"a": Odd()}, [PLAIN], trials=2)
    lab.run()
    Lab(tmp_path / "b", {"b": Odd()}, [PLAIN], suite="smoke").run()
    edit(tmp_path / "b", started="2026-01-02T03:04:05+00:00")
    edit(tmp_path / "a", started="2026-11-30T10:11:12+00:00")
    _, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), lab.probes)
    assert found.confounders[:3] == (
        "recorded: 2026-11-30 10:11 | 2026-01-02 03:04",
        "suite: standard | smoke",
        "trials: 2 | adaptive",
    )


def test_another_model_is_refused_unless_it_is_wanted(tmp_path):
    lab = Lab(tmp_path / "a", {"a": Odd()}, [PLAIN])
    lab.run()
    Lab(tmp_path / "b", {"b": Odd(model="other")}, [PLAIN], fields={"model": "other"}).run()
    with pytest.raises(UsageError, match="--unlike model"):
        join(str(tmp_path / "a"), str(tmp_path / "b"), tmp_path / "both")
    assert not (tmp_path / "both").exists()
    _, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), lab.probes, unlike=[Unlike.MODEL])
    assert any(line.startswith("model: ") and line.endswith(" | other") for line in found.confounders)


def test_other_probes_are_refused_unless_they_are_wanted_and_said_then(tmp_path):
    lab = Lab(tmp_path / "a", {"a": Odd()}, [PLAIN])
    lab.run()
    Lab(tmp_path / "b", {"b": Odd()}, [PLAIN]).run()
    edit(tmp_path / "b", probes_digest="0123456789ab")
    with pytest.raises(UsageError, match="--unlike probes"):
        join(str(tmp_path / "a"), str(tmp_path / "b"), tmp_path / "both")
    _, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), lab.probes, unlike=[Unlike.PROBES])
    assert any(line.startswith("recorded by probes: ") for line in found.confounders)
    assert "0123456789ab and judged anew" in found.notes[0]


def test_the_reference_s_recording_is_what_the_other_is_judged_against(tmp_path):
    def contrast(left, right, _):
        mine, theirs = ({exchange.url for exchange in side.steps("")} for side in (left, right))
        return [finding(Outcome.HELD if mine and theirs else Outcome.VIOLATED, "two recordings")]

    probe = make_probe(drive=ask_once, judge=lambda *_: [], contrast=contrast)
    scenario = make_scenario("parity.logprobs")
    lab = Lab(tmp_path / "a", {"a": Odd()}, [scenario], [probe])
    lab.run()
    Lab(tmp_path / "b", {"b": Odd()}, [scenario], [probe]).run()
    _, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), lab.probes)
    assert [(each.delta, each.why) for each in found.comparisons] == [(Delta.SAME, "two recordings")]


def test_an_interrupted_run_still_compares_and_says_so(tmp_path):
    lab = Lab(tmp_path / "a", {"a": Odd()}, [PLAIN])
    lab.run()
    Lab(tmp_path / "b", {"b": Odd()}, [PLAIN]).run()
    lines = (tmp_path / "b/run.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b/run.jsonl").write_text("".join(line for line in lines if '"footer"' not in line))
    _, found = compared(tmp_path, str(tmp_path / "a"), str(tmp_path / "b"), lab.probes)
    assert not found.complete
    assert found.interrupted == "b died"


def test_an_endpoint_of_several_is_named(tmp_path):
    lab = Lab(tmp_path / "a", {"x": Odd(), "y": Odd(), "z": refusing()}, [PLAIN], reference="x")
    lab.run()
    with pytest.raises(UsageError, match=r"several endpoints \(x, y, z\); name one: .*a:x"):
        join(str(tmp_path / "a"), str(tmp_path / "a"), tmp_path / "both")
    with pytest.raises(UnknownName, match="zz"):
        join(f"{tmp_path / 'a'}:zz", str(tmp_path / "a"), tmp_path / "both")
    names, found = compared(tmp_path, f"{tmp_path / 'a'}:y", f"{tmp_path / 'a'}:z", lab.probes)
    assert names == ("y", "z")
    assert [each.delta for each in found.comparisons] == [Delta.BEHIND]


@pytest.mark.parametrize("missing", ["nowhere", "nowhere:x"])
def test_what_is_no_run_is_said(tmp_path, missing):
    with pytest.raises(StoreError, match="nowhere is not a run folder"):
        join(str(tmp_path / missing), str(tmp_path / missing), tmp_path / "both")


def edit(folder: Path, **fields: str) -> None:
    """Change the header of a recorded run."""
    path = folder / "run.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps(json.loads(first) | fields) + "\n", *rest]))
