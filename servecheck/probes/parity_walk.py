"""Both endpoints give the same log probabilities along the reference's greedy text.

What it does: lets each endpoint continue the same texts greedily on the completions route with logprobs (on the chat
route where that is all there is), compares the likeliest tokens place by place, and where the candidate parts from the
reference, gives it the reference's text up to there and lets it go on. Every other text is continued a second time
alone and once more in a batch, which is each side's own noise. Two requests at unlike temperatures tell what the log
probabilities are of.

Why it matters: whether a move changes what the model computes is the question behind all others. Equal texts do not
answer it, since near-ties flip between right engines; the distance of the distributions does, where it is held
against own noise and a margin with a reason.

How it could be fooled: a greedy text is easy, so differences look up to twice smaller here than on given text; allow
dangerous requests to have them measured there too. A server that draws its numbers from a cache of replies would look
the same as itself. A run without a reference beside it cannot take up again where texts part, so it compares less.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Transcript
from servecheck.parity import Pair, Position
from servecheck.probe import Probe, Session
from servecheck.probes import _rendered
from servecheck.probes._parity import PART, ParityParams, Side, mode, mode_steps, position, unlike, weigh
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.probes._texts import texts
from servecheck.read import reply
from servecheck.read.logprobs import tokens

__all__ = ["PROBE"]

_ALIKE, _LENGTH = "alike-along-the-greedy-text", "alike-at-every-context-length"
_RESUMES = 4  # a text whose walks part more often is different enough
_AT_ONCE = 8


class ParityWalkParams(ParityParams):
    """What may be chosen in YAML."""

    tokens: int = Field(default=24, ge=4, le=256, description="Tokens of each walk.")
    lengths: tuple[int, ...] = Field(
        default=(250, 600, 1100), description="Context lengths of the long built-in texts, in tokens, about."
    )
    each: int = Field(default=3, ge=2, le=8, description="How many long texts of each length.")


# --------------------------------------------------------------------------- talking


def _forms(params: ParityWalkParams) -> tuple[tuple[str, dict[str, Json]], ...]:
    """Return the routes and fields to try, the most telling first."""
    body: dict[str, Json] = {"max_tokens": params.tokens, "temperature": 0, "top_p": 1}
    return (
        ("/completions", {**body, "logprobs": 10, "ignore_eos": True}),
        ("/completions", {**body, "logprobs": 5}),
        ("/chat/completions", {**body, "logprobs": True, "top_logprobs": 10}),
        ("/chat/completions", {**body, "logprobs": True, "top_logprobs": 5}),
    )


def _form(transcript: Transcript, params: ParityWalkParams) -> int | None:
    """Return which form the endpoint answers with logprobs; ``None`` where none does."""
    for number, _ in enumerate(_forms(params)):
        answer = answer_at(transcript, f"form-{number}")
        if answer is not None and any(token.top for token in tokens(answer)):
            return number
    return None


def _body(form: int, text: str, params: ParityWalkParams, left: int) -> tuple[str, dict[str, Json]]:
    path, fields = _forms(params)[form]
    said: dict[str, Json] = {"prompt": text}
    if path != "/completions":
        said = {"messages": [{"role": "user", "content": text}]}
    return path, {**fields, **said, "max_tokens": left}


async def drive(session: Session, params: ParityWalkParams, reference: Transcript | None) -> None:
    """Find a form, walk alone, take up again where the walks part, then walk again alone and in a batch."""
    listed = texts(params.prompts, params.lengths, params.each)
    for number, _ in enumerate(_forms(params)):
        path, body = _body(number, listed[0][1], params, params.tokens)
        await session.post(f"form-{number}", path, body)
        if _form(session.transcript, params) is not None:
            break
    form = _form(session.transcript, params)
    if form is None:
        return
    for step, fields in mode_steps(listed[0][1]):
        if _forms(params)[form][0] == "/completions":
            await session.post(step, "/completions", fields)
    if _forms(params)[form][0] != "/completions":
        await _rendered.show(session, [{"role": "user", "content": listed[0][1]}])
    for name, text in listed:
        path, body = _body(form, text, params, params.tokens)
        await session.post(f"walk-{name}", path, body)
        while reference is not None and path == "/completions":
            place = _resume(reference, session.transcript, name)
            if place is None:
                break
            _, body = _body(form, text + _text(reference, name, place), params, params.tokens - place)
            await session.post(f"walk-{name}-from-{place:03d}", path, body)
    for name, text in listed[::2]:
        path, body = _body(form, text, params, params.tokens)
        await session.post(f"again-{name}", path, body)
    for start in range(0, len(listed[::2]), _AT_ONCE):
        some = [
            session.post(f"batch-{name}", *_body(form, text, params, params.tokens))
            for name, text in listed[::2][start : start + _AT_ONCE]
        ]
        await session.concurrently(some)


# --------------------------------------------------------------------------- reading


def _walk(transcript: Transcript, step: str) -> tuple[Position, ...]:
    """Return the positions of a walk; empty where there is no answer with logprobs."""
    answer = answer_at(transcript, step)
    if answer is None:
        return ()
    before = answer.usage.prompt if answer.usage is not None and answer.usage.prompt is not None else 0
    return tuple(position(token, before + place) for place, token in enumerate(tokens(answer)))


def _raw(transcript: Transcript, step: str) -> tuple[str, ...]:
    answer = answer_at(transcript, step)
    return tuple(token.text for token in tokens(answer)) if answer is not None else ()


def _text(transcript: Transcript, name: str, count: int) -> str:
    return "".join(_raw(transcript, f"walk-{name}")[:count])


def _segments(left: Transcript, right: Transcript, name: str) -> tuple[list[Pair], int | None]:
    """Return the pairs of one text, and the place up to which the candidate must be given the reference's text.

    There is no such place where all is compared, where the candidate has been taken up often enough, or where the
    reference's tokens do not add up to its text, as after a split character or an end token.
    """
    walk = _walk(left, f"walk-{name}")
    pairs: list[Pair] = []
    start, resumes = 0, 0
    while True:
        step = f"walk-{name}" if not start else f"walk-{name}-from-{start:03d}"
        theirs = _walk(right, step) if not start or _fits(right, name, start) else ()
        if not theirs:
            return pairs, (start if start and right.get(step) is None else None)
        parted = None
        for place, (mine, their) in enumerate(zip(walk[start:], theirs, strict=False)):
            pairs.append(Pair(text=name, left=mine, right=their))
            if mine.token != their.token or not mine.token:
                parted = start + place
                break
        if parted is None or resumes >= _RESUMES:
            return pairs, None
        following = _whole(left, name, parted + 1, len(walk) - 2)
        if following is None:
            return pairs, None
        start, resumes = following, resumes + 1


def _whole(left: Transcript, name: str, first: int, last: int) -> int | None:
    """Return the next place at which the reference's tokens so far are a beginning of its text."""
    answer = answer_at(left, f"walk-{name}")
    for place in range(first, last + 1):
        told = _text(left, name, place)
        if answer is not None and told and "\ufffd" not in told and answer.text.startswith(told):
            return place
    return None


