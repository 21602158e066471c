"""What endpoints show of the prompt that they make of a chat, and the date of the day that a chat template puts there.

Many show nothing: engines behind a gateway, and hosted ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime

from servecheck.model import Exchange, Finding, Json, Outcome, Transcript
from servecheck.probe import Session
from servecheck.probes._token_ids import listed_ids
from servecheck.read import reply
from servecheck.read.dates import Written, asks_for_today, dates, zones
from servecheck.read.text import dig, number, string

__all__ = ["WORDS", "Today", "compared", "conditions", "excused", "show", "today"]

WORDS = "the chat template puts today's date in the prompt"
_APPLIED, _TOKENS, _TEXT, _SOURCE = "shown-applied", "shown-tokens", "shown-text", "shown-source"
_PLAUSIBLE = 1_500_000_000  # seconds since 1970; some servers have no clock and say 0


async def show(session: Session, messages: Json) -> None:
    """Ask for the prompt of a chat: llama.cpp renders it, vLLM and SGLang give tokens that are made text again."""
    applied = await session.post_server(_APPLIED, "/apply-template", {"messages": messages})
    if _prompt(applied):
        await session.get_server(_SOURCE, "/props")
        return
    tokens = listed_ids(await session.post_server(_TOKENS, "/tokenize", {"messages": messages}))
    if tokens:
        await session.post_server(_TEXT, "/detokenize", {"tokens": list[Json](tokens)})
        await session.get_server(_SOURCE, "/tokenizer_info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """What one endpoint's chat template does with the date of the day; ``at`` is when it was asked, in seconds since
    1970, by its own clock. ``shown`` says whether a prompt was to be seen, ``asks`` whether the template asks for it.
    """

    shown: bool = False
    asks: bool = False
    date: Written | None = None
    at: float | None = None
    seen: tuple[Exchange, ...] = ()


def today(transcript: Transcript) -> Today:
    """Return what the steps of :func:`show` tell; a date that is not today's stays the same and does not count."""
    steps = [transcript.get(step) for step in (_APPLIED, _TEXT, _SOURCE)]
    applied, text, source = steps
    prompt = _prompt(applied) or _prompt(text)
    at = next((moment for each in transcript if (moment := _moment(each)) is not None), None)
    found = [each for each in dates(prompt) if at is not None and zones(each, at) is not None]
    return Today(
        shown=bool(prompt),
        asks=asks_for_today(string(dig(_json(source), "chat_template"))),
        date=found[0] if found else None,
        at=at,
        seen=tuple(each for each in steps if each is not None and each.status == 200),
    )


def compared(left: Today, right: Today) -> tuple[Outcome | None, str]:
    """Return whether both chat templates put the same date in the prompt, with the sentence that says so.

    No outcome and no words where neither puts one there; no outcome where only one side can be looked at.
    """
    sides = (("reference", left), ("candidate", right))
    dated = [(name, side.date.text) for name, side in sides if side.date is not None]
    if left.date is not None and right.date is not None:
        return _both(left, right, left.date, right.date)
    if dated:
        name, written = dated[0]
        other, its = sides[1] if name == "reference" else sides[0]
        said = f"on the {name} {WORDS} ({written})"
        if its.shown:
            return Outcome.VIOLATED, f"{said}, on the {other} it does not"
        return None, f"{said}, the {other} does not show its prompts"
    asking = [name for name, side in sides if side.asks]
    if asking:
        return None, f"the chat template of the {' and the '.join(asking)} can put today's date in a prompt"
    return None, ""


def conditions(left: Transcript, right: Transcript) -> tuple[str, tuple[str, ...]]:
    """Return what goes before a sentence, and the unlike conditions, that follow from the date of the day."""
    outcome, said = compared(today(left), today(right))
    if outcome is Outcome.HELD:
        return f"true of one day only ({said}): ", ()
    return "", (said,) if said else ()


def excused(findings: Iterable[Finding], left: Transcript, right: Transcript) -> Iterator[Finding]:
    """Yield what was found, with nothing held against a candidate whose prompts are only of another day."""
    outcome, _ = compared(today(left), today(right))
    for finding in findings:
        if outcome is Outcome.UNDETERMINED and finding.outcome is Outcome.VIOLATED:
            why = f"{finding.why}; the prompts are of different days, which alone may be the reason"
            yield replace(finding, outcome=outcome, why=why)
        else:
            yield finding


def _both(left: Today, right: Today, mine: Written, theirs: Written) -> tuple[Outcome, str]:
    if mine.text == theirs.text:
        return Outcome.HELD, f"{WORDS}: {mine.text} on both"
    said = f"{WORDS}: {mine.text} | {theirs.text}"
    if mine.days & theirs.days:
        return Outcome.VIOLATED, f"{said}, the same day written in two ways"
    if _same_zone(zones(mine, left.at or 0.0), zones(theirs, right.at or 0.0)):
        return Outcome.UNDETERMINED, f"{said}, since the two were asked on different days"
    return Outcome.VIOLATED, f"{said}, which is no matter of when they were asked: their clocks or time zones differ"


def _same_zone(left: tuple[float, float] | None, right: tuple[float, float] | None) -> bool:
    return left is not None and right is not None and max(left[0], right[0]) < min(left[1], right[1])


def _json(exchange: Exchange | None) -> Json:
    body = reply.json_body(exchange) if exchange is not None else None
    return None if isinstance(body, reply.Refusal | reply.Failure) else body


def _prompt(exchange: Exchange | None) -> str:
    body = _json(exchange)
    return next((text for name in ("prompt", "text", "content") if (text := string(dig(body, name)))), "")


def _moment(exchange: Exchange) -> float | None:
    """Return when a server answered by its own clock: as its answer says, else as its headers do."""
    created = number(dig(_json(exchange), "created"))
    if created is not None and created > _PLAUSIBLE:
        return float(created)
    try:
        return parsedate_to_datetime(exchange.header("date") or "").timestamp()
    except ValueError:
        return None
