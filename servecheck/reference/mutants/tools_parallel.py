"""Servers that lose or mix several calls of one answer, or make several where one is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.chat import Toolbox
from servecheck.reference.constraint import Constraint
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import tools_auto as auto
from servecheck.reference.mutants import tools_required as shared
from servecheck.reference.server import ReferenceServer
from servecheck.reference.toolfaults import Changing, OtherText

__all__ = ["HARMLESS", "MUTANTS"]


def _is_off(body: Event) -> bool:
    return body.get("parallel_tool_calls") is False


class SecondDropped(ReferenceServer):
    """Parses the first call of an answer and drops the others."""

    def drops(self, job: Job) -> bool:
        """Tell whether calls of this answer are dropped."""
        del job
        return True

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Keep the first call."""
        async for delta in super().deltas(job):
            kept = tuple(call for call in delta.calls if call.index == 0)
            yield replace(delta, calls=kept) if self.drops(job) else delta


class SecondDroppedInStreams(SecondDropped):
    """Streams the first call of an answer and drops the others."""

    def drops(self, job: Job) -> bool:
        """Drop in streams."""
        return job.stream


class DroppedWhenOff(SecondDropped):
    """Makes several calls although they are off, bills them, and gives only the first."""

    def drops(self, job: Job) -> bool:
        """Drop where they are off."""
        return _is_off(job.body)

    def chat_job(self, body: Event) -> Job:
        """Let the model go on."""
        job = super().chat_job({**body, "parallel_tool_calls": True} if _is_off(body) else body)
        return replace(job, body=body)


class OneIndexForAll(Changing):
    """Numbers all calls of a stream with 0, so that their arguments run into one another."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Take the number away."""
        for call in calls if stream else ():
            call["index"] = 0
        return calls


class SecondWithoutName(Changing):
    """Gives a name to the first call only."""

    def change(self, calls: list[Event], *, stream: bool) -> list[Event]:
        """Take the names of the others away."""
        for place, call in enumerate(calls):
            if (call["index"] if stream else place) and "name" in call["function"]:
                call["function"]["name"] = None
        return calls


class OptIn(ReferenceServer):
    """Makes several calls only where ``parallel_tool_calls: true`` says so."""

    def chat_job(self, body: Event) -> Job:
        """Switch them off by default."""
        return super().chat_job({"parallel_tool_calls": False, **body})


class OffIgnored(ReferenceServer):
    """Takes ``parallel_tool_calls: false`` and makes as many calls as before."""

    def chat_job(self, body: Event) -> Job:
        """Forget the flag."""
        return super().chat_job({**body, "parallel_tool_calls": True} if "parallel_tool_calls" in body else body)


class OffIgnoredInStreams(ReferenceServer):
    """Obeys ``parallel_tool_calls: false`` where the answer is whole, and forgets about it in streams."""

    def chat_job(self, body: Event) -> Job:
        """Forget the flag of a stream."""
        return super().chat_job({**body, "parallel_tool_calls": True} if _is_off(body) and body.get("stream") else body)


class OffRefused(ReferenceServer):
    """Refuses to make only one call."""

    def chat_job(self, body: Event) -> Job:
        """Refuse."""
        if _is_off(body):
            raise ApiError("parallel_tool_calls false is not supported", param="parallel_tool_calls")
        return super().chat_job(body)


class OffMeansNone(ReferenceServer):
    """Drops every call of an answer that may hold one only, and has nothing to say."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Drop them."""
        choice = super().chat_choice(job, answer)
        if _is_off(job.body):
            choice["message"].pop("tool_calls", None)
        return choice


class ThreeCalls(OtherText):
    """Makes one call more than it was asked for."""

    def rewrite(self, text: str) -> str:
        """Call once more."""
        return f"{text}\n{text.rpartition('<tool_call>')[1]}{text.rpartition('<tool_call>')[2]}"

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Leave single calls alone."""
        if not toolbox.parallel:
            return ReferenceServer.calls_constraint(self, toolbox, asked)
        return super().calls_constraint(toolbox, asked)


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_SEVERAL, _WHOLE = "one-answer-holds-several-calls", "parallel-calls-are-whole"
_IDS, _DEFAULT = "parallel-calls-have-ids-of-their-own", "parallel-calls-are-the-default"
_ONE = "parallel-off-gives-one-call-at-most"

MUTANTS = (
    Mutant(id="second-dropped", server=SecondDropped, trips=((_SEVERAL, _V),)),
    Mutant(id="second-dropped-in-streams", server=SecondDroppedInStreams, trips=((_SEVERAL, _V),)),
    Mutant(id="call-as-text", server=shared.CallAsText, trips=((_SEVERAL, _V),), source="vllm-project/vllm#29725"),
    Mutant(
        id="second-without-arguments",
        server=shared.SecondWithoutArguments,
        trips=((_WHOLE, _V),),
        source="vllm-project/vllm#47901",
    ),
    Mutant(id="second-without-name", server=SecondWithoutName, trips=((_WHOLE, _V),), source="BerriAI/litellm#9127"),
    Mutant(id="one-index-for-all", server=OneIndexForAll, trips=((_SEVERAL, _V),), source="ai-dynamo/dynamo#4723"),
    Mutant(id="one-id-for-all", server=shared.OneIdForAll, trips=((_IDS, _V),)),
    Mutant(id="id-missing", server=shared.IdMissing, trips=((_IDS, _V),), source="ggml-org/llama.cpp#11992"),
    Mutant(id="opt-in", server=OptIn, trips=((_DEFAULT, _V),)),
    Mutant(id="off-ignored", server=OffIgnored, trips=((_ONE, _N),), source="sgl-project/sglang#9696"),
    Mutant(
        id="off-ignored-in-streams",
        server=OffIgnoredInStreams,
        trips=((_ONE, Outcome.HELD), (_ONE, _N)),
        source="sgl-project/sglang#9696",
    ),
    Mutant(id="off-refused", server=OffRefused, trips=((_ONE, _R),)),
    Mutant(id="off-means-none", server=OffMeansNone, trips=((_ONE, _V),)),
)

HARMLESS = (
    Harmless(id="dropped-when-off", server=DroppedWhenOff),
    Harmless(id="three-calls", server=ThreeCalls),
    Harmless(id="no-logprobs", server=auto.NoLogprobs),
    Harmless(id="whole-arguments", server=shared.WholeArguments),
    Harmless(id="by-the-letter", server=shared.ByTheLetter),
    Harmless(id="id-repeated", server=shared.IdRepeated),
    Harmless(id="name-before-arguments", server=shared.NameBeforeArguments),
    Harmless(id="text-before-call", server=shared.TextBeforeCall),
    Harmless(id="ping-comments", server=shared.PingComments, source="theopenco/llmgateway#2334"),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
