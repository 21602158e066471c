"""Greedy answers agree between endpoints as each agrees with itself, and end alike.

What it does: asks both endpoints the same 36 short questions at temperature 0, twice alone and once in a batch for the
texts, twice in batches for the endings. Texts that part at a near-tie of the reference count as agreeing, since a right
server may go either way there; what counts against the candidate are answers that part at a clear choice, and answers
that end for other reasons or at other lengths.

Why it matters: it is what users see. Answers that run to the limit on one side only cost money and time, and a model
that says something else at a clear choice is another model.

How it could be fooled: by an endpoint without logprobs, where nobody can tell a near-tie from a fault; such texts are
left undecided. Thirty-six answers bound a share of at most one in ten; they cannot see one in a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import Field

from servecheck import parity
from servecheck.model import Check, Exchange, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes import _rendered
from servecheck.probes._parity import PART, named, unlike
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.read import reply
from servecheck.read.logprobs import tokens
from servecheck.stats import NEAR_TIE, comparable_prefix, wilson

__all__ = ["PROBE", "QUESTIONS"]

_AGREE, _END, _LONG = "greedy-answers-agree", "answers-end-for-the-same-reasons", "answers-are-as-long"
_AT_ONCE = 8
QUESTIONS: tuple[str, ...] = (
    "What is the capital of Norway?",
    "How many legs does a spider have?",
    "Write one sentence about a lighthouse.",
    "Say the days of the week.",
    "What is 17 plus 25?",
    "Translate 'good morning' into French.",
    "Name the four seasons.",
    "Which is heavier, a kilogram of iron or a kilogram of feathers?",
    "Give an example of a prime number above 50.",
    "What colour do blue and yellow paint make?",
    "Finish the sentence: The farmer opened the gate and",
    "Is a whale a fish?",
    "Write the word 'market' backwards.",
    "How do you say 'thank you' in German?",
    "What does a thermometer measure?",
    "Name two things that float on water.",
    "Who repairs shoes?",
    "What is the plural of 'mouse'?",
    "Count from five down to one.",
    "Describe snow to someone who has never seen it.",
    "What do bees make?",
    "Write a title for a story about a lost key.",
    "How many minutes are in two hours?",
    "Which planet is closest to the sun?",
    "Give the opposite of 'narrow'.",
    "Name an animal that sleeps by day.",
    "What is half of 86?",
    "Write a polite refusal to an invitation.",
    "List three kinds of bread.",
    "What is the first letter of 'umbrella'?",
    "Why do ships have anchors?",
    "Write a rhyme with the word 'stone'.",
    "How do you boil an egg?",
    "What is the next number: 2, 4, 8, 16?",
    "Name one river in Africa.",
    "Explain in one sentence what a contract is.",
)


class ParityAnswersParams(Params):
    """What may be chosen in YAML."""

    about: Literal["texts", "endings"] = Field(default="texts", description="Which row the answers are compared for.")
    prompts: tuple[str, ...] = Field(
        default=(), description="Your own questions, in place of the built-in ones; 35 or more bound a share of 10 %."
    )
    max_tokens: int = Field(default=24, ge=4, le=1024, description="The limit of each answer.")
    margin: float = Field(
        default=0.10, gt=0, lt=1, description="The share of answers that may differ and still count as the same."
    )
    margin_length: float = Field(
        default=0.20, gt=0, lt=1, description="By what part the mean length may differ and still count as the same."
    )
    origin: str = Field(
        default="what 36 answers without a difference can bound", description="Where the margins come from."
    )


def _questions(params: ParityAnswersParams) -> tuple[str, ...]:
    return params.prompts or QUESTIONS


async def drive(session: Session, params: ParityAnswersParams, _: Transcript | None) -> None:
    """Ask alone twice and in a batch once for the texts, in batches twice for the endings."""
    body: dict[str, Json] = {"max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    if params.about == "texts":
        body |= {"logprobs": True, "top_logprobs": 2}
        if isinstance(reply.chat(await _ask(session, "with-logprobs", _questions(params)[0], body)), reply.Refusal):
            body = {name: value for name, value in body.items() if "logprobs" not in name}
    rounds = (
        (("one", 1), ("again", 1), ("batch", _AT_ONCE))
        if params.about == "texts"
        else (
            ("one", _AT_ONCE),
            ("again", _AT_ONCE),
        )
    )
    for name, at_once in rounds:
        asked = list(enumerate(_questions(params), start=1))
        for start in range(0, len(asked), at_once):
            some = asked[start : start + at_once]
            await session.concurrently([_ask(session, f"{name}-{number:02d}", text, body) for number, text in some])
    await _rendered.show(session, [{"role": "user", "content": _questions(params)[0]}])


async def _ask(session: Session, step: str, question: str, body: dict[str, Json]) -> Exchange:
    return await session.chat(step, {**body, "messages": [{"role": "user", "content": question}]})


# --------------------------------------------------------------------------- texts


class _Pair(StrEnum):
    EQUAL = "equal"
    TIE = "tie"
    CLEAR = "clear"
    UNKNOWN = "unknown"


class _Tally(NamedTuple):
    equal: int
    tie: int
    clear: int
    unknown: int

    @property
    def known(self) -> int:
        return self.equal + self.tie + self.clear

    @property
    def all(self) -> int:
        return self.known + self.unknown


def _compared(mine: reply.Answer, theirs: reply.Answer) -> _Pair:
    left, right = tokens(mine), tokens(theirs)
    if mine.text == theirs.text and mine.first.reasoning == theirs.first.reasoning:
        return _Pair.EQUAL
    if not left or not right:
        return _Pair.UNKNOWN
    one, other = (tuple(named(token.text) for token in each) for each in (left, right))
    sides = zip(one, other, strict=False)
    known = next((place for place, pair in enumerate(sides) if "" in pair), min(len(one), len(other)))
    if known < min(len(one), len(other)) and one[:known] == other[:known]:
        return _Pair.UNKNOWN  # a token without a name: nobody can tell whether the texts part there
    found = comparable_prefix(one, other, [token.gap for token in left], NEAR_TIE + parity.ROUNDING)
    if found.agreed is None:
        return _Pair.UNKNOWN
    if found.agreed:
        return _Pair.EQUAL if found.compared == min(len(one), len(other)) else _Pair.TIE
    return _Pair.CLEAR


def _tally(left: Transcript, left_round: str, right: Transcript, right_round: str, count: int) -> _Tally:
    found = []
    for number in range(1, count + 1):
        mine, theirs = answer_at(left, f"{left_round}-{number:02d}"), answer_at(right, f"{right_round}-{number:02d}")
        if mine is not None and theirs is not None:
            found.append(_compared(mine, theirs))
    return _Tally(*(found.count(each) for each in _Pair))


def _texts(left: Transcript, right: Transcript, params: ParityAnswersParams, lead: str) -> Finding:
    count = len(_questions(params))
    found = _tally(left, "one", right, "one", count)
    own = [_tally(side, "one", side, kind, count) for side in (left, right) for kind in ("again", "batch")]
    seen = _shown(left, right, count)
    told = (
        f"{found.equal} of {found.all} answers equal, {found.tie} part at a near-tie (gap at most {NEAR_TIE:g} nat), "
        f"{found.clear} at a clear choice, {found.unknown} where no logprobs tell; each against itself, the reference "
        f"alone {_own(own[0])} and in a batch {_own(own[1])}, the candidate {_own(own[2])} and {_own(own[3])}"
    )
    measured: dict[str, float | int | str | bool | None] = {
        "answers": found.all,
        "equal": found.equal,
        "near_tie": found.tie,
        "clear": found.clear,
        "unknown": found.unknown,
    }
    if not found.known:
        return PART.undetermined(_AGREE, f"{lead}no answers can be compared: {told}", *seen, **measured)
    low, high = wilson(found.clear, found.known)
    noise = max((wilson(each.clear, each.known).high for each in own if each.known and each.clear), default=0.0)
    told += f"; parting at a clear choice: {low:.1%} to {high:.1%}, margin {params.margin:.0%}: {params.origin}"
    measured |= {"clear_low": round(low, 4), "clear_high": round(high, 4)}
    if low > max(params.margin, noise):
        return PART.violated(_AGREE, f"{lead}more answers part than noise and margin allow: {told}", *seen, **measured)
    if high <= params.margin and found.unknown <= params.margin * found.all:
        return PART.held(_AGREE, f"{lead}{told}", *seen, **measured)
    return PART.undetermined(_AGREE, f"{lead}the interval straddles the margin: {told}", *seen, **measured)


def _own(tally: _Tally) -> str:
    beside = f", {tally.clear} part at a clear choice" if tally.clear else ""
    return f"{tally.equal} of {tally.all} equal{beside}"


# --------------------------------------------------------------------------- endings


class _Ending(NamedTuple):
    finish: str
    length: int


def _endings(transcript: Transcript, kind: str, count: int) -> dict[int, _Ending]:
    found = {}
    for number in range(1, count + 1):
        answer = answer_at(transcript, f"{kind}-{number:02d}")
        told = answer.usage.completion if answer is not None and answer.usage is not None else None
        if answer is not None and told is not None:
            found[number] = _Ending(answer.finish or "none", told)
    return found


def _ends(left: Transcript, right: Transcript, params: ParityAnswersParams, lead: str) -> Iterator[Finding]:
    count = len(_questions(params))
    mine, theirs = _endings(left, "one", count), _endings(right, "one", count)
    both = sorted(mine.keys() & theirs.keys())
    seen = _shown(left, right, count)
    if len(both) < 2:
        yield PART.undetermined(_END, f"{len(both)} answers with usage on both sides", *seen)
        return
    limited = [(mine[each].finish == "length", theirs[each].finish == "length") for each in both]
    cells = [limited.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))]
    share = parity.paired_difference(*cells)
    others = sorted({each.finish for side in (mine, theirs) for each in side.values()} - {"length"})
    changed = [_changed(side, count) for side in (left, right)]
    told = (
        f"{cells[0] + cells[1]} of {len(both)} answers run to the limit of {params.max_tokens} tokens on the "
        f"reference, {cells[0] + cells[2]} on the candidate ({share.value:+.0%}, {share.low:+.0%} to "
        f"{share.high:+.0%}, margin {params.margin:.0%}: {params.origin}); the others end by "
        f"{', '.join(others) or 'nothing else'}; between two rounds of its own {changed[0]} "
        f"change on the reference and {changed[1]} on the candidate"
    )
    figures = {"answers": len(both), "share": round(share.value, 4), "low": round(share.low, 4)}
    figures["high"] = round(share.high, 4)
    noise = max(changed) / len(both)
    yield _decided(_END, share, params.margin, noise, lead, told, seen, figures)
    scale = sum(mine[each].length for each in both) / len(both) or 1.0
    parts = [(theirs[each].length - mine[each].length) / scale for each in both]
    length = _mean(parts)
    told = (
        f"{scale:.1f} tokens on the reference in the mean, {scale * (1 + length.value):.1f} on the candidate "
        f"({length.value:+.0%}, {length.low:+.0%} to {length.high:+.0%}, margin {params.margin_length:.0%})"
    )
    figures = {"mean_reference": round(scale, 2), "part": round(length.value, 4), "low": round(length.low, 4)}
    figures["high"] = round(length.high, 4)
    yield _decided(_LONG, length, params.margin_length, 0.0, lead, told, seen, figures)


def _mean(values: Sequence[float]) -> parity.Estimate:
    n = len(values)
    value = sum(values) / n
    spread = sum((each - value) ** 2 for each in values) / (n - 1)
    half = parity.student(n - 1) * (spread / n) ** 0.5
    return parity.Estimate(value, value - half, value + half, n, n)


def _decided(
    check: str,
    found: parity.Estimate,
    margin: float,
    noise: float,
    lead: str,
    told: str,
    seen: Sequence[reply.Reply],
    figures: dict[str, float],
) -> Finding:
    if -margin <= found.low and found.high <= margin:
        return PART.held(check, f"{lead}{told}", *seen, **figures)
    if found.low > max(margin, noise) or found.high < -max(margin, noise):
        return PART.violated(check, f"{lead}beyond own noise and margin: {told}", *seen, **figures)
    return PART.undetermined(check, f"{lead}the interval straddles the margin: {told}", *seen, **figures)


def _changed(transcript: Transcript, count: int) -> int:
    first, second = _endings(transcript, "one", count), _endings(transcript, "again", count)
    return sum(first[each].finish != second[each].finish for each in first.keys() & second.keys())


# --------------------------------------------------------------------------- both


def _shown(left: Transcript, right: Transcript, count: int) -> tuple[reply.Reply, ...]:
    """Return the answers to the first questions on which both sides differ, else to the first question."""
    differing = []
    for number in range(1, count + 1):
        mine, theirs = answer_at(left, f"one-{number:02d}"), answer_at(right, f"one-{number:02d}")
        if mine is not None and theirs is not None and (mine.text != theirs.text or mine.finish != theirs.finish):
            differing.append(number)
    return tuple(
        found
        for number in differing[:3] or [1]
        for side in (left, right)
        for found in sent(reply_at(side, f"one-{number:02d}"))
    )


def _lead(left: Transcript, right: Transcript, count: int) -> str:
    found = []
    for number in range(1, count + 1):
        answers = [answer_at(side, f"one-{number:02d}") for side in (left, right)]
        told = [each.usage.prompt if each is not None and each.usage is not None else None for each in answers]
        found.append(None not in told and told[0] != told[1])
    conditions = list(unlike(left.fingerprint, right.fingerprint))
    if any(found):
        conditions.insert(0, f"{sum(found)} of {count} chats have unlike prompt tokens, see parity.tokens")
    day, dated = _rendered.conditions(left, right)
    conditions = [*dated, *conditions]
    return day + (f"unlike conditions ({'; '.join(conditions)}): " if conditions else "")


def judge(transcript: Transcript, params: ParityAnswersParams) -> Iterator[Finding]:
    """Say only where an endpoint did not answer; what the answers mean is for the contrast."""
    check = _AGREE if params.about == "texts" else _END
    replies = [reply_at(transcript, f"one-{number:02d}") for number in range(1, len(_questions(params)) + 1)]
    if not any(isinstance(each, reply.Answer) for each in replies):
        yield PART.undetermined(check, "no question was answered", *sent(*replies))


def contrast(left: Transcript, right: Transcript, params: ParityAnswersParams) -> Iterator[Finding]:
    """Hold the candidate's answers against the reference's."""
    lead = _lead(left, right, len(_questions(params)))
    found = [_texts(left, right, params, lead)] if params.about == "texts" else _ends(left, right, params, lead)
    yield from _rendered.excused(found, left, right)


PROBE = Probe(
    id="parity_answers",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_AGREE,
            rule="The share of greedy answers that part at a clear choice stays within own noise or the margin.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/blob/main/tests/models/utils.py",
        ),
        Check(
            id=_END,
            rule="As many answers run to the token limit, within own noise or the margin.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object#chat-object-choices-finish_reason",
        ),
        Check(
            id=_LONG,
            rule="Answers are as long in the mean, within the margin.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object#chat-object-usage",
        ),
    ),
    params=ParityAnswersParams,
    drive=drive,
    judge=judge,
    contrast=contrast,
    exclusive=True,
    requests=113,
    prompt_tokens=3440,
    output_tokens=2470,
)