def _fits(right: Transcript, name: str, start: int) -> bool:
    """Tell whether the text given was taken as the reference's tokens: it may be cut into others."""
    whole, part = answer_at(right, f"walk-{name}"), answer_at(right, f"walk-{name}-from-{start:03d}")
    if whole is None or part is None:
        return False
    counts = [each.usage.prompt if each.usage is not None else None for each in (whole, part)]
    if counts[0] is None or counts[1] is None:
        return True
    return counts[1] - counts[0] == start


def _resume(left: Transcript, right: Transcript, name: str) -> int | None:
    return _segments(left, right, name)[1]


def _own(transcript: Transcript, kind: str, params: ParityWalkParams) -> tuple[Pair, ...]:
    """Return an endpoint's pairs with itself, each text up to where its own walks part."""
    pairs: list[Pair] = []
    for name, _ in texts(params.prompts, params.lengths, params.each)[::2]:
        for mine, again in zip(_walk(transcript, f"walk-{name}"), _walk(transcript, f"{kind}-{name}"), strict=False):
            pairs.append(Pair(text=name, left=mine, right=again))
            if mine.token != again.token:
                break
    return tuple(pairs)


def _side(transcript: Transcript, params: ParityWalkParams) -> Side:
    walked = [
        each
        for name, _ in texts(params.prompts, params.lengths, params.each)
        for each in _walk(transcript, f"walk-{name}")
    ]
    return Side(
        alone=_own(transcript, "again", params), batch=_own(transcript, "batch", params), mode=mode(transcript, walked)
    )


