"""What a run may spend on one endpoint, counted as it is spent; a step that would go over raises ``BudgetSpent``."""

from __future__ import annotations

from dataclasses import dataclass

from servecheck.errors import BudgetSpent, UsageError

__all__ = ["MAX_RECEIVED", "Budget", "Spent"]

MAX_RECEIVED = 512 * 1024 * 1024
"""Bytes of replies that one endpoint may fill a run folder with; the longest honest run met has 15 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits per endpoint; ``None`` is no limit. ``tokens`` counts prompt and generated tokens together, ``received``
    the bytes of replies.
    """

    requests: int | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    received: int | None = None

    @staticmethod
    def parse(text: str) -> Budget:
        """Read ``requests=400,tokens=200000``; raises ``UsageError`` for anything else."""
        known = ("requests", "tokens", "prompt_tokens", "output_tokens")
        limits: dict[str, int] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, value = part.partition("=")
            if name not in known or not equals or not (value.isascii() and value.isdigit() and len(value) < 16):
                raise UsageError(f"--budget: {part!r} is not NAME=NUMBER with NAME one of {', '.join(known)}")
            limits[name] = int(value)
        return Budget(**limits)


@dataclass(slots=True, kw_only=True)
class Spent:
    """What one endpoint was asked for so far."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    received: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and generated tokens together, as the server reported them."""
        return self.prompt_tokens + self.output_tokens

    def reserve(self, budget: Budget) -> None:
        """Count one request; raises ``BudgetSpent`` where a limit is reached already."""
        for name in ("requests", "tokens", "prompt_tokens", "output_tokens"):
            limit, spent = getattr(budget, name), getattr(self, name)
            if limit is not None and spent >= limit:
                raise BudgetSpent(f"the budget of {limit} {name.replace('_', ' ')} is spent")
        if budget.received is not None and self.received >= budget.received:
            raise BudgetSpent(
                f"{self.received:,} bytes of replies have come, which is all that is kept of one endpoint"
            )
        self.requests += 1
