"""A stop string ends the text just before itself.

What it does: asks greedily (twice, so that the second is not a cold prompt), cuts stop strings out of the server's own
text, and asks again with each: one from its first ten characters, given as a string; one that is a whole word without
the space before it, as a list; one that begins inside a word and runs over several tokens, as the second of a list.
Plain and streamed, and the last one on the completions route too. Then it asks for a text of short common words and
cuts three of those out, each without the space before it, the first one streamed too: such a word is one token with
its space and another token without, so a server that compares tokens misses it and still finds every rarer word.

Why it matters: agents and templates end a turn with a stop string. Where it is missed the model talks on, where it is
included or half of it is streamed the parser behind it trips.

How it could be fooled: hardly, since the text before the stop string is known; a greedy answer that goes another way
before the stop string is asked for once more, and then says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Outcome, Route, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create"
_ENDS, _LEAKS, _FINISH = "stop-string-ends-the-text", "stop-string-is-not-streamed", "stop-is-the-finish-reason"
_EARLY = 10  # characters from which the early cut is taken
_LATE = 40  # the character after which the late cuts are taken, where the text is long enough
_ACROSS = 9  # characters of the cut that runs over several tokens
_SAME = 12  # characters behind the stop string that show that nothing was stopped
_NEVER = "@@never said@@"
_MODES = {"": Mode.NON_STREAM, "-stream": Mode.STREAM}
# Words that tokenizers hold whole, with and without the space before them; what else is short comes behind.
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "one two three four five six seven eight nine ten the and you not that with for can this are but all was have "
        "her his they who what will from out our your more about into than them some time only when would there may "
        "just like good day man old new first last long here name help thank please red blue green",
    )
)
_PLACES = ("first", "second", "third")


class StopStringsParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(
        default="Tell me in a few sentences what a harbour is and who works there.", description="The user's message."
    )
    completion_prompt: str = Field(
        default="The harbour was busy that morning, because", description="The prompt on the completions route."
    )
    words_prompt: str = Field(
        default="Repeat: one two three four five six seven eight nine ten.",
        description="The user's message that makes the server say short common words.",
    )
    completions: bool = Field(
        default=True, description="Whether the completions route is asked too, where it is served."
    )
    max_tokens: int = Field(default=64, ge=16, le=4096, description="Room for each answer.")
    thinking_tokens: int = Field(
        default=1024, ge=64, le=8192, description="Room where a reasoning model spent all of it on thinking."
    )


class Cut(NamedTuple):
    """A stop string and where it lies in the text it was cut from."""

    name: str
    at: int
    stop: str
    sent: Json
    modes: tuple[str, ...] = tuple(_MODES)


def cuts(text: str, thought: str = "") -> tuple[Cut, ...]:
    """Return the stop strings to try on a text; each is nowhere before its place, nor in the thought before it."""

    made: list[Cut] = []
    for at in (*range(1, _EARLY), 0):
        stop = text[at : at + 4]
        if len(stop) == 4 and _fits(text, thought, at, stop):
            made.append(Cut("early", at, stop, stop))
            break
    late = _LATE if len(text) >= _LATE + 20 else len(text) // 3
    words = [found for found in re.finditer(r"(?<=\s)\w{3,}", text) if found.start() >= late]
    word = next((found for found in words if _fits(text, thought, found.start(), found.group())), None)
    if word is not None:
        made.append(Cut("word", word.start(), word.group(), [word.group()]))
    for found in words:
        at = found.start() + 1
        stop = text[at : at + _ACROSS].rstrip()
        if " " in stop and len(stop) > _ACROSS // 2 and _fits(text, thought, at, stop):
            made.append(Cut("across", at, stop, [_NEVER, stop]))
            break
    return tuple(made)


def bare_words(text: str, thought: str = "") -> tuple[Cut, ...]:
    """Return up to three short words of a text without the space before them, the commonest sort first."""
    found = re.finditer(r"(?<= )[a-z]{2,6}(?![A-Za-z])", text)
    fitting = [match for match in found if _fits(text, thought, match.start(), match.group())]
    ranked = sorted(fitting, key=lambda match: (match.group() not in _COMMON, len(match.group()) < 3, match.start()))
    forms: tuple[Callable[[str], Json], ...] = (lambda stop: [stop], lambda stop: stop, lambda stop: [_NEVER, stop])
    return tuple(
        Cut(name, match.start(), match.group(), form(match.group()), tuple(_MODES) if name == _PLACES[0] else ("",))
        for name, match, form in zip(_PLACES, ranked, forms, strict=False)
    )


def _fits(text: str, thought: str, at: int, stop: str) -> bool:
    return bool(stop.strip()) and text.find(stop) == at and stop not in thought


class _Arm(NamedTuple):
    """One route and prompt: its greedy control, what its steps are called, and how its stop strings are cut."""

    route: Route
    control: str
    prefix: str
    cut: Callable[[str, str], tuple[Cut, ...]]


def _across(text: str, thought: str) -> tuple[Cut, ...]:
    return tuple(cut for cut in cuts(text, thought) if cut.name == "across")


_ARMS = (
    _Arm(Route.CHAT, "greedy", "", cuts),
    _Arm(Route.CHAT, "words-greedy", "words-", bare_words),
    _Arm(Route.COMPLETIONS, "completions-greedy", "completions-", _across),
)


async def drive(session: Session, params: StopStringsParams, _: Transcript | None) -> None:
    """Greedy twice for each prompt, then every stop string; once more where the text went another way."""
    for arm in _arms(params):
        chat = arm.route is Route.CHAT
        path = "/chat/completions" if chat else "/completions"
        body: dict[str, Json] = {"max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
        if chat:
            asked_for = params.prompt if arm.control == "greedy" else params.words_prompt
            body["messages"] = [{"role": "user", "content": asked_for}]
        else:
            body["prompt"] = params.completion_prompt
        cold = await session.post(f"{arm.prefix}cold", path, body)
        if chat and _all_thought(reply.chat(cold)):
            body["max_tokens"] = params.thinking_tokens
        await session.post(arm.control, path, body)
        for cut in _cuts(session.transcript, arm):
            for suffix in cut.modes:
                step = f"{arm.prefix}{cut.name}{suffix}"
                asked: dict[str, Json] = {**body, "stop": cut.sent} | ({"stream": True} if suffix else {})
                await session.post(step, path, asked)
                if _wandered(session.transcript, arm, cut, step):
                    await session.post(f"{step}-again", path, asked)


def _arms(params: StopStringsParams) -> tuple[_Arm, ...]:
    return tuple(arm for arm in _ARMS if params.completions or arm.route is Route.CHAT)


def _all_thought(answer: reply.Reply) -> bool:
    return isinstance(answer, reply.Answer) and not answer.text.strip() and answer.finish == "length"


def _cuts(transcript: Transcript, arm: _Arm) -> tuple[Cut, ...]:
    control = answer_at(transcript, arm.control)
    return arm.cut(control.text, control.first.reasoning) if control else ()


def _wandered(transcript: Transcript, arm: _Arm, cut: Cut, step: str) -> bool:
    """Tell whether a reply says nothing of the stop string, because its text left the control's before the place."""
    control, answer = answer_at(transcript, arm.control), answer_at(transcript, step)
    if control is None or answer is None or cut.stop in answer.text:
        return False
    shorter = min(len(answer.text), cut.at)
    return answer.text[:shorter] != control.text[:shorter]


