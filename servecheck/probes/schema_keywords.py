"""Which keywords of JSON Schema are enforced, which refused, and which taken and dropped; and tool calls afterwards.

What it does: sends one schema for each keyword to a prompt that asks for prose, and validates the answer. Most schemas
hold a random word, so that no answer fits by chance; the control is the same schema without the keyword. A keyword is
*enforced* where the answer fits and the control does not, *refused* where the server says no, *ignored* where a whole
answer does not fit. Afterwards a tool call is forced.

Why it matters: what a grammar compiler does not know it may drop without a word, and the application finds wrong data
in its database. And on vLLM, whose grammar back end is chosen by the first structured request that it ever gets, an
innocent schema can break tool calls for everybody until the restart. That is why this runs last, only when allowed, and
without the harmless request that protects a server before all other structured rows: on a server that has served none
yet this probe does what an application would do, `multipleOf` first.

How it could be fooled: a server that has served a structured request before shows no harm, though it would after its
next restart. A keyword that the model obeys by itself is left out of the count where the control fits as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Risk, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._keywords import KEYWORDS, Keyword
from servecheck.probes._schemas import (
    PULL_AWAY,
    ROOM_TO_THINK,
    faults,
    latest,
    response_format,
    schema_of,
    thought,
    thought_too_long,
    words,
)
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.partial import json_fault
from servecheck.read.text import dig, quote

__all__ = ["PROBE"]

_KEPT, _ENFORCED = "documented-keywords-are-not-dropped", "documented-keywords-are-enforced"
_OTHERS, _TOOLS = "other-keywords-are-not-dropped", "tool-calls-work-after-schemas"
_PART = Part()
_STATES = ("enforced", "refused", "ignored", "failed", "not told")


class SchemaKeywordsParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=PULL_AWAY, description="A prompt that pulls away from JSON.")
    max_tokens: int = Field(default=64, ge=32, le=4096, description="Room for an answer; the longest took 37 tokens.")


async def drive(session: Session, params: SchemaKeywordsParams, _: Transcript | None) -> None:
    """A plain control; each keyword and the control that it needs; at the end a forced tool call."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    await session.chat("control", base)

    async def ask(step: str, keyword: Keyword, *, control: bool = False) -> None:
        again: dict[str, Json] = {}
        for name in (step, f"{step}-again"):
            schema = keyword.control() if control else keyword.sent(session.nonce())
            body: dict[str, Json] = {**base, **again, "response_format": response_format(schema)}
            if keyword.prompt:
                body["messages"] = [{"role": "user", "content": keyword.prompt}]
            look = reply.chat(await session.chat(name, body))
            if thought_too_long(look):
                base["max_tokens"] = max(params.max_tokens, ROOM_TO_THINK)
            elif not control and _state(keyword, look, None) == "not told":
                again = {"temperature": 1}  # a small model's greedy answer may be white space to the end
            else:
                return

    done: list[Json] = []
    for keyword in KEYWORDS:
        await ask(f"keyword/{keyword.slug}", keyword)
        if keyword.control() not in done:
            done.append(keyword.control())
            await ask(f"control/{keyword.slug}", keyword, control=True)
    parameters: Json = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
    function: Json = {"name": "get_weather", "description": "Tells the weather.", "parameters": parameters}
    tools: Json = [{"type": "function", "function": function}]
    body = {**base, "max_tokens": max(128, int(str(base["max_tokens"]))), "tools": tools, "tool_choice": "required"}
    await session.chat("tool-after", body)


def judge(transcript: Transcript, _: SchemaKeywordsParams) -> Iterator[Finding]:
    """Sort the keywords by what came of them, and judge what works afterwards."""
    control = reply_at(transcript, "control")
    if not isinstance(control, reply.Answer):
        why = f"a request without a schema is not answered either: {control.what if control else 'not sent'}"
        yield _PART.undetermined(_KEPT, why, *([control] if control else []))
        return
    seen = {keyword: _look(transcript, f"keyword/{keyword.slug}") for keyword in KEYWORDS}
    states = {keyword: _state(keyword, look, _without(transcript, keyword)) for keyword, look in seen.items()}
    yield from _judge(states, {keyword: look for keyword, look in seen.items() if look is not None}, control)
    yield from _tools_after(reply_at(transcript, "tool-after"))


def _look(transcript: Transcript, step: str) -> reply.Reply | None:
    return latest(reply_at(transcript, f"{step}-again"), reply_at(transcript, step))


def _without(transcript: Transcript, keyword: Keyword) -> reply.Reply | None:
    """Return the control of a keyword; keywords with the same one share it."""
    wanted = keyword.control()
    owner = next((other for other in KEYWORDS if other.control() == wanted), keyword)
    return _look(transcript, f"control/{owner.slug}")


