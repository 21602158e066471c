"""Rules for URLs and headers of endpoints: what is taken, in which form, and what would give a secret away."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from servecheck.errors import UsageError

__all__ = [
    "HEADER_NAME",
    "HEADER_VALUE",
    "NAME_RULE",
    "OUR_HEADERS",
    "VARIABLE_RULE",
    "header_trouble",
    "is_loopback",
    "is_private",
    "looks_secret",
    "normal_url",
    "shown_url",
]

_SECRET_WORDS = frozenset(
    {"authorization", "auth", "cookie", "apikey", "token", "secret", "password", "passwd", "credential", "credentials"}
)
_SECRET_PAIRS = ("api-key", "access-key", "subscription-key", "private-key", "session-id")
OUR_HEADERS = frozenset({"connection", "content-length", "content-type", "host", "transfer-encoding"})
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?|")
_ROUTES = ("/chat/completions", "/completions", "/responses", "/embeddings", "/models")


NAME_RULE = "expected at most 40 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
VARIABLE_RULE = "expected the name of an environment variable that holds the key, never the key itself"


def normal_url(url: str, *, root: bool = True) -> str:
    """Return a URL in the form that requests are built on: no slash at the end; with ``root``, ``/v1`` if no path.

    Raises :class:`UsageError` for anything but http and https, for credentials (which it does not repeat), a query, a
    fragment, or a route in place of the API root.
    """
    if re.search(r"[\s\\\x00-\x1f\x7f]", url):
        raise UsageError("a URL holds no spaces, backslashes or control characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError("not a URL: its host or port cannot be read") from error
    if "@" in parts.netloc:
        raise UsageError("credentials in a URL are refused; name a variable that holds the key with --api-key-env")
    if parts.scheme not in {"http", "https"}:
        raise UsageError("expected a URL that begins with http:// or https://")
    if not host or port == 0:
        raise UsageError("not a URL: no host" if not host else "not a URL: port 0")
    # An empty query or fragment is one too, and urlsplit does not tell it from none.
    if "?" in url or "#" in url:
        raise UsageError(f"a URL with a {'query' if '?' in url else 'fragment'} is refused")
    path = parts.path.rstrip("/")
    if root:
        route = next((route for route in _ROUTES if path.endswith(route)), "")
        if route:
            raise UsageError(f"expected the API root, not a route; leave out {route}")
        path = path or "/v1"
    return f"{parts.scheme}://{parts.netloc.lower()}{path}"


def shown_url(text: str) -> str:
    """Return what an argument looks like without anything that may be a secret."""
    bare = re.split(r"[?#]", text, maxsplit=1)[0]
    if "@" in bare:
        return "(not shown, it may hold a secret)"
    return repr(bare if len(bare) <= 60 else bare[:59] + "…")


def header_trouble(name: str, value: str) -> str:
    """Return what is wrong with a header, empty where nothing is."""
    if not HEADER_NAME.fullmatch(name):
        return "not the name of a header"
    if looks_secret(name):
        return "a secret is never written out; name its variable with --api-key-env, or headers_env in a file"
    if name.lower() in OUR_HEADERS:
        return "this header is set by the client"
    if not HEADER_VALUE.fullmatch(value):
        return "the value holds characters that no header can carry"
    return ""


def looks_secret(header: str) -> bool:
    """Return whether a header of this name holds a secret, going by the words it is made of."""
    flat = header.lower().replace("_", "-")
    return not _SECRET_WORDS.isdisjoint(flat.split("-")) or any(pair in flat for pair in _SECRET_PAIRS)


def is_private(url: str, proxy: str | None = None) -> bool:
    """Return whether nobody on the way can read a request: https, or plain http that stays on this machine.

    Loopback is ``localhost``, 127.0.0.0/8 and ``::1``; a proxy elsewhere sees plain http whatever its target.
    """
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    return is_loopback(parts.hostname) and (proxy is None or is_loopback(urlsplit(proxy).hostname))


def is_loopback(host: str | None) -> bool:
    """Return whether a host is this machine."""
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.IPv4Network("127.0.0.0/8")
    return address == ipaddress.IPv6Address("::1")
