"""What a gateway's headers say of what it did with a request; most gateways say nothing, so silence proves nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from servecheck.model import Exchange

__all__ = ["RETRIED", "dropped", "further_attempts", "notes", "server_behind"]

RETRIED = "a gateway tried again"
"""How every note begins that says so; comparisons count them."""

# https://docs.litellm.ai/docs/proxy/response_headers
# https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter
_FURTHER = (("x-litellm-attempted-retries", 0), ("x-litellm-attempted-fallbacks", 0), ("x-envoy-attempt-count", 1))
_GIVEN_UP = re.compile(rb"LiteLLM Retried: (\d{1,4}) times")
# https://github.com/llm-d/llm-d-router; Envoy's are in the router filter's page above.
_DROPPED = ("x-llm-d-request-dropped-reason", "x-envoy-overloaded", "x-envoy-ratelimited")
_SERVED_BY = ("x-gateway-destination-endpoint-served", "x-litellm-model-api-base", "x-litellm-model-id")


def further_attempts(exchange: Exchange) -> tuple[int, str]:
    """Return how often a gateway sent a request again, and what says so; ``(0, "")`` where nothing does."""
    count, where = 0, ""
    for name, first in _FURTHER:
        said = (exchange.header(name) or "").strip()
        if re.fullmatch(r"[0-9]{1,4}", said) and int(said) > first:
            count += int(said) - first
            where = where or f"{name}: {said}"
    given_up = _GIVEN_UP.search(exchange.body) if (exchange.status or 0) >= 400 and not count else None
    if given_up and int(given_up[1]):
        return int(given_up[1]), given_up[0].decode()
    return count, where


def dropped(exchange: Exchange) -> str:
    """Return the reason that a gateway gives for dropping a request, as ``name: value``; empty where it gives none."""
    for name in _DROPPED:
        said = (exchange.header(name) or "").strip()
        if said:
            return f"{name}: {said[:80]}"
    return ""


def server_behind(exchange: Exchange) -> tuple[str, str]:
    """Return which server behind a gateway answered, and the header that says so; two empty strings where none does."""
    for name in _SERVED_BY:
        said = (exchange.header(name) or "").strip()
        if said:
            return said[:80], name
    return "", ""


def notes(exchanges: Iterable[Exchange]) -> Iterator[str]:
    """Yield what a reader of a row must know of its replies: that a gateway tried again, and hid what failed."""
    sent = [exchange for exchange in exchanges if exchange.method == "POST" and exchange.status is not None]
    again = [where for exchange in sent if (where := further_attempts(exchange)[1])]
    if again:
        yield f"{RETRIED} for {len(again)} of {len(sent)} replies ({again[0]}), so what failed behind it does not show"
