"""Servers that mix thinking and answer, and servers that only name the field otherwise or think for long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer, Tally
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.models import Reasoning
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_THINKERS = (Reasoning.name,)


class NoParser(ReferenceServer):
    """Was started without a reasoning parser: tags and thinking are in the content."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**{**config, "reasoning_parser": False})


class TagsInStreamsOnly(ReferenceServer):
    """Splits whole replies, and sends tags and thinking as content in streams."""

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Put the thought back between its tags."""
        made = super().chat_delta(job, delta)
        thought = made.pop("reasoning_content", "")
        return {**made, "content": f"<mm:think>{thought}</mm:think>{made.get('content', '')}"} if thought else made


class ClosingTagStays(ReferenceServer):
    """Leaves the tag that ends a thought in front of the answer."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Put it in front."""
        if answer.reasoning:
            answer.content = f"</think>{answer.content}"
        return super().chat_choice(job, answer)


class ThoughtLostInStreams(ReferenceServer):
    """Sends the thinking of a stream as plain content, without marks."""

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Move it."""
        made = super().chat_delta(job, delta)
        thought = made.pop("reasoning_content", "")
        return {**made, "content": thought + made.get("content", "")} if thought else made


class EverythingIsReasoning(ReferenceServer):
    """Has a parser that waits for a tag which the model never writes: every answer is filed under reasoning."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the content."""
        answer.reasoning, answer.content = answer.reasoning + answer.content, ""
        made = super().chat_choice(job, answer)
        return {**made, "message": {**made["message"], "content": ""}}

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Move the content."""
        made = super().chat_delta(job, delta)
        text = made.pop("reasoning_content", "") + made.pop("content", "")
        return {**made, "reasoning_content": text} if text else made


class SampledAnswersMisfiled(ReferenceServer):
    """Files sampled answers under reasoning, with the end mark still in them, and greedy ones in the content."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the content of a sampled answer."""
        if job.sampling.temperature > 0:
            answer.reasoning, answer.content = f"{answer.reasoning}{answer.content}<|end_of_sentence|>", ""
        return super().chat_choice(job, answer)


class OpeningTagStays(ReferenceServer):
    """Leaves the tag that begins a thought in the reasoning of streams, where it comes together with text."""

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Put it in front of a piece."""
        made = super().chat_delta(job, delta)
        if "reasoning_content" in made:
            made["reasoning_content"] = f"<think>{made['reasoning_content']}"
        return made


class ThoughtAfterAnswer(ReferenceServer):
    """Sends a last piece of the thinking after the answer has begun."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Say it again before the end."""
        thought = ""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                thought = choice["delta"].get("reasoning_content", "") or thought
                if choice["finish_reason"] and thought:
                    late = {**choice, "delta": {"reasoning_content": f"{thought} so"}, "finish_reason": None}
                    yield {**event, "choices": [late]}
            yield event


class StreamsOfThoughtFail(ReferenceServer):
    """Fails in the parser when a thought is streamed."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Fail at the first piece of a thought."""
        async for event in super().chunks(job):
            if any("reasoning_content" in choice["delta"] for choice in event["choices"]):
                raise ApiError("'NoneType' object is not subscriptable", status=500, kind="InternalServerError")
            yield event


class StopsInTheThought(ReferenceServer):
    """Looks for stop strings in all that the model writes; the answer behind a thought that says one is lost."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """End a thought at a stop string."""
        thought = ""
        async for delta in super().deltas(job):
            thought += delta.reasoning
            if any(stop in thought for stop in job.stops):
                yield replace(delta, content="", finish="stop")
                return
            yield delta


class ReasoningUncounted(ReferenceServer):
    """Reports that a thought took no tokens, since its parser counts between marks that the prompt holds."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Say zero."""
        usage = super().usage(job, tally)
        return {**usage, "completion_tokens_details": {"reasoning_tokens": 0}} if job.thinking else usage


class ReasoningOvercounted(ReferenceServer):
    """Reports more reasoning tokens than there are completion tokens, as two gateways in a row do."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Say too many."""
        usage = super().usage(job, tally)
        more = usage["completion_tokens"] + 30
        return {**usage, "completion_tokens_details": {"reasoning_tokens": more}} if job.thinking else usage


class ReasoningNotTold(ReferenceServer):
    """Tells nothing of reasoning tokens, which is optional."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Leave it out."""
        return {**super().usage(job, tally), "completion_tokens_details": None}


# --------------------------------------------------------------------------- odd, but right


class StopRefused(ReferenceServer):
    """Takes no stop string, as some hosts of models that think."""

    def chat_job(self, body: Event) -> Job:
        """Refuse it."""
        if body.get("stop"):
            raise ApiError("stop is not supported with this model", param="stop")
        return super().chat_job(body)


