"""Arguments, environment and endpoints files to :class:`Endpoint` values; secrets by name only, and nothing is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from servecheck.addresses import (
    HEADER_VALUE,
    NAME_RULE,
    VARIABLE_RULE,
    header_trouble,
    is_loopback,
    is_private,
    looks_secret,
    normal_url,
    shown_url,
)
from servecheck.endpointfile import NO_KEY, NONE, load_file, problems_of
from servecheck.errors import UnknownName, UsageError
from servecheck.model import Endpoint
from servecheck.schema.endpoints_v1 import ENV_NAME, NAME

__all__ = [
    "NO_KEY",
    "api_key",
    "is_private",
    "load_file",
    "looks_secret",
    "normal_url",
    "pick_model",
    "problems_of",
    "resolve",
    "same_twice",
    "secret_headers",
]

# The variable made for this tool wins over the one that every OpenAI client reads.
_URL_VARIABLES = ("SERVECHECK_BASE_URL", "OPENAI_BASE_URL")
_KEY_VARIABLES = ("SERVECHECK_API_KEY", "OPENAI_API_KEY")


# --------------------------------------------------------------------------- all sources together


def resolve(
    arguments: Sequence[str],
    *,
    file: Path | None = None,
    models: Sequence[str] = (),
    reference: str | None = None,
    api_key_envs: Sequence[str] = (),
    headers: Sequence[str] = (),
    environ: Mapping[str, str],
    allow_insecure_key: bool = False,
) -> tuple[Endpoint, ...]:
    """Return the endpoints of a run: those of the file, then the arguments; without either, ``OPENAI_BASE_URL``.

    ``arguments`` are ``NAME=URL`` or a URL, which is then named after its host and port. ``models`` are ``NAME=ID``,
    or one ``ID`` for all endpoints. ``reference`` is a name, or ``none``; where nothing names one, neither here nor in
    the file, **the first of two or more endpoints is the reference**. A single endpoint never is: there is nothing to
    compare. ``api_key_envs`` are ``NAME=VARIABLE`` (``NAME=none``: no key), ``headers`` are ``Name: value`` for all or
    ``NAME=Name: value``; all flags win over the file. ``SERVECHECK_BASE_URL`` and ``SERVECHECK_API_KEY`` win over
    their ``OPENAI_`` namesakes.

    Every secret is looked up once, so that a missing or unsafe one is noticed before anything is sent. Raises
    :class:`UsageError`, or :class:`ScenarioError` for what is wrong in the file; no message repeats a secret.
    """
    endpoints = list(load_file(file)) if file else []
    for argument in arguments:
        endpoint = _from_argument(argument)
        if any(endpoint.name == other.name for other in endpoints):
            raise UsageError(f"two endpoints are named {endpoint.name!r}; give each a name of its own: NAME=URL")
        endpoints.append(endpoint)
    if not endpoints:
        endpoints.append(_from_environment(environ))
    if allow_insecure_key:
        endpoints = [replace(endpoint, insecure_key=True) for endpoint in endpoints]
    endpoints = _with_models(endpoints, models)
    endpoints = _with_keys(endpoints, api_key_envs, environ)
    endpoints = _with_headers(endpoints, headers)
    endpoints = _with_reference(endpoints, reference)
    for endpoint in endpoints:
        api_key(endpoint, environ)
        secret_headers(endpoint, environ)
    return tuple(endpoints)


def same_twice(endpoints: Sequence[Endpoint]) -> list[str]:
    """Return a sentence for each endpoint that is another one under a second name.

    Endpoints whose own headers differ are two: a gateway may choose by them. A model that is not named is the only one
    that is served, so it is that of the other.
    """
    found = []
    for place, one in enumerate(endpoints):
        for other in endpoints[:place]:
            same_model = one.model is None or other.model is None or one.model == other.model
            if _place(one) == _place(other) and same_model:
                found.append(
                    f"{other.name} and {one.name} are the same endpoint, {one.base_url}: it is compared with itself, "
                    "which shows its noise and nothing else"
                )
    return found


def _place(endpoint: Endpoint) -> tuple[object, ...]:
    url = re.sub(r"^(https?://)localhost(?=[:/]|$)", r"\g<1>127.0.0.1", endpoint.base_url)
    return url, sorted(endpoint.headers), sorted(endpoint.header_envs)


def pick_model(endpoint: Endpoint, served: Sequence[str]) -> str:
    """Return the endpoint's model, or the only one that it serves; raises :class:`UsageError` where that is not one."""
    if endpoint.model is not None:
        return endpoint.model
    if len(served) == 1:
        return served[0]
    if not served:
        raise UsageError(f"endpoint {endpoint.name!r} lists no model; name one with --model {endpoint.name}=ID")
    names = ", ".join(served[:8]) + (", …" if len(served) > 8 else "")
    raise UsageError(
        f"endpoint {endpoint.name!r} serves {len(served)} models ({names}); name one with --model {endpoint.name}=ID"
    )


