"""Whole documents made of fixed runs: reviewed as text, safe whatever a server says, inside their budgets."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections import UserDict
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt

from servecheck.model import (
    Decision,
    Endpoint,
    Exchange,
    Feature,
    Fingerprint,
    GroupTally,
    Kind,
    Outcome,
    Status,
    Verdict,
)
from servecheck.report import markdown
from servecheck.report.data import RunReport, Subject
from servecheck.report.framing import Framing
from servecheck.report.html import report_html
from servecheck.report.junit import junit_xml
from servecheck.report.markdown import REPORT_LIMIT, evidence_md, report_md, templates_dir
from servecheck.report.shapes import Answer, ReportView
from servecheck.report.summary import summary_md
from servecheck.report.view import view
from tests.golden import check_golden
from tests.made_measurements import measured
from tests.sample_runs import (
    GPU,
    RUNS,
    chat_exchange,
    fake_curl,
    finding,
    green,
    hostile,
    judged,
    tallies,
    two_endpoints,
)

WRITERS = {
    "report.md": report_md,
    "evidence.md": evidence_md,
    "report.html": report_html,
    "summary.md": summary_md,
}
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def seen(run: RunReport) -> ReportView:
    return view(run, fake_curl)


@pytest.mark.parametrize("document", WRITERS)
@pytest.mark.parametrize("name", RUNS)
def test_a_fixed_run_gives_the_reviewed_document(name, document):
    check_golden(f"{name}/{document}", WRITERS[document](seen(RUNS[name]())))


@pytest.mark.parametrize("name", RUNS)
def test_a_fixed_run_gives_the_reviewed_junit(name):
    check_golden(f"{name}/junit.xml", junit_xml(RUNS[name]()))


# --------------------------------------------------------------------------- first screen


def first_screen(report: str) -> list[str]:
    lines = report.splitlines()
    ends = [i for i, line in enumerate(lines) if line.startswith("## ") and line not in {"## Decide", "## Not known"}]
    return [line for line in lines[: ends[0]] if line]


def test_the_first_screen_is_one_screen_even_with_many_groups_and_blockers():
    run = crowded(groups=14, rows=4)
    screen = first_screen(report_md(seen(run)))
    assert 20 < len(screen) <= 45
    assert screen[-1].startswith("servecheck 0.1.0")


def test_what_does_not_fit_the_first_screen_follows_it():
    report = report_md(seen(crowded(groups=14, rows=4)))
    more = report.split("## All that blocks")[1].split("\n## ")[0]
    assert re.findall(r"^(\d+)\. ", more, re.MULTILINE) == [str(number) for number in range(1, 57)]
    assert "50 more: [all that blocks](#all-that-blocks)" in report


def test_a_run_that_died_says_so_before_anything_else():
    report = report_md(seen(RUNS["died"]()))
    assert report.startswith("> ⚠️ **This run did not finish: the machine was switched off.**")
    assert "❌ **No, so far: tpu is behind gpu on 2 of 4 core rows.**" in report


def test_a_run_that_died_is_never_a_yes():
    run = replace(RUNS["died"](), verdict=Verdict(decision=Decision.READY, sentence="Yes: all is well."))
    assert seen(run).answer == Answer(mark="❔", sentence="Not finished: all is well.")


@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        (Decision.READY, "✅ **Yes: as told.**"),
        (Decision.READY_WITH_CAVEATS, "🟡 **Yes, with caveats: as told.**"),
        (Decision.NOT_READY, "❌ **No: as told.**"),
        (Decision.CANNOT_TELL, "❔ **Cannot tell: as told.**"),
    ],
)
def test_the_answer_is_said_once_whether_or_not_the_verdict_opens_with_it(decision, answer):
    opening = answer[answer.index("**") + 2 : answer.index("as told")]
    for sentence in ("as told.", f"{opening}as told."):
        run = replace(RUNS["one-endpoint"](), verdict=Verdict(decision=decision, sentence=sentence))
        assert report_md(seen(run)).splitlines()[2] == answer


@pytest.mark.parametrize(("word", "decision"), [("", Decision.READY), (", with caveats", Decision.READY_WITH_CAVEATS)])
def test_a_yes_of_few_rows_has_no_green_mark(word, decision):
    sentence = f"So far yes{word}: as told."
    run = replace(RUNS["one-endpoint"](), verdict=Verdict(decision=decision, sentence=sentence))
    assert seen(run).answer == Answer(mark="🟡", sentence=sentence)
    died = replace(RUNS["died"](), verdict=Verdict(decision=decision, sentence=sentence))
    assert seen(died).answer == Answer(mark="❔", sentence="Not finished: as told.")


@pytest.mark.parametrize(
    ("status", "supported", "shown"),
    [
        (Status.SKIPPED, 2, ("✅", "2/2 asked")),
        (Status.SKIPPED, 0, ("⏭", "0/6")),
        (Status.SUPPORTED, 6, ("✅", "6/6")),
        (Status.DEGRADED, 2, ("🟡", "2/6")),
    ],
)
def test_a_group_of_which_some_was_not_asked_says_how_much_was(status, supported, shown):
    run = RUNS["one-endpoint"]()
    name = run.subjects[0].name
    tally = GroupTally(group="streaming", endpoint=name, status=status, supported=supported, total=6)
    (row,) = (row for row in seen(replace(run, groups=(tally,))).groups if row.group == "streaming")
    assert (row.cells[0].mark, row.cells[0].tally) == shown


def test_a_group_that_fell_short_counts_what_was_asked_of_it_too():
    run = RUNS["one-endpoint"]()
    name = run.subjects[0].name
    tally = GroupTally(group="streaming", endpoint=name, status=Status.DEGRADED, supported=1, total=2)
    (first, *_) = [cell for cell in run.cells if cell.feature.startswith("streaming.")]
    cells = tuple(replace(cell, status=Status.SKIPPED) if cell is first else cell for cell in run.cells)

    (row,) = (row for row in seen(replace(run, groups=(tally,), cells=cells)).groups if row.group == "streaming")

    assert (row.cells[0].mark, row.cells[0].tally) == ("🟡", "1/1 asked")


def test_rows_that_block_for_one_reason_are_one_number():
    blockers = seen(two_endpoints()).blockers
    assert [[feature for feature, _ in blocker.rows] for blocker in blockers] == [
        ["structured.json_schema", "structured.stream"],
        ["streaming.usage"],
        ["streaming.frames"],
        ["sampling.top_p"],
    ]


def test_every_undecided_core_cell_and_every_cell_that_was_not_run_is_not_known():
    run = RUNS["nothing-known"]()
    said = " ".join(f"{item.headline} {' '.join(item.items)}" for item in seen(run).not_known)
    core = {feature.id for feature in run.features if feature.core}
    assert [cell.feature for cell in run.cells if cell.feature in core and cell.feature not in said] == []
    assert "3 rows not run, by decision" in said


def test_nothing_is_said_when_nothing_is_unknown():
    assert "Nothing: every row was run and decided on every endpoint." in report_md(seen(RUNS["one-endpoint"]()))


# --------------------------------------------------------------------------- links


def anchors(document: str, *, gitlab: bool) -> set[str]:
    """Make the anchors of all headings the way a forge does, fences left aside."""
    found = set()
    tokens = MARKDOWN.parse(document)
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            words = "".join(child.content for child in inline.children or ())
            slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            found.add(re.sub("-+", "-", slug) if gitlab else slug)
    return found


@pytest.mark.parametrize("gitlab", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_every_link_inside_the_report_has_a_target(name, gitlab):
    shown = seen(RUNS[name]())
    report, evidence = report_md(shown), evidence_md(shown)
    for file, document in (("", report), (r"evidence\.md", evidence)):
        wanted = set(re.findall(rf"\]\({file}#([^)]*)\)", report))
        assert wanted <= anchors(document, gitlab=gitlab)


def test_two_reports_of_what_is_the_same_differ_in_when_and_how_they_were_made():
    run = two_endpoints()
    later = replace(
        run,
        id="r-later",
        started=run.started + timedelta(days=1),
        finished=run.finished and run.finished + timedelta(days=1, seconds=9),
        requests=run.requests + 1,
        command=("servecheck", "run", "--out", "elsewhere"),
    )
    one, other = (report_md(seen(each)).splitlines() for each in (run, later))
    differing = [mine for mine, theirs in zip(one, other, strict=True) if mine != theirs]
    assert [line.split(" ")[0] for line in differing] == ["servecheck", "servecheck"]
    assert ["run r-20261130" in line for line in differing] == [True, False]


def test_links_are_there_at_all():
    assert "(#structuredjson_schema-on-tpu)" in report_md(seen(two_endpoints()))
    assert "(evidence.md#chatbasic-on-gpu)" in report_md(seen(two_endpoints()))


@pytest.mark.parametrize("names", [("a!", "a?"), ("ü", "é"), ("a-2", "a"), ("x.-y", "x-y"), ("tpu", "TPU")])
def test_endpoints_whose_names_look_alike_have_anchors_of_their_own(names):
    subjects = tuple(replace(GPU, endpoint=Endpoint(name=name, base_url="http://h/v1")) for name in names)
    cells = tuple(judged("chat.basic", name, Status.BROKEN, "wrong", findings=(BROKEN,)) for name in names)
    shown = seen(replace(two_endpoints(), subjects=subjects, cells=cells, comparisons=(), reference=None))
    slugs = [evidence.slug for evidence in shown.evidence]
    assert len(set(slugs)) == 2
    for gitlab in (False, True):
        assert set(slugs) <= anchors(report_md(shown), gitlab=gitlab)


# --------------------------------------------------------------------------- untrusted text


class Elements(HTMLParser):
    """Collects the elements and attributes of a page, and its text outside code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._code = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag == "code"

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.text += data