class NamedReasoning(ReferenceServer):
    """Names the field ``reasoning``, as vLLM does."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Rename it."""
        made = super().chat_choice(job, answer)
        message = made["message"]
        return {**made, "message": {**message, "reasoning": message.pop("reasoning_content", None)}}

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Rename it."""
        made = super().chat_delta(job, delta)
        thought = made.pop("reasoning_content", None)
        return made if thought is None else {**made, "reasoning": thought}


class ThoughtInOnePiece(ReferenceServer):
    """Streams the thinking as one piece, when it is over."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Hold the pieces back."""
        held: list[str] = []
        async for event in super().chunks(job):
            delta = event["choices"][0]["delta"] if event["choices"] else {}
            if "reasoning_content" in delta and "content" not in delta and not event["choices"][0]["finish_reason"]:
                held.append(delta["reasoning_content"])
                continue
            if held and event["choices"]:
                thought = {**event["choices"][0], "delta": {"reasoning_content": "".join(held)}, "finish_reason": None}
                yield {**event, "choices": [thought]}
                held = []
            yield event


class ThinksWhenAsked(ReferenceServer):
    """Thinks only where the request asks for it."""

    def thinking_of(self, body: Event) -> bool:
        """Think on demand."""
        return "chat_template_kwargs" in body and super().thinking_of(body)


class BothNames(NamedReasoning):
    """Gives the thinking under both names."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Add the other name."""
        made = super().chat_choice(job, answer)
        return {**made, "message": {**made["message"], "reasoning_content": made["message"]["reasoning"]}}


def _both(server: type[ReferenceServer], name: str, trips: Sequence[tuple[str, Outcome]], source: str = "") -> Mutant:
    return Mutant(id=name, server=server, trips=tuple(trips), source=source, models=_THINKERS)


_V = Outcome.VIOLATED
_APART, _ANSWER = "thinking-is-in-its-own-field", "answer-is-in-the-content"
_CLEAN = "reasoning-and-answer-hold-no-marks"

MUTANTS = (
    Mutant(
        id="stops-in-the-thought",
        server=StopsInTheThought,
        trips=(("stop-string-spares-the-thinking", _V),),
        source="vllm-project/vllm#52393",
        models=_THINKERS,
    ),
    _both(NoParser, "no-parser", [(_APART, _V)], "noonghunna/club-3090#289"),
    _both(TagsInStreamsOnly, "tags-in-streams-only", [(_APART, _V)], "vllm-project/vllm#45687"),
    _both(ClosingTagStays, "closing-tag-stays", [(_APART, _V)], "ai-dynamo/dynamo#11251"),
    _both(ThoughtLostInStreams, "thought-in-content-of-streams", [(_APART, _V)], "waybarrios/vllm-mlx#725"),
    Mutant(
        id="everything-is-reasoning",
        server=EverythingIsReasoning,
        trips=((_ANSWER, _V),),
        source="sgl-project/sglang#37645",
    ),
    _both(
        SampledAnswersMisfiled,
        "sampled-answers-misfiled",
        [(_ANSWER, _V), (_CLEAN, _V)],
        "vllm-project/vllm#48748",
    ),
    _both(OpeningTagStays, "opening-tag-stays", [(_CLEAN, _V)], "vllm-project/vllm#56262"),
    _both(ThoughtAfterAnswer, "thought-after-answer", [("thinking-streams-before-the-answer", _V)]),
    _both(StreamsOfThoughtFail, "streams-of-thought-fail", [(_APART, _V)]),
    Mutant(
        id="reasoning-uncounted",
        server=ReasoningUncounted,
        trips=(("reasoning-tokens-count-the-thinking", _V),),
        source="vllm-project/vllm-ascend#13070",
        models=_THINKERS,
    ),
    Mutant(
        id="reasoning-overcounted",
        server=ReasoningOvercounted,
        trips=(("reasoning-tokens-count-the-thinking", _V),),
        source="BerriAI/litellm#40253",
        models=_THINKERS,
    ),
)

HARMLESS = (
    Harmless(id="stop-refused", server=StopRefused, models=_THINKERS),
    Harmless(id="named-reasoning", server=NamedReasoning, source="vllm-project/vllm#50624", models=_THINKERS),
    Harmless(id="both-names", server=BothNames, models=_THINKERS),
    Harmless(id="thought-in-one-piece", server=ThoughtInOnePiece, models=_THINKERS),
    Harmless(id="thinks-when-asked", server=ThinksWhenAsked, models=_THINKERS),
    Harmless(id="long-thought", server=LongThought, models=_THINKERS),
    Harmless(id="reasoning-not-told", server=ReasoningNotTold, models=_THINKERS),
)
