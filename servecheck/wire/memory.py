"""An ASGI application as an httpx transport that streams (httpx's own collects the whole reply first)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import httpx

__all__ = ["MemoryTransport"]

Message: TypeAlias = MutableMapping[str, Any]
AsgiApp: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


class MemoryTransport(httpx.AsyncBaseTransport):
    """Runs the application in this process; hanging up reaches it as ``http.disconnect``.

    An exception of the application reaches the client as a connection that was cut, as it would over a socket.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request to the application and return its reply as soon as the headers are there."""
        call = _Call(self._app, request, await request.aread())
        return await call.response()


class _Call:
    def __init__(self, app: AsgiApp, request: httpx.Request, body: bytes) -> None:
        self._request = request
        self._body = body
        self._out: asyncio.Queue[Message | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._asked = False
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.split(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (request.url.host, request.url.port or 80),
            "client": ("127.0.0.1", 1),
        }
        self._task = asyncio.ensure_future(app(scope, self._receive, self._send))
        self._task.add_done_callback(self._ended)

    async def response(self) -> httpx.Response:
        try:
            start = await self._out.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if start is None:
            raise httpx.RemoteProtocolError("the server closed the connection without a reply", request=self._request)
        return httpx.Response(start["status"], headers=start.get("headers", []), stream=_Body(self))

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._out.get()
            if message is None:
                raise httpx.RemoteProtocolError("the connection was cut before the reply ended", request=self._request)
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                return

    async def aclose(self) -> None:
        # A server notices a lost client soon; one that does not is left to end by itself.
        self._gone.set()
        await asyncio.sleep(0)

    def _ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled():
            task.exception()  # whatever the application raises cuts the connection, as it would over a socket
        self._out.put_nowait(None)

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._gone.is_set():
            raise ConnectionResetError("the client is gone")
        self._out.put_nowait(message)
        await asyncio.sleep(0)


class _Body(httpx.AsyncByteStream):
    def __init__(self, call: _Call) -> None:
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._call.chunks():
            yield chunk

    async def aclose(self) -> None:
        await self._call.aclose()
