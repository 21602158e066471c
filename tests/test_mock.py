"""The reference server over real HTTP: it answers, streams, notices a hang-up, breaks connections, and stops."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit

import httpx
import pytest

from servecheck.reference.asgi import Cut, Reply, Request
from servecheck.reference.mock import background
from servecheck.reference.mutants.streaming_frames import CutMidEvent
from servecheck.reference.server import ReferenceServer

ASKED = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}
STORY = {"messages": [{"role": "user", "content": "Tell me a long story."}], "stream": True}


def test_chat_and_stream_say_the_same_over_http():
    with background(ReferenceServer(decode_seconds=0.001)) as url, httpx.Client(base_url=url) as client:
        whole = client.post("/v1/chat/completions", json=ASKED).json()
        with client.stream("POST", "/v1/chat/completions", json={**ASKED, "stream": True}) as reply:
            lines = [line for line in reply.iter_lines() if line]
        assert client.get("/health").status_code == 200
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == whole["choices"][0]["message"]["content"] == "The capital of France is Paris."


@pytest.mark.parametrize("stream", [True, False])
def test_hanging_up_frees_the_slot(stream):
    server = ReferenceServer(decode_seconds=0.05, slots=1)
    with background(server) as url:
        raw = http.client.HTTPConnection(urlsplit(url).netloc)
        raw.request("POST", "/v1/chat/completions", json.dumps({**STORY, "stream": stream}))
        if stream:
            assert raw.getresponse().readline().startswith(b"data: ")
        _until(lambda: server.metrics.running == 1)
        raw.close()
        _until(lambda: server.metrics.running == 0)
        assert httpx.post(f"{url}/v1/chat/completions", json={**ASKED, "max_tokens": 1}).status_code == 200
    assert server.metrics.finished["abort"] == 1


def _until(true: object, seconds: float = 10.0) -> None:
    assert callable(true)
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def test_a_cut_breaks_the_connection_in_the_middle_of_an_event():
    got: list[bytes] = []

    def read(url: str) -> None:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=STORY) as reply:
            for data in reply.iter_raw():
                got.append(data)  # noqa: PERF402  # what came before the break must survive it

    with background(CutMidEvent(decode_seconds=0.001)) as url:
        with pytest.raises(httpx.TransportError):
            read(url)
        assert httpx.get(f"{url}/health").status_code == 200
    assert b"".join(got).count(b"data: ") == 4
    assert not got[-1].endswith(b"\n\n")


class CutAtOnce(ReferenceServer):
    """Closes the connection without a single byte."""

    async def reply_chat(self, request: Request) -> Reply:
        raise Cut


def test_a_cut_before_the_headers_sends_nothing():
    with background(CutAtOnce()) as url:
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            httpx.post(f"{url}/v1/chat/completions", json=ASKED)
        assert httpx.get(f"{url}/health").status_code == 200


def test_two_servers_run_side_by_side():
    with background(ReferenceServer(model="one")) as one, background(ReferenceServer(model="two")) as two:
        names = [httpx.get(f"{url}/v1/models").json()["data"][0]["id"] for url in (one, two)]
    assert names == ["one", "two"]


SERVE = """
from servecheck.reference.mock import serve
from servecheck.reference.server import ReferenceServer

serve(ReferenceServer(decode_seconds=0.05), "127.0.0.1", 0, ready=lambda url: print(url, flush=True))
print("stopped", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_stops_cleanly_on_a_signal_even_with_a_stream_open(number):
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=STORY) as reply:
            assert reply.status_code == 200
            os.kill(process.pid, number)
            out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("stopped\n", "", 0)
