"""Thinking can be switched off per request.

What it does: asks a model that thinks the same question with ``chat_template_kwargs`` (``enable_thinking`` and
``thinking`` false) and with ``reasoning_effort: none``. One way that works is enough; the answer must then be in the
content. The same question as it is is the control. Its answer is sent back as a turn of a longer conversation, thought
and all, as frameworks do. A model that shows no thinking makes the row not applicable.

Why it matters: thinking costs seconds and money where an application needs a word. Parsers are reported that, with
thinking off, wait for a tag that never comes and file the whole answer under reasoning.

How it could be fooled: by a model that does not think about an easy question of its own accord; the control would show
that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, NotApplicable, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._reasoning import ROOM, ask, field_of, marks, no_thinking, thinks, told_to
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_PART = Part()
_OFF, _CONTENT = "thinking-can-be-switched-off", "answer-without-thinking-is-in-the-content"
_BACK = "own-thinking-is-taken-back"
_WAYS: Mapping[str, dict[str, Json]] = {
    "template": {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    "effort": {"reasoning_effort": "none"},
}
_WORDS = {"template": "chat_template_kwargs", "effort": "reasoning_effort none"}


class ReasoningToggleParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="What is 12 + 5? Answer with the number only.", description="A question to think of.")
    max_tokens: int = Field(default=ROOM, ge=64, le=16384, description="Room for the thought and the answer.")


async def drive(session: Session, params: ReasoningToggleParams, _: Transcript | None) -> None:
    """Find out whether it thinks, then each way of switching it off."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    if await ask(session, body) is None:
        return
    for step, more in _WAYS.items():
        await session.chat(step, {**body, **more})
    own = _own_turn(told_to(session.transcript))
    if own is not None:
        turns: list[Json] = [{"role": "user", "content": params.prompt}, own, {"role": "user", "content": "Thank you."}]
        await session.chat("back", {**body, "messages": turns})


def _own_turn(thought: reply.Answer | None) -> Json:
    """Return a message with its thought as the server gave it, to be sent back; ``None`` where it was cut."""
    if thought is None or thought.finish == "length" or not thought.text:
        return None
    name = field_of(thought)
    return {"role": "assistant", "content": thought.text, name: thought.first.reasoning} if name else None


def judge(transcript: Transcript, _: ReasoningToggleParams) -> Iterator[Finding | NotApplicable]:
    """Judge whether a way works, then where the answer is."""
    plain, thought = reply_at(transcript, "plain"), told_to(transcript)
    if thought is None:
        nothing = no_thinking([plain, reply_at(transcript, "asked")])
        yield nothing or _PART.unless_answered(_OFF, plain) or _PART.undetermined(_OFF, "the model did not think")
        return
    ways = {step: reply_at(transcript, step) for step in _WAYS}
    yield from _switched(ways, thought, on_demand=not thinks(plain))
    yield from _where(ways)
    back = reply_at(transcript, "back")
    if back is not None:
        missing = _PART.unless_answered(_BACK, back, thought, what="an own answer with its thought as an earlier turn")
        yield missing or _PART.held(_BACK, "an own answer with its thought is taken as an earlier turn", back, thought)


def _switched(ways: Mapping[str, reply.Reply | None], thought: reply.Answer, *, on_demand: bool) -> Iterator[Finding]:
    failed = next((found for found in ways.values() if isinstance(found, reply.Failure)), None)
    if failed is not None:
        yield _PART.violated(_OFF, failed.what, failed)
        return
    answers = {step: found for step, found in ways.items() if isinstance(found, reply.Answer)}
    off = [step for step, found in answers.items() if not _still_thinks(found) and not _misfiled(found)]
    others = [_WORDS[step] for step in ways if step not in off]
    seen = [found for found in ways.values() if found is not None]
    if on_demand:
        yield _PART.held(_OFF, "the model thinks only where it is asked to, by chat_template_kwargs", thought, *seen)
    elif off:
        said = f"with {' and with '.join(_WORDS[step] for step in off)} there is no thinking"
        yield _PART.held(_OFF, said + (f"; not with {', '.join(others)}" if others else ""), *seen, thought)
    elif not answers:
        yield next(found for each in ways.values() if (found := _PART.unless_answered(_OFF, each, thought)))
    elif all(_misfiled(found) for found in answers.values()):
        why = "content is empty and the answer is in the reasoning, so whether it thought cannot be seen"
        yield _PART.undetermined(_OFF, why, *seen)
    else:
        still = next(found for found in answers.values() if _still_thinks(found) and not _misfiled(found))
        shown = quote(still.first.reasoning or still.text, 60)
        yield _PART.no_effect(_OFF, f"200, and it still thinks, with {' and '.join(others)}: {shown}", *seen, thought)


def _where(ways: Mapping[str, reply.Reply | None]) -> Iterator[Finding]:
    quiet = {
        step: found
        for step, found in ways.items()
        if isinstance(found, reply.Answer) and (not _still_thinks(found) or _misfiled(found))
    }
    for step, answer in quiet.items():
        words = f"with {_WORDS[step]}"
        if mark := marks(answer.text):
            yield _PART.violated(
                _CONTENT, f"{words} the answer begins with marks of thinking ({mark}): {quote(answer.text)}", answer
            )
            return
        if not answer.text.strip() and answer.finish != "length":
            shown = quote(answer.first.reasoning) if answer.first.reasoning else "there is no reasoning"
            why = f"{words} content is empty and the answer is in the reasoning: {shown}"
            yield _PART.violated(_CONTENT, why, answer)
            return
    if quiet:
        shown = quote(next(iter(quiet.values())).text.strip(), 40)
        yield _PART.held(_CONTENT, f"without thinking the answer is in the content: {shown}", *quiet.values())


def _still_thinks(answer: reply.Answer) -> bool:
    """Tell whether there is a thought; empty marks, which some templates leave, are none."""
    if answer.first.reasoning.strip():
        return True
    mark = marks(answer.text)
    if not mark:
        return False
    before, _, after = answer.text.partition(mark)
    if "/" in mark:
        return bool(before.strip())
    return not after.lstrip().startswith(("</", "[/", "◁/", "<|"))


def _misfiled(answer: reply.Answer) -> bool:
    """Tell whether a reply that ended has all of its text under reasoning."""
    return thinks(answer) and not answer.text.strip() and answer.finish != "length"


PROBE = Probe(
    id="reasoning_toggle",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_OFF,
            rule="There is a way to have an answer without thinking.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/features/reasoning_outputs/",
        ),
        Check(
            id=_CONTENT,
            rule="With thinking off the content is the answer and nothing else.",
            level=Level.MUST,
            source="https://github.com/sgl-project/sglang/pull/20586",
        ),
        Check(
            id=_BACK,
            rule="An answer with its thought, as the server gave it, is taken as an earlier turn.",
            level=Level.SHOULD,
            source="https://github.com/can1357/oh-my-pi/issues/1157",
        ),
    ),
    params=ReasoningToggleParams,
    drive=drive,
    judge=judge,
    requests=4,
    prompt_tokens=180,
    output_tokens=80,
)
