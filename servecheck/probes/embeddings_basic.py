"""An embedding is a vector of its text: finite, of length 1, the same each time, another for another text.

What it does: embeds a text twice, a longer text, the first text as the token ids that the server's own tokenizer gives,
an empty text, an empty list, and (where the server tells its limit) a text beyond the limit.

Why it matters: vectors are stored for years. One that changes, is all zeros, or stands for the first half of its text
spoils an index without a single error.

How it could be fooled: by a server that keeps replies. What a vector means is the model's affair and is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from servecheck.model import Check, Ending, Finding, Json, Level, NotApplicable, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._context import limit_of
from servecheck.probes._steps import filler
from servecheck.probes._token_ids import dialects, ids_at
from servecheck.probes._vectors import (
    PART,
    SOURCE,
    Listed,
    Read,
    cosine,
    fault,
    length,
    listed_at,
    no_route,
    unless_listed,
    vector_at,
)
from servecheck.read import reply
from servecheck.read.text import dig, number, quote, string

__all__ = ["PROBE"]

_VECTOR, _SAME, _OTHER = "embedding-is-a-vector", "same-text-same-vector", "other-text-other-vector"
_UNIT, _FORM, _USAGE = "vector-has-length-one", "embedding-reply-is-well-formed", "embedding-usage-counts-the-text"
_TOKENS, _EMPTY = "token-ids-give-the-text-s-vector", "empty-input-is-refused"
_LONG, _ODD = "too-long-input-is-refused", "odd-input-is-no-server-error"
_REPEATS = 0.999  # cosine; bf16 in another batch gave 0.9999 and above (measured)
_ROUNDING = 0.01  # of a length of 1, in 16-bit numbers
_LONGEST = 16_384  # tokens; a longer text costs too much where it is not refused
_BEYOND = 64


class EmbeddingsBasicParams(Params):
    """What may be chosen in YAML."""

    text: str = Field(default="The quick brown fox jumps over the lazy dog.", description="The text to embed.")
    longer: str = Field(
        default="Rain fell on the harbour all morning, and the ferries waited for the wind to turn before they left.",
        description="Another, longer text.",
    )


async def drive(session: Session, params: EmbeddingsBasicParams, _: Transcript | None) -> None:
    """Embed; what is odd comes last."""
    first = await session.post("one", "/embeddings", {"input": params.text})
    if not isinstance(listed_at(session.transcript, "one"), Listed):
        return
    await session.post("again", "/embeddings", {"input": params.text})
    await session.post("longer", "/embeddings", {"input": params.longer})
    for suffix, body in dialects(params.text, special=True)[:2]:
        await session.post_server(f"tokenize{suffix}", "/tokenize", body)
        if ids_at(session.transcript, "tokenize"):
            break
    if ids := ids_at(session.transcript, "tokenize"):
        await session.post("tokens", "/embeddings", {"input": list[Json](ids)})
    await session.post("empty-text", "/embeddings", {"input": ""})
    await session.post("empty-list", "/embeddings", {"input": []})
    limit = limit_of(session.fingerprint)
    if limit is not None and limit <= _LONGEST and first.ending is Ending.COMPLETE:
        # A common word with a space before it is one token at least, so that this is beyond the limit for certain.
        await session.post("too-long", "/embeddings", {"input": filler(limit + _BEYOND)})


def judge(transcript: Transcript, _: EmbeddingsBasicParams) -> Iterator[Finding | NotApplicable]:
    """Judge one vector by itself, then against the others."""
    one = listed_at(transcript, "one")
    absent = no_route(one, "/embeddings", "embeds nothing")
    if absent is not None:
        yield absent
        return
    missing = unless_listed(_VECTOR, one)
    if missing is not None or not isinstance(one, Listed):
        yield missing or PART.undetermined(_VECTOR, "nothing was embedded")
        return
    vector = one.items[0].numbers if len(one.items) == 1 else None
    if vector is None or fault(vector):
        what = f"{len(one.items)} embeddings of one text" if len(one.items) != 1 else "no list of numbers"
        yield PART.violated(
            _VECTOR, f"{what if vector is None else fault(vector)}: {quote(one.exchange.body)}", one.exchange
        )
        return
    yield PART.held(_VECTOR, f"{len(vector)} numbers", one.exchange, dimensions=len(vector))
    yield from _repeats(transcript, vector)
    yield _unit(transcript, vector)
    yield _form(one)
    yield _usage(transcript)
    yield _tokens(transcript, vector)
    yield from _odd(transcript)


def _repeats(transcript: Transcript, vector: tuple[float, ...]) -> Iterator[Finding]:
    for check, step in ((_SAME, "again"), (_OTHER, "longer")):
        found = listed_at(transcript, step)
        missing = unless_listed(check, found, what="the second request")
        other = vector_at(transcript, step)
        if missing is not None or not isinstance(found, Listed):
            yield missing or PART.undetermined(check, "not sent")
            continue
        seen = [exchange for name in ("one", step) if (exchange := transcript.get(name)) is not None]
        if other is None:
            yield PART.violated(check, f"no vector in {quote(found.exchange.body)}", *seen)
            continue
        near = cosine(vector, other)
        figures = {"cosine": round(near, 6)}
        if len(vector) != len(other):
            yield PART.violated(check, f"{len(vector)} numbers, then {len(other)}", *seen)
        elif check == _SAME:
            said = "bit by bit" if vector == other else f"cosine {near:.6f}"
            made = PART.held if near >= _REPEATS else PART.violated
            yield made(check, f"the same text twice: {said}", *seen, **figures)
        elif vector == other:
            yield PART.violated(check, "two different texts have the very same vector", *seen, **figures)
        else:
            yield PART.held(check, f"another text: cosine {near:.4f}", *seen, **figures)


def _unit(transcript: Transcript, vector: tuple[float, ...]) -> Finding:
    lengths = [
        length(vector),
        *(length(other) for step in ("again", "longer") if (other := vector_at(transcript, step))),
    ]
    said = ", ".join(f"{value:.4g}" for value in lengths)
    seen = [exchange for name in ("one", "again", "longer") if (exchange := transcript.get(name)) is not None]
    if all(abs(value - 1) <= _ROUNDING for value in lengths):
        return PART.held(_UNIT, f"lengths {said}", *seen)
    why = f"lengths {said}: whoever compares by the dot product, as OpenAI's guide does, gets other scores"
    return PART.violated(_UNIT, why, *seen)


def _form(one: Listed) -> Finding:
    wrong = [
        f"{name} is {quote(str(found), 30)} instead of {wanted}"
        for name, found, wanted in (
            ("object", dig(one.body, "object"), "list"),
            ("data[0].object", dig(one.body, "data", 0, "object"), "embedding"),
        )
        if found != wanted
    ]
    if one.items[0].index != 0:
        wrong.append(f"data[0].index is {dig(one.body, 'data', 0, 'index')!r} instead of 0")
    if not string(dig(one.body, "model")):
        wrong.append("model is missing")
    if wrong:
        return PART.violated(_FORM, "; ".join(wrong), one.exchange)
    return PART.held(_FORM, "object, index and model as documented", one.exchange)


def _usage(transcript: Transcript) -> Finding:
    seen = [exchange for name in ("one", "longer") if (exchange := transcript.get(name)) is not None]
    counts = []
    for step in ("one", "longer"):
        found = listed_at(transcript, step)
        usage = found.usage if isinstance(found, Listed) else None
        if usage is None or usage.prompt is None or usage.total is None:
            return PART.violated(_USAGE, "usage has no prompt_tokens and total_tokens", *seen)
        if usage.total != usage.prompt:
            why = f"total_tokens {usage.total}, prompt_tokens {usage.prompt}, and an embedding makes no other tokens"
            return PART.violated(_USAGE, why, *seen)
        counts.append(usage.prompt)
    said = f"prompt_tokens {counts[0]}, {counts[1]} for a text twice as long"
    if 0 < counts[0] < counts[1]:
        return PART.held(_USAGE, said, *seen)
    return PART.violated(_USAGE, said, *seen)


def _tokens(transcript: Transcript, vector: tuple[float, ...]) -> Finding:
    found = listed_at(transcript, "tokens")
    if found is None:
        return PART.undetermined(_TOKENS, "no tokenizer route tells the ids of the text")
    missing = unless_listed(_TOKENS, found, listed_at(transcript, "one"), what="a list of token ids")
    if missing is not None or not isinstance(found, Listed):
        return missing or PART.undetermined(_TOKENS, "not sent")
    ids = ids_at(transcript, "tokenize")
    if len(found.items) != 1:
        why = f"{len(found.items)} embeddings for one list of {len(ids)} token ids"
        return PART.violated(_TOKENS, why, found.exchange)
    other = vector_at(transcript, "tokens")
    near = cosine(vector, other) if other is not None else 0.0
    said = f"the text's own {len(ids)} token ids: cosine {near:.4f} to the text"
    seen = [exchange for name in ("one", "tokens") if (exchange := transcript.get(name)) is not None]
    if near >= _REPEATS:
        return PART.held(_TOKENS, said, *seen)
    one = listed_at(transcript, "one")
    counts = [each.usage.prompt for each in (one, found) if isinstance(each, Listed) and each.usage is not None]
    if len(set(counts)) > 1:
        why = f"{said}, but {counts[0]} tokens against {counts[1]}: a special token may make the difference"
        return PART.undetermined(_TOKENS, why, *seen)
    return PART.violated(_TOKENS, said, *seen)


def _odd(transcript: Transcript) -> Iterator[Finding]:
    """Judge what should be refused: a refusal is right, an answer is a shortfall, a failure is a fault."""
    odd = {"empty-text": "an empty text", "empty-list": "an empty list", "too-long": "a text beyond the limit"}
    read = {step: listed_at(transcript, step) for step in odd}
    failed = [(step, found) for step, found in read.items() if isinstance(found, reply.Failure)]
    for step, found in failed:
        yield PART.violated(_ODD, f"{odd[step]}: {found.what}", found.exchange)
    answered = [exchange for step in odd if (exchange := transcript.get(step)) is not None]
    if not failed and answered:
        yield PART.held(_ODD, "each answered or refused", *answered)
    yield from _empty(read, odd)
    yield _long(transcript, read["too-long"])


def _empty(read: Mapping[str, Read | None], odd: dict[str, str]) -> Iterator[Finding]:
    for step in ("empty-text", "empty-list"):
        found = read[step]
        if isinstance(found, reply.Refusal):
            yield PART.held(_EMPTY, f"{odd[step]} is refused: {found.what}", found.exchange)
        elif isinstance(found, Listed) and not found.items:
            yield PART.held(_EMPTY, f"{odd[step]} gives an empty list", found.exchange)
        elif isinstance(found, Listed):
            why = f"{odd[step]} is answered with a vector, which stands for nothing: {quote(found.exchange.body, 60)}"
            yield PART.violated(_EMPTY, why, found.exchange)


def _long(transcript: Transcript, found: object) -> Finding:
    limit = limit_of(transcript.fingerprint)
    if isinstance(found, reply.Refusal):
        return PART.held(_LONG, f"{found.what}", found.exchange)
    if not isinstance(found, Listed) or limit is None:
        known = "the server does not tell its limit" if limit is None else f"a limit of {limit} tokens is not tried"
        return PART.undetermined(_LONG, "no answer to judge" if found is not None else known)
    used = number(dig(found.body, "usage", "prompt_tokens"))
    if used is not None and used > limit:
        return PART.held(_LONG, f"all {used} tokens are taken, although the limit is given as {limit}", found.exchange)
    why = (
        f"over {limit + _BEYOND} tokens are accepted where {limit} is the limit, usage says {used}: the end is cut off"
    )
    return PART.violated(_LONG, why, found.exchange)


PROBE = Probe(
    id="embeddings_basic",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_VECTOR,
            rule="The embedding of a text is one list of finite numbers that are not all 0.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/embeddings/object",
        ),
        Check(
            id=_SAME,
            rule="The same text has the same vector each time (cosine at least 0.999).",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/embeddings",
        ),
        Check(
            id=_OTHER,
            rule="Another text has another vector of the same size.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/embeddings",
        ),
        Check(
            id=_UNIT,
            rule="Vectors have length 1.",
            level=Level.SHOULD,
            source="https://help.openai.com/en/articles/6824809-embeddings-faq",
        ),
        Check(
            id=_FORM,
            rule="The reply has object “list”, entries with object “embedding” and their index, and a model.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/api-reference/embeddings/object",
        ),
        Check(
            id=_USAGE,
            rule="usage counts the tokens of the text; total_tokens equals prompt_tokens.",
            level=Level.SHOULD,
            source=SOURCE,
        ),
        Check(
            id=_TOKENS,
            rule="A list of token ids gives the vector of the text that they stand for.",
            level=Level.SHOULD,
            source=SOURCE,
        ),
        Check(
            id=_EMPTY,
            rule="An empty text and an empty list are refused.",
            level=Level.SHOULD,
            source=SOURCE,
        ),
        Check(
            id=_LONG,
            rule="A text beyond the model's limit is refused and not cut in silence.",
            level=Level.SHOULD,
            source=SOURCE,
        ),
        Check(
            id=_ODD,
            rule="An empty or too long input is no server error.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/error-codes",
        ),
    ),
    params=EmbeddingsBasicParams,
    drive=drive,
    judge=judge,
    requests=8,
    prompt_tokens=110,
)
