"""A sample of traffic from a file: how long prompts and answers are, in tokens. It reads lengths and never texts.

JSON Lines (one object a line) or CSV with a header. The lengths are under the names that OpenAI's usage and the common
benchmarks give them, at the top of a record or within its ``usage``, so a log of replies can be given as it is.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from servecheck.errors import Problem, ScenarioError, UsageError, nearest
from servecheck.plainwords import got

__all__ = ["PROMPT_NAMES", "Traffic", "load"]

PROMPT_NAMES = ("prompt_tokens", "input_tokens", "prompt_len", "input_len")
_OUTPUT_NAMES = ("completion_tokens", "output_tokens", "output_len")
_MOST_PROBLEMS = 20
_MOST_LENGTHS = 4096  # more different ones are rounded up, so that a run's header stays small
_LONGEST = 10_000_000

_Found: TypeAlias = "tuple[int, int | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """How many requests of a sample have which length, in tokens; ``outputs`` is empty where answers are not told."""

    prompts: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...] = ()

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return sum(count for _, count in self.prompts)


def load(path: Path) -> Traffic:
    """Read a sample.

    Raises:
        UsageError: the file cannot be read, or holds no request.
        ScenarioError: records that are wrong, each with its line; the first twenty of them.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = ""
            for line in file:
                first = line.strip()
                if first:
                    break
            if first.startswith("["):
                raise UsageError(f"{path}: one JSON array; expected one object a line, without brackets around them")
            file.seek(0)
            records = _json_lines(path, file) if first.startswith("{") else _csv(path, file)
            return _counted(path, records)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def _counted(path: Path, records: Iterator[_Found | Problem]) -> Traffic:
    prompts: Counter[int] = Counter()
    outputs: Counter[int] = Counter()
    problems: list[Problem] = []
    for record in records:
        if isinstance(record, Problem):
            problems.append(record)
            if len(problems) >= _MOST_PROBLEMS:
                break
            continue
        prompts[record[0]] += 1
        if record[1] is not None:
            outputs[record[1]] += 1
    if problems:
        raise ScenarioError(problems)
    if not prompts:
        raise UsageError(f"{path}: holds no request; expected a JSON object a line, or CSV, with {PROMPT_NAMES[0]}")
    return Traffic(prompts=_few(prompts), outputs=_few(outputs))


def _few(lengths: Counter[int]) -> tuple[tuple[int, int], ...]:
    """Return lengths with their counts in order, rounded up to steps of a size that leaves few enough."""
    step = 1
    found = lengths
    while len(found) > _MOST_LENGTHS:
        step *= 2
        found = Counter()
        for length, count in lengths.items():
            found[-(-length // step) * step] += count
    return tuple(sorted(found.items()))


def _json_lines(path: Path, lines: Iterator[str]) -> Iterator[_Found | Problem]:
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            column = getattr(error, "colno", 1)
            message = getattr(error, "msg", str(error))
            yield Problem(path=str(path), line=number, column=column, message=f"not JSON: {message}")
            continue
        if not isinstance(record, dict):
            message = f"expected an object with {PROMPT_NAMES[0]}, got {got(record)}"
            yield Problem(path=str(path), line=number, column=1, message=message)
            continue
        usage = record.get("usage")
        yield _lengths(path, number, {**record, **usage} if isinstance(usage, dict) else record)


def _csv(path: Path, lines: Iterator[str]) -> Iterator[_Found | Problem]:
    rows = csv.reader(lines)
    names: list[str] | None = None
    try:
        for row in rows:
            number = rows.line_num
            if not any(field.strip() for field in row):
                continue
            if names is None:
                names = [name.strip() for name in row]
                if not set(names) & set(PROMPT_NAMES):
                    close = next((found for name in names if (found := nearest(name, PROMPT_NAMES))), "")
                    message = f"the first line names no column of prompt lengths: expected one of {_or(PROMPT_NAMES)}"
                    yield Problem(
                        path=str(path),
                        line=number,
                        column=1,
                        message=message,
                        suggestion=f"did you mean {close!r}?" if close else "",
                    )
                    return
                continue
            if len(row) != len(names):
                message = f"expected {len(names)} fields as in the first line, got {len(row)}"
                yield Problem(path=str(path), line=number, column=1, message=message)
                continue
            yield _lengths(path, number, {name: _number(field) for name, field in zip(names, row, strict=True)})
    except csv.Error as error:
        yield Problem(path=str(path), line=rows.line_num, column=1, message=f"not CSV: {error}")


def _number(field: str) -> object:
    text = field.strip()
    if not text:
        return None
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 12 else text


def _lengths(path: Path, line: int, record: dict[str, object]) -> _Found | Problem:
    name = next((name for name in PROMPT_NAMES if name in record), None)
    if name is None:
        close = next((found for key in record if (found := nearest(str(key), PROMPT_NAMES))), "")
        hint = f"did you mean {close!r}?" if close else ""
        message = f"no prompt length: expected {_or(PROMPT_NAMES)}"
        return Problem(path=str(path), line=line, column=1, message=message, suggestion=hint)
    other = next((key for key in _OUTPUT_NAMES if record.get(key) is not None), None)
    prompt = record[name]
    output = record[other] if other is not None else None
    if not _is_length(prompt):
        return _no_length(path, line, name, prompt)
    if other is not None and not _is_length(output):
        return _no_length(path, line, other, output)
    assert isinstance(prompt, int)
    return prompt, output if isinstance(output, int) else None


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LONGEST


def _no_length(path: Path, line: int, name: str, value: object) -> Problem:
    message = f"{name}: expected a whole number of tokens from 0 to {_LONGEST}, got {got(value)}"
    return Problem(path=str(path), line=line, column=1, message=message)


def _or(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
