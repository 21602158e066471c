"""``POST /v1/responses``: input items in, output items and typed events out; what was stored can be continued."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from servecheck.reference import fields
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Tally
from servecheck.reference.chat import ChatRoutes
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError

__all__ = ["Asked", "Item", "ResponsesRoutes"]

_TEXTS = frozenset({"input_text", "output_text", "text"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of this route: its own body, the messages it stands for, and the job that answers it."""

    body: Event
    messages: tuple[Event, ...]
    job: Job


class Item:
    """One output item while it is being made; ``kind`` is ``message``, ``reasoning`` or ``function_call``."""

    def __init__(self, kind: str, index: int, identifier: str, **more: Any) -> None:  # noqa: ANN401
        self.kind, self.index, self.id, self.more, self.said = kind, index, identifier, more, ""

    def shown(self, status: str) -> Event:
        """Return the item as JSON; its content is empty while it is in progress."""
        made: Event = {"id": self.id, "type": self.kind, "status": status, **self.more}
        if self.kind == "function_call":
            return {**made, "arguments": self.said}
        content = [] if status == "in_progress" else [self.part(self.said)]
        return {**made, "summary": [], "content": content} if self.kind == "reasoning" else {**made, "content": content}

    def part(self, text: str) -> Event:
        """Return the item's one content part."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def event(self, what: str, **more: Any) -> Event:  # noqa: ANN401
        """Return an event about this item."""
        return {"type": f"response.{what}", "item_id": self.id, "output_index": self.index, **more}

    def opened(self) -> list[Event]:
        """Return the events that begin the item."""
        item = {"type": "response.output_item.added", "output_index": self.index, "item": self.shown("in_progress")}
        if self.kind == "function_call":
            return [item]
        return [item, self.event("content_part.added", content_index=0, part=self.part(""))]

    def grown(self, text: str) -> Event:
        """Return the event that adds a piece."""
        self.said += text
        if self.kind == "function_call":
            return self.event("function_call_arguments.delta", delta=text)
        more: Event = {"logprobs": []} if self.kind == "message" else {}
        return self.event(f"{self._text}.delta", content_index=0, delta=text, **more)

    def closed(self, status: str) -> list[Event]:
        """Return the events that end the item."""
        done = {"type": "response.output_item.done", "output_index": self.index, "item": self.shown(status)}
        if self.kind == "function_call":
            return [self.event("function_call_arguments.done", arguments=self.said), done]
        return [
            self.event(f"{self._text}.done", content_index=0, text=self.said),
            self.event("content_part.done", content_index=0, part=self.part(self.said)),
            done,
        ]

    @property
    def _text(self) -> str:
        return "reasoning_text" if self.kind == "reasoning" else "output_text"


class ResponsesRoutes(ChatRoutes):
    """The responses route.

    For faults: ``response_chat_body(body, messages)`` is the same request as the chat route would take it,
    ``items_of(body)`` reads the input, ``response_events(asked)`` are all events without numbers (a plain reply is the
    response of the last), ``numbered(events)`` numbers them, ``typed_frame(event)`` frames one,
    ``response_object(asked, …)`` and ``response_usage(asked, tally)`` are the response itself, ``ended(asked, finish)``
    its status and why it is incomplete, ``previous_messages(body)`` and ``remember(…)`` the store.
    """

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("POST", "/v1/responses"): "reply_responses"}

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.stored: dict[str, tuple[tuple[Event, ...], Event]] = {}

    async def reply_responses(self, request: Request) -> Reply:
        """Answer a request; all that can be refused is refused before a stream begins."""
        asked = self.response_job(self.body_of(request))
        if asked.job.stream:
            return self.stream_reply(self.typed_frames(self.numbered(self.response_events(asked))))
        last: Event = {}
        async for event in self.response_events(asked):
            last = event
        return json_reply(last["response"])

    async def reply_response(self, request: Request) -> Reply:
        """``GET /v1/responses/{id}``."""
        name = request.path.removeprefix("/v1/responses/")
        if name not in self.stored:
            raise self.unknown_response(name)
        return json_reply(self.stored[name][1])

    def unknown_response(self, name: str) -> ApiError:
        """Return the refusal of an id that is not stored."""
        return ApiError(f"there is no response {name!r}", status=404, kind="not_found_error", code="not_found")

    # ------------------------------------------------------------------ reading the body

    def response_job(self, body: Event) -> Asked:
        """Return the request, read and checked."""
        messages = [*self.previous_messages(body), *self.items_of(body)]
        job = self.chat_job(self.response_chat_body(body, messages))
        return Asked(body=body, messages=tuple(messages), job=replace(job, id=self.new_id("resp_")))

    def previous_messages(self, body: Event) -> tuple[Event, ...]:
        """Return the conversation that ``previous_response_id`` stands for."""
        name = fields.text(body, "previous_response_id")
        if not name:
            return ()
        if name not in self.stored:
            raise self.unknown_response(name)
        return self.stored[name][0]

    def remember(self, asked: Asked, response: Event) -> None:
        """Store a response that has ended, unless ``store`` is false."""
        if fields.boolean(asked.body, "store", default=True):
            output = [item for item in response["output"] if item.get("type") in _PREFIX]
            said = [*asked.messages, *self._items(output)]
            self.stored[response["id"]] = (tuple(said), response)

    def items_of(self, body: Event) -> list[Event]:
        """Return the messages that ``input`` stands for."""
        given = body.get("input")
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        if not isinstance(given, list):
            raise ApiError("input must be a string or a list of items", param="input", code="invalid_type")
        if not given:
            raise ApiError("input must not be empty", param="input")
        return self._items(given)

    def _items(self, given: list[Any]) -> list[Event]:
        made: list[Event] = []
        for number, item in enumerate(given):
            where = f"input[{number}]"
            if not isinstance(item, dict):
                raise ApiError(f"{where} must be an object", param=where, code="invalid_type")
            kind = item.get("type", "message")
            if kind == "message":
                made.append({"role": item.get("role"), "content": self._parts(item.get("content"), where)})
            elif kind == "function_call":
                function = {"name": item.get("name"), "arguments": item.get("arguments")}
                call = {"id": item.get("call_id"), "type": "function", "function": function}
                made.append({"role": "assistant", "content": None, "tool_calls": [call]})
            elif kind == "function_call_output":
                output = self._parts(item.get("output"), where)
                made.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
            elif kind != "reasoning":
                raise ApiError(f"{where}: items of type {kind!r} are not supported", param=f"{where}.type")
        return made

    @staticmethod
    def _parts(content: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(content, list):
            return content
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in _TEXTS:
                raise ApiError(f"{where}: this model takes text parts only, not {kind!r}", param=where)
        return [{"type": "text", "text": part.get("text")} for part in content]

    def response_chat_body(self, body: Event, messages: list[Event]) -> Event:
        """Return the same request as the chat route takes it."""
        instructions = fields.text(body, "instructions")
        made: Event = {
            name: body[name]
            for name in ("model", "temperature", "top_p", "parallel_tool_calls", "stream", "ignore_eos")
            if name in body
        }
        system = [{"role": "system", "content": instructions}] if instructions else []
        made["messages"] = [*system, *messages]
        if body.get("max_output_tokens") is not None:
            made["max_completion_tokens"] = fields.integer(body, "max_output_tokens", 0, 1)
        made |= self.response_tools(body) | self.response_format(body)
        effort = fields.text(fields.mapping(body, "reasoning"), "effort")
        return {**made, "reasoning_effort": effort} if effort else made

    def response_tools(self, body: Event) -> Event:
        """Return tools and choice in the chat route's shape."""
        given = body.get("tools")
        if not given:
            return {}
        if not isinstance(given, list):
            raise ApiError("tools must be a list", param="tools", code="invalid_type")
        tools = []
        for number, tool in enumerate(given):
            if not isinstance(tool, dict) or tool.get("type") != "function":
                kind = tool.get("type") if isinstance(tool, dict) else tool
                raise ApiError(f"tools[{number}]: type {kind!r} is not supported", param=f"tools[{number}].type")
            tools.append({"type": "function", "function": {key: tool[key] for key in tool if key != "type"}})
        choice = body.get("tool_choice")
        if isinstance(choice, dict):
            choice = {"type": choice.get("type"), "function": {"name": choice.get("name")}}
        return {"tools": tools, "tool_choice": choice}

    def response_format(self, body: Event) -> Event:
        """Return ``text.format`` in the chat route's shape."""
        wanted = fields.mapping(fields.mapping(body, "text"), "format")
        if not wanted:
            return {}
        if wanted.get("type") != "json_schema":
            return {"response_format": wanted}
        inner = {key: value for key, value in wanted.items() if key != "type"}
        return {"response_format": {"type": "json_schema", "json_schema": inner}}

    # ------------------------------------------------------------------ writing the answer

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Yield the events of a response, in order, without numbers and framing."""
        tally, items = Tally(), list[Item]()
        finish = "stop"
        for what in ("created", "in_progress"):
            yield {"type": f"response.{what}", "response": self.response_object(asked, [], "in_progress")}
        output: list[Event] = []
        async for delta in self.deltas(asked.job):
            tally.add(asked.job, delta)
            finish = delta.finish or finish
            for kind, text, more in self._said(asked, delta):
                if not items or items[-1].kind != kind or more:
                    for event in self.close_item(items, output, "completed"):
                        yield event
                    items.append(Item(kind, len(items), self.new_id(_PREFIX[kind]), **_NEW.get(kind, more)))
                    for event in items[-1].opened():
                        yield event
                if text:
                    yield items[-1].grown(text)
        if not items:
            items.append(Item("message", 0, self.new_id("msg_"), **_NEW["message"]))
            for event in items[-1].opened():
                yield event
        status, why = self.ended(asked, finish)
        for event in self.close_item(items, output, status):
            yield event
        usage = self.response_usage(asked, tally)
        response = self.response_object(asked, output, status, why, usage)
        self.remember(asked, json.loads(json.dumps(response)))
        yield {"type": f"response.{status}", "response": response}

    @staticmethod
    def close_item(items: list[Item], output: list[Event], status: str) -> list[Event]:
        """Return the events that end the last item, and put it into the output."""
        if not items:
            return []
        output.append(items[-1].shown(status))
        return items[-1].closed(status)

    def _said(self, asked: Asked, delta: Delta) -> list[tuple[str, str, Event]]:
        """Return what a delta says as (kind of item, text, fields of a new item)."""
        said: list[tuple[str, str, Event]] = []
        if delta.reasoning:
            said.append(("reasoning", delta.reasoning, {}))
        if delta.content:
            said.append(("message", delta.content, {}))
        for call in delta.calls:
            begun: Event = {}
            if call.name is not None:
                begun = {"name": call.name, "call_id": self.call_id(asked.job, 0, call.index)}
            said.append(("function_call", call.arguments, begun))
        return said

    def ended(self, asked: Asked, finish: str) -> tuple[str, Event | None]:  # noqa: ARG002
        """Return the status of a response that ended so, and why it is incomplete."""
        return ("incomplete", {"reason": "max_output_tokens"}) if finish == "length" else ("completed", None)

    def response_usage(self, asked: Asked, tally: Tally) -> Event:
        """Return the usage in this route's words."""
        usage = self.usage(asked.job, tally)
        details = usage.get("prompt_tokens_details") or {}
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": details.get("cached_tokens", 0)},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": tally.reasoning},
            "total_tokens": usage["total_tokens"],
        }

    def response_object(
        self,
        asked: Asked,
        output: list[Event],
        status: str,
        why: Event | None = None,
        usage: Event | None = None,
    ) -> Event:
        """Return the response as it stands."""
        body, job = asked.body, asked.job
        return {
            "id": job.id,
            "object": "response",
            "created_at": job.created,
            "status": status,
            "error": None,
            "incomplete_details": why,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "model": job.model,
            "output": list(output),
            "parallel_tool_calls": job.parallel,
            "previous_response_id": body.get("previous_response_id"),
            "store": fields.boolean(body, "store", default=True),
            "temperature": job.sampling.temperature,
            "text": {"format": fields.mapping(fields.mapping(body, "text"), "format") or {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": job.sampling.top_p,
            "truncation": "disabled",
            "usage": usage,
        }

    async def numbered(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """Number events from zero."""
        numbers = itertools.count()
        async for event in events:
            yield {**event, "sequence_number": next(numbers)}

    async def typed_frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Yield a stream's bytes; trouble on the way is an error event, and there is no end marker."""
        try:
            async for event in events:
                yield self.typed_frame(event)
        except ApiError as wrong:
            yield self.typed_frame(
                {"type": "error", "code": wrong.code, "message": wrong.message, "param": wrong.param}
            )

    def typed_frame(self, event: Event) -> bytes:
        """Return one event as SSE bytes, with its type on a line of its own."""
        return b"event: " + str(event["type"]).encode() + b"\n" + self.frame(event)


_PREFIX = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
_NEW: dict[str, Event] = {"message": {"role": "assistant"}}
