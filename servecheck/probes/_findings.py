"""Builds findings for one route and mode, so that a judge reads as its rules; judges what is no answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from servecheck.model import Exchange, Finding, Measured, Mode, Outcome, Route
from servecheck.read.reply import Answer, Failure, Refusal, Reply

__all__ = ["Part"]

Figure: TypeAlias = "float | int | str | bool | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A row's part: what was seen on one route in one mode."""

    route: Route = Route.CHAT
    mode: Mode = Mode.NON_STREAM

    def held(self, check: str, why: str, *seen: Exchange | Reply, **measured: Figure) -> Finding:
        """The rule holds."""
        return self._finding(check, Outcome.HELD, why, seen, measured)

    def violated(self, check: str, why: str, *seen: Exchange | Reply, **measured: Figure) -> Finding:
        """Accepted and wrong."""
        return self._finding(check, Outcome.VIOLATED, why, seen, measured)

    def no_effect(self, check: str, why: str, *seen: Exchange | Reply, **measured: Figure) -> Finding:
        """Accepted, and no different from the control."""
        return self._finding(check, Outcome.NO_EFFECT, why, seen, measured)

    def refused(self, check: str, why: str, *seen: Exchange | Reply, **measured: Figure) -> Finding:
        """Refused clearly, or not offered."""
        return self._finding(check, Outcome.REFUSED, why, seen, measured)

    def undetermined(self, check: str, why: str, *seen: Exchange | Reply, **measured: Figure) -> Finding:
        """The experiment could not tell."""
        return self._finding(check, Outcome.UNDETERMINED, why, seen, measured)

    def unless_answered(
        self, check: str, reply: Reply | None, *controls: Reply | None, what: str = ""
    ) -> Finding | None:
        """Return the finding for a reply that is no answer; ``None`` for an answer.

        ``what`` names the request where a probe sends several kinds, so that the reader sees which one it was.

        A failure violates the check. A refusal counts only where every control (the same request without the feature)
        was answered; else what was refused is not the feature, and nothing is known.
        """
        if isinstance(reply, Answer):
            return None
        if reply is None:
            return self.undetermined(check, "the request was not sent" + (f": {what}" if what else ""))
        if isinstance(reply, Failure):
            return self.violated(check, f"{what}: {reply.what}" if what else reply.what, reply)
        refused = f"{what} is refused" if what else "refused"
        sick = next((control for control in controls if isinstance(control, Refusal | Failure)), None)
        if sick is not None:
            why = f"{refused}, but so was the control without it: {sick.what}"
            return self.undetermined(check, why, reply, sick)
        return self.refused(check, f"{refused}: {reply.what}", reply)

    def _finding(
        self, check: str, outcome: Outcome, why: str, seen: tuple[Exchange | Reply, ...], measured: Measured
    ) -> Finding:
        ids = [one.id if isinstance(one, Exchange) else one.exchange.id for one in seen]
        return Finding(
            check=check,
            outcome=outcome,
            why=why,
            evidence=tuple(dict.fromkeys(ids)),
            route=self.route,
            mode=self.mode,
            measured=measured,
        )
