"""Servers that begin a stream before they read the request, so that refusals come within it; a base for mutants."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from servecheck.reference.asgi import Reply, Request
from servecheck.reference.fields import ApiError
from servecheck.reference.server import ReferenceServer

__all__ = ["RefusesWithinTheStream", "is_object"]

_DONE = b"data: [DONE]\n\n"


def is_object(request: Request) -> bool:
    """Tell whether a body is a JSON object."""
    try:
        return isinstance(json.loads(request.body), dict)
    except ValueError:
        return False


class RefusesWithinTheStream(ReferenceServer):
    """Sends what is wrong with a streamed request as an event, with status 200; subclasses may say otherwise."""

    def frames_of(self, wrong: ApiError) -> Sequence[bytes]:
        """Return the events that a refusal is sent as."""
        return self.frame(self.error_body(wrong)), _DONE

    async def reply_chat(self, request: Request) -> Reply:
        """Send refusals as events."""
        try:
            return await super().reply_chat(request)
        except ApiError as wrong:
            if not is_object(request) or self.body_of(request).get("stream") is not True:
                raise
            return self.stream_reply(_each(self.frames_of(wrong)))


async def _each(frames: Sequence[bytes]) -> AsyncIterator[bytes]:
    for frame in frames:
        yield frame
