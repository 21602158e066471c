"""Every earlier turn and the system message reach the model.

What it does: sends conversations of two, four and ten earlier turns of the same length and reads ``prompt_tokens``:
each turn must add as much as any other, so that none is dropped from the front. Then two conversations that differ only
in a random word said two turns ago, and two that differ only in a random word in the system message, with logprobs: an
answer that is the same to the last digit was made without reading that word. The system message is also made longer,
and must be counted, as must one in the role ``developer``, which is what newer clients call it. The replies' ids are
compared.

Why it matters: a server that keeps only the last turns answers 200, and an agent forgets its task without an error.

How it could be fooled: by usage that counts what was sent instead of what was read, which the pairs are for; without
logprobs only the texts of a pair can be compared, and a model may say the same to both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._pairs import ask_pair, judge_pair, reply_of_side
from servecheck.probes._steps import answer_at, filler, reply_at, sent
from servecheck.read import reply
from servecheck.read.text import dig, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/guides/conversation-state"
_PART = Part()
_COUNTED, _READ = "each-turn-is-counted", "earlier-turns-reach-the-model"
_SYSTEM_COUNTED, _SYSTEM_READ = "system-message-is-counted", "system-message-reaches-the-model"
_DEVELOPER, _IDS = "developer-message-is-counted", "replies-have-ids-of-their-own"
_STEPS = ("alone", "turns-4", "turns-10", "pair-turns-one", "pair-system-one", "system-long")
_MET = 3  # replies with one id that are no accident
_TURNS = (2, 4, 10)
_WORDS = 12  # of each message of the history
_MORE = 24  # words by which the longer system message is longer


class MultiTurnParams(Params):
    """What may be chosen in YAML."""

    question: str = Field(default="What is the code?", description="The last message.")
    max_tokens: int = Field(default=16, ge=4, le=4096, description="Room for the answers that are compared.")


def _history(turns: int, first: str) -> list[Json]:
    """Return so many earlier turns of the same length; the first user message begins with ``first``."""
    made: list[Json] = []
    for turn in range(turns):
        said = f"{first} {filler(_WORDS)}" if turn == 0 else filler(_WORDS)
        made += [{"role": "user", "content": said}, {"role": "assistant", "content": filler(_WORDS, 5)}]
    return made


async def drive(session: Session, params: MultiTurnParams, _: Transcript | None) -> None:
    """Histories of three lengths, then pairs that differ in one word, with logprobs where the server takes them."""
    code, other = session.nonce(), session.nonce()
    question: Json = {"role": "user", "content": params.question}
    greedy: dict[str, Json] = {"temperature": 0, "top_p": 1}
    compared: dict[str, Json] = {"max_tokens": params.max_tokens, **greedy}

    async def count(step: str, messages: list[Json]) -> None:
        await session.chat(step, {"messages": messages, "max_tokens": 1, **greedy})

    def system(word: str, more: int = 0, role: str = "system") -> list[Json]:
        text = f"Answer in English. The code is {word}. {filler(more)}".strip()
        return [{"role": role, "content": text}, question]

    await count("alone", [question])
    first = f"The code is {code}."
    for turns in _TURNS[1:]:
        await count(f"turns-{turns}", [*_history(turns, first), question])
    await ask_pair(session, "pair-turns-one", {**compared, "messages": [*_history(_TURNS[0], first), question]})
    await ask_pair(
        session, "pair-turns-other", {**compared, "messages": [*_history(_TURNS[0], f"The code is {other}."), question]}
    )
    await ask_pair(session, "pair-system-one", {**compared, "messages": system(code)})
    await ask_pair(session, "pair-system-other", {**compared, "messages": system(other)})
    await count("system-long", system(code, _MORE))
    await count("developer", system(code, _MORE, "developer"))


def judge(transcript: Transcript, _: MultiTurnParams) -> Iterator[Finding]:
    """Judge the counts, then the pairs."""
    yield _turns(transcript)
    control = reply_at(transcript, "alone")
    yield judge_pair(transcript, "pair-turns", _READ, "two turns ago", control)
    yield _system(transcript)
    yield judge_pair(transcript, "pair-system", _SYSTEM_READ, "in the system message", control)
    yield from _developer(transcript)
    yield from _ids([found for step in _STEPS if (found := answer_at(transcript, step)) is not None])


def _tokens(transcript: Transcript, step: str) -> int | None:
    return _counted(answer_at(transcript, step))


def _counted(found: reply.Reply | None) -> int | None:
    return found.usage.prompt if isinstance(found, reply.Answer) and found.usage is not None else None


def _turns(transcript: Transcript) -> Finding:
    # One side of the pair is the shortest history; recordings of before have one whose first words are other ones.
    replies = [
        reply_at(transcript, "turns-2") or reply_of_side(transcript, "pair-turns-one"),
        *(reply_at(transcript, f"turns-{turns}") for turns in _TURNS[1:]),
    ]
    alone = reply_at(transcript, "alone")
    for found in replies:
        missing = _PART.unless_answered(_COUNTED, found, alone)
        if missing is not None:
            return missing
    seen = sent(*replies)
    two, four, ten = (_counted(found) for found in replies)
    if two is None or four is None or ten is None:
        return _PART.undetermined(_COUNTED, "usage does not say how long the prompts are", *seen)
    said = f"prompt_tokens {two} with 2 earlier turns, {four} with 4, {ten} with 10"
    each = (four - two) / 2
    figures = {f"prompt_tokens_{turns}_turns": count for turns, count in zip(_TURNS, (two, four, ten), strict=True)}
    if each < _WORDS:
        # Two messages of so many words each cannot be fewer tokens than half of their words.
        why = f"{said}: the turns between are {each:g} tokens each, and have {2 * _WORDS} words"
        return _PART.violated(_COUNTED, why, *seen, **figures)
    more = (ten - four) / 6
    if abs(more - each) > max(1.0, each / 10):
        return _PART.violated(_COUNTED, f"{said}: first {each:g} tokens a turn, then {more:g}", *seen, **figures)
    return _PART.held(_COUNTED, f"{said}: {each:g} tokens a turn", *seen, **figures)


def _system(transcript: Transcript) -> Finding:
    short = reply_of_side(transcript, "pair-system-one")
    long, alone = reply_at(transcript, "system-long"), reply_at(transcript, "alone")
    for found in (short, long):
        missing = _PART.unless_answered(_SYSTEM_COUNTED, found, alone)
        if missing is not None:
            return missing
    seen = sent(short, long)
    low, high = _counted(short), _tokens(transcript, "system-long")
    if low is None or high is None:
        return _PART.undetermined(_SYSTEM_COUNTED, "usage does not say how long the prompts are", *seen)
    why = f"prompt_tokens {low}, and {high} with {_MORE} more words in the system message"
    grown = high - low >= _MORE / 2
    return (_PART.held if grown else _PART.violated)(_SYSTEM_COUNTED, why, *seen)


def _developer(transcript: Transcript) -> Iterator[Finding]:
    """Judge the developer's message by the question alone, where a system message works."""
    found, system, alone = (reply_at(transcript, step) for step in ("developer", "system-long", "alone"))
    if found is None or not isinstance(system, reply.Answer):
        return
    missing = _PART.unless_answered(_DEVELOPER, found, system, what="the role developer")
    if missing is not None:
        yield missing
        return
    low, high = _tokens(transcript, "alone"), _tokens(transcript, "developer")
    if low is None or high is None:
        return
    why = f"prompt_tokens {low} alone, and {high} behind a developer's message of more than {_MORE} words"
    yield (_PART.held if high - low >= _MORE / 2 else _PART.violated)(_DEVELOPER, why, *sent(found, alone))


