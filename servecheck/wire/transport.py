"""Sends one request to an endpoint and records all that comes back, bounded in time and size. Nobody else does."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

import httpx

from servecheck import __version__
from servecheck.errors import UsageError
from servecheck.model import Chunk, Ending, Endpoint, Exchange
from servecheck.read.sse import EventReader
from servecheck.wire.redact import masked, placeholder, redacted_chunks, redacted_headers, redacted_text

__all__ = ["KEY_HEADERS", "MAX_REPLY_BYTES", "HangUp", "Outgoing", "Transport", "is_loopback"]

MAX_REPLY_BYTES = 16 * 1024 * 1024
"""A longer reply is cut by us and marked; the longest honest one met (``/openapi.json`` of vLLM) has 0.3 MB."""

KEY_HEADERS = frozenset({"authorization", "x-api-key", "api-key"})
"""The headers that carry a key; all other headers of an endpoint are the way to it, and go with every request."""

_MAX_CHUNKS = 200_000  # a server that drips single bytes fills no memory either
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUp:
    """When we close the connection ourselves: after so many stream events, or so many seconds, whichever is first."""

    events: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One request about to be sent; ``deadline`` bounds the whole exchange, in seconds.

    ``anonymous`` leaves the endpoint's own key away; ``headers`` may hold another.
    """

    id: str
    step: str
    method: str
    url: str
    deadline: float
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    hang_up: HangUp | None = None
    attempt: int = 1
    anonymous: bool = False


@dataclass(slots=True)
class _Arriving:
    """A reply while it arrives, so that what came before a cut or a deadline is kept."""

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    headers_at: float | None = None
    chunks: list[Chunk] = field(default_factory=list)
    size: int = 0


