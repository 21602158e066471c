"""Small context-free grammars turned round: a text that the start rule derives; literals, rules, alternatives only."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["BadGrammar", "Grammar"]

_RULE = re.compile(r"^\s*([A-Za-z][\w-]*)\s*::=(.*)$")
_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([A-Za-z][\w-]*)|(\|))')
_DEEP = 40


class BadGrammar(ValueError):
    """A grammar that is wrong, or beyond this reader."""


class Grammar:
    """A grammar in the notation that vLLM, SGLang and llama.cpp share. Raises :class:`BadGrammar` where it cannot."""

    def __init__(self, source: str) -> None:
        self._rules: dict[str, list[list[tuple[bool, str]]]] = {}
        for line in source.splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            found = _RULE.match(line)
            if found is None:
                raise BadGrammar(f"not a rule: {line.strip()!r}")
            self._rules[found[1]] = self._alternatives(found[2])
        if "root" not in self._rules:
            raise BadGrammar("there is no rule named 'root'")
        named = {item for rule in self._rules.values() for way in rule for literal, item in way if not literal}
        if missing := sorted(named - set(self._rules)):
            raise BadGrammar(f"the rule {missing[0]!r} is used and not defined")

    @staticmethod
    def _alternatives(text: str) -> list[list[tuple[bool, str]]]:
        ways: list[list[tuple[bool, str]]] = [[]]
        at = 0
        while text[at:].strip():
            found = _ITEM.match(text, at)
            if found is None:
                raise BadGrammar(f"cannot read {text[at:].strip()!r}")
            at = found.end()
            if found[3]:
                ways.append([])
            else:
                ways[-1].append((found[1] is not None, found[2] or re.sub(r"\\(.)", r"\1", found[1] or "")))
        if not all(ways):
            raise BadGrammar("a rule must not be empty")
        return ways

    def text(self, choose: Callable[[int], int]) -> str:
        """Return a text of the grammar."""
        return self._derive("root", choose, 0)

    def _derive(self, rule: str, choose: Callable[[int], int], depth: int) -> str:
        if depth > _DEEP:
            raise BadGrammar(f"the rule {rule!r} does not end")
        ways = self._rules[rule]
        way = ways[choose(len(ways))]
        return "".join(item if literal else self._derive(item, choose, depth + 1) for literal, item in way)
