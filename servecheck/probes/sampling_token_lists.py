"""Lists that confine a text: ``bad_words``, ``allowed_token_ids`` and ``stop_token_ids``.

What it does: takes the greedy answer twice and learns its tokens' ids (from the answer, else from ``/tokenize``). Then
bans words of that very answer, or allows nothing but two of its tokens, or stops at a token from its middle: plain,
streamed, and on the completions route with controls of its own; allowed tokens also with no other sampling parameter.

Why it matters: these are extensions of vLLM, and other servers take fields that they do not know with a 200.

A short word and a long one are banned: one form of a word may be one token and another several, and servers are
known to ban only one of them.

How it could be fooled: by an answer that goes another way before the word or the token that matters, which then says
nothing; by a banned word that the model spells with other tokens, which is not held against the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Outcome, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.probes._token_ids import Piece, ask_telling, learn, pieces, telling, told
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/api/vllm/sampling_params/"
_AWAY, _ONLY, _ENDS = "bad-word-stays-away", "only-allowed-tokens-come", "stop-token-ends-the-text"
_EVERY = "every-bad-word-stays-away"
_CHECKS = {"bad_words": _AWAY, "allowed_token_ids": _ONLY, "stop_token_ids": _ENDS}
_MIDDLE = 2  # tokens that come before the stop token at least


class TokenListsParams(Params):
    """What may be chosen in YAML."""

    parameter: Literal["bad_words", "allowed_token_ids", "stop_token_ids"] = Field(description="The list to exercise.")
    prompt: str = Field(
        default="Tell me in a few sentences what a harbour is and who works there.", description="The user's message."
    )
    completion_prompt: str = Field(
        default="The harbour was busy that morning, because", description="The prompt on the completions route."
    )
    max_tokens: int = Field(default=24, ge=12, le=256, description="Tokens of each answer.")


class _Arm(NamedTuple):
    """One route: what its steps are called and where they go."""

    route: Route
    prefix: str
    path: str


class _Target(NamedTuple):
    """What is banned, allowed or stopped at, the value that is sent for it, and where it is in the control's answer."""

    value: Json
    pieces: tuple[Piece, ...] = ()
    word: str = ""
    at: int = 0


_ARMS = (_Arm(Route.CHAT, "", "/chat/completions"), _Arm(Route.COMPLETIONS, "completions-", "/completions"))


async def drive(session: Session, params: TokenListsParams, _: Transcript | None) -> None:
    """Two controls and the list on each route; streamed and alone on the chat route."""
    for arm in _ARMS:
        chat = arm.route is Route.CHAT
        body: dict[str, Json] = {"max_tokens": params.max_tokens}
        if chat:
            body["messages"] = [{"role": "user", "content": params.prompt}]
        else:
            body["prompt"] = params.completion_prompt
        greedy: dict[str, Json] = {**body, "temperature": 0, "top_p": 1}
        control = f"{arm.prefix}control"
        await ask_telling(session, control, greedy, path=arm.path)
        tells = telling(session.transcript, control)
        await session.post(f"{control}-again", arm.path, {**greedy, **tells})
        if params.parameter != "bad_words":
            await learn(session, control)
        targets = _targets(session.transcript, arm, params.parameter)
        for place, target in enumerate(targets if chat else targets[:1]):
            listed: dict[str, Json] = {params.parameter: target.value}
            await session.post(f"{arm.prefix}listed-{place}", arm.path, {**greedy, **tells, **listed})
            if chat and place == 0:
                logprobs = {name: value for name, value in tells.items() if name != "return_token_ids"}
                await session.post("listed-stream", arm.path, {**greedy, **logprobs, **listed, "stream": True})
                if params.parameter == "allowed_token_ids":
                    await session.post("listed-alone", arm.path, {**body, **tells, **listed})


def _targets(transcript: Transcript, arm: _Arm, parameter: str) -> tuple[_Target, ...]:
    """Return what to try on a route; empty where the controls do not bring it."""
    control = answer_at(transcript, f"{arm.prefix}control")
    if control is None:
        return ()
    if parameter == "bad_words":
        return _words(_said(control))
    found = told(transcript, f"{arm.prefix}control")
    if parameter == "stop_token_ids":
        places = [place for place in range(_MIDDLE, len(found) - 1) if _is_new(found, place)]
        places.sort(key=lambda place: (not found[place].is_word, place))
        return tuple(_Target([found[place].id], (found[place],), at=place) for place in places[:1])
    # Not the first token, so that the first one shows at once whether the list was heard.
    others = [piece for place, piece in enumerate(found) if place and _is_new(found, place) and _visible(piece)]
    others.sort(key=lambda piece: not piece.is_word)
    two = tuple(others[:2])
    return (_Target([piece.id for piece in two], two),) if len(two) == 2 else ()


