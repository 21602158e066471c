"""Whatever a server does to a socket becomes an exchange: bounded in time and size, with what was seen of it."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from servecheck.errors import UsageError
from servecheck.model import Ending, Endpoint, Exchange
from servecheck.read import reply, sse
from servecheck.wire import transport as transport_module
from servecheck.wire.transport import HangUp, Transport, is_loopback
from tests.rawserver import Conn, Script, ask, chunked, exchanges, head, hold, plays, resets, serving, stream

WORDS = 'data: {"a":"grün 漢字 🙂"}\n\n'.encode()
LENGTH = head("content-type: application/json", "content-length: 10")


def seen(script: Script, **kwargs) -> Exchange:
    return exchanges(script, **kwargs)[0]


# --------------------------------------------------------------------------- whole replies


def test_chunk_borders_anywhere_leave_the_bytes_as_they_were_sent():
    for cut in range(1, len(WORDS)):
        exchange = seen(plays(stream(WORDS[:cut], WORDS[cut:])))
        assert (exchange.ending, exchange.body) == (Ending.COMPLETE, WORDS)
        assert [event.data for event in sse.events(exchange.chunks).events] == [WORDS[6:-2]]


def test_bytes_are_kept_as_they_came_whatever_they_are():
    raw = b"\xef\xbb\xbf\x00\xff\r\rdata: x\r\n\r\n" + bytes(range(256))
    assert seen(plays(stream(raw))).body == raw


def test_http_1_0_without_a_length_ends_with_the_connection():
    exchange = seen(plays(head("content-type: text/plain", version="1.0") + b"all of it"))
    assert (exchange.ending, exchange.status, exchange.body) == (Ending.COMPLETE, 200, b"all of it")


def test_100_continue_is_not_the_reply():
    exchange = seen(plays(b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH + b"0123456789"))
    assert (exchange.status, exchange.body) == (200, b"0123456789")


def test_a_redirect_is_shown_and_not_followed():
    exchange = seen(plays(head("location: http://127.0.0.1:9/elsewhere", "content-length: 0", status="307 Moved")))
    assert (exchange.ending, exchange.status) == (Ending.COMPLETE, 307)
    assert "elsewhere" in str(exchange.header("Location"))


def test_a_compressed_reply_is_kept_packed_and_called_so():
    packed = gzip.compress(b'{"choices":[]}')
    exchange = seen(plays(head("content-encoding: gzip", f"content-length: {len(packed)}") + packed))
    assert exchange.body == packed
    answer = reply.chat(exchange)
    assert isinstance(answer, reply.Failure)
    assert answer.what == "reply is compressed (“gzip”) although the request accepts nothing but identity"


def test_identity_is_asked_and_nothing_is_sent_that_is_not_recorded():
    requests: list[bytes] = []

    async def script(conn: Conn) -> None:
        requests.append(conn.request)
        await conn.send(head("set-cookie: lane=7; Path=/", "content-length: 0"))

    recorded = exchanges(script, 2)
    assert len(requests) == 2
    for sent, exchange in zip(requests, recorded, strict=True):
        lines = [line.split(b": ", 1) for line in sent.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
        names = {name.decode().lower() for name, _ in lines}
        # The client library adds these four, which curl adds as well.
        assert names - {"host", "connection", "content-length", "accept"} == {
            name for name, _ in exchange.request_headers
        } - {"accept"}
        assert b"accept-encoding: identity" in sent.lower()
        assert b"cookie" not in sent.lower()


# --------------------------------------------------------------------------- cut, hung, dripping


@pytest.mark.parametrize(
    ("script", "status", "body", "words"),
    [
        (plays(stream(b"data: 1\n\n", end=False) + b"ff\r\nhalf"), 200, b"data: 1\n\nhalf", "incomplete chunked read"),
        (plays(LENGTH + b"012"), 200, b"012", "without sending complete message body"),
        (resets(LENGTH + b"012"), 200, b"012", "the connection was reset"),
        (plays(), None, b"", "without sending a response"),
        (resets(), None, b"", "the connection was reset"),
        (plays(b"HTTP/1.1 2"), None, b"", "without sending a response"),
        (plays(b"\x16\x03\x01 not http at all\r\n\r\n"), None, b"", "illegal status line"),
        (plays(head("no colon here") + b"x"), None, b"", "illegal header line"),
        (plays(head("transfer-encoding: chunked") + b"zz\r\nhello\r\n"), 200, b"", "illegal chunk header"),
    ],
    ids=["mid-chunk", "short body", "reset in the body", "closed", "reset", "half a line", "tls", "header", "chunk"],
)
def test_a_cut_keeps_what_came_and_says_how_it_ended(script, status, body, words):
    exchange = seen(script)
    assert (exchange.ending, exchange.status, exchange.body) == (Ending.TRUNCATED, status, body)
    assert words in exchange.detail


@pytest.mark.parametrize(
    ("script", "status", "body"),
    [
        (hold(), None, b""),
        (hold(LENGTH), 200, b""),
        (hold(LENGTH + b"012"), 200, b"012"),
        (hold(head("transfer-encoding: chunked") + chunked(b"data", end=False)), 200, b"data"),
    ],
    ids=["never answers", "headers, then silence", "half a body", "half a stream"],
)
def test_silence_ends_at_the_deadline_with_what_came(script, status, body):
    exchange = seen(script, deadline=0.3)
    assert (exchange.ending, exchange.status, exchange.body) == (Ending.DEADLINE, status, body)
    assert exchange.detail == "not finished within 0.3 s"
    assert 0.29 <= exchange.ended_at < 2


def drip(beginning: bytes) -> Script:
    async def script(conn: Conn) -> None:
        await conn.send(beginning)
        while True:
            await conn.send(b"1\r\n.\r\n")
            await asyncio.sleep(0.1)

    return script


def test_a_dripping_server_does_not_outlive_the_deadline():
    exchange = seen(drip(head("transfer-encoding: chunked")), deadline=0.65)
    assert exchange.ending is Ending.DEADLINE
    assert 2 <= len(exchange.chunks) <= 7
    assert exchange.ended_at < 2


def test_a_dripped_header_does_not_outlive_the_deadline_either():
    exchange = seen(drip(b"HTTP/1.1 200 OK\r\nx: "), deadline=0.4)
    assert (exchange.ending, exchange.status) == (Ending.DEADLINE, None)


# --------------------------------------------------------------------------- too much


async def _endless(conn: Conn, piece: bytes) -> None:
    while True:
        await conn.send(piece)
        await asyncio.sleep(0)


def test_an_endless_body_is_cut_at_the_limit_and_its_beginning_is_kept(monkeypatch):
    monkeypatch.setattr(transport_module, "MAX_REPLY_BYTES", 100_000)

    async def script(conn: Conn) -> None:
        await conn.send(head("transfer-encoding: chunked"))
        await _endless(conn, chunked(b"x" * 4096, end=False))

    exchange = seen(script)
    assert (exchange.ending, len(exchange.body)) == (Ending.TRUNCATED, 100_000)
    assert exchange.detail.startswith("cut by us: longer than 100000 bytes")


def test_endless_pieces_are_cut_too(monkeypatch):
    monkeypatch.setattr(transport_module, "_MAX_CHUNKS", 50)

    async def script(conn: Conn) -> None:
        await conn.send(head("transfer-encoding: chunked"))
        await _endless(conn, chunked(b".", end=False))

    exchange = seen(script)
    assert exchange.ending is Ending.TRUNCATED
    assert len(exchange.chunks) <= 51


def test_a_reply_of_exactly_the_limit_is_whole(monkeypatch):
    monkeypatch.setattr(transport_module, "MAX_REPLY_BYTES", 10)
    exchange = seen(plays(LENGTH + b"0123456789"))
    assert (exchange.ending, exchange.body) == (Ending.COMPLETE, b"0123456789")


def test_endless_headers_end_by_themselves():
    async def script(conn: Conn) -> None:
        await conn.send(b"HTTP/1.1 200 OK\r\n")
        await _endless(conn, b"x-more: " + b"y" * 1000 + b"\r\n")

    exchange = seen(script)
    assert (exchange.ending, exchange.status) == (Ending.TRUNCATED, None)
    assert exchange.detail


# --------------------------------------------------------------------------- hanging up


def events_for_ever(gone: asyncio.Event) -> Script:
    async def script(conn: Conn) -> None:
        await conn.send(head("content-type: text/event-stream", "transfer-encoding: chunked"))
        try:
            while True:
                await conn.send(chunked(b"data: 1\n\n", end=False))
                await asyncio.sleep(0.005)
        except ConnectionError:
            gone.set()

    return script


@pytest.mark.parametrize(
    ("hang_up", "words"),
    [(HangUp(events=3), "we hung up after 3 events"), (HangUp(seconds=0.2), "we hung up after 0.2 s")],
    ids=["events", "seconds"],
)
def test_hanging_up_reaches_the_server(hang_up, words):
    async def play() -> Exchange:
        gone = asyncio.Event()
        async with serving(events_for_ever(gone)) as url:
            exchange = await ask(url, hang_up=hang_up)
            await asyncio.wait_for(gone.wait(), 5)
        return exchange

    exchange = asyncio.run(play())
    assert (exchange.ending, exchange.status) == (Ending.ABORTED, 200)
    assert exchange.detail.startswith(words)
    assert len(sse.events(exchange.chunks).events) >= 3


def test_a_hang_up_that_comes_before_the_deadline_is_ours_and_one_after_it_is_not():
    assert seen(hold(), hang_up=HangUp(seconds=0.1), deadline=5).ending is Ending.ABORTED
    assert seen(hold(), hang_up=HangUp(seconds=5), deadline=0.1).ending is Ending.DEADLINE


# --------------------------------------------------------------------------- not reached


def test_a_refused_port_is_unreachable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        exchange = asyncio.run(ask(url))
    assert (exchange.ending, exchange.status, exchange.detail) == (Ending.UNREACHABLE, None, "connection refused")


def test_a_host_that_swallows_packets_is_unreachable_and_not_hung():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # Linux takes one connection more than the backlog and drops the others without a word.
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        exchange = asyncio.run(ask(url, deadline=0.5))
        for each in waiting:
            each.close()
    assert (exchange.ending, exchange.detail) == (Ending.UNREACHABLE, "no connection within 0.4 s")


@pytest.fixture(scope="module")
def self_signed(tmp_path_factory) -> tuple[Path, ssl.SSLContext]:
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 1 -subj /CN=127.0.0.1"
    extra = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *extra], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "cert.pem", context


def test_a_certificate_that_nobody_vouches_for_is_unreachable_with_words(self_signed):
    async def play() -> tuple[Exchange, Exchange]:
        cert, context = self_signed
        async with serving(plays(LENGTH + b"0123456789"), tls=context) as url:
            plain = await ask(url)
            async with Transport(Endpoint(name="raw", base_url=url, ca_file=str(cert))) as trusting:
                return plain, await ask(url, transport=trusting)

    refused, trusted = asyncio.run(play())
    assert (refused.ending, refused.status) == (Ending.UNREACHABLE, None)
    assert "certificate verify failed: self-signed certificate" in refused.detail
    assert (trusted.ending, trusted.body) == (Ending.COMPLETE, b"0123456789")


@pytest.mark.parametrize("content", [None, "no PEM"], ids=["missing", "not a certificate"])
def test_a_ca_file_that_cannot_be_read_is_the_callers_error(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=r"endpoint 'gpu': cannot read ca_file '.*ca\.pem'"):
        Transport(Endpoint(name="gpu", base_url="https://127.0.0.1:1/v1", ca_file=str(path)))


def test_a_header_that_cannot_be_sent_is_the_callers_error_and_not_repeated():
    secret = "sekrét-value"
    endpoint = Endpoint(name="gpu", base_url="http://127.0.0.1:9/v1", api_key_env="KEY")

    async def play() -> None:
        async with Transport(endpoint, secrets={"KEY": secret}, key_env="KEY") as own:
            await ask(endpoint.base_url, transport=own)

    with pytest.raises(UsageError, match="cannot be sent") as caught:
        asyncio.run(play())
    assert secret not in str(caught.value)


# --------------------------------------------------------------------------- times


def test_arrival_times_are_those_of_the_socket():
    """Compared with a plain reader of the same script in the same run, so that a slow machine is slow for both."""
    gaps = (0.0, 0.15, 0.05, 0.25)

    async def script(conn: Conn) -> None:
        await conn.send(head("content-type: text/event-stream", "transfer-encoding: chunked"))
        for gap in gaps:
            await asyncio.sleep(gap)
            await conn.send(chunked(b"data: 1\n\n", end=False))
        await conn.send(b"0\r\n\r\n")

    async def control(url: str) -> list[float]:
        port = urlsplit(url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        began, arrived = time.monotonic(), []
        while line := await reader.readline():
            if line.startswith(b"data:"):
                arrived.append(time.monotonic() - began)
        writer.close()
        return arrived

    async def play() -> tuple[Exchange, list[float]]:
        async with serving(script) as url:
            return await asyncio.gather(ask(url), control(url))

    exchange, expected = asyncio.run(play())
    assert [chunk.at for chunk in exchange.chunks] == pytest.approx(expected, abs=0.05)
    assert exchange.headers_at is not None
    assert 0 < exchange.headers_at <= exchange.chunks[0].at <= exchange.chunks[-1].at <= exchange.ended_at


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:8000/v1", True),
        ("http://a.localhost/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://localhost.example.org/v1", False),
        ("http://10.0.0.1/v1", False),
        ("http://127.0.0.1.example.org/v1", False),
    ],
)
def test_loopback_goes_by_name_or_literal_address(url, expected):
    assert is_loopback(url) is expected
