"""Sends what the openai SDK makes, beside the same bytes without its headers; for the probes of ``sdk.*``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from servecheck.model import Exchange, Finding, Json
from servecheck.probe import Session
from servecheck.probes._findings import Part
from servecheck.read import reply, sdk
from servecheck.read.text import quote

__all__ = ["SOURCE", "ask", "ask_response", "judge_faults", "unread"]

SOURCE = "https://github.com/openai/openai-python"


async def ask(
    session: Session, step: str, arguments: Mapping[str, Json], *, words: Sequence[str] = (), plain: bool = False
) -> Exchange:
    """Send a chat request as the SDK makes it; ``plain`` leaves its headers away, which makes it a control."""
    request = sdk.built({"model": session.endpoint.model or "default", **arguments}, words=words)
    return await _send(session, step, request, plain=plain)


async def ask_response(session: Session, step: str, arguments: Mapping[str, Json], *, plain: bool = False) -> Exchange:
    """Send a request of the responses route as the SDK makes it; ``plain`` leaves its headers away."""
    request = sdk.built_response({"model": session.endpoint.model or "default", **arguments})
    return await _send(session, step, request, plain=plain)


async def _send(session: Session, step: str, request: sdk.Built, *, plain: bool) -> Exchange:
    return await session.post_raw(step, request.path, request.body, headers=() if plain else request.headers)


def judge_faults(part: Part, check: str, made: sdk.Made, answer: reply.Answer, *, what: str) -> Finding:
    """Judge whether all fields have the types that the SDK declares: it hands them out unlooked at."""
    if not made.faults:
        return part.held(check, f"no field of the {what} has another type than the SDK declares", answer)
    return part.violated(
        check, f"fields of the {what} that the SDK declares otherwise: {'; '.join(made.faults)}", answer
    )


def unread(part: Part, check: str, raised: sdk.Raised, answer: reply.Answer) -> Finding:
    """Return the finding for a reply that was answered and that the SDK's caller cannot have."""
    said = f" to {quote(answer.text, 60)}" if answer.text else ""
    return part.violated(check, f"{raised.what}{said}", answer)
