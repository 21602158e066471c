"""The model sees the image that it was sent, each image of several, and a damaged image is refused.

What it does: asks a question in text alone, with a picture of red stripes, with one of blue squares of the same size,
with the stripes in other bytes (a long comment inside the file), with both pictures, with the stripes twice and with
less detail; then with a file that is no picture and with a URL that is none. Where there are no log probabilities, six
plain colours more have to tell. Anthropic's route, where there is one, gets the stripes too.

Why it matters: a server can drop the picture, or print its bytes into the prompt, and answer 200 with a description
of something made up.

How it could be fooled: nobody asks a small model what it sees. A picture counts as seen where another one moves the
answer or the log probabilities of its tokens; without log probabilities an equal text says little.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._fixtures import data_url, picture, plain
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.read import reply
from servecheck.read.logprobs import tokens
from servecheck.read.text import dig, garbage, number, quote

__all__ = ["PROBE"]

_PART = Part()
_ANYWHERE = Part(route=Route.MESSAGES)
_OK = 200
_SEEN, _PROMPT = "image-reaches-the-model", "image-makes-the-prompt-longer"
_PIXELS, _SANE = "image-is-read-as-pixels", "answer-to-an-image-is-text"
_MESSAGES = "messages-route-drops-no-image"
_SEVERAL, _DETAIL, _BAD = "every-image-is-seen", "detail-is-accepted", "damaged-image-is-refused"
_GUIDE = "https://platform.openai.com/docs/guides/images-vision"
_VLLM = "https://docs.vllm.ai/en/latest/features/multimodal_inputs/"
_COMMENT = 6_000  # letters that no compression shortens: some thousand tokens where they are read as text
_SLACK = 64  # tokens; a template may tell the model a little more
_COLOURS = ((0, 160, 0), (250, 220, 0), (120, 0, 120), (0, 0, 0), (255, 255, 255), (255, 120, 0))
_UNSURE = -0.001  # a log probability below it moves with what the model read


class VisionImageParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default="Describe the picture in one sentence.", description="The question beside the picture.")
    max_tokens: int = Field(default=12, ge=1, le=1024, description="Room for each answer.")


async def drive(session: Session, params: VisionImageParams, _: Transcript | None) -> None:
    """The control, then pictures, then what is none."""
    await _ask(session, params, "text")
    stripes, squares = data_url(picture("stripes")), data_url(picture("squares"))
    await _ask(session, params, "stripes", stripes)
    await _ask_messages(session, params)
    if answer_at(session.transcript, "stripes") is None:
        return
    comment = "".join(session.nonce(60) for _ in range(_COMMENT // 60))
    await _ask(session, params, "squares", squares)
    await _ask(session, params, "again", stripes)
    if _blind(session.transcript):
        for number, colour in enumerate(_COLOURS):
            await _ask(session, params, f"colour-{number}", data_url(plain(colour)))
    await _ask(session, params, "commented", data_url(picture("stripes", comment=comment)))
    await _ask(session, params, "both", stripes, squares)
    await _ask(session, params, "twice", stripes, stripes)
    await _ask(session, params, "low", stripes, detail="low")
    await _ask(session, params, "damaged", data_url(b"\x89PNG\r\n\x1a\n" + b"this is no picture at all"))
    await _ask(session, params, "no-url", "data:image/png;base64,@@@ this is not base64 @@@")


async def _ask(session: Session, params: VisionImageParams, step: str, *urls: str, detail: str = "") -> None:
    """Ask with log probabilities, and once without where they are refused for the text alone."""
    parts: list[Json] = [{"type": "text", "text": params.prompt}]
    for url in urls:
        shown: dict[str, Json] = {"url": url, "detail": detail} if detail else {"url": url}
        parts.append({"type": "image_url", "image_url": shown})
    messages: Json = [{"role": "user", "content": parts}]
    body: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0}
    telling: dict[str, Json] = {"logprobs": True, "top_logprobs": 1}
    if step == "text" or isinstance(reply_at(session.transcript, "text"), reply.Answer):
        await session.chat(step, {**body, **telling})
    if not isinstance(reply_at(session.transcript, "text"), reply.Answer):
        await session.chat(step if step != "text" else "text-plain", body)


async def _ask_messages(session: Session, params: VisionImageParams) -> None:
    """Ask on Anthropic's route, where there is one: a word that nobody has said, and the image before it."""
    text: Json = {"type": "text", "text": f"{session.nonce()} {params.prompt}"}
    source: Json = {
        "type": "base64",
        "media_type": "image/png",
        "data": data_url(picture("stripes")).partition(",")[2],
    }
    for step, parts in (("messages-text", [text]), ("messages-image", [{"type": "image", "source": source}, text])):
        messages: Json = [{"role": "user", "content": parts}]
        exchange = await session.post(step, "/messages", {"max_tokens": params.max_tokens, "messages": messages})
        if exchange.status != _OK:
            return


