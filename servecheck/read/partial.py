"""How far a text that was cut is JSON: whole, the beginning of some value, or neither; says nothing of schemas."""

from __future__ import annotations

import re

__all__ = ["json_fault"]

_WHITE = " \t\r\n"
_LITERALS = ("true", "false", "null")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NUMBER_BEGUN = re.compile(r"-?(?:0|[1-9]\d*)?(?:(?<=\d)\.\d*)?(?:(?<=\d)[eE][+-]?\d*)?")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_STRING_BEGUN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z')


def json_fault(text: str) -> str:
    """Return why ``text`` can be no JSON value, however it went on; an empty string for a value or a beginning of one.

    White space before, between and after counts as a beginning, since grammars allow it without end. Text behind a
    whole value is a fault.
    """
    reader = _Reader(text)
    try:
        reader.value()
    except _Ended:
        return ""
    except ValueError as wrong:
        return str(wrong)
    return "" if reader.at_end() else f"text behind the value at character {reader.at + 1}"


class _Ended(Exception):
    """The text ends here, and could go on."""


class _Reader:
    """Reads one value without recursion, so that no nesting is too deep."""

    def __init__(self, text: str) -> None:
        self._text, self.at = text, 0

    def at_end(self) -> bool:
        self._skip()
        return self.at >= len(self._text)

    def value(self) -> None:
        open_brackets: list[str] = []
        while True:
            sign = self._next()
            if sign in "{[":
                self.at += 1
                open_brackets.append(sign)
                if self._next() != _CLOSING[sign]:
                    self._key(sign)
                    continue
            else:
                self._scalar(sign)
            if self._closed(open_brackets):
                return

    def _closed(self, open_brackets: list[str]) -> bool:
        """Close what ends here, step over a comma; tell whether the outermost value is whole."""
        while open_brackets:
            sign = self._next()
            if sign == _CLOSING[open_brackets[-1]]:
                self.at += 1
                open_brackets.pop()
            elif sign == ",":
                self.at += 1
                self._next()
                self._key(open_brackets[-1])
                return False
            else:
                raise self._wrong(f"a comma or {_CLOSING[open_brackets[-1]]}")
        return True

    def _key(self, bracket: str) -> None:
        if bracket != "{":
            return
        if self._next() != '"':
            raise self._wrong("a key in quotation marks")
        self._string()
        if self._next() != ":":
            raise self._wrong("a colon")
        self.at += 1

    def _scalar(self, sign: str) -> None:
        if sign == '"':
            self._string()
            return
        for literal in _LITERALS:
            rest = self._text[self.at : self.at + len(literal)]
            if rest == literal:
                self.at += len(literal)
                return
            if literal.startswith(rest) and self.at + len(rest) == len(self._text):
                raise _Ended
        begun, whole = _NUMBER_BEGUN.match(self._text, self.at), _NUMBER.match(self._text, self.at)
        if begun and begun.end() == len(self._text):
            raise _Ended
        if whole is None:
            raise self._wrong("a value")
        self.at = whole.end()

    def _string(self) -> None:
        found = _STRING.match(self._text, self.at)
        if found is None:
            if _STRING_BEGUN.match(self._text, self.at):
                raise _Ended
            raise self._wrong("a string without control characters and unknown escapes")
        self.at = found.end()

    def _skip(self) -> None:
        while self._text[self.at : self.at + 1] and self._text[self.at] in _WHITE:
            self.at += 1

    def _next(self) -> str:
        self._skip()
        if self.at >= len(self._text):
            raise _Ended
        return self._text[self.at]

    def _wrong(self, wanted: str) -> ValueError:
        return ValueError(f"{wanted} is missing at character {self.at + 1}")


_CLOSING = {"{": "}", "[": "]"}
