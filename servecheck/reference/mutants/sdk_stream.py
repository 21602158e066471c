"""Servers whose streams the openai SDK reads wrongly or not at all, and right ones that only look odd."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.sdk_chat import ErrorPage, SdkShutOut
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_READS, _ADDS = "sdk-reads-the-whole-stream", "sdk-adds-the-stream-up"
_TYPES, _RAISES = "chunks-have-the-sdks-types", "sdk-raises-for-a-refused-stream"
_VIOLATED, _REFUSED, _IGNORED = Outcome.VIOLATED, Outcome.REFUSED, Outcome.NO_EFFECT


class _Changed(ReferenceServer):
    """Changes every event of a chat stream; subclasses say how."""

    def change(self, event: Event) -> None:
        """Change it in place."""
        raise NotImplementedError

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Change what is right."""
        async for event in super().chunks(job):
            self.change(event)
            yield event


# --------------------------------------------------------------------------- broken


class RoleEveryChunk(_Changed):
    """Says the role in every delta, so that whoever adds the texts up has it many times over."""

    def change(self, event: Event) -> None:
        """Say it."""
        for choice in event["choices"]:
            choice["delta"]["role"] = "assistant"


class FinishNever(_Changed):
    """Ends its streams without a finish reason, which the SDK does not mind."""

    def change(self, event: Event) -> None:
        """Take it out."""
        for choice in event["choices"]:
            choice["finish_reason"] = None


class StreamFlagIgnored(ReferenceServer):
    """Takes ``stream`` and answers in one piece."""

    async def reply_chat(self, request: Request) -> Reply:
        """Answer as if nobody had asked for a stream."""
        body = {name: value for name, value in self.body_of(request).items() if not name.startswith("stream")}
        job = self.chat_job(body)
        return json_reply(self.completion(job, await self.answers(job)))


class DiesMidway(_Changed):
    """Breaks off with an error event after the first words."""

    def change(self, event: Event) -> None:
        """Turn what has text into the error."""
        if any(
            choice["delta"].get("content") or choice["delta"].get("reasoning_content") for choice in event["choices"]
        ):
            event.clear()
            event["error"] = {"message": "metrics: counter went backwards", "type": "internal_error", "code": 500}


class OldObject(_Changed):
    """Calls chunks ``text_completion``."""

    def change(self, event: Event) -> None:
        """Rename it."""
        event["object"] = "text_completion"


class FinishIsEmptyText(_Changed):
    """Says an empty text for the finish reason of every chunk but the last."""

    def change(self, event: Event) -> None:
        """Fill it in."""
        for choice in event["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or ""


class IndexAsText(_Changed):
    """Gives the index of a choice as a text, so that nobody can add anything up by it."""

    def change(self, event: Event) -> None:
        """Turn it into a text."""
        for choice in event["choices"]:
            choice["index"] = str(choice["index"])


class FlatErrorEvent(ReferenceServer):
    """Refuses a streamed request with 200 and a flat error event, which the SDK hands out as a chunk."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Put the error into a stream."""
        if b'"stream":true' not in request.body.replace(b" ", b""):
            return super().error(wrong, request)
        event = {"object": "error", "message": wrong.message, "type": wrong.kind, "code": wrong.status}
        body = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode()
        return Reply(headers=(("content-type", "text/event-stream"),), body=body)


MUTANTS = (
    Mutant(id="role-every-chunk", server=RoleEveryChunk, trips=((_ADDS, _VIOLATED),), source="ollama/ollama#17166"),
    Mutant(id="finish-never", server=FinishNever, trips=((_READS, _VIOLATED),), source="vllm-project/vllm#27572"),
    Mutant(
        id="stream-flag-ignored",
        server=StreamFlagIgnored,
        trips=((_READS, _IGNORED), (_ADDS, _IGNORED)),
        source="ray-project/ray#58366",
    ),
    Mutant(
        id="dies-midway",
        server=DiesMidway,
        trips=((_READS, _VIOLATED), (_ADDS, _VIOLATED)),
        source="vllm-project/vllm#43031",
    ),
    Mutant(
        id="old-object",
        server=OldObject,
        trips=((_TYPES, _VIOLATED),),
        source="huggingface/text-generation-inference#1682",
    ),
    Mutant(id="finish-is-empty-text", server=FinishIsEmptyText, trips=((_TYPES, _VIOLATED),)),
    Mutant(id="index-as-text", server=IndexAsText, trips=((_READS, _VIOLATED), (_ADDS, _VIOLATED))),
    Mutant(id="sdk-shut-out", server=SdkShutOut, trips=((_READS, _REFUSED), (_ADDS, _REFUSED))),
    Mutant(
        id="flat-error-event", server=FlatErrorEvent, trips=((_RAISES, _VIOLATED),), source="sgl-project/sglang#20027"
    ),
)

# --------------------------------------------------------------------------- harmless


class NestedErrorEvent(FlatErrorEvent):
    """Refuses a streamed request with 200 and an error event in its envelope: the SDK raises for it."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Put the envelope around it."""
        reply = super().error(wrong, request)
        if reply.status != 200:
            return reply
        event = self.error_body(wrong)
        event["error"]["code"] = wrong.status
        return Reply(headers=reply.headers, body=f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode())


class PingsBetween(ReferenceServer):
    """Sends ``: ping`` comments with blank lines between the events."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Put one behind every event."""
        async for frame in super().frames(events):
            yield frame
            yield b": ping\n\n"


class DoneMissing(ReferenceServer):
    """Ends its streams without ``[DONE]``: a fault, but none that this SDK's caller can see."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Leave it out."""
        async for frame in super().frames(events):
            if b"[DONE]" not in frame:
                yield frame


class UsageEverywhere(_Changed):
    """Has a usage object on every chunk, asked for or not."""

    def change(self, event: Event) -> None:
        """Add one."""
        event["usage"] = event.get("usage") or {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


HARMLESS = (
    Harmless(id="nested-error-event", server=NestedErrorEvent, source="ggml-org/llama.cpp#14566"),
    Harmless(id="pings-between", server=PingsBetween, source="theopenco/llmgateway#2334"),
    Harmless(id="done-missing", server=DoneMissing, source="triton-inference-server/triton_distributed#68"),
    Harmless(id="usage-everywhere", server=UsageEverywhere, source="cline/cline#10148"),
    Harmless(id="error-page", server=ErrorPage),
)
