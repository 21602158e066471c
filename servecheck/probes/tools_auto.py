"""A tool call that the model makes by itself comes back as a tool call.

What it does: asks for the one tool that is offered, without ``tool_choice``, plain and streamed. A small model may
decline, so there are two more ways to make it write a call in the server's own format, which is read from the logprobs
of a forced call: earlier turns that show such calls to be imitated, and a constraint that lets it write nothing else.
The control is the same request without tools. At last thirty-two small tools are offered at once.

Why it matters: this is how agents call tools; a parser that does not fit the model returns calls as text, with 200.

How it could be fooled: what a model writes by itself may be malformed, so a text that only resembles a call is no
evidence, and malformed arguments are judged only where it is known what the model wrote. The constrained text proves
that a parser works; that it does not is proven only by calls that the model wrote freely, as engines may recognise a
call by tokens that a constraint spells out in letters. A model that declines every time leaves the row inconclusive,
unless the forced call shows the fault. A 5xx is the server's fault, whatever the model said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._forcing import FreeCallParams, roomier
from servecheck.probes._steps import reply_at, sent
from servecheck.probes._tools import (
    calls_of,
    code_tool,
    function_of,
    holds_whole_call,
    imitated,
    judge_beside,
    judge_ids,
    malformed,
    markup_of,
    thought_too_long,
    was_cut,
    written,
)
from servecheck.read import reply
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/function-calling"
_CALLED, _FORM = "call-comes-back-as-a-call", "call-made-freely-is-well-formed"
_FINISH, _MANY = "call-made-freely-finishes-with-tool-calls", "many-tools-are-accepted"
_CLEAN = "no-markup-is-left-beside-a-call"
_MODES = {"": Mode.NON_STREAM, "-stream": Mode.STREAM}
_FREE = ("natural", "imitated")
_WAYS = (*_FREE, "written")
_MANY_TOOLS = 32
_TOO_LONG = re.compile(r"context|too long|maximum|token|length", re.IGNORECASE)


class ToolsAutoParams(FreeCallParams):
    """What may be chosen in YAML."""


async def drive(session: Session, params: ToolsAutoParams, _: Transcript | None) -> None:
    """Control and forced call, then three ways to a free one in both modes, each only where those before gave none."""
    asked: list[Json] = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": asked, "max_tokens": params.max_tokens, "temperature": 0}
    name, code = f"fn_{session.nonce(8)}", session.nonce()
    await session.chat("control", base)
    forced: dict[str, Json] = {"tools": [code_tool(name, code, strict=True)], "tool_choice": "required"}
    first = reply.chat(await session.chat("forced", {**base, **forced, "logprobs": True}))
    if was_cut(first):
        if thought_too_long(first):
            base = roomier(base)
        await session.chat("forced-again", {**base, **forced, "logprobs": True})
    elif not isinstance(first, reply.Answer):
        await session.chat("forced-again", {**base, **forced})
    free: dict[str, Json] = {**base, "tools": [code_tool(name, code, strict=False)]}
    markup = _markup(session.transcript)
    for suffix in _MODES:
        # What agents send: their libraries spell the default choice out, and ask for usage.
        agent: dict[str, Json] = {"stream": True, "stream_options": {"include_usage": True}, "tool_choice": "auto"}
        stream: dict[str, Json] = agent if suffix else {}
        await session.chat(f"natural{suffix}", {**free, **stream})
        if markup and not _has_good_call(session.transcript, suffix):
            await session.chat(f"imitated{suffix}", {**free, **stream, "messages": [*imitated(asked, markup), *asked]})
        if markup and not _has_good_call(session.transcript, suffix):
            await session.chat(f"written{suffix}", {**free, **stream, **written(session, markup)})
    many: list[Json] = [_small_tool(f"fn_{session.nonce(3)}{place}") for place in range(_MANY_TOOLS)]
    await session.chat("many", {**base, "tools": many, "max_tokens": 4})


def _small_tool(name: str) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def _forced(transcript: Transcript) -> reply.Reply | None:
    return reply_at(transcript, "forced-again") or reply_at(transcript, "forced")


def _markup(transcript: Transcript) -> str:
    return markup_of(_forced(transcript))


def _has_good_call(transcript: Transcript, suffix: str) -> bool:
    return any(_is_good(reply_at(transcript, f"{way}{suffix}")) for way in _WAYS)


def _is_good(found: reply.Reply | None) -> bool:
    return bool(calls_of(found)) and not malformed(calls_of(found))


def judge(transcript: Transcript, _: ToolsAutoParams) -> Iterator[Finding]:
    """Judge both modes, then the many tools."""
    for suffix, mode in _MODES.items():
        yield from _judge(transcript, suffix, Part(mode=mode))
    yield _many(transcript)


def _judge(transcript: Transcript, suffix: str, part: Part) -> Iterator[Finding]:
    control, forced = reply_at(transcript, "control"), _forced(transcript)
    tries = {way: found for way in _WAYS if (found := reply_at(transcript, f"{way}{suffix}")) is not None}
    natural = tries.get("natural")
    failed = next((found for found in tries.values() if isinstance(found, reply.Failure)), None)
    if failed is not None or not isinstance(natural, reply.Answer):
        yield part.unless_answered(_CALLED, failed or natural, control) or part.undetermined(
            _CALLED, "nothing was sent"
        )
        return
    name = string(dig(function_of(natural), "name"))
    leaked = _leak(transcript, tries, forced, name)
    good = next((found for found in tries.values() if isinstance(found, reply.Answer) and _is_good(found)), None)
    if leaked is not None:
        what = quote(leaked.text or leaked.first.reasoning)
        yield part.violated(_CALLED, f"the call came back as text: {what}", leaked)
    elif good is not None:
        way = next(way for way, found in tries.items() if found is good)
        yield part.held(_CALLED, f"{_SAID[way]} came back as a call of {quote(calls_of(good)[0].name or '', 60)}", good)
        yield judge_ids(_FORM, part, good)
        right = good.finish == "tool_calls"
        yield (part.held if right else part.violated)(_FINISH, f"finish_reason is {good.finish!r}", good)
        yield judge_beside(_CLEAN, part, good)
    elif calls_of(tries.get("written")):
        # What the model wrote is known to the letter here.
        why = f"“{_markup(transcript)}” was written, and came back with {malformed(calls_of(tries['written']))}"
        yield part.violated(_FORM, why, *sent(tries["written"]))
    else:
        yield _declined(part, tries, control, forced)


_SAID = {
    "natural": "a call that the model made by itself",
    "imitated": "a call that the model imitated",
    "written": "a call that the model was made to write",
}


def _leak(
    transcript: Transcript, tries: dict[str, reply.Reply], forced: reply.Reply | None, name: str
) -> reply.Answer | None:
    """Return an answer that shows a call as text although the server's own format was kept."""
    if isinstance(forced, reply.Answer) and not calls_of(forced) and forced.finish != "length":
        said = (forced.text, forced.first.reasoning)
        whole = [text for text in said if holds_whole_call(text, name)]
        if whole:
            return forced
    markup = "".join(_markup(transcript).split())
    for way in _FREE:
        found = tries.get(way)
        # A bare JSON object may be the format of forced calls only, and a model may write one without meaning a call.
        if isinstance(found, reply.Answer) and markup.startswith("<") and markup in "".join(found.text.split()):
            return found
    return None


