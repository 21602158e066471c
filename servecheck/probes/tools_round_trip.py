"""A tool's result is accepted and reaches the model.

What it does: sends the conversation of an agent: a question, the assistant's call with ``content: null``, the tool's
result. Two such conversations differ only in a random word in the result: an answer that is the same to the last digit
of its logprobs was made without reading it. A longer result must raise ``prompt_tokens``; it comes in text parts, as
agents send it. The call is also sent with an empty content, beside a system message, and with none, as the first of two
calls; and once the result names a call that was never made. What is refused or not counted that way is asked for again
in the plain form, so that one form does not speak for another.

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
_PARTS, _EVERY = "tool-result-in-text-parts-is-read", "every-tool-result-is-counted"
_SYSTEM = "system-message-is-counted-beside-tools"
_UNKNOWN = "result-for-an-unknown-call-does-no-harm"
_WORDS = 24  # by which the longer result is longer
_SECOND_WORDS = 96  # of the second result; half of them are more tokens than the second call itself
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

    def called(number: str, arguments: str) -> Json:
        return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}

    def trip(
        word: str, *, more: str = "", parts: bool = False, answers: str = call_id, before: str = "", **content: Json
    ) -> dict[str, Json]:
        said = [text for text in (f"The code is {word}.", more) if text]
        result: Json = [{"type": "text", "text": text} for text in said] if parts else " ".join(said)
        call = called(call_id, f'{{"code": "{code}"}}')
        system: list[Json] = [{"role": "system", "content": before}] if before else []
        answered: Json = {"role": "tool", "tool_call_id": answers, "content": result}
        messages: list[Json] = [*system, question, {"role": "assistant", **content, "tool_calls": [call]}, answered]
        return {**base, "tools": [tool], "messages": messages}

    def twice(word: str, more: str) -> dict[str, Json]:
        """Two calls in one message without a content, the second without arguments, and a result for each."""
        second = session.nonce(9)
        calls: Json = [called(call_id, f'{{"code": "{code}"}}'), called(second, "{}")]
        results: list[Json] = [
            {"role": "tool", "tool_call_id": call_id, "content": f"The code is {word}."},
            {"role": "tool", "tool_call_id": second, "content": more},
        ]
        return {**base, "tools": [tool], "messages": [question, {"role": "assistant", "tool_calls": calls}, *results]}

    await session.chat("control", {**base, "messages": [question]})
    await ask_pair(session, "pair-one", trip(words[0], content=None))
    await ask_pair(session, "pair-other", trip(words[1], content=None))
    more = filler(_WORDS)
    await session.chat("longer-parts", trip(words[0], more=more, parts=True, content=None))
    if not _grown(session.transcript, "longer-parts"):
        await session.chat("longer", trip(words[0], more=more, content=None))
    await session.chat("empty-system", trip(words[0], before=more, content=""))
    if not isinstance(reply_at(session.transcript, "empty-system"), reply.Answer):
        await session.chat("empty", trip(words[0], content=""))
    elif _unmoved(session.transcript, "empty-system"):
        await session.chat("longer-system", trip(words[0], before=f"{more} {more}", content=""))
    await session.chat("absent-two", twice(words[0], filler(_SECOND_WORDS)))
    if not _grown(session.transcript, "absent-two", _SECOND_WORDS):
        await session.chat("absent", trip(words[0]))
    await session.chat("unknown", trip(words[0], answers=session.nonce(9), content=None))


def _tokens(answer: reply.Reply | None) -> int | None:
    return answer.usage.prompt if isinstance(answer, reply.Answer) and answer.usage is not None else None


def _grown(transcript: Transcript, step: str, words: int = _WORDS) -> bool:
    """Tell whether a request was answered, and read with the words that it has more; true where usage says nothing."""
    found, first = reply_at(transcript, step), reply_of_side(transcript, "pair-one")
    if not isinstance(found, reply.Answer):
        return False
    low, high = _tokens(first), _tokens(found)
    # So many words cannot be fewer tokens than half of them.
    return low is None or high is None or high - low >= words / 2


def _unmoved(transcript: Transcript, step: str) -> bool:
    """Tell whether a request was read with as many tokens as without what it has more."""
    without = _tokens(reply_of_side(transcript, "pair-one"))
    return without is not None and without == _tokens(reply_at(transcript, step))


def judge(transcript: Transcript, _: ToolsRoundTripParams) -> Iterator[Finding]:
    """Judge whether it is accepted; the rest only where it is."""
    control, first = reply_at(transcript, "control"), reply_of_side(transcript, "pair-one")
    missing = _PART.unless_answered(_ACCEPTED, first, control)
    if missing is not None:
        yield missing
    else:
        assert isinstance(first, reply.Answer)
        yield _PART.held(_ACCEPTED, f"answered: {_answered(first)}", first)
        yield _counted(_COUNTED, first, _either(transcript, "longer", "longer-parts"), "in the result")
        yield _counted(_PARTS, first, reply_at(transcript, "longer-parts"), "in a second text part of the result")
        yield _system(transcript, first)
        yield _counted(
            _EVERY, first, reply_at(transcript, "absent-two"), "in the result of a second call", _SECOND_WORDS
        )
        yield judge_pair(transcript, "pair", _READ, "in the tool's result", control)
        yield _unknown(reply_at(transcript, "unknown"), first)
    for (form, what), other in zip(_FORMS.items(), ("empty-system", "absent-two"), strict=True):
        yield _form(what, _either(transcript, form, other), first)


def _either(transcript: Transcript, step: str, other: str) -> reply.Reply | None:
    """Return the reply to the plain form where it was asked for, else to the one that took its place."""
    return reply_at(transcript, step) or reply_at(transcript, other)


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


def _counted(check: str, short: reply.Answer, long: reply.Reply | None, where: str, words: int = _WORDS) -> Finding:
    missing = _PART.unless_answered(check, long, short, what=f"{words} more words {where}" if check != _COUNTED else "")
    if missing is not None:
        return missing
    low, high = _tokens(short), _tokens(long)
    if low is None or high is None:
        return _PART.undetermined(check, "usage does not say how long the prompts are", *sent(short, long))
    why = f"prompt_tokens {low}, and {high} with {words} more words {where}"
    return (_PART.held if high - low >= words / 2 else _PART.violated)(check, why, *sent(short, long))


def _system(transcript: Transcript, first: reply.Answer) -> Finding:
    """Judge the system message; where there is none a template may write one of its own, of any length."""
    found, longer = reply_at(transcript, "empty-system"), reply_at(transcript, "longer-system")
    if isinstance(found, reply.Refusal):
        return _PART.undetermined(_SYSTEM, f"no system message is taken here: {found.what}", first, found)
    missing = _PART.unless_answered(_SYSTEM, found, first, what="a system message beside tools")
    if missing is not None:
        return missing
    why = f"prompt_tokens {_tokens(first)} without a system message, {_tokens(found)} with one of {_WORDS} words"
    if _tokens(first) is None or _tokens(found) is None:
        return _PART.undetermined(_SYSTEM, "usage does not say how long the prompts are", *sent(first, found))
    if longer is None or not _unmoved(transcript, "longer-system"):
        return _PART.held(_SYSTEM, why, *sent(first, found, longer))
    return _PART.violated(_SYSTEM, f"{why}, and with one of {2 * _WORDS} words", *sent(first, found, longer))


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
            id=_PARTS,
            rule="A tool's result in text parts is accepted and counted, as one in a string is.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/25001",
        ),
        Check(
            id=_EVERY,
            rule="Two calls in one message are taken back, and the results of both are counted.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_SYSTEM,
            rule="A system message is counted beside tools too.",
            level=Level.SHOULD,
            source=_MESSAGE,
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
    prompt_tokens=2280,
    output_tokens=100,
)
