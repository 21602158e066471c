"""From two endpoints' positions to the findings of a parity row, in sentences that can be defended; sends nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from servecheck import parity
from servecheck.model import Exchange, Finding, Fingerprint, Json, Mode, Route, Transcript
from servecheck.parity import Difference, Estimate, Margin, Pair, Position, Word
from servecheck.probe import Params
from servecheck.probes._findings import Figure, Part
from servecheck.probes._steps import answer_at
from servecheck.read.logprobs import Token, tokens

__all__ = ["END", "PART", "ParityParams", "Side", "mode", "mode_steps", "named", "position", "unlike", "weigh"]

PART = Part(route=Route.NONE, mode=Mode.NONE)
_MEASURED_ORIGIN = (
    "above every pair of engines with the same weights and below every real loss of precision that was measured, "
    "see docs/parity.md"
)
END = "<end>"
"""The name of whatever ends a text."""
_CERTAIN = -1e-4  # nats
_CONDITIONS = {
    "quantization": "weights",
    "dtype": "dtype",
    "kv_cache_dtype": "KV cache",
    "template_tools": "tools in the chat template",
}


class ParityParams(Params):
    """What may be chosen in YAML: the texts, and what still counts as the same."""

    prompts: tuple[str, ...] = Field(default=(), description="Your own texts, in place of the built-in ones.")
    least: int = Field(default=300, ge=1, description="Fewer positions than this decide nothing.")
    margin_kl: float = Field(default=0.007, gt=0, description="The mean KL divergence that still counts as the same.")
    margin_close: float = Field(
        default=0.70, ge=0, le=1, description="The least share of tokens whose logprobs differ by less than 0.1 nat."
    )
    margin_clear: float = Field(
        default=0.98, ge=0, le=1, description="The least top-1 agreement outside the reference's near-ties."
    )
    margin_mutual: float = Field(
        default=0.98, ge=0, le=1, description="The least share of best tokens that are in each other's best five."
    )
    origin: str = Field(default=_MEASURED_ORIGIN, description="Where the margins come from.")

    @property
    def margin(self) -> Margin:
        """The margins as one value."""
        return Margin(
            kl=self.margin_kl,
            close=self.margin_close,
            clear=self.margin_clear,
            mutual=self.margin_mutual,
            origin=self.origin,
        )


# --------------------------------------------------------------------------- positions


def named(token: str) -> str:
    """Return a token's name as all engines would write it; empty where its name says too little to compare by.

    A part of a character has no text of its own: some write U+FFFD and some nothing, and some write nothing for the end
    too. What ends a text is written differently by every engine, and is one token here.
    """
    if not token or "\ufffd" in token:
        return ""
    if (token.startswith("<|") and token.endswith("|>")) or token in ("</s>", "<eos>", "<end_of_turn>"):
        return END
    return token.replace("\u2581", " ").replace("\u0120", " ").replace("\u010a", "\n")


def position(token: Token, context: int) -> Position:
    """Return a generated token as a position; tokens without a name are left out of the list of the likeliest."""
    top: dict[str, float] = {}
    for text, value in token.top:  # the likeliest first, and of several with one name the likeliest is kept
        if (name := named(text)) and not math.isnan(value):
            top.setdefault(name, value)
    return Position(token=named(token.text), logprob=token.logprob, top=top, context=context)


# --------------------------------------------------------------------------- conditions


def mode_steps(prompt: str) -> tuple[tuple[str, dict[str, Json]], ...]:
    """Return two requests that tell whether log probabilities are taken before or after the temperature."""
    body: dict[str, Json] = {"prompt": prompt, "max_tokens": 1, "logprobs": 5, "top_p": 1}
    return ("mode-1", {**body, "temperature": 1}), ("mode-2", {**body, "temperature": 2})


def mode(transcript: Transcript, walked: Sequence[Position] = ()) -> str:
    """Return what the log probabilities are of, in words; empty where the replies do not tell."""
    if len(walked) >= 20 and sum((_best(each) > _CERTAIN) for each in walked) >= 0.95 * len(walked):
        return "after the choice was made"
    if any(sum(math.exp(min(value, 9.0)) for value in each.top.values()) > 1.05 for each in walked):
        return "no log probabilities, for they add up to more than 1"
    lists = []
    for step in ("mode-1", "mode-2"):
        answer = answer_at(transcript, step)
        found = tokens(answer) if answer is not None else ()
        if not found or len(found[0].top) < 2:
            return ""
        lists.append(dict(found[0].top))
    shared = sorted(lists[0].keys() & lists[1].keys(), key=lists[0].__getitem__)
    if len(shared) < 2:
        return ""
    cold, warm = (each[shared[-1]] - each[shared[0]] for each in lists)
    if cold < 0.8:  # nats; the two readings would lie too close to tell apart
        return ""
    return "before the temperature" if abs(warm - cold) < abs(warm - cold / 2) else "after the temperature"


def _best(each: Position) -> float:
    return max(each.top.values(), default=-math.inf)


def unlike(left: Fingerprint, right: Fingerprint) -> tuple[str, ...]:
    """Return the conditions that are known of both sides and differ, as ``KV cache: f16 | fp8``."""
    found = []
    for name, words in _CONDITIONS.items():
        mine, theirs = left.value(name), right.value(name)
        if mine is not None and theirs is not None and mine != theirs:
            found.append(f"{words}: {mine} | {theirs}")
    return tuple(found)


# --------------------------------------------------------------------------- findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one endpoint shows of itself: against itself alone and in a batch, and what its log probabilities are of."""

    alone: tuple[Pair, ...] = ()
    batch: tuple[Pair, ...] = ()
    mode: str = ""


