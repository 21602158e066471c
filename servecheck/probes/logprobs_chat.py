"""Log probabilities of a chat answer are there, complete and sane.

What it does: asks the same greedy question with ``logprobs`` and no ``top_logprobs``, with 0, 1 and 5, and once plain
(the control). Counts entries against ``usage``, adds up probabilities, puts the tokens together again and looks whether
the greedy token is the likeliest. Two more requests take low temperature with ``top_p`` (cut-off tokens have minus
infinity, which is not JSON) and temperature 2 (are values those of the model or those it was sampled from?).

Why it matters: classifiers, evaluations and confidence scores read these numbers and never the text. Builds are
reported that answer 500 to one number of alternatives, or 200 with an empty list.

How it could be fooled: by a server that makes numbers up consistently. A penalty that a server adds of its own accord
moves greedy tokens away from the likeliest, so a few of those only leave that rule open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._logprobs import Arms, Entry, counted, improper, misspelt, nat, of_chat, twins, unlikely
from servecheck.probes._steps import reply_at
from servecheck.read import reply

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat_create-top_logprobs"
_SHAPE = "https://platform.openai.com/docs/api-reference/chat/object#chat-object-choices-logprobs"
_MODES = "https://docs.vllm.ai/en/latest/configuration/engine_args/"

_GIVEN, _FAILS, _ZERO = "logprobs-are-given", "no-number-of-alternatives-fails", "zero-alternatives-still-gives-values"
_COUNT, _PROPER, _SPELT = "one-entry-per-token", "logprobs-are-probabilities", "token-bytes-are-the-text"
_SOME, _MORE, _TWINS = "alternatives-are-given", "no-more-alternatives-than-asked", "alternatives-can-be-told-apart"
_GREEDY, _MODE = "greedy-token-is-the-likeliest", "values-know-one-temperature"

_PART = Part()
_ARMS: Mapping[str, dict[str, Json]] = {
    "absent": {"temperature": 0},
    "zero": {"temperature": 0, "top_logprobs": 0},
    "one": {"temperature": 0, "top_logprobs": 1},
    "five": {"temperature": 0, "top_logprobs": 5},
    "cut": {"temperature": 0.01, "top_logprobs": 5, "top_p": 0.3},
    "hot": {"temperature": 2, "top_logprobs": 5, "max_tokens": 1},
}
_WORDS = {
    "absent": "without top_logprobs",
    "zero": "with top_logprobs 0",
    "one": "with top_logprobs 1",
    "five": "with top_logprobs 5",
    "cut": "with temperature 0.01 and top_p 0.3",
    "hot": "with temperature 2",
}
_ASKED = {"zero": 0, "one": 1, "five": 5, "cut": 5, "hot": 5}
_ALL = 0.999  # probability that leaves nothing for further alternatives
_FEW = 0.25  # share of greedy tokens that a penalty of the server's own may have moved
_SPREAD = 1.0  # nat that gaps must add up to before their ratio says anything


class LogprobsChatParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Write one sentence about a quiet village.", description="The user's message.")
    max_tokens: int = Field(default=12, ge=2, le=256, description="Tokens per answer, each with its entry.")


async def drive(session: Session, params: LogprobsChatParams, _: Transcript | None) -> None:
    """The control, then each arm."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "top_p": 1}
    await session.chat("control", {**base, "temperature": 0})
    for step, more in _ARMS.items():
        await session.chat(step, {**base, "logprobs": True, **more})


def judge(transcript: Transcript, _: LogprobsChatParams) -> Iterator[Finding]:
    """Judge whether every arm is answered and given, then what is given."""
    control = reply_at(transcript, "control")
    arms = {step: reply_at(transcript, step) for step in _ARMS}
    yield from _ROW.judge_failures(_FAILS, arms)
    for step, check in (("absent", _GIVEN), ("one", _GIVEN), ("five", _GIVEN), ("zero", _ZERO)):
        found = arms[step]
        if isinstance(found, reply.Failure):
            continue  # said above
        yield _PART.unless_answered(check, found, control) or _given(check, step, found, arms)
    given = {step: found for step, found in arms.items() if isinstance(found, reply.Answer) and _entries(found)}
    greedy = {step: found for step, found in given.items() if step in ("absent", "zero", "one", "five")}
    yield from _ROW.judge_rule(_COUNT, greedy, counted, "entries are as many as tokens")
    yield from _ROW.judge_rule(
        _PROPER, given, lambda entries, _: improper(entries), "every value is at most 0, sums at most 1"
    )
    yield from _ROW.judge_rule(_SPELT, greedy, misspelt, "the tokens are the text")
    yield from _ROW.judge_rule(_TWINS, given, lambda entries, _: twins(entries), "no two alternatives look the same")
    yield from _alternatives(given)
    yield from _likeliest(greedy)
    yield from _temperature(given)


def _entries(answer: reply.Answer) -> tuple[Entry, ...]:
    return of_chat(answer.first.logprobs)


_ROW = Arms(words=_WORDS, entries=_entries, part=_PART)


def _given(check: str, step: str, answer: reply.Reply | None, arms: Mapping[str, reply.Reply | None]) -> Finding:
    assert isinstance(answer, reply.Answer)
    entries, words = _entries(answer), _WORDS[step]
    if entries:
        return _PART.held(check, f"{words}: {len(entries)} entries", answer, entries=len(entries))
    if not answer.text and not answer.first.reasoning:
        return _PART.undetermined(check, f"{words}: no entries, but no text either", answer)
    others = [name for name, other in arms.items() if isinstance(other, reply.Answer) and _entries(other)]
    beside = f", which come {_WORDS[others[0]]}" if others else ""
    return _PART.no_effect(check, f"{words}: 200, and the reply has no logprobs{beside}", answer)


