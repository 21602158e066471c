"""A scripted server on a loopback socket, for replies that no well-behaved library can be made to send."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from servecheck.model import Endpoint, Exchange
from servecheck.wire.transport import HangUp, Outgoing, Transport

__all__ = ["Conn", "Script", "ask", "chunked", "exchanges", "head", "hold", "plays", "resets", "serving", "stream"]


class Conn:
    """One accepted connection; ``request`` is what was read of it before the script began."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.request = b""

    async def read_request(self) -> bytes:
        """Read a request with its body."""
        self.request = await self.reader.readuntil(b"\r\n\r\n")
        for line in self.request.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                self.request += await self.reader.readexactly(int(line.partition(b":")[2]))
        return self.request

    async def send(self, data: bytes) -> None:
        """Send bytes at once."""
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script: TypeAlias = Callable[[Conn], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve ``script`` for each connection; the value is the base URL."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conn = Conn(reader, writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                await conn.read_request()
                await script(conn)
        except asyncio.CancelledError:
            writer.transport.abort()
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1"
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def plays(*pieces: bytes) -> Script:
    """Send the pieces one write each, then close."""

    async def script(conn: Conn) -> None:
        for piece in pieces:
            await conn.send(piece)
            await asyncio.sleep(0)

    return script


def hold(*pieces: bytes) -> Script:
    """Send the pieces, then keep the connection open in silence."""

    async def script(conn: Conn) -> None:
        await plays(*pieces)(conn)
        await conn.reader.read()

    return script


def resets(*pieces: bytes) -> Script:
    """Send the pieces, then reset the connection."""

    async def script(conn: Conn) -> None:
        await plays(*pieces)(conn)
        await asyncio.sleep(0.02)  # a reset discards what the other side has not read yet
        conn.reset()

    return script


def head(*lines: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    """Return a status line and headers."""
    return "\r\n".join((f"HTTP/{version} {status}", *lines, "", "")).encode()


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """Return pieces in chunked encoding."""
    body = b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces)
    return body + (b"0\r\n\r\n" if end else b"")


def stream(*pieces: bytes, end: bool = True) -> bytes:
    """Return a whole chunked event stream reply."""
    return head("content-type: text/event-stream", "transfer-encoding: chunked") + chunked(*pieces, end=end)


async def ask(
    url: str,
    *,
    deadline: float = 5.0,
    hang_up: HangUp | None = None,
    body: bytes = b"{}",
    method: str = "POST",
    transport: Transport | None = None,
) -> Exchange:
    """Send one request to ``url`` and return the exchange."""
    began = asyncio.get_running_loop().time()
    outgoing = Outgoing(
        id="x0001", step="ask", method=method, url=url + "/x", deadline=deadline, body=body, hang_up=hang_up
    )
    if transport is not None:
        return await transport.send(outgoing, began=began)
    async with Transport(Endpoint(name="raw", base_url=url)) as own:
        return await own.send(outgoing, began=began)


def exchanges(script: Script, count: int = 1, **kwargs: Any) -> Sequence[Exchange]:
    """Play ``script`` to ``count`` requests over one transport and return what was seen."""

    async def play() -> list[Exchange]:
        async with serving(script) as url, Transport(Endpoint(name="raw", base_url=url)) as transport:
            return [await ask(url, transport=transport, **kwargs) for _ in range(count)]

    return asyncio.run(play())