def weigh(
    check: str,
    length_check: str,
    pairs: Sequence[Pair],
    left: Side,
    right: Side,
    params: ParityParams,
    conditions: Sequence[str],
    shown: Mapping[str, Sequence[Exchange]],
    *,
    how: str,
    day: tuple[str, Sequence[str]] = ("", ()),
) -> Iterator[Finding]:
    """Yield the finding on the whole and the one on context length; ``shown`` are both sides' exchanges by text.

    ``day`` is what follows from the date of the day: words that go before all others, and conditions that do.
    """
    found = parity.difference(pairs)
    noise = [parity.difference(each) for side in (left, right) for each in (side.alone, side.batch) if each]
    margin = params.margin
    said = "".join(f"{each}; " for each in conditions)
    if left.mode and right.mode and left.mode != right.mode:
        said = f"log probabilities are {left.mode} | {right.mode}; {said}"
    said = "".join(f"{each}; " for each in day[1]) + said
    lead = day[0] + (f"unlike conditions ({said.removesuffix('; ')}): " if said else "")
    measured = _figures(found, noise, parity.by_length(pairs))
    measured |= _counts("delta_from", pairs)
    measured |= _counts("own_delta_from", (*left.alone, *left.batch, *right.alone, *right.batch))
    evidence = _evidence(pairs, shown)
    if found.positions < params.least or found.kl is None or found.texts < 2:
        why = f"{lead}{found.positions} positions of {found.texts} texts can be compared, {params.least} are needed"
        if found.refused and found.positions >= params.least:
            why = f"{lead}the tokens that both name have too little mass at {found.refused} of {found.positions} places"
        yield PART.undetermined(check, why, *evidence, **measured)
        return
    reading = parity.read(found, noise, margin)
    body = f"{_sentence(found, how)}; {_noise(noise)}; margins KL {margin.kl:g}, {_shares(margin)}: {margin.origin}"
    if reading.word is not Word.INSIDE and left.mode != right.mode and left.mode and right.mode:
        yield PART.undetermined(check, f"{lead}the values are of different things; {body}", *evidence, **measured)
        return
    longer = _worse(length_check, pairs, (*left.alone, *left.batch, *right.alone, *right.batch), margin, lead, evidence)
    if reading.word is Word.INSIDE:
        yield PART.held(check, f"{lead}{body}", *evidence, **measured)
    elif reading.word is Word.BEYOND:
        beyond = _listed([_FIGURES[name] for name in reading.beyond])
        place = "; most of it at long contexts, see the rule on context length" if longer else ""
        yield PART.violated(check, f"{lead}{beyond} beyond own noise and margin{place}: {body}", *evidence, **measured)
    else:
        yield PART.undetermined(check, f"{lead}the interval straddles the margin: {body}", *evidence, **measured)
    yield longer or PART.held(
        length_check, f"{lead}no context length is worse than the shortest beyond the margin: {_by_length(pairs)}"
    )


_FIGURES = {
    "kl": "KL",
    "close": "share of close logprobs",
    "clear": "top-1 agreement",
    "mutual": "mutual top-5",
}


def _worse(
    check: str,
    pairs: Sequence[Pair],
    noise: Sequence[Pair],
    margin: Margin,
    lead: str,
    evidence: Sequence[Exchange],
) -> Finding | None:
    worse = parity.worse_with_length(pairs, noise, margin)
    if worse is None:
        return None
    longer, base = worse
    why = (
        f"{lead}worse with context length: from {longer.start} tokens of context on KL is "
        f"{_interval(longer.difference.kl)}, before that {_interval(base.difference.kl)}"
        f" (margin {margin.kl:g}); {_by_length(pairs)}"
    )
    return PART.violated(check, why, *evidence, from_tokens_of_context=longer.start)


