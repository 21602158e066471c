"""Streams that are framed wrongly, and streams that only look odd; what the text says is never touched here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from servecheck.model import Outcome
from servecheck.reference.asgi import Cut, Event, Reply, Request
from servecheck.reference.base import Tally
from servecheck.reference.engine import Job, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_DONE = b"data: [DONE]\n\n"


def _finish(event: Event) -> str | None:
    """Return the finish reason of an event; ``None`` where it finishes nothing."""
    reason: str | None = event["choices"][0]["finish_reason"] if event["choices"] else None
    return reason


# --------------------------------------------------------------------------- broken


class DoneMissing(ReferenceServer):
    """Closes the connection cleanly after the last event, without ``[DONE]``."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Frame all but the end marker."""
        async for event in events:
            yield self.frame(event)


class DoneAfterEveryEvent(ReferenceServer):
    """Writes ``[DONE]`` after every event, so that a client which stops at the first one loses the rest."""

    def frame(self, event: Event) -> bytes:
        """Frame an event as if it were the last."""
        return super().frame(event) + _DONE


class DoneTwice(ReferenceServer):
    """Ends the stream with two end markers, as an engine and a gateway that both write one."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Add a second end marker."""
        async for frame in super().frames(events):
            yield frame
        yield _DONE


class UsageAfterDone(ReferenceServer):
    """Sends an event of statistics after ``[DONE]``."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Add an event behind the end marker."""
        async for frame in super().frames(events):
            yield frame
        yield self.frame({"object": "chat.completion.chunk", "choices": [], "usage": {"total_tokens": 1}})


class FinishNeverSet(ReferenceServer):
    """Ends with ``[DONE]`` although no chunk said why the answer ended."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Take away every finish reason."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                choice["finish_reason"] = None
            yield event


class FinishLostWithLogprobs(ReferenceServer):
    """Loses the finish reason when the request asks for logprobs as well as a stream, as one gateway did."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Take away the finish reason where logprobs travel."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                choice["finish_reason"] = None if job.logprobs is not None else choice["finish_reason"]
            yield event


class FinishOnEveryChunk(ReferenceServer):
    """Says ``stop`` on every chunk that holds text."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Finish over and over."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                choice["finish_reason"] = "stop"
            yield event


class FinishTwice(ReferenceServer):
    """Sends the finishing chunk twice, with the same reason."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Repeat the finishing chunk."""
        async for event in super().chunks(job):
            yield event
            if _finish(event):
                yield {**event, "choices": [{**event["choices"][0], "delta": {}}]}


class TextAfterFinish(ReferenceServer):
    """Says that the answer is finished and then goes on with its last words."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Send more text behind the finishing chunk."""
        async for event in super().chunks(job):
            yield event
            if _finish(event):
                choice = {**event["choices"][0], "delta": {"content": " and so on"}, "finish_reason": None}
                yield {**event, "choices": [choice]}


class UsageBeforeFinish(ReferenceServer):
    """Sends the usage event before the finishing chunk, so that it cannot be the whole bill's last word."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Bill first, finish afterwards."""
        async for event in super().chunks(job):
            if _finish(event) and job.include_usage:
                yield {
                    **event,
                    "choices": [],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
                }
            if event["choices"]:
                yield event


class IdPerChoice(ReferenceServer):
    """Gives every choice of a stream an id of its own, as SGLang does."""

    def chunk(self, job: Job, index: int, delta: Event, tally: Tally, finish: str | None = None) -> Event:
        """Write the choice's index into the id."""
        event = super().chunk(job, index, delta, tally, finish)
        return {**event, "id": f"{event['id']}-{index}"}


class FreshIds(ReferenceServer):
    """Gives every chunk of one answer an id of its own, so that chunks cannot be told together."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Make up ids."""
        async for event in super().chunks(job):
            yield {**event, "id": self.new_id("chatcmpl-")}


