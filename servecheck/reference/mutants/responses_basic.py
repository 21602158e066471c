"""Responses that are incomplete and do not say so, that lose what was sent, or that nobody can read."""

from __future__ import annotations

from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Tally
from servecheck.reference.eventfaults import NoResponses, ResponseObjects
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.responses import Asked, Item
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class ResponsesFail(ReferenceServer):
    """Fails inside on every response."""

    async def reply_responses(self, request: Request) -> Reply:  # noqa: ARG002
        """Fail."""
        raise ApiError("'NoneType' object is not subscriptable", status=500, kind="InternalServerError")


class EmptyOutput(ResponseObjects):
    """Counts tokens and gives no output item."""

    def rewrite(self, response: Event) -> None:
        """Leave nothing."""
        response["output"] = []


class TextInTheReasoning(ResponseObjects):
    """Takes the whole answer for reasoning, so that there is no message."""

    def rewrite(self, response: Event) -> None:
        """Rename the items and their parts."""
        for item in response["output"]:
            item["type"] = "reasoning"
            item["content"] = [{"type": "reasoning_text", "text": part["text"]} for part in item["content"]]


class Exclamations(ResponseObjects):
    """Has a broken decoder that writes one sign over and over."""

    def rewrite(self, response: Event) -> None:
        """Write it."""
        for item in response["output"]:
            item["content"] = [{**part, "text": "!" * 40} for part in item["content"]]


class NeverCompleted(ResponseObjects):
    """Leaves the status of every response at ``in_progress``."""

    def rewrite(self, response: Event) -> None:
        """Set it back."""
        response["status"] = "in_progress"


class ItemsWithoutIds(ResponseObjects):
    """Gives output items no ids."""

    def rewrite(self, response: Event) -> None:
        """Take them away."""
        for item in response["output"]:
            del item["id"]


class UsersMessage(ResponseObjects):
    """Gives the message the user's role."""

    def rewrite(self, response: Event) -> None:
        """Change it."""
        for item in response["output"]:
            if item["type"] == "message":
                item["role"] = "user"


class ChatObject(ResponseObjects):
    """Calls a response ``chat.completion``."""

    def rewrite(self, response: Event) -> None:
        """Rename it."""
        response["object"] = "chat.completion"


class NoUsage(ResponseObjects):
    """Leaves usage out."""

    def rewrite(self, response: Event) -> None:
        """Leave it out."""
        response["usage"] = None


class UsageInChatWords(ResponseObjects):
    """Reports usage in the chat route's words, which no client of this route reads."""

    def rewrite(self, response: Event) -> None:
        """Rename the counts."""
        usage = response["usage"]
        response["usage"] = {
            "prompt_tokens": usage["input_tokens"],
            "completion_tokens": usage["output_tokens"],
            "total_tokens": usage["total_tokens"],
        }


class TotalWithoutInput(ReferenceServer):
    """Gives the output's tokens as the total."""

    def response_usage(self, asked: Asked, tally: Tally) -> Event:
        """Leave the input out of the sum."""
        usage = super().response_usage(asked, tally)
        return {**usage, "total_tokens": usage["output_tokens"]}


class CutSaysCompleted(ReferenceServer):
    """Says ``completed`` of a response that the limit cut."""

    def ended(self, asked: Asked, finish: str) -> tuple[str, Event | None]:  # noqa: ARG002
        """Say so of all."""
        return "completed", None


class IncompleteWithoutReason(ReferenceServer):
    """Says ``incomplete`` and not why."""

    def ended(self, asked: Asked, finish: str) -> tuple[str, Event | None]:
        """Leave the reason out."""
        return super().ended(asked, finish)[0], None


class CutItemSaysCompleted(ReferenceServer):
    """Says ``incomplete`` of the response and ``completed`` of the item that was cut."""

    @staticmethod
    def close_item(items: list[Item], output: list[Event], status: str) -> list[Event]:  # noqa: ARG004
        """Complete every item."""
        return ReferenceServer.close_item(items, output, "completed")


