"""A session of the wire, as a probe has it, for tests that look at what it does; no tests."""

from __future__ import annotations

import itertools
from typing import Any

from servecheck.model import Endpoint, Fingerprint
from servecheck.wire.session import WireSession
from servecheck.wire.transport import Transport


def session_of(endpoint: Endpoint, transport: Transport, **more: Any) -> WireSession:
    """Return a session that records nothing; ``more`` replaces what it is made of."""
    numbers = itertools.count()
    given: dict[str, Any] = {"began": 0.0, "seed": "s", "deadline": 5.0} | more
    return WireSession(
        endpoint,
        transport,
        fingerprint=Fingerprint(fields={}),
        record=lambda _: None,
        next_id=lambda: f"x{next(numbers)}",
        **given,
    )
