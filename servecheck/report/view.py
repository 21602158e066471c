"""Run → what a reader sees: plain values, every word and its order decided, nothing escaped. Shared by all formats."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from servecheck.model import Decision, Exchange, GroupTally, How, Kind, Status
from servecheck.report import details, plots, rows
from servecheck.report.benchmarks import benchmarks
from servecheck.report.data import RunReport, Subject, row_key
from servecheck.report.evidence import Curl
from servecheck.report.figures import drawn
from servecheck.report.framing import blocks
from servecheck.report.lookup import Lookup, delta_word, split_row
from servecheck.report.redacted import redacted, without_quotations
from servecheck.report.shapes import (
    Answer,
    Blocker,
    ExpectedView,
    Fact,
    FactRow,
    FigureView,
    GroupRow,
    ReadinessView,
    ReportView,
    Shown,
    SinceView,
)
from servecheck.report.text import count, public_url, seconds
from servecheck.report.unknown import not_known
from servecheck.rollup import WORST_FIRST
from servecheck.verdict import SO_FAR

__all__ = ["view"]

ANSWERS = {
    Decision.READY: ("✅", "Yes"),
    Decision.READY_WITH_CAVEATS: ("🟡", "Yes, with caveats"),
    Decision.NOT_READY: ("❌", "No"),
    Decision.CANNOT_TELL: ("❔", "Cannot tell"),
}

FACTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Engine", ("engine",)),
    ("Version", ("engine_version", "version")),
    ("Model", ("model",)),
    ("Precision", ("precision", "dtype")),
    ("Quantization", ("quantization",)),
    ("Device", ("device", "accelerator")),
)
"""The first screen's rows about endpoints: label, and the fingerprint fields that fill it, the first known one wins."""

_MARK_ORDER = {status.mark: place for place, status in enumerate(WORST_FIRST)}

_RED = frozenset({Status.BROKEN, Status.FLAKY, Status.IGNORED, Status.UNSUPPORTED})

SECRET = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)


def view(run: RunReport, curl: Curl, *, files: bool = False) -> ReportView:
    """Decide everything a reader will see of a run. Pure: the same run gives the same view.

    With ``files``, pictures stand in files beside the report. What the run's framing wants left out is left out.
    """
    if run.framing.redact:
        return _viewed(Lookup(redacted(run), _without_bodies(curl)), files=files)
    return _viewed(Lookup(run, curl), files=files)


def _without_bodies(curl: Curl) -> Curl:
    """Return commands only of requests that have no body: one with a body would be sent with the note in its place."""

    def render(exchange: Exchange) -> str:
        return (
            f"# the body is left out; exchange {exchange.id} in run.jsonl" if exchange.request_body else curl(exchange)
        )

    return render


def _viewed(look: Lookup, *, files: bool) -> ReportView:
    run = look.run
    matrix = tuple(rows.matrix(look))
    return ReportView(
        banner=_banner(look),
        title=_title(look),
        answer=_answer(look),
        endpoints=look.names,
        reference=run.reference,
        pairs=look.pairs,
        facts=tuple(_facts(look)),
        groups=tuple(_groups(look)),
        quiet_groups=_quiet_groups(look),
        blockers=_grouped(look, run.verdict.blockers),
        not_known=tuple(not_known(look)),
        provenance=_provenance(look),
        instrument=_instrument(look),
        caveats=_grouped(look, run.verdict.caveats),
        readiness=tuple(_readiness(look)),
        expected=tuple(_expected(look)),
        since=tuple(_since(look)),
        compared_with=tuple(f"{name}: {run}" for name, run in look.run.compared_with.items()),
        broken_on_both=run.broken_on_both,
        properties=tuple(rows.properties(look)),
        confounders=tuple(rows.confounder(look, name) for name in run.confounders),
        matrix=matrix,
        evidence=tuple(details.evidence(look)),
        fingerprints=tuple(rows.fingerprints(look)),
        command=_command(look),
        costs=tuple(_costs(look)),
        notes=run.notes,
        base_urls=tuple((s.name, public_url(s.endpoint.base_url)) for s in run.subjects),
        workload=details.workload(look),
        context=blocks(run.framing.context),
        uncounted=_uncounted(look),
        on_reference=_grouped(look, _on_reference(look)),
        figures=tuple(_figures(look, files=files)),
        benchmarks=tuple(benchmarks(run)),
        statuses=tuple(rows.statuses(matrix)),
        pictures=plots.available(),
        contradictions=tuple(details.contradictions(look)),
        declared=tuple(details.declared(look)),
    )


