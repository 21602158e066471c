"""Servers that refuse, drop or shorten a tool's result, and servers that are only strict about it."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.judging import STAYS_HEALTHY
from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import Tally
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import tools_auto as auto
from servecheck.reference.mutants import tools_required as shared
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


def _calls(message: Event) -> bool:
    return bool(message.get("tool_calls"))


class _Refusing(ReferenceServer):
    """Refuses some messages; subclasses say which, and how."""

    status = 400

    def refuses(self, message: Event) -> bool:
        """Tell whether this message is refused."""
        raise NotImplementedError

    def messages_of(self, body: Event) -> list[Event]:
        """Refuse."""
        if any(self.refuses(message) for message in body["messages"] if isinstance(message, dict)):
            raise ApiError("content must not be empty", status=self.status, param="messages")
        return super().messages_of(body)


class NullRefused(_Refusing):
    """Refuses an assistant's message with content null, as it sends it itself."""

    status = 422

    def refuses(self, message: Event) -> bool:
        """Refuse null."""
        return _calls(message) and "content" in message and message["content"] is None


class EmptyRefused(_Refusing):
    """Refuses an assistant's message whose content is an empty string, calls or not."""

    status = 422

    def refuses(self, message: Event) -> bool:
        """Refuse the empty string."""
        return _calls(message) and message.get("content") == ""


class AbsentFails(_Refusing):
    """Has a template that reads the content of every message, and gives a 500 where there is none."""

    status = 500

    def refuses(self, message: Event) -> bool:
        """Fail."""
        return _calls(message) and "content" not in message


class RoleRefused(_Refusing):
    """Knows no role ``tool``."""

    def refuses(self, message: Event) -> bool:
        """Refuse the role."""
        return message.get("role") == "tool"


class ResultFails(_Refusing):
    """Gives a 500 for every tool's result."""

    status = 500

    def refuses(self, message: Event) -> bool:
        """Fail."""
        return message.get("role") == "tool"


class _Rewriting(ReferenceServer):
    """Changes what a tool's result says; subclasses say how."""

    def result(self, text: str) -> str:
        """Return what stands in the prompt."""
        raise NotImplementedError

    def messages_of(self, body: Event) -> list[Event]:
        """Change the results."""
        read = super().messages_of(body)
        return [{**each, "content": self.result(each["content"])} if each["role"] == "tool" else each for each in read]


class ResultDropped(_Rewriting):
    """Has a template that knows no tool results: the turn is there and empty."""

    def result(self, text: str) -> str:
        """Drop it."""
        del text
        return ""


class ResultShortened(_Rewriting):
    """Keeps the first ten characters of a tool's result."""

    def result(self, text: str) -> str:
        """Shorten it."""
        return text[:10]


class ResultsUpToTheirEnd(_Rewriting):
    """Replaces what is longer than a hundred characters by a note, which the model reads in its place."""

    def result(self, text: str) -> str:
        """Replace long results."""
        return text if len(text) <= 100 else "(shortened)"


class CountedUnread(ResultDropped):
    """Drops a tool's result and counts its words in usage nevertheless."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Add what was sent."""
        made = super().usage(job, tally)
        more = sum(len(str(each["content"]).split()) for each in job.body.get("messages", ()) if each["role"] == "tool")
        made["prompt_tokens"] += more
        made["total_tokens"] += more
        return made


class PartsRefused(_Refusing):
    """Takes a tool's result as a string only, where other roles may have parts."""

    def refuses(self, message: Event) -> bool:
        """Refuse parts."""
        return message.get("role") == "tool" and isinstance(message.get("content"), list)


class PartsDropped(ReferenceServer):
    """Has a template that writes a tool's result where it is a string, and nothing where it has parts."""

    def messages_of(self, body: Event) -> list[Event]:
        """Empty those with parts."""
        read = super().messages_of(body)
        parts = [isinstance(each.get("content"), list) and each.get("role") == "tool" for each in body["messages"]]
        return [{**each, "content": ""} if gone else each for each, gone in zip(read, parts, strict=True)]


class OneResult(ReferenceServer):
    """Keeps the first of several results that follow one another."""

    def messages_of(self, body: Event) -> list[Event]:
        """Drop the others."""
        read = super().messages_of(body)
        return [
            each
            for place, each in enumerate(read)
            if each["role"] != "tool" or place == 0 or read[place - 1]["role"] != "tool"
        ]


class OneCall(_Refusing):
    """Has a template that takes back one call in a message, and no more."""

    def refuses(self, message: Event) -> bool:
        """Refuse several."""
        return len(message.get("tool_calls") or ()) > 1


class NoArgumentsFail(_Refusing):
    """Fails inside over a call without arguments that is sent back."""

    status = 500

    def refuses(self, message: Event) -> bool:
        """Fail."""
        calls = message.get("tool_calls") or ()
        return any(call["function"]["arguments"] in ("", "{}") for call in calls)


class ToolsReplaceSystem(ReferenceServer):
    """Writes its own system message where there are tools, in place of the application's."""

    def messages_of(self, body: Event) -> list[Event]:
        """Drop the application's."""
        read = super().messages_of(body)
        return [each for each in read if each["role"] != "system"] if body.get("tools") else read


