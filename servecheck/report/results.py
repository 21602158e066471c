"""A run as ``results.json``: field by field into the frozen shape of :mod:`servecheck.schema.results_v1`."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servecheck.bench import FIGURES, Benchmark
from servecheck.expectations import Met
from servecheck.known_issues import KnownIssue
from servecheck.model import DECIDED, Cell, Comparison, Feature, Finding, GroupTally, Kind, Known, Measured
from servecheck.profiles import Readiness
from servecheck.report.benchmarks import side_by_side
from servecheck.report.data import RunReport, Subject
from servecheck.report.figures import Figure, drawn
from servecheck.report.text import public_url
from servecheck.schema.results_v1 import (
    SCHEMA_ID,
    BenchmarkSideV1,
    BenchmarkV1,
    CellV1,
    ComparisonV1,
    DeclaredV1,
    EndpointV1,
    ExpectedV1,
    FigureV1,
    FindingV1,
    GroupV1,
    KnownIssueV1,
    KnownV1,
    MeasuredV1,
    PointV1,
    ReadinessV1,
    ResultsV1,
    RunV1,
    SeriesV1,
    SinceV1,
    ToolV1,
    VerdictV1,
    WorkloadCountV1,
    WorkloadItemV1,
    WorkloadSeenV1,
    WorkloadV1,
)
from servecheck.tally import ItemSeen, WorkloadTally, sentence

__all__ = ["results_text", "to_results", "write"]


def to_results(run: RunReport) -> dict[str, Any]:
    """Return a run as the JSON object of ``results.json``.

    Raises ``KeyError`` where a cell names a feature that the run does not list.
    """
    features = {feature.id: feature for feature in run.features}
    results = ResultsV1(
        schema=SCHEMA_ID,
        complete=run.complete,
        run=RunV1(
            id=run.id,
            started=run.started,
            finished=run.finished,
            suite=run.suite,
            tool=ToolV1(version=run.tool_version, probes_digest=run.probes_digest),
            requests=run.requests,
        ),
        endpoints=[_endpoint(subject, run.reference) for subject in run.subjects],
        cells=[
            _cell(cell, features[cell.feature])
            for cell in sorted(run.cells, key=lambda cell: (cell.feature, cell.endpoint))
        ],
        groups=[_group(tally) for tally in sorted(run.groups, key=lambda tally: (tally.group, tally.endpoint))],
        comparisons=[
            _comparison(comparison)
            for comparison in sorted(run.comparisons, key=lambda one: (one.feature, one.left, one.right))
        ],
        verdict=VerdictV1(
            decision=run.verdict.decision,
            sentence=run.verdict.sentence,
            blockers=list(run.verdict.blockers),
            caveats=list(run.verdict.caveats),
            unknown=list(run.verdict.unknown),
        ),
        readiness=[_readiness(each) for each in run.readiness],
        since=[
            SinceV1(
                row=each.feature,
                endpoint=each.endpoint,
                run=each.run,
                before=each.before,
                after=each.after,
                told=each.told,
            )
            for each in run.since
        ],
        expectations=[_expected(each) for each in run.expected],
        workload=_workload(run.workload) if run.workload is not None else None,
        known_issues=[_known_issue(each) for each in run.known_issues],
        declared=list(_declared(run)),
        figures=[_drawn(each) for each in drawn(run)],
        benchmarks=[_benchmark(sides, why) for sides, why in side_by_side(run)],
        notes=list(run.notes),
    )
    dumped: dict[str, Any] = _writable(results.model_dump(mode="json", by_alias=True))
    if dumped["workload"] is None:
        del dumped["workload"]
    for cell in dumped["cells"]:
        if not cell["measured"]:
            del cell["measured"]
    for endpoint in dumped["endpoints"]:
        for known in endpoint["fingerprint"].values():
            if known["source"] is None:
                del known["source"]
    return dumped


def _known_issue(each: KnownIssue) -> KnownIssueV1:
    return KnownIssueV1(
        reference=each.reference,
        title=each.title,
        engine=each.engine,
        rows=list(each.rows),
        versions=each.versions,
        fixed_in=each.fixed_in,
        confidence=each.confidence.value,
        as_of=each.as_of.isoformat(),
        note=each.note,
    )


def _declared(run: RunReport) -> Iterator[DeclaredV1]:
    digests = {(each.endpoint, each.source): each.digest for each in run.matrices}
    for each in run.beside:
        yield DeclaredV1(
            endpoint=each.endpoint,
            feature=each.declared.row,
            says=each.declared.says.value,
            label=each.declared.label,
            words=each.declared.words,
            covers=each.declared.covers or None,
            source=each.source,
            sha256=digests[each.endpoint, each.source],
            observed=each.seen,
            contradiction=each.contradicts,
        )


def _readiness(each: Readiness) -> ReadinessV1:
    return ReadinessV1(
        profile=each.profile.id,
        as_of=each.profile.as_of.isoformat(),
        chosen=each.chosen,
        decision=each.verdict.decision,
        sentence=each.verdict.sentence,
        blockers=list(each.verdict.blockers),
        caveats=list(each.verdict.caveats),
        unknown=list(each.verdict.unknown),
    )


def _expected(each: Met) -> ExpectedV1:
    return ExpectedV1(
        row=each.expectation.row,
        endpoint=each.endpoint,
        standing=each.standing.value,
        why=each.why,
        reason=each.expectation.reason,
        until=None if each.expectation.until is None else each.expectation.until.isoformat(),
        issue=each.expectation.issue,
    )


def results_text(run: RunReport) -> str:
    """Return a run as the text of ``results.json``: indented, one final newline, no NaN."""
    return json.dumps(to_results(run), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write(run: RunReport, path: Path) -> None:
    """Write ``results.json``. Raises ``OSError`` where the path cannot be written."""
    path.write_text(results_text(run), encoding="utf-8", newline="\n")


def _writable(value: Any) -> Any:  # noqa: ANN401  (JSON in, JSON out)
    """Write out lone surrogates, which no UTF-8 file can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_writable(item) for item in value]
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    return value


