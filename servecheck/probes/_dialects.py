"""The ways in which engines take a regular expression, choices, a grammar or a structural tag, engine by engine.

There is no common field for these; what an engine does not know it drops with a 200. The word of a request stands in
its constraint and nowhere else, and can be read back from the recorded body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from servecheck.model import Exchange, Fingerprint, Json

__all__ = ["TAG", "Body", "Dialect", "Kind", "allowed", "dialects", "word_in", "word_of"]

Kind = Literal["regex", "choice", "grammar", "structural_tag"]
Body = dict[str, Json]

TAG = ("<code>", "</code>")
"""What begins and ends the part that a structural tag shapes."""

_WORD = re.compile(rb"w7[a-z]{10}")


def word_of(nonce: str) -> str:
    """Return the word of a request, by which :func:`word_in` knows it again; ``nonce`` has ten letters."""
    return f"w7{nonce}"


def word_in(exchange: Exchange) -> str:
    """Return the word that a request carries, empty where there is none."""
    found = _WORD.search(exchange.request_body)
    return found.group().decode() if found else ""


def allowed(kind: str, word: str) -> str:
    """Return what a constraint with this word allows, as a pattern that the whole answer must match."""
    if kind == "regex":
        return _regex(word)
    if kind == "structural_tag":
        return rf'{TAG[0]}\s*\{{\s*"value"\s*:\s*"{word}"\s*\}}\s*{TAG[1]}'
    return f"{word}-(?:north|south)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way to write a constraint: what it is called, the engines whose own way it is, and its fields."""

    name: str
    engines: tuple[str, ...]
    fields: Callable[[str], Body]


def _grammar(word: str) -> str:
    return f'root ::= "{word}-" way\nway ::= "north" | "south"\n'


def _tag(word: str) -> Body:
    schema: Json = {
        "type": "object",
        "properties": {"value": {"type": "string", "enum": [word]}},
        "required": ["value"],
        "additionalProperties": False,
    }
    content: Json = {"type": "json_schema", "json_schema": schema}
    tag: Json = {"type": "tag", "begin": TAG[0], "content": content, "end": TAG[1]}
    return {"type": "structural_tag", "format": tag}


def _regex(word: str) -> str:
    return f"{word}-[0-9]{{3}}"


def _ways(word: str) -> Json:
    return [f"{word}-north", f"{word}-south"]


_VLLM, _SGLANG, _LLAMA = ("vllm",), ("sglang", "sgl-jax"), ("llama.cpp",)
_DIALECTS: dict[str, tuple[Dialect, ...]] = {
    "regex": (
        Dialect(
            name="structured_outputs.regex",
            engines=_VLLM,
            fields=lambda w: {"structured_outputs": {"regex": _regex(w)}},
        ),
        Dialect(name="regex", engines=_SGLANG, fields=lambda w: {"regex": _regex(w)}),
    ),
    "choice": (
        Dialect(
            name="structured_outputs.choice",
            engines=_VLLM,
            fields=lambda w: {"structured_outputs": {"choice": _ways(w)}},
        ),
        Dialect(name="regex of alternatives", engines=_SGLANG, fields=lambda w: {"regex": f"({w}-north|{w}-south)"}),
        Dialect(
            name="grammar of alternatives",
            engines=_LLAMA,
            fields=lambda w: {"grammar": f'root ::= "{w}-north" | "{w}-south"\n'},
        ),
    ),
    "grammar": (
        Dialect(
            name="structured_outputs.grammar",
            engines=_VLLM,
            fields=lambda w: {"structured_outputs": {"grammar": _grammar(w)}},
        ),
        Dialect(name="ebnf", engines=_SGLANG, fields=lambda w: {"ebnf": _grammar(w)}),
        Dialect(name="grammar", engines=_LLAMA, fields=lambda w: {"grammar": _grammar(w)}),
    ),
    "structural_tag": (
        Dialect(
            name="response_format structural_tag",
            engines=(*_VLLM, *_SGLANG),
            fields=lambda w: {"response_format": _tag(w)},
        ),
        Dialect(
            name="structured_outputs.structural_tag",
            engines=(),
            fields=lambda w: {"structured_outputs": {"structural_tag": json.dumps(_tag(w))}},
        ),
    ),
}


def dialects(kind: str, fingerprint: Fingerprint) -> list[Dialect]:
    """Return the dialects of a kind, the engine's own first."""
    engine = fingerprint.value("engine")
    return sorted(_DIALECTS[kind], key=lambda dialect: engine not in dialect.engines)
