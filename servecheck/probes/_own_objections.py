"""What is wrong with a user's own check although its types are right: names, schemas, and what is never sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from servecheck.endpoints import looks_secret
from servecheck.plainwords import Complaint, Key, suggest
from servecheck.probes._assertions import objections as schema_objections
from servecheck.probes._management import must_not_be_sent
from servecheck.probes._own_steps import CODE_CLASSES, NONCE, Expect, Step, references, texts

__all__ = ["generates", "objections"]

_GENERATES = ("/chat/completions", "/completions", "/responses", "/messages", "/generate", "/completion", "/infill")
_ROUTES = ("/chat/completions", "/completions", "/responses", "/messages", "/models", "/embeddings")
_ALMOST = 0.85  # a letter too many or too few; a gateway's own route is seldom that near to one of the API
_TOKEN_IDS = frozenset(
    {"allowed_token_ids", "stop_token_ids", "prompt_token_ids", "token_ids", "input_ids", "tokens", "bad_token_ids"}
)
_OURS = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "accept-encoding", "user-agent"}
)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_WORD = re.compile(r"\$[A-Za-z_]\w*")
_WAITED_OUT = (429, 503)


def generates(path: str) -> bool:
    """Tell whether a path asks for text, which an endpoint that embeds must never be asked for."""
    return path.partition("?")[0].rstrip("/").endswith(_GENERATES)


def objections(steps: Sequence[Step]) -> Iterator[Complaint]:
    """Yield everything that is wrong; places count from the parameters."""
    if not any(step.checks for step in steps):
        hint = "give a step checks: {name: {rule: …, expect: …}}"
        yield Complaint(at=("steps",), message="no step has checks", on_key=True, suggestion=hint)
    seen: list[str] = []
    owners: dict[str, str] = {}
    sends_nonce = False
    for place, step in enumerate(steps):
        at: Key = ("steps", place)
        if step.step in seen:
            yield Complaint(at=(*at, "step"), message=f"the step {step.step!r} is there already")
        yield from _request(step, at, seen)
        sends_nonce = sends_nonce or any(NONCE in text for _, text in texts([step.headers, step.body]))
        if step.control and step.checks:
            hint = "put the check on another step, or leave out control"
            message = "a control is what others are compared with, and is not checked itself"
            yield Complaint(at=(*at, "checks"), message=message, on_key=True, suggestion=hint)
        for name, check in step.checks.items():
            here: Key = (*at, "checks", name)
            if name in owners:
                message = f"the check {name!r} belongs to the step {owners[name]!r} already"
                yield Complaint(at=here, message=message, on_key=True)
            owners.setdefault(name, step.step)
            yield from _expectation(check.expect, step, (*here, "expect"), seen, sends_nonce=sends_nonce)
        seen.append(step.step)


# --------------------------------------------------------------------------- requests


def _request(step: Step, at: Key, seen: Sequence[str]) -> Iterator[Complaint]:
    yield from _path(step, at)
    if step.method == "GET" and step.body is not None:
        yield Complaint(at=(*at, "body"), message="a GET has no body", on_key=True, suggestion="write method: POST")
    for name, value in step.headers.items():
        yield from _header(name, value, (*at, "headers", name))
    yield from _left_open(step.body, (*at, "body"), seen)
    yield from _left_open(step.headers, (*at, "headers"), seen)
    yield from _token_ids(step.body, (*at, "body"))


def _path(step: Step, at: Key) -> Iterator[Complaint]:
    here, path = (*at, "path"), step.path
    plain = path.partition("?")[0]
    if not path.startswith("/"):
        hint = f"write /{path}" if "://" not in path else "which endpoint is asked is named on the command line"
        yield Complaint(at=here, message="expected a path that begins with /", suggestion=hint)
    elif not re.fullmatch(r"[!-~]+", path) or "//" in plain or ".." in plain or "\\" in path or "#" in path:
        yield Complaint(at=here, message="expected a plain path: ASCII without spaces, .., // and #")
    elif "$" in path:
        yield Complaint(at=here, message=f"{NONCE} belongs into headers and bodies; a path is sent as it is")
    elif must_not_be_sent(step.method, path):
        message = f"{path} manages the server or may change it for others, so servecheck never sends to it"
        yield Complaint(at=here, message=message, suggestion="a check asks for what clients ask for")
    elif step.root == "api" and re.match(r"/v\d+(/|$)", path):
        hint = f"write {re.sub(r'^/v[0-9]+', '', path) or '/models'}, or root: server"
        yield Complaint(at=here, message="the API root ends in a version already", suggestion=hint)
    elif step.root == "api" and plain not in _ROUTES and (near := get_close_matches(plain, _ROUTES, 1, _ALMOST)):
        yield Complaint(at=here, message=f"no such route: {plain}", suggestion=f"did you mean {near[0]!r}?")


def _header(name: str, value: str, at: Key) -> Iterator[Complaint]:
    if not _HEADER.fullmatch(name):
        yield Complaint(at=at, message=f"{name!r} is no name of a header", on_key=True)
    elif looks_secret(name):
        hint = "secrets are named, never given: see api_key_env and header_envs of an endpoints file"
        yield Complaint(at=at, message=f"the header {name!r} holds a secret", on_key=True, suggestion=hint)
    elif name.lower() in _OURS:
        yield Complaint(at=at, message=f"the header {name!r} is servecheck's own business", on_key=True)
    elif not re.fullmatch(r"[\x20-\x7e]*", value) or value != value.strip():
        yield Complaint(at=at, message="expected printable ASCII without spaces at its ends")


def _left_open(template: object, at: Key, seen: Sequence[str]) -> Iterator[Complaint]:
    for place, said in references(template, at):
        yield from _reference(said, place, seen)
    for place, text in texts(template, at):
        if _WORD.fullmatch(text) and text != NONCE:
            hint = f"did you mean {NONCE!r}?" if suggest(text, [NONCE]).startswith("did") else f"there is {NONCE} only"
            yield Complaint(at=place, message=f"unknown word {text!r}", suggestion=hint)


def _reference(said: object, at: Key, seen: Sequence[str]) -> Iterator[Complaint]:
    hint = "write {$from: step#/pointer}, as {$from: models#/data/0/id}"
    match = re.fullmatch(r"([^#]+)#((?:/(?:[^~/]|~[01])*)*)", said) if isinstance(said, str) else None
    if match is None:
        yield Complaint(at=at, message="expected a step and a JSON pointer, and no other key", suggestion=hint)
    elif match[1] not in seen:
        near = suggest(match[1], seen)
        message = f"no step before this one is called {match[1]!r}"
        yield Complaint(at=at, message=message, suggestion=near)


def _token_ids(body: object, at: Key) -> Iterator[Complaint]:
    """Yield token ids that a person wrote: what is inside one model's vocabulary ends another's engine."""
    if isinstance(body, Mapping):
        for key, value in body.items():
            here: Key = (*at, str(key))
            listed = key in _TOKEN_IDS or (key == "prompt" and at[-1] == "body")
            if (listed and _numbers(value)) or (key == "logit_bias" and value):
                hint = "take them from the server, as {$from: tokenized#/tokens}" if listed else ""
                message = f"{key!r} with token ids: one outside the vocabulary can end an engine, so none is sent"
                yield Complaint(at=here, message=message, suggestion=hint)
            else:
                yield from _token_ids(value, here)
    elif isinstance(body, Sequence) and not isinstance(body, str):
        for place, item in enumerate(body):
            yield from _token_ids(item, (*at, place))


def _numbers(value: object) -> bool:
    if isinstance(value, list):
        return any(_numbers(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


# --------------------------------------------------------------------------- expectations


def _expectation(expect: Expect, step: Step, at: Key, seen: Sequence[str], *, sends_nonce: bool) -> Iterator[Complaint]:
    given = {name: getattr(expect, name) for name in ("headers", "body", "each_event")}
    schemas = {name: schema for name, schema in given.items() if schema is not None}
    if not schemas and expect.status is None:
        hint = "give status, headers, body or each_event"
        yield Complaint(at=at, message="nothing is expected", on_key=True, suggestion=hint)
    yield from _status(expect, at)
    for name, schema in schemas.items():
        here: Key = (*at, name)
        yield from schema_objections(schema, here)
        yield from _left_open(schema, here, seen)
        for place, text in texts(schema, here):
            if NONCE in text and not sends_nonce:
                yield Complaint(at=place, message=f"no request up to here has {NONCE}, so no reply can")
    if expect.headers is not None:
        yield from _header_names(expect.headers, (*at, "headers"))
    if expect.each_event is not None and generates(step.path) and (step.body or {}).get("stream") is not True:
        hint = "write stream: true in the body of this step"
        yield Complaint(at=(*at, "each_event"), message="this step asks for no stream", on_key=True, suggestion=hint)


def _status(expect: Expect, at: Key) -> Iterator[Complaint]:
    said = expect.status
    codes = said if isinstance(said, list) else list(CODE_CLASSES[said]) if isinstance(said, str) else [said]
    if any(code in _WAITED_OUT for code in codes) and not isinstance(said, str):
        message = "429 and 503 say that the server is busy: they are waited out, so no check sees them"
        yield Complaint(at=(*at, "status"), message=message)


def _header_names(schema: Mapping[str, object], at: Key) -> Iterator[Complaint]:
    properties, required = schema.get("properties"), schema.get("required")
    places: list[tuple[Key, str, bool]] = []
    if isinstance(properties, dict):
        places += [((*at, "properties", name), name, True) for name in properties]
    if isinstance(required, list):
        texts_only = [(place, name) for place, name in enumerate(required) if isinstance(name, str)]
        places += [((*at, "required", place), name, False) for place, name in texts_only]
    for place, name, on_key in places:
        if name != name.lower():
            message = "names of headers are compared in lower case"
            yield Complaint(at=place, message=message, on_key=on_key, suggestion=f"write {name.lower()}")
