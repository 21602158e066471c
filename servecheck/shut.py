"""Why an endpoint cannot be asked at all, as one sentence with what to do about it; it judges no feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from servecheck import canary
from servecheck.model import Endpoint, Exchange
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["all_shut", "why"]

_WAIT = "--wait-ready SECONDS waits for a server that is starting"
_NAMED = 4
_NOT_FOUND = 404


def why(
    endpoint: Endpoint, asked: Mapping[str, Exchange], plain: Exchange | None, models: Sequence[str] = ()
) -> str | None:
    """Return why nothing can be asked of an endpoint, ``None`` where it can be.

    ``asked`` are the replies to what the server is, ``plain`` the reply to a plain request (``None`` where none was
    sent), ``models`` the ids that it lists.
    """
    seen = [*asked.values(), *([plain] if plain is not None else [])]
    if seen and all(exchange.status is None for exchange in seen):
        return _silent(endpoint, seen[-1])
    if plain is None:
        return None
    if denied := canary.denial(plain):
        return denied
    listed = asked.get("models")
    if plain.status == _NOT_FOUND and listed is not None and listed.status == _NOT_FOUND:
        parts = urlsplit(endpoint.base_url)
        usual = f"{parts.scheme}://{parts.netloc}/v1"
        hint = f" Most servers have their API at {usual}" if usual != endpoint.base_url.rstrip("/") else ""
        tried = " and ".join(f"{each.method} {urlsplit(each.url).path}" for each in (listed, plain))
        return f"HTTP 404 for {tried}: is the URL right?{hint}"
    refused = plain.status is not None and 400 <= plain.status < 500
    if refused and models and endpoint.model is not None and endpoint.model not in models:
        more = f" and {len(models) - _NAMED} more" if len(models) > _NAMED else ""
        served = ", ".join(quote(each) for each in models[:_NAMED]) + more
        return f"it serves {served}, not {quote(endpoint.model)}: --model {endpoint.name}={models[0][:80]}"
    if refused and any(b"sent to HTTPS port" in each.body for each in seen):
        return "plain http was spoken to a port that wants https: begin the URL with https://"
    return None


def _silent(endpoint: Endpoint, exchange: Exchange) -> str:
    """Say why nothing came back, by what the connection said."""
    parts = urlsplit(endpoint.base_url)
    said = exchange.detail.lower()
    if "wrong_version_number" in said or "record layer failure" in said:
        return f"https was spoken to a port that speaks plain http: http://{parts.netloc}{parts.path}"
    if "name or service not known" in said or "getaddrinfo" in said or "nodename nor servname" in said:
        return f"there is no host {parts.hostname!r}, or its name is not known on this machine"
    if "certificate_verify_failed" in said:
        return _untrusted(exchange.detail)
    if "refused" in said:
        return f"nothing listens at {parts.netloc} (connection refused); {_WAIT}"
    nothing = reply.not_answered(exchange)
    return f"{nothing.what if nothing is not None else 'no reply'}; {_WAIT}"


def _untrusted(detail: str) -> str:
    why = detail.partition("certificate verify failed")[2].partition(" (_ssl")[0].strip(" :.")
    told = f"its certificate is not trusted here ({why or 'no reason given'})"
    if "expired" in why or "mismatch" in why:  # no authority would make it right
        return told
    return f"{told}: who issued it can be named by an endpoints file, with ca_file"


def all_shut(names: Sequence[str], shut: Mapping[str, str]) -> bool:
    """Tell whether not one of the endpoints could be asked."""
    return bool(names) and all(name in shut for name in names)
