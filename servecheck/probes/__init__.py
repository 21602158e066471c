"""One module per probe, each exporting ``PROBE``; discovered, never listed."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from typing import Any

from servecheck.errors import ServecheckError
from servecheck.probe import Probe

__all__ = ["discover", "probes_in"]


def discover() -> dict[str, Probe[Any]]:
    """Return every probe by id, in the order of the ids; raises as :func:`probes_in` does."""
    return dict(_discovered())


@functools.cache
def _discovered() -> dict[str, Probe[Any]]:
    return probes_in(__name__)


def probes_in(package: str) -> dict[str, Probe[Any]]:
    """Import the modules of a package and return their probes by id; modules named ``_x`` are helpers.

    Raises :class:`ServecheckError` for a module without ``PROBE`` and for an id that two modules claim: both are
    faults of this installation, not of a server or of the caller.
    """
    importlib.import_module(package)
    found: dict[str, Probe[Any]] = {}
    owners: dict[str, str] = {}
    for info in sorted(pkgutil.iter_modules(sys.modules[package].__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        name = f"{package}.{info.name}"
        probe = getattr(importlib.import_module(name), "PROBE", None)
        if not isinstance(probe, Probe):
            raise ServecheckError(f"the module {name} exports no PROBE (name it _{info.name} if it is a helper)")
        if probe.id in found:
            raise ServecheckError(f"the probe {probe.id!r} is exported by {owners[probe.id]} and by {name}")
        found[probe.id], owners[probe.id] = probe, name
    return dict(sorted(found.items()))