def _ids(answers: list[reply.Answer]) -> Iterator[Finding]:
    # Some servers draw their ids from less than a thousand: two of a few replies may meet, three do not.
    told = Counter(name for answer in answers if (name := string(dig(answer.body, "id"))))
    if told.total() < _MET:
        return
    name, times = told.most_common(1)[0]
    why = f"{told.total()} replies to different conversations have {len(told)} ids"
    if times >= _MET:
        yield _PART.violated(_IDS, f"{why}: {times} have {quote(name, 40)}", *answers)
    else:
        yield _PART.held(_IDS, why, *answers)


PROBE = Probe(
    id="multi_turn",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_COUNTED,
            rule="prompt_tokens grows by the same for each earlier turn of the same length.",
            level=Level.MUST,
            source="https://github.com/ollama/ollama/issues/4967",
        ),
        Check(
            id=_READ,
            rule="A word said two turns ago has an effect on the answer.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_SYSTEM_COUNTED,
            rule="prompt_tokens grows with the system message.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_SYSTEM_READ,
            rule="A word in the system message has an effect on the answer.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_DEVELOPER,
            rule="Where a system message works, one in the role developer is taken and makes the prompt longer.",
            level=Level.SHOULD,
            source="https://github.com/sgl-project/sglang/issues/40082",
        ),
        Check(
            id=_IDS,
            rule="Replies to different conversations do not share one id.",
            level=Level.SHOULD,
            source="https://github.com/InternLM/lmdeploy/pull/4707",
        ),
    ),
    params=MultiTurnParams,
    drive=drive,
    judge=judge,
    requests=9,
    prompt_tokens=1160,
    output_tokens=69,
)
