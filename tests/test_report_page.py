"""``report.html`` in a real Chromium: it filters, opens, leads where it should, asks for nothing, shuts nobody out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from servecheck.model import Decision, Endpoint, Feature, Outcome, Status, Verdict
from servecheck.report.html import report_html
from servecheck.report.view import view
from tests.browser import Browser, Page, chromium
from tests.made_measurements import measured
from tests.sample_runs import GPU, RUNS, chat_exchange, fake_curl, finding, hostile, judged, two_endpoints

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no Chromium here: install one, or name it in SERVECHECK_CHROMIUM"
)

AXE = (Path(__file__).parent / "data" / "axe" / "axe.min.js").read_text(encoding="utf-8")
PAGES = {**RUNS, "measured": measured}
SHOWN = "[...document.querySelectorAll('tr[data-row]:not([hidden])')].map(row => row.querySelector('code').textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    assert path is not None
    with Browser(path) as running:
        yield running


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that holds the page of every fixed run."""
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(report_html(view(make(), fake_curl)), encoding="utf-8")
    return folder


def opened(browser: Browser, written: Path, name: str = "two-endpoints", **more) -> Page:
    return browser.page(written / f"{name}.html", **more)


def choose(page: Page, selector: str, value: str) -> None:
    page.run(
        f"(() => {{ const e = document.querySelector({selector!r}); "
        f"if (e.type === 'checkbox') e.click(); else {{ e.value = {value!r}; "
        "e.dispatchEvent(new Event('input', {bubbles: true})); } })()"
    )


def test_a_status_leaves_the_rows_that_have_it_on_any_endpoint(browser, written):
    page = opened(browser, written)
    choose(page, "input[value=ignored]", "")
    run = two_endpoints()
    wanted = [f.id for f in run.features if any(c.feature == f.id and c.status is Status.IGNORED for c in run.cells)]
    assert wanted == page.run(SHOWN)
    assert page.run("document.getElementById('told').textContent").startswith(f"{len(wanted)} of ")


def test_filters_add_up_and_are_taken_off_together(browser, written):
    page = opened(browser, written)
    everything = page.run(SHOWN)
    choose(page, "#group", "streaming")
    assert page.run(SHOWN) == ["streaming.frames", "streaming.usage"]
    choose(page, "#words", "usage")
    assert page.run(SHOWN) == ["streaming.usage"]
    choose(page, "input[value=supported]", "")
    choose(page, "#place", "1")
    assert page.run(SHOWN) == []
    choose(page, "#place", "0")
    assert page.run(SHOWN) == ["streaming.usage"]
    page.run("document.getElementById('reset').click()")
    assert page.run(SHOWN) == everything


def test_differences_only_leaves_what_differs(browser, written):
    page = opened(browser, written)
    choose(page, "#differences", "")
    run = two_endpoints()
    differ = {one.feature for one in run.comparisons if one.delta in ("behind", "drift")}
    assert differ == set(page.run(SHOWN))


def test_a_filtered_matrix_has_an_address(browser, written):
    page = opened(browser, written)
    choose(page, "input[value=broken]", "")
    choose(page, "#group", "streaming")
    address, shown = page.run("location.href"), page.run(SHOWN)
    other = opened(browser, written, query=address[address.index("?") :])
    assert shown == other.run(SHOWN) == ["streaming.usage"]


def test_a_link_to_evidence_opens_it(browser, written):
    page = opened(browser, written, query="#structuredjson_schema-on-tpu")
    assert page.run("document.getElementById('structuredjson_schema-on-tpu').closest('details').open")
    page.run("new Promise(r => setTimeout(r, 20))")
    assert page.run("document.activeElement.tagName") == "SUMMARY"
    assert page.run("document.querySelectorAll('details[open]').length") == 1


def test_a_cell_of_the_matrix_leads_to_its_evidence(browser, written):
    page = opened(browser, written)
    page.run("document.querySelector('td[id=\"cell/streaming.frames@tpu\"] a').click()")
    page.run("new Promise(r => setTimeout(r))")
    assert page.run("document.getElementById('streamingframes-on-tpu').closest('details').open")


@pytest.mark.parametrize("name", ["four-endpoints", "hostile"])
def test_every_cell_has_an_address_that_leads_to_it(browser, written, name):
    page = opened(browser, written, name)
    run = RUNS[name]()
    for place in ((f.id, s.name) for f in run.features[:3] for s in run.subjects):
        target = "cell/" + "@".join(quote(part.encode("utf-8", "backslashreplace")) for part in place)
        if page.run(f"document.getElementById({target!r}) === null"):
            continue  # a property: it has a table of its own
        page.run(f"location.hash = {target!r}")
        assert page.run("document.querySelector('td:target').id") == target


def test_a_link_to_a_row_that_is_filtered_away_shows_it(browser, written):
    page = opened(browser, written)
    choose(page, "#group", "chat")
    page.run("location.hash = 'row/streaming.frames'")
    page.run("new Promise(r => setTimeout(r))")
    assert "streaming.frames" in page.run(SHOWN)


