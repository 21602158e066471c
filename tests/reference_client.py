"""A client for reference servers in memory, under virtual time, and what their tests ask; no tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
import pytest

from servecheck.reference.models import MODELS
from servecheck.reference.server import ReferenceServer
from servecheck.reference.virtual import run
from servecheck.wire.memory import MemoryTransport

__all__ = ["SEA", "STORY", "WEATHER", "Client", "ask", "every_model", "serve", "talk", "user"]

T = TypeVar("T")

SEA = "Write a short poem about the sea."
STORY = "Tell me a long story about a sailor."
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Look up the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "kelvin"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
every_model = pytest.mark.parametrize("language", MODELS)


def serve(language: str = "obedient", **config: Any) -> ReferenceServer:
    """Return the right server, speaking with one of its models."""
    return ReferenceServer(language=language, **config)


def user(text: str) -> list[dict[str, Any]]:
    """Return the messages of a single question."""
    return [{"role": "user", "content": text}]


class Client:
    """Talks to one server in memory."""

    def __init__(self, server: ReferenceServer, http: httpx.AsyncClient) -> None:
        self.server, self.http = server, http

    async def post(self, path: str, body: Any) -> httpx.Response:
        return await self.http.post(path, json=body)

    async def chat(self, text: str, **extra: Any) -> dict[str, Any]:
        reply = await self.post("/v1/chat/completions", {"messages": user(text), **extra})
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    async def text(self, text: str, **extra: Any) -> str:
        content: str = (await self.chat(text, **extra))["choices"][0]["message"]["content"]
        return content

    async def events(self, text: str, **extra: Any) -> list[dict[str, Any]]:
        reply = await self.post("/v1/chat/completions", {"messages": user(text), "stream": True, **extra})
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8", reply.text
        *events, done, end = reply.text.split("\n\n")
        assert (done, end) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    @asynccontextmanager
    async def streaming(self, text: str, **extra: Any) -> AsyncIterator[httpx.Response]:
        body = {"messages": user(text), "stream": True, **extra}
        async with self.http.stream("POST", "/v1/chat/completions", json=body) as reply:
            yield reply

    def seconds(self) -> float:
        return asyncio.get_running_loop().time()


def talk(server: ReferenceServer, conversation: Callable[[Client], Awaitable[T]]) -> T:
    """Run a conversation with a server under virtual time."""

    async def main() -> T:
        transport = MemoryTransport(server)
        async with httpx.AsyncClient(transport=transport, base_url="http://reference", timeout=None) as http:
            return await conversation(Client(server, http))

    return run(main())


def ask(server: ReferenceServer, method: str, path: str, body: Any = None, **extra: Any) -> httpx.Response:
    """Send one request."""

    async def conversation(client: Client) -> httpx.Response:
        return await client.http.request(method, path, json=body, **extra)

    return talk(server, conversation)
