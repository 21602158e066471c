"""Health routes that lie, and honest ones that look odd or bring bad news."""

from __future__ import annotations

import asyncio

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class HealthyAndHung(ReferenceServer):
    """Says that it is healthy while its engine is frozen and no request ever ends."""

    async def reply_chat(self, _: Request) -> Reply:
        """Never answer."""
        await asyncio.Event().wait()
        raise AssertionError


class HealthyAndFailing(ReferenceServer):
    """Says that it is healthy while every request fails inside."""

    async def reply_chat(self, _: Request) -> Reply:
        """Fail."""
        raise ApiError("internal error", status=500, kind="InternalServerError")


class HealthyAndBabbling(ReferenceServer):
    """Says that it is healthy while every answer is a run of exclamation marks."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Say nothing."""
        choice = super().chat_choice(job, answer)
        choice["message"] = {"role": "assistant", "content": "!" * 40}
        return choice


class CriesWolf(ReferenceServer):
    """Says 503 for ever, as after a start-up check that was never taken back, and answers everything."""

    def health(self) -> Reply:
        """Complain."""
        return json_reply({"status": "starting"}, 503)


class HealthHangs(ReferenceServer):
    """Never answers its health route, and everything else at once."""

    async def reply_health(self, _: Request) -> Reply:
        """Never answer."""
        await asyncio.Event().wait()
        raise AssertionError


class _NoHealth(ReferenceServer):
    async def reply_health(self, _: Request) -> Reply:
        raise ApiError("no route /health", status=404, kind="not_found_error", code="not_found")


class ModelsLie(_NoHealth, HealthyAndFailing):
    """Has no health route, lists its models as if all were well, and fails every request."""


class NothingToAsk(_NoHealth):
    """Has neither a health route nor a list of models, so nobody can ask how it is."""

    async def reply_models(self, _: Request) -> Reply:
        """Have no such route."""
        raise ApiError("no route /v1/models", status=404, kind="not_found_error", code="not_found")


class Gateway(_NoHealth):
    """Has no health route of its own, as gateways; its list of models answers."""


class SlowHealth(ReferenceServer):
    """Makes a token before it says that it is well, which takes seconds under load."""

    async def reply_health(self, request: Request) -> Reply:
        """Wait."""
        await asyncio.sleep(6)
        return await super().reply_health(request)


class TalkativeHealth(ReferenceServer):
    """Says 204 with a header of its own; every 2xx is a yes."""

    def health(self) -> Reply:
        """Say yes."""
        return Reply(status=204, headers=(("x-status", "ok"),))


class HonestlyIll(HealthyAndFailing):
    """Fails every request and says so: 503 on its health route is the truth, whatever else is wrong."""

    def health(self) -> Reply:
        """Admit it."""
        return json_reply({"status": "engine dead"}, 503)


_CHECK = "health-agrees-with-answers"
_V = ((_CHECK, Outcome.VIOLATED),)

MUTANTS = (
    Mutant(id="healthy-and-hung", server=HealthyAndHung, trips=_V, source="vllm-project/vllm#36451"),
    Mutant(id="healthy-and-failing", server=HealthyAndFailing, trips=_V, source="vllm-project/vllm#36451"),
    Mutant(id="healthy-and-babbling", server=HealthyAndBabbling, trips=_V),
    Mutant(id="cries-wolf", server=CriesWolf, trips=_V),
    Mutant(id="health-hangs", server=HealthHangs, trips=_V),
    Mutant(id="models-lie", server=ModelsLie, trips=_V, source="vllm-project/vllm#36451"),
    Mutant(id="nothing-to-ask", server=NothingToAsk, trips=((_CHECK, Outcome.REFUSED),)),
)

HARMLESS = (
    Harmless(id="gateway", server=Gateway),
    Harmless(id="slow-health", server=SlowHealth),
    Harmless(id="talkative-health", server=TalkativeHealth),
    Harmless(id="honestly-ill", server=HonestlyIll),
)
