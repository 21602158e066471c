"""The prompt's own tokens get log probabilities.

What it does: asks for them in every way that servers offer: ``prompt_logprobs`` on both routes (vLLM), ``echo`` with
``logprobs`` (OpenAI's older API), the same under ``top_k`` 1, and SGLang's own ``/generate`` with ``logprob_start_len``
0, on SGLang and where nothing else gave any. One way that works is enough. Counts entries against ``usage`` and looks
whether the tokens are the prompt. Plain completions before and after are the control: engines are known to die of this.

Why it matters: scoring a given text is how models are evaluated and endpoints compared token by token. A server that
drops the field makes every choice score alike, at chance, with a 200.

How it could be fooled: by a server that makes numbers up consistently; values are not compared with another server's
here. Not for an endpoint that others use: on some engines this request ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Risk, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._logprobs import Alternative, Entry, improper, of_legacy
from servecheck.probes._steps import reply_at, sent
from servecheck.read import reply
from servecheck.read.text import dig, number, quote, string

__all__ = ["PROBE"]

_DOCS = "https://docs.vllm.ai/en/latest/api/vllm/sampling_params/"
_ECHO = "https://platform.openai.com/docs/api-reference/completions/create#completions-create-echo"
_GIVEN, _FAILS = "prompt-tokens-have-logprobs", "asking-for-prompt-logprobs-harms-nothing"
_COUNT, _FIRST = "one-entry-per-prompt-token", "first-prompt-token-has-no-logprob"
_PROPER, _OWN = "prompt-logprobs-are-probabilities", "prompt-logprobs-are-of-the-prompt"

_PART = Part(route=Route.NONE, mode=Mode.NONE)
_WAYS: Mapping[str, str] = {
    "field": "prompt_logprobs on the completions route",
    "chat": "prompt_logprobs on the chat route",
    "echo": "echo with logprobs",
    "echo-cut": "echo with logprobs and top_k 1",
    "native": "/generate with logprob_start_len 0",
}


class LogprobsPromptParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="The old bridge over the river was closed in winter, so the farmers took the ferry to the market.",
        description="The text to score, at most 1024 tokens: longer ones compile anew on TPU.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """What one way gave: an entry a prompt token, ``None`` for null; ``names`` are the texts that each may stand for.

    ``told`` is the number of prompt tokens as reported, ``whole`` whether the prompt is all that was rendered.
    """

    way: str
    seen: Exchange
    entries: tuple[Entry | None, ...]
    names: tuple[tuple[str, ...], ...]
    told: int | None
    whole: bool = True


async def drive(session: Session, params: LogprobsPromptParams, _: Transcript | None) -> None:
    """A plain completion, each way, and a plain completion again."""
    body: dict[str, Json] = {"prompt": params.prompt, "max_tokens": 1, "temperature": 0}
    messages: Json = [{"role": "user", "content": params.prompt}]
    await session.post("control", "/completions", body)
    await session.post("field", "/completions", {**body, "prompt_logprobs": 1})
    await session.chat("chat", {"messages": messages, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1})
    await session.post("echo", "/completions", {**body, "echo": True, "logprobs": 1})
    await session.post("echo-cut", "/completions", {**body, "echo": True, "logprobs": 1, "temperature": 1, "top_k": 1})
    seen = session.transcript
    if session.fingerprint.value("engine") == "sglang" or not any(_scored(way, _reply(seen, way)) for way in _WAYS):
        native: Json = {
            "text": params.prompt,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": 0,
            "return_text_in_logprobs": True,
        }
        await session.post_server("native", "/generate", native)
    await session.post("after", "/completions", body)


def judge(transcript: Transcript, params: LogprobsPromptParams) -> Iterator[Finding]:
    """Judge whether any way gives them, whether any does harm, then what is given."""
    control = reply_at(transcript, "control")
    replies = {way: _reply(transcript, way) for way in _WAYS}
    scored = [found for way, seen in replies.items() if (found := _scored(way, seen)) is not None]
    yield from _harm(transcript, replies, control)
    yield _given(replies, scored, control)
    for found in scored:
        yield from _judge(found, params)


def _reply(transcript: Transcript, way: str) -> reply.Reply | Exchange | None:
    """Return the reply of a way; one that is JSON but no completion comes as its exchange."""
    exchange = transcript.get(way)
    if exchange is None:
        return None
    if way == "native":
        body = reply.json_body(exchange)
        return body if isinstance(body, reply.Refusal | reply.Failure) else exchange
    return reply_at(transcript, way)


def _harm(
    transcript: Transcript, replies: Mapping[str, reply.Reply | Exchange | None], control: reply.Reply | None
) -> Iterator[Finding]:
    failed = {way: found for way, found in replies.items() if isinstance(found, reply.Failure)}
    after = reply_at(transcript, "after")
    if failed:
        way, first = next(iter(failed.items()))
        yield _PART.violated(_FAILS, f"{_WAYS[way]}: {first.what}", *failed.values())
    elif isinstance(after, reply.Failure) and isinstance(control, reply.Answer):
        yield _PART.violated(_FAILS, f"a plain completion after it failed: {after.what}", after, control)
    elif isinstance(after, reply.Answer):
        yield _PART.held(_FAILS, "no server error, and a plain completion after it is answered", after)


def _given(
    replies: Mapping[str, reply.Reply | Exchange | None], scored: Sequence[_Scored], control: reply.Reply | None
) -> Finding:
    asked = {way: found for way, found in replies.items() if found is not None}
    if scored:
        ways = ", ".join(_WAYS[found.way] for found in scored)
        others = [_WAYS[way] for way in asked if way not in {found.way for found in scored}]
        why = f"given by {ways}" + (f"; not by {', '.join(others)}" if others else "")
        return _PART.held(_GIVEN, why, *(found.seen for found in scored), ways=len(scored))
    refusals = {way: found for way, found in asked.items() if isinstance(found, reply.Refusal)}
    answered = [way for way, found in asked.items() if isinstance(found, reply.Answer | Exchange)]
    if answered:
        why = f"200 to {', '.join(_WAYS[way] for way in answered)}, and no prompt token has a logprob"
        return _PART.no_effect(_GIVEN, why, *asked.values())
    if not refusals:
        return _PART.undetermined(_GIVEN, "no way was answered", *asked.values())
    way, first = next(iter(refusals.items()))
    if not isinstance(control, reply.Answer):
        why = f"refused, but so was a plain completion: {first.what}"
        return _PART.undetermined(_GIVEN, why, first, *sent(control))
    return _PART.refused(_GIVEN, f"{_WAYS[way]}: {first.what}", *refusals.values())


def _judge(found: _Scored, params: LogprobsPromptParams) -> Iterator[Finding]:
    words, entries = _WAYS[found.way], found.entries
    if found.told is not None:
        why = f"{words}: {len(entries)} entries for {found.told} prompt tokens"
        yield (_PART.held if len(entries) == found.told else _PART.violated)(_COUNT, why, found.seen)
    first, rest = entries[0], [entry for entry in entries[1:] if entry is not None]
    free = first is None or first.value is None
    why = f"{words}: the first token {'has none' if free else 'has a logprob, although nothing comes before it'}"
    yield (_PART.held if free else _PART.violated)(_FIRST, why, found.seen)
    holes = len(entries) - 1 - len(rest)
    wrong = f"{holes} tokens after the first are null" if holes else improper(rest)
    why = f"{words}: {wrong or 'every value is at most 0, sums at most 1'}"
    yield (_PART.violated if wrong else _PART.held)(_PROPER, why, found.seen)
    if found.whole:
        missing = _unspelt(found.names, params.prompt)
        why = f"{words}: {missing or 'the tokens are the prompt'}"
        yield (_PART.violated if missing else _PART.held)(_OWN, why, found.seen)


def _unspelt(names: Sequence[tuple[str, ...]], prompt: str) -> str:
    """Say where no choice of the names gives the prompt. The first token has no name in some shapes, so it is free."""
    reached = set(range(len(prompt) + 1))
    if any("\ufffd" in name for each in names for name in each):
        return ""  # a part of a character has no text of its own
    for place, each in enumerate(names[1:], start=2):
        further = {at + len(name) for at in reached for name in each if prompt.startswith(name, at)}
        if not further:
            shown = ", ".join(quote(name, 20) for name in each[:3]) or "nothing"
            return f"token {place} is {shown}, which is not what the prompt goes on with"
        reached = further
    return "" if len(prompt) in reached else "the tokens end before the prompt does"


# --------------------------------------------------------------------------- the shapes


def _scored(way: str, seen: reply.Reply | Exchange | None) -> _Scored | None:
    """Return what a way gave; ``None`` where no prompt token has a value."""
    found = None
    if isinstance(seen, reply.Answer):
        found = _echoed(way, seen) if way.startswith("echo") else _field(way, seen)
    elif isinstance(seen, Exchange):
        found = _native(way, seen)
    if found is None or all(entry is None or entry.value is None for entry in found.entries):
        return None
    return found


def _field(way: str, answer: reply.Answer) -> _Scored | None:
    """vLLM: a list with an object a token, keyed by token id, of the token itself and the likeliest."""
    listed = dig(answer.body, "prompt_logprobs") or dig(answer.body, "choices", 0, "prompt_logprobs")
    if not isinstance(listed, list):
        return None
    entries, names = [], []
    for item in listed:
        top = tuple(
            Alternative(text=string(dig(each, "decoded_token")), data=None, value=dig(each, "logprob"))
            for each in (item.values() if isinstance(item, dict) else ())
        )
        names.append(tuple(each.text for each in top))
        entries.append(Entry(text=top[0].text, data=None, value=top[0].value, top=top) if top else None)
    told = answer.usage.prompt if answer.usage is not None else None
    return _Scored(
        way=way,
        seen=answer.exchange,
        entries=tuple(entries),
        names=tuple(names),
        told=told,
        whole=way != "chat",
    )


def _echoed(way: str, answer: reply.Answer) -> _Scored | None:
    """OpenAI's older arrays: the prompt's tokens, then the completion's."""
    entries = of_legacy(answer.first.logprobs[0] if answer.first.logprobs else None)
    told = answer.usage.prompt if answer.usage is not None else None
    made = answer.usage.completion if answer.usage is not None else None
    kept = entries[: len(entries) - (1 if made is None else made)]
    if not kept or len(kept) > len(entries):
        return None
    return _Scored(way=way, seen=answer.exchange, entries=kept, names=tuple((entry.text,) for entry in kept), told=told)


