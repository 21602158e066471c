"""Streams that bill wrongly, at the wrong place or unasked, and bills that only look odd; the text is never touched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import StreamOptions, Tally
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.streaming_frames import PingComments
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS", "BillsPerStep", "UsageDetails"]


class IncludeUsageIgnored(ReferenceServer):
    """Accepts ``include_usage`` and sends no usage."""

    def stream_options_of(self, body: Event) -> StreamOptions:
        """Forget the wish."""
        return replace(super().stream_options_of(body), include_usage=False, continuous_usage=False)


class UsageDroppedOnTheWay(ReferenceServer):
    """Throws away events whose list of choices is empty, as one proxy did, and the bill with them."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Pass on events with choices only."""

        async def chosen() -> AsyncIterator[Event]:
            async for event in events:
                if event["choices"]:
                    yield event

        async for frame in super().frames(chosen()):
            yield frame


class UsageIgnoredOnCompletions(ReferenceServer):
    """Sends usage with chat streams and none with text completions."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Leave the last event out."""
        async for event in super().text_chunks(job):
            if event["choices"]:
                yield event


class BillsPerStep(ReferenceServer):
    """Bills the tokens of the last step instead of all of them, in streams only."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Count one token."""
        usage = super().usage(job, tally)
        if job.stream:
            usage |= {"completion_tokens": 1, "total_tokens": usage["prompt_tokens"] + 1}
        return usage


class Quadratic(ReferenceServer):
    """Adds up running totals in streams: n tokens are billed as n (n + 1) / 2."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Count every token as often as it was counted before."""
        usage = super().usage(job, tally)
        if job.stream:
            count = usage["completion_tokens"] * (usage["completion_tokens"] + 1) // 2
            usage |= {"completion_tokens": count, "total_tokens": usage["prompt_tokens"] + count}
        return usage


class BillsOneChoice(ReferenceServer):
    """Bills one choice of several, in streams only."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Count the first choice."""
        if job.stream:
            tally = Tally({index: count for index, count in tally.counts.items() if index == 0})
        return super().usage(job, tally)


class BillsUncachedPrompt(ReferenceServer):
    """Leaves cached prompt tokens out of a stream's bill, so that the same prompt costs less when streamed."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Subtract what came from the cache, or at least the chat's header."""
        usage = super().usage(job, tally)
        if job.stream:
            prompt = usage["prompt_tokens"] - max(1, self.cached_tokens(job))
            usage |= {"prompt_tokens": prompt, "total_tokens": prompt + usage["completion_tokens"]}
        return usage


class WrongSum(ReferenceServer):
    """Gives the completion tokens as the total of a stream."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Change the total."""
        usage = super().usage(job, tally)
        return {**usage, "total_tokens": usage["completion_tokens"]} if job.stream else usage


class CountsMissing(ReferenceServer):
    """Sends an empty usage object at the end of a stream."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Send nothing in it."""
        return {} if job.stream else super().usage(job, tally)


class EmptyOptionsMeanUsage(ReferenceServer):
    """Takes an empty ``stream_options`` as a wish for usage."""

    def stream_options_of(self, body: Event) -> StreamOptions:
        """Read any object as a yes."""
        return replace(super().stream_options_of(body), include_usage=isinstance(body.get("stream_options"), dict))


class RunningTotalsUnasked(ReferenceServer):
    """Puts running totals on every chunk of every stream."""

    def stream_options_of(self, body: Event) -> StreamOptions:
        """Wish for everything."""
        return replace(super().stream_options_of(body), include_usage=True, continuous_usage=True)


class UsageWithFinish(ReferenceServer):
    """Sends the usage together with the finish reason, and no event of its own."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Hold each event back until the next is known."""
        held: Event | None = None
        async for event in super().chunks(job):
            if held is not None:
                yield {**held, "usage": event["usage"]} if not event["choices"] else held
            held = event if event["choices"] else None
        if held is not None:
            yield held


# --------------------------------------------------------------------------- odd, but right


