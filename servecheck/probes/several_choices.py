"""``n`` gives that many separate answers.

What it does: asks for three answers at temperature 1, whole and streamed, and counts the choices, their indices, their
texts and their ends. Where all three texts are the same it asks again. Where three are refused it asks for two and
judges those, since some engines give no more answers at once than they have slots. Two answers under a schema must both
be the schema's, or neither.

Why it matters: voting and ranking over several answers is built on it, and a server that gives one answer to three
asked for is seldom noticed.

How it could be fooled: by a model that is certain of every word, which the prompt makes unlikely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._schemas import (
    NONCE_SCHEMA,
    PULL_AWAY,
    faults,
    may_become,
    response_format,
    schema_of,
    with_nonce,
)
from servecheck.probes._steps import reply_at, sent
from servecheck.read import reply
from servecheck.read.text import dig, number, parse, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create"
_COUNT, _INDEX, _DIFFER = "n-gives-that-many-choices", "choices-are-numbered-from-zero", "choices-differ"
_ENDS, _TEXT, _USAGE = "each-choice-ends-once", "each-choice-has-text", "usage-counts-all-choices"
_LARGE, _SHAPED = "n-is-taken-as-large-as-asked", "a-schema-shapes-every-choice"
_ROOM = 64  # tokens for an answer under the schema; 17 to 26 were used
_MODES = {"": Mode.NON_STREAM, "-stream": Mode.STREAM}


class SeveralChoicesParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Invent a name for a boat and say in one sentence why it has that name.",
        description="The user's message: there should be many good answers.",
    )
    n: int = Field(default=3, ge=2, le=16, description="How many answers to ask for.")
    max_tokens: int = Field(default=24, ge=8, le=4096, description="Room for each answer.")


async def drive(session: Session, params: SeveralChoicesParams, _: Transcript | None) -> None:
    """One answer, then several in both modes; again where they are all the same; two where more are refused."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 1, "top_p": 1}
    streamed: dict[str, Json] = {"stream": True, "stream_options": {"include_usage": True}}
    await session.chat("one", base)
    for suffix, mode in _MODES.items():
        for name, n in (("many", params.n), ("two", 2)):
            body: dict[str, Json] = {**base, "n": n} | (streamed if mode is Mode.STREAM else {})
            found = reply.chat(await session.chat(f"{name}{suffix}", body))
            if _all_same(found):
                await session.chat(f"{name}{suffix}-again", body)
            if not isinstance(found, reply.Refusal) or params.n == 2:
                break
    prose: Json = [{"role": "user", "content": PULL_AWAY}]
    wanted = response_format(with_nonce(NONCE_SCHEMA, session.nonce()))
    await session.chat("shaped", {**base, "messages": prose, "max_tokens": _ROOM, "n": 2, "response_format": wanted})


def _all_same(answer: reply.Reply | None) -> bool:
    if not isinstance(answer, reply.Answer) or len(answer.choices) < 2:
        return False
    return len({(choice.reasoning, choice.text) for choice in answer.choices}) == 1


def _mute(answer: reply.Answer) -> bool:
    """Tell whether all room was used and no text is shown, as where thoughts are kept from the client."""
    return answer.finish == "length" and not any((each.text + each.reasoning).strip() for each in answer.choices)


def judge(transcript: Transcript, params: SeveralChoicesParams) -> Iterator[Finding]:
    """Judge both modes by the same rules; where only two answers are given at once, judge those."""
    control = reply_at(transcript, "one")
    for suffix, mode in _MODES.items():
        part = Part(mode=mode)
        name, wanted, answer = "many", params.n, reply_at(transcript, f"many{suffix}")
        two = reply_at(transcript, f"two{suffix}")
        if isinstance(answer, reply.Refusal) and isinstance(two, reply.Answer):
            why = f"n {params.n} is refused, and n 2 is not: {answer.what}"
            yield part.refused(_LARGE, why, answer, two)
            name, wanted, answer = "two", 2, two
        elif isinstance(answer, reply.Answer):
            yield part.held(_LARGE, f"n {params.n} is taken", answer)
        missing = part.unless_answered(_COUNT, answer, control, what=f"n {wanted}")
        if missing is not None:
            yield missing
            continue
        assert isinstance(answer, reply.Answer)
        again = reply_at(transcript, f"{name}{suffix}-again")
        yield from _judge(part, answer, again, control, wanted, params.max_tokens)
    yield from _shaped(reply_at(transcript, "shaped"), reply_at(transcript, "many"))


