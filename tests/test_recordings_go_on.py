"""A recorded run is enough to judge it again, and to go on with it wherever it was cut."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from servecheck.errors import StoreError
from servecheck.model import (
    Finding,
    Outcome,
    Status,
    Transcript,
)
from servecheck.plan import Skip
from servecheck.probe import Params, Session
from servecheck.read.sse import events
from servecheck.reference import virtual
from servecheck.reference.server import ReferenceServer
from servecheck.run import plan_of
from servecheck.store import RUN_FILE, RunReader
from tests.lab import ODD, Lab, Odd, answers, make_probe, make_scenario, message

FEATURES = ("chat.basic", "chat.stop", "structured.json_schema", "streaming.frames")


async def _four(session: Session, _: Params, __: Transcript | None) -> None:
    """Send four requests at once whose replies come back in another order, and a stream."""
    body = {**message(ODD), "max_tokens": 4}
    waits = [session.chat(f"c{n}", {**body, "max_tokens": 4 + 8 * (3 - n)}) for n in range(4)]
    await session.concurrently(waits)
    await session.chat("stream", {**message("x"), "stream": True})


def _steps(transcript: Transcript, _: Params) -> list[Finding]:
    """Say everything that a judge could see: order, sizes, times."""
    seen = [(e.step, e.id, e.status, len(e.chunks), e.sent, e.headers_at, e.ended_at) for e in transcript]
    frames = len(events(transcript.exchanges[-1].chunks).events)
    measured = {f"{step}_{place}": value for place, (step, *values) in enumerate(seen) for value in values[4:]}
    return [Finding(check="is-answered", outcome=Outcome.HELD, why=f"{seen} {frames}", measured=measured)]


def lab(folder: Path, server: ReferenceServer | None = None, **kwargs) -> Lab:
    return Lab(
        folder,
        server or Odd(decode_seconds=0.01),
        [make_scenario(feature) for feature in FEATURES],
        [make_probe(drive=_four, judge=_steps)],
        skips=[Skip(feature="chat.n", code="opt-in", reason="r")],
        **kwargs,
    )


def test_a_recording_judged_again_gives_the_same_trials_to_the_last_digit(tmp_path):
    running = lab(tmp_path / "run", trials=2)
    run = running.run()
    live = [finding for trial in running.trials for finding in trial.findings]
    again = [finding for cell in run.cells for finding in cell.findings]
    assert sorted(live, key=repr) == sorted(again, key=repr)
    assert len(again) == 8
    assert "'c0'" in live[0].why.split("'c3'")[0]  # sending order, although c3 came back first


def test_judging_changes_nothing_in_the_folder(tmp_path):
    running = lab(tmp_path / "run")
    running.run()
    before = (tmp_path / "run" / RUN_FILE).read_bytes()
    assert running.report() == running.report()
    assert (tmp_path / "run" / RUN_FILE).read_bytes() == before


def test_the_plan_of_a_folder_is_the_plan_that_made_it(tmp_path):
    running = lab(tmp_path / "run", trials=2, seed="s", deadline=7.0)
    running.run()
    plan = plan_of(tmp_path / "run", running.probes)
    assert (plan.endpoints, plan.skips) == (running.plan.endpoints, running.plan.skips)
    assert plan.settings == running.plan.settings
    assert [scenario.id for scenario in plan.scenarios] == [scenario.id for scenario in running.plan.scenarios]


def told(run) -> list[tuple[object, ...]]:
    """Return what the cells of a run say, without times."""
    return [(c.feature, c.endpoint, c.status, c.trials, c.skip_code, len(c.findings), c.notes) for c in run.cells]


def test_a_run_cut_at_any_byte_still_gives_a_report_and_goes_on_to_the_same_cells(tmp_path):
    whole = lab(tmp_path / "whole")
    expected = told(whole.run())
    raw = (tmp_path / "whole" / RUN_FILE).read_bytes()
    ends = [at for at, byte in enumerate(raw) if byte == 10]
    chance = random.Random(7)
    first = ends[0] + 1
    places = sorted({*chance.sample(range(first, len(raw)), 12), *(end + 1 for end in chance.sample(ends[1:-1], 6))})
    for place in places:
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / RUN_FILE).write_bytes(raw[:place])
        running = lab(folder)
        died = running.report()
        assert (died.complete, died.interrupted) == (False, None)
        assert len(died.cells) == len(expected)
        assert told(running.run(resume=True)) == expected, place
        assert running.report().complete


class _Stop(ReferenceServer):
    """Interrupts the run at a request, as Ctrl-C does."""

    def __init__(self, at: int, **config) -> None:
        super().__init__(**config)
        self.at, self.count = at, 0
        self.cancel: Callable[[], object] = lambda: None

    async def reply(self, request):
        self.count += 1
        if self.count == self.at:
            self.cancel()
        return await super().reply(request)


@pytest.mark.parametrize("at", [1, 5, 9, 13, 20])
def test_an_interrupted_run_says_so_and_goes_on_to_the_same_cells(tmp_path, at):
    expected = told(lab(tmp_path / "whole").run())
    server = _Stop(at, decode_seconds=0.01)
    running = lab(tmp_path / "run", server)

    async def interrupted() -> None:
        task = asyncio.ensure_future(running.carry_out())
        server.cancel = task.cancel
        with pytest.raises(asyncio.CancelledError):
            await task

    virtual.run(interrupted())
    died = running.report()
    assert (died.complete, died.interrupted) == (False, "interrupted")
    resumed = lab(tmp_path / "run")
    assert told(resumed.run(resume=True)) == expected
    finished = {trial.case.id for trial in running.trials}
    assert finished.isdisjoint({trial.case.id for trial in resumed.trials})
    ids = [line["id"] for line in RunReader(tmp_path / "run").lines("exchange")]
    assert len(ids) == len(set(ids))


def test_a_case_that_was_cut_is_judged_by_its_second_run_alone(tmp_path):
    running = lab(tmp_path / "run")
    running.run()
    lines = (tmp_path / "run" / RUN_FILE).read_text().splitlines(keepends=True)
    cut = next(place for place, line in enumerate(lines) if '"type": "case"' in line)
    (tmp_path / "run" / RUN_FILE).write_text("".join(lines[: cut - 1]))
    resumed = lab(tmp_path / "run")
    run = resumed.run(resume=True)
    cell = run.cell("chat.basic", "e")
    assert cell is not None
    assert cell.findings == resumed.trials[0].findings


def test_a_resumed_run_takes_the_second_looks_that_are_missing(tmp_path):
    first = Lab(tmp_path / "run", Odd(answers(400)))
    first.run()
    lines = (tmp_path / "run" / RUN_FILE).read_text().splitlines(keepends=True)
    cases = [place for place, line in enumerate(lines) if '"type": "case"' in line]
    assert len(cases) == 3
    (tmp_path / "run" / RUN_FILE).write_text("".join(lines[: cases[0] + 1]))
    second = Lab(tmp_path / "run", Odd(answers(400)))
    cell = second.run(resume=True).cell("chat.basic", "e")
    assert cell is not None
    assert (cell.status, cell.tally) == (Status.UNSUPPORTED, "3/3")
    assert [trial.case.trial for trial in second.trials] == [2, 3]


def test_a_resumed_run_remembers_what_others_need(tmp_path):
    scenarios = [make_scenario("chat.basic"), make_scenario("chat.stop", needs=["chat.basic"])]
    Lab(tmp_path / "run", Odd(answers(400)), scenarios).run()
    lines = (tmp_path / "run" / RUN_FILE).read_text().splitlines(keepends=True)
    last = max(place for place, line in enumerate(lines) if '"case": {"id": "chat-basic@e#3"' in line)
    (tmp_path / "run" / RUN_FILE).write_text("".join(lines[: last + 1]))
    cell = Lab(tmp_path / "run", Odd(answers(400)), scenarios).run(resume=True).cell("chat.stop", "e")
    assert cell is not None
    assert (cell.status, cell.skip_code) == (Status.SKIPPED, "needs:chat.basic")


def test_errors_are_tried_again_when_a_run_goes_on_and_no_trace_of_them_is_left(tmp_path):
    server = Odd()
    server.down = True
    before = Lab(tmp_path / "run", server).run().cell("chat.basic", "e")
    server.down = False
    after = Lab(tmp_path / "run", server).run(resume=True).cell("chat.basic", "e")
    assert before is not None
    assert after is not None
    assert (before.status, after.status) == (Status.ERROR, Status.SUPPORTED)
    assert (after.faults, after.tally) == ((), "1/1")


def test_random_words_are_not_sent_twice_by_a_run_that_goes_on(tmp_path):
    async def drive(session: Session, _: Params, __: Transcript | None) -> None:
        await session.chat("odd", message(session.nonce()))

    def words() -> set[bytes]:
        reader = RunReader(tmp_path / "run")
        return {reader.exchange(line).request_body for line in reader.lines("exchange") if line["step"] == "odd"}

    running = Lab(tmp_path / "run", Odd(), probes=[make_probe(drive=drive)])
    running.run()
    first = words()
    lines = (tmp_path / "run" / RUN_FILE).read_text().splitlines(keepends=True)
    cut = next(place for place, line in enumerate(lines) if '"type": "case"' in line)
    (tmp_path / "run" / RUN_FILE).write_text("".join(lines[:cut]))
    running.run(resume=True)
    assert len(words()) == len(first) + 1


def test_a_folder_of_other_probes_is_not_gone_on_with_and_not_touched(tmp_path):
    lab(tmp_path / "run").run()
    path = tmp_path / "run" / RUN_FILE
    header, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps({**json.loads(header), "probes_digest": "0"}) + "\n", *rest]))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="recorded by other probes than these"):
        lab(tmp_path / "run").run(resume=True)
    assert path.read_bytes() == before


def test_a_recording_of_a_probe_that_is_gone_is_said_so(tmp_path):
    running = lab(tmp_path / "run")
    running.run()
    running.probes = {}
    with pytest.raises(StoreError, match="recorded by the probe 'p', which does not exist here"):
        running.report()


def test_a_recording_with_parameters_that_are_gone_is_said_so(tmp_path):
    lab(tmp_path / "run").run()
    path = tmp_path / "run" / RUN_FILE
    header, *rest = path.read_text().splitlines(keepends=True)
    fields = json.loads(header)
    fields["scenarios"] = [{**each, "with": {"gone": 1}} for each in fields["scenarios"]]
    path.write_text("".join([json.dumps(fields) + "\n", *rest]))
    with pytest.raises(StoreError, match=r"does not take \(gone\); read it with the version that recorded it"):
        lab(tmp_path / "run").report()
