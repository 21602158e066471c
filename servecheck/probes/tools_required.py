"""``tool_choice: required`` makes the model call the tool.

What it does: offers one function whose name and only argument value are random words, to a prompt of small talk that
calls for no tool, plain and streamed, as most applications send it and with ``strict: true``. The control is the same
request without tools. A call of that name can only come from the server's constraint. An answer that was cut by
``max_tokens`` is asked for once more with other words, and with more room where a thought used it up. Each function has
a name of its own, and the ids of all calls are compared.

Why it matters: an agent framework that forces a call and gets prose stops there; servers answer 200 with prose where
the model's template has no tools, or where no tool parser is set. Where the id of an earlier call comes back, agents
file a result under the wrong call or drop it.

How it could be fooled: by a template that prints the tools into the prompt of a strong model, which may then call of
its own will; the small talk makes that unlikely. Neither vLLM nor SGLang enforces the arguments without ``strict``,
which is why wrong arguments are only a ``should`` there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._forcing import CallParams, asked, force
from servecheck.probes._steps import reply_at
from servecheck.probes._tools import (
    Forced,
    code_tool,
    judge_forced,
    last_look,
)
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-tool_choice"
_ARMS = {"plain": (False, False), "stream": (True, False), "strict": (False, True), "strict-stream": (True, True)}
_IDS = "ids-of-calls-do-not-come-back"
_FEWEST = 2
_CHECKS = Forced(
    called="required-tool-is-called",
    offered="called-tool-is-the-offered-one",
    own_id="call-has-an-id-of-its-own",
    json="arguments-are-json",
    loose="arguments-match-the-schema",
    strict="strict-arguments-match-the-schema",
    finish="finish-fits-a-call",
    clean="no-markup-is-left-beside-a-required-call",
)


class ToolsRequiredParams(CallParams):
    """What may be chosen in YAML."""


async def drive(session: Session, params: ToolsRequiredParams, _: Transcript | None) -> None:
    """Control, then a forced call in four arms; a call that was cut is asked for once more."""
    base = asked(params.prompt, params.max_tokens)
    await session.chat("control", base)
    for arm, (stream, strict) in _ARMS.items():
        base = await force(session, arm, base, partial(_tools, session, stream=stream, strict=strict))


def _tools(session: Session, *, stream: bool, strict: bool) -> dict[str, Json]:
    tool = code_tool(f"fn_{session.nonce(8)}", session.nonce(), strict=strict)
    forced: dict[str, Json] = {"tools": [tool], "tool_choice": "required"}
    return {**forced, "stream": True} if stream else forced


def judge(transcript: Transcript, _: ToolsRequiredParams) -> Iterator[Finding]:
    """Judge every arm's last attempt, then the ids over all of them."""
    control = reply_at(transcript, "control")
    looks = {arm: last_look(transcript, arm) for arm in _ARMS}
    for arm, (stream, strict) in _ARMS.items():
        part = Part(mode=Mode.STREAM if stream else Mode.NON_STREAM)
        yield from judge_forced(_CHECKS, part, looks[arm], control, strict=strict)
    yield from _ids([look for look in looks.values() if isinstance(look, reply.Answer)])


def _ids(answers: list[reply.Answer]) -> Iterator[Finding]:
    # Every arm has a function of its own name, so that ids made of the name and a number differ as well.
    given = [{call.id for call in answer.first.tool_calls if call.id} for answer in answers]
    calling = [answer for answer, ids in zip(answers, given, strict=True) if ids]
    if len(calling) < _FEWEST:
        return
    again = set[str]().union(*(one & other for one, other in combinations(given, 2)))
    if again:
        yield Part().violated(_IDS, f"calls of more than one request have the id {quote(min(again))}", *calling)
    else:
        yield Part().held(_IDS, f"calls of {len(calling)} requests, no id twice", *calling)


PROBE = Probe(
    id="tools_required",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CHECKS.called,
            rule="With tool_choice: required the reply is at least one tool call.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CHECKS.offered,
            rule="Every call names a function that the request offers.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CHECKS.own_id,
            rule="Every call is a function with one id, the same in all its deltas, and no two have the same.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
        Check(
            id=_CHECKS.json,
            rule="A call's arguments are a JSON text.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
        Check(
            id=_CHECKS.loose,
            rule="A call's arguments fit the function's parameters, also without strict.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/function-calling",
        ),
        Check(
            id=_CHECKS.strict,
            rule="With strict: true a call's arguments fit the function's parameters.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/function-calling#strict-mode",
        ),
        Check(
            id=_CHECKS.clean,
            rule="The text beside a required call holds no marks of the format in which the model writes calls.",
            level=Level.SHOULD,
            source="https://github.com/FlashML-org/FreeToken/issues/203",
        ),
        Check(
            id=_IDS,
            rule="Calls of two requests have two ids: a conversation has room for both.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/50295",
        ),
        Check(
            id=_CHECKS.finish,
            rule="finish_reason of a forced call that was not cut is “tool_calls” or “stop”.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=ToolsRequiredParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=1100,
    output_tokens=290,
)
