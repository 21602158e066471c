"""Servers whose grammar begins too early, never or in the wrong field, and servers that only think for long."""

from __future__ import annotations

from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.constraint import AnyObject, Constraint
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.models import Reasoning
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_THINKERS = (Reasoning.name,)


class GrammarNeverBegins(ReferenceServer):
    """Never starts the grammar where a thought comes first."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget it."""
        super().constraint_of(body)
        return None


class JsonModeNeverBegins(ReferenceServer):
    """Starts the grammar of a schema, and never that of JSON mode."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget JSON mode."""
        constraint = super().constraint_of(body)
        return None if isinstance(constraint, AnyObject) else constraint


class TagBeforeJson(ReferenceServer):
    """Leaves the tag that ends a thought in front of the JSON."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Put it in front."""
        if job.constraint is not None:
            answer.content = f"</think>{answer.content}"
        return super().chat_choice(job, answer)


class JsonIsTheThought(ReferenceServer):
    """Starts the grammar inside the thought, so that the JSON is filed under reasoning."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the JSON."""
        if job.constraint is not None:
            answer.reasoning, answer.content = answer.content.strip(), ""
        return super().chat_choice(job, answer)


class WrongParser(ReferenceServer):
    """Waits for a tag that the model never writes: no grammar begins, and every answer is filed under reasoning."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Never begin."""
        super().constraint_of(body)
        return None

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the content."""
        answer.reasoning, answer.content = answer.reasoning + answer.content, ""
        return super().chat_choice(job, answer)


class SchemaTurnsThinkingOff(ReferenceServer):
    """Starts the grammar at the first token, so that there is no thought."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Drop it."""
        if job.constraint is not None:
            answer.reasoning = ""
        return super().chat_choice(job, answer)


class SchemaRefusedWithThinking(ReferenceServer):
    """Refuses a schema for a model that thinks."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if "response_format" in body:
            raise ApiError("structured output is not available while thinking is on", param="response_format")
        return super().constraint_of(body)


class JsonIsReasoningWithoutThinking(ReferenceServer):
    """Files the answer under reasoning where thinking is off, since the tag that would end a thought never comes."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the answer."""
        choice = super().chat_choice(job, answer)
        if job.constraint is not None and not job.thinking:
            choice["message"].update({"reasoning_content": choice["message"]["content"], "content": None})
        return choice


class NoGrammarWithoutThinking(ReferenceServer):
    """Waits for the end of a thought before it begins a grammar, also where thinking is off."""

    def chat_job(self, body: Event) -> Job:
        """Forget the constraint."""
        job = super().chat_job(body)
        return job if job.thinking else replace(job, constraint=None)


class SwitchRefused(ReferenceServer):
    """Refuses to switch thinking off, which another row is about."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if (body.get("chat_template_kwargs") or {}).get("enable_thinking") is False:
            raise ApiError("chat_template_kwargs is not supported", param="chat_template_kwargs")
        return super().chat_job(body)


_V = Outcome.VIOLATED
_SCHEMA, _OBJECT = "schema-shapes-the-answer-after-thinking", "json-mode-shapes-the-answer-after-thinking"

_OFF = "schema-shapes-the-answer-without-thinking"

MUTANTS = (
    Mutant(
        id="grammar-never-begins",
        server=GrammarNeverBegins,
        trips=((_SCHEMA, Outcome.NO_EFFECT), (_OBJECT, Outcome.NO_EFFECT)),
        source="vllm-project/vllm#52594",
        models=_THINKERS,
    ),
    Mutant(
        id="json-mode-never-begins",
        server=JsonModeNeverBegins,
        trips=((_OBJECT, Outcome.NO_EFFECT),),
        source="vllm-project/vllm#52594",
        models=_THINKERS,
    ),
    Mutant(
        id="tag-before-json",
        server=TagBeforeJson,
        trips=((_SCHEMA, _V), (_OBJECT, _V)),
        source="sgl-project/sglang#6441",
        models=_THINKERS,
    ),
    Mutant(
        id="json-is-the-thought",
        server=JsonIsTheThought,
        trips=((_SCHEMA, _V), (_OBJECT, _V)),
        source="vllm-project/vllm#50948",
        models=_THINKERS,
    ),
    Mutant(id="wrong-parser", server=WrongParser, trips=((_SCHEMA, _V), (_OBJECT, _V))),
    Mutant(
        id="schema-turns-thinking-off",
        server=SchemaTurnsThinkingOff,
        trips=(("schema-leaves-the-thinking", _V),),
        source="vllm-project/vllm#47027",
        models=_THINKERS,
    ),
    Mutant(
        id="refused-with-thinking",
        server=SchemaRefusedWithThinking,
        trips=((_SCHEMA, Outcome.REFUSED),),
        models=_THINKERS,
    ),
    Mutant(
        id="json-is-reasoning-without-thinking",
        server=JsonIsReasoningWithoutThinking,
        trips=((_OFF, Outcome.VIOLATED),),
        source="vllm-project/vllm#19222",
        models=_THINKERS,
    ),
    Mutant(
        id="no-grammar-without-thinking",
        server=NoGrammarWithoutThinking,
        trips=((_OFF, Outcome.NO_EFFECT),),
        source="ollama/ollama#15260",
        models=_THINKERS,
    ),
)

HARMLESS = (
    Harmless(id="long-thought", server=LongThought, models=_THINKERS),
    Harmless(id="switch-refused", server=SwitchRefused, models=_THINKERS),
)
