"""The reference server: an OpenAI-compatible ASGI app that is right by construction; it has no speed of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from servecheck.reference import fields
from servecheck.reference.asgi import Event, Receive, Reply, Request, Scope, Send, asgi, json_reply
from servecheck.reference.audio import AudioRoutes
from servecheck.reference.completions import CompletionRoutes
from servecheck.reference.embeddings import EmbeddingRoutes
from servecheck.reference.fields import ApiError
from servecheck.reference.messages import MessagesRoutes
from servecheck.reference.speculation import speculation
from servecheck.reference.tokens import VOCABULARY, decode, encode, render_chat, shown

__all__ = ["ReferenceServer"]

_OPEN = frozenset({"/health", "/version", "/metrics"})
"""Paths that need no key: probes of orchestrators and scrapers have none."""


class ReferenceServer(MessagesRoutes, CompletionRoutes, EmbeddingRoutes, AudioRoutes):
    """A server whose answers are right by construction, made to be broken by subclasses.

    An instance is an ASGI app. Keyword arguments: ``model`` (served name), ``language`` (a reference model or its
    name), ``decode_seconds`` per token, ``prefill_seconds`` per uncached token, ``max_model_len``, ``block`` and
    ``blocks`` of the prefix cache, ``slots``, ``api_key``, ``jitter_seed`` (timing and unseeded sampling),
    ``reports_cached``, ``tool_parser``, ``reasoning_parser``, ``adapters`` (names of LoRA adapters), ``speculative``
    (tokens that are drafted at once, 0 for none), ``clock`` (for ``created``, seconds since 1970).

    What to override for a fault, from outside in:

    ========================================  =========================================================================
    ``reply(request)``                        everything: sleep, raise :class:`Cut`, answer HTML, never answer
    ``reply_chat(request)``,                  one route; ``stream_reply(frames)`` makes a stream's status and headers
    ``reply_completions(request)``
    ``health()``, ``models_list()``,          the small routes; ``model_entry()`` is one model
    ``metrics_text()``, ``version()``
    ``error(wrong, request)``,                a refusal's reply and its JSON
    ``error_body(wrong)``
    ``frames(events)``, ``frame(event)``      a stream's JSON events to SSE bytes, ``[DONE]`` included
    ``chunks(job)``, ``text_chunks(job)``     a stream's JSON events (chat, completions); change or reorder them here
    ``completion(job, answers)``,             a whole reply (chat, completions)
    ``text_completion(job, answers)``
    ``chat_choice``, ``chat_delta``,          parts of them
    ``logprob_entry``, ``text_logprobs``,
    ``prompt_logprobs``, ``call_id``
    ``usage(job, tally)``,                    what is billed
    ``cached_tokens(job)``
    ``sampling_of(body)``, ``seed_of``,       a request's fields; drop or distort them here (``dataclasses.replace``)
    ``stops_of``, ``limit_of(body, room)``,
    ``logit_bias_of``, ``salt_of``,
    ``constraint_of``, ``tools_of``,
    ``calls_constraint``, ``thinking_of``,
    ``messages_of``, ``prompts_of``,
    ``rendered(messages, tools)``,
    ``stream_options_of``,
    ``prompt_logprobs_of``
    ``check_model(body)``,                    refusals
    ``check_length(ids)``
    ``request_id(request)``                   the header that gives ``x-request-id`` back
    ``deltas(job)``, ``choice(job, index)``,  generation: all choices, one choice, its tokens, a constrained answer
    ``steps(…)``, ``script(…)``
    ``candidates(job, index, prompt,          the model's distribution; ``context_of(job, index)`` is what it reads
    generated)``, ``scores(ids)``             (of given text)
    ``lookup_cached(job, prompt)``,           the prefix cache
    ``store_cached(job, ids)``
    ``decode_delay(job, index, count)``,      seconds
    ``prefill_delay(job, uncached)``
    ``ends_at(job)``, ``new_id(prefix)``      end tokens, ids
    ``inputs_of``, ``vectors``, ``vector``,   embeddings and reranking
    ``embedding_entry``, ``encoded``,
    ``dimensions_of``, ``embedding_usage``,
    ``documents_of``, ``ranked``,
    ``relevance``, ``top_of``
    ``picture_text``, ``picture_bytes``,      pictures in prompts; pictures that are generated
    ``patches``; ``size_of``, ``count_of``,
    ``paint``, ``image_entry``
    ``transcription``, ``heard``,             transcription
    ``seconds_of``, ``verbose``
    ``adapted(job, candidates)``,             LoRA adapters; speculative decoding
    ``adapter_entry``; ``drafts()``
    ========================================  =========================================================================

    More routes are mixins with ``ROUTES``, as ``ChatRoutes`` is; ``ResponsesRoutes`` and ``MessagesRoutes`` turn their
    requests into the chat route's and list their own hooks.
    """

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {
        ("GET", "/health"): "reply_health",
        ("GET", "/version"): "reply_version",
        ("GET", "/metrics"): "reply_metrics",
        ("GET", "/v1/models"): "reply_models",
        ("POST", "/tokenize"): "reply_tokenize",
        ("POST", "/detokenize"): "reply_detokenize",
    }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        await asgi(self, scope, receive, send)

    @classmethod
    def routes(cls) -> dict[tuple[str, str], str]:
        """Return the method that answers each (method, path), from this class and all its mixins."""
        found: dict[tuple[str, str], str] = {}
        for kind in reversed(cls.__mro__):
            found.update(vars(kind).get("ROUTES", {}))
        return found

    async def reply(self, request: Request) -> Reply:
        """Return the reply to any request."""
        try:
            self.check_key(request)
            reply = await self.route(request)
        except ApiError as wrong:
            reply = self.error(wrong, request)
        return replace(reply, headers=(*reply.headers, *self.request_id(request)))

    def request_id(self, request: Request) -> tuple[tuple[str, str], ...]:
        """Return the header that gives a caller's own ``x-request-id`` back; none where there was none."""
        said = request.headers.get("x-request-id")
        return () if said is None else (("x-request-id", said),)

    async def route(self, request: Request) -> Reply:
        """Hand a request to the method of its route."""
        routes = self.routes()
        if request.method == "GET" and request.path.startswith("/v1/models/"):
            return await self.reply_model(request)
        if request.method == "GET" and request.path.startswith("/v1/responses/"):
            return await self.reply_response(request)
        name = routes.get((request.method, request.path))
        if name is None:
            others = sorted(method for method, path in routes if path == request.path)
            if others:
                wrong = ApiError(f"{request.path} takes {', '.join(others)}", status=405, code="method_not_allowed")
                return self.error(wrong, request)
            raise ApiError(f"no route {request.path}", status=404, kind="not_found_error", code="not_found")
        reply: Reply = await getattr(self, name)(request)
        return reply

    def check_key(self, request: Request) -> None:
        """Refuse a request without the key, where there is one."""
        if self.api_key is None or request.path in _OPEN:
            return
        if request.headers.get("authorization", "") != f"Bearer {self.api_key}":
            raise ApiError("wrong or missing API key", status=401, kind="authentication_error", code="invalid_api_key")

    # ------------------------------------------------------------------ small routes

    def health(self) -> Reply:
        """Return the reply of ``/health``."""
        return Reply()

    async def reply_health(self, _: Request) -> Reply:
        """``GET /health``."""
        return self.health()

    def version(self) -> Event:
        """Return the body of ``/version``."""
        return {"version": "reference-1"}

    async def reply_version(self, _: Request) -> Reply:
        """``GET /version``."""
        return json_reply(self.version())

    def metrics_text(self) -> str:
        """Return the Prometheus text of ``/metrics``."""
        cache = self.cache
        text = self.metrics.text(model=self.model, block=cache.block, blocks=cache.capacity, used=len(cache))
        return text + (speculation(self.model, *self.drafts()) if self.speculative else "")

    def drafts(self) -> tuple[int, int, int]:
        """Return how many drafts there were, the tokens in them, and those that were right: every other token is."""
        drafts = self.metrics.generation_tokens // 2
        return drafts, drafts * self.speculative, drafts

    async def reply_metrics(self, _: Request) -> Reply:
        """``GET /metrics``."""
        headers = (("content-type", "text/plain; version=0.0.4; charset=utf-8"),)
        return Reply(headers=headers, body=self.metrics_text().encode())

    def model_entry(self) -> Event:
        """Return one model as ``/v1/models`` lists it."""
        return {
            "id": self.model,
            "object": "model",
            "created": 1_700_000_000,
            "owned_by": "servecheck",
            "max_model_len": self.max_model_len,
        }

    def models_list(self) -> Event:
        """Return the body of ``/v1/models``."""
        return {"object": "list", "data": [self.model_entry(), *map(self.adapter_entry, self.adapters)]}

    def adapter_entry(self, name: str) -> Event:
        """Return one adapter as ``/v1/models`` lists it."""
        return {**self.model_entry(), "id": name, "parent": self.model}

    async def reply_models(self, _: Request) -> Reply:
        """``GET /v1/models``."""
        return json_reply(self.models_list())

    async def reply_model(self, request: Request) -> Reply:
        """``GET /v1/models/{id}``."""
        self.check_model({"model": request.path.removeprefix("/v1/models/")})
        return json_reply(self.model_entry())

    async def reply_tokenize(self, request: Request) -> Reply:
        """``POST /tokenize``: a prompt, or messages as the chat route would render them."""
        body = self.body_of(request)
        self.check_model(body)
        if "messages" in body:
            thinking = self.thinking_of(body) or not self.language.thinks
            answer = fields.boolean(body, "add_generation_prompt", default=True)
            shown_tools = self.tools_of(body).shown
            ids = render_chat(self.messages_of(body), shown_tools, answer=answer, thinking=thinking)
        elif isinstance(body.get("prompt"), str):
            ids = encode(body["prompt"])
        else:
            raise ApiError("tokenize needs a prompt or messages", param="prompt")
        made: Event = {"count": len(ids), "max_model_len": self.max_model_len, "tokens": list(ids), "token_strs": None}
        if fields.boolean(body, "return_token_strs"):
            made["token_strs"] = [shown(token) for token in ids]
        return json_reply(made)

    async def reply_detokenize(self, request: Request) -> Reply:
        """``POST /detokenize``."""
        body = self.body_of(request)
        self.check_model(body)
        if not isinstance(body.get("tokens"), list):
            raise ApiError("detokenize needs a list of tokens", param="tokens")
        ids = fields.integers(body, "tokens", below=VOCABULARY)
        return json_reply({"prompt": decode(ids, special=True)})
