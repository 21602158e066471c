"""A server whose reasoning model thinks for longer than small budgets allow; its other models are as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from servecheck.reference.answers import prose
from servecheck.reference.models import Reading, Reasoning
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import THINK_CLOSE, encode

__all__ = ["LongThinking", "LongThought"]

_WORDS = 220


class LongThinking(Reasoning):
    """Thinks some hundred tokens, then does as it is told."""

    def read(self, prompt: Sequence[int]) -> Reading:
        """Return the reading with a longer thought."""
        reading = super().read(prompt)
        if reading.thinks and (end := reading.ids.index(THINK_CLOSE)) < _WORDS:
            more = encode(" " + prose(_WORDS, reading.key) + "\n")
            reading.ids[end:end] = more
            reading.sure[end:end] = [False] * len(more)
        return reading


class LongThought(ReferenceServer):
    """Thinks for some hundred tokens where its model thinks at all, so a small ``max_tokens`` ends in the thought."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        thinks = config.get("language") == Reasoning.name
        super().__init__(**{**config, "language": LongThinking()} if thinks else config)
