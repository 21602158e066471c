"""How many of 24 small tasks are solved, and whether that is as many as on the reference.

What it does: asks 24 made-up questions with one right answer each (sums, copying of made-up words, finding a number or
a name in a sentence) at temperature 0, once each, and looks for the answer in the text. The questions are made from a
seed in the scenario, so both endpoints get the same ones and no licence stands on them. Alone it says what share is
solved, with an interval. Beside a reference it compares task by task.

Why it matters: quantized weights, a narrow KV cache and other kernels change what a model can do long before its text
looks odd, and a difference of distributions does not tell whether it matters.

How it could be fooled: by its size. A loss is shown from eleven of 24 on, and two lost leave it open: it finds
breakage, never a percent, and only in tasks as easy as these. A model that solves fewer than twelve of them cannot show
such a loss, and the row then does not apply. A model that reasons first may still
be thinking when its 24 tokens are spent.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import Field

from servecheck import parity
from servecheck.model import Check, Finding, Json, Level, NotApplicable, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._parity import unlike
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.stats import wilson

__all__ = ["PROBE", "Task", "tasks"]

_ANSWERED, _KEPT = "every-task-is-answered", "as-many-tasks-are-solved"
_PART = Part()
_EACH = 8  # tasks of each kind
_LEAST = 12  # solved by the reference; with fewer, a loss of all would hardly lie beyond the margin
_AT_ONCE = 4
_ONSETS, _VOWELS, _ENDS = "bdfgklmnprstv", "aeiou", "klmnprt"
_FACTS = (
    ("The train to {name} leaves from platform {number} at noon.", "From which platform does the train leave?"),
    ("Box {number} holds nails, and {name} carries it upstairs.", "Which box holds nails?"),
    ("{name} paid {number} coins for the old clock.", "How many coins were paid?"),
    ("In room {number} a man called {name} repairs radios.", "In which room are radios repaired?"),
)


class QuantizationRecoveryParams(Params):
    """What may be chosen in YAML."""

    seed: int = Field(default=1, description="Another seed makes other tasks of the same kinds.")
    max_tokens: int = Field(default=24, ge=8, le=256, description="The limit of each answer.")
    margin: float = Field(
        default=0.20, gt=0, lt=1, description="By what share fewer tasks may be solved and still count as as many."
    )
    origin: str = Field(default="what 24 tasks can bound", description="Where the margin comes from.")


class Task(NamedTuple):
    """A question whose right answer is one word or number; ``decoys`` are others that it could be mistaken for."""

    kind: str
    question: str
    answer: str
    decoys: tuple[str, ...] = ()

    def solved(self, text: str) -> bool:
        """Tell whether the answer stands in a text as a word, before any decoy."""
        found = {word: _place(word, text) for word in (self.answer, *self.decoys)}
        mine = found.pop(self.answer)
        return mine is not None and all(place is None or place > mine for place in found.values())


def _place(word: str, text: str) -> int | None:
    found = re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", text, re.IGNORECASE)
    return found.start() if found else None


def tasks(seed: int) -> tuple[Task, ...]:
    """Return the tasks of a seed, the kinds in turn; the same on every machine."""
    source = random.Random(seed)
    made: list[Task] = []
    for number in range(_EACH):
        left, right = source.sample(range(2, 10), 2)
        made.append(Task("arithmetic", f"What is {left} + {right}? Answer with the number.", str(left + right)))
        word = _word(source)
        made.append(Task("copying", f'Repeat this word exactly: "{word}"', word))
        name, wanted = _word(source).capitalize(), str(source.randint(12, 98))
        fact, asked = _FACTS[number % len(_FACTS)]
        told = fact.format(name=name, number=wanted)
        made.append(Task("finding", f"{told} {asked}", wanted))
    return tuple(made)


def _word(source: random.Random) -> str:
    return "".join(source.choice(pool) for pool in (_ONSETS, _VOWELS, _ONSETS, _VOWELS, _ENDS))


async def drive(session: Session, params: QuantizationRecoveryParams, _: Transcript | None) -> None:
    """Every task once, a few at a time."""
    body: dict[str, Json] = {"max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    steps = [
        session.chat(step, {**body, "messages": [{"role": "user", "content": task.question}]})
        for step, task in _steps(params)
    ]
    await session.concurrently(steps, at_once=_AT_ONCE)


def _steps(params: QuantizationRecoveryParams) -> list[tuple[str, Task]]:
    return [(f"task-{number:02d}", task) for number, task in enumerate(tasks(params.seed), start=1)]


def _results(transcript: Transcript, params: QuantizationRecoveryParams) -> dict[str, bool]:
    """Return whether each answered task is solved, by step."""
    found = ((step, task, answer_at(transcript, step)) for step, task in _steps(params))
    return {step: task.solved(answer.text) for step, task, answer in found if answer is not None}


def judge(transcript: Transcript, params: QuantizationRecoveryParams) -> Iterator[Finding | NotApplicable]:
    """Say what share is solved, where every task is answered."""
    steps = _steps(params)
    replies = [reply_at(transcript, step) for step, _ in steps]
    for each in replies:
        missing = _PART.unless_answered(_ANSWERED, each)
        if missing is not None:
            yield missing
            return
    results = _results(transcript, params)
    solved = sum(results.values())
    told = _told(results, steps)
    if solved < _LEAST:
        yield NotApplicable(why=f"{told}: too few for a loss to show")
        return
    low, high = wilson(solved, len(results))
    figures = {"tasks": len(results), "solved": solved, "low": round(low, 4), "high": round(high, 4)}
    why = f"{told}; so few tasks show breakage, not a percent"
    yield _PART.held(_ANSWERED, why, *sent(*replies[:3]), **figures)


def _told(results: dict[str, bool], steps: Sequence[tuple[str, Task]]) -> str:
    solved, kinds = sum(results.values()), dict.fromkeys(task.kind for _, task in steps)
    low, high = wilson(solved, len(results))
    parts = [
        f"{kind} {sum(mine)} of {len(mine)}"
        for kind in kinds
        if (mine := [results[step] for step, task in steps if task.kind == kind and step in results])
    ]
    return f"{solved} of {len(results)} tasks solved ({low:.0%} to {high:.0%}): {', '.join(parts)}"


def contrast(left: Transcript, right: Transcript, params: QuantizationRecoveryParams) -> Iterator[Finding]:
    """Compare task by task; nothing where the reference solves too few."""
    mine, theirs = _results(left, params), _results(right, params)
    both = [step for step, _ in _steps(params) if step in mine and step in theirs]
    if not both or sum(mine[step] for step in both) < _LEAST:
        return
    pairs = [(mine[step], theirs[step]) for step in both]
    lost = [step for step in both if mine[step] and not theirs[step]]
    counts = [pairs.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))]
    found = parity.paired_difference(*counts)
    conditions = unlike(left.fingerprint, right.fingerprint)
    lead = f"unlike conditions ({'; '.join(conditions)}): " if conditions else ""
    told = (
        f"{counts[0] + counts[1]} of {len(both)} tasks solved on the reference, {counts[0] + counts[2]} on the "
        f"candidate, {counts[1]} lost and {counts[2]} gained ({found.value:+.0%}, {found.low:+.0%} to "
        f"{found.high:+.0%}, margin {params.margin:.0%}: {params.origin})"
    )
    figures: dict[str, float | int] = {"tasks": len(both), "lost": counts[1], "gained": counts[2]}
    figures |= {"difference": round(found.value, 4), "low": round(found.low, 4), "high": round(found.high, 4)}
    seen = sent(*(reply_at(side, step) for step in (lost[:3] or both[:1]) for side in (left, right)))
    if found.high < -params.margin:
        yield _PART.violated(_KEPT, f"{lead}fewer tasks are solved, beyond the margin: {told}", *seen, **figures)
    elif found.low >= -params.margin:
        yield _PART.held(_KEPT, f"{lead}{told}", *seen, **figures)
    else:
        yield _PART.undetermined(_KEPT, f"{lead}the interval straddles the margin: {told}", *seen, **figures)


PROBE = Probe(
    id="quantization_recovery",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_ANSWERED,
            rule="Every small task gets an answer.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/create",
        ),
        Check(
            id=_KEPT,
            rule="As many tasks are solved as on the reference, within the margin.",
            level=Level.MUST,
            source="https://arxiv.org/abs/2411.02355",
        ),
    ),
    params=QuantizationRecoveryParams,
    drive=drive,
    judge=judge,
    contrast=contrast,
    requests=24,
    prompt_tokens=1_000,
    output_tokens=400,
)
