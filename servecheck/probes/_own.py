"""What the probes of a workload share: prompts that pull against a schema, who refused it for which keyword, words."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

from servecheck.model import Finding, Json, Transcript
from servecheck.probes._steps import reply_at
from servecheck.read import reply, schemas
from servecheck.read.partial import json_fault
from servecheck.read.text import quote

__all__ = [
    "KEYWORDS_TRIED",
    "about",
    "against",
    "blame",
    "blamed",
    "listed",
    "shown",
    "state",
    "was_cut",
    "why_refused",
]

KEYWORDS_TRIED = 5
"""How many keywords are taken out, one at a time, where a refusal names none; a request each."""

_ASKED_FOR = "Answer with exactly this JSON and with nothing else, every value as it is here: {}"
_BLAME = "without/"


def about(schema: dict[str, Json]) -> tuple[Json, list[str]]:
    """Return JSON that breaks a schema, and which of its keywords it breaks; ``None`` and nothing where none does."""
    wrong = schemas.breaking(schema)
    return wrong, schemas.broken_keywords(wrong, schema) if wrong is not None else []


def against(wrong: Json) -> str:
    """Return the prompt that asks for JSON which the schema forbids."""
    return _ASKED_FOR.format(json.dumps(wrong, ensure_ascii=False))


def was_cut(answer: reply.Answer) -> bool:
    """Tell whether a length stop cut an answer that is JSON so far, or that had not begun."""
    if answer.finish != "length":
        return False
    return bool(answer.text.lstrip()[:1] in ("", "{", "[", '"')) and not json_fault(answer.text)


async def blame(
    refused: reply.Reply,
    schema: dict[str, Json],
    ask: Callable[[str, dict[str, Json]], Awaitable[reply.Reply]],
) -> None:
    """Look for the keyword that a refusal is about and does not name: send the schema without one at a time."""
    if not isinstance(refused, reply.Refusal) or schemas.named_keywords(refused.message, schema):
        return
    for keyword in schemas.suspects(schema)[:KEYWORDS_TRIED]:
        if isinstance(await ask(f"{_BLAME}{keyword}", schemas.without_keyword(schema, keyword)), reply.Answer):
            return


def blamed(refused: reply.Refusal, schema: dict[str, Json], transcript: Transcript) -> str:
    """Return the keyword that a refusal is about: as the server names it, else the one without which it answers."""
    named = schemas.named_keywords(refused.message, schema)
    if named:
        return ", ".join(named[:3])
    for exchange in transcript.steps(_BLAME):
        if isinstance(reply_at(transcript, exchange.step), reply.Answer):
            return exchange.step.removeprefix(_BLAME)
    return ""


def why_refused(item: str, refused: reply.Refusal, keyword: str) -> str:
    """Return a refusal in words, with the keyword where it is known and the server does not say it."""
    hint = f"; without {keyword} it is answered" if keyword and keyword not in refused.message else ""
    return f"{item} is refused: {refused.what}{hint}"


def state(finding: Finding, item: str, word: str, **more: str | int | None) -> Finding:
    """Return a finding about an item with the one word that a count of the workload takes from it."""
    why = finding.why if finding.why.startswith(item) else f"{item}: {finding.why}"
    return replace(finding, why=why, measured={**finding.measured, "item": item, "state": word, **more})


def listed(names: list[str]) -> str:
    """Return keywords in words, the first few of them."""
    shown = ", ".join(names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def shown(answer: reply.Answer) -> str:
    """Return an answer short enough for a sentence."""
    return quote(answer.text, 100)
