"""Batches that lose, swap or mix up their vectors."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.embeddings import Vector, unit
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.embeddings_basic import TinyNoise
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_EACH, _INDEX, _PLACE = "batch-has-a-vector-for-each-text", "index-points-to-its-text", "vectors-come-in-input-order"
_ALONE, _SUM = "vector-in-a-batch-is-the-lone-one", "batch-usage-is-the-sum"


class FirstTextOnly(ReferenceServer):
    """Embeds the first text of a batch and leaves the others."""

    def vectors(self, inputs: Sequence[tuple[int, ...]], width: int) -> list[Vector]:
        """Stop after one."""
        return super().vectors(inputs[:1], width)


class BatchRefused(ReferenceServer):
    """Takes one text at a time."""

    def inputs_of(self, body: Event) -> list[tuple[int, ...]]:
        """Refuse lists."""
        made = super().inputs_of(body)
        if len(made) > 1:
            raise ApiError("input must be a string", param="input")
        return made


class LongBatchCut(ReferenceServer):
    """Answers no more than 32 texts of a list."""

    def vectors(self, inputs: Sequence[tuple[int, ...]], width: int) -> list[Vector]:
        """Cut."""
        return super().vectors(inputs[:32], width)


class SortedByLength(ReferenceServer):
    """Sorts a batch by length to save padding, and forgets to sort it back."""

    def vectors(self, inputs: Sequence[tuple[int, ...]], width: int) -> list[Vector]:
        """Sort."""
        return super().vectors(sorted(inputs, key=len), width)


class SwappedAcrossWorkers(ReferenceServer):
    """Spreads a long list over workers and puts together whatever comes first."""

    def vectors(self, inputs: Sequence[tuple[int, ...]], width: int) -> list[Vector]:
        """Swap the halves of long lists."""
        half = len(inputs) // 2 if len(inputs) > 8 else 0
        return super().vectors([*inputs[half:], *inputs[:half]], width)


class OutOfOrder(ReferenceServer):
    """Lists vectors as they are ready; the index tells the truth."""

    turned = 0

    def embedding_entry(self, place: int, vector: Vector, encoding: str) -> Event:
        """Name the other end of the list."""
        return super().embedding_entry(self.turned - 1 - place, vector, encoding)

    def vectors(self, inputs: Sequence[tuple[int, ...]], width: int) -> list[Vector]:
        """Turn the list round."""
        self.turned = len(inputs)
        return super().vectors(inputs, width)[::-1]


class IndexAlwaysZero(ReferenceServer):
    """Gives every entry the index 0."""

    def embedding_entry(self, place: int, vector: Vector, encoding: str) -> Event:
        """Forget the place."""
        return {**super().embedding_entry(place, vector, encoding), "index": 0}


class PaddingCounts(ReferenceServer):
    """Fills texts up to the longest of the batch, and the filling counts in the mean."""

    def vectors(self, inputs: Sequence[tuple[int, ...]], width: int) -> list[Vector]:
        """Fill up."""
        longest = max(map(len, inputs))
        return super().vectors([(*ids, *(300,) * (longest - len(ids))) for ids in inputs], width)


class NeighboursMixed(ReferenceServer):
    """Adds a share of the text before to each vector: the borders between sequences are off."""

    def vectors(self, inputs: Sequence[tuple[int, ...]], width: int) -> list[Vector]:
        """Mix."""
        made = super().vectors(inputs, width)
        return [
            unit([one + 0.5 * other for one, other in zip(vector, made[place - 1], strict=True)]) if place else vector
            for place, vector in enumerate(made)
        ]


class EndOfLongText(ReferenceServer):
    """Takes the mean of the last part of a long text alone where others are beside it.

    Seen on llama.cpp b11549 with mean pooling, two slots and a cache for each.
    """

    def vectors(self, inputs: Sequence[tuple[int, ...]], width: int) -> list[Vector]:
        """Cut the beginning off."""
        shortest = min(map(len, inputs))
        return super().vectors([ids if len(ids) < 2 * shortest else ids[shortest:] for ids in inputs], width)


class UsageOfTheFirst(ReferenceServer):
    """Reports the tokens of the first text for the whole batch."""

    def embedding_usage(self, inputs: Sequence[tuple[int, ...]]) -> Event:
        """Count one."""
        return super().embedding_usage(inputs[:1])


_V, _R = Outcome.VIOLATED, Outcome.REFUSED

MUTANTS = (
    Mutant(id="first-text-only", server=FirstTextOnly, trips=((_EACH, _V),)),
    Mutant(id="batch-refused", server=BatchRefused, trips=((_EACH, _R),)),
    Mutant(id="long-batch-cut", server=LongBatchCut, trips=((_EACH, _V),)),
    Mutant(id="sorted-by-length", server=SortedByLength, trips=((_INDEX, _V), (_PLACE, _V)), source="helixml/kodit#77"),
    Mutant(
        id="swapped-across-workers",
        server=SwappedAcrossWorkers,
        trips=((_INDEX, _V), (_PLACE, _V)),
        source="googleapis/js-genai#1207",
    ),
    Mutant(id="out-of-order", server=OutOfOrder, trips=((_PLACE, _V),), source="openai/openai-python#420"),
    Mutant(id="index-always-zero", server=IndexAlwaysZero, trips=((_INDEX, _V),)),
    Mutant(
        id="padding-counts",
        server=PaddingCounts,
        trips=((_ALONE, _V),),
        source="huggingface/sentence-transformers#2569",
    ),
    Mutant(
        id="neighbours-mixed",
        server=NeighboursMixed,
        trips=((_ALONE, _V),),
        source="huggingface/sentence-transformers#3278",
    ),
    Mutant(id="end-of-long-text", server=EndOfLongText, trips=((_ALONE, _V),)),
    Mutant(id="usage-of-the-first", server=UsageOfTheFirst, trips=((_SUM, _V),)),
)

HARMLESS = (Harmless(id="tiny-noise", server=TinyNoise),)
