"""Streams that say something else than the whole reply, and streams that only come in other pieces.

A fault acts on the streamed side alone, so that the whole reply stays what it was. Characters of several tokens are
put into every answer where a fault needs them, since the reference models write plain letters.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Cut, Event, Reply, Request
from servecheck.reference.engine import Delta, Job, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.models import MODELS, LanguageModel, Reading
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.sampling import chance
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import SPECIAL, encode, piece, shown

__all__ = ["HARMLESS", "MUTANTS"]


def _says(delta: Delta) -> bool:
    return bool(delta.content or delta.reasoning)


def _silent(delta: Delta) -> Delta:
    return replace(delta, content="", reasoning="")


class _Streams(ReferenceServer):
    """Base of servers whose streamed deltas are changed on their way out."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Change the deltas of streams."""
        made = super().deltas(job)
        async for delta in self.changed(made, job) if job.stream else made:
            yield delta

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Yield the deltas that the client gets."""
        async for delta in deltas:
            yield delta


# --------------------------------------------------------------------------- words in many bytes

_FOREIGN = "Größen 🦊🦊🦊🦊🦊 日本語 "
"""More tokens than the probe has room for, so that the limit falls inside a character."""
_SHORT = "Größe 🦊 é "


def _foreign(language: str | LanguageModel, words: str) -> LanguageModel:
    """Return a reference model that begins every answer, and every thought, with these words."""
    kind = MODELS[language if isinstance(language, str) else language.name]

    class Foreign(kind):  # type: ignore[misc, valid-type]
        def read(self, prompt: Sequence[int]) -> Reading:
            known = tuple(prompt) in self._readings
            reading: Reading = super().read(prompt)
            if not known:
                ids, place = encode(words), 2 if reading.thinks else 0
                reading.ids[place:place] = ids
                reading.shares[place:place] = [0.999] * len(ids)
            return reading

    made: LanguageModel = Foreign()
    return made


class _Foreign(_Streams):
    """Base of servers whose model writes letters of several bytes."""

    words = _SHORT

    def __init__(self, *, language: str | LanguageModel = "obedient", **config: Any) -> None:  # noqa: ANN401
        super().__init__(language=_foreign(language, self.words), **config)


# --------------------------------------------------------------------------- broken


class WordsLost(_Streams):
    """Loses every fifth piece of a stream."""

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Empty some pieces."""
        count = 0
        async for delta in deltas:
            count += _says(delta)
            yield _silent(delta) if count % 5 == 4 else delta


class WordsLostNowAndThen(_Streams):
    """Loses a piece of a stream, and of the next stream of the same prompt none."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._odd: set[tuple[int, ...]] = set()

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:
        """Empty one piece of every other stream of a prompt."""
        self._odd ^= {job.prompts[0].ids}
        bad = job.prompts[0].ids in self._odd
        count = 0
        async for delta in deltas:
            count += _says(delta)
            yield _silent(delta) if bad and count == 3 else delta


class PieceDoubled(_Streams):
    """Sends a piece twice where a border between chunks falls."""

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Double every fourth piece."""
        count = 0
        async for delta in deltas:
            count += _says(delta)
            twice = replace(delta, content=delta.content * 2, reasoning=delta.reasoning * 2)
            yield twice if count % 4 == 3 else delta


class CharactersSplit(_Foreign):
    """Decodes every token by itself, so that a character of several tokens is streamed as U+FFFD."""

    def read_alone(self, step: Step) -> str:
        """Return what one token alone would show."""
        return "" if step.token in SPECIAL else shown(step.token)

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Decode piece by piece where a piece has several tokens."""
        async for delta in deltas:
            bytes_ = b"".join(piece(step.token) for step in delta.steps)
            whole = bytes_.decode("utf-8", "replace")
            alone = "".join(self.read_alone(step) for step in delta.steps)
            if len(delta.steps) > 1 and delta.content == whole:
                yield replace(delta, content=alone)
            elif len(delta.steps) > 1 and delta.reasoning.strip() == whole.strip():
                yield replace(delta, reasoning=alone)
            else:
                yield delta


class CharactersDropped(CharactersSplit):
    """Streams an empty delta for every token that is part of a character, and never completes the character."""

    def read_alone(self, step: Step) -> str:
        """Drop what is no character."""
        return super().read_alone(step).replace("\ufffd", "")


class LastTextLost(_Streams):
    """Drops the text of the finishing chunk and of the one before it, as a gateway that reads only the reason."""

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Empty the last piece."""
        held: Delta | None = None
        async for delta in deltas:
            if held is not None:
                yield _silent(held) if delta.finish is not None and not _says(delta) else held
            held = _silent(delta) if delta.finish is not None and _says(delta) else delta
        if held is not None:
            yield held


