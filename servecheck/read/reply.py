"""What an exchange amounts to: an answer, a refusal, or a failure. Says what came back, never whether it is right."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TypeAlias

from servecheck.model import Ending, Exchange, Json
from servecheck.read import gateway, sse
from servecheck.read.text import dig, number, parse, quote, seconds, string

__all__ = [
    "Answer",
    "Choice",
    "Failure",
    "Refusal",
    "Reply",
    "ToolCall",
    "Usage",
    "chat",
    "completion",
    "error_message",
    "json_body",
    "stream_error",
    "usage_of",
]

NOT_IMPLEMENTED = 501
_OVERLOADED = (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call; in a stream the pieces of ``arguments`` are joined in arrival order.

    ``id`` is the first one given; ``ids`` are all that the deltas of this call gave, in order and without repeats.
    ``kind`` is its ``type``, the first one given.
    """

    index: int
    id: str | None
    name: str | None
    arguments: str
    pieces: int = 1
    ids: tuple[str, ...] = ()
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as reported; ``None`` is not reported, not zero. ``reasoning`` is part of ``completion``."""

    prompt: int | None
    completion: int | None
    total: int | None
    cached: int | None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One choice; in a stream its deltas are joined. ``reasoning`` reads both spellings of the field."""

    index: int
    role: str | None = None
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    logprobs: tuple[Json, ...] = ()
    pieces: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A 2xx reply of the expected shape. ``choices`` are in the order of their index."""

    exchange: Exchange
    choices: tuple[Choice, ...]
    usage: Usage | None
    body: Json = None
    stream: sse.Events | None = field(default=None, repr=False)

    @property
    def first(self) -> Choice:
        """The first choice, an empty one where the server gave none."""
        return self.choices[0] if self.choices else Choice(index=0)

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.first.text

    @property
    def finish(self) -> str | None:
        """The finish reason of the first choice."""
        return self.first.finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The server said no: a 4xx or 501, or an error event of that code in a stream already begun."""

    exchange: Exchange
    code: int
    message: str

    @property
    def what(self) -> str:
        """The refusal in a few words."""
        return (
            f"HTTP {self.code}: {quote(self.message, 160)}" if self.message else f"HTTP {self.code} without a message"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No usable reply: 5xx, hang, cut, or bytes of another shape."""

    exchange: Exchange
    what: str


Reply: TypeAlias = Answer | Refusal | Failure


def chat(exchange: Exchange) -> Reply:
    """Read a chat completion, streamed or not, by what the server sent rather than by what was asked."""
    return _reply(exchange, text_field=None)


def completion(exchange: Exchange) -> Reply:
    """Read a text completion, streamed or not."""
    return _reply(exchange, text_field="text")


def json_body(exchange: Exchange) -> Json | Refusal | Failure:
    """Read any other JSON reply."""
    problem = not_answered(exchange)
    if problem:
        return problem
    return parsed(exchange, exchange.body)


def not_answered(exchange: Exchange) -> Refusal | Failure | None:
    """Return the refusal or failure that shows before the body is read, ``None`` where there is a whole 2xx reply."""
    if exchange.status is None:
        if exchange.ending is Ending.DEADLINE:
            return Failure(exchange=exchange, what=f"no reply within {seconds(exchange.ended_at)}")
        return Failure(exchange=exchange, what=f"no reply: {exchange.detail or exchange.ending}")
    if exchange.status >= 400:
        message = error_message(exchange.body)
        reason = f"({dropped})" if (dropped := gateway.dropped(exchange)) else ""
        if exchange.status < 500 or exchange.status == NOT_IMPLEMENTED:
            return Refusal(exchange=exchange, code=exchange.status, message=f"{message} {reason}".strip())
        what = f"HTTP {exchange.status}: {quote(message or exchange.body)} {reason}".strip()
        return Failure(exchange=exchange, what=what)
    if exchange.status >= 300:
        return Failure(exchange=exchange, what=f"HTTP {exchange.status} to {quote(exchange.header('location') or '')}")
    if exchange.ending is Ending.DEADLINE:
        return Failure(
            exchange=exchange,
            what=f"reply not finished within {seconds(exchange.ended_at)}, {len(exchange.body)} bytes came",
        )
    if exchange.ending in (Ending.TRUNCATED, Ending.UNREACHABLE):
        return Failure(exchange=exchange, what=f"reply cut after {len(exchange.body)} bytes: {exchange.detail}")
    packed = (exchange.header("content-encoding") or "identity").strip().lower()
    if packed not in ("identity", ""):
        what = f"reply is compressed ({quote(packed, 20)}) although the request accepts nothing but identity"
        return Failure(exchange=exchange, what=what)
    return None


def error_message(body: bytes) -> str:
    """Return the message in an error body of any known family: nested, flat, ``detail``, a bare string, plain text."""
    try:
        return message_of(parse(body))
    except ValueError:
        return body.decode("utf-8", "replace").strip()[:300]


def message_of(error: Json) -> str:
    """Return the message in a parsed error body."""
    if isinstance(error, str):
        return error
    for path in (("error", "message"), ("message",), ("error",), ("detail",), ("detail", 0, "msg")):
        found = string(dig(error, *path))
        if found:
            return found
    return ""


def usage_of(body: Json) -> Usage | None:
    """Read a ``usage`` object, ``None`` where there is none."""
    usage = dig(body, "usage")
    if not isinstance(usage, dict):
        return None
    cached = number(dig(usage, "prompt_tokens_details", "cached_tokens"))
    reasoning = number(dig(usage, "completion_tokens_details", "reasoning_tokens"))
    return Usage(
        prompt=number(usage.get("prompt_tokens")),
        completion=number(usage.get("completion_tokens")),
        total=number(usage.get("total_tokens")),
        cached=cached,
        # SGLang gives it in both places.
        reasoning=number(usage.get("reasoning_tokens")) if reasoning is None else reasoning,
    )


def error_event(body: Json) -> Json:
    """Return the error that a stream event carries, ``None`` where it carries none.

    Both families count: ``{"error": …}`` and the flat ``{"object": "error", …}``.
    """
    if dig(body, "error") is not None:
        return dig(body, "error")
    return body if dig(body, "object") == "error" else None


def stream_error(exchange: Exchange) -> Refusal | Failure | None:
    """Return what the first error event of a stream says, ``None`` where there is none or the reply is no stream."""
    if not is_stream(exchange):
        return None
    for event in sse.events(exchange.chunks).events:
        try:
            error = error_event(parse(event.data))
        except ValueError:
            continue
        if error is not None:
            return error_reply(exchange, error, "error event in a stream")
    return None


def is_stream(exchange: Exchange) -> bool:
    """Tell whether the reply calls itself an event stream."""
    return (exchange.header("content-type") or "").lower().startswith("text/event-stream")


def is_overloaded(exchange: Exchange) -> bool:
    """Tell whether the server said that it is too busy: 429, 503, or a stream whose error event carries such a code."""
    if exchange.status in _OVERLOADED:
        return True
    if exchange.status is None or not is_stream(exchange):
        return False
    for event in sse.events(exchange.chunks).events:
        try:
            error = error_event(parse(event.data))
        except ValueError:
            continue
        if error is not None and _code(error) in _OVERLOADED:
            return True
    return False


def _reply(exchange: Exchange, text_field: str | None) -> Reply:
    problem = not_answered(exchange)
    if problem:
        return problem
    if is_stream(exchange):
        return _streamed(exchange, text_field)
    body = parsed(exchange, exchange.body)
    if isinstance(body, Failure):
        return body
    error = error_event(body)
    if error is not None and dig(body, "choices") is None:
        return error_reply(exchange, error, "200 with an error body")
    choices = dig(body, "choices")
    if not isinstance(choices, list):
        return Failure(exchange=exchange, what=f"no list of choices in {quote(exchange.body)}")
    return Answer(
        exchange=exchange,
        choices=tuple(sorted((_whole(choice, place, text_field) for place, choice in enumerate(choices)), key=_index)),
        usage=usage_of(body),
        body=body,
    )


def _index(choice: Choice) -> int:
    return choice.index


def parsed(exchange: Exchange, data: bytes, where: str = "reply") -> Json | Failure:
    """Return the JSON in ``data``, or the failure that it is none."""
    try:
        return parse(data)
    except ValueError as error:
        return Failure(exchange=exchange, what=f"{where} is not JSON ({error}): {quote(data)}")


def _code(error: Json) -> int | None:
    for path in (("code",), ("status",), ("status_code",)):
        code = dig(error, *path)
        if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) < 8:
            return int(code)
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    return None


def error_reply(exchange: Exchange, error: Json, where: str) -> Refusal | Failure:
    """Return what an error object amounts to, by the code that it carries."""
    message = message_of(error) or string(error)
    code = _code(error)
    if code is not None and (400 <= code < 500 or code == NOT_IMPLEMENTED):
        return Refusal(exchange=exchange, code=code, message=message)
    return Failure(exchange=exchange, what=f"{where}: {quote(message or _dumped(error))}")


def _dumped(value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # what could just be read may still be nested too deeply to be written
        return "nested too deeply to show"


def _whole(choice: Json, place: int, text_field: str | None) -> Choice:
    message = choice if text_field else dig(choice, "message")
    content = dig(message, text_field or "content")
    index = number(dig(choice, "index"))
    logprobs = dig(choice, "logprobs", "content")
    return Choice(
        index=place if index is None else index,
        role=string(dig(message, "role")) or None,
        text=string(content),
        reasoning=string(dig(message, "reasoning_content")) or string(dig(message, "reasoning")),
        tool_calls=tuple(_call(call, at) for at, call in enumerate(_list(dig(message, "tool_calls")))),
        finish=string(dig(choice, "finish_reason")) or None,
        logprobs=tuple(_list(logprobs)) if text_field is None else (dig(choice, "logprobs"),),
    )


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _call(call: Json, place: int) -> ToolCall:
    index = number(dig(call, "index"))
    return ToolCall(
        index=place if index is None else index,
        id=string(dig(call, "id")) or None,
        name=string(dig(call, "function", "name")) or None,
        arguments=string(dig(call, "function", "arguments")),
        ids=tuple(filter(None, (string(dig(call, "id")),))),
        kind=string(dig(call, "type")) or None,
    )


@dataclass(slots=True)
class _Gathering:
    """The deltas of one choice as they are joined."""

    role: str | None = None
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, list[Json]] = field(default_factory=dict)
    finish: str | None = None
    logprobs: list[Json] = field(default_factory=list)


def _streamed(exchange: Exchange, text_field: str | None) -> Reply:
    stream = sse.events(exchange.chunks)
    gathered: dict[int, _Gathering] = {}
    usage: Usage | None = None
    for place, event in enumerate(stream.events):
        if event.data.strip() == sse.DONE or not event.data:
            continue
        body = parsed(exchange, event.data, f"event {place + 1}")
        if isinstance(body, Failure):
            return body
        error = error_event(body)
        if error is not None:
            return error_reply(exchange, error, "error event in a stream")
        usage = usage_of(body) or usage
        for choice in _list(dig(body, "choices")):
            _gather(gathered, choice, text_field)
    if not gathered and exchange.ending is not Ending.ABORTED:
        return Failure(exchange=exchange, what=f"stream of {len(stream.events)} events without a choice")
    return Answer(
        exchange=exchange,
        choices=tuple(_joined(index, gathered[index]) for index in sorted(gathered)),
        usage=usage,
        stream=stream,
    )


def _gather(gathered: dict[int, _Gathering], choice: Json, text_field: str | None) -> None:
    into = gathered.setdefault(number(dig(choice, "index")) or 0, _Gathering())
    delta = choice if text_field else dig(choice, "delta")
    into.role = into.role or string(dig(delta, "role")) or None
    if piece := string(dig(delta, text_field or "content")):
        into.text.append(piece)
    if piece := string(dig(delta, "reasoning_content")) or string(dig(delta, "reasoning")):
        into.reasoning.append(piece)
    for place, call in enumerate(_list(dig(delta, "tool_calls"))):
        index = number(dig(call, "index"))
        into.calls.setdefault(place if index is None else index, []).append(call)
    into.finish = string(dig(choice, "finish_reason")) or into.finish
    logprobs = dig(choice, "logprobs")
    if text_field is None:
        into.logprobs.extend(_list(dig(logprobs, "content")))
    elif logprobs is not None:
        into.logprobs.append(logprobs)


def _joined(index: int, parts: _Gathering) -> Choice:
    return Choice(
        index=index,
        role=parts.role,
        text="".join(parts.text),
        reasoning="".join(parts.reasoning),
        tool_calls=tuple(_joined_call(at, parts.calls[at]) for at in sorted(parts.calls)),
        finish=parts.finish,
        logprobs=tuple(parts.logprobs),
        pieces=len(parts.text),
    )


def _joined_call(index: int, deltas: list[Json]) -> ToolCall:
    arguments = [string(dig(delta, "function", "arguments")) for delta in deltas]
    ids = tuple(dict.fromkeys(found for delta in deltas if (found := string(dig(delta, "id")))))
    return ToolCall(
        index=index,
        id=ids[0] if ids else None,
        name="".join(string(dig(delta, "function", "name")) for delta in deltas) or None,
        arguments="".join(arguments),
        pieces=sum(1 for piece in arguments if piece),
        ids=ids,
        kind=next((found for delta in deltas if (found := string(dig(delta, "type")))), None),
    )
