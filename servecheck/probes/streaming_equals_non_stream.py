"""A stream says the same as the whole reply.

What it does: for several prompts, greedily, asks for the whole reply twice (the first warms the prefix cache, since a
cold and a cached prompt may differ at a near-tie), then streams it, and compares text, reasoning and finish reason.
Where they differ, it asks once more with logprobs, for another stream and for another whole reply. A difference is
noise where both texts go on with one of the tokens that were within 0.25 nat of the best; it counts where the tokens
were further apart, or where streams agree among themselves and whole replies among themselves.

Why it matters: lost words, doubled pieces and split characters appear in streams only, and only users see them.

How it could be fooled: by other users' traffic changing the batch (a near-tie then flips), which the second look
excuses; by a model that thinks for longer than ``max_tokens``, of which only the thoughts are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._greedy import first_difference, fork_after
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote, string
from servecheck.stats import NEAR_TIE

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat-streaming"
_PART = Part(mode=Mode.STREAM)
_TOP = 5  # near-ties of more than two tokens exist, and the text must go on with one of them
_PROMPTS = (
    "Explain in three sentences how rain forms.",
    "Write a short poem about a river, with an emoji in every line.",
    "Erzähle mir in zwei Sätzen, was ein Wörterbuch ist.",
    "List five fruits, one a line, with a price in euros each.",
)


class StreamingEqualsParams(Params):
    """What may be chosen in YAML."""

    prompts: tuple[str, ...] = Field(
        default=_PROMPTS, min_length=1, max_length=64, strict=False, description="The users' messages."
    )
    max_tokens: int = Field(default=24, ge=4, le=4096, description="Room for each answer.")


class _Said(NamedTuple):
    """What a client gets of a reply."""

    text: str
    reasoning: str
    finish: str | None


async def drive(session: Session, params: StreamingEqualsParams, _: Transcript | None) -> None:
    """Whole twice, streamed once; where they differ, the evidence to tell why."""
    for place, prompt in enumerate(params.prompts, start=1):
        messages: Json = [{"role": "user", "content": prompt}]
        body: dict[str, Json] = {
            "messages": messages,
            "max_tokens": params.max_tokens,
            "temperature": 0,
            "top_p": 1,
        }
        await session.chat(f"cold-{place}", body)
        await session.chat(f"whole-{place}", body)
        await session.chat(f"stream-{place}", {**body, "stream": True})
        if _said(session.transcript, f"stream-{place}") != _said(session.transcript, f"whole-{place}"):
            await session.chat(f"gaps-{place}", {**body, "logprobs": True, "top_logprobs": _TOP})
            await session.chat(f"stream-again-{place}", {**body, "stream": True})
            await session.chat(f"whole-again-{place}", body)


def _read(transcript: Transcript, step: str) -> reply.Reply | None:
    exchange = transcript.get(step)
    return reply.chat(exchange) if exchange is not None else None


def _said(transcript: Transcript, step: str) -> _Said | None:
    answer = _read(transcript, step)
    if not isinstance(answer, reply.Answer):
        return None
    text = answer.text
    if answer.finish == "length":
        # A cut by max_tokens may fall inside a character; engines then hold its bytes back or show U+FFFD.
        text = text.rstrip("\ufffd")
    return _Said(text, answer.first.reasoning, answer.finish)


def judge(transcript: Transcript, params: StreamingEqualsParams) -> Iterator[Finding]:
    """Judge each prompt's stream against its whole reply."""
    for place in range(1, len(params.prompts) + 1):
        whole, stream = _read(transcript, f"whole-{place}"), _read(transcript, f"stream-{place}")
        missing = _PART.unless_answered("stream-text-equals-whole-text", stream, whole)
        if missing is not None:
            yield missing
            continue
        if not isinstance(whole, reply.Answer) or not isinstance(stream, reply.Answer):
            why = "the whole reply to compare with did not come"
            seen = [answer for answer in (whole, stream) if answer is not None]
            yield _PART.undetermined("stream-text-equals-whole-text", why, *seen)
            continue
        yield from _compare(transcript, place, whole, stream)
        if place == 1 and stream.stream is not None:
            yield from _named(whole, stream)


def _named(whole: reply.Answer, stream: reply.Answer) -> Iterator[Finding]:
    """Judge the model's name in a stream by that in the whole reply, where both give one."""
    names = [string(dig(body, "model")) for body in _bodies(stream)]
    one, other = string(dig(whole.body, "model")), next((name for name in names if name), "")
    if one and other:
        said = f"model is {quote(one, 60)} whole, {quote(other, 60)} streamed"
        yield (_PART.held if one == other else _PART.violated)(
            "stream-names-the-model-of-the-whole", said, whole, stream
        )


