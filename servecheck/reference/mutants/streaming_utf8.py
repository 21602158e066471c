"""Streams that break characters apart, lose or change them, and encodings that only look odd."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.streaming_frames import PingComments, SmallPieces
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


def _halves(text: str) -> str:
    """Return what a decoder makes of each token by itself where a character takes two."""
    return "".join(character if ord(character) < 128 else "\ufffd\ufffd" for character in text)


class _Changed(ReferenceServer):
    """Changes the text of each streamed piece."""

    def changed(self, text: str) -> str:
        """Return what is streamed instead."""
        raise NotImplementedError

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Change what is said."""
        async for event in super().chunks(job):
            for choice in event["choices"]:
                if choice["delta"].get("content"):
                    choice["delta"]["content"] = self.changed(choice["delta"]["content"])
            yield event


class DecodedByToken(_Changed):
    """Decodes token by token, so that each half of a character becomes U+FFFD; whole replies are right."""

    def changed(self, text: str) -> str:
        """Damage it."""
        return _halves(text)


class HalvesDropped(_Changed):
    """Streams an empty piece where a token holds a part of a character, and never the rest of it."""

    def changed(self, text: str) -> str:
        """Damage it."""
        return "".join(character for character in text if ord(character) < 128)


class MarksStripped(_Changed):
    """Strips combining marks from streamed pieces, as if they were white space."""

    def changed(self, text: str) -> str:
        """Damage it."""
        return text.replace("\u0301", "")


class EncodedTwice(_Changed):
    """Reads its own UTF-8 as Latin-1 on the way out and encodes it again."""

    def changed(self, text: str) -> str:
        """Damage it."""
        return text.encode().decode("latin-1")


class SurrogatesApart(ReferenceServer):
    """Streams the two halves of an emoji's escape as two pieces, which no decoder may join."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Cut characters beyond U+FFFF in two."""
        async for event in super().chunks(job):
            choice = event["choices"][0] if event["choices"] else None
            text = choice["delta"].get("content", "") if choice else ""
            at = next((place for place, character in enumerate(text) if ord(character) > 0xFFFF), None)
            if choice is None or at is None:
                yield event
                continue
            high, low = (text[at].encode("utf-16-be", "surrogatepass")[n : n + 2] for n in (0, 2))
            pieces = (
                text[:at] + high.decode("utf-16-be", "surrogatepass"),
                low.decode("utf-16-be", "surrogatepass") + text[at + 1 :],
            )
            for piece in pieces:
                yield {**event, "choices": [{**choice, "delta": {**choice["delta"], "content": piece}}]}

    def frame(self, event: Event) -> bytes:
        """Write escapes, since a half has no UTF-8."""
        return b"data: " + json.dumps(event).encode() + b"\n\n"


class WholeDecodedByToken(ReferenceServer):
    """Breaks characters in whole replies and streams them right."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Change what is said."""
        choice = super().chat_choice(job, answer)
        choice["message"]["content"] = _halves(choice["message"]["content"] or "")
        return choice


class InvalidBytes(ReferenceServer):
    """Cuts the first byte off every long character in the event itself, so that events are no UTF-8."""

    def frame(self, event: Event) -> bytes:
        """Damage the bytes."""
        return super().frame(event).replace(b"\xf0", b"")


class Escapes(ReferenceServer):
    """Writes everything beyond ASCII as JSON escapes; both halves of a pair stand in one piece."""

    def frame(self, event: Event) -> bytes:
        """Write escapes."""
        return b"data: " + json.dumps(event).encode() + b"\n\n"


_V = Outcome.VIOLATED
_STREAM = "stream-keeps-characters"

MUTANTS = (
    Mutant(id="decoded-by-token", server=DecodedByToken, trips=((_STREAM, _V),), source="waybarrios/vllm-mlx#109"),
    Mutant(
        id="halves-dropped",
        server=HalvesDropped,
        trips=((_STREAM, _V),),
        source="huggingface/text-generation-inference#333",
    ),
    Mutant(id="marks-stripped", server=MarksStripped, trips=((_STREAM, _V),)),
    Mutant(id="encoded-twice", server=EncodedTwice, trips=((_STREAM, _V),)),
    Mutant(id="surrogates-apart", server=SurrogatesApart, trips=((_STREAM, _V),), source="waybarrios/vllm-mlx#109"),
    Mutant(
        id="whole-decoded-by-token",
        server=WholeDecodedByToken,
        trips=(("whole-answer-keeps-characters", _V),),
        source="waybarrios/vllm-mlx#109",
    ),
    Mutant(id="invalid-bytes", server=InvalidBytes, trips=((_STREAM, _V),)),
)

HARMLESS = (
    Harmless(id="escapes", server=Escapes),
    Harmless(id="small-pieces", server=SmallPieces),
    Harmless(id="ping-comments", server=PingComments, source="theopenco/llmgateway#2334"),
)