class _ChatBody(ReferenceServer):
    """Changes what becomes of a request; subclasses say how."""

    def change(self, body: Event) -> Event:
        """Return the changed request, in the chat route's shape."""
        raise NotImplementedError

    def response_chat_body(self, body: Event, messages: list[Event]) -> Event:
        """Change it."""
        return self.change(super().response_chat_body(body, messages))


class LimitIgnored(_ChatBody):
    """Does not know ``max_output_tokens``."""

    def change(self, body: Event) -> Event:
        """Drop the limit."""
        return {key: value for key, value in body.items() if key != "max_completion_tokens"}


class InstructionsDropped(_ChatBody):
    """Accepts instructions and drops them."""

    def change(self, body: Event) -> Event:
        """Drop them."""
        return {**body, "messages": [each for each in body["messages"] if each["role"] != "system"]}


class PartsAsTheyAre(_ChatBody):
    """Puts a list of content parts into the prompt as it is written, brackets and all."""

    def change(self, body: Event) -> Event:
        """Write them."""
        written = [{**each, "content": _written(each["content"])} for each in body["messages"]]
        return {**body, "messages": written}


def _written(content: Any) -> Any:  # noqa: ANN401
    return content if isinstance(content, str) else repr(content)


class LastTurnOnly(_ChatBody):
    """Reads the last item of the input and forgets those before it."""

    def change(self, body: Event) -> Event:
        """Keep the last one."""
        return {**body, "messages": body["messages"][-1:]}


class OutputItemsRefused(ReferenceServer):
    """Refuses as input the output items that it gives itself."""

    def items_of(self, body: Event) -> list[Event]:
        """Refuse them."""
        given = body.get("input")
        if isinstance(given, list) and any(each.get("role") == "assistant" for each in given):
            raise ApiError("input: content of the type 'output_text' is not known", status=422, param="input")
        return super().items_of(body)


class WrongInputFails(ReferenceServer):
    """Fails inside on an input of the wrong type, which trips the breaker of a gateway."""

    def items_of(self, body: Event) -> list[Event]:
        """Fail."""
        if not isinstance(body.get("input"), str | list):
            raise ApiError("'int' object is not iterable", status=500, kind="InternalServerError")
        return super().items_of(body)


class RefusalsInTwoShapes(ReferenceServer):
    """Refuses wrong types in the words of its web framework, and all else in the API's."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Give the framework's shape."""
        if wrong.code == "invalid_type" and request.path == "/v1/responses":
            return json_reply({"detail": [{"loc": ["body"], "msg": wrong.message}]}, 422)
        return super().error(wrong, request)


class StreamsUnasked(ReferenceServer):
    """Streams every response, asked or not."""

    def response_chat_body(self, body: Event, messages: list[Event]) -> Event:
        """Ask for a stream."""
        return {**super().response_chat_body(body, messages), "stream": True}


class ThinkingUncounted(ResponseObjects):
    """Counts the tokens of a thought with the output and says that none of them were thinking."""

    def rewrite(self, response: Event) -> None:
        """Say zero."""
        if response.get("usage"):
            response["usage"]["output_tokens_details"] = {"reasoning_tokens": 0}


# --------------------------------------------------------------------------- odd, but right


class NothingThatIsNull(ResponseObjects):
    """Leaves out every field that is null or says only what the request said."""

    def rewrite(self, response: Event) -> None:
        """Leave them out."""
        kept = ("id", "object", "created_at", "status", "model", "output", "usage", "incomplete_details")
        for name in [name for name in response if name not in kept or response[name] is None]:
            del response[name]


class MoreThanAsked(ResponseObjects):
    """Adds fields and an item type of its own, and times with fractions."""

    def rewrite(self, response: Event) -> None:
        """Add them."""
        response["created_at"] += 0.5
        response["timings"] = {"predicted_n": 3}
        response["output"] = [{"id": "own_1", "type": "own_item", "status": "completed"}, *response["output"]]


