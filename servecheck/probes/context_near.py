"""A prompt just below the context limit is answered, whole and right.

What it does: builds a conversation in which the assistant repeats one word a turn, first short (two controls, which
also measure how many tokens a turn makes), then so long that the prompt ends a little below the limit. The long prompt
must be answered, be counted as long as it is, give no garbage, and, where both short ones were answered with the word
that was asked for, give that word too.

Where neither the server nor a refusal gives the limit, one prompt of very many words looks for it: a refusal may name
it, an answer must count the whole prompt.

Why it matters: faults of long prompts (a second prefill chunk, a padded edge, a wrapped cache) show nowhere else, and
answer 200.

How it could be fooled: by a model that loses a task it has seen a hundred times, which none tried did. It costs a whole
context of memory, and can push other users' prompts out of the cache: hence the risk load.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Ending, Finding, Json, Level, Risk, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._context import ask_for_limit, known_limit, limit_in, tokens_at
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, filler, reply_at, sent
from servecheck.read import reply
from servecheck.read.text import garbage, quote

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/"
_PART = Part()
_ANSWERED, _WHOLE = "near-limit-prompt-is-answered", "near-limit-prompt-is-counted-whole"
_SANE, _KNOWN = "near-limit-text-is-not-garbage", "near-limit-answer-is-the-known-one"
_FITS = "prompt-of-unknown-fit-is-refused-or-read-whole"
_UNIT = filler(11).split()  # the words of one round of turns; rounds make the same number of tokens each
_TARGET = "candle"
_PAD = 44  # words of padding that are measured
_SPARE = 24  # tokens left free besides the room for the answer


class ContextNearParams(Params):
    """What may be chosen in YAML."""

    room: int = Field(default=64, ge=8, le=4096, description="Room for the answer.")
    most_tokens: int = Field(
        default=200_000, ge=1_000, le=8_000_000, description="The prompt is no longer, however high the limit is."
    )
    unknown_words: int = Field(
        default=140_000,
        ge=1_000,
        le=2_000_000,
        description="Words of the prompt that looks for the limit where neither the server nor a refusal gives it.",
    )
    patience_seconds: float = Field(
        default=60.0, gt=0, le=600, description="We hang up on the prompt that looks for the limit after this time."
    )


def _messages(nonce: str, rounds: int, pad: int) -> list[Json]:
    """Return rounds of turns in which a word is repeated, the first behind padding, and the question for one word."""
    made: list[Json] = []
    for word in _UNIT * rounds:
        lead = f"{nonce} {filler(pad)}\n" if not made else ""
        made.append({"role": "user", "content": f"{lead}Repeat this word: {word}"})
        made.append({"role": "assistant", "content": word})
    return [*made, {"role": "user", "content": f"Repeat this word: {_TARGET}"}]


async def drive(session: Session, params: ContextNearParams, _: Transcript | None) -> None:
    """Two short controls and one with padding, then near the limit; again where the limit is lower than given."""
    nonce = session.nonce()

    async def ask(step: str, rounds: int, pad: int) -> None:
        body: dict[str, Json] = {"messages": _messages(nonce, rounds, pad), "max_tokens": params.room}
        await session.chat(step, {**body, "temperature": 0, "top_p": 1})

    await ask("short", 1, 0)
    await ask("twice", 2, 0)
    await ask("padded", 1, _PAD)
    await ask_for_limit(session)
    limit = known_limit(session.transcript)
    if limit is None:
        text = f"{session.nonce()} {filler(params.unknown_words)}"
        body: Json = {"messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0}
        await session.abort_after("search", "/chat/completions", body, seconds=params.patience_seconds)
        limit = known_limit(session.transcript, "search")
    size = _size(session.transcript, params, limit)
    if limit is None or size is None:
        return
    await ask("near", *size)
    lower = _lower(session.transcript, limit)
    size = _size(session.transcript, params, lower)
    if lower is not None and size is not None:
        await ask("near-again", *size)


def _size(transcript: Transcript, params: ContextNearParams, limit: int | None) -> tuple[int, int] | None:
    """Return the rounds and the words of padding that come just below the limit; ``None`` where nothing tells."""
    short, twice, padded = (tokens_at(transcript, step) for step in ("short", "twice", "padded"))
    if limit is None or short is None or twice is None or padded is None or not short < twice or not short < padded:
        return None
    free = min(limit, params.most_tokens) - params.room - _SPARE - short
    if free < 0:
        return None
    more = free // (twice - short)
    pad = int((free - more * (twice - short)) * _PAD / (padded - short))
    return 1 + more, pad


def _expected(transcript: Transcript, size: tuple[int, int]) -> int:
    short, twice, padded = (tokens_at(transcript, step) or 0 for step in ("short", "twice", "padded"))
    rounds, pad = size
    return short + (rounds - 1) * (twice - short) + round(pad * (padded - short) / _PAD)


def _lower(transcript: Transcript, limit: int) -> int | None:
    """Return the limit that the refusal of the long prompt names, where it is lower than the one that was given."""
    found = reply_at(transcript, "near")
    named = limit_in(found.message) if isinstance(found, reply.Refusal) else None
    return named if named is not None and named < limit else None


def judge(transcript: Transcript, params: ContextNearParams) -> Iterator[Finding]:
    """Judge the long prompt by what the short ones show."""
    control = reply_at(transcript, "short")
    missing = _PART.unless_answered(_ANSWERED, control)
    if missing is not None:
        yield missing
        return
    limit, search = known_limit(transcript, "search"), reply_at(transcript, "search")
    if search is not None:
        yield from _judge_search(transcript, search, params, limit)
    if limit is None:
        if search is None:
            yield _PART.undetermined(_ANSWERED, "the limit is unknown, and was not looked for", *sent(control))
        return
    near = reply_at(transcript, "near-again") or reply_at(transcript, "near")
    lower = _lower(transcript, limit) if transcript.get("near-again") is not None else None
    size = _size(transcript, params, lower or limit)
    if near is None or size is None:
        why = f"no prompt just below {limit} tokens could be made from what usage says of the short ones"
        yield _PART.undetermined(_ANSWERED, why, *sent(control))
        return
    missing = _PART.unless_answered(_ANSWERED, near, control)
    if missing is not None:
        yield missing
        return
    assert isinstance(near, reply.Answer)
    yield from _judge(transcript, near, size, lower or limit)


def _judge_search(
    transcript: Transcript, search: reply.Reply, params: ContextNearParams, limit: int | None
) -> Iterator[Finding]:
    """Judge the prompt that looked for the limit, and say what came of it where no limit did."""
    sought, took = f"a prompt of {params.unknown_words} words", tokens_at(transcript, "search")
    hung_up = search.exchange.ending is Ending.ABORTED
    if isinstance(search, reply.Refusal):
        yield _PART.held(_FITS, f"{sought} is refused: {search.what}", search)
        if limit is None:
            yield _PART.undetermined(_ANSWERED, f"the limit is unknown: {sought} is refused without naming it", search)
        return
    if isinstance(search, reply.Failure) and not hung_up:
        yield _PART.violated(_FITS, f"{sought}: {search.what}", search)
    elif took is None or hung_up:
        yield _PART.undetermined(_FITS, f"the limit is unknown, and {sought} {_came(search)}", search)
    elif took < params.unknown_words / 2:
        why = f"{sought} was answered as {took} tokens: its text was dropped in silence"
        yield _PART.violated(_FITS, why, search, prompt_tokens=took)
    else:
        yield _PART.held(_FITS, f"{sought} is answered, and counted as {took} tokens", search, prompt_tokens=took)
        yield _PART.held(_ANSWERED, f"no limit was met: {sought} is answered, as {took} tokens", search)


def _came(search: reply.Reply) -> str:
    """Return in words what came back that says nothing of the prompt's length."""
    exchange = search.exchange
    if exchange.ending is not Ending.ABORTED:
        said = quote(search.text if isinstance(search, reply.Answer) else exchange.body, 60)
        return f"was answered after {exchange.ended_at:.1f} s without a count of its tokens: {said}"
    if exchange.status is None:
        return f"got no reply in {exchange.ended_at:.0f} s"
    size = len(exchange.body)
    return f"got HTTP {exchange.status} and {size} bytes in {exchange.ended_at:.0f} s, and was not over: we hung up"


