"""``max_tokens`` and ``max_completion_tokens`` end the answer at exactly that many tokens.

What it does: asks for a long answer with plenty of room (the control, which shows how long it would be), then with a
small limit under each of the two names, whole and streamed, and under the older name on the completions route. The
limit is below the control's length, so the answer must have exactly that many tokens by usage and end with ``length``.

Why it matters: the limit is what bounds cost and waiting. One that does not bind lets a single prompt hold a place for
minutes; one that is off, or a cut that calls itself ``stop``, makes half an answer look whole.

How it could be fooled: by usage that counts what was asked for instead of what was made. Thinking counts as output, as
it does on the bill.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at
from servecheck.read import reply
from servecheck.read.text import dig, number, quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create"
_OLD, _NEW, _FINISH = "max-tokens-binds-exactly", "max-completion-tokens-binds-exactly", "cut-answer-says-length"


class MaxTokensParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Count from 1 to 400 in words, one number a line, without leaving any out.",
        description="The user's message: the answer should be longer than every limit.",
    )
    completion_prompt: str = Field(
        default="One, two, three, four, five, six, seven,", description="The prompt on the completions route."
    )
    room: int = Field(default=48, ge=8, le=4096, description="The control's limit.")
    limits: tuple[int, int] = Field(
        default=(7, 11),
        strict=False,
        description="The limits as max_tokens and as max_completion_tokens; lower where the control is shorter.",
    )


class _Arm(NamedTuple):
    """One way to ask: the field that carries the limit, where, and which of the limits it is."""

    step: str
    check: str
    field: str
    which: int
    route: Route = Route.CHAT
    mode: Mode = Mode.NON_STREAM


_ARMS = (
    _Arm("old", _OLD, "max_tokens", 0),
    _Arm("new", _NEW, "max_completion_tokens", 1),
    _Arm("old-stream", _OLD, "max_tokens", 0, mode=Mode.STREAM),
    _Arm("new-stream", _NEW, "max_completion_tokens", 1, mode=Mode.STREAM),
    _Arm("completions", _OLD, "max_tokens", 0, Route.COMPLETIONS),
)
_CONTROLS = {Route.CHAT: "control", Route.COMPLETIONS: "completions-control"}


async def drive(session: Session, params: MaxTokensParams, _: Transcript | None) -> None:
    """Control, then every arm with a limit below the control's length."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    bases: dict[Route, dict[str, Json]] = {
        Route.CHAT: {"messages": messages, "temperature": 0, "top_p": 1},
        Route.COMPLETIONS: {"prompt": params.completion_prompt, "temperature": 0, "top_p": 1},
    }
    for route, base in bases.items():
        path = "/chat/completions" if route is Route.CHAT else "/completions"
        await session.post(_CONTROLS[route], path, {**base, "max_tokens": params.room})
        for arm in _ARMS:
            if arm.route is not route:
                continue
            limit = _limit(session.transcript, params, arm)
            streamed: dict[str, Json] = {"stream": True, "stream_options": {"include_usage": True}}
            extra: dict[str, Json] = streamed if arm.mode is Mode.STREAM else {}
            await session.post(arm.step, path, {**base, arm.field: limit, **extra})


def _limit(transcript: Transcript, params: MaxTokensParams, arm: _Arm) -> int:
    """Return the limit to send: the one wanted, or one below the length of a control that ended by itself."""
    made = _completion(answer_at(transcript, _CONTROLS[arm.route]))
    wanted = params.limits[arm.which]
    return wanted if made is None else max(1, min(wanted, made - 1))


def _completion(answer: reply.Answer | None) -> int | None:
    return answer.usage.completion if answer is not None and answer.usage is not None else None


def judge(transcript: Transcript, _: MaxTokensParams) -> Iterator[Finding]:
    """Judge each arm by the limit in its own request."""
    for arm in _ARMS:
        control, answer = reply_at(transcript, _CONTROLS[arm.route]), reply_at(transcript, arm.step)
        whole = answer_at(transcript, arm.step.removesuffix("-stream"))
        yield from _judge(Part(route=arm.route, mode=arm.mode), arm, answer, control, whole)


def _judge(
    part: Part, arm: _Arm, answer: reply.Reply | None, control: reply.Reply | None, whole: reply.Answer | None
) -> Iterator[Finding]:
    check = arm.check
    missing = part.unless_answered(check, answer, control, what=arm.field)
    if missing is not None:
        yield missing
        return
    assert isinstance(answer, reply.Answer)
    limit = number(dig(answer.exchange.request, arm.field)) or 0
    made, free = _completion(answer), _completion(control if isinstance(control, reply.Answer) else None)
    if made is None:
        yield from _without_usage(part, arm, answer, whole, limit)
        return
    said = f"{made} tokens with {arm.field} {limit}, finish_reason {answer.finish!r}"
    if free is not None:
        said += f"; {free} without it"
    seen = (answer, *((control,) if control is not None else ()))
    figures = {"limit": limit, "completion_tokens": made, "control_tokens": free}
    if made == limit or made + _thought(answer) == limit:
        yield part.held(check, said, *seen, **figures)
        right = answer.finish == "length"
        ended = free is not None and free <= limit
        if right or not ended:
            yield (part.held if right else part.violated)(_FINISH, said, *seen)
    elif made > limit and free is not None and made >= free:
        yield part.no_effect(check, f"{said}: the limit does not bind", *seen, **figures)
    elif made > limit:
        yield part.violated(check, f"{said}: more than the limit", *seen, **figures)
    elif answer.finish == "length":
        yield part.violated(check, f"{said}: cut short of the limit", *seen, **figures)
    else:
        why = f"{said}: the answer ended before the limit: {quote(answer.text)}"
        yield part.undetermined(check, why, *seen, **figures)


def _without_usage(
    part: Part, arm: _Arm, answer: reply.Answer, whole: reply.Answer | None, limit: int
) -> Iterator[Finding]:
    """Judge a reply without usage by the whole reply with the same limit, where that one tells."""
    said = f"no usage says how many tokens came with {arm.field} {limit}"
    if whole is None or _completion(whole) != limit or part.mode is not Mode.STREAM:
        yield part.undetermined(arm.check, said, answer)
        return
    mine, other = (found.first.reasoning + found.text for found in (answer, whole))
    if mine == other:
        yield part.held(arm.check, f"{said}; the text is that of the whole reply, which has {limit}", answer, whole)
        right, why = answer.finish == "length", f"finish_reason is {answer.finish!r}"
        yield (part.held if right else part.violated)(_FINISH, why, answer, whole)
    elif mine.startswith(other) and len(mine) > 2 * len(other) + 8:
        why = f"{said}; the text goes on far behind the {limit} tokens of the whole reply: {quote(mine)}"
        yield part.no_effect(arm.check, why, answer, whole)
    else:
        yield part.undetermined(arm.check, f"{said}, and the text is another than that of the whole reply", answer)


def _thought(answer: reply.Answer) -> int:
    """Return the thinking that a server counts apart from the completion; most count it in."""
    found = dig(answer.body, "usage", "completion_tokens_details", "reasoning_tokens")
    return number(found) or 0


PROBE = Probe(
    id="max_tokens",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_OLD,
            rule="An answer that would be longer has exactly max_tokens tokens.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_NEW,
            rule="An answer that would be longer has exactly max_completion_tokens tokens.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_FINISH,
            rule="finish_reason is “length” where the limit cut the answer.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
    ),
    params=MaxTokensParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=290,
    output_tokens=130,
)
