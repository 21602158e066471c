"""``echo`` puts the prompt before the completion.

What it does: completes a prompt greedily without ``echo`` (the control, sent twice so that the second is not a cold
prompt), then with it, whole and streamed. The text must begin with the prompt and go on as the control does.

Why it matters: evaluation harnesses score a text by its echo; a server that takes the field and leaves the prompt out
shifts every score.

How it could be fooled: by a model that repeats the prompt of its own will, which the control would show.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at, sent
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/completions/create"
_FIRST, _THEN, _USAGE = "echo-puts-the-prompt-first", "completion-follows-the-echo", "echo-is-not-billed-as-output"
_MODES = {"echo": Mode.NON_STREAM, "echo-stream": Mode.STREAM}


class CompletionsEchoParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="The harbour was busy that morning, because", description="The text to go on with.")
    max_tokens: int = Field(default=12, ge=2, le=4096, description="Room for the completion.")


async def drive(session: Session, params: CompletionsEchoParams, _: Transcript | None) -> None:
    """Without echo twice, then with it in both modes."""
    body: dict[str, Json] = {"prompt": params.prompt, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    await session.post("cold", "/completions", body)
    await session.post("control", "/completions", body)
    await session.post("echo", "/completions", {**body, "echo": True})
    await session.post("echo-stream", "/completions", {**body, "echo": True, "stream": True})


def judge(transcript: Transcript, params: CompletionsEchoParams) -> Iterator[Finding]:
    """Judge both modes by the control."""
    control = reply_at(transcript, "control")
    for step, mode in _MODES.items():
        part = Part(route=Route.COMPLETIONS, mode=mode)
        answer = reply_at(transcript, step)
        missing = part.unless_answered(_FIRST, answer, control)
        if missing is not None:
            yield missing
            continue
        assert isinstance(answer, reply.Answer)
        yield from _judge(part, answer, control, params)


def _judge(
    part: Part, answer: reply.Answer, control: reply.Reply | None, params: CompletionsEchoParams
) -> Iterator[Finding]:
    prompt, text, seen = params.prompt, answer.text, (answer, *sent(control))
    plain = control.text if isinstance(control, reply.Answer) else None
    if plain is not None and plain.lstrip().startswith(prompt):
        yield part.undetermined(_FIRST, f"the text begins with the prompt without echo too: {quote(plain)}", *seen)
        return
    # Some tokenizers put a space before the first word when they give a text back.
    if not text.lstrip().startswith(prompt.lstrip()):
        if prompt in text:
            yield part.violated(_FIRST, f"the prompt comes behind other text: {quote(text)}", *seen)
        elif plain is not None and _begins_alike(text, plain):
            yield part.no_effect(_FIRST, f"200, and the text is that without echo: {quote(text)}", *seen)
        else:
            yield part.violated(_FIRST, f"the text does not begin with the prompt: {quote(text)}", *seen)
        return
    yield part.held(_FIRST, f"the text begins with {quote(prompt, 40)}", *seen)
    rest = text.lstrip()[len(prompt.lstrip()) :]
    if rest.lstrip().startswith(prompt):
        yield part.violated(_THEN, f"the prompt comes twice: {quote(text)}", *seen)
    elif plain is None:
        yield part.undetermined(_THEN, "the completion without echo to compare with did not come", *seen)
    elif plain.strip() and not rest.strip():
        yield part.violated(_THEN, f"there is nothing behind the prompt; without echo comes {quote(plain)}", *seen)
    elif _begins_alike(rest, plain):
        yield part.held(_THEN, f"then comes the completion: {quote(rest, 40)}", *seen)
    else:
        why = f"behind the prompt comes {quote(rest, 40)}, without echo {quote(plain, 40)}; greedy text may not repeat"
        yield part.undetermined(_THEN, why, *seen)
    made = answer.usage.completion if answer.usage is not None else None
    if made is not None:
        why = f"completion_tokens {made} with max_tokens {params.max_tokens}"
        yield (part.held if made <= params.max_tokens else part.violated)(_USAGE, why, *seen)


def _begins_alike(one: str, other: str) -> bool:
    """Tell whether two greedy texts begin with the same words: a near-tie may part them later."""
    short = min(len(one), len(other), 12)
    return one[:short] == other[:short] and (short > 0 or one == other)


PROBE = Probe(
    id="completions_echo",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_FIRST,
            rule="With echo the text begins with the prompt.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_THEN,
            rule="Behind the echo comes the completion, once.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_USAGE,
            rule="completion_tokens does not count the echo.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/api-reference/completions/object",
        ),
    ),
    params=CompletionsEchoParams,
    drive=drive,
    judge=judge,
    requests=4,
    prompt_tokens=30,
    output_tokens=50,
)
