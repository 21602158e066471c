"""A plain chat completion has everything that a client reads.

What it does: sends one prompt greedily, once with nothing but the messages and ``max_tokens``, and once with optional
fields given as null or at their default, which is how typed clients leave them out. Reads the reply as a client would:
text, role, finish reason, usage that adds up, the model's name, the object's name, and in which content type it comes.
Where a model spends all its room on thinking, it asks again with more.

Why it matters: every other row rests on this one, and client libraries fail on a missing field far from its cause.

How it could be fooled: hardly; but sense is not judged, only signs of a broken decoder (runs of one character,
replacement characters, text without letters).
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Outcome, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._plain import CHAT_COUNTS, judge_finish, judge_name, judge_sane, judge_usage, sane_check
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.markup import end_mark, turn_head
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/object"
_PART = Part()
_TYPED = "json-comes-as-json"
_NULLS = "null-is-as-good-as-absent"
_NULLABLE = ("temperature", "top_p", "stop", "seed", "logit_bias")
"""Fields that the API says may be null; those that some engine's types forbid to be null are left out."""
_DEFAULTS: dict[str, Json] = {
    "n": 1,
    "stream": False,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "response_format": {"type": "text"},
}
"""Fields that client libraries send at the value which they have anyway."""


class ChatBasicParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Name three colours and say where one sees them.", description="The user's message.")
    max_tokens: int = Field(default=48, ge=8, le=4096, description="Room for the answer.")
    thinking_tokens: int = Field(
        default=2048, ge=8, le=65536, description="Room for the answer of a model that thinks for longer than that."
    )


