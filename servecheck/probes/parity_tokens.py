"""Both endpoints count the same prompt tokens.

What it does: sends the same plain texts and the same chats to each endpoint with one token of output, and compares
``prompt_tokens``. Where chats differ and plain texts do not, it is the chat template; whether that adds the same to
every chat, or something only where no system message is given, says what to look for. Where an endpoint shows the
prompt it makes of a chat (``/apply-template``, or ``/tokenize`` and ``/detokenize``), the date of the day is looked for
in it, and held against the other's and against the day on which each was asked.

Why it matters: where the prompts differ, every other comparison compares two questions. A template that puts in
today's date, or a system message of its own, changes answers from one day or one endpoint to the next.

How it could be fooled: by two templates that differ in words and not in number, as two dates do where no prompt is
shown, which is then said. Usage that counts no cached or no hidden tokens looks like another prompt, and is a
difference worth knowing too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from servecheck.model import Check, Exchange, Finding, Json, Level, Outcome, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._parity import PART
from servecheck.probes._rendered import Today, compared, excused, show, today
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.probes._texts import PASSAGES
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_TEXTS, _CHATS, _DAY = "same-text-same-tokens", "same-chat-same-tokens", "same-chat-same-date"
_SYSTEM = "You are a patient librarian who answers in one sentence."
_TURNS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "one question": (("user", "Name three rivers."),),
    "a system message": (("system", _SYSTEM), ("user", "Name three rivers.")),
    "four turns": (
        ("user", "I have a red boat."),
        ("assistant", "That sounds like a fine boat."),
        ("user", "And a blue one."),
        ("assistant", "Then you have two boats."),
        ("user", "Which of them is red?"),
    ),
    "four turns and a system message": (
        ("system", _SYSTEM),
        ("user", "I have a red boat."),
        ("assistant", "That sounds like a fine boat."),
        ("user", "Which of them is red?"),
    ),
    "white space at both ends": (("user", "  \n Name three rivers. \n\n"),),
    "accents and emoji": (("user", "Où est le café ? 🦊🚲 Ich weiß es nicht – vielleicht „dort“…"),),
    "other scripts": (("user", "你好，世界。 Привет, мир. こんにちは。 שלום"),),
    "program text": (("user", "def f(x):\n\treturn {'a': x ** 2}  # <|not_a_mark|>\n"),),
    "an empty system message": (("system", ""), ("user", "Name three rivers.")),
    "a long question": (("user", PASSAGES[0] + "\n\nWhat did the captain say?"),),
}


def _messages(turns: Sequence[tuple[str, str]]) -> Json:
    return [{"role": role, "content": content} for role, content in turns]


def _has_system(name: str) -> bool:
    return any(role == "system" and content for role, content in _TURNS[name])


async def drive(session: Session, _: Params, __: Transcript | None) -> None:
    """Each text and each chat, with one token of output; and the prompt of a chat, where it is shown."""
    few: dict[str, Json] = {"max_tokens": 1, "temperature": 0}
    for number, text in enumerate(PASSAGES, start=1):
        await session.post(f"text-{number:02d}", "/completions", {**few, "prompt": text})
        if not isinstance(reply.completion(session.transcript.exchanges[-1]), reply.Answer):
            break  # no completions route, or none that takes plain text: one refusal is enough
    for number, turns in enumerate(_TURNS.values(), start=1):
        await session.chat(f"chat-{number:02d}", {**few, "messages": _messages(turns)})
    await show(session, _messages(_TURNS["one question"]))


class _Count(NamedTuple):
    name: str
    left: int
    right: int
    seen: tuple[Exchange, ...]

    @property
    def more(self) -> int:
        return self.right - self.left


def _counts(left: Transcript, right: Transcript, names: Mapping[str, str]) -> list[_Count]:
    """Return what both sides count, by step; steps that one side did not answer are left out."""
    found = []
    for step, name in names.items():
        answers = [answer_at(side, step) for side in (left, right)]
        told = [each.usage.prompt if each is not None and each.usage is not None else None for each in answers]
        if told[0] is not None and told[1] is not None:
            seen = tuple(each for side in (left, right) if (each := side.get(step)) is not None)
            found.append(_Count(name, told[0], told[1], seen))
    return found


_TEXT_STEPS = {f"text-{number:02d}": quote(text, 30) for number, text in enumerate(PASSAGES, start=1)}
_CHAT_STEPS = {f"chat-{number:02d}": name for number, name in enumerate(_TURNS, start=1)}


def judge(transcript: Transcript, _: Params) -> Iterator[Finding]:
    """Say only where an endpoint does not say how long its prompts are."""
    replies = [reply_at(transcript, step) for step in _CHAT_STEPS]
    answers = [each for each in replies if isinstance(each, reply.Answer)]
    if not answers:
        yield PART.undetermined(_CHATS, "no chat was answered", *sent(*replies))
    elif all(each.usage is None or each.usage.prompt is None for each in answers):
        yield PART.undetermined(_CHATS, "the usage names no prompt tokens", *answers)


def contrast(left: Transcript, right: Transcript, _: Params) -> Iterator[Finding]:
    """Compare the counts of texts, then of chats, then the date of the day that the templates put in the prompt."""
    plain, chats = _counts(left, right, _TEXT_STEPS), _counts(left, right, _CHAT_STEPS)
    mine, theirs = today(left), today(right)
    outcome, said = compared(mine, theirs)
    if plain:
        yield _finding(_TEXTS, "plain texts", plain, _text_cause(plain))
    if chats:
        like = bool(plain) and not any(count.more for count in plain)
        more = "" if outcome else said or _unseen(mine, theirs)
        found = _finding(_CHATS, "chats", chats, _chat_cause(chats, texts_alike=like), more)
        # Two dates of the same form may be of unlike length, and every chat then is, by as much.
        yield from excused([found], left, right) if len({count.more for count in chats}) == 1 else [found]
    if outcome is not None:
        said_of = {Outcome.HELD: PART.held, Outcome.VIOLATED: PART.violated}.get(outcome, PART.undetermined)
        yield said_of(_DAY, said + _ADVICE.get(outcome, ""), *mine.seen, *theirs.seen)


_ADVICE = {
    Outcome.HELD: ", so answers may change from day to day",
    Outcome.UNDETERMINED: "; ask both on one day to compare them",
}


def _unseen(left: Today, right: Today) -> str:
    """Return what nobody could have noticed."""
    names = [name for name, side in (("reference", left), ("candidate", right)) if not side.shown]
    if len(names) == 1:
        return f"the {names[0]} shows no prompt, so a date in its chat template would go unnoticed"
    return "neither shows its prompts, so a date in both chat templates would go unnoticed" if names else ""


def _finding(check: str, what: str, counts: Sequence[_Count], cause: str, more: str = "") -> Finding:
    off = [count for count in counts if count.more]
    total = f"{len(counts) - len(off)} of {len(counts)} {what} have as many prompt tokens on both"
    total += f"; {more}" if more else ""
    if not off:
        seen = [exchange for count in counts[:2] for exchange in count.seen]
        return PART.held(check, total, *seen, compared=len(counts), unlike=0)
    shown = "; ".join(f"{count.name}: {count.left} | {count.right}" for count in off[:4])
    seen = [exchange for count in off[:3] for exchange in count.seen]
    why = f"{cause}: {total}; {shown}" + (f"; and {len(off) - 4} more" if len(off) > 4 else "")
    return PART.violated(check, why, *seen, compared=len(counts), unlike=len(off), most=max(abs(c.more) for c in off))


def _text_cause(counts: Sequence[_Count]) -> str:
    extra = {count.more for count in counts}
    if len(extra) == 1:
        more = next(iter(extra))
        return f"a mark at the beginning ({more:+d} in every text on the candidate)"
    return "the tokenizers cut texts differently"


def _chat_cause(counts: Sequence[_Count], *, texts_alike: bool) -> str:
    extra = {count.more for count in counts}
    given = {count.more for count in counts if _has_system(count.name)}
    missing = {count.more for count in counts if not _has_system(count.name)}
    template = "the chat templates differ" if texts_alike else "the chats are rendered or cut differently"
    if len(extra) == 1:
        more = next(iter(extra))
        side = "candidate" if more > 0 else "reference"
        return f"{template}: the {side}'s adds {abs(more)} tokens to every chat, as a date or a fixed preamble does"
    if given == {0} and len(missing) == 1:
        more = next(iter(missing))
        side = "candidate" if more > 0 else "reference"
        return (
            f"{template}: the {side}'s adds {abs(more)} tokens where no system message is given, as a system "
            "message of its own or a date does"
        )
    return template


PROBE = Probe(
    id="parity_tokens",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_CHATS,
            rule="The same chat has as many prompt tokens on both endpoints.",
            level=Level.MUST,
            source="https://huggingface.co/docs/transformers/chat_templating",
        ),
        Check(
            id=_DAY,
            rule="Where chat templates put the date of the day in the prompt, both endpoints put the same one there.",
            level=Level.MUST,
            source="https://huggingface.co/docs/transformers/chat_templating_writing",
        ),
        Check(
            id=_TEXTS,
            rule="The same plain text has as many prompt tokens on both endpoints.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/completions/object",
        ),
    ),
    params=Params,
    drive=drive,
    judge=judge,
    contrast=contrast,
    requests=28,
    prompt_tokens=4090,
    output_tokens=20,
)
