"""A run folder keeps every value, survives being cut anywhere, and is enough to judge again and to go on."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import random
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servecheck.errors import StoreError
from servecheck.model import (
    Case,
    Chunk,
    Ending,
    Exchange,
    Fault,
    FaultKind,
    Finding,
    Json,
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
from servecheck.store import RUN_FILE, CaseEnd, RunReader, RunWriter, to_json
from tests.lab import ODD, Lab, Odd, answers, make_probe, make_scenario, message

HEADER: dict[str, Json] = {
    "id": "r",
    "started": "2026-01-01T00:00:00+00:00",
    "endpoints": [{"name": "e", "base_url": "http://h/v1"}],
    "scenarios": [],
}

BODIES = [
    b"",
    b"plain",
    "grün 漢字 🙂 \u2028\x85".encode(),
    b"data: a\r\n\r\rdata: b\n\n",
    b"\x00\x01\x7f",
    b"\xff\xfe\x00half \xc3",
    bytes(range(256)),
    b"x" * 70_000,
    bytes(range(256)) * 300,
    b'{"base64": "bm90IG1l"}',
]


def exchange(body: bytes, number: int = 1, cut: int | None = None, **fields) -> Exchange:
    at = len(body) // 2 if cut is None else cut
    pieces = [piece for piece in (body[:at], body[at:]) if piece]
    return Exchange(
        id=f"x{number:04d}",
        step="a step",
        method="POST",
        url="http://h/v1/x",
        request_headers=(("a", "b"), ("A", "ü")),
        request_body=body,
        sent=1.25,
        status=200,
        response_headers=(("set-cookie", "a"), ("set-cookie", "b"), ("x", "")),
        headers_at=0.5,
        chunks=tuple(Chunk(0.5 + place, piece) for place, piece in enumerate(pieces)),
        ended_at=2.0,
        ending=Ending.TRUNCATED,
        detail="“why”",
        attempt=3,
        **fields,
    )


def written(folder: Path, *exchanges: Exchange) -> RunReader:
    writer = RunWriter(folder)
    writer.header(**HEADER)
    for each in exchanges:
        writer.exchange(each, endpoint="e", case=None)
    writer.close()
    return RunReader(folder)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: f"{len(body)} {body[:8]!r}")
def test_an_exchange_comes_back_as_it_was(tmp_path, body):
    for cut in {0, 1, len(body) // 2}:
        kept = exchange(body, cut=cut)
        reader = written(tmp_path / str(cut), kept)
        assert reader.exchanges(["x0001"]) == {"x0001": kept}


def test_an_exchange_without_a_reply_comes_back_as_it_was(tmp_path):
    kept = Exchange(id="x0001", step="s", method="GET", url="http://h/", ending=Ending.UNREACHABLE)
    assert written(tmp_path / "run", kept).exchanges(["x0001"]) == {"x0001": kept}


def test_large_bodies_go_beside_and_once(tmp_path):
    large = b"x" * 70_000
    reader = written(tmp_path / "run", exchange(large, 1), exchange(large, 2), exchange(large[:100], 3))
    assert len(list((tmp_path / "run" / "blobs").iterdir())) == 1
    assert max(map(len, (tmp_path / "run" / RUN_FILE).read_text().splitlines())) < 150_000
    assert [e.body for e in reader.exchanges(["x0001", "x0002"]).values()] == [large, large]


def test_a_body_that_is_gone_or_changed_is_said_so(tmp_path):
    reader = written(tmp_path / "run", exchange(b"x" * 70_000))
    blob = next((tmp_path / "run" / "blobs").iterdir())
    blob.write_bytes(b"x" * 69_999)
    with pytest.raises(StoreError, match="is not what was recorded"):
        reader.exchanges(["x0001"])["x0001"]
    blob.unlink()
    with pytest.raises(StoreError, match="is gone"):
        reader.exchanges(["x0001"])["x0001"]


def test_exchanges_are_found_by_their_place_and_those_that_are_not_there_are_missing(tmp_path):
    kept = [exchange(body, number) for number, body in enumerate(BODIES, start=1)]
    found = written(tmp_path / "run", *kept).exchanges([*(each.id for each in kept[2:]), "x9999"])

    assert list(found) == [each.id for each in kept[2:]]
    assert len(found) == len(kept) - 2
    assert [found[each.id] for each in reversed(kept[2:])] == list(reversed(kept[2:]))
    assert "x9999" not in found
    assert "x0001" not in found, "it was not asked for"
    with pytest.raises(KeyError):
        found["x9999"]


def test_looking_at_exchanges_one_by_one_holds_one_of_them(tmp_path):
    size = 500_000
    kept = (exchange(bytes([64 + number]) * size, number, cut=size) for number in range(1, 21))
    reader = written(tmp_path / "run", *kept)
    gc.collect()
    tracemalloc.start()
    try:
        found = reader.exchanges(f"x{number:04d}" for number in range(1, 21))
        held = tracemalloc.get_traced_memory()[0]
        read = sum(len(one.body) for one in found.values())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read == 20 * size
    assert held < 100_000, "places only"
    # A line is read, parsed and made into bytes, each of which is a copy of the request's and the reply's body.
    assert peak < 14 * size


def test_a_body_that_a_killed_run_left_half_written_is_written_again(tmp_path):
    large = b"y" * 70_000
    written(tmp_path / "one", exchange(large))
    name = next((tmp_path / "one" / "blobs").iterdir()).name
    writer = RunWriter(tmp_path / "two")
    writer.header(**HEADER)
    (tmp_path / "two" / "blobs").mkdir()
    (tmp_path / "two" / "blobs" / name).with_suffix(".part").write_bytes(large[:10])
    writer.exchange(exchange(large), endpoint="e", case=None)
    writer.close()
    assert RunReader(tmp_path / "two").exchanges(["x0001"])["x0001"].body == large


def test_the_end_of_a_case_comes_back_as_it_was(tmp_path):
    case = Case(id="s@e#1", scenario="s", feature="f", endpoint="e", trial=1)
    fault = Fault(kind=FaultKind.EXCEPTION, reason="r", trace="t\nt", evidence=("x1", "x2"))
    ends = [
        CaseEnd(case=case),
        CaseEnd(case=case, before="x0001", after=("x0002", "x0003"), fault=fault, reason="r"),
        CaseEnd(case=case, skip_code="budget", reason="r"),
    ]
    writer = RunWriter(tmp_path / "run")
    writer.header(**HEADER)
    for end in ends:
        writer.case(end)
    writer.close()
    assert [end for end, _, _ in RunReader(tmp_path / "run").cases()] == ends


def test_numbers_and_texts_that_json_does_not_know_stop_no_run(tmp_path):
    measured = {"a": math.inf, "b": math.nan, "c": -math.inf, "d": 0.1}
    kept = Finding(check="c", outcome=Outcome.HELD, why="half a pair: \ud800", measured=measured)
    writer = RunWriter(tmp_path / "run")
    writer.header(**HEADER)
    writer.write("finding", finding=to_json(kept))
    writer.close()
    (line,) = RunReader(tmp_path / "run").lines("finding")
    assert line["finding"]["why"] == kept.why  # type: ignore[index,call-overload]
    assert line["finding"]["measured"] == {"a": None, "b": None, "c": None, "d": 0.1}  # type: ignore[index,call-overload]


# --------------------------------------------------------------------------- folders


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"is not empty; name another folder with --out$"):
        RunWriter(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_holds_a_run_can_be_gone_on_with(tmp_path):
    RunWriter(tmp_path).close()
    with pytest.raises(StoreError, match=r"is not empty; name another folder with --out, or go on with --resume"):
        RunWriter(tmp_path)


def test_an_empty_folder_is_taken(tmp_path):
    RunWriter(tmp_path).close()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_an_error_in_words(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write the run folder"):
        RunWriter(tmp_path / place)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_leave_to_write_is_an_error_in_words(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot write the run folder"):
        RunWriter(tmp_path / "run")


def test_a_full_disk_is_an_error_in_words(tmp_path):
    writer = RunWriter(tmp_path / "run")
    writer._file.close()
    with Path("/dev/full").open("w") as writer._file, pytest.raises(StoreError, match="No space left on device"):
        writer.write("x", text="x" * 100_000)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is not a run folder: it holds no run.jsonl"),
        (b"", "has no header; the run died before it began"),
        (b'{"type": "header", "sch', "has no header; the run died before it began"),
        (b'{"type": "case"}\n', "has no header"),
        (b'{"type": "header", "schema": "servecheck/run/v9"}\n', "is 'servecheck/run/v9', this version reads"),
        (
            json.dumps({"type": "header", "schema": "servecheck/run/v1", **HEADER}).encode() + b'\n{"type"\n',
            r"run.jsonl:2: is not JSON",
        ),
        (b"[]\n", r"run.jsonl:1: is not an object"),
        (b"\xff\xfe\n", r"run.jsonl:1: is not JSON"),
    ],
)
def test_what_is_no_run_is_an_error_with_its_place(tmp_path, content, words):
    if content is not None:
        (tmp_path / RUN_FILE).write_bytes(content)
    with pytest.raises(StoreError, match=words):
        RunReader(tmp_path)


# --------------------------------------------------------------------------- whole runs


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


# --------------------------------------------------------------------------- a file that was changed


def _changed(line: dict[str, object], *path: str | int, to: object) -> dict[str, object]:
    line = json.loads(json.dumps(line))
    place: Any = line
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return line


CASE_LINE: dict[str, object] = {
    "type": "case",
    "case": {"id": "c", "scenario": "s", "feature": "f", "endpoint": "e", "trial": 1},
}
EXCHANGE_LINE: dict[str, object] = {
    "type": "exchange",
    "id": "x0001",
    "endpoint": "e",
    "step": "s",
    "method": "GET",
    "url": "u",
}
EXCHANGE_LINE |= {"ending": "complete", "chunks": [[0.1, "a"]]}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"type": "case"}, "case line: case: field required"),
        (_changed(CASE_LINE, "case", "trial", to=None), "case line: case.trial: "),
        (_changed(CASE_LINE, "case", "endpoint", to="other"), "about the endpoint 'other', which the header does not"),
        (_changed(EXCHANGE_LINE, "endpoint", to="other"), "about the endpoint 'other', which the header does not"),
        (_changed(EXCHANGE_LINE, "ending", to="sudden"), "exchange line: ending: "),
        (_changed(EXCHANGE_LINE, "response_headers", to=["x"]), "exchange line: response_headers.0: "),
        (_changed(EXCHANGE_LINE, "sent", to=10**400), "exchange line: sent: "),
        (_changed(EXCHANGE_LINE, "chunks", to=[[0.1, {"base64": "abcde"}]]), "exchange line: chunks.0.1"),
        (_changed(EXCHANGE_LINE, "blob", to="../" * 12 + "etc/hostname"), "exchange line: blob: "),
        ({"type": "endpoint", "name": "e", "endpoint": {}, "fingerprint": {}}, "endpoint line: endpoint.name: "),
        ({"type": "footer", "finished": "\x00"}, "footer line: finished: "),
    ],
)
def test_a_line_that_cannot_be_read_back_is_an_error_with_its_place_and_field(tmp_path, line, words):
    (tmp_path / RUN_FILE).write_text(
        "".join(json.dumps(each) + "\n" for each in ({"type": "header", "schema": "servecheck/run/v1", **HEADER}, line))
    )
    with pytest.raises(StoreError, match=f"run.jsonl:2: .*{re.escape(words)}.*changed after the run"):
        RunReader(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("started", "yesterday"),
        ("started", "2026-01-01T00:00:00"),
        ("endpoints", [{}]),
        ("scenarios", [{"id": "s"}]),
        ("skips", [{"feature": "f"}]),
        ("settings", {"allow": ["everything"]}),
        ("profile", {}),
        ("expectations", [{"deviations": ["odd"]}]),
        ("declared", [{"endpoint": "e"}]),
    ],
)
def test_a_header_that_cannot_be_read_back_is_an_error_with_its_field(tmp_path, field, value):
    header = {"type": "header", "schema": "servecheck/run/v1", **HEADER, field: value}
    (tmp_path / RUN_FILE).write_text(json.dumps(header) + "\n")
    with pytest.raises(StoreError, match=f"run.jsonl:1: header line: {field}"):
        RunReader(tmp_path)


# --------------------------------------------------------------------------- two at once


def test_a_run_that_is_being_written_is_not_gone_on_with_and_keeps_every_byte(tmp_path):
    writer = RunWriter(tmp_path / "run")
    writer.header(**HEADER)
    with (tmp_path / "run" / RUN_FILE).open("a") as file:
        file.write('{"type": "exch')  # the other one is in the middle of a line
    before = (tmp_path / "run" / RUN_FILE).read_bytes()
    with pytest.raises(StoreError, match="is being written by another servecheck; wait for it"):
        RunWriter(tmp_path / "run", resume=True)
    assert (tmp_path / "run" / RUN_FILE).read_bytes() == before
    writer.close()
    RunWriter(tmp_path / "run", resume=True).close()


def test_of_two_that_begin_at_the_same_moment_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("servecheck.store.must_be_free", lambda _: None)  # both have looked, and none has written
    RunWriter(tmp_path).close()
    with pytest.raises(StoreError, match="cannot write the run folder"):
        RunWriter(tmp_path)
