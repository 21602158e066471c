"""Takes secrets out of what was sent and what came back, before an exchange exists. Byte counts and times are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from servecheck.model import Chunk

__all__ = ["placeholder", "redacted_chunks", "redacted_headers"]

# Values under such keys are secrets wherever a server shows its own settings; `/server_info` of SGLang shows them in
# clear. Applied to replies of GET only: in generated text the same words are the model's.
_SETTING = re.compile(
    rb"""(?ix)
    ["']? (?:[\w-]*(?:api[_-]?key|secret|passw(?:or)?d|access[_-]?token|auth[_-]?token|hf[_-]?token)[\w-]*) ["']?
    (?: \s*[:=]\s*["']? | ["']?\s*,\s*["'] | \s+ ) (?P<value> [^\s"',}\]\\]{3,} )"""
)
_HARMLESS = frozenset({b"null", b"None", b"true", b"false", b"True", b"False"})


def placeholder(variable: str) -> str:
    """Return what stands for a secret in a recorded header; a shell puts the value back."""
    return f"${{{variable}}}"


def redacted_headers(headers: Iterable[tuple[str, str]], secrets: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return ``headers`` with each secret (environment variable → value) replaced by its placeholder."""
    shown = []
    for name, value in headers:
        for variable, secret in secrets.items():
            value = value.replace(secret, placeholder(variable))  # noqa: PLW2901
        shown.append((name, value))
    return tuple(shown)


def redacted_chunks(chunks: tuple[Chunk, ...], secrets: Iterable[str], *, settings: bool) -> tuple[Chunk, ...]:
    """Return ``chunks`` with every secret overwritten by as many asterisks, also where it spans chunks.

    ``settings`` also overwrites the values of settings that are secret by their name.
    """
    body = b"".join(chunk.data for chunk in chunks)
    spans = [
        match.span() for secret in secrets if secret for match in re.finditer(re.escape(secret.encode("utf-8")), body)
    ]
    if settings:
        spans += [match.span("value") for match in _SETTING.finditer(body) if match.group("value") not in _HARMLESS]
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
