"""What all generation routes share: the body read field by field, answers collected, usage, framing, errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from servecheck.reference import fields
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.constraint import (
    AnyObject,
    BadConstraint,
    Choices,
    Constraint,
    Derived,
    Matching,
    Schema,
    Tagged,
)
from servecheck.reference.engine import Delta, Engine, Job, Prompt, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.sampling import Sampling
from servecheck.reference.tokens import THINK_CLOSE, VOCABULARY, encode, shown

__all__ = ["Answer", "Base", "StreamOptions", "Tally"]

_SEEDS = 2**64


@dataclass(slots=True)
class Answer:
    """One whole choice, put together from the same deltas that a stream would have sent."""

    index: int
    content: str = ""
    reasoning: str = ""
    calls: list[Event] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    finish: str = ""
    stop_reason: str | int | None = None
    count: int = 0
    thought: int = 0

    def add(self, delta: Delta) -> None:
        """Take in one delta."""
        self.content += delta.content
        self.reasoning += delta.reasoning
        for call in delta.calls:
            if call.name is not None:
                self.calls.append({"name": call.name, "arguments": ""})
            self.calls[call.index]["arguments"] += call.arguments
        self.steps.extend(delta.steps)
        self.count = max(self.count, delta.count)
        if delta.finish is not None:
            self.finish, self.stop_reason = delta.finish, delta.stop_reason


@dataclass(slots=True)
class Tally:
    """Tokens generated so far, by choice, and those that were thoughts."""

    counts: dict[int, int] = field(default_factory=dict)
    thoughts: dict[int, int] = field(default_factory=dict)
    answering: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Tally:
        """Return the tally of whole answers."""
        return cls({answer.index: answer.count for answer in answers}, {a.index: a.thought for a in answers})

    def add(self, job: Job, delta: Delta) -> None:
        """Take in one delta."""
        self.counts[delta.index] = max(self.counts.get(delta.index, 0), delta.count)
        if not job.thinking:
            return
        for step in delta.steps:
            if delta.index not in self.answering:
                self.thoughts[delta.index] = self.thoughts.get(delta.index, 0) + 1
            if step.token == THINK_CLOSE:
                self.answering.add(delta.index)

    @property
    def completion(self) -> int:
        """All tokens generated."""
        return sum(self.counts.values())

    @property
    def reasoning(self) -> int:
        """Those of them that were thoughts."""
        return sum(self.thoughts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Whether to stream, and what usage to send with it."""

    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False