class FinishDiffers(_Streams):
    """Gives another finish reason with a stream than without."""

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Swap ``stop`` and ``length``."""
        other = {"stop": "length", "length": "stop", None: None}
        async for delta in deltas:
            yield replace(delta, finish=other[delta.finish])


class StopsEarly(_Streams):
    """Ends a stream cleanly after four pieces, although the answer goes on."""

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Finish before the end."""
        count = 0
        async for delta in deltas:
            count += _says(delta)
            yield replace(delta, finish="stop") if count == 4 else delta
            if count == 4:
                return


class ThoughtsInContent(_Streams):
    """Puts the thoughts and their tags into the content when it streams; without a stream they are split off."""

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Move the thoughts."""
        thinking = False
        async for delta in deltas:
            if delta.reasoning:
                opened = "" if thinking else "<think>\n"
                thinking = True
                yield replace(delta, content=opened + delta.reasoning + delta.content, reasoning="")
            else:
                yield delta


class OthersText(_Streams):
    """Streams the text of the request before, which was somebody else's."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._before: list[Delta] = []

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Hand over the pieces that were kept, and keep the new ones."""
        mine = [delta async for delta in deltas]
        before, self._before = self._before, mine
        for delta in before or [Delta(index=0, content="Somebody else's words."), mine[-1]]:
            yield delta


class StreamIgnored(ReferenceServer):
    """Accepts ``stream: true`` and answers with one JSON body."""

    async def reply_chat(self, request: Request) -> Reply:
        """Answer as if no stream had been asked for."""
        body = {**self.body_of(request), "stream": False, "stream_options": None}
        plain = Request(method="POST", path=request.path, headers=request.headers, body=json.dumps(body).encode())
        return await super().reply_chat(plain)


class StreamRefused(ReferenceServer):
    """Refuses to stream."""

    def chat_job(self, body: Event) -> Job:
        """Refuse ``stream: true``."""
        if body.get("stream"):
            raise ApiError("streaming is not supported by this deployment", param="stream", status=501)
        return super().chat_job(body)


class RefusedInsideTheStream(ReferenceServer):
    """Refuses a stream with an error event that carries code 400, after a header that says 200."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Send the refusal as the only event."""
        yield {"error": {"message": f"request {job.id} is too long to stream", "type": "BadRequestError", "code": 400}}


class StreamFails(ReferenceServer):
    """Turns what the engine says of a stream into a 500 of its own."""

    async def reply_chat(self, request: Request) -> Reply:
        """Fail where a stream is asked for."""
        if self.body_of(request).get("stream"):
            raise ApiError("upstream error", status=500, kind="InternalServerError")
        return await super().reply_chat(request)


class StreamIsCut(ReferenceServer):
    """Loses the connection after six events, without an error and without an end."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Cut."""
        count = 0
        async for event in events:
            yield self.frame(event)
            count += 1
            if count == 6:
                raise Cut


class DiesMidway(ReferenceServer):
    """Fails inside after three events and says so in an error event, then ends cleanly."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        """Raise behind the third event."""
        count = 0
        async for event in super().chunks(job):
            yield event
            count += 1
            if count == 3:
                raise ApiError("counter went backwards", status=500, kind="InternalServerError")


class NotANumber(ReferenceServer):
    """Writes ``NaN`` into its events, which is not JSON."""

    def envelope(self, job: Job) -> Event:
        """Add a statistic that JSON cannot hold."""
        return {**super().envelope(job), "tokens_per_second": float("nan")}


class PythonInEvents(ReferenceServer):
    """Writes events as Python shows a dictionary."""

    def frame(self, event: Event) -> bytes:
        """Write the ``repr``."""
        return f"data: {event!r}\n\n".encode()


class OtherNameInStreams(ReferenceServer):
    """Stands behind a gateway that puts the public name into whole replies and passes streams on as they are."""

    def envelope(self, job: Job) -> Event:
        """Name the engine's own model."""
        return {**super().envelope(job), "model": "/models/weights-7b"}