def _declined(
    part: Part, tries: dict[str, reply.Reply], control: reply.Reply | None, forced: reply.Reply | None
) -> Finding:
    natural = tries["natural"]
    assert isinstance(natural, reply.Answer)
    seen = [natural, *sent(forced)]
    if any(calls_of(found) for found in tries.values()):
        why = "the model's calls are malformed, which may be its own doing: "
        broken = next(found for found in tries.values() if calls_of(found))
        return part.undetermined(_CALLED, why + malformed(calls_of(broken)), broken)
    if thought_too_long(natural) and natural.finish == "length":
        return part.undetermined(_CALLED, "max_tokens went into the reasoning", natural)
    if calls_of(forced):
        why = f"parser proven, model declined: the forced call came back, and by itself it said {quote(natural.text)}"
        return part.undetermined(_CALLED, why, *seen)
    if isinstance(forced, reply.Answer) and isinstance(control, reply.Answer) and forced.finish != "length":
        with_tools, without = (found.usage.prompt if found.usage else None for found in (natural, control))
        if with_tools is not None and with_tools == without:
            why = f"the prompt has {without} tokens with tools and without, and neither this nor required made a call"
            return part.no_effect(_CALLED, f"{why}: {quote(natural.text)}", natural, control, forced)
    return part.undetermined(
        _CALLED, f"the model declined, and no forced call came either: {quote(natural.text)}", *seen
    )


def _many(transcript: Transcript) -> Finding:
    part = Part()
    many, one = reply_at(transcript, "many"), reply_at(transcript, "natural")
    if isinstance(many, reply.Answer):
        return part.held(_MANY, f"{_MANY_TOOLS} tools were accepted", many)
    if not isinstance(one, reply.Answer):
        return part.undetermined(_MANY, "one tool gets no answer either", *sent(many, one))
    if isinstance(many, reply.Refusal) and _TOO_LONG.search(many.message):
        return part.undetermined(_MANY, f"{_MANY_TOOLS} tools do not fit: {many.what}", many)
    return part.unless_answered(_MANY, many, one) or part.undetermined(_MANY, "the request was not sent")


PROBE = Probe(
    id="tools_auto",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CALLED,
            rule="A call that the model writes in the server's own format comes back in tool_calls.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_FORM,
            rule="A call that was made freely has a name, an id of its own and JSON arguments.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
        Check(
            id=_FINISH,
            rule="finish_reason of an answer that calls a tool by itself is “tool_calls”.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
        Check(
            id=_CLEAN,
            rule="The text beside a call holds no marks of the format in which the model writes calls.",
            level=Level.SHOULD,
            source="https://github.com/FlashML-org/FreeToken/issues/203",
        ),
        Check(
            id=_MANY,
            rule="Many small tools are accepted as one is, where they fit into the context.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/27921",
        ),
    ),
    params=ToolsAutoParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=4070,
    output_tokens=240,
)
