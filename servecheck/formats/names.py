"""The table of formats of weights as data, and the names that they go by; what follows from it is said elsewhere."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from servecheck import yamlfile
from servecheck.schema.formats_v1 import FormatsV1

__all__ = ["all_names", "builtin", "of", "table"]


def builtin() -> tuple[Path, ...]:
    """Return the files of the table, by name."""
    return tuple(sorted(Path(__file__).parent.glob("*.yaml")))


@functools.cache
def table() -> FormatsV1:
    """Return the table. Raises :class:`ScenarioError` where its file has problems."""
    (path,) = builtin()
    return yamlfile.validate(path, FormatsV1)


def all_names() -> Iterator[str]:
    """Yield every name that a format goes by."""
    for format_, each in table().formats.items():
        yield format_
        yield from each.names


def of(name: str) -> str | None:
    """Return the id of the format that goes by a name, ``None`` where none does; versions of GGUF are one format."""
    wanted = name.strip().lower()
    for format_, each in table().formats.items():
        if wanted == format_ or wanted in each.names:
            return format_
    if re.match(r"i?q[1-8]_|gguf", wanted):
        return "gguf"
    # gptq-int4 and the like: the family stands first.
    family = re.split(r"[-_. ]", wanted, maxsplit=1)[0]
    return None if family == wanted else of(family)