def _banner(look: Lookup) -> tuple[str, ...]:
    if look.run.complete:
        return ()
    why = f": {look.run.interrupted}" if look.run.interrupted else ""
    judged = [(f.id, n) for f in look.run.features if f.kind is not Kind.COMPARISON for n in look.names]
    missing = sum(pair not in look.cells for pair in judged)
    left = f" {missing:,} of {count(len(judged), 'cell')} have no result." if missing else ""
    return (f"This run did not finish{why}.", f"What follows is only what it saw before.{left}")


def _title(look: Lookup) -> str:
    if look.run.framing.title:
        return look.run.framing.title
    candidates = [name for name in look.names if name != look.run.reference]
    use = f" for {look.run.profile.profile.id}" if look.run.profile else ""
    if look.run.reference is None or not candidates:
        return f"Can I rely on {_either(look.names)}{use}?"
    return f"Can {_either(candidates)} replace {look.run.reference}{use}?"


def _answer(look: Lookup) -> Answer:
    decision = look.run.verdict.decision
    mark, word = ANSWERS[decision]
    sentence = look.run.verdict.sentence
    if sentence.startswith(SO_FAR):  # nobody shall paste a green mark that stands for a few rows
        mark, word = ANSWERS[Decision.READY_WITH_CAVEATS][0], sentence.partition(": ")[0]
    rest = sentence.removeprefix(f"{word}: ")
    if not look.run.complete:
        # Half a run may know of a blocker, but it is never a yes.
        mark, word = ("❌", "No, so far") if decision is Decision.NOT_READY else ("❔", "Not finished")
    return Answer(mark=mark, sentence=f"{word}: {rest}")


def _facts(look: Lookup) -> Iterator[FactRow]:
    for label, names in FACTS:
        facts = tuple(_fact(subject, names) for subject in look.run.subjects)
        yield FactRow(label=label, facts=facts, differs=len({fact.value for fact in facts}) > 1)


def _fact(subject: Subject, names: Sequence[str]) -> Fact:
    for name in names:
        known = subject.fingerprint.fields.get(name)
        if known is not None and known.value is not None:
            return Fact(value=known.value, how=known.how, source=known.source)
    if "model" in names and subject.endpoint.model:
        return Fact(value=subject.endpoint.model, how=How.DECLARED)
    return Fact(value="", how=How.UNKNOWN)


def _groups(look: Lookup) -> Iterator[GroupRow]:
    tallies = {(tally.group, tally.endpoint): tally for tally in look.run.groups}
    for group in look.groups():
        found = [tallies.get((group, name)) for name in look.names]
        deltas = tuple(_group_delta(look, group, left, right) for left, right in look.pairs)
        core = any(f.core and f.kind is Kind.JUDGED for f in look.run.features if f.group == group)
        if not core and not any(deltas):
            continue
        cells = tuple(
            _group_cell(name, tally, _left_out(look, group, name))
            if tally and tally.total
            else Shown(endpoint=name, mark="", tally="", word="no result" if core else "")
            for name, tally in zip(look.names, found, strict=True)
        )
        yield GroupRow(group=group, cells=cells, deltas=deltas)


def _group_cell(name: str, tally: GroupTally, left_out: int) -> Shown:
    """Return a group's cell; one where all that was asked was fine says so, and how much that was."""
    if tally.status is Status.SKIPPED and tally.supported:  # all else that was asked would be worse than skipped
        word = Status.SUPPORTED
        return Shown(endpoint=name, mark=word.mark, tally=f"{tally.supported}/{tally.supported} asked", word=word)
    if 0 < left_out < tally.total:
        said = f"{tally.supported}/{tally.total - left_out} asked"
        return Shown(endpoint=name, mark=tally.status.mark, tally=said, word=tally.status)
    return Shown(endpoint=name, mark=tally.status.mark, tally=f"{tally.supported}/{tally.total}", word=tally.status)


