"""A prompt beyond the context limit is refused at once, by name, and does no harm.

What it does: measures on two short prompts how many tokens a word makes, then sends a prompt a little longer than the
limit that the server gives (or names when it refuses far too much output), whole and streamed, and a short one that
asks for far more output than there is room. Afterwards a plain request. A prompt of the wrong type shows whether the
errors of the route have one shape. Where the limit is nowhere to be had no long prompt is sent: ``context_near`` looks
for it with one, which is a load.

Why it matters: clients shorten the prompt on a 400 and try again on a 500. A prompt that is cut in silence gets a good
looking answer to half of it.

How it could be fooled: by a limit that is given too small; then the prompt is taken, and this row says that it cannot
tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Ending, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._context import ASKED, ask_for_limit, known_limit, tells_of_length, tokens_at
from servecheck.probes._findings import Part
from servecheck.probes._steps import filler, reply_at, sent
from servecheck.read import reply
from servecheck.read.text import dig, parse, quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/error-codes"
_REFUSED, _STATUS = "too-long-prompt-is-refused", "too-long-stream-is-refused-by-status"
_NAMED, _QUICK, _AFTER = "refusal-names-the-limit", "refusal-comes-at-once", "server-answers-after-a-refusal"
_OUTPUT, _SHAPE = "too-much-output-is-no-server-error", "errors-have-one-shape"
_SHORT, _LONGER = 48, 240  # words of the two prompts that are measured
_MODES = {"over": Mode.NON_STREAM, "over-stream": Mode.STREAM}


class ContextLimitParams(Params):
    """What may be chosen in YAML."""

    most_words: int = Field(
        default=1_200_000, ge=1_000, le=8_000_000, description="A longer prompt is not sent; the row then cannot tell."
    )
    quick_seconds: float = Field(default=10.0, gt=0, le=600, description="A refusal should take no longer.")


def _body(text: str, *, stream: bool = False, room: int = 4) -> dict[str, Json]:
    body: dict[str, Json] = {"messages": [{"role": "user", "content": text}], "max_tokens": room, "temperature": 0}
    return {**body, "stream": True} if stream else body


async def drive(session: Session, params: ContextLimitParams, _: Transcript | None) -> None:
    """Measure, find the limit, go over it in both modes, and see that the server is well."""
    await session.chat("short", _body(f"{session.nonce()} {filler(_SHORT)}"))
    await session.chat("longer", _body(f"{session.nonce()} {filler(_LONGER)}"))
    await ask_for_limit(session)
    path, limit = "/chat/completions", known_limit(session.transcript)
    if limit is not None:
        words = _words_over(session.transcript, limit)
        if words <= params.most_words:
            text = f"{session.nonce()} {filler(words)}"
            for step, mode in _MODES.items():
                await session.chat(step, _body(text, stream=mode is Mode.STREAM))
        # A server that caps the output instead of refusing it begins to answer: three events are enough.
        await session.abort_after("output", path, _body("Say yes.", stream=True, room=4 * limit), events=3)
    await session.chat("wrong-type", {"messages": "Say yes.", "max_tokens": 4})
    await session.chat("after", _body(f"{session.nonce()} {filler(_SHORT)}"))


def _words_over(transcript: Transcript, limit: int) -> int:
    """Return the words that make a prompt just longer than the limit; at worst each word is one token."""
    short, longer = tokens_at(transcript, "short"), tokens_at(transcript, "longer")
    rate, base = 1.0, 0.0
    if short is not None and longer is not None and longer > short:
        rate = (longer - short) / (_LONGER - _SHORT)
        base = short - rate * _SHORT
    # The random words of what was measured differ by a few tokens, which the short prompts make much of.
    margin = 16 + limit // 8
    return max(1, int((limit + margin - base) / rate) + 1)


def judge(transcript: Transcript, params: ContextLimitParams) -> Iterator[Finding]:
    """Judge what came of the prompts that are too long, and what was left behind."""
    control = reply_at(transcript, "short")
    missing = Part().unless_answered(_REFUSED, control)
    if missing is not None:
        yield missing
        return
    limit = known_limit(transcript)
    if limit is None:
        why = "neither the server nor a refusal gives its limit; context_near looks for it (--allow load)"
        yield Part().undetermined(_REFUSED, why, *sent(reply_at(transcript, "ask"), control))
    elif transcript.get("over") is None:
        yield Part().undetermined(_REFUSED, f"a prompt longer than {limit} tokens is longer than we send")
    else:
        for step, mode in _MODES.items():
            yield from _judge_over(transcript, step, Part(mode=mode), limit, params)
    yield from _judge_output(transcript, limit)
    yield from _judge_shapes(transcript)
    yield from _judge_after(transcript)


def _judge_over(
    transcript: Transcript, step: str, part: Part, limit: int, params: ContextLimitParams
) -> Iterator[Finding]:
    answer = reply_at(transcript, step)
    if isinstance(answer, reply.Refusal):
        yield from _judge_refusal(part, answer, params)
    elif isinstance(answer, reply.Failure):
        yield part.violated(_REFUSED, f"a prompt longer than {limit} tokens: {answer.what}", answer)
    elif answer is None:
        yield part.undetermined(_REFUSED, "the request was not sent")
    else:
        took = answer.usage.prompt if answer.usage is not None else None
        if took is not None and took > limit:
            why = f"the limit is given as {limit} tokens, and a prompt of {took} was answered: where it is, is unknown"
            yield part.undetermined(_REFUSED, why, answer)
            return
        counted = f" and counted as {took}" if took is not None else ""
        why = f"a prompt longer than {limit} tokens was answered{counted}: its text was dropped in silence"
        yield part.violated(_REFUSED, f"{why}: {quote(answer.text, 40)}", answer, limit=limit, prompt_tokens=took)


def _judge_refusal(part: Part, refusal: reply.Refusal, params: ContextLimitParams) -> Iterator[Finding]:
    exchange = refusal.exchange
    yield part.held(_REFUSED, f"a prompt longer than the limit is refused: {refusal.what}", refusal)
    if part.mode is Mode.STREAM:
        by_status = exchange.status == refusal.code
        why = f"HTTP {exchange.status}" + ("" if by_status else f", and {refusal.code} only in an event of the stream")
        yield (part.held if by_status else part.violated)(_STATUS, why, refusal)
    named = tells_of_length(refusal.message, str(dig(_body_of(refusal), "error", "code") or ""))
    why = f"the refusal {'tells' if named else 'does not tell'} of the length: {quote(refusal.message, 120)}"
    yield (part.held if named else part.violated)(_NAMED, why, refusal)
    took = exchange.ended_at
    quick = took <= params.quick_seconds
    yield (part.held if quick else part.violated)(
        _QUICK, f"refused after {took:.1f} s", refusal, seconds=round(took, 3)
    )


def _body_of(refusal: reply.Refusal) -> Json:
    """Return the JSON of a refusal's body, ``None`` where it has none."""
    try:
        return parse(refusal.exchange.body)
    except ValueError:
        return None


