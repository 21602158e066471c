"""Drafts that are never made or never right, and blocks of tokens that lose some."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer, Tally
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_DRAFTED, _ACCEPTED = "drafts-are-proposed", "some-drafts-are-accepted"
_LIMIT, _LOST = "speculation-keeps-the-token-limit", "speculation-streams-every-word"
_ON: dict[str, Any] = {"speculative": 4}


class NothingDrafted(ReferenceServer):
    """Has a drafter configured that is never asked."""

    def drafts(self) -> tuple[int, int, int]:
        """Count nothing."""
        return 0, 0, 0


class NothingAccepted(ReferenceServer):
    """Drafts with a model of another vocabulary: no token is ever right."""

    def drafts(self) -> tuple[int, int, int]:
        """Accept nothing."""
        drafts, proposed, _ = super().drafts()
        return drafts, proposed, 0


class MoreThanAll(ReferenceServer):
    """Counts the token that every check gives as an accepted one, more than were drafted."""

    def drafts(self) -> tuple[int, int, int]:
        """Count too much."""
        drafts, proposed, _ = super().drafts()
        return drafts, proposed, proposed + drafts


class WholeBlock(ReferenceServer):
    """Sends the last block whole, past the limit."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Round up to whole blocks and one more token."""
        made = super().limit_of(body, room, default, low)
        return min(room, made + 3)


class BlockCutShort(ReferenceServer):
    """Ends an answer early where a block crosses the limit."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Report what is left of the last block."""
        made = super().usage(job, tally)
        return {**made, "completion_tokens": max(0, made["completion_tokens"] - 3)}


class StreamLosesBlocks(ReferenceServer):
    """Drops every fifth piece of a stream: of a block of several tokens only some are sent."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Drop pieces."""
        count = 0
        async for event in super().chunks(job):
            delta = event["choices"][0]["delta"] if event["choices"] else {}
            key = next((name for name in ("content", "reasoning_content") if delta.get(name)), "")
            count += bool(key)
            if key and count % 5 == 0:
                delta[key] = ""
            yield event


class SpeculationFails(ReferenceServer):
    """Fails on a text that the drafter guesses whole."""

    async def answers(self, job: Job) -> list[Answer]:
        """Fail where the end token is ignored."""
        if job.sampling.ignore_eos:
            raise ApiError("draft length exceeds the block table", status=500, kind="InternalServerError")
        return await super().answers(job)


# --------------------------------------------------------------------------- odd, but right


class Drafting(ReferenceServer):
    """Drafts four tokens at once and is right about one of them."""


class SeveralTokensAChunk(ReferenceServer):
    """Sends the tokens of a block in one event."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Join pairs of deltas."""
        held: Delta | None = None
        async for delta in super().deltas(job):
            if held is None and delta.finish is None and not delta.calls:
                held = delta
                continue
            if held is not None:
                joined = replace(
                    delta,
                    content=held.content + delta.content,
                    reasoning=held.reasoning + delta.reasoning,
                    steps=(*held.steps, *delta.steps),
                )
                held = None
                yield joined
            else:
                yield delta


class DraftsInReplies(ReferenceServer):
    """Counts drafts in the timings of each reply, as llama.cpp does, and in no series."""

    def metrics_text(self) -> str:
        """Leave the counters out."""
        return "".join(line + "\n" for line in super().metrics_text().splitlines() if "spec_decode" not in line)

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Add timings."""
        timings = {"predicted_n": 64, "draft_n": 40, "draft_n_accepted": 30}
        return {**super().completion(job, answers), "timings": timings}


_V, _N = Outcome.VIOLATED, Outcome.NO_EFFECT

MUTANTS = (
    Mutant(id="nothing-drafted", server=NothingDrafted, trips=((_DRAFTED, _N),), config=_ON),
    Mutant(id="nothing-accepted", server=NothingAccepted, trips=((_ACCEPTED, _V),), config=_ON),
    Mutant(
        id="more-than-all",
        server=MoreThanAll,
        trips=((_ACCEPTED, _V),),
        config=_ON,
        source="vllm-project/vllm#56101",
    ),
    Mutant(
        id="whole-block",
        server=WholeBlock,
        trips=((_LIMIT, _V),),
        config=_ON,
        source="sgl-project/sglang#39826",
    ),
    Mutant(
        id="block-cut-short",
        server=BlockCutShort,
        trips=((_LIMIT, _V),),
        config=_ON,
        source="ikawrakow/ik_llama.cpp#2358",
    ),
    Mutant(id="stream-loses-blocks", server=StreamLosesBlocks, trips=((_LOST, _V),), config=_ON),
    Mutant(id="speculation-fails", server=SpeculationFails, trips=((_DRAFTED, _V),), config=_ON),
)

HARMLESS = (
    Harmless(id="drafting", server=Drafting, config=_ON),
    Harmless(id="several-tokens-a-chunk", server=SeveralTokensAChunk, config=_ON, source="dstackai/dstack#4269"),
    Harmless(id="drafts-in-replies", server=DraftsInReplies, config=_ON),
)
