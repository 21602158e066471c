"""Prompts that are too long: cut in silence, failed on, refused late, badly or in the wrong place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import render_chat

__all__ = ["HARMLESS", "MUTANTS"]

_SMALL: dict[str, Any] = {"max_model_len": 1024}


def _too_long(wrong: ApiError) -> bool:
    return wrong.code == "context_length_exceeded"


# --------------------------------------------------------------------------- broken


class FrontCutInSilence(ReferenceServer):
    """Drops the front of a prompt that is too long, and answers 200 with the shortened size in usage."""

    def chat_job(self, body: Event) -> Job:
        """Shorten the last message until it fits."""
        messages = body.get("messages")
        if isinstance(messages, list):
            text = messages[-1]["content"]
            while len(render_chat(messages)) >= self.max_model_len - 64:
                text = text[len(text) // 16 + 64 :]
                messages = [*messages[:-1], {**messages[-1], "content": text}]
            body = {**body, "messages": messages}
        return super().chat_job(body)


class TooLongIs500(ReferenceServer):
    """Turns every refusal for length into a 500, which clients try again."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Change the status."""
        if _too_long(wrong):
            return json_reply({"error": {"message": wrong.message, "type": "OpenAIError", "code": "500"}}, 500)
        return super().error(wrong, request)


class TooMuchOutputIs500(ReferenceServer):
    """Refuses a long prompt properly, and fails inside where more output is asked for than there is room."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Change the status of one refusal."""
        if _too_long(wrong) and wrong.param == "max_tokens":
            return json_reply({"error": {"message": wrong.message, "type": "OpenAIError", "code": "500"}}, 500)
        return super().error(wrong, request)


class StreamRefusedInside(ReferenceServer):
    """Refuses a long prompt with 400, but a stream of it with 200 and an error event."""

    async def reply_chat(self, request: Request) -> Reply:
        """Begin the stream before looking."""
        try:
            return await super().reply_chat(request)
        except ApiError as wrong:
            if not _too_long(wrong) or not json.loads(request.body).get("stream"):
                raise
            return self.stream_reply(self.frames(self._only(wrong)))

    async def _only(self, wrong: ApiError) -> AsyncIterator[Event]:
        yield {"error": {"message": wrong.message, "type": "BadRequestError", "code": 400}}


class StreamFailsInside(StreamRefusedInside):
    """Answers a stream of a long prompt with 200 and an error event that says it was the server's fault."""

    async def _only(self, wrong: ApiError) -> AsyncIterator[Event]:
        yield {"error": {"message": wrong.message, "type": "InternalServerError", "code": 500}}


class SaysNothing(ReferenceServer):
    """Refuses a long prompt with nothing but “bad request”."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Drop the message."""
        if _too_long(wrong):
            return super().error(ApiError("bad request"), request)
        return super().error(wrong, request)


class NamesNoNumber(ReferenceServer):
    """Refuses a long prompt in words, without saying how many tokens it takes."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Change the message."""
        if _too_long(wrong):
            return super().error(ApiError("prompt exceeds context", kind="exceed_context_size_error"), request)
        return super().error(wrong, request)


class RefusesLate(ReferenceServer):
    """Reads a long prompt for fifteen seconds before it refuses."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait before refusing."""
        try:
            return await super().reply_chat(request)
        except ApiError as wrong:
            if _too_long(wrong):
                await asyncio.sleep(15)
            raise


class TwoEnvelopes(ReferenceServer):
    """Wraps errors of validation in another shape than those that come from the engine."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Change the shape of one kind."""
        if wrong.code == "invalid_type":
            return json_reply({"detail": [{"loc": ["body", wrong.param], "msg": wrong.message}]}, 400)
        return super().error(wrong, request)


