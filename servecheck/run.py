"""A run from plan to report: carry it out into a run folder, and read any run folder back, judged anew.

The report is always made from the folder, so judging offline gives the same cells as the run did.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from servecheck import (
    __version__,
    compare,
    declared,
    expectations,
    features,
    formats,
    history,
    known_issues,
    profiles,
    root_causes,
    verdict,
)
from servecheck.budget import Budget
from servecheck.declared import Matrix
from servecheck.endpoints import key_variable, secret_headers
from servecheck.errors import StoreError
from servecheck.expectations import Expectation, Met
from servecheck.join import Recorded, recorded_unlike
from servecheck.judging import BUILT_IN_CHECKS, Canaries, settle_hangs
from servecheck.model import (
    Cell,
    Check,
    Comparison,
    Endpoint,
    Exchange,
    Feature,
    Fingerprint,
    Json,
    Level,
    Risk,
    SkipCode,
    Status,
    Transcript,
    Trial,
    Verdict,
)
from servecheck.plan import Estimate, Plan, Settings, Skip
from servecheck.probe import Params, Probe
from servecheck.profiles import Profile, Readiness
from servecheck.read import reply
from servecheck.report.data import Cost, InstrumentCheck, RunReport, Subject, row_key
from servecheck.report.figures import sampled
from servecheck.report.framing import Framing, from_header
from servecheck.runner import Connect, Earlier, Progress, Runner, judged
from servecheck.scenario import Scenario, Tune
from servecheck.store import CaseEnd, RunReader, RunWriter, to_json
from servecheck.tally import ITEMS_BEHIND, WorkloadTally, sentence, tally, with_items
from servecheck.wire.redact import without_secrets
from servecheck.wire.transport import Transport
from servecheck.workload import Planned, PlannedItem

__all__ = ["Connect", "carry_out", "connector", "instrument_check", "plan_of", "probes_digest", "read_back"]

Probes = Mapping[str, Probe[Params]]


def connector(environ: Mapping[str, str]) -> Connect:
    """Return how endpoints are reached over the network, with keys and secret headers from ``environ``."""

    def connect(endpoint: Endpoint) -> Transport:
        variable = key_variable(endpoint, environ)
        held = {name: environ[name] for _, name in endpoint.header_envs}
        secret_headers(endpoint, environ)  # raises where one is missing or would travel unencrypted
        if variable is not None:
            held[variable] = environ[variable]
        return Transport(endpoint, secrets=held, key_env=variable)

    return connect


async def carry_out(
    plan: Plan,
    probes: Probes,
    folder: Path,
    connect: Connect,
    *,
    command: Sequence[str] = (),
    budget: Budget | None = None,
    watch: Callable[[Progress], None] = lambda _: None,
    resume: bool = False,
    instrument: InstrumentCheck | None = None,
    profile: Profile | None = None,
    expected: Sequence[Expectation] = (),
    previous: Mapping[str, Json] | None = None,
    framing: Framing | None = None,
    matrices: Sequence[Matrix] = (),
    recorded: Recorded | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Carry out a plan into ``folder``; an interrupted run leaves a valid folder whose footer says so.

    ``instrument`` is what is known of the probes themselves, as :func:`instrument_check` says it. ``profile``,
    ``expected`` and ``matrices`` are kept in the folder, so that reading it back says the same, as is what
    :func:`history.previous_of` knew of the ``previous`` runs. A ``recorded`` reference is copied into the folder first;
    probes are driven with its transcripts and judged against them, as if it had answered in this run.

    Raises ``StoreError`` where the folder cannot be written, ``UsageError`` where an endpoint's model is ambiguous.
    """
    # What cannot be reached at all (no key, no CA file) is noticed before a folder is made.
    ways = {endpoint.name: connect(endpoint) for endpoint in plan.endpoints}
    earlier = _earlier(folder, probes) if resume else Earlier()
    writer = RunWriter(folder, resume=resume)
    asked = {
        "profile": profiles.as_header(profile),
        "expectations": to_json(expectations.as_header(expected)),
        "previous": dict(previous or {}),
        **({"framing": framing.as_header()} if framing and framing != Framing() else {}),
        "declared": to_json(declared.as_header(matrices)),
    }
    header = _header(plan, probes, command, now(), instrument)
    if recorded is not None:
        header = recorded.header(header)
    writer.header(**header, **asked)
    if recorded is not None:
        last = recorded.copy(writer, header)
        earlier = Earlier(references=_trials(RunReader(folder), probes)[1], last_id=last)
    runner = Runner(
        plan, probes, lambda endpoint: ways[endpoint.name], writer, budget=budget, watch=watch, earlier=earlier
    )
    interrupted = None
    try:
        await runner.run()
    except (asyncio.CancelledError, KeyboardInterrupt):
        interrupted = "interrupted by the user"
        raise
    except BaseException as error:
        interrupted = f"{type(error).__name__}: {error}"
        raise
    finally:
        _close(writer, folder, probes, runner, interrupted, now())