def _by_length(pairs: Sequence[Pair]) -> str:
    return "; ".join(
        f"{each.name} tokens of context: KL {_interval(each.difference.kl)}"
        for each in parity.by_length(pairs)
        if each.difference.kl is not None
    )


def _sentence(found: Difference, how: str) -> str:
    parts = [f"{found.positions} positions of {found.texts} texts, {how}: mean KL {_interval(found.kl)} nat"]
    if found.forward is not None and found.backward is not None:
        parts.append(f"{found.forward.value:.2g} and {found.backward.value:.2g} in the two directions")
    if found.clear is not None:
        agreed = round(found.clear.value * found.clear.n)
        parts.append(f"top-1 agrees at {agreed} of {found.clear.n} outside near-ties ({_percent(found.clear)})")
    if found.mutual is not None:
        parts.append(f"mutual top-5 at {round(found.mutual.value * found.mutual.n)} of {found.mutual.n}")
    if found.quantiles is not None and found.close is not None:
        p50, p95, p99, most = found.quantiles
        parts.append(
            f"|Δlogprob| p50 {p50:.2g}, p95 {p95:.2g}, p99 {p99:.2g}, most {most:.2g}, below 0.1 at "
            f"{found.close.value:.1%} ({_percent(found.close)})"
        )
    if found.parted:
        parts.append(f"a clear choice differs first at token {(found.first or 0) + 1} (median of {found.parted} texts)")
    if found.refused:
        parts.append(f"no KL at {found.refused} positions, where the shared tokens have less than half of the mass")
    return ", ".join(parts)


def _noise(noise: Sequence[Difference]) -> str:
    highs = [each.kl.value for each in noise if each.kl is not None]
    if not highs:
        return "own noise was not measured"
    worst = max(highs)
    closest = min((each.close.value for each in noise if each.close is not None), default=1.0)
    return f"each against itself, alone and in a batch: KL at most {worst:.2g}, below 0.1 at {closest:.1%} or more"


def _shares(margin: Margin) -> str:
    return f"below 0.1 {margin.close:.0%}, top-1 {margin.clear:.0%}, top-5 {margin.mutual:.0%}"


def _interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "unknown"
    if math.isinf(estimate.high):
        return f"{estimate.value:.2g} (one text, no interval)"
    return f"{estimate.value:.2g} ({estimate.low:.2g} to {estimate.high:.2g})"


def _percent(estimate: Estimate) -> str:
    return f"{estimate.low:.1%} to {estimate.high:.1%}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _figures(found: Difference, noise: Sequence[Difference], lengths: Sequence[parity.Length]) -> dict[str, Figure]:
    made: dict[str, Figure] = {"positions": found.positions, "texts": found.texts}
    for name in ("kl", "close", "clear", "top1", "mutual"):
        estimate: Estimate | None = getattr(found, name)
        if estimate is not None:
            made |= {name: _round(estimate.value), f"{name}_low": _round(estimate.low)}
            made[f"{name}_high"] = None if math.isinf(estimate.high) else _round(estimate.high)
    if found.forward is not None and found.backward is not None:
        made |= {"kl_forward": _round(found.forward.value), "kl_backward": _round(found.backward.value)}
    if found.quantiles is not None:
        for name, value in zip(("p50", "p95", "p99", "max"), found.quantiles, strict=True):
            made[f"delta_{name}_nat"] = _round(value)
    made["k3_clipped"] = _round(found.k3) if found.k3 is not None else None
    made["shared_mass"] = _round(found.mass) if found.mass is not None else None
    made["kl_refused"] = found.refused
    made["first_clear_difference"] = found.first
    made["noise_kl"] = _round(max((each.kl.value for each in noise if each.kl is not None), default=0.0))
    for each in lengths:
        if each.difference.kl is not None:
            made[f"kl_from_{each.start}"] = _round(each.difference.kl.value)
    return made


def _counts(name: str, pairs: Sequence[Pair]) -> dict[str, Figure]:
    """Return the histogram of |Δ|, a figure a step: how many positions lie between its border and the next."""
    found = parity.counts(pairs)
    return (
        {f"{name}_{edge:g}_nat": count for edge, count in zip(parity.STEPS, found, strict=True)} if any(found) else {}
    )


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _evidence(pairs: Sequence[Pair], shown: Mapping[str, Sequence[Exchange]]) -> tuple[Exchange, ...]:
    """Return the exchanges of the three texts that differ most."""
    totals: dict[str, float] = {}
    for pair in pairs:
        totals[pair.text] = totals.get(pair.text, 0.0) + (max(pair.kl) if pair.kl is not None else 0.0)
    worst = sorted(totals, key=lambda text: (-totals[text], text))[:3]
    return tuple(exchange for text in worst for exchange in shown.get(text, ()))
