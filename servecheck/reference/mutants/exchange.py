"""Servers that the examples of a user's own checks must catch, and servers that are right and only look odd to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Tally
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

# --------------------------------------------------------------------------- broken


class RequestIdLost(ReferenceServer):
    """Takes an ``x-request-id`` and never gives it back, as engines do by default."""

    def request_id(self, _: Request) -> tuple[tuple[str, str], ...]:
        """Forget it."""
        return ()


class RequestIdCut(ReferenceServer):
    """Gives the ``x-request-id`` back without its last letters."""

    def request_id(self, request: Request) -> tuple[tuple[str, str], ...]:
        """Cut it."""
        return tuple((name, value[:4]) for name, value in super().request_id(request))


class RequestIdLostInStreams(ReferenceServer):
    """Gives the ``x-request-id`` back with whole replies only: streams begin before it is known."""

    async def reply(self, request: Request) -> Reply:
        """Drop the header of a stream."""
        reply = await super().reply(request)
        if isinstance(reply.body, bytes):
            return reply
        return replace(reply, headers=tuple(each for each in reply.headers if each[0] != "x-request-id"))


class ForeignHeadersRefused(ReferenceServer):
    """A gateway that refuses requests with headers that it does not know."""

    def check_key(self, request: Request) -> None:
        """Refuse."""
        super().check_key(request)
        if "x-request-id" in request.headers:
            raise ApiError("header x-request-id is not allowed", code="header_not_allowed")


class UsageEventDropped(ReferenceServer):
    """A proxy that drops the event without choices, and the usage with it."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Let through what has choices."""
        async for event in super().chunks(job):
            if event["choices"]:
                yield event


class UsageWithoutCounts(ReferenceServer):
    """Sends a usage event in which the counts are missing."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Keep the total alone."""
        return {"total_tokens": super().usage(job, tally)["total_tokens"]}


class CachedTokensNull(ReferenceServer):
    """Has a prefix cache and reports nothing of it: the details are null."""


class ChunksCalledCompletions(ReferenceServer):
    """Calls the events of a stream what whole replies are called."""

    def envelope(self, job: Job) -> Event:
        """Take the wrong name."""
        return {**super().envelope(job), "object": "chat.completion"}


class ListedNameRefused(ReferenceServer):
    """Splits a served name at its colon where the answer shall be short, so that the id it lists itself is refused."""

    def check_model(self, body: Event) -> None:
        """Refuse what has a colon and a small limit."""
        super().check_model(body)
        _, _, adapter = self.model.partition(":")
        if adapter and body.get("max_tokens") == 8:
            raise ApiError(f"the adapter {adapter!r} is not loaded", param="model", code="adapter_not_loaded")


class AnswersInAnotherName(ReferenceServer):
    """A router that answers in the name of the backend and not in the one that it lists."""

    async def reply_chat(self, request: Request) -> Reply:
        """Answer as usual, by another name."""
        job = replace(self.chat_job(self.body_of(request)), model="backend-7")
        if job.stream:
            return self.stream_reply(self.frames(self.chunks(job)))
        return json_reply(self.completion(job, await self.answers(job)))


class AnyModelAnswered(ReferenceServer):
    """Answers whatever model is asked for."""

    def check_model(self, _: Event) -> None:
        """Refuse nothing."""


class RefusedWithoutAWord(ReferenceServer):
    """Refuses a model that it does not serve with an empty object."""

    def error_body(self, _: ApiError) -> Event:
        """Say nothing."""
        return {}


def _trips(**outcomes: Outcome) -> tuple[tuple[str, Outcome], ...]:
    return tuple((name.replace("_", "-"), outcome) for name, outcome in outcomes.items())


_IGNORED, _VIOLATED, _REFUSED = Outcome.NO_EFFECT, Outcome.VIOLATED, Outcome.REFUSED

