"""Ways to spoil tool calls that mutants of several probes share; each changes one place and nothing else."""

from __future__ import annotations

from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.chat import Toolbox
from servecheck.reference.constraint import Constraint
from servecheck.reference.engine import Delta, Job
from servecheck.reference.rewriting import Rewritten
from servecheck.reference.server import ReferenceServer

__all__ = ["Changing", "OtherText", "forced", "refinished", "twice"]


def forced(body: Event) -> bool:
    """Tell whether a request forces a call."""
    return body.get("tool_choice") == "required" or isinstance(body.get("tool_choice"), dict)


class Changing(ReferenceServer):
    """Changes every list of ``tool_calls`` on its way out; subclasses say how."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Return the calls that are sent in place of ``calls``."""
        raise NotImplementedError

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Change the calls of a whole reply."""
        choice = super().chat_choice(job, answer)
        if "tool_calls" in choice["message"]:
            choice["message"]["tool_calls"] = self.change(choice["message"]["tool_calls"], stream=False)
        return choice

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Change the calls of one event."""
        made = super().chat_delta(job, delta)
        if "tool_calls" in made:
            made["tool_calls"] = self.change(made["tool_calls"], stream=True)
        return made


class OtherText(ReferenceServer):
    """Changes what the model writes where a call is required; subclasses say how."""

    def rewrite(self, text: str) -> str:
        """Return the markup that the model writes in place of ``text``."""
        raise NotImplementedError

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Wrap the constraint."""
        return Rewritten(super().calls_constraint(toolbox, asked), self.rewrite)


def twice(text: str) -> str:
    """Return a call and the same call again."""
    return f"{text}\n{text}"


def refinished(choice: Event, reason: str | None) -> Event:
    """Return a choice that ended with a call, with another reason."""
    return {**choice, "finish_reason": reason} if choice["finish_reason"] == "tool_calls" else choice
