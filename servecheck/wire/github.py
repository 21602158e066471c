"""Asks GitHub's REST API for issues, and other hosts for a file: bounded in time, size and pages, and read only.

What was fetched is kept with its ETag, so asking again costs nothing while nothing changed. A limit that GitHub sets is
never waited out here: it is said, with when to try again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Self
from urllib.parse import urlencode, urlsplit

import httpx

from servecheck import __version__
from servecheck.errors import RateLimited, UpstreamError, UsageError
from servecheck.wire.transport import is_loopback

__all__ = ["API_URL", "Github", "NotSearchable", "Page", "cache_dir", "fetch_file"]

API_URL = "https://api.github.com"

_MAX_BYTES = 16 * 1024 * 1024
_DEADLINE = 30.0
_SECONDARY_WAIT = timedelta(seconds=60)
"""What GitHub's documentation asks for where a secondary limit names no time of its own."""


class NotSearchable(UpstreamError):
    """GitHub does not know a repository, or does not show it to us: the query as a whole was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one search found; ``kept`` is the moment from which it is where GitHub would not be asked, ``cut`` whether
    there was more."""

    items: tuple[Mapping[str, object], ...]
    kept: datetime | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    body: object
    next: str | None
    kept: datetime | None = None


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Return where replies are kept: ``$SERVECHECK_CACHE``, else where this platform keeps caches (XDG)."""
    if chosen := environ.get("SERVECHECK_CACHE"):
        return Path(chosen).expanduser() / "github"
    home = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".cache")
    return Path(home) / "servecheck" / "github"


class Github:
    """One conversation with GitHub's API."""

    def __init__(
        self,
        *,
        base_url: str = API_URL,
        token: str | None = None,
        cache: Path | None = None,
        deadline: float = _DEADLINE,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``deadline`` bounds each request as a whole, in seconds; ``cache`` is a folder of ours.

        Raises ``UsageError`` where a token would travel unencrypted to another machine.
        """
        self._base, self._now, self._deadline, self._cache = base_url.rstrip("/"), now, deadline, cache
        self._host = urlsplit(self._base).netloc
        headers = {
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
            "user-agent": f"servecheck/{__version__}",
        }
        if token:
            if not self._base.startswith("https://") and not is_loopback(self._base):
                raise UsageError(f"the token would travel unencrypted to {self._host}; use https")
            headers["authorization"] = f"Bearer {token}"
        self._own = bool(token)
        self._client = httpx.AsyncClient(
            headers=headers,
            trust_env=not is_loopback(self._base),
            follow_redirects=False,  # a redirect could carry the token to another host
            timeout=httpx.Timeout(None, connect=10.0),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def search(self, query: str, *, pages: int = 1, per_page: int = 50) -> Page:
        """Return the issues that a query of GitHub's search finds, best first.

        Raises:
            NotSearchable: a repository of the query does not exist or is not shown to us.
            RateLimited: a primary or secondary limit, with when to ask again, and nothing was kept from before.
            UpstreamError: it could not be asked otherwise.
        """
        words = urlencode({"q": query, "per_page": per_page})
        url: str | None = f"{self._base}/search/issues?{words}"
        items: list[Mapping[str, object]] = []
        kept: datetime | None = None
        for _ in range(pages):
            if url is None:
                break
            reply = await self._get(url)
            found = reply.body.get("items") if isinstance(reply.body, dict) else None
            if not isinstance(found, list):
                raise UpstreamError(f"{self._host} answered a search with something else than a list of issues")
            items += [item for item in found if isinstance(item, dict)]
            kept = min(filter(None, (kept, reply.kept)), default=None)
            url = reply.next
        return Page(items=tuple(items), kept=kept, cut=url is not None)

    async def _get(self, url: str) -> _Reply:
        """Return a reply, the kept one where it is still true; or where GitHub will not be asked, with its day."""
        known = self._kept(url)
        try:
            return await self._asked(url, known)
        except NotSearchable:
            raise
        except UpstreamError:
            if known is None:
                raise
            kept = datetime.fromisoformat(str(known["at"]))
            return _Reply(body=known["body"], next=_text(known.get("next")), kept=kept)

    async def _asked(self, url: str, known: Mapping[str, object] | None) -> _Reply:
        headers = {"if-none-match": str(known["etag"])} if known is not None else {}
        status, answer, data = await _fetched(self._client, url, headers, self._deadline, self._host)
        if status == httpx.codes.NOT_MODIFIED and known is not None:
            return _Reply(body=known["body"], next=_text(known.get("next")))
        if status != httpx.codes.OK:
            raise self._trouble(status, answer, data)
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            raise UpstreamError(f"{self._host} answered with something that is not JSON") from None
        following = _next(answer.get("link", ""))
        if following is not None and urlsplit(following).netloc != self._host:
            following = None  # the token goes to one host only
        if etag := answer.get("etag"):
            self._keep(url, {"etag": etag, "next": following, "at": self._now().isoformat(), "body": body})
        return _Reply(body=body, next=following)

    def _trouble(self, status: int, answer: httpx.Headers, data: bytes) -> UpstreamError:
        said = _message(data)
        if status in {403, 429} and (limited := self._limited(answer, said)):
            return limited
        if status == httpx.codes.UNAUTHORIZED:
            return UpstreamError(f"{self._host} does not accept the token in GITHUB_TOKEN; take it away or renew it")
        if status == httpx.codes.UNPROCESSABLE_ENTITY:
            return NotSearchable(f"{self._host} refuses the search: {said}")
        return UpstreamError(f"{self._host} answered {status}" + (f": {said}" if said else ""))

    def _limited(self, answer: httpx.Headers, said: str) -> RateLimited | None:
        wait = _seconds(answer.get("retry-after"), self._now())
        if wait is not None or "secondary rate limit" in said.lower() or "abuse" in said.lower():
            again = self._now() + (wait if wait is not None else _SECONDARY_WAIT)
            return RateLimited(f"{self._host} wants a pause (secondary rate limit); {_when(again, self._now())}", again)
        if answer.get("x-ratelimit-remaining") == "0":
            reset = answer.get("x-ratelimit-reset", "")
            again_at = datetime.fromtimestamp(int(reset), UTC) if reset.isascii() and reset.isdigit() else None
            more = "" if self._own else "; a token in GITHUB_TOKEN gives more"
            limit = answer.get("x-ratelimit-limit")
            used = f"all {limit} requests" if limit and limit.isdigit() else "all requests"
            when = _when(again_at, self._now()) if again_at else "it does not say until when"
            return RateLimited(f"{self._host}: {used} of this period are used up (rate limit); {when}{more}", again_at)
        return None

    # ----------------------------------------------------------------- the cache

    def _file(self, url: str) -> Path | None:
        # What one sees with a token and without one differs; the token itself is nowhere on the disk.
        name = hashlib.sha256(f"{url} {self._own}".encode()).hexdigest()
        return self._cache / f"{name}.json" if self._cache is not None else None

    def _kept(self, url: str) -> dict[str, object] | None:
        path = self._file(url)
        if path is None:
            return None
        try:
            kept = json.loads(path.read_text("utf-8"))
            datetime.fromisoformat(kept["at"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return kept if isinstance(kept, dict) and isinstance(kept.get("etag"), str) and "body" in kept else None

    def _keep(self, url: str, kept: Mapping[str, object]) -> None:
        """Keep a reply; a disk that is full or read-only only means that it is asked for again."""
        path = self._file(url)
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".kept-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(kept, file)
            Path(scratch).replace(path)


async def fetch_file(url: str, *, deadline: float = _DEADLINE, most: int = 4 * 1024 * 1024) -> bytes:
    """Return the file at an address; a page of GitHub that shows a file is taken for the file.

    Raises ``UpstreamError`` where it cannot be had.
    """
    shown = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)/blob/(.+)", url)
    raw = f"https://raw.githubusercontent.com/{shown[1]}/{shown[2]}" if shown else url
    host = urlsplit(raw).netloc
    async with httpx.AsyncClient(
        headers={"user-agent": f"servecheck/{__version__}"},
        trust_env=not is_loopback(raw),
        follow_redirects=True,
        timeout=httpx.Timeout(None, connect=10.0),
    ) as client:
        status, _, data = await _fetched(client, raw, {}, deadline, host, most=most)
    if status != httpx.codes.OK:
        raise UpstreamError(f"{host} answered {status} for {raw}")
    return data


async def _fetched(
    client: httpx.AsyncClient,
    url: str,
    headers: Mapping[str, str],
    deadline: float,
    host: str,
    *,
    most: int = _MAX_BYTES,
) -> tuple[int, httpx.Headers, bytes]:
    data = bytearray()
    try:
        async with asyncio.timeout(deadline), client.stream("GET", url, headers=dict(headers)) as answer:
            async for piece in answer.aiter_bytes():
                data += piece
                if len(data) > most:
                    raise UpstreamError(f"{host} sends more than {most:,} bytes for {url}")
            return answer.status_code, answer.headers, bytes(data)
    except TimeoutError:
        raise UpstreamError(f"{host} did not answer within {deadline:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UpstreamError(f"{host} cannot be asked: {str(error) or type(error).__name__}") from error


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _message(data: bytes) -> str:
    """Return what GitHub says was wrong, on one line; the sentences of the single errors hold the reason."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(body, dict):
        return ""
    errors = body.get("errors")
    single = [one.get("message") for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
    said = " ".join(part for part in (body.get("message"), *single) if isinstance(part, str))
    return " ".join("".join(letter if letter.isprintable() else " " for letter in said).split())[:300]


def _next(link: str) -> str | None:
    found = re.search(r'<([^>]+)>;\s*rel="next"', link)
    return found[1] if found else None


def _seconds(said: str | None, now: datetime) -> timedelta | None:
    """Return a ``Retry-After``, which is seconds or a date."""
    if said is None:
        return None
    if said.strip().isascii() and said.strip().isdigit():
        return timedelta(seconds=int(said))
    try:
        return max(parsedate_to_datetime(said) - now, timedelta())
    except (TypeError, ValueError):
        return None


def _when(again: datetime, now: datetime) -> str:
    left = max(0, round((again - now).total_seconds()))
    wait = f"{left} s" if left < 120 else f"{-(-left // 60)} min"
    return f"try again at {again.astimezone(UTC):%H:%M:%S} UTC, in {wait}"
