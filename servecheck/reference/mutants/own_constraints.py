"""Servers that take an expression, choices, a grammar or a tag and do something else, and other engines' dialects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from servecheck.model import Outcome
from servecheck.reference import fields
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import Answer
from servecheck.reference.constraint import Constraint, Derived, Matching
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.rewriting import Rewriting
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_OURS = ("structured_outputs", "regex", "ebnf", "grammar")


def _is_tag(body: Event) -> bool:
    return fields.mapping(body, "response_format").get("type") == "structural_tag"


# --------------------------------------------------------------------------- broken


class AllIgnored(ReferenceServer):
    """Runs on a device whose back end builds no mask: every constraint is taken, and the answer is a story."""

    def constraint_of(self, _: Event) -> Constraint | None:
        """Forget the constraint."""
        return None


class UnknownFieldsIgnored(ReferenceServer):
    """Knows response_format and nothing else; the other fields are taken and dropped."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Read response_format only."""
        return super().constraint_of({key: value for key, value in body.items() if key not in _OURS})


class AllRefused(ReferenceServer):
    """Has a closed request model: a field that it does not know is a 422."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse unknown fields, and the formats that it lacks."""
        if unknown := next((name for name in _OURS if name in body), ""):
            raise ApiError(f"extra field not permitted: {unknown}", status=422, param=unknown)
        if _is_tag(body):
            raise ApiError(
                "response_format type must be one of text, json_object, json_schema", param="response_format"
            )
        return super().constraint_of(body)


class WordsAround(Rewriting):
    """Lets the model speak before the constraint begins and after it ends."""

    def change(self, text: str) -> str:
        """Speak."""
        return f"Sure! {text} And that is all."


class EmptyAnswer(Rewriting):
    """Takes the grammar for finished before it has begun."""

    def change(self, _: str) -> str:
        """Say nothing."""
        return ""


class SampledRowsUnmasked(ReferenceServer):
    """Applies the mask to the greedy rows of a batch only."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget the constraint of a sampled request."""
        constraint = super().constraint_of(body)
        return constraint if body.get("temperature") == 0 else None


class StreamsUnmasked(ReferenceServer):
    """Forgets the constraint when it streams."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget it."""
        constraint = super().constraint_of(body)
        return None if body.get("stream") else constraint


class AnswerInReasoning(ReferenceServer):
    """Files the whole answer under reasoning and leaves the content empty."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the content of a constrained answer."""
        if job.constraint is not None:
            answer.content, answer.reasoning = "", answer.content
        return super().chat_choice(job, answer)


class CutShort(ReferenceServer):
    """Ends a constrained answer some letters early, and calls that ``stop``."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Cut the text."""
        if job.constraint is not None:
            for answer in answers:
                answer.content = answer.content[:-2]
        return super().completion(job, answers)


class CompilerFails(ReferenceServer):
    """Fails inside when it compiles anything but JSON Schema."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Fail."""
        if "structured_outputs" in body or _is_tag(body):
            raise ApiError("Internal server error", status=500, kind="InternalServerError")
        return super().constraint_of(body)


class OnlyGrammars(ReferenceServer):
    """Has grammars under a name of its own, and nothing else: choices can be written as one, expressions cannot."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Read ``grammar``."""
        if "grammar" in body:
            return Derived(fields.text(body, "grammar"))
        if _is_tag(body):
            raise ApiError(
                "response_format type must be one of text, json_object, json_schema", param="response_format"
            )
        return super().constraint_of({key: value for key, value in body.items() if key not in _OURS})


# --------------------------------------------------------------------------- odd, but right


class OtherDialect(ReferenceServer):
    """Calls the fields ``regex`` and ``ebnf``, as another engine does, and drops ``structured_outputs``."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Read the other names."""
        if "regex" in body:
            return Matching(fields.text(body, "regex"))
        if "ebnf" in body:
            return Derived(fields.text(body, "ebnf"))
        return super().constraint_of({key: value for key, value in body.items() if key not in _OURS})


class Padded(Rewriting):
    """Puts a line break behind every constrained answer, where some templates have one."""

    def change(self, text: str) -> str:
        """Add it."""
        return f"{text}\n"


class SlowCompiler(ReferenceServer):
    """Compiles for twenty seconds before it answers."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait before a constrained answer."""
        if "structured_outputs" in self.body_of(request):
            await asyncio.sleep(20)
        return await super().reply_chat(request)


_V, _N, _R, _H = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD
_GREEDY = "constraint-shapes-the-answer"
_SAMPLED, _STREAMED = "constraint-shapes-a-sampled-answer", "constraint-shapes-a-streamed-answer"

MUTANTS = (
    Mutant(id="all-ignored", server=AllIgnored, trips=((_GREEDY, _N),), source="vllm-project/vllm#11855"),
    Mutant(
        id="unknown-fields-ignored",
        server=UnknownFieldsIgnored,
        trips=((_GREEDY, _N), (_GREEDY, _H)),
        source="vllm-project/vllm#53975",
    ),
    Mutant(id="all-refused", server=AllRefused, trips=((_GREEDY, _R),)),
    Mutant(id="words-around", server=WordsAround, trips=((_GREEDY, _V),)),
    Mutant(id="empty-answer", server=EmptyAnswer, trips=((_GREEDY, _V),)),
    Mutant(
        id="sampled-rows-unmasked",
        server=SampledRowsUnmasked,
        trips=((_GREEDY, _H), (_SAMPLED, _N), (_STREAMED, _H)),
        source="vllm-project/vllm#19493",
    ),
    Mutant(
        id="streams-unmasked",
        server=StreamsUnmasked,
        trips=((_GREEDY, _H), (_SAMPLED, _H), (_STREAMED, _N)),
        source="vllm-project/vllm#52594",
    ),
    Mutant(
        id="answer-in-reasoning", server=AnswerInReasoning, trips=((_GREEDY, _V),), source="vllm-project/vllm#50948"
    ),
    Mutant(id="cut-short", server=CutShort, trips=((_GREEDY, _V),), source="ikawrakow/ik_llama.cpp#2321"),
    Mutant(id="compiler-fails", server=CompilerFails, trips=((_GREEDY, _V),), source="vllm-project/vllm#35438"),
    Mutant(id="only-grammars", server=OnlyGrammars, trips=((_GREEDY, _N), (_GREEDY, _H), (_GREEDY, _R))),
)

HARMLESS = (
    Harmless(id="other-dialect", server=OtherDialect),
    Harmless(id="padded", server=Padded),
    Harmless(id="slow-compiler", server=SlowCompiler),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
