"""Servers that change the events of streamed responses and messages one by one; bases for mutants, of no other use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.messages import Letter
from servecheck.reference.responses import Asked
from servecheck.reference.server import ReferenceServer

__all__ = [
    "ENDS",
    "LosesAPiece",
    "MarkedAtTheEnd",
    "MessageEvents",
    "MoreAfterDone",
    "NoEventLines",
    "NoMessages",
    "NoResponses",
    "ResponseEvents",
    "ResponseObjects",
]

ENDS = ("response.completed", "response.incomplete")


class NoResponses(ReferenceServer):
    """Has no responses route."""

    async def reply_responses(self, request: Request) -> Reply:
        """Answer as for any unknown path."""
        raise ApiError(f"no route {request.path}", status=404, kind="not_found_error", code="not_found")


class NoMessages(ReferenceServer):
    """Has no messages route."""

    async def reply_messages(self, request: Request) -> Reply:
        """Answer as for any unknown path."""
        raise ApiError(f"no route {request.path}", status=404, kind="not_found_error", code="not_found")


class Events(ReferenceServer):
    """Changes the events of streams; subclasses say what becomes of each, or which are left out."""

    DROPPED: ClassVar[tuple[str, ...]] = ()

    def change(self, event: Event) -> Iterator[Event]:
        """Yield what is sent in place of an event: itself, or nothing where its type is one of those dropped."""
        if event["type"] not in self.DROPPED:
            yield event


class ResponseEvents(Events):
    """Changes the events of streamed responses."""

    async def response_events(self, asked: Asked) -> AsyncIterator[Event]:
        """Change those of a stream."""
        async for event in super().response_events(asked):
            for changed in self.change(event) if asked.job.stream else (event,):
                yield changed


class ResponseObjects(ReferenceServer):
    """Changes the response that has ended; subclasses say how."""

    def rewrite(self, response: Event) -> None:
        """Change it in place."""
        raise NotImplementedError

    def response_object(self, asked: Asked, output: list[Event], status: str, *more: Any) -> Event:  # noqa: ANN401
        """Change those that have ended."""
        made = super().response_object(asked, output, status, *more)
        if status != "in_progress":
            self.rewrite(made)
        return made


class MessageEvents(Events):
    """Changes the events of streamed messages."""

    async def message_events(self, letter: Letter) -> AsyncIterator[Event]:
        """Change them."""
        async for event in super().message_events(letter):
            for changed in self.change(event):
                yield changed


class NoEventLines(ReferenceServer):
    """Sends events without a line that names them."""

    def typed_frame(self, event: Event) -> bytes:
        """Send data alone."""
        return self.frame(event)


class MoreAfterDone(ReferenceServer):
    """Sends the end marker of the chat route, and goes on behind it."""

    async def typed_frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Send it before the last event."""
        async for event in events:
            if event["type"] in (*ENDS, "message_stop"):
                yield b"data: [DONE]\n\n"
            yield self.typed_frame(event)


class MarkedAtTheEnd(ReferenceServer):
    """Ends a stream with the marker of the chat route too."""

    async def typed_frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        """Add it."""
        async for frame in super().typed_frames(events):
            yield frame
        yield b"data: [DONE]\n\n"


class LosesAPiece(ReferenceServer):
    """Loses the second piece of every streamed text before anything is made of it."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Lose it."""
        seen = 0
        async for delta in super().deltas(job):
            seen += bool(delta.content)
            if job.stream and delta.content and seen == 2 and delta.finish is None:
                continue
            yield delta
