"""Whole chat replies in which something that clients read is wrong, and replies that only look odd.

A fault that spoils every short request is seen by the canary first and makes the endpoint unwell, so that this row
alone is judged; most faults act here on what the canary is not: sampled, cached or longer than its 32 tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, half_of
from servecheck.reference.base import Answer, Tally
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.models import LanguageModel, Reading, Reasoning
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode

__all__ = ["HARMLESS", "MUTANTS"]

_JSON = (("content-type", "application/json"),)
_LONG = 32
"""Above this many tokens an answer counts as long."""


def _sampled(job: Job) -> bool:
    """Whether the request leaves the temperature to the server, as most applications do."""
    return job.body.get("temperature") is None


def _on_a_hit(job: Job) -> bool:
    """Whether some of the prompt came from the cache."""
    return any(prompt.cached for prompt in job.prompts)


def _is_long(body: Event) -> bool:
    asked = body.get("max_tokens")
    return isinstance(asked, int) and asked > _LONG


# --------------------------------------------------------------------------- broken: no usable reply


class RefusesBareRequests(ReferenceServer):
    """Refuses a request that does not say its temperature, which the API lets clients leave out."""

    def chat_job(self, body: Event) -> Job:
        """Demand the temperature."""
        if body.get("temperature") is None:
            raise ApiError("temperature: field required", param="temperature")
        return super().chat_job(body)


class LongAnswersTimeOut(ReferenceServer):
    """Answers 504 with a gateway's page where a long answer is asked for without a stream."""

    async def reply_chat(self, request: Request) -> Reply:
        """Give up on long answers."""
        if _is_long(self.body_of(request)):
            page = b"<html><body>504 Gateway Time-out</body></html>"
            return Reply(status=504, headers=(("content-type", "text/html"),), body=page)
        return await super().reply_chat(request)


class LongAnswersAreCut(ReferenceServer):
    """Breaks the connection in the middle of a long answer."""

    async def reply_chat(self, request: Request) -> Reply:
        """Send half of a long body."""
        made = await super().reply_chat(request)
        if not _is_long(self.body_of(request)) or not isinstance(made.body, bytes):
            return made
        return Reply(headers=_JSON, body=half_of(made.body))


class NotANumber(ReferenceServer):
    """Writes a statistic of long answers as the literal ``NaN``, which is not JSON."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Add the statistic."""
        made = super().completion(job, answers)
        return {**made, "timings": {"acceptance_rate": float("nan")}} if _is_long(job.body) else made


class PythonRepr(ReferenceServer):
    """Writes a sampled answer as Python shows it, with single quotes and ``None``."""

    async def reply_chat(self, request: Request) -> Reply:
        """Write the ``repr``."""
        made = await super().reply_chat(request)
        if self.body_of(request).get("temperature") is None and isinstance(made.body, bytes):
            return replace(made, headers=_JSON, body=repr(json.loads(made.body)).encode())
        return made


class SampledHangs(ReferenceServer):
    """Never answers a request that samples; greedy ones work."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait for ever."""
        if self.body_of(request).get("temperature") is None:
            await asyncio.Event().wait()
        return await super().reply_chat(request)


# --------------------------------------------------------------------------- broken: the text


class AnswerInReasoning(ReferenceServer):
    """Puts the finished answer into the reasoning field and leaves the content empty."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the text."""
        made = super().chat_choice(job, answer)
        message = {**made["message"], "content": "", "reasoning_content": answer.reasoning + answer.content}
        return {**made, "message": message, "finish_reason": "stop"}


class EmptyOnAHit(ReferenceServer):
    """Gives an empty text, billed as if it were there, for a prompt that it has cached."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Drop the text."""
        made = super().chat_choice(job, answer)
        if _on_a_hit(job):
            made["message"] = {"role": "assistant", "content": None}
            made["finish_reason"] = "stop"
        return made


