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

_BOM = b"\xef\xbb\xbf"
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
        # The line that has no end yet, in pieces: joined once, so that a dripping server costs no more than another.
        self._pieces: list[bytes] = []
        self._raw_event: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._started = False

    def feed(self, chunk: Chunk) -> None:
        """Take the next bytes."""
        data = chunk.data
        if not data:
            return
        if not self._started:
            data = b"".join((*self._pieces, data))
            self._pieces = []
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._pieces = [data]
                return
            data = data.removeprefix(_BOM)
            self._started = True
        # A carriage return at the very end may be half of a line end whose other half is still to come.
        open_return = bool(self._pieces) and self._pieces[-1].endswith(b"\r")
        if not open_return and b"\n" not in data and b"\r" not in data:
            self._pieces.append(data)
            return
        buffer = b"".join((*self._pieces, data))
        begin = max(0, len(buffer) - len(data) - 1)  # nothing before it is a line end
        position = 0
        for match in _LINE_END.finditer(buffer, begin):
            if match.group() == b"\r" and match.end() == len(buffer):
                break
            self._line(buffer[position : match.start()], chunk.at, buffer[position : match.end()])
            position = match.end()
        rest = buffer[position:]
        self._pieces = [rest] if rest else []

    def finish(self, at: float) -> Events:
        """Take the end of the reply."""
        rest = b"".join(self._pieces)
        if rest.endswith(b"\r"):
            self._line(rest[:-1], at, rest)
            rest = b""
        self._pieces = [rest] if rest else []
        return Events(
            events=tuple(self.events),
            comments=self.comments,
            unknown_lines=tuple(self.unknown_lines),
            tail=b"".join(self._raw_event) + rest,
        )

    def _line(self, line: bytes, at: float, raw: bytes) -> None:
        if not line:
            if self._data or self._name:
                self.events.append(Event(at, self._name.decode("utf-8", "replace"), b"\n".join(self._data)))
            self._data, self._name, self._raw_event = [], b"", []
            return
        if line.startswith(b":"):
            self.comments += 1
            return
        self._raw_event.append(raw)
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