async def drive(session: Session, params: ChatBasicParams, _: Transcript | None) -> None:
    """Ask greedily, ask bare, ask with nulls, and where the model has another name, under which it is listed."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    greedy: dict[str, Json] = {"messages": messages, "temperature": 0, "top_p": 1}
    first, room = await session.chat("greedy", {**greedy, "max_tokens": params.max_tokens}), params.max_tokens
    if _only_thought(first):
        room = params.thinking_tokens
        await session.chat("greedy-roomy", {**greedy, "max_tokens": room})
    await session.chat("bare", {"messages": messages, "max_tokens": room})
    await session.chat("nulls", {"messages": messages, "max_tokens": room, **dict.fromkeys(_NULLABLE), **_DEFAULTS})
    if any(_renamed(reply_at(session.transcript, step)) for step in ("greedy", "bare")):
        await session.get("models", "/models")


def _renamed(found: reply.Reply | None) -> bool:
    """Tell whether an answer goes by another name than was asked for, which the list of models may explain."""
    return isinstance(found, reply.Answer) and dig(found.body, "model") != dig(found.exchange.request, "model")


def _only_thought(exchange: Exchange) -> bool:
    """Tell whether the room was spent before the answer began, on a thought that need not be shown."""
    answer = reply.chat(exchange)
    return isinstance(answer, reply.Answer) and not answer.text.strip() and answer.finish == "length"


def judge(transcript: Transcript, _: ChatBasicParams) -> Iterator[Finding]:
    """Judge the greedy and the bare reply by the same rules, of two greedy ones the roomier; then the nulls."""
    models = transcript.get("models")
    listed = reply.json_body(models) if models is not None else None
    entries = dig(listed, "data") if not isinstance(listed, reply.Refusal | reply.Failure) else None
    names = {string(dig(entry, "id")) for entry in entries} if isinstance(entries, list) else set()
    for exchange in (transcript.get("greedy-roomy") or transcript.get("greedy"), transcript.get("bare")):
        if exchange is not None:
            yield from _judge(reply.chat(exchange), names)
    nulls, bare = reply_at(transcript, "nulls"), reply_at(transcript, "bare")
    if nulls is not None and isinstance(bare, reply.Answer):
        said = f"{', '.join(_NULLABLE)} null, and {', '.join(_DEFAULTS)} as they are anyway"
        missing = _PART.unless_answered(_NULLS, nulls, bare, what=said)
        yield missing or _PART.held(_NULLS, f"answered with {said}", nulls, bare)


def _judge(answer: reply.Reply, names: set[str]) -> Iterator[Finding]:
    missing = _PART.unless_answered("answer-has-text", answer)
    if missing is not None:
        yield missing
        return
    assert isinstance(answer, reply.Answer)
    yield _text(answer)
    yield judge_sane(_PART, "text-is-not-garbage", answer)
    mark, head = end_mark(answer.text), turn_head(answer.text)
    said = f"the text holds {quote(mark, 40)}: {quote(answer.text)}" if mark else "no special token is written out"
    if head and not mark:
        mark, said = head, f"the text begins with the head of a turn, “{head}” on a line alone: {quote(answer.text)}"
    yield (_PART.violated if mark else _PART.held)("text-holds-no-special-tokens", said, answer)
    role = answer.first.role
    said = f"role is {role!r}"
    yield (_PART.held if role == "assistant" else _PART.violated)("role-is-assistant", said, answer)
    yield judge_finish(_PART, "finish-reason-is-given", answer)
    yield _usage(answer)
    yield _model(answer, names)
    yield judge_name(_PART, "completion-object-is-named", answer, "chat.completion")
    yield _typed(answer)


def _text(answer: reply.Answer) -> Finding:
    check = "answer-has-text"
    if answer.text.strip():
        return _PART.held(check, f"{len(answer.text)} characters: {quote(answer.text, 60)}", answer)
    if _only_thought(answer.exchange) and answer.first.reasoning:
        why = "max_tokens went into the reasoning, as it may"
        return _PART.undetermined(check, f"{why}: {quote(answer.first.reasoning, 60)}", answer)
    if answer.first.reasoning:
        why = "content is empty and all text is in the reasoning although the answer is finished"
        return _PART.violated(check, f"{why}: {quote(answer.first.reasoning, 60)}", answer)
    spent = answer.usage.completion if answer.usage is not None else None
    if answer.finish == "stop" and spent is not None and spent <= 1:
        why = f"the model ended its answer at once: {spent} completion tokens"
        return _PART.undetermined(check, why, answer)
    return _PART.violated(check, f"no text with finish_reason {answer.finish!r}", answer)


def _usage(answer: reply.Answer) -> Finding:
    check, usage = "usage-adds-up", answer.usage
    found = judge_usage(_PART, check, answer, CHAT_COUNTS, "max_tokens")
    if usage is None or found.outcome is not Outcome.HELD:
        return found
    for name, part, whole in (
        ("cached", usage.cached, usage.prompt),
        ("reasoning", usage.reasoning, usage.completion),
    ):
        if part is not None and whole is not None and part > whole:
            return _PART.violated(check, f"{name}_tokens {part} are more than all: {found.why}", answer)
    return found


def _model(answer: reply.Answer, names: set[str]) -> Finding:
    check = "model-is-the-one-asked-for"
    asked, named = string(dig(answer.exchange.request, "model")), string(dig(answer.body, "model"))
    if not asked:
        return _PART.undetermined(check, "the request named no model", answer)
    if named == asked:
        return _PART.held(check, f"model is {quote(named, 60)}", answer)
    if named and named in names:
        return _PART.held(check, f"model is {quote(named, 60)}, listed beside {quote(asked, 60)}", answer)
    return _PART.violated(check, f"asked for {quote(asked, 60)}, answered as {quote(named, 60)}", answer)


def _typed(answer: reply.Answer) -> Finding:
    headers = {name.lower(): value for name, value in answer.exchange.response_headers}
    named = headers.get("content-type", "").partition(";")[0].strip().lower()
    if named.endswith(("/json", "+json")):
        return _PART.held(_TYPED, f"content-type is {named}", answer)
    return _PART.violated(_TYPED, f"JSON comes with content-type {named or 'left out'}", answer)


PROBE = Probe(
    id="chat_basic",
    doc=__doc__ or "",
    checks=(
        Check(
            id="answer-has-text",
            rule="choices[0].message.content holds text once the answer is finished.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        sane_check("text-is-not-garbage"),
        Check(
            id="text-holds-no-special-tokens",
            rule="The text holds no special token of the chat format, and does not begin with the head of a turn.",
            level=Level.SHOULD,
            source="https://github.com/moltis-org/moltis/issues/306",
        ),
        Check(
            id="role-is-assistant",
            rule="The message's role is “assistant”.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="finish-reason-is-given",
            rule="finish_reason is “stop” or “length” where no tools were given.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="usage-adds-up",
            rule="usage counts prompt and completion, adds up, and stays within max_tokens; no part exceeds its whole.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id="model-is-the-one-asked-for",
            rule="model is the one asked for, or another name that /v1/models lists.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id="completion-object-is-named",
            rule="object is “chat.completion”, id is text, created is a whole number of seconds since 1970.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_TYPED,
            rule="A whole reply comes with a content type of JSON, by which clients decide whether to parse it.",
            level=Level.SHOULD,
            source="https://github.com/EricLBuehler/mistral.rs/issues/79",
        ),
        Check(
            id=_NULLS,
            rule="An optional field may be given as null or as its default, and the request is answered as without it.",
            level=Level.SHOULD,
            source="https://github.com/ggml-org/llama.cpp/issues/25515",
        ),
    ),
    params=ChatBasicParams,
    drive=drive,
    judge=judge,
    reads_plain=True,
    requests=3,
    prompt_tokens=105,
    output_tokens=150,
)
