"""Running totals that are absent, fall, stand still or overshoot, and running totals that only look odd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import StreamOptions, Tally
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.streaming_frames import PingComments
from servecheck.reference.mutants.streaming_usage import BillsPerStep, UsageDetails
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class ContinuousIgnored(ReferenceServer):
    """Accepts ``continuous_usage_stats`` and sends the total at the end only."""

    def stream_options_of(self, body: Event) -> StreamOptions:
        """Forget half of the wish."""
        return replace(super().stream_options_of(body), continuous_usage=False)


class ContinuousRefused(ReferenceServer):
    """Refuses ``continuous_usage_stats`` by name."""

    def stream_options_of(self, body: Event) -> StreamOptions:
        """Refuse."""
        if (body.get("stream_options") or {}).get("continuous_usage_stats"):
            raise ApiError("unknown field", param="stream_options.continuous_usage_stats")
        return super().stream_options_of(body)


class EverySecond(ReferenceServer):
    """Puts usage on every second chunk only."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Take away every second usage."""
        place = 0
        async for event in super().chunks(job):
            place += 1
            yield {**event, "usage": None} if event["choices"] and place % 2 else event


class CountsDown(ReferenceServer):
    """Gives the tokens that are left instead of those that came."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Turn running counts round."""
        async for event in super().chunks(job):
            if event["choices"] and event.get("usage"):
                left = max(0, job.limit - event["usage"]["completion_tokens"])
                event["usage"] = {**event["usage"], "completion_tokens": left}
            yield event


class PromptGrows(ReferenceServer):
    """Counts the answer so far as prompt."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Add what was made to the prompt."""
        usage = super().usage(job, tally)
        return {**usage, "prompt_tokens": usage["prompt_tokens"] + tally.completion} if job.stream else usage


class TotalOvershoots(ReferenceServer):
    """Ends with the sum of all running totals, far above the last of them."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Add up."""
        added = 0
        async for event in super().chunks(job):
            if event["choices"] and event.get("usage"):
                added += event["usage"]["completion_tokens"]
            elif event.get("usage"):
                event["usage"] = {**event["usage"], "completion_tokens": added}
            yield event


class NothingOnRoleChunk(ReferenceServer):
    """Leaves usage out of the chunk that only says the role."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Take it away there."""
        async for event in super().chunks(job):
            if event["choices"] and "role" in event["choices"][0]["delta"]:
                event.pop("usage", None)
            yield event


class NothingOnFinish(ReferenceServer):
    """Leaves usage out of a finishing chunk without text; the total comes right behind it."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Take it away there."""
        async for event in super().chunks(job):
            if event["choices"] and event["choices"][0]["finish_reason"] and not event["choices"][0]["delta"]:
                event["usage"] = None
            yield event


class AlwaysContinuous(ReferenceServer):
    """Sends running totals whether asked or not; then they are there when asked, too."""

    def stream_options_of(self, body: Event) -> StreamOptions:
        """Wish for everything."""
        return replace(super().stream_options_of(body), include_usage=True, continuous_usage=True)


_V = Outcome.VIOLATED
_COMES, _RISES, _ENDS = "usage-comes-on-every-text-event", "running-usage-never-falls", "running-usage-ends-at-total"

MUTANTS = (
    Mutant(
        id="continuous-ignored",
        server=ContinuousIgnored,
        trips=((_COMES, Outcome.NO_EFFECT),),
        source="TheTom/vllm-swift#19",
    ),
    Mutant(id="continuous-refused", server=ContinuousRefused, trips=((_COMES, Outcome.REFUSED),)),
    Mutant(id="every-second", server=EverySecond, trips=((_COMES, _V),)),
    Mutant(id="counts-down", server=CountsDown, trips=((_RISES, _V), (_ENDS, _V))),
    Mutant(id="prompt-grows", server=PromptGrows, trips=((_RISES, _V),)),
    Mutant(id="bills-per-step", server=BillsPerStep, trips=((_ENDS, _V),), source="vllm-project/vllm#8625"),
    Mutant(id="total-overshoots", server=TotalOvershoots, trips=((_ENDS, _V),), source="vllm-project/vllm-omni#2313"),
)

HARMLESS = (
    Harmless(id="nothing-on-role-chunk", server=NothingOnRoleChunk),
    Harmless(id="nothing-on-finish", server=NothingOnFinish),
    Harmless(id="always-continuous", server=AlwaysContinuous, source="cline/cline#10148"),
    Harmless(id="usage-details", server=UsageDetails),
    Harmless(id="ping-comments", server=PingComments, source="theopenco/llmgateway#2334"),
)