def _left_out(look: Lookup, group: str, name: str) -> int:
    """Return how many of the rows that a group's tally counts were not asked of an endpoint."""
    judged = [each for each in look.run.features if each.group == group and each.kind is Kind.JUDGED]
    rows = [each for each in judged if each.core] or judged
    cells = [cell for each in rows if (cell := look.cells.get((each.id, name))) is not None]
    return sum(cell.status is Status.SKIPPED for cell in cells)


def _quiet_groups(look: Lookup) -> tuple[str, ...]:
    shown = {row.group for row in _groups(look)}
    judged = dict.fromkeys(f.group for f in look.run.features if f.kind is Kind.JUDGED)
    return tuple(group for group in judged if group not in shown)


def _group_delta(look: Lookup, group: str, left: str, right: str) -> str:
    """Count the deltas of a group's core and comparison rows."""
    counted: Counter[str] = Counter()
    for feature in look.run.features:
        compared = look.compared.get((feature.id, left, right))
        if compared and feature.group == group and (feature.core or feature.kind is Kind.COMPARISON):
            counted[delta_word(compared)] += 1
    if not counted:
        return ""
    if set(counted) == {"same"}:
        return "same"
    return ", ".join(f"{number} {word}" for word, number in sorted(counted.items(), key=_delta_order) if word != "same")


def _grouped(look: Lookup, rows_named: Sequence[str]) -> tuple[Blocker, ...]:
    """Fold rows of one endpoint that have one cause, else those that say the same, in the verdict's order."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for row in rows_named:
        feature, endpoint = split_row(row)
        cause = look.run.causes.get(row_key(feature, endpoint), "")
        # Rows differ in the nonces that a server said again, and are one finding all the same: quotations do not count.
        mark, word, reason = look.said(feature, endpoint)
        key = (endpoint, cause) if cause else (endpoint, mark, word, without_quotations(reason))
        grouped.setdefault(key, []).append(feature)
    return tuple(
        _blocker(look, number, key[0], key[1] if len(key) == 2 else "", rows)
        for number, (key, rows) in enumerate(grouped.items(), start=1)
    )


def _uncounted(look: Lookup) -> tuple[str, ...]:
    """Return what blocks and is in no group's tally, which counts core rows."""
    named = dict.fromkeys(split_row(row)[0] for row in look.run.verdict.blockers)
    return tuple(row for row in named if row in look.features and not look.features[row].core)


def _on_reference(look: Lookup) -> list[str]:
    """Return the core rows that the reference alone falls short on: nothing blocks for them, and a reader sees red."""
    both = {split_row(row)[0] for row in look.run.broken_on_both}
    name = look.run.reference
    if name is None or len(look.names) < 2:
        return []
    return [
        row_key(feature.id, name)
        for feature in look.run.features
        if feature.core and feature.kind is Kind.JUDGED and feature.id not in both
        if (cell := look.cells.get((feature.id, name))) is not None and cell.status in _RED
    ]


def _blocker(look: Lookup, number: int, endpoint: str, cause: str, rows: Sequence[str]) -> Blocker:
    said = [look.said(feature, endpoint) for feature in rows]
    mark, _, reason = min(said, key=lambda one: _MARK_ORDER.get(one[0], len(_MARK_ORDER)))
    return Blocker(
        number=number,
        endpoint=endpoint,
        rows=tuple((feature, look.ref(feature, endpoint)) for feature in rows),
        mark=mark,
        word=", ".join(dict.fromkeys(word for _, word, _ in said)),
        reason=f"{cause} ({reason})" if cause and reason else cause or reason,
        remedy=next(filter(None, (look.run.remedies.get(row_key(f, endpoint), "") for f in rows)), ""),
        known_issues=tuple(dict.fromkeys(issue for f in rows for issue in _issues(look, f, endpoint))),
    )


def _issues(look: Lookup, feature: str, endpoint: str) -> tuple[str, ...]:
    cell = look.cells.get((feature, endpoint))
    return cell.known_issues if cell else ()


