"""What the caller adds to a report: a title, a context, benchmark results. It is shown and never weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servecheck.bench import Benchmark, from_json, load
from servecheck.errors import UsageError
from servecheck.model import Json

__all__ = ["CONTEXT_LIMIT", "Framing", "blocks", "framing", "from_header"]

CONTEXT_LIMIT = 20_000
"""Bytes of a context; it stands before the matrix, and a report is not the place for a document."""

_TITLE_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """``benchmarks`` are named by endpoint; ``redact`` leaves out what was sent and what came back."""

    title: str = ""
    context: str = ""
    benchmarks: tuple[Benchmark, ...] = ()
    redact: bool = False

    def as_header(self) -> dict[str, Json]:
        """Return what a run folder keeps of it; empty where there is nothing to keep."""
        kept: dict[str, Json] = {
            "title": self.title,
            "context": self.context,
            "benchmarks": [each.as_json() for each in self.benchmarks],
            "redact": self.redact,
        }
        return {name: value for name, value in kept.items() if value}

    def over(self, earlier: Framing) -> Framing:
        """Return ``earlier`` with what this one says instead; benchmarks of the same endpoint are replaced."""
        mine = {each.endpoint for each in self.benchmarks}
        return Framing(
            title=self.title or earlier.title,
            context=self.context or earlier.context,
            benchmarks=(*(each for each in earlier.benchmarks if each.endpoint not in mine), *self.benchmarks),
            redact=self.redact or earlier.redact,
        )


def framing(
    *,
    title: str | None = None,
    context: Path | None = None,
    benchmarks: tuple[str, ...] | list[str] = (),
    redact: bool = False,
) -> Framing:
    """Read what the caller gave, benchmarks as ``NAME=FILE``. Raises ``UsageError`` where it cannot be used."""
    title = " ".join((title or "").split())
    if len(title) > _TITLE_LIMIT:
        raise UsageError(f"--title has {len(title)} characters; at most {_TITLE_LIMIT} fit into a heading")
    found: list[Benchmark] = []
    for given in benchmarks:
        name, equals, file = given.partition("=")
        if not equals or not name or not file:
            raise UsageError(f"--bench {given}: expected NAME=FILE, with the name of an endpoint of this run")
        found += load(Path(file), name)
    return Framing(title=title, context=_context(context), benchmarks=tuple(found), redact=redact)


def from_header(value: Json) -> Framing:
    """Return what a run folder kept; nothing where it kept nothing."""
    held = value if isinstance(value, Mapping) else {}
    listed = held.get("benchmarks")
    return Framing(
        title=str(held.get("title") or ""),
        context=str(held.get("context") or ""),
        benchmarks=tuple(filter(None, map(from_json, listed if isinstance(listed, list) else []))),
        redact=held.get("redact") is True,
    )


def blocks(context: str) -> tuple[str | tuple[str, ...], ...]:
    """Return the paragraphs of a context, and its lists as tuples: lines that all begin with ``-`` or ``*``."""
    found: list[str | tuple[str, ...]] = []
    for part in context.replace("\r\n", "\n").split("\n\n"):
        lines = [line.strip() for line in part.split("\n") if line.strip()]
        if lines and all(line.startswith(("- ", "* ")) for line in lines):
            found.append(tuple(line[2:].strip() for line in lines))
        elif lines:
            found.append(" ".join(lines))
    return tuple(found)


def _context(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            data = file.read(CONTEXT_LIMIT + 1)  # a device or a log is never read to its end
    except OSError as error:
        raise UsageError(f"cannot read the context {path}: {error.strerror or error}") from error
    if len(data) > CONTEXT_LIMIT:
        raise UsageError(f"{path} is too long; a context has at most {CONTEXT_LIMIT:,} bytes, link to the rest")
    try:
        return data.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error}") from error
