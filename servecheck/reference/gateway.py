"""A gateway before several reference servers: routes, buffers, retries, hides and drops; it balances no real load."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from servecheck.reference.asgi import Cut, Receive, Reply, Request, Scope, Send, asgi, json_reply
from servecheck.reference.server import ReferenceServer

__all__ = ["DIALECTS", "Dialect", "Gateway"]

_SESSION = "x-session-token"
_PAGE = "<html>\r\n<head><title>{0}</title></head>\r\n<body>\r\n<center><h1>{0}</h1></center>\r\n</body>\r\n</html>\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a gateway shows in what it sends: headers on every reply, and its own error bodies.

    ``served`` is the header that names the server behind it, ``attempts`` the one that counts attempts from ``first``,
    ``dropped`` the one that gives the reason of a drop; empty where a gateway has none. ``errors`` is the family of
    what it answers itself: ``detail`` (FastAPI's), ``page`` (HTML), ``nested`` (OpenAI's) or ``empty``. ``owner`` is
    what it writes into the list of models, ``paths`` are those that it passes on.
    """

    headers: tuple[tuple[str, str], ...] = ()
    served: str = ""
    attempts: str = ""
    first: int = 0
    dropped: str = ""
    errors: str = "nested"
    owner: str = ""
    paths: tuple[str, ...] = ("/v1/",)

    def error(self, status: int, words: str) -> Reply:
        """Return an error of the gateway's own."""
        if self.errors == "page":
            page = _PAGE.format(f"{status} {words}").encode()
            return Reply(status=status, headers=(("content-type", "text/html"),), body=page)
        if self.errors == "empty":
            return Reply(status=status)
        if self.errors == "detail":
            return json_reply({"detail": words}, status)
        return json_reply({"error": {"message": words, "type": "gateway_error", "code": status}}, status)


DIALECTS = {
    # The Envoy that llm-d's endpoint picker steers names the server that it chose; only /v1 is routed.
    "llm-d": Dialect(
        headers=(("server", "envoy"),),
        served="x-gateway-destination-endpoint-served",
        dropped="x-llm-d-request-dropped-reason",
        errors="empty",
    ),
    "litellm": Dialect(
        headers=(("x-litellm-version", "1.108.7"),),
        served="x-litellm-model-id",
        attempts="x-litellm-attempted-retries",
        errors="detail",
    ),
    # Counts attempts only where include_attempt_count_in_response is set.
    "envoy": Dialect(headers=(("server", "envoy"),), attempts="x-envoy-attempt-count", first=1, errors="empty"),
    "ray-serve": Dialect(errors="detail", owner="organization-owner"),
    "nginx": Dialect(headers=(("server", "nginx/1.28.0"),), errors="page", paths=("/",)),
}
"""Gateways as they show from outside: https://github.com/llm-d/llm-d-router, https://docs.litellm.ai/docs/proxy,
https://docs.ray.io/en/latest/serve/llm, https://nginx.org/en/docs/http/ngx_http_proxy_module.html."""


class Gateway:
    """An ASGI app before ``replicas``, which are asked in turn; a server that is right, seen through what is not.

    ``affinity`` hands out a session token and sends its bearer to the same replica. ``buffers`` gathers a stream and
    passes it on whole. ``retries`` sends a request that failed with a 5xx, or whose connection broke, to the next
    replica so many times. ``drops`` refuses every n-th POST with 429 and ``reason``; 0 drops none.
    """

    api_key: str | None = None

    def __init__(
        self,
        replicas: Sequence[ReferenceServer],
        *,
        dialect: str = "llm-d",
        affinity: bool = False,
        buffers: bool = False,
        retries: int = 0,
        drops: int = 0,
        reason: str = "rejected-capacity",
    ) -> None:
        self.replicas = tuple(replicas)
        self.dialect = DIALECTS[dialect]
        self._affinity, self._buffers, self._retries = affinity, buffers, retries
        self._drops, self._reason = drops, reason
        self._turns = itertools.count()
        self._posts = itertools.count(1)

    @property
    def model(self) -> str:
        """The model that is served."""
        return self.replicas[0].model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        await asgi(self, scope, receive, send)

    async def reply(self, request: Request) -> Reply:
        """Return a replica's reply as the gateway passes it on, or the gateway's own."""
        if not request.path.startswith(self.dialect.paths):
            return self._own(self.dialect.error(404, "Not Found"))
        if request.method == "POST" and self._drops and next(self._posts) % self._drops == 0:
            told = ((self.dialect.dropped, self._reason),) if self.dialect.dropped else ()
            made = self.dialect.error(429, "Too Many Requests")
            return self._own(replace(made, headers=(*made.headers, ("retry-after", "1"), *told)))
        place = self._place(request)
        made = await self._asked(place, request)
        attempts = 0
        while made.status >= 500 and attempts < self._retries:
            attempts += 1
            place = (place + 1) % len(self.replicas)
            made = await self._asked(place, request)
        return self._passed_on(made, request, place, attempts)

    def _place(self, request: Request) -> int:
        token = request.headers.get(_SESSION, "")
        if self._affinity and token.isdigit():
            return int(token) % len(self.replicas)
        return next(self._turns) % len(self.replicas)

    async def _asked(self, place: int, request: Request) -> Reply:
        try:
            return await self.replicas[place].reply(request)
        except Cut:
            return self.dialect.error(502, "Bad Gateway")

    def _own(self, made: Reply, *more: tuple[str, str]) -> Reply:
        return replace(made, headers=(*made.headers, *self.dialect.headers, *more))

    def _passed_on(self, made: Reply, request: Request, place: int, attempts: int) -> Reply:
        body = made.body
        if self._buffers and not isinstance(body, bytes):
            body = _gathered(body)
        if self.dialect.owner and request.path == "/v1/models" and isinstance(body, bytes):
            listed = json.loads(body)
            body = json.dumps(
                {**listed, "data": [{**each, "owned_by": self.dialect.owner} for each in listed["data"]]}
            ).encode()
        more = []
        if self.dialect.served:
            more.append((self.dialect.served, f"replica-{place + 1}"))
        if self.dialect.attempts:
            more.append((self.dialect.attempts, str(self.dialect.first + attempts)))
        if self._affinity:
            more.append((_SESSION, str(place)))
        return self._own(replace(made, body=body), *more)


async def _gathered(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b"".join([piece async for piece in pieces])
