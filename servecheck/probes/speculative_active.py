"""Speculative decoding drafts tokens, some are accepted, and no word is lost or added by it.

What it does: reads the draft counters (of llama.cpp, the timings of replies), asks twice, whole and streamed, for a
text that repeats itself, which any drafter can guess, with a fixed number of tokens, and reads the counters again.

Why it matters: a drafter that is configured and never right makes every token slower. Accepted tokens that are counted
past a limit, or dropped from a stream, are the faults of an accepted block.

How it could be fooled: by other users' traffic, which moves the counters too. Greedy text need not be that of a server
without speculation, so only this server's own answers are compared. No log probabilities are asked for: with
speculation they can end an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, NotApplicable, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._greedy import first_difference
from servecheck.probes._steps import answer_at, reply_at
from servecheck.read import reply
from servecheck.read.metrics import Metrics, metrics
from servecheck.read.text import dig, number, quote, string

__all__ = ["PROBE"]

_PART = Part(route=Route.NONE, mode=Mode.NONE)
_WORDS = Part(mode=Mode.STREAM)
_DRAFTED, _ACCEPTED = "drafts-are-proposed", "some-drafts-are-accepted"
_LIMIT, _LOST = "speculation-keeps-the-token-limit", "speculation-streams-every-word"
_VLLM = "https://docs.vllm.ai/en/latest/features/speculative_decoding/"
_METRICS = "https://docs.vllm.ai/en/latest/usage/metrics/"
_PROPOSED = ("vllm:spec_decode_num_draft_tokens_total", "ray_vllm_spec_decode_num_draft_tokens_total")
_RIGHT = ("vllm:spec_decode_num_accepted_tokens_total", "ray_vllm_spec_decode_num_accepted_tokens_total")
_VERIFIED = ("sglang:spec_verify_calls_total", "sglang_spec_verify_calls_total")
_LENGTH = ("sglang:spec_accept_length", "sglang_spec_accept_length")
_OFF = frozenset({"", "none"})
_WAITS = (0.3, 1.0, 3.0)


class SpeculativeActiveParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Repeat this line word for word, five times, and say nothing else: "
        "one two three four five six seven eight nine ten. "
        "one two three four five six seven eight nine ten. one two three four five six seven eight nine ten.",
        description="A message whose answer repeats itself.",
    )
    max_tokens: int = Field(default=64, ge=16, le=1024, description="The tokens of each answer.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drafts:
    """What was drafted between two looks; ``None`` is not told. ``where`` says what told it."""

    proposed: float | None
    accepted: float | None
    where: str


async def drive(session: Session, params: SpeculativeActiveParams, _: Transcript | None) -> None:
    """Read, repeat, read until the counters have moved."""
    if session.fingerprint.value("engine") in ("sglang", "sgl-jax"):
        await session.get_server("settings", "/server_info")
    await session.metrics("before")
    messages: Json = [{"role": "user", "content": params.prompt}]
    body: dict[str, Json] = {
        "messages": messages,
        "max_tokens": params.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    await session.chat("whole-1", body)
    if _none(session.transcript) is not None or _hidden(session.transcript):
        return
    await session.chat("stream-1", {**body, "stream": True, "stream_options": {"include_usage": True}})
    await session.chat("whole-2", body)
    await session.chat("stream-2", {**body, "stream": True, "stream_options": {"include_usage": True}})
    for place, seconds in enumerate(_WAITS, start=1):
        await session.wait(seconds)
        await session.metrics(f"after-{place}")
        found = _drafts(session.transcript)
        if found is None or found.proposed:
            return


def _series(transcript: Transcript) -> tuple[Metrics, Metrics] | None:
    before, after = transcript.get("before"), transcript.steps("after-")
    return (metrics(before), metrics(after[-1])) if before is not None and after else None


def _timed(transcript: Transcript) -> tuple[float, float] | None:
    """Return drafted and accepted tokens as llama.cpp counts them in its replies, ``None`` where none does."""
    counts = []
    for step in ("whole-1", "whole-2"):
        answer = answer_at(transcript, step)
        drafted = number(dig(answer.body, "timings", "draft_n")) if answer is not None else None
        if answer is not None and drafted is not None:
            counts.append((drafted, number(dig(answer.body, "timings", "draft_n_accepted")) or 0))
    return (sum(one for one, _ in counts), sum(other for _, other in counts)) if counts else None


def _algorithm(transcript: Transcript) -> str | None:
    """Return the algorithm that SGLang's settings name, empty for none; ``None`` where the settings do not show."""
    exchange = transcript.get("settings")
    body = reply.json_body(exchange) if exchange is not None else None
    if not isinstance(body, dict) or "speculative_algorithm" not in body:
        return None
    return string(body["speculative_algorithm"]).lower()