def _bodies(stream: reply.Answer) -> Iterator[Json]:
    for event in stream.stream.events if stream.stream is not None else ():
        try:
            yield parse(event.data)
        except ValueError:
            continue


def _compare(transcript: Transcript, place: int, whole: reply.Answer, stream: reply.Answer) -> Iterator[Finding]:
    check = "stream-text-equals-whole-text"
    one, other = _said(transcript, f"whole-{place}"), _said(transcript, f"stream-{place}")
    assert one is not None
    assert other is not None
    if stream.stream is None:
        yield _PART.no_effect(
            check, "stream was asked for, one whole reply came: there is no stream to compare", stream
        )
        return
    if (one.text, one.reasoning) != (other.text, other.reasoning):
        yield _difference(transcript, place, one, other, whole, stream)
        return
    if not one.text and not one.reasoning:
        yield _PART.undetermined(check, "neither reply has any text: nothing to compare", whole, stream)
        return
    shown = quote(one.text or one.reasoning, 50)
    yield _PART.held(check, f"{len(one.reasoning + one.text)} characters, all equal: {shown}", whole, stream)
    finishes = "stream-finish-equals-whole-finish"
    said = f"finish_reason {one.finish!r} whole, {other.finish!r} streamed"
    yield (_PART.held if one.finish == other.finish else _PART.violated)(finishes, said, whole, stream)


def _difference(
    transcript: Transcript, place: int, one: _Said, other: _Said, whole: reply.Answer, stream: reply.Answer
) -> Finding:
    """Judge a difference: a near-tie is noise, a difference that both modes repeat is not."""
    check = "stream-text-equals-whole-text"
    left, right = (one.text, other.text) if one.reasoning == other.reasoning else (one.reasoning, other.reasoning)
    at = first_difference(left, right)
    shown = (
        f"they part at character {at}: whole {quote(left[at : at + 30], 34)}, streamed {quote(right[at : at + 30], 34)}"
    )
    seen = [
        answer
        for step in (f"gaps-{place}", f"stream-again-{place}", f"whole-again-{place}")
        if isinstance(answer := _read(transcript, step), reply.Answer)
    ]
    thought = one.reasoning if one.reasoning == other.reasoning else ""
    fork = fork_after(_read(transcript, f"gaps-{place}"), thought, left[:at])
    tied = fork is not None and fork.gap is not None and fork.gap <= NEAR_TIE
    if fork is not None and tied and fork.explains(left) and fork.explains(right):
        why = f"equal up to a near-tie of {fork.gap:.2f} nat, where either text is right; {shown}"
        return _PART.held(check, why, whole, stream, *seen, gap_nat=round(fork.gap or 0.0, 3))
    gap = None if fork is None or tied else fork.gap
    streams = {other[:2], *_again(transcript, f"stream-again-{place}")}
    wholes = {one[:2], *_again(transcript, f"whole-again-{place}")}
    if gap is None and (len(streams) > 1 or len(wholes) > 1):
        unknown = "the two near-tied tokens do not explain it" if tied else "no logprobs tell why"
        why = f"greedy text does not repeat here, and {unknown}; {shown}"
        return _PART.undetermined(check, why, whole, stream, *seen)
    if len(streams) > 1 and one[:2] in streams:
        return _PART.violated(check, f"one stream of two lost or changed text; {shown}", whole, stream, *seen)
    return _PART.violated(check, shown, whole, stream, *seen, **({} if gap is None else {"gap_nat": round(gap, 3)}))


def _again(transcript: Transcript, step: str) -> list[tuple[str, str]]:
    said = _said(transcript, step)
    return [] if said is None else [said[:2]]


def cost(params: StreamingEqualsParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    requests = 3 * len(params.prompts)
    return Cost(requests=requests, prompt_tokens=50 * requests, output_tokens=requests * params.max_tokens)


PROBE = Probe(
    id="streaming_equals_non_stream",
    doc=__doc__ or "",
    checks=(
        Check(
            id="stream-text-equals-whole-text",
            rule="The joined pieces of a greedy stream are the text of the whole reply, near-ties aside.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="stream-finish-equals-whole-finish",
            rule="A greedy stream ends for the same reason as the whole reply.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="stream-names-the-model-of-the-whole",
            rule="A stream names the model that the whole reply to the same request names.",
            level=Level.SHOULD,
            source="https://github.com/kubernetes-sigs/gateway-api-inference-extension/issues/1625",
        ),
    ),
    params=StreamingEqualsParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
