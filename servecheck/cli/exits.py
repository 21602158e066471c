"""How a command ends: the exit codes, and which of them a report makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servecheck.errors import UnknownName

if TYPE_CHECKING:
    from servecheck.report.data import RunReport
    from servecheck.verdict import FailOn

EXIT_USAGE, EXIT_NOTHING, EXIT_COULD_NOT_TELL, EXIT_INTERRUPTED = 2, 3, 4, 130


def level(name: str | None) -> FailOn | None:
    """Return what --fail-on names; ``UnknownName`` where there is no such level."""
    from servecheck.verdict import FailOn

    if name is not None and name not in {level.value for level in FailOn}:
        raise UnknownName("--fail-on", name, [level.value for level in FailOn])
    return FailOn(name) if name else None


def code_of(report: RunReport, fail_on: str | None) -> int:
    """Return the exit code of a report: 0, 1 or 4."""
    from servecheck import verdict

    return verdict.exit_code(
        report.verdict,
        report.cells,
        report.comparisons,
        report.features,
        has_reference=report.reference is not None,
        fail_on=level(fail_on),
        has_profile=report.profile is not None,
        excused=frozenset(filter(None, (each.excuses for each in report.expected))),
        stale=any(each.fails for each in report.expected),
    )
