"""Server-sent events from recorded chunks, as they were sent: nothing is repaired and nothing is skipped.

Follows the WHATWG rules for lines, comments and fields (https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from servecheck.model import Chunk

__all__ = ["DONE", "Event", "EventReader", "Events", "events"]

DONE = b"[DONE]"

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(NamedTuple):
    """One dispatched event: when its closing blank line arrived, its ``event:`` field, its joined ``data:`` lines."""

    at: float
    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """All events of one reply. ``tail`` is what followed the last blank line: an event that never ended."""

    events: tuple[Event, ...]
    comments: int
    unknown_lines: tuple[bytes, ...]
    tail: bytes


class EventReader:
    """Reads events as bytes come in; used live to hang up after some events, and afterwards by :func:`events`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.comments = 0
        self.unknown_lines: list[bytes] = []
        self._buffer = b""
        self._searched = 0  # how much of the buffer is known to hold no line end: a dripping server costs no more
        self._raw_event = b""
        self._data: list[bytes] = []
        self._name = b""
        self._started = False

    def feed(self, chunk: Chunk) -> None:
        """Take the next bytes."""
        self._buffer += chunk.data
        if not self._started and self._buffer:
            self._buffer = self._buffer.removeprefix(b"\xef\xbb\xbf")
            self._started = True
        position = 0
        for match in _LINE_END.finditer(self._buffer, self._searched):
            # A carriage return at the very end may be half of a line end whose other half is still to come.
            if match.group() == b"\r" and match.end() == len(self._buffer):
                break
            self._line(self._buffer[position : match.start()], chunk.at, self._buffer[position : match.end()])
            position = match.end()
        self._buffer = self._buffer[position:]
        self._searched = max(0, len(self._buffer) - 1)

    def finish(self, at: float) -> Events:
        """Take the end of the reply."""
        if self._buffer.endswith(b"\r"):
            self._line(self._buffer[:-1], at, self._buffer)
            self._buffer = b""
        return Events(
            events=tuple(self.events),
            comments=self.comments,
            unknown_lines=tuple(self.unknown_lines),
            tail=self._raw_event + self._buffer,
        )

    def _line(self, line: bytes, at: float, raw: bytes) -> None:
        if not line:
            if self._data or self._name:
                self.events.append(Event(at, self._name.decode("utf-8", "replace"), b"\n".join(self._data)))
            self._data, self._name, self._raw_event = [], b"", b""
            return
        if line.startswith(b":"):
            self.comments += 1
            return
        self._raw_event += raw
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field not in (b"id", b"retry"):
            self.unknown_lines.append(line)


def events(chunks: Iterable[Chunk]) -> Events:
    """Return the events in ``chunks``."""
    reader, at = EventReader(), 0.0
    for chunk in chunks:
        reader.feed(chunk)
        at = chunk.at
    return reader.finish(at)
