"""Arrival times are those at which bytes came in: compared with when the reference server says it sent them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from statistics import median
from typing import Any

from servecheck.model import Endpoint, Exchange
from servecheck.reference import virtual
from servecheck.reference.asgi import Event
from servecheck.reference.mock import background
from servecheck.reference.server import ReferenceServer
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.transport import Transport
from tests.sessions import session_of

STREAMS = 16


class Notes(ReferenceServer):
    """Notes when each frame of each stream is handed to the transport."""

    def __init__(self, clock: Callable[[], float], **config: Any) -> None:
        super().__init__(**config)
        self.now = clock
        self.streams: list[list[tuple[bytes, float]]] = []

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Note, then send."""
        mine: list[tuple[bytes, float]] = []
        self.streams.append(mine)
        async for frame in super().frames(events):
            mine.append((frame, self.now()))
            yield frame


def lags(server: Notes, exchanges: list[Exchange], began: float) -> list[float]:
    """Return for each frame the seconds from its sending to the arrival that was recorded for its last byte."""
    sent = {b"".join(frame for frame, _ in stream): stream for stream in server.streams}
    found = []
    for exchange in exchanges:
        arrivals = [began + exchange.sent + chunk.at for chunk in exchange.chunks for _ in chunk.data]
        end = 0
        for frame, at in sent[exchange.body]:
            end += len(frame)
            found.append(arrivals[end - 1] - at)
    return found


async def streamed(endpoint: Endpoint, transport: Transport) -> tuple[list[Exchange], float]:
    """Run many streams at once and return them with the loop's time at the beginning."""
    began = asyncio.get_running_loop().time()
    session = session_of(endpoint, transport, began=began, seed="clocks", deadline=30.0)
    body: dict[str, Any] = {"max_tokens": 24, "temperature": 0, "stream": True, "ignore_eos": True}
    steps = [
        session.chat(f"stream-{number}", {"messages": [{"role": "user", "content": session.nonce()}], **body})
        for number in range(STREAMS)
    ]
    async with transport:
        return await session.concurrently(steps, at_once=STREAMS), began


def test_in_memory_an_arrival_is_the_moment_of_sending_to_the_microsecond():
    async def run() -> list[float]:
        server = Notes(asyncio.get_running_loop().time, jitter_seed=3)
        endpoint = Endpoint(name="e", base_url="http://127.0.0.1:1/v1", model=server.model)
        exchanges, began = await streamed(endpoint, Transport(endpoint, app=MemoryTransport(server)))
        return lags(server, exchanges, began)

    found = virtual.run(run())
    assert len(found) >= STREAMS * 16  # a token may come without text
    assert max(map(abs, found)) < 3e-6


def test_over_sockets_no_arrival_is_before_its_sending_and_most_are_right_after_it():
    server = Notes(time.monotonic, decode_seconds=0.01)
    with background(server) as url:
        endpoint = Endpoint(name="e", base_url=f"{url}/v1", model=server.model)
        exchanges, began = asyncio.run(streamed(endpoint, Transport(endpoint)))
    found = lags(server, exchanges, began)
    assert len(found) >= STREAMS * 16  # a token may come without text
    assert min(found) > -3e-6
    assert median(found) < 0.05, "what is read late is stamped late"
