"""Two recorded runs as one run folder, so that a comparison of runs of different days is judged as one run is.

It copies what was recorded and decides nothing; that the two can be compared at all is checked before.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from servecheck import __version__, declared, expectations, profiles
from servecheck.errors import StoreError, UnknownName, UsageError
from servecheck.expectations import Expectation
from servecheck.model import Endpoint, Json, SkipCode
from servecheck.profiles import Profile
from servecheck.store import RunReader, RunWriter, to_json

__all__ = ["SIDES", "Recorded", "Unlike", "join", "recorded_unlike", "recording"]

SIDES = ("left", "right")
_RECORDING = ("started", "version", "suite", "probes_digest", "settings")


class Unlike(StrEnum):
    """A difference that makes a comparison of two runs mean less than it seems to, unless it is wanted."""

    MODEL = "model"
    PROBES = "probes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One run, and the one of its endpoints that takes part."""

    reader: RunReader
    endpoint: Endpoint
    name: str


def join(
    left: str,
    right: str,
    folder: Path,
    *,
    command: Iterable[str] = (),
    unlike: Iterable[Unlike] = (),
    profile: Profile | None = None,
    expected: Iterable[Expectation] = (),
) -> tuple[str, str]:
    """Write one run folder with an endpoint of each of two others; the left one is the reference.

    ``left`` and ``right`` are run folders, as ``FOLDER`` or ``FOLDER:ENDPOINT``. ``profile`` and ``expected`` are kept
    there as a run keeps them. Returns the names of the two endpoints there.

    Raises:
        UsageError: a run has several endpoints and none was named; the models differ, or the probes that drove, and
            ``unlike`` does not say that this is wanted.
        StoreError: a folder holds no run, or ``folder`` cannot be written.
    """
    sides = _named(_side(left, of_several="reference"), _side(right, of_several="candidate"))
    _refuse_unlike(*sides, wanted=frozenset(unlike))
    writer = RunWriter(folder)
    asked = {"profile": profiles.as_header(profile), "expectations": to_json(expectations.as_header(expected))}
    writer.header(**_header(sides, list(command)), **asked)
    offset = 0
    for side in sides:
        offset = _copy(side, writer, offset, _left_out(side, writer))
        _copy_bodies(side.reader.folder, folder)
    footers = [side.reader.footer or {} for side in sides]
    spent: dict[str, Json] = {
        side.name: _object(footer.get("spent")).get(side.endpoint.name)
        for side, footer in zip(sides, footers, strict=True)
    }
    writer.write(
        "footer",
        finished=datetime.now(UTC).isoformat(),
        complete=all(footer.get("complete") is True for footer in footers),
        interrupted=next((f"{side.name} died" for side, end in zip(sides, footers, strict=True) if not end), None),
        spent=spent,
    )
    writer.close()
    return sides[0].name, sides[1].name


def _side(text: str, *, of_several: str) -> _Side:
    """Find the run and the endpoint; a folder whose name holds a colon is taken for a folder where it is one."""
    path, _, name = (text, "", "") if Path(text).is_dir() else text.rpartition(":")
    reader = RunReader(Path(path or text))
    known = {endpoint.name: endpoint for endpoint, _ in reader.endpoints()}
    if name:
        if name not in known:
            raise UnknownName("endpoint", name, known)
        return _Side(reader=reader, endpoint=known[name], name=name)
    fitting = [each for each in known.values() if each.reference is (of_several == "reference")]
    if len(known) == 1:
        fitting = [*known.values()]
    if len(fitting) != 1:
        names = ", ".join(known)
        raise UsageError(f"{text} holds several endpoints ({names}); name one: {text}:{next(iter(known), 'NAME')}")
    return _Side(reader=reader, endpoint=fitting[0], name=fitting[0].name)