def _drafts(transcript: Transcript) -> _Drafts | None:
    timed = _timed(transcript)
    if timed is not None:
        return _Drafts(proposed=timed[0], accepted=timed[1], where="timings of the replies")
    reads = _series(transcript)
    if reads is None:
        return None
    before, after = reads

    def grown(names: Sequence[str]) -> float | None:
        last = after.total(*names)
        return None if last is None else last - (before.total(*names) or 0.0)

    proposed = grown(_PROPOSED)
    if proposed is not None:
        return _Drafts(proposed=proposed, accepted=grown(_RIGHT), where="counters of the metrics")
    if after.total(*_VERIFIED) is not None or after.total(*_LENGTH) is not None:
        verified = grown(_VERIFIED)
        accepted = max(0.0, (after.total(*_LENGTH) or 0.0) - 1)  # a verification gives one token of its own
        return _Drafts(
            proposed=(1.0 if accepted else 0.0) if verified is None else verified,
            accepted=accepted,
            where="verifications and accepted length in the metrics",
        )
    return None


def _none(transcript: Transcript) -> NotApplicable | None:
    """Return that nothing is drafted here, where the server shows what it would show if there were."""
    algorithm = _algorithm(transcript)
    if algorithm is not None:
        if algorithm in _OFF:
            return NotApplicable(why="speculative_algorithm is not set in GET /server_info: nothing is drafted")
        return None
    if _timed(transcript) is not None:
        return None
    answer = answer_at(transcript, "whole-1")
    if answer is not None and number(dig(answer.body, "timings", "predicted_n")) is not None:
        return NotApplicable(why="the timings of a reply count no drafts: nothing is drafted here")
    before = transcript.get("before")
    read = metrics(before) if before is not None else None
    if read is None or read.problem:
        return None
    if any(name.startswith(("vllm:spec_decode", "ray_vllm_spec_decode")) for name in read.names):
        return None
    if read.total(*_VERIFIED) or read.total(*_LENGTH):
        return None
    return NotApplicable(why="no draft counters in the metrics, and no drafts in a reply: nothing is drafted here")


def _hidden(transcript: Transcript) -> str:
    """Return why drafts cannot be seen here, an empty string where they can."""
    before = transcript.get("before")
    if before is None or _timed(transcript) is not None:
        return ""
    return metrics(before).problem


def judge(transcript: Transcript, params: SpeculativeActiveParams) -> Iterator[Finding | NotApplicable]:
    """Judge the counters, then the texts."""
    before = transcript.get("before")
    if before is None:
        yield _PART.undetermined(_DRAFTED, "nothing was read")
        return
    absent = _none(transcript)
    if absent is not None:
        yield absent
        return
    missing = _PART.unless_answered(_DRAFTED, reply_at(transcript, "whole-1"))
    if missing is not None:
        yield missing
        return
    hidden = _hidden(transcript)
    if hidden:
        why = f"no reply tells of drafts, and the metrics do not come: {hidden}"
        yield _PART.undetermined(_DRAFTED, why, before)
        return
    yield from _counted(transcript, before)
    yield from _limits(transcript, params)
    yield _words(transcript)


