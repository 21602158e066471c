"""Both endpoints give the same log probabilities on text that is given to them.

What it does: asks each endpoint for the log probabilities of the tokens of the same texts, by ``prompt_logprobs``
(vLLM), ``echo`` with ``logprobs``, or ``/generate`` with ``return_logprob`` (SGLang), whichever it offers first, and
compares the likeliest tokens at every place. Every other text is scored a second time alone and once more in a batch,
which is each side's own noise.

Why it matters: nothing that one side chose decides what the other is asked, so every place counts, hard ones too, and
every length of context from the first token on. It is the strictest comparison that a server allows.

How it could be fooled: prompt processing is not decoding, and a server may round otherwise in one than in the other:
the walk along the greedy text sees that one. Not for an endpoint that others use: on some engines this request ends
the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Risk, Transcript
from servecheck.parity import Pair, Position
from servecheck.probe import Probe, Session
from servecheck.probes._logprobs import nat
from servecheck.probes._parity import PART, ParityParams, Side, mode, named, unlike, weigh
from servecheck.probes._texts import texts
from servecheck.read import reply
from servecheck.read.logprobs import MASKED
from servecheck.read.text import dig, number, string

__all__ = ["PROBE"]

_ALIKE, _LENGTH = "alike-across-given-text", "alike-across-given-text-at-every-length"
_WAYS = ("field", "echo", "native")
_TOP = 10
_AT_ONCE = 8
_PLACES = 128
"""At most so many places of a text are looked at, evenly spread: neighbours in one text add little but weight."""


class ParityForcedParams(ParityParams):
    """What may be chosen in YAML."""

    lengths: tuple[int, ...] = Field(
        default=(800,), description="Lengths of the long built-in texts, in tokens, about."
    )
    each: int = Field(default=3, ge=2, le=8, description="How many long texts of each length.")


class _Named(NamedTuple):
    id: int | None
    text: str
    value: float | None


class _Entry(NamedTuple):
    """A token of the text with the likeliest ones there, and how many tokens come before it."""

    context: int
    own: _Named
    top: tuple[_Named, ...]


class _Scored(NamedTuple):
    """What a reply says of a text of so many tokens: at some places, the same for all replies of that length."""

    size: int
    entries: tuple[_Entry, ...]


# --------------------------------------------------------------------------- talking


def _ways(session: Session) -> tuple[str, ...]:
    return ("native", "echo", "field") if session.fingerprint.value("engine") == "sglang" else _WAYS


async def _ask(session: Session, step: str, way: str, text: str) -> Exchange:
    body: dict[str, Json] = {"prompt": text, "max_tokens": 1, "temperature": 0}
    if way == "field":
        return await session.post(step, "/completions", {**body, "prompt_logprobs": _TOP})
    if way == "echo":
        return await session.post(step, "/completions", {**body, "echo": True, "logprobs": _TOP})
    native: Json = {
        "text": text,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": _TOP,
        "return_text_in_logprobs": True,
    }
    return await session.post_server(step, "/generate", native)


async def drive(session: Session, params: ParityForcedParams, _: Transcript | None) -> None:
    """Find a way on the first text, then score every text, and every other one again alone and in a batch."""
    listed = texts(params.prompts, params.lengths, params.each)
    for way in _ways(session):
        await _ask(session, f"way-{way}", way, listed[0][1])
        if _way(session.transcript) is not None:
            break
    chosen = _way(session.transcript)
    if chosen is None:
        return
    for name, text in listed:
        await _ask(session, f"text-{name}", chosen, text)
    for name, text in listed[::2]:
        await _ask(session, f"again-{name}", chosen, text)
    for start in range(0, len(listed[::2]), _AT_ONCE):
        some = listed[::2][start : start + _AT_ONCE]
        await session.concurrently([_ask(session, f"batch-{name}", chosen, text) for name, text in some])


# --------------------------------------------------------------------------- reading


def _way(transcript: Transcript) -> str | None:
    """Return the way that gave log probabilities; ``None`` where none did."""
    return next((way for way in _WAYS if _entries(transcript, f"way-{way}")), None)


def _entries(transcript: Transcript, step: str) -> _Scored | None:
    """Return what a step's reply says of the tokens after the first; ``None`` where it says nothing."""
    exchange = transcript.get(step)
    if exchange is None:
        return None
    body = reply.json_body(exchange)
    if isinstance(body, reply.Refusal | reply.Failure):
        return None
    found = _native(body) or _field(body) or _echoed(body, exchange)
    return found if found is not None and any(entry.own.value is not None for entry in found.entries) else None