def _judge_output(transcript: Transcript, limit: int | None) -> Iterator[Finding]:
    """Judge the wish for too much output: refused or capped, but no fault of the server's."""
    found = reply_at(transcript, "ask" if limit is None else "output")
    part = Part(mode=Mode.STREAM)
    if found is None:
        return
    said = f"max_tokens {ASKED}" if limit is None else f"max_tokens {4 * limit}, four times the limit,"
    if isinstance(found, reply.Refusal):
        yield part.held(_OUTPUT, f"{said} is refused: {found.what}", found)
    elif isinstance(found, reply.Answer) or found.exchange.ending is Ending.ABORTED:
        yield part.held(_OUTPUT, f"{said} is taken, and the answer begins", found)
    else:
        yield part.violated(_OUTPUT, f"{said}: {found.what}", found)


def _judge_shapes(transcript: Transcript) -> Iterator[Finding]:
    """Judge the shape of two refusals; whatever else is wrong with them belongs to other checks and rows."""
    found = [reply_at(transcript, step) for step in ("over", "wrong-type")]
    refusals = [each for each in found if isinstance(each, reply.Refusal)]
    if len(refusals) < 2:
        return
    shapes = [_shape(each) for each in refusals]
    if shapes[0] == shapes[1]:
        yield Part().held(_SHAPE, f"both refusals have {shapes[0]}", *refusals)
    else:
        why = f"a prompt too long is refused with {shapes[0]}, one of the wrong type with {shapes[1]}"
        yield Part().violated(_SHAPE, why, *refusals)


def _shape(refusal: reply.Refusal) -> str:
    """Return in words where a refusal's message is."""
    body = _body_of(refusal)
    if body is None:
        return "no JSON"
    where = (
        (("error", "message"), "error.message"),
        (("message",), "message"),
        (("error",), "error"),
        (("detail",), "detail"),
    )
    name = next((name for path, name in where if dig(body, *path) is not None), "no message")
    wrapped = dig(body, "type") is not None and name == "error.message"
    return f"the text in {name}" + (" beside a type" if wrapped else "")


def _judge_after(transcript: Transcript) -> Iterator[Finding]:
    after = reply_at(transcript, "after")
    if after is None:
        return
    if isinstance(after, reply.Answer):
        yield Part().held(_AFTER, "a plain request afterwards is answered", after)
    else:
        yield Part().violated(_AFTER, f"a plain request afterwards: {after.what}", after)


PROBE = Probe(
    id="context_limit",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_REFUSED,
            rule="A prompt longer than the context limit gets a 4xx, not an answer to a part of it.",
            level=Level.MUST,
            source="https://github.com/ollama/ollama/issues/4967",
        ),
        Check(
            id=_STATUS,
            rule="A stream that is refused for its length has the status of the refusal, not 200.",
            level=Level.MUST,
            source="https://github.com/sgl-project/sglang/issues/20027",
        ),
        Check(
            id=_NAMED,
            rule="The refusal says that it is about the length of the prompt.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_QUICK,
            rule="The refusal comes at once, before anything is computed.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_OUTPUT,
            rule="A request for more output than there is room is refused or capped, and is no 5xx.",
            level=Level.MUST,
            source="https://github.com/kserve/kserve/issues/3886",
        ),
        Check(
            id=_SHAPE,
            rule="Errors found by validation and errors found later have the same shape.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/57997",
        ),
        Check(
            id=_AFTER,
            rule="A plain request after the refusals is answered.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=ContextLimitParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=530,
    output_tokens=12,
)
