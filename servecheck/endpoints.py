"""Arguments, environment and endpoints files to :class:`Endpoint` values; secrets by name only, and nothing is sent."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from servecheck.errors import Problem, ScenarioError, UnknownName, UsageError
from servecheck.model import Endpoint, Json
from servecheck.schema.endpoints_v1 import ENV_NAME, NAME, EndpointsV1, EndpointV1
from servecheck.yamlfile import Document, check, listed, read

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
    "secret_headers",
]

NO_KEY = ""
"""``Endpoint.api_key_env`` of an endpoint that gets no key, not even the one of ``OPENAI_API_KEY``."""

_NONE = "none"
# The variable made for this tool wins over the one that every OpenAI client reads.
_URL_VARIABLES = ("SERVECHECK_BASE_URL", "OPENAI_BASE_URL")
_KEY_VARIABLES = ("SERVECHECK_API_KEY", "OPENAI_API_KEY")

_SECRET_WORDS = frozenset(
    {"authorization", "auth", "cookie", "apikey", "token", "secret", "password", "passwd", "credential", "credentials"}
)
_SECRET_PAIRS = ("api-key", "access-key", "subscription-key", "private-key", "session-id")
_OUR_HEADERS = frozenset({"connection", "content-length", "content-type", "host", "transfer-encoding"})
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?|")
_ROUTES = ("/chat/completions", "/completions", "/responses", "/embeddings", "/models")


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
            raise UsageError(f"endpoint {_shown(argument)}: expected NAME=URL or a URL that begins with http://{hint}")
        if not re.fullmatch(NAME, name):
            raise UsageError(f"endpoint name {_shown(name)}: {_NAME_RULE}")
    whose = f"endpoint {name!r}" if name else f"endpoint {_shown(url)}"
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
        if variable != _NONE and not _is_variable(variable, environ):
            raise UsageError(f"{shown}: {_VARIABLE_RULE}")
        if name in by_name:
            raise UsageError(f"{shown}: {f'endpoint {name!r}' if name else 'every endpoint'} has one already")
        by_name[name] = NO_KEY if variable == _NONE else variable
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
        wrong = _header_trouble(name.strip(), value.strip())
        if wrong:
            raise UsageError(f"--header {_shown(name.strip())}: {wrong}")
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
    if reference == _NONE:
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
    if not _HEADER_VALUE.fullmatch(value):
        raise UsageError(f"{whose}: the value of {variable} holds characters that no header can carry")
    if not endpoint.insecure_key and not is_private(endpoint.base_url, endpoint.proxy):
        host = urlsplit(endpoint.base_url).hostname
        through = " through a proxy" if endpoint.proxy and _is_loopback(host) else ""
        raise UsageError(
            f"{whose}: {variable} would travel unencrypted to {host}{through} (plain http); "
            f"use https{way_out}, or allow it with --allow-insecure-key"
        )
    return value


def looks_secret(header: str) -> bool:
    """Return whether a header of this name holds a secret, going by the words it is made of."""
    flat = header.lower().replace("_", "-")
    return not _SECRET_WORDS.isdisjoint(flat.split("-")) or any(pair in flat for pair in _SECRET_PAIRS)


def is_private(url: str, proxy: str | None = None) -> bool:
    """Return whether nobody on the way can read a request: https, or plain http that stays on this machine.

    Loopback is ``localhost``, 127.0.0.0/8 and ``::1``; a proxy elsewhere sees plain http whatever its target.
    """
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    return _is_loopback(parts.hostname) and (proxy is None or _is_loopback(urlsplit(proxy).hostname))


def _is_loopback(host: str | None) -> bool:
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.IPv4Network("127.0.0.0/8")
    return address == ipaddress.IPv6Address("::1")


# --------------------------------------------------------------------------- URLs, names, headers

_NAME_RULE = "expected at most 40 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
_VARIABLE_RULE = "expected the name of an environment variable that holds the key, never the key itself"


def normal_url(url: str, *, root: bool = True) -> str:
    """Return a URL in the form that requests are built on: no slash at the end; with ``root``, ``/v1`` if no path.

    Raises :class:`UsageError` for anything but http and https, for credentials (which it does not repeat), a query, a
    fragment, or a route in place of the API root.
    """
    if re.search(r"[\s\\\x00-\x1f\x7f]", url):
        raise UsageError("a URL holds no spaces, backslashes or control characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError("not a URL: its host or port cannot be read") from error
    if "@" in parts.netloc:
        raise UsageError("credentials in a URL are refused; name a variable that holds the key with --api-key-env")
    if parts.scheme not in {"http", "https"}:
        raise UsageError("expected a URL that begins with http:// or https://")
    if not host or port == 0:
        raise UsageError("not a URL: no host" if not host else "not a URL: port 0")
    # An empty query or fragment is one too, and urlsplit does not tell it from none.
    if "?" in url or "#" in url:
        raise UsageError(f"a URL with a {'query' if '?' in url else 'fragment'} is refused")
    path = parts.path.rstrip("/")
    if root:
        route = next((route for route in _ROUTES if path.endswith(route)), "")
        if route:
            raise UsageError(f"expected the API root, not a route; leave out {route}")
        path = path or "/v1"
    return f"{parts.scheme}://{parts.netloc.lower()}{path}"


def _shown(text: str) -> str:
    """Return what an argument looks like without anything that may be a secret."""
    bare = re.split(r"[?#]", text, maxsplit=1)[0]
    if "@" in bare:
        return "(not shown, it may hold a secret)"
    return repr(bare if len(bare) <= 60 else bare[:59] + "…")


def _header_trouble(name: str, value: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        return "not the name of a header"
    if looks_secret(name):
        return "a secret is never written out; name its variable with --api-key-env, or headers_env in a file"
    if name.lower() in _OUR_HEADERS:
        return "this header is set by the client"
    if not _HEADER_VALUE.fullmatch(value):
        return "the value holds characters that no header can carry"
    return ""


# --------------------------------------------------------------------------- endpoints files


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
        api_key_env=NO_KEY if body.api_key_env == _NONE else body.api_key_env,
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
        found.append(document.problem((*at, "api_key_env"), _VARIABLE_RULE, quiet=True))
    headers, variables = row.get("headers"), row.get("headers_env")
    for name, value in headers.items() if isinstance(headers, dict) else ():
        wrong = _header_trouble(name, value) if isinstance(value, str) else ""
        if wrong:
            wrong = wrong.replace("--api-key-env", "api_key_env").replace(" in a file", "")
            found.append(document.problem((*at, "headers", name), wrong, on_key=True, quiet=True))
    for name, value in variables.items() if isinstance(variables, dict) else ():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OUR_HEADERS:
            found.append(document.problem((*at, "headers_env", name), _header_trouble(name, ""), on_key=True))
        elif isinstance(headers, dict) and name.lower() in {other.lower() for other in headers}:
            message = f"the header {name!r} is in 'headers' too"
            found.append(document.problem((*at, "headers_env", name), message, on_key=True))
        if isinstance(value, str) and not re.fullmatch(ENV_NAME, value):
            found.append(document.problem((*at, "headers_env", name), _VARIABLE_RULE, quiet=True))
    ca_file = row.get("ca_file")
    if isinstance(ca_file, str) and ca_file and not (folder / ca_file).is_file():
        found.append(document.problem((*at, "ca_file"), f"no such file: {folder / ca_file}"))
    return found
