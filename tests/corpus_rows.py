"""Which row must speak of which entry of the corpus, and what it says when the entry is played or its mutants run.

An entry is left out while none of its rows has a probe; it comes in by itself when one arrives.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servecheck import features, scenario
from servecheck.model import Outcome, Trial
from servecheck.probes import discover
from servecheck.reference import mutants
from servecheck.reference.killmatrix import beside, served, trials_on
from tests.replay import ENTRIES, Entry, Replay

__all__ = ["MEANING", "MISSED", "ROWS", "Tried", "active", "caught", "flagged", "harmless", "page", "results", "tried"]

ROWS: dict[str, tuple[str, ...]] = {
    "B01": ("streaming.frames",),
    "B02": ("streaming.frames",),
    "B04": ("streaming.frames", "tools.stream"),
    "B06": ("streaming.frames", "logprobs.stream"),
    "B08": ("streaming.equals_non_stream",),
    "B09": ("streaming.usage",),
    "B11": ("streaming.usage",),
    "B12": ("streaming.usage",),
    "B13": ("streaming.usage", "streaming.continuous_usage"),
    "B14": ("streaming.usage",),
    "B15": ("streaming.usage",),
    "B16": ("streaming.frames",),
    "B18": ("streaming.frames",),
    "B19": ("streaming.incremental",),
    "B20": ("streaming.utf8",),
    "B21": ("streaming.utf8",),
    "B25": ("streaming.frames",),
    "B27": ("streaming.frames", "tools.stream"),
    "B28": ("streaming.frames",),
    "B29": ("chat.context_limit",),
    "B30": ("streaming.frames", "streaming.incremental"),
    "B31": ("structured.json_schema",),
    "B32": ("structured.legacy_guided",),
    "B35": ("structured.json_object",),
    "B36": ("structured.json_object",),
    "B39": ("structured.json_schema", "structured.concurrent"),
    "B40": ("structured.concurrent",),
    "B41": ("structured.concurrent",),
    "B42": ("structured.keywords",),
    "B45": ("structured.json_schema",),
    "B46": ("concurrency.overload", "compile.recompilation"),
    "B47": ("structured.truncated", "chat.max_tokens"),
    "B48": ("reasoning.structured",),
    "B49": ("structured.bad_schema",),
    "B50": ("tools.stream", "tools.auto"),
    "B51": ("tools.stream",),
    "B53": ("tools.stream", "tools.parallel"),
    "B54": ("tools.required",),
    "B55": ("tools.required",),
    "B56": ("tools.named",),
    "B57": ("tools.stream", "tools.required"),
    "B60": ("tools.stream",),
    "B61": ("tools.auto", "tools.required"),
    "B63": ("tools.auto", "tools.stream"),
    "B64": ("tools.parallel_off",),
    "B66": ("tools.named",),
    "B69": ("tools.round_trip",),
    "B71": ("tools.auto",),
    "B72": ("reasoning.stream",),
    "B73": ("reasoning.stream",),
    "B75": ("reasoning.split", "chat.basic"),
    "B77": ("reasoning.structured", "structured.json_object"),
    "B79": ("logprobs.chat", "logprobs.completions"),
    "B80": ("logprobs.completions",),
    "B82": ("logprobs.chat",),
    "B83": ("logprobs.completions",),
    "B84": ("logprobs.prompt",),
    "B87": ("logprobs.chat",),
    "B88": ("logprobs.chat",),
    "B90": ("sampling.min_p",),
    "B92": ("sampling.seed",),
    "B93": ("sampling.frequency_penalty",),
    "B94": ("sampling.top_k",),
    "B95": ("chat.n",),
    "B98": ("chat.max_tokens",),
    "B99": ("chat.stop",),
    "B102": ("concurrency.batch_invariance",),
    "B103": ("sampling.seed",),
    "B106": ("prefix_cache.reported",),
    "B110": ("prefix_cache.correct",),
    "B111": ("prefix_cache.correct", "quantization.sanity"),
    "B112": ("chat.context_limit", "quantization.sanity"),
    "B113": ("health.ready", "quantization.sanity"),
    "B114": ("health.ready", "quantization.sanity"),
    "B116": ("health.ready", "quantization.sanity"),
    "B118": ("parity.greedy",),
    "B119": ("chat.context_limit",),
    "B121": ("chat.context_limit",),
    "B122": ("chat.context_limit", "errors.bad_value"),
    "B123": ("errors.family", "errors.bad_value"),
    "B124": ("messages.basic",),
    "B127": ("responses.tools", "responses.basic"),
    "B128": ("streaming.frames",),
    "B129": ("streaming.cancel",),
    "B131": ("streaming.cancel",),
    "B132": ("streaming.cancel",),
    "B133": ("concurrency.isolation", "structured.concurrent"),
    "B135": ("prefix_cache.isolation", "concurrency.isolation"),
    "B136": ("concurrency.isolation", "structured.concurrent"),
    "B138": ("concurrency.batching",),
    "B139": ("compile.recompilation",),
    "B140": ("compile.recompilation",),
    "B142": ("vision.image", "health.ready"),
    "B143": ("vision.image",),
    "B144": ("structured.legacy_guided",),
    "B146": ("health.ready", "quantization.sanity"),
    "B147": ("vision.image",),
    "B148": ("lora.effect",),
    "B150": ("identity.models", "health.ready"),
    "B151": ("identity.models",),
    "B152": ("embeddings.base64",),
    "B155": ("responses.stream",),
    "B157": ("responses.tools",),
    "B158": ("metrics.exposed", "responses.stream"),
    "B159": ("health.ready",),
    "B161": ("metrics.exposed",),
    "B162": ("streaming.frames",),
    "B163": ("chat.basic", "chat.max_tokens"),
    "B165": ("vision.image",),
    "B166": ("embeddings.base64",),
}
"""The rows that speak of an entry, those first that are about it."""

MEANING: dict[str, str] = {
    "B40": "which of two twins is wrong depends on what runs beside it",
    "B41": "a plain request is wrong only while another one runs",
    "B48": "the fault is what the model is kept from thinking",
    "B53": "two calls, the first without arguments",
    "B64": "two calls where one was allowed",
    "B88": "numbers that move with a parameter",
    "B90": "the spread of many draws",
    "B93": "two texts that ought to differ",
    "B94": "the spread of many draws",
    "B98": "a prompt that runs on for ever, while a short one is answered",
    "B99": "part of a stop string that the prompt must bring about",
    "B103": "draws of two replicas",
    "B106": "waits and counts of a cache",
    "B110": "another answer to the same prompt once it is cached",
    "B111": "another answer to a long prompt once it is cached",
    "B112": "an answer that the model must know",
    "B119": "a prompt that is cut in silence",
    "B127": "a tool of a type that nobody here sends",
    "B129": "work that goes on behind a closed connection",
    "B131": "what many broken connections leave behind",
    "B132": "what many broken connections leave behind",
    "B133": "whose words are whose",
    "B135": "whose words are whose",
    "B136": "whose words are whose",
    "B139": "how long the first request of a shape takes",
    "B140": "how long the first request of a shape takes",
    "B143": "what the model sees in a picture",
    "B148": "an adapter, which has to be there",
    "B151": "a second model, which would have to answer",
    "B157": "what the model writes where it should call",
    "B158": "a counter",
    "B161": "a counter",
    "B163": "a reply that takes longer than a minute",
}
"""Entries that cannot be shown by the shape of a reply; mutants that cite them stand for them."""

MISSED: dict[str, str] = {
    "B46": "nobody here sends a schema of a thousand lines, which would harm other users",
    "B138": "a stream beside a prompt of 64,000 tokens is not looked at",
    "B142": "the server dies of the first request of all; every row says so, and none is to blame",
}
"""Entries that are not caught, with the reason."""

_REASONING = {"B35", "B36", "B48", "B72", "B73", "B75", "B77"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of an entry: findings that did not hold, as (row, check, outcome), and faults of a run."""

    entry: Entry
    how: str
    found: tuple[tuple[str, str, str], ...] = ()
    faults: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    @property
    def decided(self) -> tuple[tuple[str, str, str], ...]:
        """The findings that say something is wrong; “could not tell” does not."""
        return tuple(each for each in self.found if each[2] not in (Outcome.UNDETERMINED, Outcome.HELD))


