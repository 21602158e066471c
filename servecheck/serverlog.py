"""Counts what a server compiled from its own log, while it started and while it served; it sends nothing.

Knows the lines of vLLM on TPU (tpu-inference and TorchTPU), SGL-JAX, vLLM on GPU, torch.compile and JAX, as read in
their sources. It reads a log of any size line by line. What an engine does not write cannot be counted, and that is
said too.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from servecheck.errors import UsageError
from servecheck.model import Json

__all__ = ["KINDS", "Compiled", "Kind", "ServerLog", "read", "read_lines"]

_LINE_BYTES = 64 * 1024  # a longer line is looked at so far, and the rest of it is passed over
_MOST_SUBJECTS = 1000
_SHOWN = 12

Stack = Literal[
    "vLLM on TPU (tpu-inference)", "vLLM on TPU (TorchTPU)", "SGL-JAX", "vLLM", "SGLang", "torch.compile", "JAX"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of line. Groups of the pattern: ``what`` was compiled, ``seconds`` it took, ``count`` of compilations.

    A pattern without ``count`` stands for one. ``hint`` is a piece of text that every such line has. ``means`` says
    what the line is.
    """

    id: str
    stack: Stack
    pattern: re.Pattern[str]
    means: str
    hint: str


KINDS = (
    Kind(
        id="tpu-inference-compiled",
        stack="vLLM on TPU (tpu-inference)",
        pattern=re.compile(r"Compilation of (?P<what>.+?) finished in (?P<seconds>[0-9.]+) \[?secs"),
        means="a graph was compiled",
        hint="Compilation of",
    ),
    Kind(
        id="jax-forbidden",
        stack="vLLM on TPU (tpu-inference)",
        pattern=re.compile(r"JAX compilation occurred but was forbidden in this context"),
        means="a compilation was needed after warm-up and was forbidden, so the engine failed",
        hint="was forbidden in this context",
    ),
    Kind(
        id="torchtpu-new-graphs",
        stack="vLLM on TPU (TorchTPU)",
        pattern=re.compile(r"Total number of cached graphs: [0-9]+, new: (?P<count>[0-9]+), case: (?P<what>.*\S)"),
        means="graphs were added to the cache",
        hint="Total number of cached graphs",
    ),
    Kind(
        id="torchtpu-after-warm-up",
        stack="vLLM on TPU (TorchTPU)",
        pattern=re.compile(r"Recompilation after warm up is detected during (?P<what>.*[^\s.])"),
        means="a compilation after warm-up was noticed, and the engine stopped",
        hint="Recompilation after warm up",
    ),
    Kind(
        id="torch-tpu-cache-miss",
        stack="vLLM on TPU (TorchTPU)",
        pattern=re.compile(r"Compilation cache (?P<what>(?:STATIC )?MISS) #"),
        means="a program was not in the compilation cache",
        hint="Compilation cache",
    ),
    Kind(
        id="sgl-jax-cache-miss",
        stack="SGL-JAX",
        pattern=re.compile(r"(?P<what>Prefill|Decode) batch\b.*#cache_miss: (?P<count>[0-9]+)"),
        means="a batch met shapes that were not compiled",
        hint="#cache_miss",
    ),
    Kind(
        id="gpu-jit",
        stack="vLLM",
        pattern=re.compile(r"(?P<what>\S.*?)[ .]*This causes a latency spike; consider extending warmup"),
        means="a kernel was compiled while serving (the JIT monitor)",
        hint="causes a latency spike",
    ),
    Kind(
        id="torch-compile",
        stack="torch.compile",
        pattern=re.compile(r"(?P<what>torch\.compile|Compiling a graph for .+?) takes (?P<seconds>[0-9.]+) s\b"),
        means="torch.compile made graphs",
        hint=" takes ",
    ),
    Kind(
        id="torch-recompiles",
        stack="torch.compile",
        pattern=re.compile(r"Recompiling function (?P<what>\S+)"),
        means="torch.compile made a function again for another shape (TORCH_LOGS=recompiles)",
        hint="Recompiling function",
    ),
    Kind(
        id="jax-compiled",
        stack="JAX",
        pattern=re.compile(r"Finished XLA compilation of (?P<what>.+?) in (?P<seconds>[0-9.e+-]+) sec"),
        means="XLA compiled a program (JAX_LOG_COMPILES=1)",
        hint="Finished XLA compilation",
    ),
)
"""All kinds of lines; the first that matches a line counts it."""

