"""Messages that end for the wrong reason, lose what was sent, or answer errors in another API's words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer, Tally
from servecheck.reference.eventfaults import NoMessages
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.messages import Letter
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class MessagesFail(ReferenceServer):
    """Fails inside on every message."""

    async def reply_messages(self, request: Request) -> Reply:  # noqa: ARG002
        """Fail."""
        raise ApiError("Internal server error", status=500, kind="api_error")


class _Rewriting(ReferenceServer):
    """Changes every whole message; subclasses say how."""

    def rewrite(self, message: Event) -> None:
        """Change it in place."""
        raise NotImplementedError

    def message_object(self, letter: Letter, answers: Sequence[Answer]) -> Event:
        """Change it."""
        made = super().message_object(letter, answers)
        self.rewrite(made)
        return made


class EmptyContent(_Rewriting):
    """Counts tokens and gives no content."""

    def rewrite(self, message: Event) -> None:
        """Leave nothing."""
        message["content"] = []


class NullText(_Rewriting):
    """Gives a text block whose text is null."""

    def rewrite(self, message: Event) -> None:
        """Take the text away."""
        message["content"] = [{"type": "text", "text": None}]


class Exclamations(_Rewriting):
    """Has a broken decoder that writes one sign over and over."""

    def rewrite(self, message: Event) -> None:
        """Write it."""
        message["content"] = [{"type": "text", "text": "!" * 40}]


class NoStopReason(_Rewriting):
    """Leaves the stop reason null."""

    def rewrite(self, message: Event) -> None:
        """Leave it."""
        message["stop_reason"] = None


class ChatsFinishReason(_Rewriting):
    """Gives the stop reason in the chat route's words."""

    def rewrite(self, message: Event) -> None:
        """Translate it back."""
        words = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls", "stop_sequence": "stop"}
        message["stop_reason"] = words[message["stop_reason"]]


class ChatObject(_Rewriting):
    """Gives a message no type, and a field of the chat route's in its place."""

    def rewrite(self, message: Event) -> None:
        """Rename it."""
        del message["type"]
        message["object"] = "chat.completion"


class UsageInChatWords(_Rewriting):
    """Reports usage in the chat route's words, which no client of this route reads."""

    def rewrite(self, message: Event) -> None:
        """Rename the counts."""
        usage = message["usage"]
        message["usage"] = {"prompt_tokens": usage["input_tokens"], "completion_tokens": usage["output_tokens"]}


class CutSaysEndTurn(ReferenceServer):
    """Says ``end_turn`` of a message that the limit cut."""

    def stop_of(self, letter: Letter, finish: str, reason: str | int | None) -> Event:
        """Say so."""
        return super().stop_of(letter, "stop" if finish == "length" else finish, reason)


class _ChatBody(ReferenceServer):
    """Changes what becomes of a request; subclasses say how."""

    def change(self, body: Event) -> Event:
        """Return the changed request, in the chat route's shape."""
        raise NotImplementedError

    def message_chat_body(self, body: Event) -> Event:
        """Change it."""
        return self.change(super().message_chat_body(body))


class LimitIgnored(_ChatBody):
    """Does not pass ``max_tokens`` on."""

    def change(self, body: Event) -> Event:
        """Drop it."""
        return {key: value for key, value in body.items() if key != "max_tokens"}


class StopSaysEndTurn(ReferenceServer):
    """Says ``end_turn`` of a message that a stop sequence ended."""

    def stop_of(self, letter: Letter, finish: str, reason: str | int | None) -> Event:  # noqa: ARG002
        """Leave the sequence out."""
        return super().stop_of(letter, finish, None)


class StopNamedBesideEndTurn(ReferenceServer):
    """Names the stop sequence that ended a message, and says ``end_turn`` beside it."""

    def stop_of(self, letter: Letter, finish: str, reason: str | int | None) -> Event:
        """Say so."""
        made = super().stop_of(letter, finish, reason)
        return {**made, "stop_reason": "end_turn"} if made["stop_reason"] == "stop_sequence" else made


class StopDropped(_ChatBody):
    """Accepts stop sequences and drops them."""

    def change(self, body: Event) -> Event:
        """Drop them."""
        return {**body, "stop": []}


class StopLeftIn(ReferenceServer):
    """Ends a message behind its stop sequence, not before it."""

    def letter(self, body: Event) -> Letter:
        """Leave it in."""
        letter = super().letter(body)
        return replace(letter, job=replace(letter.job, include_stop=True))