class OwnSystemMessage(ReferenceServer):
    """Has a template that writes a long system message of its own where the application gives none."""

    def messages_of(self, body: Event) -> list[Event]:
        """Add it."""
        read = super().messages_of(body)
        if any(each["role"] == "system" for each in read):
            return read
        return [{"role": "system", "content": "You are a helpful assistant. " * 12}, *read]


class UnknownIdFails(ReferenceServer):
    """Looks the call of a result up by its id, and gives a 500 where there is none."""

    def messages_of(self, body: Event) -> list[Event]:
        """Look it up."""
        _check_ids(body["messages"], 500)
        return super().messages_of(body)


class UnknownIdKills(ReferenceServer):
    """Loses its engine to a result whose call is unknown."""

    dead = False

    async def reply_chat(self, request: Request) -> Reply:
        """Die of it."""
        try:
            _check_ids(self.body_of(request).get("messages") or (), 500)
        except ApiError:
            self.dead = True
        if self.dead:
            raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError")
        return await super().reply_chat(request)


class UnknownIdRefused(ReferenceServer):
    """Refuses a result whose call is unknown, as the original service does."""

    def messages_of(self, body: Event) -> list[Event]:
        """Look it up."""
        _check_ids(body["messages"], 400)
        return super().messages_of(body)


def _check_ids(messages: Sequence[Event], status: int) -> None:
    known = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    if any(message.get("tool_call_id") not in known for message in messages if message.get("role") == "tool"):
        raise ApiError("tool_call_id belongs to no call", status=status, param="messages")


class LogprobsRefused(ReferenceServer):
    """Refuses logprobs beside tools."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("tools") and body.get("logprobs"):
            raise ApiError("logprobs are not supported with tools", param="logprobs")
        return super().chat_job(body)


_V, _R = Outcome.VIOLATED, Outcome.REFUSED
_ACCEPTED, _OTHERS = "tool-result-is-accepted", "call-without-text-is-accepted-in-any-form"
_COUNTED, _READ = "tool-result-is-counted", "tool-result-reaches-the-model"
_UNKNOWN = "result-for-an-unknown-call-does-no-harm"

_PARTS, _EVERY = "tool-result-in-text-parts-is-read", "every-tool-result-is-counted"
_SYSTEM = "system-message-is-counted-beside-tools"

MUTANTS = (
    Mutant(id="parts-refused", server=PartsRefused, trips=((_PARTS, _R),), source="vllm-project/vllm#25001"),
    Mutant(id="parts-dropped", server=PartsDropped, trips=((_PARTS, _V),), source="raullenchai/Rapid-MLX#731"),
    Mutant(id="one-result", server=OneResult, trips=((_EVERY, _V),)),
    Mutant(id="one-call", server=OneCall, trips=((_EVERY, _R),)),
    Mutant(id="no-arguments-fail", server=NoArgumentsFail, trips=((_EVERY, _V),)),
    Mutant(id="tools-replace-system", server=ToolsReplaceSystem, trips=((_SYSTEM, _V),), source="ollama/ollama-js#220"),
    Mutant(id="null-refused", server=NullRefused, trips=((_ACCEPTED, _R),), source="ogx-ai/ogx#1751"),
    Mutant(id="empty-refused", server=EmptyRefused, trips=((_OTHERS, _R),), source="ogx-ai/ogx#1751"),
    Mutant(id="absent-fails", server=AbsentFails, trips=((_OTHERS, _V),), source="ogx-ai/ogx#1751"),
    Mutant(id="role-refused", server=RoleRefused, trips=((_ACCEPTED, _R),)),
    Mutant(id="auto-refused", server=auto.AutoRefused, trips=((_ACCEPTED, _R),)),
    Mutant(id="result-fails", server=ResultFails, trips=((_ACCEPTED, _V),)),
    Mutant(
        id="result-dropped",
        server=ResultDropped,
        trips=((_COUNTED, _V), (_READ, _V)),
    ),
    Mutant(id="result-shortened", server=ResultShortened, trips=((_COUNTED, _V), (_READ, _V))),
    Mutant(id="long-results-replaced", server=ResultsUpToTheirEnd, trips=((_COUNTED, _V),)),
    Mutant(id="counted-unread", server=CountedUnread, trips=((_READ, _V), (_COUNTED, Outcome.HELD))),
    Mutant(id="unknown-id-fails", server=UnknownIdFails, trips=((_UNKNOWN, _V),)),
    Mutant(id="unknown-id-kills", server=UnknownIdKills, trips=((STAYS_HEALTHY.id, _V),)),
)

HARMLESS = (
    Harmless(id="own-system-message", server=OwnSystemMessage),
    Harmless(id="unknown-id-refused", server=UnknownIdRefused),
    Harmless(id="no-logprobs", server=auto.NoLogprobs, models=("obedient", "babbling", "reasoning")),
    Harmless(id="logprobs-refused", server=LogprobsRefused, models=("obedient", "babbling", "reasoning")),
    Harmless(id="extra-fields", server=shared.ExtraFields),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
