"""Constraints that engines have beside JSON Schema: a regular expression, choices, a grammar, a structural tag.

What it does: sends a prompt that asks for prose, then the same with a constraint that only a text with a random word
fits. There is no common field for these, so the dialect of the engine that the fingerprint names is tried first, then
the others: `structured_outputs` of vLLM, `regex` and `ebnf` of SGLang, `grammar` of llama.cpp, `response_format` for
structural tags. With the first dialect that works the answer is asked for sampled and streamed too. The control is the
request without the constraint; an answer whose thought took all the room is asked for once more.

Why it matters: applications that route, classify or fill in codes rely on these; the fields differ from engine to
engine, and a field that an engine does not know is dropped with a 200.

How it could be fooled: by nothing that a model says, for the word stands in the constraint only. A constraint that has
a dialect which is not tried here looks ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Fingerprint, Json, Level, Mode, Outcome, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._schemas import PULL_AWAY, ROOM_TO_THINK, latest, thought, thought_too_long
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/features/structured_outputs/"
_GREEDY_CHECK = "constraint-shapes-the-answer"
_LATER = {"sampled": "constraint-shapes-a-sampled-answer", "stream": "constraint-shapes-a-streamed-answer"}
_GREEDY: dict[str, Json] = {"temperature": 0, "top_p": 1}
_ARMS: dict[str, dict[str, Json]] = {
    "sampled": {"temperature": 1, "top_p": 1},
    "stream": {**_GREEDY, "stream": True},
}
_WORD = re.compile(rb"w7[a-z]{10}")
_OPEN, _CLOSE = "<code>", "</code>"

Kind = Literal["regex", "choice", "grammar", "structural_tag"]
Body = dict[str, Json]


class OwnConstraintsParams(Params):
    """What may be chosen in YAML."""

    kind: Kind = Field(description="The kind of constraint.")
    prompt: str = Field(default=PULL_AWAY, description="A prompt whose answer is prose.")
    max_tokens: int = Field(default=64, ge=16, le=4096, description="Room for the answer; 9 to 26 tokens were used.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    """One way to write a constraint: what it is called, the engines whose own way it is, and its fields."""

    name: str
    engines: tuple[str, ...]
    fields: Callable[[str], Body]


def _grammar(word: str) -> str:
    return f'root ::= "{word}-" way\nway ::= "north" | "south"\n'


def _tag(word: str) -> Body:
    schema: Json = {
        "type": "object",
        "properties": {"value": {"type": "string", "enum": [word]}},
        "required": ["value"],
        "additionalProperties": False,
    }
    content: Json = {"type": "json_schema", "json_schema": schema}
    tag: Json = {"type": "tag", "begin": _OPEN, "content": content, "end": _CLOSE}
    return {"type": "structural_tag", "format": tag}


def _regex(word: str) -> str:
    return f"{word}-[0-9]{{3}}"


def _ways(word: str) -> Json:
    return [f"{word}-north", f"{word}-south"]


_VLLM, _SGLANG, _LLAMA = ("vllm",), ("sglang", "sgl-jax"), ("llama.cpp",)
_DIALECTS: dict[str, tuple[_Dialect, ...]] = {
    "regex": (
        _Dialect(
            name="structured_outputs.regex",
            engines=_VLLM,
            fields=lambda w: {"structured_outputs": {"regex": _regex(w)}},
        ),
        _Dialect(name="regex", engines=_SGLANG, fields=lambda w: {"regex": _regex(w)}),
    ),
    "choice": (
        _Dialect(
            name="structured_outputs.choice",
            engines=_VLLM,
            fields=lambda w: {"structured_outputs": {"choice": _ways(w)}},
        ),
        _Dialect(name="regex of alternatives", engines=_SGLANG, fields=lambda w: {"regex": f"({w}-north|{w}-south)"}),
        _Dialect(
            name="grammar of alternatives",
            engines=_LLAMA,
            fields=lambda w: {"grammar": f'root ::= "{w}-north" | "{w}-south"\n'},
        ),
    ),
    "grammar": (
        _Dialect(
            name="structured_outputs.grammar",
            engines=_VLLM,
            fields=lambda w: {"structured_outputs": {"grammar": _grammar(w)}},
        ),
        _Dialect(name="ebnf", engines=_SGLANG, fields=lambda w: {"ebnf": _grammar(w)}),
        _Dialect(name="grammar", engines=_LLAMA, fields=lambda w: {"grammar": _grammar(w)}),
    ),
    "structural_tag": (
        _Dialect(
            name="response_format structural_tag",
            engines=(*_VLLM, *_SGLANG),
            fields=lambda w: {"response_format": _tag(w)},
        ),
        _Dialect(
            name="structured_outputs.structural_tag",
            engines=(),
            fields=lambda w: {"structured_outputs": {"structural_tag": json.dumps(_tag(w))}},
        ),
    ),
}


def _dialects(kind: str, fingerprint: Fingerprint) -> list[_Dialect]:
    """Return the dialects of a kind, the engine's own first."""
    engine = fingerprint.value("engine")
    return sorted(_DIALECTS[kind], key=lambda dialect: engine not in dialect.engines)