def _is_new(found: Sequence[Piece], place: int) -> bool:
    return found[place].id is not None and not any(found[place].is_same(earlier) for earlier in found[:place])


def _visible(piece: Piece) -> bool:
    return piece.text is None or (bool(piece.text.strip()) and not piece.text.strip().startswith("<"))


def _words(text: str) -> tuple[_Target, ...]:
    """Return a short word of a text to ban and a long one, which is likelier to be spelled in several ways.

    Neither is the first word, nor part of another word before its place.
    """
    made: dict[str, _Target] = {}
    for found in re.finditer(r"(?<=\s)[^\W\d_]{2,}\b", text):
        word = found.group()
        if word not in made and text.find(word) == found.start():
            made[word] = _Target([word], word=word, at=found.start())
    by_length = sorted(made.values(), key=lambda target: (len(target.word), target.at))
    return tuple(by_length[:1] + by_length[1:][-1:])


def judge(transcript: Transcript, params: TokenListsParams) -> Iterator[Finding]:
    """Judge each route and mode against its controls."""
    for arm in _ARMS:
        controls = [reply_at(transcript, f"{arm.prefix}control{suffix}") for suffix in ("", "-again")]
        part, check = Part(route=arm.route), _CHECKS[params.parameter]
        answers = [found for found in controls if isinstance(found, reply.Answer)]
        if len(answers) < len(controls):
            if arm.route is Route.CHAT:  # another route is an extension: where it is absent nothing is said of it
                what = next((found.what for found in controls if isinstance(found, reply.Refusal | reply.Failure)), "")
                yield part.undetermined(check, f"a control was not answered: {what or 'not sent'}", *sent(*controls))
            continue
        targets = _targets(transcript, arm, params.parameter)
        if not targets:
            yield part.undetermined(check, _why_not(answers[0], params.parameter), *answers)
            continue
        yield from _judge_arm(transcript, arm, params.parameter, targets, answers)


def _why_not(control: reply.Answer, parameter: str) -> str:
    if parameter == "bad_words":
        return f"no word can be taken from {quote(_said(control), 60)}"
    return f"no token ids can be learned that fit, from {quote(_said(control), 60)}"


def _judge_arm(
    transcript: Transcript, arm: _Arm, parameter: str, targets: Sequence[_Target], controls: Sequence[reply.Answer]
) -> Iterator[Finding]:
    check = _CHECKS[parameter]
    asked = [(exchange.step, exchange) for exchange in transcript.steps(f"{arm.prefix}listed-")]
    findings: list[Finding] = []
    for step, _ in asked:
        name = step.removeprefix(f"{arm.prefix}listed-")
        place = int(name) if name.isdecimal() else 0
        part = Part(route=arm.route, mode=Mode.STREAM if name == "stream" else Mode.NON_STREAM)
        found = reply_at(transcript, step)
        missing = part.unless_answered(check, found, *controls)
        if missing is not None or not isinstance(found, reply.Answer) or place >= len(targets):
            findings += [missing] if missing is not None else []
        elif not _said(controls[0]).strip():
            findings.append(part.undetermined(check, "the control shows no text", found, *controls))
        elif parameter == "bad_words":
            findings.append(_away(part, targets[place], found, controls))
        elif parameter == "stop_token_ids":
            findings.append(_ends(part, targets[place], found, controls))
        else:
            findings.append(_only(part, targets[place], found, controls))
    yield from _words_together(findings) if parameter == "bad_words" else findings


