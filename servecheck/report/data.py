"""What a report is made of: one finished (or died) run as plain values. Decided elsewhere, only shown from here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from servecheck.declared import Beside, Matrix
from servecheck.expectations import Met
from servecheck.known_issues import KnownIssue
from servecheck.model import (
    Cell,
    Check,
    Comparison,
    Endpoint,
    Exchange,
    Fault,
    Feature,
    Fingerprint,
    GroupTally,
    Verdict,
)
from servecheck.profiles import Readiness
from servecheck.report.framing import Framing
from servecheck.tally import WorkloadTally

__all__ = ["NOT_REACHED", "Cost", "InstrumentCheck", "RunReport", "Since", "Subject", "row_key"]


def row_key(feature: str, endpoint: str) -> str:
    """Return the name of a row on an endpoint, as a verdict writes it."""
    return f"{feature}@{endpoint}"


NOT_REACHED = "the run ended before this row was reached"
"""The reason of a row that a run which ended early did not come to: nobody's trouble but its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An endpoint with what is known about the server behind it."""

    endpoint: Endpoint
    fingerprint: Fingerprint

    @property
    def name(self) -> str:
        """The endpoint's name in this run."""
        return self.endpoint.name


@dataclass(frozen=True, slots=True, kw_only=True)
class InstrumentCheck:
    """How well these probes catch faults that were put in on purpose, and how often they cry wolf."""

    seeded: int
    caught: int
    variations: int
    false_alarms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run spent on one endpoint; tokens are ``None`` where the server did not report usage."""

    endpoint: str
    requests: int
    seconds: float
    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """A row that is not what it was in the run before; ``told`` says whether it was looked at more than once."""

    endpoint: str
    feature: str
    run: str
    started: datetime
    before: str
    after: str
    told: str
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Everything a report needs, and nothing that would have to be decided again.

    ``started`` and ``finished`` are aware. ``complete`` is false where the run folder has no footer; ``interrupted``
    says why, where that is known. ``features`` are in display order, and ``subjects`` have the reference first where
    there is one. ``instrument`` is ``None`` where it is not known. ``remedies`` and ``faults`` (one per trial that had
    one) are keyed by :func:`row_key`, and so are ``causes``: the one setting that explains a row, in words; rows with
    the same cause on an endpoint are shown as one entry. ``checks`` and ``exchanges`` are by id; those of a run
    folder are read when they are asked for, and one that is evidence but not there is shown by its id alone.
    Confounders are names of fingerprint fields or property rows, or sentences. ``readiness`` holds one entry a profile
    that was looked at, the one that the run was made for first; ``expected`` what became of the known deviations;
    ``since`` what is not as it was in the run before, ``compared_with`` those runs by endpoint. ``workload`` is what
    became of the caller's own schemas and tools, ``None`` where none were given. ``known_issues`` are those that cells
    look like; ``matrices`` what others declare of an endpoint, and ``beside`` that beside what was seen. ``framing`` is
    what the caller adds, ``samples`` are exchanges that figures are drawn from besides the evidence, by row key;
    ``timed`` has the exchanges with the bodies by which their times are told, where ``exchanges`` come without;
    ``joined`` says that two recordings are compared and nothing was sent; ``shut``
    says why an endpoint could not be asked at all.
    """

    id: str
    started: datetime
    finished: datetime | None
    complete: bool
    suite: str
    command: tuple[str, ...]
    tool_version: str
    probes_digest: str
    requests: int
    subjects: tuple[Subject, ...]
    features: tuple[Feature, ...]
    cells: tuple[Cell, ...]
    groups: tuple[GroupTally, ...]
    verdict: Verdict
    comparisons: tuple[Comparison, ...] = ()
    reference: str | None = None
    interrupted: str | None = None
    broken_on_both: tuple[str, ...] = ()
    confounders: tuple[str, ...] = ()
    instrument: InstrumentCheck | None = None
    exchanges: Mapping[str, Exchange] = field(default_factory=dict)
    checks: Mapping[str, Check] = field(default_factory=dict)
    remedies: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    costs: tuple[Cost, ...] = ()
    readiness: tuple[Readiness, ...] = ()
    expected: tuple[Met, ...] = ()
    since: tuple[Since, ...] = ()
    compared_with: Mapping[str, str] = field(default_factory=dict)
    workload: WorkloadTally | None = None
    samples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    timed: Mapping[str, Exchange] | None = None
    joined: bool = False
    framing: Framing = field(default_factory=Framing)
    known_issues: tuple[KnownIssue, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    beside: tuple[Beside, ...] = ()
    shut: Mapping[str, str] = field(default_factory=dict)
    exit_code: int | None = field(default=None, compare=False)
    """What the command line would end with, 0, 1 or 4; ``run_suite`` and ``read_run`` say it."""

    def __post_init__(self) -> None:
        for name, moment in (("started", self.started), ("finished", self.finished)):
            if moment is not None and moment.tzinfo is None:
                raise ValueError(f"{name} must be an aware datetime, got {moment.isoformat()}")

    @property
    def profile(self) -> Readiness | None:
        """What the run says of the profile that it was made for, ``None`` where it was made for none."""
        return next((each for each in self.readiness if each.chosen), None)

    def cell(self, feature: str, endpoint: str) -> Cell | None:
        """Return the cell of a row on an endpoint; ``None`` where the run ended before there was one."""
        return next((cell for cell in self.cells if cell.feature == feature and cell.endpoint == endpoint), None)

    def evidence(self, cell: Cell) -> Iterator[Exchange]:
        """Yield the exchanges that a cell rests on, each once, those of its findings first.

        What is named and not held is left out.
        """
        names = [name for finding in cell.findings for name in finding.evidence]
        names += [
            name for fault in self.faults.get(row_key(cell.feature, cell.endpoint), ()) for name in fault.evidence
        ]
        return (self.exchanges[name] for name in dict.fromkeys(names) if name in self.exchanges)

    def compared(self, feature: str) -> Iterator[Comparison]:
        """Yield the comparisons of a row, one per candidate, in the run's order."""
        return (comparison for comparison in self.comparisons if comparison.feature == feature)
