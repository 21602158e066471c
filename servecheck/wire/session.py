"""All that a probe may do to the world, over one endpoint's transport: named steps, recorded, bounded, polite."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

import tenacity

from servecheck.budget import Budget, Spent
from servecheck.model import Endpoint, Exchange, Fingerprint, Json, Transcript, sending_order
from servecheck.read import reply
from servecheck.read.text import parse
from servecheck.wire.transport import HangUp, Outgoing, Transport

__all__ = ["Patience", "WireSession", "server_root"]

_LETTERS = "bcdfghjklmnpqrstvwxz"  # no vowels: a nonce is no word of any language
_MAX_RETRY_AFTER = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How an overloaded server is waited out: so many more tries, at most so many seconds in all."""

    tries: int = 4
    seconds: float = 120.0


def server_root(base_url: str) -> str:
    """Return the server's root for an API root: ``http://host:8000/v1`` → ``http://host:8000``."""
    return base_url.removesuffix("/").removesuffix("/v1")


class WireSession:
    """One case's session. Exchange ids come from ``next_id``; nonces from ``seed``, so a repeated run repeats them.

    What must not be repeated is drawn from ``once`` too, which differs from run to run.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport,
        *,
        fingerprint: Fingerprint,
        record: Callable[[Exchange], None],
        next_id: Callable[[], str],
        began: float,
        seed: str,
        deadline: float,
        concurrency: int = 8,
        budget: Budget | None = None,
        spent: Spent | None = None,
        patience: Patience | None = None,
        once: str = "",
    ) -> None:
        self.endpoint = endpoint
        self.fingerprint = fingerprint
        self._transport = transport
        self._record = record
        self._next_id = next_id
        self._began = began
        self._deadline = deadline
        self._concurrency = concurrency
        self._gate = asyncio.Semaphore(concurrency)
        self._budget = budget or Budget()
        self._spent = spent or Spent()
        self._patience = patience or Patience()
        self._exchanges: list[Exchange] = []
        self._random = _dice(seed)
        self._random_once = _dice(f"{once}/{seed}")

    @property
    def transcript(self) -> Transcript:
        """What was sent and seen so far, in sending order."""
        in_order = tuple(sorted(self._exchanges, key=sending_order))
        return Transcript(exchanges=in_order, model=self.endpoint.model, fingerprint=self.fingerprint)

    def nonce(self, letters: int = 10) -> str:
        """Return a random word without vowels."""
        return "".join(self._random.choice(_LETTERS) for _ in range(letters))

    def unseen(self, letters: int = 10) -> str:
        """Return a random word without vowels that another run does not repeat."""
        return "".join(self._random_once.choice(_LETTERS) for _ in range(letters))

    def seconds(self) -> float:
        """Return the event loop's time."""
        return asyncio.get_running_loop().time()

    async def wait(self, seconds: float) -> None:
        """Wait on the event loop's clock."""
        await asyncio.sleep(seconds)

    async def chat(self, step: str, body: dict[str, Json], *, deadline: float | None = None) -> Exchange:
        """POST ``/chat/completions``."""
        return await self.post(step, "/chat/completions", body, deadline=deadline)

    async def post(self, step: str, path: str, body: Json, *, deadline: float | None = None) -> Exchange:
        """POST a JSON body below the API root."""
        return await self._send(step, "POST", self.endpoint.base_url + path, self._json(body), deadline=deadline)

    async def post_raw(
        self,
        step: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        deadline: float | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Exchange:
        """POST bytes as they are below the API root."""
        url, own = self.endpoint.base_url + path, tuple(headers)
        return await self._send(step, "POST", url, body, content_type=content_type, deadline=deadline, headers=own)

    async def get(self, step: str, path: str, *, deadline: float | None = None) -> Exchange:
        """GET below the API root."""
        return await self._send(step, "GET", self.endpoint.base_url + path, deadline=deadline)

    async def get_server(self, step: str, path: str, *, deadline: float | None = None) -> Exchange:
        """GET below the server's root."""
        return await self._send(step, "GET", server_root(self.endpoint.base_url) + path, deadline=deadline)

    async def post_server(self, step: str, path: str, body: Json, *, deadline: float | None = None) -> Exchange:
        """POST a JSON body below the server's root."""
        url = server_root(self.endpoint.base_url) + path
        return await self._send(step, "POST", url, self._json(body), deadline=deadline)

    async def metrics(self, step: str) -> Exchange:
        """GET the metrics."""
        url = self.endpoint.metrics_url or server_root(self.endpoint.base_url) + "/metrics"
        return await self._send(step, "GET", url)

    async def without_key(
        self, step: str, method: str, path: str, body: Json = None, *, wrong: str = "", server: bool = False
    ) -> Exchange:
        """Send without the endpoint's key, or with a wrong one."""
        root = server_root(self.endpoint.base_url) if server else self.endpoint.base_url
        headers = (("authorization", f"Bearer {wrong}"),) if wrong else ()
        data = b"" if body is None else self._json(body)
        return await self._send(step, method, root + path, data, anonymous=True, headers=headers)

    async def request(
        self,
        step: str,
        method: Literal["GET", "POST"],
        path: str,
        body: Json = None,
        *,
        headers: Sequence[tuple[str, str]] = (),
        server: bool = False,
    ) -> Exchange:
        """Send with headers of one's own."""
        root = server_root(self.endpoint.base_url) if server else self.endpoint.base_url
        data = b"" if body is None else self._json(body)
        return await self._send(step, method, root + path, data, headers=tuple(headers))

    async def abort_after(
        self, step: str, path: str, body: Json, *, events: int | None = None, seconds: float | None = None
    ) -> Exchange:
        """POST and hang up."""
        url, hang_up = self.endpoint.base_url + path, HangUp(events=events, seconds=seconds)
        return await self._send(step, "POST", url, self._json(body), hang_up=hang_up)

    async def concurrently(self, steps: Sequence[Awaitable[Exchange]], *, at_once: int = 0) -> list[Exchange]:
        """Run steps at the same time; the gate in ``_send`` bounds how many are in flight."""
        wider = range(max(0, at_once - self._concurrency))
        for _ in wider:
            self._gate.release()
        # All are waited for, also where one may not be sent any more: none may go on behind the end of its case.
        ended = await asyncio.gather(*steps, return_exceptions=True)
        for _ in wider:
            await self._gate.acquire()
        for exchange in ended:
            if isinstance(exchange, BaseException):
                raise exchange
        return [exchange for exchange in ended if isinstance(exchange, Exchange)]

    async def burst(self, steps: Mapping[str, Json], path: str, *, deadline: float | None = None) -> list[Exchange]:
        """POST all bodies at once, each one time, whatever the run's concurrency."""
        url = self.endpoint.base_url + path
        return await self.concurrently(
            [
                self._send(step, "POST", url, self._json(body), deadline=deadline, pushy=True)
                for step, body in steps.items()
            ]
        )

    def _json(self, body: Json) -> bytes:
        if isinstance(body, dict) and "model" not in body and self.endpoint.model is not None:
            body = {"model": self.endpoint.model, **body}
        text = json.dumps(body, ensure_ascii=False, allow_nan=False)
        try:
            return text.encode()
        except UnicodeEncodeError:  # half a surrogate pair, which a server may list as a model's name
            return json.dumps(body, allow_nan=False).encode()

    async def _send(
        self,
        step: str,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        deadline: float | None = None,
        hang_up: HangUp | None = None,
        anonymous: bool = False,
        headers: tuple[tuple[str, str], ...] = (),
        pushy: bool = False,
    ) -> Exchange:
        """Send, and again while the server says that it is overloaded; every attempt is recorded."""

        async def attempt(number: int) -> Exchange:
            self._spent.reserve(self._budget)
            outgoing = Outgoing(
                id=self._next_id(),
                step=step,
                method=method,
                url=url,
                deadline=deadline or self._deadline,
                headers=(*headers, *((("content-type", content_type),) if body or method == "POST" else ())),
                body=body,
                hang_up=hang_up,
                attempt=number,
                anonymous=anonymous,
            )
            exchange = await self._transport.send(outgoing, began=self._began)
            self._exchanges.append(exchange)
            self._spent.received += len(exchange.body)
            self._count(exchange)
            self._record(exchange)
            return exchange

        if pushy:  # what a server says of too much is what was asked for: neither bounded nor sent again
            return await attempt(1)
        async with self._gate:
            if method != "POST":  # a health route that answers 503 has answered
                return await attempt(1)
            retrying = tenacity.AsyncRetrying(
                retry=tenacity.retry_if_result(reply.is_overloaded),
                stop=tenacity.stop_after_attempt(self._patience.tries)
                | tenacity.stop_after_delay(self._patience.seconds),
                wait=_as_told,
                sleep=asyncio.sleep,
                retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
            )
            number = 0

            async def numbered() -> Exchange:
                nonlocal number
                number += 1
                return await attempt(number)

            exchange: Exchange = await retrying(numbered)
            return exchange

    def _count(self, exchange: Exchange) -> None:
        if exchange.method != "POST" or exchange.status != 200:
            return
        usage = None
        if reply.is_stream(exchange):
            answer = reply.chat(exchange)
            usage = answer.usage if isinstance(answer, reply.Answer) else None
        else:
            try:
                usage = reply.usage_of(parse(exchange.body))
            except ValueError:
                return
        if usage is not None:
            self._spent.prompt_tokens += max(0, usage.prompt or 0)
            self._spent.output_tokens += max(0, usage.completion or 0)


def _dice(seed: str) -> random.Random:
    return random.Random(hashlib.sha256(seed.encode()).digest())


def _as_told(state: tenacity.RetryCallState) -> float:
    """Return the seconds to wait: ``Retry-After`` as told, else 1, 2, 4 …; never longer than a minute."""
    exchange: Exchange | None = state.outcome.result() if state.outcome else None
    told = exchange.header("retry-after") if exchange else None
    if told is not None:
        if re.fullmatch(r"\s*[0-9]{1,9}\s*", told):
            return min(float(told), _MAX_RETRY_AFTER)
        date = exchange.header("date") if exchange else None
        try:
            wait = (parsedate_to_datetime(told) - parsedate_to_datetime(date or told)).total_seconds()
            return min(max(wait, 1.0), _MAX_RETRY_AFTER)
        except (ValueError, TypeError, OverflowError):
            pass
    return float(min(2.0 ** (state.attempt_number - 1), _MAX_RETRY_AFTER))