def _shaped(found: reply.Reply | None, plain: reply.Reply | None) -> Iterator[Finding]:
    """Judge two answers under a schema; whether schemas work at all, and several answers, is judged elsewhere."""
    part = Part()
    if isinstance(found, reply.Failure) and isinstance(plain, reply.Answer):
        yield part.violated(_SHAPED, f"a schema with n 2: {found.what}", found, plain)
    if not isinstance(found, reply.Answer) or len(found.choices) != 2:
        return
    schema = schema_of(found)
    fits = [not faults(choice.text, schema) for choice in found.choices]
    if all(fits):
        yield part.held(_SHAPED, "both answers are the schema's", found)
    elif any(fits):
        other = found.choices[fits.index(False)]
        if other.finish != "length" or not may_become(other.text, schema):
            why = f"one of two answers is the schema's, and the other is {quote(other.text)}"
            yield part.violated(_SHAPED, why, found)


def _judge(
    part: Part,
    answer: reply.Answer,
    again: reply.Reply | None,
    control: reply.Reply | None,
    wanted: int,
    max_tokens: int,
) -> Iterator[Finding]:
    choices = answer.choices
    said = f"{len(choices)} choice{'s' if len(choices) != 1 else ''} for n {wanted}"
    indices = _indices(answer)
    streamed, seen = answer.stream is not None, sorted(set(indices))
    # Chunks of several choices under one index are joined by any client; the ends still tell how many there were.
    merged = streamed and len(choices) == 1 and sum(_finishes(answer).values()) == wanted
    if len(choices) == 1 and not merged and isinstance(control, reply.Answer):
        yield part.no_effect(_COUNT, f"{said}, as without it", answer, control)
        return
    if len(choices) != wanted and not merged:
        yield part.violated(_COUNT, f"{said}: indices {seen}", answer)
        return
    yield part.held(_COUNT, f"{wanted} ends under one index" if merged else said, answer)
    right = seen == list(range(wanted)) and (streamed or len(indices) == wanted)
    yield (part.held if right else part.violated)(_INDEX, f"indices are {seen if right else indices[:8]}", answer)
    if merged:
        return
    yield _ends(part, answer, wanted)
    silent = [choice.index for choice in choices if not (choice.text or choice.reasoning).strip()]
    cut = all(choice.finish == "length" for choice in choices if choice.index in silent)
    if silent and cut and isinstance(control, reply.Answer) and _mute(control):
        yield part.undetermined(
            _TEXT, "one answer alone shows no text either: the room went elsewhere", answer, control
        )
    elif silent:
        yield part.violated(_TEXT, f"no text in choice {', '.join(map(str, silent))} of {wanted}", answer)
    else:
        yield part.held(_TEXT, f"all {wanted} have text", answer)
    yield _differ(part, answer, again, wanted)
    yield from _usage(part, answer, max_tokens)


