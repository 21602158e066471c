"""Servers that forget a schema in streams or on the completions route, or spoil the pieces of what it shaped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.constraint import AnyObject, Constraint
from servecheck.reference.engine import Delta, Job
from servecheck.reference.eventfaults import NoResponses
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import responses_format as shaped
from servecheck.reference.rewriting import Rewriting, Rewritten
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


def _is_completion(body: Event) -> bool:
    return "prompt" in body


# --------------------------------------------------------------------------- broken


class IgnoredInStreams(ReferenceServer):
    """Applies the schema to whole answers only: a streamed one is free."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget the constraint of a streamed request."""
        constraint = super().constraint_of(body)
        return None if body.get("stream") else constraint


class IgnoredOnCompletions(ReferenceServer):
    """Waits for the end of a thought before it applies a schema, and a text completion has none."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget the constraint of a completion."""
        constraint = super().constraint_of(body)
        return None if _is_completion(body) else constraint


class FirstPieceLost(ReferenceServer):
    """Sends the first piece of a constrained answer together with the role, and loses it there."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Lose it."""
        first = True
        async for delta in super().deltas(job):
            if first and delta.content and job.constraint is not None and job.stream:
                first = False
                yield replace(delta, content="")
            else:
                yield delta


class LastPieceLost(ReferenceServer):
    """Ends the stream before the piece that closes the braces."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Hold one piece back, and never send the last."""
        held: Delta | None = None
        async for delta in super().deltas(job):
            if delta.finish is not None and held is not None and job.constraint is not None and job.stream:
                held = replace(held, content="")
            if held is not None:
                yield held
            held = delta
        if held is not None:
            yield held


class BraceTwiceInStreams(Rewriting):
    """Lets drafted tokens and the grammar fall out of step in streams, so that the opening brace comes twice."""

    def concerns(self, body: Event) -> bool:
        """Streams only."""
        return bool(body.get("stream")) or _is_completion(body)

    def change(self, text: str) -> str:
        """Double the first sign."""
        return text[0] + text


class ThoughtMarkInStreams(Rewriting):
    """Lets the mark that ends a thought through to the content of streams, and in front of every completion."""

    def concerns(self, body: Event) -> bool:
        """Streams and completions."""
        return bool(body.get("stream")) or _is_completion(body)

    def change(self, text: str) -> str:
        """Put the mark in front."""
        return f"</think>\n\n{text}"


class FencedOffTheBeatenTrack(ReferenceServer):
    """Has a grammar for whole chat answers only, and asks for JSON in the prompt elsewhere: it comes in a fence."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Let the model write any object, in a fence."""
        constraint = super().constraint_of(body)
        if constraint is None or not (body.get("stream") or _is_completion(body)):
            return constraint
        return Rewritten(AnyObject(), lambda text: f"```json\n{text}\n```")


class StreamRefused(ReferenceServer):
    """Says that a schema and a stream do not go together."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if "response_format" in body and body.get("stream"):
            raise ApiError("response_format is not supported with stream", param="response_format")
        return super().constraint_of(body)


class CompletionRefused(ReferenceServer):
    """Takes response_format on the chat route only, and says so."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if "response_format" in body and _is_completion(body):
            raise ApiError("response_format is not a field of completions", status=422, param="response_format")
        return super().constraint_of(body)


class EmptyCompletion(Rewriting):
    """Ends a constrained completion before it has begun."""

    def concerns(self, body: Event) -> bool:
        """Completions only."""
        return _is_completion(body)

    def change(self, _: str) -> str:
        """Say nothing."""
        return ""


class FencedOnResponses(ReferenceServer):
    """Asks for JSON in the prompt of a response, which comes in a fence and is not the schema's."""

    def response_format(self, body: Event) -> Event:
        """Mark the format."""
        made = super().response_format(body)
        return {**made, "of_a_response": True} if made else made

    def constraint_of(self, body: Event) -> Constraint | None:
        """Let the model write any object, in a fence."""
        constraint = super().constraint_of(body)
        if constraint is None or not body.get("of_a_response"):
            return constraint
        return Rewritten(AnyObject(), lambda text: f"```json\n{text}\n```")