def _counted(transcript: Transcript, before: Exchange) -> Iterator[Finding]:
    seen = [before, *transcript.steps("after-"), *transcript.steps("whole-")]
    found = _drafts(transcript)
    if found is None:
        yield _PART.undetermined(_DRAFTED, "no draft counters in the metrics after the answers", *seen)
        return
    if not found.proposed or found.proposed < 0:
        why = f"{found.where}: no draft in four answers that repeat themselves, although speculation is configured"
        yield _PART.no_effect(_DRAFTED, why, *seen)
        return
    yield _PART.held(_DRAFTED, f"{found.where}: {found.proposed:g}", *seen, proposed=found.proposed)
    if found.accepted is None:
        yield _PART.undetermined(_ACCEPTED, f"{found.where} do not say how many were accepted", *seen)
    elif found.accepted <= 0:
        why = f"none of {found.proposed:g} drafted tokens was accepted, on a text that repeats itself"
        yield _PART.violated(_ACCEPTED, why, *seen)
    elif found.accepted > found.proposed and found.where != "verifications and accepted length in the metrics":
        yield _PART.violated(_ACCEPTED, f"{found.accepted:g} accepted of {found.proposed:g} drafted", *seen)
    else:
        yield _PART.held(_ACCEPTED, f"{found.accepted:g} accepted", *seen, accepted=found.accepted)


def _limits(transcript: Transcript, params: SpeculativeActiveParams) -> Iterator[Finding]:
    for step in ("whole-1", "stream-1", "whole-2", "stream-2"):
        found = reply_at(transcript, step)
        missing = _PART.unless_answered(_LIMIT, found, what=step.partition("-")[0])
        if missing is not None:
            yield missing
            continue
        usage = found.usage if isinstance(found, reply.Answer) else None
        if not isinstance(found, reply.Answer) or usage is None or usage.completion is None:
            continue
        said = f"max_tokens {params.max_tokens}: {usage.completion} tokens, {found.finish}"
        over = usage.completion > params.max_tokens
        short = usage.completion < params.max_tokens and found.finish == "length"
        yield (_PART.violated if over or short else _PART.held)(_LIMIT, said, found)


def _words(transcript: Transcript) -> Finding:
    """Judge streams by whole answers: what both modes repeat among themselves is no noise."""
    answers = {step: answer_at(transcript, step) for step in ("whole-1", "whole-2", "stream-1", "stream-2")}
    seen = [answer for answer in answers.values() if answer is not None]
    if len(seen) < len(answers):
        return _WORDS.undetermined(_LOST, "not every answer came", *seen)
    said = {step: _text(answer) for step, answer in answers.items() if answer is not None}
    wholes, streams = {said["whole-1"], said["whole-2"]}, {said["stream-1"], said["stream-2"]}
    if not all(said.values()):
        return _WORDS.undetermined(_LOST, "an answer has no text", *seen)
    if wholes & streams and len(streams) == 1:
        return _WORDS.held(_LOST, f"streams say what whole answers say: {quote(said['stream-1'], 50)}", *seen)
    one, other = said["whole-1"], said["stream-1"]
    if other in wholes:
        other = said["stream-2"]
    at = first_difference(one, other)
    shown = f"whole {quote(one[max(0, at - 8) : at + 24], 40)}, streamed {quote(other[max(0, at - 8) : at + 24], 40)}"
    if len(wholes) == 1 and (len(streams) == 1 or _shorter(one, other)):
        return _WORDS.violated(_LOST, f"they part at character {at}: {shown}", *seen)
    return _WORDS.undetermined(_LOST, f"greedy text does not repeat here, so no word can be missed: {shown}", *seen)


def _text(answer: reply.Answer) -> str:
    # A cut may fall inside a character, which engines hold back or show as U+FFFD.
    return (answer.first.reasoning + answer.text).rstrip("\ufffd")


def _shorter(whole: str, streamed: str) -> bool:
    """Tell whether a text is the whole with some of its words left out."""
    rest = iter(whole)
    return len(streamed) < len(whole) and all(character in rest for character in streamed)


PROBE = Probe(
    id="speculative_active",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_DRAFTED,
            rule="Where speculation is configured, tokens are drafted.",
            level=Level.MUST,
            source=_METRICS,
        ),
        Check(
            id=_ACCEPTED,
            rule="Of the tokens drafted for a text that repeats itself some are accepted, and no more than all.",
            level=Level.SHOULD,
            source=_METRICS,
        ),
        Check(
            id=_LIMIT,
            rule="Answers have as many tokens as max_tokens says, also where a block of drafts crosses it.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/create",
        ),
        Check(
            id=_LOST,
            rule="A stream says every word that the whole answer says.",
            level=Level.MUST,
            source=_VLLM,
        ),
    ),
    params=SpeculativeActiveParams,
    drive=drive,
    judge=judge,
    requests=6,
    prompt_tokens=630,
    output_tokens=260,
)
