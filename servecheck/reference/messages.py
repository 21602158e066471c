"""``POST /v1/messages``: Anthropic's messages in, content blocks and their events out, errors in its own shape."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from servecheck.reference import fields
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer, Tally
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.responses import ResponsesRoutes
from servecheck.reference.tokens import render_chat

__all__ = ["Letter", "MessagesRoutes"]

_PATH = "/v1/messages"
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}
_STOPS = {"length": "max_tokens", "tool_calls": "tool_use", "stop": "end_turn"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A request of this route: its own body and the job that answers it."""

    body: Event
    job: Job


class MessagesRoutes(ResponsesRoutes):
    """The messages route.

    For faults: ``message_chat_body(body)`` is the same request as the chat route would take it, a whole reply is
    ``message_object(letter, answers)``, ``message_events(letter)`` are all events of a stream, ``message_usage(letter,
    tally)`` is its usage, ``stop_of(letter, finish, reason)`` why it ended, ``message_error(wrong)`` a refusal.
    """

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {
        ("POST", _PATH): "reply_messages",
        ("POST", f"{_PATH}/count_tokens"): "reply_count",
    }

    async def reply_messages(self, request: Request) -> Reply:
        """Answer a request; all that can be refused is refused before a stream begins."""
        letter = self.letter(self.body_of(request))
        if letter.job.stream:
            return self.stream_reply(self.typed_frames(self.message_events(letter)))
        return json_reply(self.message_object(letter, await self.answers(letter.job)))

    async def reply_count(self, request: Request) -> Reply:
        """``POST /v1/messages/count_tokens``."""
        body = self.message_chat_body({**self.body_of(request), "max_tokens": 1})
        self.check_model(body)
        thinking = self.thinking_of(body) or not self.language.thinks
        ids = render_chat(self.messages_of(body), self.tools_of(body).shown, thinking=thinking)
        return json_reply({"input_tokens": len(ids)})

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Return a refusal in the shape of the route."""
        if request.path.startswith(_PATH):
            return json_reply(self.message_error(wrong), wrong.status)
        return super().error(wrong, request)

    def message_error(self, wrong: ApiError) -> Event:
        """Return the error object of this route."""
        kind = _KINDS.get(wrong.status, "api_error" if wrong.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": wrong.message}}

    # ------------------------------------------------------------------ reading the body

    def letter(self, body: Event) -> Letter:
        """Return the request, read and checked."""
        job = self.chat_job(self.message_chat_body(body))
        return Letter(body=body, job=replace(job, id=self.new_id("msg_")))

    def message_chat_body(self, body: Event) -> Event:
        """Return the same request as the chat route takes it."""
        if body.get("max_tokens") is None:
            raise ApiError("max_tokens: field required", param="max_tokens")
        given = body.get("messages")
        if not isinstance(given, list):
            raise ApiError("messages: must be a list", param="messages", code="invalid_type")
        made: Event = {
            name: body[name]
            for name in ("model", "max_tokens", "temperature", "top_p", "top_k", "stream", "ignore_eos")
            if name in body
        }
        system = self._text_of(body.get("system"), "system")
        messages: list[Event] = [{"role": "system", "content": system}] if system else []
        for number, message in enumerate(given):
            messages += self._message_of(message, f"messages[{number}]")
        made["messages"] = messages
        made["stop"] = list(fields.texts(body, "stop_sequences"))
        if fields.text(fields.mapping(body, "thinking"), "type") == "disabled":
            made["reasoning_effort"] = "none"
        return {**made, **self.message_tools(body)}

    def message_tools(self, body: Event) -> Event:
        """Return tools and choice in the chat route's shape."""
        tools = body.get("tools")
        if not tools:
            return {}
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise ApiError("tools: must be a list of objects", param="tools", code="invalid_type")
        functions = [
            {
                "type": "function",
                "function": {
                    "name": tool.get("name"),
                    "description": tool.get("description"),
                    "parameters": tool.get("input_schema"),
                },
            }
            for tool in tools
        ]
        choice = fields.mapping(body, "tool_choice")
        kind = choice.get("type", "auto")
        if kind != "tool" and kind not in _CHOICES:
            raise ApiError(f"tool_choice: type {kind!r} is not known", param="tool_choice")
        named: Any = {"type": "function", "function": {"name": choice.get("name")}}
        return {
            "tools": functions,
            "tool_choice": named if kind == "tool" else _CHOICES[kind],
            "parallel_tool_calls": not fields.boolean(choice, "disable_parallel_tool_use"),
        }

    def _message_of(self, message: Any, where: str) -> list[Event]:  # noqa: ANN401
        if not isinstance(message, dict):
            raise ApiError(f"{where}: must be an object", param=where, code="invalid_type")
        role, content = message.get("role"), message.get("content")
        if role not in {"user", "assistant"}:
            raise ApiError(f"{where}.role: must be user or assistant, got {role!r}", param=f"{where}.role")
        blocks = content if isinstance(content, list) else []
        results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
        calls = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
        rest = [block for block in blocks if block not in results and block not in calls]
        text = self._text_of(rest if isinstance(content, list) else content, where)
        made: list[Event] = [
            {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": self._text_of(block.get("content"), where),
            }
            for block in results
        ]
        if calls:
            functions = [
                {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})} for block in calls
            ]
            listed = [
                {"id": block.get("id"), "type": "function", "function": function}
                for block, function in zip(calls, functions, strict=True)
            ]
            return [{"role": role, "content": text or None, "tool_calls": listed}]
        return made if results and not text else [*made, {"role": role, "content": text}]

    def _text_of(self, content: Any, where: str) -> str:  # noqa: ANN401
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, list):
            raise ApiError(f"{where}: must be a string or a list of blocks", param=where, code="invalid_type")
        texts = []
        for block in content:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "thinking":
                continue
            if kind != "text":
                raise ApiError(f"{where}: this model takes text blocks only, not {kind!r}", param=where)
            texts.append(fields.text(block, "text"))
        return "\n".join(texts)

    # ------------------------------------------------------------------ writing the answer

    def message_object(self, letter: Letter, answers: Sequence[Answer]) -> Event:
        """Return the whole reply."""
        answer = answers[0]
        content: list[Event] = []
        if answer.reasoning:
            content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
        if answer.content or not (answer.calls or answer.reasoning):
            content.append({"type": "text", "text": answer.content})
        for number, call in enumerate(answer.calls):
            name = self.call_id(letter.job, 0, number)
            content.append({"type": "tool_use", "id": name, "name": call["name"], "input": _object(call["arguments"])})
        return {
            **self.message_head(letter),
            "content": content,
            **self.stop_of(letter, answer.finish, answer.stop_reason),
            "usage": self.message_usage(letter, Tally.of(answers)),
        }

    def message_head(self, letter: Letter) -> Event:
        """Return what a message begins with."""
        return {"id": letter.job.id, "type": "message", "role": "assistant", "model": letter.job.model}

    def stop_of(self, letter: Letter, finish: str, reason: str | int | None) -> Event:  # noqa: ARG002
        """Return why the message ended."""
        if finish == "stop" and isinstance(reason, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": reason}
        return {"stop_reason": _STOPS[finish], "stop_sequence": None}

    def message_usage(self, letter: Letter, tally: Tally) -> Event:
        """Return the usage in this route's words: what came from the cache is not part of ``input_tokens``."""
        usage = self.usage(letter.job, tally)
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": usage["completion_tokens"],
        }

    async def message_events(self, letter: Letter) -> AsyncIterator[Event]:
        """Yield the events of a stream, in order, without framing."""
        tally = Tally()
        place, kind = -1, ""
        finish, reason = "stop", None
        begun = False
        async for delta in self.deltas(letter.job):
            if not begun:
                # The cache is looked up when the prompt is computed, which the first delta shows to be over.
                begun = True
                for event in self._begin(letter):
                    yield event
            tally.add(letter.job, delta)
            if delta.finish is not None:
                finish, reason = delta.finish, delta.stop_reason
            said: list[tuple[str, Event | None, Event]] = []
            if delta.reasoning:
                said.append(("thinking", None, {"type": "thinking_delta", "thinking": delta.reasoning}))
            if delta.content:
                said.append(("text", None, {"type": "text_delta", "text": delta.content}))
            for call in delta.calls:
                new: Event | None = None
                if call.name is not None:
                    new = {"id": self.call_id(letter.job, 0, call.index), "name": call.name, "input": {}}
                said.append(("tool_use", new, {"type": "input_json_delta", "partial_json": call.arguments}))
            for block, new, piece in said:
                if block != kind or new is not None:
                    if kind:
                        yield {"type": "content_block_stop", "index": place}
                    place, kind = place + 1, block
                    started = {"type": block, **(new if new is not None else dict(_EMPTY[block]))}
                    yield {"type": "content_block_start", "index": place, "content_block": started}
                yield {"type": "content_block_delta", "index": place, "delta": piece}
        if not kind:
            place = 0
            yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_stop", "index": place}
        usage = self.message_usage(letter, tally)
        yield {"type": "message_delta", "delta": self.stop_of(letter, finish, reason), "usage": usage}
        yield {"type": "message_stop"}

    def _begin(self, letter: Letter) -> list[Event]:
        ends: Event = {"content": [], "stop_reason": None, "stop_sequence": None}
        usage = {**self.message_usage(letter, Tally()), "output_tokens": 0}
        return [
            {"type": "message_start", "message": {**self.message_head(letter), **ends, "usage": usage}},
            {"type": "ping"},
        ]


_EMPTY: dict[str, Event] = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}


def _object(arguments: str) -> Any:  # noqa: ANN401
    """Return arguments as JSON; those of a call that was cut are empty, as no client could read them."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}
