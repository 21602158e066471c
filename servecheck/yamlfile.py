"""Reads a YAML 1.2 file strictly, remembering the place of every value; it knows the YAML, not what a file is for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from servecheck.errors import Problem, ScenarioError
from servecheck.model import Json
from servecheck.plainwords import Key, complaints

__all__ = ["Document", "Place", "check", "listed", "read", "read_text", "validate"]

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 100_000
MAX_TEXT = 4 * 1024 * 1024
_MAX_DIGITS = 300
_SHOWN_COLUMNS = 160

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INF = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)")
_NULL = re.compile(r"(?:null|Null|NULL|~)?")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
# The line breaks that PyYAML counts; a line number means nothing if the two disagree.
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
# What may be a secret in a line that is shown: credentials in a URL, and the value of a key that is meant to hold one.
# The second group of each is hidden.
_SECRETS = (
    re.compile(r"(://)(\S+)(?=@)"),
    re.compile(r"(\b)((?:sk-|hf_|Bearer\s)[\w.~+/=-]{6,})"),
    re.compile(
        r"(?i)((?:authorization|api[-_]?key|password|secret|cookie|(?:auth|access)[-_]token)[\"']?\s*:\s+)(\S.*)"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a value begins, and its key where it has one; lines and columns count from 1."""

    file: str
    value: tuple[int, int]
    key: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file as data, with the place of everything in it and the problems that did not stop the reading.

    ``lines`` holds the text of the file and of every file grafted into it, by the name they are shown under;
    ``spoiled`` says where a value could not be read, so that nobody complains about it a second time.
    """

    path: str
    data: Json
    places: Mapping[Key, Place]
    lines: Mapping[str, tuple[str, ...]]
    problems: tuple[Problem, ...] = ()
    spoiled: frozenset[Key] = frozenset()

    def problem(
        self, at: Key, message: str, *, on_key: bool = False, suggestion: str = "", quiet: bool = False
    ) -> Problem:
        """Return a problem at a value (or its key); where ``at`` is not in the file, at the nearest that holds it.

        ``quiet`` leaves out the line itself, for values that may be secrets.
        """
        exact = at in self.places
        while at not in self.places:
            at = at[:-1]
        place = self.places[at]
        line, column = (place.key if on_key or not exact else None) or place.value
        source = "" if quiet else _source_line(self.lines[place.file], line, column)
        return Problem(path=place.file, line=line, column=column, message=message, source=source, suggestion=suggestion)

    def graft(self, at: Key, other: Document) -> Document:
        """Return this document with another's data at ``at``, which keeps its own places and problems.

        ``at`` must name a new or existing key of a mapping.
        """
        data = _with_value(self.data, at, other.data)
        places = {key: place for key, place in self.places.items() if key[: len(at)] != at}
        places |= {at + key: place for key, place in other.places.items()}
        return replace(
            self,
            data=data,
            places=places,
            lines={**self.lines, **other.lines},
            problems=(*self.problems, *other.problems),
            spoiled=self.spoiled | {at + key for key in other.spoiled},
        )

    def without(self, at: Key) -> Document:
        """Return this document without one key of a mapping; the place of the key stays known."""
        return replace(self, data=_with_value(self.data, at, _ABSENT))


_ABSENT: Any = object()


def _with_value(data: Json, at: Key, value: Json) -> Json:
    if not at:
        return value
    assert isinstance(data, dict)
    head = at[0]
    assert isinstance(head, str)
    if len(at) == 1 and value is _ABSENT:
        return {key: kept for key, kept in data.items() if key != head}
    return {**data, head: _with_value(data.get(head), at[1:], value)}


def listed(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in reading order, at most one of each sentence per place."""
    unique = {(problem.path, problem.line, problem.column, problem.message): problem for problem in problems}
    files = {path: order for order, path in enumerate(dict.fromkeys(problem.path for problem in unique.values()))}
    return sorted(unique.values(), key=lambda problem: (files[problem.path], problem.line, problem.column))


# --------------------------------------------------------------------------- files to data


