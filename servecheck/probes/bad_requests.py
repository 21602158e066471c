"""A request that is wrong is refused, quickly and in words, and the next one is served.

What it does: sends requests with one fault each, plain and streamed where a stream can be asked for at all, and after
each a plain request (the control). The fault is a parameter: bytes that are no JSON object, fields of the wrong type,
values that mean nothing, no messages, a model that is not there. None of them can harm a server that reads its input;
token ids, management routes and whatever is known to end an engine are never sent.

Why it matters: clients repeat a 5xx and show a 4xx; a gateway takes workers out of service that answer 5xx; a wrong
request that is answered hides a mistake in the application. That the server refuses at all, in JSON and with a message,
is a `should`: engines differ, and applications that send no such requests lose nothing. That it answers, and serves the
next request, is a `must`.

How it could be fooled: by a gateway that validates requests itself, so that the engine never sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from servecheck.model import Check, Ending, Exchange, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply, sse
from servecheck.read.text import dig, parse, quote, string

__all__ = ["PROBE", "Refused", "refusal"]

_SOURCE = "https://platform.openai.com/docs/guides/error-codes"
_ANSWERED, _SERVED = "bad-request-gets-a-reply", "next-request-is-served"
_REFUSED, _JSON, _MESSAGE = "bad-request-is-refused", "refusal-is-json", "refusal-has-a-message"
_HI: Json = [{"role": "user", "content": "Say yes."}]
_OK = 200
_LIMIT = 4

Fault = Literal["malformed", "wrong_type", "bad_value", "empty_messages", "unknown_model"]

_BYTES: dict[str, bytes] = {
    "truncated": b'{"messages": [{"role": "user", "content": "Say',
    "truncated-stream": b'{"stream": true, "messages": [{"role": "user", "content": "Say',
    "text": b"Say yes.",
    "empty-body": b"",
    "list": b"[1, 2]",
    "not-utf-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}], "max_tokens": 4}',
}
_BODIES: dict[str, dict[str, dict[str, Json]]] = {
    "wrong_type": {
        "messages-is-text": {"messages": "Say yes."},
        "message-is-a-number": {"messages": [5]},
        "message-without-role": {"messages": [{"content": "Say yes."}]},
        "max-tokens-is-a-word": {"max_tokens": "many"},
        "temperature-is-an-object": {"temperature": {"value": 1}},
        "tools-is-text": {"tools": "none"},
    },
    "bad_value": {
        "negative-max-tokens": {"max_tokens": -5},
        "negative-temperature": {"temperature": -1},
        "top-p-above-one": {"top_p": 2},
        "no-choices": {"n": 0},
        "unknown-format": {"response_format": {"type": "yaml"}},
    },
    "empty_messages": {"no-messages": {"messages": []}},
    "unknown_model": {"unknown-model": {}},
}
_STREAMED = frozenset(
    {"messages-is-text", "message-without-role", "top-p-above-one", "unknown-format", "no-messages", "unknown-model"}
)


class BadRequestsParams(Params):
    """What may be chosen in YAML."""

    fault: Fault = Field(description="What is wrong with the requests.")
    streamed: bool = Field(default=True, description="Whether some of the bad requests ask for a stream too.")
    good_after: Literal["each", "last"] = Field(
        default="each", description="Whether a good request follows each bad one, or the last of each mode."
    )


async def drive(session: Session, params: BadRequestsParams, __: Transcript | None) -> None:
    """One request without a fault, then each bad one with a good one behind it."""
    good: dict[str, Json] = {"messages": _HI, "max_tokens": _LIMIT, "temperature": 0}
    await session.chat("control", good)
    steps = [step for step in _steps(params.fault) if params.streamed or step.startswith("plain")]
    for step in steps:
        mode, _, name = step.partition("/")
        if name in _BYTES:
            await session.post_raw(step, "/chat/completions", _BYTES[name])
        else:
            wrong = _BODIES[params.fault][name]
            if params.fault == "unknown_model":
                wrong = {"model": f"no-such-model-{session.nonce()}"}
            await session.chat(step, {**good, **wrong, **({"stream": True} if mode == "stream" else {})})
        if params.good_after == "each" or step == [each for each in steps if each.startswith(mode)][-1]:
            await session.chat(f"after/{step}", good)


def _steps(fault: str) -> list[str]:
    """Return the steps of the bad requests in order, as ``mode/name``."""
    if fault == "malformed":
        return [f"{'stream' if name.endswith('-stream') else 'plain'}/{name}" for name in _BYTES]
    modes = {name: ("plain", "stream") if name in _STREAMED else ("plain",) for name in _BODIES[fault]}
    return [f"{mode}/{name}" for name, each in modes.items() for mode in each]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """How a request was refused: in what status (of the reply, or of an error event), in JSON or not, in what words."""

    code: int | None
    body: Json
    text: bytes
    streamed: bool = False

    @property
    def message(self) -> str:
        """The message, empty where there is none; plain text is one, a page is none."""
        plain = self.text.decode("utf-8", "replace") if self.body is None and b"<" not in self.text[:20] else ""
        return (reply.message_of(self.body) or string(self.body) or plain).strip()


def refusal(exchange: Exchange) -> Refused | None:
    """Return how a complete reply refuses; ``None`` where it answers. Says nothing of replies that never came.

    A stream that was begun with 200 refuses by an error event; its code may be missing, which is no fault of the event.
    """
    if exchange.status is None:
        return None
    if exchange.status == _OK and reply.is_stream(exchange):
        for event in sse.events(exchange.chunks).events:
            body = _parsed(event.data)
            error = reply.error_event(body)
            if error is not None:
                return Refused(code=_code(error), body=body, text=event.data, streamed=True)
        return None
    body = _parsed(exchange.body)
    if exchange.status < 400 and (reply.error_event(body) is None or dig(body, "choices") is not None):
        return None
    return Refused(code=exchange.status, body=body, text=exchange.body)


def _parsed(data: bytes) -> Json:
    try:
        return parse(data)
    except ValueError:
        return None


def _code(error: Json) -> int | None:
    for key in ("code", "status", "status_code"):
        code = dig(error, key)
        if isinstance(code, str) and code.isdigit():
            return int(code)
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    return None


def judge(transcript: Transcript, _: BadRequestsParams) -> Iterator[Finding]:
    """Judge the plain requests together, and the streamed ones."""
    found = transcript.get("control")
    control = reply.chat(found) if found is not None else None
    for mode, part in (("plain", Part()), ("stream", Part(mode=Mode.STREAM))):
        tried = transcript.steps(f"{mode}/")
        if not tried:
            continue
        if not isinstance(control, reply.Answer):
            why = f"a request without a fault is not answered either: {control.what if control else 'not sent'}"
            yield part.undetermined(_REFUSED, why, *([found] if found else []))
            continue
        yield from _judge(part, transcript, tried)


def _judge(part: Part, transcript: Transcript, tried: Sequence[Exchange]) -> Iterator[Finding]:
    silent, hurt, answered, wordless, unreadable, refused = [], [], [], [], [], []
    seen: list[Exchange] = []
    for exchange in tried:
        name = exchange.step.partition("/")[2]
        after = transcript.get(f"after/{exchange.step}")
        missing = _no_reply(exchange)
        if missing:
            silent.append(f"{name}: {missing}")
        else:
            how = refusal(exchange)
            trouble = _not_refused(exchange, how)
            if trouble:
                answered.append(f"{name}: {trouble}")
            if how is not None:
                refused.append(f"{name}: {how.code or 'an error event'}")
                if not isinstance(how.body, dict):
                    unreadable.append(f"{name}: {quote(how.text)}")
                if not how.message:
                    wordless.append(f"{name}: {quote(how.text)}")
        following = reply.chat(after) if after is not None else None
        if isinstance(following, reply.Refusal | reply.Failure):
            hurt.append(f"after {name}: {following.what}")
        seen += [exchange, *([after] if after is not None else [])]
    count = f"{len(tried)} bad request{'s' if len(tried) > 1 else ''}"
    yield _all(part, _ANSWERED, silent, f"every one of {count} got a whole reply", seen)
    each = "each of " if all(transcript.get(f"after/{exchange.step}") for exchange in tried) else ""
    yield _all(part, _SERVED, hurt, f"a plain request was served after {each}{count}", seen)
    if len(silent) < len(tried):
        yield _all(part, _REFUSED, answered, "; ".join(refused), seen)
    if refused:
        yield _all(part, _JSON, unreadable, f"{len(refused)} refusals, all of them JSON objects", seen)
        yield _all(part, _MESSAGE, wordless, f"{len(refused)} refusals, all of them with a message", seen)


def _all(part: Part, check: str, wrong: Sequence[str], right: str, seen: Sequence[Exchange]) -> Finding:
    return part.violated(check, "; ".join(wrong), *seen) if wrong else part.held(check, right, *seen)


def _no_reply(exchange: Exchange) -> str:
    """Return why there is no whole reply; whatever its status says, a whole one is empty here."""
    whole = exchange.ending not in (Ending.TRUNCATED, Ending.DEADLINE)
    if whole and exchange.status is not None and exchange.status >= 300:
        return ""
    missing = reply.not_answered(exchange)
    if missing is None:
        return ""
    return missing.what if isinstance(missing, reply.Failure) else f"{missing.what}, cut"


def _not_refused(exchange: Exchange, how: Refused | None) -> str:
    if how is None:
        if exchange.status != _OK:
            return f"HTTP {exchange.status} instead of a refusal"
        answer = reply.chat(exchange)
        text = answer.text if isinstance(answer, reply.Answer) else exchange.body
        return f"accepted with 200: {quote(text, 60)}{_echo(exchange)}"
    words = f": {quote(how.message or how.text, 60)}"
    if how.streamed:
        return f"an error event of code {how.code}{words}" if how.code is not None and how.code >= 500 else ""
    if how.code is not None and how.code < 400:
        return f"an error under HTTP {how.code}{words}"
    # 501 says by its number that the server has no such thing, which is a refusal.
    if how.code is not None and how.code >= 500 and how.code != reply.NOT_IMPLEMENTED:
        return f"HTTP {how.code}{words}"
    return ""


def _echo(exchange: Exchange) -> str:
    asked = string(dig(exchange.request, "model"))
    bodies = (
        [event.data for event in sse.events(exchange.chunks).events] if reply.is_stream(exchange) else [exchange.body]
    )
    said = next((name for data in bodies if (name := string(dig(_parsed(data), "model")))), "")
    if "no-such-model" not in asked:
        return ""
    return f"; its model is {'the name that was asked for' if said == asked else quote(said, 40)}"


def cost(params: BadRequestsParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    bad = [step for step in _steps(params.fault) if params.streamed or step.startswith("plain")]
    modes = len({step.partition("/")[0] for step in bad})
    good = 1 + (len(bad) if params.good_after == "each" else modes)
    return Cost(requests=len(bad) + good, prompt_tokens=20 * good, output_tokens=2 * good)


PROBE = Probe(
    id="bad_requests",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_ANSWERED,
            rule="A bad request gets a whole reply, whatever it says.",
            level=Level.MUST,
            source="https://www.rfc-editor.org/rfc/rfc9110.html#section-15.5.1",
        ),
        Check(
            id=_SERVED,
            rule="A plain request right after a bad one is answered.",
            level=Level.MUST,
            source="https://github.com/sgl-project/sglang/issues/22980",
        ),
        Check(
            id=_REFUSED,
            rule="A bad request is refused with 4xx, or by an error event in a stream that has begun.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_JSON,
            rule="A refusal is a JSON object, not a page and not plain text.",
            level=Level.SHOULD,
            source="https://github.com/openai/openai-openapi",
        ),
        Check(
            id=_MESSAGE,
            rule="A refusal says in a message what is wrong.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=BadRequestsParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
