"""What the caller adds to a report: a title, a context, benchmark results. It is shown and never weighed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from servecheck.bench import Benchmark, from_json, load
from servecheck.errors import UsageError
from servecheck.model import Json

__all__ = ["CONTEXT_LIMIT", "Framing", "Listed", "blocks", "framing", "from_header"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A list of a context; ``start`` is the first number of a numbered one."""

    items: tuple[str, ...]
    start: int | None = None


_ITEM = re.compile(r"\s*(?:[-*•]|(\d{1,9})[.)])\s+(?=\S)")


def blocks(context: str) -> tuple[str | Listed, ...]:
    """Return the paragraphs of a context, and its lists: lines that begin with ``-``, ``*`` or a number.

    A line that begins with none of them goes on with the paragraph or the item above it; an empty line ends both. Lists
    are flat, and nothing else of Markdown has a meaning here.
    """
    found: list[str | Listed] = []
    going_on = False
    for line in context.replace("\r\n", "\n").split("\n"):
        words = line.strip()
        if not words:
            going_on = False
            continue
        last = found[-1] if found else None
        item = _ITEM.match(line)
        if item is None:
            if not going_on or last is None:
                found.append(words)
            elif isinstance(last, Listed):
                found[-1] = replace(last, items=(*last.items[:-1], f"{last.items[-1]} {words}"))
            else:
                found[-1] = f"{last} {words}"
        else:
            said = line[item.end() :].strip()
            if isinstance(last, Listed) and (last.start is None) == (item[1] is None):
                found[-1] = replace(last, items=(*last.items, said))
            else:
                found.append(Listed(items=(said,), start=None if item[1] is None else int(item[1])))
        going_on = True
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
