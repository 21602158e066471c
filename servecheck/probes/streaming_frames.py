"""A chat stream is framed as clients expect it.

What it does: streams the same prompt plainly, with usage asked for, with logprobs, with two choices and with tools,
since a large share of real faults shows in one of these only. Reads the bytes as they came: content type, JSON of
every event, one ``[DONE]`` and nothing after it, one role and one finish per choice, constant id, model and time.

Why it matters: client libraries read a stream without ``[DONE]`` or ``finish_reason`` without complaint, so an answer
that was cut looks complete.

How it could be fooled: by a fault that shows only now and then; repeat it with ``--trials``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import Field

from servecheck.model import Check, Ending, Exchange, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply, sse
from servecheck.read.text import dig, number, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat-streaming"
_PART = Part(mode=Mode.STREAM)
_OK = 200
_PIECEMEAL = "tools-leave-the-text-in-pieces"
_PIECES = 8


class StreamingFramesParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Tell me a story about four animals and where each lives.", description="The user's message."
    )
    max_tokens: int = Field(default=32, ge=8, le=4096, description="Room for each answer.")
    long_tokens: int = Field(
        default=160, ge=8, le=4096, description="Room for the plain answer: long enough to see whether times change."
    )


_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look up a word.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}

_VARIANTS: dict[str, dict[str, Json]] = {
    "plain": {},
    "usage": {"stream_options": {"include_usage": True}},
    "logprobs": {"logprobs": True, "top_logprobs": 1},
    "two-choices": {"n": 2, "temperature": 1},
    "tools": {"tools": [_TOOL]},
}

_WHERE = {
    "plain": "in a plain stream",
    "usage": "with include_usage",
    "logprobs": "with logprobs",
    "two-choices": "with n 2",
    "tools": "with tools",
}
"""Each variant as a reason names it."""


async def drive(session: Session, params: StreamingFramesParams, _: Transcript | None) -> None:
    """Stream the prompt in every variant."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "stream": True}
    for name, more in _VARIANTS.items():
        longer: dict[str, Json] = {"max_tokens": params.long_tokens} if name == "plain" else {}
        await session.chat(name, {**base, **longer, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frames:
    """One stream, taken apart: ``bodies`` are the JSON events before the first ``[DONE]``."""

    variant: str
    exchange: Exchange
    events: tuple[sse.Event, ...]
    tail: bytes
    bodies: tuple[Json, ...]
    not_json: str
    markers: tuple[int, ...]

    @property
    def last_marker(self) -> int | None:
        return self.markers[0] if self.markers else None

    @property
    def chunks(self) -> tuple[Json, ...]:
        """The bodies that carry choices."""
        return tuple(body for body in self.bodies if dig(body, "choices", 0) is not None)

    @property
    def choices(self) -> dict[int, list[Json]]:
        """Each choice's parts, in order, by its index."""
        found: dict[int, list[Json]] = {}
        for body in self.chunks:
            parts = dig(body, "choices")
            for part in parts if isinstance(parts, list) else []:
                found.setdefault(number(dig(part, "index")) or 0, []).append(part)
        return found


def judge(transcript: Transcript, _: StreamingFramesParams) -> Iterator[Finding]:
    """Judge the framing of every variant that was answered; a variant that is refused belongs to another row."""
    plain = transcript.get("plain")
    if plain is None:
        yield _PART.undetermined("answers-as-stream", "no stream was asked for")
        return
    first = reply.not_answered(plain)
    if isinstance(first, reply.Refusal):
        yield _PART.refused("answers-as-stream", f"refused: {first.what}", plain)
        return
    answered = [(name, found) for name in _VARIANTS if (found := transcript.get(name)) and not _refused(found)]
    streams = []
    for name, exchange in answered:
        early = reply.not_answered(exchange)
        if early is not None and (not exchange.body or exchange.status != _OK):
            yield _PART.violated("answers-as-stream", f"{_WHERE[name]}: {early.what}", exchange)
            return
        unstreamed = _unstreamed(name, exchange)
        if unstreamed is not None:
            yield unstreamed
            return
        streams.append(_frames(name, exchange))
    yield _PART.held("answers-as-stream", f"{len(streams)} kinds of request were streamed", *_of(streams))
    for check, rule in _RULES.items():
        yield _judged(check, rule, streams)
    yield from _in_pieces({stream.variant: stream for stream in streams})


def _in_pieces(streams: Mapping[str, _Frames]) -> Iterator[Finding]:
    """Judge whether tools that are not called leave the text in pieces, where it comes in many without them."""
    tools, usage = (_texts(streams[name]) if name in streams else [] for name in ("tools", "usage"))
    said = f"the text beside tools comes in {len(tools)} piece(s), in {len(usage)} without them"
    if len(usage) < _PIECES or sum(map(len, tools)) * 2 < sum(map(len, usage)):
        return  # it came in few pieces anyway, or the model called a tool or said little
    seen = (streams["tools"].exchange, streams["usage"].exchange)
    yield (_PART.held if len(tools) > 1 else _PART.violated)(_PIECEMEAL, said, *seen, variant="tools")


def _texts(stream: _Frames) -> list[str]:
    return [text for part in stream.choices.get(0, ()) if (text := string(dig(part, "delta", "content")))]


def _refused(exchange: Exchange) -> bool:
    return isinstance(reply.chat(exchange), reply.Refusal)


def _unstreamed(name: str, exchange: Exchange) -> Finding | None:
    """Return the finding for a reply that is one JSON document: ``stream`` was accepted and had no effect."""
    if reply.is_stream(exchange):
        return None
    try:
        body = parse(exchange.body)
    except ValueError:
        return None
    if dig(body, "choices") is None:
        return None
    return _PART.no_effect("answers-as-stream", f"{_WHERE[name]}: stream was asked for, one whole reply came", exchange)


def _frames(name: str, exchange: Exchange) -> _Frames:
    stream = sse.events(exchange.chunks)
    bodies, not_json, markers = [], "", []
    for place, event in enumerate(stream.events):
        if event.data.strip() == sse.DONE:
            markers.append(place)
            continue
        if not event.data and event.name:
            continue  # a named event without data is not dispatched
        if not event.data:
            # A line “data:” is dispatched with an empty text, on which a client that parses every event dies.
            not_json = not_json or f"event {place + 1} has an empty data line"
            continue
        try:
            body = parse(event.data)
        except ValueError as error:
            not_json = not_json or f"event {place + 1} is {quote(event.data, 60)}: {error}"
            continue
        if not markers:
            bodies.append(body)
    return _Frames(
        variant=name,
        exchange=exchange,
        events=stream.events,
        tail=stream.tail,
        bodies=tuple(bodies),
        not_json=not_json,
        markers=tuple(markers),
    )


def _of(streams: list[_Frames]) -> list[Exchange]:
    return [stream.exchange for stream in streams]


def _judged(check: str, rule: Callable[[_Frames], str], streams: list[_Frames]) -> Finding:
    """Judge one rule over all variants, and say in which of them it breaks: the first is the evidence."""
    broken = [(stream, problem) for stream in streams if (problem := rule(stream))]
    if not broken:
        return _PART.held(check, f"in {len(streams)} kinds of request", *_of(streams))
    first, problem = broken[0]
    names = " and ".join(_WHERE[stream.variant] for stream, _ in broken)
    if len(broken) < len(streams):
        rest = (
            "streams of one choice are"
            if [stream.variant for stream, _ in broken] == ["two-choices"]
            else "the others are"
        )
        why = f"only {names}: {problem}; {rest} right"
    else:
        why = f"{names if len(streams) == 1 else f'in all {len(streams)} kinds of request'}: {problem}"
    return _PART.violated(check, why, first.exchange, variant=first.variant)


def _content_type(stream: _Frames) -> str:
    given = stream.exchange.header("content-type")
    return "" if reply.is_stream(stream.exchange) else f"content-type is {given!r}"


def _cut(stream: _Frames) -> str:
    if stream.exchange.ending is not Ending.COMPLETE:
        return f"the connection ended early: {stream.exchange.detail}"
    return f"the last event has no end: {quote(stream.tail, 60)}" if stream.tail.strip() else ""


def _error(stream: _Frames) -> str:
    for body in stream.bodies:
        error = reply.error_event(body)
        if error is not None:
            return f"an error event in a 200 stream: {quote(reply.message_of(error) or str(error))}"
    return ""


def _done(stream: _Frames) -> str:
    if stream.markers:
        return ""
    last = quote(stream.events[-1].data, 60) if stream.events else "no event at all"
    return f"no [DONE]; the last of {len(stream.events)} events is {last}"


def _done_once(stream: _Frames) -> str:
    return f"[DONE] came {len(stream.markers)} times" if len(stream.markers) > 1 else ""


def _nothing_follows(stream: _Frames) -> str:
    if stream.last_marker is None:
        return ""
    after = [event for event in stream.events[stream.last_marker + 1 :] if event.data.strip() not in (sse.DONE, b"")]
    return f"after [DONE] came {quote(after[0].data, 60)}" if after else ""


def _one_finish(stream: _Frames) -> str:
    if not stream.choices:
        return "no choice in any event"
    for index, parts in stream.choices.items():
        reasons = [string(dig(part, "finish_reason")) for part in parts if dig(part, "finish_reason") is not None]
        if len(reasons) != 1:
            return f"choice {index} has {len(reasons)} finish reasons{': ' + ', '.join(reasons) if reasons else ''}"
    return ""


def _finish_last(stream: _Frames) -> str:
    for index, parts in stream.choices.items():
        ends = [place for place, part in enumerate(parts) if dig(part, "finish_reason") is not None]
        after = parts[ends[0] + 1 :] if ends else []
        if any(_says_something(part) for part in after):
            return f"choice {index} goes on after its finish_reason"
    places = [place for place, body in enumerate(stream.bodies) if isinstance(dig(body, "usage"), dict)]
    ends = [place for place, body in enumerate(stream.bodies) if _ends_a_choice(body)]
    alone = [place for place in places if dig(stream.bodies[place], "choices", 0) is None]
    if alone and ends and alone[0] < ends[-1]:
        return "the usage chunk comes before the last finish_reason"
    return ""


def _says_something(part: Json) -> bool:
    delta = dig(part, "delta")
    return any(bool(dig(delta, key)) for key in ("content", "reasoning", "reasoning_content", "tool_calls"))


def _ends_a_choice(body: Json) -> bool:
    parts = dig(body, "choices")
    return isinstance(parts, list) and any(dig(part, "finish_reason") is not None for part in parts)


def _role_given(stream: _Frames) -> str:
    """Judge the role: a wrong one anywhere, none where tools are offered, since clients open a call's message by it."""
    for index, parts in stream.choices.items():
        given = [dig(part, "delta", "role") for part in parts if "role" in _keys(dig(part, "delta"))]
        roles = {string(role) for role in given} - {""}
        if not roles and (given or stream.variant == "tools"):
            return f"choice {index} never says its role"
        if not roles:
            continue
        if roles != {"assistant"}:
            return f"choice {index} has the role {', '.join(sorted(roles))}"
    return ""


def _keys(value: Json) -> frozenset[str]:
    return frozenset(value) if isinstance(value, dict) else frozenset()


def _role_once(stream: _Frames) -> str:
    for index, parts in stream.choices.items():
        places = [place for place, part in enumerate(parts) if string(dig(part, "delta", "role"))]
        if len(places) > 1:
            return f"choice {index} says its role {len(places)} times in {len(parts)} chunks"
        if places and places[0] > 0:
            return f"choice {index} says its role in chunk {places[0] + 1}, not in the first"
    return ""


def _constant(key: str) -> Callable[[_Frames], str]:
    def rule(stream: _Frames) -> str:
        values = list(dict.fromkeys(str(dig(body, key)) for body in stream.chunks))
        if len(values) > 1:
            return f"{key} changes: {quote(values[0], 40)}, {quote(values[1], 40)}"
        return f"{key} is missing" if values == ["None"] else ""

    return rule


def _own_id(stream: _Frames) -> str:
    """Judge the id of a stream of one choice; that several choices share theirs is a rule of its own, and weighs less:
    engines give every choice an id, and some end the first choice with the id of the last.
    """
    if stream.variant == "two-choices":
        return ""
    seen: dict[int, str] = {}
    for body in stream.chunks:
        identifier = dig(body, "id")
        if not isinstance(identifier, str) or not identifier:
            return f"id is {identifier!r}"
        parts = dig(body, "choices")
        for part in parts if isinstance(parts, list) else []:
            first = seen.setdefault(number(dig(part, "index")) or 0, identifier)
            if first != identifier:
                return f"id changes within a choice: {quote(first, 40)}, {quote(identifier, 40)}"
    return ""


def _named(stream: _Frames) -> str:
    for body in stream.chunks:
        if dig(body, "object") != "chat.completion.chunk":
            return f"object is {dig(body, 'object')!r}"
    return ""


def _indexed(stream: _Frames) -> str:
    for place, body in enumerate(stream.chunks):
        parts = dig(body, "choices")
        for part in parts if isinstance(parts, list) else []:
            if number(dig(part, "index")) is None:
                return f"chunk {place + 1} has a choice with index {dig(part, 'index')!r}"
    return ""


def _unended(stream: _Frames) -> str:
    """Return where the finish reason is left out: a reader that compares it with null takes the answer as ended."""
    for place, body in enumerate(stream.chunks):
        parts = dig(body, "choices")
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and "finish_reason" not in part:
                return f"chunk {place + 1} has a choice without finish_reason, where null says that it goes on"
    return ""


_RULES: dict[str, Callable[[_Frames], str]] = {
    "stream-is-event-stream": _content_type,
    "events-are-json": lambda stream: stream.not_json,
    "stream-is-not-cut": _cut,
    "no-error-event": _error,
    "stream-ends-with-done": _done,
    "done-comes-once": _done_once,
    "nothing-follows-done": _nothing_follows,
    "one-finish-per-choice": _one_finish,
    "finish-then-only-usage": _finish_last,
    "role-is-given": _role_given,
    "role-comes-once-first": _role_once,
    "id-is-constant": _own_id,
    "choices-share-the-id": _constant("id"),
    "model-is-constant": _constant("model"),
    "created-is-constant": _constant("created"),
    "chunk-object-is-named": _named,
    "choices-have-an-index": _indexed,
    "finish-reason-is-null-until-the-end": _unended,
}

_SSE = "https://html.spec.whatwg.org/multipage/server-sent-events.html"

PROBE = Probe(
    id="streaming_frames",
    doc=__doc__ or "",
    checks=(
        Check(id="answers-as-stream", rule="With stream: true a stream comes.", level=Level.MUST, source=_SOURCE),
        Check(
            id="stream-is-event-stream",
            rule="A stream's content type is text/event-stream.",
            level=Level.MUST,
            source=_SSE,
        ),
        Check(id="events-are-json", rule="Every event but [DONE] is JSON.", level=Level.MUST, source=_SOURCE),
        Check(
            id="stream-is-not-cut",
            rule="The connection ends by itself, after a whole event.",
            level=Level.MUST,
            source=_SSE,
        ),
        Check(id="no-error-event", rule="A valid request gets no error event.", level=Level.MUST, source=_SOURCE),
        Check(id="stream-ends-with-done", rule="A stream ends with data: [DONE].", level=Level.MUST, source=_SOURCE),
        Check(id="done-comes-once", rule="[DONE] comes once for the whole request.", level=Level.MUST, source=_SOURCE),
        Check(id="nothing-follows-done", rule="Nothing comes after [DONE].", level=Level.MUST, source=_SOURCE),
        Check(
            id="one-finish-per-choice",
            rule="Every choice has exactly one finish_reason that is not null.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="finish-then-only-usage",
            rule="After a choice's finish_reason comes nothing of it; usage comes after the last one.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="role-is-given",
            rule="The role is “assistant”, and is said wherever tools are offered.",
            level=Level.MUST,
            source="https://github.com/tensorzero/tensorzero/issues/1265",
        ),
        Check(
            id="role-comes-once-first",
            rule="A choice says its role once, in its first chunk.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id="id-is-constant",
            rule="All chunks of a stream of one choice have one id.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="choices-share-the-id",
            rule="All chunks of a stream have one id, whichever choice they belong to.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(id="model-is-constant", rule="All chunks of a stream name one model.", level=Level.MUST, source=_SOURCE),
        Check(
            id="created-is-constant",
            rule="All chunks of a stream have one creation time.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id="chunk-object-is-named",
            rule="Every chunk's object is “chat.completion.chunk”.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_PIECEMEAL,
            rule="A text comes in pieces also where tools are offered and none is called.",
            level=Level.SHOULD,
            source="https://github.com/ollama/ollama/issues/9084",
        ),
        Check(
            id="choices-have-an-index",
            rule="Every choice in every chunk has its index; typed clients refuse a chunk without one.",
            level=Level.SHOULD,
            source="https://github.com/AmanCode22/deeperseeker/pull/8",
        ),
        Check(
            id="finish-reason-is-null-until-the-end",
            rule="Every choice in every chunk has finish_reason: null while it goes on, and not left out.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/19650",
        ),
    ),
    params=StreamingFramesParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=390,
    output_tokens=210,
)