def _earlier(folder: Path, probes: Probes) -> Earlier:
    """Return what the parts of an interrupted run have done; what was our trouble or the budget's is done again."""
    reader = RunReader(folder)
    if reader.header.get("probes_digest") != probes_digest(probes):
        raise StoreError(f"{folder} was recorded by other probes than these; start a new run")
    trials, references = _trials(reader, probes)
    return Earlier(
        trials=tuple(
            trial for trial in trials if trial.status is not Status.ERROR and trial.skip_code != SkipCode.BUDGET
        ),
        references=references,
        last_id=max((int(str(line["id"])[1:]) for line in reader.lines("exchange")), default=0),
        parts=sum(1 for _ in reader.lines("header")),
    )


def _close(
    writer: RunWriter, folder: Path, probes: Probes, runner: Runner, interrupted: str | None, finished: datetime
) -> None:
    """Write the cells and the footer. Cells are for whoever reads the file without us; judging makes them again."""
    for cell in _Judged(RunReader(folder), probes).cells:
        row: dict[str, Json] = {"feature": cell.feature, "endpoint": cell.endpoint, "status": cell.status}
        writer.write("cell", **row, reason=cell.reason, trials=to_json(cell.trials), skip_code=cell.skip_code)
    writer.write(
        "footer",
        finished=finished.isoformat(),
        complete=interrupted is None,
        interrupted=interrupted,
        spent={name: to_json(spent) for name, spent in runner.spent.items()},
    )
    writer.close()


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
    judged_run = _Judged(reader, probes, profile or profiles.from_header(reader.header.get("profile")))
    known = expectations.from_header(reader.header.get("expectations")) if expected is None else expected
    header, footer = reader.header, reader.footer
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
        interrupted=_text(footer.get("interrupted")) if footer else None,
        suite=str(header.get("suite", "")),
        command=tuple(str(word) for word in _list(header.get("command"))),
        tool_version=str(header.get("version", "")),
        probes_digest=today,
        requests=sum(cost.requests for cost in judged_run.costs),
        subjects=tuple(Subject(endpoint=endpoint, fingerprint=known) for endpoint, known in judged_run.subjects),
        features=judged_run.rows,
        cells=judged_run.cells,
        groups=verdict.group_tallies(judged_run.cells, judged_run.rows),
        verdict=judged_run.answer,
        comparisons=judged_run.comparisons,
        reference=judged_run.reference,
        broken_on_both=judged_run.broken_on_both,
        confounders=judged_run.confounders,
        # What is said of the instrument is said of the probes that judged, which need not be those that drove.
        instrument=_instrument(header.get("instrument")) if same else instrument_check(probes),
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
        since=history.changes(_dict(header.get("previous")), judged_run.cells),
        compared_with={
            name: f"{_dict(last).get('run')} of {str(_dict(last).get('started'))[:10]}"
            for name, last in _dict(header.get("previous")).items()
        },
        expected=_met(judged_run, known, datetime.fromisoformat(str(header["started"])).date()),
        workload=judged_run.workload,
        samples=judged_run.samples,
        framing=from_header(header.get("framing")),
        known_issues=_referenced(judged_run.cells),
        matrices=said,
        beside=declared.beside(said, judged_run.cells),
    )


def _referenced(cells: Iterable[Cell]) -> tuple[known_issues.KnownIssue, ...]:
    """Return what is known of the issues that cells look like, in the order of their files."""
    wanted = {(reference, cell.feature) for cell in cells for reference in cell.known_issues}
    return tuple(one for one in known_issues.builtins() if any((one.reference, row) in wanted for row in one.rows))


def _met(judged_run: _Judged, expected: Iterable[Expectation], day: date) -> tuple[Met, ...]:
    return expectations.apply(expected, judged_run.cells, judged_run.comparisons, judged_run.rows, day=day)