def _named(left: _Side, right: _Side) -> tuple[_Side, _Side]:
    """Give the two endpoints names of their own; the same endpoint on two days has one name in both runs."""
    if left.name != right.name:
        return left, right
    first, second = (
        _Side(reader=side.reader, endpoint=side.endpoint, name=f"{side.name}-{word}")
        for side, word in zip((left, right), SIDES, strict=True)
    )
    return first, second


def _refuse_unlike(left: _Side, right: _Side, *, wanted: frozenset[Unlike]) -> None:
    models = left.endpoint.model, right.endpoint.model
    if models[0] != models[1] and Unlike.MODEL not in wanted:
        raise UsageError(
            f"{left.name} served the model {models[0]!r} and {right.name} {models[1]!r}; if these are the same weights "
            "or the difference is what you want to see, say --unlike model"
        )
    digests = left.reader.header.get("probes_digest"), right.reader.header.get("probes_digest")
    if digests[0] != digests[1] and Unlike.PROBES not in wanted:
        raise UsageError(
            f"the runs were recorded by unlike probes ({digests[0]} and {digests[1]}), so some requests may differ; "
            "today's probes judge both: say --unlike probes to compare them so"
        )


# --------------------------------------------------------------------------- a recorded reference in a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recorded endpoint that a run is going to be held against: it is copied into the run's folder first."""

    side: _Side

    @property
    def name(self) -> str:
        """The name of the endpoint in the run."""
        return self.side.name

    def header(self, header: Mapping[str, Json]) -> dict[str, Json]:
        """Return the header of a run with the recorded endpoint as its reference, before all others."""
        endpoints = [{**each, "reference": False} for each in _objects(header.get("endpoints"))]
        taken = self._taken(header)
        skips = [
            _skip(str(each["feature"]), self.name, why)
            for each in _objects(header.get("scenarios"))
            if (why := self._left_out(each, taken))
        ]
        return {
            **header,
            "endpoints": [_renamed(to_json(self.side.endpoint), self.side, reference=True), *endpoints],
            "skips": [*_objects(header.get("skips")), *skips],
            "recorded": self.name,
            "joined": [
                _recording(self.side, self.side.reader.header),
                _recording(None, header) | {"endpoint": ", ".join(str(each["name"]) for each in endpoints)},
            ],
        }

    def copy(self, writer: RunWriter, header: Mapping[str, Json]) -> int:
        """Copy what of the recording the run asks too, in the same way; returns the number of the last exchange."""
        mine = {str(each["id"]) for each in _objects(self.side.reader.header.get("scenarios"))}
        last = _copy(self.side, writer, 0, mine - self._taken(header))
        _copy_bodies(self.side.reader.folder, writer.folder)
        return last

    def _taken(self, header: Mapping[str, Json]) -> set[str]:
        mine = {str(each["id"]): _asked(each) for each in _objects(self.side.reader.header.get("scenarios"))}
        return {name for each in _objects(header.get("scenarios")) if mine.get(name := str(each["id"])) == _asked(each)}

    def _left_out(self, scenario: Mapping[str, Json], taken: set[str]) -> str:
        if scenario["id"] in taken:
            return ""
        known = {str(each["id"]) for each in _objects(self.side.reader.header.get("scenarios"))}
        if scenario["id"] in known:
            return f"the recording asked this differently: scenario {scenario['id']}"
        return f"not part of the recording {self.side.reader.folder.name}"


def recording(text: str, names: Iterable[str]) -> Recorded:
    """Find a recorded endpoint, as ``FOLDER`` or ``FOLDER:ENDPOINT``, to be the reference of a run of ``names``.

    Raises:
        UsageError: the recording has several endpoints and none was named, or it is not complete.
        StoreError: the folder holds no run.
    """
    side = _side(text, of_several="reference")
    if side.reader.footer is None:
        raise UsageError(f"the recording {text} is not complete; go on with it first: --resume {text}")
    if side.name in set(names):
        side = _Side(reader=side.reader, endpoint=side.endpoint, name=f"{side.name}-recorded")
    return Recorded(side=side)


