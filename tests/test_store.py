"""A run folder keeps every value to the byte, and is refused in words where it cannot be written or read back."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import tracemalloc
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
)
from servecheck.store import RUN_FILE, CaseEnd, RunReader, RunWriter, to_json

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
