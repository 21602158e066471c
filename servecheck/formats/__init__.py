"""Which formats of weights accelerator stacks load, as a dated and sourced table; a warning from it decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servecheck import yamlfile
from servecheck.errors import Problem
from servecheck.formats.names import builtin, of, table
from servecheck.identify import precision_in_name
from servecheck.model import Endpoint, Fingerprint
from servecheck.schema.formats_v1 import FormatsV1, StackFormatsV1
from servecheck.stacks import Stack, named, stack_of

__all__ = [
    "Precision",
    "before",
    "builtin",
    "in_config",
    "known_of",
    "of",
    "problems_of",
    "said_of",
    "seen",
    "table",
    "warning",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How the weights are said to be kept, and what says so."""

    name: str
    source: str


def problems_of(document: yamlfile.Document) -> list[Problem]:
    """Return what is wrong with a table of formats."""
    value, found = yamlfile.check(document, FormatsV1)
    found = [*document.problems, *found]
    if value is None:
        return yamlfile.listed(found)
    named_by = {name: name for name in value.formats}
    for format_, each in value.formats.items():
        for place, name in enumerate(each.names):
            if named_by.setdefault(name, format_) != format_:
                found.append(document.problem(("formats", format_, "names", place), f"{name!r} names two formats"))
    for stack, listed in value.stacks.items():
        for key, names in (("loads", listed.loads or ()), ("notes", tuple(listed.notes))):
            for place, name in enumerate(names):
                if name not in value.formats:
                    at = ("stacks", stack, key, place if key == "loads" else name)
                    found.append(document.problem(at, f"no format is called {name!r}"))
    return yamlfile.listed(found)


# --------------------------------------------------------------------------- what the weights are


def in_config(config: Mapping[str, Any]) -> Precision | None:
    """Return how a model's ``config.json`` says its weights are kept; the name is the checkpoint's own."""
    asked = config.get("quantization_config")
    if isinstance(asked, Mapping):
        method = asked.get("quant_method") or asked.get("quant_algo")
        if isinstance(method, str):
            return Precision(name=method.lower(), source="quant_method in config.json")
    dtype = config.get("torch_dtype") or config.get("dtype")
    return Precision(name=dtype.lower(), source="dtype in config.json") if isinstance(dtype, str) else None


def said_of(known: Fingerprint) -> Precision | None:
    """Return how a server or its user says the weights are kept, or what the model's name speaks of."""
    for name in ("quantization", "precision"):
        value = known.fields.get(name)
        if value is not None and value.value is not None and value.value.lower() not in {"none", "null"}:
            how = value.source or value.how.value
            return Precision(name=value.value.lower(), source=how)
    model = known.value("model") or ""
    found = precision_in_name(model).lower()
    return Precision(name=found, source="the model's name, which proves nothing") if found else None


# --------------------------------------------------------------------------- warnings


def warning(precision: Precision, stack: Stack) -> str | None:
    """Return what to know before weights of a format are taken to a stack, in a sentence; ``None`` where nothing is."""
    listed = table().stacks.get(stack.id)
    format_ = of(precision.name)
    if listed is None:
        return None
    said = f"{precision.name} ({precision.source})"
    if format_ is None or not table().formats[format_].in_a_name:
        note = f"; {listed.notes[format_]}" if format_ in listed.notes else ""
        known = "is no format that this table knows" if format_ is None else "may be one of several formats"
        return f"{said} {known}: look it up for {listed.title}{note} ({_source(listed)})"
    title = table().formats[format_].title
    if listed.loads is None:
        return None if format_ == "unquantized" else f"{said}: {listed.note} ({_source(listed)})"
    note = f"; {listed.notes[format_]}" if format_ in listed.notes else ""
    if format_ in listed.loads:
        return f"{title} on {listed.title}{note} ({_source(listed)})" if note else None
    rest = f" {listed.note[0].upper()}{listed.note[1:]}." if listed.note else ""
    return f"{said} is not among the formats that {listed.title} loads{note} ({_source(listed)}).{rest}"


def known_of(precision: Precision, stack: Stack) -> str:
    """Return what is known of a format on a stack for whoever asks: a warning, that it loads, or that nothing is."""
    found, listed = warning(precision, stack), table().stacks.get(stack.id)
    if found is not None:
        return found
    said = f"{precision.name} ({precision.source})"
    if listed is None or listed.loads is None:
        return f"{said}: nothing is known of this format on {stack.id}"
    return f"{said} is among the formats that {listed.title} loads ({_source(listed)})"


def _source(listed: StackFormatsV1) -> str:
    return f"{listed.version}, {listed.confidence}, as of {listed.as_of.isoformat()}: {listed.source}"


def before(endpoint: Endpoint) -> Iterator[str]:
    """Yield what can be said of an endpoint before anything is sent, from what is declared and its model's name."""
    engine, said = endpoint.declared.get("engine"), endpoint.declared.get("tpu_stack")
    stack = named(said, engine) if said is not None else named(engine) if engine == "sgl-jax" else None
    if stack is None:
        return
    declared = next(
        (endpoint.declared[name] for name in ("quantization", "precision") if name in endpoint.declared), ""
    )
    in_name = precision_in_name(endpoint.model or "")
    if declared:
        precision = Precision(name=declared.lower(), source="declared by the user")
    elif in_name:
        precision = Precision(name=in_name.lower(), source="the model's name, which proves nothing")
    else:
        return
    found = warning(precision, stack)
    if found is not None:
        yield f"{endpoint.name}: {found}"


def seen(endpoint: str, known: Fingerprint) -> Iterator[str]:
    """Yield what the fingerprint of an endpoint shows that its user should know."""
    stack, precision = stack_of(known), said_of(known)
    found = warning(precision, stack) if stack is not None and precision is not None else None
    if found is not None:
        yield f"{endpoint}: {found}"