def plan_of(folder: Path, probes: Probes) -> Plan:
    """Return the plan that a run folder was recorded with, to go on with it."""
    reader = RunReader(folder)
    settings = _dict(reader.header.get("settings"))
    trials = settings.get("trials")
    return Plan(
        endpoints=tuple(one for one, _ in reader.planned() if one.name != reader.header.get("recorded")),
        scenarios=tuple(_scenarios(reader, probes).values()),
        skips=tuple(
            Skip(feature=str(skip["feature"]), code=str(skip["code"]), reason=str(skip["reason"]))
            for item in _list(reader.header.get("skips"))
            if (skip := _dict(item))
        ),
        settings=Settings(
            suite=str(reader.header.get("suite", "standard")),
            trials=trials if isinstance(trials, int) else None,
            deadline=float(str(settings.get("deadline", 300.0))),
            concurrency=int(str(settings.get("concurrency", 8))),
            seed=str(settings.get("seed", "servecheck")),
            allow=frozenset(Risk(str(risk)) for risk in _list(settings.get("allow"))),
        ),
        estimate=Estimate(requests=0, prompt_tokens=0, output_tokens=0),
        workload=_planned(reader),
    )


def probes_digest(probes: Probes) -> str:
    """Return a digest of the code that decides: runs with unlike digests were judged by unlike rules."""
    modules = [inspect.getmodule(probe.judge) or probe.judge for _, probe in sorted(probes.items())]
    return hashlib.sha256("".join(map(inspect.getsource, modules)).encode()).hexdigest()[:12]


def instrument_check(probes: Probes) -> InstrumentCheck | None:
    """Return what the whole kill matrix said of exactly these probes, ``None`` where they have changed since.

    ``make docs`` measures it and writes it down, since it takes minutes that a run does not have.
    """
    known = _dict(json.loads(files("servecheck").joinpath("instrument.json").read_text("utf-8")))
    return _instrument(known) if known.get("probes_digest") == probes_digest(probes) else None


@dataclass(slots=True)
class _Judged:
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
    samples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answer: Verdict = field(init=False)

    def __post_init__(self) -> None:
        self.subjects = self.reader.endpoints()
        names = [endpoint.name for endpoint, _ in self.subjects]
        self.reference = next((endpoint.name for endpoint, _ in self.subjects if endpoint.reference), None)
        trials, _ = _trials(self.reader, self.probes, self.samples)
        if self.profile is not None:
            trials = profiles.raised(trials, self.profile.musts)
        self.rows = _rows(self.reader)
        self.cells = tuple(_cells(self.reader, self.rows, names, trials))
        planned = _planned(self.reader)
        if planned is not None:
            counts_for = {one.id: one.feature for one in _scenarios(self.reader, self.probes).values()}
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


def _trials(
    reader: RunReader, probes: Probes, samples: dict[str, tuple[str, ...]] | None = None
) -> tuple[list[Trial], dict[str, Transcript]]:
    """Return every trial judged anew, and the reference's transcripts that others are judged against, by scenario.

    ``samples`` is filled with the exchanges that the report draws besides the evidence, by row.
    """
    scenarios = _scenarios(reader, probes)
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


def _canaries(end: CaseEnd, own: Mapping[str, Exchange]) -> Canaries:
    return Canaries(
        before=own.get(end.before) if end.before else None,
        after=tuple(own[identifier] for identifier in end.after if identifier in own),
    )


def _rows(reader: RunReader) -> tuple[Feature, ...]:
    """Return the rows of a run: all that there are, and a user's own, planned or left out."""
    scenarios = [_dict(item) for item in _list(reader.header.get("scenarios"))]
    skips = [_dict(item) for item in _list(reader.header.get("skips"))]
    named = [(str(item["feature"]), str(item["title"])) for item in scenarios]
    return features.with_own([*named, *((str(item["feature"]), str(item["feature"])) for item in skips)])


def _checks(reader: RunReader, probes: Probes) -> dict[str, Check]:
    """Return the checks by id: the probes' own, those that every probe has, and those that the scenarios define."""
    found = {check.id: check for probe in probes.values() for check in (*probe.checks, *BUILT_IN_CHECKS)}
    for scenario in _scenarios(reader, probes).values():
        found |= {check.id: check for check in probes[scenario.probe].of(scenario.params).checks}
    return found


