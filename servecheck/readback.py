"""A run folder read back and judged anew: the one way to a report, during a run as long after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path

from servecheck import (
    asked,
    compare,
    declared,
    expectations,
    features,
    formats,
    history,
    known_issues,
    profiles,
    rollup,
    root_causes,
    shut,
    verdict,
)
from servecheck.asked import Probes, as_list, as_object, as_text, instrument_check, instrument_of, probes_digest
from servecheck.declared import Matrix
from servecheck.errors import StoreError
from servecheck.expectations import Expectation, Met
from servecheck.join import recorded_unlike
from servecheck.judging import BUILT_IN_CHECKS, Canaries, settle_hangs
from servecheck.model import (
    Cell,
    Check,
    Comparison,
    Decision,
    Endpoint,
    Exchange,
    Feature,
    Fingerprint,
    SkipCode,
    Status,
    Transcript,
    Trial,
    Verdict,
)
from servecheck.profiles import Profile, Readiness
from servecheck.read import reply
from servecheck.report.data import NOT_REACHED, Cost, RunReport, Subject, row_key
from servecheck.report.figures import sampled
from servecheck.report.framing import from_header
from servecheck.runner import judged
from servecheck.store import CaseEnd, RunReader
from servecheck.tally import ITEMS_BEHIND, WorkloadTally, sentence, tally, with_items

__all__ = ["Judged", "read_back", "trials_of"]


def read_back(
    folder: Path,
    probes: Probes,
    *,
    profile: Profile | None = None,
    expected: Sequence[Expectation] | None = None,
    matrices: Sequence[Matrix] | None = None,
) -> RunReport:
    """Read a run folder and judge it anew; a run without a footer died, and its report says so first.

    ``profile``, ``expected`` and ``matrices`` replace those that the run was made with.

    Raises ``StoreError`` where the folder holds no run.
    """
    reader = RunReader(folder)
    judged_run = Judged(reader, probes, profile or profiles.from_header(reader.header.get("profile")))
    known = expectations.from_header(reader.header.get("expectations")) if expected is None else expected
    header, footer = reader.header, reader.footer
    # A run may be given its history only when it is resumed.
    previous = next((found for line in reader.lines("header") if (found := as_object(line.get("previous")))), {})
    shown = {identifier for cell in judged_run.cells for identifier in _evidence(cell)}
    shown.update(identifier for ids in judged_run.samples.values() for identifier in ids)
    said = tuple(declared.from_header(header.get("declared"))) if matrices is None else tuple(matrices)
    recorded, today = str(header.get("probes_digest", "")), probes_digest(probes)
    same = recorded == today
    finished = footer.get("finished") if footer else None
    return RunReport(
        id=str(header["id"]),
        started=datetime.fromisoformat(str(header["started"])),
        finished=datetime.fromisoformat(str(finished)) if finished else None,
        complete=bool(footer and footer.get("complete")),
        interrupted=as_text(footer.get("interrupted")) if footer else None,
        suite=str(header.get("suite", "")),
        command=tuple(str(word) for word in as_list(header.get("command"))),
        tool_version=str(header.get("version", "")),
        probes_digest=today,
        requests=sum(cost.requests for cost in judged_run.costs),
        subjects=tuple(Subject(endpoint=endpoint, fingerprint=known) for endpoint, known in judged_run.subjects),
        features=judged_run.rows,
        cells=judged_run.cells,
        groups=rollup.group_tallies(judged_run.cells, judged_run.rows),
        verdict=judged_run.answer,
        comparisons=judged_run.comparisons,
        reference=judged_run.reference,
        broken_on_both=judged_run.broken_on_both,
        confounders=judged_run.confounders,
        # What is said of the instrument is said of the probes that judged, which need not be those that drove.
        instrument=instrument_of(header.get("instrument")) if same else instrument_check(probes),
        notes=(
            *(() if same else (f"Recorded by the probes {recorded} and judged anew by {today}.",)),
            *(note for endpoint, known in judged_run.subjects for note in formats.seen(endpoint.name, known)),
        ),
        exchanges=reader.exchanges(shown),
        checks=_checks(reader, probes),
        causes={row_key(row, hit.endpoint): hit.cause.title for hit in judged_run.causes for row in hit.rows},
        remedies={row_key(row, hit.endpoint): hit.cause.remedy for hit in judged_run.causes for row in hit.rows},
        faults={row_key(cell.feature, cell.endpoint): cell.faults for cell in judged_run.cells if cell.faults},
        costs=judged_run.costs,
        readiness=judged_run.readiness,
        since=history.changes(previous, judged_run.cells),
        compared_with={
            name: f"{as_object(last).get('run')} of {str(as_object(last).get('started'))[:10]}"
            for name, last in previous.items()
        },
        uncompared=history.uncompared(previous, judged_run.cells),
        expected=_met(judged_run, known, datetime.fromisoformat(str(header["started"])).date()),
        workload=judged_run.workload,
        shut=judged_run.shut,
        samples=judged_run.samples,
        joined="joined" in header,
        framing=from_header(header.get("framing")),
        known_issues=_referenced(judged_run.cells),
        matrices=said,
        beside=declared.beside(said, judged_run.cells),
    )


def _referenced(cells: Iterable[Cell]) -> tuple[known_issues.KnownIssue, ...]:
    """Return what is known of the issues that cells look like, in the order of their files."""
    wanted = {(reference, cell.feature) for cell in cells for reference in cell.known_issues}
    return tuple(one for one in known_issues.builtins() if any((one.reference, row) in wanted for row in one.rows))


def _met(judged_run: Judged, expected: Iterable[Expectation], day: date) -> tuple[Met, ...]:
    return expectations.apply(expected, judged_run.cells, judged_run.comparisons, judged_run.rows, day=day)


@dataclass(slots=True)
class Judged:
    """Everything that follows from a run folder and today's probes."""

    reader: RunReader
    probes: Probes
    profile: Profile | None = None
    subjects: tuple[tuple[Endpoint, Fingerprint], ...] = ()
    rows: tuple[Feature, ...] = ()
    cells: tuple[Cell, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    confounders: tuple[str, ...] = ()
    broken_on_both: tuple[str, ...] = ()
    costs: tuple[Cost, ...] = ()
    causes: tuple[root_causes.Hit, ...] = ()
    reference: str | None = None
    readiness: tuple[Readiness, ...] = ()
    workload: WorkloadTally | None = None
    shut: dict[str, str] = field(default_factory=dict)
    samples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answer: Verdict = field(init=False)

    def __post_init__(self) -> None:
        self.subjects = self.reader.endpoints()
        names = [endpoint.name for endpoint, _ in self.subjects]
        self.reference = next((endpoint.name for endpoint, _ in self.subjects if endpoint.reference), None)
        trials, _ = trials_of(self.reader, self.probes, self.samples)
        if self.profile is not None:
            trials = profiles.raised(trials, self.profile.musts)
        self.rows = asked.rows(self.reader)
        self.cells = tuple(_cells(self.reader, self.rows, names, trials))
        planned = asked.planned(self.reader)
        if planned is not None:
            counts_for = {one.id: one.feature for one in asked.scenarios(self.reader, self.probes).values()}
            self.workload = tally(planned, _settled_by_endpoint(trials, names), names, counts_for)
            self.cells = tuple(_with_count(cell, self.workload) for cell in self.cells)
        fingerprints = {endpoint.name: known for endpoint, known in self.subjects}
        self.cells = known_issues.applied(self.cells, fingerprints)
        found: list[Comparison] = []
        for name in names:
            if self.reference is not None and name != self.reference:
                left, right = self.reference, name
                rows = compare.compare(self.cells, self.rows, left=left, right=right, fingerprints=fingerprints)
                if self.workload is not None:
                    rows = with_items(rows, self.workload, left, right)
                found += rows
                unlike = compare.confounders(
                    fingerprints[left], fingerprints[right], self.cells, left=left, right=right
                )
                self.confounders = tuple(dict.fromkeys((*self.confounders, *unlike)))
                news = {row.feature for row in rows if ITEMS_BEHIND in row.measured}
                both = [row for row in compare.broken_on_both(self.cells, left, right) if row not in news]
                self.broken_on_both = tuple(dict.fromkeys((*self.broken_on_both, *both)))
        self.comparisons = tuple(found)
        self.confounders = (*recorded_unlike(self.reader.header), *self.confounders)
        self.answer = verdict.decide(self.cells, self.comparisons, self.rows, reference=self.reference)
        self.readiness = tuple(self._readiness(names, trials))
        if self.profile is not None:
            self.answer = self.readiness[0].verdict
        self.shut = {name: why for name, why in _shut(self.reader) if name in names}
        self.answer = _with_shut(self.answer, names, self.shut)
        self.costs = tuple(_costs(self.reader, names))
        self.causes = root_causes.explain(self.cells, fingerprints)

    def _readiness(self, names: Sequence[str], trials: Sequence[Trial]) -> Iterable[Readiness]:
        """Yield what the run says of the profile it was made for, and of every built-in one that it can speak of."""
        if self.profile is not None:
            yield profiles.readiness(
                self.profile, self.cells, self.comparisons, self.rows, reference=self.reference, chosen=True
            )
            return
        ran = {cell.feature for cell in self.cells if cell.status is not Status.SKIPPED}
        for profile in profiles.builtins():
            if 2 * len(ran & profile.rows.keys()) < len(profile.rows):
                continue  # a short look: everything would be unknown
            cells = self.cells
            if profile.musts:
                cells = tuple(_cells(self.reader, self.rows, names, profiles.raised(trials, profile.musts)))
            yield profiles.readiness(profile, cells, self.comparisons, self.rows, reference=self.reference)


def trials_of(
    reader: RunReader, probes: Probes, samples: dict[str, tuple[str, ...]] | None = None
) -> tuple[list[Trial], dict[str, Transcript]]:
    """Return every trial judged anew, and the reference's transcripts that others are judged against, by scenario.

    ``samples`` is filled with the exchanges that the report draws besides the evidence, by row.
    """
    scenarios = asked.scenarios(reader, probes)
    known = {endpoint.name: (endpoint, fingerprint) for endpoint, fingerprint in reader.endpoints()}
    references = {endpoint.name for endpoint, _ in known.values() if endpoint.reference}
    kept: dict[str, Transcript] = {}
    trials: dict[str, Trial] = {}
    for end, exchanges, own in reader.cases():
        scenario = scenarios.get(end.case.scenario)
        if scenario is None:
            raise StoreError(f"{reader.folder}: case {end.case.id} is of a scenario that the header does not hold")
        probe = probes[scenario.probe]
        endpoint, fingerprint = known[end.case.endpoint]
        transcript = Transcript(exchanges=exchanges, model=endpoint.model, fingerprint=fingerprint)
        if samples is not None and (drawn := tuple(sampled(scenario.feature, transcript))):
            samples[row_key(scenario.feature, end.case.endpoint)] = drawn
        left = None if end.case.endpoint in references else kept.get(scenario.id)
        # A case that a resumed run did again replaces what it was.
        trials[end.case.id] = judged(end, scenario, probe, transcript, _canaries(end, own), left)
        if (probe.contrast is not None or probe.needs_reference) and end.case.endpoint in references:
            kept[scenario.id] = transcript
    return list(trials.values()), kept


def _shut(reader: RunReader) -> Iterable[tuple[str, str]]:
    """Yield the endpoints that could not be asked at all, each with the reason."""
    endpoints = {endpoint.name: endpoint for endpoint, _ in reader.endpoints()}
    lines = list(reader.lines("endpoint"))
    ids = [str(name) for line in lines for name in (*as_object(line.get("asked")).values(), line.get("canary"))]
    found = reader.exchanges(ids)
    for line in lines:
        endpoint = endpoints.get(str(line.get("name")))
        steps = as_object(line.get("asked")).items()
        plain = str(line.get("canary"))
        asked = {step: found[str(name)] for step, name in steps if str(name) in found}
        models = [str(each) for each in as_list(line.get("models"))]
        if endpoint is None or not asked:
            continue
        why = shut.why(endpoint, asked, found.get(plain), models)
        if why is not None:
            yield endpoint.name, why


def _with_shut(answer: Verdict, names: Sequence[str], closed: Mapping[str, str]) -> Verdict:
    """Return an answer that says first what could not be asked; last where there is a shortfall besides."""
    if not closed:
        return answer
    said = "; ".join(f"{name} could not be asked: {why}" for name, why in closed.items())
    word, _, rest = answer.sentence.partition(": ")
    if shut.all_shut(names, closed):
        return replace(answer, sentence=f"{word}: {said}.")
    if answer.decision is Decision.CANNOT_TELL:
        return replace(answer, sentence=f"{word}: {said}; {rest}")
    return replace(answer, sentence=f"{answer.sentence.removesuffix('.')}; {said}.")


def _canaries(end: CaseEnd, own: Mapping[str, Exchange]) -> Canaries:
    return Canaries(
        before=own.get(end.before) if end.before else None,
        after=tuple(own[identifier] for identifier in end.after if identifier in own),
    )


def _checks(reader: RunReader, probes: Probes) -> dict[str, Check]:
    """Return the checks by id: the probes' own, those that every probe has, and those that the scenarios define."""
    found = {check.id: check for probe in probes.values() for check in (*probe.checks, *BUILT_IN_CHECKS)}
    for scenario in asked.scenarios(reader, probes).values():
        found |= {check.id: check for check in probes[scenario.probe].of(scenario.params).checks}
    return found


def _cells(reader: RunReader, rows: Sequence[Feature], names: Iterable[str], trials: Sequence[Trial]) -> Iterable[Cell]:
    # A skip is of a row on every endpoint, or in joined runs on the one that it names.
    skips = {
        (str(skip["feature"]), as_text(skip.get("endpoint"))): skip
        for item in as_list(reader.header.get("skips"))
        if (skip := as_object(item))
    }
    planned = {str(as_object(item)["feature"]) for item in as_list(reader.header.get("scenarios"))}
    by_row: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        by_row.setdefault((trial.case.feature, trial.case.endpoint), []).append(trial)
    for name in names:
        for feature in rows:
            mine = by_row.get((feature.id, name))
            if mine:
                yield rollup.cell(feature, name, _settled(mine))
            elif left_out := skips.get((feature.id, name)) or skips.get((feature.id, None)):
                yield rollup.skipped(feature, name, str(left_out["code"]), str(left_out["reason"]))
            elif feature.id in planned:
                yield _not_reached(feature.id, name)
            else:
                yield rollup.no_probe(feature, name)


def _settled(trials: Sequence[Trial]) -> list[Trial]:
    settled: list[Trial] = []
    for scenario in dict.fromkeys(trial.case.scenario for trial in trials):
        settled += settle_hangs([trial for trial in trials if trial.case.scenario == scenario])
    return settled


def _settled_by_endpoint(trials: Sequence[Trial], names: Iterable[str]) -> list[Trial]:
    return [one for name in names for one in _settled([trial for trial in trials if trial.case.endpoint == name])]


def _with_count(cell: Cell, workload: WorkloadTally) -> Cell:
    """Return a row with a note that says how the workload's items did in it."""
    mine = [one for one in workload.seen if one.feature == cell.feature and one.endpoint == cell.endpoint]
    if not mine or cell.skip_code is not None:
        return cell
    return replace(cell, notes=(*cell.notes, f"your workload, {sentence(mine)}"))


def _not_reached(feature_id: str, endpoint: str) -> Cell:
    feature = features.get(feature_id)
    skipped = rollup.skipped(feature, endpoint, SkipCode.NOT_SELECTED, NOT_REACHED)
    return replace(skipped, status=Status.ERROR, skip_code=None)


def _costs(reader: RunReader, names: Sequence[str]) -> Iterable[Cost]:
    requests = dict.fromkeys(names, 0)
    seconds = dict.fromkeys(names, 0.0)
    prompt: dict[str, int] = {}
    output: dict[str, int] = {}
    for line in reader.lines("exchange"):
        name = str(line["endpoint"])
        exchange = reader.exchange(line)
        requests[name] += 1
        seconds[name] += exchange.ended_at
        usage = _usage(exchange)
        if usage is not None:
            prompt[name] = prompt.get(name, 0) + (usage.prompt or 0)
            output[name] = output.get(name, 0) + (usage.completion or 0)
    for name in names:
        yield Cost(
            endpoint=name,
            requests=requests[name],
            seconds=round(seconds[name], 1),
            prompt_tokens=prompt.get(name),
            output_tokens=output.get(name),
        )


def _usage(exchange: Exchange) -> reply.Usage | None:
    if exchange.method != "POST":
        return None
    answer = reply.chat(exchange)
    return answer.usage if isinstance(answer, reply.Answer) else None


def _evidence(cell: Cell) -> Iterable[str]:
    for finding in cell.findings:
        yield from finding.evidence
    for seen in cell.observed:
        yield from seen.evidence
    for fault in cell.faults:
        yield from fault.evidence
    yield from cell.lacks
