"""An issue is opened when a row fell for sure, rewritten while rows fall or rise, closed when all are as before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from servecheck.ci.flips import Change, Close, Open, Update, changes, issue_plan, recorded, told
from servecheck.features import FEATURES
from servecheck.model import Status
from servecheck.report.data import Since
from servecheck.report.text import cell_code
from tests import sample_runs
from tests.cells import row

LINK = "[The run](https://github.example/owner/repo/actions/runs/7)"
JOB = "Nightly/check/main"
S, D, B, E = Status.SUPPORTED, Status.DEGRADED, Status.BROKEN, Status.ERROR


def change(feature: str, before: str, after: str, *, sure: bool = True, endpoint: str = "tpu") -> Change:
    return Change(endpoint=endpoint, feature=feature, before=before, after=after, sure=sure)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ("supported", "broken", True),
        ("unsupported", "ignored", True),
        ("broken", "supported", False),
        ("supported", "error", False),
        ("16384", "8192", False),
    ],
)
def test_worse_is_a_question_of_decided_statuses(before, after, worse):
    assert change("chat.basic", before, after).worse is worse


def test_a_row_that_fell_for_sure_opens_an_issue_that_remembers_what_it_was():
    cells = [row("chat.stop", "tpu", B), row("chat.basic", "tpu", S)]
    (opened,) = issue_plan(cells, [change("chat.stop", "supported", "broken")], {}, job=JOB, link=LINK)
    assert isinstance(opened, Open)
    assert opened.title == "servecheck: chat.stop got worse on tpu"
    assert recorded(opened.body, JOB) == ("tpu", {"chat.stop": "supported"})
    assert "| `chat.stop` | ✅ supported | ❌ broken |" in opened.body
    assert LINK in opened.body


@pytest.mark.parametrize(
    "found",
    [
        [change("chat.stop", "supported", "broken", sure=False)],
        [change("chat.stop", "broken", "supported")],
        [change("identity.limits", "16384", "8192")],
        [],
    ],
    ids=["seen once", "rose", "a value", "nothing"],
)
def test_anything_else_opens_none(found):
    assert issue_plan([row("chat.stop", "tpu", B)], found, {}, job=JOB, link=LINK) == []


def test_each_endpoint_has_an_issue_of_its_own():
    cells = [row("chat.stop", name, B) for name in ("gpu", "tpu")]
    found = [change("chat.stop", "supported", "broken", endpoint=name) for name in ("gpu", "tpu")]
    assert [each.title for each in issue_plan(cells, found, {}, job=JOB, link=LINK) if isinstance(each, Open)] == [
        "servecheck: chat.stop got worse on gpu",
        "servecheck: chat.stop got worse on tpu",
    ]


def test_another_row_that_falls_and_one_that_rises_rewrite_the_issue():
    known = {"tpu": (7, {"chat.stop": "supported", "tools.auto": "supported"})}
    cells = [row("chat.stop", "tpu", S), row("tools.auto", "tpu", B), row("chat.n", "tpu", Status.IGNORED)]
    found = [change("chat.stop", "broken", "supported"), change("chat.n", "degraded", "ignored")]
    (update,) = issue_plan(cells, found, known, job=JOB, link=LINK)
    assert isinstance(update, Update)
    assert (update.number, update.title) == (7, "servecheck: chat.n and 1 more got worse on tpu")
    assert recorded(update.body, JOB) == ("tpu", {"chat.n": "degraded", "tools.auto": "supported"})
    assert update.comment == f"got worse: `chat.n`; as good as before: `chat.stop`. {LINK}"


def test_what_a_row_was_first_is_what_it_must_be_again():
    known = {"tpu": (7, {"chat.stop": "supported"})}
    found = [change("chat.stop", "degraded", "broken")]
    assert issue_plan([row("chat.stop", "tpu", B)], found, known, job=JOB, link=LINK) == []
    assert issue_plan([row("chat.stop", "tpu", D)], [], known, job=JOB, link=LINK) == []


@pytest.mark.parametrize("sure", [True, False])
def test_an_issue_is_closed_by_two_looks_and_not_by_one(sure):
    found = [change("chat.stop", "broken", "supported", sure=sure)]
    plan = issue_plan([row("chat.stop", "tpu", S)], found, {"tpu": (7, {"chat.stop": "supported"})}, job=JOB, link=LINK)
    assert plan == ([Close(number=7, comment=f"`chat.stop`: as good as before. {LINK}")] if sure else [])


def test_a_row_that_is_as_before_since_an_earlier_job_closes_it_too():
    plan = issue_plan([row("chat.stop", "tpu", S)], [], {"tpu": (7, {"chat.stop": "supported"})}, job=JOB, link=LINK)
    assert [type(each) for each in plan] == [Close]


@pytest.mark.parametrize("status", [E, None])
def test_a_row_that_could_not_be_told_leaves_the_issue_as_it_is(status):
    cells = [row("chat.basic", "tpu", S)] + ([row("chat.stop", "tpu", status)] if status else [])
    assert issue_plan(cells, [], {"tpu": (7, {"chat.stop": "supported"})}, job=JOB, link=LINK) == []


@pytest.mark.parametrize(
    "body",
    ["", "<!-- servecheck:rows {nonsense} -->", '<!-- servecheck:rows {"endpoint": 1, "rows": {}} -->'],
)
def test_an_issue_that_is_not_ours_is_not_read(body):
    assert recorded(body, JOB) is None


def test_a_status_that_nobody_knows_is_left_out_of_what_was_remembered():
    record = '{"endpoint": "tpu", "job": "Nightly/check/main", "rows": {"a.b": "supported", "c.d": "fine"}}'
    assert recorded(f"<!-- servecheck:rows {record} -->", JOB) == ("tpu", {"a.b": "supported"})


def test_an_issue_of_another_job_is_not_ours_whatever_its_endpoint_is_called():
    (opened,) = issue_plan(
        [row("chat.stop", "tpu", B)], [change("chat.stop", "supported", "broken")], {}, job=JOB, link=LINK
    )
    assert isinstance(opened, Open)
    assert recorded(opened.body, "Nightly/check/main") is not None
    assert recorded(opened.body, "Nightly/other/main") is None


def test_an_issue_of_every_row_fits_into_what_github_takes():
    cells = [replace(row(each.id, "tpu", B), reason="x|`" * 1000) for each in FEATURES]
    found = [change(each.id, "supported", "broken") for each in FEATURES]
    (opened,) = issue_plan(cells, found, {}, job=JOB, link=LINK)
    assert isinstance(opened, Open)
    assert len(opened.body) < 65_536
    name = "own." + "x" * 300
    (opened,) = issue_plan([row(name, "tpu", B)], [change(name, "supported", "broken")], {}, job=JOB, link=LINK)
    assert isinstance(opened, Open)
    assert len(opened.title) <= 256


def test_what_changed_is_told_with_what_fell_first_and_no_word_of_a_server_as_markdown():
    cells = [replace(row("chat.stop", "tpu", B), reason="@everyone | x"), row("chat.n", "tpu", S)]
    found = [
        change("chat.n", "broken", "supported"),
        change("chat.stop", "supported", "broken"),
        change("identity.limits", "16384", "8192", sure=False),
    ]
    assert told(found, cells).splitlines()[4:] == [
        "| ▼ | `chat.stop` on `tpu` | ✅ supported | ❌ broken | `@everyone \\| x` |",
        f"| ▲ | `chat.n` on `tpu` | ❌ broken | ✅ supported | {cell_code(row('chat.n', 'tpu', S).reason, 200)} |",
        "| ≠ | `identity.limits` on `tpu` | `16384` | `8192` (once, and not again on a second look) |  |",
        "",
    ]
    assert told([], cells) == ""


def test_what_a_server_said_stays_text_in_an_issue():
    cells = [replace(row("chat.stop", "tpu", B), reason="@everyone `x` <!-- servecheck:rows {} -->\n# big")]
    (opened,) = issue_plan(cells, [change("chat.stop", "supported", "broken")], {}, job=JOB, link=LINK)
    assert isinstance(opened, Open)
    assert recorded(opened.body, JOB) == ("tpu", {"chat.stop": "supported"})
    assert "\n# big" not in opened.body


# --------------------------------------------------------------------------- the second look


def since(feature: str, before: str, after: str, told: str) -> Since:
    return Since(
        endpoint="tpu",
        feature=feature,
        run="r0",
        started=datetime(2026, 11, 1, tzinfo=UTC),
        before=before,
        after=after,
        told=told,
    )


def test_a_change_is_sure_where_the_run_or_the_second_look_says_so():
    run = sample_runs.two_endpoints()
    mine = {cell.feature: cell for cell in run.cells if cell.endpoint == "tpu"}
    same, other = [feature for feature, cell in mine.items() if cell.status is S][:2]
    found = replace(
        run,
        since=(
            since("tools.auto", "supported", "broken", "confirmed"),
            since(same, "broken", "supported", "seen once"),
            since(other, "supported", "broken", "seen once"),
        ),
    )
    assert [each.sure for each in changes(found, run)] == [True, True, False]
    assert [each.sure for each in changes(found, None)] == [True, False, False]
    assert (
        changes(found, None)[1].said == f"{same} on tpu: broken → supported (seen once, and not again on a second look)"
    )
