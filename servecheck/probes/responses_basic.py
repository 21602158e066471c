"""A plain request to the responses route comes back complete, and what it sends reaches the model.

What it does: sends one prompt greedily and reads the response as a client would: status, output items, text, usage that
adds up. The same request is sent with half of the tokens that it took, which must leave a response that says it is
incomplete and why. Longer instructions and earlier turns must make the prompt longer; the same text in input items must
not. Two requests are wrong on purpose.

Why it matters: agent frameworks use this route by default. An answer that was cut and says ``completed`` is taken for a
whole one, and instructions that are dropped show in nothing but the answers.

How it could be fooled: by usage that counts what was sent instead of what was read. Sense is not judged, only signs of
a broken decoder.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._plain import TYPED_COUNTS, judge_sane, judge_usage, sane_check
from servecheck.probes._routes import ROOM_TO_THINK, half_of, judge_bad, judge_growth, judge_same_count, was_cut
from servecheck.probes._schemas import latest, thought_too_long
from servecheck.probes._steps import filler, reply_at
from servecheck.read import reply, responses
from servecheck.read.text import dig, number, quote, string

__all__ = ["PROBE"]

_CREATE = "https://platform.openai.com/docs/api-reference/responses/create"
_OBJECT = "https://platform.openai.com/docs/api-reference/responses/object"
_ERRORS = "https://platform.openai.com/docs/guides/error-codes"
_PART = Part(route=Route.RESPONSES)
_TEXT, _SANE, _STATUS = "response-has-text", "response-is-not-garbage", "whole-response-is-completed"
_ITEMS, _NAMED, _USAGE = "output-items-are-well-formed", "response-object-is-named", "response-usage-adds-up"
_CUT, _WHY, _ITEM = "cut-response-is-incomplete", "incomplete-response-says-why", "cut-item-is-incomplete"
_TOLD, _SAME, _TURNS = "instructions-are-counted", "input-items-are-as-the-string", "earlier-turns-are-counted"
_BAD, _SHAPE = "wrong-response-request-does-no-harm", "response-refusals-have-one-shape"
_BILLED = "response-counts-its-thinking"
_WORDS = 24
_WRONG = (("wrong-input", "input is a number"), ("wrong-limit", "max_output_tokens is a word"))


class ResponsesBasicParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Write two sentences about the sea.", description="The user's message.")
    max_tokens: int = Field(default=192, ge=16, le=4096, description="Room for the whole answer.")
    short_tokens: int = Field(default=16, ge=1, le=4096, description="Room where only the prompt is counted.")


async def drive(session: Session, params: ResponsesBasicParams, _: Transcript | None) -> None:
    """The whole answer, a cut one, two instructions, other forms of the input, and what is wrong."""
    greedy: dict[str, Json] = {"temperature": 0, "top_p": 1}
    plain: dict[str, Json] = {"input": params.prompt, **greedy}
    few: dict[str, Json] = {**greedy, "max_output_tokens": params.short_tokens}

    async def ask(step: str, body: dict[str, Json]) -> None:
        await session.post(step, "/responses", body)

    await ask("plain", {**plain, "max_output_tokens": params.max_tokens})
    if thought_too_long(reply_at(session.transcript, "plain")):
        await ask("plain-again", {**plain, "max_output_tokens": max(ROOM_TO_THINK, params.max_tokens)})
    await ask("cut", {**plain, "max_output_tokens": half_of(_whole(session.transcript))})
    word = session.nonce()
    await ask("short", {"input": params.prompt, **few, "instructions": f"{word}. Be kind."})
    await ask("long", {"input": params.prompt, **few, "instructions": f"{word}. Be kind. {filler(_WORDS)}"})
    said: Json = {"role": "user", "content": [{"type": "input_text", "text": params.prompt}]}
    told: Json = {
        "type": "message",
        "role": "assistant",
        "id": f"msg_{word}",
        "status": "completed",
        "content": [{"type": "output_text", "text": filler(_WORDS), "annotations": []}],
    }
    await ask("items", {"input": [said], **few})
    await ask("turns", {"input": [said, told, said], **few})
    await ask("wrong-input", {"input": 5, **few})
    await ask("wrong-limit", {**plain, "max_output_tokens": "many"})


def _whole(transcript: Transcript) -> reply.Reply | None:
    return latest(reply_at(transcript, "plain-again"), reply_at(transcript, "plain"))


def judge(transcript: Transcript, _: ResponsesBasicParams) -> Iterator[Finding]:
    """Judge the whole answer first; the rest only where there is one."""
    answer = _whole(transcript)
    missing = _PART.unless_answered(_TEXT, answer)
    if missing is not None:
        yield missing
    if not isinstance(answer, reply.Answer):
        return
    yield from _judge(answer)
    yield from _judge_cut(reply_at(transcript, "cut"), answer)
    short, long = reply_at(transcript, "short"), reply_at(transcript, "long")
    yield judge_growth(_PART, _TOLD, short, long, _WORDS, "the instructions")
    items = reply_at(transcript, "items")
    yield judge_same_count(_PART, _SAME, answer, items, "a list of input items")
    yield judge_growth(_PART, _TURNS, items, reply_at(transcript, "turns"), _WORDS, "earlier turns")
    yield from judge_bad(_PART, _BAD, _SHAPE, transcript, _WRONG, _unshaped)


def _judge(answer: reply.Answer) -> Iterator[Finding]:
    status, reason = responses.status_of(answer), responses.incomplete_because(answer)
    body = answer.body
    if answer.text.strip():
        yield _PART.held(_TEXT, f"{len(answer.text)} characters: {quote(answer.text, 60)}", answer)
    elif thought_too_long(answer):
        yield _PART.undetermined(_TEXT, "max_output_tokens went into the reasoning", answer)
    else:
        kinds = ", ".join(string(dig(item, "type")) or "nameless" for item in responses.items_of(body)) or "nothing"
        yield _PART.violated(_TEXT, f"no output_text in a message item; output holds {kinds}", answer)
    if answer.text.strip():
        yield judge_sane(_PART, _SANE, answer)
    made = answer.usage.completion if answer.usage is not None else None
    full = made is None or made >= _limit(answer)
    right = (status == "completed" and not reason) or (status == "incomplete" and full)
    why = f"status {status or None!r}" + (f", incomplete because of {reason!r}" if reason else "")
    yield (_PART.held if right else _PART.violated)(_STATUS, why, answer)
    fault = _item_fault(answer)
    yield (_PART.violated if fault else _PART.held)(_ITEMS, fault or "ids, types and roles are as documented", answer)
    fault = _object_fault(answer)
    yield (_PART.violated if fault else _PART.held)(_NAMED, fault or "object, id, created_at and model", answer)
    yield judge_usage(_PART, _USAGE, answer, TYPED_COUNTS, "max_output_tokens")
    yield from _judge_thought(answer)


def _judge_thought(answer: reply.Answer) -> Iterator[Finding]:
    """Judge the count of reasoning tokens where there is one, and a thought to be counted."""
    thought, usage = answer.first.reasoning, answer.usage
    if usage is None or usage.reasoning is None or len(thought.split()) < 2:
        return
    said = f"reasoning_tokens {usage.reasoning} of {usage.completion} output tokens"
    right = 0 < usage.reasoning <= (usage.completion or usage.reasoning)
    why = said if right else f"{said}, and there is thinking: {quote(thought, 60)}"
    yield (_PART.held if right else _PART.violated)(_BILLED, why, answer)


def _limit(answer: reply.Answer) -> int:
    return number(dig(answer.exchange.request, "max_output_tokens")) or 0


def _item_fault(answer: reply.Answer) -> str:
    if answer.stream is not None:
        return "a stream came, and none was asked for"
    items = responses.items_of(answer.body)
    ids = [dig(item, "id") for item in items]
    if any(not isinstance(each, str) or not each for each in ids) or len({str(each) for each in ids}) != len(ids):
        return f"ids of the items are {ids}"
    for item in items:
        if not string(dig(item, "type")):
            return f"an item has the type {dig(item, 'type')!r}"
    for item in responses.items_of(answer.body, "message"):
        if dig(item, "role") != "assistant":
            return f"a message has the role {dig(item, 'role')!r}"
        if dig(item, "status") not in ("completed", "incomplete"):
            return f"a message has the status {dig(item, 'status')!r}"
    return ""


def _object_fault(answer: reply.Answer) -> str:
    body, wrong = answer.body, []
    if dig(body, "object") != "response":
        wrong.append(f"object is {dig(body, 'object')!r}")
    wrong += [f"{name} is {dig(body, name)!r}" for name in ("id", "model") if not string(dig(body, name))]
    created = dig(body, "created_at")
    if isinstance(created, bool) or not isinstance(created, int | float):
        wrong.append(f"created_at is {created!r}")
    return ", ".join(wrong)


def _judge_cut(cut: reply.Reply | None, whole: reply.Answer) -> Iterator[Finding]:
    limit = half_of(whole)
    unclear = was_cut(_PART, _CUT, cut, whole, limit)
    if unclear is not None:
        yield unclear
    if unclear is not None or not isinstance(cut, reply.Answer):
        return
    status, reason = responses.status_of(cut), responses.incomplete_because(cut)
    if status != "incomplete":
        why = f"status {status or None!r} although all {limit} tokens of max_output_tokens were used: {quote(cut.text)}"
        yield _PART.violated(_CUT, why, cut, whole)
        return
    yield _PART.held(_CUT, f"status 'incomplete' after {limit} tokens", cut, whole)
    told = reason == "max_output_tokens"
    yield (_PART.held if told else _PART.violated)(_WHY, f"incomplete_details.reason is {reason or None!r}", cut)
    items = responses.items_of(cut.body)
    last = dig(items[-1], "status") if items else None
    why = f"the item that was cut has the status {last!r}" if items else "there is no item"
    yield (_PART.held if last == "incomplete" or not items else _PART.violated)(_ITEM, why, cut)


def _unshaped(body: Json) -> str:
    return "" if string(dig(body, "error", "message")) else "there is no error.message"


PROBE = Probe(
    id="responses_basic",
    doc=__doc__ or "",
    checks=(
        Check(id=_TEXT, rule="The output has a message item that holds text.", level=Level.MUST, source=_OBJECT),
        sane_check(_SANE),
        Check(
            id=_STATUS,
            rule="status of a response that was not cut is “completed”.",
            level=Level.MUST,
            source=_OBJECT,
        ),
        Check(
            id=_ITEMS,
            rule="Every output item has an id of its own and a type; a message is the assistant's and has a status.",
            level=Level.MUST,
            source=_OBJECT,
        ),
        Check(
            id=_NAMED,
            rule="object is “response”; id, created_at and model are given.",
            level=Level.SHOULD,
            source=_OBJECT,
        ),
        Check(
            id=_USAGE,
            rule="usage counts input and output, adds them up, and stays within max_output_tokens.",
            level=Level.MUST,
            source=_OBJECT,
        ),
        Check(
            id=_CUT,
            rule="A response that max_output_tokens cut has the status “incomplete”.",
            level=Level.MUST,
            source=_CREATE,
        ),
        Check(
            id=_WHY,
            rule="incomplete_details.reason of a response that was cut is “max_output_tokens”.",
            level=Level.MUST,
            source=_OBJECT,
        ),
        Check(
            id=_ITEM,
            rule="The item that was cut has the status “incomplete” too.",
            level=Level.SHOULD,
            source=_OBJECT,
        ),
        Check(
            id=_TOLD,
            rule="input_tokens grows with the instructions.",
            level=Level.MUST,
            source=_CREATE,
        ),
        Check(
            id=_SAME,
            rule="A text in a list of input items is as long as the same text as a string.",
            level=Level.MUST,
            source=_CREATE,
        ),
        Check(
            id=_TURNS,
            rule="Earlier turns, with the assistant's output items as the server sends them, are accepted and counted.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/conversation-state",
        ),
        Check(
            id=_BILLED,
            rule="Where a response tells reasoning tokens, its thinking has some, and no more than the output has.",
            level=Level.SHOULD,
            source="https://github.com/BerriAI/litellm/issues/41849",
        ),
        Check(
            id=_BAD,
            rule="A request that is wrong is refused or answered, without a failure.",
            level=Level.MUST,
            source=_ERRORS,
        ),
        Check(
            id=_SHAPE,
            rule="Every refusal says why in error.message.",
            level=Level.SHOULD,
            source=_ERRORS,
        ),
    ),
    params=ResponsesBasicParams,
    drive=drive,
    judge=judge,
    requests=8,
    prompt_tokens=310,
    output_tokens=140,
)
