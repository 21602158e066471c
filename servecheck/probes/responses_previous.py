"""``previous_response_id`` carries a conversation on, where the server stores responses; elsewhere it is refused.

What it does: sends a first request that is to be stored, reads the response back by its id, and asks a short question
twice: alone, and with the first response as the previous one, whose words must make the prompt longer. An id that was
never given must be refused, and so must the id of a response that was not to be stored. A streamed
response that was stored must carry on as well.

Why it matters: a server that ignores the id answers every turn as if it were the first, with status 200; the
conversation is gone and nothing says so.

How it could be fooled: by usage that counts the earlier turns without reading them. Two replicas with a store each look
like a server that forgets now and then; repeat it with ``--trials``. The responses stay stored for as long as the
server keeps them, since nothing here deletes.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._routes import prompt_tokens
from servecheck.probes._steps import filler, reply_at, sent
from servecheck.read import reply
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_CREATE = "https://platform.openai.com/docs/api-reference/responses/create"
_STATE = "https://platform.openai.com/docs/guides/conversation-state?api-mode=responses"
_GET = "https://platform.openai.com/docs/api-reference/responses/get"
_CARRIED, _UNKNOWN = "previous-response-is-carried-on", "unknown-previous-response-is-refused"
_READ, _UNSTORED = "stored-response-can-be-read", "unstored-response-cannot-be-continued"
_STREAMED = "streamed-response-is-carried-on"
_PART = Part(route=Route.RESPONSES)
_WORDS = 60  # more than an answer of so few tokens can add


class ResponsesPreviousParams(Params):
    """What may be chosen in YAML."""

    question: str = Field(default="What did I say before?", description="The second turn, with and without a first.")
    max_tokens: int = Field(default=16, ge=1, le=4096, description="Room for each answer.")


async def drive(session: Session, params: ResponsesPreviousParams, _: Transcript | None) -> None:
    """A stored response, read back and continued; the question alone; ids that must not work."""
    few: dict[str, Json] = {"temperature": 0, "top_p": 1, "max_output_tokens": params.max_tokens}
    told = f"The word is {session.nonce()}. {filler(_WORDS)}"
    await session.post("first", "/responses", {**few, "input": told, "store": True})
    await session.post("control", "/responses", {**few, "input": params.question})
    name = _id_of(session.transcript, "first")
    if name:
        await session.get("read", f"/responses/{name}")
        await session.post(
            "next", "/responses", {**few, "input": params.question, "previous_response_id": name, "store": True}
        )
        await session.post("streamed", "/responses", {**few, "input": told, "store": True, "stream": True})
        kept = _id_of(session.transcript, "streamed")
        if kept:
            again: dict[str, Json] = {**few, "input": params.question, "previous_response_id": kept}
            await session.post("streamed-next", "/responses", again)
    never = f"resp_{session.nonce(24)}"
    await session.post("unknown", "/responses", {**few, "input": params.question, "previous_response_id": never})
    await session.post("unstored", "/responses", {**few, "input": told, "store": False})
    kept = _id_of(session.transcript, "unstored")
    if kept:
        await session.post(
            "unstored-next", "/responses", {**few, "input": params.question, "previous_response_id": kept}
        )


def _id_of(transcript: Transcript, step: str) -> str:
    """Return the id of a response, where it can stand in a path as it is."""
    found = reply_at(transcript, step)
    name = string(dig(found.body, "id")) if isinstance(found, reply.Answer) else ""
    return name if name and name.isascii() and all(sign.isalnum() or sign in "_-" for sign in name) else ""


def judge(transcript: Transcript, _: ResponsesPreviousParams) -> Iterator[Finding]:
    """Judge the continuation first; where it is refused, only that an unknown id is refused too."""
    first, control = reply_at(transcript, "first"), reply_at(transcript, "control")
    if isinstance(first, reply.Refusal):
        yield _PART.refused(_CARRIED, _why_refused(first, control), first)
        return
    if not isinstance(first, reply.Answer):
        missing = _PART.unless_answered(_CARRIED, first)
        assert missing is not None
        yield missing
        return
    following = reply_at(transcript, "next")
    carried = _carried(first, following, control)
    yield carried
    yield _judge_unknown(reply_at(transcript, "unknown"), following)
    if isinstance(following, reply.Answer):
        yield from _judge_streamed(transcript, following)
        yield _judge_read(transcript, first)
        yield _judge_unstored(transcript)


def _why_refused(first: reply.Refusal, control: reply.Reply | None) -> str:
    if isinstance(control, reply.Refusal):
        return f"the route refuses a plain request too: {first.what}"
    return f"a response that is to be stored is refused: {first.what}"


def _carried(first: reply.Answer, following: reply.Reply | None, control: reply.Reply | None) -> Finding:
    if following is None:
        why = f"the response's id is {dig(first.body, 'id')!r}, so there is none to go on with"
        return _PART.undetermined(_CARRIED, why, first)
    missing = _PART.unless_answered(_CARRIED, following, control, what="previous_response_id")
    if missing is not None:
        return missing
    assert isinstance(following, reply.Answer)
    alone, long = prompt_tokens(control), prompt_tokens(following)
    if alone is None or long is None:
        return _PART.undetermined(_CARRIED, "usage does not say how long the prompts are", following)
    why = f"the prompt has {alone} tokens alone and {long} behind a first turn of more than {_WORDS} words"
    if long - alone >= _WORDS / 2:
        return _PART.held(_CARRIED, why, *sent(first, following, control))
    if long <= alone:
        return _PART.no_effect(_CARRIED, why, *sent(first, following, control))
    return _PART.violated(_CARRIED, why, first, following)


def _judge_streamed(transcript: Transcript, following: reply.Answer) -> Iterator[Finding]:
    """Judge the continuation of a streamed response, where that of a whole one works."""
    found = reply_at(transcript, "streamed-next")
    if found is None:
        return
    if isinstance(found, reply.Refusal):
        why = f"a whole response can be continued, and a streamed one not: {found.what}"
        yield _PART.violated(_STREAMED, why, found, following)
        return
    missing = _PART.unless_answered(_STREAMED, found)
    if missing is not None:
        yield missing
        return
    alone, long = prompt_tokens(reply_at(transcript, "control")), prompt_tokens(found)
    if alone is None or long is None:
        return
    why = f"the prompt has {alone} tokens alone and {long} behind a streamed turn of more than {_WORDS} words"
    yield (_PART.held if long - alone >= _WORDS / 2 else _PART.violated)(_STREAMED, why, found, following)


def _judge_unknown(found: reply.Reply | None, following: reply.Reply | None) -> Finding:
    if isinstance(found, reply.Refusal):
        return _PART.held(_UNKNOWN, f"refused: {found.what}", found)
    missing = _PART.unless_answered(_UNKNOWN, found, what="an id that was never given")
    if missing is not None:
        return missing
    assert isinstance(found, reply.Answer)
    why = f"200 for the id of a response that never was: {quote(found.text, 60)}"
    # A server that refuses every continuation has not been seen to carry any on.
    return (_PART.violated if isinstance(following, reply.Answer) else _PART.undetermined)(_UNKNOWN, why, found)


def _judge_read(transcript: Transcript, first: reply.Answer) -> Finding:
    exchange = transcript.get("read")
    if exchange is None:
        return _PART.undetermined(_READ, "the response was not asked for again", first)
    body = reply.json_body(exchange)
    if isinstance(body, reply.Refusal):
        return _PART.refused(_READ, f"refused: {body.what}", exchange)
    if isinstance(body, reply.Failure):
        return _PART.violated(_READ, body.what, exchange)
    given, wanted = dig(body, "id"), dig(first.body, "id")
    if given != wanted:
        return _PART.violated(_READ, f"asked for {wanted!r}, came {given!r}", exchange, first)
    if dig(body, "output") != dig(first.body, "output"):
        return _PART.violated(_READ, "the output that was read is not the one that was given", exchange, first)
    return _PART.held(_READ, "the same id and output", exchange, first)


def _judge_unstored(transcript: Transcript) -> Finding:
    found = reply_at(transcript, "unstored-next")
    if found is None:
        return _PART.undetermined(_UNSTORED, "store: false gave no response to go on with")
    if isinstance(found, reply.Refusal):
        return _PART.held(_UNSTORED, f"refused: {found.what}", found)
    missing = _PART.unless_answered(_UNSTORED, found, what="a response that was not to be stored")
    if missing is not None:
        return missing
    return _PART.violated(_UNSTORED, "a response with store: false is carried on nevertheless", found)


PROBE = Probe(
    id="responses_previous",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CARRIED,
            rule="With previous_response_id the earlier turns are part of the prompt.",
            level=Level.MUST,
            source=_STATE,
        ),
        Check(
            id=_STREAMED,
            rule="Where a whole response can be carried on, a streamed one can.",
            level=Level.SHOULD,
            source="https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1188",
        ),
        Check(
            id=_UNKNOWN,
            rule="A previous_response_id that was never given is refused.",
            level=Level.MUST,
            source=_CREATE,
        ),
        Check(
            id=_READ,
            rule="A stored response can be read by its id, as it was given.",
            level=Level.SHOULD,
            source=_GET,
        ),
        Check(
            id=_UNSTORED,
            rule="A response with store: false cannot be carried on.",
            level=Level.SHOULD,
            source=_CREATE,
        ),
    ),
    params=ResponsesPreviousParams,
    drive=drive,
    judge=judge,
    requests=9,
    prompt_tokens=560,
    output_tokens=72,
)