def _recording(side: _Side | None, header: Mapping[str, Json]) -> dict[str, Json]:
    """Return what is said of a recording, where two of them meet in one folder."""
    named: dict[str, Json] = {"run": header.get("id")}
    if side is not None:
        named |= {"endpoint": side.name, "folder": side.reader.folder.name}
    return (
        named
        | {name: header.get(name) for name in _RECORDING}
        | {"trials": _object(header.get("settings")).get("trials")}
    )


# --------------------------------------------------------------------------- what is written


def _header(sides: tuple[_Side, _Side], command: list[str]) -> dict[str, Json]:
    left, right = (side.reader.header for side in sides)
    now = datetime.now(UTC)
    same = left.get("probes_digest") == right.get("probes_digest")
    scenarios, skips = _scenarios(sides)
    return {
        "id": f"{now:%Y%m%dT%H%M%S}-compared",
        "started": now.isoformat(),
        "version": __version__,
        "probes_digest": left.get("probes_digest")
        if same
        else f"{left.get('probes_digest')}, {right.get('probes_digest')}",
        "suite": left.get("suite") if left.get("suite") == right.get("suite") else "",
        "command": to_json(command),
        "settings": left.get("settings"),
        "instrument": left.get("instrument") if same else None,
        "endpoints": [_renamed(to_json(side.endpoint), side, reference=side is sides[0]) for side in sides],
        "scenarios": scenarios,
        "skips": skips,
        "declared": to_json(declared.as_header(each for side in sides for each in _matrices(side))),
        "joined": [_recording(side, side.reader.header) for side in sides],
    }


def _matrices(side: _Side) -> Iterator[declared.Matrix]:
    """Yield what the endpoint that takes part was declared to support, under the name that it has here."""
    for each in declared.from_header(side.reader.header.get("declared"), {side.endpoint.name: side.name}):
        if each.endpoint == side.name:
            yield each


def _scenarios(sides: tuple[_Side, _Side]) -> tuple[list[Json], list[Json]]:
    """Return the scenarios of both runs, and what one side did not run; what was asked differently is run by none."""
    held = [{str(item["id"]): item for item in _objects(side.reader.header.get("scenarios"))} for side in sides]
    left, right = held
    both: dict[str, dict[str, Json]] = left | right
    unlike = {name for name in left.keys() & right.keys() if _asked(left[name]) != _asked(right[name])}
    kept: list[Json] = [item for name, item in both.items() if name not in unlike]
    rows = {str(_object(item)["feature"]) for item in kept}
    skips: list[Json] = [
        _skip(str(both[name]["feature"]), None, f"the two runs asked this differently: scenario {name}")
        for name in sorted(unlike)
        if both[name]["feature"] not in rows
    ]
    for side, scenarios in zip(sides, held, strict=True):
        ran = {str(item["feature"]) for name, item in scenarios.items() if name not in unlike}
        said = {str(item["feature"]): item for item in _objects(side.reader.header.get("skips"))}
        for feature in dict.fromkeys((*sorted(rows), *said)):
            if feature in ran:
                continue
            known = said.get(feature)
            if known is not None:
                skips.append({**known, "endpoint": side.name})
            else:
                skips.append(_skip(feature, side.name, f"not part of the run {side.reader.folder.name}"))
    return kept, skips


def _asked(scenario: Mapping[str, Json]) -> Json:
    """Return what decides the requests of a scenario and how they are judged."""
    return [scenario.get(name) for name in ("feature", "probe", "with", "tune")]


def _skip(feature: str, endpoint: str | None, reason: str) -> dict[str, Json]:
    return {"feature": feature, "code": SkipCode.NOT_SELECTED, "reason": reason, "endpoint": endpoint}


