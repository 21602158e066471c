"""Base64 embeddings are the same 32-bit numbers as the plain ones.

What it does: embeds a text as numbers twice, with ``encoding_format: base64``, in base64 in a batch, and without the
field; decodes what came as 32-bit numbers, least byte first, and compares number by number.

Why it matters: the official SDKs ask for base64 by themselves and decode whatever comes. A list of numbers, half
precision or another byte order then becomes vectors of a wrong size, or of noise.

How it could be fooled: a server whose numbers differ from one request to the next is held to that difference.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, NotApplicable, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._vectors import (
    PART,
    SOURCE,
    Listed,
    Read,
    listed_at,
    no_route,
    unless_listed,
    vector_at,
)
from servecheck.read.text import quote

__all__ = ["PROBE"]

_TEXT, _NUMBERS, _PLAIN = "base64-is-text", "base64-holds-the-same-numbers", "numbers-come-by-default"
_BATCH = "base64-works-in-a-batch"
_SDK = "https://github.com/openai/openai-python/blob/main/src/openai/resources/embeddings.py"
_ROUNDING = 1e-6  # of the largest number: what seven decimal digits lose


class EmbeddingsBase64Params(Params):
    """What may be chosen in YAML."""

    text: str = Field(default="Seven ships sailed north before the ice came.", description="The text to embed.")


async def drive(session: Session, params: EmbeddingsBase64Params, _: Transcript | None) -> None:
    """Numbers twice, base64, base64 in a batch, nothing said."""
    await session.post("float", "/embeddings", {"input": params.text, "encoding_format": "float"})
    await session.post("default", "/embeddings", {"input": params.text})
    if not any(isinstance(listed_at(session.transcript, step), Listed) for step in ("float", "default")):
        return
    await session.post("float-again", "/embeddings", {"input": params.text, "encoding_format": "float"})
    await session.post("base64", "/embeddings", {"input": params.text, "encoding_format": "base64"})
    texts: list[Json] = ["A short one.", params.text]
    await session.post("base64-batch", "/embeddings", {"input": texts, "encoding_format": "base64"})


def judge(transcript: Transcript, _: EmbeddingsBase64Params) -> Iterator[Finding | NotApplicable]:
    """Judge the type first, then the numbers."""
    plain, default = listed_at(transcript, "float"), listed_at(transcript, "default")
    absent = no_route(default, "/embeddings", "embeds nothing")
    if absent is not None:
        yield absent
        return
    control = plain if isinstance(plain, Listed) else default
    encoded = listed_at(transcript, "base64")
    if not isinstance(control, Listed):
        yield unless_listed(_TEXT, control) or PART.undetermined(_TEXT, "nothing was embedded")
        return
    missing = unless_listed(_TEXT, encoded, default, what="encoding_format base64")
    if missing is not None or not isinstance(encoded, Listed):
        yield missing or PART.undetermined(_TEXT, "not sent")
    else:
        yield from _encoded(transcript, control, encoded)
    yield _default(plain, default)
    if isinstance(encoded, Listed) and encoded.items and encoded.items[0].text is not None:
        yield _batch(transcript)


def _encoded(transcript: Transcript, control: Listed, encoded: Listed) -> Iterator[Finding]:
    item = encoded.items[0] if encoded.items else None
    if item is None or item.text is None:
        if item is not None and item.numbers is not None:
            why = f"a list of {len(item.numbers)} numbers came although base64 was asked for"
            yield PART.no_effect(
                _TEXT, f"{why}: an SDK decodes it as bytes, or fails", encoded.exchange, control.exchange
            )
        else:
            yield PART.violated(_TEXT, f"neither text nor numbers: {quote(encoded.exchange.body)}", encoded.exchange)
        return
    yield PART.held(_TEXT, f"{len(item.text)} characters", encoded.exchange)
    vectors = [vector_at(transcript, step) for step in ("float", "default", "float-again")]
    known = [vector for vector in vectors if vector is not None]
    if not known:
        yield PART.undetermined(_NUMBERS, "there are no plain numbers to compare with", encoded.exchange)
        return
    noise = max((_apart(known[0], other) for other in known[1:]), default=0.0)
    yield _compared(encoded, control, known[0], item.vector, noise)


def _compared(
    encoded: Listed, control: Listed, plain: Sequence[float], decoded: Sequence[float] | None, noise: float
) -> Finding:
    seen = (encoded.exchange, control.exchange)
    if decoded is None:
        text = encoded.items[0].text or ""
        return PART.violated(_NUMBERS, f"not base64 of 32-bit numbers: {quote(text, 40)}", *seen)
    if len(decoded) != len(plain):
        hints = {0.5: ": as 16-bit numbers would be", 2.0: ": as 64-bit numbers would be"}
        why = f"{len(decoded)} numbers in base64, {len(plain)} plain{hints.get(len(decoded) / len(plain), '')}"
        return PART.violated(_NUMBERS, why, *seen)
    apart = _apart(plain, decoded)
    exact = _bits(plain) == _bits(decoded)
    said = "equal bit by bit" if exact else f"apart by {apart:.1e} of the largest at most"
    if exact or apart <= max(_ROUNDING, 2 * noise):
        return PART.held(_NUMBERS, f"{len(plain)} numbers, {said}", *seen, apart=apart)
    turned = struct.unpack(f">{len(decoded)}f", struct.pack(f"<{len(decoded)}f", *decoded))
    hint = ", bytes in the other order" if _apart(plain, turned) <= _ROUNDING else ""
    return PART.violated(_NUMBERS, f"{len(plain)} numbers, {said}{hint}", *seen, apart=min(apart, 1e9))


def _bits(vector: Sequence[float]) -> bytes:
    try:
        return struct.pack(f"<{len(vector)}f", *vector)
    except OverflowError:
        return b""


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest difference as a share of the largest number; infinite where it is not a number."""
    if len(one) != len(other) or not one:
        return float("inf")
    largest = max(map(abs, one)) or 1.0
    worst = max(abs(left - right) for left, right in zip(one, other, strict=True)) / largest
    return worst if worst == worst else float("inf")  # a NaN is not itself


