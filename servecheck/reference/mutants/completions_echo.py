"""Echoes that are dropped, misplaced, doubled or billed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer, Tally
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


# --------------------------------------------------------------------------- broken


class EchoIgnored(ReferenceServer):
    """Takes ``echo`` and leaves the prompt out."""

    def completions_job(self, body: Event) -> Job:
        """Forget it."""
        return super().completions_job({**body, "echo": False})


class EchoIgnoredInStreams(ReferenceServer):
    """Echoes in a whole reply and not in a stream."""

    def completions_job(self, body: Event) -> Job:
        """Forget it where a stream was asked for."""
        job = super().completions_job(body)
        return replace(job, echo=False) if job.stream else job


class EchoRefusedInStreams(ReferenceServer):
    """Refuses ``echo`` together with ``stream``."""

    def completions_job(self, body: Event) -> Job:
        """Refuse."""
        if body.get("stream") and body.get("echo"):
            raise ApiError("echo with stream is not supported", param="echo")
        return super().completions_job(body)


class EchoBehind(ReferenceServer):
    """Puts the prompt behind the completion."""

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Turn the two around."""
        made = super().text_choice(job, answer)
        return {**made, "text": f"{answer.content} {job.prompt(answer.index).text}"} if job.echo else made


class EchoTwice(ReferenceServer):
    """Echoes the prompt twice."""

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Put it in front again."""
        made = super().text_choice(job, answer)
        return {**made, "text": job.prompt(answer.index).text + made["text"]} if job.echo else made


class EchoOnEveryPiece(ReferenceServer):
    """Repeats the prompt before every piece of a stream."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Put it in front."""
        async for event in super().text_chunks(job):
            if job.echo and event["choices"]:
                event["choices"][0]["text"] = job.prompts[0].text + event["choices"][0]["text"]
            yield event


class EchoOnly(ReferenceServer):
    """Gives the prompt back and nothing else."""

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Drop the completion."""
        made = super().text_choice(job, answer)
        return {**made, "text": job.prompt(answer.index).text} if job.echo else made


class EchoBilled(ReferenceServer):
    """Counts the echoed prompt as output."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Add the prompt."""
        made = super().usage(job, tally)
        if not job.echo:
            return made
        both = made["completion_tokens"] + 2 * made["prompt_tokens"]
        return {**made, "completion_tokens": both, "total_tokens": made["prompt_tokens"] + both}


# --------------------------------------------------------------------------- odd, but right


class SpaceBeforeEcho(ReferenceServer):
    """Puts a space before the prompt, as some tokenizers do when they give a text back."""

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Add one."""
        made = super().text_choice(job, answer)
        return {**made, "text": " " + made["text"]} if job.echo else made


class EchoInItsOwnPiece(ReferenceServer):
    """Streams the prompt in an event of its own."""

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Split the first event."""
        first = job.echo
        async for event in super().text_chunks(job):
            if first and event["choices"]:
                prompt = job.prompts[0].text
                yield {**event, "choices": [{**event["choices"][0], "text": prompt, "finish_reason": None}]}
                event["choices"][0]["text"] = event["choices"][0]["text"][len(prompt) :]
                first = False
            yield event


_V, _N = Outcome.VIOLATED, Outcome.NO_EFFECT
_FIRST, _THEN = "echo-puts-the-prompt-first", "completion-follows-the-echo"

MUTANTS = (
    Mutant(id="echo-ignored", server=EchoIgnored, trips=((_FIRST, _N),), source="stdapi-ai/stdapi.ai#259"),
    Mutant(
        id="echo-ignored-in-streams",
        server=EchoIgnoredInStreams,
        trips=((_FIRST, _N),),
        source="PaddlePaddle/FastDeploy#3245",
    ),
    Mutant(
        id="echo-refused-in-streams",
        server=EchoRefusedInStreams,
        trips=((_FIRST, Outcome.REFUSED),),
        source="vllm-project/vllm#15119",
    ),
    Mutant(id="echo-behind", server=EchoBehind, trips=((_FIRST, _V),)),
    Mutant(id="echo-twice", server=EchoTwice, trips=((_THEN, _V),)),
    Mutant(id="echo-on-every-piece", server=EchoOnEveryPiece, trips=((_THEN, _V),)),
    Mutant(id="echo-only", server=EchoOnly, trips=((_THEN, _V),)),
    Mutant(id="echo-billed", server=EchoBilled, trips=(("echo-is-not-billed-as-output", _V),)),
)

HARMLESS = (
    Harmless(id="space-before-echo", server=SpaceBeforeEcho),
    Harmless(id="echo-in-its-own-piece", server=EchoInItsOwnPiece),
)
