"""Streams of text completions that lose, repeat or change something that the whole reply has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from servecheck.model import Outcome
from servecheck.reference.asgi import Cut, Event, Reply, Request
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_DONE = b"data: [DONE]\n\n"


# --------------------------------------------------------------------------- broken


class StreamFlagDropped(ReferenceServer):
    """Takes ``stream`` and answers with one JSON body."""

    async def reply_completions(self, request: Request) -> Reply:
        """Answer as if no stream had been asked for."""
        body = {**self.body_of(request), "stream": False, "stream_options": None}
        plain = Request(method="POST", path=request.path, headers=request.headers, body=json.dumps(body).encode())
        return await super().reply_completions(plain)


class StreamRefused(ReferenceServer):
    """Refuses to stream on this route."""

    def completions_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("stream"):
            raise ApiError("stream is not supported for text completions", param="stream")
        return super().completions_job(body)


class FirstPieceLost(ReferenceServer):
    """Drops the text of the first event, where a chat stream has its role."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Empty the first event."""
        first = True
        async for event in super().text_chunks(job):
            if first and event["choices"]:
                event["choices"][0]["text"] = ""
            first = False
            yield event


class LastPieceTwice(ReferenceServer):
    """Sends the last words again with the finish."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Remember the last text."""
        last = ""
        async for event in super().text_chunks(job):
            if event["choices"]:
                choice = event["choices"][0]
                if choice["finish_reason"]:
                    choice["text"] += choice["text"] or last
                last = choice["text"]
            yield event


class NoFinishAtAll(ReferenceServer):
    """Never says how the text ended."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Drop the finish."""
        async for event in super().text_chunks(job):
            if event["choices"]:
                event["choices"][0]["finish_reason"] = None
            yield event


class FinishEverywhere(ReferenceServer):
    """Repeats the finish reason on every event."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Put it everywhere."""
        async for event in super().text_chunks(job):
            if event["choices"]:
                event["choices"][0]["finish_reason"] = "length"
            yield event


class NoDone(ReferenceServer):
    """Closes the connection without ``[DONE]``."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Leave the end marker out."""
        async for frame in super().frames(events):
            if frame != _DONE:
                yield frame


class DoneAfterEach(ReferenceServer):
    """Writes ``[DONE]`` after every event."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Repeat the end marker."""
        async for event in events:
            yield self.frame(event) + _DONE


class ChunkObject(ReferenceServer):
    """Calls its events ``chat.completion.chunk``, as on the other route."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Change the object's name."""
        async for event in super().text_chunks(job):
            yield {**event, "object": "chat.completion.chunk"}


class UsageDropped(ReferenceServer):
    """Takes ``include_usage`` and sends none."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Leave the last event out."""
        async for event in super().text_chunks(job):
            if event["choices"]:
                yield event


class UsageOfOneStep(ReferenceServer):
    """Reports the tokens of the last step instead of all."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Count one token."""
        async for event in super().text_chunks(job):
            if event.get("usage"):
                event["usage"]["completion_tokens"] = 1
            yield event


class CutMidway(ReferenceServer):
    """Loses the connection after three events."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Cut."""
        count = 0
        async for frame in super().frames(events):
            count += 1
            if count > 3:
                raise Cut
            yield frame


# --------------------------------------------------------------------------- odd, but right


class CommentsBetween(ReferenceServer):
    """Sends comments between the events."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Put them in."""
        async for frame in super().frames(events):
            yield b": keep-alive\n\n" + frame


class EmptyFinish(ReferenceServer):
    """Sends the finish in an event of its own, without text."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Split the finishing event."""
        async for event in super().text_chunks(job):
            if event["choices"] and event["choices"][0]["finish_reason"] and event["choices"][0]["text"]:
                yield {**event, "choices": [{**event["choices"][0], "finish_reason": None}]}
                event["choices"][0]["text"] = ""
            yield event


class UsageOnEach(ReferenceServer):
    """Puts running totals on every event; the last one counts."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Add usage where there is none."""
        made = 0
        async for event in super().text_chunks(job):
            made += 1
            running = {"prompt_tokens": len(job.prompts[0].ids), "completion_tokens": made}
            yield {**event, "usage": event.get("usage") or running}


