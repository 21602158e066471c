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

import re
from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Outcome, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._dialects import TAG, Body, Dialect, Kind, allowed, dialects, word_in, word_of
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


class OwnConstraintsParams(Params):
    """What may be chosen in YAML."""

    kind: Kind = Field(description="The kind of constraint.")
    prompt: str = Field(default=PULL_AWAY, description="A prompt whose answer is prose.")
    max_tokens: int = Field(default=64, ge=16, le=4096, description="Room for the answer; 9 to 26 tokens were used.")


async def drive(session: Session, params: OwnConstraintsParams, _: Transcript | None) -> None:
    """Controls, then dialect by dialect until one works; that one sampled and streamed."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: Body = {"messages": messages, "max_tokens": params.max_tokens}
    await session.chat("control", {**base, **_GREEDY})
    await session.chat("control-stream", {**base, **_ARMS["stream"]})

    async def ask(arm: str, dialect: Dialect, more: Body) -> reply.Reply | None:
        for step in (f"{arm}/{dialect.name}", f"{arm}/{dialect.name}/again"):
            wanted = dialect.fields(word_of(session.nonce(10)))
            answer = reply.chat(await session.chat(step, {**base, **more, **wanted}))
            if not thought_too_long(answer):
                break
            base["max_tokens"] = max(params.max_tokens, ROOM_TO_THINK)
        return _look(session.transcript, arm, dialect)

    for dialect in dialects(params.kind, session.fingerprint):
        if _fits(await ask("greedy", dialect, _GREEDY), params.kind):
            for arm, more in _ARMS.items():
                await ask(arm, dialect, more)
            return


def _look(transcript: Transcript, arm: str, dialect: Dialect) -> reply.Reply | None:
    return latest(reply_at(transcript, f"{arm}/{dialect.name}/again"), reply_at(transcript, f"{arm}/{dialect.name}"))


def _fits(answer: reply.Reply | None, kind: str) -> bool:
    if not isinstance(answer, reply.Answer):
        return False
    return _matches(answer.text, kind, word_in(answer.exchange))


def _matches(text: str, kind: str, word: str) -> bool:
    return bool(word) and re.fullmatch(allowed(kind, word), text.strip()) is not None


def judge(transcript: Transcript, params: OwnConstraintsParams) -> Iterator[Finding]:
    """Judge the dialects together, and the one that works in its other arms."""
    control, streamed = reply_at(transcript, "control"), reply_at(transcript, "control-stream")
    seen: list[tuple[Dialect, Finding]] = []
    for dialect in dialects(params.kind, transcript.fingerprint):
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
    part: Part, check: str, look: reply.Reply | None, control: reply.Reply | None, dialect: Dialect, kind: str
) -> Finding:
    missing = part.unless_answered(check, look, control)
    if missing is not None:
        return missing
    assert isinstance(look, reply.Answer)
    text, word = look.text, word_in(look.exchange)
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
    head = f'{TAG[0]}{{"value":"{word}"}}{TAG[1]}' if kind == "structural_tag" else f"{word}-"
    return head.startswith(said) or (said.startswith(head) and len(said) < len(head) + 6)


def _together(seen: list[tuple[Dialect, Finding]]) -> Finding:
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
    prompt_tokens=220,
    output_tokens=70,
)
