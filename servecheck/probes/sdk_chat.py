"""The official openai SDK reads a chat answer, and shows what the server says when it refuses.

What it does: lets the SDK make a chat request and sends it, beside the same bytes without the SDK's headers (the
control) and a request with messages that are no list, which servers refuse. Every recorded reply is then handed to the
SDK, with retries off: what it returns, of which types, and what it raises.

Why it matters: most applications see a server through this SDK only. It does not look at what it hands out, so a number
that came as text fails far away; and an error of another shape becomes an exception without a word of why.

How it could be fooled: by a gateway that treats this SDK's name specially, which is then what applications meet too.
Retries, timeouts and what the SDK does while bytes arrive are not seen: it reads the reply when it is over.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._sdk import SOURCE, ask, judge_faults, unread
from servecheck.probes._steps import reply_at, sent
from servecheck.read import reply, sdk
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_RETURNS, _TYPES, _MESSAGE = "sdk-returns-the-answer", "completion-has-the-sdks-types", "sdk-shows-the-servers-message"
_PART = Part()


class SdkChatParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Name three colours.", description="What is asked.")
    max_tokens: int = Field(default=48, ge=1, le=4096, description="Room for the answer.")


async def drive(session: Session, params: SdkChatParams, _: Transcript | None) -> None:
    """The control, the same through the SDK, and a request that is to be refused."""
    messages = [{"role": "user", "content": params.prompt}]
    asked = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0}
    await ask(session, "plain", asked, plain=True)  # type: ignore[arg-type]
    await ask(session, "sdk", asked)  # type: ignore[arg-type]
    await ask(session, "refused", {"messages": "Say yes.", "max_tokens": 4})


def judge(transcript: Transcript, _: SdkChatParams) -> Iterator[Finding]:
    """Judge what the SDK returns, then what it raises."""
    answer, control = reply_at(transcript, "sdk"), reply_at(transcript, "plain")
    for check in (_RETURNS, _TYPES):
        yield _PART.unless_answered(check, answer, control, what="the SDK's request") or _answered(check, answer)
    yield _refused(reply_at(transcript, "refused"))


def _answered(check: str, answer: reply.Reply | None) -> Finding:
    assert isinstance(answer, reply.Answer)
    made = sdk.made(answer.exchange)
    if isinstance(made, sdk.Raised):
        if check == _TYPES:
            return _PART.undetermined(check, f"there is nothing whose types could be looked at: {made.what}", answer)
        return unread(_PART, check, made, answer)
    if check == _TYPES:
        return judge_faults(_PART, check, made, answer, what="completion")
    wrong = _wrong(made, answer)
    if wrong:
        return _PART.violated(check, wrong, answer)
    return _PART.held(check, f"the SDK returns {quote(answer.text, 60)}, finish_reason {answer.finish!r}", answer)


def _wrong(made: sdk.Made, answer: reply.Answer) -> str:
    message, finish = made.message, made.finish
    content = dig(message, "content")
    if not isinstance(message, dict):
        return f"the SDK returns a completion whose first choice has no message: {quote(answer.exchange.body)}"
    if content is not None and not isinstance(content, str):
        return f"message.content is {type(content).__name__} and not text: {quote(str(content))}"
    if string(content) != answer.text:
        return f"the SDK returns {quote(string(content), 60)} where the reply holds {quote(answer.text, 60)}"
    if content is None and not answer.first.reasoning and not answer.first.tool_calls:
        return "message.content is None, and there is neither reasoning nor a tool call"
    if dig(message, "role") != "assistant":
        return f"message.role is {dig(message, 'role')!r} and not 'assistant'"
    return "" if isinstance(finish, str) else f"finish_reason is {finish!r}"


def _refused(answer: reply.Reply | None) -> Finding:
    if answer is None:
        return _PART.undetermined(_MESSAGE, "the request was not sent")
    if isinstance(answer, reply.Answer):
        return _PART.undetermined(_MESSAGE, "messages that are no list were answered, so there is no error", answer)
    raised = sdk.made(answer.exchange)
    if isinstance(raised, sdk.Made):
        why = f"the SDK raises nothing and returns a completion of {quote(answer.exchange.body)}"
        return _PART.violated(_MESSAGE, why, answer)
    if raised.status is None:
        return _PART.violated(_MESSAGE, f"{raised.what}, which is no error of the API", *sent(answer))
    if not raised.message:
        why = f"{raised.kind} without a message of the server: {quote(raised.text, 120)}"
        return _PART.violated(_MESSAGE, why, answer)
    if raised.message.lstrip().startswith("<"):
        return _PART.violated(_MESSAGE, f"{raised.kind} with a page for its message: {quote(raised.message)}", answer)
    return _PART.held(_MESSAGE, f"{raised.kind}: {quote(raised.message, 120)}", answer)


PROBE = Probe(
    id="sdk_chat",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_RETURNS,
            rule="The SDK's create() returns the assistant's message as it was sent, with a finish reason.",
            level=Level.MUST,
            source=f"{SOURCE}#usage",
        ),
        Check(
            id=_TYPES,
            rule="Every field of a completion has the type that the SDK declares for it.",
            level=Level.SHOULD,
            source=f"{SOURCE}#using-types",
        ),
        Check(
            id=_MESSAGE,
            rule="For a refused request the SDK raises a status error with the server's message in it.",
            level=Level.SHOULD,
            source=f"{SOURCE}#handling-errors",
        ),
    ),
    params=SdkChatParams,
    drive=drive,
    judge=judge,
    requests=3,
    prompt_tokens=50,
    output_tokens=90,
)