class SickAfterwards(ReferenceServer):
    """Refuses a long prompt, and then has no memory left for anybody."""

    sick = False

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Remember."""
        self.sick = self.sick or _too_long(wrong)
        return super().error(wrong, request)

    def check_length(self, ids: Sequence[int]) -> None:
        """Refuse all that follows."""
        super().check_length(ids)
        if self.sick:
            raise ApiError("no free blocks", param="messages")


# --------------------------------------------------------------------------- odd, but right


class LimitUnlisted(ReferenceServer):
    """Does not list its limit; a refusal names it."""

    def model_entry(self) -> Event:
        """List the model without its length."""
        return {name: value for name, value in super().model_entry().items() if name != "max_model_len"}


class OutputCapped(ReferenceServer):
    """Takes any wish for output and stops where the room ends."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Cap."""
        wanted = body.get("max_tokens")
        capped = {**body, "max_tokens": min(wanted, room)} if isinstance(wanted, int) else body
        return super().limit_of(capped, room, default, low)


class OtherStatus(ReferenceServer):
    """Refuses with 413 and flat errors, another family that is as good."""

    def error_body(self, wrong: ApiError) -> Event:
        """Flatten."""
        return {"object": "error", "message": wrong.message, "type": wrong.kind, "code": wrong.status}

    def error(self, wrong: ApiError, request: Request) -> Reply:  # noqa: ARG002
        """Change the status."""
        return json_reply(self.error_body(wrong), 413 if _too_long(wrong) else wrong.status)


class OtherWords(ReferenceServer):
    """Says it in other words, with the size of the prompt before the limit."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Say it differently."""
        if _too_long(wrong):
            said = f"request (99999 tokens) exceeds the available context size ({self.max_model_len} tokens)"
            return super().error(ApiError(said, param="messages"), request)
        return super().error(wrong, request)


_V = Outcome.VIOLATED
_REFUSED = "too-long-prompt-is-refused"

MUTANTS = (
    Mutant(
        id="front-cut-in-silence",
        server=FrontCutInSilence,
        trips=((_REFUSED, _V),),
        source="ollama/ollama#4967",
        config=_SMALL,
    ),
    Mutant(
        id="too-long-is-500",
        server=TooLongIs500,
        trips=((_REFUSED, _V), ("too-much-output-is-no-server-error", _V)),
        source="kserve/kserve#3886",
        config=_SMALL,
    ),
    Mutant(
        id="too-much-output-is-500",
        server=TooMuchOutputIs500,
        trips=(("too-much-output-is-no-server-error", _V),),
        source="kserve/kserve#3886",
        config=_SMALL,
    ),
    Mutant(
        id="stream-refused-inside",
        server=StreamRefusedInside,
        trips=(("too-long-stream-is-refused-by-status", _V),),
        source="sgl-project/sglang#20027",
        config=_SMALL,
    ),
    Mutant(
        id="stream-fails-inside",
        server=StreamFailsInside,
        trips=((_REFUSED, _V),),
        source="ggml-org/llama.cpp#14566",
        config=_SMALL,
    ),
    Mutant(id="says-nothing", server=SaysNothing, trips=(("refusal-names-the-limit", _V),), config=_SMALL),
    Mutant(id="refuses-late", server=RefusesLate, trips=(("refusal-comes-at-once", _V),), config=_SMALL),
    Mutant(
        id="two-envelopes",
        server=TwoEnvelopes,
        trips=(("errors-have-one-shape", _V),),
        source="vllm-project/vllm#57997",
        config=_SMALL,
    ),
    Mutant(id="sick-afterwards", server=SickAfterwards, trips=(("server-answers-after-a-refusal", _V),), config=_SMALL),
)

HARMLESS = (
    Harmless(id="names-no-number", server=NamesNoNumber, config=_SMALL, source="ggml-org/llama.cpp#14566"),
    Harmless(id="limit-unlisted", server=LimitUnlisted, config=_SMALL),
    Harmless(id="output-capped", server=OutputCapped, config=_SMALL),
    Harmless(id="other-status", server=OtherStatus, config=_SMALL),
    Harmless(id="other-words", server=OtherWords, config=_SMALL),
)