def judge(transcript: Transcript, params: StopStringsParams) -> Iterator[Finding]:
    """Judge each cut against the control's text before it."""
    for route in (Route.CHAT, Route.COMPLETIONS):
        answered: list[_Arm] = []
        for arm in _arms(params):
            if arm.route is not route:
                continue
            control, part = reply_at(transcript, arm.control), Part(route=route)
            missing = part.unless_answered(_ENDS, control)
            if missing is None:
                answered.append(arm)
                if not _cuts(transcript, arm):
                    yield part.undetermined(_ENDS, f"no stop string can be cut from {_said(control)}", *sent(control))
            elif control is not None or arm.cut is not bare_words:
                # The second prompt of a route that was never asked adds nothing to what the first one says.
                yield missing
        for suffix, mode in _MODES.items():
            yield from _judge_mode(transcript, answered, suffix, Part(route=route, mode=mode))


def _said(control: reply.Reply | None) -> str:
    return quote(control.text) if isinstance(control, reply.Answer) else "no answer"


def _judge_mode(transcript: Transcript, arms: list[_Arm], suffix: str, part: Part) -> Iterator[Finding]:
    said: list[tuple[reply.Reply | None, list[Finding]]] = []
    for arm in arms:
        control = answer_at(transcript, arm.control)
        assert control is not None
        for cut in _cuts(transcript, arm):
            if suffix in cut.modes:
                step = f"{arm.prefix}{cut.name}{suffix}"
                answer = reply_at(transcript, f"{step}-again") or reply_at(transcript, step)
                said.append((answer, _judge_cut(part, cut, control, answer)))
    works = any(finding.check == _ENDS and finding.outcome is Outcome.HELD for _, each in said for finding in each)
    for answer, each in said:
        for finding in each:
            if finding.outcome is Outcome.NO_EFFECT and works:
                # Another stop string does end the text in this mode: this one was not ignored, it was missed.
                yield part.violated(finding.check, f"missed, though another one works: {finding.why}", *sent(answer))
            else:
                yield finding


