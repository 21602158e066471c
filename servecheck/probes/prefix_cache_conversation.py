"""Each turn of an agent's conversation reuses what the turns before it computed.

What it does: plays four turns of an agent: a long system message that begins with a random word, two tools, a tool call
with its result, and from the third turn on a schema for the answer. The tools begin with the random word too, since
many templates write them before the system message. Each turn sends the whole history and one message
more, as agents do. At least half of the prompt of the turn before must come from the cache; the first turn, whose
beginning nobody has sent before, must not. Where turns are not reused, or tools are refused, the same conversation is
held once more without tools and schema: it tells which of them is in the way.

Why it matters: an agent sends its history again with every step. A clock in the chat template, tools that are listed
in another order each time or a cache that only knows whole prompts make every step cost the whole conversation.

How it could be fooled: by a server that reports a hit and computes anyway (see `prefix_cache.reported`); by replicas
that take the turns in turn; where neither the replies nor the counters tell of cached tokens it says so and guesses
nothing from time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes import _prefix as prefix
from servecheck.probes._findings import Part
from servecheck.probes._schemas import response_format
from servecheck.probes._steps import answer_at, reply_at
from servecheck.read import reply

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/features/automatic_prefix_caching/"
_PART = Part()
_EACH, _AGENT, _FIRST = "each-turn-reuses-the-last", "reuse-holds-with-tools-and-schema", "first-turn-is-not-cached"
_TURNS = 4
_SCHEMA_FROM = 3
_KINDS = ("agent", "plain")
_USERS = (
    "Which of these words names a place?",
    "And which names a sound?",
    "Which comes first in the alphabet?",
    "Which would you leave out?",
)
_SAID = ("The harbour is one.", "I would say music.", "That is bridge.")
_ANSWER: Json = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


class PrefixCacheConversationParams(Params):
    """What may be chosen in YAML."""

    words: int = Field(
        default=320,
        ge=128,
        le=16384,
        description="Words of the system message; raised to two blocks of the server's cache where that is known.",
    )


def _tool(name: str, about: str, key: str) -> Json:
    parameters: Json = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


def _tools(word: str) -> list[Json]:
    """Return two tools that nobody has listed before, whichever of their keys and of them a template writes first."""
    return [
        _tool(f"{word}_look_up", f"{word}: look up what a word means.", "word"),
        _tool(f"{word}_save_note", f"{word}: save a note for later.", "text"),
    ]


def _history(kind: str, word: str, system: str, turn: int) -> list[Json]:
    """Return the messages of a turn; each begins with all those of the turn before."""
    messages: list[Json] = [{"role": "system", "content": system}, {"role": "user", "content": _USERS[0]}]
    for place in range(turn - 1):
        if place == 0 and kind == "agent":
            call: Json = {"name": f"{word}_look_up", "arguments": '{"word": "harbour"}'}
            calls: Json = [{"id": "call_harbour1", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": "", "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": "call_harbour1", "content": "a place for ships"})
        messages.append({"role": "assistant", "content": _SAID[place]})
        messages.append({"role": "user", "content": _USERS[place + 1]})
    return messages


def _sides(kind: str) -> tuple[str, ...]:
    return tuple(f"{kind}-{turn}" for turn in range(1, _TURNS + 1))


async def drive(session: Session, params: PrefixCacheConversationParams, _: Transcript | None) -> None:
    """Four turns with tools and a schema; without them where those were refused or not reused."""
    known = session.fingerprint
    words = prefix.fitting(known, max(params.words, prefix.two_blocks(known)))
    for kind in _KINDS:
        if kind == "plain" and not _needs_control(session.transcript):
            return
        word = session.unseen()
        system = prefix.prompt(word, words, "You help with these words. Answer briefly.")
        await prefix.start_counting(session, kind)
        with_schema = kind == "agent"
        for turn, side in enumerate(_sides(kind), start=1):
            if turn == 2 and _needs_header(session.transcript, kind):
                short = _short(kind, session.unseen()) | prefix.telling(known)
                await prefix.send(session, _asked(kind), _header_step(kind), short, first=kind)
            body: dict[str, Json] = {"messages": _history(kind, word, system, turn), "max_tokens": 1, "temperature": 0}
            body |= prefix.telling(known)
            if kind == "agent":
                body["tools"] = _tools(word)
            shaped = body | ({"response_format": response_format(_ANSWER)} if turn >= _SCHEMA_FROM else {})
            await prefix.send(session, _asked(kind), side, shaped if with_schema else body, first=kind)
            if with_schema and shaped is not body and not answer_at(session.transcript, side):
                with_schema = False  # a schema beside tools is refused here and there; what it does alone is known
                await prefix.send(session, _asked(kind), side, body, first=kind)
            if not answer_at(session.transcript, side):
                break


def _short(kind: str, word: str) -> dict[str, Json]:
    """Return a first turn with other words and of no length."""
    messages: Json = [{"role": "system", "content": word}, {"role": "user", "content": _USERS[0]}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": 1, "temperature": 0}
    return body | ({"tools": _tools(word)[:1]} if kind == "agent" else {})


def _header_step(kind: str) -> str:
    return f"{kind}-{prefix.HEADER}"


def _asked(kind: str) -> tuple[str, ...]:
    """Return all that may be asked of a kind, in order."""
    first, *later = _sides(kind)
    return (first, _header_step(kind), *later)


def _needs_header(transcript: Transcript, kind: str) -> bool:
    first, best = _sides(kind)[0], _best(transcript, kind)
    return best is not None and prefix.asks_header(transcript, first, best[0][first])


def _needs_control(transcript: Transcript) -> bool:
    """Tell whether the turns with tools were refused, or were seen not to be reused."""
    if any(not answer_at(transcript, side) for side in _sides("agent")):
        return True
    best = _best(transcript, "agent")
    if best is None or prefix.is_off(transcript.fingerprint):
        return False
    return bool(_again(transcript, "agent", best[0]))


def _best(transcript: Transcript, kind: str) -> tuple[dict[str, int], str] | None:
    header = prefix.header(transcript, _header_step(kind))
    asked = prefix.answered_sides(transcript, _asked(kind))
    return prefix.best(transcript, asked, _sides(kind)[1], first=kind, header=header)


def _again(transcript: Transcript, kind: str, cached: dict[str, int]) -> list[str]:
    """Return the turns of which less than half of the last turn's prompt came from the cache."""
    sides, header = _sides(kind), prefix.header(transcript, _header_step(kind))
    return [
        side
        for before, side in itertools.pairwise(sides)
        if cached[side] < prefix.hit(prefix.prompt_tokens(transcript, before), header)
    ]


