"""Log probabilities of a text completion come in the older arrays, complete and sane.

What it does: completes a text greedily with ``logprobs`` 0, 1 and 5, once at low temperature with ``top_p`` (cut-off
tokens have minus infinity, which is not JSON), once streamed and once without (the control). Compares the lengths of
the arrays with each other and with ``usage``, puts the tokens together again and looks the offsets up in the text.

Why it matters: evaluation harnesses read ``tokens``, ``token_logprobs``, ``top_logprobs`` and ``text_offset`` by name.
A server that answers in the chat route's shape gives them nothing, and they score every choice alike.

How it could be fooled: by a server that makes numbers up consistently. Offsets may count from the beginning of the
prompt, as OpenAI's do, or of the completion, as others' do; only their distances are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._logprobs import (
    Arms,
    Entry,
    columns,
    counted,
    improper,
    is_chat_shape,
    misspelt,
    of_chat,
    of_legacy,
)
from servecheck.probes._steps import reply_at
from servecheck.read import reply
from servecheck.read.text import dig, number, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/completions/create#completions-create-logprobs"
_SHAPE = "https://platform.openai.com/docs/api-reference/completions/object#completions-object-choices-logprobs"
_GIVEN, _FAILS = "completion-logprobs-are-given", "no-number-of-completion-logprobs-fails"
_ZERO, _ARRAYS = "zero-completion-logprobs-gives-values", "completion-logprobs-are-the-four-arrays"
_LENGTHS, _PROPER = "completion-arrays-are-equally-long", "completion-logprobs-are-probabilities"
_SOME, _SPELT = "completion-alternatives-are-given", "completion-tokens-are-the-text"
_OFFSETS = "text-offsets-find-the-tokens"

_WHOLE = Part(route=Route.COMPLETIONS)
_STREAM = Part(route=Route.COMPLETIONS, mode=Mode.STREAM)
_ARMS: Mapping[str, dict[str, Json]] = {
    "zero": {"temperature": 0, "logprobs": 0},
    "one": {"temperature": 0, "logprobs": 1},
    "five": {"temperature": 0, "logprobs": 5},
    "cut": {"temperature": 0.01, "top_p": 0.3, "logprobs": 5},
    "stream": {"temperature": 0, "logprobs": 1, "stream": True},
}
_WORDS = {
    "zero": "with logprobs 0",
    "one": "with logprobs 1",
    "five": "with logprobs 5",
    "cut": "with temperature 0.01 and top_p 0.3",
    "stream": "streamed",
}


class LogprobsCompletionsParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="The harbour was busy that morning, because", description="The text to go on with.")
    max_tokens: int = Field(default=12, ge=2, le=256, description="Tokens per completion, each with its entry.")


async def drive(session: Session, params: LogprobsCompletionsParams, _: Transcript | None) -> None:
    """The control, then each arm."""
    body: dict[str, Json] = {"prompt": params.prompt, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    await session.post("control", "/completions", body)
    for step, more in _ARMS.items():
        await session.post(step, "/completions", {**body, **more})


def judge(transcript: Transcript, _: LogprobsCompletionsParams) -> Iterator[Finding]:
    """Judge whether every arm is answered and given, then what is given."""
    control = reply_at(transcript, "control")
    arms = {step: reply_at(transcript, step) for step in _ARMS}
    yield from _ROW.judge_failures(_FAILS, arms)
    for step, check in (("one", _GIVEN), ("five", _GIVEN), ("stream", _GIVEN), ("zero", _ZERO)):
        found, part = arms[step], _STREAM if step == "stream" else _WHOLE
        if isinstance(found, reply.Failure):
            continue  # said above
        yield part.unless_answered(check, found, control) or _given(part, check, step, found)
    given = {step: found for step, found in arms.items() if isinstance(found, reply.Answer) and _entries(found)}
    whole = {step: found for step, found in given.items() if step != "stream"}
    yield from _shape(given)
    greedy = {step: found for step, found in whole.items() if step != "cut"}
    yield from _ROW.judge_rule(_LENGTHS, greedy, _unequal, "arrays are equally long, one entry a token")
    yield from _ROW.judge_rule(
        _PROPER, given, lambda entries, _: improper(entries), "every value is at most 0, sums at most 1"
    )
    yield from _ROW.judge_rule(_SPELT, given, misspelt, "the tokens are the text")
    yield from _alternatives(given.get("five"))
    yield from _offsets(given.get("five"))


def _entries(answer: reply.Answer) -> tuple[Entry, ...]:
    """Return the entries of all events, in whichever shape each came."""
    made: list[Entry] = []
    for logprobs in answer.first.logprobs:
        content = dig(logprobs, "content")
        made += of_chat(content) if is_chat_shape(logprobs) and isinstance(content, list) else of_legacy(logprobs)
    return tuple(made)


_ROW = Arms(words=_WORDS, entries=_entries, part=_WHOLE, parts={"stream": _STREAM})


def _logprobs(answer: reply.Answer) -> Json:
    return answer.first.logprobs[0] if answer.first.logprobs else None


def _given(part: Part, check: str, step: str, answer: reply.Reply | None) -> Finding:
    assert isinstance(answer, reply.Answer)
    entries, words = _entries(answer), _WORDS[step]
    if entries:
        return part.held(check, f"{words}: {len(entries)} entries", answer, entries=len(entries))
    if not answer.text:
        return part.undetermined(check, f"{words}: no entries, but no text either", answer)
    return part.no_effect(check, f"{words}: 200, and the completion has no logprobs", answer)


def _shape(given: Mapping[str, reply.Answer]) -> Iterator[Finding]:
    step = next((step for step in ("five", "one", "stream") if step in given), None)
    if step is None:
        return
    answer = given[step]
    logprobs = _logprobs(answer)
    missing = [name for name, found in columns(logprobs).items() if found is None]
    if is_chat_shape(logprobs):
        why = "logprobs come in the chat route's shape, content[], and not as tokens, token_logprobs, top_logprobs and "
        why += "text_offset: a client of the completions route finds nothing"
        yield _WHOLE.violated(_ARRAYS, why, answer)
    elif missing:
        yield _WHOLE.violated(_ARRAYS, f"{_WORDS[step]}: {', '.join(missing)} is no array", answer)
    else:
        yield _WHOLE.held(_ARRAYS, "tokens, token_logprobs, top_logprobs and text_offset are arrays", answer)


def _unequal(entries: tuple[Entry, ...], answer: reply.Answer) -> str:
    lengths = {name: len(found) for name, found in columns(_logprobs(answer)).items() if found is not None}
    if dig(answer.exchange.request, "logprobs") == 0 and lengths.get("top_logprobs") == 0:
        del lengths["top_logprobs"]  # none were asked for, and none are there
    if len(set(lengths.values())) > 1:
        return ", ".join(f"{name} has {length}" for name, length in lengths.items())
    return counted(entries, answer)


def _alternatives(five: reply.Answer | None) -> Iterator[Finding]:
    if five is None:
        return
    sizes = [len(each.top or ()) for each in _entries(five)]
    most = max(sizes)
    # The arrays are keyed by text, so alternatives that read alike are one.
    if most > 1:
        yield _WHOLE.held(_SOME, f"with logprobs 5: up to {most} alternatives a token", five, most=most)
    else:
        yield _WHOLE.no_effect(_SOME, f"with logprobs 5: no token has more than {most} alternatives", five, most=most)


def _offsets(five: reply.Answer | None) -> Iterator[Finding]:
    found = columns(_logprobs(five)) if five is not None else {}
    tokens, listed = found.get("tokens"), found.get("text_offset")
    if five is None or tokens is None or listed is None or len(tokens) != len(listed):
        return  # said by the rules on arrays and lengths
    texts, offsets = [string(token) for token in tokens], [number(value) for value in listed]
    if len(offsets) > 1 and len(set(offsets)) == 1:
        yield _WHOLE.violated(_OFFSETS, f"text_offset is {offsets[0]} for every token", five)
        return
    wanted = [0, *accumulate(len(text) for text in texts)]
    first = offsets[0]
    for place, (text, offset) in enumerate(zip(texts, offsets, strict=True)):
        if offset is None or first is None:
            yield _WHOLE.violated(_OFFSETS, f"text_offset of token {place + 1} is no whole number", five)
            return
        # Parts of a character have no length that all servers agree on.
        if "".join(texts[:place]).isascii() and offset - first != wanted[place]:
            why = f"token {place + 1} {quote(text, 20)} has text_offset {offset}, {offset - first} behind the first "
            yield _WHOLE.violated(_OFFSETS, f"{why}and not {wanted[place]}", five)
            return
    yield _WHOLE.held(_OFFSETS, f"{len(offsets)} offsets, each where its token is, from {first}", five)


def _check(name: str, rule: str, level: Level = Level.MUST, source: str = _SHAPE) -> Check:
    return Check(id=name, rule=rule, level=level, source=source)


PROBE = Probe(
    id="logprobs_completions",
    doc=__doc__ or "",
    checks=(
        _check(_GIVEN, "With logprobs a completion has them, whole or streamed.", source=_SOURCE),
        _check(
            _FAILS,
            "No number of logprobs and no cut-off makes a completion fail or be what is not JSON.",
            source="https://github.com/sgl-project/sglang/issues/5984",
        ),
        _check(_ZERO, "With logprobs 0 a completion has its tokens' own values.", Level.SHOULD, _SOURCE),
        _check(
            _ARRAYS,
            "The logprobs of a completion are the arrays tokens, token_logprobs, top_logprobs and text_offset.",
            Level.SHOULD,
        ),
        _check(_LENGTHS, "The arrays have one entry for each completion token; one for the end token may be missing."),
        _check(_PROPER, "Every value is a number of at most 0, and alternatives add up to a probability of at most 1."),
        _check(_SOME, "With logprobs 5 a token has alternatives.", source=_SOURCE),
        _check(_SPELT, "The tokens put together are the text, special tokens aside."),
        _check(_OFFSETS, "The offsets of two tokens are as far apart as the tokens in the text.", Level.SHOULD),
    ),
    params=LogprobsCompletionsParams,
    drive=drive,
    judge=judge,
    requests=6,
    prompt_tokens=50,
    output_tokens=70,
)