MUTANTS = (
    Mutant(
        id="request-id-lost",
        server=RequestIdLost,
        trips=_trips(request_id_comes_back=_IGNORED, request_id_comes_back_in_streams=_IGNORED),
    ),
    Mutant(id="request-id-cut", server=RequestIdCut, trips=_trips(request_id_comes_back=_VIOLATED)),
    Mutant(
        id="request-id-lost-in-streams",
        server=RequestIdLostInStreams,
        trips=_trips(request_id_comes_back_in_streams=_IGNORED),
    ),
    Mutant(
        id="foreign-headers-refused",
        server=ForeignHeadersRefused,
        trips=_trips(request_id_comes_back=_REFUSED, request_id_comes_back_in_streams=_REFUSED),
    ),
    Mutant(
        id="usage-event-dropped",
        server=UsageEventDropped,
        trips=_trips(streamed_usage_comes=_IGNORED, streamed_usage_has_details=_IGNORED),
        source="BerriAI/litellm#25410",
    ),
    Mutant(
        id="usage-without-counts",
        server=UsageWithoutCounts,
        trips=_trips(streamed_usage_comes=_IGNORED),
    ),
    Mutant(
        id="cached-tokens-null",
        server=CachedTokensNull,
        trips=_trips(streamed_usage_has_details=_IGNORED),
        source="noonghunna/club-3090#1297",
        config={"reports_cached": False},
    ),
    Mutant(
        id="chunks-called-completions",
        server=ChunksCalledCompletions,
        trips=_trips(every_event_is_a_chunk=_VIOLATED),
        source="huggingface/text-generation-inference#1682",
    ),
    Mutant(
        id="listed-name-refused",
        server=ListedNameRefused,
        trips=_trips(listed_model_answers=_REFUSED),
        source="sgl-project/sglang#12745",
        config={"model": "gpt-oss:120b"},
    ),
    Mutant(id="answers-in-another-name", server=AnswersInAnotherName, trips=_trips(listed_model_answers=_VIOLATED)),
    Mutant(id="any-model-answered", server=AnyModelAnswered, trips=_trips(unlisted_model_is_refused=_VIOLATED)),
    Mutant(
        id="refused-without-a-word",
        server=RefusedWithoutAWord,
        trips=_trips(unlisted_model_is_refused=_VIOLATED),
        source="vllm-project/vllm#35438",
    ),
)

# --------------------------------------------------------------------------- harmless


class HeadersInCapitals(ReferenceServer):
    """Writes ``X-Request-ID``: names of headers have no case."""

    def request_id(self, request: Request) -> tuple[tuple[str, str], ...]:
        """Write it in capitals."""
        return tuple(("X-Request-ID", value) for _, value in super().request_id(request))


class PingsBetween(ReferenceServer):
    """Sends ``: ping`` comments between the events of a stream; they are no events."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Put one behind every event."""
        async for frame in super().frames(events):
            yield frame
            yield b": ping\n\n"


class FieldsOfItsOwn(ReferenceServer):
    """Adds fields of its own to every event, and says ``id`` of the request in the body too."""

    def envelope(self, job: Job) -> Event:
        """Add some."""
        return {**super().envelope(job), "served_by": "node-3", "service_tier": None}


class ErrorsWithoutEnvelope(ReferenceServer):
    """Says errors flat, with the message at the top, as another family of servers does."""

    def error_body(self, wrong: ApiError) -> Event:
        """Take the envelope off."""
        return {"object": "error", "message": wrong.message, "type": wrong.kind, "code": wrong.status}


HARMLESS = (
    Harmless(id="headers-in-capitals", server=HeadersInCapitals),
    Harmless(id="pings-between", server=PingsBetween, source="theopenco/llmgateway#2334"),
    Harmless(id="fields-of-its-own", server=FieldsOfItsOwn),
    Harmless(id="errors-without-envelope", server=ErrorsWithoutEnvelope, source="vllm-project/vllm#12886"),
)