class SystemDropped(_ChatBody):
    """Accepts a system prompt and drops it."""

    def change(self, body: Event) -> Event:
        """Drop it."""
        return {**body, "messages": [each for each in body["messages"] if each["role"] != "system"]}


class BlocksAsTheyAre(ReferenceServer):
    """Puts a list of blocks into the prompt as it is written, brackets and all."""

    def message_chat_body(self, body: Event) -> Event:
        """Write it."""
        given: Any = body.get("messages")
        if not isinstance(given, list):
            return super().message_chat_body(body)
        written = [
            {**each, "content": each["content"] if isinstance(each["content"], str) else json.dumps(each["content"])}
            for each in given
        ]
        return super().message_chat_body({**body, "messages": written})


class ToolsDropped(_ChatBody):
    """Accepts tools and drops them."""

    def change(self, body: Event) -> Event:
        """Drop them."""
        return {key: value for key, value in body.items() if not key.startswith(("tool", "parallel"))}


class ToolsRefused(ReferenceServer):
    """Refuses tools on this route, and says so."""

    def message_tools(self, body: Event) -> Event:
        """Refuse."""
        if body.get("tools"):
            raise ApiError("tools are not supported on this route", status=501, param="tools")
        return {}


class InputAsText(_Rewriting):
    """Gives the input of a tool as a text that holds JSON."""

    def rewrite(self, message: Event) -> None:
        """Write it."""
        for block in message["content"]:
            if block["type"] == "tool_use":
                block["input"] = json.dumps(block["input"])


class OtherToolName(_Rewriting):
    """Writes the tools' names in capitals."""

    def rewrite(self, message: Event) -> None:
        """Change them."""
        for block in message["content"]:
            if block["type"] == "tool_use":
                block["name"] = block["name"].upper()


class ToolSaysEndTurn(ReferenceServer):
    """Says ``end_turn`` of a message that waits for a tool."""

    def stop_of(self, letter: Letter, finish: str, reason: str | int | None) -> Event:
        """Say so."""
        return super().stop_of(letter, "stop" if finish == "tool_calls" else finish, reason)


class WrongMessagesFail(ReferenceServer):
    """Fails inside where the messages are no list."""

    def message_chat_body(self, body: Event) -> Event:
        """Fail."""
        if not isinstance(body.get("messages"), list):
            raise ApiError("'str' object has no attribute 'get'", status=500, kind="api_error")
        return super().message_chat_body(body)


class TwoEnvelopes(ReferenceServer):
    """Refuses wrong types in the chat route's shape, and all else in this route's."""

    def message_error(self, wrong: ApiError) -> Event:
        """Give the other shape."""
        return self.error_body(wrong) if wrong.code == "invalid_type" else super().message_error(wrong)


class CountsTheRoles(ReferenceServer):
    """Counts more tokens than a request takes."""

    async def reply_count(self, request: Request) -> Reply:
        """Add some."""
        reply = await super().reply_count(request)
        assert isinstance(reply.body, bytes)
        return json_reply({"input_tokens": json.loads(reply.body)["input_tokens"] + 7})


class CountFails(ReferenceServer):
    """Fails inside when asked to count."""

    async def reply_count(self, request: Request) -> Reply:  # noqa: ARG002
        """Fail."""
        raise ApiError("'NoneType' object has no attribute 'encode'", status=500, kind="api_error")


class StreamsUnasked(_ChatBody):
    """Streams every message, asked or not."""

    def change(self, body: Event) -> Event:
        """Ask for a stream."""
        return {**body, "stream": True}


# --------------------------------------------------------------------------- odd, but right


class NoCounter(ReferenceServer):
    """Has no route that counts."""

    async def reply_count(self, request: Request) -> Reply:
        """Answer as for any unknown path."""
        raise ApiError(f"no route {request.path}", status=404, kind="not_found_error")


class NothingThatIsNull(_Rewriting):
    """Leaves out what is null, and gives messages the ids of another route."""

    def rewrite(self, message: Event) -> None:
        """Leave it out."""
        message["id"] = f"chatcmpl-{message['id']}"
        for name in [name for name in message if message[name] is None]:
            del message[name]


class WholePromptAsInput(ReferenceServer):
    """Reports no cache, so that the whole prompt is its input."""

    def message_usage(self, letter: Letter, tally: Tally) -> Event:
        """Add what was cached."""
        made = super().message_usage(letter, tally)
        whole = made["input_tokens"] + made["cache_read_input_tokens"]
        return {"input_tokens": whole, "output_tokens": made["output_tokens"]}