@pytest.mark.parametrize("document", ["report.md", "evidence.md", "summary.md"])
def test_nothing_hostile_becomes_markup(document):
    page = Elements(MARKDOWN.render(WRITERS[document](seen(hostile()))))
    ours = {"h1", "h2", "h3", "p", "strong", "em", "a", "code", "pre", "ul", "ol", "li", "blockquote"}
    assert set(page.tags) <= ours | {"table", "thead", "tbody", "tr", "th", "td"}
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert [
        link for link in links if not link.startswith(("#", "evidence.md", "report.md", "https://docs.vllm.ai/"))
    ] == []
    assert re.findall(r"http:|www\.|@\w|#\d|\$x|:rocket:", page.text) == []


@pytest.mark.parametrize("document", [*WRITERS, "junit.xml"])
def test_nothing_invisible_and_no_workflow_command_gets_through(document):
    run = hostile()
    written = junit_xml(run) if document == "junit.xml" else WRITERS[document](seen(run))
    assert {c for c in written if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co"}} <= {"\n", "\t"}
    assert [line for line in written.splitlines() if line.strip().startswith("::") or "##[" in line] == []
    assert r"\u202e" in written


def test_every_table_keeps_its_columns_under_hostile_text():
    page = MARKDOWN.render(report_md(seen(hostile())))
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        rows = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
        assert len({len(re.findall(r"<t[hd]", row)) for row in rows}) == 1


@pytest.mark.parametrize("document", ["report.md", "evidence.md", "summary.md"])
@pytest.mark.parametrize("name", [*RUNS, "measured"])
def test_every_dialect_shows_the_same_words_and_there_is_no_html(name, document):
    written = WRITERS[document](seen({**RUNS, "measured": measured}[name]()))
    strict, lenient = MarkdownIt("commonmark").enable("table"), MarkdownIt("js-default", {"html": True})
    pages = []
    for dialect in (strict, lenient, MARKDOWN):
        tokens = dialect.parse(written)
        kinds = {each.type for token in tokens for each in (token, *(token.children or ()))}
        assert {"html_block", "html_inline", "s_open"}.isdisjoint(kinds)
        pages.append(Elements(dialect.render(written)))
    assert pages[0].tags == pages[1].tags == pages[2].tags
    assert pages[0].text == pages[1].text == pages[2].text


def test_a_template_that_prints_unescaped_text_fails(tmp_path, monkeypatch):
    (tmp_path / "bad.md.j2").write_text("{{ v }}")
    (tmp_path / "good.md.j2").write_text("{{ v | prose }} {{ v | cell }} {{ v | length }}")
    monkeypatch.setattr(markdown, "templates_dir", lambda: tmp_path)
    markdown._environment.cache_clear()
    try:
        assert markdown.render("good.md.j2", {"v": "a|b"}) == r"a\|b a\|b 3"
        with pytest.raises(TypeError, match="unescaped"):
            markdown.render("bad.md.j2", {"v": "a|b"})
    finally:
        markdown._environment.cache_clear()


def test_what_looks_like_a_secret_in_the_command_or_a_url_is_not_shown():
    command = (
        *("servecheck", "run", "a=http://u:s3cret@host/v1?k=s3cret", "--header", "X-Api-Key: s3cret"),
        *("--header=Authorization: Bearer s3cret", "--header", "X-Team: blue", "--model", "a=b"),
    )
    subject = Subject(
        endpoint=Endpoint(name="gpu", base_url="http://u:s3cret@host/v1"), fingerprint=Fingerprint(fields={})
    )
    shown = seen(replace(RUNS["one-endpoint"](), command=command, subjects=(subject,)))
    assert shown.command == (
        "servecheck run 'a=http://host/v1?k=…' --header 'X-Api-Key: …' '--header=Authorization: …' "
        "--header 'X-Team: blue' --model a=b"
    )
    for write in WRITERS.values():
        assert "s3cret" not in write(shown)


# --------------------------------------------------------------------------- html


@pytest.mark.parametrize("name", RUNS)
def test_the_page_asks_for_nothing_and_runs_nothing_but_its_own_script(name):
    written = report_html(seen(RUNS[name]()))
    page = Elements(written)
    assert not {"img", "iframe", "link", "object", "form", "b"} & set(page.tags)
    (script,) = re.findall(r"<script>(.*?)</script>", written, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in written
    assert page.tags.count("script") == 1
    assert [
        value for _, attribute, value in page.attributes if attribute in {"src", "style", "onclick", "onerror"}
    ] == []
    hrefs = [value for _, attribute, value in page.attributes if attribute == "href"]
    ids = [value for _, attribute, value in page.attributes if attribute == "id"]
    assert len(ids) == len(set(ids))
    assert [href for href in hrefs if not href.startswith("https://") and href.removeprefix("#") not in ids] == []


# --------------------------------------------------------------------------- budgets and order

BROKEN = finding("schema-applied", Outcome.VIOLATED, "a poem", "big")


def crowded(*, groups: int, rows: int, body: int = 10) -> RunReport:
    """Return a run of many rows, all broken for reasons of their own, with an exchange of so many bytes."""
    features = tuple(
        Feature(id=f"group{g:03}.row{r:02}", title="Row", question="Does it?", core=True)
        for g in range(groups)
        for r in range(rows)
    )
    cells = tuple(judged(f.id, "gpu", Status.BROKEN, f"reason of {f.id}", findings=(BROKEN,)) for f in features)
    big = chat_exchange("big", "s", "http://h/v1", {"prompt": "x" * body}, b"y" * body)
    tally = tuple(
        replace(tallies((green("chat.basic", "gpu"),))[0], group=f"group{g:03}", total=rows) for g in range(groups)
    )
    return replace(
        RUNS["one-endpoint"](),
        features=features,
        cells=cells,
        groups=tally,
        exchanges={"big": big},
        verdict=Verdict(
            decision=Decision.NOT_READY, sentence="No.", blockers=tuple(f"{feature.id}@gpu" for feature in features)
        ),
    )


def test_the_report_stays_inside_its_budget_and_says_what_went_elsewhere():
    shown = seen(crowded(groups=12, rows=10, body=4_000))
    report, evidence = report_md(shown), evidence_md(shown)
    assert 150_000 < len(report.encode()) <= REPORT_LIMIT
    left = re.search(r"\*\*(\d+) pieces of evidence more in \[evidence\.md\]\(evidence\.md\)\.\*\*", report)
    assert left
    assert report.count("### `group") == 120 - int(left[1])
    assert evidence.count("### `group") == 120
    assert "## Reproduce" in report


def test_a_report_whose_tables_alone_are_too_long_is_cut_visibly():
    report = report_md(seen(crowded(groups=60, rows=30)))
    assert len(report.encode()) <= REPORT_LIMIT
    assert report.endswith("**This report was cut at 200 kB. Every row is in results.json and report.html.**\n")


def repeated(*trials: tuple[str, ...]) -> RunReport:
    """Return a run whose one cell that is not green saw the same in each trial, on these exchanges."""
    run = two_endpoints()
    findings = [
        finding("schema-applied", Outcome.NO_EFFECT, "the control is the same", *ids, trial=number)
        for number, ids in enumerate(trials, start=1)
    ]
    cells = [
        replace(cell, findings=tuple(findings)) if cell.feature == "structured.json_schema" and cell.findings else cell
        for cell in run.cells
        if cell.endpoint != "tpu" or cell.feature == "structured.json_schema"
    ]
    return replace(run, cells=tuple(cells), comparisons=())


def test_what_trials_repeat_is_shown_once_and_the_others_are_named():
    report = report_md(seen(repeated(("x0012",), ("x0013", "x0014"), ("x0014",))))

    assert "- Exchanges: `x0012`; the same in trial 2 (`x0013`, `x0014`), trial 3 (`x0014`)" in report
    assert report.count("**Exchange `x0012`**") == 1
    assert "**Exchange `x0013`**" not in report


def test_a_view_reads_no_exchange_before_it_is_shown():
    class Counted(UserDict[str, Exchange]):
        reads = 0

        def __getitem__(self, name: str) -> Exchange:
            self.reads += 1
            return super().__getitem__(name)

    run = two_endpoints()
    counted = Counted(run.exchanges)
    shown = seen(replace(run, exchanges=counted))
    assert counted.reads == 0
    assert report_md(shown) == report_md(seen(run))
    assert counted.reads > 0


def test_exchanges_that_do_not_fit_the_report_are_in_the_evidence():
    shown = seen(repeated(("x0012", "x0013", "x0014")))

    assert "1 more: `x0014` in [evidence.md](evidence.md#structuredjson_schema-on-tpu)." in report_md(shown)
    assert "**Exchange `x0014`**" in evidence_md(shown)


def test_a_command_too_long_for_the_report_is_whole_in_the_evidence():
    shown = seen(crowded(groups=1, rows=1, body=50_000))
    assert "x" * 50_000 not in report_md(shown)
    assert "it is in [evidence.md](evidence.md#group000row00-on-gpu)" in report_md(shown)
    assert "x" * 50_000 in evidence_md(shown)


def test_a_summary_keeps_the_first_screen_and_says_what_it_left_out():
    shown = seen(two_endpoints())
    whole, short = summary_md(shown), summary_md(shown, limit=6_000)
    assert len(short.encode()) <= 6_000 < len(whole.encode())
    assert short.startswith("# Can tpu replace gpu?")
    assert "see report.md.**" in short
    assert "Left out" not in whole


def test_a_summary_has_no_links_into_files_that_are_not_there():
    assert not re.search(r"\]\((#|evidence\.md)", summary_md(seen(two_endpoints())))


def test_the_order_in_which_data_arrives_does_not_show():
    run = two_endpoints()
    turned = replace(
        run,
        exchanges=dict(reversed(list(run.exchanges.items()))),
        checks=dict(reversed(list(run.checks.items()))),
        cells=run.cells[::-1],
        groups=run.groups[::-1],
        comparisons=run.comparisons[::-1],
    )
    for write in WRITERS.values():
        assert write(seen(turned)) == write(seen(run))


def test_templates_are_found_in_a_checkout_and_in_a_wheel(tmp_path, monkeypatch):
    assert (templates_dir() / "report.md.j2").is_file()
    package = tmp_path / "servecheck"
    (package / "_templates").mkdir(parents=True)
    monkeypatch.setattr(markdown, "__file__", str(package / "report" / "markdown.py"))
    assert templates_dir() == package / "_templates"


def _falling(endpoint: str, *quoted: str) -> RunReport:
    run = two_endpoints()
    rows = [feature.id for feature in run.features if feature.kind is Kind.JUDGED][: len(quoted)]
    made = [
        judged(row, endpoint, Status.BROKEN, f"as text: “{words}”") for row, words in zip(rows, quoted, strict=True)
    ]
    kept = [cell for cell in run.cells if cell.feature not in rows]
    blockers = tuple(f"{row}@{endpoint}" for row in rows) if endpoint == "tpu" else ()
    verdict = replace(run.verdict, blockers=blockers)
    return replace(run, cells=(*kept, *made), causes={}, broken_on_both=(), verdict=verdict)


@pytest.mark.parametrize("redact", [True, False])
def test_blockers_that_differ_in_quotations_only_are_one(redact):
    run = replace(_falling("tpu", "fn_abc", "fn_xyz"), framing=Framing(redact=redact))
    (one,) = seen(run).blockers
    assert len(one.rows) == 2


def test_what_falls_short_on_the_reference_alone_is_on_the_first_screen():
    run = _falling("gpu", "oops")
    named = [row for one in seen(run).on_reference for row, _ in one.rows]
    row = next(cell.feature for cell in run.cells if cell.reason == "as text: “oops”")
    assert row in named
    told = report_md(seen(run))
    assert told.index("the reference, falls short on") < told.index("## Not known")


def test_what_blocks_and_is_not_core_is_said_to_be_in_no_tally():
    run = _falling("tpu", "a")
    row = run.verdict.blockers[0].partition("@")[0]
    features = tuple(replace(each, core=False) if each.id == row else each for each in run.features)
    assert seen(replace(run, features=features)).uncounted == (row,)


def test_a_summary_has_the_rows_that_are_not_green_and_no_evidence():
    shown = seen(two_endpoints())
    told = summary_md(shown)
    assert "## Evidence" not in told
    assert f"All {shown.rows} rows" in told
    assert sum(len(group.rows) for group in shown.noticed) < shown.rows
