"""A tool's result is accepted and reaches the model.

What it does: sends the conversation of an agent: a question, the assistant's call with ``content: null``, the tool's
result. Two such conversations differ only in a random word in the result: an answer that is the same to the last digit
of its logprobs was made without reading it. A longer result must raise ``prompt_tokens``. The call is also sent with
an empty content and with none, as clients do, and once the result names a call that was never made.

Why it matters: servers refuse what they themselves sent, or drop the result, and the agent goes in circles.

How it could be fooled: by usage that counts what was sent instead of what was read, which the pair is for. A result
for an unknown call may be refused or answered; both are seen, and neither breaks a client.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._pairs import ask_pair, judge_pair, reply_of_side
from servecheck.probes._steps import filler, reply_at, sent
from servecheck.probes._tools import code_tool
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/function-calling"
_MESSAGE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-messages"
_PART = Part()
_ACCEPTED, _OTHERS = "tool-result-is-accepted", "call-without-text-is-accepted-in-any-form"
_COUNTED, _READ = "tool-result-is-counted", "tool-result-reaches-the-model"
_UNKNOWN = "result-for-an-unknown-call-does-no-harm"
_WORDS = 24  # by which the longer result is longer
_FORMS = {"empty": "content is an empty string", "absent": "there is no content"}


class ToolsRoundTripParams(Params):
    """What may be chosen in YAML."""

    question: str = Field(default="What is the code of today?", description="The user's message.")
    max_tokens: int = Field(default=16, ge=4, le=4096, description="Room for the answers that are compared.")


async def drive(session: Session, params: ToolsRoundTripParams, _: Transcript | None) -> None:
    """The question alone, then the round trip with two results, a longer one, two other forms and a foreign id."""
    name, call_id, code = f"fn_{session.nonce(8)}", session.nonce(9), session.nonce()
    words = (session.nonce(), session.nonce())
    question: Json = {"role": "user", "content": params.question}
    tool = code_tool(name, code, strict=False)
    base: dict[str, Json] = {"max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}

    def trip(word: str, *, more: int = 0, answers: str = call_id, **content: Json) -> dict[str, Json]:
        call: Json = {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": f'{{"code": "{code}"}}'},
        }
        result = f"The code is {word}. {filler(more)}".strip()
        return {
            **base,
            "tools": [tool],
            "messages": [
                question,
                {"role": "assistant", **content, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": answers, "content": result},
            ],
        }

    await session.chat("control", {**base, "messages": [question]})
    await ask_pair(session, "pair-one", trip(words[0], content=None))
    await ask_pair(session, "pair-other", trip(words[1], content=None))
    await session.chat("longer", trip(words[0], more=_WORDS, content=None))
    await session.chat("empty", trip(words[0], content=""))
    await session.chat("absent", trip(words[0]))
    await session.chat("unknown", trip(words[0], answers=session.nonce(9), content=None))


def judge(transcript: Transcript, _: ToolsRoundTripParams) -> Iterator[Finding]:
    """Judge whether it is accepted; the rest only where it is."""
    control, first = reply_at(transcript, "control"), reply_of_side(transcript, "pair-one")
    missing = _PART.unless_answered(_ACCEPTED, first, control)
    if missing is not None:
        yield missing
    else:
        assert isinstance(first, reply.Answer)
        yield _PART.held(_ACCEPTED, f"answered: {_answered(first)}", first)
        yield _counted(first, reply_at(transcript, "longer"))
        yield judge_pair(transcript, "pair", _READ, "in the tool's result", control)
        yield _unknown(reply_at(transcript, "unknown"), first)
    for form, what in _FORMS.items():
        yield _form(what, reply_at(transcript, form), first)


def _answered(answer: reply.Answer) -> str:
    calls = [call.name or "" for call in answer.first.tool_calls]
    return f"a call of {quote(calls[0], 60)}" if calls else quote(answer.first.reasoning + answer.text)


def _form(what: str, answer: reply.Reply | None, first: reply.Reply | None) -> Finding:
    """Judge another form of the same call; where none is answered, the form is not what is refused."""
    missing = _PART.unless_answered(_OTHERS, answer, first)
    if missing is not None:
        return missing
    assert isinstance(answer, reply.Answer)
    return _PART.held(_OTHERS, f"{what}: {_answered(answer)}", answer)


def _counted(short: reply.Answer, long: reply.Reply | None) -> Finding:
    missing = _PART.unless_answered(_COUNTED, long, short)
    if missing is not None:
        return missing
    assert isinstance(long, reply.Answer)
    low, high = (each.usage.prompt if each.usage is not None else None for each in (short, long))
    if low is None or high is None:
        return _PART.undetermined(_COUNTED, "usage does not say how long the prompts are", *sent(short, long))
    why = f"prompt_tokens {low}, and {high} with {_WORDS} more words in the result"
    # So many words cannot be fewer tokens than half of them.
    return (_PART.held if high - low >= _WORDS / 2 else _PART.violated)(_COUNTED, why, short, long)


def _unknown(answer: reply.Reply | None, first: reply.Answer) -> Finding:
    if isinstance(answer, reply.Refusal):
        return _PART.held(_UNKNOWN, f"refused: {answer.what}", answer)
    missing = _PART.unless_answered(_UNKNOWN, answer, first)
    if missing is not None:
        return missing
    assert isinstance(answer, reply.Answer)
    return _PART.held(_UNKNOWN, f"answered as if it were known: {_answered(answer)}", answer)


PROBE = Probe(
    id="tools_round_trip",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_ACCEPTED,
            rule="An assistant's call with content null and the tool's result are accepted.",
            level=Level.MUST,
            source=_MESSAGE,
        ),
        Check(
            id=_COUNTED,
            rule="prompt_tokens grows with the tool's result.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_READ,
            rule="A word in the tool's result has an effect on the answer.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_OTHERS,
            rule="An assistant's call is accepted with an empty content and without any, as with null.",
            level=Level.SHOULD,
            source=_MESSAGE,
        ),
        Check(
            id=_UNKNOWN,
            rule="A result for a call that was never made is refused or answered, without a failure.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=ToolsRoundTripParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=2170,
    output_tokens=100,
)
