"""What a team sends to its models: its own schemas, tools and prompts, from a YAML file or a log; it sends nothing.

A workload becomes scenarios: the built-in patterns of the probes that are ``per_item``, filled in once for each schema
and tool. From then on nobody needs the file: the run folder holds the scenarios with all that is in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servecheck.errors import Problem, ScenarioError
from servecheck.model import Json
from servecheck.probe import Params, Probe
from servecheck.read.slips import wrong_with
from servecheck.read.text import dig, string
from servecheck.requestlog import MAX_ITEM, Log, Seen, digest, plain_tool, read_log, schema_of_format
from servecheck.scenario import Scenario
from servecheck.schema.workload_v1 import OwnPromptV1, WorkloadV1
from servecheck.yamlfile import Document, check, listed, read, read_text

__all__ = ["OWN", "Item", "OwnPrompt", "Planned", "PlannedItem", "Workload", "fill_in", "load", "problems_of"]

AT_MOST = 50
"""How many schemas, and how many tools, are run where the file does not say."""

OWN = "workload-"
"""How the ids of the scenarios begin that run a workload's items."""

SCHEMA, TOOL = "schema", "tool"
_PROBES = {SCHEMA: "workload_schema", TOOL: "workload_tool"}
_AT_MOST_PROMPTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One schema or tool: ``uses`` counts requests of the logs, and is ``None`` where they hold none of it.

    ``named`` are those that the workload file names itself; they come before what only a log holds.
    """

    kind: str
    name: str
    body: dict[str, Json]
    place: str
    uses: int | None = None
    strict: bool | None = None
    messages: Json = None
    named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrompt:
    """One prompt, as the messages of a chat; ``uses`` and ``named`` as those of an :class:`Item`."""

    name: str
    messages: Json
    place: str
    uses: int | None = None
    named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """All of it, without repeats: what the file names first, then the most used. ``notes`` say what is not there."""

    source: str
    items: tuple[Item, ...] = ()
    prompts: tuple[OwnPrompt, ...] = ()
    notes: tuple[str, ...] = ()
    at_most: int = AT_MOST


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedItem:
    """An item that is run, and the scenario that runs it."""

    kind: str
    name: str
    place: str
    uses: int | None
    scenario: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a run folder says of the workload besides its scenarios."""

    source: str
    items: tuple[PlannedItem, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield what a person should know before it runs."""
        counted = [_count(sum(one.kind == kind for one in self.items), kind) for kind in (SCHEMA, TOOL)]
        yield f"workload {self.source}: {' and '.join(counted)} to run"
        yield from self.notes


def load(path: Path) -> Workload:
    """Load a workload file, or a log of requests (``.jsonl``) by itself.

    Raises :class:`ScenarioError` with all problems of the file and of the files it names.
    """
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        found = _Gathered(source=str(path))
        found.add_log(read_log(path))
        return found.workload()
    document = read(path)
    gathered, problems = _gathered(document, path.parent)
    if problems or gathered is None:
        raise ScenarioError(listed(problems))
    return gathered.workload()


def problems_of(document: Document, folder: Path) -> list[Problem]:
    """Return what :func:`load` would raise for, for a file that was read already, and what its logs make doubtful."""
    gathered, problems = _gathered(document, folder)
    return listed([*problems, *(gathered.warnings if gathered is not None else ())])


# --------------------------------------------------------------------------- from files to items


class _Gathered:
    """Items in the order in which they are named, equal ones once."""

    def __init__(self, *, source: str, at_most: int = AT_MOST) -> None:
        self.source, self.at_most = source, at_most
        self.items: dict[str, Item] = {}
        self.prompts: dict[str, OwnPrompt] = {}
        self.notes: list[str] = []
        self.warnings: list[Problem] = []
        self._names: dict[tuple[str, str], int] = {}

    def add(self, item: Item) -> None:
        key = digest([item.kind, item.body, item.strict if item.kind == SCHEMA else None])
        known = self.items.get(key)
        if known is None:
            self.items[key] = replace(item, name=self._free(item.kind, item.name))
        elif item.uses is not None:
            self.items[key] = replace(
                known, uses=(known.uses or 0) + item.uses, messages=known.messages or item.messages
            )

    def add_prompt(self, prompt: OwnPrompt) -> None:
        key = digest(prompt.messages)
        known = self.prompts.get(key)
        if known is None:
            self.prompts[key] = replace(prompt, name=self._free("prompt", prompt.name))
        elif prompt.uses is not None:
            self.prompts[key] = replace(known, uses=(known.uses or 0) + prompt.uses)

    def add_log(self, log: Log) -> None:
        for kind, seen in ((SCHEMA, log.schemas), (TOOL, log.tools)):
            for one in seen.values():
                self.add(_item(kind, one, log))
        for one in log.prompts.values():
            place = _place(one, log)
            self.add_prompt(OwnPrompt(name=one.name, messages=one.body, place=place, uses=one.uses, named=False))
        self.notes += log.notes()
        self.warnings += [
            Problem(path=log.path, line=line, column=1, message=doubt, warning=True)
            for doubt, line in log.doubts.items()
        ]

    def _free(self, kind: str, name: str) -> str:
        """Return the name, numbered where another thing of its kind has it already."""
        name = " ".join(name.split())[:80] or kind
        free = name
        # Names differ by more than their signs, for they become ids; the numbers given so far are kept, not counted up.
        while (kind, _slug(free)) in self._names:
            self._names[kind, _slug(name)] += 1
            free = f"{name[:48]}-{self._names[kind, _slug(name)]}"
        self._names[kind, _slug(free)] = 1
        return free

    def workload(self) -> Workload:
        notes = list(self.notes)
        chosen: list[Item] = []
        for kind in (SCHEMA, TOOL):
            # What the file names comes first, then what is used most; equals stay in the order of first use.
            mine = sorted((one for one in self.items.values() if one.kind == kind), key=_most_used)
            chosen += mine[: self.at_most]
            rest = mine[self.at_most :]
            if rest:
                times = sum(one.uses or 0 for one in rest)
                used = f", which are used {times} times in all" if times else ""
                notes.append(
                    f"{_count(len(mine), kind, 'distinct ')}: the {self.at_most} most used are run; "
                    f"{len(rest)} are not{used} (at_most in the workload file sets the number)"
                )
        prompts = sorted(self.prompts.values(), key=_most_used)
        return Workload(
            source=self.source,
            items=tuple(chosen),
            prompts=tuple(prompts[:_AT_MOST_PROMPTS]),
            notes=tuple(notes),
            at_most=self.at_most,
        )


def _most_used(one: Item | OwnPrompt) -> tuple[bool, int]:
    return not one.named, -(one.uses or 0)


def _item(kind: str, seen: Seen, log: Log) -> Item:
    assert isinstance(seen.body, dict)
    return Item(
        kind=kind,
        name=seen.name,
        body=seen.body,
        place=_place(seen, log),
        uses=seen.uses,
        strict=seen.strict,
        messages=seen.messages,
        named=False,
    )


def _place(seen: Seen, log: Log) -> str:
    return f"{log.path}:{seen.line}"


def _count(number: int, what: str, kind: str = "") -> str:
    return f"{number} {kind}{what}{'' if number == 1 else 's'}"


def _gathered(document: Document, folder: Path) -> tuple[_Gathered | None, list[Problem]]:
    shape, problems = check(document, WorkloadV1)
    problems += document.problems
    if shape is None:
        reader = _Files(document, folder, _Gathered(source=document.path, at_most=0))
        reader.named(document.data)
        return None, problems + reader.problems
    gathered = _Gathered(source=document.path, at_most=shape.at_most)
    reader = _Files(document, folder, gathered)
    for name, own in shape.json_schemas.items():
        reader.schema(name, ("json_schemas", name), own.file, own.inline, own.strict, own.prompt)
    for place, tool in enumerate(shape.tools):
        reader.tools(("tools", place), tool.file, tool.inline)
    for name, prompt in shape.prompts.items():
        reader.prompt(name, ("prompts", name), prompt)
    for place, name in enumerate(shape.request_logs):
        reader.log(("request_logs", place), name)
    problems += reader.problems
    if not problems and not gathered.items and not gathered.prompts:
        problems.append(document.problem((), "names no schema, no tool, no prompt and no log"))
    return gathered, problems


class _Files:
    """Reads what a workload file names, and says what is wrong at the place where it is."""

    def __init__(self, document: Document, folder: Path, into: _Gathered) -> None:
        self._document, self._folder, self._into = document, folder, into
        self.problems: list[Problem] = []

    def named(self, data: Json) -> None:
        """Look for the files that are named in a workload whose shape is wrong: all problems are told at once."""
        fields = data if isinstance(data, dict) else {}
        for part in ("json_schemas", "tools", "prompts", "request_logs"):
            held = fields.get(part)
            pairs: Iterable[tuple[str | int, Json]] = (
                held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
            )
            for key, own in pairs:
                if isinstance(own, dict) and isinstance(name := own.get("file"), str):
                    self._path((part, key, "file"), name)
                elif part == "request_logs" and isinstance(own, str):
                    self._path((part, key), own)

    def schema(
        self,
        name: str,
        at: tuple[str | int, ...],
        file: str | None,
        inline: Mapping[str, Any] | None,
        strict: bool | None,
        prompt: str | None,
    ) -> None:
        found = self._data(at, file, inline)
        if found is None:
            return
        document, root, data = found
        wrapped = schema_of_format(data)
        if wrapped is not None:
            inner = ("json_schema", "schema") if dig(data, "json_schema") is not None else ("schema",)
            root, data = (*root, *inner), wrapped[1]
            strict = wrapped[2]
        if not self._usable(document, root, data):
            return
        messages: Json = [{"role": "user", "content": prompt}] if prompt else None
        assert isinstance(data, dict)
        place = self._shown(document, root)
        self._into.add(Item(kind=SCHEMA, name=name, body=data, place=place, strict=strict, messages=messages))

    def tools(self, at: tuple[str | int, ...], file: str | None, inline: Mapping[str, Any] | None) -> None:
        found = self._data(at, file, inline)
        if found is None:
            return
        document, root, data = found
        several = data if isinstance(data, list) else [data]
        for number, said in enumerate(several):
            here = (*root, number) if isinstance(data, list) else root
            tool = plain_tool(said)
            name = string(dig(tool, "function", "name"))
            if tool is None or not name:
                what = "expected a tool: {type: function, function: {name, description, parameters}}"
                self.problems.append(document.problem(here, what))
                continue
            parameters = dig(tool, "function", "parameters")
            inner = ("function", "parameters") if dig(said, "function") is not None else ("parameters",)
            if parameters is None or self._usable(document, (*here, *inner), parameters):
                self._into.add(Item(kind=TOOL, name=name, body=tool, place=self._shown(document, here)))

    def prompt(self, name: str, at: tuple[str | int, ...], own: OwnPromptV1) -> None:
        messages: Json = [dict(message) for message in own.messages or ()]
        place = self._shown(self._document, at)
        if own.file is not None:
            path = self._path((*at, "file"), own.file)
            if path is None:
                return
            try:
                messages, place = [{"role": "user", "content": read_text(path)}], str(path)
            except ScenarioError as error:
                self.problems += error.problems
                return
        elif own.text is not None:
            messages = [{"role": "user", "content": own.text}]
        self._into.add_prompt(OwnPrompt(name=name, messages=messages, place=place))

    def log(self, at: tuple[str | int, ...], name: str) -> None:
        path = self._path(at, name)
        if path is None:
            return
        try:
            self._into.add_log(read_log(path))
        except ScenarioError as error:
            self.problems += error.problems

    def _path(self, at: tuple[str | int, ...], name: str) -> Path | None:
        path = self._folder / name
        if path.is_file():
            return path
        what = "is a folder, not a file" if path.is_dir() else "no such file"
        self.problems.append(self._document.problem(at, f"{what}: {path}"))
        return None

    def _data(
        self, at: tuple[str | int, ...], file: str | None, inline: Mapping[str, Any] | None
    ) -> tuple[Document, tuple[str | int, ...], Json] | None:
        """Return the document that holds the data, where in it, and the data; ``None`` where something is wrong."""
        if file is None:
            return self._document, (*at, "inline"), dict(inline or {})
        path = self._path((*at, "file"), file)
        if path is None:
            return None
        try:
            document = read(path)
        except ScenarioError as error:
            self.problems += error.problems
            return None
        self.problems += document.problems
        return None if document.problems else (document, (), document.data)

    def _usable(self, document: Document, at: tuple[str | int, ...], schema: Json) -> bool:
        wrong = [
            document.problem((*at, *each.at), each.message, on_key=each.on_key, suggestion=each.suggestion)
            for each in wrong_with(schema)
        ]
        if not wrong and len(json.dumps(schema)) > MAX_ITEM:
            wrong.append(document.problem(at, f"larger than {MAX_ITEM // 1024} KiB"))
        self.problems += wrong
        return not wrong

    @staticmethod
    def _shown(document: Document, at: tuple[str | int, ...]) -> str:
        problem = document.problem(at, "")
        return f"{problem.path}:{problem.line}" if at else problem.path


# --------------------------------------------------------------------------- from items to scenarios


def fill_in(
    scenarios: Iterable[Scenario], probes: Mapping[str, Probe[Params]], workload: Workload | None
) -> tuple[list[Scenario], Planned | None]:
    """Return the scenarios with every pattern replaced by one scenario for each item that it fits, or by none.

    Which scenario runs which item is in the second value, ``None`` without a workload.
    """
    given = list(scenarios)
    patterns = [one for one in given if probes[one.probe].per_item]
    if workload is None:
        return [one for one in given if one not in patterns], None
    made: list[Scenario] = []
    planned: list[PlannedItem] = []
    for item in workload.items:
        mine = [one for one in patterns if one.probe == _PROBES[item.kind]]
        if not mine:
            continue
        filled = _filled(item, mine, probes)
        made.append(filled)
        planned.append(
            PlannedItem(kind=item.kind, name=item.name, place=item.place, uses=item.uses, scenario=filled.id)
        )
    rest = [one for one in given if one not in patterns]
    return rest + made, Planned(source=workload.source, items=tuple(planned), notes=workload.notes)


def _filled(item: Item, patterns: Sequence[Scenario], probes: Mapping[str, Probe[Params]]) -> Scenario:
    pattern = next((one for one in patterns if _is_strict(one) == (_tool_is_strict(item.body))), patterns[0])
    filled: dict[str, Json] = {"item": item.name}
    if item.kind == SCHEMA:
        filled |= {"answer_schema": item.body, "strict": item.strict, "messages": item.messages or []}
    else:
        filled |= {"tool": item.body}
    params = probes[pattern.probe].params.model_validate({**pattern.params.model_dump(), **filled})
    return replace(
        pattern,
        id=f"{OWN}{item.kind}-{_slug(item.name)}",
        title=f"The workload's {item.kind} {item.name}",
        params=params,
    )


def _is_strict(pattern: Scenario) -> bool:
    return _tool_is_strict(pattern.params.model_dump().get("tool"))


def _tool_is_strict(tool: Any) -> bool:  # noqa: ANN401 - JSON
    return dig(tool, "function", "strict") is True


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or digest(name)[:8]