def _measured(measured: Measured) -> MeasuredV1:
    return {name: _figure(measured[name]) for name in sorted(measured)}


def _figure(value: float | str | bool | None) -> float | str | bool | None:
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return round(value, 6) if abs(value) >= 1 else float(f"{value:.6g}")


def _endpoint(subject: Subject, reference: str | None) -> EndpointV1:
    fields = subject.fingerprint.fields
    return EndpointV1(
        name=subject.name,
        base_url=public_url(subject.endpoint.base_url),
        model=subject.endpoint.model,
        reference=subject.name == reference,
        fingerprint={name: _known(fields[name]) for name in sorted(fields)},
    )


def _known(known: Known) -> KnownV1:
    return KnownV1(value=known.value, how=known.how, source=known.source or None)


def _finding(finding: Finding) -> FindingV1:
    return FindingV1(
        check=finding.check,
        level=finding.level,
        outcome=finding.outcome,
        route=finding.route,
        mode=finding.mode,
        why=finding.why,
        scenario=finding.scenario,
        trial=finding.trial,
        evidence=list(finding.evidence),
        measured=_measured(finding.measured),
    )


def _cell(cell: Cell, feature: Feature) -> CellV1:
    judged = cell.kind is Kind.JUDGED
    return CellV1(
        feature=cell.feature,
        group=feature.group,
        core=feature.core,
        endpoint=cell.endpoint,
        status=cell.status if judged or cell.status not in DECIDED else None,
        reason=cell.reason,
        skip_code=cell.skip_code,
        kind=cell.kind,
        trials=list(cell.trials) if judged else [],
        value=cell.value,
        how=None if judged else cell.how,
        findings=[_finding(finding) for finding in cell.findings],
        known_issues=list(cell.known_issues),
        measured={} if judged else _measured(cell.observed[0].measured if cell.observed else {}),
    )