def _blind(transcript: Transcript) -> bool:
    """Tell whether two pictures gave one text without log probabilities: more pictures then have to tell."""
    stripes, squares = answer_at(transcript, "stripes"), answer_at(transcript, "squares")
    if stripes is None or squares is None:
        return False
    return not tokens(stripes) and not _unlike(stripes, squares)


def _control(transcript: Transcript) -> reply.Reply | None:
    return answer_at(transcript, "text") or reply_at(transcript, "text-plain") or reply_at(transcript, "text")


def judge(transcript: Transcript, _: VisionImageParams) -> Iterator[Finding]:
    """Judge whether one picture is taken, then what it does."""
    yield from _messages(transcript)
    text, stripes = _control(transcript), reply_at(transcript, "stripes")
    missing = _PART.unless_answered(_SEEN, stripes, text, what="an image")
    if missing is not None:
        yield missing
        return
    if not isinstance(stripes, reply.Answer) or not isinstance(text, reply.Answer):
        yield _PART.undetermined(_SEEN, "the control without an image was not answered", *sent(text, stripes))
        return
    grown = _grown(text, stripes)
    yield _seen(transcript, text, stripes, grown)
    yield _prompt(text, stripes, grown)
    yield _pixels(transcript, stripes)
    yield _sane(transcript, text)
    yield _several(transcript, stripes)
    low = reply_at(transcript, "low")
    yield _PART.unless_answered(_DETAIL, low, stripes, what="detail low") or _PART.held(
        _DETAIL, "an image with detail low is answered", *sent(low)
    )
    yield from _bad(transcript)


def _prompt_tokens(answer: reply.Reply | None) -> int | None:
    return answer.usage.prompt if isinstance(answer, reply.Answer) and answer.usage is not None else None


def _grown(before: reply.Reply | None, after: reply.Reply | None) -> int | None:
    one, other = _prompt_tokens(before), _prompt_tokens(after)
    return None if one is None or other is None else other - one


def _says(answer: reply.Answer) -> tuple[str, tuple[float | None, ...]]:
    return answer.first.reasoning + answer.text, tuple(token.logprob for token in tokens(answer))


def _unlike(one: reply.Answer, other: reply.Answer) -> bool:
    return _says(one) != _says(other)


