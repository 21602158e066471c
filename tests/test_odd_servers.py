"""Servers that are right and look odd in every reply: no row of the suite objects to any of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from servecheck.model import Outcome, SkipCode
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job
from servecheck.reference.killmatrix import trials_on
from servecheck.reference.server import ReferenceServer
from tests.test_no_false_alarms import PROBES, SCENARIOS


def every_object(value: Any, change: Callable[[Event], Event]) -> Any:
    """Return a JSON value with each object in it changed, the inner ones first."""
    if isinstance(value, dict):
        return change({name: every_object(inner, change) for name, inner in value.items()})
    return [every_object(inner, change) for inner in value] if isinstance(value, list) else value


class Rewritten(ReferenceServer):
    """Says what it says in another form, in whole replies and in events."""

    def rewrite(self, value: Any) -> Any:
        """Return what is sent in place of a JSON value."""
        return value

    def dumps(self, value: Any) -> bytes:
        """Return it as text."""
        return json.dumps(value, ensure_ascii=False).encode()

    async def reply(self, request: Request) -> Reply:
        """Rewrite JSON."""
        made = await super().reply(request)
        named = dict(made.headers).get("content-type", "")
        if not isinstance(made.body, bytes) or "json" not in named or not request.path.startswith("/v1/"):
            return made
        return replace(made, body=self.dumps(self.rewrite(json.loads(made.body))))

    def frame(self, event: Event) -> bytes:
        """Rewrite an event."""
        return b"data: " + self.dumps(self.rewrite(event)) + b"\n\n"


_MESSAGE = dict.fromkeys(("refusal", "function_call", "tool_calls", "annotations", "audio", "reasoning"))
_DELTA = dict.fromkeys(("role", "content", "refusal", "function_call", "tool_calls", "reasoning_content"))
_REPLY = dict.fromkeys(("usage", "system_fingerprint", "service_tier", "prompt_logprobs", "kv_transfer_params"))


class Nulls(Rewritten):
    """Has null for whatever could be there and is not."""

    def rewrite(self, value: Any) -> Any:
        def filled(found: Event) -> Event:
            if "delta" in found and "index" in found:
                found = {"logprobs": None, "stop_reason": None, **found, "delta": {**_DELTA, **found["delta"]}}
            if "message" in found and "finish_reason" in found:
                found = {"logprobs": None, "stop_reason": None, **found, "message": {**_MESSAGE, **found["message"]}}
            return {**_REPLY, **found} if "choices" in found else found

        return every_object(value, filled)


class Spaced(Rewritten):
    """Has spaces around everything, keys by the alphabet, and escapes for all letters but the first 128."""

    def dumps(self, value: Any) -> bytes:
        return json.dumps(value, separators=(" , ", " : "), sort_keys=True).encode()


class Extras(Rewritten):
    """Adds fields of its own to replies, choices, messages, usage and lists."""

    def rewrite(self, value: Any) -> Any:
        known = {"choices", "message", "delta", "total_tokens", "data", "content"}
        return every_object(value, lambda found: {**found, "x_own": {"cost": 0.1}} if known & found.keys() else found)


class BothNames(Rewritten):
    """Gives thoughts under both names that clients know."""

    def rewrite(self, value: Any) -> Any:
        def both(found: Event) -> Event:
            thought = found.get("reasoning") or found.get("reasoning_content")
            named = isinstance(thought, str) and "type" not in found
            return {**found, "reasoning": thought, "reasoning_content": thought} if named else found

        return every_object(value, both)


class Packed(ReferenceServer):
    """Packs whole replies for clients that say they can unpack them."""

    async def reply(self, request: Request) -> Reply:
        made = await super().reply(request)
        if not isinstance(made.body, bytes) or "gzip" not in request.headers.get("accept-encoding", ""):
            return made
        return replace(made, headers=(*made.headers, ("content-encoding", "gzip")), body=gzip.compress(made.body))


class Framed(ReferenceServer):
    """Ends lines as Windows does, names every event, has no space behind the colon, and says ``: ping``."""

    async def frames(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        yield b": here you are\r\n\r\n"
        async for frame in super().frames(events):
            yield frame.replace(b"data: ", b"event: message\ndata:", 1).replace(b"\n", b"\r\n")
            yield b": ping\r\n\r\n"


class FinishApart(ReferenceServer):
    """Says why an answer ended in an event that holds an empty text and nothing else."""

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        async for event in super().chunks(job):
            ends = [choice for choice in event["choices"] if choice["finish_reason"] and choice["delta"]]
            if not ends:
                yield event
                continue
            yield {**event, "choices": [{**choice, "finish_reason": None} for choice in ends]}
            bare = [{"index": c["index"], "delta": {"content": ""}, "finish_reason": c["finish_reason"]} for c in ends]
            yield {**event, "choices": bare}


class HidesThoughts(ReferenceServer):
    """Keeps the thoughts of its model to itself: a short answer is empty, and says that it was cut."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        made = super().completion(job, answers)
        for choice in made["choices"]:
            choice["message"].pop("reasoning_content", None)
        return made

    async def chunks(self, job: Job) -> AsyncIterator[Event]:
        async for event in super().chunks(job):
            for choice in event["choices"]:
                choice["delta"].pop("reasoning_content", None)
            yield event


@pytest.mark.parametrize(
    ("kind", "language"),
    [
        (Nulls, "obedient"),
        (Spaced, "babbling"),
        (Extras, "reasoning"),
        (BothNames, "reasoning"),
        (Packed, "declining"),
        (Framed, "obedient"),
        (FinishApart, "babbling"),
        (HidesThoughts, "reasoning"),
    ],
)
def test_a_right_server_that_looks_odd_is_never_flagged(kind: type[ReferenceServer], language: str) -> None:
    trials = trials_on(kind(language=language, api_key="key"), PROBES, SCENARIOS, seed=kind.__name__)

    assert [
        f"{trial.case.scenario}: {finding.check} {finding.outcome}: {finding.why}"
        for trial in trials
        for finding in trial.findings
        if finding.outcome not in (Outcome.HELD, Outcome.UNDETERMINED)
    ] == []
    left_out = [trial for trial in trials if trial.skip_code != SkipCode.NOT_APPLICABLE]
    assert [trial.reason for trial in left_out if trial.fault is not None] == []


def test_an_endpoint_whose_thoughts_are_hidden_is_well_and_its_answer_is_found() -> None:
    mine = [each for each in SCENARIOS if each.feature in ("chat.basic", "health.ready")]
    trials = trials_on(HidesThoughts(language="reasoning"), PROBES, mine)

    assert {trial.case.scenario: trial.status.value for trial in trials} == {each.id: "supported" for each in mine}
