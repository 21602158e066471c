"""`response_format: json_object` makes the answer a JSON object, whatever the prompt wants.

What it does: sends a prompt that asks for prose, greedy and sampled (the controls), then with JSON mode: greedy,
sampled, streamed, and with nothing but the mode. The answer must open as an object where the control opens as prose. It
need not end: one that `max_tokens` cut while it still was the beginning of an object shows the mode as well. Last a
prompt that gives the object away, whose answer must end and parse.

Why it matters: JSON mode is the oldest promise of structured output and what most clients send; a server that takes
the field and drops it fails in the first parser.

How it could be fooled: by a gateway that asks the model for JSON in its own words; a model that obeys looks like a
mode, though not one that holds on every prompt.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._schemas import (
    PULL_AWAY,
    ROOM_TO_THINK,
    blanks_check,
    judge_blanks,
    latest,
    looks_like_json,
    thought,
    thought_too_long,
)
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.partial import json_fault
from servecheck.read.text import parse, quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/structured-outputs#json-mode"
_GREEDY: dict[str, Json] = {"temperature": 0, "top_p": 1}
_SAMPLED: dict[str, Json] = {"temperature": 1, "top_p": 1}
_ARMS: dict[str, dict[str, Json]] = {
    "greedy": _GREEDY,
    "sampled": _SAMPLED,
    "bare": {},
    "stream": {**_GREEDY, "stream": True},
    "simple": _GREEDY,
}
_CHECKS = {
    "greedy": "json-mode-gives-an-object",
    "sampled": "json-mode-holds-when-sampled",
    "bare": "json-mode-alone-is-enough",
    "stream": "json-mode-shapes-a-stream",
    "simple": "json-mode-answer-parses",
}


class JsonObjectParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=PULL_AWAY, description="A prompt that pulls away from JSON.")
    simple_prompt: str = Field(
        default='Answer with exactly this JSON and nothing else: {"answer": "yes"}',
        description="A prompt that gives a short object away, so that the answer ends; 7 tokens were used.",
    )
    max_tokens: int = Field(default=96, ge=16, le=4096, description="Room for the answer; it need not end.")


async def drive(session: Session, params: JsonObjectParams, _: Transcript | None) -> None:
    """Controls, then every arm; one whose thought took all the room is asked for once more."""

    def asked(prompt: str, room: int) -> dict[str, Json]:
        return {"messages": [{"role": "user", "content": prompt}], "max_tokens": room}

    await session.chat("control", {**asked(params.prompt, params.max_tokens), **_GREEDY})
    await session.chat("control-sampled", {**asked(params.prompt, params.max_tokens), **_SAMPLED})
    room = params.max_tokens
    for arm, more in _ARMS.items():
        prompt = params.simple_prompt if arm == "simple" else params.prompt
        for step in (arm, f"{arm}-again"):
            mode: dict[str, Json] = {"response_format": {"type": "json_object"}}
            body = {**asked(prompt, room), **more, **mode}
            if not thought_too_long(reply.chat(await session.chat(step, body))):
                break
            room = max(room, ROOM_TO_THINK)


def judge(transcript: Transcript, _: JsonObjectParams) -> Iterator[Finding]:
    """Judge every arm's last look against the control of its temperature, then whether one is lost in white space."""
    looks = []
    for arm, more in _ARMS.items():
        look = latest(reply_at(transcript, f"{arm}-again"), reply_at(transcript, arm))
        control = reply_at(transcript, "control" if more.get("temperature") == 0 else "control-sampled")
        part = Part(mode=Mode.STREAM if "stream" in more else Mode.NON_STREAM)
        looks.append(look)
        yield _judge(part, _CHECKS[arm], look, control, simple=arm == "simple")
    yield from judge_blanks("in-json-mode", Part(), looks)


def _judge(part: Part, check: str, look: reply.Reply | None, control: reply.Reply | None, *, simple: bool) -> Finding:
    missing = part.unless_answered(check, look, control)
    if missing is not None:
        return missing
    assert isinstance(look, reply.Answer)
    text, seen = look.text, quote(look.text)
    without = control.text if isinstance(control, reply.Answer) else None
    both = (look, control or look)
    if not simple and without is not None and looks_like_json(without):
        return part.undetermined(check, f"the control opens as JSON too: {quote(without)}", *both)
    fault = _fault(text)
    if not fault and look.finish == "length" and _fault(text, whole=True):
        if simple or not text.strip():
            why = "max_tokens went into the reasoning" if thought_too_long(look) else f"cut by max_tokens: {seen}"
            return part.undetermined(check, why, look)
        return part.held(check, f"opens as an object and was cut by max_tokens: {seen}", *both)
    fault = fault or _fault(text, whole=True)
    if not fault:
        return part.held(check, f"an object: {seen}", *both)
    if not text.strip() and not _fault(thought(look), whole=True):
        why = f"content is empty and the object is in the reasoning: {quote(thought(look))}"
        return part.violated(check, why, look)
    if looks_like_json(text) or ("{" in text and (without is None or "{" not in without)):
        return part.violated(check, f"{fault}, finish_reason {look.finish!r}: {seen}", *both)
    if without is None:
        return part.undetermined(check, f"no JSON, and no control to compare it with: {seen}", look)
    if not text.strip() and without.strip():
        return part.violated(check, f"JSON mode made the answer empty, finish_reason {look.finish!r}", *both)
    if not (text + thought(look) + without).strip():
        return part.undetermined(check, "empty with JSON mode and without it, so nothing can be seen", look)
    return part.no_effect(check, f"200, and no JSON: {seen}", *both)


def _fault(text: str, *, whole: bool = False) -> str:
    """Return why a text is no JSON object, or no beginning of one."""
    if text.strip()[:1] not in ("{", ""):
        return "does not open as an object"
    if not whole:
        return json_fault(text)
    try:
        value = parse(text)
    except ValueError as error:
        return f"not JSON: {error}"
    return "" if isinstance(value, dict) else "not an object"


_RULES = {
    "greedy": "A greedy answer in JSON mode opens as a JSON object, and parses as one where it was not cut.",
    "sampled": "An answer in JSON mode at temperature 1 opens as a JSON object, and parses where it was not cut.",
    "bare": "JSON mode works in a request that names no sampling parameter.",
    "stream": "The pieces of an answer streamed in JSON mode join to a JSON object or the beginning of one.",
    "simple": "An answer in JSON mode that ends is a JSON object and nothing else.",
}

PROBE = Probe(
    id="json_object",
    doc=__doc__ or "",
    checks=(
        *(Check(id=_CHECKS[arm], rule=rule, level=Level.MUST, source=_SOURCE) for arm, rule in _RULES.items()),
        blanks_check("in-json-mode"),
    ),
    params=JsonObjectParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=320,
    output_tokens=140,
)
