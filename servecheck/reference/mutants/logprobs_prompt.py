"""Servers that drop, shorten or make up the prompt's logprobs or fall over them, and servers with one way only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from servecheck.judging import STAYS_HEALTHY
from servecheck.model import Outcome
from servecheck.reference import fields
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job, Prompt, Step
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode, shown

__all__ = ["HARMLESS", "MUTANTS"]


class _NoField(ReferenceServer):
    """Knows no ``prompt_logprobs``, and ignores it as every field that it does not know."""

    def prompt_logprobs_of(self, body: Event) -> int | None:  # noqa: ARG002
        """Forget it."""
        return None


# --------------------------------------------------------------------------- broken


class OnlyTheCompletion(_NoField):
    """Takes every way of asking and gives logprobs of the completion's tokens only."""

    def text_logprobs(
        self, job: Job, prompt: Prompt, steps: Sequence[Step], *, echo: bool, start: int = 0
    ) -> Event | None:
        """Leave the prompt out."""
        del echo
        return super().text_logprobs(job, prompt, steps, echo=False, start=start)


class NeverFilled(ReferenceServer):
    """Never fills in what the prompt pass computed: a list with one null, and a 500 where ``echo`` reads it."""

    def prompt_logprobs(self, prompt: Prompt, top: int) -> list[Any]:  # noqa: ARG002
        """Give one null."""
        return [None]

    def completions_job(self, body: Event) -> Job:
        """Fail where the value is looked up."""
        if body.get("echo") and body.get("logprobs"):
            raise ApiError("2326", status=500, kind="InternalServerError")
        return super().completions_job(body)


class EchoFailsWithTopK(ReferenceServer):
    """Fails where ``echo``, ``logprobs`` and ``top_k`` 1 come together."""

    def completions_job(self, body: Event) -> Job:
        """Fail."""
        if body.get("echo") and body.get("logprobs") and body.get("top_k") == 1:
            raise ApiError("Internal Server Error", status=500, kind="InternalServerError")
        return super().completions_job(body)


class EngineDies(ReferenceServer):
    """Answers 500 to ``prompt_logprobs``, and its engine is dead from then on."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._dead = False

    async def route(self, request: Request) -> Reply:
        """Answer nothing but errors once it is dead."""
        if self._dead and request.method == "POST":
            raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError")
        return await super().route(request)

    def prompt_logprobs_of(self, body: Event) -> int | None:
        """Die."""
        if body.get("prompt_logprobs") is not None:
            self._dead = True
            raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError")
        return super().prompt_logprobs_of(body)


class NextRequestPays(ReferenceServer):
    """Answers requests for prompt logprobs, and the request after them fails in the same batch slot."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._spoilt = False

    def completions_job(self, body: Event) -> Job:
        """Fail once after an echo."""
        asked = bool(body.get("echo"))
        failing, self._spoilt = self._spoilt and not asked, asked
        if failing:
            raise ApiError("shape mismatch", status=500, kind="InternalServerError")
        return super().completions_job(body)


class OneShort(ReferenceServer):
    """Leaves out the prompt's last token."""

    def prompt_logprobs(self, prompt: Prompt, top: int) -> list[Any]:
        """Drop it."""
        return super().prompt_logprobs(prompt, top)[:-1]


class FirstHasAValue(ReferenceServer):
    """Gives the first token, which nothing predicts, a value of its own."""

    def prompt_logprobs(self, prompt: Prompt, top: int) -> list[Any]:
        """Make one up."""
        made = super().prompt_logprobs(prompt, top)
        first = {"logprob": -1.0, "rank": 1, "decoded_token": shown(prompt.ids[0])}
        return [{str(prompt.ids[0]): first}, *made[1:]]


class PositivePromptValue(ReferenceServer):
    """Gives the second token a value above 0."""

    def prompt_logprobs(self, prompt: Prompt, top: int) -> list[Any]:
        """Turn its sign."""
        made = super().prompt_logprobs(prompt, top)
        for each in made[1].values() if len(made) > 1 else ():
            each["logprob"] = 1.5
        return made


