"""Writes the draft-07 JSON Schemas of our YAML files, for editors; the loaders do not read them.

``python -m servecheck.schema.publish`` rewrites the committed files. What a schema cannot say (that a name exists as a
feature, that an id equals the file's name, that a file is there) only the loaders check.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from servecheck.probe import Probe
from servecheck.probes import discover
from servecheck.schema.declared_v1 import DeclaredV1
from servecheck.schema.endpoints_v1 import EndpointsV1
from servecheck.schema.expectations_v1 import ExpectationsV1
from servecheck.schema.formats_v1 import FormatsV1
from servecheck.schema.known_issues_v1 import KnownIssuesV1
from servecheck.schema.profile_v1 import ProfileV1
from servecheck.schema.scenario_v1 import FILE_SUFFIXES, ScenarioV1, file_parameters
from servecheck.schema.workload_v1 import WorkloadV1

__all__ = ["endpoints_json_schema", "published", "scenario_json_schema", "workload_json_schema", "write"]

_DRAFT = "http://json-schema.org/draft-07/schema#"
_ONE = frozenset({"items", "additionalProperties", "not", "propertyNames", "contains", "if", "then", "else"})
_MANY = frozenset({"anyOf", "oneOf", "allOf"})
_NAMED = frozenset({"properties", "patternProperties"})


def scenario_json_schema(probes: Mapping[str, Probe[Any]], features: Iterable[str] = ()) -> dict[str, Any]:
    """Return the draft-07 schema of a scenario file: ``with`` and ``tune`` follow from ``probe``.

    With ``features``, the names of rows are closed too; without, any text is a row.
    """
    schema = _draft_07(ScenarioV1, "servecheck scenario")
    definitions: dict[str, Any] = schema["definitions"]
    properties: dict[str, Any] = schema["properties"]
    rows = sorted(features)
    if rows:
        definitions["feature"] = {"enum": rows}
        properties["feature"] = _beside({"$ref": "#/definitions/feature"}, properties["feature"])
        properties["needs"]["items"] = {"$ref": "#/definitions/feature"}
    if probes:
        properties["probe"]["enum"] = sorted(probes)
    branches = []
    for probe_id, probe in sorted(probes.items()):
        inner, needed = _parameters(probe, definitions)
        definitions[f"with.{probe_id}"] = inner
        then: dict[str, Any] = {
            "properties": {
                "with": {"$ref": f"#/definitions/with.{probe_id}"},
                "tune": {
                    "properties": {
                        check.id: {
                            "allOf": [{"$ref": "#/definitions/TuneV1"}],
                            "description": f"{check.rule} ({check.level} unless tuned)",
                        }
                        for check in probe.checks
                    },
                    "additionalProperties": False,
                },
            }
        }
        if needed:
            then["required"] = ["with"]
        branches.append(
            {"if": {"properties": {"probe": {"const": probe_id}}, "required": ["probe"]}, "then": then},
        )
    if branches:
        schema["allOf"] = branches
    return schema


def endpoints_json_schema() -> dict[str, Any]:
    """Return the draft-07 schema of an endpoints file."""
    return _draft_07(EndpointsV1, "servecheck endpoints")


def workload_json_schema() -> dict[str, Any]:
    """Return the draft-07 schema of a workload file; that an entry has exactly one source only the loader checks."""
    return _draft_07(WorkloadV1, "servecheck workload")


def published() -> dict[str, str]:
    """Return the text of every published schema by file name, as it should be committed."""
    return {
        "scenario.v1.json": _text(scenario_json_schema(discover())),
        "endpoints.v1.json": _text(endpoints_json_schema()),
        "expectations.v1.json": _text(_draft_07(ExpectationsV1, "servecheck expectations")),
        "profile.v1.json": _text(_draft_07(ProfileV1, "servecheck profile")),
        "known-issues.v1.json": _text(_draft_07(KnownIssuesV1, "servecheck known issues")),
        "declared.v1.json": _text(_draft_07(DeclaredV1, "servecheck support matrix")),
        "formats.v1.json": _text(_draft_07(FormatsV1, "servecheck table of formats")),
        "workload.v1.json": _text(workload_json_schema()),
    }


def write(folder: Path) -> None:
    """Write the published schemas into a folder."""
    for name, text in published().items():
        (folder / name).write_text(text, encoding="utf-8")


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _parameters(probe: Probe[Any], definitions: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the schema of a probe's parameters, and whether one is needed; adds what it refers to."""
    raw = probe.params.model_json_schema(ref_template=f"#/$defs/{probe.id}.{{model}}")
    for name, node in raw.pop("$defs", {}).items():
        definitions[f"{probe.id}.{name}"] = _converted(node)
    schema: dict[str, Any] = _converted(raw)
    properties: dict[str, Any] = schema.setdefault("properties", {})
    required: list[str] = schema.pop("required", [])
    rules: list[dict[str, Any]] = []
    suffixes = "|".join(suffix[1:] for suffix in FILE_SUFFIXES)
    by_file = file_parameters(probe.params)
    for name in by_file:
        key = f"{name}_file"
        properties[key] = {
            "type": "string",
            "pattern": rf"^[^/].*\.({suffixes})$",
            "description": f"A file that holds {name!r}, relative to this one.",
        }
        rules.append({"not": {"required": [name, key]}})
        if name in required:
            rules.append({"anyOf": [{"required": [name]}, {"required": [key]}]})
    always = [name for name in required if name not in by_file]
    if always:
        schema["required"] = always
    if rules:
        schema["allOf"] = rules
    return schema, bool(required)


def _draft_07(model: type[BaseModel], title: str) -> dict[str, Any]:
    schema = _converted(model.model_json_schema())
    return {"$schema": _DRAFT, "title": title, "definitions": {}, **schema}


def _converted(node: Any) -> Any:  # noqa: ANN401 - a schema, or true or false in its place
    """Return a schema of pydantic (2020-12) in draft-07, without the titles that only repeat the names."""
    if not isinstance(node, dict):
        return node
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in _ONE:
            out[key] = _converted(value)
        elif key in _MANY:
            out[key] = [_converted(item) for item in value]
        elif key in _NAMED:
            out[key] = {name: _converted(item) for name, item in value.items()}
        elif key == "$defs":
            out["definitions"] = {name: _converted(item) for name, item in value.items()}
        elif key == "prefixItems":
            out["items"] = [_converted(item) for item in value]
            out["additionalItems"] = False
        elif key == "$ref":
            out["$ref"] = value.replace("#/$defs/", "#/definitions/")
        elif key == "description":
            out[key] = " ".join(value.split())
        elif key not in {"title", "discriminator"}:
            out[key] = value
    # pydantic refuses a key that matches no pattern; a schema must be told to.
    if "patternProperties" in out:
        out.setdefault("additionalProperties", False)
    reference = out.pop("$ref", None)
    return out if reference is None else _beside({"$ref": reference}, out)


def _beside(reference: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return a reference together with what stands beside it, which draft-07 would ignore."""
    kept = {key: value for key, value in others.items() if key in {"description", "default"}}
    return {"allOf": [reference], **kept} if kept else reference


if __name__ == "__main__":
    write(Path(__file__).parent)
