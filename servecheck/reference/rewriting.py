"""Servers that change every constrained answer after it was written; a base for mutants, of no use by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from servecheck.reference.asgi import Event
from servecheck.reference.constraint import Choose, Constraint
from servecheck.reference.server import ReferenceServer

__all__ = ["Rewriting", "Rewritten"]


class Rewritten:
    """A constraint whose text is changed after it was written."""

    def __init__(self, inner: Constraint, change: Callable[[str], str]) -> None:
        self._inner, self._change = inner, change

    def text(self, choose: Choose, hints: Sequence[str]) -> str:
        """Return the changed text."""
        return self._change(self._inner.text(choose, hints))


class Rewriting(ReferenceServer):
    """Changes every constrained answer; subclasses say how, and may say which."""

    def change(self, text: str) -> str:
        """Return what the server says in place of ``text``."""
        raise NotImplementedError

    def concerns(self, body: Event) -> bool:  # noqa: ARG002
        """Tell whether the answer to this request is changed."""
        return True

    def constraint_of(self, body: Event) -> Constraint | None:
        """Wrap the constraint."""
        constraint = super().constraint_of(body)
        return Rewritten(constraint, self.change) if constraint is not None and self.concerns(body) else constraint
