"""A run held against a recorded reference: its transcripts drive and judge, and the folder holds both sides."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from servecheck import plan as plans
from servecheck.errors import UsageError
from servecheck.join import join, recording
from servecheck.model import Finding, Level, Outcome, Risk, SkipCode, Status, Transcript
from servecheck.probe import Params, Session
from servecheck.read import reply
from servecheck.recordings import ROWS, alone
from servecheck.run import plan_of, read_back
from tests.lab import Lab, Odd, answers, cell_of, endpoint, make_probe, make_scenario, message

GREEDY = make_scenario("parity.greedy")
PLAIN = make_scenario("chat.basic", "plain")


async def go_on_from_the_reference(session: Session, _: Params, reference: Transcript | None) -> None:
    await session.chat("first", message("Say a word."))
    if reference is not None:
        said = reply.chat(reference.exchanges[0])
        assert isinstance(said, reply.Answer)
        await session.chat("from-theirs", message(f"Go on from: {said.text}"))


def same_text(left: Transcript, right: Transcript, _: Params) -> list[Finding]:
    texts = [said.text for side in (left, right) if isinstance(said := reply.chat(side.exchanges[0]), reply.Answer)]
    outcome = Outcome.HELD if len(set(texts)) == 1 else Outcome.VIOLATED
    ids = tuple(side.exchanges[0].id for side in (left, right))
    return [Finding(check="is-answered", outcome=outcome, why="texts", evidence=ids, level=Level.MUST)]


PROBES = [
    make_probe(drive=go_on_from_the_reference, judge=lambda *_: [], contrast=same_text, needs_reference=True),
    make_probe("plain"),
]


def recorded(tmp_path: Path, name: str = "gpu", server: Odd | None = None, **how: Any) -> Path:
    Lab(tmp_path / "ref", {name: server or Odd()}, [GREEDY], PROBES, **how).run()
    return tmp_path / "ref"


def held_against(tmp_path: Path, name: str = "tpu", server: Odd | None = None, scenarios=(GREEDY,)) -> Lab:
    lab = Lab(tmp_path / "run", {name: server or Odd()}, list(scenarios), PROBES)
    lab.run(recorded=recording(str(tmp_path / "ref"), [name]))
    return lab


def test_the_recorded_transcript_drives_the_candidate_and_is_judged_against(tmp_path):
    recorded(tmp_path)
    server = Odd()
    report = held_against(tmp_path, server=server).report()
    assert any(b"Go on from: " in request.body for request in server.seen)
    assert report.reference == "gpu"
    assert [cell_of(report, "parity.greedy", name).status for name in ("gpu", "tpu")] == [Status.SUPPORTED] * 2
    assert [str(each.delta) for each in report.compared("parity.greedy")] == ["same"]


def test_it_is_the_same_as_a_run_of_both_at_once(tmp_path):
    recorded(tmp_path)
    apart = held_against(tmp_path, server=Odd(language="babbling")).report()
    servers = {"gpu": Odd(), "tpu": Odd(language="babbling")}
    together = Lab(tmp_path / "both", servers, [GREEDY], PROBES, reference="gpu").run()
    assert [(each.feature, each.delta, each.why) for each in apart.comparisons] == [
        (each.feature, each.delta, each.why) for each in together.comparisons
    ]
    assert apart.requests == together.requests


def test_judging_the_folder_again_says_the_same(tmp_path):
    recorded(tmp_path)
    lab = held_against(tmp_path)
    (live,) = lab.trials
    (again,) = cell_of(read_back(tmp_path / "run", lab.probes), "parity.greedy", "tpu").findings
    assert (again,) == live.findings
    assert len(again.evidence) == 2


def test_exchange_ids_go_on_after_the_recorded_ones(tmp_path):
    recorded(tmp_path)
    held_against(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "run/run.jsonl").read_text().splitlines()]
    ids = [line["id"] for line in lines if line["type"] == "exchange"]
    assert len(ids) == len(set(ids))


def test_the_same_name_is_told_apart(tmp_path):
    recorded(tmp_path, "one")
    report = held_against(tmp_path, "one").report()
    assert [each.endpoint.name for each in report.subjects] == ["one-recorded", "one"]


def test_a_row_that_was_not_recorded_is_run_and_has_no_other_side(tmp_path):
    recorded(tmp_path)
    report = held_against(tmp_path, scenarios=(GREEDY, PLAIN)).report()
    left = cell_of(report, "chat.basic", "gpu")
    assert (left.status, left.skip_code) == (Status.SKIPPED, SkipCode.NOT_SELECTED)
    assert left.reason == "not part of the recording ref"
    assert cell_of(report, "chat.basic", "tpu").status is Status.SUPPORTED


def test_what_was_asked_differently_is_not_taken_over(tmp_path):
    recorded(tmp_path)
    other = dataclasses.replace(GREEDY, probe="plain")
    report = held_against(tmp_path, scenarios=(other,)).report()
    assert "asked this differently" in cell_of(report, "parity.greedy", "gpu").reason
    assert cell_of(report, "parity.greedy", "tpu").status is Status.SUPPORTED


def test_when_it_was_recorded_is_said_where_conditions_are_listed(tmp_path):
    recorded(tmp_path, trials=2)
    report = held_against(tmp_path).report()
    assert "trials: 2 | adaptive" in report.confounders


def test_a_recording_that_died_is_refused(tmp_path):
    folder = recorded(tmp_path)
    text = (folder / "run.jsonl").read_text()
    (folder / "run.jsonl").write_text("".join(line for line in text.splitlines(True) if '"footer"' not in line))
    with pytest.raises(UsageError, match="--resume"):
        recording(str(folder), ["tpu"])


def test_resuming_leaves_the_recorded_side_alone(tmp_path):
    recorded(tmp_path)
    lab = held_against(tmp_path)
    assert [each.name for each in plan_of(tmp_path / "run", lab.probes).endpoints] == ["tpu"]


def test_a_recording_is_an_ordinary_run_that_compare_takes(tmp_path):
    recorded(tmp_path)
    lab = Lab(tmp_path / "other", {"tpu": Odd(answers(400))}, [GREEDY], PROBES)
    lab.run()
    assert join(str(tmp_path / "ref"), str(tmp_path / "other"), tmp_path / "joined") == ("gpu", "tpu")


def test_comparison_rows_are_planned_for_one_endpoint_beside_a_recording():
    probes = {each.id: each for each in PROBES}
    settings = plans.Settings(allow=frozenset(Risk))
    beside = plans.make([endpoint()], [GREEDY, PLAIN], probes, settings=settings, recorded=True)
    without = plans.make([endpoint()], [GREEDY, PLAIN], probes, settings=settings)
    assert {each.feature for each in beside.scenarios} == {"parity.greedy", "chat.basic"}
    assert [each.feature for each in without.scenarios] == ["chat.basic"]


def test_a_recording_holds_what_comparisons_need_of_one_endpoint():
    assert {"parity.*", "quantization.recovery"} <= set(ROWS)
    with pytest.raises(UsageError, match="one endpoint"):
        alone([endpoint("a"), endpoint("b")])