class CreatedMoves(ReferenceServer):
    """Stamps every chunk with a later time of creation."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Count ``created`` up."""
        later = 0
        async for event in super().chunks(job):
            later += 1
            yield {**event, "created": event["created"] + later}


class ModelChanges(ReferenceServer):
    """Names the engine's own model in the first chunk and the served name in the others."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Rename the model once."""
        first = True
        async for event in super().chunks(job):
            yield {**event, "model": "/weights/base"} if first else event
            first = False


class RoleOnEveryChunk(ReferenceServer):
    """Repeats the assistant's role in every delta; a client that joins strings reads ``assistantassistant``."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Put the role everywhere."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                choice["delta"] = {"role": "assistant", **choice["delta"]}
            yield event


class RoleMissing(ReferenceServer):
    """Never says whose turn it is: clients that build the message from the first delta lose it."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Drop the role."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                choice["delta"].pop("role", None)
            yield event


class RoleLast(ReferenceServer):
    """Tells the role in the finishing chunk, after all the text."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Move the role to the end."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                choice["delta"].pop("role", None)
                if choice["finish_reason"]:
                    choice["delta"]["role"] = "assistant"
            yield event


class DiesMidway(ReferenceServer):
    """Fails inside after a few tokens: an error event, and the connection breaks."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Send three events, then an error, then cut."""
        sent = 0
        async for event in events:
            yield self.frame(event)
            sent += 1
            if sent == 3:
                yield self.frame(self.error_body(ApiError("internal error", status=500, kind="InternalServerError")))
                raise Cut


