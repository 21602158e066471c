"""Every chunk of a stream can carry the usage so far.

What it does: streams an answer with ``include_usage`` (the control) and again with ``continuous_usage_stats`` as well,
and reads the running totals on the events that hold text: they must be there, never fall, and end at the total.

Why it matters: clients that cut an answer short, or show its cost while it is written, have no other way to know.

How it could be fooled: by a server that always sends running totals (then they are there, which is what was asked).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._streams import bodies, says
from servecheck.read import reply

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/"
_PART = Part(mode=Mode.STREAM)
_COMES, _RISES, _ENDS = "usage-comes-on-every-text-event", "running-usage-never-falls", "running-usage-ends-at-total"
_UNTOLD = 4  # an end token, or a character that was never finished, may come after the last text


class StreamingContinuousUsageParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Tell me a story about four animals and where each lives.", description="The user's message."
    )
    max_tokens: int = Field(default=24, ge=8, le=4096, description="Room for each answer.")


async def drive(session: Session, params: StreamingContinuousUsageParams, _: Transcript | None) -> None:
    """Stream with the total only, then with running totals."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    body: dict[str, Json] = {
        "messages": messages,
        "max_tokens": params.max_tokens,
        "temperature": 0,
        "top_p": 1,
        "stream": True,
    }
    await session.chat("control", {**body, "stream_options": {"include_usage": True}})
    await session.chat(
        "continuous", {**body, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    )


def judge(transcript: Transcript, _: StreamingContinuousUsageParams) -> Iterator[Finding]:
    """Judge the running totals."""
    exchange, before = transcript.get("continuous"), transcript.get("control")
    answer = reply.chat(exchange) if exchange is not None else None
    control = reply.chat(before) if before is not None else None
    missing = _PART.unless_answered(_COMES, answer, control)
    if missing is not None:
        yield missing
        return
    assert exchange is not None
    assert isinstance(answer, reply.Answer)
    texts = [body.json for body in bodies(exchange) if says(body.json)]
    usages = [reply.usage_of(body) for body in texts]
    given = [usage for usage in usages if usage is not None]
    if len(texts) < 3:
        yield _PART.undetermined(_COMES, f"only {len(texts)} events hold text; nothing to follow", exchange)
        return
    if not given:
        seen = [exchange, before] if before is not None else [exchange]
        yield _PART.no_effect(_COMES, f"accepted, and none of {len(texts)} text events holds usage", *seen)
        return
    if len(given) < len(texts):
        why = f"{len(given)} of {len(texts)} text events hold usage"
        yield _PART.violated(_COMES, why, exchange)
    else:
        yield _PART.held(_COMES, f"all {len(texts)} text events hold usage", exchange)
    yield from _totals(exchange, given, answer.usage)


def _totals(exchange: Exchange, given: list[reply.Usage], final: reply.Usage | None) -> Iterator[Finding]:
    counts = [usage.completion for usage in given]
    prompts = list(dict.fromkeys(usage.prompt for usage in given))
    shown = ", ".join(str(count) for count in counts[:6]) + (" …" if len(counts) > 6 else "")
    numbers = [count for count in counts if count is not None]
    if len(numbers) < len(counts):
        yield _PART.violated(_RISES, f"completion_tokens is missing in running usage: {shown}", exchange)
        return
    fall = next((pair for pair in itertools.pairwise(numbers) if pair[1] < pair[0]), None)
    if fall is not None:
        yield _PART.violated(_RISES, f"completion_tokens falls from {fall[0]} to {fall[1]}: {shown}", exchange)
    elif len(prompts) > 1:
        yield _PART.violated(_RISES, f"prompt_tokens changes on the way: {prompts[0]}, {prompts[1]}", exchange)
    else:
        yield _PART.held(_RISES, f"completion_tokens {shown}", exchange)
    last = numbers[-1]
    total = final.completion if final is not None else None
    said = f"the last running count is {last}, the total {total}"
    if total is None:
        yield _PART.undetermined(_ENDS, f"{said}: not reported", exchange)
    elif 0 <= total - last <= _UNTOLD and last >= numbers[0] and (last > numbers[0] or len(numbers) == 1):
        yield _PART.held(_ENDS, said, exchange)
    else:
        yield _PART.violated(_ENDS, f"{said} ({shown})", exchange)


PROBE = Probe(
    id="streaming_continuous_usage",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_COMES,
            rule="With continuous_usage_stats every event that holds text holds usage.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_RISES,
            rule="Running completion tokens never fall, and prompt tokens stay the same.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_ENDS,
            rule="Running completion tokens grow to the total that the last usage gives.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=StreamingContinuousUsageParams,
    drive=drive,
    judge=judge,
    requests=2,
    prompt_tokens=80,
    output_tokens=50,
)