@functools.cache
def _builtin() -> tuple[scenario.Scenario, ...]:
    return tuple(scenario.load_all([scenario.builtin_dir()], probes=discover(), features=features.BY_ID))


def active(entry: Entry) -> tuple[str, ...]:
    """Return the rows of an entry that have a probe."""
    probed = {each.feature for each in _builtin()}
    return tuple(row for row in ROWS[entry.id] if row in probed)


def _of(rows: Iterable[str] | None) -> list[scenario.Scenario]:
    return [each for each in _builtin() if rows is None or each.feature in rows]


def tried(entry: Entry, side: str, *, everything: bool = False) -> Tried:
    """Play a side of an entry to the probes of its rows, or to all; its mutants where it cannot be played."""
    rows = active(entry)
    if side == "bad" and entry.id in MEANING:
        return _by_mutants(entry, rows)
    found: list[tuple[str, str, str]] = []
    faults: list[str] = []
    values: list[str] = []
    for each in _of(None if everything else rows):
        name = "gpt-oss:120b" if entry.id == "B150" else "reference"
        language = "reasoning" if entry.id in _REASONING else "obedient"
        server = Replay(entry, side, language=language, api_key="key", model=name)
        for trial in trials_on(server, discover(), [each]):
            _sort(trial, each.feature, found, faults, values)
    return Tried(entry=entry, how="replay", found=tuple(found), faults=tuple(faults), values=tuple(values))


def _sort(trial: Trial, row: str, found: list[tuple[str, str, str]], faults: list[str], values: list[str]) -> None:
    found += [(row, each.check, each.outcome.value) for each in trial.findings if each.outcome is not Outcome.HELD]
    if trial.fault is not None:
        faults.append(f"{row}: {trial.fault.reason}")
    values += [f"{row}: {seen.value}" for seen in trial.observed]


