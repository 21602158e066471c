"""A rendered command, run by a shell, sends the bytes that were recorded; secrets come from the environment."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess

import pytest

from servecheck.model import Exchange
from servecheck.wire.curl import render
from tests.rawserver import Conn, head, serving

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")

HEADERS = (("content-type", "application/json"), ("X-Team", "a b"))


def replayed(
    body: bytes, headers: tuple[tuple[str, str], ...] = HEADERS, method: str = "POST", path: str = "/x", **environ: str
):
    """Return the request that reached the server, as (request line, headers, body)."""
    requests: list[bytes] = []

    async def script(conn: Conn) -> None:
        requests.append(conn.request)
        await conn.send(head("content-length: 2") + b"ok")

    async def play() -> str:
        async with serving(script) as url:
            exchange = Exchange(
                id="x0001", step="s", method=method, url=url + path, request_headers=headers, request_body=body
            )
            shell = await asyncio.create_subprocess_exec(
                "sh",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": os.environ["PATH"], "NO_PROXY": "*", **environ},
            )
            out, err = await shell.communicate(render(exchange).encode())
            assert shell.returncode == 0, err.decode()
            return out.decode()

    assert asyncio.run(play()).endswith("ok")
    lines, _, sent = requests[0].partition(b"\r\n\r\n")
    first, *rest = lines.decode("latin-1").split("\r\n")
    return first, {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}, sent


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "b"}',
        b'it\'s "quoted" `whoami` $(id) $HOME ${HOME} \\ \\n !! #x & | ; < > * ? ~ %41',
        b"line\nline\r\nline\ttab\n",
        "grün 漢字 🙂 \u2028 \u202e".encode(),
        b"@/etc/passwd",
        b"-d x --next",
        b"'",
        b"''\n",
        b"\x00",
        b"a\x00b\xff\xfe",
        bytes(range(256)),
        b"\xff",
        b"x" * 300_000,
        "ü".encode() * 70_000,
    ],
    ids=lambda body: repr(body[:12]),
)
def test_the_same_bytes_arrive(body):
    first, headers, sent = replayed(body)
    assert sent == body
    assert first == "POST /v1/x HTTP/1.1"
    assert headers["content-type"] == "application/json"
    assert headers["x-team"] == "a b"


@pytest.mark.parametrize("value", ["it's", 'say "x"', "$HOME", "`id`", "a\\b", "${not_closed", "semi; colon", "@file"])
def test_header_values_are_not_touched_by_the_shell(value):
    assert replayed(b"{}", (("x-odd", value),))[1]["x-odd"] == value


def test_a_secret_is_filled_in_by_the_shell_and_only_there():
    secret = 'it\'s $HOME `id` "x" \\'
    headers = (("authorization", "Bearer ${MY_KEY}"), ("x-both", "${MY_KEY}-'${OTHER}'"))
    _, seen, _ = replayed(b"{}", headers, MY_KEY=secret, OTHER="o")
    assert seen["authorization"] == f"Bearer {secret}"
    assert seen["x-both"] == f"{secret}-'o'"


def test_a_get_and_an_empty_post_have_no_body():
    first, headers, sent = replayed(b"", (), "GET", "/models/a%20b?x='$y'")
    assert (first, sent) == ("GET /v1/models/a%20b?x='$y' HTTP/1.1", b"")
    assert "content-type" not in headers
    first, headers, sent = replayed(b"", (("content-type", "application/json"),))
    assert (first.split()[0], sent) == ("POST", b"")


@pytest.mark.parametrize("path", ["/models/[a]{b,c}", "/models/a[1-3]", "/x/../y"])
def test_a_url_is_taken_as_it_is(path):
    assert replayed(b"", (), "GET", path)[0] == f"GET /v1{path} HTTP/1.1"


def test_the_content_type_is_ours_or_none_and_never_curls():
    assert "content-type" not in replayed(b"{}", ())[1]
