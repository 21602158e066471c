"""Where the count of running requests can be read on an engine, and what it says; shared by rows about hanging up."""

from __future__ import annotations

from servecheck.model import Exchange, Transcript
from servecheck.probe import Session
from servecheck.read.series import running_in_loads, running_in_metrics, running_in_slots

__all__ = ["find_source", "read", "running"]

_SOURCES = {"vllm": ("metrics",), "sglang": ("loads",), "llama.cpp": ("slots", "metrics")}
_ANY_SOURCE = ("metrics", "loads", "slots")


async def find_source(session: Session) -> str:
    """Return the first place where a count of running requests can be read, an empty string where there is none."""
    for source in _SOURCES.get(session.fingerprint.value("engine") or "", _ANY_SOURCE):
        if running(await read(session, source, f"look-{source}"), session.transcript) is not None:
            return source
    return ""


async def read(session: Session, source: str, step: str) -> Exchange:
    """Read the count once."""
    if source == "loads":
        return await session.get(step, "/loads", deadline=15)
    if source == "slots":
        return await session.get_server(step, "/slots", deadline=15)
    return await session.metrics(step)


def running(exchange: Exchange | None, transcript: Transcript) -> int | None:
    """Return how many requests ran when an exchange was made, ``None`` where it does not tell."""
    if exchange is None:
        return None
    if exchange.url.endswith("/loads"):
        return running_in_loads(exchange)
    if exchange.url.endswith("/slots"):
        return running_in_slots(exchange)
    return running_in_metrics(exchange, transcript.fingerprint)
