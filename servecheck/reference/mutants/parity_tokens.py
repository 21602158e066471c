"""Servers that make other prompts of the same chats or texts than the reference beside them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, ClassVar

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.engine import Job, Prompt
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import decode, render_chat

__all__ = [
    "HARMLESS",
    "MUTANTS",
    "AsksForToday",
    "BeginsWithAMark",
    "DateAhead",
    "DateBehind",
    "DateInEveryChat",
    "DateOfTheTemplate",
    "NoUsage",
    "OwnSystemMessage",
    "RendersTemplates",
    "ShowsNoPrompt",
    "TakesAWhile",
]


class DateInEveryChat(ReferenceServer):
    """Has a chat template that says today's date before every chat."""

    FORM: ClassVar[str] = "Today is %d %B %Y."
    AHEAD: ClassVar[float] = 0.0  # seconds

    def messages_of(self, body: Event) -> list[Event]:
        """Put it in front."""
        said = time.strftime(self.FORM, time.gmtime(self.clock() + self.AHEAD))
        return [{"role": "system", "content": said}, *super().messages_of(body)]


class DateAhead(DateInEveryChat):
    """Says today's date before every chat by a clock that is a day ahead, beside one that is a day late."""

    AHEAD: ClassVar[float] = 86_400.0


class DateBehind(DateInEveryChat):
    """Says today's date before every chat by a clock that is a day late."""

    AHEAD: ClassVar[float] = -86_400.0


class DateOfTheTemplate(DateInEveryChat):
    """Has a chat template with a date that was written into it, the same every day."""

    FORM: ClassVar[str] = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024"


class RendersTemplates(DateInEveryChat):
    """Shows its prompts as llama.cpp does: it renders them, and tells the template's source."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {
        ("POST", "/apply-template"): "reply_apply",
        ("GET", "/props"): "reply_props",
    }

    async def reply_apply(self, request: Request) -> Reply:
        """Render a chat."""
        ids = render_chat(self.messages_of(self.body_of(request)))
        return json_reply({"prompt": decode(ids, special=True)})

    async def reply_props(self, _: Request) -> Reply:
        """Tell the source."""
        return json_reply({"chat_template": "{{ strftime_now('%d %B %Y') }}", "total_slots": 1})

    async def reply_tokenize(self, request: Request) -> Reply:
        """Take text only."""
        if "messages" in self.body_of(request):
            raise ApiError("content is missing")
        return await super().reply_tokenize(request)


class AsksForToday(RendersTemplates):
    """Has a chat template that names today's date where tools are given, and nowhere else."""

    def messages_of(self, body: Event) -> list[Event]:
        """Leave it out."""
        return list(super().messages_of(body)[1:])


class ShowsNoPrompt(DateInEveryChat):
    """Says today's date before every chat, and shows nobody its prompts, as an endpoint behind a gateway does."""

    async def reply_tokenize(self, request: Request) -> Reply:  # noqa: ARG002
        """Not here."""
        raise ApiError("no route", status=404, kind="not_found_error")


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


_TEXTS, _CHATS, _DAY = "same-text-same-tokens", "same-chat-same-tokens", "same-chat-same-date"
_NOON = {"clock": lambda: 1_796_040_000.0}  # of a day, so that no test is asked over midnight

MUTANTS = (
    Mutant(
        id="date-in-every-chat",
        server=DateInEveryChat,
        trips=((_CHATS, Outcome.VIOLATED), (_DAY, Outcome.VIOLATED)),
        source="PrimeIntellect-ai/verifiers#1068",
    ),
    Mutant(
        id="date-by-another-clock",
        server=DateAhead,
        trips=((_DAY, Outcome.VIOLATED),),
        config=_NOON,
        beside=DateBehind,
    ),
    Mutant(
        id="own-system-message",
        server=OwnSystemMessage,
        trips=((_CHATS, Outcome.VIOLATED),),
        source="paiml/aprender#3990",
    ),
    Mutant(
        id="text-begins-with-a-mark",
        server=BeginsWithAMark,
        trips=((_TEXTS, Outcome.VIOLATED),),
        source="vllm-project/tpu-inference#936",
    ),
    Mutant(id="no-usage-to-compare", server=NoUsage, trips=((_CHATS, Outcome.UNDETERMINED),)),
)

HARMLESS = (
    Harmless(id="takes-a-while", server=TakesAWhile),
    Harmless(
        id="today-on-both",
        server=DateInEveryChat,
        config=_NOON,
        beside=DateInEveryChat,
        source="scouzi1966/maclocal-api#302",
    ),
    Harmless(id="date-of-the-template", server=DateOfTheTemplate, beside=DateOfTheTemplate),
    Harmless(id="today-where-there-are-tools", server=AsksForToday),
    Harmless(id="shows-no-prompt", server=ShowsNoPrompt, config=_NOON, beside=ShowsNoPrompt),
)