async def drive(session: Session, params: OwnConstraintsParams, _: Transcript | None) -> None:
    """Controls, then dialect by dialect until one works; that one sampled and streamed."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: Body = {"messages": messages, "max_tokens": params.max_tokens}
    await session.chat("control", {**base, **_GREEDY})
    await session.chat("control-stream", {**base, **_ARMS["stream"]})

    async def ask(arm: str, dialect: _Dialect, more: Body) -> reply.Reply | None:
        for step in (f"{arm}/{dialect.name}", f"{arm}/{dialect.name}/again"):
            wanted = dialect.fields(f"w7{session.nonce(10)}")
            answer = reply.chat(await session.chat(step, {**base, **more, **wanted}))
            if not thought_too_long(answer):
                break
            base["max_tokens"] = max(params.max_tokens, ROOM_TO_THINK)
        return _look(session.transcript, arm, dialect)

    for dialect in _dialects(params.kind, session.fingerprint):
        if _fits(await ask("greedy", dialect, _GREEDY), params.kind):
            for arm, more in _ARMS.items():
                await ask(arm, dialect, more)
            return


def _look(transcript: Transcript, arm: str, dialect: _Dialect) -> reply.Reply | None:
    return latest(reply_at(transcript, f"{arm}/{dialect.name}/again"), reply_at(transcript, f"{arm}/{dialect.name}"))


def _word(exchange: Exchange) -> str:
    found = _WORD.search(exchange.request_body)
    return found.group().decode() if found else ""


def _language(kind: str, word: str) -> str:
    """Return what the constraint allows, as a pattern."""
    if kind == "regex":
        return _regex(word)
    if kind == "structural_tag":
        return rf'{_OPEN}\s*\{{\s*"value"\s*:\s*"{word}"\s*\}}\s*{_CLOSE}'
    return f"{word}-(?:north|south)"


def _fits(answer: reply.Reply | None, kind: str) -> bool:
    if not isinstance(answer, reply.Answer):
        return False
    return _matches(answer.text, kind, _word(answer.exchange))


def _matches(text: str, kind: str, word: str) -> bool:
    return bool(word) and re.fullmatch(_language(kind, word), text.strip()) is not None


def judge(transcript: Transcript, params: OwnConstraintsParams) -> Iterator[Finding]:
    """Judge the dialects together, and the one that works in its other arms."""
    control, streamed = reply_at(transcript, "control"), reply_at(transcript, "control-stream")
    seen: list[tuple[_Dialect, Finding]] = []
    for dialect in _dialects(params.kind, transcript.fingerprint):
        look = _look(transcript, "greedy", dialect)
        if look is not None:
            seen.append((dialect, _judge(Part(), _GREEDY_CHECK, look, control, dialect, params.kind)))
    yield _together(seen)
    working = next((dialect for dialect, finding in seen if finding.outcome is Outcome.HELD), None)
    if working is None:
        return
    for arm, check in _LATER.items():
        part, without = (Part(mode=Mode.STREAM), streamed) if arm == "stream" else (Part(), control)
        yield _judge(part, check, _look(transcript, arm, working), without, working, params.kind)


def _judge(
    part: Part, check: str, look: reply.Reply | None, control: reply.Reply | None, dialect: _Dialect, kind: str
) -> Finding:
    missing = part.unless_answered(check, look, control)
    if missing is not None:
        return missing
    assert isinstance(look, reply.Answer)
    text, word = look.text, _word(look.exchange)
    shown = f"{dialect.name}: {quote(text)}"
    if _matches(text, kind, word):
        return part.held(check, f"via {shown}", look, control or look)
    if thought_too_long(look):
        return part.undetermined(check, f"{dialect.name}: max_tokens went into the reasoning", look)
    if _matches(thought(look), kind, word):
        why = f"{dialect.name}: content is {quote(text)} and the answer is in the reasoning: {quote(thought(look))}"
        return part.violated(check, why, look)
    if look.finish == "length" and _may_fit(text, kind, word):
        return part.undetermined(check, f"cut by max_tokens while it still fitted, {shown}", look)
    if word and word in text:
        return part.violated(
            check, f"the constraint's word {word!r} is there, but the answer does not fit: {shown}", look
        )
    if not isinstance(control, reply.Answer):
        return part.undetermined(
            check, f"no constraint in the answer, and no control to compare it with: {shown}", look
        )
    if not text.strip():
        if control.text.strip():
            why = f"{dialect.name}: the constraint made the answer empty, finish_reason {look.finish!r}"
            return part.violated(check, why, look, control)
        if not thought(look).strip():
            return part.undetermined(check, "empty with the constraint and without it", look, control)
    return part.no_effect(check, f"{dialect.name} is taken with 200 and ignored: {quote(text)}", look, control)


def _may_fit(text: str, kind: str, word: str) -> bool:
    """Tell whether a text that was cut is the beginning of one that fits."""
    said = re.sub(r"\s", "", text)
    head = f'{_OPEN}{{"value":"{word}"}}{_CLOSE}' if kind == "structural_tag" else f"{word}-"
    return head.startswith(said) or (said.startswith(head) and len(said) < len(head) + 6)


def _together(seen: list[tuple[_Dialect, Finding]]) -> Finding:
    """Return what all dialects say: one that works is enough; a fault is worse than a no, a no clearer than silence."""
    if not seen:
        return Part().undetermined(_GREEDY_CHECK, "the request was not sent")
    order = (Outcome.HELD, Outcome.VIOLATED, Outcome.REFUSED, Outcome.UNDETERMINED, Outcome.NO_EFFECT)
    dialect, best = min(seen, key=lambda pair: order.index(pair[1].outcome))
    others = [f"{other.name} {_SAID[finding.outcome]}" for other, finding in seen if finding is not best]
    why = best.why if dialect.name in best.why else f"{dialect.name} {best.why}"
    evidence = dict.fromkeys(each for finding in (best, *(found for _, found in seen)) for each in finding.evidence)
    return Finding(
        check=_GREEDY_CHECK,
        outcome=best.outcome,
        why="; ".join([why, *others]),
        evidence=tuple(evidence),
        measured={"dialect": dialect.name} if best.outcome is Outcome.HELD else {},
    )


_SAID = {
    Outcome.HELD: "works",
    Outcome.VIOLATED: "fails",
    Outcome.REFUSED: "is refused",
    Outcome.UNDETERMINED: "could not be judged",
    Outcome.NO_EFFECT: "is ignored",
}


PROBE = Probe(
    id="own_constraints",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_GREEDY_CHECK,
            rule="A greedy answer fits the regular expression, choices, grammar or tag that its request carries.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_LATER["sampled"],
            rule="An answer at temperature 1 fits the constraint that its request carries.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_LATER["stream"],
            rule="The pieces of a streamed answer join to a text that fits the constraint of its request.",
            level=Level.MUST,
            source="https://docs.sglang.io/advanced_features/structured_outputs.html",
        ),
    ),
    params=OwnConstraintsParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=160,
    output_tokens=220,
)
