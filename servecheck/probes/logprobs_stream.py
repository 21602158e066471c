"""A stream carries the log probabilities of the whole reply.

What it does: asks two questions greedily with ``logprobs`` and five alternatives, whole twice (the first warms the
prefix cache) and streamed once, and streams one without ``logprobs`` (the control). Compares token by token up to the
first near-tie, where either token is right, and looks whether the stream still says why it ended. One stream has a tool
beside it that nothing calls for: its parser must not swallow the logprobs.

Why it matters: streams are put together by other code than whole replies. Entries get lost with empty pieces, and a
proxy is known to drop the finish reason only where both ``stream`` and ``logprobs`` are on.

How it could be fooled: by other users' traffic, which moves values a little (0.14 nat at most was seen); only values
further apart than 0.25 nat count, and only where more than a quarter of the tokens have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._logprobs import Entry, improper, misspelt, nat, of_chat
from servecheck.probes._steps import reply_at, sent
from servecheck.read import reply
from servecheck.read.text import quote
from servecheck.stats import NEAR_TIE

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat-streaming/streaming#chat-streaming-streaming-choices"
_GIVEN, _FINISH = "stream-carries-logprobs", "finish-reason-comes-with-logprobs"
_SAME, _PROPER = "stream-logprobs-equal-whole-logprobs", "streamed-logprobs-are-probabilities"
_SPELT = "streamed-tokens-are-the-text"
_TOOLS = "tools-leave-the-logprobs-in-streams"
_PART = Part(mode=Mode.STREAM)
_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "set_alarm",
        "description": "Sets an alarm clock.",
        "parameters": {"type": "object", "properties": {"time": {"type": "string"}}, "required": ["time"]},
    },
}
_FAR = 0.25  # nat; between two replies of one server 0.137 was the most that was measured
_FEW = 0.25


class LogprobsStreamParams(Params):
    """What may be chosen in YAML."""

    prompts: tuple[str, ...] = Field(
        default=("Write one sentence about a quiet village.", "Name three colours and say what they are good for."),
        min_length=1,
        max_length=16,
        strict=False,
        description="The users' messages.",
    )
    max_tokens: int = Field(default=12, ge=2, le=256, description="Tokens per answer, each with its entry.")


async def drive(session: Session, params: LogprobsStreamParams, _: Transcript | None) -> None:
    """Each prompt whole twice and streamed once; the first one streamed without logprobs too."""
    for place, prompt in enumerate(params.prompts, start=1):
        messages: Json = [{"role": "user", "content": prompt}]
        body: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
        asked: dict[str, Json] = {**body, "logprobs": True, "top_logprobs": 5}
        await session.chat(f"cold-{place}", asked)
        await session.chat(f"whole-{place}", asked)
        await session.chat(f"stream-{place}", {**asked, "stream": True})
        if place == 1:
            await session.chat("control", {**body, "stream": True})
            await session.chat("tools", {**asked, "stream": True, "tools": [_TOOL]})


def judge(transcript: Transcript, params: LogprobsStreamParams) -> Iterator[Finding]:
    """Judge each stream by itself and against the whole reply."""
    control = reply_at(transcript, "control")
    for place in range(1, len(params.prompts) + 1):
        stream, whole = reply_at(transcript, f"stream-{place}"), reply_at(transcript, f"whole-{place}")
        missing = _PART.unless_answered(_GIVEN, stream, control)
        if missing is not None:
            yield missing
            continue
        assert isinstance(stream, reply.Answer)
        if stream.stream is None:
            why = "stream was asked for, one whole reply came: there is no stream to look at"
            yield _PART.undetermined(_GIVEN, why, stream)
            continue
        yield from _finish(stream, control)
        entries = of_chat(stream.first.logprobs)
        if not entries:
            yield _nothing(stream, whole)
            continue
        yield _PART.held(_GIVEN, f"{len(entries)} entries in the stream", stream, entries=len(entries))
        for check, why, right in (
            (_PROPER, improper(entries), "every value is at most 0, sums at most 1"),
            (_SPELT, misspelt(entries, stream), "the tokens are the text"),
        ):
            yield (_PART.violated if why else _PART.held)(check, why or right, stream)
        yield _same(entries, stream, whole)
    yield from _beside_tools(reply_at(transcript, "tools"), reply_at(transcript, "stream-1"))


def _beside_tools(found: reply.Reply | None, without: reply.Reply | None) -> Iterator[Finding]:
    """Judge the stream with a tool, where the same stream without one has logprobs.

    Whether tools are taken at all is another row's question, so only a refusal that speaks of logprobs counts.
    """
    if not isinstance(without, reply.Answer) or without.stream is None or not of_chat(without.first.logprobs):
        return
    if isinstance(found, reply.Refusal) and "logprobs" in found.message:
        yield _PART.refused(_TOOLS, f"refused with a tool, and not without: {found.what}", found, without)
    if not isinstance(found, reply.Answer) or not (found.text or found.first.reasoning):
        return
    entries = of_chat(found.first.logprobs)
    # A piece of the text may be held back by a parser, but not the numbers of a text that is there.
    if entries:
        yield _PART.held(_TOOLS, f"{len(entries)} entries in a stream with a tool", found, without)
    else:
        yield _PART.violated(_TOOLS, f"no entries in a stream with a tool: {quote(found.text, 60)}", found, without)


def _nothing(stream: reply.Answer, whole: reply.Reply | None) -> Finding:
    if not stream.text and not stream.first.reasoning:
        return _PART.undetermined(_GIVEN, "no entries, but no text either", stream)
    has = isinstance(whole, reply.Answer) and bool(whole.first.logprobs)
    beside = "the whole reply has them" if has else "nor has the whole reply"
    return _PART.no_effect(_GIVEN, f"200, and the stream has no logprobs; {beside}", stream, *sent(whole))


def _finish(stream: reply.Answer, control: reply.Reply | None) -> Iterator[Finding]:
    if stream.finish:
        yield _PART.held(_FINISH, f"finish_reason {stream.finish!r} with logprobs", stream)
    elif isinstance(control, reply.Answer) and control.finish:
        why = f"no finish_reason with logprobs, {control.finish!r} without"
        yield _PART.violated(_FINISH, why, stream, control)
    else:
        yield _PART.undetermined(_FINISH, "no finish_reason, with logprobs and without", stream, *sent(control))


def _same(streamed: Sequence[Entry], stream: reply.Answer, whole: reply.Reply | None) -> Finding:
    entries = of_chat(whole.first.logprobs) if isinstance(whole, reply.Answer) else ()
    if not entries:
        return _PART.undetermined(_SAME, "the whole reply has no logprobs to compare with", stream, *sent(whole))
    seen = (stream, *sent(whole))
    apart = []
    compared = 0
    for place, (left, right) in enumerate(zip(entries, streamed, strict=False), start=1):
        if left.text != right.text:
            shown = f"whole {quote(left.text, 20)}, streamed {quote(right.text, 20)}"
            if not _tied(left, right):
                return _PART.violated(_SAME, f"they part at token {place}: {shown}", *seen, compared=compared)
            if not compared:
                return _PART.undetermined(_SAME, f"a near-tie at the first token: {shown}", *seen)
            break
        compared += 1
        one, other = nat(left.value), nat(right.value)
        if one is None or other is None or abs(one - other) > _FAR:
            apart.append(f"token {place} {quote(left.text, 20)}: whole {one}, streamed {other}")
        elif _other_alternatives(left, right):
            apart.append(f"token {place} {quote(left.text, 20)} has other alternatives in the stream")
    else:
        if abs(len(entries) - len(streamed)) > 1:  # the end token may have an entry in one of them only
            why = f"{len(entries)} entries whole, {len(streamed)} streamed"
            return _PART.violated(_SAME, why, *seen, compared=compared)
    figures = {"compared": compared, "apart": len(apart)}
    if len(apart) > compared * _FEW:
        why = f"{len(apart)} of {compared} tokens differ, by more than {_FAR} nat or in their alternatives: {apart[0]}"
        return _PART.violated(_SAME, why, *seen, **figures)
    why = f"{compared} tokens compared, {len(apart)} of them apart by more than {_FAR} nat or in their alternatives"
    return _PART.held(_SAME, why, *seen, **figures)


def _other_alternatives(left: Entry, right: Entry) -> bool:
    """Tell whether two lists of alternatives have less than half in common; their ends may swap places by noise."""
    one, other = {each.text for each in left.top or ()}, {each.text for each in right.top or ()}
    return len(one & other) * 2 < min(len(one), len(other))


def _tied(left: Entry, right: Entry) -> bool:
    """Tell whether greedy decoding may take either token: both are near the best where both were looked at."""
    best = left.best
    other = next((nat(each.value) for each in left.top or () if each.text == right.text), None)
    return best is not None and other is not None and best - other <= NEAR_TIE


PROBE = Probe(
    id="logprobs_stream",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_GIVEN,
            rule="With logprobs a stream has them.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_FINISH,
            rule="A stream with logprobs says why it ended, as one without does.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_SAME,
            rule="The logprobs of a greedy stream are those of the whole reply, near-ties aside.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_PROPER,
            rule="Every streamed value is a number of at most 0, and alternatives add up to at most 1.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_SPELT,
            rule="The streamed tokens put together are the text, reasoning and special tokens aside.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_TOOLS,
            rule="A stream that has logprobs has them also where tools are offered and none is called.",
            level=Level.SHOULD,
            source="https://github.com/sgl-project/sglang/issues/28456",
        ),
    ),
    params=LogprobsStreamParams,
    drive=drive,
    judge=judge,
    requests=8,
    prompt_tokens=290,
    output_tokens=92,
)
