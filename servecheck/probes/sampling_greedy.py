"""How repeatable the answer at temperature 0 is.

What it does: sends one greedy request five times, one after the other, and six times at once, and compares the texts.
Where they part, a request with logprobs tells how close the two best tokens were: up to 0.25 nat either may win, since
sums run in another order in another batch.

Why it matters: it is the noise of every other row. Tests that compare whole texts fail on a server whose near-ties
flip, and nothing is wrong with it.

How it could be fooled: by other users' traffic, which changes the batch of the requests that should be alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import Field

from servecheck.model import Exchange, How, Json, Observed, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._greedy import first_difference, fork_after
from servecheck.read import reply
from servecheck.stats import NEAR_TIE

__all__ = ["PROBE"]

_ALONE, _TOGETHER = 5, 6


class SamplingGreedyParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Explain in a few sentences how a lighthouse works and who keeps it.", description="The user's message."
    )
    max_tokens: int = Field(default=64, ge=8, le=1024, description="Length of each answer.")


async def drive(session: Session, params: SamplingGreedyParams, _: Transcript | None) -> None:
    """Five times alone, six times at once; the logprobs where they differ."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    for number in range(1, _ALONE + 1):
        await session.chat(f"alone-{number}", body)
    await session.concurrently([session.chat(f"together-{number}", body) for number in range(1, _TOGETHER + 1)])
    if len({*_said(session.transcript, "alone-"), *_said(session.transcript, "together-")}) > 1:
        await session.chat("gaps", {**body, "logprobs": True, "top_logprobs": 2})


class _Said(NamedTuple):
    """What a client gets of a reply."""

    reasoning: str
    text: str


def _said(transcript: Transcript, prefix: str) -> list[_Said]:
    answers = [reply.chat(exchange) for exchange in transcript.steps(prefix)]
    return [_Said(answer.first.reasoning, answer.text) for answer in answers if isinstance(answer, reply.Answer)]


def _gap(gaps: reply.Reply | None, one: _Said, other: _Said) -> float | None:
    """Return how far apart in nat the two best tokens were where two answers part, ``None`` where nothing tells."""
    same_thought = one.reasoning == other.reasoning
    left, right = (one.text, other.text) if same_thought else (one.reasoning, other.reasoning)
    fork = fork_after(gaps, one.reasoning if same_thought else "", left[: first_difference(left, right)])
    return fork.gap if fork is not None else None


def judge(transcript: Transcript, _: SamplingGreedyParams) -> Iterator[Observed]:
    """Compare every answer with the most frequent one of those that were alone."""
    exchanges: list[Exchange] = [*transcript.steps("alone-"), *transcript.steps("together-")]
    seen = tuple(exchange.id for exchange in exchanges)
    alone, together = _said(transcript, "alone-"), _said(transcript, "together-")
    if len(alone) < _ALONE or len(together) < _TOGETHER:
        why = f"{len(alone)} of {_ALONE} requests alone and {len(together)} of {_TOGETHER} at once were answered"
        yield Observed(value="unknown", why=why, how=How.UNKNOWN, evidence=seen)
        return
    usual = max(dict.fromkeys(alone), key=alone.count)
    asked = transcript.get("gaps")
    gaps = reply.chat(asked) if asked is not None else None
    same_alone, same_together = alone.count(usual), together.count(usual)
    differing = {said: _gap(gaps, usual, said) for said in (*alone, *together) if said != usual}
    why = f"{same_alone} of {_ALONE} alone equal, {same_together} of {_TOGETHER} at once equal to them"
    known = [gap for gap in differing.values() if gap is not None]
    if known:
        why += f"; the two best tokens were up to {max(known):.2f} nat apart where texts part"
    elif differing:
        why += "; no logprobs tell how close the best tokens were"
    yield Observed(
        value=_value(alone, differing),
        why=why,
        evidence=(*seen, asked.id) if asked is not None else seen,
        measured={
            "alone_equal": same_alone,
            "alone": _ALONE,
            "together_equal": same_together,
            "together": _TOGETHER,
            "texts": len(differing) + 1,
            "largest_gap_nat": round(max(known), 3) if known else None,
        },
    )


def _value(alone: list[_Said], differing: dict[_Said, float | None]) -> str:
    if not differing:
        return "repeatable"
    if all(gap is not None and gap <= NEAR_TIE for gap in differing.values()):
        return "near-ties only"
    return "not repeatable alone" if len(set(alone)) > 1 else "not repeatable in a batch"


PROBE = Probe(
    id="sampling_greedy",
    doc=__doc__ or "",
    checks=(),
    params=SamplingGreedyParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=11,
    prompt_tokens=470,
    output_tokens=240,
)
