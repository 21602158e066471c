"""Events are read as the WHATWG rules say, the same whatever the chunking, and in linear time."""

from __future__ import annotations

import random
import time

import pytest

from servecheck.model import Chunk
from servecheck.read.sse import EventReader, events


def read(*pieces: bytes):
    return events([Chunk(float(at), piece) for at, piece in enumerate(pieces)])


def told(*pieces: bytes) -> list[tuple[str, bytes]]:
    return [(event.name, event.data) for event in read(*pieces).events]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data: a\n\n", [("", b"a")]),
        (b"data:a\n\n", [("", b"a")]),
        (b"data:  a\n\n", [("", b" a")]),
        (b"data: a\r\n\r\n", [("", b"a")]),
        (b"data: a\r\r", [("", b"a")]),
        (b"data: a\n\r\n", [("", b"a")]),
        (b"data: a\r\n\rdata: b\n\n", [("", b"a"), ("", b"b")]),
        (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
        (b"data\n\n", [("", b"")]),
        (b"data:\n\n", [("", b"")]),
        (b"data: a: b\n\n", [("", b"a: b")]),
        (b"event: error\ndata: x\n\n", [("error", b"x")]),
        (b"event: done\n\n", [("done", b"")]),
        (b"id: 7\nretry: 10\ndata: x\n\n", [("", b"x")]),
        (b"\n\n\ndata: x\n\n\n", [("", b"x")]),
        (b": ping\n\ndata: x\n\n", [("", b"x")]),
        (b"\xef\xbb\xbfdata: x\n\n", [("", b"x")]),
        (b"data: x\n\n\xef\xbb\xbfdata: y\n\n", [("", b"x")]),
        (b"data: a\xe2\x80\xa8b\x85\x0b\x0c\n\n", [("", b"a\xe2\x80\xa8b\x85\x0b\x0c")]),
        (b"data: \xff\x00\n\n", [("", b"\xff\x00")]),
        (b"Data: x\n\n", []),
        (b"data: x\n", []),
        (b"", []),
    ],
)
def test_events(raw, expected):
    assert told(raw) == expected


@pytest.mark.parametrize(
    ("raw", "comments", "unknown", "tail"),
    [
        (b": a\n:b\n\n", 2, (), b""),
        (b"Data: x\n{}\n\n", 0, (b"Data: x", b"{}"), b""),
        (b"data: a\n\ndata: b\ndata: c", 0, (), b"data: b\ndata: c"),
        (b"data: a\n\ndata: b\r\n", 0, (), b"data: b\r\n"),
        (b"data: [DONE]", 0, (), b"data: [DONE]"),
        (b"\xef\xbb", 0, (), b"\xef\xbb"),
        (b"data: a\n\n: bye", 0, (), b": bye"),
    ],
)
def test_what_is_no_event_is_not_lost(raw, comments, unknown, tail):
    found = read(raw)
    assert (found.comments, found.unknown_lines, found.tail) == (comments, unknown, tail)


def test_an_event_has_the_time_of_its_blank_line():
    assert [event.at for event in read(b"data: a\n", b"\ndata: b", b"\n", b"\n").events] == [1.0, 3.0]


def test_a_return_at_a_border_is_one_line_end_with_the_line_feed_behind_it():
    assert told(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [("", b"a\nb")]
    assert told(b"data: a\r", b"\r", b"data: b\r", b"\r") == [("", b"a"), ("", b"b")]


_ALPHABET = [
    b"data: ",
    b"data:",
    b"event: e",
    b"x",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b":",
    b" ",
    b"\xef\xbb\xbf",
    b"\xc3",
]


@pytest.mark.parametrize("seed", range(60))
def test_the_same_events_whatever_the_chunking(seed):
    chance = random.Random(seed)
    raw = b"".join(chance.choice(_ALPHABET) for _ in range(40))
    whole = read(raw)
    for _ in range(12):
        cuts = sorted(chance.randrange(len(raw) + 1) for _ in range(chance.randrange(1, 30)))
        pieces = [raw[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
        found = read(*pieces)
        assert [event[1:] for event in found.events] == [event[1:] for event in whole.events], pieces
        assert (found.comments, found.unknown_lines, found.tail) == (whole.comments, whole.unknown_lines, whole.tail)
    assert read(*(raw[at : at + 1] for at in range(len(raw)))).tail == whole.tail


@pytest.mark.parametrize(
    "piece", [b"x" * 40, b"data: x" + b"y" * 40 + b"\n", b": ping\n"], ids=["one line", "one event", "comments"]
)
def test_a_dripping_server_costs_no_more_than_another(piece):
    """Quadratic joining took minutes for what one reply may hold; this is a fifth of it."""
    began = time.process_time()
    reader = EventReader()
    for at in range(40_000):
        reader.feed(Chunk(float(at), piece))
    reader.finish(0.0)
    assert time.process_time() - began < 2