_HINTS = tuple(kind.hint for kind in KINDS)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(
    r"^(?:\([^)]*\) ?)*(?:(?:INFO|WARNING|ERROR|DEBUG)\s+)?(?:[0-9-]{5,10}[ T][0-9:]{8}\S*\s+)?(?:\[[^\]]*\]\s*)*"
)
_TIMES = re.compile(r"(?:[0-9]{4}-)?[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}")
_READY = ("Application startup complete", "The server is fired up and ready to roll")
_STARTING = ("vLLM API server version", "Started server process", "server_args=")
# What the lines of an engine begin with, compilation or not: enough to say that a log is of a known kind.
_FAMILIES: tuple[tuple[Stack, re.Pattern[str]], ...] = (
    (
        "vLLM",
        re.compile(r"^(?:\([^)]*\) )*(?:INFO|WARNING|ERROR|DEBUG) [0-9]{2}-[0-9]{2} [0-9:]{8} \[[\w./-]+:[0-9]+\]"),
    ),
    ("SGLang", re.compile(r"^\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}[^\]]*\] ")),
)
_SPEAKS: Mapping[str, str] = {
    "vLLM": "vLLM writes no line for a compilation while it serves unless it is told to: on TPU with "
    "VLLM_XLA_CHECK_RECOMPILATION=1 (on a staging server: it stops the engine), on GPU with --jit-monitor-mode warn",
    "SGLang": "SGLang writes no line for a compilation; SGL-JAX writes #cache_miss for each batch",
}
_QUIET = "an engine that writes no line for a compilation looks the same"


@dataclass(slots=True, kw_only=True)
class Compiled:
    """What was compiled of one kind and subject: how often, for how long where that is told, and where it is found."""

    kind: str
    what: str
    count: int = 0
    seconds: float | None = None
    first_line: int = 0
    last_line: int = 0

    def add(self, count: int, seconds: float | None, line: int) -> None:
        """Take in one line."""
        self.count += count
        if seconds is not None:
            self.seconds = (self.seconds or 0.0) + seconds
        self.first_line = self.first_line or line
        self.last_line = line

    def as_json(self) -> dict[str, Json]:
        """Return the figures."""
        return {
            "kind": self.kind,
            "what": self.what,
            "count": self.count,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "first_line": self.first_line,
            "last_line": self.last_line,
        }


@dataclass(slots=True, kw_only=True)
class _Phase:
    """Starting or serving: subjects in the order met, bounded, with what is beyond the bound under one name."""

    subjects: dict[tuple[str, str], Compiled] = field(default_factory=dict)

    def add(self, kind: Kind, what: str, count: int, seconds: float | None, line: int) -> None:
        if (kind.id, what) not in self.subjects and len(self.subjects) >= _MOST_SUBJECTS:
            what = "others"
        self.subjects.setdefault((kind.id, what), Compiled(kind=kind.id, what=what)).add(count, seconds, line)

    @property
    def count(self) -> int:
        return sum(each.count for each in self.subjects.values())

    @property
    def seconds(self) -> float | None:
        told = [each.seconds for each in self.subjects.values() if each.seconds is not None]
        return sum(told) if told else None

    def as_json(self) -> dict[str, Json]:
        seconds = self.seconds
        return {
            "compilations": self.count,
            "seconds": None if seconds is None else round(seconds, 3),
            "what": [each.as_json() for each in _by_cost(self.subjects.values())],
        }


@dataclass(slots=True, kw_only=True)
class ServerLog:
    """What a log says. Without a line that says the server is ready (``ready_lines``), starting and serving cannot be
    told apart, and all is in ``starting``. ``batches`` and ``missed`` count the batches of SGL-JAX while serving.
    """

    name: str
    lines: int = 0
    stacks: dict[str, int] = field(default_factory=dict)
    ready_lines: list[int] = field(default_factory=list)
    starting: _Phase = field(default_factory=_Phase)
    serving: _Phase = field(default_factory=_Phase)
    batches: int = 0
    missed: int = 0
    first_time: str = ""
    last_time: str = ""

    @property
    def known(self) -> bool:
        """Whether any line is of a format known here."""
        return bool(self.stacks)

    def as_json(self) -> dict[str, Json]:
        """Return all figures."""
        return {
            "log": self.name,
            "lines": self.lines,
            "stacks": {name: self.stacks[name] for name in sorted(self.stacks)},
            "ready_lines": [*self.ready_lines],
            "starting": self.starting.as_json(),
            "serving": self.serving.as_json() if self.ready_lines else None,
            "batches": self.batches,
            "batches_with_a_miss": self.missed,
            "first_time": self.first_time or None,
            "last_time": self.last_time or None,
            "requests_sent": 0,
        }

    def told(self) -> str:
        """Return it for a reader."""
        when = f", {self.first_time} to {self.last_time}" if self.first_time else ""
        lines = [f"{self.name}: {self.lines} lines{when}"]
        if not self.known:
            known = ", ".join(dict.fromkeys(kind.stack for kind in KINDS))
            lines.append(f"no line is of a format known here ({known}), so nothing can be said")
            return "\n".join(lines)
        stacks = ", ".join(f"{name} ({count} lines)" for name, count in sorted(self.stacks.items()))
        lines.append(f"lines of {stacks}")
        if not self.ready_lines:
            lines.append("no line says when the server was ready: what belongs to warm-up cannot be told from traffic")
            lines += _phase("in all", self.starting)
        else:
            places = ", ".join(str(line) for line in self.ready_lines[:_SHOWN])
            lines.append(f"ready at line {places}")
            lines += _phase("while starting", self.starting)
            lines += _phase("while serving", self.serving)
        if self.batches:
            share = f"{100 * self.missed / self.batches:.2g} %"
            lines.append(f"{self.missed} of {self.batches} batches while serving ({share}) met what was not compiled")
        if not (self.serving.count or self.batches):
            lines.append("none written is not none made: " + self._silence())
        lines.append("0 requests were sent")
        return "\n".join(lines)

    def _silence(self) -> str:
        return next((text for stack, text in _SPEAKS.items() if stack in self.stacks), _QUIET)


