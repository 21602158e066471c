"""Servers whose structured answers the openai SDK's parse() cannot use, and right ones that only look odd."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.constraint import Constraint
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.json_schema import SchemaIgnored, SchemaInFence, ThoughtMarkLeaks
from servecheck.reference.rewriting import Rewriting
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_CHECK = "sdk-parse-gives-an-instance"
_VIOLATED, _REFUSED, _IGNORED = Outcome.VIOLATED, Outcome.REFUSED, Outcome.NO_EFFECT


class WholeButLength(ReferenceServer):
    """Gives the whole object and says ``length``, for which the SDK raises."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Say it."""
        reply = super().completion(job, answers)
        for choice in reply["choices"]:
            if job.constraint is not None:
                choice["finish_reason"] = "length"
        return reply


class RefusalIsSet(ReferenceServer):
    """Fills ``refusal`` in beside the right content, so the SDK parses nothing."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Fill it in."""
        reply = super().completion(job, answers)
        for choice in reply["choices"]:
            choice["message"]["refusal"] = "I cannot help with that."
        return reply


class SchemaRefused(ReferenceServer):
    """Refuses JSON Schemas by name."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if "response_format" in body:
            raise ApiError("response_format is not supported by this server", param="response_format")
        return super().constraint_of(body)


MUTANTS = (
    Mutant(id="schema-ignored", server=SchemaIgnored, trips=((_CHECK, _IGNORED),), source="vllm-project/vllm#52594"),
    Mutant(id="schema-in-fence", server=SchemaInFence, trips=((_CHECK, _VIOLATED),), source="vllm-project/vllm#9900"),
    Mutant(
        id="thought-mark-leaks", server=ThoughtMarkLeaks, trips=((_CHECK, _VIOLATED),), source="sgl-project/sglang#6441"
    ),
    Mutant(id="whole-but-length", server=WholeButLength, trips=((_CHECK, _VIOLATED),)),
    Mutant(id="refusal-is-set", server=RefusalIsSet, trips=((_CHECK, _VIOLATED),)),
    Mutant(id="schema-refused", server=SchemaRefused, trips=((_CHECK, _REFUSED),)),
)


class Spaced(Rewriting):
    """Puts white space around the object, which is JSON still."""

    def change(self, text: str) -> str:
        """Put it there."""
        return f"\n {text}\n\n"


HARMLESS = (Harmless(id="spaced", server=Spaced),)
