"""The reference server over real HTTP, in this process (``serve``) or beside a test (``background``)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from servecheck.errors import ServecheckError
from servecheck.reference.asgi import Cut, Receive, Scope, Send
from servecheck.reference.server import ReferenceServer

__all__ = ["background", "serve"]

_START_SECONDS = 20.0


def serve(server: ReferenceServer, host: str, port: int, *, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, then return; call ``ready`` with the base URL once requests are taken.

    Port 0 takes any free one. Raises :class:`OSError` where the address cannot be had. For the main thread only.
    """
    with _listening(host, port) as (bound, url):
        _Uvicorn(server, lambda: ready(url)).run([bound])


@contextlib.contextmanager
def background(server: ReferenceServer, host: str = "127.0.0.1") -> Iterator[str]:
    """Serve from a thread while the block runs; the value is the base URL.

    Raises :class:`~servecheck.errors.ServecheckError` where the server does not start.
    """
    with _listening(host, 0) as (bound, url):
        up = threading.Event()
        running = _Uvicorn(server, up.set)
        thread = threading.Thread(target=running.run, args=([bound],), name="reference-server", daemon=True)
        thread.start()
        try:
            if not up.wait(_START_SECONDS):
                raise ServecheckError(f"the reference server did not start within {_START_SECONDS:g} s")
            yield url
        finally:
            running.should_exit = True
            thread.join()


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        shown = f"[{host}]" if ":" in host else host
        yield bound, f"http://{shown}:{bound.getsockname()[1]}"


class _Uvicorn(uvicorn.Server):
    """A quiet uvicorn that says when it is up, and returns on a signal instead of raising it again."""

    def __init__(self, server: ReferenceServer, up: Callable[[], None]) -> None:
        self._app = _Abrupt(server)
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            loop="asyncio",
            http="h11",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._up = up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._up()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.stop()
        await super().shutdown(sockets=sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, _: int, __: FrameType | None) -> None:
        # A second signal does not wait for open streams.
        self.force_exit = self.should_exit
        self.should_exit = True


class _Abrupt:
    """Turns :class:`Cut` into a reset of the socket; ASGI itself has no word for that."""

    def __init__(self, server: ReferenceServer) -> None:
        self._server = server
        self._open: set[asyncio.Task[object]] = set()
        self._stopping = False

    def stop(self) -> None:
        """Break off what is still being answered, so that stopping waits for nobody."""
        self._stopping = True
        for task in self._open:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._server(scope, receive, send)
        except (Cut, asyncio.CancelledError) as end:
            if isinstance(end, asyncio.CancelledError) and not self._stopping:
                raise
            # uvicorn hands out a bound method of its request cycle, which holds the transport.
            transport = getattr(getattr(send, "__self__", None), "transport", None)
            if transport is None:
                raise
            transport.abort()
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self._open.discard(task)
