"""Servers that make other prompts of the same chats or texts than the reference beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.engine import Job, Prompt
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS", "BeginsWithAMark", "DateInEveryChat", "NoUsage", "OwnSystemMessage", "TakesAWhile"]


class DateInEveryChat(ReferenceServer):
    """Has a chat template that says today's date before every chat."""

    def messages_of(self, body: Event) -> list[Event]:
        """Put it in front."""
        return [{"role": "system", "content": "Today is 30 November 2026."}, *super().messages_of(body)]


class OwnSystemMessage(ReferenceServer):
    """Has a chat template with a system message of its own, where none is given."""

    def messages_of(self, body: Event) -> list[Event]:
        """Put it in front."""
        given = list(super().messages_of(body))
        if given and given[0]["role"] == "system" and given[0].get("content"):
            return given
        return [{"role": "system", "content": "You are a helpful assistant."}, *given]


class BeginsWithAMark(ReferenceServer):
    """Puts a token for the beginning before every plain text, and counts it."""

    def prompts_of(self, body: Event) -> tuple[Prompt, ...]:
        """Put it in front."""
        return tuple(replace(prompt, ids=(10, *prompt.ids)) for prompt in super().prompts_of(body))


class NoUsage(ReferenceServer):
    """Reports no usage."""

    def usage(self, job: Job, tally: Any) -> Event:  # noqa: ANN401, ARG002
        """Report nothing."""
        return {}


class TakesAWhile(ReferenceServer):
    """Needs half a second for every token."""

    def decode_delay(self, job: Job, index: int, count: int) -> float:  # noqa: ARG002
        """Take it."""
        return 0.5


_TEXTS, _CHATS = "same-text-same-tokens", "same-chat-same-tokens"

MUTANTS = (
    Mutant(id="date-in-every-chat", server=DateInEveryChat, trips=((_CHATS, Outcome.VIOLATED),)),
    Mutant(id="own-system-message", server=OwnSystemMessage, trips=((_CHATS, Outcome.VIOLATED),)),
    Mutant(id="text-begins-with-a-mark", server=BeginsWithAMark, trips=((_TEXTS, Outcome.VIOLATED),)),
    Mutant(id="no-usage-to-compare", server=NoUsage, trips=((_CHATS, Outcome.UNDETERMINED),)),
)

HARMLESS = (Harmless(id="takes-a-while", server=TakesAWhile),)
