"""What the obedient model would say: simple requests are understood by their words, everything else gets prose."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servecheck.reference.constraint import AnyObject, BadConstraint, Schema
from servecheck.reference.sampling import Chooser, chance
from servecheck.reference.words import ADJECTIVES, ADVERBS, NOUNS, PLACES, VERBS, WORDS

__all__ = ["CALL_CLOSE_TEXT", "CALL_OPEN_TEXT", "Part", "Turn", "babble", "call_text", "calls_wanted", "hints", "obey"]
__all__ += ["prose", "sentence", "wants_long"]

CALL_OPEN_TEXT, CALL_CLOSE_TEXT = "<tool_call>", "</tool_call>"

_KNOWN = set(WORDS)
_SMALL = {"this", "that", "with", "your", "from", "about", "what", "when", "tell", "give", "name", "please", "given"}
"""Words that a prompt and a tool's description share without meaning anything by it."""
_CAPITALS = {
    "france": "Paris", "germany": "Berlin", "italy": "Rome", "spain": "Madrid", "japan": "Tokyo", "norway": "Oslo",
    "england": "London", "the united kingdom": "London", "austria": "Vienna", "egypt": "Cairo", "peru": "Lima",
    "portugal": "Lisbon", "greece": "Athens", "poland": "Warsaw", "sweden": "Stockholm", "china": "Beijing",
}  # fmt: skip
_DIGITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {word: number for number, word in enumerate(_DIGITS, 1)}
_NUMBERS |= {"twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "hundred": 100}
_NUMBER = rf"(\d+|{'|'.join(_NUMBERS)})"
_QUOTED = r"[\"“'‘`]([^\"”'’`]+)[\"”'’`]"
_SAY = r"(?:repeat|say|write|print|echo|output|type|copy|reply with|respond with|answer with|return)"
_SAY_PLAIN = re.compile(
    _SAY
    + r"(?:\s+(?:only|just|exactly|the|a|this|following|single|word|text|code|back|verbatim))*[:\s]+(\S.*?)[.!]?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_LONG = re.compile(
    r"\b(?:long|longer|essay|detailed|at length|hundreds?|thousands?|pages?|as much as|\d{3,} words|many paragraphs)\b",
    re.IGNORECASE,
)
_ARITHMETIC = re.compile(r"(\d+)\s*(\+|-|\*|×|x|plus|minus|times|multiplied by)\s*(\d+)", re.IGNORECASE)
_ASKED = re.compile(
    r"\b(?:what|which)\b[^.?]*?\b(?:is|was|are|were)\s+(?:my|the|your|our)\s+(?:secret |magic |special |access )?(\w+)"
    r"|\b(?:tell|give|repeat|remind|recall|say|write)\b[^.?]*?\b(?:my|the|your|our)\s+"
    r"(?:secret |magic |special |access )?(\w+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message as the model reads it."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an answer; ``sure`` parts are copied or known, so that no temperature shakes them."""

    text: str
    sure: bool = False


def _pick(pool: Sequence[str], *key: object) -> str:
    return pool[int(chance(*key) * len(pool))]


def sentence(*key: object) -> str:
    """Return one plausible sentence; the same key gives the same one."""
    shape = int(chance("shape", *key) * 4)
    noun, other, third = (_pick(NOUNS, "noun", number, *key) for number in range(3))
    verb, second = (_pick(VERBS, "verb", number, *key) for number in range(2))
    adjective, another = (_pick(ADJECTIVES, "adjective", number, *key) for number in range(2))
    place, adverb = _pick(PLACES, "place", *key), _pick(ADVERBS, "adverb", *key)
    return (
        f"The {adjective} {noun} {verb} {place} the {other}.",
        f"A {noun} {adverb} {verb} {place} the {adjective} {other}, and the {third} {second}.",
        f"Every {noun} {verb} when the {another} {other} {second} {place} the {adjective} {third}.",
        f"It was {adjective} and {another}, so the {noun} {adverb} {verb} the {other}.",
    )[shape]


def prose(tokens: int, *key: object) -> str:
    """Return sentences of about so many words in all."""
    made: list[str] = []
    while sum(line.count(" ") + 2 for line in made) < tokens:
        made.append(sentence(len(made), *key))
    return " ".join(made)


def babble(tokens: int, *key: object) -> str:
    """Return fluent nonsense of about so many words."""
    made: list[str] = []
    left = tokens
    while left > 0:
        size = min(left, 4 + int(chance("size", left, *key) * 8))
        words = [_pick(WORDS, "babble", left, number, *key) for number in range(max(3, size))]
        made.append(" ".join(words).capitalize() + ".")
        left -= size + 1
    return " ".join(made)


def wants_long(text: str) -> bool:
    """Whether a prompt asks for many words."""
    return _LONG.search(text) is not None


def _nonces(text: str) -> list[str]:
    """Return the words that mean nothing, which are there to be copied."""
    found = re.findall(r"[A-Za-z0-9_-]{5,}", text)
    lower = [word for word in found if word == word.lower() and word not in _KNOWN and re.search(r"[a-z0-9]", word)]
    odd = [word for word in found if re.search(r"\d", word) or (word == word.upper() and not word.islower())]
    rare = [word for word in lower if not _englishish(word)]
    return list(dict.fromkeys((*odd, *rare)))


def _englishish(word: str) -> bool:
    """Whether a word could be English that the list lacks: it can be spoken, and has a known stem or ending."""
    if re.search(r"[^aeiouy]{4}|[jqvxz][^aeiouy]|[aeiou]{4}", word):
        return False
    return word.endswith(
        ("ing", "ed", "er", "ly", "tion", "ment", "ness", "ous", "ful", "ence", "ance", "able", "ther", "thing", "ject")
    ) or any(word.startswith(known) for known in _KNOWN if len(known) > 3)


def hints(text: str, *key: object) -> list[str]:
    """Return the words of a prompt that an answer would use: names, quotes, odd words; then nouns."""
    quoted = re.findall(_QUOTED, text)
    names = re.findall(r"(?<=[a-z,] )([A-Z][a-z]+)", text)
    picked = [*quoted, *names, *_nonces(text)]
    nouns = [_pick(NOUNS, "hint", number, *key) for number in range(6)]
    return list(dict.fromkeys((*picked, *nouns)))[:6]


def call_text(name: str, arguments: str) -> str:
    """Return a tool call as the models write it."""
    return f'{CALL_OPEN_TEXT}\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n{CALL_CLOSE_TEXT}'


def calls_wanted(text: str) -> int:
    """Return how many calls a prompt asks for: two where it names two things, else one."""
    if re.search(r"\b(?:both|twice|two|each|parallel|respectively)\b", text, re.IGNORECASE):
        return 2
    return 2 if re.search(r"[A-Z][a-z]+ and (?:in |for |of )?[A-Z][a-z]+", text) else 1


def _tool_for(text: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    asked = {_stem(word) for word in re.findall(r"[a-z0-9]{4,}", text.lower())} - _SMALL
    best, most = None, 0
    for tool in tools:
        name, described = str(tool.get("name", "")), str(tool.get("description", ""))
        if name and name in text:
            return tool
        about = {_stem(word) for word in re.findall(r"[a-z0-9]{4,}", f"{name} {described}".lower().replace("_", " "))}
        score = len(asked & about)
        if score > most:
            best, most = tool, score
    if best is None and tools and re.search(r"\b(?:tools?|functions?|call)\b", text, re.IGNORECASE):
        return tools[0]
    return best


def _stem(word: str) -> str:
    return word.removesuffix("s")


def _call_parts(tool: Mapping[str, Any], text: str, *key: object) -> list[Part]:
    try:
        schema = Schema(tool.get("parameters") or {"type": "object", "properties": {}})
    except BadConstraint:
        return []
    words = hints(text, *key)
    calls: list[str] = []
    for number in range(calls_wanted(text)):
        turned = words[number:] + words[:number]
        choose = Chooser(repr((number, key)).encode())
        # The first hint is what the prompt is about, so free strings take it: the second call turns to the next one.
        arguments = _filled(schema, choose, turned)
        calls.append(call_text(str(tool["name"]), arguments))
    return [Part("\n".join(dict.fromkeys(calls)), sure=True)]


def _filled(schema: Schema, choose: Callable[[int], int], words: Sequence[str]) -> str:
    return schema.text(choose, words[:1])


def obey(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]], *key: object) -> list[Part]:
    """Return the answer of a model that does as it is told where that is simple, and writes prose where it is not."""
    if turns and turns[-1].role == "tool":
        results = [turn.text for turn in turns if turn.role == "tool"]
        return [Part("The result is "), Part(results[-1].strip(), sure=True), Part(".", sure=True)]
    asked = next((turn.text for turn in reversed(turns) if turn.role == "user"), "")
    if tools and (tool := _tool_for(asked, tools)) is not None:
        call = _call_parts(tool, asked, *key)
        if call:
            return call
    parts = _answer(asked, turns, *key)
    return [*parts, *_told_always(turns)]


def _told_always(turns: Sequence[Turn]) -> list[Part]:
    """Return what a system message wants in every answer."""
    for turn in turns:
        if turn.role in {"system", "developer"} and re.search(
            r"\b(?:end|include|begin|start|say|add|finish|always|every|reply|answer|contain)\b",
            turn.text,
            re.IGNORECASE,
        ):
            wanted = [*re.findall(_QUOTED, turn.text), *_nonces(turn.text)]
            if wanted:
                return [Part(f" {wanted[0]}", sure=True)]
    return []


def _answer(asked: str, turns: Sequence[Turn], *key: object) -> list[Part]:
    parts = _count(asked) or _repeat(asked) or _remembered(asked, turns) or _arithmetic(asked)
    parts = parts or _capital(asked) or _json(asked, *key)
    if parts:
        return parts
    if wants_long(asked):
        return [Part(prose(230 + int(chance("long", *key) * 120), *key))]
    if re.search(r"\byes or no\b", asked, re.IGNORECASE):
        return [Part("Yes.", sure=True)]
    return [Part(prose(18 + int(chance("length", *key) * 36), *key))]


def _amount(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[word.lower()]


def _count(asked: str) -> list[Part]:
    found = re.search(
        rf"\bcount\w*\b(?:[^.]*?\bfrom\s+{_NUMBER})?[^.]*?\b(?:to|until|till)\s+{_NUMBER}", asked, re.IGNORECASE
    )
    found = found or re.search(
        rf"\bnumbers\b(?:\s+from)?\s+{_NUMBER}\s+(?:to|through)\s+{_NUMBER}", asked, re.IGNORECASE
    )
    if not found:
        return []
    first = _amount(found.group(1)) if found.group(1) else 1
    last = min(_amount(found.group(2)), first + 400)
    return [Part(", ".join(str(number) for number in range(first, last + 1)) + ".", sure=True)]


def _repeat(asked: str) -> list[Part]:
    if not (said := re.search(_SAY, asked, re.IGNORECASE)):
        return []
    times = re.search(
        rf"\b{_NUMBER}\s+times\b|\b(?:over and over|again and again|repeatedly|forever)\b", asked, re.IGNORECASE
    )
    quoted = re.search(_QUOTED, asked[said.start() :])
    word = re.search(r"\bthe word\s+[\"“'‘`]?([^\s\"”'’`.,]+)", asked, re.IGNORECASE)
    if times or re.search(r"\brepeat the word\b", asked, re.IGNORECASE):
        what = quoted.group(1) if quoted else word.group(1) if word else ""
        count = _amount(times.group(1)) if times and times.group(1) else 60
        return [Part(" ".join([what] * min(count, 200)))] if what else []
    if quoted:
        return [Part(quoted.group(1), sure=True)]
    plain = _SAY_PLAIN.search(asked)
    if plain and re.search(
        r"\b(?:only|exactly|just|verbatim|back|word|repeat|copy|echo|code)\b|:", asked, re.IGNORECASE
    ):
        return [Part(plain.group(1).strip(), sure=True)]
    single = re.search(rf"{_SAY}\s+(\S+?)[.!]?\s*$", asked, re.IGNORECASE)
    return [Part(single.group(1), sure=True)] if single else []


def _remembered(asked: str, turns: Sequence[Turn]) -> list[Part]:
    found = _ASKED.search(asked)
    if not found:
        return []
    noun = next(group for group in found.groups() if group)
    history = "\n".join(turn.text for turn in turns)
    told = re.findall(
        rf"\b{re.escape(noun)}\b[^.\n]*?\s(?:is|was|=)\s*:?\s*[\"“'`]?([^\s\"”'`.,!?]+)", history, re.IGNORECASE
    )
    told = [value for value in told if value.lower() not in {"the", "my", "your", "a", "an", "of", "what"}]
    odd = _nonces(history)
    values = [value for value in told if value in odd] or told
    if values:
        return [Part(f"The {noun} is "), Part(f"{values[-1]}.", sure=True)]
    return [Part(f"The {noun} is "), Part(f"{odd[-1]}.", sure=True)] if odd else []


def _arithmetic(asked: str) -> list[Part]:
    found = _ARITHMETIC.search(asked)
    if not found:
        return []
    left, sign, right = int(found.group(1)), found.group(2).lower(), int(found.group(3))
    value = left + right if sign in {"+", "plus"} else left - right if sign in {"-", "minus"} else left * right
    return [Part(f"{value}.", sure=True)]


def _capital(asked: str) -> list[Part]:
    found = re.search(r"\bcapital(?: city)? of ([A-Za-z ]+)", asked, re.IGNORECASE)
    if not found:
        return []
    country = found.group(1).strip()
    known = next((name for name in _CAPITALS if country.lower().startswith(name)), None)
    if known is None:
        return []
    if asked.rstrip().lower().endswith(" is"):
        return [Part(f"{_CAPITALS[known]}.", sure=True)]
    return [Part("The capital of "), Part(f"{country[: len(known)]} is {_CAPITALS[known]}.", sure=True)]


def _json(asked: str, *key: object) -> list[Part]:
    if not re.search(r"\bjson\b", asked, re.IGNORECASE):
        return []
    if re.search(r"\b(?:not|no|without|never|avoid|don't)\b[^.]*\bjson\b", asked, re.IGNORECASE):
        return []
    return [Part(AnyObject().text(Chooser(repr(key).encode()), hints(asked, *key)), sure=True)]
