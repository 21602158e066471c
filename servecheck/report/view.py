"""Run → what a reader sees: plain values, every word and its order decided, nothing escaped. Shared by all formats."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from servecheck.declared import Beside
from servecheck.model import (
    DECIDED,
    Cell,
    Comparison,
    Decision,
    Delta,
    Exchange,
    Feature,
    How,
    Kind,
    Status,
)
from servecheck.report import plots
from servecheck.report.benchmarks import benchmarks
from servecheck.report.data import RunReport, Subject, row_key
from servecheck.report.evidence import Curl, ExchangeViews, checks_seen, figures, heading_word, slug
from servecheck.report.figures import drawn
from servecheck.report.framing import blocks
from servecheck.report.redacted import redacted
from servecheck.report.shapes import (
    Answer,
    Blocker,
    ContradictionView,
    DeclaredRow,
    DeclaredView,
    EvidenceView,
    ExpectedView,
    Fact,
    FactRow,
    FaultView,
    FigureView,
    GroupRow,
    KnownView,
    MatrixGroup,
    MatrixRow,
    NotKnown,
    PropertyRow,
    ReadinessView,
    Ref,
    ReportView,
    Shown,
    SinceView,
    WorkloadItemView,
    WorkloadView,
)
from servecheck.report.text import count, public_url, seconds
from servecheck.tally import ITEMS_BEHIND, ItemSeen, sentences
from servecheck.tally import words as state_words
from servecheck.verdict import WORST_FIRST

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

SKIP_WORDS = {
    "not-selected": "not selected",
    "not-applicable": "not applicable to this server",
    "budget": "the budget was spent",
    "opt-in": "needs an opt-in (--allow)",
    "no-probe": "no probe yet",
}

_MARK_ORDER = {status.mark: place for place, status in enumerate(WORST_FIRST)}

SECRET = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)


def view(run: RunReport, curl: Curl, *, files: bool = False) -> ReportView:
    """Decide everything a reader will see of a run. Pure: the same run gives the same view.

    With ``files``, pictures stand in files beside the report. What the run's framing wants left out is left out.
    """
    if run.framing.redact:
        return _Viewer(redacted(run), _without_bodies(curl), files=files).view()
    return _Viewer(run, curl, files=files).view()


def _without_bodies(curl: Curl) -> Curl:
    """Return commands only of requests that have no body: one with a body would be sent with the note in its place."""

    def render(exchange: Exchange) -> str:
        return (
            f"# the body is left out; exchange {exchange.id} in run.jsonl" if exchange.request_body else curl(exchange)
        )

    return render


class _Viewer:
    """The run with its look-ups, made once."""

    def __init__(self, run: RunReport, curl: Curl, *, files: bool) -> None:
        self.run, self.curl, self.files = run, curl, files
        self.names = tuple(subject.name for subject in run.subjects)
        self.features = {feature.id: feature for feature in run.features}
        self.cells = {(cell.feature, cell.endpoint): cell for cell in run.cells}
        self.pairs = tuple(dict.fromkeys((c.left, c.right) for c in run.comparisons))
        self.compared = {(c.feature, c.left, c.right): c for c in run.comparisons}
        self.slugs: dict[tuple[str, str], tuple[str, str]] = {}
        self._name_evidence()

    def view(self) -> ReportView:
        run = self.run
        rows = tuple(self._matrix())
        return ReportView(
            banner=self._banner(),
            title=self._title(),
            answer=self._answer(),
            endpoints=self.names,
            reference=run.reference,
            pairs=self.pairs,
            facts=tuple(self._facts()),
            groups=tuple(self._groups()),
            quiet_groups=self._quiet_groups(),
            blockers=self._grouped(run.verdict.blockers),
            blocking_rows=len(run.verdict.blockers),
            not_known=tuple(self._not_known()),
            provenance=self._provenance(),
            instrument=self._instrument(),
            caveats=self._grouped(run.verdict.caveats),
            readiness=tuple(self._readiness()),
            expected=tuple(self._expected()),
            since=tuple(self._since()),
            compared_with=tuple(f"{name}: {run}" for name, run in self.run.compared_with.items()),
            broken_on_both=run.broken_on_both,
            properties=tuple(self._properties()),
            confounders=tuple(self._confounder(name) for name in run.confounders),
            matrix=rows,
            evidence=tuple(self._evidence()),
            fingerprints=tuple(self._fingerprints()),
            command=self._command(),
            costs=tuple(self._costs()),
            notes=run.notes,
            base_urls=tuple((s.name, public_url(s.endpoint.base_url)) for s in run.subjects),
            workload=self._workload(),
            context=blocks(run.framing.context),
            figures=tuple(self._figures()),
            benchmarks=tuple(benchmarks(run)),
            statuses=tuple(self._statuses(rows)),
            pictures=plots.available(),
            contradictions=tuple(self._contradictions()),
            declared=tuple(self._declared()),
        )

    # ----------------------------------------------------------------- first screen

    def _banner(self) -> tuple[str, ...]:
        if self.run.complete:
            return ()
        why = f": {self.run.interrupted}" if self.run.interrupted else ""
        judged = [(f.id, n) for f in self.run.features if f.kind is not Kind.COMPARISON for n in self.names]
        missing = sum(pair not in self.cells for pair in judged)
        left = f" {missing:,} of {count(len(judged), 'cell')} have no result." if missing else ""
        return (f"This run did not finish{why}.", f"What follows is only what it saw before.{left}")

    def _title(self) -> str:
        if self.run.framing.title:
            return self.run.framing.title
        candidates = [name for name in self.names if name != self.run.reference]
        use = f" for {self.run.profile.profile.id}" if self.run.profile else ""
        if self.run.reference is None or not candidates:
            return f"Can I rely on {_either(self.names)}{use}?"
        return f"Can {_either(candidates)} replace {self.run.reference}{use}?"

    def _answer(self) -> Answer:
        decision = self.run.verdict.decision
        mark, word = ANSWERS[decision]
        rest = self.run.verdict.sentence.removeprefix(f"{word}: ")
        if not self.run.complete:
            # Half a run may know of a blocker, but it is never a yes.
            mark, word = ("❌", "No, so far") if decision is Decision.NOT_READY else ("❔", "Not finished")
        return Answer(mark=mark, sentence=f"{word}: {rest}")

    def _facts(self) -> Iterator[FactRow]:
        for label, names in FACTS:
            facts = tuple(self._fact(subject, names) for subject in self.run.subjects)
            yield FactRow(label=label, facts=facts, differs=len({fact.value for fact in facts}) > 1)

    def _fact(self, subject: Subject, names: Sequence[str]) -> Fact:
        for name in names:
            known = subject.fingerprint.fields.get(name)
            if known is not None and known.value is not None:
                return Fact(value=known.value, how=known.how, source=known.source)
        if "model" in names and subject.endpoint.model:
            return Fact(value=subject.endpoint.model, how=How.DECLARED)
        return Fact(value="", how=How.UNKNOWN)

    def _groups(self) -> Iterator[GroupRow]:
        tallies = {(tally.group, tally.endpoint): tally for tally in self.run.groups}
        for group in self._group_names():
            found = [tallies.get((group, name)) for name in self.names]
            deltas = tuple(self._group_delta(group, left, right) for left, right in self.pairs)
            core = any(f.core and f.kind is Kind.JUDGED for f in self.run.features if f.group == group)
            if not core and not any(deltas):
                continue
            cells = tuple(
                Shown(
                    endpoint=name, mark=tally.status.mark, tally=f"{tally.supported}/{tally.total}", word=tally.status
                )
                if tally and tally.total
                else Shown(endpoint=name, mark="", tally="", word="no result" if core else "")
                for name, tally in zip(self.names, found, strict=True)
            )
            yield GroupRow(group=group, cells=cells, deltas=deltas)

    def _group_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(feature.group for feature in self.run.features))

    def _quiet_groups(self) -> tuple[str, ...]:
        shown = {row.group for row in self._groups()}
        judged = dict.fromkeys(f.group for f in self.run.features if f.kind is Kind.JUDGED)
        return tuple(group for group in judged if group not in shown)

    def _group_delta(self, group: str, left: str, right: str) -> str:
        """Count the deltas of a group's core and comparison rows."""
        counted: Counter[str] = Counter()
        for feature in self.run.features:
            compared = self.compared.get((feature.id, left, right))
            if compared and feature.group == group and (feature.core or feature.kind is Kind.COMPARISON):
                counted[_delta_word(compared)] += 1
        if not counted:
            return ""
        if set(counted) == {"same"}:
            return "same"
        return ", ".join(
            f"{number} {word}" for word, number in sorted(counted.items(), key=_delta_order) if word != "same"
        )

    def _grouped(self, rows_named: Sequence[str]) -> tuple[Blocker, ...]:
        """Fold rows of one endpoint that have one cause, else those that say the same, in the verdict's order."""
        grouped: dict[tuple[str, ...], list[str]] = {}
        for row in rows_named:
            feature, endpoint = _split(row)
            cause = self.run.causes.get(row_key(feature, endpoint), "")
            key = (endpoint, cause) if cause else (endpoint, *self._said(feature, endpoint))
            grouped.setdefault(key, []).append(feature)
        return tuple(
            self._blocker(number, key[0], key[1] if len(key) == 2 else "", rows)
            for number, (key, rows) in enumerate(grouped.items(), start=1)
        )

    def _blocker(self, number: int, endpoint: str, cause: str, rows: Sequence[str]) -> Blocker:
        said = [self._said(feature, endpoint) for feature in rows]
        mark, _, reason = min(said, key=lambda one: _MARK_ORDER.get(one[0], len(_MARK_ORDER)))
        return Blocker(
            number=number,
            endpoint=endpoint,
            rows=tuple((feature, self._ref(feature, endpoint)) for feature in rows),
            mark=mark,
            word=", ".join(dict.fromkeys(word for _, word, _ in said)),
            reason=f"{cause} ({reason})" if cause and reason else cause or reason,
            remedy=next(filter(None, (self.run.remedies.get(row_key(f, endpoint), "") for f in rows)), ""),
            known_issues=tuple(dict.fromkeys(issue for f in rows for issue in self._issues(f, endpoint))),
        )

    def _said(self, feature: str, endpoint: str) -> tuple[str, str, str]:
        cell = self.cells.get((feature, endpoint))
        compared = next((c for c in self.run.comparisons if c.feature == feature and c.right == endpoint), None)
        if compared and (cell is None or cell.kind is not Kind.JUDGED or compared.delta is Delta.DRIFT):
            return "", _delta_word(compared), compared.why
        if cell is None:
            return "", "no result", ""
        if compared and ITEMS_BEHIND in compared.measured:
            return cell.status.mark, f"{cell.status} {cell.tally}".strip(), compared.why
        return cell.status.mark, f"{cell.word} {cell.tally}".strip(), cell.reason

    def _issues(self, feature: str, endpoint: str) -> tuple[str, ...]:
        cell = self.cells.get((feature, endpoint))
        return cell.known_issues if cell else ()

    def _known(self, feature: str, references: Sequence[str]) -> Iterator[KnownView]:
        for reference in references:
            said = [
                f"{one.title} ({one.standing})" + (f" {one.note}" if one.note else "")
                for one in self.run.known_issues
                if one.reference == reference and feature in one.rows
            ]
            yield KnownView(reference=reference, words=" ".join(said))

    def _contradictions(self) -> Iterator[ContradictionView]:
        """Fold the rows that one line of a matrix is wrong about in the same way; what has most rows comes first."""
        grouped: dict[tuple[str, str, str, str, str], list[Beside]] = {}
        for one in self.run.beside:
            if one.contradicts and one.seen is not None:
                key = (one.endpoint, one.declared.says.mark, one.seen.mark, one.declared.label, one.declared.words)
                grouped.setdefault(key, []).append(one)
        for (endpoint, mark, seen, label, words), rows in sorted(grouped.items(), key=lambda item: -len(item[1])):
            yield ContradictionView(
                endpoint=endpoint,
                declared=mark,
                seen=seen,
                rows=tuple((one.declared.row, self._ref(one.declared.row, endpoint)) for one in rows),
                words=words if label == rows[0].declared.row else f"{label}: {words}",
                covers=rows[0].declared.covers,
            )

    def _declared(self) -> Iterator[DeclaredView]:
        for matrix in self.run.matrices:
            mine = [one for one in self.run.beside if (one.endpoint, one.source) == (matrix.endpoint, matrix.source)]
            yield DeclaredView(
                endpoint=matrix.endpoint,
                source=matrix.source,
                as_of=matrix.as_of,
                digest=matrix.digest[:12],
                rows=tuple(self._declared_row(one, one.seen) for one in mine if one.seen in DECIDED),
                undecided=tuple(dict.fromkeys(one.declared.row for one in mine if one.seen not in DECIDED)),
                others=matrix.others,
            )

    def _declared_row(self, one: Beside, seen: Status | None) -> DeclaredRow:
        said = one.declared
        return DeclaredRow(
            row=said.row,
            declared=said.says.mark,
            words=said.words if said.label == said.row else f"{said.label}: {said.words}",
            seen=f"{seen.mark} {seen}" if seen is not None else "",
            contradicts=one.contradicts,
            ref=self._ref(said.row, one.endpoint),
        )

    def _not_known(self) -> Iterator[NotKnown]:
        """List what is undecided or was not run, or nothing at all: the reader is told either way."""
        listed: set[str] = set()
        for status, words in (
            (Status.INCONCLUSIVE, "the experiment ran and could not tell"),
            (Status.ERROR, "trouble on our side or in between"),
        ):
            cells = [c for c in self._judged_cells(core=True) if c.status is status]
            listed |= {row_key(c.feature, c.endpoint) for c in cells}
            if cells:
                yield _some(
                    f"{status.mark} {self._cells(len(cells), 'core ')}: {words}",
                    [f"{self._row(c.feature, c.endpoint)}: {c.reason}" for c in cells],
                )
        yield from self._not_run(listed)
        soft = [c for c in self._judged_cells(core=False) if c.status in {Status.INCONCLUSIVE, Status.ERROR}]
        listed |= {row_key(c.feature, c.endpoint) for c in soft}
        if soft:
            yield _some(
                f"{self._cells(len(soft), 'extended ')} undecided", [self._row(c.feature, c.endpoint) for c in soft]
            )
        unclear = [
            c
            for c in self.run.comparisons
            if c.delta is Delta.UNCLEAR and self.features[c.feature].kind is Kind.COMPARISON
        ]
        listed |= {row_key(c.feature, c.right) for c in unclear}
        if unclear:
            yield _some(
                f"❔ {count(len(unclear), 'comparison')}: the figures do not tell",
                [f"{self._row(c.feature, c.right)}: {c.why}" for c in unclear],
            )
        rest = [row for row in self.run.verdict.unknown if row not in listed]
        if rest:
            yield _some(
                f"❔ {count(len(rest), 'row')}: could not be compared",
                [self._row(*_split(row)) for row in rest],
            )
        missing = [
            self._row(f.id, name)
            for f in self.run.features
            if f.kind is not Kind.COMPARISON
            for name in self.names
            if (f.id, name) not in self.cells
        ]
        if missing:
            yield _some(f"{self._cells(len(missing))} without a result: the run ended before them", missing)

    def _not_run(self, listed: set[str]) -> Iterator[NotKnown]:
        skipped = [
            c
            for c in self.run.cells
            if c.status is Status.SKIPPED and c.feature in self.features and not self._lacking(c)
        ]
        if not skipped:
            return
        codes = Counter(c.skip_code or "no code" for c in skipped)
        core = [c for c in skipped if self.features[c.feature].core]
        listed |= {row_key(c.feature, c.endpoint) for c in skipped}
        why = ", ".join(f"{_skip_words(code)}: {number}" for code, number in sorted(codes.items(), key=_by_number))
        within = f", {len(core)} of them core" if core else ""
        yield _some(
            f"⏭ {self._cells(len(skipped))} not run, by decision{within} ({why})",
            [self._row(c.feature, c.endpoint) for c in core],
        )

    def _lacking(self, cell: Cell) -> bool:
        """Tell whether a row that is left out is one that an endpoint beside this one has."""
        return bool(cell.lacks) and any(each.side == cell.endpoint for each in self.run.compared(cell.feature))

    def _judged_cells(self, *, core: bool) -> Iterator[Cell]:
        for feature in self.run.features:
            if feature.kind is Kind.JUDGED and feature.core is core:
                for name in self.names:
                    cell = self.cells.get((feature.id, name))
                    if cell is not None:
                        yield cell

    def _cells(self, number: int, kind: str = "") -> str:
        return count(number, f"{kind}{'cell' if len(self.names) > 1 else 'row'}")

    def _row(self, feature: str, endpoint: str) -> str:
        return f"{feature} on {endpoint}" if len(self.names) > 1 else feature

    def _readiness(self) -> Iterator[ReadinessView]:
        """Say what each profile comes to; half a run may know of a blocker, but it is never a yes."""
        for each in self.run.readiness:
            decision = each.verdict.decision
            mark, _ = ANSWERS[decision]
            if not self.run.complete and decision is not Decision.NOT_READY:
                mark = "❔"
            yield ReadinessView(
                profile=each.profile.id,
                title=each.profile.title,
                as_of=each.profile.as_of.isoformat(),
                mark=mark,
                sentence=each.verdict.sentence,
            )

    def _expected(self) -> Iterator[ExpectedView]:
        for each in self.run.expected:
            until = each.expectation.until
            yield ExpectedView(
                row=each.expectation.row,
                endpoint=each.endpoint,
                standing=each.standing.value,
                why=each.why,
                reason=each.expectation.reason + (f" ({each.expectation.issue})" if each.expectation.issue else ""),
                until="" if until is None else until.isoformat(),
            )

    def _since(self) -> Iterator[SinceView]:
        for each in self.run.since:
            yield SinceView(
                row=each.feature, endpoint=each.endpoint, before=each.before, after=each.after, told=each.told
            )

    def _provenance(self) -> str:
        run = self.run
        took = f", {seconds((run.finished - run.started).total_seconds())}" if run.finished else ""
        return (
            f"servecheck {run.tool_version} (probes {run.probes_digest[:12]}), run {run.id}, suite {run.suite}, "
            f"{_moment(run.started)}{took}, {count(run.requests, 'request')}."
        )

    def _instrument(self) -> str:
        check = self.run.instrument
        if check is None:
            return "Instrument check: not known (servecheck selftest makes it)."
        warning = (
            "" if check.caught == check.seeded and not check.false_alarms else " Read this report with that in mind."
        )
        return (
            f"Instrument check: {check.caught:,} of {check.seeded:,} seeded faults caught, "
            f"{check.false_alarms:,} of {count(check.variations, 'harmless variation')} flagged.{warning}"
        )

    # ----------------------------------------------------------------- the rows

    def _matrix(self) -> Iterator[MatrixGroup]:
        for group in self._group_names():
            rows = tuple(
                self._matrix_row(feature)
                for feature in self.run.features
                if feature.group == group and feature.kind is not Kind.PROPERTY
            )
            if rows:
                yield MatrixGroup(group=group, rows=rows)

    def _matrix_row(self, feature: Feature) -> MatrixRow:
        reasons: list[tuple[str, str]] = []
        shown = []
        for name in self.names:
            cell = self.cells.get((feature.id, name))
            shown.append(self._shown(feature, name, cell))
            said = cell and (cell.status not in {Status.SUPPORTED, Status.SKIPPED} or self._lacking(cell))
            if cell and said and cell.kind is Kind.JUDGED:
                reasons.append((name if len(self.names) > 1 else "", cell.reason))
            if cell and cell.kind is Kind.JUDGED:
                reasons.extend((name if len(self.names) > 1 else "", note) for note in cell.notes)
        reasons.extend(
            ("", compared.why)
            for compared in self.run.compared(feature.id)
            if feature.kind is Kind.COMPARISON or compared.delta is Delta.DRIFT
        )
        deltas = tuple(self._delta(feature.id, left, right) for left, right in self.pairs)
        return MatrixRow(
            feature=feature.id,
            title=feature.title,
            core=feature.core,
            cells=tuple(shown),
            deltas=deltas,
            reasons=tuple(reasons),
            differs=any("behind" in delta or delta == Delta.DRIFT for delta in deltas),
        )

    @staticmethod
    def _statuses(groups: Iterable[MatrixGroup]) -> Iterator[tuple[str, str, int]]:
        """Count the rows in which a status stands, in the legend's order."""
        counted = Counter(
            word for group in groups for row in group.rows for word in {shown.word for shown in row.cells}
        )
        for status in Status:
            if counted[status.value]:
                yield status.mark, status.value, counted[status.value]

    def _figures(self) -> Iterator[FigureView]:
        for figure in drawn(self.run):
            file = f"figure-{figure.id}.svg" if self.files and plots.available() else ""
            yield FigureView(figure=figure, file=file)

    def _shown(self, feature: Feature, name: str, cell: Cell | None) -> Shown:
        if feature.kind is Kind.COMPARISON and (cell is None or cell.status in DECIDED):
            ref = self._ref(feature.id, name) if (feature.id, name) in self.slugs else None
            return Shown(endpoint=name, mark="", tally="", word="", ref=ref)
        if cell is None:
            return Shown(endpoint=name, mark="", tally="", word="no result")
        tally = (cell.skip_code or "") if cell.status is Status.SKIPPED else cell.tally
        tally = cell.word if self._lacking(cell) else tally
        return Shown(
            endpoint=name, mark=cell.status.mark, tally=tally, word=cell.status, ref=self._ref(feature.id, name)
        )

    def _delta(self, feature: str, left: str, right: str) -> str:
        compared = self.compared.get((feature, left, right))
        return _delta_word(compared) if compared else ""

    def _properties(self) -> Iterator[PropertyRow]:
        for feature in self.run.features:
            if feature.kind is not Kind.PROPERTY:
                continue
            facts = tuple(self._property(self.cells.get((feature.id, name))) for name in self.names)
            values = {fact.value for fact in facts if fact.how is not How.UNKNOWN}
            yield PropertyRow(feature=feature.id, title=feature.title, facts=facts, differs=len(values) > 1)

    @staticmethod
    def _property(cell: Cell | None) -> Fact:
        if cell is None:
            return Fact(value="", how=How.UNKNOWN, source="no result")
        if cell.value is not None:
            return Fact(value=cell.value, how=cell.how)
        why = _skip_words(cell.skip_code) if cell.skip_code else cell.reason
        return Fact(value="", how=How.UNKNOWN, source=why)

    def _confounder(self, name: str) -> str:
        """Say a confounder with its values where it is a field of the fingerprint or a property row."""
        values = []
        for subject in self.run.subjects:
            cell = self.cells.get((name, subject.name))
            known = subject.fingerprint.fields.get(name)
            if known is None and cell is None:
                return name
            value = known.value if known else cell.value if cell else None
            values.append(f"{value if value is not None else 'unknown'} on {subject.name}")
        return f"{name}: {', '.join(values)}"

    def _fingerprints(self) -> Iterator[FactRow]:
        names = dict.fromkeys(name for subject in self.run.subjects for name in subject.fingerprint.fields)
        for name in names:
            facts = tuple(self._fingerprint(subject, name) for subject in self.run.subjects)
            yield FactRow(label=name, facts=facts, differs=len({fact.value for fact in facts}) > 1)

    @staticmethod
    def _fingerprint(subject: Subject, name: str) -> Fact:
        known = subject.fingerprint.fields.get(name)
        if known is None or known.value is None:
            return Fact(value="", how=How.UNKNOWN, source=known.source if known else "")
        return Fact(value=known.value, how=known.how, source=known.source)

    def _command(self) -> str:
        """Return the command as typed, ready for a shell; what looks like a secret is left out."""
        shown, header = [], False
        for word in self.run.command:
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

    def _costs(self) -> Iterator[str]:
        for cost in self.run.costs:
            tokens = [
                f"{number:,} {word}"
                for number, word in ((cost.prompt_tokens, "prompt"), (cost.output_tokens, "output"))
                if number is not None
            ]
            said = f"{' and '.join(tokens)} tokens" if tokens else "tokens not reported"
            yield f"{cost.endpoint}: {count(cost.requests, 'request')}, {said}, {seconds(cost.seconds)}"

    # ----------------------------------------------------------------- the caller's own

    def _workload(self) -> WorkloadView | None:
        found = self.run.workload
        if found is None:
            return None
        return WorkloadView(
            source=found.source,
            sentences=tuple(sentences(found, self.names)),
            notes=found.notes,
            short=tuple(self._item(one) for one in found.seen if one.state != "enforced"),
        )

    def _item(self, seen: ItemSeen) -> WorkloadItemView:
        item = seen.item
        ids = [name for name in seen.evidence if name in self.run.exchanges]
        return WorkloadItemView(
            kind=item.kind,
            name=item.name,
            endpoint=seen.endpoint,
            place=item.place,
            uses=f"{item.uses:,}" if item.uses is not None else "",
            mark=seen.status.mark,
            word=f"{state_words(item.kind, seen.state)} {seen.trials}".strip(),
            why=seen.why,
            feature=seen.feature,
            ref=self._ref(seen.feature, seen.endpoint),
            exchanges=ExchangeViews(ids, self.run.exchanges, self.curl),
        )

    # ----------------------------------------------------------------- evidence

    def _name_evidence(self) -> None:
        """Give every cell with evidence, and every comparison that is not the same, a heading with a unique anchor."""
        taken: set[str] = set()
        for feature, endpoint in self._with_evidence():
            base = f"{heading_word(feature)} on {heading_word(endpoint)}"
            suffix, anchor, number = "", slug(base), 1
            while anchor in taken:
                number += 1
                suffix = f"({number})"
                anchor = slug(f"{base} {suffix}")
            taken.add(anchor)
            self.slugs[feature, endpoint] = (anchor, suffix)

    def _with_evidence(self) -> Iterator[tuple[str, str]]:
        order = dict.fromkeys(_split(row) for row in self.run.verdict.blockers)
        for feature in self.run.features:
            for name in self.names:
                order.setdefault((feature.id, name))
        for feature_id, name in order:
            cell = self.cells.get((feature_id, name))
            drifted = any(c.right == name and self._of_its_own(c) for c in self.run.compared(feature_id))
            if drifted or (cell is not None and cell.kind is not Kind.COMPARISON and _has_evidence(cell)):
                yield feature_id, name

    def _of_its_own(self, compared: Comparison) -> bool:
        """Return whether a comparison shows more than two cells do."""
        feature = self.features.get(compared.feature)
        row = feature is not None and feature.kind is Kind.COMPARISON
        return compared.delta is Delta.DRIFT or (row and bool(compared.measured or compared.evidence or compared.why))

    def _ref(self, feature: str, endpoint: str) -> Ref | None:
        named = self.slugs.get((feature, endpoint))
        return Ref(named[0], "evidence.md" if self._green(feature, endpoint) else "") if named else None

    def _green(self, feature: str, endpoint: str) -> bool:
        compared = [c for c in self.run.compared(feature) if c.right == endpoint and self._of_its_own(c)]
        cell = self.cells.get((feature, endpoint))
        fine = cell is None or cell.kind is not Kind.JUDGED or cell.status is Status.SUPPORTED
        return fine and all(c.delta is Delta.SAME for c in compared)

    def _evidence(self) -> Iterator[EvidenceView]:
        for (feature_id, endpoint), (anchor, suffix) in self.slugs.items():
            feature = self.features.get(feature_id)
            cell = self.cells.get((feature_id, endpoint))
            compared = [c for c in self.run.compared(feature_id) if c.right == endpoint and self._of_its_own(c)]
            mark, word, reason = self._said(feature_id, endpoint)
            if cell is not None and cell.kind is Kind.PROPERTY:
                mark, word = "", f"{cell.value if cell.value is not None else 'unknown'} ({cell.how})"
            seen = tuple(checks_seen(self.run, cell)) if cell else ()
            ids = dict.fromkeys(i for check in seen for i in check.evidence)
            ids.update(dict.fromkeys(i for c in compared for i in c.evidence))
            faults = self.run.faults.get(row_key(feature_id, endpoint), ())
            ids.update(dict.fromkeys(i for fault in faults for i in fault.evidence))
            yield EvidenceView(
                slug=anchor,
                endpoint=endpoint,
                heading=(heading_word(feature_id), heading_word(endpoint)),
                suffix=suffix,
                green=self._green(feature_id, endpoint),
                mark=mark,
                word=word,
                tally="",
                core=feature.core if feature else False,
                question=feature.question if feature else "",
                reason=reason,
                parts=cell.parts if cell else "",
                notes=cell.notes if cell else (),
                known_issues=tuple(self._known(feature_id, cell.known_issues if cell else ())),
                seen=seen,
                measured=tuple(dict.fromkeys(pair for c in compared for pair in figures(c.measured))),
                faults=tuple(
                    dict.fromkeys(
                        FaultView(kind=fault.kind, reason=fault.reason, trace=fault.trace) for fault in faults
                    )
                ),
                exchanges=ExchangeViews((i for i in ids if i in self.run.exchanges), self.run.exchanges, self.curl),
                missing=tuple(i for i in ids if i not in self.run.exchanges),
            )


