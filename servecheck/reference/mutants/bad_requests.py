"""Servers that take a bad request badly, and servers that refuse it in another of the families that engines have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference import lateerrors
from servecheck.reference.asgi import Cut, Event, Reply, Request, json_reply
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class HangsOnAList(ReferenceServer):
    """Never answers a body that is JSON and no object."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait for ever on a list."""
        if request.body.startswith(b"["):
            await asyncio.Event().wait()
        return await super().reply_chat(request)


class DropsTheConnection(ReferenceServer):
    """Closes the connection without a word where the body cannot be read."""

    async def reply_chat(self, request: Request) -> Reply:
        """Cut."""
        if not lateerrors.is_object(request):
            raise Cut
        return await super().reply_chat(request)


class StumblesAfterwards(ReferenceServer):
    """Answers the request after a bad one with 500, as where one bad body opens a gateway's circuit breaker."""

    stumbling = False

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Remember that something was wrong."""
        self.stumbling = True
        return super().error(wrong, request)

    async def reply_chat(self, request: Request) -> Reply:
        """Fail once."""
        if self.stumbling:
            self.stumbling = False
            return json_reply({"error": {"message": "no healthy upstream", "type": "server_error"}}, 500)
        return await super().reply_chat(request)


class RefusesWithServerError(ReferenceServer):
    """Turns every 400 into 500, which clients send again, as a wrapper around an engine did."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Change the status."""
        made = super().error(wrong, request)
        return replace(made, status=500) if wrong.status == 400 else made


class ListCrashesTheParser(ReferenceServer):
    """Answers a body that is no object with 500 and plain text."""

    async def reply_chat(self, request: Request) -> Reply:
        """Fail on a list."""
        if request.body.startswith(b"["):
            headers = (("content-type", "text/plain; charset=utf-8"),)
            return Reply(status=500, headers=headers, body=b"Internal Server Error")
        return await super().reply_chat(request)


class AnyModel(ReferenceServer):
    """Answers whatever model a request names, and gives that name back."""

    def check_model(self, body: Event) -> None:
        """Refuse nothing."""

    def completion(self, job: Any, answers: Any) -> Event:  # noqa: ANN401
        """Echo the name."""
        return {**super().completion(job, answers), "model": job.body.get("model", self.model)}


class TalksToNobody(ReferenceServer):
    """Answers an empty list of messages with whatever comes to the model's mind."""

    def messages_of(self, body: Event) -> list[Event]:
        """Make up a message."""
        return super().messages_of(body if body.get("messages") else {"messages": [{"role": "user", "content": ""}]})


class DropsBadSampling(ReferenceServer):
    """Takes the default where a sampling parameter is out of range, and says nothing."""

    def sampling_of(self, body: Event) -> Sampling:
        """Drop what is out of range."""
        kept = {name: value for name, value in body.items() if name not in {"temperature", "top_p"} or _fits(value)}
        return super().sampling_of(kept)


