"""How small a loss of precision the parity rows find at their default cost, and how often they cry wolf; no engine.

    python -m servecheck.reference.power

measures the figures of ``docs/parity.md`` again. It takes minutes, and gives the same figures everywhere.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from servecheck import features, plan, scenario
from servecheck.compare import compare
from servecheck.model import Comparison, Delta, Outcome, Risk, Trial
from servecheck.probe import Params
from servecheck.probes import discover
from servecheck.reference.engine import Job
from servecheck.reference.killmatrix import trials_of_all, trials_on
from servecheck.reference.models import MODELS
from servecheck.reference.mutants.parity_walk import BatchJitter
from servecheck.reference.perturbing import LOGIT, Perturbing
from servecheck.reference.server import ReferenceServer
from servecheck.scenario import Scenario
from servecheck.verdict import cell

__all__ = ["Power", "figures", "filled", "power", "self_comparisons", "whole_self_comparisons", "words_on"]

_MODEL = "babbling"
_WORDS: Mapping[Outcome, str] = {
    Outcome.VIOLATED: "drift",
    Outcome.UNDETERMINED: "unclear",
    Outcome.HELD: "same",
}
_PER_MILLE = (2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0)
_PAIRS = 10
_FEW_PAIRS = 3  # it costs ten times as much as the walk, and its intervals are narrow
_SELVES = 50


class Power(NamedTuple):
    """What a row says of pairs whose logits are so many per mille off: words with counts, and the mean KL measured."""

    per_mille: float
    words: Mapping[str, int]
    kl: float


def _off_by(sigma: float) -> type[ReferenceServer]:
    class Off(Perturbing):
        """Is off by a known part."""

        def sigma(self, context: int) -> float:  # noqa: ARG002
            return sigma

    return Off


def words_on(trials: Iterable[Trial]) -> str:
    """Return the word that the findings of one comparison make: the worst."""
    said = {finding.outcome for trial in trials for finding in trial.findings}
    return next((word for outcome, word in _WORDS.items() if outcome in said), "unmeasured")


def _scenarios(probe: str, with_: Mapping[str, Any] | None = None) -> list[Scenario]:
    probes = discover()
    found = [
        each
        for each in scenario.load_all([scenario.builtin_dir()], probes=probes, features=features.BY_ID)
        if each.probe == probe
    ]
    return [replace(each, params=_changed(each.params, with_ or {})) for each in found]


def _changed(params: Params, with_: Mapping[str, Any]) -> Params:
    return type(params).model_validate({**params.model_dump(), **with_})


def power(probe: str, *, pairs: int = _PAIRS, per_mille: Sequence[float] = _PER_MILLE) -> Iterator[Power]:
    """Yield what a probe says of a reference and servers that are more and more off."""
    probes, mine = discover(), _scenarios(probe)
    for part in per_mille:
        words: Counter[str] = Counter()
        seen: list[float] = []
        for seed in range(pairs):
            server = _off_by(part / 1000 * LOGIT)(language=_MODEL, jitter_seed=seed)
            trials = trials_on(server, probes, mine)
            words[words_on(trials)] += 1
            seen += [
                float(kl)
                for trial in trials
                for finding in trial.findings
                if (kl := finding.measured.get("kl")) is not None
            ]
        yield Power(part, words, sum(seen) / len(seen) if seen else 0.0)


def self_comparisons(probe: str, *, pairs: int = _SELVES, with_: Mapping[str, Any] | None = None) -> Counter[str]:
    """Return how often each word is said of a server beside itself, where every request has noise of its own."""
    probes, mine = discover(), _scenarios(probe, with_)
    words: Counter[str] = Counter()
    for number in range(pairs):
        left, right = (BatchJitter(language=_MODEL, jitter_seed=2 * number + side) for side in (0, 1))
        words[words_on(trials_on(right, probes, mine, left=left))] += 1
    return words


class _Unsteady(BatchJitter):
    """A right server whose numbers and whose times are never the same twice."""

    def __init__(self, *, dice: random.Random, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._dice = dice

    def decode_delay(self, job: Job, index: int, count: int) -> float:
        """Take up to twice as long for a token, and one time in a hundred a tenth of a second more."""
        late = 0.1 if self._dice.random() < 0.01 else 0.0
        return super().decode_delay(job, index, count) * (1 + self._dice.random()) + late


def whole_self_comparisons(*, pairs: int = _SELVES) -> Iterator[tuple[Comparison, ...]]:
    """Yield whole comparisons of a right server with itself: each safe row of the standard suite, and the parity rows
    on chats, with numbers and times of its own in every request, under one reference model after the other.
    """
    probes, names = discover(), sorted(MODELS)
    mine = [
        each
        for each in scenario.load_all([scenario.builtin_dir()], probes=probes, features=features.BY_ID)
        if (plan.FULL_ONLY not in each.tags or each.probe in ("parity_tokens", "parity_answers"))
        and not probes[each.probe].per_item
        and probes[each.probe].risk is Risk.SAFE
    ]
    for number in range(pairs):
        left, right = (
            _Unsteady(dice=random.Random(seed), jitter_seed=seed, language=names[number % len(names)])
            for seed in (2 * number, 2 * number + 1)
        )
        rows: dict[tuple[str, str], list[Trial]] = {}
        for trial in trials_of_all(right, probes, mine, trials=None, seed=f"self-{number}", left=left):
            rows.setdefault((trial.case.feature, trial.case.endpoint), []).append(trial)
        cells = [cell(features.get(row), endpoint, trials) for (row, endpoint), trials in rows.items()]
        one, other = dict.fromkeys(endpoint for _, endpoint in rows)
        yield compare(cells, features.FEATURES, left=one, right=other, fingerprints={})


# --------------------------------------------------------------------------- the page


def _told(found: Power) -> list[str]:
    said = ", ".join(f"{word} {found.words[word]}" for word in _WORDS.values() if found.words[word])
    return [f"{found.per_mille / 10:g} %", f"{found.per_mille / 1000 * LOGIT:.2g}", f"{found.kl:.2g}", said]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def figures() -> dict[str, str]:
    """Return what is measured for the page, by the name of its place there; takes minutes."""
    head = ["Logits off by", "nats", "mean KL seen", "said of the pairs"]
    words = self_comparisons("parity_walk")
    whole = [Counter(each.delta for each in rows) for rows in whole_self_comparisons()]
    wrong = sum(bool(each[Delta.BEHIND] or each[Delta.DRIFT]) for each in whole)
    falls = ", ".join(f"{words[word]} `{word}`" for word in _WORDS.values())
    wolf = words["drift"]
    return {
        "walk": "\n".join(_table(head, map(_told, power("parity_walk")))),
        "forced": "\n".join(
            _table(head, map(_told, power("parity_forced", pairs=_FEW_PAIRS, per_mille=_PER_MILLE[1:5])))
        ),
        "alarms": f"`parity.logprobs`, {_SELVES} times a server beside itself, each request with noise of its own: "
        f"{falls}. {_bound(wolf)}",
        "whole": f"{_SELVES} whole comparisons of a server with itself, {min(map(Counter.total, whole))} rows each, "
        f"with noise of its own in the numbers and the times of every request: "
        f"{sum(each[Delta.BEHIND] for each in whole)} `behind`, {sum(each[Delta.DRIFT] for each in whole)} `drift`, "
        f"{sum(each[Delta.UNCLEAR] for each in whole)} of {sum(map(Counter.total, whole)):,} rows `unclear`. "
        f"{_bound(wrong)}",
    }


def _bound(wrong: int) -> str:
    """Return what so many false alarms show; none of n proves a rate below 1 − 0.05^(1/n) with 95 % confidence."""
    if wrong:
        return f"{wrong} of {_SELVES} are false alarms."
    return (
        f"None of {_SELVES} is a false alarm, which proves with 95 % confidence that at most "
        f"{1 - 0.05 ** (1 / _SELVES):.1%} are."
    )


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """Return a page with blocks between its markers ``<!-- name -->`` and ``<!-- /name -->``; the prose stays."""
    for name, block in blocks.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        text = f"{before}{begin}{block}\n{end}{after}"
    return text


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "docs" / "parity.md"
    measured = figures()
    target.write_text(filled(target.read_text("utf-8"), measured), encoding="utf-8", newline="\n")
    sys.stderr.write(f"{target}\n")