def _readiness(look: Lookup) -> Iterator[ReadinessView]:
    """Say what each profile comes to; half a run may know of a blocker, but it is never a yes."""
    for each in look.run.readiness:
        decision = each.verdict.decision
        mark, _ = ANSWERS[decision]
        if not look.run.complete and decision is not Decision.NOT_READY:
            mark = "❔"
        yield ReadinessView(
            profile=each.profile.id,
            title=each.profile.title,
            as_of=each.profile.as_of.isoformat(),
            mark=mark,
            sentence=each.verdict.sentence,
        )


def _expected(look: Lookup) -> Iterator[ExpectedView]:
    for each in look.run.expected:
        until = each.expectation.until
        yield ExpectedView(
            row=each.expectation.row,
            endpoint=each.endpoint,
            standing=each.standing.value,
            why=each.why,
            reason=each.expectation.reason + (f" ({each.expectation.issue})" if each.expectation.issue else ""),
            until="" if until is None else until.isoformat(),
        )


def _since(look: Lookup) -> Iterator[SinceView]:
    for each in look.run.since:
        usual = look.run.compared_with.get(each.endpoint, "").startswith(each.run)
        before = each.before if usual else f"{each.before} (on {each.started:%Y-%m-%d}, in {each.run})"
        yield SinceView(row=each.feature, endpoint=each.endpoint, before=before, after=each.after, told=each.told)


def _provenance(look: Lookup) -> str:
    run = look.run
    # Two recordings that are compared took their time when they were recorded; see the confounders.
    took = f", {seconds((run.finished - run.started).total_seconds())}" if run.finished and not run.joined else ""
    return (
        f"servecheck {run.tool_version} (probes {run.probes_digest[:12]}), run {run.id}, suite {run.suite}, "
        f"{_moment(run.started)}{took}, {count(run.requests, 'request')}."
    )


def _instrument(look: Lookup) -> str:
    check = look.run.instrument
    if check is None:
        return "Instrument check: not known (servecheck selftest makes it)."
    warning = "" if check.caught == check.seeded and not check.false_alarms else " Read this report with that in mind."
    return (
        f"Instrument check: {check.caught:,} of {check.seeded:,} seeded faults caught, "
        f"{check.false_alarms:,} of {count(check.variations, 'harmless variation')} flagged.{warning}"
    )


def _figures(look: Lookup, *, files: bool) -> Iterator[FigureView]:
    for figure in drawn(look.run):
        file = f"figure-{figure.id}.svg" if files and plots.available() else ""
        yield FigureView(figure=figure, file=file)


def _command(look: Lookup) -> str:
    """Return the command as typed, ready for a shell; what looks like a secret is left out."""
    shown, header = [], False
    for word in look.run.command:
        flag, equals, value = word.partition("=")
        if header:
            shown.append(_header(word))
        elif flag in {"--header", "-H"} and equals:
            shown.append(f"{flag}={_header(value)}")
        elif "://" in word:
            name, equals, url = word.partition("=") if "=" in word.partition("://")[0] else ("", "", word)
            shown.append(f"{name}{equals}{public_url(url) if '@' in url or '?' in url else url}")
        else:
            shown.append(word)
        header = word in {"--header", "-H"}
    return shlex.join(shown)


def _costs(look: Lookup) -> Iterator[str]:
    for cost in look.run.costs:
        tokens = [
            f"{number:,} {word}"
            for number, word in ((cost.prompt_tokens, "prompt"), (cost.output_tokens, "output"))
            if number is not None
        ]
        said = f"{' and '.join(tokens)} tokens" if tokens else "tokens not reported"
        yield f"{cost.endpoint}: {count(cost.requests, 'request')}, {said}, {seconds(cost.seconds)}"


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)


def _delta_order(item: tuple[str, int]) -> tuple[int, str]:
    word = item[0]
    return ("behind", "drift", "unclear").index(word) if word in {"behind", "drift", "unclear"} else 3, word


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _header(word: str) -> str:
    name, colon, _ = word.partition(":")
    return f"{name}{colon} …" if SECRET.search(name) else word
