"""The run folder: an append-only ``run.jsonl`` with header and footer, large bodies beside it, and the way back.

``run.jsonl`` is the only source of truth; everything else in the folder can be made again from it. One JSON object a
line, each with a ``type``: ``header``, ``endpoint``, ``exchange``, ``case``, ``finding``, ``cell``, ``footer``. A file
without a footer is a run that died, and still gives a report.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from servecheck import runlines
from servecheck.errors import StoreError
from servecheck.model import (
    Case,
    Chunk,
    Ending,
    Endpoint,
    Exchange,
    Fault,
    FaultKind,
    Fingerprint,
    How,
    Json,
    Known,
    sending_order,
)

__all__ = ["RUN_FILE", "CaseEnd", "Keeper", "RunReader", "RunWriter", "must_be_free", "to_json"]

RUN_FILE = "run.jsonl"
_SCHEMA = "servecheck/run/v1"
_REMEDY = "the file was changed after the run: take a copy of it, or mend this line in one"
_INLINE_BYTES = 64 * 1024  # larger replies go to blobs/, so that a line stays readable


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEnd:
    """What is recorded when a case is over, besides its exchanges: all that judging needs and cannot read from them."""

    case: Case
    before: str | None = None
    after: tuple[str, ...] = ()
    fault: Fault | None = None
    skip_code: str | None = None
    reason: str = ""


class Keeper(Protocol):
    """Takes what a runner sees, as it sees it."""

    def write(self, kind: str, **fields: Json) -> None:
        """Take one line."""

    def exchange(self, exchange: Exchange, *, endpoint: str, case: str | None) -> None:
        """Take one exchange of a case, or of the runner itself."""

    def case(self, end: CaseEnd) -> None:
        """Take the end of a case."""


class RunWriter:
    """Appends to a run folder. A line is complete or absent: it is written in one call and flushed."""

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        """Make the folder; raises ``StoreError`` where it holds something already (unless ``resume``)."""
        self.folder = folder
        try:
            if resume:
                _must_exist(folder / RUN_FILE)
            else:
                must_be_free(folder)
                folder.mkdir(parents=True, exist_ok=True)
            # Where two begin in one folder at the same moment, one of them makes the file.
            self._file: IO[str] = (folder / RUN_FILE).open("a" if resume else "x", encoding="utf-8", newline="\n")
            _lock(self._file, folder)
            if resume:
                _cut_half_line(folder / RUN_FILE)
        except OSError as error:
            raise StoreError(f"cannot write the run folder {folder}: {error}") from error

    def write(self, kind: str, **fields: Json) -> None:
        """Append one line."""
        row = {"type": kind, **fields}
        line = json.dumps(row, ensure_ascii=False, allow_nan=False)
        if not _encodable(line):  # half a surrogate pair out of somebody's JSON
            line = json.dumps(row, allow_nan=False)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise StoreError(f"cannot write {self.folder / RUN_FILE}: {error}") from error

    def header(self, **fields: Json) -> None:
        """Append the header, the first line of a run."""
        self.write("header", schema=_SCHEMA, **fields)

    def exchange(self, exchange: Exchange, *, endpoint: str, case: str | None) -> None:
        """Append one exchange of a case, or of the runner itself (``case`` is ``None``)."""
        blob = None
        if len(exchange.body) > _INLINE_BYTES:
            blob = hashlib.sha256(exchange.body).hexdigest()
            self._blob(blob, exchange.body)
        self.write("exchange", endpoint=endpoint, case=case, **_exchange_fields(exchange, blob))

    def case(self, end: CaseEnd) -> None:
        """Append the end of a case."""
        self.write("case", **_object(to_json(end)))

    def close(self) -> None:
        """Close the file, so that a reader sees every line."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _blob(self, name: str, data: bytes) -> None:
        path = self.folder / "blobs" / name
        if path.exists():
            return
        try:
            path.parent.mkdir(exist_ok=True)
            # Under another name first: a body that a killed run left half written must not pass for a whole one.
            part = path.with_suffix(".part")
            part.write_bytes(data)
            part.replace(path)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error}") from error