def _alternatives(given: Mapping[str, reply.Answer]) -> Iterator[Finding]:
    asked = {step: answer for step, answer in given.items() if step in ("one", "five")}
    for step, answer in asked.items():
        entries, number = _entries(answer), _ASKED[step]
        # Where the rest has no probability left it may be omitted; the end token may come without alternatives.
        short = [each for each in entries[:-1] or entries if len(each.top or ()) < number and each.mass < _ALL]
        if all(not each.top for each in entries):
            yield _PART.no_effect(_SOME, f"{_WORDS[step]}: no token has an alternative", answer)
        elif short:
            least = min(len(each.top or ()) for each in short)
            yield _PART.violated(_SOME, f"{_WORDS[step]}: a token has only {least} alternatives", answer)
        else:
            yield _PART.held(_SOME, f"{_WORDS[step]}: every token has {number} or all that there are", answer)
    named = {step: answer for step, answer in given.items() if step in _ASKED}
    for step, answer in named.items():
        most = max(len(each.top or ()) for each in _entries(answer))
        if most > _ASKED[step] + 1:  # the chosen token may come on top of those asked for
            yield _PART.violated(_MORE, f"{_WORDS[step]}: a token has {most} alternatives", answer)
            return
    if named:
        yield _PART.held(_MORE, "never more than one above the number asked for", *named.values())


def _likeliest(greedy: Mapping[str, reply.Answer]) -> Iterator[Finding]:
    for step in ("five", "one"):
        answer = greedy.get(step)
        off, seen, example = unlikely(_entries(answer)) if answer is not None else (0, 0, "")
        if answer is None or not seen:
            continue
        figures = {"tokens": seen, "not_likeliest": off}
        if not off:
            yield _PART.held(_GREEDY, f"{seen} of {seen} greedy tokens are the likeliest", answer, **figures)
        elif off > seen * _FEW:
            yield _PART.violated(_GREEDY, f"{off} of {seen} greedy tokens are not: {example}", answer, **figures)
        else:
            why = f"{off} of {seen} greedy tokens are not, as under a penalty of the server's own: {example}"
            yield _PART.undetermined(_GREEDY, why, answer, **figures)
        return


def _temperature(given: Mapping[str, reply.Answer]) -> Iterator[Finding]:
    """Judge the first token's gaps at temperature 2 against greedy: the same (raw), or halved (processed)."""
    cold, hot = given.get("five"), given.get("hot")
    if cold is None or hot is None:
        return
    left, right = _first(cold), _first(hot)
    common = [text for text in left if text in right]
    if len(common) < 3:
        yield _PART.undetermined(_MODE, f"{len(common)} tokens are listed at both temperatures", cold, hot)
        return
    best = max(common, key=lambda text: left[text])
    spread = sum(left[best] - left[text] for text in common)
    if spread < _SPREAD:
        yield _PART.undetermined(_MODE, f"the alternatives are too close ({spread:.1f} nat) to tell", cold, hot)
        return
    ratio = sum(right[best] - right[text] for text in common) / spread
    mode = "raw" if 0.8 <= ratio <= 1.25 else "processed" if 0.35 <= ratio <= 0.65 else ""
    said = f"gaps between alternatives at temperature 2 are {ratio:.2f} times those of greedy"
    if mode:
        words = "the model's own" if mode == "raw" else "taken after temperature"
        yield _PART.held(_MODE, f"{said}: values are {words}", cold, hot, logprobs_mode=mode, ratio=round(ratio, 2))
    else:
        why = f"{said}; 1 would be the model's own, 0.5 after temperature"
        yield _PART.violated(_MODE, why, cold, hot, ratio=round(ratio, 2))


def _first(answer: reply.Answer) -> dict[str, float]:
    top = _entries(answer)[0].top or ()
    return {each.text: value for each in top if each.text and (value := nat(each.value)) is not None and value > -9000}


def _check(name: str, rule: str, level: Level = Level.MUST, source: str = _SHAPE) -> Check:
    return Check(id=name, rule=rule, level=level, source=source)


PROBE = Probe(
    id="logprobs_chat",
    doc=__doc__ or "",
    checks=(
        _check(_GIVEN, "With logprobs the reply has them, whether or not alternatives are asked for.", source=_SOURCE),
        _check(
            _FAILS,
            "No number of alternatives and no cut-off makes the server fail or write what is not JSON.",
            source="https://github.com/vllm-project/tpu-inference/issues/3572",
        ),
        _check(
            _ZERO,
            "With top_logprobs 0 the tokens' own values come.",
            Level.SHOULD,
            _SOURCE,
        ),
        _check(_COUNT, "There is one entry for each completion token; one for the end token may be there or not."),
        _check(_PROPER, "Every value is a number of at most 0, and alternatives add up to a probability of at most 1."),
        _check(_SOME, "Every token has as many alternatives as were asked for.", source=_SOURCE),
        _check(
            _MORE, "No token has more alternatives than were asked for, the token itself aside.", Level.SHOULD, _SOURCE
        ),
        _check(_GREEDY, "A greedy token is the likeliest of its alternatives, near-ties aside."),
        _check(_SPELT, "The tokens' bytes put together are the text, reasoning and special tokens aside."),
        _check(
            _TWINS,
            "Two alternatives of one token differ in text or bytes.",
            Level.SHOULD,
            "https://github.com/vllm-project/vllm/issues/9463",
        ),
        _check(
            _MODE,
            "Values at another temperature are either the model's own or taken after that temperature.",
            Level.SHOULD,
            _MODES,
        ),
    ),
    params=LogprobsChatParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=210,
    output_tokens=70,
)
