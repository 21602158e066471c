"""Stop strings that are missed, included, half streamed or honoured in some places only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class StopIgnored(ReferenceServer):
    """Takes ``stop`` and goes on talking."""

    def stops_of(self, body: Event) -> tuple[str, ...]:
        """Forget them."""
        super().stops_of(body)
        return ()


class StopIgnoredInStreams(ReferenceServer):
    """Honours ``stop`` in whole replies and forgets it in streams."""

    def stops_of(self, body: Event) -> tuple[str, ...]:
        """Forget them where a stream was asked for."""
        return () if body.get("stream") else super().stops_of(body)


class StopIgnoredOnCompletions(ReferenceServer):
    """Honours ``stop`` on the chat route only."""

    def stops_of(self, body: Event) -> tuple[str, ...]:
        """Forget them where there are no messages."""
        return super().stops_of(body) if "messages" in body else ()


class StopStringFormIgnored(ReferenceServer):
    """Reads ``stop`` as a list only; a plain string is taken and forgotten."""

    def stops_of(self, body: Event) -> tuple[str, ...]:
        """Forget a string."""
        return () if isinstance(body.get("stop"), str) else super().stops_of(body)


class FirstStopOnly(ReferenceServer):
    """Looks for the first string of the list and forgets the others."""

    def stops_of(self, body: Event) -> tuple[str, ...]:
        """Keep one."""
        return super().stops_of(body)[:1]


class StopAtTokenBoundary(ReferenceServer):
    """Compares the stop string with whole tokens, which begin with their space: “three” is missed, “ three” is not."""

    def stops_of(self, body: Event) -> tuple[str, ...]:
        """Lose what is a single word without a space."""
        return tuple(stop for stop in super().stops_of(body) if not stop.isalpha() or isinstance(body["stop"], str))


class MissesBareWords(ReferenceServer):
    """Compares a stop string that is one token with tokens: a short word without its space is one that never comes.

    Anything longer is looked for as text.
    """

    def stops_of(self, body: Event) -> tuple[str, ...]:
        """Lose the short words."""
        return tuple(stop for stop in super().stops_of(body) if not (stop.isalpha() and self._one_token(stop)))

    @staticmethod
    def _one_token(stop: str) -> bool:
        return len(stop) <= 6 and len(encode(stop)) == 1


class StopIncluded(ReferenceServer):
    """Leaves the stop string at the end of the text, unasked."""

    def chat_job(self, body: Event) -> Job:
        """Include it."""
        return replace(super().chat_job(body), include_stop=True)


class StopPrefixStreamed(ReferenceServer):
    """Streams the first characters of a stop string before it is sure of it; the whole reply is right."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Let out half of the stop string with the finish."""
        async for delta in super().deltas(job):
            if job.stream and isinstance(delta.stop_reason, str):
                yield replace(delta, content=delta.content + delta.stop_reason[: len(delta.stop_reason) // 2 + 1])
            else:
                yield delta


class StopPrefixKept(ReferenceServer):
    """Cuts a whole reply a few characters into the stop string."""

    async def answers(self, job: Job) -> list[Answer]:
        """Leave the stop string's first characters."""
        made = await super().answers(job)
        for answer in made:
            if isinstance(answer.stop_reason, str):
                answer.content += answer.stop_reason[:3]
        return made


class TextOnceMore(ReferenceServer):
    """Sees the stop string only when the word after it has come, and leaves both."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Put the stop string and a word behind the text."""
        async for delta in super().deltas(job):
            said = isinstance(delta.stop_reason, str)
            yield replace(delta, content=f"{delta.content}{delta.stop_reason} boats") if said else delta


class HeldTextLost(ReferenceServer):
    """Throws away with the stop string the text that it had held back while it was looking."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Drop the last delta's text, or the one before where the last has none."""
        held: dict[int, Delta] = {}
        async for delta in super().deltas(job):
            before = held.pop(delta.index, None)
            if delta.finish is None:
                held[delta.index] = delta
            lost = isinstance(delta.stop_reason, str)
            if before is not None:
                yield replace(before, content="") if lost else before
            if delta.finish is not None:
                yield replace(delta, content="") if lost else delta


class StopSaysLength(ReferenceServer):
    """Ends at the stop string and says that the limit was reached."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Change the finish reason."""
        async for delta in super().deltas(job):
            yield replace(delta, finish="length") if isinstance(delta.stop_reason, str) else delta


class StopRefused(ReferenceServer):
    """Refuses ``stop`` by name."""

    def stops_of(self, body: Event) -> tuple[str, ...]:
        """Refuse."""
        if body.get("stop") is not None:
            raise ApiError("stop is not supported by this server", param="stop")
        return ()


# --------------------------------------------------------------------------- odd, but right


class NoStopReason(ReferenceServer):
    """Does not say which stop string it was; ``stop_reason`` is an extension."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Drop the reason."""
        async for delta in super().deltas(job):
            yield replace(delta, stop_reason=None)


class OneCharacterPieces(ReferenceServer):
    """Streams one character at a time, as engines do that hold text back while a stop string could begin."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Break the text of each event up."""
        async for event in super().chunks(job):
            text = event["choices"][0]["delta"].get("content") if event["choices"] else None
            for character in (text or "")[:-1]:
                choice: Any = {**event["choices"][0], "delta": {"content": character}, "finish_reason": None}
                yield {**event, "choices": [choice]}
            if text:
                event["choices"][0]["delta"]["content"] = text[-1]
            yield event


class SpaceBeforeStopTrimmed(ReferenceServer):
    """Takes away the white space before the stop string too."""

    async def answers(self, job: Job) -> list[Answer]:
        """Trim the end."""
        made = await super().answers(job)
        for answer in made:
            if isinstance(answer.stop_reason, str):
                answer.content = answer.content.rstrip()
        return made


_V, _N = Outcome.VIOLATED, Outcome.NO_EFFECT
_ENDS = "stop-string-ends-the-text"

MUTANTS = (
    Mutant(id="stop-ignored", server=StopIgnored, trips=((_ENDS, _N),), source="Blaizzy/mlx-vlm#1044"),
    Mutant(id="stop-ignored-in-streams", server=StopIgnoredInStreams, trips=((_ENDS, _N),), source="QwenLM/Qwen#1038"),
    Mutant(
        id="stop-ignored-on-completions",
        server=StopIgnoredOnCompletions,
        trips=((_ENDS, _N),),
        source="dphnAI/sonar#742",
    ),
    Mutant(id="stop-string-form-ignored", server=StopStringFormIgnored, trips=((_ENDS, _V),)),
    Mutant(id="first-stop-only", server=FirstStopOnly, trips=((_ENDS, _V),)),
    Mutant(id="stop-at-token-boundary", server=StopAtTokenBoundary, trips=((_ENDS, _V),)),
    Mutant(id="misses-bare-words", server=MissesBareWords, trips=((_ENDS, _V),)),
    Mutant(id="stop-included", server=StopIncluded, trips=((_ENDS, _V),), source="vllm-project/vllm#1973"),
    Mutant(
        id="stop-prefix-streamed",
        server=StopPrefixStreamed,
        trips=(("stop-string-is-not-streamed", _V),),
        source="vllm-project/vllm#3574",
    ),
    Mutant(id="stop-prefix-kept", server=StopPrefixKept, trips=((_ENDS, _V),)),
    Mutant(id="text-once-more", server=TextOnceMore, trips=((_ENDS, _V),)),
    Mutant(id="held-text-lost", server=HeldTextLost, trips=((_ENDS, _V),)),
    Mutant(id="stop-says-length", server=StopSaysLength, trips=(("stop-is-the-finish-reason", _V),)),
    Mutant(id="stop-refused", server=StopRefused, trips=((_ENDS, Outcome.REFUSED),), source="smg-project/smg#1524"),
)

HARMLESS = (
    Harmless(id="no-stop-reason", server=NoStopReason),
    Harmless(id="one-character-pieces", server=OneCharacterPieces),
    Harmless(id="space-before-stop-trimmed", server=SpaceBeforeStopTrimmed),
)
