"""Servers that call although tools are off, and servers that only look as if."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.constraint import Constraint
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import tools_auto as auto
from servecheck.reference.mutants import tools_required as shared
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_CALLING, _SILENT = ("obedient", "reasoning"), ("babbling", "declining")


def _is_off(body: Event) -> bool:
    return body.get("tool_choice") == "none"


class NoneIgnored(ReferenceServer):
    """Takes ``none`` for ``auto``: calls come back as before."""

    def chat_job(self, body: Event) -> Job:
        """Forget the choice."""
        return super().chat_job({**body, "tool_choice": "auto"} if _is_off(body) else body)


class NoneIgnoredInStreams(ReferenceServer):
    """Obeys ``none`` where the answer is whole and parses calls out of every stream."""

    def chat_job(self, body: Event) -> Job:
        """Forget the choice of a stream."""
        return super().chat_job({**body, "tool_choice": "auto"} if _is_off(body) and body.get("stream") else body)


class NoneRefused(ReferenceServer):
    """Knows no ``none`` and refuses it."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if _is_off(body):
            raise ApiError("tool_choice must be auto or required", param="tool_choice")
        return super().chat_job(body)


class NoneFails(ReferenceServer):
    """Has no parser to switch off and gives a 500 for ``none``."""

    def chat_job(self, body: Event) -> Job:
        """Fail."""
        if _is_off(body):
            raise ApiError("'NoneType' object has no attribute 'extract_tool_calls'", status=500, kind="server_error")
        return super().chat_job(body)


class ClaimsCalls(ReferenceServer):
    """Ends an answer without calls with ``tool_calls``, since tools were sent along."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Change the reason."""
        async for delta in super().deltas(job):
            yield replace(delta, finish="tool_calls") if delta.finish == "stop" and _is_off(job.body) else delta


class DeletesCalls(ReferenceServer):
    """Parses calls also where they are off, and drops them: what the model wrote is gone without a trace."""

    def chat_job(self, body: Event) -> Job:
        """Leave the parser on."""
        if not _is_off(body):
            return super().chat_job(body)
        return replace(super().chat_job({**body, "tool_choice": "auto"}), body=body)

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Drop the calls."""
        async for delta in super().deltas(job):
            if not _is_off(job.body):
                yield delta
            else:
                yield replace(delta, calls=(), finish="stop" if delta.finish == "tool_calls" else delta.finish)


class ToolsStayInThePrompt(ReferenceServer):
    """Tells the model of the tools although they are off, and only leaves its answer unparsed."""

    def chat_job(self, body: Event) -> Job:
        """Switch the parser off, and nothing else."""
        if not _is_off(body):
            return super().chat_job(body)
        return replace(super().chat_job({**body, "tool_choice": "auto"}), tools=False)


class SchemaDroppedBesideTools(ReferenceServer):
    """Drops ``response_format`` wherever a request has tools."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Drop it."""
        return None if body.get("tools") else super().constraint_of(body)


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_PREVENTED, _CLEAN = "none-prevents-calls", "none-leaves-no-call-in-the-text"
_KEPT = "none-keeps-what-the-model-wrote"

_SCHEMA = "none-leaves-the-schema"

MUTANTS = (
    Mutant(id="none-ignored", server=NoneIgnored, trips=((_PREVENTED, _N),), source="google-ai-edge/LiteRT-LM#2471"),
    Mutant(
        id="none-ignored-in-streams", server=NoneIgnoredInStreams, trips=((_PREVENTED, Outcome.HELD), (_PREVENTED, _N))
    ),
    Mutant(id="none-refused", server=NoneRefused, trips=((_PREVENTED, _R),)),
    Mutant(id="none-fails", server=NoneFails, trips=((_PREVENTED, _V),)),
    Mutant(id="claims-calls", server=ClaimsCalls, trips=((_PREVENTED, _V),), source="vllm-project/vllm#53363"),
    Mutant(id="deletes-calls", server=DeletesCalls, trips=((_KEPT, _V),), source="vllm-project/vllm#55080"),
    Mutant(id="tools-stay-in-the-prompt", server=ToolsStayInThePrompt, trips=((_CLEAN, _V),), models=_CALLING),
    Mutant(
        id="schema-dropped-beside-tools",
        server=SchemaDroppedBesideTools,
        trips=((_SCHEMA, _V),),
        source="kekzl/imp#119",
    ),
)

HARMLESS = (
    Harmless(id="tools-in-the-prompt-unused", server=ToolsStayInThePrompt, models=_SILENT),
    Harmless(id="no-logprobs", server=auto.NoLogprobs, models=_CALLING),
    Harmless(id="no-forced-text", server=auto.NoForcedText, models=_CALLING),
    Harmless(id="extra-fields", server=shared.ExtraFields),
    Harmless(id="ping-comments", server=shared.PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
