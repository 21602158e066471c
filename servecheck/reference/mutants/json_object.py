"""Servers whose JSON mode is dropped, half applied, or wrapped in something that is not JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.constraint import Choose, Constraint
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant, json_schema
from servecheck.reference.rewriting import Rewriting
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class ModeIgnored(json_schema.SchemaIgnored):
    """Never starts the grammar for this model's parser, so the answer is what the model says anyway."""


class SampledIgnored(json_schema.SampledRowsUnmasked):
    """Applies the mode to greedy requests only."""


class BareIgnored(json_schema.BareIgnored):
    """Reads the mode together with the sampling parameters, and not at all where there are none."""


class StreamsIgnored(ReferenceServer):
    """Applies the mode to whole answers only."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget the mode of a stream."""
        constraint = super().constraint_of(body)
        return None if body.get("stream") else constraint


class Fenced(json_schema.SchemaInFence):
    """Asks the model for JSON in its prompt, so the object comes in a Markdown fence."""


class ThoughtMarkLeaks(json_schema.ThoughtMarkLeaks):
    """Leaves the mark that ends a thought in front of the object."""


class BraceDoubled(json_schema.BraceDoubled):
    """Falls out of step with its drafted tokens: the opening brace comes twice."""


class ArrayAround(Rewriting):
    """Allows any JSON value, and gives an array."""

    def change(self, text: str) -> str:
        """Put it into an array."""
        return f"[{text}]"


class ProseBehind(Rewriting):
    """Does not end the answer where the object ends."""

    def change(self, text: str) -> str:
        """Go on."""
        return f"{text}\n\nI hope that this helps."


class SingleQuotes(Rewriting):
    """Writes what Python prints, which looks like JSON and is not."""

    def change(self, text: str) -> str:
        """Print it."""
        return repr(json.loads(text))


class CutAndStop(json_schema.CutAndStop):
    """Stops in the middle of the object, at a limit of its own, and calls that ``stop``."""


class JsonInReasoning(json_schema.JsonInReasoning):
    """Files the object under reasoning and leaves the content empty."""


class EmptyAnswer(json_schema.EmptyAnswer):
    """Ends before it has begun."""


class ModeRefused(ReferenceServer):
    """Was started without a grammar backend and says so."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if "response_format" in body:
            raise ApiError("response_format is not supported by this server", param="response_format")
        return None


class ModeFails(json_schema.SchemaFails):
    """Fails inside with a 500 and an empty message."""


# --------------------------------------------------------------------------- odd, but right


class _Endless:
    """An object that is longer than any limit."""

    def text(self, choose: Choose, hints: Sequence[str]) -> str:
        """Return a long object."""
        words = [hints[choose(len(hints))] if hints else "sea" for _ in range(400)]
        return json.dumps({f"line {number}": word for number, word in enumerate(words)})


class NeverEnds(ReferenceServer):
    """Fills the object until ``max_tokens`` cuts it, where the prompt does not give a short one away."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Write a long one."""
        constraint = super().constraint_of(body)
        return _Endless() if constraint is not None and "exactly" not in json.dumps(body["messages"]) else constraint


class WhiteSpaceInside(ReferenceServer):
    """Writes line breaks behind the opening brace, as far as the grammar lets it."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Stretch what follows the brace."""
        async for delta in super().deltas(job):
            if job.constraint is not None:
                yield replace(delta, content=delta.content.replace("{", "{\n\n\n   "))
            else:
                yield delta


class SpreadOut(Rewriting):
    """Writes the object over several lines, behind an empty one."""

    def change(self, text: str) -> str:
        """Indent it."""
        return "\n" + json.dumps(json.loads(text), indent=2) + "\n"


_V, _N, _R, _H = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD
_GREEDY, _SAMPLED, _BARE = "json-mode-gives-an-object", "json-mode-holds-when-sampled", "json-mode-alone-is-enough"
_STREAM, _SIMPLE = "json-mode-shapes-a-stream", "json-mode-answer-parses"


def _all(outcome: Outcome) -> tuple[tuple[str, Outcome], ...]:
    return tuple((check, outcome) for check in (_GREEDY, _SAMPLED, _BARE, _STREAM, _SIMPLE))


MUTANTS = (
    Mutant(
        id="mode-ignored",
        server=ModeIgnored,
        trips=((_GREEDY, _N), (_SAMPLED, _N), (_BARE, _N), (_STREAM, _N)),
        source="vllm-project/vllm#52594",
    ),
    Mutant(
        id="sampled-ignored",
        server=SampledIgnored,
        trips=((_GREEDY, _H), (_SAMPLED, _N), (_BARE, _N)),
        source="vllm-project/vllm#19493",
    ),
    Mutant(id="bare-ignored", server=BareIgnored, trips=((_GREEDY, _H), (_SAMPLED, _H), (_BARE, _N))),
    Mutant(id="streams-ignored", server=StreamsIgnored, trips=((_GREEDY, _H), (_STREAM, _N))),
    Mutant(id="fenced", server=Fenced, trips=_all(_V), source="vllm-project/vllm#9900"),
    Mutant(id="thought-mark-leaks", server=ThoughtMarkLeaks, trips=_all(_V), source="sgl-project/sglang#6441"),
    Mutant(id="brace-doubled", server=BraceDoubled, trips=_all(_V), source="vllm-project/vllm#44993"),
    Mutant(id="array-around", server=ArrayAround, trips=_all(_V)),
    Mutant(id="prose-behind", server=ProseBehind, trips=_all(_V)),
    Mutant(id="single-quotes", server=SingleQuotes, trips=_all(_V)),
    Mutant(
        id="cut-and-stop",
        server=CutAndStop,
        trips=((_GREEDY, _V), (_SIMPLE, _V), (_STREAM, _H)),
        source="ikawrakow/ik_llama.cpp#2321",
    ),
    Mutant(
        id="json-in-reasoning",
        server=JsonInReasoning,
        trips=((_GREEDY, _V), (_SAMPLED, _V), (_STREAM, _H)),
        source="vllm-project/vllm#50948",
    ),
    Mutant(id="empty-answer", server=EmptyAnswer, trips=_all(_V)),
    Mutant(id="mode-refused", server=ModeRefused, trips=_all(_R)),
    Mutant(id="mode-fails", server=ModeFails, trips=_all(_V), source="vllm-project/vllm#35438"),
    Mutant(
        id="blanks-without-end",
        server=json_schema.BlanksWithoutEnd,
        trips=(("white-space-comes-to-an-end-in-json-mode", _V),),
        source="vllm-project/vllm#44619",
    ),
)

HARMLESS = (
    Harmless(id="never-ends", server=NeverEnds),
    Harmless(id="white-space-inside", server=WhiteSpaceInside),
    Harmless(id="spread-out", server=SpreadOut),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
