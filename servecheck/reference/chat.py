"""``POST /v1/chat/completions``: the body read and checked, the answer and the stream in OpenAI's shapes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from servecheck.reference import fields
from servecheck.reference.answers import call_text, calls_wanted
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer, Tally
from servecheck.reference.constraint import BadConstraint, Choose, Constraint, Schema
from servecheck.reference.engine import Delta, Job, Prompt, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.pictures import PictureRoutes
from servecheck.reference.tokens import SPECIAL, piece, render_chat, shown

__all__ = ["ChatRoutes", "Toolbox"]

_ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """A request's tools; ``choice`` is ``auto``, ``none``, ``required`` or ``named`` (then ``name`` says which)."""

    tools: tuple[Event, ...] = ()
    choice: str = "none"
    name: str = ""
    parallel: bool = True

    @property
    def shown(self) -> tuple[Event, ...]:
        """The tools that the model is told of."""
        return () if self.choice == "none" else self.tools


@dataclass(frozen=True, slots=True)
class Calls:
    """A constraint: one or more calls of these functions, with arguments that their schemas allow."""

    functions: tuple[tuple[str, Schema], ...]
    count: int = 1

    def text(self, choose: Choose, hints: Sequence[str]) -> str:
        """Return the calls as the models write them."""
        calls: list[str] = []
        for number in range(self.count):
            name, schema = self.functions[choose(len(self.functions))]
            calls.append(call_text(name, schema.text(choose, [*hints[number:], *hints[:number]])))
        return "\n".join(calls)


@dataclass(slots=True)
class _Started:
    indices: set[int] = field(default_factory=set)

    def is_new(self, index: int) -> bool:
        new = index not in self.indices
        self.indices.add(index)
        return new


