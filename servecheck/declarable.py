"""What a user may declare of a server, and what of it looks like a slip; names of one's own are free and pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from servecheck.fields import FIELDS, SETTINGS
from servecheck.formats.names import all_names, of
from servecheck.plainwords import Complaint, slip
from servecheck.schema.endpoints_v1 import DECLARED
from servecheck.stacks import STACKS, named

__all__ = ["doubts"]

_NO_STACK = frozenset({"none", "null", "unknown"})


def doubts(declared: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield the keys that are nearly a known field, stacks that nobody knows, and formats that are nearly one."""
    for key, value in declared.items():
        if not re.fullmatch(DECLARED, key):  # which is told already
            continue
        meant = slip(key, [each for each in (*FIELDS, *SETTINGS) if each not in declared or each == key])
        if meant:
            yield Complaint(
                at=(key,), message=f"unknown field {key!r}", on_key=True, suggestion=f"did you mean {meant!r}?"
            )
        field = meant or key
        if field == "tpu_stack" and value.lower() not in _NO_STACK and named(value) is None:
            known = ", ".join(each.id for each in STACKS)
            near = slip(value.lower(), [name for each in STACKS for name in (each.id, *each.aliases)])
            hint = f"did you mean {near!r}? " if near else ""
            yield Complaint(at=(key,), message=f"unknown stack {value!r}", suggestion=f"{hint}there are {known}")
        elif field in ("quantization", "precision") and (near := _format_meant(value)):
            yield Complaint(at=(key,), message=f"unknown format {value!r}", suggestion=f"did you mean {near!r}?")


def _format_meant(value: str) -> str:
    """Return the format that a name is a slip for; another number is another format (``mxfp8``), and may be new."""
    wanted = value.strip().lower()
    if of(wanted) is not None:
        return ""
    near = slip(wanted, all_names()) or slip(wanted, ("fp8", "awq"), shortest=3)
    return "" if near and _shape(near) == _shape(wanted) else near


def _shape(name: str) -> tuple[str, int]:
    return re.sub(r"\d+", "#", name), len(name)
