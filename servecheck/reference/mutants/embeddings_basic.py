"""Embeddings that are no vectors, change, count wrongly, or take what should be refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.embeddings import Vector, unit
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_VECTOR, _SAME, _OTHER = "embedding-is-a-vector", "same-text-same-vector", "other-text-other-vector"
_UNIT, _FORM, _USAGE = "vector-has-length-one", "embedding-reply-is-well-formed", "embedding-usage-counts-the-text"
_TOKENS, _EMPTY = "token-ids-give-the-text-s-vector", "empty-input-is-refused"
_LONG, _ODD = "too-long-input-is-refused", "odd-input-is-no-server-error"


class EmbeddingsNotServed(ReferenceServer):
    """Refuses every embedding although the route is there, as a server started without embeddings does."""

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:  # noqa: ARG002
        """Refuse."""
        raise ApiError("this server does not support embeddings", status=501, kind="not_supported_error")


class AllZeros(ReferenceServer):
    """Answers with vectors of zeros."""

    def vector(self, ids: Sequence[int], width: int = 64) -> Vector:  # noqa: ARG002
        """Return zeros."""
        return (0.0,) * width


class NotANumber(ReferenceServer):
    """Writes NaN, which is not JSON."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Spoil the first number."""
        made = super().encoded(vector, encoding)
        return [float("nan"), *made[1:]] if isinstance(made, list) else made


class NullNumbers(ReferenceServer):
    """Writes null where a number overflowed."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Spoil the first number."""
        made = super().encoded(vector, encoding)
        return [None, *made[1:]] if isinstance(made, list) else made


class VectorPerToken(ReferenceServer):
    """Forgets to pool: one entry for each token of the text."""

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:
        """Take texts apart."""
        return [(token,) for ids in super().inputs_of(body) for token in ids]


class EmbeddingsDrift(ReferenceServer):
    """Adds noise, another with each request."""

    NOISE: ClassVar[float] = 0.1

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._count = itertools.count(1)

    def vector(self, ids: Sequence[int], width: int = 64) -> Vector:
        """Turn the vector a little."""
        turn = next(self._count)
        made = super().vector(ids, width)
        return unit([value + (self.NOISE if (place + turn) % 5 == 0 else 0.0) for place, value in enumerate(made)])


class OneVectorForAll(ReferenceServer):
    """Has the same vector for every text, as a pooler does that reads the padding."""

    def vector(self, ids: Sequence[int], width: int = 64) -> Vector:  # noqa: ARG002
        """Return the vector of one token."""
        return super().vector((300,), width)


class EmbeddingsSpoiltAgain(ReferenceServer):
    """Answers the first request and fails on the second: the state of the first is left behind."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._count = itertools.count(1)

    async def reply_embeddings(self, request: Request) -> Reply:
        """Fail from the second on."""
        if next(self._count) > 1:
            raise ApiError("tensor of another size", status=500, kind="InternalServerError")
        return await super().reply_embeddings(request)


class NotNormalised(ReferenceServer):
    """Leaves vectors as long as they come out of the model."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Make the vector longer."""
        return super().encoded(tuple(value * 13.7 for value in vector), encoding)


class BareEntries(ReferenceServer):
    """Leaves out “object” and “index”."""

    def embedding_entry(self, place: int, vector: Vector, encoding: str) -> Event:  # noqa: ARG002
        """Return the vector alone."""
        return {"embedding": self.encoded(vector, encoding)}


class UsageZero(ReferenceServer):
    """Reports no tokens at all."""

    def embedding_usage(self, inputs: Sequence[tuple[int, ...]]) -> Event:  # noqa: ARG002
        """Count nothing."""
        return {"prompt_tokens": 0, "total_tokens": 0}


class UsageOfChat(ReferenceServer):
    """Adds tokens to the total that an embedding does not make."""

    def embedding_usage(self, inputs: Sequence[tuple[int, ...]]) -> Event:
        """Add one."""
        made = super().embedding_usage(inputs)
        return {**made, "total_tokens": made["prompt_tokens"] + 1}


class NoUsage(ReferenceServer):
    """Gives no usage."""

    def embedding_usage(self, inputs: Sequence[tuple[int, ...]]) -> Event:  # noqa: ARG002
        """Count nothing."""
        return {}


def _is_ids(body: Event) -> bool:
    given = body.get("input")
    return isinstance(given, list) and bool(given) and isinstance(given[0], int)


class TokenIdsRefused(ReferenceServer):
    """Takes strings only, where frameworks send token ids."""

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:
        """Refuse numbers."""
        if _is_ids(body):
            raise ApiError("input must be a string or a list of strings", param="input")
        return super().inputs_of(body)


class TokenIdsAsTexts(ReferenceServer):
    """Reads token ids as the digits that they are written with."""

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:
        """Print the numbers."""
        return super().inputs_of({**body, "input": [str(one) for one in body["input"]]} if _is_ids(body) else body)


class TokenIdsFail(ReferenceServer):
    """Fails inside on token ids."""

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:
        """Fail."""
        if _is_ids(body):
            raise ApiError("'int' object has no attribute 'strip'", status=500, kind="InternalServerError")
        return super().inputs_of(body)


class EmptyEmbedded(ReferenceServer):
    """Has a vector for an empty text."""

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:
        """Put a word where there is none."""
        return super().inputs_of({**body, "input": body.get("input") or "the"})


class EmptyFails(ReferenceServer):
    """Divides by the number of tokens, which is 0."""

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:
        """Fail on nothing."""
        if not body.get("input"):
            raise ApiError("division by zero", status=500, kind="InternalServerError")
        return super().inputs_of(body)


