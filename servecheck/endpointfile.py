"""Endpoints files to :class:`Endpoint` values, or all of their problems at once, without what may be a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from servecheck.addresses import HEADER_NAME, OUR_HEADERS, VARIABLE_RULE, header_trouble, looks_secret, normal_url
from servecheck.declarable import doubts
from servecheck.errors import Problem, ScenarioError, UsageError
from servecheck.model import Endpoint, Json
from servecheck.schema.endpoints_v1 import ENV_NAME, EndpointsV1, EndpointV1
from servecheck.yamlfile import Document, check, listed, read

__all__ = ["NONE", "NO_KEY", "load_file", "problems_of"]

NO_KEY = ""
"""``Endpoint.api_key_env`` of an endpoint that gets no key, not even the one of ``OPENAI_API_KEY``."""

NONE = "none"
"""What people write for that."""


def load_file(path: Path) -> tuple[Endpoint, ...]:
    """Return the endpoints of a file; raises :class:`ScenarioError` with all of its problems, each with its place."""
    document = read(path)
    endpoints, problems = _examine(document, path.parent)
    if problems:
        raise ScenarioError(problems)
    return endpoints


def problems_of(document: Document, folder: Path) -> list[Problem]:
    """Return what is wrong with an endpoints file; ``folder`` is what its paths are relative to."""
    return _examine(document, folder)[1]


def _examine(document: Document, folder: Path) -> tuple[tuple[Endpoint, ...], list[Problem]]:
    shape, problems = check(document, EndpointsV1)
    suspects = _suspects(document.data)
    problems = [_scrubbed(item, suspects) for item in (*document.problems, *problems, *_meanings(document, folder))]
    if problems or shape is None:
        return (), listed(problems)
    return tuple(_built(name, body, folder) for name, body in _entries(shape)), []


def _entries(shape: EndpointsV1) -> list[tuple[str, EndpointV1]]:
    if isinstance(shape.endpoints, dict):
        return list(shape.endpoints.items())
    return [(body.name, body) for body in shape.endpoints]


def _built(name: str, body: EndpointV1, folder: Path) -> Endpoint:
    return Endpoint(
        name=name,
        base_url=normal_url(body.base_url),
        model=body.model,
        reference=body.reference,
        api_key_env=NO_KEY if body.api_key_env == NONE else body.api_key_env,
        headers=tuple(body.headers.items()),
        header_envs=tuple(body.headers_env.items()),
        ca_file=str(folder / body.ca_file) if body.ca_file else None,
        proxy=normal_url(body.proxy, root=False) if body.proxy is not None else None,
        metrics_url=normal_url(body.metrics_url, root=False) if body.metrics_url is not None else None,
        insecure_key=body.allow_insecure_key,
        kind=body.kind,
        declared=dict(body.declared),
    )


def _rows(data: Json) -> list[tuple[str | int, Mapping[str, Json]]]:
    """Return what the file gives as endpoints, whatever else is wrong with it, each with its key or position."""
    given = data.get("endpoints") if isinstance(data, dict) else None
    rows: Iterable[tuple[str | int, Json]] = ()
    if isinstance(given, dict):
        rows = given.items()
    elif isinstance(given, list):
        rows = enumerate(given)
    return [(key, row) for key, row in rows if isinstance(row, dict)]


def _suspects(data: Json) -> list[str]:
    """Return the texts that may be secrets: where a variable's name is wanted and is not, and in secret headers."""
    found: list[str] = []
    for _, row in _rows(data):
        headers, variables = row.get("headers"), row.get("headers_env")
        names = [row.get("api_key_env"), *(variables.values() if isinstance(variables, dict) else ())]
        found += [name for name in names if isinstance(name, str) and not re.fullmatch(ENV_NAME, name)]
        if isinstance(headers, dict):
            found += [value for name, value in headers.items() if looks_secret(name) and isinstance(value, str)]
    # Shorter ones are no secrets, and would black out half of what is shown.
    return [text for text in found if len(text) >= 4]


def _scrubbed(problem: Problem, suspects: Iterable[str]) -> Problem:
    """Return a problem whose line and message show none of the suspects, with the columns as they were."""
    source, message = problem.source, problem.message
    for text in suspects:
        source, message = source.replace(text, "•" * len(text)), message.replace(text, "•" * len(text))
    return replace(problem, source=source, message=message)


def _meanings(document: Document, folder: Path) -> list[Problem]:
    """Return the problems that a schema cannot see, also where its rules are broken elsewhere in the file."""
    found: list[Problem] = []
    names: set[str] = set()
    reference = ""
    for key, row in _rows(document.data):
        at = ("endpoints", key)
        said = row.get("name") if isinstance(key, int) else key
        name = said if isinstance(said, str) else "without a name"
        if isinstance(said, str) and name in names:
            found.append(document.problem((*at, "name"), f"two endpoints are named {name!r}"))
        names.add(name)
        if row.get("reference") is True:
            if reference:
                found.append(
                    document.problem((*at, "reference"), f"the endpoint {reference!r} is the reference already")
                )
            reference = reference or name
        found += _row_meanings(document, at, row, folder)
    return found


def _row_meanings(
    document: Document, at: tuple[str | int, ...], row: Mapping[str, Json], folder: Path
) -> list[Problem]:
    found: list[Problem] = []
    for key in ("base_url", "proxy", "metrics_url"):
        url = row.get(key)
        if isinstance(url, str):
            try:
                normal_url(url, root=key == "base_url")
            except UsageError as error:
                found.append(document.problem((*at, key), str(error).replace("--api-key-env", "api_key_env")))
    variable = row.get("api_key_env")
    if isinstance(variable, str) and not re.fullmatch(ENV_NAME, variable):
        found.append(document.problem((*at, "api_key_env"), VARIABLE_RULE, quiet=True))
    headers, variables = row.get("headers"), row.get("headers_env")
    for name, value in headers.items() if isinstance(headers, dict) else ():
        wrong = header_trouble(name, value) if isinstance(value, str) else ""
        if wrong:
            wrong = wrong.replace("--api-key-env", "api_key_env").replace(" in a file", "")
            found.append(document.problem((*at, "headers", name), wrong, on_key=True, quiet=True))
    for name, value in variables.items() if isinstance(variables, dict) else ():
        if not HEADER_NAME.fullmatch(name) or name.lower() in OUR_HEADERS:
            found.append(document.problem((*at, "headers_env", name), header_trouble(name, ""), on_key=True))
        elif isinstance(headers, dict) and name.lower() in {other.lower() for other in headers}:
            message = f"the header {name!r} is in 'headers' too"
            found.append(document.problem((*at, "headers_env", name), message, on_key=True))
        if isinstance(value, str) and not re.fullmatch(ENV_NAME, value):
            found.append(document.problem((*at, "headers_env", name), VARIABLE_RULE, quiet=True))
    declared = row.get("declared")
    texts = (
        {key: value for key, value in declared.items() if isinstance(value, str)} if isinstance(declared, dict) else {}
    )
    for each in doubts(texts):
        where = (*at, "declared", *each.at)
        found.append(document.problem(where, each.message, on_key=each.on_key, suggestion=each.suggestion))
    ca_file = row.get("ca_file")
    if isinstance(ca_file, str) and ca_file and not (folder / ca_file).is_file():
        found.append(document.problem((*at, "ca_file"), f"no such file: {folder / ca_file}"))
    return found