def _by_mutants(entry: Entry, rows: Sequence[str]) -> Tried:
    """Run the mutants that cite an entry against the probes of its rows."""
    known = mutants.discover()
    found: list[tuple[str, str, str]] = []
    names: list[str] = []
    for each in _of(rows):
        for variant in known.get(each.probe, ((), ()))[0]:
            if variant.source == entry.source:
                left = beside(variant, variant.models[0])
                trials = trials_on(served(variant, variant.models[0]), discover(), [each], left=left)
                said = [(each.feature, one.check, one.outcome.value) for trial in trials for one in trial.findings]
                mine = [one for one in said if (one[1], one[2]) in {(c, o.value) for c, o in variant.trips}]
                if mine:
                    names.append(f"{each.probe}/{variant.id}")
                    found += mine
    return Tried(entry=entry, how=", ".join(dict.fromkeys(names)) or "nothing", found=tuple(dict.fromkeys(found)))


@functools.cache
def results() -> tuple[tuple[Entry, Tried, Tried], ...]:
    """Return every entry that has a probe, with what came of its bad and of its good side."""
    return tuple((entry, tried(entry, "bad"), tried(entry, "good")) for entry in ENTRIES.values() if active(entry))


def caught(bad: Tried, good: Tried) -> bool:
    """Tell whether a bad side shows: a finding that did not hold, or a property with another value than it ought to."""
    return bool(bad.decided) or bad.values != good.values or any("ignored" in value for value in bad.values)


def harmless(entry: Entry) -> bool:
    """Tell whether an entry's point is that nothing may be flagged: so it says, or its two sides are the same."""
    return entry.expected == "must_not_flag" or entry.bad_is_good


def flagged(good: Tried) -> list[str]:
    """Return what was wrongly said of a good side. A refusal, and an overload that a server reports, are right."""
    refusals = any(400 <= (reply.get("status") or 0) < 500 for reply in good.entry.good)
    sick = any((reply.get("status") or 0) == 503 for reply in good.entry.good)
    said = [
        f"{row}: {check} {outcome}" for row, check, outcome in good.decided if not (refusals and outcome == "refused")
    ]
    return said + ([] if sick else list(good.faults))


def page() -> str:
    """Return docs/corpus.md, made of what really ran."""
    found = results()
    shown = [(entry, bad, good) for entry, bad, good in found if not harmless(entry)]
    missed = [entry.id for entry, bad, good in shown if not caught(bad, good)]
    wrong = [entry.id for entry, _, good in found if flagged(good)]
    reasons = [f"{name} ({MISSED.get(name, 'no reason')})" for name in missed]
    left = [entry for entry in ENTRIES.values() if not active(entry)]
    lines = [
        "<!-- made by `UPDATE_GOLDENS=1 pytest tests/test_corpus.py`; do not edit -->",
        "",
        "# The corpus of public faults",
        "",
        f"{len(ENTRIES)} faults that users reported in public trackers, each with a replay of the wrong behaviour and",
        "of the right one ([what they are](../tests/corpus/README.md)). A side is laid over the reference server in",
        "the shape that the entry gives it, whatever is asked; a fault of meaning is shown by mutants that cite it.",
        "Then the row's own probes look.",
        "",
        f"**{len(shown) - len(missed)} of {len(shown)} entries whose row has a probe are caught, {len(wrong)} of",
        f"{len(found)} good sides are flagged.** {len(left)} entries wait for a probe.",
        "",
        f"Missed: {'; '.join(reasons) or 'none'}. Flagged although right: {', '.join(wrong) or 'none'}.",
        "",
        "| Entry | Report | Fault | Row | Shown by | What the row's checks say |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for entry, bad, good in found:
        cells = (entry.id, _report(entry), entry.fault, _rows(bad, entry), _how(bad), _said(bad, good))
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Left out", "", "| Entry | Report | Fault | Why |", "| --- | --- | --- | --- |"]
    for entry in left:
        lines.append(
            f"| {entry.id} | {_report(entry)} | {entry.fault} | no probe yet: `{'`, `'.join(ROWS[entry.id])}` |"
        )
    return "\n".join(lines) + "\n"


def _report(entry: Entry) -> str:
    name, _, number = entry.source.partition("#")
    return f"[{entry.source}](https://github.com/{name}/issues/{number})"


def _rows(bad: Tried, entry: Entry) -> str:
    rows = {row for row, _, _ in bad.decided} or set(active(entry))
    return ", ".join(f"`{row}`" for row in active(entry) if row in rows)


def _how(bad: Tried) -> str:
    return "replay" if bad.how == "replay" else ", ".join(f"`{name}`" for name in bad.how.split(", "))


def _said(bad: Tried, good: Tried) -> str:
    said = dict.fromkeys(f"`{check}` {outcome}" for _, check, outcome in bad.decided if outcome != "held")
    if said:
        return ", ".join(said)
    if harmless(bad.entry):
        return "nothing, which is right"
    return f"{'; '.join(bad.values)}" if caught(bad, good) else "**missed**"


assert set(ROWS) == set(ENTRIES)