def _judge(transcript: Transcript, near: reply.Answer, size: tuple[int, int], limit: int) -> Iterator[Finding]:
    wanted, took = _expected(transcript, size), near.usage.prompt if near.usage is not None else None
    said = f"a prompt of about {wanted} tokens, limit {limit}"
    yield _PART.held(_ANSWERED, f"{said}: answered", near, limit=limit, expected_tokens=wanted)
    if took is None:
        yield _PART.undetermined(_WHOLE, "usage does not say how long the prompt is", near)
    else:
        whole = abs(took - wanted) <= max(8, wanted // 100)
        why = f"{said}: counted as {took}" + ("" if whole else ", so a part of it was not read")
        yield (_PART.held if whole else _PART.violated)(_WHOLE, why, near, prompt_tokens=took, expected_tokens=wanted)
    text = near.first.reasoning + near.text
    sign = garbage(text)
    if sign:
        yield _PART.violated(_SANE, f"{said}: {sign}: {quote(text)}", near)
    else:
        yield _PART.held(_SANE, f"{said}: {quote(text, 40)}", near)
    short = [answer_at(transcript, step) for step in ("short", "twice")]
    if all(answer is not None and _TARGET in answer.text.lower() for answer in short):
        known = _TARGET in near.text.lower()
        why = f"asked to repeat {_TARGET!r}: {quote(near.text, 40)}, as the short prompts say {_TARGET!r}"
        yield (_PART.held if known else _PART.violated)(_KNOWN, why, near, *sent(*short))


PROBE = Probe(
    id="context_near",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_ANSWERED,
            rule="A prompt that leaves room for the answer below the context limit is answered.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_WHOLE,
            rule="prompt_tokens of a long prompt is what its parts add up to.",
            level=Level.MUST,
            source="https://github.com/ollama/ollama/issues/4967",
        ),
        Check(
            id=_SANE,
            rule="The answer to a long prompt is not one character over and over, or without letters.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/14126",
        ),
        Check(
            id=_KNOWN,
            rule="What the model answers to the short prompt it answers to the long one.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/15643",
        ),
        Check(
            id=_FITS,
            rule="A very long prompt is refused, or read whole: it is not failed on, nor cut in silence.",
            level=Level.MUST,
            source="https://github.com/ollama/ollama/issues/4967",
        ),
    ),
    params=ContextNearParams,
    drive=drive,
    judge=judge,
    risk=Risk.LOAD,
    exclusive=True,
    requests=6,
    prompt_tokens=34_000,
    output_tokens=256,
)