class _Garbled(ReferenceServer):
    """Base of servers whose text is garbage; ``when`` says in which requests."""

    character = "!"

    def when(self, job: Job) -> bool:
        """Whether this request is hit."""
        return _sampled(job)

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Repeat one character for every token."""
        made = super().chat_choice(job, answer)
        if self.when(job):
            made["message"] = {"role": "assistant", "content": self.character * max(16, answer.count)}
        return made


class ExclamationRun(_Garbled):
    """Overflows in the sampler, so that token 0 wins every step: an answer of exclamation marks with HTTP 200."""


class CorruptOnAHit(_Garbled):
    """Answers a cached prompt with replacement characters; the first, cold answer is right."""

    character = "\ufffd"

    def when(self, job: Job) -> bool:
        """Hit cached prompts only."""
        return _on_a_hit(job)


class NoLetters(_Garbled):
    """Answers in punctuation only when it samples."""

    character = "., ;: "


# --------------------------------------------------------------------------- broken: the fields


class EndTokenLeaks(ReferenceServer):
    """Writes out the token that ends the turn behind every answer."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Leave the token in the text."""
        choice = super().chat_choice(job, answer)
        choice["message"]["content"] = f"{answer.content}<|im_end|>"
        return choice


class RoleMissing(ReferenceServer):
    """Leaves the message without a role."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Drop the role."""
        made = super().chat_choice(job, answer)
        del made["message"]["role"]
        return made


class RoleIsModel(ReferenceServer):
    """Calls the assistant ``model``, as another vendor's API does."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Rename the role."""
        made = super().chat_choice(job, answer)
        made["message"]["role"] = "model"
        return made


class _Finishes(ReferenceServer):
    """Base of servers that give one finish reason for everything."""

    reason: str | None = None

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Replace the reason."""
        return {**super().chat_choice(job, answer), "finish_reason": self.reason}


class FinishNeverSet(_Finishes):
    """Never says why an answer ended."""


class FinishToolCalls(_Finishes):
    """Says ``tool_calls`` for plain text."""

    reason = "tool_calls"


class FinishEosToken(_Finishes):
    """Says ``eos_token``, a word of its own, which clients do not know."""

    reason = "eos_token"


class UsageDropped(ReferenceServer):
    """Drops usage on the way through a proxy."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Leave usage out."""
        made = super().completion(job, answers)
        del made["usage"]
        return made


class UsageOfLastStep(ReferenceServer):
    """Counts the tokens of the last step as the completion, beside a total that counts all."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Count one token."""
        return {**super().usage(job, tally), "completion_tokens": 1}


class UsageQuadratic(ReferenceServer):
    """Adds the running count up at every step, so that n tokens are billed as n(n+1)/2."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Count each token over and over."""
        made, count = super().usage(job, tally), tally.completion
        billed = count * (count + 1) // 2
        return {**made, "completion_tokens": billed, "total_tokens": made["prompt_tokens"] + billed}


class UsageZero(ReferenceServer):
    """Reports usage, and all of it as zero."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Count nothing."""
        return dict.fromkeys(super().usage(job, tally), 0)


class LimitIgnored(ReferenceServer):
    """Neither stops at the limit of tokens nor at the end of the answer."""

    def limit_of(self, body: Event, room: int, default: int | None = None, low: int = 1) -> int:
        """Read the limit, and go on."""
        return super().limit_of(body, room, default, low) + 30

    def ends_at(self, job: Job) -> frozenset[int]:  # noqa: ARG002
        """End at no token."""
        return frozenset()


class UpstreamName(ReferenceServer):
    """Answers under the name of the model behind it, which is listed nowhere."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Rename the model."""
        return {**super().completion(job, answers), "model": "/weights/base"}


class NamedAsCompletion(ReferenceServer):
    """Names the object ``text_completion`` and leaves its id empty."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Rename the object."""
        return {**super().completion(job, answers), "object": "text_completion", "id": ""}


class CreatedIsText(ReferenceServer):
    """Writes the time of creation as a date."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Replace the number."""
        return {**super().completion(job, answers), "created": "2026-01-01T00:00:00Z"}


class NullsRefused(ReferenceServer):
    """Refuses an optional field that is given as null, since it is no number."""

    def body_of(self, request: Request) -> Event:
        """Look at the types."""
        body = super().body_of(request)
        if "temperature" in body and body["temperature"] is None:
            raise ApiError("Field 'temperature': type must be number, but is null", param="temperature")
        return body


