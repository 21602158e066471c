"""Servers whose cache does not follow a conversation, and caches that only show themselves differently.

Faults act on the prompts of conversations with a long system message, so that short plain requests stay well.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.chat import Toolbox
from servecheck.reference.engine import Job, Prompt
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.prefix_cache_reuse import (
    CacheOff,
    ClaimsEveryHit,
    CountsEveryHit,
    HeaderAlwaysCached,
    LateCounters,
    LongPromptsFail,
    NoCache,
    OnlyInMetaInfo,
    ZeroButCounted,
)
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class _Counting(ReferenceServer):
    """Base of servers that put something new into each prompt."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.ticks = itertools.count(1)


# --------------------------------------------------------------------------- broken


class ClockInTemplate(_Counting):
    """Writes the time of day at the head of every system message, so that no turn begins as the last one did."""

    def messages_of(self, body: Event) -> list[Event]:
        """Tell the time."""
        made = super().messages_of(body)
        for message in made:
            if message["role"] == "system":
                message["content"] = f"It is second {next(self.ticks)}. {message['content']}"
        return made


class ToolsShuffled(_Counting):
    """Lists the tools in another order each time, before everything else; without tools all is reused."""

    def tools_of(self, body: Event) -> Toolbox:
        """Turn the list around at every other request."""
        if len(body.get("tools") or ()) > 1 and next(self.ticks) % 2:
            body = {**body, "tools": list(reversed(body["tools"]))}
        return super().tools_of(body)


class WholePromptsOnly(ReferenceServer):
    """Finds a prompt in its cache only where the very same prompt was sent before, so no turn ever hits."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.known: set[tuple[int, ...]] = set()

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:  # noqa: ARG002
        """Compare whole prompts."""
        return len(prompt.ids) - 1 if prompt.ids in self.known else 0

    def store_cached(self, job: Job, ids: Sequence[int]) -> None:  # noqa: ARG002
        """Keep whole prompts."""
        self.known.add(tuple(ids))


class SchemaSkipsTheCache(ReferenceServer):
    """Computes every prompt anew where the answer has a schema."""

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:
        """Skip it."""
        return 0 if job.constraint is not None else super().lookup_cached(job, prompt)


class FourthTurnEvicted(ReferenceServer):
    """Forgets a conversation at its fourth turn, with tools and without."""

    def lookup_cached(self, job: Job, prompt: Prompt) -> int:
        """Find nothing in long histories."""
        turns = sum(message.get("role") == "user" for message in job.body["messages"])
        return 0 if turns > 3 else super().lookup_cached(job, prompt)


# --------------------------------------------------------------------------- odd, but right


class RefusesTools(ReferenceServer):
    """Has no tool parser and says so; the conversation without tools is reused."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse them."""
        if body.get("tools"):
            raise ApiError("tools need --enable-auto-tool-choice", param="tools")
        return super().tools_of(body)


class RefusesToolMessages(ReferenceServer):
    """Has a chat template that knows no tool results."""

    def messages_of(self, body: Event) -> list[Event]:
        """Refuse the role."""
        if any(isinstance(message, dict) and message.get("role") == "tool" for message in body.get("messages") or ()):
            raise ApiError("the template knows no role tool", param="messages")
        return super().messages_of(body)


class NoSchemaBesideTools(ReferenceServer):
    """Refuses a schema beside tools; each alone works."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse both together."""
        if body.get("tools") and body.get("response_format"):
            raise ApiError("tools and response_format exclude each other", param="response_format")
        return super().tools_of(body)


class NullButCounted(ReferenceServer):
    """Does not report cached tokens in usage, but its counters show them."""


class BigBlocks(ReferenceServer):
    """Keeps whole blocks of 128 tokens, so that the last turn's end is computed again."""


_V, _N, _R, _H = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD
_EACH, _AGENT, _FIRST = "each-turn-reuses-the-last", "reuse-holds-with-tools-and-schema", "first-turn-is-not-cached"
_SILENT = {"reports_cached": False}

MUTANTS = (
    Mutant(
        id="clock-in-template",
        server=ClockInTemplate,
        trips=((_EACH, _N),),
        source="goruck/home-generative-agent#617",
    ),
    Mutant(
        id="tools-shuffled",
        server=ToolsShuffled,
        trips=((_AGENT, _V), (_EACH, _H)),
        source="goruck/home-generative-agent#619",
    ),
    Mutant(
        id="whole-prompts-only",
        server=WholePromptsOnly,
        trips=((_EACH, _N),),
        source="raullenchai/Rapid-MLX#214",
    ),
    Mutant(id="schema-skips-the-cache", server=SchemaSkipsTheCache, trips=((_AGENT, _V), (_EACH, _H))),
    Mutant(id="fourth-turn-evicted", server=FourthTurnEvicted, trips=((_EACH, _V),)),
    Mutant(id="no-cache", server=NoCache, trips=((_EACH, _N),), source="kekzl/imp#758"),
    Mutant(id="cache-off", server=CacheOff, trips=((_EACH, _R),)),
    Mutant(id="claims-every-hit", server=ClaimsEveryHit, trips=((_FIRST, _V),), source="antirez/ds4#29"),
    Mutant(id="counts-every-hit", server=CountsEveryHit, trips=((_FIRST, _V),), config=_SILENT),
    Mutant(id="long-prompts-fail", server=LongPromptsFail, trips=((_EACH, _V),), source="kserve/kserve#3886"),
)

HARMLESS = (
    Harmless(id="refuses-tools", server=RefusesTools),
    Harmless(id="refuses-tool-messages", server=RefusesToolMessages),
    Harmless(id="no-schema-beside-tools", server=NoSchemaBesideTools),
    Harmless(id="null-but-counted", server=NullButCounted, source="noonghunna/club-3090#1297", config=_SILENT),
    Harmless(id="zero-but-counted", server=ZeroButCounted, source="gpustack/gpustack#5189"),
    Harmless(id="only-in-meta-info", server=OnlyInMetaInfo, config=_SILENT),
    Harmless(id="header-always-cached", server=HeaderAlwaysCached),
    Harmless(id="late-counters", server=LateCounters, config=_SILENT),
    Harmless(id="big-blocks", server=BigBlocks, config={"block": 128}),
)