# --------------------------------------------------------------------------- odd, but right


class _Tied(ReferenceServer):
    """Base of servers with a near-tie at the seventh token: 0.125 nat, one step of bf16 logits."""

    place, gap = 6, 0.125

    def flips(self, job: Job) -> bool:
        """Whether this request goes the other way."""
        return job.stream

    def candidates(self, job: Job, index: int, prompt: Sequence[int], generated: Sequence[int]) -> Any:  # noqa: ANN401
        """Bring the two best tokens close together, in either order."""
        made = list(super().candidates(job, index, prompt, generated))
        if len(generated) != self.place:
            return made
        (first, high), (second, low) = made[0], made[1]
        middle = (high + low) / 2
        pair = [(second, middle), (first, middle - self.gap)]
        return [*(pair if self.flips(job) else [(first, middle), (second, middle - self.gap)]), *made[2:]]


class TieFlipsInStreams(_Tied):
    """Goes one way at a near-tie when it streams and the other when it does not: other batches, other sums."""


class TieFlipsAnytime(_Tied):
    """Goes either way at a near-tie, request by request, whether it streams or not."""

    def flips(self, job: Job) -> bool:
        """Toss a coin."""
        return chance("tie", job.id) < 0.5


class ExactTie(_Tied):
    """Has two best tokens of the same probability but for rounding, as bf16 logits make them once in forty tokens."""

    gap = 1e-9


class TieBehindLetters(_Foreign, _Tied):
    """Flips at a near-tie behind letters of several bytes, where tokens and characters do not count alike."""

    place = 20


class ManyTokensAChunk(_Streams):
    """Sends three tokens in one chunk, as speculative decoding does."""

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Join deltas by threes."""
        held: list[Delta] = []
        async for delta in deltas:
            held.append(delta)
            if len(held) == 3 or delta.finish is not None:
                for joined in _joined(held):
                    yield joined
                held.clear()


def _joined(deltas: Sequence[Delta]) -> Iterator[Delta]:
    yield replace(
        deltas[-1],
        content="".join(delta.content for delta in deltas),
        reasoning="".join(delta.reasoning for delta in deltas),
        steps=tuple(step for delta in deltas for step in delta.steps),
    )


class TextHeldBack(_Streams):
    """Holds all text back and sends it with the finish, as a parser does that cannot decide earlier."""

    async def changed(self, deltas: AsyncIterator[Delta], job: Job) -> AsyncIterator[Delta]:  # noqa: ARG002
        """Join everything."""
        for joined in _joined([delta async for delta in deltas]):
            yield joined


class OneByteAtATime(_Streams):
    """Sends its bytes one by one, so that every character of several bytes is split between reads."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Cut everywhere."""
        async for frame in super().frames(events):
            for value in frame:
                yield bytes([value])


class ForeignLetters(_Foreign):
    """Writes letters, signs and an emoji of several tokens each, in both modes alike."""


class CutInsideACharacter(_Foreign):
    """Reaches the limit of tokens in the middle of a character and holds its bytes back in both modes."""

    words = _FOREIGN