class NullsCrash(ReferenceServer):
    """Reads a seed that is null as a number, and fails inside."""

    def body_of(self, request: Request) -> Event:
        """Fail."""
        body = super().body_of(request)
        if "seed" in body and body["seed"] is None:
            raise ApiError("int() argument must not be NoneType", status=500, kind="InternalServerError")
        return body


class OneAnswerRefused(ReferenceServer):
    """Refuses ``n``, also where it is 1, since its back end knows no such field."""

    def body_of(self, request: Request) -> Event:
        """Look for it."""
        body = super().body_of(request)
        if "n" in body:
            raise ApiError("Unsupported parameters passed: n", param="n")
        return body


class PenaltyRefused(ReferenceServer):
    """Refuses a frequency penalty, also one of 0."""

    def body_of(self, request: Request) -> Event:
        """Look for it."""
        body = super().body_of(request)
        if "frequency_penalty" in body:
            raise ApiError("Unsupported parameter: 'frequency_penalty'", param="frequency_penalty")
        return body


class PlainFormatFails(ReferenceServer):
    """Looks for a schema in every ``response_format``, and fails inside where plain text is asked for."""

    def body_of(self, request: Request) -> Event:
        """Fail."""
        body = super().body_of(request)
        wanted = body.get("response_format")
        if isinstance(wanted, dict) and wanted.get("type") == "text":
            raise ApiError("KeyError: 'json_schema'", status=500, kind="InternalServerError")
        return body


class CachedNotInPrompt(ReferenceServer):
    """Counts as prompt only what was not cached, and the cached part beside it."""

    def usage(self, job: Job, tally: Tally) -> Event:
        """Take the cached tokens off."""
        usage = super().usage(job, tally)
        prompt = 3
        return {
            **usage,
            "prompt_tokens": prompt,
            "total_tokens": prompt + usage["completion_tokens"],
            "prompt_tokens_details": {"cached_tokens": usage["prompt_tokens"] - prompt},
        }


class OneDigit(ReferenceServer):
    """Answers with one digit over and over where it samples, since every decode step repeats the first token."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Repeat it."""
        choice = super().chat_choice(job, answer)
        if job.sampling.temperature > 0:
            choice["message"]["content"] = "4" * 48
        return choice


class _Named(ReferenceServer):
    """Sends whole chat replies with another content type; subclasses say which, and may change the body."""

    content_type = ""

    def body(self, body: bytes) -> bytes:
        """Return the body that is sent."""
        return body

    async def reply_chat(self, request: Request) -> Reply:
        """Rename what it is."""
        made = await super().reply_chat(request)
        if not isinstance(made.body, bytes):
            return made
        headers = (("content-type", self.content_type),) if self.content_type else ()
        return replace(made, headers=headers, body=self.body(made.body))


class NamedAsText(_Named):
    """Sends JSON as plain text, which clients that go by the header hand on unparsed."""

    content_type = "text/plain; charset=utf-8"


class NamedAsPage(_Named):
    """Sends JSON as a web page."""

    content_type = "text/html; charset=utf-8"


class NamedAsStream(_Named):
    """Sends whole replies as event streams that hold no event."""

    content_type = "text/event-stream"


class EndMarkBehindJson(NamedAsStream):
    """Sends whole replies as event streams, and the end marker of one behind the JSON."""

    def body(self, body: bytes) -> bytes:
        """Add the marker."""
        return body + b"\n\ndata: [DONE]\n\n"


class _Whole(ReferenceServer):
    """Changes every whole chat reply, the canary's too; subclasses say how."""

    def spoil(self, made: Event) -> None:
        """Change it in place."""
        raise NotImplementedError

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Change it."""
        made = super().completion(job, answers)
        self.spoil(made)
        return made


class ContentInParts(_Whole):
    """Gives the text as a list of parts, as requests may and replies do not."""

    def spoil(self, made: Event) -> None:
        """Wrap it."""
        message = made["choices"][0]["message"]
        message["content"] = [{"type": "text", "text": message["content"] or ""}]


class NoChoices(_Whole):
    """Counts tokens and sends no choice."""

    def spoil(self, made: Event) -> None:
        """Empty the list."""
        made["choices"] = []


class SpacesAsSigns(_Whole):
    """Writes the tokenizer's sign for a space where the text has spaces."""

    def spoil(self, made: Event) -> None:
        """Put the signs in, before enough words to be seen in a short answer."""
        for choice in made["choices"]:
            words = (choice["message"]["content"] or "").split() or ["no"]
            choice["message"]["content"] = "".join(f"\u0120{word}" for word in words * 3)