class Transport:
    """An endpoint's way to its server. No connection is used twice: servers close after a stream, and a reused dead
    connection looks like a crashed server (14 of 50 requests on llama.cpp).
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        secrets: Mapping[str, str] | None = None,
        key_env: str | None = None,
        app: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``secrets`` maps environment variables to values; ``key_env`` names the one sent as the API key."""
        self._secrets = dict(secrets or {})
        self.key_env = key_env
        own = [("user-agent", f"servecheck/{__version__}"), ("accept", "*/*"), ("accept-encoding", "identity")]
        headers = [*own, *endpoint.headers]
        # What is recorded is built beside what is sent: replacing secrets in it would make noise of a key such as "e".
        shown = [*own, *(masked(header) for header in endpoint.headers)]
        for name, variable in endpoint.header_envs:
            headers.append((name, self._secrets[variable]))
            shown.append((name, placeholder(variable)))
        if key_env is not None:
            headers.append(("authorization", f"Bearer {self._secrets[key_env]}"))
            shown.append(("authorization", f"Bearer {placeholder(key_env)}"))
        try:
            self._client = httpx.AsyncClient(
                transport=app,
                verify=_tls(endpoint.ca_file),
                proxy=endpoint.proxy,
                trust_env=not is_loopback(endpoint.base_url),
                follow_redirects=False,
                # A cookie would make the next request another one than the one that is recorded and replayed.
                cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
                timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"endpoint {endpoint.name!r}: cannot read ca_file {endpoint.ca_file!r}: {error}"
            ) from error
        self._headers = tuple(headers)
        self._shown = redacted_headers(shown, self._secrets)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def send(self, outgoing: Outgoing, *, began: float) -> Exchange:
        """Send and return the exchange: within the deadline and without raising, whatever the server does.

        ``began`` is the loop time at which the run began. A URL or header that cannot be sent raises ``UsageError``.
        """
        loop = asyncio.get_running_loop()
        sent = loop.time()
        arriving = _Arriving()
        headers, shown = self._headers, self._shown
        if outgoing.anonymous:
            headers, shown = _without_key(headers), _without_key(shown)
        # A header of the request's own stands in for ours of that name.
        given = {name.lower() for name, _ in outgoing.headers}
        headers = tuple(header for header in headers if header[0].lower() not in given) + outgoing.headers
        shown = tuple(header for header in shown if header[0].lower() not in given)
        try:
            async with asyncio.timeout(outgoing.deadline):
                ending, detail = await self._receive(outgoing, headers, arriving, sent)
        except TimeoutError:
            ending, detail = Ending.DEADLINE, f"not finished within {outgoing.deadline:g} s"
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            ending, detail = Ending.UNREACHABLE, _why(error, outgoing)
        except httpx.TransportError as error:
            if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol):
                text = redacted_text(str(error), self._secrets)
                raise UsageError(f"{outgoing.url}: cannot be sent: {text}") from error
            ending, detail = Ending.TRUNCATED, _why(error, outgoing)
        except httpx.InvalidURL as error:
            raise UsageError(f"{outgoing.url}: cannot be sent: {error}") from error
        except UnicodeEncodeError as error:  # its message would quote the header, which may be a secret
            raise UsageError(f"{outgoing.url}: cannot be sent: a header or the URL is not ASCII") from error
        return Exchange(
            id=outgoing.id,
            step=outgoing.step,
            method=outgoing.method,
            url=outgoing.url,
            request_headers=shown + redacted_headers(outgoing.headers, self._secrets),
            request_body=outgoing.body,
            sent=round(sent - began, 6),
            status=arriving.status,
            response_headers=redacted_headers(arriving.headers, self._secrets),
            headers_at=arriving.headers_at,
            chunks=redacted_chunks(tuple(arriving.chunks), self._secrets.values(), settings=outgoing.method == "GET"),
            ended_at=_since(sent),
            ending=ending,
            # A parser's complaint quotes the bytes that it could not read.
            detail=redacted_text(detail, self._secrets),
            attempt=outgoing.attempt,
        )

    async def _receive(
        self, outgoing: Outgoing, headers: tuple[tuple[str, str], ...], arriving: _Arriving, sent: float
    ) -> tuple[Ending, str]:
        hang_up = outgoing.hang_up
        if hang_up is not None and hang_up.seconds is not None:
            try:
                async with asyncio.timeout(hang_up.seconds):
                    return await self._read(outgoing, headers, arriving, sent)
            except TimeoutError:
                return Ending.ABORTED, f"we hung up after {hang_up.seconds:g} s"
        return await self._read(outgoing, headers, arriving, sent)

    async def _read(
        self, outgoing: Outgoing, headers: tuple[tuple[str, str], ...], arriving: _Arriving, sent: float
    ) -> tuple[Ending, str]:
        until = outgoing.hang_up.events if outgoing.hang_up else None
        reader = EventReader()
        async with self._client.stream(
            outgoing.method,
            outgoing.url,
            headers=list(headers),
            content=outgoing.body or None,
            # A host that swallows packets must not look like a server that hangs, however short the deadline is.
            timeout=httpx.Timeout(None, connect=_connect_seconds(outgoing)),
        ) as response:
            arriving.status = response.status_code
            arriving.headers = tuple(response.headers.multi_items())
            arriving.headers_at = _since(sent)
            async for data in response.aiter_raw():
                chunk = Chunk(_since(sent), data[: MAX_REPLY_BYTES - arriving.size])
                arriving.size += len(data)
                arriving.chunks.append(chunk)
                if arriving.size > MAX_REPLY_BYTES or len(arriving.chunks) > _MAX_CHUNKS:
                    return Ending.TRUNCATED, f"cut by us: longer than {MAX_REPLY_BYTES} bytes or {_MAX_CHUNKS} pieces"
                if until is not None:
                    reader.feed(chunk)
                    if len(reader.events) >= until:
                        return Ending.ABORTED, f"we hung up after {len(reader.events)} events"
        return Ending.COMPLETE, ""


def _without_key(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple(header for header in headers if header[0].lower() not in KEY_HEADERS)


def is_loopback(url: str) -> bool:
    """Tell whether a URL's host is this machine, by its name or literal address."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _tls(ca_file: str | None) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=ca_file) if ca_file else True


def _why(error: httpx.TransportError, outgoing: Outgoing) -> str:
    """Say what went wrong below HTTP, in words that do not change with the library's version where we know better."""
    text = str(error)
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection within {_connect_seconds(outgoing):g} s"
    if isinstance(error, httpx.ConnectError) and "All connection attempts failed" in text:
        return "connection refused"
    number = _errno(error)
    if number in (errno.ECONNRESET, errno.EPIPE) or isinstance(error, httpx.ReadError | httpx.WriteError):
        return "the connection was reset" + (f" ({text})" if text else "")
    return text or type(error).__name__


def _errno(error: BaseException | None) -> int | None:
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def _since(moment: float) -> float:
    """Return the seconds since a loop time, to the microsecond: as they are stored, so that both judge the same."""
    return round(asyncio.get_running_loop().time() - moment, 6)


def _connect_seconds(outgoing: Outgoing) -> float:
    return min(_CONNECT_SECONDS, outgoing.deadline * 0.8)
