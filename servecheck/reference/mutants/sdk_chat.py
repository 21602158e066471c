"""Servers whose chat answers or refusals the openai SDK does not read, and right ones that only look odd."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_RETURNS, _TYPES, _MESSAGE = "sdk-returns-the-answer", "completion-has-the-sdks-types", "sdk-shows-the-servers-message"
_VIOLATED, _REFUSED = Outcome.VIOLATED, Outcome.REFUSED

# --------------------------------------------------------------------------- broken


class _Changed(ReferenceServer):
    """Changes a whole reply on its way out; subclasses say how."""

    def change(self, reply: Event) -> None:
        """Change it in place."""
        raise NotImplementedError

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Change what is right."""
        reply = super().completion(job, answers)
        self.change(reply)
        return reply


def _about_colours(job: Job) -> bool:
    # A server that answers no question at all well is sick, and that is another finding.
    return "colours" in str(job.body["messages"])


class ContentInParts(ReferenceServer):
    """Gives what it says about colours as a list of parts, which is how requests may say it and replies may not."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Wrap it."""
        reply = super().completion(job, answers)
        for choice in reply["choices"] if _about_colours(job) else ():
            choice["message"]["content"] = [{"type": "text", "text": choice["message"]["content"]}]
        return reply


class NoChoices(ReferenceServer):
    """Answers a question about colours with an empty list of choices."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Take them out."""
        reply = super().completion(job, answers)
        return {**reply, "choices": []} if _about_colours(job) else reply


class RoleBot(_Changed):
    """Calls the assistant ``bot``."""

    def change(self, reply: Event) -> None:
        """Rename it."""
        for choice in reply["choices"]:
            choice["message"]["role"] = "bot"


class FinishMissing(_Changed):
    """A proxy that strips the finish reason."""

    def change(self, reply: Event) -> None:
        """Take it out."""
        for choice in reply["choices"]:
            choice["finish_reason"] = None


class AnotherObject(_Changed):
    """Says ``text_completion`` and has an empty id on the chat route."""

    def change(self, reply: Event) -> None:
        """Rename it."""
        reply["id"], reply["object"] = "", "text_completion"


class CountsAsText(_Changed):
    """Gives the counts of tokens as texts, which the SDK hands out as they are."""

    def change(self, reply: Event) -> None:
        """Turn them into texts."""
        reply["usage"] = {name: str(value) for name, value in reply["usage"].items()}


class CreatedInFractions(_Changed):
    """Gives the time of creation with fractions of a second."""

    def change(self, reply: Event) -> None:
        """Add half a second."""
        reply["created"] += 0.5


class SdkShutOut(ReferenceServer):
    """A firewall that lets no client through that calls itself ``OpenAI/Python``."""

    def check_key(self, request: Request) -> None:
        """Refuse by the name of the client."""
        super().check_key(request)
        if request.headers.get("user-agent", "").startswith("OpenAI/"):
            raise ApiError("this client is not allowed", status=403, code="client_not_allowed")


class EmptyMessage(ReferenceServer):
    """Refuses with an error object whose message is empty."""

    def error_body(self, wrong: ApiError) -> Event:
        """Leave the message out."""
        body = super().error_body(wrong)
        body["error"]["message"] = ""
        return body


class ErrorPage(ReferenceServer):
    """A gateway in front answers a refusal with an HTML page."""

    def error(self, wrong: ApiError, request: Request) -> Reply:  # noqa: ARG002
        """Return the page."""
        page = b"<html><body><h1>Bad request</h1></body></html>"
        return Reply(status=wrong.status, headers=(("content-type", "text/html"),), body=page)


class ErrorWith200(ReferenceServer):
    """Says what is wrong in the body and 200 in the status, which no client reads as an error."""

    def error(self, wrong: ApiError, request: Request) -> Reply:  # noqa: ARG002
        """Say 200."""
        body = self.error_body(wrong)
        body["error"]["code"] = wrong.status
        return json_reply(body, 200)


MUTANTS = (
    Mutant(id="content-in-parts", server=ContentInParts, trips=((_RETURNS, _VIOLATED), (_TYPES, _VIOLATED))),
    Mutant(id="no-choices", server=NoChoices, trips=((_RETURNS, _VIOLATED),)),
    Mutant(id="role-bot", server=RoleBot, trips=((_RETURNS, _VIOLATED), (_TYPES, _VIOLATED))),
    Mutant(
        id="finish-missing",
        server=FinishMissing,
        trips=((_RETURNS, _VIOLATED), (_TYPES, _VIOLATED)),
        source="BerriAI/litellm#10686",
    ),
    Mutant(
        id="another-object",
        server=AnotherObject,
        trips=((_TYPES, _VIOLATED),),
        source="huggingface/text-generation-inference#1682",
    ),
    Mutant(id="counts-as-text", server=CountsAsText, trips=((_TYPES, _VIOLATED),)),
    Mutant(id="created-in-fractions", server=CreatedInFractions, trips=((_TYPES, _VIOLATED),)),
    Mutant(id="sdk-shut-out", server=SdkShutOut, trips=((_RETURNS, _REFUSED), (_TYPES, _REFUSED))),
    Mutant(id="empty-message", server=EmptyMessage, trips=((_MESSAGE, _VIOLATED),), source="vllm-project/vllm#35438"),
    Mutant(id="error-page", server=ErrorPage, trips=((_MESSAGE, _VIOLATED),), source="gpustack/gpustack#4725"),
    Mutant(id="error-with-200", server=ErrorWith200, trips=((_MESSAGE, _VIOLATED),), source="kserve/kserve#3886"),
)

# --------------------------------------------------------------------------- harmless


class ErrorsFlat(ReferenceServer):
    """Says errors without an envelope; the SDK for Python finds the message there too."""

    def error_body(self, wrong: ApiError) -> Event:
        """Take the envelope off."""
        return {"object": "error", "message": wrong.message, "type": wrong.kind, "code": wrong.status}


class ErrorsWithDetail(ReferenceServer):
    """Says errors as FastAPI does, in ``detail``."""

    def error_body(self, wrong: ApiError) -> Event:
        """Put it there."""
        return {"detail": [{"loc": ["body"], "msg": wrong.message, "type": wrong.kind}]}


class FieldsOfItsOwn(_Changed):
    """Adds fields that the SDK does not know, and ``null`` where nothing is."""

    def change(self, reply: Event) -> None:
        """Add some."""
        reply |= {"timings": {"predicted_ms": 1.5}, "service_tier": None, "metadata": None}
        for choice in reply["choices"]:
            choice |= {"matched_stop": 2}
            choice["message"] |= {"annotations": None, "audio": None, "function_call": None}
            choice["message"].setdefault("reasoning_content", None)


class NoUsage(ReferenceServer):
    """Reports no usage, which the SDK declares optional."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Leave it out."""
        return {name: value for name, value in super().completion(job, answers).items() if name != "usage"}


HARMLESS = (
    Harmless(id="errors-flat", server=ErrorsFlat, source="vllm-project/vllm#12886"),
    Harmless(id="errors-with-detail", server=ErrorsWithDetail, source="vllm-project/vllm#57997"),
    Harmless(id="fields-of-its-own", server=FieldsOfItsOwn),
    Harmless(id="no-usage", server=NoUsage),
)
