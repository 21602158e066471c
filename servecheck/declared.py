"""What others declare an endpoint to support, from an engine's support matrix or a file of your own, beside what was
seen. Declared is a column: it decides nothing, and where the two contradict each other, what was seen stands.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from servecheck import yamlfile
from servecheck.errors import Problem, ScenarioError, UnknownName, UsageError, suggested
from servecheck.features import is_own
from servecheck.model import DECIDED, Cell, Feature, Json, Kind, Status
from servecheck.schema.declared_v1 import Claim, ClaimV1, DeclaredV1

__all__ = [
    "Beside",
    "Declaration",
    "Matrix",
    "as_header",
    "beside",
    "from_header",
    "problems_of",
    "read",
    "read_csv",
    "requested",
]

_NAMED = re.compile(r"([a-z0-9][a-z0-9._-]{0,39})=(.+)")
_MOST_BYTES = 4 * 1024 * 1024

_SIGNS = (
    ("✅", Claim.SUPPORTED),
    ("❌", Claim.UNSUPPORTED),
    ("⛔", Claim.UNSUPPORTED),
    ("🧪", Claim.EXPERIMENTAL),
    ("📝", Claim.PLANNED),
    ("🚧", Claim.PLANNED),
    ("❓", Claim.UNVERIFIED),
)
_WORDS = {
    "passing": Claim.SUPPORTED,
    "passed": Claim.SUPPORTED,
    "supported": Claim.SUPPORTED,
    "yes": Claim.SUPPORTED,
    "failing": Claim.UNSUPPORTED,
    "failed": Claim.UNSUPPORTED,
    "unsupported": Claim.UNSUPPORTED,
    "no": Claim.UNSUPPORTED,
    "experimental": Claim.EXPERIMENTAL,
    "planned": Claim.PLANNED,
}
# The column that says whether it works; how fast it is says nothing of that.
_CORRECT = ("correctnesstest", "accuracy/correctness", "single-host correctnesstest")

_SAMPLED = (
    "sampling.temperature", "sampling.top_p", "sampling.top_k", "sampling.min_p", "sampling.seed",
    "sampling.logit_bias", "sampling.frequency_penalty", "sampling.presence_penalty", "sampling.repetition_penalty",
    "sampling.bad_words", "sampling.allowed_token_ids", "sampling.stop_token_ids", "sampling.min_tokens",
    "sampling.ignore_eos", "logprobs.chat", "logprobs.completions", "logprobs.prompt",
)  # fmt: skip
_STRUCTURED = (
    "structured.json_object", "structured.json_schema", "structured.regex", "structured.choice", "structured.grammar",
    "structured.structural_tag", "structured.stream", "structured.completions", "structured.concurrent",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Label:
    """A row of tpu-inference's matrices: the rows here that it speaks of, and what its own test covers."""

    pattern: str
    rows: tuple[str, ...]
    covers: str = ""


