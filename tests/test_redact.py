"""No secret reaches an exchange, let alone a run folder; byte counts and generated text stay as they were."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from servecheck import features, plan, scenario
from servecheck.model import Chunk, Endpoint, Exchange
from servecheck.probes import discover
from servecheck.reference import virtual
from servecheck.reference.asgi import Reply, Request
from servecheck.reference.server import ReferenceServer
from servecheck.report.files import write_all
from servecheck.run import carry_out, connector, read_back
from servecheck.wire.curl import render
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.redact import redacted_chunks, redacted_text
from servecheck.wire.transport import Transport
from tests.rawserver import Conn, ask, chunked, head, plays, serving

KEY = 'sk-Zq7/"x+Y\\w9'
SECRETS = {"MY_KEY": KEY}


def cleaned(*pieces: bytes, settings: bool = False) -> bytes:
    chunks = tuple(Chunk(float(at), piece) for at, piece in enumerate(pieces))
    shown = redacted_chunks(chunks, SECRETS.values(), settings=settings)
    assert [(chunk.at, len(chunk.data)) for chunk in shown] == [(chunk.at, len(chunk.data)) for chunk in chunks]
    return b"".join(chunk.data for chunk in shown)


@pytest.mark.parametrize("cut", range(1, len(KEY)))
def test_a_key_across_a_chunk_border_is_overwritten_and_no_byte_is_lost(cut):
    raw = KEY.encode()
    assert cleaned(b"key " + raw[:cut], raw[cut:] + b".") == b"key " + b"*" * len(raw) + b"."


@pytest.mark.parametrize(
    "echoed",
    [
        KEY,
        json.dumps({"key": KEY}),
        json.dumps({"key": KEY}).replace("/", "\\/"),
        "/x?key=sk-Zq7%2F%22x%2BY%5Cw9",
        KEY * 3,
    ],
    ids=["plain", "in JSON", "in JSON with escaped slashes", "in a URL", "again"],
)
def test_a_key_is_found_in_every_form_that_a_server_echoes(echoed):
    for part in (b"Zq7", b"w9"):
        assert part not in cleaned(echoed.encode())
        assert part not in redacted_text(echoed, SECRETS).encode()


def test_a_filler_instead_of_a_key_destroys_nothing():
    chunks = (Chunk(0.0, b"EMPTY e x"),)
    assert redacted_chunks(chunks, ["EMPTY", "e", "x", ""], settings=False) == chunks


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ('{"api_key":"sekret"}', '{"api_key":"******"}'),
        ('{"api_key": "a"}', '{"api_key": "*"}'),
        ('{"api_key": "se\\"k, ret"}', '{"api_key": "**********"}'),
        ('{"admin_api_key":"sekret","x":1}', '{"admin_api_key":"******","x":1}'),
        ('{"api_key":["one1","two2"],"x":1}', '{"api_key":[*************],"x":1}'),
        ('{"api_key":null,"x":"y"}', '{"api_key":null,"x":"y"}'),
        ('{"api_key":true}', '{"api_key":true}'),
        ("ServerArgs(api_key='sekret', tp=1)", "ServerArgs(api_key='******', tp=1)"),
        ("ServerArgs(api_key=None, tp=1)", "ServerArgs(api_key=None, tp=1)"),
        ('"launch_command": "serve --api-key sekret --tp 2"', '"launch_command": "serve --api-key ****** --tp 2"'),
        ("serve --api-key=sekret --tp 2", "serve --api-key=****** --tp 2"),
        ("serve --api-key 'sekret' --tp 2", "serve --api-key '******' --tp 2"),
        (r'"cmd": "serve --api-key \"sekret\" --tp 2"', r'"cmd": "serve --api-key \"******\" --tp 2"'),
        (r'"cmd": "{\"api_key\": \"sekret\"}"', r'"cmd": "{\"api_key\": \"******\"}"'),
        ('["--api-key", "sekret", "--tp"]', '["--api-key", "******", "--tp"]'),
        ("HF_TOKEN=hf_sekret PATH=/bin", "HF_TOKEN=********* PATH=/bin"),
        ("password: hunter2\nuser: me", "password: *******\nuser: me"),
        ('{"authorization": "Bearer sekret"}', '{"authorization": "Bearer ******"}'),
        ("curl -H 'Authorization: Bearer sekret' x", "curl -H 'Authorization: Bearer ******' x"),
        ('{"max_tokens": 16, "token": "the", "secretary": 1}', '{"max_tokens": 16, "token": "the", "secretary": 1}'),
    ],
)
def test_settings_that_are_secret_by_name_are_overwritten_in_what_a_server_shows_of_itself(raw, shown):
    assert cleaned(raw.encode(), settings=True).decode() == shown
    assert cleaned(raw.encode(), settings=False).decode() == raw


@pytest.mark.parametrize("piece", [b"a", b"api_key", b"api_key:[", b"api_key ", b'api_key="\\', b"-_", b"bearer "])
def test_no_page_makes_the_search_slow(piece):
    body = piece * (400_000 // len(piece))
    began = time.process_time()
    redacted_chunks((Chunk(0.0, body),), SECRETS.values(), settings=True)
    assert time.process_time() - began < 2


def exchange_with(script, endpoint_fields: dict[str, Any], method: str = "POST", **secrets: str) -> Exchange:
    async def play() -> Exchange:
        async with serving(script) as url:
            endpoint = Endpoint(name="e", base_url=url, **endpoint_fields)
            key_env = "MY_KEY" if "MY_KEY" in secrets else None
            async with Transport(endpoint, secrets=secrets, key_env=key_env) as own:
                return await ask(url, transport=own, method=method)

    return asyncio.run(play())


async def _echo(conn: Conn) -> None:
    sent = conn.request.split(b"authorization: ")[1].split(b"\r\n")[0]
    await conn.send(head("transfer-encoding: chunked", "x-echo: " + sent.decode()))
    for at in range(0, len(sent), 5):
        await conn.send(chunked(sent[at : at + 5], end=False))
        await asyncio.sleep(0)
    await conn.send(b"0\r\n\r\n")


def test_a_key_is_sent_and_neither_recorded_nor_read_back():
    seen = exchange_with(_echo, {}, MY_KEY=KEY)
    assert seen.body == b"Bearer " + b"*" * len(KEY)
    assert ("authorization", "Bearer ${MY_KEY}") in seen.request_headers
    assert seen.header("x-echo") == "Bearer ${MY_KEY}"
    assert "Zq7" not in repr(seen)


def test_a_key_of_one_letter_leaves_the_other_headers_as_they_are():
    seen = exchange_with(_echo, {}, MY_KEY="e")
    assert ("accept-encoding", "identity") in seen.request_headers
    assert ("authorization", "Bearer ${MY_KEY}") in seen.request_headers


def test_a_parsers_complaint_does_not_quote_the_key():
    seen = exchange_with(
        plays(b"HTTP/1.1 200 OK\r\n" + b"sk-plain-secret and no colon\r\n\r\n"), {}, MY_KEY="sk-plain-secret"
    )
    assert "illegal header line" in seen.detail
    assert "sk-plain-secret" not in seen.detail


def test_secret_headers_are_names_and_literal_ones_that_look_secret_are_masked():
    fields: dict[str, Any] = {
        "headers": (("X-Team", "ml"), ("X-Auth-Token", "abc"), ("Ocp-Apim-Subscription-Key", "abcd")),
        "header_envs": (("X-Gate", "GATE"),),
    }
    requests: list[bytes] = []

    async def script(conn: Conn) -> None:
        requests.append(conn.request)
        await conn.send(head("content-length: 0"))

    seen = exchange_with(script, fields, GATE="open sesame")
    assert b"X-Auth-Token: abc\r\n" in requests[0]
    assert b"X-Gate: open sesame\r\n" in requests[0]
    assert set(seen.request_headers) >= {
        ("X-Team", "ml"),
        ("X-Auth-Token", "***"),
        ("Ocp-Apim-Subscription-Key", "****"),
        ("X-Gate", "${GATE}"),
    }


def test_a_get_shows_settings_masked_and_a_generation_is_left_alone():
    body = b'{"api_key":"sekret"}'
    script = plays(head("content-length: 20") + body)
    assert exchange_with(script, {}, "GET").body == b'{"api_key":"******"}'
    assert exchange_with(script, {}, "POST").body == body


# --------------------------------------------------------------------------- a whole run folder


class Echoing(ReferenceServer):
    """Says its key wherever it can: in headers, in errors, in texts, and in its own settings."""

    async def reply(self, request: Request) -> Reply:
        if request.path == "/server_info":
            body = json.dumps({"api_key": KEY, "launch_command": f"serve --api-key '{KEY}'", "other_secret": "plain1"})
            return Reply(body=body.encode())
        reply = await super().reply(request)
        said = request.headers.get("authorization", "")
        reply = Reply(status=reply.status, headers=(*reply.headers, ("x-echo", said)), body=reply.body)
        if isinstance(reply.body, bytes) and request.path.endswith("/completions"):
            reply = Reply(
                status=400, headers=reply.headers, body=json.dumps({"error": {"message": f"bad key {said}"}}).encode()
            )
        return reply


def test_nothing_secret_is_in_a_run_folder(tmp_path):
    environ = {"MY_KEY": KEY, "GATE": "open-sesame"}
    endpoint = Endpoint(
        name="e",
        base_url="http://127.0.0.1:1/v1",
        api_key_env="MY_KEY",
        header_envs=(("X-Gate", "GATE"),),
        headers=(("X-Auth-Token", "literal-secret"),),
    )
    server = Echoing(api_key=KEY)
    probes = discover()
    scenarios = scenario.load_all([scenario.builtin_dir()], probes=probes, features=features.BY_ID)
    chosen = plan.make([endpoint], scenarios, probes, settings=plan.Settings(deadline=5))

    def connect(each: Endpoint) -> Transport:
        connector(environ)(each)  # the real one finds the secrets
        return Transport(each, secrets=environ, key_env="MY_KEY", app=MemoryTransport(server))

    folder = tmp_path / "run"
    virtual.run(carry_out(chosen, probes, folder, connect))
    write_all(read_back(folder, probes), folder, render)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 7
    for path in files:
        text = path.read_text("utf-8")
        for secret in ("Zq7", "open-sesame", "literal-secret", "plain1"):
            assert secret not in text, (path, text[max(0, text.find(secret) - 100) :][:200])
    assert "${MY_KEY}" in (folder / "run.jsonl").read_text()
