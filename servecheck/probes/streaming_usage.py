"""A stream bills what was asked for and made, when it is asked to.

What it does: asks for an answer whole and as a stream with ``include_usage``, for one choice, for two, and as a text
completion; then as streams that ask for no usage (no ``stream_options``, and an empty one). Reads every event's
``usage`` and compares the streamed bill with the whole reply's, and with the length that was allowed.

Why it matters: gateways, quotas and invoices add up what streams report; an engine that counts the last step only, or
adds up running totals, is wrong by a factor of the answer's length and answers 200.

How it could be fooled: by a server that is wrong in the same way in both modes (other rows count tokens by themselves);
by greedy text that does not repeat, for which only the allowed length is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._streams import bodies
from servecheck.read import reply
from servecheck.read.text import dig, number

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat_create-stream_options"
_CHAT = Part(mode=Mode.STREAM)
_COMPLETIONS = Part(route=Route.COMPLETIONS, mode=Mode.STREAM)
_COMES, _OWN_CHUNK, _OTHERS = "usage-comes-when-asked-for", "usage-has-a-last-chunk-of-its-own", "usage-comes-once"
_EQUAL, _UNASKED = "stream-usage-equals-whole-usage", "no-usage-unasked"
_ASKED: dict[str, Json] = {"stream": True, "stream_options": {"include_usage": True}}
_TWO: dict[str, Json] = {"n": 2, "temperature": 1}
_UNASKED_STREAMS: dict[str, dict[str, Json]] = {
    "no stream_options": {"stream": True},
    "empty stream_options": {"stream": True, "stream_options": {}},
}

_Read = Callable[[Exchange], reply.Reply]


class StreamingUsageParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Tell me a story about four animals and where each lives.", description="The user's message."
    )
    beginning: str = Field(
        default="Once upon a time, in a small village by the sea, there was a", description="The text to complete."
    )
    max_tokens: int = Field(default=24, ge=8, le=4096, description="Room for each answer; most run into it.")
    completions: bool = Field(
        default=True, description="Whether the completions route is asked too, where it is served."
    )


async def drive(session: Session, params: StreamingUsageParams, _: Transcript | None) -> None:
    """Whole and streamed with usage, in three ways; streamed without asking, in two."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    chat: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    text: dict[str, Json] = {"prompt": params.beginning, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    await session.chat("whole", chat)
    await session.chat("stream", {**chat, **_ASKED})
    for name, more in _UNASKED_STREAMS.items():
        await session.chat(name, {**chat, **more})
    await session.chat("whole, two choices", {**chat, **_TWO})
    await session.chat("stream, two choices", {**chat, **_TWO, **_ASKED})
    if not params.completions:
        return
    await session.post("whole, completion", "/completions", text)
    await session.post("stream, completion", "/completions", {**text, **_ASKED})


def judge(transcript: Transcript, params: StreamingUsageParams) -> Iterator[Finding]:
    """Judge the chat stream; the others only where their whole reply is an answer: else they belong to other rows."""
    yield from _chat(transcript, params.max_tokens)
    for variant, part, read in (("two choices", _CHAT, reply.chat), ("completion", _COMPLETIONS, reply.completion)):
        whole, stream = transcript.get(f"whole, {variant}"), transcript.get(f"stream, {variant}")
        if whole is None or stream is None or not isinstance(read(whole), reply.Answer):
            continue
        if variant == "two choices" and isinstance(read(stream), reply.Refusal):
            continue  # two choices in a stream belong to the row of `n`
        yield from _with_usage(part, variant, read, stream, whole, params.max_tokens)


def _chat(transcript: Transcript, limit: int) -> Iterator[Finding]:
    stream, whole = transcript.get("stream"), transcript.get("whole")
    if stream is None or whole is None:
        yield _CHAT.undetermined(_COMES, "no stream was asked for")
        return
    plain = transcript.get("no stream_options")
    control = reply.chat(plain) if plain is not None else None
    missing = _CHAT.unless_answered(_COMES, reply.chat(stream), control)
    if missing is not None:
        yield missing
    else:
        yield from _with_usage(_CHAT, "", reply.chat, stream, whole, limit)
    yield from _unasked(transcript)


def _usages(exchange: Exchange) -> list[tuple[int, Json]]:
    """Return the usage objects of a stream with the places of their events."""
    return [
        (place, usage)
        for place, body in enumerate(bodies(exchange))
        if isinstance(usage := dig(body.json, "usage"), dict)
    ]


