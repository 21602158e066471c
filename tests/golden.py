"""Whole files that people review: compare with what is committed, or rewrite it with ``UPDATE_GOLDENS=1``."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

__all__ = ["GOLDENS", "check_golden"]

GOLDENS = Path(__file__).parent / "goldens"


def check_golden(name: str, actual: str, *, never_edited: bool = False) -> None:
    """Fail with a diff unless ``tests/goldens/<name>`` is exactly ``actual``.

    With ``UPDATE_GOLDENS=1`` the file is written instead. A golden that is ``never_edited`` is a promise to other
    programs: it is written once and then only read, so changing it takes deleting it on purpose.
    """
    path = GOLDENS / name
    if os.environ.get("UPDATE_GOLDENS") == "1" and not (never_edited and path.exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(actual, encoding="utf-8", newline="\n")
        return
    if not path.exists():
        raise AssertionError(f"no golden {name}; write it with UPDATE_GOLDENS=1 and review it")
    expected = path.read_bytes().decode("utf-8")
    if expected != actual:
        lines = difflib.unified_diff(
            expected.splitlines(), actual.splitlines(), f"goldens/{name}", "actual", lineterm="", n=2
        )
        hint = "" if never_edited else "\nUPDATE_GOLDENS=1 rewrites it; review the difference like code."
        raise AssertionError("\n".join(lines)[:20_000] + hint)
