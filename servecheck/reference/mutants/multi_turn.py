"""Conversations of which a part never reaches the model, with and without a trace in usage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Tally
from servecheck.reference.engine import Job, Prompt
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import IM_END, encode, render_chat

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class LastTurnsOnly(ReferenceServer):
    """Keeps the last six messages and drops the others, in usage too."""

    def messages_of(self, body: Event) -> list[Event]:
        """Drop the front."""
        return super().messages_of(body)[-6:]


class FrontDropped(ReferenceServer):
    """Cuts the prompt to its last 200 tokens and answers 200."""

    def chat_job(self, body: Event) -> Job:
        """Cut the front of the prompt."""
        job = super().chat_job(body)
        return replace(job, prompts=(Prompt(ids=job.prompts[0].ids[-200:]),))


class LastMessageOnly(ReferenceServer):
    """Shows the model the last message only, and counts it only."""

    def messages_of(self, body: Event) -> list[Event]:
        """Drop all before the last."""
        return super().messages_of(body)[-1:]


class CountsWhatItForgets(ReferenceServer):
    """Shows the model the last message only, and bills the whole conversation."""

    def context_of(self, job: Job, index: int) -> tuple[int, ...]:
        """Generate from the last message."""
        whole = super().context_of(job, index)
        messages = job.body.get("messages")
        return render_chat(self.messages_of(job.body)[-1:]) if messages else whole


class SystemDropped(ReferenceServer):
    """Leaves the system message out of the prompt."""

    def messages_of(self, body: Event) -> list[Event]:
        """Drop it."""
        return [message for message in super().messages_of(body) if message["role"] != "system"]


class SystemCountedNotRead(ReferenceServer):
    """Replaces the system message by its own, and bills the caller's."""

    def context_of(self, job: Job, index: int) -> tuple[int, ...]:  # noqa: ARG002
        """Generate without it."""
        messages = [message for message in self.messages_of(job.body) if message["role"] != "system"]
        return render_chat([{"role": "system", "content": "You are helpful."}, *messages])


class SystemRefused(ReferenceServer):
    """Refuses the system role, as templates of some models do."""

    def messages_of(self, body: Event) -> list[Event]:
        """Refuse."""
        made = super().messages_of(body)
        if any(message["role"] == "system" for message in made):
            raise ApiError("System role not supported", param="messages")
        return made


class SystemFails(ReferenceServer):
    """Fails inside on the system role, where the template refuses it."""

    def messages_of(self, body: Event) -> list[Event]:
        """Fail."""
        made = super().messages_of(body)
        if any(message["role"] == "system" for message in made):
            raise ApiError("Internal Server Error", status=500, kind="InternalServerError")
        return made


class DeveloperRefused(ReferenceServer):
    """Has a template that knows no role ``developer``, and refuses it like any unknown one."""

    def messages_of(self, body: Event) -> list[Event]:
        """Refuse."""
        if any(isinstance(each, dict) and each.get("role") == "developer" for each in body.get("messages") or ()):
            raise ApiError("chat template rejected the request: Unexpected message role.")
        return super().messages_of(body)


class DeveloperDropped(ReferenceServer):
    """Has a template that passes over a role it does not know, so that the message is gone."""

    def messages_of(self, body: Event) -> list[Event]:
        """Drop it."""
        return [each for each in super().messages_of(body) if each["role"] != "developer"]


class OneIdForAllReplies(ReferenceServer):
    """Names each reply after its session, of which there is one for whoever comes next."""

    def new_id(self, prefix: str) -> str:
        """Return the session's number."""
        del prefix
        return "1"


# --------------------------------------------------------------------------- odd, but right


class PlainNumbers(ReferenceServer):
    """Numbers its replies."""

    replies = 0

    def new_id(self, prefix: str) -> str:
        """Count."""
        del prefix
        self.replies += 1
        return str(self.replies)


class OwnSystemMessage(ReferenceServer):
    """Adds a system message of its own where there is none, as many templates do."""

    def messages_of(self, body: Event) -> list[Event]:
        """Add one."""
        made = super().messages_of(body)
        own = {"role": "system", "content": "You are a helpful assistant named Servecheck, made for tests."}
        return made if made[0]["role"] == "system" else [own, *made]


