"""The canary: a plain short request of the endpoint's own kind, asked before, between and after cases. Pure reading."""

from __future__ import annotations

import re

from servecheck.model import Ending, Exchange, Json
from servecheck.read import reply
from servecheck.read.text import dig, garbage, quote

__all__ = ["KINDS", "ailment", "answered", "denial", "request"]

KINDS = ("chat", "completion", "embedding", "rerank", "transcription", "image")
"""The kinds of endpoint; a chat is never sent to an embedding server, which it can kill (seen on SGLang)."""

_LISTED = frozenset({"transcription", "image"})  # a clip or a painting every 25 cases would cost too much


def request(kind: str) -> tuple[str, dict[str, Json]]:
    """Return the path below the API root and the body (without ``model``) of the canary for a kind of endpoint.

    Without a body it is a GET: of servers that only transcribe or paint, the list of models is asked for.
    """
    if kind in _LISTED:
        return "/models", {}
    if kind == "rerank":
        return "/rerank", {"query": "A quick fox.", "documents": ["The quick brown fox.", "Rain at noon."]}
    if kind == "embedding":
        return "/embeddings", {"input": "The quick brown fox."}
    if kind == "completion":
        return "/completions", {"prompt": "The capital of France is", "max_tokens": 16, "temperature": 0}
    messages: Json = [{"role": "user", "content": "What is the capital of France?"}]
    # A reasoning model spends a tiny budget on thinking, so the budget is not tiny; reasoning text counts as an answer.
    return "/chat/completions", {"messages": messages, "max_tokens": 32, "temperature": 0}


_OK = 200
_DENIED = (401, 403)
_KEY = re.compile(r"\$\{(\w+)\}")  # what stands in a record for a secret


def denial(exchange: Exchange) -> str:
    """Return, as a sentence about the key, that a plain request was denied; empty where it was not."""
    if exchange.status not in _DENIED:
        return ""
    sent = {name.lower(): value for name, value in exchange.request_headers}
    if "authorization" not in sent:
        return f"it wants a key, and none was given (HTTP {exchange.status}): --api-key-env NAME=VARIABLE"
    named = _KEY.search(sent["authorization"])
    held = f"the key in {named[1]}" if named else "the key that was sent"
    return f"{held} was refused (HTTP {exchange.status})"


def answered(exchange: Exchange) -> bool:
    """Tell whether a canary got a whole reply with status 200, whatever is in it."""
    return exchange.status == _OK and exchange.ending is Ending.COMPLETE


def ailment(exchange: Exchange) -> str:
    """Return what is wrong with a canary's reply, or an empty string where the server is well."""
    if exchange.url.endswith("/embeddings"):
        body = reply.json_body(exchange)
        if isinstance(body, reply.Refusal | reply.Failure):
            return body.what
        vector = dig(body, "data", 0, "embedding")
        return "" if vector else f"no embedding in {quote(exchange.body)}"
    if exchange.url.endswith(("/rerank", "/models")):
        body = reply.json_body(exchange)
        if isinstance(body, reply.Refusal | reply.Failure):
            return body.what
        listed = body if isinstance(body, list) else dig(body, "results") or dig(body, "data")
        return "" if listed else f"an empty list in {quote(exchange.body)}"
    answer = (
        reply.completion(exchange)
        if exchange.url.endswith("/completions") and "/chat/" not in exchange.url
        else (reply.chat(exchange))
    )
    if not isinstance(answer, reply.Answer):
        return answer.what
    text = answer.text if answer.text.strip() else answer.first.reasoning
    if not text.strip() and not answer.first.tool_calls and answer.finish != "length":
        # Where a model's thoughts are kept from the client, a short answer is empty and says that it was cut.
        return f"an empty answer with finish_reason {answer.finish}"
    sign = garbage(text)
    return f"garbage: {sign}: {quote(text)}" if sign else ""
