"""Endpoints that cannot be asked at all: no row of theirs is judged, and one sentence says what to do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from servecheck import read_run, shut
from servecheck.history import History
from servecheck.model import Decision, Ending, Endpoint, Exchange, Status
from servecheck.reference.mock import background
from servecheck.reference.server import ReferenceServer
from servecheck.report.data import RunReport
from tests.commands import Said, servecheck

KEY = "a-key-that-is-right"
ROWS = ["--feature", "chat.basic", "--feature", "health.ready", "--feature", "identity.*", "--feature", "auth.*"]


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "SERVECHECK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def keyed() -> Iterator[str]:
    with background(ReferenceServer(api_key=KEY)) as found:
        yield found


@pytest.fixture(scope="module")
def open_() -> Iterator[str]:
    with background(ReferenceServer()) as found:
        yield found


def report(folder: str = "out") -> RunReport:
    return read_run(Path(folder))


def test_no_row_of_an_endpoint_that_refuses_the_key_is_judged_not_even_by_probes_of_sick_servers(
    keyed, open_, monkeypatch
):
    monkeypatch.setenv("K", "a-key-that-is-wrong")
    said = servecheck("run", f"gpu={open_}", f"tpu={keyed}", "--api-key-env", "tpu=K", "--out", "out", *ROWS)
    run = report()
    tried = {cell.status for cell in run.cells if cell.endpoint == "tpu"} - {Status.SKIPPED}
    assert tried == {Status.ERROR}
    assert (said.code, run.verdict.decision, run.verdict.blockers) == (4, Decision.CANNOT_TELL, ())
    assert "tpu: the key in K was refused (HTTP 401)\n" in said.err
    assert "🛠" not in said.err
    assert run.verdict.sentence.startswith("Cannot tell: tpu could not be asked: the key in K was refused (HTTP 401)")
    assert "the key in K was refused (HTTP 401)" in servecheck("report", "out").out


def test_without_a_key_it_is_said_how_one_is_given(keyed):
    said = servecheck("run", f"tpu={keyed}", "--out", "out", *ROWS)
    assert said.code == 4
    assert "tpu: it wants a key, and none was given (HTTP 401): --api-key-env NAME=VARIABLE\n" in said.err


def test_rows_about_keys_are_judged_as_ever_where_the_key_is_right(keyed, monkeypatch):
    monkeypatch.setenv("K", KEY)
    servecheck("run", f"tpu={keyed}", "--api-key-env", "tpu=K", "--out", "out", *ROWS)
    run = report()
    found = {row: run.cell(row, "tpu") for row in ("auth.required", "health.ready", "chat.basic")}
    assert {row: cell and cell.status for row, cell in found.items()} == dict.fromkeys(found, Status.SUPPORTED)


def test_a_night_with_an_expired_key_is_no_flip(keyed, monkeypatch):
    for number, key in enumerate((KEY, "expired-by-now", KEY, KEY)):
        monkeypatch.setenv("K", key)
        words = ["--api-key-env", "tpu=K", "--history", "h.sqlite", "--out", f"out{number}", "-q", *ROWS]
        servecheck("run", f"tpu={keyed}", *words)
        assert report(f"out{number}").since == ()
    with History(Path("h.sqlite")) as kept:
        flips, flakes, _ = kept.told()
        assert (len(kept.runs()), flips, flakes) == (4, [], [])


def closed_port() -> str:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize(
    ("place", "flags", "words"),
    [
        ("http://{host}/wrong", (), "is the URL right? Most servers have their API at http://{host}/v1"),
        ("https://{host}/v1", (), "https was spoken to a port that speaks plain http: http://{host}/v1"),
        ("http://{closed}/v1", (), "nothing listens at {closed} (connection refused); --wait-ready SECONDS waits for"),
        ("http://{host}/v1", ("--model", "nix"), "it serves “reference”, not “nix”: --model e=reference"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_once_and_the_exit_is_4(open_, place, flags, words):
    host, closed = open_.removeprefix("http://"), closed_port()
    at, expected = (text.format(host=host, closed=closed) for text in (place, words))
    said: Said = servecheck("run", f"e={at}", *flags, "--feature", "identity.*", "--out", "out")
    assert said.code == 4
    assert expected in said.err
    assert said.err.count("\n") == 1
    assert said.out.count("\n") == 4
    assert expected in said.out


CERTIFICATE = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
UNTRUSTED = "its certificate is not trusted here "
NAMED = "there is no host 'gpu.exmaple', or its name is not known on this machine"
BY_FILE = "who issued it can be named by an endpoints file, with ca_file"
MISMATCH = "Hostname mismatch, certificate is not valid for 'gpu.exmaple'"


@pytest.mark.parametrize(
    ("expected", "detail"),
    [
        (NAMED, "[Errno -2] Name or service not known"),
        (f"{UNTRUSTED}(self-signed certificate): {BY_FILE}", f"{CERTIFICATE}self-signed certificate (_ssl.c:1006)"),
        (f"{UNTRUSTED}(certificate has expired)", f"{CERTIFICATE}certificate has expired (_ssl.c:1006)"),
        (f"{UNTRUSTED}({MISMATCH})", f"{CERTIFICATE}{MISMATCH}. (_ssl.c:1006)"),
    ],
)
def test_what_the_connection_said_is_told_in_words(expected, detail):
    gone = Exchange(
        id="x1", step="models", method="GET", url="http://gpu.exmaple/v1/models", ending=Ending.UNREACHABLE,
        detail=detail,
    )  # fmt: skip
    assert shut.why(Endpoint(name="e", base_url="http://gpu.exmaple/v1"), {"models": gone}, None) == expected