def read_text(path: Path) -> str:
    """Return the text of a file: UTF-8, at most 1 MiB, without a byte order mark.

    Raises :class:`ScenarioError` with the one problem that stopped it.
    """
    shown = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as trouble:
        raise _stopped(shown, (), 1, 1, f"cannot be read: {trouble.strerror}") from trouble
    if len(raw) > MAX_BYTES:
        raise _stopped(shown, (), 1, 1, f"larger than {MAX_BYTES // 1024} KiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as trouble:
        # The codec counts from behind the byte order mark, if there was one.
        body = raw.removeprefix(b"\xef\xbb\xbf")
        lines = _BREAK.split(body[: trouble.start].decode("utf-8", errors="replace"))
        message = f"not UTF-8: byte 0x{body[trouble.start]:02x}"
        whole = _BREAK.split(body.decode("utf-8", errors="replace"))
        raise _stopped(shown, whole, len(lines), len(lines[-1]) + 1, message) from trouble


def read(path: Path) -> Document:
    """Read one YAML 1.2 (core schema) document whose data is JSON-shaped: mappings with text keys, lists, scalars.

    ``.json`` files must be JSON too. Raises :class:`ScenarioError` where the file cannot be read or is not YAML; what
    is wrong with single values (a duplicate key, a tag) is in ``problems`` of the document.
    """
    shown = str(path)
    text = read_text(path)
    lines = tuple(_BREAK.split(text))
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        before = _BREAK.split(text[: unprintable.start()])
        message = f"the control character U+{ord(unprintable[0]):04X}"
        raise _stopped(shown, lines, len(before), len(before[-1]) + 1, message)
    strict_json = path.suffix.lower() == ".json"
    if strict_json:  # before anybody speaks of YAML
        try:
            json.loads(text)
        except ValueError as trouble:
            line, column = (trouble.lineno, trouble.colno) if isinstance(trouble, json.JSONDecodeError) else (1, 1)
            message = trouble.msg if isinstance(trouble, json.JSONDecodeError) else str(trouble)
            raise _stopped(shown, lines, line, column, f"not JSON: {_lower(message)}") from trouble
    # Tabs are white space in JSON, and cannot occur inside its strings: a space keeps every column.
    node = _compose(shown, lines, text.replace("\t", " ") if strict_json else text)
    builder = _Builder(shown, lines)
    data = builder.build(node)
    return Document(
        path=shown,
        data=data,
        places=builder.places,
        lines={shown: lines},
        problems=tuple(builder.problems),
        spoiled=frozenset(builder.spoiled),
    )


def check(
    document: Document, model: type[M], *, at: Key = (), also: Iterable[str] = ()
) -> tuple[M | None, list[Problem]]:
    """Validate the data at ``at`` with a pydantic model; return it with the problems found, ``None`` if there are any.

    Where the document has nothing at ``at``, an empty mapping is validated. ``also`` are key names, beside the
    model's own, that a suggestion may name. Problems of the document itself are not repeated here.
    """
    data = document.data
    for step in at:
        data = data.get(str(step), {}) if isinstance(data, dict) else {}
    try:
        # JSON mode is strict about types and still takes a list for a tuple and a text for an enum's value.
        return model.model_validate_json(json.dumps(data)), []
    except ValidationError as error:
        found = complaints(data, model, error, also=also, inside=at)
    return None, [
        document.problem(at + item.at, item.message, on_key=item.on_key, suggestion=item.suggestion)
        for item in found
        if at + item.at not in document.spoiled
    ]


def validate(path: Path, model: type[M]) -> M:
    """Read a file and return it as a model instance; raises :class:`ScenarioError` with all problems at once."""
    document = read(path)
    value, problems = check(document, model)
    problems = listed([*document.problems, *problems])
    if problems or value is None:
        raise ScenarioError(problems)
    return value


def _source_line(lines: Sequence[str], line: int, column: int) -> str:
    """Return the line to show above a caret: nothing where the caret would be off the screen."""
    if line > len(lines) or column > _SHOWN_COLUMNS:
        return ""
    text = _UNPRINTABLE.sub("\ufffd", lines[line - 1].replace("\t", " ")).rstrip()
    for secret in _SECRETS:
        text = secret.sub(lambda match: match[1] + "•" * len(match[2]), text)
    return text if len(text) <= _SHOWN_COLUMNS else text[: _SHOWN_COLUMNS - 1] + "…"


def _stopped(shown: str, lines: Sequence[str], line: int, column: int, message: str, hint: str = "") -> ScenarioError:
    source = _source_line(lines, line, column) if lines else ""
    return ScenarioError(
        [Problem(path=shown, line=line, column=column, message=message, source=source, suggestion=hint)]
    )


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


# --------------------------------------------------------------------------- text to nodes


_TOO_DEEP = f"more than {MAX_DEPTH} levels deep"


class _Alias(Node):
    """A reference to an anchored node, kept apart so that the place of the alias is not lost."""

    def __init__(self, target: Node, start_mark: Mark, end_mark: Mark) -> None:
        super().__init__("", target, start_mark, end_mark)
        self.target = target


class _Loader(yaml.SafeLoader):
    """SafeLoader with the implicit types of the YAML 1.2 core schema, a depth bound, and aliases left visible."""

    depth = 0

    def compose_node(self, parent: Node | None, index: Node | int | None) -> Node | None:
        """Compose one node; an alias becomes an :class:`_Alias`."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if self.depth == MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)  # type: ignore[arg-type]
        self.depth -= 1
        if isinstance(node, ScalarNode) and isinstance(event, yaml.ScalarEvent) and event.tag == "!":
            # In YAML 1.2 this tag says "a text"; PyYAML reads it as no tag at all.
            node.tag = _TAG + "str"
        if node is None or not isinstance(event, yaml.AliasEvent):
            return node
        assert isinstance(event.start_mark, Mark)
        assert isinstance(event.end_mark, Mark)
        return _Alias(node, event.start_mark, event.end_mark)


# Not one of the resolvers of YAML 1.1 is inherited.
_Loader.yaml_implicit_resolvers = {}


def _resolver(kind: str, pattern: str, first: Sequence[str]) -> None:
    _Loader.add_implicit_resolver(_TAG + kind, re.compile(rf"(?:{pattern})\Z"), first)


_resolver("null", _NULL.pattern, ["n", "N", "~", ""])
_resolver("bool", _BOOL.pattern, list("tTfF"))
_resolver("int", _INT.pattern, list("-+0123456789"))
_resolver("float", f"{_FLOAT.pattern}|{_INF.pattern}|{_NAN.pattern}", list("-+.0123456789"))

# What PyYAML says, in words for someone who does not know how a scanner works; the second is what to do about it.
_PLAIN: Mapping[str, tuple[str, str]] = {
    r"found character '\t' that cannot start any token": ("a tab", "indent and separate with spaces"),
    "mapping values are not allowed here": ("a second ': ' in one place", "put a text that contains ': ' in quotes"),
    "found unexpected end of stream": ("the file ends inside a quoted text", ""),
    "but found another document": ("a second document", "a file holds one document"),
    "second occurrence": ("an anchor of this name exists already", ""),
}
_QUOTE = "within {…} and […], put a text that contains any of ? : , [ ] { } in quotes"
_PATTERNS: Sequence[tuple[re.Pattern[str], str, str]] = (
    (re.compile(r"found undefined alias '(.*)'"), r"no anchor '&\1' before this alias", ""),
    (
        re.compile(r"found character '(.)' that cannot start any token"),
        r"a text cannot begin with '\1'",
        "put it in quotes",
    ),
    (
        re.compile(r"expected ',' or '([}\]])', but got '([?:\[{]|<scalar>)'"),
        r"expected ',' or '\1' here, got '\2'",
        _QUOTE,
    ),
    (
        re.compile(r"expected ',' or '([}\]])', but got '(.+)'"),
        r"expected ',' or '\1' here, got '\2'",
        f"close with '}}' or ']' what was opened before; {_QUOTE}",
    ),
    (re.compile(r"expected the node content, but found '([?:\]}])'"), r"expected a value here, got '\1'", _QUOTE),
    (re.compile(r"found unknown escape character '(.)'"), r"unknown escape '\\\1'", "write a backslash as '\\\\'"),
)


def _compose(shown: str, lines: tuple[str, ...], text: str) -> Node:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as trouble:
        mark = trouble.problem_mark or trouble.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message, hint = _said(trouble)
        if found := _wrong_indent(lines, line, trouble.problem or ""):
            column, message, hint = found
        raise _stopped(shown, lines, line, column, message, hint) from trouble
    except (ValueError, OverflowError) as trouble:
        # The scanner gives an escape beyond Unicode to chr() unchecked.
        mark = loader.get_mark()
        raise _stopped(shown, lines, mark.line + 1, mark.column + 1, "an escape beyond U+10FFFF") from trouble
    finally:
        loader.dispose()
    if node is None:
        raise _stopped(shown, (), 1, 1, "the file is empty")
    return node


def _wrong_indent(lines: Sequence[str], line: int, said: str) -> tuple[int, str, str] | None:
    """Return column, message and hint where a key stands too far in or out: what YAML says of it is no help."""
    if "mapping values are not allowed" not in said and "but found '<block mapping start>'" not in said:
        return None
    here = lines[line - 1] if line <= len(lines) else ""
    above = next(
        (each for each in reversed(lines[: line - 1]) if each.strip() and not each.lstrip().startswith("#")), ""
    )
    mine, theirs = (len(each) - len(each.lstrip()) for each in (here, above))
    first = re.fullmatch(r"\s*[\w.-]+:(\s.*)?", here) and here.count(": ") <= 1
    if not first or not above or mine == theirs:
        return None
    message = f"not valid YAML: a key indented by {mine}, where the line above has {theirs}"
    return mine + 1, message, f"indent keys of one mapping alike, here with {theirs} spaces or as the keys before"


def _said(trouble: yaml.MarkedYAMLError) -> tuple[str, str]:
    said = (trouble.problem or "").strip()
    if said in _PLAIN:
        message, hint = _PLAIN[said]
        return f"not valid YAML: {message}", hint
    for pattern, message, hint in _PATTERNS:
        match = pattern.fullmatch(said)
        if match:
            return f"not valid YAML: {match.expand(message)}", hint
    if said == _TOO_DEEP:
        return said, ""
    context = f" {trouble.context}" if trouble.context else ""
    return f"not valid YAML: {said}{context}", ""


# --------------------------------------------------------------------------- nodes to data


class _Unbearable(Exception):
    """Aliases expand to more than we are willing to hold."""


class _Builder:
    """Turns nodes into data, once per place where they appear, and collects what is wrong on the way."""

    def __init__(self, shown: str, lines: tuple[str, ...]) -> None:
        self.shown = shown
        self.lines = lines
        self.places: dict[Key, Place] = {}
        self.problems: list[Problem] = []
        self.spoiled: set[Key] = set()
        self._values = 0
        self._text = 0
        self._open: list[Node] = []
        self._aliases: list[Mark] = []

    def build(self, node: Node) -> Json:
        try:
            return self._convert(node, (), None)
        except _Unbearable as trouble:
            raise ScenarioError(listed(self.problems)) from trouble

    def _complain(self, mark: Mark, message: str, suggestion: str = "") -> None:
        line, column = mark.line + 1, mark.column + 1
        self.problems.append(
            Problem(
                path=self.shown,
                line=line,
                column=column,
                message=message,
                source=_source_line(self.lines, line, column),
                suggestion=suggestion,
            )
        )

    def _spend(self, node: Node, text: int) -> None:
        self._values += 1
        self._text += text
        mark = self._aliases[0] if self._aliases else node.start_mark
        cause = "aliases expand to" if self._aliases else "the file holds"
        if self._values > MAX_VALUES:
            self._complain(mark, f"{cause} more than {MAX_VALUES} values")
            raise _Unbearable
        if self._text > MAX_TEXT:
            self._complain(mark, f"{cause} more than {MAX_TEXT // 1024} KiB of text")
            raise _Unbearable

    def _convert(self, node: Node, at: Key, key_mark: Mark | None) -> Json:
        mark = node.start_mark
        key = (key_mark.line + 1, key_mark.column + 1) if key_mark is not None else None
        self.places[at] = Place(file=self.shown, value=(mark.line + 1, mark.column + 1), key=key)
        if isinstance(node, _Alias):
            return self._alias(node, at)
        if len(at) > MAX_DEPTH:
            self._complain(self._aliases[0], f"aliases expand to more than {MAX_DEPTH} levels")
            raise _Unbearable
        before = len(self.problems)
        data = self._plain(node, at)
        # A collection is spoiled only as a whole; what is wrong inside it has a place of its own.
        if data is None and len(self.problems) > before:
            self.spoiled.add(at)
        return data

    def _plain(self, node: Node, at: Key) -> Json:
        if isinstance(node, ScalarNode):
            self._spend(node, len(node.value))
            return self._scalar(node)
        self._spend(node, 0)
        if node.tag not in {_TAG + "map", _TAG + "seq"} or (node.tag == _TAG + "map") != isinstance(node, MappingNode):
            self._complain(node.start_mark, f"the tag {_shown_tag(node.tag)} is not allowed here")
            return None
        self._open.append(node)
        data = self._mapping(node, at) if isinstance(node, MappingNode) else self._sequence(node, at)
        self._open.pop()
        return data

    def _alias(self, node: _Alias, at: Key) -> Json:
        if any(node.target is held for held in self._open):
            self._complain(node.start_mark, "this alias is inside what it refers to")
            self.spoiled.add(at)
            return None
        place = self.places[at]
        self._aliases.append(node.start_mark)
        data = self._convert(node.target, at, None)
        self._aliases.pop()
        self.places[at] = place
        return data

    def _sequence(self, node: Node, at: Key) -> Json:
        assert isinstance(node, SequenceNode)
        return [self._convert(item, (*at, index), None) for index, item in enumerate(node.value)]

    def _mapping(self, node: MappingNode, at: Key) -> Json:
        data: dict[str, Json] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key is None:
                continue
            if key in data:
                self._complain(key_node.start_mark, f"duplicate key {key!r}; the first is in line {first[key]}")
                continue
            first[key] = key_node.start_mark.line + 1
            data[key] = self._convert(value_node, (*at, key), key_node.start_mark)
        return data

    def _key(self, given: Node) -> str | None:
        node = given.target if isinstance(given, _Alias) else given
        if not isinstance(node, ScalarNode):
            self._complain(given.start_mark, "a key must be a text, not a list or a mapping")
            return None
        self._spend(node, len(node.value))
        if node.tag == _TAG + "str" and node.value == "<<" and node.style is None:
            self._complain(given.start_mark, "merge keys ('<<') are not YAML 1.2", "write the keys out")
            return None
        if node.tag in {_TAG + kind for kind in ("null", "bool", "int", "float")}:
            shown = node.value or "nothing"
            self._complain(given.start_mark, f"a key must be a text, not {shown}", f"put it in quotes: '{node.value}'")
            return None
        key = self._scalar(node)
        return key if isinstance(key, str) else None

    def _scalar(self, node: ScalarNode) -> Json:
        kind = node.tag.removeprefix(_TAG)
        text = str(node.value)
        if kind == "str":
            return self._string(node)
        if kind == "null" and _NULL.fullmatch(text):
            return None
        if kind == "bool" and _BOOL.fullmatch(text):
            return text.lower() == "true"
        if kind == "int" and _INT.fullmatch(text):
            if len(text) > _MAX_DIGITS:
                self._complain(node.start_mark, f"a number of more than {_MAX_DIGITS} digits")
                return None
            base = {"0o": 8, "0x": 16}.get(text[:2])
            return int(text[2:], base) if base else int(text)
        if kind == "float" and (number := self._float(text)) is not None:
            if math.isinf(number) and not _INF.fullmatch(text):
                self._complain(node.start_mark, f"{_cut(text)} is beyond what a number can hold")
                return None
            return number
        if kind in {"null", "bool", "int", "float"}:
            self._complain(node.start_mark, f"{_cut(text)!r} is not a value of the tag {_shown_tag(node.tag)}")
        else:
            self._complain(node.start_mark, f"the tag {_shown_tag(node.tag)} is not allowed here")
        return None

    @staticmethod
    def _float(text: str) -> float | None:
        if _FLOAT.fullmatch(text) or _INF.fullmatch(text) or _NAN.fullmatch(text):
            return float(text.replace(".", "", 1) if text.lower().endswith(("inf", "nan")) else text)
        return None

    def _string(self, node: ScalarNode) -> str | None:
        try:
            # Two escapes that are one character, as JSON writes them, become that character.
            return str(node.value).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self._complain(node.start_mark, "an escape that is half of a character (a lone surrogate)")
            return None


def _shown_tag(tag: str) -> str:
    return f"'!!{_cut(tag.removeprefix(_TAG))}'" if tag.startswith(_TAG) else f"'{_cut(tag)}'"


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
