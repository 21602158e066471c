"""View → JUnit XML: one suite per endpoint, one test case per judged row; the why stays in the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from servecheck.model import Cell, Kind, Status
from servecheck.report.data import RunReport
from servecheck.report.evidence import checks_seen
from servecheck.report.text import shorten, visible

__all__ = ["junit_xml"]

ELEMENTS: Mapping[Status, str | None] = {
    Status.SUPPORTED: None,
    Status.DEGRADED: "system-out",
    Status.UNSUPPORTED: "failure",
    Status.IGNORED: "failure",
    Status.BROKEN: "failure",
    Status.FLAKY: "failure",
    Status.ERROR: "error",
    Status.INCONCLUSIVE: "skipped",
    Status.SKIPPED: "skipped",
}
"""What a status becomes inside a test case; degraded passes and says so."""

NO_RESULT = "no result: the run ended before this row"


def junit_xml(run: RunReport) -> str:
    """Return a run as JUnit XML: a run that did not finish has one more test case per suite, an error."""
    root = ET.Element("testsuites", name="servecheck")
    for subject in run.subjects:
        suite = ET.SubElement(root, "testsuite", name=visible(subject.name), hostname=visible(subject.name))
        counted: Counter[str] = Counter()
        if not run.complete:
            _case(
                suite, counted, "run", "complete", "error", f"the run did not finish: {run.interrupted or 'no footer'}"
            )
        for feature in run.features:
            if feature.kind is not Kind.JUDGED:
                continue
            cell = run.cell(feature.id, subject.name)
            if cell is None:
                _case(suite, counted, feature.group, feature.id, "skipped", NO_RESULT)
            else:
                _case(
                    suite,
                    counted,
                    feature.group,
                    feature.id,
                    ELEMENTS[cell.status],
                    _message(cell),
                    _details(run, cell),
                )
        for name, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(counted[element]))
        suite.set("tests", str(counted.total()))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(
    suite: ET.Element,
    counted: Counter[str],
    group: str,
    name: str,
    element: str | None,
    message: str,
    details: str = "",
) -> None:
    counted[element or "passed"] += 1
    case = ET.SubElement(suite, "testcase", classname=f"servecheck.{group}", name=name)
    if element == "system-out":
        ET.SubElement(case, element).text = visible(f"{message}\n{details}".strip())
    elif element is not None:
        inner = ET.SubElement(case, element, message=visible(shorten(message, 500)))
        inner.text = visible(details) or None


def _message(cell: Cell) -> str:
    status = f"{cell.status} {cell.tally}".strip()
    code = f" ({cell.skip_code})" if cell.skip_code else ""
    return f"{status}{code}: {cell.reason}" if cell.reason else f"{status}{code}"


def _details(run: RunReport, cell: Cell) -> str:
    lines = [
        f"{seen.check} ({seen.level}) {seen.word}: {seen.why} [{seen.where}]"
        + (f" exchanges {', '.join(seen.evidence)}" if seen.evidence else "")
        for seen in checks_seen(run, cell)
        if seen.word != "held"
    ]
    return shorten("\n".join(lines), 8_000)