def _words_together(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Let one word speak for the ban, and count a word that is missed beside it as a lesser fault."""
    for mode in (Mode.NON_STREAM, Mode.STREAM):
        mine = [finding for finding in findings if finding.mode is mode]
        works = [finding for finding in mine if finding.outcome is Outcome.HELD]
        if not works or len(mine) == 1:
            yield from mine[:1]
            continue
        yield works[0]
        missed = [finding for finding in mine if finding.outcome is Outcome.NO_EFFECT]
        for finding in missed:
            yield replace(
                finding,
                check=_EVERY,
                outcome=Outcome.VIOLATED,
                why=f"{finding.why}; another banned word does stay away",
            )
        if len(works) == len(mine):
            yield replace(works[-1], check=_EVERY)


def _away(part: Part, target: _Target, found: reply.Answer, controls: Sequence[reply.Answer]) -> Finding:
    text, own, seen = _said(found), _said(controls[0]), (found, *controls)
    word, end = target.word, target.at + len(target.word)
    said = f"with {quote(word, 20)} banned the text is {quote(text, 80)}"
    if text in {_said(control) for control in controls}:
        spelled = [piece.text for piece in pieces(found)] != [piece.text for piece in pieces(controls[0])]
        if spelled and pieces(found) and part.mode is Mode.NON_STREAM:
            return part.undetermined(_AWAY, f"{said}, the same, spelled with other tokens", *seen)
        return part.no_effect(_AWAY, f"{said}, as without the ban", *seen)
    before = own[: target.at].rstrip()  # the space is part of the banned token
    if not text.startswith(before):
        return part.undetermined(_AWAY, f"{said}, which goes another way before the word, from {quote(own)}", *seen)
    if text.startswith(own[:end]) or re.search(rf"\b{re.escape(word)}\b", text):
        return part.undetermined(_AWAY, f"{said}, where the word may be spelled with other tokens", *seen)
    return part.held(_AWAY, f"{said}, without the ban {quote(own, 80)}", *seen)


def _only(part: Part, target: _Target, found: reply.Answer, controls: Sequence[reply.Answer]) -> Finding:
    text, texts, seen = _said(found), [_said(control) for control in controls], (found, *controls)
    names = " and ".join(_name(piece) for piece in target.pieces)
    said = f"with {names} allowed the text is {quote(text, 80)}"
    got = pieces(found)
    if got and found.finish == "stop":
        got = got[:-1]
    inside = [any(piece.is_same(allowed) for allowed in target.pieces) for piece in got]
    if got:
        only, heard = all(inside), inside[0]
    else:
        rest = text
        for piece in target.pieces:
            rest = rest.replace((piece.text or "").strip(), "") if piece.text else rest
        only = bool(text.strip()) and not rest.strip()
        heard = only or len(rest) * 2 < len(text)
    if only and text not in texts:
        return part.held(_ONLY, said, *seen)
    if text in texts or not heard:
        return part.no_effect(_ONLY, f"{said}, without the list {quote(texts[0], 80)}", *seen)
    return part.violated(_ONLY, f"{said}: other tokens are in it", *seen)


def _ends(part: Part, target: _Target, found: reply.Answer, controls: Sequence[reply.Answer]) -> Finding:
    text, own, seen = _said(found), _said(controls[0]), (found, *controls)
    stop, got = target.pieces[0], pieces(found)
    usage = found.usage.completion if found.usage is not None else None
    count = len(got) or usage
    said = f"with {_name(stop)}, the answer's token {target.at + 1}, as a stop the text is {quote(text, 80)}"
    if text in {_said(control) for control in controls}:
        return part.no_effect(_ENDS, f"{said}, as without it", *seen)
    if not own.startswith(text.rstrip()):
        if any(piece.is_same(stop) for piece in got[:-1]):
            return part.violated(_ENDS, f"{said}, which goes on behind that token", *seen)
        return part.undetermined(_ENDS, f"{said}, which goes another way before it, from {quote(own)}", *seen)
    if found.finish != "stop":
        return part.violated(_ENDS, f"{said}, and finish_reason is {found.finish!r}", *seen)
    if count is not None and count not in (target.at, target.at + 1):
        return part.violated(_ENDS, f"{said}, which is {count} tokens", *seen)
    return part.held(_ENDS, f"{said}, and finish_reason is “stop”", *seen)


def _said(answer: reply.Answer) -> str:
    return answer.first.reasoning + answer.text


def _name(piece: Piece) -> str:
    return f"token {piece.id}" if piece.text is None else f"token {piece.id} {quote(piece.text, 20)}"


PROBE = Probe(
    id="sampling_token_lists",
    doc=__doc__ or "",
    checks=(
        Check(id=_AWAY, rule="A word listed in bad_words is not generated.", level=Level.MUST, source=_SOURCE),
        Check(
            id=_EVERY,
            rule="A long word stays away as a short one does, however many tokens it is.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/32557",
        ),
        Check(
            id=_ONLY,
            rule="No token is generated that allowed_token_ids does not list.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_ENDS,
            rule="The text ends at the first token that stop_token_ids lists, with finish_reason “stop”.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=TokenListsParams,
    drive=drive,
    judge=judge,
    requests=8,
    prompt_tokens=220,
    output_tokens=190,
)