def _cells(reader: RunReader, rows: Sequence[Feature], names: Iterable[str], trials: Sequence[Trial]) -> Iterable[Cell]:
    # A skip is of a row on every endpoint, or in joined runs on the one that it names.
    skips = {
        (str(skip["feature"]), _text(skip.get("endpoint"))): skip
        for item in _list(reader.header.get("skips"))
        if (skip := _dict(item))
    }
    planned = {str(_dict(item)["feature"]) for item in _list(reader.header.get("scenarios"))}
    by_row: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        by_row.setdefault((trial.case.feature, trial.case.endpoint), []).append(trial)
    for name in names:
        for feature in rows:
            mine = by_row.get((feature.id, name))
            if mine:
                yield verdict.cell(feature, name, _settled(mine))
            elif left_out := skips.get((feature.id, name)) or skips.get((feature.id, None)):
                yield verdict.skipped(feature, name, str(left_out["code"]), str(left_out["reason"]))
            elif feature.id in planned:
                yield _not_reached(feature.id, name)
            else:
                yield verdict.no_probe(feature, name)


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
    reason = "the run ended before this row was reached"
    skipped = verdict.skipped(feature, endpoint, SkipCode.NOT_SELECTED, reason)
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


# --------------------------------------------------------------------------- header


def _header(
    plan: Plan, probes: Probes, command: Sequence[str], started: datetime, instrument: InstrumentCheck | None
) -> dict[str, Json]:
    settings = plan.settings
    return {
        "id": f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}",
        "started": started.isoformat(),
        "version": __version__,
        "probes_digest": probes_digest(probes),
        "suite": settings.suite,
        "command": list(command),
        "settings": {
            "trials": settings.trials,
            "deadline": settings.deadline,
            "concurrency": settings.concurrency,
            "seed": settings.seed,
            "allow": [str(risk) for risk in sorted(settings.allow)],
        },
        "instrument": to_json(instrument),
        "endpoints": to_json([without_secrets(endpoint) for endpoint in plan.endpoints]),
        "scenarios": [_scenario_fields(scenario) for scenario in plan.scenarios],
        "skips": to_json(plan.skips),
        **({"workload": to_json(plan.workload)} if plan.workload is not None else {}),
    }


def _scenario_fields(scenario: Scenario) -> dict[str, Json]:
    return {
        "id": scenario.id,
        "title": scenario.title,
        "feature": scenario.feature,
        "probe": scenario.probe,
        "why": scenario.why,
        "with": scenario.params.model_dump(mode="json"),
        "trials": scenario.trials,
        "tags": list(scenario.tags),
        "tune": {check: {"level": tune.level, "because": tune.because} for check, tune in scenario.tune.items()},
        "needs": list(scenario.needs),
    }


def _scenarios(reader: RunReader, probes: Probes) -> dict[str, Scenario]:
    found = {}
    for item in _list(reader.header.get("scenarios")):
        fields = _dict(item)
        probe = probes.get(str(fields["probe"]))
        if probe is None:
            raise StoreError(f"{reader.folder}: recorded by the probe {fields['probe']!r}, which does not exist here")
        tuned = {check: _dict(tune) for check, tune in _dict(fields.get("tune")).items()}
        trials = fields.get("trials")
        found[str(fields["id"])] = Scenario(
            id=str(fields["id"]),
            title=str(fields["title"]),
            feature=str(fields["feature"]),
            probe=probe.id,
            why=str(fields["why"]),
            params=_params(reader, probe, fields.get("with")),
            trials=trials if isinstance(trials, int) else None,
            tags=tuple(str(tag) for tag in _list(fields.get("tags"))),
            tune={name: Tune(level=Level(str(it["level"])), because=str(it["because"])) for name, it in tuned.items()},
            needs=tuple(str(need) for need in _list(fields.get("needs"))),
            path=Path(str(fields["id"])),
        )
    return found


def _planned(reader: RunReader) -> Planned | None:
    recorded = reader.header.get("workload")
    if not isinstance(recorded, dict):
        return None
    return Planned(
        source=str(recorded.get("source", "")),
        notes=tuple(str(note) for note in _list(recorded.get("notes"))),
        items=tuple(
            PlannedItem(
                kind=str(item["kind"]),
                name=str(item["name"]),
                place=str(item["place"]),
                uses=uses if isinstance(uses := item.get("uses"), int) else None,
                scenario=str(item["scenario"]),
            )
            for one in _list(recorded.get("items"))
            if (item := _dict(one))
        ),
    )


def _params(reader: RunReader, probe: Probe[Params], recorded: Json) -> Params:
    try:
        return probe.params.model_validate(recorded or {}, strict=False)
    except ValidationError as error:
        names = ", ".join(".".join(str(part) for part in problem["loc"]) for problem in error.errors())
        why = f"recorded with parameters that today's probe {probe.id!r} does not take ({names})"
        raise StoreError(f"{reader.folder}: {why}; read it with the version that recorded it") from error


def _instrument(value: Json) -> InstrumentCheck | None:
    numbers = {name: number for name, number in _dict(value).items() if isinstance(number, int)}
    return InstrumentCheck(**numbers) if len(numbers) == 4 else None


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
