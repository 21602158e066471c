"""What the openai SDK makes of recorded bytes, and what the probes of `sdk.*` say of it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from servecheck.model import Exchange, FaultKind, Json, Outcome, Status
from servecheck.probe import Probe
from servecheck.probes import sdk_chat, sdk_parse, sdk_stream, sdk_tools
from servecheck.read import sdk
from servecheck.read.text import dig
from servecheck.reference.asgi import Reply, Request
from servecheck.reference.server import ReferenceServer
from tests import made
from tests.trying import trials_of

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED
ASKED: Json = {"model": made.MODEL, "messages": [{"role": "user", "content": "Hello."}]}


def raised(found: sdk.Made | sdk.Raised) -> sdk.Raised:
    assert isinstance(found, sdk.Raised)
    return found


def whole(found: sdk.Made | sdk.Raised) -> sdk.Made:
    assert isinstance(found, sdk.Made)
    return found


# --------------------------------------------------------------------------- requests


def test_a_request_is_the_sdks_own_with_its_headers_and_without_a_key() -> None:
    built = sdk.built({"model": "m", "messages": [], "max_tokens": 4})

    names = [name for name, _ in built.headers]
    assert built.path == "/chat/completions"
    assert json.loads(built.body) == {"model": "m", "messages": [], "max_tokens": 4}
    assert dict(built.headers)["user-agent"].startswith("OpenAI/Python ")
    assert "x-stainless-package-version" in names
    assert set(names) & {"authorization", "host", "content-length", "accept-encoding"} == set()


def test_settings_of_this_machine_do_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "of-this-machine")
    built = sdk.built({"model": "m", "messages": []})

    assert "of-this-machine" not in str(built)
    assert built.path == "/chat/completions"


def test_parse_sends_the_words_as_a_strict_schema() -> None:
    body = json.loads(sdk.built({"model": "m", "messages": []}, words=("bcd", "fgh")).body)

    assert body["response_format"]["json_schema"]["strict"] is True
    assert body["response_format"]["json_schema"]["schema"]["properties"]["code"]["enum"] == ["bcd", "fgh"]


def test_the_server_meets_the_sdk_and_in_the_control_somebody_else() -> None:
    class Watched(ReferenceServer):
        """Takes down who asks."""

        async def reply(self, request: Request) -> Reply:
            if b"three colours" in request.body:
                seen.append(request)
            return await super().reply(request)

    seen: list[Request] = []
    trials_of("sdk_chat", Watched())
    control, asked = seen

    assert control.body == asked.body
    assert control.headers["user-agent"].startswith("servecheck/")
    assert asked.headers["user-agent"].startswith("OpenAI/Python ")
    assert "x-stainless-lang" not in control.headers


# --------------------------------------------------------------------------- replies


def test_a_reply_comes_back_with_its_text_and_without_faults() -> None:
    found = whole(sdk.made(made.exchange("x", made.whole("Red."), request=ASKED)))

    assert found.faults == ()
    assert (found.message, found.finish) == ({"role": "assistant", "content": "Red."}, "stop")


@pytest.mark.parametrize(
    ("expected", "change"),
    [
        ("usage.prompt_tokens: input should be a valid integer", {"usage": {"prompt_tokens": "3"}}),
        ("created: input should be a valid integer", {"created": "now"}),
        ("object: input should be 'chat.completion'", {"object": "text_completion"}),
        ("id: field required", {"id": ...}),
    ],
)
def test_a_field_of_another_type_is_named_with_its_place(expected: str, change: dict[str, Any]) -> None:
    body = {**made.whole("Red."), **change}
    body = {name: value for name, value in body.items() if value is not ...}
    if isinstance(change.get("usage"), dict):
        body["usage"] = {"completion_tokens": 1, "total_tokens": 4, **change["usage"]}
    found = whole(sdk.made(made.exchange("x", body, request=ASKED)))

    assert [fault for fault in found.faults if fault.startswith(expected)] != []
    assert len(found.faults) == 1


@pytest.mark.parametrize(
    ("kind", "message", "status", "body"),
    [
        ("BadRequestError", "too long", 400, {"error": {"message": "too long"}}),
        ("BadRequestError", "too long", 400, {"object": "error", "message": "too long"}),
        ("UnprocessableEntityError", "too long", 422, {"detail": [{"msg": "too long"}]}),
        ("NotFoundError", "", 404, {}),
        ("PermissionDeniedError", "no entry", 403, b"no entry"),
        ("InternalServerError", "", 500, b""),
    ],
)
def test_a_refusal_is_raised_with_the_servers_message(kind: str, message: str, status: int, body: object) -> None:
    found = raised(sdk.made(made.exchange("x", body, status=status, request=ASKED)))

    assert (kind, message, status) == (found.kind, found.message, found.status)


@pytest.mark.parametrize("body", [b"<html></html>", b"[]", b'"text"', b"null", b"7", b"", b"\xff\xfe", b"[" * 5000])
@pytest.mark.parametrize("content_type", ["application/json", "text/html", "text/event-stream", ""])
@pytest.mark.parametrize("read", [sdk.made, sdk.streamed, sdk.parsed])
def test_bytes_that_are_no_reply_never_raise_here(read: Any, content_type: str, body: bytes) -> None:
    found = read(made.exchange("x", body, content_type=content_type, request=ASKED))
    assert isinstance(found, sdk.Made | sdk.Raised)


def test_a_stream_is_read_and_added_up() -> None:
    found = whole(sdk.streamed(made.stream("x", made.spoken("Red", ", green."))))

    assert (found.texts, found.chunks, found.faults) == (("Red", ", green."), 4, ())
    assert (dig(found.message, "role"), dig(found.message, "content")) == ("assistant", "Red, green.")
    assert found.finish == "stop"


def test_a_stream_that_the_helper_cannot_add_up_is_still_read() -> None:
    flat = {"object": "error", "message": "too long", "code": 400}
    found = whole(sdk.streamed(made.stream("x", [flat])))

    assert found.chunks == 1
    assert isinstance(found.reply, sdk.Raised)


def test_an_error_event_in_its_envelope_is_raised() -> None:
    found = raised(sdk.streamed(made.stream("x", [{"error": {"message": "too long", "code": 400}}])))
    assert (found.kind, found.text) == ("APIError", "too long")


# --------------------------------------------------------------------------- judges


def said(probe: Probe[Any], *exchanges: Exchange) -> dict[str, Outcome]:
    return made.said(probe.judge(made.transcript(*exchanges), probe.params()))


def chat(step: str, text: str | None = "Red.", **more: Any) -> Exchange:
    return made.exchange(step, made.whole(text, **more), request=ASKED)


def test_a_chat_answer_and_a_refusal_that_the_sdk_reads_hold() -> None:
    assert set(said(sdk_chat.PROBE, chat("plain"), chat("sdk"), made.refusal("refused")).values()) == {HELD}


@pytest.mark.parametrize(
    ("expected", "sent"),
    [
        (UNDETERMINED, [made.refusal("plain"), made.refusal("sdk")]),
        (REFUSED, [chat("plain"), made.refusal("sdk")]),
        (VIOLATED, [chat("plain"), made.failure("sdk")]),
        (VIOLATED, [chat("plain"), made.cut("sdk")]),
        (UNDETERMINED, [chat("plain")]),
        (UNDETERMINED, []),
    ],
)
def test_what_the_sdk_did_not_get_is_judged_by_the_control(expected: Outcome, sent: list[Exchange]) -> None:
    for probe, first in (
        (sdk_chat.PROBE, "sdk-returns-the-answer"),
        (sdk_stream.PROBE, "sdk-reads-the-whole-stream"),
    ):
        assert said(probe, *sent)[first] is expected


def test_a_call_without_a_call_says_nothing_of_the_sdk() -> None:
    prose = [chat("plain"), chat("call"), made.stream("call-stream", made.spoken("Hello."))]
    assert set(said(sdk_tools.PROBE, *prose).values()) == {UNDETERMINED}


def test_parse_blames_the_schema_only_where_the_control_looks_the_same() -> None:
    body = json.loads(sdk.built({"model": "m", "messages": []}, words=("bcd", "fgh")).body)

    def parsed(text: str, **more: Any) -> Outcome:
        shaped = made.exchange("parse", made.whole(text, **more), request=body)
        return said(sdk_parse.PROBE, chat("plain", "The sea is blue."), shaped)["sdk-parse-gives-an-instance"]

    assert parsed('{"code": "bcd", "sure": true}') is HELD
    assert parsed('{"code": "xyz", "sure": true}') is VIOLATED
    assert parsed('{"code": "bcd", "sure": true}', finish="length") is VIOLATED
    assert parsed("The sea is blue.") is NO_EFFECT


# --------------------------------------------------------------------------- without the SDK


@pytest.mark.parametrize("name", ["sdk_chat", "sdk_stream", "sdk_tools", "sdk_parse"])
def test_an_sdk_that_cannot_be_imported_is_an_error_of_its_rows_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    [trial] = trials_of(name, ReferenceServer())

    assert trial.status is Status.ERROR
    assert trial.fault is not None
    assert trial.fault.kind is FaultKind.EXCEPTION
    assert "import of openai halted" in trial.reason
    assert [each.status for each in trials_of("chat_basic", ReferenceServer())] == [Status.SUPPORTED]


def test_a_recording_without_the_sdk_is_judged_as_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = made.transcript(chat("plain"), chat("sdk"), made.refusal("refused"))
    monkeypatch.setitem(sys.modules, "openai", None)

    with pytest.raises(ImportError):
        list(sdk_chat.PROBE.judge(sent, sdk_chat.PROBE.params()))
