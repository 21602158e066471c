"""The official openai SDK reads a stream to its end, and its own helper adds the chunks up to the same message.

What it does: lets the SDK make a streamed request with usage and sends it, beside the same bytes without the SDK's
headers (the control) and a streamed request that servers refuse. The recorded events are then handed to the SDK: to a
caller who reads chunk after chunk, and to the helper that adds chunks up. Both are held against what was sent.

Why it matters: the SDK reads a stream without an end and without a finish reason and says nothing; an error event of
another shape passes for a chunk; and a role that is repeated in every chunk comes out as `assistantassistant`.

How it could be fooled: by what happens while bytes arrive, since the SDK reads the recording. A missing `[DONE]` is
invisible to this SDK and is `streaming.frames`' business.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._sdk import SOURCE, ask, judge_faults, unread
from servecheck.probes._steps import reply_at
from servecheck.read import reply, sdk
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_READS, _ADDS = "sdk-reads-the-whole-stream", "sdk-adds-the-stream-up"
_TYPES, _RAISES = "chunks-have-the-sdks-types", "sdk-raises-for-a-refused-stream"
_PART = Part(mode=Mode.STREAM)


class SdkStreamParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Name three colours.", description="What is asked.")
    max_tokens: int = Field(default=48, ge=1, le=4096, description="Room for the answer.")


async def drive(session: Session, params: SdkStreamParams, _: Transcript | None) -> None:
    """The control, the same through the SDK, and a request that is to be refused."""
    messages = [{"role": "user", "content": params.prompt}]
    asked = {
        "messages": messages,
        "max_tokens": params.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    await ask(session, "plain", asked, plain=True)  # type: ignore[arg-type]
    await ask(session, "sdk", asked)  # type: ignore[arg-type]
    await ask(session, "refused", {"messages": "Say yes.", "max_tokens": 4, "stream": True})


def judge(transcript: Transcript, _: SdkStreamParams) -> Iterator[Finding]:
    """Judge what the SDK hands out, then what it raises."""
    answer, control = reply_at(transcript, "sdk"), reply_at(transcript, "plain")
    for check in (_READS, _ADDS, _TYPES):
        yield _PART.unless_answered(check, answer, control, what="the SDK's request") or _answered(check, answer)
    yield _refused(reply_at(transcript, "refused"))


def _answered(check: str, answer: reply.Reply | None) -> Finding:
    assert isinstance(answer, reply.Answer)
    if answer.stream is None:
        kind = answer.exchange.header("content-type") or "no content type"
        return _PART.no_effect(check, f"200 and no event stream although stream is true: {kind}", answer)
    made = sdk.streamed(answer.exchange)
    if isinstance(made, sdk.Raised):
        if check != _READS:
            return _PART.undetermined(check, f"the SDK does not get that far: {made.what}", answer)
        return unread(_PART, check, made, answer)
    if check == _TYPES:
        return judge_faults(_PART, check, made, answer, what="chunks")
    wrong = _unlike(made, answer) if check == _READS else _added(made, answer)
    if wrong:
        return _PART.violated(check, wrong, answer)
    what = "chunks with" if check == _READS else "chunks add up to"
    return _PART.held(check, f"{made.chunks} {what} {quote(answer.text, 60)}, finish_reason {answer.finish!r}", answer)


def _unlike(made: sdk.Made, answer: reply.Answer) -> str:
    text = "".join(made.texts)
    if text != answer.text:
        return f"the SDK hands out {quote(text, 60)} where the events hold {quote(answer.text, 60)}"
    if answer.finish is None:
        return f"the SDK reads {made.chunks} chunks to the end, and none has a finish_reason"
    if not text and not answer.first.reasoning and not answer.first.tool_calls:
        return f"the SDK reads {made.chunks} chunks to the end, and none says anything"
    return ""


def _added(made: sdk.Made, answer: reply.Answer) -> str:
    if isinstance(made.reply, sdk.Raised):
        return f"the SDK's helper raises {made.reply.kind} over the chunks: {quote(made.reply.text, 120)}"
    content, role = dig(made.message, "content"), dig(made.message, "role")
    if role != "assistant":
        return f"the chunks add up to the role {role!r} and not 'assistant'"
    if string(content) != answer.text:
        return f"the chunks add up to {quote(string(content), 60)} where the events hold {quote(answer.text, 60)}"
    return ""


def _refused(answer: reply.Reply | None) -> Finding:
    if answer is None:
        return _PART.undetermined(_RAISES, "the request was not sent")
    if isinstance(answer, reply.Answer):
        return _PART.undetermined(_RAISES, "messages that are no list were answered, so there is no error", answer)
    raised = sdk.streamed(answer.exchange)
    if isinstance(raised, sdk.Raised):
        return _PART.held(_RAISES, raised.what, answer)
    seen = f"the SDK raises nothing and hands out chunks ({raised.chunks}) where the server said {answer.what}"
    return _PART.violated(_RAISES, seen, answer)


PROBE = Probe(
    id="sdk_stream",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_READS,
            rule="The SDK hands out all the text of a stream and a finish reason, and raises nothing.",
            level=Level.MUST,
            source=f"{SOURCE}#streaming-responses",
        ),
        Check(
            id=_ADDS,
            rule="The SDK's own helper adds the chunks of a stream up to the assistant's message.",
            level=Level.MUST,
            source=f"{SOURCE}/blob/main/helpers.md",
        ),
        Check(
            id=_TYPES,
            rule="Every field of every chunk has the type that the SDK declares for it.",
            level=Level.SHOULD,
            source=f"{SOURCE}#using-types",
        ),
        Check(
            id=_RAISES,
            rule="For a refused request that streams the SDK raises an error.",
            level=Level.SHOULD,
            source=f"{SOURCE}#handling-errors",
        ),
    ),
    params=SdkStreamParams,
    drive=drive,
    judge=judge,
    requests=3,
    prompt_tokens=50,
    output_tokens=90,
)