def must_be_free(folder: Path) -> None:
    """Raise ``StoreError`` where a new run cannot have this folder, because it holds something or is no folder."""
    try:
        held = [path.name for path in folder.iterdir()] if folder.exists() else []
    except OSError as error:
        raise StoreError(f"cannot write the run folder {folder}: {error}") from error
    if held:
        go_on = f", or go on with --resume {folder}" if RUN_FILE in held else ""
        raise StoreError(f"{folder} is not empty; name another folder with --out{go_on}")


def _must_exist(path: Path) -> None:
    if not path.exists():
        raise StoreError(f"{path.parent} holds no {RUN_FILE}, so there is no run to resume")


def _lock(file: IO[str], folder: Path) -> None:
    """Keep the file to ourselves until it is closed: the lines of two runs in one file are no run."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise StoreError(f"{folder} is being written by another servecheck; wait for it, or stop it first") from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):  # a file system without locks
            raise


def _cut_half_line(path: Path) -> None:
    """Drop a last line that a killed run left half written."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])


@dataclass(slots=True)
class RunReader:
    """Reads a run folder back, line by line, so that memory does not grow with the run."""

    folder: Path
    header: dict[str, Json] = field(default_factory=dict)
    footer: dict[str, Json] | None = None

    def __post_init__(self) -> None:
        """Read the header and look for the footer; raises ``StoreError`` where this is no run."""
        path = self.folder / RUN_FILE
        if not path.is_file():
            raise StoreError(f"{self.folder} is not a run folder: it holds no {RUN_FILE}")
        for line in self.lines():
            if line.get("type") == "header" and not self.header:
                if line.get("schema") != _SCHEMA:
                    raise StoreError(f"{path}: is {line.get('schema')!r}, this version reads {_SCHEMA!r}")
                self.header = line
            elif line.get("type") == "footer":
                self.footer = line
            elif line.get("type") == "header":
                self.footer = None  # resumed: the footer of the interrupted part no longer counts
        if not self.header:
            raise StoreError(f"{path}: has no header; the run died before it began")

    def lines(self, *types: str) -> Iterator[dict[str, Json]]:
        """Yield the lines of the given types (all where none is given); a half-written last line is left out."""
        for _, line in self._placed():
            if not types or line.get("type") in types:
                yield line

    def _placed(self) -> Iterator[tuple[int, dict[str, Json]]]:
        """Yield every whole line with the byte at which it begins."""
        path, place = self.folder / RUN_FILE, 0
        with path.open("rb") as file:
            for number, data in enumerate(file, start=1):
                if not data.endswith(b"\n"):
                    return
                line = _line(data, f"{path}:{number}")
                self._must_fit(line, f"{path}:{number}")
                yield place, line
                place += len(data)

    def _must_fit(self, line: Mapping[str, Json], where: str) -> None:
        """Raise ``StoreError`` for a line that cannot be read back, or that is of another run.

        Before there is a header nothing is known, and that is what is said then.
        """
        if not self.header and line.get("schema") != _SCHEMA:
            return
        problem = runlines.complaint(line)
        if not problem and self.header and line.get("type") in ("endpoint", "exchange", "case"):
            held = _object(line["case"]) if line["type"] == "case" else line
            name = held["name"] if line["type"] == "endpoint" else held["endpoint"]
            if name not in {one["name"] for one in self._named()}:
                problem = f"is about the endpoint {name!r}, which the header does not name"
        if problem:
            raise StoreError(f"{where}: {problem}; {_REMEDY}")

    def _named(self) -> list[dict[str, Json]]:
        return [_object(item) for item in _items(self.header.get("endpoints"))]

    def exchange_at(self, place: int) -> Exchange:
        """Return the exchange whose line begins at a byte, read anew."""
        path = self.folder / RUN_FILE
        with path.open("rb") as file:
            file.seek(place)
            return self.exchange(_line(file.readline(), f"{path}, byte {place}"))

    def cases(self) -> Iterator[tuple[CaseEnd, tuple[Exchange, ...], Mapping[str, Exchange]]]:
        """Yield each ended case with its exchanges and the runner's own (canaries) recorded so far, by id."""
        open_cases: dict[str, list[Exchange]] = {}
        own: dict[str, dict[str, Exchange]] = {}
        for line in self.lines("header", "exchange", "case"):
            if line["type"] == "header":
                open_cases.clear()  # resumed: a case that was interrupted is run again from its beginning
                continue
            if line["type"] == "exchange":
                exchange = self.exchange(line)
                case, endpoint = line.get("case"), str(line.get("endpoint"))
                if isinstance(case, str):
                    open_cases.setdefault(case, []).append(exchange)
                else:
                    own.setdefault(endpoint, {})[exchange.id] = exchange
                continue
            end = _case_end(line)
            mine = own.get(end.case.endpoint, {})
            yield end, tuple(sorted(open_cases.pop(end.case.id, ()), key=sending_order)), mine
            keep = {end.before, *end.after, *list(mine)[-3:]}
            own[end.case.endpoint] = {key: exchange for key, exchange in mine.items() if key in keep}

    def exchanges(self, ids: Iterable[str]) -> Mapping[str, Exchange]:
        """Return the exchanges of the given ids; each is read when it is asked for, so that no bodies are held."""
        wanted = set(ids)
        places = {
            name: place
            for place, line in self._placed()
            if line.get("type") == "exchange" and (name := str(line.get("id"))) in wanted
        }
        return _Recorded(self, places)

    def endpoints(self) -> tuple[tuple[Endpoint, Fingerprint], ...]:
        """Return the endpoints as resolved by the run, or as planned where the run died before it asked them."""
        found = {str(line["name"]): line for line in self.lines("endpoint")}
        resolved = []
        for endpoint, _ in self.planned():
            line = found.get(endpoint.name)
            if line is None:
                resolved.append((endpoint, Fingerprint(fields={})))
            else:
                resolved.append((_endpoint(_object(line["endpoint"])), _fingerprint(_object(line["fingerprint"]))))
        return tuple(resolved)

    def planned(self) -> tuple[tuple[Endpoint, Fingerprint], ...]:
        """Return the endpoints as the run's caller named them, with nothing known yet."""
        return tuple((_endpoint(item), Fingerprint(fields={})) for item in self._named())

    def exchange(self, line: Mapping[str, Json]) -> Exchange:
        """Turn an ``exchange`` line back into the exchange it was."""
        chunks = []
        blob = line.get("blob")
        data = b""
        if isinstance(blob, str):
            try:
                data = (self.folder / "blobs" / blob).read_bytes()
            except OSError as error:
                raise StoreError(
                    f"{self.folder}: the body {blob} of exchange {line.get('id')} is gone: {error}"
                ) from error
        position = 0
        for item in _items(line.get("chunks")):
            at, piece = _items(item)
            if isinstance(piece, int):
                chunks.append(Chunk(_float(at), data[position : position + piece]))
                position += piece
            else:
                chunks.append(Chunk(_float(at), _bytes(piece)))
        if position != len(data):
            raise StoreError(f"{self.folder}: the body {blob} of exchange {line.get('id')} is not what was recorded")
        status, headers_at = line.get("status"), line.get("headers_at")
        return Exchange(
            id=str(line["id"]),
            step=str(line["step"]),
            method=str(line["method"]),
            url=str(line["url"]),
            request_headers=_pairs(line.get("request_headers")),
            request_body=_bytes(line.get("request_body")),
            sent=_float(line.get("sent")),
            status=status if isinstance(status, int) else None,
            response_headers=_pairs(line.get("response_headers")),
            headers_at=None if headers_at is None else _float(headers_at),
            chunks=tuple(chunks),
            ended_at=_float(line.get("ended_at")),
            ending=Ending(str(line["ending"])),
            detail=str(line.get("detail", "")),
            attempt=int(_float(line.get("attempt", 1))),
        )


