"""Servers that drop sampling parameters from some requests and read them in others; a base for mutants."""

from __future__ import annotations

from servecheck.reference.asgi import Event
from servecheck.reference.sampling import Sampling
from servecheck.reference.server import ReferenceServer

__all__ = ["Dropping"]


class Dropping(ReferenceServer):
    """Drops parameters after they were read; subclasses say which, and may say from which requests."""

    def without(self, sampling: Sampling) -> Sampling:
        """Return what is sampled with in place of what was asked for."""
        raise NotImplementedError

    def drops(self, body: Event) -> bool:  # noqa: ARG002
        """Tell whether they are dropped from this request."""
        return True

    def sampling_of(self, body: Event) -> Sampling:
        """Drop them."""
        found = super().sampling_of(body)
        return self.without(found) if self.drops(body) else found