def _default(plain: Read | None, default: Read | None) -> Finding:
    missing = unless_listed(_PLAIN, default, what="without encoding_format")
    if missing is not None or not isinstance(default, Listed):
        return missing or PART.undetermined(_PLAIN, "not sent")
    for found, name in ((default, "without encoding_format"), (plain, "with encoding_format float")):
        if isinstance(found, Listed) and (not found.items or found.items[0].numbers is None):
            return PART.violated(
                _PLAIN, f"{name} no list of numbers came: {quote(found.exchange.body)}", found.exchange
            )
    return PART.held(_PLAIN, "a list of numbers", default.exchange)


def _batch(transcript: Transcript) -> Finding:
    found = listed_at(transcript, "base64-batch")
    missing = unless_listed(_BATCH, found, listed_at(transcript, "base64"), what="a batch in base64")
    if missing is not None or not isinstance(found, Listed):
        return missing or PART.undetermined(_BATCH, "not sent")
    sizes = [len(item.vector) if item.text is not None and item.vector is not None else 0 for item in found.items]
    alone = vector_at(transcript, "base64") or ()
    if sizes == [len(alone)] * 2:
        return PART.held(_BATCH, f"two texts, two vectors of {len(alone)} numbers", found.exchange)
    why = f"two texts in base64 give {' and '.join(map(str, sizes)) or 'no'} numbers, one alone {len(alone)}"
    return PART.violated(_BATCH, why, found.exchange)


PROBE = Probe(
    id="embeddings_base64",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_TEXT,
            rule="With encoding_format base64 the embedding is text.",
            level=Level.MUST,
            source=SOURCE,
        ),
        Check(
            id=_NUMBERS,
            rule="The text decodes to the plain numbers, each as a 32-bit number with the least byte first.",
            level=Level.MUST,
            source=_SDK,
        ),
        Check(
            id=_PLAIN,
            rule="Without encoding_format, and with float, the embedding is a list of numbers.",
            level=Level.MUST,
            source=SOURCE,
        ),
        Check(
            id=_BATCH,
            rule="Base64 holds for every text of a batch.",
            level=Level.MUST,
            source=SOURCE,
        ),
    ),
    params=EmbeddingsBase64Params,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=110,
)
