"""Routes that can stop, empty or reload a server are not offered to whoever asks.

What it does: asks for ``/openapi.json`` without a key and looks among its paths for routes that manage the server.
None of them is ever called.

Why it matters: whoever reaches the port can flush the cache, put the server to sleep or load other weights into it.

How it could be fooled: a route that is listed may still be guarded (SGLang's by a second key), and a server that lists
nothing may have them all; so a list is a warning, and no list is no proof.
"""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.model import Check, Finding, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._management import is_dangerous
from servecheck.read import reply
from servecheck.read.text import dig

__all__ = ["PROBE", "is_dangerous"]

_CHECK = "no-admin-route-is-listed-without-a-key"
_PART = Part(route=Route.NONE, mode=Mode.NONE)
_SHOWN = 8


async def drive(session: Session, _: Params, __: Transcript | None) -> None:
    """The list of routes, as a stranger gets it."""
    await session.without_key("openapi", "GET", "/openapi.json", server=True)


def judge(transcript: Transcript, _: Params) -> Iterator[Finding]:
    """Judge the list, not the routes."""
    exchange = transcript.get("openapi")
    if exchange is None:
        yield _PART.undetermined(_CHECK, "the list of routes was not asked for")
        return
    if exchange.status in (401, 403):
        yield _PART.held(_CHECK, f"the list of routes itself needs a key: HTTP {exchange.status}", exchange)
        return
    body = reply.json_body(exchange)
    paths = None if isinstance(body, reply.Refusal | reply.Failure) else dig(body, "paths")
    if not isinstance(paths, dict):
        what = body.what if isinstance(body, reply.Refusal | reply.Failure) else "it names no paths"
        yield _PART.undetermined(_CHECK, f"no list of routes to read ({what}), which proves nothing", exchange)
        return
    found = sorted(path for path in paths if is_dangerous(path))
    if not found:
        yield _PART.held(_CHECK, f"none of the {len(paths)} routes listed manages the server", exchange)
        return
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    why = f"{len(found)} of {len(paths)} routes manage the server: {', '.join(found[:_SHOWN])}{more}"
    yield _PART.violated(_CHECK, f"{why}; they were not called, so a guard behind them would not show", exchange)


PROBE = Probe(
    id="auth_admin_exposed",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CHECK,
            rule="The list of routes that a stranger gets names none that manages the server.",
            level=Level.SHOULD,
            source="https://docs.vllm.ai/en/latest/usage/security/",
        ),
    ),
    params=Params,
    drive=drive,
    judge=judge,
    steady=True,
    requests=1,
)
