"""A log of requests (JSONL) as the distinct schemas, tools and prompts in it; holds little of it, whatever its size.

A line is a request body, or a line of a batch file (``custom_id``, ``method``, ``url``, ``body``). Lines that are
neither are counted and named, never fatal: logs are written by machines that die.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from servecheck.errors import Problem, ScenarioError
from servecheck.model import Json
from servecheck.read.schemas import fault_in_schema
from servecheck.read.slips import slips
from servecheck.read.text import dig, parse, string

__all__ = ["MAX_ITEM", "Log", "Seen", "digest", "messages_of", "plain_tool", "read_log", "schema_of_format"]

MAX_LINE = 1024 * 1024
MAX_FILE = 512 * 1024 * 1024
MAX_ITEM = 64 * 1024
MAX_DISTINCT = 5_000
MAX_KEPT = 16 * 1024 * 1024  # of schemas, of tools and of prompts, so that none takes the room of another
_NAMED_LINES = 8
_PROMPTS = ("messages", "prompt", "input")


@dataclass(slots=True, kw_only=True)
class Seen:
    """Something distinct that requests carried: ``strict`` and ``messages`` are a schema's, of its first request."""

    name: str
    body: Json
    line: int
    uses: int = 1
    strict: bool | None = None
    messages: Json = None


@dataclass(slots=True, kw_only=True)
class Log:
    """What a log holds, in the order of first use, and what of it could not be used, in sentences."""

    path: str
    lines: int = 0
    schemas: dict[str, Seen] = field(default_factory=dict)
    tools: dict[str, Seen] = field(default_factory=dict)
    prompts: dict[str, Seen] = field(default_factory=dict)
    unread: list[tuple[int, str]] = field(default_factory=list)
    unread_count: int = 0
    left_out: dict[str, tuple[int, int]] = field(default_factory=dict)
    doubts: dict[str, int] = field(default_factory=dict)
    stopped: str = ""

    def notes(self) -> Iterator[str]:
        """Yield what a reader has to know of what is not there."""
        if self.unread_count:
            named = "; ".join(f"line {line}: {why}" for line, why in self.unread)
            more = self.unread_count - len(self.unread)
            tail = f"; and {more} more" if more else ""
            yield f"{self.path}: {self.unread_count} of {self.lines} lines could not be read ({named}{tail})"
        for why, (line, times) in self.left_out.items():
            again = f" and {times - 1} more" if times > 1 else ""
            yield f"{self.path}:{line}{again}: {why}"
        for doubt, line in self.doubts.items():
            yield f"{self.path}:{line}: {doubt}"
        if self.stopped:
            yield f"{self.path}: {self.stopped}"


def digest(value: Json) -> str:
    """Return the same short text for equal JSON, whatever the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_log(path: Path) -> Log:
    """Read a log line by line. Raises :class:`ScenarioError` where the file cannot be read or no line is a request."""
    log = Log(path=str(path))
    reader = _Reader(log)
    try:
        with path.open("rb") as file:
            place = 0
            while True:
                line = file.readline(MAX_LINE + 1)
                if not line:
                    break
                log.lines += 1
                place += len(line)
                whole = len(line) <= MAX_LINE
                while not whole and line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE)
                    place += len(line)
                if not whole:
                    reader.unread(f"longer than {MAX_LINE // 1024} KiB")
                elif line.strip():
                    reader.take(line)
                if place > MAX_FILE:
                    log.stopped = f"only the first {MAX_FILE // 1024**2} MiB ({log.lines} lines) were read"
                    break
    except OSError as error:
        raise _stopped(log, 1, f"cannot be read: {error.strerror}") from error
    if not reader.requests:
        line_number, why = log.unread[0] if log.unread else (1, "the file is empty")
        hint = 'expected one request body a line, as {"messages": […], …} or a batch file\'s {"custom_id", …, "body"}'
        raise _stopped(log, line_number, f"no line is a request: {why}", hint)
    return log


def _stopped(log: Log, line: int, message: str, hint: str = "") -> ScenarioError:
    return ScenarioError([Problem(path=log.path, line=line, column=1, message=message, suggestion=hint)])


class _Reader:
    """Sorts the lines of one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.requests = 0
        self._kept: Counter[str] = Counter()
        self._faults: dict[str, str] = {}  # a schema is looked at once, however often it is used

    def unread(self, why: str) -> None:
        self.log.unread_count += 1
        if len(self.log.unread) < _NAMED_LINES:
            self.log.unread.append((self.log.lines, why))

    def take(self, line: bytes) -> None:
        try:
            said = parse(line)
        except ValueError as error:
            self.unread(f"not JSON: {_short(str(error).partition(': line ')[0].removesuffix(' at'))}")
            return
        body = _body_of(said)
        if body is None:
            self.unread("no request body: none of messages, prompt and input")
            return
        self.requests += 1
        messages = messages_of(body)
        if messages is not None and not self._count(self.log.prompts, "prompt", "", messages):
            messages = None
        for name, schema, strict in _schemas(body):
            if self._count(self.log.schemas, "schema", name, schema, strict) and messages is not None:
                seen = self.log.schemas[digest([schema, strict])]
                seen.messages = seen.messages or messages
        for tool in _tools(body):
            self._count(self.log.tools, "tool", string(dig(tool, "function", "name")), tool)

    def _count(self, into: dict[str, Seen], what: str, name: str, body: Json, strict: bool | None = None) -> bool:
        """Count a use; return whether it is kept."""
        key = digest([body, strict] if what == "schema" else body)
        if key in into:
            into[key].uses += 1
            return True
        if what != "prompt" and (fault := self._fault(key, what, name, body)):
            self._leave_out(f"a {what} is left out: {fault}")
            return False
        size = len(json.dumps(body))
        if size > MAX_ITEM:
            self._leave_out(f"a {what} of more than {MAX_ITEM // 1024} KiB is left out")
            return False
        if len(into) >= MAX_DISTINCT or self._kept[what] + size > MAX_KEPT:
            self._leave_out(f"a {what} is left out: there are too many distinct ones")
            return False
        self._kept[what] += size
        if what != "prompt":
            self._doubt(what, name, body)
        into[key] = Seen(name=name or f"{what}-{key[:8]}", body=body, line=self.log.lines, strict=strict)
        return True

    def _fault(self, key: str, what: str, name: str, body: Json) -> str:
        if key not in self._faults:
            if len(self._faults) >= 2 * MAX_DISTINCT:
                return "there are too many distinct ones"
            self._faults[key] = _unusable(what, name, body)
        return self._faults[key]

    def _doubt(self, what: str, name: str, body: Json) -> None:
        """Note what is most likely not meant; an application sends it all the same, so it is asked as it is."""
        schema = dig(body, "function", "parameters") if what == "tool" else body
        for each in slips(schema):
            if len(self.log.doubts) < _NAMED_LINES:
                hint = f"; {each.suggestion}" if each.suggestion else ""
                self.log.doubts.setdefault(f"{what} {name or 'without a name'}: {each.message}{hint}", self.log.lines)

    def _leave_out(self, why: str) -> None:
        line, times = self.log.left_out.get(why, (self.log.lines, 0))
        if times or len(self.log.left_out) < _NAMED_LINES:
            self.log.left_out[why] = (line, times + 1)