def _differ(part: Part, answer: reply.Answer, again: reply.Reply | None, wanted: int) -> Finding:
    if not _all_same(answer):
        texts = {choice.reasoning + choice.text for choice in answer.choices}
        return part.held(_DIFFER, f"{len(texts)} different texts among {wanted} at temperature 1", answer)
    said = quote(answer.first.reasoning + answer.text)
    if _mute(answer):
        return part.undetermined(_DIFFER, "no choice shows a text: the room went where the client cannot see", answer)
    if not isinstance(again, reply.Answer):
        why = f"all {wanted} are the same at temperature 1, and the second look failed: {said}"
        return part.undetermined(_DIFFER, why, answer, *sent(again))
    if _all_same(again):
        why = f"all {wanted} are the same at temperature 1, twice: {said}"
        return part.violated(_DIFFER, why, answer, again)
    return part.held(_DIFFER, f"all {wanted} were the same once, and not the second time: {said}", answer, again)


def _indices(answer: reply.Answer) -> list[int]:
    """Return the index of every choice as sent, with -1 for one that has none; in a stream, of every chunk."""
    if answer.stream is None:
        entries = dig(answer.body, "choices")
        return [_index(entry) for entry in (entries if isinstance(entries, list) else [])]
    return [_index(entry) for entry in _stream_choices(answer)]


def _index(entry: Json) -> int:
    found = number(dig(entry, "index"))
    return -1 if found is None else found


def _stream_choices(answer: reply.Answer) -> Iterator[Json]:
    for event in answer.stream.events if answer.stream is not None else ():
        try:
            entries = dig(parse(event.data), "choices")
        except ValueError:
            continue  # the end marker
        yield from entries if isinstance(entries, list) else []


def _finishes(answer: reply.Answer) -> Counter[int]:
    """Return how many finish reasons came for each index."""
    if answer.stream is None:
        return Counter(choice.index for choice in answer.choices if choice.finish)
    return Counter(_index(entry) for entry in _stream_choices(answer) if string(dig(entry, "finish_reason")))


def _ends(part: Part, answer: reply.Answer, wanted: int) -> Finding:
    ends = _finishes(answer)
    odd = [f"choice {index} {ends[index]} times" for index in range(wanted) if ends[index] != 1]
    if odd:
        return part.violated(_ENDS, f"a finish_reason came for {', '.join(odd)}", answer)
    return part.held(_ENDS, f"one finish_reason for each of {wanted}", answer)


def _usage(part: Part, answer: reply.Answer, max_tokens: int) -> Iterator[Finding]:
    """Judge usage by what is certain: a choice that was cut has max_tokens tokens, any other at least one."""
    made = answer.usage.completion if answer.usage is not None else None
    if made is None:
        return
    cut = sum(choice.finish == "length" for choice in answer.choices)
    least = cut * max_tokens + (len(answer.choices) - cut)
    most = len(answer.choices) * max_tokens
    said = f"completion_tokens {made}; {cut} of {len(answer.choices)} choices were cut at {max_tokens} tokens"
    if made < least:
        yield part.violated(_USAGE, f"{said}, so it is at least {least}", answer, least=least, completion_tokens=made)
    elif made > most:
        yield part.violated(_USAGE, f"{said}, so it is at most {most}", answer, most=most, completion_tokens=made)
    else:
        yield part.held(_USAGE, said, answer, completion_tokens=made)


PROBE = Probe(
    id="several_choices",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_COUNT,
            rule="A reply has as many choices as n asks for.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_LARGE,
            rule="The number of answers that n may ask for is not below the one asked for here.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_INDEX,
            rule="The choices carry the indices from 0 to n-1, in a stream on every chunk.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
        Check(
            id=_ENDS,
            rule="Each choice has one finish_reason.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat-streaming",
        ),
        Check(
            id=_TEXT,
            rule="Each choice has a text of its own.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_DIFFER,
            rule="At temperature 1 the choices are not all the same.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_USAGE,
            rule="completion_tokens counts the tokens of all choices.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_SHAPED,
            rule="Where a schema shapes one of two choices, it shapes the other; with both asked for nothing fails.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/11312",
        ),
    ),
    params=SeveralChoicesParams,
    drive=drive,
    judge=judge,
    requests=4,
    prompt_tokens=165,
    output_tokens=222,
)
