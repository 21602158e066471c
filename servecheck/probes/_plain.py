"""What the rows about a plain request share: a text that is none, how an answer ends, its usage and its name."""

from __future__ import annotations

from servecheck.model import Check, Finding, Level
from servecheck.probes._findings import Part
from servecheck.read.reply import Answer, Usage
from servecheck.read.text import dig, garbage, number, quote, string

__all__ = [
    "CHAT_COUNTS",
    "TYPED_COUNTS",
    "judge_finish",
    "judge_name",
    "judge_sane",
    "judge_usage",
    "sane_check",
    "sum_of",
]

CHAT_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
TYPED_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
"""The counts of a usage on the chat and the completions route, and on the responses route: in, out, both."""

_FINISH = ("stop", "length")
_FIRST, _LAST = 1_000_000_000, 10_000_000_000
"""Seconds since 1970 of 2001 and 2286; a time in milliseconds, or none, lies outside."""


def sane_check(name: str) -> Check:
    """Return the check that :func:`judge_sane` judges."""
    return Check(
        id=name,
        rule="The text is not one character over and over, replacement characters, or without letters.",
        level=Level.MUST,
        source="https://github.com/vllm-project/vllm/issues/13035",
    )


def judge_sane(part: Part, check: str, answer: Answer) -> Finding:
    """Judge a text by the signs of a broken decoder; its sense is not asked."""
    if sign := garbage(answer.text):
        return part.violated(check, f"{sign}: {quote(answer.text)}", answer)
    return part.held(check, f"readable: {quote(answer.text, 60)}", answer)


def judge_finish(part: Part, check: str, answer: Answer) -> Finding:
    """Judge the reason with which a choice without tools ended."""
    if answer.finish in _FINISH:
        return part.held(check, f"finish_reason is {answer.finish!r}", answer)
    return part.violated(check, f"finish_reason is {answer.finish!r} where only 'stop' or 'length' can be", answer)


def sum_of(usage: Usage, names: tuple[str, str, str]) -> tuple[str, str]:
    """Return what is wrong with the counts as a sum, empty where nothing is, and the counts in words."""
    counts = (usage.prompt, usage.completion, usage.total)
    said = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
    prompt, completion, total = counts
    if prompt is None or completion is None or total is None:
        return f"usage is incomplete: {said}", said
    if prompt <= 0 or completion <= 0 or total != prompt + completion:
        return f"usage does not add up: {said}", said
    return "", said


def judge_usage(part: Part, check: str, answer: Answer, names: tuple[str, str, str], limit_name: str) -> Finding:
    """Judge the counts of an answer: all there, a sum, and no more than the limit of its own request allows."""
    usage, limit = answer.usage, number(dig(answer.exchange.request, limit_name))
    if usage is None:
        whole = "response" if names == TYPED_COUNTS else "reply"
        return part.violated(check, f"the {whole} has no usage", answer)
    fault, said = sum_of(usage, names)
    if fault:
        return part.violated(check, fault, answer)
    if limit is not None and usage.completion is not None and usage.completion > limit:
        return part.violated(check, f"more tokens than {limit_name} {limit} allows: {said}", answer)
    return part.held(check, said, answer)


def judge_name(part: Part, check: str, answer: Answer, kind: str) -> Finding:
    """Judge that an answer is the object of a ``kind``, and says which and when it was made."""
    body, wrong = answer.body, []
    if dig(body, "object") != kind:
        wrong.append(f"object is {dig(body, 'object')!r}")
    if not string(dig(body, "id")):
        wrong.append(f"id is {dig(body, 'id')!r}")
    if not _FIRST <= (number(dig(body, "created")) or 0) < _LAST:
        wrong.append(f"created is {dig(body, 'created')!r} and no number of seconds since 1970")
    if wrong:
        return part.violated(check, ", ".join(wrong), answer)
    return part.held(check, "object, id and created are as documented", answer)