class LenientLimit(ReferenceServer):
    """Takes a limit that is no number for none."""

    def response_chat_body(self, body: Event, messages: list[Event]) -> Event:
        """Take it."""
        taken = body if isinstance(body.get("max_output_tokens"), int) else {**body, "max_output_tokens": None}
        return super().response_chat_body(taken, messages)


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_TEXT, _SANE, _STATUS = "response-has-text", "response-is-not-garbage", "whole-response-is-completed"
_ITEMS, _NAMED, _USAGE = "output-items-are-well-formed", "response-object-is-named", "response-usage-adds-up"
_CUT, _WHY, _ITEM = "cut-response-is-incomplete", "incomplete-response-says-why", "cut-item-is-incomplete"
_TOLD, _SAME, _TURNS = "instructions-are-counted", "input-items-are-as-the-string", "earlier-turns-are-counted"
_BAD, _SHAPE = "wrong-response-request-does-no-harm", "response-refusals-have-one-shape"
_UNTHINKING = ("obedient", "babbling", "declining")

MUTANTS = (
    Mutant(id="no-responses", server=NoResponses, trips=((_TEXT, _R),)),
    Mutant(id="responses-fail", server=ResponsesFail, trips=((_TEXT, _V),)),
    Mutant(id="empty-output", server=EmptyOutput, trips=((_TEXT, _V),), source="vllm-project/vllm#24184"),
    Mutant(
        id="text-in-the-reasoning",
        server=TextInTheReasoning,
        trips=((_TEXT, _V),),
        source="jundot/omlx#2817",
        models=_UNTHINKING,
    ),
    Mutant(id="exclamations", server=Exclamations, trips=((_SANE, _V),), source="vllm-project/vllm#13035"),
    Mutant(id="never-completed", server=NeverCompleted, trips=((_STATUS, _V),)),
    Mutant(id="items-without-ids", server=ItemsWithoutIds, trips=((_ITEMS, _V),)),
    Mutant(id="users-message", server=UsersMessage, trips=((_ITEMS, _V),)),
    Mutant(id="streams-unasked", server=StreamsUnasked, trips=((_ITEMS, _V),)),
    Mutant(id="chat-object", server=ChatObject, trips=((_NAMED, _V),)),
    Mutant(id="no-usage", server=NoUsage, trips=((_USAGE, _V),)),
    Mutant(id="usage-in-chat-words", server=UsageInChatWords, trips=((_USAGE, _V),), source="BerriAI/litellm#28899"),
    Mutant(id="total-without-input", server=TotalWithoutInput, trips=((_USAGE, _V),)),
    Mutant(id="cut-says-completed", server=CutSaysCompleted, trips=((_CUT, _V),), source="vllm-project/vllm#24184"),
    Mutant(id="limit-ignored", server=LimitIgnored, trips=((_CUT, _N),)),
    Mutant(
        id="incomplete-without-reason",
        server=IncompleteWithoutReason,
        trips=((_WHY, _V), (_CUT, Outcome.HELD)),
        source="vllm-project/vllm#24561",
    ),
    Mutant(id="cut-item-says-completed", server=CutItemSaysCompleted, trips=((_ITEM, _V), (_CUT, Outcome.HELD))),
    Mutant(id="instructions-dropped", server=InstructionsDropped, trips=((_TOLD, _N),)),
    Mutant(id="parts-as-they-are", server=PartsAsTheyAre, trips=((_SAME, _V),)),
    Mutant(id="last-turn-only", server=LastTurnOnly, trips=((_TURNS, _N),)),
    Mutant(
        id="output-items-refused",
        server=OutputItemsRefused,
        trips=((_TURNS, _R),),
        source="jrkropp/open-webui-developer-toolkit#715",
    ),
    Mutant(id="wrong-input-fails", server=WrongInputFails, trips=((_BAD, _V),), source="sgl-project/sglang#22980"),
    Mutant(
        id="refusals-in-two-shapes",
        server=RefusalsInTwoShapes,
        trips=((_SHAPE, _V),),
        source="vllm-project/vllm#57997",
    ),
    Mutant(
        id="thinking-uncounted",
        server=ThinkingUncounted,
        trips=(("response-counts-its-thinking", Outcome.VIOLATED),),
        source="BerriAI/litellm#41849",
        models=("reasoning",),
    ),
)

HARMLESS = (
    Harmless(id="nothing-that-is-null", server=NothingThatIsNull),
    Harmless(id="more-than-asked", server=MoreThanAsked),
    Harmless(id="lenient-limit", server=LenientLimit),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
