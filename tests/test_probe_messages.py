"""What the judges of the messages rows make of replies that no mutant gives."""

from __future__ import annotations

import json

import pytest

from servecheck.model import Exchange, Json, Outcome, Route
from servecheck.probes import messages_basic, messages_stream
from servecheck.reference.server import ReferenceServer
from tests.made import exchange, said, sse, transcript
from tests.trying import trials_of

HELD, VIOLATED, REFUSED = Outcome.HELD, Outcome.VIOLATED, Outcome.REFUSED
NO_EFFECT, UNDETERMINED = Outcome.NO_EFFECT, Outcome.UNDETERMINED
Event = dict[str, Json]
WHOLE = "The sea is wide, and the wind sings."
STOP = "wide"  # the first word behind the first third that is long enough and stands there once


def body(
    text: str | None = WHOLE, reason: str | None = "end_turn", tokens: tuple[int, int] = (20, 40), **more: Json
) -> Event:
    usage: Json = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    content: Json = [] if text is None else [{"type": "text", "text": text}]
    made: Event = {"id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "content": content}
    return {**made, "stop_reason": reason, "stop_sequence": None, "usage": usage, **more}


def answered(step: str, whole: Event, **request: Json) -> Exchange:
    return exchange(step, whole, request={"max_tokens": 192, **request}, path="/messages")


def no(step: str, wrong: Json = None, status: int = 400) -> Exchange:
    error: Json = wrong or {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}
    return exchange(step, error, status=status, request={}, path="/messages")


TOOL: Json = {
    "name": "fn_a",
    "input_schema": {"type": "object", "properties": {"code": {"enum": ["x"]}}, "required": ["code"]},
}


def used(given: Json, reason: str = "tool_use", **more: Json) -> Exchange:
    block: Json = {"type": "tool_use", "id": "t", "name": "fn_a", "input": given, **more}
    return answered("tool", body(None, reason, content=[block]), tools=[TOOL])


BASIC: dict[str, Exchange] = {
    "plain": answered("plain", body()),
    "cut": answered("cut", body("The sea", "max_tokens", (20, 20))),
    "stopped": answered("stopped", body("The sea is ", "stop_sequence", stop_sequence=STOP)),
    "short": answered("short", body("Yes.", tokens=(20, 2))),
    "long": answered("long", body("No.", tokens=(44, 2))),
    "blocks": answered("blocks", body("Yes.")),
    "tool": used({"code": "x"}),
    "count": exchange("count", {"input_tokens": 20}, request={}, path="/messages/count_tokens"),
    "wrong-messages": no("wrong-messages"),
    "wrong-limit": no("wrong-limit"),
}


def stopped(text: str, reason: str | None = "stop_sequence", told: str | None = STOP) -> Exchange:
    return answered("stopped", body(text, reason, stop_sequence=told))


def basic(*changed: Exchange) -> dict[str, Outcome]:
    steps = {**BASIC, **{each.step: each for each in changed}}
    params = messages_basic.MessagesBasicParams()
    return said(messages_basic.PROBE.judge(transcript(*steps.values()), params))


def test_a_right_message_holds_in_every_check() -> None:
    assert set(basic().values()) == {HELD}
    assert set(basic()) == {check.id for check in messages_basic.PROBE.checks}


@pytest.mark.parametrize(
    ("expected", "check", "step"),
    [
        pytest.param(VIOLATED, "message-has-text", answered("plain", body(None)), id="no content"),
        pytest.param(
            UNDETERMINED,
            "message-has-text",
            answered("plain", body(None, "max_tokens", content=[{"type": "thinking", "thinking": "Hm"}])),
            id="the limit went into the thought",
        ),
        pytest.param(
            VIOLATED, "whole-message-ends-its-turn", answered("plain", body(reason="tool_use")), id="waits for no tool"
        ),
        pytest.param(
            HELD,
            "whole-message-ends-its-turn",
            answered("plain", body(reason="max_tokens", tokens=(20, 192))),
            id="cut at its limit",
        ),
        pytest.param(
            VIOLATED,
            "whole-message-ends-its-turn",
            answered("plain", body(reason="max_tokens")),
            id="cut long before its limit",
        ),
        pytest.param(VIOLATED, "message-usage-counts", answered("plain", body(tokens=(20, 0))), id="no output counted"),
        pytest.param(NO_EFFECT, "stop-sequence-ends-the-message", stopped(WHOLE, "end_turn", None), id="no stop"),
        pytest.param(
            VIOLATED, "stop-sequence-ends-the-message", stopped("The wide wind"), id="another text with the stop"
        ),
        pytest.param(VIOLATED, "stop-sequence-ends-the-message", stopped("The sea", told="sea"), id="another stop"),
        pytest.param(VIOLATED, "stop-sequence-ends-the-message", stopped("The sea", "end_turn"), id="another reason"),
        pytest.param(HELD, "stop-sequence-ends-the-message", stopped("A wave and a "), id="another text, stopped"),
        pytest.param(
            UNDETERMINED,
            "stop-sequence-ends-the-message",
            stopped("A wave.", "end_turn", None),
            id="another text without the stop",
        ),
        pytest.param(REFUSED, "stop-sequence-ends-the-message", no("stopped"), id="stops are refused"),
        pytest.param(
            UNDETERMINED,
            "stop-sequence-ends-the-message",
            answered("plain", body("No, no, no.")),
            id="no word that stands there once",
        ),
        pytest.param(VIOLATED, "forced-tool-is-a-tool-use", used('{"code": "x"}'), id="the input is a text"),
        pytest.param(VIOLATED, "forced-tool-is-a-tool-use", used({"code": "y"}), id="the input does not fit"),
        pytest.param(VIOLATED, "forced-tool-is-a-tool-use", used({"code": "x"}, id=None), id="no id"),
        pytest.param(UNDETERMINED, "forced-tool-is-a-tool-use", used({}, "max_tokens"), id="the call was cut"),
        pytest.param(
            NO_EFFECT, "forced-tool-is-a-tool-use", answered("tool", body("I am well."), tools=[TOOL]), id="no call"
        ),
        pytest.param(
            HELD,
            "message-count-is-the-usage",
            exchange("count", {"detail": "Not Found"}, status=404, request={}, path="/messages/count_tokens"),
            id="no counter",
        ),
        pytest.param(
            VIOLATED,
            "errors-are-in-the-own-shape",
            no("wrong-limit", {"error": {"message": "no", "type": "Bad Request"}}),
            id="the chat route's error",
        ),
        pytest.param(
            VIOLATED,
            "errors-are-in-the-own-shape",
            no("wrong-limit", {"type": "error", "error": {"message": "no"}}),
            id="an error without a type",
        ),
        pytest.param(
            VIOLATED, "wrong-message-request-does-no-harm", no("wrong-limit", status=500), id="a wrong limit fails"
        ),
    ],
)
def test_the_judge_of_a_plain_message(expected: Outcome, check: str, step: Exchange) -> None:
    assert basic(step)[check] is expected


def test_what_the_cache_gave_counts_as_prompt() -> None:
    usage: Json = {"input_tokens": 1, "cache_read_input_tokens": 19, "output_tokens": 2}
    found = basic(answered("blocks", body("Yes.", usage=usage)))
    assert found["text-blocks-are-as-the-string"] is HELD


# --------------------------------------------------------------------------- streams


def events(text: str = WHOLE, reason: str = "end_turn", made: int = 40) -> list[Event]:
    start = body(None, None, (20, 0))
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": made}},
        {"type": "message_stop"},
    ]


