"""Servers that think on when told not to, or lose the answer when they do not, and servers with one switch only."""

from __future__ import annotations

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.models import Reasoning
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_THINKERS = (Reasoning.name,)


class NoSwitch(ReferenceServer):
    """Takes both switches and thinks all the same."""

    def thinking_of(self, body: Event) -> bool:  # noqa: ARG002
        """Think."""
        return True


class SwitchesRefused(ReferenceServer):
    """Refuses both switches by name."""

    def thinking_of(self, body: Event) -> bool:
        """Refuse."""
        for name in ("chat_template_kwargs", "reasoning_effort"):
            if name in body:
                raise ApiError(f"{name} is not supported by this server", param=name)
        return True


class SwitchFails(ReferenceServer):
    """Fails where the template gets variables."""

    def thinking_of(self, body: Event) -> bool:
        """Fail."""
        if "chat_template_kwargs" in body:
            raise ApiError("got an unexpected keyword argument 'thinking'", status=500, kind="InternalServerError")
        return super().thinking_of(body)


class WaitsForTheTag(ReferenceServer):
    """Files an answer without a thought under reasoning, because the tag that would end one never comes."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the content of an answer that was not thought about."""
        if not answer.reasoning:
            answer.reasoning, answer.content = answer.content, ""
        return super().chat_choice(job, answer)


class EmptyMarksLeft(ReferenceServer):
    """Leaves the empty marks of the template in front of the answer."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Put them in front."""
        if not job.thinking and self.language.thinks:
            answer.content = f"<think>\n\n</think>\n\n{answer.content}"
        return super().chat_choice(job, answer)


class TemplateOnly(ReferenceServer):
    """Knows the template's switch and ignores ``reasoning_effort``."""

    def thinking_of(self, body: Event) -> bool:
        """Forget the effort."""
        return super().thinking_of({key: value for key, value in body.items() if key != "reasoning_effort"})


class EffortOnly(ReferenceServer):
    """Knows ``reasoning_effort`` and refuses variables for the template."""

    def thinking_of(self, body: Event) -> bool:
        """Refuse the template's switch."""
        if "chat_template_kwargs" in body:
            raise ApiError("chat_template_kwargs is not supported", param="chat_template_kwargs")
        return super().thinking_of(body)


class QuietUnlessAsked(ReferenceServer):
    """Thinks only where the request asks for it."""

    def thinking_of(self, body: Event) -> bool:
        """Think on demand."""
        return "chat_template_kwargs" in body and super().thinking_of(body)


class OwnThinkingRefused(ReferenceServer):
    """Gives thoughts in a field that it forbids in the messages of a request."""

    def messages_of(self, body: Event) -> list[Event]:
        """Refuse."""
        if any(isinstance(each, dict) and "reasoning_content" in each for each in body.get("messages") or ()):
            raise ApiError("Extra inputs are not permitted, field: 'messages[1].reasoning_content'")
        return super().messages_of(body)


_OFF, _CONTENT = "thinking-can-be-switched-off", "answer-without-thinking-is-in-the-content"
_V = Outcome.VIOLATED

MUTANTS = (
    Mutant(id="no-switch", server=NoSwitch, trips=((_OFF, Outcome.NO_EFFECT),), models=_THINKERS),
    Mutant(id="switches-refused", server=SwitchesRefused, trips=((_OFF, Outcome.REFUSED),), models=_THINKERS),
    Mutant(id="switch-fails", server=SwitchFails, trips=((_OFF, _V),), models=_THINKERS),
    Mutant(id="waits-for-the-tag", server=WaitsForTheTag, trips=((_CONTENT, _V),), source="sgl-project/sglang#20586"),
    Mutant(
        id="empty-marks-left",
        server=EmptyMarksLeft,
        trips=((_CONTENT, _V),),
        source="ikawrakow/ik_llama.cpp#1955",
        models=_THINKERS,
    ),
    Mutant(
        id="own-thinking-refused",
        server=OwnThinkingRefused,
        trips=(("own-thinking-is-taken-back", Outcome.REFUSED),),
        source="can1357/oh-my-pi#1157",
        models=_THINKERS,
    ),
)

HARMLESS = (
    Harmless(id="template-only", server=TemplateOnly, models=_THINKERS),
    Harmless(id="effort-only", server=EffortOnly, models=_THINKERS),
    Harmless(id="quiet-unless-asked", server=QuietUnlessAsked, models=_THINKERS),
)