def _judge_cut(part: Part, cut: Cut, control: reply.Answer, answer: reply.Reply | None) -> list[Finding]:
    sent_as = "a string" if isinstance(cut.sent, str) else "a list"
    missing = part.unless_answered(_ENDS, answer, control, what=f"stop {quote(cut.stop, 20)} as {sent_as}")
    if missing is not None:
        return [missing]
    assert isinstance(answer, reply.Answer)
    text, whole, stop = answer.text, control.text, cut.stop
    wanted, seen = whole[: cut.at], (answer, control)
    stopped = f"stop {quote(stop, 20)} at character {cut.at}"
    findings: list[Finding] = []
    if text.rstrip() == wanted.rstrip():
        findings.append(part.held(_ENDS, f"{stopped}: the text ends with {quote(wanted[-30:], 34)}", *seen))
        if part.mode is Mode.STREAM:
            findings.append(part.held(_LEAKS, f"{stopped}: no piece holds any of it", *seen))
        right = answer.finish == "stop"
        why = f"finish_reason is {answer.finish!r} after {stopped}"
        findings.append((part.held if right else part.violated)(_FINISH, why, *seen))
    elif text.startswith(wanted) and stop.startswith(text[cut.at :]):
        if text[cut.at :] == stop:
            findings.append(part.violated(_ENDS, f"{stopped} is included in the text: {quote(text[-40:])}", *seen))
        else:
            leaked = quote(text[cut.at :], 20)
            check = _LEAKS if part.mode is Mode.STREAM else _ENDS
            findings.append(part.violated(check, f"{stopped}: its beginning {leaked} is in the text", *seen))
    elif stop in text and _goes_on(text, whole, cut):
        why = f"{stopped} is in the text, which goes on as without it: {quote(text[max(0, cut.at - 20) :])}"
        findings.append(part.no_effect(_ENDS, why, *seen))
    elif stop in text:
        findings.append(part.violated(_ENDS, f"{stopped} is in the text: {quote(text[-60:])}", *seen))
    elif wanted.startswith(text) and answer.finish == "stop":
        lost = quote(wanted[len(text) :], 40)
        findings.append(part.violated(_ENDS, f"{stopped}: the text before it lacks its end {lost}", *seen))
    else:
        why = f"the greedy text went another way before the stop string, twice: {quote(text)}"
        findings.append(part.undetermined(_ENDS, why, *seen))
    return findings


def _goes_on(text: str, whole: str, cut: Cut) -> bool:
    """Tell whether the text behind the stop string is the control's, for some words or to its end."""
    after = cut.at + len(cut.stop)
    return text == whole or (len(text) > after and text.startswith(whole[: after + _SAME]))


def cost(params: StopStringsParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    if params.completions:
        return Cost(requests=18, prompt_tokens=690, output_tokens=340)
    return Cost(requests=14, prompt_tokens=650, output_tokens=235)


PROBE = Probe(
    id="stop_strings",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_ENDS,
            rule="The text ends just before the stop string, which is not part of it.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_LEAKS,
            rule="No piece of a stream holds the beginning of the stop string that ends it.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/3574",
        ),
        Check(
            id=_FINISH,
            rule="finish_reason is “stop” where a stop string ended the text.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/api-reference/chat/object",
        ),
    ),
    params=StopStringsParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
