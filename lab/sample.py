"""Writes `examples/sample-report/` from two recorded runs of real engines; sends nothing and judges as `compare` does.

    python -m lab.sample LEFT RIGHT [--title TITLE] [--unlike probes] [--unlike model]

LEFT and RIGHT are run folders, or FOLDER:ENDPOINT; the left one is the reference. Only the report and its pictures are
kept: the rest is large. Paths of this machine are shortened to the name of the file.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from servecheck.errors import ServecheckError
from servecheck.join import Unlike, join
from servecheck.probes import discover
from servecheck.report.files import write_all
from servecheck.run import read_back
from servecheck.wire.curl import render

__all__ = ["SAMPLE", "main", "without_paths", "write"]

SAMPLE = Path(__file__).resolve().parent.parent / "examples" / "sample-report"
_HOMES = frozenset({"home", "Users"})


def main(arguments: Sequence[str], folder: Path = SAMPLE) -> int:
    """Write the sample; return an exit code."""
    parser = argparse.ArgumentParser(prog="lab.sample", description="Write the sample report from two recorded runs.")
    parser.add_argument("left", help="the reference: a run folder, or FOLDER:ENDPOINT")
    parser.add_argument("right", help="what one would move to: the same")
    parser.add_argument("--title", default="", help="a title in place of the question")
    parser.add_argument("--unlike", action="append", default=[], type=Unlike, choices=list(Unlike))
    given = parser.parse_args(arguments)
    try:
        write(given.left, given.right, folder, title=given.title, unlike=given.unlike)
    except ServecheckError as error:
        sys.stderr.write(f"lab.sample: {error}\n")
        return 2
    sys.stdout.write(f"{folder / 'report.md'}: look at it, and at README.md beside it, before you commit\n")
    return 0


def write(left: str, right: str, folder: Path, *, title: str = "", unlike: Iterable[Unlike] = ()) -> None:
    """Write the report of ``right`` against ``left`` and its pictures into ``folder``; others there are removed.

    Raises ``UsageError`` where the two cannot be compared, ``StoreError`` where a folder holds no run.
    """
    names = [Path(side.rpartition(":")[0] or side if not Path(side).is_dir() else side).name for side in (left, right)]
    wanted = list(unlike)
    command = ["servecheck", "compare", *(f"runs/{name}" for name in names), "--out", "-".join(names)]
    command += [word for each in wanted for word in ("--unlike", each.value)]
    with tempfile.TemporaryDirectory() as made:
        run = Path(made) / "run"
        join(left, right, run, command=command, unlike=wanted)
        report = read_back(run, discover())
        if title:
            report = replace(report, framing=replace(report.framing, title=title))
        write_all(report, run, render)
        places = [made, *(str(Path(side).absolute()) for side in (left, right)), str(Path.home()), sys.prefix]
        kept = [run / "report.md", *sorted(run.glob("figure-*.svg"))]
        texts = {path.name: without_paths(path.read_text(encoding="utf-8"), places) for path in kept}
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("figure-*.svg"):
        old.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def without_paths(text: str, places: Iterable[str]) -> str:
    """Return a text with every path below the first folder of one of these places as ``…/name``.

    The first folder is ``/srv``, or ``/home/me``: engines, models and recordings of one machine mostly share it.
    """
    for root in sorted(filter(None, map(_root, places)), key=len, reverse=True):
        text = re.sub(rf"(?<![\w./-]){re.escape(root)}(?:/[\w.+@%-]+)*(?=/|\b)", _last, text)
    return text


def _root(place: str) -> str:
    parts = Path(place).parts[1:]
    return "/" + "/".join(parts[: 2 if parts and parts[0] in _HOMES else 1]) if parts else ""


def _last(found: re.Match[str]) -> str:
    return f"…/{Path(found.group()).name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
