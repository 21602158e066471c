"""A batch of texts gives each text its own vector, in their order, as if it had been alone.

What it does: embeds three texts of different lengths alone, the three in one request, in another order, and among many
others in a long list; then compares the vectors by index and by place.

Why it matters: clients embed in batches and pair vectors with texts by place or by index. A swapped pair gives no
error, only wrong search results.

How it could be fooled: by a model for which the three texts have nearly one direction; then the order does not show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, NotApplicable, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._steps import filler
from servecheck.probes._vectors import (
    PART,
    SOURCE,
    Listed,
    Vector,
    cosine,
    listed_at,
    no_route,
    unless_listed,
    vector_at,
)
from servecheck.read.text import quote

__all__ = ["PROBE"]

_EACH, _INDEX, _PLACE = "batch-has-a-vector-for-each-text", "index-points-to-its-text", "vectors-come-in-input-order"
_ALONE, _SUM = "vector-in-a-batch-is-the-lone-one", "batch-usage-is-the-sum"
_OBJECT = "https://platform.openai.com/docs/api-reference/embeddings/object"
_SAME = 0.99  # cosine; other kernels and 16-bit numbers gave 0.9999 and above, padding that is counted far less
_TEXTS = (
    "Copper conducts electricity well.",
    "My grandmother bakes a plum cake every autumn, and the whole street knows when it is in the oven.",
    "Where is the station?",
)
_ORDER = (2, 0, 1)


class EmbeddingsBatchParams(Params):
    """What may be chosen in YAML."""

    texts: tuple[str, str, str] = Field(default=_TEXTS, strict=False, description="Three texts of different lengths.")
    many: int = Field(default=40, ge=3, le=2048, description="How many texts the long list has.")


def _batches(params: EmbeddingsBatchParams) -> dict[str, dict[int, int]]:
    """Return by step which place holds which of the three texts."""
    last = params.many - 1
    return {
        "batch": {0: 0, 1: 1, 2: 2},
        "turned": dict(enumerate(_ORDER)),
        "many": {0: 0, last // 2: 1, last: 2},
    }


async def drive(session: Session, params: EmbeddingsBatchParams, _: Transcript | None) -> None:
    """Alone, in a batch, in another order, among many."""
    for place, text in enumerate(params.texts):
        await session.post(f"alone-{place}", "/embeddings", {"input": text})
        if not isinstance(listed_at(session.transcript, "alone-0"), Listed):
            return
    for step, places in _batches(params).items():
        size = params.many if step == "many" else len(places)
        texts: list[Json] = [
            params.texts[places[place]] if place in places else filler(4, place) for place in range(size)
        ]
        await session.post(step, "/embeddings", {"input": texts})


def judge(transcript: Transcript, params: EmbeddingsBatchParams) -> Iterator[Finding | NotApplicable]:
    """Judge each batch against the lone vectors."""
    first = listed_at(transcript, "alone-0")
    absent = no_route(first, "/embeddings", "embeds nothing")
    if absent is not None:
        yield absent
        return
    missing = unless_listed(_EACH, first, what="a single text")
    if missing is not None:
        yield missing
        return
    alone = [vector_at(transcript, f"alone-{place}") for place in range(len(params.texts))]
    vectors = [vector for vector in alone if vector is not None]
    for step, places in _batches(params).items():
        found = listed_at(transcript, step)
        wanted = params.many if step == "many" else len(places)
        missing = unless_listed(_EACH, found, first, what=f"a batch of {wanted} texts")
        if missing is not None or not isinstance(found, Listed):
            yield missing or PART.undetermined(_EACH, "not sent")
            continue
        yield _each(found, wanted)
        if len(found.items) == wanted and len(vectors) == len(alone):
            yield from _order(found, places, vectors)
    yield _usage(transcript, params)


def _each(found: Listed, wanted: int) -> Finding:
    sizes = sorted({len(item.vector) for item in found.items if item.vector is not None})
    empty = sum(item.vector is None for item in found.items)
    if len(found.items) != wanted:
        why = f"{len(found.items)} embeddings for {wanted} texts"
    elif empty:
        why = f"{empty} of {wanted} entries hold no vector"
    elif len(sizes) > 1:
        why = f"vectors of {sizes[0]} and of {sizes[-1]} numbers in one list"
    else:
        return PART.held(_EACH, f"{wanted} texts, {wanted} vectors", found.exchange)
    return PART.violated(_EACH, why, found.exchange)


def _order(found: Listed, places: dict[int, int], alone: Sequence[Vector]) -> Iterator[Finding]:
    pairs = [(one, other) for one in range(len(alone)) for other in range(one)]
    nearest = max(cosine(alone[one], alone[other]) for one, other in pairs)
    by_index: dict[int | None, Vector | None] = {item.index: item.vector for item in found.items}
    by_place: dict[int | None, Vector | None] = dict(enumerate(item.vector for item in found.items))
    if set(by_index) != set(by_place):
        shown = quote(", ".join(str(item.index) for item in found.items[:6]), 40)
        yield PART.violated(_INDEX, f"the indices are {shown}, not 0 to {len(found.items) - 1}", found.exchange)
    if nearest >= _SAME:
        why = f"the texts' own vectors are alike (cosine {nearest:.4f}): their order does not show"
        yield PART.undetermined(_INDEX, why, found.exchange)
        return
    if set(by_index) == set(by_place):
        yield _pointed(_INDEX, "index", found, places, by_index, alone)
    yield _pointed(_PLACE, "place", found, places, by_place, alone)
    near = [max(cosine(vector or (), one) for vector in by_place.values()) for one in alone]
    worst = min(near)
    said = f"the three texts among {len(found.items)}: cosine to the lone vector at least {worst:.5f}"
    yield (PART.held if worst >= _SAME else PART.violated)(_ALONE, said, found.exchange, cosine=round(worst, 5))


def _pointed(
    check: str,
    word: str,
    found: Listed,
    places: dict[int, int],
    vectors: dict[int | None, Vector | None],
    alone: Sequence[Vector],
) -> Finding:
    for at, text in places.items():
        vector = vectors.get(at) or ()
        near = [cosine(vector, one) for one in alone]
        if max(near) >= _SAME and near.index(max(near)) != text:
            why = f"{word} {at} holds the vector of text {near.index(max(near)) + 1}, not of text {text + 1}"
            return PART.violated(check, why, found.exchange)
        # A text whose vector is found elsewhere in the list is out of its place; one that is nowhere is not itself.
        elsewhere = [other for other, each in vectors.items() if cosine(each or (), alone[text]) >= _SAME]
        if max(near) < _SAME and elsewhere:
            why = f"the vector of text {text + 1} is at {word} {elsewhere[0]}, not at {at}"
            return PART.violated(check, why, found.exchange)
    return PART.held(check, f"{word} and text agree, {len(found.items)} texts", found.exchange)


def _usage(transcript: Transcript, params: EmbeddingsBatchParams) -> Finding:
    steps = [*(f"alone-{place}" for place in range(len(params.texts))), "batch"]
    seen = [exchange for step in steps if (exchange := transcript.get(step)) is not None]
    counts = []
    for step in steps:
        found = listed_at(transcript, step)
        usage = found.usage if isinstance(found, Listed) else None
        counts.append(usage.prompt if usage is not None else None)
    given = [count for count in counts if count is not None]
    if len(given) != len(steps):
        return PART.undetermined(_SUM, "usage is not there for all of them", *seen)
    *parts, whole = given
    said = f"prompt_tokens {whole} for the batch, {' + '.join(map(str, parts))} = {sum(parts)} alone"
    return (PART.held if whole == sum(parts) else PART.violated)(_SUM, said, *seen)


PROBE = Probe(
    id="embeddings_batch",
    doc=__doc__ or "",
    checks=(
        Check(id=_EACH, rule="A batch has one vector for each text, all of one size.", level=Level.MUST, source=SOURCE),
        Check(
            id=_INDEX,
            rule="The vector with an index is that of the text at that place of the input.",
            level=Level.MUST,
            source=_OBJECT,
        ),
        Check(
            id=_PLACE,
            rule="Vectors come in the order of the texts.",
            level=Level.SHOULD,
            source="https://github.com/pydantic/pydantic-ai/issues/7284",
        ),
        Check(
            id=_ALONE,
            rule="A text has the same vector in a batch as alone (cosine at least 0.99).",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/embeddings",
        ),
        Check(
            id=_SUM,
            rule="The usage of a batch is the sum of its texts'.",
            level=Level.SHOULD,
            source=SOURCE,
        ),
    ),
    params=EmbeddingsBatchParams,
    drive=drive,
    judge=judge,
    requests=6,
    prompt_tokens=500,
)
