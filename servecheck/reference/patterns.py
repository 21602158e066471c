"""Regular expressions turned round: a text that matches, choice by choice; no look-around, no back-references."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["BadPattern", "Pattern"]

_SPARE = 3
"""How many more repeats than the least an open-ended quantifier may give."""
_PRINTABLE = [chr(code) for code in range(32, 127)]
_DIGITS = "0123456789"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CLASSES = {"d": _DIGITS, "w": _LETTERS + _LETTERS.upper() + _DIGITS + "_", "s": " "}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}

Choose = Callable[[int], int]


class BadPattern(ValueError):
    """A pattern that is wrong, or beyond this reader."""


@dataclass(frozen=True, slots=True)
class _Set:
    members: str

    def text(self, choose: Choose) -> str:
        return self.members[choose(len(self.members))]


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]

    def text(self, choose: Choose) -> str:
        return "".join(part.text(choose) for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Either:
    branches: tuple[_Node, ...]

    def text(self, choose: Choose) -> str:
        return self.branches[choose(len(self.branches))].text(choose)


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    low: int
    high: int

    def text(self, choose: Choose) -> str:
        times = self.low + choose(self.high - self.low + 1)
        return "".join(self.part.text(choose) for _ in range(times))


_Node = _Set | _Sequence | _Either | _Repeat


class Pattern:
    """A pattern that can write texts which match it whole. Raises :class:`BadPattern` where it cannot."""

    def __init__(self, source: str) -> None:
        try:
            self._compiled = re.compile(source)
        except (re.error, RecursionError, OverflowError) as wrong:
            raise BadPattern(f"invalid regular expression {source!r}: {wrong}") from wrong
        self._source, self._at = source, 0
        self._root = self._either()
        if self._at < len(source):
            raise BadPattern(f"invalid regular expression {source!r} at {self._at}")

    def text(self, choose: Choose) -> str:
        """Return a text that the pattern matches."""
        written = self._root.text(choose)
        if self._compiled.search(written) is None:
            raise BadPattern(f"cannot write a text for {self._source!r}")
        return written

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]

    def _take(self) -> str:
        self._at += 1
        return self._source[self._at - 1]

    def _either(self) -> _Node:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._take()
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _Either(tuple(branches))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in {"", "|", ")"}:
            if self._peek() in "^$":
                self._take()
                continue
            parts.append(self._quantified(self._atom()))
        return _Sequence(tuple(parts))

    def _atom(self) -> _Node:
        sign = self._take()
        if sign == "(":
            if self._peek() == "?":
                if not self._source.startswith("?:", self._at):
                    raise BadPattern(
                        f"only plain and (?:…) groups are supported, not {self._source[self._at - 1 :][:4]!r}"
                    )
                self._at += 2
            inside = self._either()
            self._take()
            return inside
        if sign == "[":
            return _Set(self._members())
        if sign == ".":
            return _Set(_LETTERS)
        if sign == "\\":
            return _Set(self._escape())
        return _Set(sign)

    def _escape(self) -> str:
        sign = self._take()
        if sign in _CLASSES:
            return _CLASSES[sign]
        if sign.lower() in _CLASSES:
            return "".join(mark for mark in _PRINTABLE if mark not in _CLASSES[sign.lower()])
        if sign in "xu":
            size = 2 if sign == "x" else 4
            self._at += size
            return chr(int(self._source[self._at - size : self._at], 16))
        if sign.isalnum() and sign not in _ESCAPES:
            raise BadPattern(f"\\{sign} is not supported")
        return _ESCAPES.get(sign, sign)

    def _members(self) -> str:
        negated = self._peek() == "^"
        if negated:
            self._take()
        members: list[str] = []
        first = True
        while first or self._peek() != "]":
            first = False
            sign = self._take()
            if sign == "\\":
                sign = self._escape()
            if len(sign) == 1 and self._peek() == "-" and self._source[self._at + 1 : self._at + 2] != "]":
                self._take()
                last = self._take()
                last = self._escape() if last == "\\" else last
                members.extend(chr(code) for code in range(ord(sign), ord(last) + 1))
            else:
                members.extend(sign)
        self._take()
        if negated:
            members = [mark for mark in _PRINTABLE if mark not in members]
        return "".join(dict.fromkeys(members))

    def _quantified(self, part: _Node) -> _Node:
        sign = self._peek()
        if sign == "{":
            found = re.compile(r"\{(\d*)(,?)(\d*)\}").match(self._source, self._at)
            if found is None or found.group(0) in {"{}", "{,}"}:
                return part
            self._at = found.end()
            low = int(found.group(1) or 0)
            high = low if not found.group(2) else int(found.group(3)) if found.group(3) else low + _SPARE
        elif sign in {"?", "*", "+"}:
            self._take()
            low, high = {"?": (0, 1), "*": (0, _SPARE), "+": (1, 1 + _SPARE)}[sign]
        else:
            return part
        if self._peek() == "?":
            self._take()
        elif self._peek() == "+":
            raise BadPattern("possessive quantifiers are not supported")
        return _Repeat(part, low, high)
