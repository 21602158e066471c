"""What a reader sees of a run, as plain frozen values: every word decided, nothing escaped, no format's syntax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from servecheck.model import How, Level, Status
from servecheck.report.figures import Figure
from servecheck.report.framing import Listed

__all__ = [
    "Answer",
    "BenchmarkRow",
    "BenchmarksView",
    "Blocker",
    "CheckSeen",
    "ContradictionView",
    "DeclaredRow",
    "DeclaredView",
    "EvidenceView",
    "ExchangeView",
    "Fact",
    "FactRow",
    "FaultView",
    "FigureView",
    "GroupRow",
    "KnownView",
    "MatrixGroup",
    "MatrixRow",
    "NotKnown",
    "PropertyRow",
    "Ref",
    "ReportView",
    "Shown",
    "WorkloadItemView",
    "WorkloadView",
]


class Ref(NamedTuple):
    """Where the evidence of a cell is: ``slug`` is a heading's anchor; ``file`` is empty for the report itself."""

    slug: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of the run: a mark, and a sentence that opens with yes, no or why neither."""

    mark: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact about an endpoint; ``value`` is empty where it is not known."""

    value: str
    how: How
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """One fact about every endpoint, in endpoint order."""

    label: str
    facts: tuple[Fact, ...]
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a matrix shows for one cell or group; ``endpoint`` names its column."""

    endpoint: str
    mark: str
    tally: str
    word: str
    ref: Ref | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group's core rows on every endpoint; ``deltas`` has one entry per pair."""

    group: str
    cells: tuple[Shown, ...]
    deltas: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Rows of one endpoint with one cause, or that say the same: what blocks, or what is a caveat."""

    number: int
    endpoint: str
    rows: tuple[tuple[str, Ref | None], ...]
    mark: str
    word: str
    reason: str
    remedy: str
    known_issues: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotKnown:
    """One kind of thing that this run does not know: how many, what, and the first of them with their reasons."""

    headline: str
    items: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """A row on every endpoint; ``deltas`` has one entry per pair, ``reasons`` one per cell not green and per note."""

    feature: str
    title: str
    core: bool
    cells: tuple[Shown, ...]
    deltas: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...]
    differs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixGroup:
    """The rows of a group, in display order."""

    group: str
    rows: tuple[MatrixRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyRow:
    """A property on every endpoint."""

    feature: str
    title: str
    facts: tuple[Fact, ...]
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSeen:
    """What one check saw, equal trials folded into one: ``evidence`` is the first trial's, ``again`` the others'."""

    check: str
    level: Level
    mark: str
    word: str
    rule: str
    source: str
    why: str
    where: str
    measured: tuple[tuple[str, str], ...]
    expected: str | None
    actual: str | None
    evidence: tuple[str, ...]
    again: tuple[tuple[int, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultView:
    """Trouble that was not the server's: what it was, and our trace."""

    kind: str
    reason: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeView:
    """One request and its reply: a line of facts, a line of times, both bodies as bytes, and the command to replay."""

    id: str
    step: str
    request_line: str
    status: str
    ending: str
    detail: str
    timeline: str
    content_type: str
    request_body: bytes
    reply_body: bytes
    curl: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownView:
    """An upstream issue that a cell looks like; ``words`` are empty where only the reference is known."""

    reference: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """Why a cell (or a comparison) says what it says. ``heading`` is plain ASCII, so that ``slug`` is its anchor."""

    slug: str
    endpoint: str
    heading: tuple[str, str]
    suffix: str
    green: bool
    mark: str
    word: str
    tally: str
    core: bool
    question: str
    reason: str
    parts: str
    notes: tuple[str, ...]
    known_issues: tuple[KnownView, ...]
    seen: tuple[CheckSeen, ...]
    measured: tuple[tuple[str, str], ...]
    faults: tuple[FaultView, ...]
    exchanges: Sequence[ExchangeView]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessView:
    """Whether the endpoints are ready for one kind of application."""

    profile: str
    title: str
    as_of: str
    mark: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedView:
    """What became of one known deviation."""

    row: str
    endpoint: str
    standing: str
    why: str
    reason: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceView:
    """A row that is not what it was in the run before."""

    row: str
    endpoint: str
    before: str
    after: str
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadItemView:
    """A schema or tool of the caller's on an endpoint: where it comes from, what became of it, and the evidence."""

    kind: str
    name: str
    endpoint: str
    place: str
    uses: str
    mark: str
    word: str
    why: str
    feature: str
    ref: Ref | None
    exchanges: Sequence[ExchangeView]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """The caller's own schemas and tools: a sentence for each kind and endpoint, and every item that needs a look."""

    source: str
    sentences: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    short: tuple[WorkloadItemView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureView:
    """A figure, and the picture of it beside the report; ``file`` is empty where there is none."""

    figure: Figure
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRow:
    """One figure of a benchmark on every endpoint that has one; ``ratio`` is the other to the reference."""

    label: str
    values: tuple[str, ...]
    ratio: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarksView:
    """What a tool measured under one load, on two endpoints where they can be compared, else on one.

    ``unlike`` says why nothing stands beside it, empty where something does or nothing was given.
    """

    tool: str
    load: str
    endpoints: tuple[str, ...]
    rows: tuple[BenchmarkRow, ...]
    unlike: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContradictionView:
    """Rows of an endpoint that are not what one line of its support matrix says, and are all seen alike."""

    endpoint: str
    declared: str
    seen: str
    rows: tuple[tuple[str, Ref | None], ...]
    words: str
    covers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRow:
    """One row as it is declared and as it was seen; ``contradicts`` where these do not go together."""

    row: str
    declared: str
    words: str
    seen: str
    contradicts: bool
    ref: Ref | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredView:
    """One support matrix: whose, where from, its rows beside what was seen, those that the run did not decide, and its
    lines that nothing here probes.
    """

    endpoint: str
    source: str
    as_of: str
    digest: str
    rows: tuple[DeclaredRow, ...]
    undecided: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    """A whole report, in reading order."""

    banner: tuple[str, ...]
    title: str
    answer: Answer
    endpoints: tuple[str, ...]
    reference: str | None
    pairs: tuple[tuple[str, str], ...]
    facts: tuple[FactRow, ...]
    groups: tuple[GroupRow, ...]
    quiet_groups: tuple[str, ...]
    blockers: tuple[Blocker, ...]
    not_known: tuple[NotKnown, ...]
    provenance: str
    instrument: str
    caveats: tuple[Blocker, ...]
    readiness: tuple[ReadinessView, ...]
    expected: tuple[ExpectedView, ...]
    since: tuple[SinceView, ...]
    compared_with: tuple[str, ...]
    broken_on_both: tuple[str, ...]
    properties: tuple[PropertyRow, ...]
    confounders: tuple[str, ...]
    matrix: tuple[MatrixGroup, ...]
    evidence: tuple[EvidenceView, ...]
    fingerprints: tuple[FactRow, ...]
    command: str
    costs: tuple[str, ...]
    notes: tuple[str, ...]
    base_urls: tuple[tuple[str, str], ...]
    workload: WorkloadView | None = None
    contradictions: tuple[ContradictionView, ...] = ()
    declared: tuple[DeclaredView, ...] = ()
    context: tuple[str | Listed, ...] = ()
    uncounted: tuple[str, ...] = ()
    on_reference: tuple[Blocker, ...] = ()
    figures: tuple[FigureView, ...] = ()
    benchmarks: tuple[BenchmarksView, ...] = ()
    statuses: tuple[tuple[str, str, int], ...] = ()
    pictures: bool = False

    @property
    def contents(self) -> tuple[tuple[str, str], ...]:
        """Anchors and words of the sections that this report has, in reading order."""
        return tuple(
            (anchor, words)
            for anchor, words, there in (
                ("decide", "Decide", True),
                ("not-known", "Not known", True),
                ("your-workload", "Your workload", self.workload is not None),
                ("caveats", "Caveats", bool(self.caveats)),
                ("ready-for", "Ready for", bool(self.readiness)),
                ("since-the-last-run", "Since the last run", bool(self.compared_with)),
                ("matrix", "Matrix", True),
                ("measurements", "Measurements", bool(self.figures)),
                ("benchmarks", "Benchmarks", bool(self.benchmarks)),
                ("properties", "Properties", bool(self.properties)),
                ("evidence", "Evidence", True),
                ("legend", "Legend", True),
                ("reproduce", "Reproduce", True),
            )
            if there
        )

    @property
    def rows(self) -> int:
        """How many rows the matrix has."""
        return sum(len(group.rows) for group in self.matrix)

    @property
    def noticed(self) -> tuple[MatrixGroup, ...]:
        """The matrix without rows that are green or were left out on every endpoint and differ in nothing."""
        kept = (replace(group, rows=tuple(filter(_noticed, group.rows))) for group in self.matrix)
        return tuple(group for group in kept if group.rows)

    @property
    def not_green(self) -> tuple[EvidenceView, ...]:
        """The evidence that belongs into the report: what decides first, then display order."""
        return tuple(evidence for evidence in self.evidence if not evidence.green)


def _noticed(row: MatrixRow) -> bool:
    return row.differs or any(shown.word not in {"", Status.SUPPORTED, Status.SKIPPED} for shown in row.cells)
