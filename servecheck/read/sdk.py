"""What the official openai SDK sends, and what it makes of recorded bytes; it never reaches the network itself.

The SDK runs over a transport that stands in for a server: it takes the request down, or hands out a recorded reply.
What is sent to a server goes through :mod:`servecheck.wire` like everything else. The package is imported when it is
needed, so that an installation in which it does not work loses these rows and nothing else.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ValidationError, create_model

from servecheck.model import Exchange, Json
from servecheck.read import reply
from servecheck.read.text import dig, quote

if TYPE_CHECKING:
    import httpx2
    import openai
    from openai.types.chat import ChatCompletionChunk
    from openai.types.responses import Response

__all__ = [
    "Built",
    "Made",
    "Raised",
    "built",
    "built_response",
    "made",
    "parsed",
    "response",
    "response_streamed",
    "streamed",
]

_BASE = "http://server/v1"
# Others may hold settings of this machine, such as an organization, and are none of a server's business.
_ITS_OWN = re.compile(r"accept|user-agent|x-stainless-.+")
_SHOWN = 3
# What code that trusts a reply raises where the reply is not what it takes it for.
_RAISED = (ValueError, TypeError, LookupError, AttributeError, RuntimeError, AssertionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A request as the SDK makes it: a path below the API root, the headers that are its own, and the body."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The SDK raised. ``status`` is that of an answer it took for an error; ``message`` is what the server said, as
    far as the SDK found it, and ``text`` is what a log would show.
    """

    kind: str
    text: str
    status: int | None = None
    message: str = ""

    @property
    def what(self) -> str:
        """The exception in a few words."""
        return f"the SDK raises {self.kind}: {quote(self.text, 160)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What the SDK gives to its caller.

    ``reply`` is the object (of a stream: what the SDK's helper adds the chunks up to, or raises over them); ``faults``
    are fields that have another type than the SDK declares; ``texts`` are the pieces of the first choice's content in a
    stream of so many ``chunks`` (or events); ``parsed`` is the instance that ``parse`` gives, ``text`` the output text
    of a response.
    """

    reply: Json | Raised
    faults: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    chunks: int = 0
    parsed: Json = None
    text: str = ""

    @property
    def message(self) -> Json:
        """The message of the first choice."""
        return None if isinstance(self.reply, Raised) else dig(self.reply, "choices", 0, "message")

    @property
    def finish(self) -> Json:
        """The finish reason of the first choice."""
        return None if isinstance(self.reply, Raised) else dig(self.reply, "choices", 0, "finish_reason")


# --------------------------------------------------------------------------- requests


def built(arguments: Mapping[str, Json], *, words: Sequence[str] = ()) -> Built:
    """Return the request of ``chat.completions.create`` with these arguments.

    With ``words`` it is that of ``parse``, for a class whose ``code`` is one of them and whose ``sure`` is a truth
    value.
    """
    seen: list[httpx2.Request] = []

    def take_down(request: httpx2.Request) -> httpx2.Response:
        import httpx2

        seen.append(request)
        body = b'{"id":"x","object":"chat.completion","created":0,"model":"x","choices":[]}'
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=body)

    with _client(take_down) as client:
        _call(client, arguments, words)
    return _built(seen[0])


def _built(sent: httpx2.Request) -> Built:
    return Built(
        path=sent.url.path.removeprefix("/v1"),
        headers=tuple((name, value) for name, value in sent.headers.items() if _ITS_OWN.fullmatch(name)),
        body=sent.content,
    )


def built_response(arguments: Mapping[str, Json]) -> Built:
    """Return the request of ``responses.create`` with these arguments."""
    seen: list[httpx2.Request] = []

    def take_down(request: httpx2.Request) -> httpx2.Response:
        import httpx2

        seen.append(request)
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=b'{"id":"x","output":[]}')

    with _client(take_down) as client:
        client.responses.create(**_any(arguments))
    return _built(seen[0])


def _any(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return dict(arguments)


def _call(client: openai.OpenAI, arguments: Mapping[str, Any], words: Sequence[str]) -> Any:  # noqa: ANN401
    if words:
        return client.chat.completions.parse(response_format=_answer(tuple(words)), **arguments)
    return client.chat.completions.create(**arguments)


@functools.cache
def _answer(words: tuple[str, ...]) -> type[BaseModel]:
    """Return the class of an answer that nobody can guess: one of these words, and a truth value."""
    code: Any = Literal[words]
    return create_model("Answer", code=(code, ...), sure=(bool, ...))


# --------------------------------------------------------------------------- replies


def made(exchange: Exchange) -> Made | Raised:
    """Return what ``chat.completions.create`` makes of a recorded reply that does not stream."""

    def use(client: openai.OpenAI) -> Made | Raised:
        result = _call(client, _asked(exchange), ())
        return _whole(result, exchange.body)

    return _used(exchange, use)


def parsed(exchange: Exchange) -> Made | Raised:
    """Return what ``chat.completions.parse`` makes of a recorded reply; its class is read from the request's schema."""
    schema = dig(exchange.request, "response_format", "json_schema", "schema")
    words = dig(schema, "properties", "code", "enum")
    known = tuple(word for word in words if isinstance(word, str)) if isinstance(words, list) else ()

    def use(client: openai.OpenAI) -> Made | Raised:
        asked = {name: value for name, value in _asked(exchange).items() if name != "response_format"}
        result = _call(client, asked, known or ("",))
        whole = _whole(result, exchange.body)
        if isinstance(whole, Raised):
            return whole
        instance = result.choices[0].message.parsed if result.choices else None
        dumped = instance.model_dump() if isinstance(instance, BaseModel) else None
        return Made(reply=whole.reply, faults=whole.faults, parsed=dumped)

    return _used(exchange, use)


def streamed(exchange: Exchange) -> Made | Raised:
    """Return what a stream amounts to for a caller who reads it to its end, and for one who has it added up."""

    def use(client: openai.OpenAI) -> Made | Raised:
        from openai.types.chat import ChatCompletionChunk

        chunks = list(_call(client, {**_asked(exchange), "stream": True}, ()))
        texts: list[str] = []
        faults: list[str] = []
        for chunk in chunks:
            if not isinstance(chunk, ChatCompletionChunk):
                return Raised(kind="nothing", text=f"and hands out {type(chunk).__name__} for a chunk")
            faults += _faults(ChatCompletionChunk, chunk.to_json(warnings=False).encode())
            delta = chunk.choices[0].delta if chunk.choices else None
            if delta is not None and chunk.choices[0].index == 0 and delta.content:
                texts.append(delta.content)
        return Made(
            reply=_added_up(chunks),
            faults=tuple(dict.fromkeys(faults))[:_SHOWN],
            texts=tuple(texts),
            chunks=len(chunks),
        )

    return _used(exchange, use)


def response(exchange: Exchange) -> Made | Raised:
    """Return what ``responses.create`` makes of a recorded reply that does not stream; ``text`` is ``output_text``."""

    def use(client: openai.OpenAI) -> Made | Raised:
        from openai.types.responses import Response

        result = client.responses.create(**_any(_asked_response(exchange)))
        if not isinstance(result, Response):
            return Raised(kind="nothing", text=f"and returns {type(result).__name__} for a response")
        return Made(
            reply=json.loads(result.to_json(warnings=False)),
            faults=_faults(Response, exchange.body, missing=False)[:_SHOWN],
            text=result.output_text,
        )

    return _used(exchange, use)


def response_streamed(exchange: Exchange) -> Made | Raised:
    """Return what a streamed response amounts to for a caller who reads its events, and for one who uses the helper.

    ``texts`` are the text deltas, ``text`` is the output text of the response that the SDK's helper ends with, and
    ``reply`` is that response, or what the helper raises over the events.
    """

    def use(client: openai.OpenAI) -> Made | Raised:
        events = list(client.responses.create(**_any(_asked_response(exchange) | {"stream": True})))
        texts = [event.delta for event in events if getattr(event, "type", "") == "response.output_text.delta"]
        told = _responded(events)
        return Made(
            reply=told if isinstance(told, Raised) else json.loads(told.to_json(warnings=False)),
            texts=tuple(text for text in texts if isinstance(text, str)),
            chunks=len(events),
            text="" if isinstance(told, Raised) else told.output_text,
        )

    return _used(exchange, use)


def _responded(events: Sequence[Any]) -> Response | Raised:
    """Return the response that the SDK's own helper makes of events: the last one, however it ended."""
    from openai import omit
    from openai.lib.streaming.responses._responses import ResponseStreamState

    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    last: Any = None
    try:
        for event in events:
            for each in state.handle_event(event):
                last = each
        ended = getattr(last, "response", None)
        if ended is None:
            return Raised(kind="RuntimeError", text="the events end without a response")
        ended.output_text  # noqa: B018 - it is computed from the items, and raises where they are none
    except _RAISED as error:
        return Raised(kind=type(error).__name__, text=str(error))
    found: Response = ended
    return found


def _asked_response(exchange: Exchange) -> dict[str, Any]:
    sent = exchange.request if isinstance(exchange.request, dict) else {}
    return {"model": "x", "input": "", **{name: value for name, value in sent.items() if name != "stream"}}


def _added_up(chunks: Sequence[ChatCompletionChunk]) -> Json | Raised:
    """Return what the SDK's own helper makes of chunks; who only reads them does not need it."""
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    try:
        for chunk in chunks:
            state.handle_chunk(chunk)
        added: Json = json.loads(state.current_completion_snapshot.to_json(warnings=False))
    except _RAISED as error:
        return Raised(kind=type(error).__name__, text=str(error))
    return added


def _whole(result: Any, body: bytes) -> Made | Raised:  # noqa: ANN401
    from openai.types.chat import ChatCompletion

    if not isinstance(result, ChatCompletion):
        return Raised(kind="nothing", text=f"and returns {type(result).__name__} for a completion")
    return Made(reply=json.loads(result.to_json(warnings=False)), faults=_faults(ChatCompletion, body)[:_SHOWN])


def _faults(kind: type[BaseModel], body: bytes, *, missing: bool = True) -> tuple[str, ...]:
    """Return where a reply differs from the SDK's own types; it does not look itself, and hands out what came.

    Without ``missing``, fields that are not there are left alone: each version of the SDK declares more of a response.
    """
    try:
        kind.model_validate_json(body, strict=True)
    except ValidationError as wrong:
        errors = [error for error in wrong.errors(include_url=False) if missing or error["type"] != "missing"]
        places = [(".".join(map(str, error["loc"])), error["msg"]) for error in errors]
        return tuple(f"{place}: {message[:1].lower()}{message[1:]}" for place, message in places)
    return ()


def _asked(exchange: Exchange) -> dict[str, Any]:
    """Return the arguments that made a request; what is missing in a recording is put in, as the SDK insists."""
    sent = exchange.request if isinstance(exchange.request, dict) else {}
    return {"model": "x", "messages": [], **{name: value for name, value in sent.items() if name != "stream"}}


def _used(exchange: Exchange, use: Callable[[openai.OpenAI], Made | Raised]) -> Made | Raised:
    """Run the SDK over a recorded reply; whatever it raises is what its caller would have to live with."""
    import httpx2
    import openai

    unsafe = {"content-encoding", "transfer-encoding", "content-length"}

    def hand_out(_: httpx2.Request) -> httpx2.Response:
        headers = [(name, value) for name, value in exchange.response_headers if name.lower() not in unsafe]
        return httpx2.Response(exchange.status or 500, headers=headers, content=exchange.body)

    # A value of another type makes pydantic warn where the SDK copies it; that it is there is said by other means.
    with _client(hand_out) as client, warnings.catch_warnings(action="ignore"):
        try:
            return use(client)
        except openai.APIStatusError as error:
            said = reply.message_of(error.body) if isinstance(error.body, dict | str) else ""
            text = str(error)
            return Raised(kind=type(error).__name__, text=text, status=error.status_code, message=said)
        except (openai.OpenAIError, *_RAISED) as error:
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else None
            return Raised(kind=type(error).__name__, text=str(cause or error).strip())


@contextmanager
def _client(handler: Callable[[httpx2.Request], httpx2.Response]) -> Iterator[openai.OpenAI]:
    import httpx2
    import openai

    with httpx2.Client(transport=httpx2.MockTransport(handler), trust_env=False) as way:
        yield openai.OpenAI(api_key="none", base_url=_BASE, max_retries=0, http_client=way)