class CutShownInStreams(CutInsideACharacter):
    """Reaches the limit inside a character, and shows the part as U+FFFD when it streams only."""

    def shows(self, job: Job) -> bool:
        """Whether the part is shown."""
        return job.stream

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Add the replacement character where bytes are left over."""
        tokens: list[int] = []
        async for delta in super().deltas(job):
            tokens += [step.token for step in delta.steps]
            left = b"".join(map(piece, tokens)).decode("utf-8", "replace").endswith("\ufffd")
            if delta.finish == "length" and left and self.shows(job):
                yield replace(delta, content=f"{delta.content}\ufffd")
            else:
                yield delta


class CutShownWhole(CutShownInStreams):
    """Reaches the limit inside a character, and shows the part as U+FFFD in whole replies only."""

    def shows(self, job: Job) -> bool:
        """Whether the part is shown."""
        return not job.stream


class ReasoningRenamed(ReferenceServer):
    """Calls the thoughts ``reasoning`` when it streams and ``reasoning_content`` when it does not; both are read."""

    def chat_delta(self, job: Job, delta: Delta) -> Event:
        """Rename the field."""
        made = super().chat_delta(job, delta)
        if "reasoning_content" in made:
            made["reasoning"] = made.pop("reasoning_content")
        return made


_V = Outcome.VIOLATED
_TEXT, _FINISH = "stream-text-equals-whole-text", "stream-finish-equals-whole-finish"

MUTANTS = (
    Mutant(id="words-lost", server=WordsLost, trips=((_TEXT, _V),)),
    Mutant(id="words-lost-now-and-then", server=WordsLostNowAndThen, trips=((_TEXT, _V),)),
    Mutant(id="piece-doubled", server=PieceDoubled, trips=((_TEXT, _V),), source="vllm-project/vllm#51697"),
    Mutant(id="characters-split", server=CharactersSplit, trips=((_TEXT, _V),), source="waybarrios/vllm-mlx#109"),
    Mutant(
        id="characters-dropped",
        server=CharactersDropped,
        trips=((_TEXT, _V),),
        source="huggingface/text-generation-inference#333",
    ),
    Mutant(id="last-text-lost", server=LastTextLost, trips=((_TEXT, _V),), source="vllm-project/vllm#35705"),
    Mutant(id="finish-differs", server=FinishDiffers, trips=((_FINISH, _V),), source="vllm-project/vllm#25054"),
    Mutant(id="stops-early", server=StopsEarly, trips=((_TEXT, _V),)),
    Mutant(
        id="thoughts-in-content",
        server=ThoughtsInContent,
        trips=((_TEXT, _V),),
        source="vllm-project/vllm#45687",
        models=("reasoning",),
    ),
    Mutant(id="others-text", server=OthersText, trips=((_TEXT, _V),), source="BerriAI/litellm#25447"),
    Mutant(
        id="stream-ignored",
        server=StreamIgnored,
        trips=((_TEXT, Outcome.NO_EFFECT),),
        source="ray-project/ray#58366",
    ),
    Mutant(id="stream-refused", server=StreamRefused, trips=((_TEXT, Outcome.REFUSED),)),
    Mutant(
        id="refused-inside-the-stream",
        server=RefusedInsideTheStream,
        trips=((_TEXT, Outcome.REFUSED),),
        source="ggml-org/llama.cpp#14566",
    ),
    Mutant(id="stream-fails", server=StreamFails, trips=((_TEXT, _V),), source="kserve/kserve#3886"),
    Mutant(id="stream-is-cut", server=StreamIsCut, trips=((_TEXT, _V),), source="nicolerenee/infra#2078"),
    Mutant(id="dies-midway", server=DiesMidway, trips=((_TEXT, _V),), source="vllm-project/vllm#43031"),
    Mutant(id="not-a-number", server=NotANumber, trips=((_TEXT, _V),), source="sgl-project/sglang#5984"),
    Mutant(id="python-in-events", server=PythonInEvents, trips=((_TEXT, _V),), source="vllm-project/vllm#57997"),
    Mutant(
        id="other-name-in-streams",
        server=OtherNameInStreams,
        trips=(("stream-names-the-model-of-the-whole", Outcome.VIOLATED),),
        source="kubernetes-sigs/gateway-api-inference-extension#1625",
    ),
)

HARMLESS = (
    Harmless(id="tie-flips-in-streams", server=TieFlipsInStreams, source="sgl-project/sglang-omni#458"),
    Harmless(id="tie-flips-anytime", server=TieFlipsAnytime, source="vllm-project/vllm#23138"),
    Harmless(id="exact-tie", server=ExactTie),
    Harmless(id="tie-behind-letters", server=TieBehindLetters),
    Harmless(id="many-tokens-a-chunk", server=ManyTokensAChunk),
    Harmless(id="text-held-back", server=TextHeldBack),
    Harmless(id="one-byte-at-a-time", server=OneByteAtATime),
    Harmless(id="foreign-letters", server=ForeignLetters),
    Harmless(id="cut-inside-a-character", server=CutInsideACharacter, source="waybarrios/vllm-mlx#109"),
    Harmless(id="cut-shown-in-streams", server=CutShownInStreams, source="waybarrios/vllm-mlx#109"),
    Harmless(id="cut-shown-whole", server=CutShownWhole),
    Harmless(id="reasoning-renamed", server=ReasoningRenamed, source="vllm-project/vllm#50624"),
)