def _from_argument(argument: str) -> Endpoint:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", argument):
        name, url = "", argument
    else:
        name, equals, url = argument.partition("=")
        if not equals:
            hint = f"; did you mean http://{argument}?" if re.fullmatch(r"[\w.-]+(:\d+)?(/[\w./-]*)?", argument) else ""
            if colon := re.fullmatch(r"([\w.-]+):(https?://.*)", argument):
                hint = f"; did you mean NAME=URL, {shown_url(f'{colon[1]}={colon[2]}')}?"
            raise UsageError(
                f"endpoint {shown_url(argument)}: expected NAME=URL or a URL that begins with http://{hint}"
            )
        if not re.fullmatch(NAME, name):
            raise UsageError(f"endpoint name {shown_url(name)}: {NAME_RULE}")
    whose = f"endpoint {name!r}" if name else f"endpoint {shown_url(url)}"
    base_url = _told(whose, url)
    return Endpoint(name=name or _name_of(base_url), base_url=base_url)


def _from_environment(environ: Mapping[str, str]) -> Endpoint:
    for variable in _URL_VARIABLES:
        if environ.get(variable):
            base_url = _told(variable, environ[variable])
            return Endpoint(name=_name_of(base_url), base_url=base_url)
    raise UsageError("no endpoint: give NAME=URL, --endpoints FILE, or set OPENAI_BASE_URL")


def _told(whose: str, url: str) -> str:
    try:
        return normal_url(url)
    except UsageError as error:
        raise UsageError(f"{whose}: {error}") from error


def _name_of(base_url: str) -> str:
    parts = urlsplit(base_url)
    name = parts.netloc.replace(":", "-")
    return name if re.fullmatch(NAME, name) else "endpoint"


def _with_models(endpoints: list[Endpoint], models: Sequence[str]) -> list[Endpoint]:
    by_name: dict[str, str] = {}
    for text in models:
        name, model = _owner(text, endpoints, flag="--model", wanted="ID or NAME=ID")
        if not model:
            raise UsageError(f"--model {text}: expected ID or NAME=ID")
        if name in by_name:
            raise UsageError(f"--model {text}: {f'endpoint {name!r}' if name else 'every endpoint'} has one already")
        by_name[name] = model
    return [
        replace(endpoint, model=by_name.get(endpoint.name, by_name.get("", endpoint.model))) for endpoint in endpoints
    ]


def _owner(text: str, endpoints: Sequence[Endpoint], *, flag: str, wanted: str) -> tuple[str, str]:
    """Split ``NAME=value``; the name is empty where the value is for every endpoint."""
    name, equals, value = text.partition("=")
    if not equals:
        return "", text
    names = [endpoint.name for endpoint in endpoints]
    if not re.fullmatch(NAME, name):
        raise UsageError(f"{flag}: expected {wanted}, where NAME is one of {', '.join(names)}")
    if name not in names:
        raise UnknownName("endpoint", name, names)
    return name, value


def _with_keys(endpoints: list[Endpoint], texts: Sequence[str], environ: Mapping[str, str]) -> list[Endpoint]:
    by_name: dict[str, str] = {}
    for text in texts:
        name, variable = _owner(text, endpoints, flag="--api-key-env", wanted="VARIABLE or NAME=VARIABLE")
        shown = f"--api-key-env {name}=…" if name else "--api-key-env"
        # A lower-case word that is no variable may be the key itself, so it is not repeated.
        if variable != NONE and not _is_variable(variable, environ):
            raise UsageError(f"{shown}: {VARIABLE_RULE}")
        if name in by_name:
            raise UsageError(f"{shown}: {f'endpoint {name!r}' if name else 'every endpoint'} has one already")
        by_name[name] = NO_KEY if variable == NONE else variable
    return [replace(item, api_key_env=by_name.get(item.name, by_name.get("", item.api_key_env))) for item in endpoints]