def _state(keyword: Keyword, look: reply.Reply | None, control: reply.Reply | None) -> str:
    """Return what came of a keyword, as one of the five words."""
    if look is None or thought_too_long(look):
        return "not told"
    if isinstance(look, reply.Refusal):
        return "refused"
    if isinstance(look, reply.Failure):
        return "failed"
    sent = schema_of(look)
    nonce = _nonce(keyword, sent)
    wanted = keyword.wanted(nonce)
    if not faults(look.text, wanted):
        fits_too = isinstance(control, reply.Answer) and not faults(control.text, wanted)
        # An empty object keeps many promises; the word shows that this one was followed.
        return "not told" if fits_too or nonce not in look.text else "enforced"
    if look.finish == "length" and not json_fault(look.text) and not keyword.too_long(look.text):
        # A recursive answer need not end, and white space may take all the room: the word shows that it is followed.
        return "enforced" if nonce and nonce in look.text else "not told"
    return "ignored"


def _nonce(keyword: Keyword, sent: Json) -> str:
    """Return the random word that a schema was sent with, empty where the keyword needs none."""
    if keyword.sent("") == keyword.sent("x"):
        return ""
    pattern = dig(sent, "properties", "code", "pattern")
    required = dig(sent, "properties", "code", "required", 0)
    texts = [*words(sent), *(text for text in (pattern, required) if isinstance(text, str))]
    return next((word for text in texts for word in _runs(text)), "")


def _runs(text: str) -> list[str]:
    """Return the runs of ten or more small letters in a text: the random words are such."""
    return [run for run in "".join(sign if "a" <= sign <= "z" else " " for sign in text).split() if len(run) >= 10]


def _judge(states: dict[Keyword, str], seen: dict[Keyword, reply.Reply], control: reply.Answer) -> Iterator[Finding]:
    said = _summary(states)
    figures = {keyword.name: state for keyword, state in states.items()}

    def of(state: str, *, documented: bool) -> list[Keyword]:
        return [key for key, value in states.items() if value == state and key.documented is documented]

    def looks(keywords: Sequence[Keyword]) -> list[reply.Reply]:
        return [seen[keyword] for keyword in keywords if keyword in seen]

    def shown(keywords: Sequence[Keyword]) -> str:
        first = seen.get(keywords[0])
        if isinstance(first, reply.Answer):
            return f"{said}; {keywords[0].name}: {quote(first.text or thought(first), 60)}"
        return f"{said}; {keywords[0].name}: {first.what}" if first is not None else said

    failed = [keyword for keyword, state in states.items() if state == "failed"]
    ignored, refused = of("ignored", documented=True), of("refused", documented=True)
    enforced = [keyword for keyword, state in states.items() if state == "enforced"]
    if failed:
        yield _PART.violated(_KEPT, shown(failed), *looks(failed), control, **figures)
    elif ignored:
        yield _PART.no_effect(_KEPT, shown(ignored), *looks(ignored), control, **figures)
    elif enforced:
        yield _PART.held(_KEPT, said, *looks(enforced), control, **figures)
    elif refused:
        yield _PART.refused(_KEPT, shown(refused), *looks(refused), control, **figures)
    else:
        yield _PART.undetermined(_KEPT, said, *seen.values(), control, **figures)
    if enforced and refused:
        yield _PART.refused(_ENFORCED, shown(refused), *looks(refused))
    elif enforced:
        yield _PART.held(_ENFORCED, said, *looks(enforced))
    dropped = of("ignored", documented=False)
    if dropped:
        yield _PART.no_effect(_OTHERS, shown(dropped), *looks(dropped))
    elif enforced:
        yield _PART.held(_OTHERS, said, *looks(enforced))


def _summary(states: dict[Keyword, str]) -> str:
    """Return the count of each state, with the names of all but the enforced ones."""
    parts = []
    for state in _STATES:
        names = [keyword.name for keyword, value in states.items() if value == state]
        if names:
            parts.append(f"{len(names)} {state}" + ("" if state == "enforced" else f" ({', '.join(names)})"))
    return f"{len(states)} keywords: {', '.join(parts)}"


def _tools_after(look: reply.Reply | None) -> Iterator[Finding]:
    """Judge a forced call; prose and refusals say nothing, since a call before the schemas would protect the server."""
    if isinstance(look, reply.Failure):
        why = f"after these schemas a forced tool call fails, and others may too until the restart: {look.what}"
        yield _PART.violated(_TOOLS, why, look)
    elif isinstance(look, reply.Answer) and look.first.tool_calls:
        yield _PART.held(_TOOLS, f"a forced call of {quote(look.first.tool_calls[0].name or '', 40)}", look)


PROBE = Probe(
    id="schema_keywords",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_KEPT,
            rule="No keyword of the subset that OpenAI documents is taken with 200 and dropped, and none fails.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/structured-outputs#supported-schemas",
        ),
        Check(
            id=_TOOLS,
            rule="A forced tool call works after schemas of every kind.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/55152",
        ),
        Check(
            id=_ENFORCED,
            rule="Every keyword of the subset that OpenAI documents is enforced.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/structured-outputs#supported-schemas",
        ),
        Check(
            id=_OTHERS,
            rule="A keyword outside that subset is enforced or refused, not taken with 200 and dropped.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/12201",
        ),
    ),
    params=SchemaKeywordsParams,
    drive=drive,
    judge=judge,
    risk=Risk.DANGEROUS,
    requests=35,
    prompt_tokens=1520,
    output_tokens=720,
)