def _copy(side: _Side, writer: RunWriter, offset: int, unlike: set[str]) -> int:
    """Copy the lines of one endpoint, but for some scenarios, with ids of their own; returns the last number given."""
    last, parts = offset, 0
    for line in side.reader.lines("endpoint", "exchange", "case", "header"):
        kind = str(line["type"])
        if kind == "header":
            parts += 1
            if parts > 1:  # a resumed run: what was under way then was begun again
                writer.header()
            continue
        fields = {name: value for name, value in line.items() if name != "type"}
        case = _object(line.get("case")) if kind == "case" else {}
        owner = {"exchange": line.get("endpoint"), "endpoint": line.get("name")}.get(kind, case.get("endpoint"))
        if owner != side.endpoint.name:
            continue
        if kind == "endpoint":
            fields |= {"name": side.name, "endpoint": _renamed(line.get("endpoint"), side, reference=offset == 0)}
        elif kind == "exchange":
            number = offset + int(str(line["id"])[1:])
            last = max(last, number)
            fields |= {"endpoint": side.name, "id": f"x{number:04d}", "case": _case_id(line.get("case"), side)}
            if _scenario_of(line.get("case")) in unlike:
                continue
        else:
            if case["scenario"] in unlike:
                continue
            fields |= {"case": {**case, "id": _case_id(case["id"], side), "endpoint": side.name}}
            fields |= {name: _shifted(line.get(name), offset) for name in ("before", "after", "fault")}
        writer.write(kind, **fields)
    return last


def _left_out(side: _Side, writer: RunWriter) -> set[str]:
    joined = {str(item["id"]) for item in _objects(RunReader(writer.folder).header.get("scenarios"))}
    mine = {str(item["id"]) for item in _objects(side.reader.header.get("scenarios"))}
    return mine - joined


def _case_id(value: Json, side: _Side) -> Json:
    """Return a case's id under the endpoint's new name; ``None`` for the runner's own exchanges."""
    return re.sub(r"@[^@#]*#", f"@{side.name}#", value) if isinstance(value, str) else None


def _scenario_of(case: Json) -> str:
    return str(case or "").partition("@")[0]


def _shifted(value: Json, offset: int) -> Json:
    """Return ids of exchanges moved on by ``offset``, in a name, a list or a fault."""
    if isinstance(value, str):
        return f"x{offset + int(value[1:]):04d}" if re.fullmatch(r"x\d+", value) else value
    if isinstance(value, list):
        return [_shifted(item, offset) for item in value]
    if isinstance(value, dict):
        return {**value, "evidence": _shifted(value.get("evidence"), offset)}
    return value


def _renamed(endpoint: Json, side: _Side, *, reference: bool) -> dict[str, Json]:
    return {**_object(endpoint), "name": side.name, "reference": reference}


def _copy_bodies(source: Path, folder: Path) -> None:
    """Copy the large bodies; they are named by what they hold, so the same one is there once."""
    held = source / "blobs"
    if not held.is_dir():
        return
    try:
        (folder / "blobs").mkdir(exist_ok=True)
        for path in held.iterdir():
            if path.suffix != ".part":
                shutil.copyfile(path, folder / "blobs" / path.name)
    except OSError as error:
        raise StoreError(f"cannot copy the bodies of {source}: {error}") from error


# --------------------------------------------------------------------------- what is read back


def recorded_unlike(header: Mapping[str, Json]) -> Iterator[str]:
    """Yield how the recordings of two joined runs differ, as confounders; nothing for a plain run."""
    joined = _objects(header.get("joined"))
    if len(joined) != len(SIDES):
        return
    left, right = joined
    for name, word in (
        ("started", "recorded"),
        ("version", "recorded with servecheck"),
        ("probes_digest", "recorded by probes"),
        ("suite", "suite"),
        ("trials", "trials"),
    ):
        mine, theirs = _shown(name, left.get(name)), _shown(name, right.get(name))
        if mine != theirs:
            yield f"{word}: {mine} | {theirs}"


def _shown(name: str, value: Json) -> str:
    if name == "started":
        return str(value)[:16].replace("T", " ")
    return "adaptive" if value is None else str(value)


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _objects(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