class CutInSilence(ReferenceServer):
    """Cuts a text that is too long and says nothing."""

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:
        """Cut."""
        return [ids[: self.max_model_len - 1] for ids in super().inputs_of(body)]


class LongFails(ReferenceServer):
    """Fails inside on a text that is too long, instead of refusing it."""

    def check_length(self, ids: Sequence[int]) -> None:
        """Fail."""
        if len(ids) >= self.max_model_len:
            raise ApiError("input is too large to process", status=500, kind="server_error")


# --------------------------------------------------------------------------- odd, but right


class NoEmbeddings(ReferenceServer):
    """Has no such route, as a server of a model that generates."""

    @classmethod
    def routes(cls) -> dict[tuple[str, str], str]:
        """Leave embeddings out."""
        return {key: name for key, name in super().routes().items() if name != "reply_embeddings"}


class MoreFields(ReferenceServer):
    """Adds an id, a time and details of usage, as vLLM does."""

    async def reply_embeddings(self, request: Request) -> Reply:
        """Add fields."""
        reply = await super().reply_embeddings(request)
        body = self.read_back(reply)
        usage = {**body["usage"], "completion_tokens": 0, "prompt_tokens_details": None}
        return json_reply({"id": self.new_id("embd-"), "created": 1_700_000_000, **body, "usage": usage})

    @staticmethod
    def read_back(reply: Reply) -> Event:
        """Return the JSON of a reply."""
        assert isinstance(reply.body, bytes)
        made: Event = json.loads(reply.body)
        return made


class EmptyListForNothing(ReferenceServer):
    """Answers an empty list with an empty list."""

    async def reply_embeddings(self, request: Request) -> Reply:
        """Answer nothing to nothing."""
        if self.body_of(request).get("input") == []:
            usage = {"prompt_tokens": 0, "total_tokens": 0}
            return json_reply({"object": "list", "data": [], "model": self.model, "usage": usage})
        return await super().reply_embeddings(request)


class RoundedNumbers(ReferenceServer):
    """Writes numbers with five digits, which moves nothing that matters."""

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Round."""
        made = super().encoded(vector, encoding)
        return [round(value, 5) for value in made] if isinstance(made, list) else made


class TinyNoise(EmbeddingsDrift):
    """Differs in the fourth digit from one request to the next, as 16-bit numbers in other batches do."""

    NOISE: ClassVar[float] = 1e-4


_V, _R = Outcome.VIOLATED, Outcome.REFUSED

MUTANTS = (
    Mutant(id="embeddings-not-served", server=EmbeddingsNotServed, trips=((_VECTOR, _R),)),
    Mutant(id="all-zeros", server=AllZeros, trips=((_VECTOR, _V),)),
    Mutant(id="not-a-number", server=NotANumber, trips=((_VECTOR, _V),), source="ggml-org/llama.cpp#5796"),
    Mutant(id="null-numbers", server=NullNumbers, trips=((_VECTOR, _V),)),
    Mutant(id="vector-per-token", server=VectorPerToken, trips=((_VECTOR, _V),), source="ggml-org/llama.cpp#14543"),
    Mutant(id="embeddings-drift", server=EmbeddingsDrift, trips=((_SAME, _V),)),
    Mutant(id="one-vector-for-all", server=OneVectorForAll, trips=((_OTHER, _V),)),
    Mutant(id="embeddings-spoilt-again", server=EmbeddingsSpoiltAgain, trips=((_SAME, _V), (_OTHER, _V))),
    Mutant(
        id="not-normalised",
        server=NotNormalised,
        trips=((_UNIT, _V),),
        source="huggingface/text-embeddings-inference#278",
    ),
    Mutant(id="bare-entries", server=BareEntries, trips=((_FORM, _V),)),
    Mutant(id="usage-zero", server=UsageZero, trips=((_USAGE, _V),)),
    Mutant(id="usage-of-chat", server=UsageOfChat, trips=((_USAGE, _V),)),
    Mutant(id="no-usage", server=NoUsage, trips=((_USAGE, _V),)),
    Mutant(
        id="token-ids-refused", server=TokenIdsRefused, trips=((_TOKENS, _R),), source="langchain-ai/langchain#6793"
    ),
    Mutant(
        id="token-ids-as-texts",
        server=TokenIdsAsTexts,
        trips=((_TOKENS, _V),),
        source="langchain-ai/langchain#31723",
    ),
    Mutant(
        id="token-ids-fail",
        server=TokenIdsFail,
        trips=((_TOKENS, _V),),
        source="microsoft/aoai-api-simulator#87",
    ),
    Mutant(id="empty-embedded", server=EmptyEmbedded, trips=((_EMPTY, _V),), source="langchain-ai/langchain#3331"),
    Mutant(id="empty-fails", server=EmptyFails, trips=((_ODD, _V),)),
    Mutant(id="cut-in-silence", server=CutInSilence, trips=((_LONG, _V),)),
    Mutant(id="long-fails", server=LongFails, trips=((_ODD, _V),)),
)

HARMLESS = (
    Harmless(id="no-embeddings", server=NoEmbeddings, models=("obedient",)),
    Harmless(id="more-fields", server=MoreFields),
    Harmless(id="empty-list-for-nothing", server=EmptyListForNothing),
    Harmless(id="rounded-numbers", server=RoundedNumbers),
    Harmless(id="tiny-noise", server=TinyNoise),
)
