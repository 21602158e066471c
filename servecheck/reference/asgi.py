"""Requests and replies between plain ASGI and the reference server; no framework, and no routing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qsl

__all__ = ["App", "Cut", "Event", "Receive", "Reply", "Request", "Scope", "Send", "asgi", "half_of", "json_reply"]

Event: TypeAlias = dict[str, Any]
"""One JSON object on its way out; mutants change it in place."""

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class Cut(Exception):
    """The connection breaks here: what was sent is sent, nothing follows, and the reply never ends properly.

    It escapes from the ASGI app. A transport in memory shows it as a broken connection; ``mock`` resets the socket.
    """


async def half_of(body: bytes) -> AsyncIterator[bytes]:
    """Yield the first half of a body, and lose the connection."""
    yield body[: len(body) // 2]
    raise Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, read whole; header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply: the body is whole, or pieces that are sent as they come. ``delay`` holds the headers back, in seconds.

    A piece iterator may raise :class:`Cut`, sleep, or never end.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | AsyncIterator[bytes] = b""
    delay: float = 0.0


def json_reply(value: object, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """Return a reply with a JSON body."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Reply(status=status, headers=(("content-type", "application/json"), *headers), body=body)


class App(Protocol):
    """What the adapter calls: one request in, one reply out."""

    async def reply(self, request: Request) -> Reply:
        """Return the reply; may raise :class:`Cut` or never return."""


async def asgi(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one ASGI scope. A client that hangs up cancels whatever is being done for it."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    if scope["type"] != "http":
        raise ValueError(f"the reference server speaks http, not {scope['type']!r}")
    body = await _body(receive)
    if body is None:
        return
    request = Request(
        method=scope["method"].upper(),
        path=scope["path"],
        query=dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"))),
        headers={key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope.get("headers", ())},
        body=body,
    )
    work = asyncio.create_task(_answer(app, request, send))
    hangup = asyncio.create_task(_hung_up(receive))
    try:
        await asyncio.wait({work, hangup}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
    finally:
        work.cancel()
        hangup.cancel()
        await asyncio.gather(work, hangup, return_exceptions=True)


async def _answer(app: App, request: Request, send: Send) -> None:
    reply = await app.reply(request)
    if reply.delay:
        await asyncio.sleep(reply.delay)
    headers = list(reply.headers)
    if isinstance(reply.body, bytes) and not any(name.lower() == "content-length" for name, _ in headers):
        headers.append(("content-length", str(len(reply.body))))
    await send(
        {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
    )
    if isinstance(reply.body, bytes):
        await send({"type": "http.response.body", "body": reply.body, "more_body": False})
        return
    try:
        async for piece in reply.body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    finally:
        # Where sending failed, the generator is still alive in the traceback, and so is the work it waits for.
        close = getattr(reply.body, "aclose", None)
        if close is not None:
            await close()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(receive: Receive) -> bytes | None:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