_LABELS = (
    _Label(pattern="chunked prefill", rows=("chat.context_limit",), covers="preset, without a test"),
    _Label(pattern="prefix caching", rows=("prefix_cache.reuse", "prefix_cache.correct"),
           covers="preset, without a test"),
    _Label(pattern="sampling_params", rows=_SAMPLED,
           covers="its test covers temperature, top_p, top_k and log probabilities only"),
    _Label(pattern="structured_decoding", rows=_STRUCTURED, covers="its test is one offline choice"),
    _Label(pattern="lora_torch", rows=("lora.effect",)),
    _Label(pattern="multimodal inputs", rows=("vision.image",)),
    _Label(pattern="speculative decoding*", rows=("speculative.active",)),
    _Label(pattern="step pooling*", rows=("embeddings.basic",)),
)  # fmt: skip
"""Labels of the feature matrix of vllm-project/tpu-inference, and of what its tests were read to cover (2026-08-22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One row as a matrix declares it: ``words`` as they stand there, ``covers`` what is known of the test behind."""

    row: str
    says: Claim
    label: str
    words: str
    covers: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """What one file declares of an endpoint; ``others`` are its lines that no row here is about."""

    endpoint: str
    source: str
    digest: str
    rows: tuple[Declaration, ...]
    others: tuple[str, ...] = ()
    as_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is declared of a row beside what was seen of it."""

    endpoint: str
    source: str
    declared: Declaration
    seen: Status | None
    contradicts: bool


# --------------------------------------------------------------------------- reading


def requested(given: Iterable[str], endpoints: Sequence[str]) -> list[tuple[str, str]]:
    """Return the endpoint and the address or path of each ``NAME=FILE-or-URL``; the name may be left out for one.

    Raises :class:`UsageError` for a name that the run does not have.
    """
    found = []
    for text in given:
        named = _NAMED.fullmatch(text)
        name, place = (named[1], named[2]) if named is not None else ("", text)
        if not name and len(endpoints) != 1:
            raise UsageError(f"--declared {text}: say of which endpoint, as NAME={text} ({', '.join(endpoints)})")
        name = name or endpoints[0]
        if name not in endpoints:
            raise UnknownName("endpoint of --declared", name, endpoints)
        found.append((name, place))
    return found


def read(
    endpoint: str,
    place: str,
    *,
    features: Mapping[str, Feature],
    model: str | None = None,
    fetch: Callable[[str], bytes] | None = None,
) -> Matrix:
    """Read a support matrix from a path or, by ``fetch``, an address; CSV as tpu-inference has it, or our own YAML.

    ``model`` is what the endpoint serves, for matrices with a row for each model. Raises :class:`UsageError` where it
    cannot be had, :class:`ScenarioError` with all that is wrong with it.
    """
    address = urlsplit(place).scheme in {"http", "https"}
    if address:
        if fetch is None:
            raise UsageError(f"--declared {place}: an address, and nothing here may fetch it")
        data = fetch(place)
    else:
        data = _bytes_of(Path(place))
    name = urlsplit(place).path if address else place
    if name.lower().endswith((".yaml", ".yml")):
        if address:
            raise UsageError(f"--declared {place}: a YAML file is read from disk only; fetch it first")
        return _read_yaml(endpoint, Path(place), data, features)
    return read_csv(endpoint, place, data, model=model)


def _bytes_of(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--declared {path}: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"--declared {path}: {len(data):,} bytes is no support matrix")
    return data


def _read_yaml(endpoint: str, path: Path, data: bytes, features: Mapping[str, Feature]) -> Matrix:
    value, problems = _checked(yamlfile.read(path), features)
    if problems or value is None:
        raise ScenarioError(problems)
    return Matrix(
        endpoint=endpoint,
        source=value.source,
        digest=hashlib.sha256(data).hexdigest(),
        as_of=value.as_of.isoformat() if value.as_of else "",
        rows=tuple(
            Declaration(row=row, says=claim.says, label=row, words=claim.words or claim.says.value)
            if isinstance(claim, ClaimV1)
            else Declaration(row=row, says=claim, label=row, words=claim.value)
            for row, claim in value.rows.items()
        ),
    )


def problems_of(document: yamlfile.Document, features: Mapping[str, Feature]) -> list[Problem]:
    """Return what is wrong with a support matrix of your own."""
    return _checked(document, features)[1]


def _checked(document: yamlfile.Document, features: Mapping[str, Feature]) -> tuple[DeclaredV1 | None, list[Problem]]:
    value, found = yamlfile.check(document, DeclaredV1)
    found = [*document.problems, *found]
    for row in value.rows if value else ():
        if is_own(row):
            continue
        if row not in features:
            words = suggested(row, features, "features")
            found.append(document.problem(("rows", row), f"unknown row {row!r}", on_key=True, suggestion=words))
        elif features[row].kind is not Kind.JUDGED:
            why = f"{row} has a value and no status, so nothing can be declared of it"
            found.append(document.problem(("rows", row), why, on_key=True))
    return value, yamlfile.listed(found)


def read_csv(endpoint: str, source: str, data: bytes, *, model: str | None = None) -> Matrix:
    """Read one CSV of tpu-inference's ``support_matrices``: features, or models, of which the endpoint's own counts.

    Raises :class:`UsageError` where the file is no such matrix.
    """
    try:
        lines = [line for line in csv.reader(io.StringIO(data.decode("utf-8-sig")), strict=True) if any(line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--declared {source}: not a CSV file: {error}") from error
    head = [name.strip().lower() for name in lines[0]] if lines else []
    column = next((head.index(name) for name in _CORRECT if name in head), None)
    if column is None or head[0] not in {"feature", "model", "quantization dtype"}:
        first = ",".join(lines[0])[:80] if lines else ""
        raise UsageError(
            f"--declared {source}: not a support matrix of tpu-inference: its first line has to name Feature or Model "
            f"and a column CorrectnessTest or Accuracy/Correctness, and it is {first!r}"
        )
    rows: list[Declaration] = []
    others: list[str] = []
    for line in lines[1:]:
        label, words = line[0].strip(), line[column].strip() if column < len(line) else ""
        mine = _rows_of(head[0], label, model)
        if not mine.rows and head[0] != "model":
            others.append(f"{label}: {words}")
        rows += (
            Declaration(row=row, says=_claim(words), label=label, words=words, covers=mine.covers) for row in mine.rows
        )
    if head[0] == "model" and not rows:
        others.append(f"no line for the model {model}" if model else "which model is served was not given (--model)")
    return Matrix(
        endpoint=endpoint,
        source=source,
        digest=hashlib.sha256(data).hexdigest(),
        rows=tuple(rows),
        others=tuple(others),
    )


def _rows_of(kind: str, label: str, model: str | None) -> _Label:
    nothing = _Label(pattern="", rows=())
    if kind == "model":
        # A row may end in /text-only or the like.
        mine = model is not None and (label == model or label.startswith(f"{model}/"))
        return _Label(pattern="", rows=("chat.basic",)) if mine else nothing
    if kind == "feature":
        return next((each for each in _LABELS if fnmatchcase(label.lower(), each.pattern)), nothing)
    return nothing


def _claim(words: str) -> Claim:
    """Return what a mark means; one that is not known claims nothing."""
    for sign, claim in _SIGNS:
        if sign in words:
            return claim
    return _WORDS.get(re.sub(r"[^a-z]", "", words.lower()), Claim.UNVERIFIED)


# --------------------------------------------------------------------------- beside what was seen

_WORKS = frozenset({Status.SUPPORTED, Status.DEGRADED})
# What a server offers only where it was started so, or its model can: not offered is then no contradiction.
_BY_SETUP = frozenset({"speculative.active", "lora.effect", "vision.image", "embeddings.basic"})


def beside(matrices: Iterable[Matrix], cells: Iterable[Cell]) -> tuple[Beside, ...]:
    """Return every declaration beside the cell that it is about, contradictions first, else in the matrix' order.

    It is a contradiction where something declared to work does not, or something declared not to work does. A row that
    is degraded works; one that was not decided contradicts nothing.
    """
    by_row = {(cell.feature, cell.endpoint): cell for cell in cells}
    found = []
    for matrix in matrices:
        for each in matrix.rows:
            cell = by_row.get((each.row, matrix.endpoint))
            seen = cell.status if cell is not None and cell.kind is Kind.JUDGED else None
            wrong = (each.says is Claim.SUPPORTED and _fails(each.row, seen)) or (
                each.says is Claim.UNSUPPORTED and seen is Status.SUPPORTED
            )
            found.append(
                Beside(endpoint=matrix.endpoint, source=matrix.source, declared=each, seen=seen, contradicts=wrong)
            )
    return tuple(sorted(found, key=lambda one: not one.contradicts))


def _fails(row: str, seen: Status | None) -> bool:
    if seen is Status.UNSUPPORTED and row in _BY_SETUP:
        return False
    return seen in DECIDED - _WORKS


# --------------------------------------------------------------------------- in the run folder


def as_header(matrices: Iterable[Matrix]) -> list[Json]:
    """Return matrices as the header of a run keeps them, so that the report says the same when the source changes."""
    return [
        {
            "endpoint": each.endpoint,
            "source": each.source,
            "sha256": each.digest,
            "as_of": each.as_of,
            "rows": [
                {"row": one.row, "says": one.says.value, "label": one.label, "words": one.words, "covers": one.covers}
                for one in each.rows
            ],
            "others": list(each.others),
        }
        for each in matrices
    ]


def from_header(value: object, renamed: Mapping[str, str] | None = None) -> Iterator[Matrix]:
    """Yield the matrices that a run was given, as its header keeps them."""
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict):
            yield Matrix(
                endpoint=(renamed or {}).get(str(item["endpoint"]), str(item["endpoint"])),
                source=str(item["source"]),
                digest=str(item["sha256"]),
                as_of=str(item.get("as_of", "")),
                rows=tuple(
                    Declaration(
                        row=str(one["row"]),
                        says=Claim(str(one["says"])),
                        label=str(one["label"]),
                        words=str(one["words"]),
                        covers=str(one["covers"]),
                    )
                    for one in item["rows"]
                ),
                others=tuple(map(str, item.get("others", ()))),
            )
