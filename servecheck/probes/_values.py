"""Values of property rows: what was seen, or that it is not known, each with its evidence."""

from __future__ import annotations

from servecheck.model import Exchange, How, Observed

__all__ = ["observed", "unknown"]


def observed(value: str, why: str, *seen: Exchange | None, how: How = How.OBSERVED) -> Observed:
    """Return a value with what says so; an exchange that was never sent is left out."""
    evidence = dict.fromkeys(exchange.id for exchange in seen if exchange is not None)
    return Observed(value=value, why=why, how=how, evidence=tuple(evidence))


def unknown(why: str, *seen: Exchange | None) -> Observed:
    """Return that the value is not known, and why: unknown is a value too."""
    return observed("unknown", why, *seen, how=How.UNKNOWN)
