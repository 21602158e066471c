"""What the rows of the responses and the messages route share: a limit that cuts, counts that grow, bad requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from servecheck.model import Finding, Json, Transcript
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at, sent
from servecheck.read import reply
from servecheck.read.text import parse, quote

__all__ = ["ROOM_TO_THINK", "half_of", "judge_bad", "judge_growth", "judge_same_count", "prompt_tokens", "was_cut"]

ROOM_TO_THINK = 1024
_UNKNOWN_HALF = 8


def half_of(whole: reply.Reply | None) -> int:
    """Return a limit that cuts the answer to the same request: half of the tokens that it took without one."""
    made = whole.usage.completion if isinstance(whole, reply.Answer) and whole.usage is not None else None
    return max(1, made // 2) if made is not None and 1 < made < 2**20 else _UNKNOWN_HALF


def was_cut(part: Part, check: str, cut: reply.Reply | None, whole: reply.Reply | None, limit: int) -> Finding | None:
    """Return the finding for an answer of which nothing can be said of how its cut is told; ``None`` where it was cut.

    The limit is half of what the same request took, so an answer of more tokens, or the whole one, has no limit.
    """
    missing = part.unless_answered(check, cut, whole, what=f"a limit of {limit} tokens")
    if missing is not None:
        return missing
    assert isinstance(cut, reply.Answer)
    made = cut.usage.completion if cut.usage is not None else None
    if made is not None and made > limit:
        return part.no_effect(check, f"{made} tokens where the limit is {limit}", *sent(cut, whole))
    if made is not None and made < limit:
        return part.undetermined(check, f"{made} tokens, so the limit of {limit} was not reached", cut)
    if made is None and isinstance(whole, reply.Answer):
        said = cut.first.reasoning + cut.text
        if said == whole.first.reasoning + whole.text and said:
            return part.no_effect(check, f"a limit of {limit} tokens, and the text is the whole one", cut, whole)
    return None


def prompt_tokens(found: reply.Reply | None) -> int | None:
    """Return how long a prompt was, by its usage; ``None`` where that is not known."""
    return found.usage.prompt if isinstance(found, reply.Answer) and found.usage is not None else None


def judge_growth(
    part: Part, check: str, short: reply.Reply | None, long: reply.Reply | None, words: int, what: str
) -> Finding:
    """Judge whether ``words`` more words in ``what`` are counted; so many cannot be fewer tokens than half of them.

    Where nothing is counted, another answer still shows that they were read.
    """
    for found, control in ((short, ()), (long, (short,))):
        missing = part.unless_answered(check, found, *control, what=what)
        if missing is not None:
            return missing
    assert isinstance(short, reply.Answer)
    assert isinstance(long, reply.Answer)
    low, high = prompt_tokens(short), prompt_tokens(long)
    if low is None or high is None:
        return part.undetermined(check, "usage does not say how long the prompts are", short, long)
    why = f"the prompt has {low} tokens, and {high} with {words} more words in {what}"
    if high - low >= words / 2:
        return part.held(check, why, short, long)
    if short.first.reasoning + short.text == long.first.reasoning + long.text:
        return part.no_effect(check, f"{why}; the answer is the same", short, long)
    return part.violated(check, why, short, long)


def judge_same_count(
    part: Part, check: str, plain: reply.Reply | None, other: reply.Reply | None, what: str
) -> Finding:
    """Judge whether another form of the same prompt is as long."""
    missing = part.unless_answered(check, other, plain, what=what)
    if missing is not None:
        return missing
    assert isinstance(other, reply.Answer)
    left, right = prompt_tokens(plain), prompt_tokens(other)
    if left is None or right is None:
        return part.undetermined(check, "usage does not say how long the prompts are", *sent(plain, other))
    why = f"the prompt has {left} tokens as a string and {right} as {what}"
    return (part.held if left == right else part.violated)(check, why, *sent(plain, other))


def judge_bad(
    part: Part,
    harmless: str,
    shaped: str,
    transcript: Transcript,
    steps: Sequence[tuple[str, str]],
    shape: Callable[[Json], str],
) -> Iterator[Finding]:
    """Judge requests that are wrong: none may fail inside, and refusals have one shape.

    ``steps`` are (step, what is wrong); ``shape`` returns what an error body lacks. A wrong value that is accepted is
    leniency, which is no fault here.
    """
    refusals: list[tuple[str, reply.Refusal]] = []
    seen: list[reply.Reply] = []
    failed = False
    for step, what in steps:
        found = reply_at(transcript, step)
        if isinstance(found, reply.Failure):
            failed = True
            yield part.violated(harmless, f"{what}: {found.what}", found)
        elif found is not None:
            seen.append(found)
        if isinstance(found, reply.Refusal):
            refusals.append((what, found))
    if seen and not failed:
        said = f"{len(refusals)} of {len(seen)} refused" + (f", {refusals[0][1].what}" if refusals else "")
        yield part.held(harmless, said, *seen)
    if not refusals:
        yield part.undetermined(shaped, "none of the wrong requests is refused", *seen)
        return
    for what, refusal in refusals:
        if lacking := _lacking(refusal, shape):
            seen_body = quote(refusal.exchange.body, 120)
            yield part.violated(shaped, f"{what}: {lacking}: {seen_body}", refusal)
            return
    yield part.held(shaped, f"{len(refusals)} refusals", *(refusal for _, refusal in refusals))


def _lacking(refusal: reply.Refusal, shape: Callable[[Json], str]) -> str:
    try:
        return shape(parse(refusal.exchange.body))
    except ValueError:
        return "the error is not JSON"
