"""View → ``report.md`` and ``evidence.md``. Only escaped text is ever printed, and both files stay inside a budget."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from servecheck.report import text
from servecheck.report.shapes import CheckSeen, EvidenceView, ReportView
from servecheck.report.text import Md, count

__all__ = [
    "EVIDENCE_LIMIT",
    "IN_EVIDENCE",
    "IN_REPORT",
    "IN_SUMMARY",
    "REPORT_LIMIT",
    "Detail",
    "evidence_md",
    "render",
    "report_md",
    "section",
    "templates_dir",
]

REPORT_LIMIT = 200_000
"""Bytes of ``report.md``, whatever happens: forges stop rendering large files."""

EVIDENCE_LIMIT = 2_000_000
"""Bytes of ``evidence.md``; what does not fit is in ``run.jsonl``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How much of an exchange is shown and where: bytes of a body and of a command, and exchanges per section."""

    place: str
    body: int
    curl: int
    exchanges: int


IN_REPORT = Detail(place="report", body=1_500, curl=6_000, exchanges=2)
IN_SUMMARY = Detail(place="summary", body=1_500, curl=6_000, exchanges=2)
IN_EVIDENCE = Detail(place="evidence", body=4_000, curl=200_000, exchanges=8)


def templates_dir() -> Path:
    """Return the folder of templates: the one inside an installed package, else the one of a checkout."""
    packaged = Path(__file__).parents[1] / "_templates"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "templates"


def render(template: str, values: Mapping[str, object]) -> Md:
    """Render a Markdown template. Raises ``TypeError`` where it prints a string that no filter escaped."""
    return Md(_environment().get_template(template).render(values))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  (Markdown: `finalize` refuses what no filter escaped)
        finalize=_only_escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.tests.update(plain=lambda part: isinstance(part, str))
    environment.filters.update(
        alt=_alt,
        block=text.block,
        cell=text.cell,
        cell_code=text.cell_code,
        code=text.code,
        link=text.link,
        prose=text.prose,
        aligned=_aligned,
        issue=_issue,
        lay_out=text.lay_out,
        sentence=text.sentence,
        shorten=text.shorten,
        size=_size,
        spans=text.spans,
        target=_target,
    )
    return environment


def _only_escaped(value: object) -> object:
    if isinstance(value, (Md, int)):
        return value
    raise TypeError(f"a template prints {value!r} unescaped; pass it through cell, prose, code, block or link")


def _target(part: str) -> Md:
    """Return a part of a relative link; anchors and file names are made by us, so anything else is a bug."""
    if not re.fullmatch(r"[0-9a-z_.-]*", part):
        raise ValueError(f"not an anchor or a file of this report: {part!r}")
    return Md(part)


def _alt(words: str) -> Md:
    """Return the words of a picture: inside its brackets nothing may be a link, and code spans are not shown."""
    return Md(re.sub(r"([\\`*\[\]<>|~#_&@$:!])", r"\\\1", " ".join(text.visible(words).split())))


def _issue(issue: str) -> Md:
    return text.link(issue, text.issue_words(issue)) if "://" in issue else text.prose(issue)


def _aligned(check: CheckSeen) -> str:
    """Return what was expected above what came, their beginnings under each other."""
    lines = [("expected", check.expected), ("actual", check.actual)]
    return "\n".join(f"{word:<10}{text.shorten(said, 600)}" for word, said in lines if said is not None)


def report_md(view: ReportView) -> str:
    """Return ``report.md``: at most :data:`REPORT_LIMIT` bytes; evidence is left out last-first, and a line says so."""
    room = REPORT_LIMIT - _size(_report(view, Md("")))
    sections = [section(evidence, IN_REPORT) for evidence in view.not_green]
    shown = _report(view, _joined(sections, room, "evidence.md"))
    return _cut(shown, REPORT_LIMIT)


def evidence_md(view: ReportView) -> str:
    """Return ``evidence.md``: the green cells, then whatever the report had to shorten."""
    everything = _left_out(view)
    sections = [
        section(evidence, IN_EVIDENCE)
        for evidence in sorted(view.evidence, key=lambda evidence: not evidence.green)
        if evidence.green or everything or _shortened(evidence)
    ]
    head = render("evidence.md.j2", {"v": view, "evidence": Md("")})
    evidence = _joined(sections, EVIDENCE_LIMIT - _size(head), "run.jsonl")
    return render("evidence.md.j2", {"v": view, "evidence": evidence})


def _report(view: ReportView, evidence: Md) -> Md:
    return render("report.md.j2", {"v": view, "evidence": evidence, "linked": True, "detail": IN_REPORT})


def section(evidence: EvidenceView, detail: Detail) -> Md:
    """Render one piece of evidence with its heading."""
    return render("parts/cell.md.j2", {"e": evidence, "detail": detail})


def _shortened(evidence: EvidenceView) -> bool:
    """Return whether the report cannot show this evidence whole: too many exchanges, or a command that is too long."""
    return len(evidence.exchanges) > IN_REPORT.exchanges or any(
        len(exchange.curl.encode("utf-8", "backslashreplace")) > IN_REPORT.curl for exchange in evidence.exchanges
    )


def _left_out(view: ReportView) -> bool:
    """Return whether the report has no room for all of its evidence."""
    whole = sum(_size(section(evidence, IN_REPORT)) for evidence in view.not_green)
    return _size(_report(view, Md(""))) + whole > REPORT_LIMIT


def _joined(sections: Iterable[Md], room: int, elsewhere: str) -> Md:
    """Join sections while they fit into ``room`` bytes; the first that does not fit ends it, with a line saying so."""
    sections = list(sections)
    note = "**{} more in [{}]({}).**\n\n"
    reserved = _size(note) + 2 * len(elsewhere) + 40
    shown: list[str] = []
    used = 0
    for number, section in enumerate(sections):
        last = number == len(sections) - 1
        if used + _size(section) > room - (0 if last else reserved):
            left = count(len(sections) - number, "piece of evidence", "pieces of evidence")
            shown.append(note.format(left, elsewhere, elsewhere))
            break
        shown.append(section)
        used += _size(section)
    return Md("".join(shown))


def _cut(document: str, limit: int) -> str:
    """Cut at a line end where even the tables are too long; the reader is told what is missing."""
    if _size(document) <= limit:
        return document
    notice = "\n\n**This report was cut at 200 kB. Every row is in results.json and report.html.**\n"
    kept = document.encode("utf-8")[: limit - _size(notice)].decode("utf-8", errors="ignore")
    return kept[: kept.rfind("\n")] + notice


def _size(document: str) -> int:
    return len(document.encode("utf-8", errors="backslashreplace"))
