"""Stores that forget, that mix up, or that nobody asks."""

from __future__ import annotations

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.eventfaults import NoResponses
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.responses import Asked
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class PreviousIgnored(ReferenceServer):
    """Accepts ``previous_response_id`` and never reads it."""

    def previous_messages(self, body: Event) -> tuple[Event, ...]:  # noqa: ARG002
        """Begin anew."""
        return ()


class PreviousRefused(ReferenceServer):
    """Has no store, and says so."""

    def previous_messages(self, body: Event) -> tuple[Event, ...]:
        """Refuse."""
        if body.get("previous_response_id"):
            raise ApiError("Response store is disabled", param="previous_response_id")
        return ()


class StoresNothing(ReferenceServer):
    """Accepts ``store: true``, gives an id, and knows nothing of it a moment later."""

    def remember(self, asked: Asked, response: Event) -> None:
        """Forget."""


class StoreRefused(ReferenceServer):
    """Refuses ``store: true``."""

    def response_job(self, body: Event) -> Asked:
        """Refuse."""
        if body.get("store"):
            raise ApiError("store must be false", param="store")
        return super().response_job(body)


class PreviousFails(ReferenceServer):
    """Fails inside on every continuation."""

    def previous_messages(self, body: Event) -> tuple[Event, ...]:
        """Fail."""
        if body.get("previous_response_id"):
            raise ApiError("'Response' object has no attribute 'messages'", status=500, kind="InternalServerError")
        return ()


class OnlyTheAnswer(ReferenceServer):
    """Carries on what the model said and forgets what it was asked."""

    def previous_messages(self, body: Event) -> tuple[Event, ...]:
        """Keep the answers."""
        return tuple(each for each in super().previous_messages(body) if each["role"] == "assistant")


class UnknownBeginsAnew(ReferenceServer):
    """Begins a new conversation where it does not know the id."""

    def previous_messages(self, body: Event) -> tuple[Event, ...]:
        """Begin one."""
        try:
            return super().previous_messages(body)
        except ApiError:
            return ()


class UnknownFails(ReferenceServer):
    """Fails inside where it does not know the id."""

    def unknown_response(self, name: str) -> ApiError:
        """Fail."""
        return ApiError(f"KeyError: {name!r}", status=500, kind="InternalServerError")


class NothingToRead(ReferenceServer):
    """Carries responses on and lets nobody read them."""

    async def reply_response(self, request: Request) -> Reply:
        """Answer as for any unknown path."""
        raise ApiError(f"no route {request.path}", status=404, kind="not_found_error", code="not_found")


class ReadsAnother(ReferenceServer):
    """Gives the response that was stored last, whichever is asked for, with its output left out."""

    async def reply_response(self, request: Request) -> Reply:
        """Give it."""
        name = request.path.removeprefix("/v1/responses/")
        return json_reply({**self.stored[name][1], "output": []})


class StoresAll(ReferenceServer):
    """Stores every response, whatever was asked."""

    def remember(self, asked: Asked, response: Event) -> None:
        """Store it."""
        super().remember(Asked(body={**asked.body, "store": True}, messages=asked.messages, job=asked.job), response)


class StreamsNotStored(ReferenceServer):
    """Stores whole responses and forgets those that it streamed."""

    def remember(self, asked: Asked, response: Event) -> None:
        """Forget."""
        if not asked.job.stream:
            super().remember(asked, response)


# --------------------------------------------------------------------------- odd, but right


class OtherRefusal(ReferenceServer):
    """Refuses an unknown id with 400 and a code of its own."""

    def unknown_response(self, name: str) -> ApiError:
        """Refuse."""
        return ApiError(f"Previous response with id {name!r} not found.", code="previous_response_not_found")


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_CARRIED, _UNKNOWN = "previous-response-is-carried-on", "unknown-previous-response-is-refused"
_READ, _UNSTORED = "stored-response-can-be-read", "unstored-response-cannot-be-continued"

_STREAMED = "streamed-response-is-carried-on"

MUTANTS = (
    Mutant(id="no-responses", server=NoResponses, trips=((_CARRIED, _R),)),
    Mutant(id="previous-ignored", server=PreviousIgnored, trips=((_CARRIED, _N), (_UNKNOWN, _V))),
    Mutant(id="previous-refused", server=PreviousRefused, trips=((_CARRIED, _R), (_UNKNOWN, Outcome.HELD))),
    Mutant(
        id="stores-nothing", server=StoresNothing, trips=((_CARRIED, _R),), source="digitalocean/gradient-python#96"
    ),
    Mutant(id="store-refused", server=StoreRefused, trips=((_CARRIED, _R),)),
    Mutant(id="previous-fails", server=PreviousFails, trips=((_CARRIED, _V),)),
    Mutant(
        id="only-the-answer",
        server=OnlyTheAnswer,
        trips=((_CARRIED, _V),),
        source="danny-avila/LibreChat#14466",
        models=("obedient", "babbling", "declining"),  # the fourth thinks for all of its tokens, and says nothing
    ),
    Mutant(id="unknown-begins-anew", server=UnknownBeginsAnew, trips=((_UNKNOWN, _V),)),
    Mutant(id="unknown-fails", server=UnknownFails, trips=((_UNKNOWN, _V),)),
    Mutant(id="nothing-to-read", server=NothingToRead, trips=((_READ, _R),), source="digitalocean/gradient-python#96"),
    Mutant(id="reads-another", server=ReadsAnother, trips=((_READ, _V),), source="danny-avila/LibreChat#14466"),
    Mutant(id="stores-all", server=StoresAll, trips=((_UNSTORED, _V),)),
    Mutant(
        id="streams-not-stored",
        server=StreamsNotStored,
        trips=((_STREAMED, _V),),
        source="lmstudio-ai/lmstudio-bug-tracker#1188",
    ),
)

HARMLESS = (
    Harmless(id="other-refusal", server=OtherRefusal, source="maximhq/bifrost#2441"),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