class UsageKeyAbsent(ReferenceServer):
    """Leaves the ``usage`` key out of events that have none, where others write null."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Remove nulls."""
        async for event in super().chunks(job):
            yield {key: value for key, value in event.items() if key != "usage" or value is not None}


class UsageDetails(ReferenceServer):
    """Adds details and fields of its own to the usage."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Add fields."""
        details = {"reasoning_tokens": 0, "audio_tokens": None}
        return {**super().usage(job, tally), "completion_tokens_details": details, "cost": 0.001}


class NeverTheSame(ReferenceServer):
    """Samples greedy requests too, so that no two answers are equal and their bills may differ."""

    def sampling_of(self, body: Event) -> Sampling:
        """Warm up."""
        return replace(super().sampling_of(body), temperature=1.0)


class ChatOnly(ReferenceServer):
    """Has no route for text completions, and one choice per stream; both are other rows' business."""

    async def reply_completions(self, _: Request) -> Reply:
        """Have no such route."""
        raise ApiError("no route /v1/completions", status=404, kind="not_found_error", code="not_found")

    def chat_job(self, body: Event) -> Job:
        """Refuse several choices in a stream."""
        job = super().chat_job(body)
        if job.stream and job.n > 1:
            raise ApiError("n must be 1 in a stream", param="n")
        return job


_V = Outcome.VIOLATED
_EQUAL = "stream-usage-equals-whole-usage"

MUTANTS = (
    Mutant(
        id="include-usage-ignored",
        server=IncludeUsageIgnored,
        trips=(("usage-comes-when-asked-for", Outcome.NO_EFFECT),),
        source="TheTom/vllm-swift#19",
    ),
    Mutant(
        id="usage-dropped-on-the-way",
        server=UsageDroppedOnTheWay,
        trips=(("usage-comes-when-asked-for", Outcome.NO_EFFECT),),
        source="BerriAI/litellm#25410",
    ),
    Mutant(
        id="usage-ignored-on-completions",
        server=UsageIgnoredOnCompletions,
        trips=(("usage-comes-when-asked-for", Outcome.NO_EFFECT),),
    ),
    Mutant(id="bills-per-step", server=BillsPerStep, trips=((_EQUAL, _V),), source="vllm-project/vllm#8625"),
    Mutant(
        id="bills-one-choice",
        server=BillsOneChoice,
        trips=((_EQUAL, _V),),
        source="vllm-project/vllm#8625",
        models=("obedient", "babbling", "reasoning"),  # a short refusal ends by itself, and then nothing is certain
    ),
    Mutant(id="quadratic", server=Quadratic, trips=((_EQUAL, _V),), source="vllm-project/vllm-omni#2313"),
    Mutant(id="bills-uncached-prompt", server=BillsUncachedPrompt, trips=((_EQUAL, _V),)),
    Mutant(id="wrong-sum", server=WrongSum, trips=((_EQUAL, _V),)),
    Mutant(id="counts-missing", server=CountsMissing, trips=((_EQUAL, _V),)),
    Mutant(
        id="empty-options-mean-usage",
        server=EmptyOptionsMeanUsage,
        trips=(("no-usage-unasked", _V),),
        source="vllm-project/vllm#36379",
    ),
    Mutant(
        id="running-totals-unasked",
        server=RunningTotalsUnasked,
        trips=(("no-usage-unasked", _V), ("usage-comes-once", _V)),
        source="cline/cline#10148",
    ),
    Mutant(id="usage-with-finish", server=UsageWithFinish, trips=(("usage-has-a-last-chunk-of-its-own", _V),)),
)

HARMLESS = (
    Harmless(id="usage-key-absent", server=UsageKeyAbsent),
    Harmless(id="usage-details", server=UsageDetails),
    Harmless(id="never-the-same", server=NeverTheSame),
    Harmless(id="chat-only", server=ChatOnly),
    Harmless(id="ping-comments", server=PingComments, source="theopenco/llmgateway#2334"),
)
