"""``logit_bias`` bans a token and forces another, judged by tokens and not by letters.

What it does: asks greedily for four tokens, twice, and learns their ids (from the answer, else from ``/tokenize``).
Then bans the first token, and forces a later one: plain, streamed, with no other sampling parameter, and on the
completions route. Where no id can be learned, forces two small ids that every real vocabulary has, and looks for a
text that is one piece over and over.

Why it matters: classifiers confine answers with it, others ban a word with it; samplers for TPUs are said to drop it
with a 200.

How it could be fooled: by a near-tie at the first token, so the two controls must begin alike; by two tokens that look
alike, where the server tells texts and no ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at, sent
from servecheck.probes._token_ids import Piece, ask_telling, learn, pieces, telling, told
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-logit_bias"
_BAN, _FORCE = "banned-token-stays-away", "forced-token-is-all-there-is"
_CHAT, _STREAM = Part(), Part(mode=Mode.STREAM)
_COMPLETIONS = Part(route=Route.COMPLETIONS)
_BLIND = (300, 500)  # inside every real vocabulary; what they stand for does not matter
_ONE_PIECE = re.compile(r"(.{1,40}?)\1{2,}", re.DOTALL)


class LogitBiasParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Tell me in a few sentences what a harbour is.", description="An open question.")
    completion_prompt: str = Field(default="The harbour was busy, because", description="A text to continue.")
    completions: bool = Field(
        default=True, description="Whether the completions route is asked too, where it is served."
    )
    max_tokens: int = Field(default=4, ge=3, le=32, description="Tokens of each answer.")


async def drive(session: Session, params: LogitBiasParams, _: Transcript | None) -> None:
    """Two controls, then the ban and the forced token on each route and in both modes."""
    alone: dict[str, Json] = {
        "messages": [{"role": "user", "content": params.prompt}],
        "max_tokens": params.max_tokens,
    }
    base: dict[str, Json] = {**alone, "temperature": 0, "top_p": 1}
    await ask_telling(session, "control", base)
    tells = telling(session.transcript, "control")
    await session.chat("control-again", {**base, **tells})
    await learn(session, "control")
    banned, forced = _targets(session.transcript)
    if forced is None:
        for token in _BLIND:
            await session.chat(f"blind-{token}", {**base, **tells, "logit_bias": {str(token): 100}})
    else:
        if banned is not None:
            await session.chat("ban", {**base, **tells, "logit_bias": {str(banned.id): -100}})
        force: dict[str, Json] = {"logit_bias": {str(forced.id): 100}}
        await session.chat("force", {**base, **tells, **force})
        await session.chat("force-stream", {**base, **force, "stream": True})
        await session.chat("force-alone", {**alone, **force})
    if not params.completions:
        return
    token = _BLIND[0] if forced is None or forced.id is None else forced.id
    text: dict[str, Json] = {"prompt": params.completion_prompt, "max_tokens": params.max_tokens, "temperature": 0}
    await session.post("completions-control", "/completions", text)
    await session.post("completions-force", "/completions", {**text, "logit_bias": {str(token): 100}})


def _targets(transcript: Transcript) -> tuple[Piece | None, Piece | None]:
    """Return the token to ban and the one to force; ``None`` where no id is known, or no second token."""
    found = told(transcript, "control")
    if not found or found[0].id is None:
        return None, None
    first = found[0]
    others = [piece for piece in found[1:] if piece.id is not None and piece.id != first.id]
    forced = next((piece for piece in others if piece.is_word), None)
    if forced is None:
        forced = next((piece for piece in others if piece.text is None), first)
    return first, forced


def judge(transcript: Transcript, _: LogitBiasParams) -> Iterator[Finding]:
    """Judge the banned token by its absence and the forced one by its being alone."""
    control, again = reply_at(transcript, "control"), reply_at(transcript, "control-again")
    banned, forced = _targets(transcript)
    if forced is None:
        yield _blind(transcript, control, again)
    else:
        if banned is not None:
            yield _ban(transcript, banned, control, again)
        for step, part in (("force", _CHAT), ("force-stream", _STREAM), ("force-alone", _CHAT)):
            yield _force(part, reply_at(transcript, step), forced, control, again)
    given = reply_at(transcript, "completions-force")
    before = reply_at(transcript, "completions-control")
    if isinstance(before, reply.Answer):  # the route is an extension: where it is absent nothing is said of it
        yield _force(_COMPLETIONS, given, forced or Piece(), before)


def _ban(transcript: Transcript, banned: Piece, control: reply.Reply | None, again: reply.Reply | None) -> Finding:
    found = reply_at(transcript, "ban")
    missing = _CHAT.unless_answered(_BAN, found, control, again)
    if missing is not None:
        return missing
    assert isinstance(found, reply.Answer)
    seen = sent(found, control, again)
    name = _name(banned)
    if not _begin_alike(control, again):
        return _CHAT.undetermined(_BAN, "the two controls begin with different tokens", *seen)
    got, texts = pieces(found), _texts(control, again)
    said = f"with a bias of -100 on {name} the answer is {quote(_said(found), 60)}"
    if not got:
        if _said(found) in texts:
            return _CHAT.no_effect(_BAN, f"{said}, as without it", *seen)
        begun = {_first_word(text) for text in texts}
        outcome = _CHAT.undetermined if _first_word(_said(found)) in begun else _CHAT.held
        return outcome(_BAN, f"{said}, without it {quote(next(iter(texts), ''), 60)}", *seen)
    if not any(piece.is_same(banned) for piece in got):
        return _CHAT.held(_BAN, f"{said}, whose first token is {_name(got[0])}", *seen)
    if got[0].is_same(banned):
        return _CHAT.no_effect(_BAN, f"{said}: the banned token comes first all the same", *seen)
    return _CHAT.violated(_BAN, f"{said}: the banned token is away from the first place only", *seen)


def _force(part: Part, found: reply.Reply | None, forced: Piece, *controls: reply.Reply | None) -> Finding:
    missing = part.unless_answered(_FORCE, found, *controls)
    if missing is not None:
        return missing
    assert isinstance(found, reply.Answer)
    seen = sent(found, *controls)
    text, got, texts = _said(found), pieces(found), _texts(*controls)
    said = f"with a bias of 100 on {_name(forced)} the answer is {quote(text, 60)}"
    if got:
        alone = all(piece.is_same(forced) for piece in got)
    elif forced.text:
        alone = text.replace(forced.text.strip(), "").strip() == "" and len(text) >= 2 * len(forced.text.strip())
    else:
        alone = _is_one_piece(text)
    if alone and text not in texts:
        return part.held(_FORCE, said, *seen)
    if alone:
        return part.undetermined(_FORCE, f"{said}, and so it is without it", *seen)
    if text in texts or not (_is_one_piece(text) or _has(got, forced, text)):
        # Where nothing is forced, a text without temperature, or at a near-tie, need not be the control's.
        return part.no_effect(_FORCE, f"{said}, without it {quote(next(iter(texts), ''), 60)}", *seen)
    return part.violated(_FORCE, f"{said}, which is not that token alone", *seen)


def _has(got: tuple[Piece, ...], forced: Piece, text: str) -> bool:
    """Tell whether the forced token comes first, or more than once: more than chance would bring."""
    if got:
        return got[0].is_same(forced) or sum(piece.is_same(forced) for piece in got) > 1
    return bool(forced.text) and text.count((forced.text or "").strip()) > 1


def _blind(transcript: Transcript, control: reply.Reply | None, again: reply.Reply | None) -> Finding:
    """Judge two ids whose texts are not known: each must give one piece over and over, and not the same one."""
    answers = [reply_at(transcript, f"blind-{token}") for token in _BLIND]
    for found in answers:
        missing = _CHAT.unless_answered(_FORCE, found, control, again)
        if missing is not None:
            return missing
    seen, texts = sent(*answers, control, again), _texts(control, again)
    said = [_said(found) for found in answers if isinstance(found, reply.Answer)]
    why = f"no token's id can be learned; {_BLIND[0]} and {_BLIND[1]} forced blindly give "
    why += f"{quote(said[0], 40)} and {quote(said[1], 40)}"
    if len(texts) != 1:
        return _CHAT.undetermined(_FORCE, f"{why}; the two controls differ", *seen)
    if all(_is_one_piece(text) and text not in texts for text in said) and said[0] != said[1]:
        return _CHAT.held(_FORCE, why, *seen)
    if all(text in texts for text in said):
        return _CHAT.no_effect(_FORCE, f"{why}, as without a bias", *seen)
    return _CHAT.undetermined(_FORCE, f"{why}; without a bias {quote(next(iter(texts)), 40)}", *seen)


def _begin_alike(control: reply.Reply | None, again: reply.Reply | None) -> bool:
    if not isinstance(control, reply.Answer) or not isinstance(again, reply.Answer):
        return False
    one, other = pieces(control), pieces(again)
    if one and other:
        return one[0].is_same(other[0])
    return _first_word(_said(control)) == _first_word(_said(again))


def _texts(*replies: reply.Reply | None) -> dict[str, None]:
    return dict.fromkeys(_said(found) for found in replies if isinstance(found, reply.Answer))


def _first_word(text: str) -> str:
    return next(iter(text.split()), "")


def _said(answer: reply.Answer) -> str:
    return answer.first.reasoning + answer.text


def _name(piece: Piece) -> str:
    number = "" if piece.id is None else f"token {piece.id}"
    text = "" if piece.text is None else quote(piece.text, 20)
    return f"{number} {text}".strip() or "a token"


def _is_one_piece(text: str) -> bool:
    """Tell whether a text is one piece over and over; a space in front of the first one may be lost."""
    return any(_ONE_PIECE.fullmatch(form) for form in (text, f" {text.strip()}") if form.strip())


def cost(params: LogitBiasParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    requests = 8 if params.completions else 6
    return Cost(requests=requests, prompt_tokens=30 * requests, output_tokens=requests * params.max_tokens)


PROBE = Probe(
    id="sampling_logit_bias",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_BAN,
            rule="A token with a logit_bias of -100 is not generated.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_FORCE,
            rule="A token with a logit_bias of 100 is all that is generated.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=LogitBiasParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