_V = Outcome.VIOLATED
_STREAMS, _TEXT = "completion-comes-as-stream", "pieces-join-to-the-completion"
_NAMED, _FINISH = "every-piece-is-a-text-completion", "pieces-end-once"


class _Pieces(ReferenceServer):
    """Changes the events of streamed completions; subclasses say how."""

    def spoil(self, event: Event, place: int) -> None:
        """Change one in place, with its place among them."""
        raise NotImplementedError

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Change them."""
        place = 0
        async for event in super().text_chunks(job):
            self.spoil(event, place)
            yield event
            place += 1


class FreshIds(_Pieces):
    """Gives every event an id of its own."""

    def spoil(self, event: Event, place: int) -> None:
        """Number the ids."""
        event["id"] = f"{event['id']}-{place}"


class ModelChanges(_Pieces):
    """Names the engine's own model from the second event on."""

    def spoil(self, event: Event, place: int) -> None:
        """Rename it."""
        if place:
            event["model"] = "/weights/base"


class IndexMissing(_Pieces):
    """Leaves the index out of the choices."""

    def spoil(self, event: Event, place: int) -> None:  # noqa: ARG002
        """Drop it."""
        for choice in event["choices"]:
            del choice["index"]


class FinishIsEmptyText(_Pieces):
    """Says that nothing has ended by an empty text, where the format has null for it."""

    def spoil(self, event: Event, place: int) -> None:  # noqa: ARG002
        """Empty it."""
        for choice in event["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or ""


MUTANTS = (
    Mutant(id="fresh-ids", server=FreshIds, trips=((_NAMED, _V),), source="BerriAI/litellm#1571"),
    Mutant(id="model-changes", server=ModelChanges, trips=((_NAMED, _V),)),
    Mutant(id="index-missing", server=IndexMissing, trips=((_NAMED, _V),)),
    Mutant(
        id="finish-is-empty-text", server=FinishIsEmptyText, trips=((_FINISH, _V),), source="sgl-project/sglang#2825"
    ),
    Mutant(
        id="stream-flag-dropped",
        server=StreamFlagDropped,
        trips=((_STREAMS, Outcome.NO_EFFECT),),
        source="ray-project/ray#58366",
    ),
    Mutant(id="stream-refused", server=StreamRefused, trips=((_STREAMS, Outcome.REFUSED),)),
    Mutant(id="first-piece-lost", server=FirstPieceLost, trips=((_TEXT, _V),)),
    Mutant(id="last-piece-twice", server=LastPieceTwice, trips=((_TEXT, _V),)),
    Mutant(
        id="no-finish-at-all",
        server=NoFinishAtAll,
        trips=(("pieces-end-once", _V),),
        source="vllm-project/vllm#27572",
    ),
    Mutant(id="finish-everywhere", server=FinishEverywhere, trips=(("pieces-end-once", _V),)),
    Mutant(
        id="no-done",
        server=NoDone,
        trips=(("completion-stream-ends-with-done", _V),),
        source="triton-inference-server/triton_distributed#68",
    ),
    Mutant(
        id="done-after-each",
        server=DoneAfterEach,
        trips=(("completion-stream-ends-with-done", _V),),
        source="vllm-project/vllm#378",
    ),
    Mutant(id="chunk-object", server=ChunkObject, trips=(("every-piece-is-a-text-completion", _V),)),
    Mutant(
        id="usage-dropped",
        server=UsageDropped,
        trips=(("usage-equals-the-whole", Outcome.NO_EFFECT),),
        source="TheTom/vllm-swift#19",
    ),
    Mutant(
        id="usage-of-one-step",
        server=UsageOfOneStep,
        trips=(("usage-equals-the-whole", _V),),
        source="vllm-project/vllm#8625",
    ),
    Mutant(id="cut-midway", server=CutMidway, trips=((_STREAMS, _V),), source="nicolerenee/infra#2078"),
)

HARMLESS = (
    Harmless(id="comments-between", server=CommentsBetween, source="theopenco/llmgateway#2334"),
    Harmless(id="empty-finish", server=EmptyFinish),
    Harmless(id="usage-on-each", server=UsageOnEach, source="cline/cline#10148"),
)