class NullsFromTheCache(ReferenceServer):
    """Gives null for the half of the prompt that came from the prefix cache."""

    def prompt_logprobs(self, prompt: Prompt, top: int) -> list[Any]:
        """Blank the first half."""
        made = super().prompt_logprobs(prompt, top)
        return [None if place < len(made) // 2 else each for place, each in enumerate(made)]


class OfAnotherPrompt(ReferenceServer):
    """Returns the values of the request that sat in the same place of the batch before."""

    def prompt_logprobs(self, prompt: Prompt, top: int) -> list[Any]:
        """Score another text of the same length."""
        other = (encode("Somebody else asked about quite different things and got this. ") * 40)[: len(prompt.ids)]
        return super().prompt_logprobs(Prompt(ids=other), top)


class EveryWayRefused(ReferenceServer):
    """Refuses prompt logprobs by name, on every route."""

    def prompt_logprobs_of(self, body: Event) -> int | None:
        """Refuse the field."""
        if body.get("prompt_logprobs") is not None:
            raise ApiError("prompt_logprobs is not supported on this device", param="prompt_logprobs")
        return None

    def completions_job(self, body: Event) -> Job:
        """Refuse the echo."""
        if body.get("echo") and body.get("logprobs") is not None:
            raise ApiError("echo with logprobs is not supported", param="logprobs")
        return super().completions_job(body)


# --------------------------------------------------------------------------- odd, but right


class OnlyEcho(_NoField):
    """Knows ``echo`` with ``logprobs`` and no other way, as OpenAI's older API did."""


class OnlyTheField(ReferenceServer):
    """Knows ``prompt_logprobs`` and refuses ``echo`` with ``logprobs``."""

    def completions_job(self, body: Event) -> Job:
        """Refuse the echo."""
        if body.get("echo"):
            raise ApiError("echo is not supported", param="echo")
        return super().completions_job(body)


class OnlyNative(_NoField):
    """Knows a route of its own for it, ``/generate``, and ignores the other ways."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("POST", "/generate"): "reply_generate"}

    async def reply_generate(self, request: Request) -> Reply:
        """Score a text."""
        ids = encode(fields.text(self.body_of(request), "text"))
        values: list[Any] = []
        for token, candidates in zip(ids, self.language.score(ids), strict=True):
            values.append([None if candidates is None else dict(candidates)[token], token, shown(token)])
        return json_reply({"text": "", "meta_info": {"prompt_tokens": len(ids), "input_token_logprobs": values}})

    def text_choice(self, job: Job, answer: Answer) -> Event:
        """Echo nothing."""
        return {**super().text_choice(job, answer), "logprobs": None}


class ChosenFirst(ReferenceServer):
    """Lists the prompt's own token before the likelier ones, as vLLM does."""

    def prompt_logprobs(self, prompt: Prompt, top: int) -> list[Any]:
        """Put it first."""
        made = super().prompt_logprobs(prompt, top)
        return [
            each if each is None else {str(token): each[str(token)], **each}
            for token, each in zip(prompt.ids, made, strict=True)
        ]


_N, _V = Outcome.NO_EFFECT, Outcome.VIOLATED
_GIVEN, _FAILS = "prompt-tokens-have-logprobs", "asking-for-prompt-logprobs-harms-nothing"
_PROPER = "prompt-logprobs-are-probabilities"

MUTANTS = (
    Mutant(
        id="only-the-completion", server=OnlyTheCompletion, trips=((_GIVEN, _N),), source="ggml-org/llama.cpp#27174"
    ),
    Mutant(
        id="never-filled", server=NeverFilled, trips=((_FAILS, _V), (_GIVEN, _N)), source="vllm-project/vllm-metal#680"
    ),
    Mutant(
        id="echo-fails-with-top-k", server=EchoFailsWithTopK, trips=((_FAILS, _V),), source="vllm-project/vllm#10234"
    ),
    Mutant(id="engine-dies", server=EngineDies, trips=((STAYS_HEALTHY.id, _V),), source="vllm-project/vllm#6521"),
    Mutant(id="next-request-pays", server=NextRequestPays, trips=((_FAILS, _V),)),
    Mutant(id="one-short", server=OneShort, trips=(("one-entry-per-prompt-token", _V),)),
    Mutant(id="first-has-a-value", server=FirstHasAValue, trips=(("first-prompt-token-has-no-logprob", _V),)),
    Mutant(
        id="positive-value",
        server=PositivePromptValue,
        trips=((_PROPER, _V),),
        source="facebookresearch/metaseq#87",
    ),
    Mutant(id="nulls-from-the-cache", server=NullsFromTheCache, trips=((_PROPER, _V),)),
    Mutant(id="of-another-prompt", server=OfAnotherPrompt, trips=(("prompt-logprobs-are-of-the-prompt", _V),)),
    Mutant(id="every-way-refused", server=EveryWayRefused, trips=((_GIVEN, Outcome.REFUSED),)),
)

HARMLESS = (
    Harmless(id="only-echo", server=OnlyEcho),
    Harmless(id="only-the-field", server=OnlyTheField),
    Harmless(id="only-native", server=OnlyNative),
    Harmless(id="chosen-first", server=ChosenFirst),
)
