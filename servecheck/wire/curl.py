"""An exchange as a curl command that sends the same bytes again; proven by executing it in the tests."""

from __future__ import annotations

import base64
import re
import shlex
from urllib.parse import urlsplit

from servecheck.model import Exchange

__all__ = ["render"]

_PLACEHOLDER = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*\})")
_MAX_ARGUMENT = 100_000  # Linux takes 128 KiB in one argument; what a shell prints itself has no such limit
_OWN = frozenset({"host", "content-length", "user-agent", "accept", "accept-encoding", "connection"})


def render(exchange: Exchange) -> str:
    """Return a command for a POSIX shell. Secrets stay names of environment variables, which the shell fills in."""
    lines = [f"curl -sS -N -i{_as_is(exchange.url)} -X {shlex.quote(exchange.method)} {shlex.quote(exchange.url)}"]
    for name, value in exchange.request_headers:
        if name.lower() not in _OWN:
            lines.append("-H " + _header(f"{name}: {value}"))
    if not exchange.request_body:
        return " \\\n  ".join(lines)
    if not any(name.lower() == "content-type" for name, _ in exchange.request_headers):
        lines.append("-H content-type:")  # curl would add that of a form
    try:
        text = exchange.request_body.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(exchange.request_body) > _MAX_ARGUMENT:
        packed = base64.b64encode(exchange.request_body).decode("ascii")
        lines.append("--data-binary @-")
        return f"printf %s {packed} | base64 -d | " + " \\\n  ".join(lines)
    lines.append("--data-raw " + shlex.quote(text))
    return " \\\n  ".join(lines)


def _as_is(url: str) -> str:
    """Return the flags that keep curl from reading a path as a pattern or shortening it."""
    path = urlsplit(url).path
    return (" --globoff" if set("[]{}") & set(path) else "") + (" --path-as-is" if "/." in path else "")


def _header(line: str) -> str:
    """Quote a header so that only placeholders are filled in by the shell."""
    return "".join(
        f'"{part}"' if _PLACEHOLDER.fullmatch(part) else shlex.quote(part) for part in _PLACEHOLDER.split(line) if part
    )
