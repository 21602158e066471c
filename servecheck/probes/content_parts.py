"""A message in text parts is the same as one string.

What it does: sends a message as a string and as one text part, a conversation with a system message as strings and as
parts, and a message in two parts against the string that joins them, and compares ``prompt_tokens``: the same text must
make the same prompt.

Why it matters: SDKs and frameworks send parts without saying so. A server that prints the list into the prompt, reads
only one part, or none, answers 200 to something else than was asked.

How it could be fooled: by a template that loses one text and gains another of the same length. Two parts may be joined
by a line end or by nothing, so a token or two of difference is right there.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, filler, reply_at, sent

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create"
_PART = Part()
_ONE, _ALL, _HISTORY = "one-text-part-equals-a-string", "every-text-part-is-read", "parts-work-in-every-role"
_WORDS = 24  # of each of the two parts
_JOINT = 2  # tokens that the joint of two parts may cost more or less than a line end


class ContentPartsParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Name three colours and say where one sees them, please.", description="The user's message."
    )


def _parts(*texts: str) -> Json:
    return [{"type": "text", "text": text} for text in texts]


def _conversation(system: Json, user: Json, assistant: Json, last: Json) -> Json:
    roles = ("system", "user", "assistant", "user")
    return [
        {"role": role, "content": content} for role, content in zip(roles, (system, user, assistant, last), strict=True)
    ]


async def drive(session: Session, params: ContentPartsParams, _: Transcript | None) -> None:
    """Each text as a string and in parts."""
    first, second = f"{session.nonce()} {filler(_WORDS)}", f"{session.nonce()} {filler(_WORDS, 7)}"
    texts = ("Answer in English, please.", "Good morning to you.", "Good morning. How can I help?", params.prompt)
    asked: dict[str, Json] = {
        "string": [{"role": "user", "content": params.prompt}],
        "one-part": [{"role": "user", "content": _parts(params.prompt)}],
        "history-strings": _conversation(*texts),
        "history-parts": _conversation(*(_parts(text) for text in texts)),
        "joined": [{"role": "user", "content": f"{first}\n{second}"}],
        "two-parts": [{"role": "user", "content": _parts(first, second)}],
    }
    for step, messages in asked.items():
        await session.chat(step, {"messages": messages, "max_tokens": 1, "temperature": 0})


def judge(transcript: Transcript, _: ContentPartsParams) -> Iterator[Finding]:
    """Judge each text in parts by its string."""
    yield _pair(transcript, _ONE, "one-part", "string", 0)
    yield _pair(transcript, _HISTORY, "history-parts", "history-strings", 0)
    yield _pair(transcript, _ALL, "two-parts", "joined", _JOINT)


_WHAT = {
    "one-part": "a text in one part",
    "history-parts": "a conversation in parts",
    "two-parts": "a text in two parts",
}


def _pair(transcript: Transcript, check: str, parts: str, string: str, slack: int) -> Finding:
    answer, control = reply_at(transcript, parts), reply_at(transcript, string)
    missing = _PART.unless_answered(check, answer, control, what=_WHAT[parts])
    if missing is not None:
        return missing
    seen = sent(answer, control)
    counts = [
        found.usage.prompt if (found := answer_at(transcript, step)) is not None and found.usage is not None else None
        for step in (parts, string)
    ]
    made, wanted = counts
    if made is None or wanted is None:
        return _PART.undetermined(check, "usage does not say how long the prompts are", *seen)
    said = f"prompt_tokens {made} in parts, {wanted} as a string"
    figures = {"prompt_tokens_parts": made, "prompt_tokens_string": wanted}
    if abs(made - wanted) <= slack:
        return _PART.held(check, said, *seen, **figures)
    lost = "text is missing" if made < wanted else "something else is in the prompt"
    return _PART.violated(check, f"{said}: {lost}", *seen, **figures)


PROBE = Probe(
    id="content_parts",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_ONE,
            rule="A message in one text part makes the same prompt as the string.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_ALL,
            rule="A message in two text parts makes the prompt of both texts.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_HISTORY,
            rule="System, user and assistant messages in text parts make the same prompt as strings.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=ContentPartsParams,
    drive=drive,
    judge=judge,
    requests=6,
    prompt_tokens=450,
    output_tokens=6,
)
