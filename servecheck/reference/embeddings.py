"""``POST /v1/embeddings`` and ``/v1/rerank``: a text is the direction its tokens add up to; it means nothing."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from servecheck.reference import fields
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Base
from servecheck.reference.fields import ApiError
from servecheck.reference.tokens import VOCABULARY, encode

__all__ = ["EmbeddingRoutes", "Vector", "unit"]

Vector = tuple[float, ...]
_WIDTH = 64


@lru_cache(maxsize=8192)
def _direction(token: int) -> Vector:
    digest = hashlib.blake2b(f"direction {token}".encode(), digest_size=_WIDTH).digest()
    return tuple((value - 127.5) / 128 for value in digest)


def unit(vector: Sequence[float]) -> Vector:
    """Return the vector of length 1 in the same direction, in numbers that 32 bits hold."""
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    scaled = [value / length for value in vector]
    return struct.unpack(f"<{len(scaled)}f", struct.pack(f"<{len(scaled)}f", *scaled))


class EmbeddingRoutes(Base):
    """Embeddings, and reranking by them."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {
        ("POST", "/v1/embeddings"): "reply_embeddings",
        ("POST", "/v1/rerank"): "reply_rerank",
    }

    async def reply_embeddings(self, request: Request) -> Reply:
        """Answer a request for embeddings."""
        body = self.body_of(request)
        self.check_model(body)
        inputs = self.inputs_of(body)
        for ids in inputs:
            self.check_length(ids)
        encoding = fields.text(body, "encoding_format", "float")
        if encoding not in {"float", "base64"}:
            raise ApiError(f"encoding_format must be float or base64, got {encoding!r}", param="encoding_format")
        width = self.dimensions_of(body)
        vectors = self.vectors(inputs, width)
        data = [self.embedding_entry(place, vector, encoding) for place, vector in enumerate(vectors)]
        self.metrics.prompt_tokens += sum(map(len, inputs))
        return json_reply({"object": "list", "data": data, "model": self.model, "usage": self.embedding_usage(inputs)})

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:
        """Return the token ids of each text: a string, a list of strings, token ids, or a list of token ids."""
        given: Any = body.get("input")
        single = isinstance(given, str) or (isinstance(given, list) and bool(given) and isinstance(given[0], int))
        listed = [given] if single else given
        if not isinstance(listed, list):
            raise ApiError("input must be a string, token ids, or a list of either", param="input")
        made = [
            encode(entry) if isinstance(entry, str) else fields.integers({"input": entry}, "input", below=VOCABULARY)
            for entry in listed
        ]
        if not made or not all(made):
            raise ApiError("input must not be empty", param="input")
        return made

    def dimensions_of(self, body: Event) -> int:
        """Return how many numbers each vector shall have."""
        return fields.integer(body, "dimensions", _WIDTH, 1, _WIDTH)

    def vectors(self, inputs: Sequence[tuple[int, ...]], width: int) -> list[Vector]:
        """Return the vectors of a batch, in its order."""
        return [self.vector(ids, width) for ids in inputs]

    def vector(self, ids: Sequence[int], width: int = _WIDTH) -> Vector:
        """Return the vector of one text; a shorter one is the beginning of the whole, brought to length 1 again."""
        whole = [sum(column) for column in zip(*(_direction(token) for token in ids), strict=True)]
        return unit(whole[:width])

    def embedding_entry(self, place: int, vector: Vector, encoding: str) -> Event:
        """Return one entry of ``data``."""
        return {"object": "embedding", "index": place, "embedding": self.encoded(vector, encoding)}

    def encoded(self, vector: Vector, encoding: str) -> Any:  # noqa: ANN401
        """Return a vector as numbers, or as base64 of 32-bit numbers, least byte first."""
        if encoding == "base64":
            return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        return list(vector)

    def embedding_usage(self, inputs: Sequence[tuple[int, ...]]) -> Event:
        """Return the usage: all tokens of all texts."""
        count = sum(map(len, inputs))
        return {"prompt_tokens": count, "total_tokens": count}

    # ------------------------------------------------------------------ reranking

    async def reply_rerank(self, request: Request) -> Reply:
        """Answer a request to rank documents."""
        body = self.body_of(request)
        self.check_model(body)
        query, documents = fields.text(body, "query"), self.documents_of(body)
        if not query:
            raise ApiError("query must not be empty", param="query")
        results = self.ranked(query, documents, self.top_of(body))
        if fields.boolean(body, "return_documents", default=True):
            results = [{**entry, "document": {"text": documents[entry["index"]]}} for entry in results]
        return json_reply({"id": self.new_id("rerank-"), "model": self.model, "results": results, **self._billed(body)})

    def documents_of(self, body: Event) -> tuple[str, ...]:
        """Return the documents."""
        documents = fields.texts(body, "documents")
        if not documents:
            raise ApiError("documents must not be empty", param="documents")
        return documents

    def top_of(self, body: Event) -> int:
        """Return how many results shall come back, 0 for all."""
        return fields.integer(body, "top_n", 0, 0)

    def relevance(self, query: str, document: str) -> float:
        """Return how near two texts are."""
        one, other = self.vector(encode(query)), self.vector(encode(document))
        return sum(left * right for left, right in zip(one, other, strict=True))

    def ranked(self, query: str, documents: Sequence[str], top: int) -> list[Event]:
        """Return the results, best first."""
        scores = [self.relevance(query, document) for document in documents]
        order = sorted(range(len(documents)), key=lambda place: -scores[place])
        listed: list[Event] = [{"index": place, "relevance_score": scores[place]} for place in order]
        return listed[:top] if top else listed

    @staticmethod
    def _billed(body: Event) -> Event:
        count = sum(len(encode(text)) for text in (body["query"], *fields.texts(body, "documents")))
        return {"usage": {"prompt_tokens": count, "total_tokens": count}}