class _Recorded(Mapping[str, Exchange]):
    """Exchanges of a run folder by id: places in its file are held, and nothing of what stands there."""

    def __init__(self, reader: RunReader, places: Mapping[str, int]) -> None:
        self._reader, self._places = reader, places

    def __getitem__(self, name: str) -> Exchange:
        return self._reader.exchange_at(self._places[name])

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _line(data: bytes, where: str) -> dict[str, Json]:
    try:
        line = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where}: is not JSON: {error}; {_REMEDY}") from error
    if not isinstance(line, dict):
        raise StoreError(f"{where}: is not an object; {_REMEDY}")
    return line


def to_json(value: object) -> Json:
    """Return a frozen value of the model as JSON. The run file is our own; outside shapes live in ``schema/``."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no word for it; 1e999 in a reply makes one
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [to_json(item) for item in value]
    slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
    return {name: to_json(getattr(value, name)) for name in slots}


def _exchange_fields(exchange: Exchange, blob: str | None) -> dict[str, Json]:
    chunks: list[Json] = [
        [round(chunk.at, 6), len(chunk.data) if blob else _text(chunk.data)] for chunk in exchange.chunks
    ]
    return {
        "id": exchange.id,
        "step": exchange.step,
        "method": exchange.method,
        "url": exchange.url,
        "request_headers": to_json(exchange.request_headers),
        "request_body": _text(exchange.request_body),
        "sent": round(exchange.sent, 6),
        "status": exchange.status,
        "response_headers": to_json(exchange.response_headers),
        "headers_at": None if exchange.headers_at is None else round(exchange.headers_at, 6),
        "chunks": chunks,
        "blob": blob,
        "ended_at": round(exchange.ended_at, 6),
        "ending": exchange.ending,
        "detail": exchange.detail,
        "attempt": exchange.attempt,
    }


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(data: bytes) -> Json:
    """Keep bytes as text where they are text (a lone carriage return or NUL survives JSON), else as base64."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _bytes(value: Json) -> bytes:
    if isinstance(value, dict):
        return base64.b64decode(str(value.get("base64", "")))
    return value.encode("utf-8") if isinstance(value, str) else b""


