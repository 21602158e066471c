"""A judge that sees that a row makes no sense says so, and the cell is skipped for that, on the spot and offline."""

from __future__ import annotations

import pytest

from servecheck.model import NotApplicable, Outcome, SkipCode, Status
from servecheck.probe import Judgement
from tests.lab import Lab, Odd, answers, cell_of, finding, make_probe

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