class CutMidEvent(ReferenceServer):
    """Loses the connection in the middle of an event, as behind a proxy with a time limit."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Send half of the fourth event."""
        sent = 0
        async for event in events:
            frame = self.frame(event)
            sent += 1
            if sent == 4:
                yield frame[: len(frame) // 2]
                raise Cut
            yield frame


class ErrorThenDone(ReferenceServer):
    """Answers 200 with an error event after the first chunk and ends as if all were well."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Fail behind the first chunk."""
        async for event in super().chunks(job):
            yield event
            raise ApiError("the engine could not go on", status=500, kind="InternalServerError")


class ErrorInsteadOfStream(ReferenceServer):
    """Answers 200 with an error object as the only event, where it should have refused with a 4xx."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Send an error and nothing else."""
        yield self.error_body(ApiError(f"request {job.id} is too long for the context"))


class StreamIgnored(ReferenceServer):
    """Accepts ``stream: true`` and answers with one JSON body."""

    async def reply_chat(self, request: Request) -> Reply:
        """Answer as if no stream had been asked for."""
        body = {**self.body_of(request), "stream": False, "stream_options": None}
        plain = Request(method="POST", path=request.path, headers=request.headers, body=json.dumps(body).encode())
        return await super().reply_chat(plain)


class PythonInEvents(ReferenceServer):
    """Writes events as Python shows a dictionary, with single quotes and ``None``."""

    def frame(self, event: Event) -> bytes:
        """Write the event's ``repr``."""
        return f"data: {event!r}\n\n".encode()


class HalfEvents(ReferenceServer):
    """Breaks every event's JSON in two and sends the halves as two events."""

    def frame(self, event: Event) -> bytes:
        """Put an event border into the middle."""
        text = super().frame(event)
        half = len(text) // 2
        return text[:half] + b"\n\ndata: " + text[half:]


class WrongContentType(ReferenceServer):
    """Streams events under the content type of plain JSON, so browsers and proxies hold them back."""

    def stream_reply(self, frames: AsyncIterator[bytes]) -> Reply:
        """Change the header."""
        return Reply(headers=(("content-type", "application/json"),), body=frames)


class StreamDenied(ReferenceServer):
    """A proxy in front answers a stream with 403 and plain text, since it waits for a whole reply too long."""

    async def reply_chat(self, request: Request) -> Reply:
        """Answer as a proxy where a stream is asked for."""
        if not self.body_of(request).get("stream"):
            return await super().reply_chat(request)
        text = b"upstream connect error or disconnect/reset before headers"
        return Reply(status=403, headers=(("content-type", "text/plain"),), body=text)


class StreamWithToolsFails(ReferenceServer):
    """Turns what the engine says of a stream with tools into a 500 of its own."""

    async def reply_chat(self, request: Request) -> Reply:
        """Fail where a stream with tools is asked for."""
        body = self.body_of(request)
        if body.get("stream") and body.get("tools"):
            raise ApiError("error in the wrapped model", status=500, kind="InternalServerError")
        return await super().reply_chat(request)


class LogprobNotANumber(ReferenceServer):
    """Writes an alternative's log probability as ``NaN``, which is not JSON."""

    def logprob_entry(self, step: Step) -> Event:
        """Add an alternative that JSON cannot hold."""
        made = super().logprob_entry(step)
        made["top_logprobs"].append({"token": "", "logprob": float("nan"), "bytes": None})
        return made


class EmptyDataEvents(ReferenceServer):
    """Keeps slow streams alive with events of an empty data line, where the format has comments for it."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Put an event with an empty text between the others."""
        async for frame in super().frames(events):
            yield frame
            if not frame.startswith(_DONE):
                yield b"data:\n\n"


class FinishLeftOut(ReferenceServer):
    """Leaves finish_reason out of a chunk that ends nothing, so that readers who wait for null never see it."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Drop what is null."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                if choice["finish_reason"] is None:
                    del choice["finish_reason"]
            yield event


class IndexMissing(ReferenceServer):
    """Leaves the index out of every choice, since there is only one."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Drop the index where one choice was asked for."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                if job.n == 1:
                    del choice["index"]
            yield event


class IndexCountsTokens(ReferenceServer):
    """Gives as the index of the choice how many pieces came before this one."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Count up."""
        place = 0
        async for event in super().chunks(job):
            for choice in event["choices"]:
                choice["index"] = place
                place += 1
            yield event


class RoleIsNull(ReferenceServer):
    """Opens every choice with the role ``null``."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Take away the role's name."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                if "role" in choice["delta"]:
                    choice["delta"]["role"] = None
            yield event


class RoleIsModel(ReferenceServer):
    """Calls the assistant ``model``, as another vendor's API does."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Rename the role."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                if "role" in choice["delta"]:
                    choice["delta"]["role"] = "model"
            yield event


class WholeObjectName(ReferenceServer):
    """Calls its chunks ``chat.completion``, as if each were a whole answer."""

    def envelope(self, job: Job) -> Event:
        """Change the object's name."""
        return {**super().envelope(job), "object": "chat.completion"}


class WholeTextBesideTools(ReferenceServer):
    """Holds a text back until it is whole where tools are offered, since it might become a call."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Gather the text."""
        text = ""
        async for event in super().chunks(job):
            choice = event["choices"][0] if event["choices"] else None
            if not job.tools or choice is None or "role" in choice["delta"]:
                yield event
                continue
            text += choice["delta"].pop("content", "")
            if choice["finish_reason"] is not None or choice["delta"]:
                yield {**event, "choices": [{**choice, "delta": {**choice["delta"], "content": text}}]}
                text = ""


# --------------------------------------------------------------------------- odd, but right


class PingComments(ReferenceServer):
    """Sends ``: ping`` comments between events; the format allows them anywhere."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Put comments between the events."""
        yield b": ping\n\n"
        async for frame in super().frames(events):
            yield frame + (b"" if frame == _DONE else b": ping\n\n")


class TextInFinishingChunk(ReferenceServer):
    """Sends the last words together with the finish reason; the chunk counts like any other."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Hold one chunk of each choice back and join the finishing one with it."""
        held: dict[int, Event] = {}
        async for event in super().chunks(job):
            if not event["choices"]:
                yield event
                continue
            index, reason = event["choices"][0]["index"], _finish(event)
            before = held.pop(index, None)
            if reason and before and not event["choices"][0]["delta"]:
                event["choices"][0]["delta"] = before["choices"][0]["delta"]
            elif before:
                yield before
            if reason:
                yield event
            else:
                held[index] = event


class EmptyDeltas(ReferenceServer):
    """Sends a chunk with an empty delta now and then, as engines do when a token makes no visible text."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Put an empty chunk before each finishing one."""
        async for event in super().chunks(job):
            if _finish(event):
                yield {**event, "choices": [{**event["choices"][0], "delta": {}, "finish_reason": None}]}
            yield event


class CarriageReturns(ReferenceServer):
    """Ends lines with CR LF, which the event stream format allows."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Change the line ends."""
        async for frame in super().frames(events):
            yield frame.replace(b"\n", b"\r\n")


class TightFields(ReferenceServer):
    """Writes ``data:`` without a space, and names events and ids; all three are legal."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Dress the events differently."""
        number = 0
        async for frame in super().frames(events):
            number += 1
            yield f"event: message\nid: {number}\n".encode() + frame.replace(b"data: ", b"data:", 1)


class ExtraFields(ReferenceServer):
    """Adds fields that the specification does not know to every event."""

    def envelope(self, job: Job) -> Event:
        """Add fields."""
        return {**super().envelope(job), "provider": "somebody", "timings": {"predicted_ms": 1.5}}


class UsageOnEveryChunk(ReferenceServer):
    """Puts running totals on every chunk without being asked; odd, and documented behaviour of some engines."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Add usage where there is none."""
        async for event in super().chunks(job):
            yield {**event, "usage": event.get("usage") or {"prompt_tokens": 9, "completion_tokens": 1}}


class SmallPieces(ReferenceServer):
    """Sends the stream in pieces of seven bytes, so that no piece is an event and characters are split."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Cut the bytes elsewhere."""
        async for frame in super().frames(events):
            for start in range(0, len(frame), 7):
                yield frame[start : start + 7]


class RoleWithToolsOnly(ReferenceServer):
    """Says the role where tools are offered and leaves it out of plain text, where nobody builds on it."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Drop the role of plain answers."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                if not job.tools:
                    choice["delta"].pop("role", None)
            yield event


class NamedHeartbeats(ReferenceServer):
    """Sends events with a name and no data between the others; a client dispatches none of them."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Put a heartbeat before every event."""
        async for frame in super().frames(events):
            yield b"event: ping\n\n"
            yield frame


class RoleWithText(ReferenceServer):
    """Gives the role together with the first words instead of in a chunk of its own."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Join the role chunk with the one after it."""
        waiting: set[int] = set()
        async for event in super().chunks(job):
            for choice in event["choices"]:
                if "role" in choice["delta"]:
                    waiting.add(choice["index"])
                elif choice["index"] in waiting:
                    waiting.discard(choice["index"])
                    choice["delta"] = {"role": "assistant", **choice["delta"]}
            if not event["choices"] or event["choices"][0]["index"] not in waiting:
                yield event


class BareContentType(ReferenceServer):
    """Writes the content type in capitals and without a character set; media types are not case-sensitive."""

    def stream_reply(self, frames: AsyncIterator[bytes]) -> Reply:
        """Change the header's spelling."""
        return Reply(headers=(("content-type", "Text/Event-Stream"),), body=frames)


class SlowStart(ReferenceServer):
    """Sends its headers only after twenty seconds, as during a first compilation."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait before answering."""
        await asyncio.sleep(20)
        return await super().reply_chat(request)


class EmptyChoicesFirst(ReferenceServer):
    """Begins with a chunk that has no choices, no model and an empty id, where a filter reports on the prompt."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Send the report first."""
        report = [{"prompt_index": 0, "content_filter_results": {}}]
        yield {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": report}
        async for event in super().chunks(job):
            yield event


class ToolsRefused(ReferenceServer):
    """Was started without a tool parser and refuses tools, streamed or not; that belongs to the rows of tools."""

    def chat_job(self, body: Event) -> Job:
        """Refuse tools."""
        if body.get("tools"):
            raise ApiError('"auto" tool choice requires a tool parser', param="tool_choice")
        return super().chat_job(body)


class NullFields(ReferenceServer):
    """Writes every field that it could have, as null, and leaves logprobs null although they were asked for."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Add nulls."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                nothing = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None}
                choice["delta"] = {**nothing, **choice["delta"]}
                choice["logprobs"], choice["matched_stop"] = None, None
            yield {"usage": None, **event}


class LengthFinish(ReferenceServer):
    """Ends every answer after eight tokens with ``length``, a finish reason as good as any."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Lower the limit."""
        return min(8, super().limit_of(body, room, default, low))


_V = Outcome.VIOLATED

MUTANTS = (
    Mutant(
        id="done-missing",
        server=DoneMissing,
        trips=(("stream-ends-with-done", _V),),
        source="triton-inference-server/triton_distributed#68",
    ),
    Mutant(
        id="done-after-every-event",
        server=DoneAfterEveryEvent,
        trips=(("done-comes-once", _V), ("nothing-follows-done", _V)),
        source="vllm-project/vllm#378",
    ),
    Mutant(id="done-twice", server=DoneTwice, trips=(("done-comes-once", _V),), source="vllm-project/vllm#378"),
    Mutant(id="usage-after-done", server=UsageAfterDone, trips=(("nothing-follows-done", _V),)),
    Mutant(
        id="finish-never-set",
        server=FinishNeverSet,
        trips=(("one-finish-per-choice", _V),),
        source="vllm-project/vllm#27572",
    ),
    Mutant(
        id="finish-lost-with-logprobs",
        server=FinishLostWithLogprobs,
        trips=(("one-finish-per-choice", _V),),
        source="BerriAI/litellm#10686",
    ),
    Mutant(id="finish-on-every-chunk", server=FinishOnEveryChunk, trips=(("one-finish-per-choice", _V),)),
    Mutant(id="finish-twice", server=FinishTwice, trips=(("one-finish-per-choice", _V),)),
    Mutant(id="text-after-finish", server=TextAfterFinish, trips=(("finish-then-only-usage", _V),)),
    Mutant(id="usage-before-finish", server=UsageBeforeFinish, trips=(("finish-then-only-usage", _V),)),
    Mutant(id="id-per-choice", server=IdPerChoice, trips=(("choices-share-the-id", _V),)),
    Mutant(id="fresh-ids", server=FreshIds, trips=(("id-is-constant", _V),), source="BerriAI/litellm#1571"),
    Mutant(
        id="created-moves", server=CreatedMoves, trips=(("created-is-constant", _V),), source="BerriAI/litellm#1571"
    ),
    Mutant(id="model-changes", server=ModelChanges, trips=(("model-is-constant", _V),)),
    Mutant(
        id="role-on-every-chunk",
        server=RoleOnEveryChunk,
        trips=(("role-comes-once-first", _V),),
        source="ollama/ollama#17166",
    ),
    Mutant(id="role-missing", server=RoleMissing, trips=(("role-is-given", _V),), source="tensorzero/tensorzero#1265"),
    Mutant(id="role-last", server=RoleLast, trips=(("role-comes-once-first", _V),)),
    Mutant(
        id="dies-midway",
        server=DiesMidway,
        trips=(("no-error-event", _V), ("stream-is-not-cut", _V)),
        source="vllm-project/vllm#43031",
    ),
    Mutant(
        id="cut-mid-event",
        server=CutMidEvent,
        trips=(("stream-is-not-cut", _V),),
        source="nicolerenee/infra#2078",
    ),
    Mutant(
        id="error-then-done",
        server=ErrorThenDone,
        trips=(("no-error-event", _V),),
        source="vllm-project/vllm#43031",
    ),
    Mutant(
        id="error-instead-of-stream",
        server=ErrorInsteadOfStream,
        trips=(("no-error-event", _V),),
        source="ggml-org/llama.cpp#14566",
    ),
    Mutant(
        id="stream-ignored",
        server=StreamIgnored,
        trips=(("answers-as-stream", Outcome.NO_EFFECT),),
        source="ray-project/ray#58366",
    ),
    Mutant(
        id="python-in-events",
        server=PythonInEvents,
        trips=(("events-are-json", _V),),
        source="vllm-project/vllm#57997",
    ),
    Mutant(
        id="logprob-not-a-number",
        server=LogprobNotANumber,
        trips=(("events-are-json", _V),),
        source="sgl-project/sglang#5984",
    ),
    Mutant(
        id="stream-denied",
        server=StreamDenied,
        trips=(("answers-as-stream", Outcome.REFUSED),),
        source="gpustack/gpustack#4725",
    ),
    Mutant(
        id="stream-with-tools-fails",
        server=StreamWithToolsFails,
        trips=(("answers-as-stream", _V),),
        source="kserve/kserve#3886",
    ),
    Mutant(
        id="empty-data-events",
        server=EmptyDataEvents,
        trips=(("events-are-json", _V),),
        source="theopenco/llmgateway#2334",
    ),
    Mutant(
        id="finish-left-out",
        server=FinishLeftOut,
        trips=(("finish-reason-is-null-until-the-end", _V),),
        source="vllm-project/vllm#19650",
    ),
    Mutant(
        id="index-missing",
        server=IndexMissing,
        trips=(("choices-have-an-index", _V),),
        source="AmanCode22/deeperseeker#8",
    ),
    Mutant(
        id="index-counts-tokens",
        server=IndexCountsTokens,
        trips=(("one-finish-per-choice", _V),),
        source="huggingface/text-generation-inference#1648",
    ),
    Mutant(id="role-is-null", server=RoleIsNull, trips=(("role-is-given", _V),)),
    Mutant(id="role-is-model", server=RoleIsModel, trips=(("role-is-given", _V),)),
    Mutant(id="half-events", server=HalfEvents, trips=(("events-are-json", _V),)),
    Mutant(id="wrong-content-type", server=WrongContentType, trips=(("stream-is-event-stream", _V),)),
    Mutant(id="whole-object-name", server=WholeObjectName, trips=(("chunk-object-is-named", _V),)),
    Mutant(
        id="whole-text-beside-tools",
        server=WholeTextBesideTools,
        trips=(("tools-leave-the-text-in-pieces", _V),),
        source="ollama/ollama#9084",
        models=("obedient", "babbling", "declining"),  # a thought takes all the room
    ),
)

HARMLESS = (
    Harmless(id="ping-comments", server=PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="text-in-finishing-chunk", server=TextInFinishingChunk, source="vllm-project/vllm#35705"),
    Harmless(id="empty-deltas", server=EmptyDeltas),
    Harmless(id="carriage-returns", server=CarriageReturns),
    Harmless(id="tight-fields", server=TightFields),
    Harmless(id="extra-fields", server=ExtraFields),
    Harmless(id="usage-on-every-chunk", server=UsageOnEveryChunk, source="cline/cline#10148"),
    Harmless(id="small-pieces", server=SmallPieces),
    Harmless(id="role-with-text", server=RoleWithText),
    Harmless(id="role-with-tools-only", server=RoleWithToolsOnly),
    Harmless(id="named-heartbeats", server=NamedHeartbeats),
    Harmless(id="bare-content-type", server=BareContentType),
    Harmless(id="slow-start", server=SlowStart),
    Harmless(id="length-finish", server=LengthFinish),
    Harmless(id="empty-choices-first", server=EmptyChoicesFirst),
    Harmless(id="tools-refused", server=ToolsRefused),
    Harmless(id="null-fields", server=NullFields),
)