def test_the_keyboard_reaches_the_matrix_and_opens_evidence(browser, written):
    page = opened(browser, written)
    page.press("Tab")
    assert page.run("document.activeElement.getAttribute('href')") == "#matrix"
    page.run("document.querySelector('details.shortfall summary').focus()")
    page.press("Enter", "\r")
    assert page.run("document.querySelector('details.shortfall').open")
    page.run("document.querySelector('input[name=status]').focus()")
    page.press(" ", " ")
    assert page.run("document.querySelector('input[name=status]').checked")


def test_the_first_column_and_the_header_stay_where_they_are(browser, written):
    page = opened(browser, written, "four-endpoints", width=600, height=500)
    moved = page.run(
        "(() => { const box = document.querySelector('.scroll.tall'); box.scrollIntoView(); "
        "const head = box.querySelector('thead th'), cell = box.querySelector('tr[data-row] th'), outer = box"
        ".getBoundingClientRect(); box.scrollTop = 150; box.scrollLeft = 200; return [box.scrollTop, box.scrollLeft, "
        "head.getBoundingClientRect().top - outer.top, cell.getBoundingClientRect().left - outer.left]; })()"
    )
    assert moved[:2] == [150, 200]
    assert max(moved[2:]) < 3


@pytest.mark.parametrize("name", PAGES)
def test_on_a_telephone_only_tables_scroll_sideways(browser, written, name):
    page = opened(browser, written, name, width=390, height=844)
    page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.run("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_asked_for_and_nothing_complains(browser, written, name):
    page = opened(browser, written, name)
    page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    requests, complaints = page.seen()
    assert [url for url in requests if not url.endswith(f"/{name}.html")] == []
    assert complaints == []


def test_hostile_text_stays_text(browser, written):
    page = opened(browser, written, "hostile")
    assert page.run("document.querySelectorAll('img, iframe, object, script[src], form, b').length") == 0
    assert page.run("document.body.innerText.includes('<img src=x onerror=alert(1)>')")


def test_even_markup_that_got_through_would_not_run(browser, written):
    page = opened(browser, written)
    page.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.owned = 1\">')")
    page.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.owned = 1'}))")
    page.run("new Promise(r => setTimeout(r, 50))")
    assert page.run("window.owned") is None


@pytest.mark.parametrize(
    ("name", "dark"),
    [
        ("two-endpoints", False),
        ("two-endpoints", True),
        ("hostile", False),
        ("measured", True),
        ("nothing-known", False),
    ],
)
def test_axe_finds_nothing_serious(browser, written, name, dark):
    page = opened(browser, written, name, dark=dark)
    page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    page.run(AXE + "; 0")
    found = page.run("axe.run().then(r => r.violations.map(v => [v.id, v.impact, v.nodes[0].html.slice(0, 200)]))")
    assert [each for each in found if each[1] in ("serious", "critical")] == []


def test_four_endpoints_and_120_rows_are_fast(browser, tmp_path):
    names = ("a", "b", "c", "d")
    features = tuple(
        Feature(id=f"group{g:02}.row{r}", title="Row", question="Does it?", core=True)
        for g in range(12)
        for r in range(10)
    )
    wrong = finding("schema-applied", Outcome.VIOLATED, "a poem", "big")
    cells = tuple(judged(f.id, name, Status.BROKEN, "wrong", findings=(wrong,)) for f in features for name in names)
    run = replace(
        two_endpoints(),
        subjects=tuple(replace(GPU, endpoint=Endpoint(name=name, base_url="http://h/v1")) for name in names),
        features=features,
        cells=cells,
        groups=(),
        comparisons=(),
        verdict=Verdict(decision=Decision.NOT_READY, sentence="No."),
        exchanges={"big": chat_exchange("big", "s", "http://h/v1", {"prompt": "x" * 2000}, b"y" * 2000)},
    )
    path = tmp_path / "large.html"
    path.write_text(report_html(view(run, fake_curl)), encoding="utf-8")
    began = time.monotonic()
    page = browser.page(path)
    loaded = time.monotonic() - began
    took = page.run(
        "(() => { const began = performance.now(), box = document.querySelector('input[value=broken]'); "
        "for (let i = 0; i < 10; i++) { box.click(); document.body.offsetHeight; } "
        "return performance.now() - began; })()"
    )
    assert page.run(f"{SHOWN}.length") == 120
    assert loaded < 8  # on two busy cores; 1 s on an idle machine
    assert took / 10 < 500


def test_without_the_script_everything_can_be_read(written):
    page = report_html(view(hostile(), fake_curl))
    assert 'role="search" aria-label="Filter the rows of the matrix" hidden' in page
    assert " hidden>" not in page.replace('matrix" hidden>', "").replace('id="all-evidence" hidden>', "")
