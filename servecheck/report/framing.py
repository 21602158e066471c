"""What the caller adds to a report: a title, a context, benchmark results. It is shown and never weighed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servecheck.bench import Benchmark, from_json, load
from servecheck.errors import UsageError
from servecheck.model import Json

__all__ = ["CONTEXT_LIMIT", "Framing", "Listed", "blocks", "framing", "from_header"]

CONTEXT_LIMIT = 20_000
"""Bytes of a context; it stands before the matrix, and a report is not the place for a document."""

_TITLE_LIMIT = 200

_ITEM = re.compile(r"(?:[-*]|(?P<number>\d{1,3})[.)])\s+(?P<said>\S.*)", re.ASCII)


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
    """A list of a context; ``first`` is the number of its first item, ``None`` where it has marks and no numbers."""

    items: tuple[str, ...]
    first: int | None = None

    @property
    def numbered(self) -> tuple[tuple[int, str], ...]:
        """The items with their numbers."""
        return tuple(enumerate(self.items, self.first or 1))


def blocks(context: str) -> tuple[str | Listed, ...]:
    """Return the paragraphs and the lists of a context, in its order; nothing else of it is Markdown.

    A line of a list begins with ``-``, ``*`` or a number, right after a paragraph too (a number only where it is 1, as
    in Markdown: a year may begin a line). What follows on lines of their own belongs to the item; lists are flat.
    """
    found: list[str | Listed] = []
    said: list[str] = []
    kind, first, apart = "", 0, True

    def end() -> None:
        if said:
            found.append(Listed(items=tuple(said), first=first if kind == "1" else None) if kind else said[0])
            said.clear()

    for raw in context.splitlines():
        line = raw.strip()
        item = _ITEM.match(line)
        number = int(item["number"] or 0) if item else 0
        if item and item["number"] and number != 1 and said and not apart and kind != "1":
            item = None
        if not line:
            apart = True
        elif item:
            mark = "1" if item["number"] else "-"
            if kind != mark:
                end()
                kind, first = mark, number
            said.append(item["said"])
        elif not said or (apart and not (kind and raw[:1].isspace())):
            end()
            kind = ""
            said.append(line)
        else:
            said[-1] += f" {line}"
        apart = not line
    end()
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