class ChatRoutes(PictureRoutes):
    """Chat completions."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("POST", "/v1/chat/completions"): "reply_chat"}

    async def reply_chat(self, request: Request) -> Reply:
        """Answer a chat completion request; all that can be refused is refused before a stream begins."""
        job = self.chat_job(self.body_of(request))
        if job.stream:
            return self.stream_reply(self.frames(self.chunks(job)))
        return json_reply(self.completion(job, await self.answers(job)))

    def chat_job(self, body: Event) -> Job:
        """Return the request, read and checked."""
        self.check_model(body)
        messages = self.messages_of(body)
        toolbox = self.tools_of(body)
        thinking = self.thinking_of(body)
        ids = self.rendered(messages, toolbox.shown, thinking=thinking or not self.language.thinks)
        self.check_length(ids)
        constraint = self.constraint_of(body)
        asked = next((message["content"] or "" for message in reversed(messages) if message["role"] == "user"), "")
        if toolbox.choice in {"required", "named"}:
            constraint = self.calls_constraint(toolbox, asked)
        wants = fields.boolean(body, "logprobs")
        top = fields.integer(body, "top_logprobs", 0, 0, 20)
        if top and not wants:
            raise ApiError("top_logprobs needs logprobs to be true", param="top_logprobs")
        options = self.stream_options_of(body)
        return Job(
            id=self.new_id("chatcmpl-"),
            created=int(self.clock()),
            model=self.answering(body),
            body=body,
            prompts=(Prompt(ids=ids),),
            sampling=self.sampling_of(body),
            limit=self.limit_of(body, self.max_model_len - len(ids)),
            n=fields.integer(body, "n", 1, 1, 128),
            stops=self.stops_of(body),
            include_stop=fields.boolean(body, "include_stop_str_in_output"),
            salt=self.salt_of(body),
            constraint=constraint,
            tools=toolbox.choice != "none",
            parallel=toolbox.parallel,
            thinking=thinking and self.language.thinks,
            logprobs=top if wants else None,
            prompt_logprobs=self.prompt_logprobs_of(body),
            stream=options.stream,
            include_usage=options.include_usage,
            continuous_usage=options.continuous_usage,
        )

    # ------------------------------------------------------------------ reading the body

    def rendered(self, messages: Sequence[Event], tools: Sequence[Event], *, thinking: bool) -> tuple[int, ...]:
        """Return the prompt as the chat template writes it: the tools stand before everything else."""
        return render_chat(messages, tools, thinking=thinking)

    def messages_of(self, body: Event) -> list[Event]:
        """Return the messages with plain string contents."""
        given = body.get("messages")
        if not isinstance(given, list):
            raise ApiError("messages must be a list", param="messages", code="invalid_type")
        if not given:
            raise ApiError("messages must not be empty", param="messages")
        return [self._message(message, f"messages[{number}]") for number, message in enumerate(given)]

    def _message(self, message: Any, where: str) -> Event:  # noqa: ANN401
        if not isinstance(message, dict):
            raise ApiError(f"{where} must be an object", param=where, code="invalid_type")
        role = message.get("role")
        if role not in _ROLES:
            raise ApiError(f"{where}.role must be one of {', '.join(_ROLES)}, got {role!r}", param=f"{where}.role")
        calls = message.get("tool_calls") or []
        if calls and role != "assistant":
            raise ApiError(f"{where}.tool_calls belongs to assistant messages", param=f"{where}.tool_calls")
        content = self._content(message.get("content"), f"{where}.content")
        if content is None and not calls:
            if role != "assistant" or "content" not in message:
                raise ApiError(f"{where}.content is missing", param=f"{where}.content")
            content = ""
        made: Event = {"role": role, "content": content}
        if calls:
            made["tool_calls"] = [self._call(call, f"{where}.tool_calls") for call in calls]
        return made

    def _content(self, content: Any, where: str) -> str | None:  # noqa: ANN401
        if content is None or isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise ApiError(f"{where} must be a string or a list of parts", param=where, code="invalid_type")
        texts: list[str] = []
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "image_url":
                texts.append(self.picture_text(part, where))
                continue
            if kind not in {"text", "input_text"}:
                raise ApiError(f"{where}: this model takes text and image_url parts, not {kind!r}", param=where)
            texts.append(fields.text(part, "text"))
        return "\n".join(texts)

    @staticmethod
    def _call(call: Any, where: str) -> Event:  # noqa: ANN401
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ApiError(f"{where} must hold functions with a name", param=where)
        arguments = function.get("arguments", "{}")
        if not isinstance(arguments, str):
            raise ApiError(f"{where}: arguments must be a string", param=where, code="invalid_type")
        return {"function": {"name": function["name"], "arguments": arguments}}

    def thinking_of(self, body: Event) -> bool:
        """Return whether the model may think first (``chat_template_kwargs.enable_thinking``, ``reasoning_effort``)."""
        if fields.text(body, "reasoning_effort") == "none":
            return False
        return fields.boolean(fields.mapping(body, "chat_template_kwargs"), "enable_thinking", default=True)

    def tools_of(self, body: Event) -> Toolbox:
        """Return the tools, and whether and how they must be used."""
        given = body.get("tools")
        if given is not None and not isinstance(given, list):
            raise ApiError("tools must be a list", param="tools", code="invalid_type")
        tools = tuple(self._tool(tool, f"tools[{number}]") for number, tool in enumerate(given or ()))
        choice = body.get("tool_choice")
        if not tools:
            if choice not in {None, "none"} if not isinstance(choice, dict) else True:
                raise ApiError("tool_choice needs tools", param="tool_choice")
            return Toolbox()
        names = [tool["function"]["name"] for tool in tools]
        parallel = fields.boolean(body, "parallel_tool_calls", default=True)
        if choice in (None, "auto", "none", "required"):
            return Toolbox(tools=tools, choice=choice or "auto", parallel=parallel)
        function = choice.get("function") if isinstance(choice, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(choice, dict) or choice.get("type") != "function" or not isinstance(name, str):
            raise ApiError(f"tool_choice {choice!r} is none of auto, none, required, a function", param="tool_choice")
        if name not in names:
            raise ApiError(f"tool_choice names {name!r}, which is not among the tools", param="tool_choice")
        return Toolbox(tools=tools, choice="named", name=name, parallel=parallel)

    @staticmethod
    def _tool(tool: Any, where: str) -> Event:  # noqa: ANN401
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(function, dict):
            raise ApiError(f"{where} must be a function tool", param=where)
        name = function.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            raise ApiError(f"{where}.function.name is not a name: {name!r}", param=f"{where}.function.name")
        parameters = function.get("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            raise ApiError(f"{where}.function.parameters must be a schema", param=f"{where}.function.parameters")
        return tool

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Return the constraint that makes the model call; arguments always follow the schema, strict or not."""
        functions: list[tuple[str, Schema]] = []
        for tool in toolbox.tools:
            function = tool["function"]
            if toolbox.choice == "named" and function["name"] != toolbox.name:
                continue
            try:
                schema = Schema(function.get("parameters") or {"type": "object", "properties": {}})
            except BadConstraint as wrong:
                raise ApiError(f"tools: parameters of {function['name']}: {wrong}", param="tools") from wrong
            functions.append((function["name"], schema))
        one = toolbox.choice == "named" or not toolbox.parallel
        return Calls(tuple(functions), 1 if one else calls_wanted(asked))

    # ------------------------------------------------------------------ writing the answer

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Return the whole reply of a request that does not stream."""
        reply: Event = {
            "id": job.id,
            "object": "chat.completion",
            "created": job.created,
            "model": job.model,
            "system_fingerprint": self.fingerprint,
            "choices": [self.chat_choice(job, answer) for answer in answers],
            "usage": self.usage(job, Tally.of(answers)),
        }
        if job.prompt_logprobs is not None:
            reply["prompt_logprobs"] = self.prompt_logprobs(job.prompts[0], job.prompt_logprobs)
        return reply

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Return one choice of a whole reply."""
        empty = None if answer.calls or answer.reasoning else ""
        message: Event = {"role": "assistant", "content": answer.content or empty, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [
                {"id": self.call_id(job, answer.index, number), "type": "function", "function": dict(call)}
                for number, call in enumerate(answer.calls)
            ]
        return {
            "index": answer.index,
            "message": message,
            "logprobs": self.chat_logprobs(job, answer.steps),
            "finish_reason": answer.finish,
            "stop_reason": answer.stop_reason,
            **self.token_ids(job, answer),
        }

    def chat_logprobs(self, job: Job, steps: Sequence[Step]) -> Event | None:
        """Return ``logprobs`` for these tokens; ``None`` where none were asked for."""
        if job.logprobs is None:
            return None
        return {"content": [self.logprob_entry(step) for step in steps], "refusal": None}

    def logprob_entry(self, step: Step) -> Event:
        """Return one token's entry; a special token has no bytes."""
        return {
            **_token(step.token, step.logprob),
            "top_logprobs": [_token(token, logprob) for token, logprob in step.top],
        }

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Yield the JSON events of a stream, in order, without framing."""
        started, tally = _Started(), Tally()
        async for delta in self.deltas(job):
            tally.add(job, delta)
            if started.is_new(delta.index):
                yield self.chunk(job, delta.index, {"role": "assistant", "content": ""}, tally)
            event = self.chunk(job, delta.index, self.chat_delta(job, delta), tally, delta.finish)
            choice = event["choices"][0]
            choice["logprobs"] = self.chat_logprobs(job, delta.steps) if delta.steps else None
            if delta.stop_reason is not None:
                choice["stop_reason"] = delta.stop_reason
            yield event
        if job.include_usage:
            yield {**self.envelope(job), "choices": [], "usage": self.usage(job, tally)}

    def envelope(self, job: Job) -> Event:
        """Return what all events of a stream share."""
        return {
            "id": job.id,
            "object": "chat.completion.chunk",
            "created": job.created,
            "model": job.model,
            "system_fingerprint": self.fingerprint,
        }

    def chunk(self, job: Job, index: int, delta: Event, tally: Tally, finish: str | None = None) -> Event:
        """Return one event of a stream for one choice."""
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
        event = {**self.envelope(job), "choices": [choice]}
        if job.include_usage:
            event["usage"] = self.usage(job, tally) if job.continuous_usage else None
        return event

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Return the ``delta`` object of one event."""
        made: Event = {}
        if delta.reasoning:
            made["reasoning_content"] = delta.reasoning
        if delta.content:
            made["content"] = delta.content
        if delta.calls:
            made["tool_calls"] = [
                {
                    "index": call.index,
                    "id": self.call_id(job, delta.index, call.index),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                if call.name is not None
                else {"index": call.index, "function": {"arguments": call.arguments}}
                for call in delta.calls
            ]
        return made

    def call_id(self, job: Job, index: int, number: int) -> str:
        """Return the id of a tool call."""
        return f"call_{job.id.rpartition('-')[2]}{index:02d}{number:02d}"


def _token(token: int, logprob: float) -> Event:
    data = None if token in SPECIAL else list(piece(token))
    return {"token": shown(token), "logprob": logprob, "bytes": data}
