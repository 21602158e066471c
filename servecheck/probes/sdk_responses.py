"""The official openai SDK reads a response, whole and streamed.

What it does: lets the SDK make a request of the responses route and sends it, beside the same bytes without the SDK's
headers (the control), and once streamed. Every recorded reply is then handed to the SDK, with retries off: the output
text that it gives, the types of the fields, the text of the events, and the response that its helper ends with.

Why it matters: the SDK's helper keeps its own count of output items and parts, so an event without an index, or a
stream that does not begin with ``response.created``, raises in the middle of an application that never sees the wire.

How it could be fooled: by a gateway that treats this SDK's name specially, which is then what applications meet too. A
route that is not there is not offered; whether it works without the SDK is for the rows ``responses.*``.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._sdk import SOURCE, ask_response, judge_faults, unread
from servecheck.probes._steps import reply_at
from servecheck.read import reply, responses, sdk
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_RETURNS, _TYPES = "sdk-returns-the-response", "response-has-the-sdks-types"
_READS, _ADDS = "sdk-reads-all-events-of-a-response", "sdk-helper-ends-with-the-response"
_PLAIN, _STREAM = Part(route=Route.RESPONSES), Part(route=Route.RESPONSES, mode=Mode.STREAM)


class SdkResponsesParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Name three colours.", description="What is asked.")
    max_output_tokens: int = Field(default=48, ge=16, le=4096, description="Room for the answer.")


async def drive(session: Session, params: SdkResponsesParams, _: Transcript | None) -> None:
    """The control, the same through the SDK, and streamed."""
    asked: dict[str, Json] = {
        "input": params.prompt,
        "max_output_tokens": params.max_output_tokens,
        "temperature": 0,
        "store": False,
    }
    await ask_response(session, "plain", asked, plain=True)
    await ask_response(session, "sdk", asked)
    await ask_response(session, "stream", {**asked, "stream": True})


def judge(transcript: Transcript, _: SdkResponsesParams) -> Iterator[Finding]:
    """Judge what the SDK makes of the whole reply and of the stream."""
    control = reply_at(transcript, "plain")
    if isinstance(control, reply.Refusal):
        yield _PLAIN.refused(_RETURNS, f"the route refuses a plain request too: {control.what}", control)
        return
    for part, step, checks in ((_PLAIN, "sdk", (_RETURNS, _TYPES)), (_STREAM, "stream", (_READS, _ADDS))):
        answer = reply_at(transcript, step)
        for check in checks:
            missing = part.unless_answered(check, answer, control, what="the SDK's request")
            yield missing or (_whole(check, answer) if part is _PLAIN else _streamed(check, answer))


def _whole(check: str, answer: reply.Reply | None) -> Finding:
    assert isinstance(answer, reply.Answer)
    made = sdk.response(answer.exchange)
    if isinstance(made, sdk.Raised):
        if check == _TYPES:
            return _PLAIN.undetermined(check, f"there is nothing whose types could be looked at: {made.what}", answer)
        return unread(_PLAIN, check, made, answer)
    if check == _TYPES:
        return judge_faults(_PLAIN, check, made, answer, what="response")
    if made.text != answer.text:
        why = f"output_text is {quote(made.text, 60)} where the items hold {quote(answer.text, 60)}"
        return _PLAIN.violated(check, why, answer)
    if not made.text and (unseen := _unseen(answer)):
        return _PLAIN.violated(check, f"output_text is empty where an item holds {quote(unseen, 60)}", answer)
    return _PLAIN.held(check, f"output_text is {quote(made.text, 60)}", answer)


def _unseen(answer: reply.Answer) -> str:
    """Return the text of a message item, of whatever type its parts are."""
    for item in responses.items_of(answer.body, "message"):
        content = dig(item, "content")
        for part in content if isinstance(content, list) else []:
            if text := string(dig(part, "text")):
                return text
    return ""


def _streamed(check: str, answer: reply.Reply | None) -> Finding:
    assert isinstance(answer, reply.Answer)
    if answer.stream is None:
        kind = answer.exchange.header("content-type") or "no content type"
        return _STREAM.no_effect(check, f"200 and no event stream although stream is true: {kind}", answer)
    made = sdk.response_streamed(answer.exchange)
    if isinstance(made, sdk.Raised):
        if check == _ADDS:
            return _STREAM.undetermined(check, f"the SDK does not get that far: {made.what}", answer)
        return unread(_STREAM, check, made, answer)
    said = "".join(made.texts)
    if check == _READS:
        if said != answer.text:
            why = f"the SDK hands out {quote(said, 60)} where the events hold {quote(answer.text, 60)}"
            return _STREAM.violated(check, why, answer)
        if not said and (unseen := _unseen(answer)):
            why = f"the SDK hands out no text where the response ends with {quote(unseen, 60)}"
            return _STREAM.violated(check, why, answer)
        return _STREAM.held(check, f"{made.chunks} events with {quote(said, 60)}", answer)
    if isinstance(made.reply, sdk.Raised):
        why = f"the SDK's helper raises {made.reply.kind} over the events: {quote(made.reply.text, 120)}"
        return _STREAM.violated(check, why, answer)
    if made.text != said:
        why = f"the helper ends with {quote(made.text, 60)} where the deltas are {quote(said, 60)}"
        return _STREAM.violated(check, why, answer)
    return _STREAM.held(check, f"the helper ends with {quote(made.text, 60)}", answer)


PROBE = Probe(
    id="sdk_responses",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_RETURNS,
            rule="The SDK's responses.create() returns a response whose output_text is that of its items.",
            level=Level.MUST,
            source=f"{SOURCE}#usage",
        ),
        Check(
            id=_TYPES,
            rule="Every field of a response has the type that the SDK declares for it.",
            level=Level.SHOULD,
            source=f"{SOURCE}#using-types",
        ),
        Check(
            id=_READS,
            rule="The SDK hands out all the text of a streamed response, and raises nothing.",
            level=Level.MUST,
            source=f"{SOURCE}#streaming-responses",
        ),
        Check(
            id=_ADDS,
            rule="The SDK's own helper reads the events of a response to an end whose text is that of the deltas.",
            level=Level.MUST,
            source=f"{SOURCE}/blob/main/helpers.md",
        ),
    ),
    params=SdkResponsesParams,
    drive=drive,
    judge=judge,
    requests=3,
    prompt_tokens=70,
    output_tokens=140,
)
