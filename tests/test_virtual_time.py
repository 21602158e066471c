"""Virtual time: hours pass at once, and waiting for ever is an error instead of a hang."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from servecheck.reference.virtual import Deadlock, Overrun, run


def test_an_hour_passes_without_waiting_for_it():
    async def main() -> float:
        await asyncio.sleep(3599)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run(main()) == pytest.approx(3599)
    assert time.monotonic() - began < 5


def test_sleeps_end_in_the_order_of_their_lengths_and_overlap():
    async def main() -> tuple[list[str], float]:
        order: list[str] = []

        async def nap(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append(name)

        await asyncio.gather(nap("long", 30), nap("short", 10), nap("middle", 20))
        return order, asyncio.get_running_loop().time()

    order, at = run(main())
    assert order == ["short", "middle", "long"]
    assert at == pytest.approx(30)


def test_a_timeout_follows_the_virtual_clock():
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(6)
        return asyncio.get_running_loop().time()

    assert run(main()) == pytest.approx(5)


def test_waiting_for_what_never_comes_raises():
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="no timer"):
        run(main())


def test_a_task_that_never_stops_sleeping_meets_the_limit():
    async def main() -> None:
        for _ in range(1000):
            await asyncio.sleep(1)

    with pytest.raises(Overrun, match="limit of 100 s"):
        run(main(), limit=100)


def test_a_loop_without_sleep_between_tasks_takes_no_virtual_time():
    async def main() -> float:
        for _ in range(100):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run(main()) == 0


def test_the_clock_stands_still_while_a_thread_works():
    async def main() -> tuple[int, float]:
        ticking = asyncio.create_task(asyncio.sleep(60))
        where = await asyncio.to_thread(threading.get_ident)
        at = asyncio.get_running_loop().time()
        ticking.cancel()
        return where, at

    where, at = run(main())
    assert where != threading.get_ident()
    assert at == 0


def test_an_exception_comes_out_as_it_went_in():
    async def main() -> None:
        await asyncio.sleep(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(main())