def _group(tally: GroupTally) -> GroupV1:
    return GroupV1(
        group=tally.group,
        endpoint=tally.endpoint,
        status=tally.status,
        supported=tally.supported,
        total=tally.total,
    )


def _workload(found: WorkloadTally) -> WorkloadV1:
    groups = [
        (kind, name, mine)
        for kind in found.kinds
        for name in dict.fromkeys(one.endpoint for one in found.seen)
        if (mine := found.of(kind, name))
    ]
    items: dict[str, list[ItemSeen]] = {}
    for one in found.seen:
        items.setdefault(one.item.scenario, []).append(one)
    return WorkloadV1(
        source=found.source,
        notes=list(found.notes),
        counts=[
            WorkloadCountV1(
                kind=kind,  # type: ignore[arg-type]
                endpoint=name,
                sentence=sentence(mine),
                total=len(mine),
                counts=dict(sorted(Counter(one.state for one in mine).items())),
            )
            for kind, name, mine in groups
        ],
        items=[_workload_item(seen) for seen in items.values()],
    )


def _workload_item(seen: list[ItemSeen]) -> WorkloadItemV1:
    item = seen[0].item
    return WorkloadItemV1(
        kind=item.kind,  # type: ignore[arg-type]
        name=item.name,
        place=item.place,
        uses=item.uses,
        feature=seen[0].feature,
        scenario=item.scenario,
        seen=[
            WorkloadSeenV1(
                endpoint=one.endpoint,
                state=one.state,  # type: ignore[arg-type]
                why=one.why,
                keyword=one.keyword or None,
                trials=one.trials,
                evidence=list(one.evidence),
            )
            for one in seen
        ],
    )


def _comparison(comparison: Comparison) -> ComparisonV1:
    return ComparisonV1(
        left=comparison.left,
        right=comparison.right,
        feature=comparison.feature,
        delta=comparison.delta,
        side=comparison.side,
        why=comparison.why,
        measured=_measured(comparison.measured),
        confounders=list(comparison.confounders),
        evidence=list(comparison.evidence),
    )


def _drawn(figure: Figure) -> FigureV1:
    return FigureV1(
        id=figure.id,
        title=figure.title,
        kind=figure.kind,  # type: ignore[arg-type]
        x_label=figure.x_label,
        y_label=figure.y_label,
        places=list(figure.places),
        series=[
            SeriesV1(
                name=one.name,
                compared_with=one.dashed,
                points=[
                    PointV1(
                        at=figure.at(point),
                        x=_rounded(point.x) or 0.0,
                        y=_rounded(point.y) or 0.0,
                        low=_rounded(point.low),
                        high=_rounded(point.high),
                    )
                    for point in one.points
                ],
            )
            for one in figure.series
        ],
        note=figure.note or None,
    )


def _benchmark(sides: tuple[Benchmark, ...], why: str) -> BenchmarkV1:
    return BenchmarkV1(
        tool=sides[0].tool,
        load=sides[0].load,
        sides=[
            BenchmarkSideV1(
                endpoint=each.endpoint,
                version=each.version or None,
                model=each.model or None,
                day=each.day or None,
                at_once=_rounded(each.at_once),
                per_s=_rounded(each.per_s),
                completed=each.completed,
                failed=each.failed,
                prompt_tokens=_rounded(each.prompt_tokens),
                output_tokens=_rounded(each.output_tokens),
                figures={name: value for name in FIGURES if (value := _rounded(each.figures.get(name))) is not None},
            )
            for each in sides
        ],
        unlike=why or None,
    )


def _rounded(value: float | None) -> float | None:
    """Return a figure as :func:`_figure` writes it; ``None`` where there is none."""
    found = _figure(value)
    return None if found is None else float(found)
