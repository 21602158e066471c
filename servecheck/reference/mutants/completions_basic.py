"""Text completions that are missing, incomplete, garbled or miscounted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import Answer, Tally
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class ChatOnly(ReferenceServer):
    """Has no such route."""

    async def reply_completions(self, request: Request) -> Reply:
        """Answer as for any unknown path."""
        raise ApiError(f"no route {request.path}", status=404, kind="not_found_error", code="not_found")


class CompletionsFail(ReferenceServer):
    """Fails inside on every text completion."""

    async def reply_completions(self, request: Request) -> Reply:  # noqa: ARG002
        """Fail."""
        raise ApiError("'NoneType' object is not callable", status=500, kind="InternalServerError")


class ChatShapeOnCompletions(ReferenceServer):
    """Answers a text completion in the shape of a chat, so that ``text`` is missing."""

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Move the text."""
        made = super().text_choice(job, answer)
        made["message"] = {"role": "assistant", "content": made.pop("text")}
        return made


class ChatObjectOnCompletions(ReferenceServer):
    """Calls a text completion ``chat.completion``."""

    def text_envelope(self, job: Job) -> Event:
        """Change the object's name."""
        return {**super().text_envelope(job), "object": "chat.completion"}


class NoFinish(ReferenceServer):
    """Leaves the finish reason null."""

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Drop the reason."""
        return {**super().text_choice(job, answer), "finish_reason": None}


class NoUsageHere(ReferenceServer):
    """Reports usage on the chat route only."""

    def text_completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Drop usage."""
        made = super().text_completion(job, answers)
        del made["usage"]
        return made


class TotalIsPrompt(ReferenceServer):
    """Reports a total that leaves the completion out."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Change the total."""
        made = super().usage(job, tally)
        return {**made, "total_tokens": made["prompt_tokens"]}


class Exclamations(ReferenceServer):
    """Answers text completions with one token over and over."""

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Say one thing."""
        return super().candidates(job, index, prompt, generated) if job.chat else [(encode("!")[0], 0.0)]


class LastPromptOnly(ReferenceServer):
    """Completes the last prompt of a list and drops the others."""

    def completions_job(self, body: Event) -> Job:
        """Keep one."""
        job = super().completions_job(body)
        return replace(job, prompts=job.prompts[-1:])


class ListedAnswersExchanged(ReferenceServer):
    """Numbers the answers to a list as they end and not as they were asked."""

    def text_completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Number them from the last."""
        body = super().text_completion(job, answers)
        for choice in body["choices"]:
            choice["index"] = len(body["choices"]) - 1 - choice["index"]
        return body


class OneAnswerForAll(ReferenceServer):
    """Answers the first prompt of a list as often as there are prompts."""

    def completions_job(self, body: Event) -> Job:
        """Repeat the first."""
        job = super().completions_job(body)
        return replace(job, prompts=job.prompts[:1] * len(job.prompts))


class ListsRefused(ReferenceServer):
    """Takes one prompt at a time."""

    def completions_job(self, body: Event) -> Job:
        """Refuse a list."""
        if isinstance(body.get("prompt"), list):
            raise ApiError("prompt must be a string", param="prompt")
        return super().completions_job(body)


# --------------------------------------------------------------------------- odd, but right


class ExtraTextFields(ReferenceServer):
    """Adds fields that the specification does not know."""

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Add fields."""
        return {**super().text_choice(job, answer), "token_ids": None, "matched_stop": None}


class ChoicesBackwards(ReferenceServer):
    """Lists the choices of several prompts backwards; clients go by the index."""

    def text_completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Turn the list around."""
        return super().text_completion(job, answers[::-1])


_V = Outcome.VIOLATED

MUTANTS = (
    Mutant(id="chat-only", server=ChatOnly, trips=(("completion-has-text", Outcome.REFUSED),)),
    Mutant(id="completions-fail", server=CompletionsFail, trips=(("completion-has-text", _V),)),
    Mutant(id="chat-shape-on-completions", server=ChatShapeOnCompletions, trips=(("completion-has-text", _V),)),
    Mutant(
        id="chat-object-on-completions",
        server=ChatObjectOnCompletions,
        trips=(("text-completion-object-is-named", _V),),
        source="huggingface/text-generation-inference#1682",
    ),
    Mutant(
        id="no-finish",
        server=NoFinish,
        trips=(("completion-says-how-it-ended", _V),),
        source="vllm-project/vllm#27572",
    ),
    Mutant(
        id="no-usage-on-completions",
        server=NoUsageHere,
        trips=(("completion-usage-adds-up", _V),),
        source="BerriAI/litellm#25410",
    ),
    Mutant(id="total-is-prompt", server=TotalIsPrompt, trips=(("completion-usage-adds-up", _V),)),
    Mutant(
        id="exclamations",
        server=Exclamations,
        trips=(("completion-is-not-garbage", _V),),
        source="vllm-project/vllm#14126",
    ),
    Mutant(
        id="last-prompt-only",
        server=LastPromptOnly,
        trips=(("each-listed-prompt-is-completed", _V),),
        source="openai/openai-python#90",
    ),
    Mutant(
        id="listed-answers-exchanged",
        server=ListedAnswersExchanged,
        trips=(("each-listed-prompt-is-completed", Outcome.VIOLATED),),
        source="InternLM/lmdeploy#2395",
    ),
    Mutant(
        id="one-answer-for-all", server=OneAnswerForAll, trips=(("each-listed-prompt-is-completed", Outcome.VIOLATED),)
    ),
    Mutant(id="lists-refused", server=ListsRefused, trips=(("each-listed-prompt-is-completed", Outcome.REFUSED),)),
)

HARMLESS = (
    Harmless(id="extra-text-fields", server=ExtraTextFields),
    Harmless(id="choices-backwards", server=ChoicesBackwards),
)