def _unusable(what: str, name: str, body: Json) -> str:
    """Return why a schema or tool cannot be used; empty where it can."""
    if what == "tool" and not name:
        return "it has no name"
    schema = dig(body, "function", "parameters") if what == "tool" else body
    fault = fault_in_schema(schema) if schema is not None else None
    return fault.message if fault is not None else ""


def _body_of(line: Json) -> dict[str, Json] | None:
    """Return the request body in a line, ``None`` where there is none."""
    body = line
    if isinstance(line, dict) and not any(name in line for name in _PROMPTS):
        body = line.get("body", line.get("request"))
    if isinstance(body, str):
        try:
            body = parse(body)
        except ValueError:
            return None
    return body if isinstance(body, dict) and any(name in body for name in _PROMPTS) else None


def _schemas(body: dict[str, Json]) -> Iterator[tuple[str, Json, bool | None]]:
    for said in (body.get("response_format"), dig(body, "text", "format")):
        found = schema_of_format(said)
        if found is not None:
            yield found
    for guided in (dig(body, "structured_outputs", "json"), body.get("guided_json"), body.get("json_schema")):
        schema = guided
        if isinstance(guided, str):
            try:
                schema = parse(guided)
            except ValueError:
                continue
        if isinstance(schema, dict):
            # What is sent in its place is response_format, which every engine knows; `strict` is not of these fields.
            yield string(schema.get("title")), schema, None


def schema_of_format(said: Json) -> tuple[str, Json, bool | None] | None:
    """Return name, schema and ``strict`` of a ``response_format``, of either API; ``None`` where it has no schema."""
    if dig(said, "type") != "json_schema":
        return None
    inner = dig(said, "json_schema") if dig(said, "json_schema") is not None else said
    schema, strict = dig(inner, "schema"), dig(inner, "strict")
    if not isinstance(schema, dict):
        return None
    return string(dig(inner, "name")), schema, strict if isinstance(strict, bool) else None


def _tools(body: dict[str, Json]) -> Iterator[Json]:
    for key in ("tools", "functions"):
        listed = body.get(key)
        for said in listed if isinstance(listed, list) else ():
            tool = plain_tool(said)
            if tool is not None:
                yield tool


def plain_tool(said: Json) -> dict[str, Json] | None:
    """Return a function tool in the shape of chat completions; ``None`` for what is none (a built-in tool, garbage)."""
    if not isinstance(said, dict):
        return None
    if isinstance(said.get("function"), dict):
        return {"type": "function", "function": said["function"]}
    if said.get("type") in (None, "function") and isinstance(said.get("name"), str):
        return {"type": "function", "function": {key: value for key, value in said.items() if key != "type"}}
    return None


def messages_of(body: dict[str, Json]) -> Json:
    """Return a request's prompt as chat messages of text; ``None`` where it holds pictures, calls or nothing."""
    said = next((body[key] for key in ("messages", "input", "prompt") if key in body), None)
    if isinstance(said, str):
        return [{"role": "user", "content": said}] if said.strip() else None
    if not isinstance(said, list) or not said:
        return None
    made: list[Json] = []
    for message in said:
        role, content = dig(message, "role"), _text(dig(message, "content"))
        if role not in ("system", "developer", "user", "assistant") or not content:
            return None
        made.append({"role": role, "content": content})
    return made


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    texts = [string(dig(part, "text")) for part in content] if isinstance(content, list) else []
    return "\n".join(texts) if texts and all(texts) else ""


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
