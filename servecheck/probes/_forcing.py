"""What is sent for a call of a tool: the parameters and the request that rows about calls share, and the second try."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from servecheck.model import Json
from servecheck.probe import Params, Session
from servecheck.probes._tools import ROOM_TO_THINK, SMALL_TALK, thought_too_long, was_cut
from servecheck.read import reply
from servecheck.read.text import number

__all__ = ["CallParams", "FreeCallParams", "asked", "force", "roomier"]


class CallParams(Params):
    """What may be chosen of a request whose call is forced."""

    prompt: str = Field(default=SMALL_TALK, description="Small talk that calls for no tool.")
    max_tokens: int = Field(default=160, ge=32, le=4096, description="Room for a call; 29 to 85 tokens were used.")


class FreeCallParams(CallParams):
    """What may be chosen of a request whose model decides whether it calls."""

    prompt: str = Field(
        default="Please record the code. Call the function that records it.",
        description="A prompt that calls for a tool that records a code.",
    )


def asked(prompt: str, max_tokens: int) -> dict[str, Json]:
    """Return the request without tools, greedy: the control, and the base of all that have some."""
    return {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, "temperature": 0}


def roomier(base: dict[str, Json]) -> dict[str, Json]:
    """Return the same request with room for a thought."""
    return {**base, "max_tokens": max(number(base["max_tokens"]) or 0, ROOM_TO_THINK)}


async def force(
    session: Session, arm: str, base: dict[str, Json], tools: Callable[[], dict[str, Json]], place: int = 0
) -> dict[str, Json]:
    """Ask for a call of the tool at ``place``, and once more, as step ``…-again``, where the call was cut.

    ``tools`` makes the fields anew for each try, since a name can lead a small model into a loop. Returns the base for
    the next arm: with more room where a thought took all of it.
    """
    for step in (arm, f"{arm}-again"):
        answer = reply.chat(await session.chat(step, {**base, **tools()}))
        if not was_cut(answer, place):
            break
        if thought_too_long(answer):
            base = roomier(base)
    return base