class Base(Engine):
    """Shared by the routes; see :class:`~servecheck.reference.server.ReferenceServer`."""

    fingerprint: str | None = "reference-1"

    # ------------------------------------------------------------------ reading the body

    def body_of(self, request: Request) -> Event:
        """Return the JSON object of a request."""

        def refuse(name: str) -> NoReturn:
            raise ValueError(f"{name} is not JSON")

        try:
            body = json.loads(request.body.decode("utf-8"), parse_constant=refuse)
        except (ValueError, RecursionError) as wrong:
            raise ApiError(f"the request body is not valid JSON: {wrong}", code="invalid_json") from wrong
        if not isinstance(body, dict):
            raise ApiError("the request body must be a JSON object", code="invalid_type")
        return body

    def check_model(self, body: Event) -> None:
        """Refuse a model that is not served; a missing name means the only model."""
        name = self.model_of(body)
        if name not in (self.model, *self.adapters):
            raise ApiError(
                f"the model {name!r} does not exist; served here: {self.model!r}",
                status=404,
                kind="not_found_error",
                param="model",
                code="model_not_found",
            )

    def model_of(self, body: Event) -> str:
        """Return the model that a request names, the served one where it names none."""
        return fields.text(body, "model", self.model)

    def answering(self, body: Event) -> str:
        """Return the model that answers: the adapter that was named, else the served one."""
        name = self.model_of(body)
        return name if name in self.adapters else self.model

    def check_length(self, ids: Sequence[int]) -> None:
        """Refuse a prompt that leaves no room for an answer."""
        if len(ids) >= self.max_model_len:
            raise ApiError(
                f"this model's maximum context length is {self.max_model_len} tokens, "
                f"but the prompt has {len(ids)} tokens; please shorten it",
                param="messages",
                code="context_length_exceeded",
            )

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Return the most tokens to generate; ``max_completion_tokens`` wins, and the context's room caps both."""
        asked = room if default is None else default
        for name in ("max_tokens", "max_completion_tokens"):
            asked = fields.integer(body, name, asked, low)
            if body.get(name) is not None and asked > self.max_model_len:
                raise ApiError(
                    f"{name} is {asked}, above the maximum context length of {self.max_model_len} tokens",
                    param=name,
                    code="context_length_exceeded",
                )
        return min(asked, room)

    def seed_of(self, body: Event) -> int | None:
        """Return the seed that was given, ``None`` where each request shall differ."""
        return fields.integer(body, "seed", 0, -(2**63), 2**63 - 1) if body.get("seed") is not None else None

    def stops_of(self, body: Event) -> tuple[str, ...]:
        """Return the stop strings."""
        stops = fields.texts(body, "stop")
        if len(stops) > 16:
            raise ApiError("stop takes at most 16 strings", param="stop")
        return stops

    def salt_of(self, body: Event) -> str:
        """Return the cache salt."""
        return fields.text(body, "cache_salt")

    def sampling_of(self, body: Event) -> Sampling:
        """Return the sampling parameters; a request without a seed gets one of its own."""
        seed = self.seed_of(body)
        allowed = fields.integers(body, "allowed_token_ids", below=VOCABULARY)
        words = fields.texts(body, "bad_words")
        return Sampling(
            temperature=fields.number(body, "temperature", 1.0, 0, 2),
            top_p=fields.number(body, "top_p", 1.0, 1e-12, 1),
            top_k=max(0, fields.integer(body, "top_k", 0, -1)),
            min_p=fields.number(body, "min_p", 0.0, 0, 1),
            seed=_SEEDS + next(self._requests) * 7919 + self.jitter_seed if seed is None else seed,
            frequency_penalty=fields.number(body, "frequency_penalty", 0.0, -2, 2),
            presence_penalty=fields.number(body, "presence_penalty", 0.0, -2, 2),
            repetition_penalty=fields.number(body, "repetition_penalty", 1.0, 1e-6, 100),
            logit_bias=self.logit_bias_of(body),
            allowed=frozenset(allowed) if allowed else None,
            bad_words=tuple(encode(form) for word in words for form in dict.fromkeys((word, " " + word.lstrip()))),
            min_tokens=fields.integer(body, "min_tokens", 0, 0, self.max_model_len),
            ignore_eos=fields.boolean(body, "ignore_eos"),
            stop_ids=frozenset(fields.integers(body, "stop_token_ids", below=VOCABULARY)),
        )

    def logit_bias_of(self, body: Event) -> dict[int, float]:
        """Return the bias by token id."""
        made: dict[int, float] = {}
        for key in (given := fields.mapping(body, "logit_bias")):
            try:
                token = int(key)
            except ValueError:
                raise ApiError(f"logit_bias: {key!r} is not a token id", param="logit_bias") from None
            fields.in_vocabulary("logit_bias", [token], VOCABULARY)
            made[token] = fields.number(given, key, 0.0, -100, 100)
        return made

    def stream_options_of(self, body: Event) -> StreamOptions:
        """Return whether and how to stream."""
        stream = fields.boolean(body, "stream")
        options = fields.mapping(body, "stream_options")
        if options and not stream:
            raise ApiError("stream_options needs stream to be true", param="stream_options")
        usage = fields.boolean(options, "include_usage")
        continuous = fields.boolean(options, "continuous_usage_stats")
        return StreamOptions(stream=stream, include_usage=usage, continuous_usage=usage and continuous)

    def prompt_logprobs_of(self, body: Event) -> int | None:
        """Return how many alternatives per prompt token are asked for."""
        if body.get("prompt_logprobs") is None:
            return None
        if fields.boolean(body, "stream"):
            raise ApiError("prompt_logprobs is not available with stream", param="prompt_logprobs")
        return fields.integer(body, "prompt_logprobs", 0, 0, 20)

    def constraint_of(self, body: Event) -> Constraint | None:
        """Return what the answer must conform to; refuses what this server cannot apply, by name."""
        wanted, extra = fields.mapping(body, "response_format"), fields.mapping(body, "structured_outputs")
        if extra:
            return self._structured(extra)
        kind = wanted.get("type") if wanted else "text"
        if kind == "text":
            return None
        if kind == "json_object":
            return AnyObject()
        if kind == "structural_tag":
            return self._tagged(fields.mapping(wanted, "format"))
        if kind != "json_schema":
            raise ApiError(f"response_format type {kind!r} is not supported", param="response_format")
        named = wanted.get("json_schema")
        if not isinstance(named, dict) or not isinstance(named.get("name"), str) or "schema" not in named:
            raise ApiError("response_format.json_schema needs a name and a schema", param="response_format")
        return self.schema_constraint(named["schema"], "response_format")

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Return a schema as a constraint; an unsupported or impossible one is a 400 that names the keyword."""
        try:
            return Schema(schema)
        except BadConstraint as wrong:
            raise ApiError(f"{param}: {wrong}", param=param, code="invalid_schema") from wrong

    def _structured(self, extra: Event) -> Constraint:
        param = "structured_outputs"
        kinds = [name for name, value in extra.items() if value is not None and value is not False]
        if len(kinds) != 1:
            raise ApiError(f"{param} needs exactly one of json, json_object, regex, choice, grammar", param=param)
        kind, value = kinds[0], extra[kinds[0]]
        if kind == "json":
            try:
                schema = json.loads(value) if isinstance(value, str) else value
            except ValueError as wrong:
                raise ApiError(f"{param}.json is not JSON: {wrong}", param=param) from wrong
            return self.schema_constraint(schema, param)
        if kind == "json_object":
            return AnyObject()
        if kind == "choice":
            options = fields.texts(extra, "choice")
            if not options:
                raise ApiError(f"{param}.choice must not be empty", param=param)
            return Choices(options)
        if kind in ("regex", "grammar"):
            text = fields.text(extra, kind)
            try:
                return Matching(text) if kind == "regex" else Derived(text)
            except BadConstraint as wrong:
                raise ApiError(f"{param}.{kind}: {wrong}", param=param) from wrong
        raise ApiError(f"{param}: {kind!r} is not supported", param=param)

    def _tagged(self, wanted: Event) -> Constraint:
        content = fields.mapping(wanted, "content")
        if wanted.get("type") != "tag" or content.get("type") != "json_schema":
            raise ApiError("response_format.format must be a tag around a json_schema", param="response_format")
        inner = self.schema_constraint(content.get("json_schema"), "response_format")
        return Tagged(fields.text(wanted, "begin"), inner, fields.text(wanted, "end"))

    # ------------------------------------------------------------------ answering

    async def answers(self, job: Job) -> list[Answer]:
        """Run a job to its end and return its choices by index."""
        made = [Answer(index) for index in range(job.choices)]
        tally = Tally()
        async for delta in self.deltas(job):
            tally.add(job, delta)
            made[delta.index].add(delta)
        for answer in made:
            answer.thought = tally.thoughts.get(answer.index, 0)
        return made

    def token_ids(self, job: Job, answer: Answer) -> Event:
        """Return the ids of all generated tokens, the end token included, where they are asked for."""
        wanted = fields.boolean(job.body, "return_token_ids")
        return {"token_ids": [step.token for step in answer.steps]} if wanted else {}

    def usage(self, job: Job, tally: Tally) -> Event:
        """Return the usage object: exact, and ``total_tokens`` is the sum."""
        prompt = sum(len(entry.ids) for entry in job.prompts)
        usage: Event = {
            "prompt_tokens": prompt,
            "completion_tokens": tally.completion,
            "total_tokens": prompt + tally.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens(job)} if self.reports_cached else None,
        }
        if job.thinking:
            usage["completion_tokens_details"] = {"reasoning_tokens": tally.reasoning}
        return usage

    def cached_tokens(self, job: Job) -> int:
        """Return how many prompt tokens came from the cache."""
        return sum(prompt.cached for prompt in job.prompts)

    def scores(self, ids: Sequence[int]) -> Sequence[Any]:
        """Return the distribution that predicted each token of a text, as the model does; ``None`` for the first."""
        return self.language.score(ids)

    def prompt_logprobs(self, prompt: Prompt, top: int) -> list[Any]:
        """Return one entry per prompt token, the first ``None``: {id: {logprob, rank, decoded_token}}, itself first."""
        made: list[Any] = []
        for token, candidates in zip(prompt.ids, self.scores(prompt.ids), strict=True):
            if candidates is None:
                made.append(None)
                continue
            ranked = list(enumerate(candidates, 1))
            own = [entry for entry in ranked if entry[1][0] == token]
            kept = [*own, *(entry for entry in ranked[:top] if entry not in own)]
            made.append(
                {
                    str(other): {"logprob": logprob, "rank": rank, "decoded_token": shown(other)}
                    for rank, (other, logprob) in kept
                }
            )
        return made

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Yield a stream's bytes: each event, then the end marker. Trouble on the way is an error event."""
        try:
            async for event in events:
                yield self.frame(event)
        except ApiError as wrong:
            yield self.frame(self.error_body(wrong))
        yield b"data: [DONE]\n\n"

    def frame(self, event: Event) -> bytes:
        """Return one event as SSE bytes."""
        return b"data: " + json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"

    def stream_reply(self, frames: AsyncIterator[bytes]) -> Reply:
        """Return the reply that streams these bytes; its headers go out at once."""
        headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
        return Reply(headers=headers, body=frames)

    def error_body(self, wrong: ApiError) -> Event:
        """Return the error object."""
        error = {"message": wrong.message, "type": wrong.kind, "param": wrong.param, "code": wrong.code}
        return {"error": error}

    def error(self, wrong: ApiError, request: Request) -> Reply:  # noqa: ARG002
        """Return the reply of a refused request."""
        return json_reply(self.error_body(wrong), wrong.status)
