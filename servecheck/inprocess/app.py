"""An ASGI app over one model in this process: the routes that comparisons ask, whole replies only, one at a time.

What it does not have it refuses by name, so that no row mistakes it for a server: no streams, tools or formats.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from servecheck.reference.asgi import Event, Receive, Reply, Request, Scope, Send, asgi, json_reply
from servecheck.reference.fields import ApiError, boolean, integer, integers, number

__all__ = ["App", "Distribution", "Model"]

_MOST_ALTERNATIVES = 20
_CHAT_FIELDS = frozenset({"messages", "logprobs", "top_logprobs", "max_completion_tokens"})
_TEXT_FIELDS = frozenset({"prompt", "logprobs", "echo", "prompt_logprobs"})
_FIELDS = frozenset(
    {"model", "max_tokens", "temperature", "top_p", "top_k", "seed", "n", "stream", "ignore_eos", "user"}
)


class Distribution(Protocol):
    """What a model says of the next token: log probabilities in nats, before temperature."""

    def of(self, token: int) -> float:
        """Return the log probability of a token."""

    def top(self, count: int) -> list[tuple[int, float]]:
        """Return the likeliest tokens, likeliest first."""

    def every(self) -> Sequence[float]:
        """Return the log probability of each token of the vocabulary, by id."""


class Model(Protocol):
    """The seam: a tokenizer and a causal language model."""

    @property
    def name(self) -> str:
        """The name that it is listed under."""

    @property
    def about(self) -> Mapping[str, str]:
        """What it is: ``version`` of the library, ``dtype``, ``device`` and the like, as found after loading."""

    @property
    def limit(self) -> int:
        """The longest text, in tokens."""

    @property
    def ends(self) -> Collection[int]:
        """The tokens that end a text."""

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a plain text, with the mark at its beginning where the model has one."""

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the tokens of a chat, by the tokenizer's template; raises ``ValueError`` where that refuses."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens; special ones have none."""

    def piece(self, token: int) -> str:
        """Return one token as it is shown, special ones by name."""

    def read(self, ids: Sequence[int], state: object, *, every: bool = False) -> tuple[list[Distribution], object]:
        """Read tokens after those of ``state`` (``None`` at the beginning).

        Returns the distributions that follow each of them where ``every``, else the one after the last; and the state.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request, read and checked."""

    ids: tuple[int, ...]
    most: int
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    ignore_eos: bool
    alternatives: int | None
    echo: bool = False
    prompt_alternatives: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What was generated: ``prompt`` has a step for each token of the prompt where these were asked for."""

    steps: tuple[_Step, ...]
    finish: str
    prompt: tuple[_Step, ...] = ()


class App:
    """An instance is an ASGI app. ``clock`` gives seconds since 1970, for ``created``."""

    def __init__(self, model: Model, *, clock: Callable[[], float] = time.time) -> None:
        self._model = model
        self._clock = clock
        self._turn = asyncio.Lock()
        self._replies = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        await asgi(self, scope, receive, send)

    async def reply(self, request: Request) -> Reply:
        """Return the reply to any request."""
        routes = {
            ("GET", "/health"): self._health,
            ("GET", "/server_info"): self._server_info,
            ("GET", "/v1/models"): self._models,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/chat/completions"): self._chat,
        }
        try:
            return await routes.get((request.method, request.path), self._missing)(request)
        except ApiError as wrong:
            error = {"message": wrong.message, "type": wrong.kind, "param": wrong.param, "code": wrong.code}
            return json_reply({"error": error}, wrong.status)

    # ------------------------------------------------------------------ small routes

    async def _missing(self, request: Request) -> Reply:
        raise ApiError(f"no route {request.method} {request.path}", status=404, kind="not_found_error")

    async def _health(self, _: Request) -> Reply:
        return Reply()

    async def _server_info(self, _: Request) -> Reply:
        return json_reply({"engine": "transformers", **self._model.about})

    async def _models(self, _: Request) -> Reply:
        entry = {
            "id": self._model.name,
            "object": "model",
            "created": int(self._clock()),
            "owned_by": "transformers",
            "max_model_len": self._model.limit,
        }
        return json_reply({"object": "list", "data": [entry]})

    async def _tokenize(self, request: Request) -> Reply:
        body = _body(request)
        ids = self._chat_ids(body) if "messages" in body else self._prompt_ids(body)
        return json_reply({"count": len(ids), "max_model_len": self._model.limit, "tokens": list(ids)})

    # ------------------------------------------------------------------ generation

    async def _completions(self, request: Request) -> Reply:
        body = self._checked(_body(request), _TEXT_FIELDS)
        alternatives = body.get("logprobs")
        asked = self._asked(
            body,
            self._prompt_ids(body),
            most=integer(body, "max_tokens", 16, 0, self._model.limit),
            alternatives=None if alternatives is None else integer(body, "logprobs", 0, 0, _MOST_ALTERNATIVES),
            echo=boolean(body, "echo"),
        )
        made = await self._made(asked)
        shown = made.prompt if asked.echo else ()
        ids = [step.token for step in made.steps]
        choice: Event = {
            "index": 0,
            "text": self._model.decode([*asked.ids, *ids] if asked.echo else ids),
            "logprobs": None if asked.alternatives is None else self._arrays((*shown, *made.steps)),
            "finish_reason": made.finish,
        }
        if asked.prompt_alternatives is not None:
            choice["prompt_logprobs"] = [self._ranked(step) for step in made.prompt]
        return self._whole("cmpl", "text_completion", choice, asked, made)

    async def _chat(self, request: Request) -> Reply:
        body = self._checked(_body(request), _CHAT_FIELDS)
        limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        ids = self._chat_ids(body)
        wanted = boolean(body, "logprobs")
        asked = self._asked(
            body,
            ids,
            most=integer(body, limit, max(1, self._model.limit - len(ids)), 1, self._model.limit),
            alternatives=integer(body, "top_logprobs", 0, 0, _MOST_ALTERNATIVES) if wanted else None,
        )
        made = await self._made(asked)
        text = self._model.decode([step.token for step in made.steps])
        choice: Event = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": {"content": [self._entry(step) for step in made.steps]} if wanted else None,
            "finish_reason": made.finish,
        }
        return self._whole("chatcmpl", "chat.completion", choice, asked, made)

    def _whole(self, prefix: str, kind: str, choice: Event, asked: _Asked, made: _Made) -> Reply:
        self._replies += 1
        prompt, completion = len(asked.ids), len(made.steps)
        return json_reply(
            {
                "id": f"{prefix}-{self._replies}",
                "object": kind,
                "created": int(self._clock()),
                "model": self._model.name,
                "choices": [choice],
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": completion,
                    "total_tokens": prompt + completion,
                },
            }
        )

    # ------------------------------------------------------------------ reading requests

    def _checked(self, body: Event, known: frozenset[str]) -> Event:
        """Refuse what this app does not do; an ignored field would make a recording of something else."""
        if body.get("model", self._model.name) != self._model.name:
            raise ApiError(f"the model {body['model']!r} is not here", status=404, param="model")
        for name, value in body.items():
            if name not in _FIELDS | known and value is not None:
                raise ApiError(f"{name} is not supported in this process", param=name)
        if body.get("stream"):
            raise ApiError("streams are not supported in this process", param="stream")
        if body.get("n") not in (None, 1):
            raise ApiError("one choice at a time in this process", param="n")
        return body

    def _prompt_ids(self, body: Event) -> tuple[int, ...]:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            ids = self._model.encode(prompt)
        elif isinstance(prompt, list):
            ids = list(integers({"prompt": prompt}, "prompt", below=self._model.vocabulary))
        else:
            raise ApiError("prompt must be a string or token ids", param="prompt")
        if not ids:
            raise ApiError("prompt must not be empty", param="prompt")
        return tuple(ids)

    def _chat_ids(self, body: Event) -> tuple[int, ...]:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
            raise ApiError("messages must be a list of objects, and not empty", param="messages")
        try:
            return tuple(self._model.encode_chat(messages))
        except ValueError as error:
            raise ApiError(f"the chat template refuses these messages: {error}", param="messages") from error

    def _asked(
        self, body: Event, ids: tuple[int, ...], *, most: int, alternatives: int | None, echo: bool = False
    ) -> _Asked:
        if len(ids) + most > self._model.limit:
            raise ApiError(
                f"{len(ids)} prompt tokens and {most} to generate are more than the context of {self._model.limit}",
                code="context_length_exceeded",
            )
        scored = body.get("prompt_logprobs")
        return _Asked(
            ids=ids,
            most=most,
            temperature=number(body, "temperature", 1.0, 0.0, 2.0),
            top_p=number(body, "top_p", 1.0, 0.0, 1.0),
            top_k=integer(body, "top_k", 0, -1, self._model.vocabulary),
            seed=None if body.get("seed") is None else integer(body, "seed", 0, -(2**63), 2**63 - 1),
            ignore_eos=boolean(body, "ignore_eos"),
            alternatives=alternatives,
            echo=echo,
            prompt_alternatives=(
                None if scored is None else integer(body, "prompt_logprobs", 0, 0, _MOST_ALTERNATIVES)
            ),
        )

    # ------------------------------------------------------------------ generating

    async def _made(self, asked: _Asked) -> _Made:
        """Generate in a thread, so that deadlines are kept; one request at a time, as there is one model."""
        async with self._turn:
            return await asyncio.to_thread(self._generate, asked)

    def _generate(self, asked: _Asked) -> _Made:
        prompt: tuple[_Step, ...] = ()
        shown = [count for count in (asked.prompt_alternatives, asked.alternatives) if count is not None]
        scored = asked.prompt_alternatives is not None or (asked.echo and asked.alternatives is not None)
        found, state = self._model.read(asked.ids, None, every=scored)
        if scored:
            first = _Step(token=asked.ids[0], logprob=None, top=())
            rest = (_step(token, each, shown[0]) for token, each in zip(asked.ids[1:], found, strict=False))
            prompt = (first, *rest)
        source = random.Random(asked.seed)
        steps: list[_Step] = []
        finish = "length"
        while len(steps) < asked.most:
            token = _drawn(found[-1], asked, source)
            steps.append(_step(token, found[-1], asked.alternatives or 0))
            if token in self._model.ends and not asked.ignore_eos:
                finish = "stop"
                break
            if len(steps) < asked.most:
                found, state = self._model.read((token,), state)
        return _Made(steps=tuple(steps), finish=finish, prompt=prompt)

    # ------------------------------------------------------------------ writing log probabilities

    def _entry(self, step: _Step) -> Event:
        return {**self._named(step.token, step.logprob), "top_logprobs": [self._named(*each) for each in step.top]}

    def _named(self, token: int, logprob: float | None) -> Event:
        piece = self._model.piece(token)
        return {"token": piece, "logprob": logprob, "bytes": list(piece.encode())}

    def _arrays(self, steps: Sequence[_Step]) -> Event:
        pieces = [self._model.piece(step.token) for step in steps]
        return {
            "tokens": pieces,
            "token_logprobs": [step.logprob for step in steps],
            "top_logprobs": [None if step.logprob is None else dict(self._best(step)) for step in steps],
            "text_offset": [sum(map(len, pieces[:place])) for place in range(len(pieces))],
        }

    def _best(self, step: _Step) -> Iterator[tuple[str, float]]:
        """Yield each text once, with its likeliest token: several tokens may look alike."""
        seen: set[str] = set()
        own = [(step.token, step.logprob)] if step.logprob is not None else []
        for token, logprob in (*step.top, *own):
            piece = self._model.piece(token)
            if piece not in seen:
                seen.add(piece)
                yield piece, logprob

    def _ranked(self, step: _Step) -> Event | None:
        """Return one token of the prompt as vLLM writes it: by id, the one that is there first."""
        if step.logprob is None:
            return None
        listed = {step.token: step.logprob, **dict(step.top)}
        ranks = {token: rank for rank, (token, _) in enumerate(step.top, start=1)}
        return {
            str(token): {"logprob": value, "rank": ranks.get(token), "decoded_token": self._model.piece(token)}
            for token, value in listed.items()
        }


def _body(request: Request) -> Event:
    try:
        body = json.loads(request.body)
    except ValueError as wrong:
        raise ApiError(f"the request body is not valid JSON: {wrong}", code="invalid_json") from wrong
    if not isinstance(body, dict):
        raise ApiError("the request body must be a JSON object", code="invalid_type")
    return body


def _step(token: int, found: Distribution, count: int) -> _Step:
    return _Step(token=token, logprob=found.of(token), top=tuple(found.top(count)) if count else ())


def _drawn(found: Distribution, asked: _Asked, source: random.Random) -> int:
    """Choose a token: temperature first, then ``top_k``, then ``top_p``, as engines do."""
    if asked.temperature == 0 or asked.top_k == 1:
        return found.top(1)[0][0]
    scaled = sorted(((value / asked.temperature, token) for token, value in enumerate(found.every())), reverse=True)
    if asked.top_k > 0:
        scaled = scaled[: asked.top_k]
    masses = [math.exp(value - scaled[0][0]) for value, _ in scaled]
    kept, sum_, whole = 0, 0.0, sum(masses)
    while kept < len(masses) and (kept == 0 or sum_ < asked.top_p * whole):
        sum_ += masses[kept]
        kept += 1
    return source.choices([token for _, token in scaled[:kept]], masses[:kept])[0]