def judge(transcript: Transcript, params: ParityWalkParams) -> Iterator[Finding]:
    """Say only where an endpoint could not be measured; what the values mean is for the contrast."""
    if _form(transcript, params) is not None:
        return
    tried = [reply_at(transcript, f"form-{number}") for number, _ in enumerate(_forms(params))]
    failure = next((each for each in tried if isinstance(each, reply.Failure)), None)
    refusal = next((each for each in tried if isinstance(each, reply.Refusal)), None)
    if failure is not None:
        yield PART.undetermined(_ALIKE, f"no answer with logprobs: {failure.what}", *sent(*tried))
    elif refusal is not None and not any(isinstance(each, reply.Answer) for each in tried):
        yield PART.refused(_ALIKE, f"neither completions nor chat with logprobs: {refusal.what}", *sent(*tried))
    else:
        yield PART.undetermined(_ALIKE, "answers carry no logprobs, neither on completions nor on chat", *sent(*tried))


def contrast(left: Transcript, right: Transcript, params: ParityWalkParams) -> Iterator[Finding]:
    """Hold the candidate's positions against the reference's."""
    mine, theirs = _form(left, params), _form(right, params)
    if theirs is None:
        return  # said by the judge
    if mine is None:
        yield PART.undetermined(_ALIKE, "the reference gives no logprobs, so there is nothing to compare with")
        return
    routes = [_forms(params)[form][0] for form in (mine, theirs)]
    if routes[0] != routes[1]:
        why = f"the reference gives logprobs on {routes[0]}, the candidate on {routes[1]} only"
        yield PART.undetermined(_ALIKE, why)
        return
    pairs: list[Pair] = []
    shown: dict[str, tuple[Exchange, ...]] = {}
    uncut = 0
    for name, _ in texts(params.prompts, params.lengths, params.each):
        if not _same_prompt(left, right, name):
            uncut += 1
            continue
        pairs += _segments(left, right, name)[0]
        shown[name] = tuple(each for side in (left, right) if (each := side.get(f"walk-{name}")) is not None)
    conditions = list(unlike(left.fingerprint, right.fingerprint))
    if uncut:
        conditions.insert(0, f"{uncut} texts have unlike prompt tokens and are left out")
    along = "along the reference's greedy text"
    found = weigh(
        _ALIKE,
        _LENGTH,
        pairs,
        _side(left, params),
        _side(right, params),
        params,
        conditions,
        shown,
        how=along,
        day=_rendered.conditions(left, right),
    )
    yield from _rendered.excused(found, left, right)


def _same_prompt(left: Transcript, right: Transcript, name: str) -> bool:
    answers = [answer_at(side, f"walk-{name}") for side in (left, right)]
    counts = {each.usage.prompt for each in answers if each is not None and each.usage is not None} - {None}
    return len(counts) < 2


PROBE = Probe(
    id="parity_walk",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_ALIKE,
            rule="Along the reference's greedy text, the candidate's log probabilities differ by no more than own "
            "noise or the margin.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/blob/main/tests/models/utils.py",
        ),
        Check(
            id=_LENGTH,
            rule="The difference is no larger at long contexts than at short ones, beyond own noise and margin.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/12371",
        ),
    ),
    params=ParityWalkParams,
    drive=drive,
    judge=judge,
    contrast=contrast,
    needs_reference=True,
    exclusive=True,
    requests=46,
    prompt_tokens=32240,
    output_tokens=1060,
)
