"""Output limits that do not bind, bind elsewhere, or call the cut something else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Tally
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_LIMITS = ("max_tokens", "max_completion_tokens")


def _without(body: Event, *names: str) -> Event:
    return {name: value for name, value in body.items() if name not in names}


# --------------------------------------------------------------------------- broken


class LimitIgnored(ReferenceServer):
    """Takes the limit and talks on to its own end."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Forget both names."""
        return super().limit_of(_without(body, *_LIMITS), min(room, 600), default, low)


class NewNameIgnored(ReferenceServer):
    """Knows ``max_tokens`` and drops ``max_completion_tokens`` like any unknown field."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Forget the new name."""
        return super().limit_of(_without(body, "max_completion_tokens"), min(room, 600), default, low)


class OldNameIgnored(ReferenceServer):
    """Knows ``max_completion_tokens`` and drops ``max_tokens``, which most clients send."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Forget the old name, and have a default of its own."""
        body = _without(body, "max_tokens")
        return super().limit_of(body, room, max(default or 0, min(room, 600)), low)


class NewNameRefused(ReferenceServer):
    """Refuses ``max_completion_tokens`` as an unknown field."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Refuse the new name."""
        if "max_completion_tokens" in body:
            raise ApiError("max_completion_tokens: extra inputs are not permitted", param="max_completion_tokens")
        return super().limit_of(body, room, default, low)


class IgnoredInStreams(ReferenceServer):
    """Applies the limit to whole replies only."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Forget it where a stream was asked for."""
        return super().limit_of(_without(body, *_LIMITS) if body.get("stream") else body, min(room, 600), default, low)


class IgnoredOnCompletions(ReferenceServer):
    """Applies the limit on the chat route only."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Forget it where there are no messages."""
        if "messages" in body:
            return super().limit_of(body, room, default, low)
        return super().limit_of(_without(body, *_LIMITS), min(room, 600), None, low)


class OneMore(ReferenceServer):
    """Looks at the limit after the next token is made."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Add one."""
        return super().limit_of(body, room, default, low) + 1


class OneLess(ReferenceServer):
    """Counts the first token, which prefill made, twice."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Take one away."""
        return max(1, super().limit_of(body, room, default, low) - 1)


class CutSaysStop(ReferenceServer):
    """Says ``stop`` where the limit cut the answer, so that half an answer looks finished."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Change the finish reason."""
        async for delta in super().deltas(job):
            yield replace(delta, finish="stop") if delta.finish == "length" else delta


class IgnoredInStreamsWithoutUsage(IgnoredInStreams):
    """Applies the limit to whole replies only, and reports no usage in streams."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Leave the usage event out."""
        async for event in super().chunks(job):
            if event["choices"]:
                yield event


# --------------------------------------------------------------------------- odd, but right


class NoUsageInStreams(ReferenceServer):
    """Reports no usage in streams, which another row judges; the text shows where the limit was."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Leave the usage event out."""
        async for event in super().chunks(job):
            if event["choices"]:
                yield event


class LimitWithoutUsageDetails(ReferenceServer):
    """Leaves the details out of usage; only the three counts are promised."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Drop the details."""
        made = super().usage(job, tally)
        return {name: value for name, value in made.items() if not name.endswith("_details")}


class ThinkingCountedApart(ReferenceServer):
    """Counts thinking in its own field only; together they are the limit."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Take the thinking out of the completion."""
        made = super().usage(job, tally)
        if job.thinking and not job.stream:
            made["completion_tokens"] -= tally.reasoning
        return made


_V, _N = Outcome.VIOLATED, Outcome.NO_EFFECT
_OLD, _NEW = "max-tokens-binds-exactly", "max-completion-tokens-binds-exactly"

MUTANTS = (
    Mutant(
        id="limit-ignored",
        server=LimitIgnored,
        trips=((_OLD, _N), (_NEW, _N)),
        source="ollama/ollama#18575",
    ),
    Mutant(id="new-name-ignored", server=NewNameIgnored, trips=((_NEW, _N),), source="ikawrakow/ik_llama.cpp#2321"),
    Mutant(id="old-name-ignored", server=OldNameIgnored, trips=((_OLD, _N),)),
    Mutant(
        id="new-name-refused", server=NewNameRefused, trips=((_NEW, Outcome.REFUSED),), source="voideditor/void#128"
    ),
    Mutant(id="ignored-in-streams", server=IgnoredInStreams, trips=((_OLD, _N), (_NEW, _N))),
    Mutant(
        id="ignored-in-streams-without-usage",
        server=IgnoredInStreamsWithoutUsage,
        trips=((_OLD, _N), (_NEW, _N)),
        models=("obedient", "babbling", "reasoning"),
    ),
    Mutant(id="ignored-on-completions", server=IgnoredOnCompletions, trips=((_OLD, _N),)),
    Mutant(id="one-more", server=OneMore, trips=((_OLD, _V), (_NEW, _V)), models=("obedient", "babbling", "reasoning")),
    Mutant(id="one-less", server=OneLess, trips=((_OLD, _V), (_NEW, _V)), models=("obedient", "babbling", "reasoning")),
    Mutant(
        id="cut-says-stop",
        server=CutSaysStop,
        trips=(("cut-answer-says-length", _V),),
        source="ikawrakow/ik_llama.cpp#2321",
    ),
)

HARMLESS = (
    Harmless(id="limit-without-usage-details", server=LimitWithoutUsageDetails),
    Harmless(id="no-usage-in-streams", server=NoUsageInStreams),
    Harmless(id="thinking-counted-apart", server=ThinkingCountedApart),
)