def _places(count: int) -> range:
    """Return the places to look at: from the end, which all servers have, whatever mark they put first."""
    return range(count - 1, 0, -max(1, count // _PLACES))


def _field(body: Json) -> _Scored | None:
    listed = dig(body, "choices", 0, "prompt_logprobs")
    if not isinstance(listed, list):
        return None
    made = []
    for place in _places(len(listed)):
        item = listed[place]
        here = tuple(
            _Named(_whole(key), string(dig(each, "decoded_token")), _value(dig(each, "logprob")))
            for key, each in (item.items() if isinstance(item, dict) else ())
        )
        if not here:
            return None
        made.append(_Entry(place, here[0], here))
    return _Scored(len(listed), tuple(made))


def _native(body: Json) -> _Scored | None:
    own, top = dig(body, "meta_info", "input_token_logprobs"), dig(body, "meta_info", "input_top_logprobs")
    if not isinstance(own, list) or not isinstance(top, list) or len(own) != len(top):
        return None
    made = []
    for place in _places(len(own)):
        listed = top[place]
        made.append(_Entry(place, _triple(own[place]), tuple(map(_triple, listed if isinstance(listed, list) else ()))))
    return _Scored(len(own), tuple(made))


def _echoed(body: Json, exchange: Exchange) -> _Scored | None:
    asked = exchange.request
    arrays = dig(body, "choices", 0, "logprobs")
    names, values, tops = (dig(arrays, key) for key in ("tokens", "token_logprobs", "top_logprobs"))
    if not isinstance(asked, dict) or not asked.get("echo"):
        return None
    if not (isinstance(names, list) and isinstance(values, list) and isinstance(tops, list)):
        return None
    made = number(dig(body, "usage", "completion_tokens"))
    count = min(len(names), len(values), len(tops)) - (1 if made is None else made)
    entries = []
    for place in _places(count):
        top = tops[place]
        listed = top.items() if isinstance(top, dict) else ()
        own = _Named(None, string(names[place]), _value(values[place]))
        entries.append(_Entry(place, own, tuple(_Named(None, text, _value(each)) for text, each in listed)))
    return _Scored(count, tuple(entries))


def _triple(item: Json) -> _Named:
    return _Named(number(dig(item, 1)), string(dig(item, 2)), _value(dig(item, 0)))


def _whole(key: str) -> int | None:
    return int(key) if key.isascii() and key.isdigit() else None


def _value(value: Json) -> float | None:
    found = nat(value)
    return found if found is not None and found > MASKED else None


def _position(entry: _Entry, *, by_id: bool) -> Position:
    def name(each: _Named) -> str:
        return f"#{each.id}" if by_id else named(each.text)

    top: dict[str, float] = {}
    for each in sorted(entry.top, key=lambda each: -(each.value if each.value is not None else float("inf"))):
        if each.value is not None and (key := name(each)):
            top.setdefault(key, each.value)
    return Position(token=name(entry.own), logprob=entry.own.value, top=top, context=entry.context)


def _pairs(name: str, left: _Scored | None, right: _Scored | None) -> list[Pair]:
    """Return the pairs of one text; none where it was not cut into the same tokens. One side may put a mark first."""
    if left is None or right is None or abs(left.size - right.size) > 1:
        return []
    found = [{side.size - entry.context: entry for entry in side.entries} for side in (left, right)]
    shared = sorted(found[0].keys() & found[1].keys(), reverse=True)
    by_id = all(
        each.id is not None for side in found for place in shared for each in (side[place].own, *side[place].top)
    )
    pairs = []
    for place in shared:
        one, other = (_position(side[place], by_id=by_id) for side in found)
        if one.token != other.token:
            return []
        pairs.append(Pair(text=name, left=one, right=other))
    return pairs


def _all(transcript: Transcript, kind: str, params: ParityForcedParams) -> dict[str, _Scored | None]:
    """Return what every text's reply says, each read once: these replies are long."""
    return {
        name: _entries(transcript, f"{kind}-{name}") for name, _ in texts(params.prompts, params.lengths, params.each)
    }


def _side(transcript: Transcript, alone: dict[str, _Scored | None], params: ParityForcedParams) -> Side:
    pairs = [
        tuple(
            pair for name, other in _all(transcript, kind, params).items() for pair in _pairs(name, alone[name], other)
        )
        for kind in ("again", "batch")
    ]
    return Side(alone=pairs[0], batch=pairs[1])


def judge(transcript: Transcript, _: ParityForcedParams) -> Iterator[Finding]:
    """Say only where an endpoint could not be measured; what the values mean is for the contrast."""
    if _way(transcript) is not None:
        return
    tried = [seen for way in _WAYS if (seen := transcript.get(f"way-{way}")) is not None]
    failed = [sign for seen in tried if isinstance(sign := reply.not_answered(seen), reply.Failure)]
    if failed:
        yield PART.undetermined(_ALIKE, f"no log probabilities of given text: {failed[0].what}", *tried)
    else:
        why = "no way gives the log probabilities of given text: prompt_logprobs, echo with logprobs, /generate"
        yield PART.refused(_ALIKE, why, *tried)


def contrast(left: Transcript, right: Transcript, params: ParityForcedParams) -> Iterator[Finding]:
    """Hold the candidate's positions against the reference's."""
    if _way(right) is None:
        return  # said by the judge
    if _way(left) is None:
        why = "the reference gives no log probabilities of given text, so there is nothing to compare with"
        yield PART.undetermined(_ALIKE, why)
        return
    pairs: list[Pair] = []
    shown: dict[str, tuple[Exchange, ...]] = {}
    uncut = 0
    mine, theirs = (_all(side, "text", params) for side in (left, right))
    for name, one in mine.items():
        found = _pairs(name, one, theirs[name])
        uncut += bool(one and theirs[name] and not found)
        pairs += found
        shown[name] = tuple(each for side in (left, right) if (each := side.get(f"text-{name}")) is not None)
    conditions = list(unlike(left.fingerprint, right.fingerprint))
    if uncut:
        conditions.insert(0, f"{uncut} texts are cut into unlike tokens and are left out")
    sides = (
        replace(_side(left, mine, params), mode=mode(Transcript(), [pair.left for pair in pairs])),
        replace(_side(right, theirs, params), mode=mode(Transcript(), [pair.right for pair in pairs])),
    )
    how = "token by token of given text"
    yield from weigh(_ALIKE, _LENGTH, pairs, sides[0], sides[1], params, conditions, shown, how=how)


PROBE = Probe(
    id="parity_forced",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_ALIKE,
            rule="On given text, the candidate's log probabilities differ by no more than own noise or the margin.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/api/vllm/sampling_params/",
        ),
        Check(
            id=_LENGTH,
            rule="On given text, the difference is no larger at long contexts than at short ones, beyond own noise and "
            "margin.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/12371",
        ),
    ),
    params=ParityForcedParams,
    drive=drive,
    judge=judge,
    contrast=contrast,
    exclusive=True,
    risk=Risk.DANGEROUS,
    requests=32,
    prompt_tokens=17820,
    output_tokens=30,
)