def _is_variable(text: str, environ: Mapping[str, str]) -> bool:
    return re.fullmatch(ENV_NAME, text) is not None and (text.isupper() or text in environ)


def _with_headers(endpoints: list[Endpoint], texts: Sequence[str]) -> list[Endpoint]:
    for text in texts:
        head, colon, value = text.partition(":")
        owner, name = "", head
        # A header's name holds no "=", so what is before one is an endpoint.
        if "=" in head:
            owner, name = _owner(head, endpoints, flag="--header", wanted="'Name: value' or 'NAME=Name: value'")
        if not colon:
            raise UsageError("--header: expected 'Name: value' or 'NAME=Name: value'")
        wrong = header_trouble(name.strip(), value.strip())
        if wrong:
            raise UsageError(f"--header {shown_url(name.strip())}: {wrong}")
        header = (name.strip(), value.strip())
        endpoints = [
            replace(endpoint, headers=_merged(endpoint.headers, header)) if owner in {"", endpoint.name} else endpoint
            for endpoint in endpoints
        ]
    return endpoints


def _merged(headers: tuple[tuple[str, str], ...], header: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (*((name, value) for name, value in headers if name.lower() != header[0].lower()), header)


def _with_reference(endpoints: list[Endpoint], reference: str | None) -> list[Endpoint]:
    names = [endpoint.name for endpoint in endpoints]
    if reference == NONE:
        chosen = ""
    elif reference is not None:
        if reference not in names:
            raise UnknownName("endpoint", reference, names)
        if len(endpoints) == 1:
            raise UsageError(f"--reference {reference}: there is no other endpoint to compare with it")
        chosen = reference
    elif len(endpoints) == 1:
        chosen = ""
    else:
        chosen = next((endpoint.name for endpoint in endpoints if endpoint.reference), names[0])
    return [replace(endpoint, reference=endpoint.name == chosen) for endpoint in endpoints]


# --------------------------------------------------------------------------- secrets


def api_key(endpoint: Endpoint, environ: Mapping[str, str]) -> str | None:
    """Return the key to send to an endpoint, ``None`` where there is none.

    The endpoint's own variable, else ``SERVECHECK_API_KEY`` or ``OPENAI_API_KEY`` (not where it sends an
    ``Authorization`` header of its own). Raises :class:`UsageError` where a variable that was named is not set, and
    where the key would travel over plain http to another machine without leave.
    """
    variable = key_variable(endpoint, environ)
    if variable is None:
        return None
    named = endpoint.api_key_env is not None
    way_out = "" if named else f", send none with --api-key-env {endpoint.name}=none"
    return _secret(endpoint, variable, environ, way_out=way_out)


def key_variable(endpoint: Endpoint, environ: Mapping[str, str]) -> str | None:
    """Return the name of the environment variable that holds an endpoint's key, ``None`` where no key is sent."""
    if endpoint.api_key_env == NO_KEY:
        return None
    if endpoint.api_key_env is not None:
        return endpoint.api_key_env
    if any(name.lower() == "authorization" for name, _ in endpoint.header_envs):
        return None
    return next((name for name in _KEY_VARIABLES if environ.get(name)), None)


def secret_headers(endpoint: Endpoint, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the endpoint's headers whose values are in environment variables; raises as :func:`api_key` does."""
    return tuple((name, _secret(endpoint, variable, environ)) for name, variable in endpoint.header_envs)


def _secret(endpoint: Endpoint, variable: str, environ: Mapping[str, str], *, way_out: str = "") -> str:
    whose = f"endpoint {endpoint.name!r}"
    value = environ.get(variable)
    if value is None and not variable.isupper():
        raise UsageError(f"{whose}: no such environment variable (not shown, it may be the key itself)")
    if value is None:
        raise UsageError(f"{whose}: the environment variable {variable} is not set")
    if not value.strip():
        raise UsageError(f"{whose}: the environment variable {variable} is empty")
    if not HEADER_VALUE.fullmatch(value):
        raise UsageError(f"{whose}: the value of {variable} holds characters that no header can carry")
    if not endpoint.insecure_key and not is_private(endpoint.base_url, endpoint.proxy):
        host = urlsplit(endpoint.base_url).hostname
        through = " through a proxy" if endpoint.proxy and is_loopback(host) else ""
        raise UsageError(
            f"{whose}: {variable} would travel unencrypted to {host}{through} (plain http); "
            f"use https{way_out}, or allow it with --allow-insecure-key"
        )
    return value
