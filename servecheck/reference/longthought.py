"""A server whose reasoning model thinks for longer than small budgets allow; its other models are as they were."""

from __future__ import annotations

from typing import Any

from servecheck.reference.answers import prose
from servecheck.reference.models import Reasoning
from servecheck.reference.server import ReferenceServer

__all__ = ["LongThinking", "LongThought"]

_WORDS = 220


class LongThinking(Reasoning):
    """Thinks some hundred tokens, then does as it is told."""

    def thought(self, key: bytes) -> str:
        """Return a longer thought."""
        return prose(_WORDS, key)


class LongThought(ReferenceServer):
    """Thinks for some hundred tokens where its model thinks at all, so a small ``max_tokens`` ends in the thought."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        thinks = config.get("language") == Reasoning.name
        super().__init__(**{**config, "language": LongThinking()} if thinks else config)