def _fits(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


class ErrorUnderTwoHundred(ReferenceServer):
    """Sends its errors with status 200, so that a client looks for an answer in them."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Change the status."""
        return replace(super().error(wrong, request), status=200)


class StreamsServerErrors(lateerrors.RefusesWithinTheStream):
    """Begins every stream with 200 and then blames itself for the client's mistake."""

    def frames_of(self, wrong: ApiError) -> Sequence[bytes]:
        """Send refusals as events of code 500."""
        error = {"error": {"message": wrong.message, "type": "InternalServerError", "code": 500}}
        return self.frame(error), b"data: [DONE]\n\n"


class ErrorPages(ReferenceServer):
    """Sends its errors as pages, as a proxy in front of an engine does."""

    def error(self, wrong: ApiError, request: Request) -> Reply:  # noqa: ARG002
        """Write a page."""
        page = f"<html><head><title>{wrong.status}</title></head><body><h1>{wrong.message}</h1></body></html>"
        return Reply(status=wrong.status, headers=(("content-type", "text/html"),), body=page.encode())


class NothingSaid(ReferenceServer):
    """Refuses with an empty message."""

    def error_body(self, wrong: ApiError) -> Event:
        """Take the words away."""
        made = super().error_body(wrong)
        made["error"]["message"] = ""
        return made


class BareRefusal(ReferenceServer):
    """Refuses with a status and no body at all."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Send nothing."""
        return replace(super().error(wrong, request), body=b"")


# --------------------------------------------------------------------------- odd, and right


class FlatErrors(ReferenceServer):
    """Writes errors flat, without the “error” wrapper; a known family."""

    def error_body(self, wrong: ApiError) -> Event:
        """Flatten."""
        fields = {"message": wrong.message, "type": "BadRequestError", "param": None, "code": wrong.status}
        return {"object": "error", **fields}


class DetailErrors(ReferenceServer):
    """Answers as FastAPI does by itself: 422 and a list under “detail” for what does not validate."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Write the list."""
        if wrong.status != 400:
            return super().error(wrong, request)
        return json_reply({"detail": [{"loc": ["body"], "msg": wrong.message, "type": "value_error"}]}, 422)


class StringErrors(ReferenceServer):
    """Puts the message where the error object should be, as some do for 401 and some for everything."""

    def error_body(self, wrong: ApiError) -> Event:
        """Write a string."""
        return {"error": wrong.message}


class TwoFamilies(ReferenceServer):
    """Uses one shape for what does not validate and another for the rest, as two layers of one server."""

    def error_body(self, wrong: ApiError) -> Event:
        """Choose by the kind of fault."""
        return {"detail": wrong.message} if wrong.code == "invalid_type" else super().error_body(wrong)


class RefusesWithinTheStream(lateerrors.RefusesWithinTheStream):
    """Begins the stream with 200 and refuses in its first event, which is legal: the headers were gone already."""


class SlowRefusals(ReferenceServer):
    """Takes five seconds for a refusal, as a busy server."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Wait."""
        return replace(super().error(wrong, request), delay=5.0)


_V = Outcome.VIOLATED
_REFUSED, _JSON, _MESSAGE = "bad-request-is-refused", "refusal-is-json", "refusal-has-a-message"

MUTANTS = (
    Mutant(id="hangs-on-a-list", server=HangsOnAList, trips=(("reply-comes-within-the-deadline", _V),)),
    Mutant(id="drops-the-connection", server=DropsTheConnection, trips=(("bad-request-gets-a-reply", _V),)),
    Mutant(
        id="stumbles-afterwards",
        server=StumblesAfterwards,
        trips=(("next-request-is-served", _V),),
        source="sgl-project/sglang#22980",
    ),
    Mutant(
        id="refuses-with-server-error",
        server=RefusesWithServerError,
        trips=((_REFUSED, _V),),
        source="kserve/kserve#3886",
    ),
    Mutant(
        id="list-crashes-the-parser",
        server=ListCrashesTheParser,
        trips=((_REFUSED, _V), (_JSON, _V)),
        source="sgl-project/sglang#22980",
    ),
    Mutant(id="any-model", server=AnyModel, trips=((_REFUSED, _V),)),
    Mutant(id="talks-to-nobody", server=TalksToNobody, trips=((_REFUSED, _V),)),
    Mutant(id="drops-bad-sampling", server=DropsBadSampling, trips=((_REFUSED, _V),)),
    Mutant(id="error-under-200", server=ErrorUnderTwoHundred, trips=((_REFUSED, _V),)),
    Mutant(
        id="streams-server-errors",
        server=StreamsServerErrors,
        trips=((_REFUSED, _V),),
    ),
    Mutant(id="error-pages", server=ErrorPages, trips=((_JSON, _V),), source="BerriAI/litellm#9551"),
    Mutant(id="nothing-said", server=NothingSaid, trips=((_MESSAGE, _V),), source="vllm-project/vllm#35438"),
    Mutant(id="bare-refusal", server=BareRefusal, trips=((_JSON, _V), (_MESSAGE, _V))),
)

HARMLESS = (
    Harmless(id="flat-errors", server=FlatErrors, source="vllm-project/vllm#12886"),
    Harmless(id="detail-errors", server=DetailErrors),
    Harmless(id="string-errors", server=StringErrors),
    Harmless(id="two-families", server=TwoFamilies, source="vllm-project/vllm#57997"),
    Harmless(id="refuses-within-the-stream", server=RefusesWithinTheStream, source="ggml-org/llama.cpp#14566"),
    Harmless(id="slow-refusals", server=SlowRefusals),
)