def _seen(transcript: Transcript, text: reply.Answer, stripes: reply.Answer, grown: int | None) -> Finding:
    squares, again = answer_at(transcript, "squares"), answer_at(transcript, "again")
    missing = _PART.unless_answered(_SEEN, reply_at(transcript, "squares"), text, what="another image")
    if missing is not None or squares is None:
        return missing or _PART.undetermined(_SEEN, "not sent")
    seen = sent(text, stripes, squares, again)
    noisy = again is not None and _unlike(stripes, again)
    if _unlike(stripes, squares):
        where = "text" if _says(stripes)[0] != _says(squares)[0] else "log probabilities"
        if not noisy:
            return _PART.held(_SEEN, f"another picture changes the {where}", *seen)
        if where == "text" and again is not None and _says(stripes)[0] == _says(again)[0]:
            return _PART.held(_SEEN, "another picture changes the text, which the same picture repeats", *seen)
        why = f"another picture changes the {where}, but so does the same picture again"
        return _PART.undetermined(_SEEN, why, *seen)
    logprobs = [value for value in _says(stripes)[1] if value is not None]
    said = quote(_says(stripes)[0], 50)
    if grown is not None and grown <= 0:
        return _PART.no_effect(_SEEN, f"the image is dropped: no prompt token more, the same answer {said}", *seen)
    if any(value < _UNSURE for value in logprobs):
        why = f"two pictures give one answer, to the last digit of {len(logprobs)} log probabilities: {said}"
        return _PART.no_effect(_SEEN, why, *seen)
    if not logprobs and not _unlike(text, stripes):
        return _PART.no_effect(_SEEN, f"both pictures give the answer to the text alone: {said}", *seen)
    colours = [
        answer for step in transcript.steps("colour-") if (answer := answer_at(transcript, step.step)) is not None
    ]
    if len(colours) == len(_COLOURS):
        shown = sent(*seen, *colours)
        if any(_unlike(stripes, answer) for answer in colours):
            return _PART.held(_SEEN, "of eight pictures one changes the text", *shown)
        return _PART.no_effect(_SEEN, f"eight different pictures give the very same text: {said}", *shown)
    why = "the model is certain of every token" if logprobs else "there are no log probabilities"
    return _PART.undetermined(_SEEN, f"two different pictures give the same text, and {why}: {said}", *seen)


def _messages(transcript: Transcript) -> Iterator[Finding]:
    """Judge Anthropic's route by the length of its prompts; where it is not offered there is nothing to judge."""
    exchange, control = transcript.get("messages-image"), transcript.get("messages-text")
    if exchange is None or control is None:
        return
    body = reply.json_body(exchange)
    if isinstance(body, reply.Refusal):
        yield _ANYWHERE.held(_MESSAGES, f"an image in /messages is refused: {body.what}", exchange)
        return
    if isinstance(body, reply.Failure):
        yield _ANYWHERE.violated(_MESSAGES, f"an image in /messages: {body.what}", exchange)
        return
    before, after = _input_tokens(control), _input_tokens(exchange)
    if before is None or after is None:
        yield _ANYWHERE.undetermined(_MESSAGES, "usage does not say how long the prompts are", exchange, control)
        return
    said = f"/messages: {after - before:+d} input tokens for the image"
    made = _ANYWHERE.held if after > before else _ANYWHERE.no_effect
    yield made(_MESSAGES, said if after > before else f"{said}: it is dropped", exchange, control)


def _input_tokens(exchange: Exchange) -> int | None:
    """Return all tokens of a prompt; this API counts those from the cache apart."""
    body = reply.json_body(exchange)
    if isinstance(body, reply.Refusal | reply.Failure):
        return None
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    first, *others = (number(dig(body, "usage", name)) for name in names)
    return None if first is None else first + sum(other or 0 for other in others)


def _prompt(text: reply.Answer, stripes: reply.Answer, grown: int | None) -> Finding:
    if grown is None:
        return _PART.undetermined(_PROMPT, "usage does not say how long the prompts are", text, stripes)
    said = f"{grown:+d} prompt tokens for the image"
    return (_PART.held if grown > 0 else _PART.violated)(_PROMPT, said, text, stripes, image_tokens=grown)


def _pixels(transcript: Transcript, stripes: reply.Answer) -> Finding:
    commented = reply_at(transcript, "commented")
    missing = _PART.unless_answered(_PIXELS, commented, stripes, what="the same picture in other bytes")
    if missing is not None:
        return missing
    longer = _grown(stripes, commented)
    seen = sent(stripes, commented)
    if longer is None:
        return _PART.undetermined(_PIXELS, "usage does not say how long the prompts are", *seen)
    said = f"the same picture with {_COMMENT} bytes of comment: {longer:+d} prompt tokens"
    if abs(longer) <= _SLACK:
        return _PART.held(_PIXELS, said, *seen)
    return _PART.violated(_PIXELS, f"{said}: the bytes of the file are read as text", *seen)


