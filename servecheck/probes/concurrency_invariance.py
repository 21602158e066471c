"""How much an answer changes when others are served beside it.

What it does: sends three greedy requests with logprobs alone, each twice, and then the same three at once with five
others. Compares token by token up to the first place where two answers part, and the logprobs before it: the second
answer alone with the first (the noise), and the one in company with the second alone.

Why it matters: it says what comparisons of this server with another, or with itself, can show. Sums run in another
order in another batch, so that near-ties flip: that is no fault, and a server that changes nothing at all can be
compared to the last bit.

How it could be fooled: by other users' requests, which make a batch of what should be alone; by a first request that
misses the prefix cache where the second hits, which the noise then holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from pydantic import Field

from servecheck import stats
from servecheck.model import Exchange, How, Json, Observed, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._crowds import at_once
from servecheck.probes._steps import answer_at
from servecheck.read import reply
from servecheck.read.logprobs import tokens

__all__ = ["PROBE"]

_PROMPTS = (
    "Explain in a few sentences how a lighthouse works and who keeps it.",
    "Describe how bread is baked, step by step.",
    "Tell what happens to water when it freezes, and why that matters for lakes.",
)
_COMPANY = (
    "Write a short story about a bridge.",
    "List things that one finds in a market.",
    "Describe a garden in winter.",
    "Explain what a pencil is made of.",
    "Tell how a bicycle stays upright.",
)
_SAME = 1e-4  # nat; engines print logprobs with fewer digits than that would take


class ConcurrencyInvarianceParams(Params):
    """What may be chosen in YAML."""

    max_tokens: int = Field(default=32, ge=8, le=512, description="Length of each answer.")


async def drive(session: Session, params: ConcurrencyInvarianceParams, _: Transcript | None) -> None:
    """Alone, alone again, in company; without logprobs where they are refused."""
    extra: dict[str, Json] = {"logprobs": True, "top_logprobs": 2}

    def body(prompt: str) -> dict[str, Json]:
        messages: Json = [{"role": "user", "content": prompt}]
        asked: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
        return asked | extra

    for turn in ("first", "second"):
        for place, prompt in enumerate(_PROMPTS):
            exchange = await session.chat(f"{turn}-{place}", body(prompt))
            if extra and isinstance(reply.chat(exchange), reply.Refusal):
                extra = {}
                exchange = await session.chat(f"{turn}-{place}", body(prompt))
            if not isinstance(reply.chat(exchange), reply.Answer):
                return
    crowd = [session.chat(f"beside-{place}", body(prompt)) for place, prompt in enumerate(_PROMPTS)]
    crowd += [session.chat(f"company-{place}", body(prompt)) for place, prompt in enumerate(_COMPANY)]
    await session.concurrently(crowd)


class _Compared(NamedTuple):
    """Two answers to one request: whether they are the same, and if not, how they part."""

    same: bool
    near: bool
    """They part at a near-tie, or nowhere."""
    known: bool
    """Logprobs tell."""
    gap: float | None
    deltas: tuple[float, ...]


def _compare(left: reply.Answer, right: reply.Answer) -> _Compared:
    mine, theirs = tokens(left), tokens(right)
    same = (left.first.reasoning, left.text) == (right.first.reasoning, right.text)
    if not mine or not theirs:
        return _Compared(same, same, False, None, ())
    pairs = list(zip(mine, theirs, strict=False))
    common = next((place for place, (a, b) in enumerate(pairs) if a.text != b.text), len(pairs))
    deltas = tuple(
        abs(a.logprob - b.logprob) for a, b in pairs[:common] if a.logprob is not None and b.logprob is not None
    )
    walk = stats.comparable_prefix([one.text for one in mine], [one.text for one in theirs], [one.gap for one in mine])
    gap = mine[common].gap if common < len(pairs) else None
    return _Compared(common == len(pairs) and same, walk.agreed is True, True, gap, deltas)


def judge(transcript: Transcript, _: ConcurrencyInvarianceParams) -> Iterator[Observed]:
    """Compare in company with alone, and alone with alone."""
    steps = ("first-", "second-", "beside-")
    exchanges: list[Exchange] = [exchange for step in (*steps, "company-") for exchange in transcript.steps(step)]
    seen = tuple(exchange.id for exchange in exchanges)
    places = range(len(_PROMPTS))
    answers = {step: [answer_at(transcript, f"{step}{place}") for place in places] for step in steps}
    whole = {step: [answer for answer in found if answer is not None] for step, found in answers.items()}
    if any(len(found) < len(_PROMPTS) for found in whole.values()):
        counts = ", ".join(f"{len(found)} {step.rstrip('-')}" for step, found in whole.items())
        why = f"of {len(_PROMPTS)} requests each were answered: {counts}"
        yield Observed(value="unknown", why=why, how=How.UNKNOWN, evidence=seen)
        return
    together = at_once([*transcript.steps("beside-"), *transcript.steps("company-")])
    if together < 2:
        why = "no two requests were under way together"
        yield Observed(value="unknown", why=why, how=How.UNKNOWN, evidence=seen)
        return
    noise = [_compare(a, b) for a, b in zip(whole["first-"], whole["second-"], strict=True)]
    batch = [_compare(a, b) for a, b in zip(whole["second-"], whole["beside-"], strict=True)]
    deltas = [delta for one in batch for delta in one.deltas]
    alone = [delta for one in noise for delta in one.deltas]
    same = sum(one.same for one in batch)
    why = f"{same} of {len(batch)} answers are the same beside {together - 1} others, "
    why += f"{sum(one.same for one in noise)} of {len(noise)} alone again"
    if deltas:
        why += f"; logprobs move by {median(deltas):.4f} nat (median), {max(deltas):.3f} at most"
        why += f", alone {max(alone, default=0.0):.3f} at most"
    gaps = [one.gap for one in batch if one.gap is not None]
    if gaps:
        why += f"; where answers part the best two tokens were up to {max(gaps):.2f} nat apart"
    yield Observed(
        value=_value(noise, batch, deltas),
        why=why,
        evidence=seen,
        measured={
            "same": same,
            "answers": len(batch),
            "at_once": together,
            "delta_p50_nat": round(median(deltas), 5) if deltas else None,
            "delta_max_nat": round(max(deltas), 4) if deltas else None,
            "delta_max_alone_nat": round(max(alone), 4) if alone else None,
            "largest_gap_nat": round(max(gaps), 3) if gaps else None,
        },
    )


def _value(noise: list[_Compared], batch: list[_Compared], deltas: list[float]) -> str:
    if not all(one.near for one in noise):
        return "not repeatable alone" if all(one.known for one in noise) else "texts differ alone, no logprobs"
    if not all(one.known for one in batch):
        return "same texts, no logprobs" if all(one.same for one in batch) else "texts differ, no logprobs"
    if not all(one.near for one in batch):
        return "changes clear choices"
    if all(one.same for one in batch):
        return "invariant" if max(deltas, default=0.0) <= _SAME else "same texts, logprobs move"
    return "near-ties only"


PROBE = Probe(
    id="concurrency_invariance",
    doc=__doc__ or "",
    checks=(),
    params=ConcurrencyInvarianceParams,
    drive=drive,
    judge=judge,
    exclusive=True,
    requests=14,
    prompt_tokens=590,
    output_tokens=410,
)
