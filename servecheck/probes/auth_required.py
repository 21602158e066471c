"""A request with a wrong key, or with none, is refused; so are the doors beside the API.

What it does: sends a plain request with the right key (the control), with a wrong one and with none, asks for the list
of models with a wrong key, and tries without a key the other doors to the same engine: ``/invocations`` (a chat under
another path), ``/tokenize``, and ``/server_info``, which on some engines shows the very keys. Nothing is sent that
changes the server. Only where a key is configured for the endpoint.

Why it matters: a key that is not asked for protects nothing, and a proxy that guards ``/v1`` alone leaves the other
doors open to whoever reaches the port.

How it could be fooled: by a firewall or a gateway that lets this machine in and nobody else, or the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator

from servecheck import canary
from servecheck.model import Check, Endpoint, Exchange, Finding, Fingerprint, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.text import dig, quote

__all__ = ["PROBE"]

_WRONG, _MISSING, _MODELS = "wrong-key-is-refused", "missing-key-is-refused", "model-list-needs-the-key"
_STATUS, _DOORS, _SETTINGS = "refusal-of-a-key-is-401", "side-doors-need-the-key", "settings-show-no-keys"
_PART = Part(route=Route.NONE, mode=Mode.NONE)
_KEY_HEADERS = frozenset({"authorization", "x-api-key", "api-key"})
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_NO_KEY = "no-key-of-yours"
_SECRET_NAMES = ("api_key", "apikey", "secret", "password", "access_token", "auth_token", "hf_token")


def _applies(endpoint: Endpoint, _: Fingerprint) -> str:
    names = {name.lower() for name, _ in (*endpoint.headers, *endpoint.header_envs)}
    return "" if endpoint.api_key_env or names & _KEY_HEADERS else "no key is configured for this endpoint"


async def drive(session: Session, _: Params, __: Transcript | None) -> None:
    """The control, the same with a wrong key and without one, then the other doors."""
    kind = session.endpoint.kind or "chat"
    path, body = canary.request(kind)
    await session.post("control", path, body)
    await session.without_key("wrong", "POST", path, body, wrong=_NO_KEY)
    await session.without_key("missing", "POST", path, body)
    await session.without_key("models", "GET", "/models", wrong=_NO_KEY)
    if kind == "chat":  # the same door takes chats on some engines, and a chat ends an SGLang server that embeds
        await session.without_key("door/invocations", "POST", "/invocations", body, server=True)
    await session.without_key("door/tokenize", "POST", "/tokenize", {"prompt": "Hello."}, server=True)
    await session.without_key("door/server_info", "GET", "/server_info", server=True)


def judge(transcript: Transcript, _: Params) -> Iterator[Finding]:
    """Judge each door against the control."""
    control = transcript.get("control")
    if control is None or reply.not_answered(control) is not None:
        why = "the request with the right key was not answered, so a refusal without it says nothing"
        yield _PART.undetermined(_WRONG, why, *([control] if control else []))
        return
    refused: list[Exchange] = []
    for step, check, words in (
        ("wrong", _WRONG, "a request with a wrong key"),
        ("missing", _MISSING, "a request without a key"),
        ("models", _MODELS, "the list of models with a wrong key"),
    ):
        exchange = transcript.get(step)
        if exchange is None:
            continue
        if exchange.status is None:
            yield _PART.undetermined(check, f"{words}: {exchange.detail or exchange.ending}", exchange)
        elif exchange.status < 300:
            why = f"{words} was answered with {exchange.status}: {quote(exchange.body, 60)}"
            yield _PART.violated(check, why, exchange, control)
        else:
            refused.append(exchange)
            yield _PART.held(check, f"{words} gets HTTP {exchange.status}", exchange, control)
    if refused:
        odd = [exchange for exchange in refused if exchange.status not in (_UNAUTHORIZED, _FORBIDDEN)]
        shown = ", ".join(f"{exchange.step}: HTTP {exchange.status}" for exchange in odd or refused)
        yield _PART.violated(_STATUS, shown, *odd) if odd else _PART.held(_STATUS, shown, *refused)
    yield from _doors(transcript)


def _doors(transcript: Transcript) -> Iterator[Finding]:
    doors = transcript.steps("door/")
    if not doors:
        return
    names = {exchange: "/" + exchange.step.removeprefix("door/") for exchange in doors}
    opened = [exchange for exchange in doors if _answers(exchange)]
    if opened:
        why = f"answered without a key: {', '.join(names[exchange] for exchange in opened)}"
        yield _PART.violated(_DOORS, f"{why}; a key given to the engine guards less than the port", *opened)
    else:
        shown = ", ".join(f"{names[exchange]}: HTTP {exchange.status}" for exchange in doors)
        yield _PART.held(_DOORS, shown, *doors)
    settings = next((exchange for exchange in doors if exchange.step == "door/server_info"), None)
    if settings is not None:
        shown_keys = sorted(set(_masked(_json(settings))))
        if shown_keys:
            yield _PART.violated(_SETTINGS, f"/server_info shows {', '.join(shown_keys)} without a key", settings)
        else:
            yield _PART.held(_SETTINGS, "no key among the settings that are shown without one", settings)


def _json(exchange: Exchange) -> Json:
    body = reply.json_body(exchange)
    return None if isinstance(body, reply.Refusal | reply.Failure) else body


def _answers(exchange: Exchange) -> bool:
    """Tell whether a door really opened; a page for every path is none."""
    body = _json(exchange)
    if exchange.step == "door/invocations":
        return isinstance(dig(body, "choices"), list)
    if exchange.step == "door/tokenize":
        return dig(body, "tokens") is not None or dig(body, "count") is not None
    return isinstance(body, dict) and len(body) > 1


def _masked(value: Json) -> Iterator[str]:
    """Yield the names of settings whose value was a secret: recording has put asterisks in its place."""
    if isinstance(value, dict):
        for name, inner in value.items():
            secret = any(word in name.lower().replace("-", "_") for word in _SECRET_NAMES)
            if secret and isinstance(inner, str) and inner and not inner.strip("*"):
                yield name
            yield from _masked(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _masked(inner)


_RFC = "https://www.rfc-editor.org/rfc/rfc9110.html#section-15.5.2"
_VLLM = "https://docs.vllm.ai/en/latest/usage/security/"

PROBE = Probe(
    id="auth_required",
    doc=__doc__ or "",
    checks=(
        Check(id=_WRONG, rule="A request with a wrong key is refused.", level=Level.MUST, source=_RFC),
        Check(id=_MISSING, rule="A request without a key is refused.", level=Level.MUST, source=_RFC),
        Check(id=_MODELS, rule="The list of models needs the key too.", level=Level.SHOULD, source=_VLLM),
        Check(id=_STATUS, rule="A wrong or missing key gets 401 or 403.", level=Level.SHOULD, source=_RFC),
        Check(
            id=_DOORS,
            rule="What serves the engine under other paths needs the key too.",
            level=Level.SHOULD,
            source=_VLLM,
        ),
        Check(
            id=_SETTINGS,
            rule="No key stands among the settings that are shown without one.",
            level=Level.SHOULD,
            source=_VLLM,
        ),
    ),
    params=Params,
    drive=drive,
    judge=judge,
    applies=_applies,
    requests=7,
    prompt_tokens=60,
    output_tokens=96,
)