def _sane(transcript: Transcript, text: reply.Answer) -> Finding:
    answers = [answer for step in ("stripes", "squares", "both") if (answer := answer_at(transcript, step)) is not None]
    for answer in answers:
        said = _says(answer)[0]
        sign = garbage(said) or ("no text" if not said.strip() and _says(text)[0].strip() else "")
        if sign and not garbage(_says(text)[0]):
            why = f"{sign}: {quote(said)}; to the text alone {quote(_says(text)[0], 40)}"
            return _PART.violated(_SANE, why, answer, text)
    return _PART.held(_SANE, quote(_says(answers[0])[0], 60) if answers else "no answer", *answers)


def _several(transcript: Transcript, stripes: reply.Answer) -> Finding:
    both, twice = reply_at(transcript, "both"), reply_at(transcript, "twice")
    missing = _PART.unless_answered(_SEVERAL, both, stripes, what="two images")
    if missing is not None or not isinstance(both, reply.Answer):
        return missing or _PART.undetermined(_SEVERAL, "not sent")
    one, two = _grown(_control(transcript), stripes), _grown(_control(transcript), both)
    seen = sent(stripes, both, twice)
    if one is None or two is None or one <= 0:
        return _PART.undetermined(_SEVERAL, "the prompts do not tell how many images they hold", *seen)
    said = f"one image takes {one} prompt tokens, two take {two}"
    if two < 1.5 * one:
        return _PART.violated(_SEVERAL, f"{said}: the second is dropped", *seen)
    if isinstance(twice, reply.Answer) and tokens(both) and not _unlike(both, twice):
        return _PART.violated(_SEVERAL, f"{said}, but another second image changes nothing", *seen)
    return _PART.held(_SEVERAL, said, *seen)


def _bad(transcript: Transcript) -> Iterator[Finding]:
    for step, what in (("damaged", "a file that is no picture"), ("no-url", "a data URL that is no base64")):
        found = reply_at(transcript, step)
        if found is None:
            continue
        if isinstance(found, reply.Refusal):
            yield _PART.held(_BAD, f"{what} is refused: {found.what}", found)
        elif isinstance(found, reply.Failure):
            yield _PART.violated(_BAD, f"{what}: {found.what}", found)
        else:
            yield _PART.violated(_BAD, f"{what} is answered: {quote(found.text, 50)}", found)


PROBE = Probe(
    id="vision_image",
    doc=__doc__ or "",
    checks=(
        Check(id=_SEEN, rule="Another picture changes the answer.", level=Level.MUST, source=_GUIDE),
        Check(id=_PROMPT, rule="A picture adds prompt tokens.", level=Level.MUST, source=_GUIDE),
        Check(
            id=_PIXELS,
            rule="The same picture in other bytes makes the same prompt.",
            level=Level.MUST,
            source=_GUIDE,
        ),
        Check(
            id=_SANE,
            rule="The answer to a picture is text, where that to the question alone is.",
            level=Level.MUST,
            source=_GUIDE,
        ),
        Check(
            id=_SEVERAL,
            rule="Two pictures in one message are both seen.",
            level=Level.SHOULD,
            source=_VLLM,
        ),
        Check(
            id=_DETAIL,
            rule="The detail of an image may be given.",
            level=Level.SHOULD,
            source=_GUIDE,
        ),
        Check(
            id=_MESSAGES,
            rule="An image in a request to /messages is refused, or adds input tokens.",
            level=Level.MUST,
            source="https://docs.anthropic.com/en/api/messages",
        ),
        Check(
            id=_BAD,
            rule="What is no picture is refused with a 4xx.",
            level=Level.SHOULD,
            source="https://platform.openai.com/docs/guides/error-codes",
        ),
    ),
    params=VisionImageParams,
    drive=drive,
    judge=judge,
    requests=12,
    prompt_tokens=950,
    output_tokens=110,
)