def _native(way: str, exchange: Exchange) -> _Scored | None:
    """SGLang: ``[logprob, token id, text]`` a token."""
    body = reply.json_body(exchange)
    if isinstance(body, reply.Refusal | reply.Failure):
        return None
    listed = dig(body, "meta_info", "input_token_logprobs")
    if not isinstance(listed, list):
        return None
    entries = tuple(
        Entry(text=string(dig(item, 2)), data=None, value=dig(item, 0), top=None) if isinstance(item, list) else None
        for item in listed
    )
    texts = tuple((entry.text,) if entry is not None else () for entry in entries)
    named = any(name for each in texts[1:] for name in each)
    told = number(dig(body, "meta_info", "prompt_tokens"))
    return _Scored(way=way, seen=exchange, entries=entries, names=texts, told=told, whole=named)


PROBE = Probe(
    id="logprobs_prompt",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_GIVEN,
            rule="There is a way to have the log probabilities of the prompt's tokens.",
            level=Level.MUST,
            source=_DOCS,
        ),
        Check(
            id=_FAILS,
            rule="A request for prompt logprobs is no server error, and the server answers after it.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/10234",
        ),
        Check(
            id=_COUNT,
            rule="There is one entry for each prompt token.",
            level=Level.MUST,
            source=_ECHO,
        ),
        Check(
            id=_FIRST,
            rule="The first prompt token, which nothing predicts, has null.",
            level=Level.SHOULD,
            source=_ECHO,
        ),
        Check(
            id=_PROPER,
            rule="Every other prompt token has a number of at most 0, and alternatives add up to at most 1.",
            level=Level.MUST,
            source=_DOCS,
        ),
        Check(
            id=_OWN,
            rule="The tokens that have them are those of the prompt, in order.",
            level=Level.MUST,
            source=_ECHO,
        ),
    ),
    params=LogprobsPromptParams,
    drive=drive,
    judge=judge,
    risk=Risk.DANGEROUS,
    requests=6,
    prompt_tokens=190,
    output_tokens=6,
)
