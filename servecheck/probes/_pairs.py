"""Two requests that differ in one word: whether anything in the answers shows that the model read that word."""

from __future__ import annotations

from servecheck.model import Finding, Json, Transcript
from servecheck.probe import Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at
from servecheck.read import reply
from servecheck.read.text import dig, quote

__all__ = ["ask_pair", "judge_pair", "reply_of_side"]

_PART = Part()
_UNSURE = -0.001  # a log probability below it moves with what the model read; above it every digit may be zero


async def ask_pair(session: Session, step: str, body: dict[str, Json]) -> None:
    """Send one side of a pair with logprobs, and once more without where they are refused."""
    await session.chat(step, {**body, "logprobs": True, "top_logprobs": 1})
    if answer_at(session.transcript, step) is None:
        await session.chat(f"{step}-plain", body)


def judge_pair(transcript: Transcript, step: str, check: str, where: str, control: reply.Reply | None) -> Finding:
    """Judge the steps ``step-one`` and ``step-other``, which differ in one word, by whether the answers differ."""
    replies = [reply_of_side(transcript, f"{step}-{side}") for side in ("one", "other")]
    for found in replies:
        missing = _PART.unless_answered(check, found, control)
        if missing is not None:
            return missing
    one, other = (found for found in replies if isinstance(found, reply.Answer))
    texts = [_said(found) for found in (one, other)]
    if texts[0] != texts[1]:
        why = f"another word {where} changes the answer: {_apart(*texts)}"
        return _PART.held(check, why, one, other)
    chances = [_logprobs(found) for found in (one, other)]
    if not chances[0] or not chances[1]:
        why = f"another word {where} does not change the text, and there are no logprobs: {quote(texts[0])}"
        return _PART.undetermined(check, why, one, other)
    if chances[0] != chances[1]:
        moved = sum(left != right for left, right in zip(*chances, strict=False))
        why = f"another word {where} moves the log probability of {moved} of {len(chances[0])} tokens"
        return _PART.held(check, why, one, other)
    if all(value > _UNSURE for value in chances[0]):
        why = f"another word {where} changes nothing, but the model is certain of every token: {quote(texts[0])}"
        return _PART.undetermined(check, why, one, other)
    why = f"another word {where} changes nothing, to the last digit of {len(chances[0])} log probabilities"
    return _PART.violated(check, f"{why}: {quote(texts[0])}", one, other)


def reply_of_side(transcript: Transcript, step: str) -> reply.Reply | None:
    """Return the answer of one side, else the last reply to it."""
    return answer_at(transcript, step) or reply_at(transcript, f"{step}-plain") or reply_at(transcript, step)


def _said(answer: reply.Answer) -> str:
    calls = (f"{call.name}({call.arguments})" for call in answer.first.tool_calls)
    return answer.first.reasoning + answer.text + "".join(calls)


def _apart(one: str, other: str) -> str:
    """Show two texts from a little before the place where they part."""
    pairs = zip(one, other, strict=False)
    at = next((place for place, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))
    start = max(0, at - 12)
    return f"{quote(one[start:], 40)}, {quote(other[start:], 40)}"


def _logprobs(answer: reply.Answer) -> list[float]:
    found = [dig(entry, "logprob") for entry in answer.first.logprobs]
    return [float(value) for value in found if isinstance(value, int | float) and not isinstance(value, bool)]
