"""The reference server's cache and slots are honest: what is kept saves time only, and who leaves frees a slot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from servecheck.reference.tokens import encode
from tests.reference_client import SEA, STORY, Client, every_model, serve, talk


def cached(reply: dict[str, Any]) -> int:
    count: int = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


@pytest.mark.parametrize("block", [16, 128])
def test_the_cache_counts_full_blocks_of_the_shared_prefix(block):
    async def conversation(client: Client) -> None:
        prefix = "zqxk " + " ".join(["mountain"] * 300)
        shared = len(encode(prefix))
        cold = await client.chat(prefix + " one", max_tokens=1)
        warm = await client.chat(prefix + " two", max_tokens=1)
        other = await client.chat("bcdf" + prefix + " two", max_tokens=1)
        salted = await client.chat(prefix + " two", max_tokens=1, cache_salt="mine")
        assert cached(cold) == 0
        assert cached(warm) % block == 0
        assert shared - block < cached(warm) <= shared + block
        assert cached(other) < block
        assert cached(salted) == 0
        text = (await client.http.get("/metrics")).text
        counters = {
            sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples
        }
        replies = (cold, warm, other, salted)
        assert counters["vllm:prefix_cache_hits_total"] == sum(map(cached, replies))
        assert counters["vllm:prefix_cache_queries_total"] == sum(r["usage"]["prompt_tokens"] for r in replies)
        assert counters["vllm:generation_tokens_total"] == 4

    talk(serve(block=block), conversation)


def test_a_hit_saves_the_prefill_time_and_a_prompt_in_flight_is_no_hit():
    async def conversation(client: Client) -> None:
        prompt = "zqxk " + " ".join(["harbour"] * 2000)

        async def timed() -> tuple[float, int]:
            began = client.seconds()
            reply = await client.chat(prompt, max_tokens=1)
            return client.seconds() - began, cached(reply)

        (cold, first), (also_cold, second) = await asyncio.gather(timed(), timed())
        warm, third = await timed()
        assert (first, second) == (0, 0)
        assert third > 1900
        assert cold == pytest.approx(also_cold, abs=0.01) == pytest.approx(1.03, abs=0.05)
        assert warm < 0.1

    talk(serve(), conversation)


def test_the_cache_is_the_same_answer_faster():
    async def conversation(client: Client) -> None:
        prompt = " ".join(["valley"] * 100)
        extra = {"temperature": 0, "logprobs": True, "top_logprobs": 3}
        cold, warm = [await client.chat(prompt, **extra) for _ in range(2)]
        assert cached(cold) < cached(warm)
        assert cold["choices"] == warm["choices"]

    talk(serve("babbling"), conversation)


def test_requests_progress_together_up_to_the_slots_and_others_wait():
    async def conversation(client: Client) -> None:
        async def timed() -> float:
            await client.chat(SEA, max_tokens=10, ignore_eos=True)
            return client.seconds()

        ends = sorted(await asyncio.gather(*(timed() for _ in range(6))))
        assert ends[3] < 0.3
        assert ends[4] > 0.38

    talk(serve(slots=4), conversation)


def test_a_short_request_overtakes_a_long_one():
    async def conversation(client: Client) -> None:
        long = asyncio.create_task(client.chat(STORY, max_tokens=200))
        await asyncio.sleep(0.5)
        await client.chat(SEA, max_tokens=3)
        assert not long.done()
        await long

    talk(serve(), conversation)


@pytest.mark.parametrize("stream", [True, False])
def test_hanging_up_frees_the_slot(stream):
    async def conversation(client: Client) -> None:
        server = client.server
        if stream:
            async with client.streaming(STORY, n=2) as reply:
                async for _ in reply.aiter_raw():
                    break
                assert server.metrics.running == 2
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await client.chat(STORY, n=2)
        before = server.metrics.generation_tokens
        await asyncio.sleep(1)
        assert server.metrics.running == 0
        assert server.metrics.generation_tokens - before <= 2
        assert server.metrics.finished["abort"] == 2
        began = client.seconds()
        await client.chat(SEA, max_tokens=5)
        assert client.seconds() - began < 0.2

    talk(serve(slots=2), conversation)


def test_hanging_up_while_waiting_for_a_slot_leaves_the_queue():
    async def conversation(client: Client) -> None:
        long = asyncio.create_task(client.chat(STORY, max_tokens=100))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.chat(SEA)
        await asyncio.sleep(0.01)
        assert client.server.metrics.waiting == 0
        await long
        await client.chat(SEA, max_tokens=2)
        assert client.server.metrics.running == 0

    talk(serve(slots=1), conversation)


@every_model
def test_neighbours_do_not_change_an_answer(language):
    async def conversation(client: Client) -> None:
        alone = await client.text(SEA, seed=1)
        others = [client.text(f"{STORY} {number}", seed=number) for number in range(10)]
        together, *_ = await asyncio.gather(client.text(SEA, seed=1), *others)
        assert together == alone

    talk(serve(language), conversation)
