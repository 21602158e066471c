"""GitHub's REST API for a job: JSON in and out, lists page by page, and files of a bounded size; nothing is kept.

The endpoints under test never come here; their way is ``transport``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Self
from urllib.parse import urlsplit

import httpx

from servecheck import __version__
from servecheck.errors import ServecheckError, UsageError
from servecheck.model import Json
from servecheck.wire.transport import is_loopback

__all__ = ["API", "GitHub", "GitHubError"]

API = "https://api.github.com"

_SECONDS = 30.0
_PAGE = 100  # the most that the API gives at a time
_MAX_PAGES = 10
_MAX_JSON = 16 * 1024 * 1024


class GitHubError(ServecheckError):
    """GitHub refused, or could not be reached; ``status`` is ``None`` where nothing was answered."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class GitHub:
    """One place to ask, with one token; close it, or use it in a ``with``. Every call raises ``GitHubError``."""

    def __init__(self, token: str = "", *, api: str = API, transport: httpx.BaseTransport | None = None) -> None:
        """Without a token the API answers questions about public repositories, some sixty an hour.

        Raises ``UsageError`` where a token would travel unencrypted to another machine.
        """
        if token and not api.startswith("https://") and not is_loopback(api):
            raise UsageError(f"the token would travel unencrypted to {api}; use https")
        headers = {
            "accept": "application/vnd.github+json",
            "user-agent": f"servecheck/{__version__}",
            "x-github-api-version": "2022-11-28",
        }
        if token:
            headers["authorization"] = f"Bearer {token}"
        self._api = api.rstrip("/")
        self._client = httpx.Client(headers=headers, timeout=_SECONDS, follow_redirects=True, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def get(self, path: str, **query: str | int) -> Json:
        """Return what ``path`` (``/repos/…``) says."""
        return self._json("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Json]) -> Json:
        """Make something, and return it."""
        return self._json("POST", path, body=body)

    def patch(self, path: str, body: Mapping[str, Json]) -> Json:
        """Change something, and return it."""
        return self._json("PATCH", path, body=body)

    def items(self, path: str, key: str | None = None, **query: str | int) -> Iterator[dict[str, Json]]:
        """Yield the entries of a list, of at most a thousand; ``key`` names the list where it is inside an object."""
        for page in range(1, _MAX_PAGES + 1):
            answer = self.get(path, **{"per_page": _PAGE, "page": page, **query})
            found = answer.get(key) if key is not None and isinstance(answer, dict) else answer
            if not isinstance(found, list):
                raise GitHubError(f"{path}: a list was expected")
            yield from (each for each in found if isinstance(each, dict))
            if len(found) < _PAGE:
                return

    def download(self, url: str, limit: int) -> bytes:
        """Return the bytes behind a URL of the API, of at most ``limit``; led elsewhere, without the token."""
        return self._bytes("GET", url, limit)

    def _json(
        self, method: str, path: str, *, query: Mapping[str, str | int] | None = None, body: object = None
    ) -> Json:
        data = self._bytes(method, self._api + path, _MAX_JSON, query=query, body=body)
        if not data:
            return None
        try:
            answer: Json = json.loads(data)
        except ValueError as error:
            raise GitHubError(f"{method} {path}: the answer is not JSON") from error
        return answer

    def _bytes(
        self,
        method: str,
        url: str,
        limit: int,
        *,
        query: Mapping[str, str | int] | None = None,
        body: object = None,
    ) -> bytes:
        if not url.startswith(self._api + "/"):
            raise GitHubError(f"{url} is not below {self._api}; the token goes nowhere else")
        what = f"{method} {urlsplit(url).path}"
        data = bytearray()
        try:
            with self._client.stream(method, url, params=query or None, json=body) as answer:
                for piece in answer.iter_bytes():
                    data += piece
                    if len(data) > limit:
                        raise GitHubError(f"{what}: longer than {limit} bytes")
                if not answer.is_success:
                    raise GitHubError(f"{what}: {answer.status_code}{_said(bytes(data))}", answer.status_code)
        except httpx.HTTPError as error:
            raise GitHubError(f"{what}: {str(error) or type(error).__name__}") from error
        return bytes(data)


def _said(data: bytes) -> str:
    """Return GitHub's own message about a refusal."""
    try:
        said = json.loads(data)
    except ValueError:
        return ""
    return f" ({said['message']})" if isinstance(said, dict) and isinstance(said.get("message"), str) else ""
