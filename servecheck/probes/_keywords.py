"""The JSON Schema keywords that are tried one by one: what is sent, what must come back, what the control lacks."""

from __future__ import annotations

import json
from dataclasses import dataclass

from servecheck.model import Json
from servecheck.probes._schemas import with_nonce

__all__ = ["KEYWORDS", "Keyword"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keyword:
    """One keyword: ``value`` is the schema of the property ``code`` that uses it, ``without`` the same without it.

    ``must`` is what the answer is validated against where that differs from what is sent. ``longest`` is the length of
    the longest value that fits, as JSON without white space; ``None`` where there is no bound. ``documented`` keywords
    are in the subset that OpenAI's guide promises. ``prompt`` replaces the one that pulls away from JSON where the
    keyword would be kept by chance.
    """

    name: str
    value: Json
    without: Json
    longest: int | None
    documented: bool = True
    must: Json = None
    definitions: Json = None
    prompt: str = ""

    @property
    def slug(self) -> str:
        """The name as a part of a step's name."""
        return self.name.replace("$", "").replace("/", "-").replace(" ", "-")

    def sent(self, nonce: str) -> Json:
        """Return the schema that is sent."""
        return self._whole(self.value, nonce)

    def wanted(self, nonce: str) -> Json:
        """Return the schema that the answer must fit."""
        return self._whole(self.value if self.must is None else self.must, nonce)

    def control(self) -> Json:
        """Return the schema of the control, which has no random word."""
        return self._whole(self.without, "")

    def too_long(self, text: str) -> bool:
        """Tell whether a text, cut or not, is longer than any answer that fits, however its letters are written."""
        if self.longest is None:
            return False
        bare = "".join(text.split())
        return len(bare) > len('{"code":}') + 6 * self.longest  # six characters for a letter written as an escape

    def _whole(self, value: Json, nonce: str) -> Json:
        schema: dict[str, Json] = {
            "type": "object",
            "properties": {"code": value},
            "required": ["code"],
            "additionalProperties": False,
        }
        if self.definitions is not None and value is not self.without:
            schema["$defs"] = self.definitions
        return with_nonce(schema, nonce)


_STRING: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer"}
_LETTERS: Json = {"type": "string", "enum": ["a", "b", "c", "d"]}
_LAUGHS: dict[str, Json] = {
    "type": "array",
    "items": {"type": "string", "enum": ["ha", "ho", "he", "hi"]},
    "minItems": 4,
    "maxItems": 4,
}
_WORDS: Json = {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2, "maxItems": 2}
_WORD: Json = {"const": "$nonce"}
_NODE: Json = {
    "type": "object",
    "properties": {"word": _WORD, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
    "required": ["word", "next"],
    "additionalProperties": False,
}


def _object(value: Json) -> Json:
    return {"type": "object", "properties": {"in": value}, "required": ["in"], "additionalProperties": False}


_WORD_LENGTH = len(json.dumps("x" * 10))

# The first is the one whose use as a server's first structured request breaks tool calls on one engine.
KEYWORDS: tuple[Keyword, ...] = (
    Keyword(
        name="multipleOf",
        value={"type": "integer", "minimum": 1000, "maximum": 9999, "multipleOf": 97},
        without={"type": "integer", "minimum": 1000, "maximum": 9999},
        longest=4,
    ),
    Keyword(name="enum", value={"type": "string", "enum": ["$nonce"]}, without=_STRING, longest=_WORD_LENGTH),
    Keyword(name="const", value=_WORD, without=_STRING, longest=_WORD_LENGTH),
    Keyword(
        name="pattern",
        value={"type": "string", "pattern": "^$nonce-[0-9]{2}$"},
        without=_STRING,
        longest=_WORD_LENGTH + 3,
    ),
    Keyword(
        name="format",
        value={"type": "string", "format": "date"},
        without=_STRING,
        must={"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        longest=12,
    ),
    Keyword(
        name="minLength",
        value={"type": "string", "minLength": 40, "maxLength": 44},
        documented=False,
        without={"type": "string", "maxLength": 44},
        longest=46,
        prompt='Say "a".',
    ),
    Keyword(
        name="pattern with lengths",
        value={"type": "string", "pattern": "^[a-z]+$", "minLength": 40, "maxLength": 44},
        without={"type": "string", "pattern": "^[a-z]+$"},
        longest=46,
        documented=False,
        prompt='Say "a".',
    ),
    Keyword(name="maxLength", value={"type": "string", "maxLength": 4}, documented=False, without=_STRING, longest=6),
    Keyword(
        name="minimum/maximum", value={"type": "integer", "minimum": 7391, "maximum": 7395}, without=_INTEGER, longest=4
    ),
    Keyword(
        name="exclusiveMinimum/exclusiveMaximum",
        value={"type": "integer", "exclusiveMinimum": 7390, "exclusiveMaximum": 7394},
        without=_INTEGER,
        longest=4,
    ),
    Keyword(
        name="minItems/maxItems",
        value={"type": "array", "items": _LETTERS, "minItems": 7, "maxItems": 7},
        without={"type": "array", "items": _LETTERS},
        longest=30,
    ),
    Keyword(
        name="uniqueItems",
        value={**_LAUGHS, "uniqueItems": True},
        without=_LAUGHS,
        longest=21,
        documented=False,
        prompt='Say "ha" five times.',
    ),
    Keyword(
        name="contains",
        value={
            "type": "array",
            "items": {"type": "string", "maxLength": 12},
            "minItems": 2,
            "maxItems": 2,
            "contains": _WORD,
        },
        without=_WORDS,
        longest=32,
        documented=False,
    ),
    Keyword(
        name="prefixItems",
        value={"type": "array", "prefixItems": [_WORD, {"const": "$nonce-b"}], "minItems": 2, "maxItems": 2},
        without=_WORDS,
        longest=2 * _WORD_LENGTH + 5,
        documented=False,
    ),
    Keyword(
        name="anyOf",
        value={"anyOf": [_WORD, {"const": "$nonce-b"}]},
        without=_STRING,
        longest=_WORD_LENGTH + 2,
    ),
    Keyword(
        name="oneOf",
        value={"oneOf": [_WORD, {"const": "$nonce-b"}]},
        without=_STRING,
        longest=_WORD_LENGTH + 2,
        documented=False,
    ),
    Keyword(name="allOf", value={"allOf": [_STRING, _WORD]}, without=_STRING, longest=_WORD_LENGTH, documented=False),
    Keyword(
        name="$ref",
        value={"$ref": "#/$defs/word"},
        definitions={"word": _WORD},
        without=_STRING,
        longest=_WORD_LENGTH,
    ),
    Keyword(
        name="recursion",
        value={"$ref": "#/$defs/node"},
        definitions={"node": _NODE},
        without=_STRING,
        longest=None,
    ),
    Keyword(name="nesting", value=_object(_object(_WORD)), without=_STRING, longest=_WORD_LENGTH + 14),
    Keyword(
        name="additionalProperties",
        value={"type": "object", "additionalProperties": _WORD},
        without={"type": "object"},
        longest=None,
        documented=False,  # the guide promises it with ``false`` only
    ),
    Keyword(
        name="required beside properties",
        value={"type": "object", "required": ["$nonce"]},
        without={"type": "object"},
        longest=None,
        documented=False,
    ),
    Keyword(
        name="unicode",
        value={"type": "string", "enum": ["ключ-日本-é-🦊-$nonce"]},
        without=_STRING,
        longest=_WORD_LENGTH + 12,
        documented=False,
    ),
)