class HeadOfTurn(_Whole):
    """Begins every answer with the head of the turn, since the template left it to the model to write."""

    def spoil(self, made: Event) -> None:
        """Put it before the text."""
        for choice in made["choices"]:
            choice["message"]["content"] = "assistant\n\n" + (choice["message"]["content"] or "")


class CreatedInMilliseconds(_Whole):
    """Gives the time of creation in milliseconds."""

    def spoil(self, made: Event) -> None:
        """Multiply it."""
        made["created"] *= 1000


class CreatedIsZero(_Whole):
    """Never fills in the time of creation."""

    def spoil(self, made: Event) -> None:
        """Empty it."""
        made["created"] = 0


# --------------------------------------------------------------------------- odd, but right


class JsonOfAKind(_Named):
    """Names a kind of JSON in capitals and with a parameter."""

    content_type = "Application/vnd.api+JSON; charset=UTF-8"


class SaysAssistant(_Whole):
    """Gives answers that begin with the word “assistant”, in a sentence."""

    def spoil(self, made: Event) -> None:
        """Begin with the word."""
        for choice in made["choices"]:
            choice["message"]["content"] = "assistant is a word. " + (choice["message"]["content"] or "")


class MalteseText(_Whole):
    """Answers in Maltese, which has a letter that is a tokenizer's sign for a space elsewhere, and a bar of blocks."""

    def spoil(self, made: Event) -> None:
        """Add both."""
        for choice in made["choices"]:
            choice["message"]["content"] = (
                f"{choice['message']['content'] or ''} \u0120ara \u0120esù \u0120or\u0121 \u2581\u2581\u2582\u2583"
            )


class AnswersAsAlias(ReferenceServer):
    """Answers under another name of the same model, which it lists beside the one that was asked for."""

    def models_list(self) -> Event:
        """List both names."""
        return {"object": "list", "data": [self.model_entry(), {**self.model_entry(), "id": "reference-2026"}]}

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Answer under the other name."""
        return {**super().completion(job, answers), "model": "reference-2026"}


class NullsAndExtras(ReferenceServer):
    """Adds the explicit nulls and fields of its own that SGLang and vLLM send."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Add fields."""
        made = {**super().completion(job, answers), "service_tier": None, "metadata": {"weight_version": "default"}}
        for choice in made["choices"]:
            choice["message"] = {"reasoning_content": None, "tool_calls": None, "audio": None, **choice["message"]}
            choice["matched_stop"] = None
        return made


class BareIds(ReferenceServer):
    """Gives ids without the usual prefix and no fingerprint."""

    fingerprint = None

    def new_id(self, prefix: str) -> str:
        """Leave the prefix out."""
        return super().new_id(prefix).removeprefix(prefix)


class ReasoningRenamed(ReferenceServer):
    """Gives thoughts under ``reasoning``, the newer of two names for the field."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Rename the field."""
        made = super().chat_choice(job, answer)
        if answer.reasoning:
            made["message"]["reasoning"] = made["message"].pop("reasoning_content")
        return made


class _LongThoughts(Reasoning):
    def read(self, prompt: Sequence[int]) -> Reading:
        """Put a long thought before the short one."""
        known = len(self._readings)
        reading = super().read(prompt)
        if reading.thinks and len(self._readings) != known:
            more = encode(" ".join(["It was late, so the river slept."] * 12) + " ")
            reading.ids[2:2] = more
            reading.shares[2:2] = [0.6] * len(more)
        return reading


class ThinksLong(ReferenceServer):
    """Thinks for longer than a short answer has room, so that the room is spent before the answer begins."""

    def __init__(self, *, language: str | LanguageModel = "reasoning", **config: Any) -> None:  # noqa: ANN401
        super().__init__(language=_LongThoughts() if language == "reasoning" else language, **config)


class SlowStart(ReferenceServer):
    """Takes twenty seconds for its first answer, as during a first compilation."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait before the first answer."""
        first = not self.metrics.prompt_tokens
        await asyncio.sleep(20 * first)
        return await super().reply_chat(request)