def _has_evidence(cell: Cell) -> bool:
    return bool(cell.findings) or (cell.status is Status.ERROR and bool(cell.reason))


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)


def _split(row: str) -> tuple[str, str]:
    feature, _, endpoint = row.partition("@")
    return feature, endpoint


def _some(headline: str, items: Sequence[str], limit: int = 5) -> NotKnown:
    return NotKnown(headline=headline, items=tuple(items[:limit]), more=max(0, len(items) - limit))


def _by_number(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _skip_words(code: str) -> str:
    if code.startswith("needs:"):
        return f"needs {code.removeprefix('needs:')} first"
    return SKIP_WORDS.get(code, code)


def _delta_word(compared: Comparison) -> str:
    """Return the delta as a column about the right endpoint says it; the left one is named where it is behind."""
    if compared.delta is Delta.BEHIND and compared.side not in {None, compared.right}:
        return f"{compared.side} behind"
    return compared.delta.value


def _delta_order(item: tuple[str, int]) -> tuple[int, str]:
    word = item[0]
    return ("behind", "drift", "unclear").index(word) if word in {"behind", "drift", "unclear"} else 3, word


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _header(word: str) -> str:
    name, colon, _ = word.partition(":")
    return f"{name}{colon} …" if SECRET.search(name) else word
