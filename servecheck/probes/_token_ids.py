"""Learns token ids from the server under test: from what an answer tells, else from its tokenizer; never makes one up.

Three engines take three forms of ``POST /tokenize``; all are in :func:`dialects`.
"""

from __future__ import annotations

from dataclasses import dataclass

from servecheck.model import Exchange, Json, Transcript
from servecheck.probe import Session
from servecheck.probes._steps import answer_at
from servecheck.read import reply
from servecheck.read.logprobs import tokens
from servecheck.read.text import dig, number

__all__ = ["Piece", "ask_telling", "dialects", "ids_at", "learn", "listed_ids", "pieces", "telling", "told"]

_IDS: dict[str, Json] = {"return_token_ids": True}
_CHAT_LOGPROBS: dict[str, Json] = {"logprobs": True, "top_logprobs": 2}
_TEXT_LOGPROBS: dict[str, Json] = {"logprobs": 2}
_NO_ROUTE = (404, 405, 501)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One generated token; what the server does not tell is ``None``."""

    text: str | None = None
    id: int | None = None

    def is_same(self, other: Piece) -> bool:
        """Tell whether two pieces are one token: by their ids where both are known, else by their texts."""
        if self.id is not None and other.id is not None:
            return self.id == other.id
        return self.text is not None and self.text == other.text

    @property
    def is_word(self) -> bool:
        """Whether the token is a word that shows in the text; an unknown text is none."""
        return (self.text or "").strip().isalpha()


async def ask_telling(
    session: Session, step: str, body: dict[str, Json], *, path: str = "/chat/completions"
) -> Exchange:
    """Ask with all that tells the tokens of the answer, and again with less where that is refused."""
    logprobs = _CHAT_LOGPROBS if path == "/chat/completions" else _TEXT_LOGPROBS
    exchange = await session.post(step, path, {**body, **logprobs, **_IDS})
    for fewer in (logprobs, dict[str, Json]()):
        if not isinstance(reply.completion(exchange), reply.Refusal):
            break
        exchange = await session.post(step, path, {**body, **fewer})
    return exchange


def telling(transcript: Transcript, control: str) -> dict[str, Json]:
    """Return the fields that the server took with the control, to be sent with what is compared with it."""
    exchange = transcript.get(control)
    request = exchange.request if exchange is not None else None
    if not isinstance(request, dict):
        return {}
    return {name: value for name, value in request.items() if name in _IDS or name in _CHAT_LOGPROBS}


def pieces(answer: reply.Answer) -> tuple[Piece, ...]:
    """Return the tokens of an answer's first choice, end token included, as far as the answer tells them."""
    seen = tokens(answer)
    listed = dig(answer.body, "choices", 0, "token_ids")
    ids = [number(entry) for entry in listed] if isinstance(listed, list) else [token.id for token in seen]
    if seen and len(ids) != len(seen):
        ids = [token.id for token in seen]
    if not seen:
        return tuple(Piece(id=found) for found in ids)
    # An end token without a text is a token all the same, but says nothing by its text.
    return tuple(Piece(text=token.text or None, id=found) for token, found in zip(seen, ids, strict=True))


async def learn(session: Session, control: str) -> None:
    """Ask the tokenizer for the ids of a control's answer, where the answer tells none."""
    text = _to_tokenize(session.transcript, control)
    if not text:
        return
    for suffix, body in dialects(text):
        step = f"{control}-ids{suffix}"
        exchange = await session.post_server(step, "/tokenize", body)
        if listed_ids(exchange) or exchange.status in _NO_ROUTE:
            return


def told(transcript: Transcript, control: str) -> tuple[Piece, ...]:
    """Return the tokens of a control's answer with their ids, from the answer or from the tokenizer.

    Empty where no id is known. Texts are unknown where the answer has no logprobs.
    """
    answer = answer_at(transcript, control)
    if answer is None:
        return ()
    found = pieces(answer)
    if found and all(piece.id is not None for piece in found):
        return found
    ids = ids_at(transcript, f"{control}-ids")
    texts = [piece.text for piece in found] or [None] * len(ids)
    # The end token is no part of the text that was tokenized.
    if len(ids) not in (len(texts), len(texts) - 1):
        return ()
    return tuple(Piece(text=text, id=found) for text, found in zip(texts, ids, strict=False))


def _to_tokenize(transcript: Transcript, control: str) -> str:
    answer = answer_at(transcript, control)
    if answer is None:
        return ""
    found = pieces(answer)
    if found and all(piece.id is not None for piece in found):
        return ""
    texts = [piece.text or "" for piece in found]
    if texts:
        return "".join(texts[:-1] if answer.finish == "stop" else texts)
    # What stands around a thought is hidden, so that its first token is not known.
    return "" if answer.first.reasoning else answer.text


def dialects(text: str, *, special: bool = False) -> tuple[tuple[str, Json], ...]:
    """Return the known forms of a tokenizer request by a suffix for the step: vLLM and SGLang, llama.cpp, TGI.

    ``special`` also asks for the tokens that a completion has in front.
    """
    plain: dict[str, Json] = {"prompt": text} if special else {"prompt": text, "add_special_tokens": False}
    return (("", plain), ("-content", {"content": text, "add_special": special}), ("-inputs", {"inputs": text}))


def ids_at(transcript: Transcript, step: str) -> list[int]:
    """Return the ids that any dialect of a step brought; empty where none did."""
    for suffix, _ in dialects(""):
        exchange = transcript.get(step + suffix)
        found = listed_ids(exchange) if exchange is not None else None
        if found:
            return found
    return []


def listed_ids(exchange: Exchange) -> list[int] | None:
    """Return the token ids in a tokenizer's reply, ``None`` where it holds no list of them."""
    body = reply.json_body(exchange)
    if isinstance(body, reply.Refusal | reply.Failure):
        return None
    if isinstance(body, list):  # TGI gives no object around its tokens, and their ids by name
        ids = [number(dig(token, "id")) for token in body]
    else:
        found = dig(body, "tokens")
        if not isinstance(found, list):
            return None
        ids = [number(dig(token, "id") if isinstance(token, dict) else token) for token in found]
    return None if None in ids else [token for token in ids if token is not None]
