"""A generated image has the size, the format and the number that were asked for, and later ones come no slower.

What it does: asks for one image of a size that is not square three times, for one without a size (the control), for two
at once, and for a size that is none; reads format and size from the first bytes of each file. The time of the first
request against the second and third tells a server that compiles at first use from one that does not.

Why it matters: layouts rely on the size, clients on base64; a server that compiles anew for a shape it has served
stalls everybody.

How it could be fooled: whether the image shows what the prompt says is the model's affair. A server that was asked for
this size before shows no first use.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, NotApplicable, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import made_of
from servecheck.probes._vectors import no_route
from servecheck.read import reply
from servecheck.read.pictures import Picture, picture
from servecheck.read.text import dig, quote, seconds, string

__all__ = ["PROBE"]

_PART = Part(route=Route.NONE, mode=Mode.NONE)
_COMES, _SIZE, _COUNT = "image-comes-as-asked", "image-has-the-size-asked-for", "n-gives-that-many-images"
_TIME, _BAD = "repeated-size-stalls-no-more", "impossible-size-is-refused"
_SOURCE = "https://platform.openai.com/docs/api-reference/images/create"
_MANY, _STALL, _FACTOR = 2, 1.0, 5.0  # a stall is a second more and five times as long, as for compile.recompilation
_REPEATS = ("first", "second", "third")


class ImagesGenerateParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="A red ball on a green lawn.", description="What to paint.")
    size: str = Field(default="512x256", pattern="^[1-9][0-9]*x[1-9][0-9]*$", description="WIDTHxHEIGHT, not square.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Painted:
    """A reply with a list of images: the files as far as they came in base64, and how many came as URLs."""

    exchange: Exchange
    files: tuple[bytes | None, ...]
    urls: int

    @property
    def pictures(self) -> tuple[Picture | None, ...]:
        """Format and size of each file."""
        return tuple(picture(file) if file is not None else None for file in self.files)


_Read: TypeAlias = _Painted | reply.Refusal | reply.Failure


async def drive(session: Session, params: ImagesGenerateParams, _: Transcript | None) -> None:
    """The same three times, without a size, two, an impossible one."""
    body: dict[str, Json] = {"prompt": params.prompt, "response_format": "b64_json", "n": 1}
    for step in _REPEATS:
        await session.post(step, "/images/generations", {**body, "size": params.size})
        if not isinstance(_painted(session.transcript, "first"), _Painted):
            return
    await session.post("no-size", "/images/generations", body)
    await session.post("two", "/images/generations", {**body, "size": params.size, "n": _MANY})
    await session.post("bad-size", "/images/generations", {**body, "size": "as large as you like"})


def _painted(transcript: Transcript, step: str) -> _Read | None:
    return made_of(transcript, step, _images)


def _images(exchange: Exchange, body: Json) -> _Painted | reply.Failure:
    listed = dig(body, "data")
    if not isinstance(listed, list) or not listed:
        return reply.Failure(exchange=exchange, what=f"no list of images in {quote(exchange.body)}")
    return _Painted(
        exchange=exchange,
        files=tuple(_decoded(dig(entry, "b64_json")) for entry in listed),
        urls=sum(bool(string(dig(entry, "url"))) for entry in listed),
    )


def _decoded(value: Json) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) and value else None
    except (binascii.Error, ValueError):
        return None


def _unless_painted(check: str, found: _Read | None, *controls: _Read | None, what: str = "") -> Finding | None:
    if isinstance(found, _Painted):
        return None
    others = [control for control in controls if isinstance(control, reply.Refusal | reply.Failure)]
    return _PART.unless_answered(check, found, *others, what=what)


def judge(transcript: Transcript, params: ImagesGenerateParams) -> Iterator[Finding | NotApplicable]:
    """Judge files by their first bytes, times by each other."""
    first = _painted(transcript, "first")
    absent = no_route(first, "/images/generations", "paints nothing")
    if absent is not None:
        yield absent
        return
    for step in _REPEATS:
        found = _painted(transcript, step)
        if step != "first" and found is None:
            continue
        missing = _unless_painted(_COMES, found, what="" if step == "first" else f"the {step} request")
        if missing is not None or not isinstance(found, _Painted):
            yield missing or _PART.undetermined(_COMES, "not sent")
            continue
        yield _comes(found)
        yield from _size(found, params.size, _painted(transcript, "no-size"))
    if isinstance(first, _Painted):
        yield from _times(transcript)
        yield _count(transcript)
        yield from _bad(transcript)


def _comes(found: _Painted) -> Finding:
    known = [one for one in found.pictures if one is not None]
    if len(known) == len(found.files) == 1:
        return _PART.held(_COMES, f"a {known[0].format} of {known[0].size} in base64", found.exchange)
    if found.urls:
        why = "a URL came although response_format is b64_json"
        return _PART.no_effect(_COMES, why, found.exchange)
    if len(found.files) != 1:
        return _PART.violated(_COMES, f"{len(found.files)} images came, one was asked for", found.exchange)
    shown = quote(found.files[0][:24], 40) if found.files[0] is not None else quote(found.exchange.body)
    return _PART.violated(_COMES, f"what came is no PNG, JPEG, WebP or GIF in base64: {shown}", found.exchange)


def _size(found: _Painted, wanted: str, control: _Read | None) -> Iterator[Finding]:
    known = [one for one in found.pictures if one is not None]
    if not known:
        return
    if not known[0].width:
        yield _PART.undetermined(_SIZE, f"the {known[0].format} does not show its size", found.exchange)
        return
    said = f"asked for {wanted}, got {known[0].size}"
    if known[0].size == wanted:
        yield _PART.held(_SIZE, said, found.exchange)
        return
    default = (
        next((one for one in control.pictures if one is not None), None) if isinstance(control, _Painted) else None
    )
    if default is not None and isinstance(control, _Painted) and default.size == known[0].size:
        yield _PART.no_effect(_SIZE, f"{said}, as without a size", found.exchange, control.exchange)
    else:
        yield _PART.violated(_SIZE, said, found.exchange)


def _times(transcript: Transcript) -> Iterator[Finding]:
    taken = [
        exchange
        for step in _REPEATS
        if (exchange := transcript.get(step)) is not None and isinstance(_painted(transcript, step), _Painted)
    ]
    if len(taken) < len(_REPEATS):
        return
    first, *later = (exchange.ended_at for exchange in taken)
    best, worst = min(later), max(later)
    said = f"first {seconds(first)}, then {' and '.join(seconds(value) for value in later)}"
    figures = {"first_s": round(first, 3), "repeat_s": round(best, 3)}
    if worst - best >= _STALL and worst >= _FACTOR * best:
        why = f"{said}: a size that was served before stalls again"
        yield _PART.violated(_TIME, why, *taken, **figures)
        return
    compiled = first - best >= _STALL and first >= _FACTOR * best
    how = "compiled at first use" if compiled else "no compilation at first use seen"
    yield _PART.held(_TIME, f"{said}: {how}", *taken, **figures)


def _count(transcript: Transcript) -> Finding:
    found = _painted(transcript, "two")
    missing = _unless_painted(_COUNT, found, _painted(transcript, "first"), what=f"n {_MANY}")
    if missing is not None or not isinstance(found, _Painted):
        return missing or _PART.undetermined(_COUNT, "not sent")
    said = f"n {_MANY}: {len(found.files)} images"
    if len(found.files) == _MANY:
        return _PART.held(_COUNT, said, found.exchange)
    return (_PART.no_effect if len(found.files) == 1 else _PART.violated)(_COUNT, said, found.exchange)


def _bad(transcript: Transcript) -> Iterator[Finding]:
    found = _painted(transcript, "bad-size")
    if isinstance(found, reply.Refusal):
        yield _PART.held(_BAD, found.what, found.exchange)
    elif isinstance(found, reply.Failure):
        yield _PART.violated(_BAD, f"a size in words: {found.what}", found.exchange)
    elif found is not None:
        yield _PART.violated(_BAD, "a size in words is answered with an image", found.exchange)


PROBE = Probe(
    id="images_generate",
    doc=__doc__ or "",
    checks=(
        Check(id=_COMES, rule="One image comes, in base64, in a known format.", level=Level.MUST, source=_SOURCE),
        Check(id=_SIZE, rule="The image has the size that was asked for.", level=Level.MUST, source=_SOURCE),
        Check(id=_COUNT, rule="With n there are that many images.", level=Level.SHOULD, source=_SOURCE),
        Check(
            id=_TIME,
            rule="Once a size has been served twice it comes without stalls.",
            level=Level.SHOULD,
            source="https://docs.pytorch.org/docs/stable/torch.compiler_faq.html",
        ),
        Check(
            id=_BAD,
            rule="A size that is none is refused.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/error-codes",
        ),
    ),
    params=ImagesGenerateParams,
    drive=drive,
    judge=judge,
    requests=6,
)
