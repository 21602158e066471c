"""The rules of a response's event stream, each on its own: order, indexes, ids, texts that add up, the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from servecheck.model import Json
from servecheck.probes._typed_streams import Rule
from servecheck.read.responses import ENDS, items_of, part_texts
from servecheck.read.text import dig, number, quote, string
from servecheck.read.typed import TypedEvent, TypedStream

__all__ = ["MAY", "MUST", "final_of"]

_NEED_A_PART = ("output_text", "refusal")
_ENDED_TEXT = {"output_text": "text", "reasoning_text": "text", "function_call_arguments": "arguments"}
_ITEMS = "response.output_item."
_PARTS = "response.content_part."


def final_of(read: TypedStream) -> Json:
    """Return the response that the last event of a stream carries, ``None`` where no event ends it."""
    ends = [event for event in read.events if event.type in ENDS]
    return dig(ends[-1].body, "response") if ends else None


def _about_items(read: TypedStream) -> Iterator[tuple[int, TypedEvent]]:
    """Yield the events that are about an output item, with their place counted from 1."""
    for place, event in enumerate(read.events, 1):
        body = event.body
        if event.type.startswith(_ITEMS) or dig(body, "output_index") is not None or string(dig(body, "item_id")):
            yield place, event


def _key(body: Json) -> str:
    """Return what tells an item from others: its index, or its id where there is no index."""
    index = number(dig(body, "output_index"))
    return str(index) if index is not None else string(dig(body, "item_id")) or string(dig(body, "item", "id"))


def _begins(read: TypedStream) -> str:
    first = read.events[0].type if read.events else "nothing"
    created = len(read.of("response.created"))
    if first != "response.created":
        return f"the first event is {first or 'nameless'!r}"
    return f"response.created comes {created} times" if created != 1 else ""


def _ends(read: TypedStream) -> str:
    places = [place for place, event in enumerate(read.events) if event.type in ENDS]
    if not places:
        last = read.events[-1].type if read.events else "nothing"
        return f"no event ends the stream; the last is {last!r}"
    if len(places) > 1:
        return f"{len(places)} events end the stream: {', '.join(read.events[place].type for place in places)}"
    after = read.events[places[0] + 1 :]
    return f"{after[0].type!r} comes after {read.events[places[0]].type!r}" if after else ""


def _numbers(read: TypedStream) -> str:
    numbers = [number(dig(event.body, "sequence_number")) for event in read.events]
    given = [each for each in numbers if each is not None]
    for before, after in itertools.pairwise(given):
        if after != before + 1:
            return f"sequence_number goes from {before} to {after}"
    return ""


def _numbered(read: TypedStream) -> str:
    without = [event.type for event in read.events if number(dig(event.body, "sequence_number")) is None]
    return f"{len(without)} of {len(read.events)} events have no sequence_number" if without else ""


def _indexed(read: TypedStream) -> str:
    lacking: list[str] = []
    for _, event in _about_items(read):
        if number(dig(event.body, "output_index")) is None:
            lacking.append(f"{event.type!r} has no output_index")
        in_part = event.type.startswith((_PARTS, "response.output_text."))
        if in_part and number(dig(event.body, "content_index")) is None:
            lacking.append(f"{event.type!r} has no content_index")
    return f"{lacking[0]}, and {len(lacking)} fields like it are missing" if lacking else ""


@dataclass(slots=True)
class _Open:
    """An item that was added: its id, its parts that are open, and the texts that have ended."""

    id: str
    parts: set[int | None] = field(default_factory=set)
    ended: set[tuple[str, int | None]] = field(default_factory=set)
    grew: set[tuple[str, int | None]] = field(default_factory=set)
    done: bool = False


def _order(read: TypedStream) -> str:
    items: dict[str, _Open] = {}
    for place, event in _about_items(read):
        problem = _step(items, event)
        if problem:
            return f"event {place}: {problem}"
    still = next((key for key, item in items.items() if not item.done), None)
    if still is not None and final_of(read) is not None:
        return f"item {still} is added and never done"
    indexes = [key for key in items if key.isdigit()]
    if indexes != [str(place) for place in range(len(indexes))]:
        return f"items are added at the indexes {', '.join(indexes)}"
    return ""


def _step(items: dict[str, _Open], event: TypedEvent) -> str:
    body, key = event.body, _key(event.body)
    if event.type == f"{_ITEMS}added":
        if key in items:
            return f"a second item is added at {key}"
        items[key] = _Open(string(dig(body, "item", "id")))
        return ""
    item = items.get(key)
    if item is None:
        return f"{event.type!r} of an item that was not added"
    if item.done:
        return f"{event.type!r} of an item that is done"
    part = number(dig(body, "content_index"))
    if event.type == f"{_ITEMS}done":
        item.done = True
        missing = next((f"{kind}.done" for kind, at in sorted(item.grew - item.ended, key=str)), "")
        return f"the item is done before its {missing}" if missing else ""
    if event.type == f"{_PARTS}added":
        if part in item.parts:
            return f"a second part is added at {part}"
        item.parts.add(part)
    elif event.type == f"{_PARTS}done" and part not in item.parts:
        return f"the part {part} is done and was not added"
    return _text_step(item, event, part)


def _text_step(item: _Open, event: TypedEvent, part: int | None) -> str:
    kind, _, what = event.type.removeprefix("response.").rpartition(".")
    if kind not in _ENDED_TEXT and kind not in _NEED_A_PART:
        return ""
    if kind in _NEED_A_PART and part not in item.parts:
        return f"{event.type!r} of the part {part}, which was not added"
    if (kind, part) in item.ended:
        return f"{event.type!r} after {kind}.done"
    (item.ended if what == "done" else item.grew).add((kind, part))
    return ""


def _parts_end(read: TypedStream) -> str:
    """Return which part of an item is added and never done although its item is."""
    still: dict[str, set[int | None]] = {}
    for place, event in _about_items(read):
        key, part = _key(event.body), number(dig(event.body, "content_index"))
        if event.type == f"{_PARTS}added":
            still.setdefault(key, set()).add(part)
        elif event.type == f"{_PARTS}done":
            still.setdefault(key, set()).discard(part)
        elif event.type == f"{_ITEMS}done" and still.get(key):
            return f"event {place}: the item is done before its content_part.done"
    return ""


def _ids(read: TypedStream) -> str:
    added: dict[str, str] = {}
    for place, event in _about_items(read):
        key, item = _key(event.body), string(dig(event.body, "item", "id"))
        if event.type == f"{_ITEMS}added":
            if not item:
                return f"event {place}: an item is added without an id"
            added.setdefault(key, item)
            continue
        given = item if event.type.startswith(_ITEMS) else string(dig(event.body, "item_id"))
        if key in added and given != added[key]:
            return f"event {place}: {event.type!r} names the item {given or None!r}, added as {added[key]!r}"
    last = [string(dig(item, "id")) for item in items_of(final_of(read))]
    if final_of(read) is not None and last != list(added.values()):
        return (
            f"the last response holds {', '.join(last) or 'no item'}; added were {', '.join(added.values()) or 'none'}"
        )
    if len(set(added.values())) != len(added):
        return f"two items have one id: {', '.join(added.values())}"
    return ""


def _one_response(read: TypedStream) -> str:
    ids = [dig(event.body, "response", "id") for event in read.events if isinstance(dig(event.body, "response"), dict)]
    known = list(dict.fromkeys(str(each) for each in ids))
    if not ids or not all(isinstance(each, str) and each for each in ids):
        return "a response has no id"
    return f"the response's id changes from {known[0]} to {known[1]}" if len(known) > 1 else ""


def _texts(read: TypedStream) -> str:
    """Return where the pieces of an item do not add up to what is said to be its whole."""
    pieces: dict[tuple[str, str, int | None], list[str]] = {}
    for _, event in _about_items(read):
        kind, _, what = event.type.removeprefix("response.").rpartition(".")
        if kind not in _ENDED_TEXT:
            continue
        key = (_key(event.body), kind, number(dig(event.body, "content_index")))
        joined = pieces.setdefault(key, [])
        if what == "delta":
            joined.append(string(dig(event.body, "delta")))
        elif what == "done":
            whole = string(dig(event.body, _ENDED_TEXT[kind]))
            if "".join(joined) != whole:
                return _apart(event.type, "".join(joined), whole)
    said = {name: "".join("".join(text) for (key, what, _), text in pieces.items() if what == name) for name in _WHERE}
    for name, kind in _WHERE.items():
        items = [dig(event.body, "item") for event in read.of(f"{_ITEMS}done")]
        for where, found in (("the items that are done", items), ("the last response", items_of(final_of(read)))):
            whole = "".join(_whole(item, kind) for item in found if dig(item, "type") == kind)
            if whole != said[name] and (final_of(read) is not None or where != "the last response"):
                return _apart(where, said[name], whole)
    return ""


_WHERE = {"output_text": "message", "function_call_arguments": "function_call"}


def _whole(item: Json, kind: str) -> str:
    return "".join(part_texts(item)) if kind == "message" else string(dig(item, "arguments"))


def _apart(where: str, joined: str, whole: str) -> str:
    return f"the pieces join to {quote(joined, 60)}, and {where} says {quote(whole, 60)}"


def _names_status(read: TypedStream) -> str:
    for event in read.events:
        if event.type in ENDS:
            status = string(dig(event.body, "response", "status"))
            if status and event.type != f"response.{status}":
                return f"the last event is {event.type!r} and its response has the status {status!r}"
    return ""


MUST: dict[str, Rule] = {
    "response-stream-begins-with-created": _begins,
    "response-stream-ends-once": _ends,
    "sequence-numbers-count-up": _numbers,
    "item-events-have-indexes": _indexed,
    "items-open-grow-and-close": _order,
    "item-ids-stay-the-same": _ids,
    "one-response-id-per-stream": _one_response,
    "pieces-join-to-the-whole": _texts,
}
"""Rules without which clients put a stream together wrongly, by the id of their check."""

MAY: dict[str, Rule] = {
    "last-event-names-the-status": _names_status,
    "events-have-sequence-numbers": _numbered,
    "parts-that-open-close": _parts_end,
}
"""Rules whose breach disappoints only clients that check."""
