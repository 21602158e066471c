"""A judge that sees that a row makes no sense says so, and the cell is skipped for that, on the spot and offline."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from servecheck.expectations import Expectation, Standing, apply
from servecheck.model import Decision, Delta, NotApplicable, Outcome, SkipCode, Status
from servecheck.probe import Judgement
from servecheck.probes import discover
from servecheck.reference.asgi import Reply, Request
from servecheck.reference.fields import ApiError
from servecheck.reference.server import ReferenceServer
from servecheck.report.data import RunReport
from servecheck.report.files import rendered
from servecheck.run import read_back
from servecheck.schema.expectations_v1 import Deviation
from tests.lab import Lab, Odd, answers, cell_of, finding, make_probe
from tests.sample_runs import fake_curl
from tests.trying import builtin

SENSELESS = NotApplicable(why="the model does not reason")


def lab(tmp_path, *said, server=None, **settings) -> Lab:
    def judge(*_: object) -> Judgement:
        return list(said)

    made = Lab(tmp_path / "run", server or Odd(), probes=[make_probe(judge=judge)], **settings)
    made.run()
    return made


def test_the_trial_is_skipped_with_the_judges_reason(tmp_path):
    (trial,) = lab(tmp_path, SENSELESS).trials

    assert (trial.status, trial.skip_code) == (Status.SKIPPED, SkipCode.NOT_APPLICABLE)
    assert trial.reason == "the model does not reason"


def test_the_cell_judged_offline_says_the_same(tmp_path):
    cell = cell_of(lab(tmp_path, SENSELESS).report())

    assert (cell.status, cell.skip_code) == (Status.SKIPPED, SkipCode.NOT_APPLICABLE)
    assert cell.reason == "the model does not reason"


def test_it_is_not_looked_at_again(tmp_path):
    assert len(lab(tmp_path, SENSELESS, trials=3).trials) == 1


def test_a_resumed_run_does_not_ask_again(tmp_path):
    run = lab(tmp_path, SENSELESS)
    run.run(resume=True)

    assert len(run.trials) == 1


@pytest.mark.parametrize("said", [(SENSELESS, finding(Outcome.VIOLATED)), (finding(Outcome.VIOLATED), SENSELESS)])
def test_a_finding_wins_over_it(tmp_path, said):
    assert {trial.status for trial in lab(tmp_path, *said, trials=1).trials} == {Status.BROKEN}


def test_an_overloaded_server_is_an_error_whatever_the_judge_makes_of_it(tmp_path):
    assert [trial.status for trial in lab(tmp_path, SENSELESS, server=Odd(answers(429))).trials] == [Status.ERROR]


# --------------------------------------------------------------------------- beside an endpoint that has it


class EmbedsNothing(ReferenceServer):
    """Has no route for embeddings."""

    async def reply_embeddings(self, request: Request) -> Reply:
        raise ApiError("no route", status=404, kind="not_found_error")


def moved(folder: Path, left: ReferenceServer, right: ReferenceServer) -> RunReport:
    mine = [each for each in builtin() if each.feature in ("chat.basic", "embeddings.basic")]
    return Lab(folder, {"gpu": left, "tpu": right}, mine, [*discover().values()], reference="gpu", trials=1).run()


def test_what_the_reference_serves_and_the_candidate_has_no_route_for_is_behind(tmp_path):
    run = moved(tmp_path / "run", ReferenceServer(), EmbedsNothing())
    (found,) = run.compared("embeddings.basic")

    assert (found.delta, found.side) == (Delta.BEHIND, "tpu")
    assert found.why == (
        "supported on gpu, not offered on tpu: POST /embeddings answers HTTP 404, there is no such route: this server "
        "embeds nothing"
    )
    assert [run.exchanges[each].status for each in found.evidence] == [404]
    assert run.verdict.decision is Decision.READY_WITH_CAVEATS
    assert "1 caveat (embeddings.basic not offered)" in run.verdict.sentence


def test_where_the_reference_has_no_route_it_is_the_reference_that_is_behind(tmp_path):
    run = moved(tmp_path / "run", EmbedsNothing(), ReferenceServer())
    (found,) = run.compared("embeddings.basic")

    assert (found.delta, found.side) == (Delta.BEHIND, "gpu")
    assert run.verdict.decision is Decision.READY


def test_where_neither_has_it_nothing_is_compared(tmp_path):
    run = moved(tmp_path / "run", EmbedsNothing(), EmbedsNothing())

    assert list(run.compared("embeddings.basic")) == []
    assert {cell_of(run, "embeddings.basic", name).status for name in ("gpu", "tpu")} == {Status.SKIPPED}


def test_the_matrix_says_not_offered_and_why(tmp_path):
    moved(tmp_path / "run", ReferenceServer(), EmbedsNothing())
    page = rendered(read_back(tmp_path / "run", discover()), "md", fake_curl)
    (line,) = (each for each in page.splitlines() if each.startswith("| `embeddings.basic`"))

    assert line.endswith(
        "| ⏭ not offered | behind | tpu: POST /embeddings answers HTTP 404, there is no such route: this server embeds "
        "nothing |"
    )


def test_it_can_be_accepted_as_unsupported(tmp_path):
    run = moved(tmp_path / "run", ReferenceServer(), EmbedsNothing())
    accepted = Expectation(
        row="embeddings.basic",
        endpoint="tpu",
        deviations=(Deviation.UNSUPPORTED,),
        intermittent=False,
        reason="We embed elsewhere.",
        until=None,
        issue=None,
    )
    (met,) = apply([accepted], run.cells, run.comparisons, run.features, day=date(2026, 11, 30))

    assert met.standing is Standing.MATCHED


def test_another_kind_of_endpoint_is_not_behind_and_is_said(tmp_path):
    mine = [each for each in builtin() if each.feature == "chat.basic"]
    lab = Lab(tmp_path / "run", {"gpu": Odd(), "tpu": Odd()}, mine, [*discover().values()], reference="gpu")
    ends = [replace(each, kind=None if each.reference else "embedding") for each in lab.plan.endpoints]
    lab.plan = replace(lab.plan, endpoints=tuple(ends))
    (found,) = lab.run().compared("chat.basic")

    assert (found.delta, found.why) == (
        Delta.UNCLEAR,
        "supported on gpu, skipped on tpu (this endpoint is of another kind: it embeds and does not generate)",
    )