class EscapedText(ReferenceServer):
    """Writes JSON with spaces, escapes and line ends; it is the same JSON."""

    async def reply_chat(self, request: Request) -> Reply:
        """Write the body differently."""
        made = await super().reply_chat(request)
        if not isinstance(made.body, bytes):
            return made
        text = json.dumps(json.loads(made.body), ensure_ascii=True, indent=2) + "\r\n"
        return replace(made, body=text.encode())


class LeadingBlank(ReferenceServer):
    """Begins its text with empty lines, as chat templates of thinking models make it."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Put two line ends in front."""
        made = super().chat_choice(job, answer)
        made["message"]["content"] = f"\n\n{made['message']['content'] or ''}"
        return made


class SmallPieces(ReferenceServer):
    """Sends the body in pieces of five bytes, without a length."""

    async def reply_chat(self, request: Request) -> Reply:
        """Cut the bytes up."""
        made = await super().reply_chat(request)
        if not isinstance(made.body, bytes):
            return made
        body = made.body

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(body), 5):
                yield body[start : start + 5]

        return Reply(headers=made.headers, body=pieces())


_V = Outcome.VIOLATED
_TEXT, _SANE, _USAGE = "answer-has-text", "text-is-not-garbage", "usage-adds-up"
_ROLE, _FINISH, _OBJECT = "role-is-assistant", "finish-reason-is-given", "completion-object-is-named"

_NULLS, _TYPED, _TOKENS = "null-is-as-good-as-absent", "json-comes-as-json", "text-holds-no-special-tokens"

