"""``POST /v1/completions``: strings or token ids in, echo, the older logprobs arrays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

from servecheck.reference import fields
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer, Base, Tally
from servecheck.reference.engine import Job, Prompt, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.tokens import VOCABULARY, decode, encode, piece, shown

__all__ = ["CompletionRoutes"]


class CompletionRoutes(Base):
    """Text completions."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("POST", "/v1/completions"): "reply_completions"}

    async def reply_completions(self, request: Request) -> Reply:
        """Answer a completion request; all that can be refused is refused before a stream begins."""
        job = self.completions_job(self.body_of(request))
        if job.stream:
            return self.stream_reply(self.frames(self.text_chunks(job)))
        return json_reply(self.text_completion(job, await self.answers(job)))

    def completions_job(self, body: Event) -> Job:
        """Return the request, read and checked."""
        self.check_model(body)
        prompts = self.prompts_of(body)
        for prompt in prompts:
            self.check_length(prompt.ids)
        if body.get("suffix"):
            raise ApiError("suffix is not supported", param="suffix")
        echo = fields.boolean(body, "echo")
        options = self.stream_options_of(body)
        room = self.max_model_len - max(len(prompt.ids) for prompt in prompts)
        logprobs = fields.integer(body, "logprobs", 0, 0, 20) if body.get("logprobs") is not None else None
        return Job(
            id=self.new_id("cmpl-"),
            created=int(self.clock()),
            model=self.answering(body),
            body=body,
            prompts=prompts,
            sampling=self.sampling_of(body),
            limit=self.limit_of(body, room, default=min(16, room), low=0 if echo else 1),
            n=fields.integer(body, "n", 1, 1, 128),
            stops=self.stops_of(body),
            include_stop=fields.boolean(body, "include_stop_str_in_output"),
            salt=self.salt_of(body),
            constraint=self.constraint_of(body),
            chat=False,
            echo=echo,
            logprobs=logprobs,
            prompt_logprobs=self.prompt_logprobs_of(body),
            stream=options.stream,
            include_usage=options.include_usage,
            continuous_usage=options.continuous_usage,
        )

    def prompts_of(self, body: Event) -> tuple[Prompt, ...]:
        """Return the prompts: a string, token ids, or a list of either."""
        given: Any = body.get("prompt")
        one = isinstance(given, str) or (isinstance(given, list) and bool(given) and _is_id(given[0]))
        listed = [given] if one else given
        if not isinstance(listed, list):
            raise ApiError("prompt must be a string, token ids, or a list of either", param="prompt")
        prompts = tuple(self._prompt(entry) for entry in listed)
        if not prompts or not all(prompt.ids for prompt in prompts):
            raise ApiError("prompt must not be empty", param="prompt")
        return prompts

    @staticmethod
    def _prompt(given: Any) -> Prompt:  # noqa: ANN401
        if isinstance(given, str):
            return Prompt(ids=encode(given), text=given)
        ids = fields.integers({"prompt": given}, "prompt", below=VOCABULARY)
        return Prompt(ids=ids, text=decode(ids))

    def text_completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Return the whole reply of a request that does not stream."""
        return {
            **self.text_envelope(job),
            "choices": [self.text_choice(job, answer) for answer in answers],
            "usage": self.usage(job, Tally.of(answers)),
        }

    def text_envelope(self, job: Job) -> Event:
        """Return what replies and events share."""
        return {
            "id": job.id,
            "object": "text_completion",
            "created": job.created,
            "model": job.model,
            "system_fingerprint": self.fingerprint,
        }

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Return one choice of a whole reply."""
        prompt = job.prompt(answer.index)
        choice: Event = {
            "index": answer.index,
            "text": (prompt.text if job.echo else "") + answer.content,
            "logprobs": self.text_logprobs(job, prompt, answer.steps, echo=job.echo),
            "finish_reason": answer.finish,
            "stop_reason": answer.stop_reason,
            **self.token_ids(job, answer),
        }
        if job.prompt_logprobs is not None:
            choice["prompt_logprobs"] = self.prompt_logprobs(prompt, job.prompt_logprobs)
        return choice

    def text_logprobs(
        self, job: Job, prompt: Prompt, steps: Sequence[Step], *, echo: bool, start: int = 0
    ) -> Event | None:
        """Return the older logprobs arrays; ``start`` is how many characters came before these tokens."""
        if job.logprobs is None:
            return None
        made: Event = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        said = b""

        def add(token: int, logprob: float | None, top: Sequence[tuple[int, float]] | None) -> None:
            nonlocal said
            made["tokens"].append(shown(token))
            made["token_logprobs"].append(logprob)
            made["top_logprobs"].append(None if top is None else {shown(other): value for other, value in top})
            made["text_offset"].append(start + len(said.decode("utf-8", "ignore")))
            said += piece(token)

        if echo:
            for token, candidates in zip(prompt.ids, self.scores(prompt.ids), strict=True):
                if candidates is None:
                    add(token, None, None)
                else:
                    own = (token, dict(candidates)[token])
                    add(*own, list(dict.fromkeys((*candidates[: job.logprobs], own))))
        for step in steps:
            own = (step.token, step.logprob)
            add(*own, list(dict.fromkeys((*step.top, own))))
        return made

    async def text_chunks(self, job: Job) -> AsyncIterator[Event]:
        """Yield the JSON events of a stream, in order, without framing."""
        tally = Tally()
        said = dict.fromkeys(range(job.choices), 0)
        begun: set[int] = set()
        async for delta in self.deltas(job):
            tally.add(job, delta)
            prompt = job.prompt(delta.index)
            echo = job.echo and delta.index not in begun
            begun.add(delta.index)
            text = (prompt.text if echo else "") + delta.content
            choice = {
                "index": delta.index,
                "text": text,
                "logprobs": self.text_logprobs(job, prompt, delta.steps, echo=echo, start=said[delta.index]),
                "finish_reason": delta.finish,
                "stop_reason": delta.stop_reason,
            }
            said[delta.index] += len(text)
            event = {**self.text_envelope(job), "choices": [choice]}
            if job.include_usage:
                event["usage"] = self.usage(job, tally) if job.continuous_usage else None
            yield event
        if job.include_usage:
            yield {**self.text_envelope(job), "choices": [], "usage": self.usage(job, tally)}


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