def _items(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _float(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _pairs(value: Json) -> tuple[tuple[str, str], ...]:
    return tuple((str(_items(pair)[0]), str(_items(pair)[1])) for pair in _items(value))


def _case_end(line: Mapping[str, Json]) -> CaseEnd:
    case, fault = _object(line["case"]), line.get("fault")
    return CaseEnd(
        case=Case(
            id=str(case["id"]),
            scenario=str(case["scenario"]),
            feature=str(case["feature"]),
            endpoint=str(case["endpoint"]),
            trial=int(_float(case["trial"])),
        ),
        before=_optional(line.get("before")),
        after=tuple(str(item) for item in _items(line.get("after"))),
        fault=_fault(_object(fault)) if fault else None,
        skip_code=_optional(line.get("skip_code")),
        reason=str(line.get("reason", "")),
    )


def _fault(value: Mapping[str, Json]) -> Fault:
    return Fault(
        kind=FaultKind(str(value["kind"])),
        reason=str(value["reason"]),
        trace=str(value.get("trace", "")),
        evidence=tuple(str(item) for item in _items(value.get("evidence"))),
    )


def _optional(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _endpoint(value: Mapping[str, Json]) -> Endpoint:
    return Endpoint(
        name=str(value["name"]),
        base_url=str(value["base_url"]),
        model=_optional(value.get("model")),
        reference=value.get("reference") is True,
        api_key_env=_optional(value.get("api_key_env")),
        headers=_pairs(value.get("headers")),
        header_envs=_pairs(value.get("header_envs")),
        ca_file=_optional(value.get("ca_file")),
        proxy=_optional(value.get("proxy")),
        metrics_url=_optional(value.get("metrics_url")),
        insecure_key=value.get("insecure_key") is True,
        kind=_optional(value.get("kind")),
        declared={name: str(text) for name, text in _object(value.get("declared")).items()},
    )


def _fingerprint(value: Mapping[str, Json]) -> Fingerprint:
    fields = {}
    for name, known in _object(value.get("fields")).items():
        entry = _object(known)
        how = How(str(entry.get("how", How.UNKNOWN)))
        fields[name] = Known(value=_optional(entry.get("value")), how=how, source=str(entry.get("source", "")))
    return Fingerprint(fields=fields)