MUTANTS = (
    Mutant(
        id="end-token-leaks",
        server=EndTokenLeaks,
        trips=((_TOKENS, _V),),
        source="moltis-org/moltis#306",
    ),
    Mutant(id="refuses-bare-requests", server=RefusesBareRequests, trips=((_TEXT, Outcome.REFUSED),)),
    Mutant(id="long-answers-time-out", server=LongAnswersTimeOut, trips=((_TEXT, _V),), source="BerriAI/litellm#9551"),
    Mutant(id="long-answers-are-cut", server=LongAnswersAreCut, trips=((_TEXT, _V),), source="nicolerenee/infra#2078"),
    Mutant(id="not-a-number", server=NotANumber, trips=((_TEXT, _V),), source="sgl-project/sglang#5984"),
    Mutant(id="python-repr", server=PythonRepr, trips=((_TEXT, _V),), source="vllm-project/vllm#57997"),
    Mutant(
        id="sampled-hangs",
        server=SampledHangs,
        trips=(("reply-comes-within-the-deadline", _V),),
        source="vllm-project/vllm#44269",
    ),
    Mutant(id="answer-in-reasoning", server=AnswerInReasoning, trips=((_TEXT, _V),), source="vllm-project/vllm#48748"),
    Mutant(id="empty-on-a-hit", server=EmptyOnAHit, trips=((_TEXT, _V),)),
    Mutant(id="exclamation-run", server=ExclamationRun, trips=((_SANE, _V),), source="vllm-project/vllm#14126"),
    Mutant(id="corrupt-on-a-hit", server=CorruptOnAHit, trips=((_SANE, _V),), source="tenstorrent/vllm#415"),
    Mutant(id="no-letters", server=NoLetters, trips=((_SANE, _V),)),
    Mutant(id="role-missing", server=RoleMissing, trips=((_ROLE, _V),), source="tensorzero/tensorzero#1265"),
    Mutant(id="role-is-model", server=RoleIsModel, trips=((_ROLE, _V),)),
    Mutant(id="finish-never-set", server=FinishNeverSet, trips=((_FINISH, _V),), source="vllm-project/vllm#27572"),
    Mutant(id="finish-tool-calls", server=FinishToolCalls, trips=((_FINISH, _V),), source="vllm-project/vllm#53363"),
    Mutant(id="finish-eos-token", server=FinishEosToken, trips=((_FINISH, _V),)),
    Mutant(id="usage-dropped", server=UsageDropped, trips=((_USAGE, _V),), source="BerriAI/litellm#25410"),
    Mutant(id="usage-of-last-step", server=UsageOfLastStep, trips=((_USAGE, _V),), source="vllm-project/vllm#8625"),
    Mutant(
        id="usage-quadratic",
        server=UsageQuadratic,
        trips=((_USAGE, _V),),
        source="vllm-project/vllm-omni#2313",
        models=("obedient", "babbling", "reasoning"),  # a refusal of four words is billed as ten, which could be true
    ),
    Mutant(id="usage-zero", server=UsageZero, trips=((_USAGE, _V),)),
    Mutant(id="limit-ignored", server=LimitIgnored, trips=((_USAGE, _V),), source="ollama/ollama#18575"),
    Mutant(id="upstream-name", server=UpstreamName, trips=(("model-is-the-one-asked-for", _V),)),
    Mutant(
        id="named-as-completion",
        server=NamedAsCompletion,
        trips=((_OBJECT, _V),),
        source="huggingface/text-generation-inference#1682",
    ),
    Mutant(id="created-is-text", server=CreatedIsText, trips=((_OBJECT, _V),)),
    Mutant(
        id="nulls-refused", server=NullsRefused, trips=((_NULLS, Outcome.REFUSED),), source="ggml-org/llama.cpp#25515"
    ),
    Mutant(
        id="one-answer-refused",
        server=OneAnswerRefused,
        trips=((_NULLS, Outcome.REFUSED),),
        source="BerriAI/litellm#514",
    ),
    Mutant(
        id="penalty-refused",
        server=PenaltyRefused,
        trips=((_NULLS, Outcome.REFUSED),),
        source="danny-avila/LibreChat#10774",
    ),
    Mutant(id="plain-format-fails", server=PlainFormatFails, trips=((_NULLS, _V),)),
    Mutant(id="nulls-crash", server=NullsCrash, trips=((_NULLS, _V),), source="LostRuins/koboldcpp#1503"),
    Mutant(
        id="cached-not-in-prompt", server=CachedNotInPrompt, trips=((_USAGE, _V),), source="Portkey-AI/gateway#1210"
    ),
    Mutant(id="named-as-text", server=NamedAsText, trips=((_TYPED, _V),), source="EricLBuehler/mistral.rs#79"),
    Mutant(id="named-as-page", server=NamedAsPage, trips=((_TYPED, _V),), source="janhq/cortex.cpp#465"),
    Mutant(id="named-as-stream", server=NamedAsStream, trips=((_TEXT, _V),), source="decolua/9router#3301"),
    Mutant(id="end-mark-behind-json", server=EndMarkBehindJson, trips=((_TEXT, _V),), source="decolua/9router#3492"),
    Mutant(id="content-in-parts", server=ContentInParts, trips=((_TEXT, _V),)),
    Mutant(id="no-choices", server=NoChoices, trips=((_TEXT, _V),)),
    Mutant(id="spaces-as-signs", server=SpacesAsSigns, trips=((_SANE, _V),), source="raullenchai/Rapid-MLX#793"),
    Mutant(id="head-of-turn", server=HeadOfTurn, trips=((_TOKENS, _V),), source="vllm-project/vllm#7811"),
    Mutant(id="created-in-milliseconds", server=CreatedInMilliseconds, trips=((_OBJECT, _V),)),
    Mutant(id="created-is-zero", server=CreatedIsZero, trips=((_OBJECT, _V),)),
    Mutant(id="one-digit", server=OneDigit, trips=((_SANE, _V),), source="sgl-project/sglang-jax#204"),
)

HARMLESS = (
    Harmless(id="answers-as-alias", server=AnswersAsAlias),
    Harmless(id="nulls-and-extras", server=NullsAndExtras),
    Harmless(id="bare-ids", server=BareIds),
    Harmless(id="reasoning-renamed", server=ReasoningRenamed, source="vllm-project/vllm#50624"),
    Harmless(id="thinks-long", server=ThinksLong, source="vllm-project/vllm#48748"),
    Harmless(id="slow-start", server=SlowStart),
    Harmless(id="escaped-text", server=EscapedText),
    Harmless(id="leading-blank", server=LeadingBlank),
    Harmless(id="small-pieces", server=SmallPieces),
    Harmless(id="json-of-a-kind", server=JsonOfAKind),
    Harmless(id="says-assistant", server=SaysAssistant),
    Harmless(id="maltese-text", server=MalteseText),
)
