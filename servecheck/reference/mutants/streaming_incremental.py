"""Streams that come late or in bursts, and streams that only look so; every word of them is right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.engine import Delta, Job
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.streaming_frames import PingComments, SlowStart, SmallPieces, StreamIgnored
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_PROXY_BUFFER = 4096


class BufferedWhole(ReferenceServer):
    """Sends the headers at once and all events at the end, as behind a proxy that gathers the body."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Gather everything."""
        yield b"".join([frame async for frame in super().frames(events)])


class BufferedInBursts(ReferenceServer):
    """Sends nothing until four kilobytes are gathered, again and again."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Gather a buffer full."""
        held = b""
        async for frame in super().frames(events):
            held += frame
            if len(held) >= _PROXY_BUFFER:
                yield held
                held = b""
        yield held


class OneChunk(ReferenceServer):
    """Makes the whole answer first and sends it as a stream of one piece of text."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Join all pieces of text into the first one."""
        gathered: list[Event] = [event async for event in super().chunks(job)]
        spoken = [event for event in gathered if event["choices"] and event["choices"][0]["delta"]]
        for key in ("content", "reasoning_content"):
            text = "".join(event["choices"][0]["delta"].pop(key, "") for event in spoken)
            if text:
                spoken[0]["choices"][0]["delta"][key] = text
        for event in gathered:
            if not event["choices"] or event["choices"][0]["delta"] or event["choices"][0]["finish_reason"]:
                yield event


class Replayed(ReferenceServer):
    """Makes the whole answer first and then plays it as a stream, word by word, to look alive."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Gather, then send with small pauses."""
        for frame in [frame async for frame in super().frames(events)]:
            await asyncio.sleep(0.005)
            yield frame


# --------------------------------------------------------------------------- odd, but right


class EightTokensAnEvent(ReferenceServer):
    """Sends eight tokens in each event, as speculative decoding and stream intervals do."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Join what eight tokens say."""
        held: list[Delta] = []
        async for delta in super().deltas(job):
            held.append(delta)
            if len(held) == 8 or delta.finish is not None:
                yield replace(
                    delta,
                    content="".join(each.content for each in held),
                    reasoning="".join(each.reasoning for each in held),
                    steps=tuple(step for each in held for step in each.steps),
                )
                held.clear()


class SlowFirstUse(ReferenceServer):
    """Takes twenty seconds for its very first stream, as when something is compiled."""

    _warm = False

    async def reply_chat(self, request: Request) -> Reply:
        """Wait once."""
        if self.body_of(request).get("stream") and not self._warm:
            self._warm = True
            await asyncio.sleep(20)
        return await super().reply_chat(request)


class Fast(ReferenceServer):
    """Makes a thousand tokens a second: 64 of them are over before anything can be seen."""


_V = Outcome.VIOLATED

MUTANTS = (
    Mutant(
        id="buffered-whole",
        server=BufferedWhole,
        trips=(("text-arrives-while-it-is-made", _V), ("text-arrives-in-small-steps", _V)),
        source="dstackai/dstack#4269",
    ),
    Mutant(
        id="buffered-in-bursts",
        server=BufferedInBursts,
        trips=(("text-arrives-in-small-steps", _V),),
        source="dstackai/dstack#4269",
    ),
    Mutant(id="one-chunk", server=OneChunk, trips=(("text-arrives-while-it-is-made", _V),)),
    Mutant(id="replayed", server=Replayed, trips=(("text-arrives-while-it-is-made", _V),)),
    Mutant(
        id="stream-ignored",
        server=StreamIgnored,
        trips=(("text-arrives-while-it-is-made", Outcome.NO_EFFECT),),
        source="ray-project/ray#58366",
    ),
)

HARMLESS = (
    Harmless(id="eight-tokens-an-event", server=EightTokensAnEvent, source="dstackai/dstack#4269"),
    Harmless(id="slow-start", server=SlowStart),
    Harmless(id="slow-first-use", server=SlowFirstUse),
    Harmless(id="ping-comments", server=PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="small-pieces", server=SmallPieces),
    Harmless(id="fast", server=Fast, config={"decode_seconds": 0.001}),
)