def _with_usage(
    part: Part, variant: str, read: _Read, stream: Exchange, whole: Exchange, limit: int
) -> Iterator[Finding]:
    where = f"{variant}: " if variant else ""
    streamed = read(stream)
    missing = part.unless_answered(_COMES, streamed, read(whole))
    if missing is not None:
        yield missing
        return
    assert isinstance(streamed, reply.Answer)
    found, events = _usages(stream), bodies(stream)
    if streamed.stream is None:
        yield part.undetermined(_COMES, f"{where}one whole reply came where a stream was asked for", stream)
        return
    if not found:
        why = f"{where}include_usage was accepted, and none of {len(events)} events holds usage"
        yield part.no_effect(_COMES, why, stream)
        return
    place, _ = found[-1]
    yield part.held(_COMES, f"{where}usage in event {place + 1} of {len(events)}", stream)
    alone = dig(events[place].json, "choices") == []
    if alone and place == len(events) - 1:
        yield part.held(_OWN_CHUNK, f"{where}the last of {len(events)} events, with choices []", stream)
    else:
        beside = "an empty list of choices" if alone else "choices in it"
        why = f"{where}the last usage is in event {place + 1} of {len(events)}, with {beside}"
        yield part.violated(_OWN_CHUNK, why, stream)
    if len(found) > 1:
        why = f"{where}{len(found)} of {len(events)} events hold usage, though only one total was asked for"
        yield part.violated(_OTHERS, why, stream)
    else:
        yield part.held(_OTHERS, f"{where}in the other {len(events) - 1} events it is absent or null", stream)
    yield _equal(part, where, streamed, read(whole), limit)


def _equal(part: Part, where: str, streamed: reply.Answer, whole: reply.Reply, limit: int) -> Finding:
    """Judge the streamed bill: against itself, against the allowed length, against the whole reply's."""
    bill = streamed.usage
    assert bill is not None
    said = f"{where}streamed {_shown(bill)}"
    problem = _impossible(streamed, bill, limit)
    if problem:
        return part.violated(_EQUAL, f"{said}: {problem}", streamed)
    other = whole.usage if isinstance(whole, reply.Answer) else None
    if other is None or not isinstance(whole, reply.Answer):
        return part.undetermined(_EQUAL, f"{said}, and the whole reply has no usage to compare with", streamed)
    said += f", whole {_shown(other)}"
    if bill.prompt != other.prompt:
        return part.violated(_EQUAL, f"{said}: the prompt is the same", streamed, whole)
    if bill.completion == other.completion:
        return part.held(_EQUAL, said, streamed, whole)
    if _texts(streamed) == _texts(whole):
        return part.violated(_EQUAL, f"{said}: the text is the same", streamed, whole)
    if _all_cut(streamed) and _all_cut(whole):
        return part.violated(_EQUAL, f"{said}: all of both was cut at {limit} tokens", streamed, whole)
    return part.held(_EQUAL, f"{said}: of different texts, each possible", streamed, whole)


def _impossible(answer: reply.Answer, bill: reply.Usage, limit: int) -> str:
    """Return what cannot be true about a bill, an empty string where all of it can."""
    if bill.prompt is None or bill.completion is None:
        return "counts are missing"
    if bill.total is not None and bill.total != bill.prompt + bill.completion:
        return "the total is not the sum"
    most = limit * len(answer.choices)
    if bill.completion > most:
        return f"max_tokens allows {most}"
    if len(answer.choices) == 1 and _all_cut(answer) and bill.completion != limit:
        return f"the answer was cut at max_tokens {limit}"
    return ""


def _all_cut(answer: reply.Answer) -> bool:
    return all(choice.finish == "length" for choice in answer.choices)


def _texts(answer: reply.Answer) -> list[tuple[str, str]]:
    return [(choice.text, choice.reasoning) for choice in answer.choices]


def _shown(usage: reply.Usage) -> str:
    return f"{usage.prompt} + {usage.completion} tokens"


def _unasked(transcript: Transcript) -> Iterator[Finding]:
    seen: list[Exchange] = []
    for name in _UNASKED_STREAMS:
        exchange = transcript.get(name)
        answer = reply.chat(exchange) if exchange is not None else None
        if exchange is None or not isinstance(answer, reply.Answer) or answer.stream is None:
            continue
        seen.append(exchange)
        found = _usages(exchange)
        if found:
            tokens = number(dig(found[-1][1], "completion_tokens"))
            why = f"{name}: usage in {len(found)} of {len(bodies(exchange))} events, the last of {tokens} tokens"
            yield _CHAT.violated(_UNASKED, why, exchange)
            return
    if seen:
        yield _CHAT.held(_UNASKED, "no event of a stream that did not ask holds usage", *seen)


def cost(params: StreamingUsageParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    requests = 8 if params.completions else 6
    prompt_tokens = 285 if params.completions else 250
    # Each asks for the room of one answer; two of them for two answers.
    return Cost(requests=requests, prompt_tokens=prompt_tokens, output_tokens=(requests + 2) * params.max_tokens)


PROBE = Probe(
    id="streaming_usage",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_COMES,
            rule="With include_usage a stream holds a usage object.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_EQUAL,
            rule="The usage of a stream is that of the same request answered whole, and within max_tokens.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_OWN_CHUNK,
            rule="The usage comes in the last event before [DONE], whose list of choices is empty.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_OTHERS,
            rule="In all other events usage is null or absent.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_UNASKED,
            rule="A stream that did not ask for usage holds none.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=StreamingUsageParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
