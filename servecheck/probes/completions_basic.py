"""A plain text completion has everything that a client reads.

What it does: sends one prompt greedily, once with nothing but the prompt and ``max_tokens``, and once as a list of two
prompts, and reads the replies as a client would: text, finish reason, usage that adds up, the object's name, one choice
for each prompt, in the order of the prompts.

Why it matters: base models, fill-ins and evaluation harnesses use this route; a chat-only server should say so.

How it could be fooled: hardly; but sense is not judged, only signs of a broken decoder.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._plain import CHAT_COUNTS, judge_finish, judge_name, judge_sane, judge_usage, sane_check
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import garbage, quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/completions/object"
_PART = Part(route=Route.COMPLETIONS)
_TEXT, _SANE, _FINISH = "completion-has-text", "completion-is-not-garbage", "completion-says-how-it-ended"
_USAGE, _NAMED, _LIST = "completion-usage-adds-up", "text-completion-object-is-named", "each-listed-prompt-is-completed"

_TELLING = 20  # characters; two prompts may have a short answer in common


class CompletionsBasicParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="The harbour was busy that morning, because", description="The text to go on with.")
    second: str = Field(default="In the garden behind the house there was", description="The second text of a list.")
    max_tokens: int = Field(default=24, ge=4, le=4096, description="Room for the answer.")


async def drive(session: Session, params: CompletionsBasicParams, _: Transcript | None) -> None:
    """Greedy, bare, and two prompts at once."""
    room: dict[str, Json] = {"max_tokens": params.max_tokens}
    await session.post("greedy", "/completions", {"prompt": params.prompt, **room, "temperature": 0, "top_p": 1})
    await session.post("bare", "/completions", {"prompt": params.prompt, **room})
    listed: Json = [params.prompt, params.second]
    await session.post("listed", "/completions", {"prompt": listed, **room, "temperature": 0, "top_p": 1})


def judge(transcript: Transcript, _: CompletionsBasicParams) -> Iterator[Finding]:
    """Judge both single replies by the same rules, and the list by its choices."""
    for step, what in (("greedy", "a prompt at temperature 0"), ("bare", "a prompt with nothing but max_tokens")):
        answer = reply_at(transcript, step)
        missing = _PART.unless_answered(_TEXT, answer, what=what)
        if missing is not None:
            yield missing
        if isinstance(answer, reply.Answer):
            yield from _judge(answer)
    greedy = reply_at(transcript, "greedy")
    if isinstance(greedy, reply.Answer):
        yield _judge_list(reply_at(transcript, "listed"), greedy)


def _judge(answer: reply.Answer) -> Iterator[Finding]:
    finish = answer.finish
    made = answer.usage.completion if answer.usage is not None else None
    if answer.text.strip():
        yield _PART.held(_TEXT, f"{len(answer.text)} characters: {quote(answer.text, 60)}", answer)
    elif finish == "stop" and made is not None and made <= 1:
        # A model may hold that the text is over; then there is an end token and nothing else.
        yield _PART.undetermined(_TEXT, "the model ended the text at once", answer)
    else:
        yield _PART.violated(_TEXT, f"no text with finish_reason {finish!r}", answer)
    yield judge_sane(_PART, _SANE, answer)
    yield judge_finish(_PART, _FINISH, answer)
    yield judge_usage(_PART, _USAGE, answer, CHAT_COUNTS, "max_tokens")
    yield judge_name(_PART, _NAMED, answer, "text_completion")


def _judge_list(listed: reply.Reply | None, greedy: reply.Answer) -> Finding:
    missing = _PART.unless_answered(_LIST, listed, greedy, what="a list of prompts")
    if missing is not None:
        return missing
    assert isinstance(listed, reply.Answer)
    indices = [choice.index for choice in listed.choices]
    why = f"{len(indices)} choices for 2 prompts, indices {indices}"
    if indices != [0, 1]:
        return _PART.violated(_LIST, why, listed, greedy)
    # Batches round otherwise, so the first need not be what the prompt gets alone; the second never is by chance.
    first, second = (choice.text for choice in listed.choices)
    if len(second.strip()) > _TELLING and second == greedy.text != first:
        return _PART.violated(_LIST, f"{why}: choice 1 answers prompt 0: {quote(second, 60)}", listed, greedy)
    if len(second.strip()) > _TELLING and second == first and not garbage(first):
        return _PART.violated(_LIST, f"{why}, and one answer for both: {quote(first, 60)}", listed, greedy)
    return _PART.held(_LIST, why, listed, greedy)


PROBE = Probe(
    id="completions_basic",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_TEXT,
            rule="choices[0].text holds text.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        sane_check(_SANE),
        Check(
            id=_FINISH,
            rule="finish_reason is “stop” or “length”.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_USAGE,
            rule="usage counts prompt and completion, adds them up, and stays within max_tokens.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_NAMED,
            rule="object is “text_completion”, id is text, created is a whole number of seconds since 1970.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_LIST,
            rule="A list of prompts gets one choice for each, in their order.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/api-reference/completions/create",
        ),
    ),
    params=CompletionsBasicParams,
    drive=drive,
    judge=judge,
    requests=3,
    prompt_tokens=30,
    output_tokens=100,
)
