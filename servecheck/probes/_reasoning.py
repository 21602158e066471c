"""Signs of thinking in a reply: the field, and the marks of each model family; tells no thought from an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from servecheck.model import Json, NotApplicable, Transcript
from servecheck.probe import Session
from servecheck.probes._steps import answer_at
from servecheck.read import reply
from servecheck.read.markup import special_token
from servecheck.read.text import dig, parse, string

__all__ = ["ROOM", "THINK", "ask", "field_of", "marks", "no_thinking", "thinks", "tokens_in", "told_to"]

ROOM = 512
"""Tokens per answer: a short thought and a short answer fit; a small limit would end in the thought."""

THINK: dict[str, Json] = {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}}
"""What asks a model to think that does not by default; templates read one name or the other and ignore the rest."""

_FAMILIES = re.compile(
    r"</?(?:\w+:)?(?:think(?:ing)?|thought|reasoning|reflection)>"  # most families; some with a prefix
    r"|\[/?THINK\]|◁/?think▷|<\|/?think(?:ing)?\|>|<\|?channel\|?>|<\|(?:begin|end)_of_thought\|>"
)


def marks(text: str) -> str:
    """Return the first mark of thinking in a text, an empty string where there is none."""
    found = _FAMILIES.search(text)
    return found[0] if found else ""


def tokens_in(text: str) -> str:
    """Return the first special token that is written out in a text, a mark of thinking too."""
    return special_token(text) or marks(text)


def thinks(answer: reply.Reply | None) -> bool:
    """Tell whether a reply shows thinking, in its own field or between marks in the content."""
    if not isinstance(answer, reply.Answer):
        return False
    return bool(answer.first.reasoning.strip() or marks(answer.text))


def field_of(answer: reply.Answer) -> str:
    """Return the name of the field that the reasoning is in; both names are right."""
    events = answer.stream.events if answer.stream is not None else ()
    bodies: list[Json] = [] if events else [answer.body]
    for event in events:
        try:
            bodies.append(parse(event.data))
        except ValueError:
            continue
    for name in ("reasoning_content", "reasoning"):
        for body in bodies:
            if any(string(dig(body, "choices", 0, part, name)) for part in ("message", "delta")):
                return name
    return ""


async def ask(session: Session, body: dict[str, Json]) -> dict[str, Json] | None:
    """Ask as it is, and where nothing shows thinking, ask to think; return what to add, ``None`` if none thinks."""
    plain = await session.chat("plain", body)
    if thinks(reply.chat(plain)):
        return {}
    asked = await session.chat("asked", {**body, **THINK})
    return THINK if thinks(reply.chat(asked)) else None


def told_to(transcript: Transcript) -> reply.Answer | None:
    """Return the answer that shows thinking, as it is or when told to; ``None`` where neither does."""
    for step in ("plain", "asked"):
        answer = answer_at(transcript, step)
        if answer is not None and thinks(answer):
            return answer
    return None


def no_thinking(replies: Iterable[reply.Reply | None]) -> NotApplicable | None:
    """Return that reasoning makes no sense here, where there are answers and none shows any."""
    answers = [answer for answer in replies if isinstance(answer, reply.Answer)]
    if not answers or any(thinks(answer) for answer in answers):
        return None
    asked = " or when asked to think" if len(answers) > 1 else ""
    return NotApplicable(
        why=f"no reply, plain{asked}, has a reasoning field or marks of thinking: the model does not reason",
        lacks=tuple(answer.exchange.id for answer in answers),
    )
