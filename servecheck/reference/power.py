"""How small a loss of precision the parity rows find at their default cost, and how often they cry wolf; no engine.

    python -m servecheck.reference.power

measures the figures of ``docs/parity.md`` again. It takes minutes, and gives the same figures everywhere.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from servecheck import features, scenario
from servecheck.model import Outcome, Trial
from servecheck.probe import Params
from servecheck.probes import discover
from servecheck.reference.killmatrix import trials_on
from servecheck.reference.mutants.parity_walk import BatchJitter
from servecheck.reference.perturbing import LOGIT, Perturbing
from servecheck.reference.server import ReferenceServer
from servecheck.scenario import Scenario

__all__ = ["Power", "figures", "filled", "power", "self_comparisons", "words_on"]

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
    falls = ", ".join(f"{words[word]} `{word}`" for word in _WORDS.values())
    wolf = words["drift"]
    bound = (
        f"None of {_SELVES} is a false alarm, which at 95 % proves a rate below {1 - 0.05 ** (1 / _SELVES):.1%}."
        if not wolf
        else f"{wolf} of {_SELVES} are false alarms."
    )
    return {
        "walk": "\n".join(_table(head, map(_told, power("parity_walk")))),
        "forced": "\n".join(
            _table(head, map(_told, power("parity_forced", pairs=_FEW_PAIRS, per_mille=_PER_MILLE[1:5])))
        ),
        "alarms": f"{_SELVES} times a server beside itself, each request with noise of its own: {falls}. {bound}",
    }


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
