"""servecheck: can I serve this model from that endpoint instead of this one, and rely on each feature?

The public functions are :func:`run_suite` and :func:`read_run`, which return a :class:`RunReport`, and
:func:`exchange_curl` for the exchanges that it holds; they are loaded when first asked for, so that ``servecheck
--help`` does not wait for an HTTP client. All else may change between versions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servecheck.api import exchange_curl, read_run, run_suite
    from servecheck.report.data import RunReport

__all__ = ["RunReport", "__version__", "exchange_curl", "read_run", "run_suite"]

__version__ = "0.1.0"

_HOMES = {
    "RunReport": "servecheck.report.data",
    "exchange_curl": "servecheck.api",
    "read_run": "servecheck.api",
    "run_suite": "servecheck.api",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
