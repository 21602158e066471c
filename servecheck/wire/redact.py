"""Takes secrets out of what was sent and what came back, before an exchange exists. Byte counts and times are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import quote

from servecheck.addresses import looks_secret
from servecheck.model import Chunk, Endpoint

__all__ = ["masked", "placeholder", "redacted_chunks", "redacted_headers", "redacted_text", "without_secrets"]

_MIN_SECRET = 6
"""Shorter keys (``EMPTY``, ``none``, ``x``) are fillers for servers without keys; overwriting them in every reply would
destroy what the model said."""

# Values under such keys are secrets wherever a server shows its own settings; `/server_info` of SGLang shows them in
# clear, and its `launch_command` shows the flags. Applied to replies of GET only: in generated text the same words are
# the model's. Every repetition is bounded: the text is a server's, and may be made to cost time.
_SETTING = re.compile(
    rb"""(?isx)
    (?: (?:api[_-]?key|secret|passw(?:or)?d|access[_-]?token|auth[_-]?token|hf[_-]?token|authorization) [\w-]{0,40}
        \\?["']?
        (?: \s{0,8}[:=]\s{0,8} | \s{0,8},\s{0,8}(?=\\?["']) | \s{1,8} )
        (?: bearer\s{1,8} )?
      | \bbearer\s{1,8} )
    (?: \[ (?P<several> [^\]]{1,4096} )
      | " (?:bearer\s{1,8})? (?P<double> (?:[^"\\]|\\.){1,4096} )
      | ' (?:bearer\s{1,8})? (?P<single> (?:[^'\\]|\\.){1,4096} )
      | \\["'] (?:bearer\s{1,8})? (?P<nested> [^"'\\]{1,4096} )
      | (?P<bare> [^\s"',}\]\[{\\]{3,4096} ) )"""
)
_HARMLESS = frozenset({b"null", b"none", b"true", b"false"})


def masked(header: tuple[str, str]) -> tuple[str, str]:
    """Return a literal header with asterisks for its value where its name says that this is a secret.

    Flags and files refuse such headers; an endpoint made by a caller's own code may still have one.
    """
    name, value = header
    return name, "*" * len(value) if looks_secret(name) else value


def without_secrets(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint as it may be written down."""
    return replace(endpoint, headers=tuple(masked(header) for header in endpoint.headers))


def placeholder(variable: str) -> str:
    """Return what stands for a secret in a recorded header; a shell puts the value back."""
    return f"${{{variable}}}"


def redacted_text(text: str, secrets: Mapping[str, str]) -> str:
    """Return ``text`` with each secret (environment variable → value) replaced by its placeholder."""
    # The longest first: a secret may hold another one.
    for variable, secret in sorted(secrets.items(), key=lambda pair: -len(pair[1])):
        if len(secret) >= _MIN_SECRET:
            for form in _forms(secret):
                text = text.replace(form, placeholder(variable))
    return text


def redacted_headers(headers: Iterable[tuple[str, str]], secrets: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return ``headers`` with each secret (environment variable → value) replaced by its placeholder."""
    return tuple((name, redacted_text(value, secrets)) for name, value in headers)


def redacted_chunks(chunks: tuple[Chunk, ...], secrets: Iterable[str], *, settings: bool) -> tuple[Chunk, ...]:
    """Return ``chunks`` with every secret overwritten by as many asterisks, also where it spans chunks.

    ``settings`` also overwrites the values of settings that are secret by their name.
    """
    body = b"".join(chunk.data for chunk in chunks)
    forms = [form.encode() for secret in secrets if len(secret) >= _MIN_SECRET for form in _forms(secret)]
    spans = [match.span() for form in forms for match in re.finditer(re.escape(form), body)]
    if settings:
        spans += [span for match in _SETTING.finditer(body) if (span := _value(match)) is not None]
    if not spans:
        return chunks
    clean = bytearray(body)
    for start, end in spans:
        clean[start:end] = b"*" * (end - start)
    kept, position = [], 0
    for chunk in chunks:
        kept.append(Chunk(chunk.at, bytes(clean[position : position + len(chunk.data)])))
        position += len(chunk.data)
    return tuple(kept)


def _forms(secret: str) -> tuple[str, ...]:
    """Return the ways in which a server may echo a secret: as it is, inside JSON, inside a URL."""
    written = json.dumps(secret)[1:-1]
    # Some writers of JSON escape slashes too.
    return tuple(dict.fromkeys((secret, written, written.replace("/", "\\/"), quote(secret, safe=""))))


def _value(match: re.Match[bytes]) -> tuple[int, int] | None:
    name = next(name for name, value in match.groupdict().items() if value is not None)
    return None if match[name].strip().lower() in _HARMLESS else match.span(name)
