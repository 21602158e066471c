"""``tool_choice: none`` keeps the model from calling tools.

What it does: first finds a way to make this model call without ``tool_choice``: by asking, by earlier turns that show
calls in the server's own format, or by a constraint that lets it write nothing else. Then the same request is sent with
``none``, plain and streamed: no call may come back. Asked in plain words, the answer must not be a call as text. A
schema that shapes the answer without tools must shape it beside tools that may not be called.

Why it matters: an agent says ``none`` for its last turn, and acts on a call that comes back nevertheless.

How it could be fooled: by a model that never calls; then nothing was prevented, and the row is inconclusive. Some
engines show the tools to the model also with ``none``, and a model that was told of them writes calls as text; that
is a ``should``, for no client acts on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._forcing import FreeCallParams, roomier
from servecheck.probes._schemas import (
    NONCE_SCHEMA,
    PULL_AWAY,
    cut_short,
    faults,
    response_format,
    schema_of,
    with_nonce,
)
from servecheck.probes._steps import reply_at, sent
from servecheck.probes._tools import (
    calls_of,
    code_tool,
    function_of,
    holds_whole_call,
    imitated,
    markup_of,
    thought_too_long,
    was_cut,
    written,
)
from servecheck.read import reply
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-tool_choice"
_PREVENTED, _CLEAN = "none-prevents-calls", "none-leaves-no-call-in-the-text"
_KEPT = "none-keeps-what-the-model-wrote"
_SCHEMA = "none-leaves-the-schema"
_MANY = 12  # tokens; fewer may be an end token and white space
_WAYS = {
    "natural": "asked in plain words",
    "imitated": "shown calls to imitate",
    "written": "made to write a call",
}


class ToolsNoneParams(FreeCallParams):
    """What may be chosen in YAML."""


async def drive(session: Session, params: ToolsNoneParams, _: Transcript | None) -> None:
    """Find a way to a call without a choice, then go the same way with ``none``."""
    asked: list[Json] = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": asked, "max_tokens": params.max_tokens, "temperature": 0}
    name, code = f"fn_{session.nonce(8)}", session.nonce()
    await session.chat("control", base)
    forced: dict[str, Json] = {"tools": [code_tool(name, code, strict=True)], "tool_choice": "required"}
    first = reply.chat(await session.chat("forced", {**base, **forced, "logprobs": True}))
    if was_cut(first) and thought_too_long(first):
        base = roomier(base)
        await session.chat("forced", {**base, **forced, "logprobs": True})
    markup = markup_of(reply_at(session.transcript, "forced"))
    tools: dict[str, Json] = {**base, "tools": [code_tool(name, code, strict=False)]}
    bodies: dict[str, dict[str, Json]] = {"natural": tools}
    if markup:
        bodies["imitated"] = {**tools, "messages": [*imitated(asked, markup), *asked]}
        bodies["written"] = {**tools, **written(session, markup)}
    for way, body in bodies.items():
        await session.chat(f"auto-{way}", body)
        if _way(session.transcript):
            break
    way = _way(session.transcript) or "natural"
    for each in dict.fromkeys((way, "natural")):
        await session.chat(f"none-{each}", {**bodies[each], "tool_choice": "none"})
    stream: dict[str, Json] = {"stream": True, "stream_options": {"include_usage": True}}
    await session.chat(f"none-{way}-stream", {**bodies[way], "tool_choice": "none", **stream})
    prose: Json = [{"role": "user", "content": PULL_AWAY}]
    shaped: dict[str, Json] = {
        **base,
        "messages": prose,
        "response_format": response_format(with_nonce(NONCE_SCHEMA, session.nonce())),
    }
    await session.chat("schema-alone", shaped)
    if _fits(reply_at(session.transcript, "schema-alone")):
        await session.chat("schema-beside", {**shaped, "tools": tools["tools"], "tool_choice": "none"})


def _way(transcript: Transcript) -> str:
    """Return the way in which a call was made without a choice, an empty string where there was none."""
    return next((way for way in _WAYS if calls_of(reply_at(transcript, f"auto-{way}"))), "")


def judge(transcript: Transcript, _: ToolsNoneParams) -> Iterator[Finding]:
    """Judge both modes, then the text."""
    way = _way(transcript)
    for suffix, mode in (("", Mode.NON_STREAM), ("-stream", Mode.STREAM)):
        yield _prevented(transcript, way, suffix, Part(mode=mode))
    yield from _clean(transcript)
    yield from _kept(transcript)
    yield from _schema(transcript)


def _fits(found: reply.Reply | None) -> bool:
    return isinstance(found, reply.Answer) and not faults(found.text, schema_of(found))


def _schema(transcript: Transcript) -> Iterator[Finding]:
    """Judge the schema beside tools, where the same schema shapes the answer without them."""
    alone, beside = reply_at(transcript, "schema-alone"), reply_at(transcript, "schema-beside")
    if beside is None or not _fits(alone):
        return
    missing = Part().unless_answered(_SCHEMA, beside, alone, what="a schema beside tools")
    if missing is not None:
        yield missing
        return
    assert isinstance(beside, reply.Answer)
    if _fits(beside):
        yield Part().held(_SCHEMA, f"the schema's, beside tools too: {quote(beside.text, 60)}", beside, *sent(alone))
    elif not cut_short(beside, schema_of(beside)):
        why = f"the schema shapes the answer without tools, and beside tools it is {quote(beside.text)}"
        yield Part().violated(_SCHEMA, why, beside, *sent(alone))


def _prevented(transcript: Transcript, way: str, suffix: str, part: Part) -> Finding:
    answer = reply_at(transcript, f"none-{way or 'natural'}{suffix}")
    auto = reply_at(transcript, f"auto-{way or 'natural'}")
    missing = part.unless_answered(_PREVENTED, answer, reply_at(transcript, "control"))
    if missing is not None:
        return missing
    assert isinstance(answer, reply.Answer)
    calls = calls_of(answer)
    if calls:
        what = f"{len(calls)} call(s) with none, of {quote(calls[0].name or '', 60)}"
        if calls_of(auto):
            return part.no_effect(_PREVENTED, f"{what}, as without a choice", answer, *sent(auto))
        return part.violated(_PREVENTED, what, answer)
    if answer.finish == "tool_calls":
        return part.violated(_PREVENTED, "no call with none, but finish_reason is 'tool_calls'", answer)
    if not way:
        without = auto.what if isinstance(auto, reply.Refusal | reply.Failure) else "there is none either"
        why = f"no call with none, but without it {without}, so nothing was prevented: {quote(answer.text)}"
        return part.undetermined(_PREVENTED, why, answer, *sent(auto))
    return part.held(
        _PREVENTED, f"{_WAYS[way]}, the model calls without a choice and not with none", answer, *sent(auto)
    )


def _kept(transcript: Transcript) -> Iterator[Finding]:
    """Judge that an answer with tokens has a text, in every way that was gone with ``none``."""
    for found in transcript.steps("none-"):
        answer = reply.chat(found)
        if not isinstance(answer, reply.Answer) or calls_of(answer) or answer.usage is None:
            continue
        part = Part(mode=Mode.STREAM if found.step.endswith("-stream") else Mode.NON_STREAM)
        spent = answer.usage.completion or 0
        if spent >= _MANY and not answer.text.strip() and answer.finish != "length":
            yield part.violated(_KEPT, f"{spent} tokens were written, and the text of the answer is empty", answer)
        else:
            yield part.held(_KEPT, f"{spent} tokens: {quote(answer.text)}", answer)


def _clean(transcript: Transcript) -> Iterator[Finding]:
    """Judge the plain answer to plain words: what the model was shown or made to write would be our doing."""
    answer = reply_at(transcript, "none-natural")
    if not isinstance(answer, reply.Answer) or calls_of(answer):
        return
    part = Part()
    name = string(dig(function_of(answer), "name"))
    markup, text = ("".join(each.split()) for each in (markup_of(reply_at(transcript, "forced")), answer.text))
    # Up to the name, which a small model may misspell. A model may quote a bare JSON object from the tool's
    # description; only a text that begins like a call is one.
    begun = markup.partition(name)[0] if name else ""
    shown = bool(begun) and (begun in text if begun.startswith("<") else text.startswith(begun))
    if shown or (not markup and text.startswith(("<", "{", "[")) and holds_whole_call(answer.text, name)):
        why = f"the model was told of the tools although they are off, and its call is the text: {quote(answer.text)}"
        yield part.violated(_CLEAN, why, answer)
    else:
        yield part.held(_CLEAN, f"text: {quote(answer.text)}", answer)


PROBE = Probe(
    id="tools_none",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_PREVENTED,
            rule="With tool_choice: none the answer holds no tool call.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CLEAN,
            rule="With tool_choice: none the text of the answer is not a tool call either.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_KEPT,
            rule="With tool_choice: none an answer of many tokens is not empty.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/55080",
        ),
        Check(
            id=_SCHEMA,
            rule="A schema that shapes an answer shapes it beside tools with tool_choice: none, too.",
            level=Level.SHOULD,
            source="https://github.com/kekzl/imp/pull/119",
        ),
    ),
    params=ToolsNoneParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=960,
    output_tokens=340,
)
