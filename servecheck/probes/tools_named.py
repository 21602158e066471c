"""Naming a tool makes the model call that tool.

What it does: offers two functions with random names to a prompt of small talk and names the second one in
``tool_choice``, plain and streamed, as most applications send it and with ``strict: true``. The controls are the
same request without tools, and with the tools but without the choice. A function that is not offered is named once
too. An answer that was cut by ``max_tokens`` is asked for once more with other words.

Why it matters: an application that names a tool reads its arguments without looking at the name; servers answer 200
with prose, or with a call of another tool.

How it could be fooled: by a model that prefers the second tool by itself; the control without the choice shows it.
A finish reason of ``stop`` is right here, as the original service says it for a named tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._forcing import CallParams, asked, force
from servecheck.probes._steps import reply_at, sent
from servecheck.probes._tools import (
    Forced,
    calls_of,
    code_tool,
    judge_forced,
    last_look,
    named,
)
from servecheck.read import reply
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-tool_choice"
_OBJECT = "https://platform.openai.com/docs/api-reference/chat/object"
_SECOND = 1  # the place of the tool that is named
_ARMS = {"plain": (False, False), "stream": (True, False), "strict": (False, True), "strict-stream": (True, True)}
_UNKNOWN = "a-name-that-is-not-offered-is-refused"
_CHECKS = Forced(
    called="naming-a-tool-makes-a-call",
    offered="called-tool-is-the-named-one",
    own_id="named-call-has-an-id-of-its-own",
    json="named-arguments-are-json",
    loose="named-arguments-match-the-schema",
    strict="named-strict-arguments-match-the-schema",
    finish="finish-fits-a-named-call",
    clean="no-markup-is-left-beside-a-named-call",
)


class ToolsNamedParams(CallParams):
    """What may be chosen in YAML."""


async def drive(session: Session, params: ToolsNamedParams, _: Transcript | None) -> None:
    """Two controls, a named call in four arms, and a name that is not offered."""
    base = asked(params.prompt, params.max_tokens)
    names = [f"fn_{session.nonce(8)}" for _ in range(3)]

    def tools(*, strict: bool) -> list[Json]:
        return [code_tool(name, session.nonce(), strict=strict) for name in names[:2]]

    def forced(*, stream: bool, strict: bool) -> dict[str, Json]:
        names[_SECOND] = f"fn_{session.nonce(8)}"
        made: dict[str, Json] = {"tools": tools(strict=strict), "tool_choice": named(names[_SECOND])}
        return {**made, "stream": True} if stream else made

    await session.chat("control", base)
    await session.chat("unforced", {**base, "tools": tools(strict=False)})
    for arm, (stream, strict) in _ARMS.items():
        base = await force(session, arm, base, partial(forced, stream=stream, strict=strict), _SECOND)
    await session.chat("unknown", {**base, "tools": tools(strict=False), "tool_choice": named(names[2])})


def judge(transcript: Transcript, _: ToolsNamedParams) -> Iterator[Finding]:
    """Judge every arm's last attempt, then the name that is not offered."""
    control, unforced = reply_at(transcript, "control"), reply_at(transcript, "unforced")
    for arm, (stream, strict) in _ARMS.items():
        part = Part(mode=Mode.STREAM if stream else Mode.NON_STREAM)
        answer = last_look(transcript, arm)
        yield from judge_forced(_CHECKS, part, answer, control, strict=strict, place=_SECOND, unforced=unforced)
    yield _unknown(reply_at(transcript, "unknown"), last_look(transcript, "plain"))


def _unknown(answer: reply.Reply | None, known: reply.Reply | None) -> Finding:
    """Judge a name that is not offered: it must be refused, where naming an offered one is not."""
    part = Part()
    if answer is None or isinstance(answer, reply.Failure):
        return part.unless_answered(_UNKNOWN, answer) or part.undetermined(_UNKNOWN, "the request was not sent")
    if not isinstance(known, reply.Answer):
        what = "an offered name gets no answer either, so a refusal would say nothing"
        return part.undetermined(_UNKNOWN, what, *sent(answer, known))
    if isinstance(answer, reply.Refusal):
        return part.held(_UNKNOWN, answer.what, answer, known)
    name = string(dig(answer.exchange.request, "tool_choice", "function", "name"))
    called = [call.name or "" for call in calls_of(answer)]
    seen = f"a call of {quote(called[0], 60)}" if called else quote(answer.text)
    return part.violated(_UNKNOWN, f"200 and {seen} where {quote(name)} was asked for, which is not offered", answer)


PROBE = Probe(
    id="tools_named",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CHECKS.called,
            rule="With a tool named in tool_choice the reply is at least one tool call.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CHECKS.offered,
            rule="Every call names the function that tool_choice names, and no other that is offered.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CHECKS.own_id,
            rule="Every call of a named tool is a function with one id in all its deltas, and no two have the same.",
            level=Level.MUST,
            source=_OBJECT,
        ),
        Check(
            id=_CHECKS.json,
            rule="The arguments of a named tool are a JSON text.",
            level=Level.MUST,
            source=_OBJECT,
        ),
        Check(
            id=_CHECKS.loose,
            rule="The arguments of a named tool fit its parameters, also without strict.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/function-calling",
        ),
        Check(
            id=_CHECKS.strict,
            rule="With strict: true the arguments of a named tool fit its parameters.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/function-calling#strict-mode",
        ),
        Check(
            id=_CHECKS.clean,
            rule="The text beside a named call holds no marks of the format in which the model writes calls.",
            level=Level.SHOULD,
            source="https://github.com/FlashML-org/FreeToken/issues/203",
        ),
        Check(
            id=_CHECKS.finish,
            rule="finish_reason of a named call that was not cut is “stop” or “tool_calls”.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_UNKNOWN,
            rule="A tool_choice that names a function which is not among the tools is refused.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/14424",
        ),
    ),
    params=ToolsNamedParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=2470,
    output_tokens=320,
)
