"""An asyncio loop whose clock jumps to the next timer, so that hours pass in microseconds; it serves no sockets."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = ["Deadlock", "Overrun", "VirtualLoop", "run"]

T = TypeVar("T")

_THREAD_SECONDS = 30.0
"""Real seconds that a helper thread (name look-ups of an SDK, for one) may take before we call it a deadlock."""


class Deadlock(RuntimeError):
    """Every task waits, and neither a timer nor a thread will ever wake one."""


class Overrun(RuntimeError):
    """The virtual clock passed the limit of :func:`run`."""


class _JumpingSelector(selectors.BaseSelector):
    """A selector that never sleeps for a timer: it tells the loop to move its clock instead."""

    def __init__(self, advance: Callable[[float], None], threads: Callable[[], int]) -> None:
        self._inner = selectors.DefaultSelector()
        self._advance, self._threads = advance, threads

    def register(self, fileobj: FileDescriptorLike, events: int, data: object | None = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object | None = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return self._inner.select(0)
        if self._threads():
            # A thread works in real time, so the virtual clock stands still until it answers.
            ready = self._inner.select(_THREAD_SECONDS)
            if not ready:
                raise Deadlock(f"a helper thread did not answer within {_THREAD_SECONDS:g} real seconds")
            return ready
        ready = self._inner.select(0)
        if ready:
            return ready
        if timeout is None:
            raise Deadlock("every task waits and no timer is set: nothing can ever happen again")
        self._advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a virtual clock that starts at 0 s; ``limit`` is in virtual seconds."""

    def __init__(self, *, limit: float) -> None:
        self._now = 0.0
        self._limit = limit
        self._in_threads = 0
        super().__init__(_JumpingSelector(self._advance, lambda: self._in_threads))

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now

    def _advance(self, seconds: float) -> None:
        self._now += seconds
        if self._now > self._limit:
            raise Overrun(f"virtual time passed its limit of {self._limit:g} s")

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run ``func`` in a thread; the virtual clock stands still while it runs."""
        self._in_threads += 1
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    async def shutdown_default_executor(self, *limits: float | None) -> None:
        """Wait for the helper threads, in real time."""
        self._in_threads += 1
        try:
            await super().shutdown_default_executor(*limits)
        finally:
            self._in_threads -= 1

    def _thread_done(self, _: asyncio.Future[T]) -> None:
        self._in_threads -= 1


def run(coroutine: Coroutine[object, object, T], *, limit: float = 3600.0) -> T:
    """Run a coroutine to its end under virtual time and return what it returns.

    Raises :class:`Deadlock` where a task would wait for ever, and :class:`Overrun` past ``limit`` virtual seconds.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(limit=limit)) as runner:
        return runner.run(coroutine)
