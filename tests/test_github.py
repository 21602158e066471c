"""GitHub's API from a server in this process: searches, ETags, both rate limits, refusals, hangs and pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from servecheck.errors import RateLimited, UpstreamError, UsageError
from servecheck.wire.github import Github, NotSearchable, cache_dir, fetch_file
from tests.rawserver import Conn, head, hold, plays, resets, serving

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
ITEMS = [{"html_url": "https://github.com/a/b/issues/1", "title": "one", "number": 1}]


def reply(body: Any, *lines: str, status: str = "200 OK") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(*lines, "content-type: application/json", f"content-length: {len(data)}", status=status) + data


class Api:
    """Plays replies one a request, the last one again and again, and keeps what was asked."""

    def __init__(self, *replies: bytes) -> None:
        self.replies, self.asked = list(replies), list[bytes]()

    async def __call__(self, conn: Conn) -> None:
        self.asked.append(conn.request)
        await conn.send(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])

    @property
    def queries(self) -> list[str]:
        paths = [asked.split(b" ")[1].decode() for asked in self.asked]
        return [parse_qs(urlsplit(path).query)["q"][0] for path in paths]


Work = Callable[[Github], Awaitable[Any]]


def talking(script: Any, work: Work, cache: Path | None = None, token: str | None = None, deadline: float = 5.0) -> Any:
    """Do ``work`` with a client of a server that plays ``script``."""

    async def talk() -> Any:
        async with serving(script) as url:
            base = url.removesuffix("/v1")
            async with Github(base_url=base, token=token, cache=cache, deadline=deadline, now=lambda: NOW) as github:
                return await work(github)

    return asyncio.run(talk())


async def search(github: Github) -> Any:
    return await github.search("repo:a/b x")


def test_a_search_says_what_it_asks_for_and_carries_the_token():
    api = Api(reply({"items": ITEMS}))
    page = talking(api, search, token="t0ken")
    assert (page.items, page.kept, page.cut) == (tuple(ITEMS), None, False)
    assert api.queries == ["repo:a/b x"]
    assert b"authorization: bearer t0ken" in api.asked[0].lower()


def test_a_token_does_not_travel_unencrypted_to_another_machine():
    with pytest.raises(UsageError, match="unencrypted"):
        Github(base_url="http://api.example", token="t0ken")


def test_what_did_not_change_is_read_from_the_cache(tmp_path):
    api = Api(reply({"items": ITEMS}, 'etag: W/"abc"'), head(status="304 Not Modified"))

    async def twice(github: Github) -> Any:
        return [await search(github), await search(github)]

    first, second = talking(api, twice, cache=tmp_path)
    assert first == second
    assert b"if-none-match" not in api.asked[0].lower()
    assert b'if-none-match: w/"abc"' in api.asked[1].lower()


def test_with_a_token_nothing_is_read_that_was_kept_without_one_and_no_token_is_on_the_disk(tmp_path):
    async def both() -> Api:
        api = Api(reply({"items": ITEMS}, 'etag: "abc"'))
        async with serving(api) as url:
            for token in (None, "s3cret"):
                async with Github(base_url=url.removesuffix("/v1"), token=token, cache=tmp_path) as github:
                    await search(github)
        return api

    assert [b"if-none-match" in asked.lower() for asked in asyncio.run(both()).asked] == [False, False]
    kept = [path.read_text() for path in tmp_path.iterdir()]
    assert len(kept) == 2
    assert not any("s3cret" in text for text in kept)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"etag": 1, "at": "2026-01-01", "body": {}}', '{"at": "x"}'])
def test_a_damaged_cache_is_asked_again(tmp_path, damage):
    api = Api(reply({"items": ITEMS}, 'etag: "abc"'))

    async def damaged(github: Github) -> Any:
        await search(github)
        for path in tmp_path.iterdir():
            path.write_text(damage)
        return await search(github)

    assert talking(api, damaged, cache=tmp_path).items == tuple(ITEMS)
    assert b"if-none-match" not in api.asked[1].lower()


LIMITED = ("x-ratelimit-limit: 10", "x-ratelimit-remaining: 0", f"x-ratelimit-reset: {int(NOW.timestamp()) + 1500}")


@pytest.mark.parametrize(
    ("lines", "body", "status", "said", "seconds"),
    [
        (LIMITED, {"message": "API rate limit exceeded"}, "403 Forbidden", "all 10 requests .* at 12:25:00 UTC", 1500),
        (LIMITED, {}, "429 Too Many Requests", "in 25 min; a token in GITHUB_TOKEN gives more", 1500),
        (("x-ratelimit-remaining: 0",), {}, "403 Forbidden", "does not say until when", None),
        (("retry-after: 30",), {}, "403 Forbidden", "wants a pause .* 12:00:30 UTC, in 30 s", 30),
        (("retry-after: Mon, 30 Nov 2026 12:05:00 GMT",), {}, "429 Too Many", "12:05:00 UTC, in 5 min", 300),
        ((), {"message": "You have exceeded a secondary rate limit."}, "403 Forbidden", "12:01:00 UTC, in 60 s", 60),
    ],
)
def test_a_rate_limit_is_said_with_when_to_try_again(lines, body, status, said, seconds):
    with pytest.raises(RateLimited, match=said) as limit:
        talking(Api(reply(body, *lines, status=status)), search)
    again = limit.value.again
    assert seconds == (None if again is None else (again - NOW).total_seconds())


def test_with_a_token_nobody_is_told_to_take_one():
    with pytest.raises(RateLimited) as limit:
        talking(Api(reply({}, *LIMITED, status="403 Forbidden")), search, token="t")
    assert "GITHUB_TOKEN" not in str(limit.value)


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        (
            Api(reply({"message": "Validation Failed", "errors": [{"message": "no such repo"}]}, status="422 X")),
            NotSearchable,
            "refuses the search: Validation Failed no such repo",
        ),
        (Api(reply({"message": "Bad credentials"}, status="401 X")), UpstreamError, "does not accept the token"),
        (Api(reply({"message": "Resource not accessible"}, status="403 X")), UpstreamError, "answered 403: Resource"),
        (Api(reply(b"<html>", status="502 Bad Gateway")), UpstreamError, "answered 502"),
        (Api(reply({}, "location: http://elsewhere.example/", status="302 Found")), UpstreamError, "answered 302"),
        (Api(reply(b"<html>")), UpstreamError, "not JSON"),
        (Api(reply(b"[" * 100_000)), UpstreamError, "not JSON"),
        (Api(reply({"items": 3})), UpstreamError, "something else than a list"),
        (Api(reply([1])), UpstreamError, "something else than a list"),
        (resets(), UpstreamError, "cannot be asked"),
        (plays(b"nonsense\r\n\r\n"), UpstreamError, "cannot be asked"),
        (plays(head("content-length: 50"), b"short"), UpstreamError, "cannot be asked"),
    ],
)
def test_trouble_is_ours_to_say_and_names_the_host(script, error, said):
    with pytest.raises(error, match=said) as trouble:
        talking(script, search)
    assert "127.0.0.1" in str(trouble.value)


@pytest.mark.parametrize("script", [hold(), hold(head("content-length: 500"), b"{")])
def test_a_server_that_hangs_is_left_after_the_deadline(script):
    with pytest.raises(UpstreamError, match=r"did not answer within 0\.1 s"):
        talking(script, search, deadline=0.1)


def test_where_github_will_not_be_asked_what_was_kept_is_used_and_dated(tmp_path):
    api = Api(reply({"items": ITEMS}, 'etag: "abc"'), reply({}, *LIMITED, status="403 Forbidden"))

    async def twice(github: Github) -> Any:
        return [await search(github), await search(github)]

    first, second = talking(api, twice, cache=tmp_path)
    assert (first.kept, second.kept) == (None, NOW)
    assert first.items == second.items


def test_pages_are_followed_as_far_as_asked_and_only_on_the_same_host():
    def linked(place: str) -> Callable[[Conn], Awaitable[None]]:
        async def script(conn: Conn) -> None:
            here = conn.request.lower().partition(b"host: ")[2].split(b"\r\n")[0].decode()
            await conn.send(reply({"items": ITEMS}, f'link: <{place.format(here=here)}>; rel="next", <x>; rel="last"'))

        return script

    async def two(github: Github) -> Any:
        return await github.search("x", pages=2)

    page = talking(linked("http://{here}/search/issues?q=x&page=2"), two)
    assert (len(page.items), page.cut) == (2, True)
    page = talking(linked("http://elsewhere.example/search/issues?q=x&page=2"), two)
    assert (len(page.items), page.cut) == (1, False)


def test_a_reply_without_end_is_left():
    async def endless(conn: Conn) -> None:
        await conn.send(head("content-type: text/csv"))
        while True:
            await conn.send(b"x" * 65536)

    async def fetch() -> bytes:
        async with serving(endless) as url:
            return await fetch_file(f"{url}/m.csv", most=100_000)

    with pytest.raises(UpstreamError, match="more than 100,000 bytes"):
        asyncio.run(fetch())


def test_a_file_is_fetched_and_one_that_is_not_there_is_said():
    async def fetch(*replies: bytes) -> bytes:
        async with serving(Api(*replies)) as url:
            return await fetch_file(f"{url}/m.csv")

    assert asyncio.run(fetch(reply(b"Feature"))) == b"Feature"
    with pytest.raises(UpstreamError, match="answered 404 for http"):
        asyncio.run(fetch(reply(b"", status="404 Not Found")))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/x"}, "/x/servecheck/github"),
        ({"HOME": "/home/me"}, "/home/me/.cache/servecheck/github"),
        ({"SERVECHECK_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "/c/github"),
    ],
)
def test_replies_are_kept_where_caches_are(environ, expected):
    assert Path(expected) == cache_dir(environ)