def judge(transcript: Transcript, _: PrefixCacheConversationParams) -> Iterator[Finding]:
    """Judge the turns with tools, or the control's where those were refused."""
    control = transcript.get(_sides("plain")[0]) is not None
    agent_answered = all(answer_at(transcript, side) for side in _sides("agent"))
    kind = "plain" if control else "agent"
    for side in _sides(kind):
        missing = _PART.unless_answered(_EACH, reply_at(transcript, side))
        if missing is not None:
            yield missing
            return
    best = _best(transcript, kind)
    if best is None:
        seen = [exchange for side in _sides(kind) if (exchange := transcript.get(side)) is not None]
        why = "neither the replies nor the counters tell of cached tokens, and one conversation is too little for time"
        yield _PART.undetermined(_EACH, why, *seen)
        return
    yield from _turns(transcript, kind, *best, note="" if agent_answered else _refused(transcript))
    if not agent_answered:
        return
    with_tools = _best(transcript, "agent")
    if with_tools is None:
        return
    cached, says = with_tools
    again = _again(transcript, "agent", cached)
    said, figures, shown = _said(transcript, "agent", cached, says)
    if not again:
        yield _PART.held(_AGENT, said, *shown, **figures)
    elif control and not _again(transcript, "plain", best[0]):
        why = f"{said}: computed again, while the same conversation without tools and schema is reused"
        yield _PART.violated(_AGENT, why, *shown, **figures)


def _refused(transcript: Transcript) -> str:
    looks = (reply_at(transcript, side) for side in _sides("agent"))
    first = next((look for look in looks if look is not None and not isinstance(look, reply.Answer)), None)
    return f" (without tools: with them {first.what})" if first is not None else ""


def _said(
    transcript: Transcript, kind: str, cached: dict[str, int], says: str
) -> tuple[str, dict[str, int], list[Exchange]]:
    sides = _sides(kind)
    tokens = [prefix.prompt_tokens(transcript, side) for side in sides]
    listed = ", ".join(f"{cached[side]} of {total}" for side, total in zip(sides, tokens, strict=True))
    figures = {f"cached_turn_{turn}_tokens": cached[side] for turn, side in enumerate(sides, start=1)}
    seen = [exchange for side in sides if (exchange := transcript.get(side)) is not None]
    if "counter" in says:
        seen += prefix.reads_of(transcript, _asked(kind), first=kind)
    return f"{says} {listed} tokens cached in turns 1 to {_TURNS}", figures, seen


def _turns(transcript: Transcript, kind: str, cached: dict[str, int], says: str, note: str) -> Iterator[Finding]:
    sides = _sides(kind)
    said, figures, seen = _said(transcript, kind, cached, says)
    said += note
    again = _again(transcript, kind, cached)
    first, header = prefix.prompt_tokens(transcript, sides[0]), prefix.header(transcript, _header_step(kind))
    if not first:
        yield _PART.undetermined(_EACH, f"{said}, but not how long the prompts are", *seen, **figures)
    elif not again:
        yield _PART.held(_EACH, said, *seen, **figures)
    elif prefix.is_off(transcript.fingerprint):
        yield _PART.refused(_EACH, f"{said}; the server says that its prefix cache is off", *seen, **figures)
    elif block := prefix.too_short(transcript.fingerprint, first, header):
        why = f"{said}; its cache keeps whole blocks of {block} tokens, and the prompts are too short for that"
        yield _PART.undetermined(_EACH, why, *seen, **figures)
    elif len(again) == len(sides) - 1:
        yield _PART.no_effect(_EACH, f"{said}: every turn is computed again", *seen, **figures)
    else:
        turns = ", ".join(side.rpartition("-")[2] for side in again)
        yield _PART.violated(_EACH, f"{said}: turn {turns} is computed again", *seen, **figures)
    if cached[sides[0]] > prefix.miss(first, header):
        why = f"{said}: a conversation that nobody began before cannot be cached"
        yield _PART.violated(_FIRST, why, *seen, **figures)
    else:
        yield _PART.held(_FIRST, said, *seen, **figures)


PROBE = Probe(
    id="prefix_cache_conversation",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_EACH,
            rule="At least half of the prompt of the turn before comes from the cache, in every turn.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_AGENT,
            rule="Tools and a schema do not keep a turn from reusing the turns before it.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/prompt-caching",
        ),
        Check(
            id=_FIRST,
            rule="A conversation that begins with a new word is not reported or counted as cached.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=PrefixCacheConversationParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=9,
    prompt_tokens=3800,
    output_tokens=4,
)