class LenientMessages(ReferenceServer):
    """Takes a text for a list of one message."""

    def message_chat_body(self, body: Event) -> Event:
        """Take it."""
        given = body.get("messages")
        listed = [{"role": "user", "content": given}] if isinstance(given, str) else given
        return super().message_chat_body({**body, "messages": listed})


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_TEXT, _SANE, _END = "message-has-text", "message-is-not-garbage", "whole-message-ends-its-turn"
_OBJECT, _USAGE = "message-object-is-well-formed", "message-usage-counts"
_CUT, _STOP = "cut-message-says-max-tokens", "stop-sequence-ends-the-message"
_SYSTEM, _BLOCKS = "system-prompt-is-counted", "text-blocks-are-as-the-string"
_TOOL, _BAD, _SHAPE = "forced-tool-is-a-tool-use", "wrong-message-request-does-no-harm", "errors-are-in-the-own-shape"
_COUNT = "message-count-is-the-usage"

MUTANTS = (
    Mutant(id="no-messages", server=NoMessages, trips=((_TEXT, _R),)),
    Mutant(id="messages-fail", server=MessagesFail, trips=((_TEXT, _V),), source="sgl-project/sglang#25876"),
    Mutant(id="empty-content", server=EmptyContent, trips=((_TEXT, _V),)),
    Mutant(id="null-text", server=NullText, trips=((_TEXT, _V), (_OBJECT, _V)), source="vllm-project/vllm#22627"),
    Mutant(id="exclamations", server=Exclamations, trips=((_SANE, _V),), source="vllm-project/vllm#13035"),
    Mutant(id="no-stop-reason", server=NoStopReason, trips=((_END, _V), (_CUT, _V))),
    Mutant(id="chats-finish-reason", server=ChatsFinishReason, trips=((_END, _V), (_CUT, _V))),
    Mutant(id="chat-object", server=ChatObject, trips=((_OBJECT, _V),)),
    Mutant(id="streams-unasked", server=StreamsUnasked, trips=((_OBJECT, _V),)),
    Mutant(id="usage-in-chat-words", server=UsageInChatWords, trips=((_USAGE, _V),)),
    Mutant(id="cut-says-end-turn", server=CutSaysEndTurn, trips=((_CUT, _V),)),
    Mutant(id="limit-ignored", server=LimitIgnored, trips=((_CUT, _N),)),
    Mutant(id="stop-says-end-turn", server=StopSaysEndTurn, trips=((_STOP, _V),), source="vllm-project/vllm#45807"),
    Mutant(
        id="stop-named-beside-end-turn",
        server=StopNamedBesideEndTurn,
        trips=((_STOP, _V),),
        source="agentgateway/agentgateway#3283",
    ),
    Mutant(id="stop-dropped", server=StopDropped, trips=((_STOP, _N),)),
    Mutant(id="stop-left-in", server=StopLeftIn, trips=((_STOP, _V),)),
    Mutant(id="system-dropped", server=SystemDropped, trips=((_SYSTEM, _N),)),
    Mutant(id="blocks-as-they-are", server=BlocksAsTheyAre, trips=((_BLOCKS, _V),)),
    Mutant(id="tools-dropped", server=ToolsDropped, trips=((_TOOL, _N),)),
    Mutant(id="tools-refused", server=ToolsRefused, trips=((_TOOL, _R),)),
    Mutant(id="input-as-text", server=InputAsText, trips=((_TOOL, _V),)),
    Mutant(id="other-tool-name", server=OtherToolName, trips=((_TOOL, _V),)),
    Mutant(id="tool-says-end-turn", server=ToolSaysEndTurn, trips=((_TOOL, _V),)),
    Mutant(id="wrong-messages-fail", server=WrongMessagesFail, trips=((_BAD, _V),), source="sgl-project/sglang#25876"),
    Mutant(id="two-envelopes", server=TwoEnvelopes, trips=((_SHAPE, _V),), source="vllm-project/vllm#57997"),
    Mutant(id="counts-the-roles", server=CountsTheRoles, trips=((_COUNT, _V),), source="unslothai/unsloth#6010"),
    Mutant(id="count-fails", server=CountFails, trips=((_COUNT, _V),)),
)

HARMLESS = (
    Harmless(id="no-counter", server=NoCounter),
    Harmless(id="nothing-that-is-null", server=NothingThatIsNull, source="vllm-project/vllm#22627"),
    Harmless(id="whole-prompt-as-input", server=WholePromptAsInput, source="sgl-project/sglang#25876"),
    Harmless(id="lenient-messages", server=LenientMessages),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
