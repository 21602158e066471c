"""Text parts that are refused, printed as a list, lost, or read in some places only."""

from __future__ import annotations

from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class _Reading(ReferenceServer):
    """Reads contents with :meth:`joined` and :meth:`allowed`."""

    def joined(self, parts: list[Event], role: str) -> str:  # noqa: ARG002
        """Return the text of a list of parts."""
        return "\n".join(str(part["text"]) for part in parts)

    def messages_of(self, body: Event) -> list[Event]:
        """Join the parts of each message first."""
        given: Any = body.get("messages")
        if not isinstance(given, list):
            return super().messages_of(body)
        read = [
            {**message, "content": self.joined(message["content"], message["role"])}
            if isinstance(message, dict) and isinstance(message.get("content"), list)
            else message
            for message in given
        ]
        return super().messages_of({**body, "messages": read})


# --------------------------------------------------------------------------- broken


class PartsRefused(_Reading):
    """Takes strings only."""

    def joined(self, parts: list[Event], role: str) -> str:  # noqa: ARG002
        """Refuse."""
        raise ApiError("content must be a string", param="messages")


class PartsPrinted(_Reading):
    """Prints the list of parts into the prompt, as a template does that expects a string."""

    def joined(self, parts: list[Event], role: str) -> str:  # noqa: ARG002
        """Show the list."""
        return str(parts)


class PartsLost(_Reading):
    """Renders an empty turn where the content is a list."""

    def joined(self, parts: list[Event], role: str) -> str:  # noqa: ARG002
        """Lose the text."""
        return ""


class FirstPartOnly(_Reading):
    """Reads the first part of a list and no more."""

    def joined(self, parts: list[Event], role: str) -> str:  # noqa: ARG002
        """Take the first."""
        return str(parts[0]["text"])


class LastPartOnly(_Reading):
    """Keeps the last part of a list."""

    def joined(self, parts: list[Event], role: str) -> str:  # noqa: ARG002
        """Take the last."""
        return str(parts[-1]["text"])


class UserPartsOnly(_Reading):
    """Reads parts in user messages and loses them in all others."""

    def joined(self, parts: list[Event], role: str) -> str:
        """Read the user's."""
        return super().joined(parts, role) if role == "user" else ""


class SystemPartsFail(_Reading):
    """Fails inside on a system message in parts."""

    def joined(self, parts: list[Event], role: str) -> str:
        """Fail."""
        if role == "system":
            raise ApiError("can only concatenate str (not list) to str", status=500, kind="InternalServerError")
        return super().joined(parts, role)


# --------------------------------------------------------------------------- odd, but right


class JoinedByNothing(_Reading):
    """Puts the parts together without a line end; the specification does not say how."""

    def joined(self, parts: list[Event], role: str) -> str:  # noqa: ARG002
        """Join."""
        return "".join(str(part["text"]) for part in parts)


class JoinedBySpace(_Reading):
    """Puts a space between the parts."""

    def joined(self, parts: list[Event], role: str) -> str:  # noqa: ARG002
        """Join."""
        return " ".join(str(part["text"]) for part in parts)


_V = Outcome.VIOLATED
_ONE, _ALL, _HISTORY = "one-text-part-equals-a-string", "every-text-part-is-read", "parts-work-in-every-role"

MUTANTS = (
    Mutant(
        id="parts-refused",
        server=PartsRefused,
        trips=((_ONE, Outcome.REFUSED), (_ALL, Outcome.REFUSED)),
        source="epam/ai-dial-sdk#163",
    ),
    Mutant(id="parts-printed", server=PartsPrinted, trips=((_ONE, _V), (_ALL, _V), (_HISTORY, _V))),
    Mutant(
        id="parts-lost",
        server=PartsLost,
        trips=((_ONE, _V), (_HISTORY, _V)),
        source="PrimeIntellect-ai/renderers#134",
    ),
    Mutant(id="first-part-only", server=FirstPartOnly, trips=((_ALL, _V),), source="CopilotKit/CopilotKit#3844"),
    Mutant(id="last-part-only", server=LastPartOnly, trips=((_ALL, _V),)),
    Mutant(
        id="user-parts-only",
        server=UserPartsOnly,
        trips=((_HISTORY, _V),),
        source="PrimeIntellect-ai/renderers#134",
    ),
    Mutant(id="system-parts-fail", server=SystemPartsFail, trips=((_HISTORY, _V),)),
)

HARMLESS = (
    Harmless(id="joined-by-nothing", server=JoinedByNothing),
    Harmless(id="joined-by-space", server=JoinedBySpace),
)