def _phase(name: str, phase: _Phase) -> Iterator[str]:
    seconds = "" if phase.seconds is None else f", {phase.seconds:.1f} s"
    yield f"{name}: {phase.count} compilations{seconds}"
    ordered = _by_cost(phase.subjects.values())
    means = {kind.id: kind.means for kind in KINDS}
    for each in ordered[:_SHOWN]:
        took = "" if each.seconds is None else f", {each.seconds:.1f} s"
        last = f" to {each.last_line}" if each.last_line != each.first_line else ""
        yield f"  {each.count:6} × {each.what[:100]}{took} (line {each.first_line}{last}; {means[each.kind]})"
    if len(ordered) > _SHOWN:
        yield f"  and {len(ordered) - _SHOWN} more; --json lists them"


def _by_cost(found: Iterable[Compiled]) -> list[Compiled]:
    return sorted(
        (each for each in found if each.count), key=lambda each: (-(each.seconds or 0.0), -each.count, each.first_line)
    )


def read(path: Path) -> ServerLog:
    """Read a log file, plain or gzip; ``-`` is the standard input.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        with _opened(path) as file:
            return read_lines(_lines(file), name=str(path))
    except (OSError, EOFError) as error:  # what gzip raises for a file that is cut is an EOFError
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot be read: {why}") from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if packed:
            with gzip.open(file) as inner:
                yield inner  # type: ignore[misc]  # reads bytes as any binary file does
        else:
            yield file


def _lines(file: IO[bytes]) -> Iterator[str]:
    """Yield the beginning of each line, so that a line without end fills no memory."""
    within = False
    while piece := file.readline(_LINE_BYTES):
        if not within:
            yield piece.decode("utf-8", "replace")
        within = not piece.endswith(b"\n")


def read_lines(lines: Iterable[str], *, name: str = "log") -> ServerLog:
    """Read a log's lines one by one."""
    log = ServerLog(name=name)
    ready = False
    for number, line in enumerate(lines, 1):
        log.lines = number
        text = _COLOURS.sub("", line) if "\x1b" in line else line
        _note_family(log, text)
        if any(mark in text for mark in _READY):
            if not ready:
                log.ready_lines.append(number)
            ready = True
        elif any(mark in text for mark in _STARTING):
            ready = False
        if any(hint in text for hint in _HINTS):
            _count(log, text, number, serving=ready)
    return log


def _note_family(log: ServerLog, text: str) -> None:
    family = next((stack for stack, pattern in _FAMILIES if pattern.match(text)), None)
    if family is None:
        return
    log.stacks[family] = log.stacks.get(family, 0) + 1
    found = _TIMES.search(text, 0, 80)
    if found is not None:
        log.first_time = log.first_time or found[0]
        log.last_time = found[0]


def _count(log: ServerLog, text: str, number: int, *, serving: bool) -> None:
    for kind in KINDS:
        found = kind.pattern.search(text) if kind.hint in text else None
        if found is None:
            continue
        groups = found.groupdict()
        log.stacks[kind.stack] = log.stacks.get(kind.stack, 0) + 1
        count = int(groups["count"]) if groups.get("count") else 1
        if kind.id == "sgl-jax-cache-miss" and serving:
            log.batches += 1
            log.missed += bool(count)
        if count:
            what = _PREFIX.sub("", groups.get("what") or kind.means).strip() or kind.means
            phase = log.serving if serving else log.starting
            phase.add(kind, what[:200], count, _seconds(groups.get("seconds")), number)
        return


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
