"""The tokenizer route counts as usage does, and gives the text back.

What it does: sends a text with accents, CJK, an emoji and two spaces to ``/tokenize`` in the form that vLLM and SGLang
take, and in llama.cpp's where that brings no tokens; compares the count with ``prompt_tokens`` of a completion of the
same text (of a chat of the same messages, where the route takes messages), and sends the tokens to ``/detokenize``.

Why it matters: clients that cut prompts to fit, or price them in advance, trust this count.

How it could be fooled: by a special token at the beginning that one side adds and the other does not, which is a true
difference of counts and is reported as one. A server without the route is not at fault: it is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._context import tokens_at
from servecheck.probes._findings import Part
from servecheck.probes._steps import reply_at, sent
from servecheck.probes._token_ids import dialects, listed_ids
from servecheck.read import reply
from servecheck.read.text import dig, number, quote, string

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/"
_PART = Part(route=Route.NONE, mode=Mode.NONE)
_OFFERED, _COUNT = "text-becomes-tokens", "token-count-is-the-usage"
_CHAT, _BACK, _LENGTH = "chat-token-count-is-the-usage", "tokens-give-the-text-back", "count-is-the-number-of-tokens"
_NOT_OFFERED = (404, 405, 501)


class TokenizeParams(Params):
    """What may be chosen in YAML."""

    text: str = Field(
        default="The quick brown fox said: naïve café, 世界 🦊!\nTwo  spaces, 3.14 and a tab\tend it.",
        description="The text to take apart and put together again.",
    )
    message: str = Field(default="Name three colours, please.", description="The user's message of the chat.")


async def drive(session: Session, params: TokenizeParams, _: Transcript | None) -> None:
    """Tokenize, compare with usage, detokenize; then the same for a chat."""
    plain, content = dialects(params.text, special=True)[:2]
    await session.post_server("tokenize", "/tokenize", plain[1])
    if _tokens(session.transcript, "tokenize") == []:
        await session.post_server("tokenize-content", "/tokenize", content[1])
    found = _found(session.transcript)
    tokens = _tokens(session.transcript, found.step) if found is not None else None
    if not tokens:
        return
    await session.post_server("detokenize", "/detokenize", {"tokens": list[Json](tokens)})
    await session.post("completion", "/completions", {"prompt": params.text, "max_tokens": 1, "temperature": 0})
    messages: Json = [{"role": "user", "content": params.message}]
    if found is not None and found.step == "tokenize":
        await session.post_server("tokenize-chat", "/tokenize", {"messages": messages})
        await session.chat("chat", {"messages": messages, "max_tokens": 1, "temperature": 0})


def _found(transcript: Transcript) -> Exchange | None:
    return transcript.get("tokenize-content") or transcript.get("tokenize")


def _tokens(transcript: Transcript, step: str) -> list[int] | None:
    """Return the token ids in the reply to a step, ``None`` where it holds no list of them."""
    exchange = transcript.get(step)
    return listed_ids(exchange) if exchange is not None else None


def judge(transcript: Transcript, params: TokenizeParams) -> Iterator[Finding]:
    """Judge the tokens by usage and by the text that they give back."""
    found = _found(transcript)
    if found is None:
        yield _PART.undetermined(_OFFERED, "the route was not asked")
        return
    body = reply.json_body(found)
    if isinstance(body, reply.Refusal):
        offered = body.code not in _NOT_OFFERED
        yield _PART.refused(_OFFERED, f"{'refused' if offered else 'not offered'}: POST /tokenize: {body.what}", found)
        return
    if isinstance(body, reply.Failure):
        yield _PART.violated(_OFFERED, f"POST /tokenize: {body.what}", found)
        return
    tokens = _tokens(transcript, found.step)
    if not tokens:
        yield _PART.violated(_OFFERED, f"no list of token ids in {quote(found.body)}", found)
        return
    yield _PART.held(_OFFERED, f"{len(params.text)} characters are {len(tokens)} tokens", found)
    yield from _length(found, body, tokens)
    yield _count(transcript, found, len(tokens))
    yield _back(transcript, found, params.text)
    yield from _chat(transcript)


def _length(found: Exchange, body: Json, tokens: list[int]) -> Iterator[Finding]:
    count = number(dig(body, "count"))
    if count is not None:
        why = f"count is {count}, and there are {len(tokens)} tokens"
        yield (_PART.held if count == len(tokens) else _PART.violated)(_LENGTH, why, found)


def _count(transcript: Transcript, found: Exchange, tokens: int) -> Finding:
    answer, billed = reply_at(transcript, "completion"), tokens_at(transcript, "completion")
    seen = (found, *sent(answer))
    if billed is None:
        what = answer.what if isinstance(answer, reply.Refusal | reply.Failure) else "no usage"
        chat, of_chat = _tokens(transcript, "tokenize-chat"), tokens_at(transcript, "chat")
        if not chat or of_chat is None:
            return _PART.undetermined(_COUNT, f"no completion to compare the count with: {what}", *seen)
        why = f"{len(chat)} tokens from the tokenizer, prompt_tokens {of_chat} of a chat; no completion: {what}"
        return (_PART.held if of_chat == len(chat) else _PART.violated)(_COUNT, why, *seen)
    why = f"{tokens} tokens from the tokenizer, prompt_tokens {billed} of a completion of the same text"
    return (_PART.held if billed == tokens else _PART.violated)(_COUNT, why, *seen, tokens=tokens, prompt_tokens=billed)


def _back(transcript: Transcript, found: Exchange, text: str) -> Finding:
    exchange = transcript.get("detokenize")
    if exchange is None:
        return _PART.undetermined(_BACK, "the tokens were not sent back", found)
    body = reply.json_body(exchange)
    if isinstance(body, reply.Refusal):
        return _PART.refused(_BACK, f"POST /detokenize: {body.what}", exchange, found)
    if isinstance(body, reply.Failure):
        return _PART.violated(_BACK, f"POST /detokenize: {body.what}", exchange)
    given = next((value for name in ("prompt", "text", "content") if (value := string(dig(body, name)))), None)
    if given is None:
        return _PART.violated(_BACK, f"no text in {quote(exchange.body)}", exchange, found)
    # A special token in front (of the beginning of a text) may be shown, and a space before the first word.
    if given.endswith(text) and len(given) - len(text) <= 32:
        return _PART.held(_BACK, f"the text comes back: {quote(given, 60)}", exchange, found)
    at = next((place for place, pair in enumerate(zip(given, text, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(given), len(text)) if at is None else at
    why = f"another text comes back, from character {at}: {quote(given[at : at + 30])} for {quote(text[at : at + 30])}"
    return _PART.violated(_BACK, why, exchange, found)


def _chat(transcript: Transcript) -> Iterator[Finding]:
    """Judge the count of a chat, where the route takes messages; it is an extension."""
    tokens, billed = _tokens(transcript, "tokenize-chat"), tokens_at(transcript, "chat")
    if not tokens or billed is None:
        return
    asked, answer = transcript.get("tokenize-chat"), reply_at(transcript, "chat")
    why = f"{len(tokens)} tokens from the tokenizer, prompt_tokens {billed} of a chat of the same messages"
    seen = (*([asked] if asked is not None else []), *sent(answer))
    yield (_PART.held if billed == len(tokens) else _PART.violated)(_CHAT, why, *seen)


PROBE = Probe(
    id="tokenize_round_trip",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_OFFERED,
            rule="POST /tokenize turns a text into token ids.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_COUNT,
            rule="A text has as many tokens for the tokenizer as prompt_tokens counts.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_BACK,
            rule="POST /detokenize gives the text of the tokens back.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CHAT,
            rule="Messages have as many tokens for the tokenizer as prompt_tokens of their chat counts.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_LENGTH,
            rule="Where a count is given, it is the number of the tokens.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=TokenizeParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=90,
    output_tokens=2,
)