class NoLogprobs(ReferenceServer):
    """Takes ``logprobs`` and returns none, which another row judges."""

    def chat_logprobs(self, job: Job, steps: Sequence[Any]) -> Event | None:  # noqa: ARG002
        """Return none."""
        return None


class LogprobsRefused(ReferenceServer):
    """Refuses ``logprobs``; the row does not need them."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("logprobs"):
            raise ApiError("logprobs are not supported", param="logprobs")
        return super().chat_job(body)


class TokenMore(ReferenceServer):
    """Counts a token more or less now and then, as tokenizers do that join at a border."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Add one to long prompts."""
        made = super().usage(job, tally)
        more = int(made["prompt_tokens"] > 150)
        return {**made, "prompt_tokens": made["prompt_tokens"] + more, "total_tokens": made["total_tokens"] + more}


class TurnsWithoutHeader(ReferenceServer):
    """Has a template with fewer marks between the turns; what a turn costs is the template's business."""

    def chat_job(self, body: Event) -> Job:
        """Leave the line ends between turns out."""
        job = super().chat_job(body)
        ids, end = job.prompts[0].ids, encode("\n")[0]
        kept = tuple(
            token for place, token in enumerate(ids) if not (token == end and place and ids[place - 1] == IM_END)
        )
        return replace(job, prompts=(Prompt(ids=kept),))


_V = Outcome.VIOLATED
_COUNTED, _READ = "each-turn-is-counted", "earlier-turns-reach-the-model"
_SYSTEM_COUNTED, _SYSTEM_READ = "system-message-is-counted", "system-message-reaches-the-model"

_DEVELOPER = "developer-message-is-counted"

MUTANTS = (
    Mutant(id="last-turns-only", server=LastTurnsOnly, trips=((_COUNTED, _V),)),
    Mutant(id="front-dropped", server=FrontDropped, trips=((_COUNTED, _V),), source="ollama/ollama#4967"),
    Mutant(
        id="last-message-only",
        server=LastMessageOnly,
        trips=((_COUNTED, _V), (_READ, _V)),
        source="nomic-ai/gpt4all#2602",
    ),
    Mutant(id="counts-what-it-forgets", server=CountsWhatItForgets, trips=((_READ, _V), (_SYSTEM_READ, _V))),
    Mutant(
        id="system-dropped",
        server=SystemDropped,
        trips=((_SYSTEM_COUNTED, _V), (_SYSTEM_READ, _V)),
        source="InternLM/lmdeploy#464",
    ),
    Mutant(
        id="system-counted-not-read",
        server=SystemCountedNotRead,
        trips=((_SYSTEM_READ, _V),),
        source="oobabooga/textgen#5803",
    ),
    Mutant(
        id="system-refused",
        server=SystemRefused,
        trips=((_SYSTEM_COUNTED, Outcome.REFUSED),),
        source="huggingface/chat-ui#1386",
    ),
    Mutant(
        id="system-fails",
        server=SystemFails,
        trips=((_SYSTEM_COUNTED, _V), (_SYSTEM_READ, _V)),
        source="sgl-project/sglang#892",
    ),
    Mutant(
        id="developer-refused",
        server=DeveloperRefused,
        trips=((_DEVELOPER, Outcome.REFUSED),),
        source="peonist-ai/halogen-server#3",
    ),
    Mutant(
        id="developer-dropped", server=DeveloperDropped, trips=((_DEVELOPER, _V),), source="sgl-project/sglang#40082"
    ),
    Mutant(
        id="one-id-for-all-replies",
        server=OneIdForAllReplies,
        trips=(("replies-have-ids-of-their-own", _V),),
        source="InternLM/lmdeploy#4707",
    ),
)

HARMLESS = (
    Harmless(id="plain-numbers", server=PlainNumbers),
    Harmless(id="own-system-message", server=OwnSystemMessage),
    Harmless(id="no-logprobs", server=NoLogprobs, models=("obedient",)),
    Harmless(id="logprobs-refused", server=LogprobsRefused, models=("obedient",)),
    Harmless(id="token-more", server=TokenMore),
    Harmless(id="turns-without-header", server=TurnsWithoutHeader),
)