class BlanksWithoutEnd(Rewriting):
    """Lets white space through without bound, so that a model writes nothing else until it is cut."""

    def change(self, text: str) -> str:
        """Never come to the first key."""
        return text[:1] + "\n  " * 3000 + text[1:]


# --------------------------------------------------------------------------- odd, but right


class SpreadOut(Rewriting):
    """Writes the JSON over several lines, which comes in pieces of white space."""

    def change(self, text: str) -> str:
        """Indent it."""
        return json.dumps(json.loads(text), indent=4)


class EmptyPieces(ReferenceServer):
    """Sends a piece without text between any two pieces."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Put empty ones between."""
        async for event in super().chunks(job):
            choices = event["choices"]
            if choices and choices[0]["finish_reason"] is None:
                yield {**event, "choices": [{**choices[0], "delta": {"content": ""}}]}
            yield event


class Comments(ReferenceServer):
    """Sends a comment before every event, so that proxies do not give up."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Comment."""
        async for frame in super().frames(events):
            yield b": ping\n\n" + frame


class SlowCompiler(ReferenceServer):
    """Compiles a grammar for ten seconds before the stream begins to speak."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Wait first."""
        if job.constraint is not None:
            await asyncio.sleep(10)
        async for delta in super().deltas(job):
            yield delta


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_STREAMED, _COMPLETED = "schema-shapes-a-streamed-answer", "schema-shapes-a-completion"
_RESPONDED = "schema-shapes-a-response"


def _both(outcome: Outcome) -> tuple[tuple[str, Outcome], ...]:
    return ((_STREAMED, outcome), (_COMPLETED, outcome))


MUTANTS = (
    Mutant(id="ignored-in-streams", server=IgnoredInStreams, trips=_both(_N), source="vllm-project/vllm#9900"),
    Mutant(
        id="ignored-on-completions",
        server=IgnoredOnCompletions,
        trips=((_STREAMED, Outcome.HELD), (_COMPLETED, _N)),
        source="vllm-project/vllm#52594",
    ),
    Mutant(id="first-piece-lost", server=FirstPieceLost, trips=_both(_V)),
    Mutant(id="last-piece-lost", server=LastPieceLost, trips=_both(_V), source="vllm-project/vllm#15274"),
    Mutant(id="brace-twice-in-streams", server=BraceTwiceInStreams, trips=_both(_V), source="vllm-project/vllm#44993"),
    Mutant(
        id="thought-mark-in-streams", server=ThoughtMarkInStreams, trips=_both(_V), source="sgl-project/sglang#6441"
    ),
    Mutant(
        id="fenced-off-the-beaten-track",
        server=FencedOffTheBeatenTrack,
        trips=_both(_V),
        source="vllm-project/vllm#9900",
    ),
    Mutant(id="stream-refused", server=StreamRefused, trips=_both(_R)),
    Mutant(id="completion-refused", server=CompletionRefused, trips=((_STREAMED, Outcome.HELD), (_COMPLETED, _R))),
    Mutant(id="empty-completion", server=EmptyCompletion, trips=((_COMPLETED, _V),)),
    Mutant(id="no-responses", server=NoResponses, trips=((_RESPONDED, _R), (_STREAMED, Outcome.HELD))),
    Mutant(id="format-dropped", server=shaped.FormatDropped, trips=((_RESPONDED, _N),), source="BerriAI/litellm#15995"),
    Mutant(id="format-refused", server=shaped.FormatRefused, trips=((_RESPONDED, _R),)),
    Mutant(id="fenced-on-responses", server=FencedOnResponses, trips=((_RESPONDED, _V),)),
    Mutant(
        id="blanks-without-end",
        server=BlanksWithoutEnd,
        trips=(("white-space-comes-to-an-end-on-other-routes", _V),),
        source="vllm-project/vllm#38696",
    ),
)

HARMLESS = (
    Harmless(id="spread-out", server=SpreadOut),
    Harmless(id="empty-pieces", server=EmptyPieces),
    Harmless(id="comments", server=Comments, source="theopenco/llmgateway#2334"),
    Harmless(id="slow-compiler", server=SlowCompiler),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
