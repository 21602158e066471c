"""``dimensions`` shortens an embedding to that many numbers, or is refused.

What it does: embeds a text whole, asks for half as many numbers and for an eighth, and for sizes that cannot be: more
numbers than there are, and none. The control is the whole vector.

Why it matters: a vector store has columns of one size. A server that takes the field and answers in another size fails
at the first insert; one that cuts without bringing the rest to length 1 again changes every score.

How it could be fooled: a shorter vector need not be the beginning of the whole one by OpenAI's words, so that counts
little. A model that was not trained for it may be right to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Level, NotApplicable, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._vectors import (
    PART,
    SOURCE,
    Listed,
    cosine,
    fault,
    length,
    listed_at,
    no_route,
    unless_listed,
    vector_at,
)
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SHORT, _BEGINS, _UNIT = "dimensions-set-the-size", "shorter-vector-begins-the-whole", "shorter-vector-keeps-length-one"
_IMPOSSIBLE = "impossible-dimensions-are-refused"
_ROUNDING = 0.01
_ALIKE = 0.99
_PARTS = {"half": 2, "eighth": 8}


class EmbeddingsDimensionsParams(Params):
    """What may be chosen in YAML."""

    text: str = Field(default="A lighthouse keeper counts the ships at dusk.", description="The text to embed.")


async def drive(session: Session, params: EmbeddingsDimensionsParams, _: Transcript | None) -> None:
    """Whole, shorter, impossible."""
    await session.post("whole", "/embeddings", {"input": params.text})
    size = len(vector_at(session.transcript, "whole") or ())
    if not size:
        return
    for step, part in _PARTS.items():
        await session.post(step, "/embeddings", {"input": params.text, "dimensions": max(1, size // part)})
    await session.post("too-many", "/embeddings", {"input": params.text, "dimensions": size * 4})
    await session.post("none", "/embeddings", {"input": params.text, "dimensions": 0})


def judge(transcript: Transcript, _: EmbeddingsDimensionsParams) -> Iterator[Finding | NotApplicable]:
    """Judge the shorter vectors against the whole one."""
    whole = listed_at(transcript, "whole")
    absent = no_route(whole, "/embeddings", "embeds nothing")
    if absent is not None:
        yield absent
        return
    full = vector_at(transcript, "whole")
    if not isinstance(whole, Listed) or full is None:
        yield unless_listed(_SHORT, whole) or PART.undetermined(_SHORT, "the whole vector is none", whole.exchange)  # type: ignore[union-attr]
        return
    for step, part in _PARTS.items():
        yield from _shorter(transcript, step, max(1, len(full) // part), whole, full)
    yield from _impossible(transcript, len(full))


def _shorter(
    transcript: Transcript, step: str, wanted: int, whole: Listed, full: tuple[float, ...]
) -> Iterator[Finding]:
    found = listed_at(transcript, step)
    missing = unless_listed(_SHORT, found, whole, what=f"dimensions {wanted}")
    if missing is not None or not isinstance(found, Listed):
        yield missing or PART.undetermined(_SHORT, "not sent")
        return
    vector = found.items[0].vector if len(found.items) == 1 else None
    if vector is None or fault(vector):
        yield PART.violated(_SHORT, f"no vector: {quote(found.exchange.body)}", found.exchange)
        return
    seen = (found.exchange, whole.exchange)
    said = f"dimensions {wanted}: {len(vector)} numbers, {len(full)} without it"
    if len(vector) != wanted:
        made = PART.no_effect if len(vector) == len(full) else PART.violated
        yield made(_SHORT, said, *seen)
        return
    yield PART.held(_SHORT, said, *seen)
    near = cosine(vector, full[:wanted])
    said = f"dimensions {wanted}: cosine {near:.4f} to the beginning of the whole vector"
    yield (PART.held if near >= _ALIKE else PART.violated)(_BEGINS, said, *seen, cosine=round(near, 5))
    if abs(length(full) - 1) <= _ROUNDING:
        is_unit = abs(length(vector) - 1) <= _ROUNDING
        said = f"dimensions {wanted}: length {length(vector):.3f}, the whole vector's {length(full):.3f}"
        yield (PART.held if is_unit else PART.violated)(_UNIT, said, *seen)


def _impossible(transcript: Transcript, size: int) -> Iterator[Finding]:
    for step, asked in (("too-many", size * 4), ("none", 0)):
        found = listed_at(transcript, step)
        if isinstance(found, reply.Refusal):
            yield PART.held(_IMPOSSIBLE, f"dimensions {asked} is refused: {found.what}", found.exchange)
        elif isinstance(found, reply.Failure):
            yield PART.violated(_IMPOSSIBLE, f"dimensions {asked}: {found.what}", found.exchange)
        elif isinstance(found, Listed):
            got = len(found.items[0].vector or ()) if found.items else 0
            why = f"dimensions {asked} is accepted where the vector has {size} numbers; {got} came"
            yield PART.violated(_IMPOSSIBLE, why, found.exchange)


PROBE = Probe(
    id="embeddings_dimensions",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_SHORT,
            rule="With dimensions N the vector has N numbers.",
            level=Level.MUST,
            source=SOURCE,
        ),
        Check(
            id=_BEGINS,
            rule="A shorter vector points where the beginning of the whole one does.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/pull/16331",
        ),
        Check(
            id=_UNIT,
            rule="A shorter vector has length 1 where the whole one has.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/embeddings",
        ),
        Check(
            id=_IMPOSSIBLE,
            rule="More dimensions than the vector has, and 0, are refused.",
            level=Level.SHOULD,
            source=SOURCE,
        ),
    ),
    params=EmbeddingsDimensionsParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=60,
)