def streamed(step: str, made: list[Event]) -> Exchange:
    frames = [f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n".encode() for event in made]
    return exchange(
        step, sse(frames, done=b""), content_type="text/event-stream", request={"stream": True}, path="/messages"
    )


def stream(made: list[Event]) -> dict[str, Outcome]:
    cut = streamed("cut", events("The sea", "max_tokens", 20))
    seen = transcript(answered("whole", body()), streamed("plain", made), cut)
    return said(messages_stream.PROBE.judge(seen, messages_stream.MessagesStreamParams()))


def broken(made: list[Event]) -> set[str]:
    return {check for check, outcome in stream(made).items() if outcome is not HELD}


ORDER, REASON, USAGE = "blocks-open-grow-and-close", "one-stop-reason-per-message", "streamed-message-has-usage"
START = events()[1]


def test_a_right_stream_holds_in_every_check() -> None:
    assert broken(events()) == set()
    assert set(stream(events())) == {check.id for check in messages_stream.PROBE.checks}


@pytest.mark.parametrize(
    ("expected", "made"),
    [
        pytest.param(set(), [{"type": "ping"}, *events(), {"type": "ping"}], id="pings at both ends"),
        pytest.param({ORDER}, [*events()[:3], {**START, "index": 1}, *events()[3:]], id="a block inside another"),
        pytest.param({ORDER}, [*events()[:5], *events()[1:4], *events()[5:]], id="a block behind the stop reason"),
        pytest.param({"message-stream-begins-with-start"}, [events()[0], *events()], id="two starts"),
        pytest.param({REASON}, [*events()[:5], *events()[4:]], id="two stop reasons"),
        pytest.param({REASON}, events(reason="tool_use"), id="a tool that is not there"),
        pytest.param({USAGE}, [*events()[:4], {**events()[4], "usage": None}, events()[5]], id="no output counted"),
        pytest.param({"streamed-message-lacks-no-piece"}, events("The sea the wind sings."), id="a piece is lost"),
        pytest.param({"streamed-message-lacks-no-piece"}, events(" "), id="all is lost"),
        pytest.param(set(), events("The sea is deep."), id="another text"),
    ],
)
def test_the_judge_of_a_stream(expected: set[str], made: list[Event]) -> None:
    assert broken(made) == expected


@pytest.mark.parametrize("language", ["obedient", "babbling", "declining", "reasoning"])
@pytest.mark.parametrize("probe", ["messages_basic", "messages_stream"])
def test_the_reference_server_is_supported_by_every_check_of_its_route(probe: str, language: str) -> None:
    (trial,) = trials_of(probe, ReferenceServer(language=language))
    assert {each.outcome for each in trial.findings} == {HELD}
    assert {each.route for each in trial.findings} == {Route.MESSAGES}
