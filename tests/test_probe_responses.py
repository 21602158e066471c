"""What the judges of the responses rows make of replies that no mutant gives."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from servecheck.model import Exchange, Json, Outcome, Route
from servecheck.probes import responses_basic, responses_format, responses_previous, responses_stream, responses_tools
from servecheck.probes._routes import half_of
from servecheck.probes._typed_streams import lost_piece
from servecheck.read.responses import response as read
from servecheck.reference.server import ReferenceServer
from tests.made import exchange, failure, only, refusal, said, sse, transcript
from tests.trying import trials_of

HELD, VIOLATED, REFUSED = Outcome.HELD, Outcome.VIOLATED, Outcome.REFUSED
NO_EFFECT, UNDETERMINED = Outcome.NO_EFFECT, Outcome.UNDETERMINED
Event = dict[str, Json]


def item(text: str, **more: Json) -> Event:
    content: Json = [{"type": "output_text", "text": text, "annotations": []}]
    made: Event = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    return {**made, **more}


def body(*output: Event, status: str = "completed", tokens: tuple[int, int] | None = (20, 40), **more: Json) -> Event:
    usage: Json = None
    if tokens is not None:
        usage = {"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": sum(tokens)}
    made: Event = {"id": "resp_1", "object": "response", "created_at": 1, "model": "tiny", "status": status}
    return {**made, "output": list(output), "usage": usage, **more}


def answered(step: str, whole: Event, **request: Json) -> Exchange:
    return exchange(step, whole, request={"max_output_tokens": 192, **request}, path="/responses")


def no(step: str, message: str = "not supported here", status: int = 400) -> Exchange:
    wrong = {"error": {"message": message}}
    return exchange(step, wrong, status=status, request={}, path="/responses")


CUT: dict[str, Any] = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
BASIC: dict[str, Exchange] = {
    "plain": answered("plain", body(item("The sea is wide, and blue."))),
    "cut": answered("cut", body(item("The sea", status="incomplete"), tokens=(20, 20), **CUT)),
    "short": answered("short", body(item("Yes."), tokens=(20, 2))),
    "long": answered("long", body(item("No."), tokens=(44, 2))),
    "items": answered("items", body(item("Yes."), tokens=(20, 2))),
    "turns": answered("turns", body(item("Yes."), tokens=(64, 2))),
    "wrong-input": no("wrong-input"),
    "wrong-limit": no("wrong-limit"),
}


def basic(**changed: Exchange) -> dict[str, Outcome]:
    steps = {**BASIC, **{name.replace("_", "-"): each for name, each in changed.items()}}
    params = responses_basic.ResponsesBasicParams()
    return said(responses_basic.PROBE.judge(transcript(*steps.values()), params))


def test_a_right_response_holds_in_every_check() -> None:
    assert set(basic().values()) == {HELD}
    thinking = {"response-counts-its-thinking"}  # there is none here
    assert set(basic()) == {check.id for check in responses_basic.PROBE.checks} - thinking


@pytest.mark.parametrize(
    ("expected", "check", "step"),
    [
        pytest.param(
            UNDETERMINED,
            "response-has-text",
            answered(
                "plain",
                body({"id": "rs", "type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]}, **CUT),
            ),
            id="the limit went into the thought",
        ),
        pytest.param(VIOLATED, "response-has-text", answered("plain", body()), id="nothing at all"),
        pytest.param(
            VIOLATED,
            "whole-response-is-completed",
            answered("plain", body(item("Yes, so it is."), **CUT)),
            id="incomplete long before the limit",
        ),
        pytest.param(
            HELD,
            "whole-response-is-completed",
            answered("plain", body(item("Yes, so it is."), tokens=(20, 192), **CUT)),
            id="incomplete at the limit",
        ),
        pytest.param(
            VIOLATED,
            "output-items-are-well-formed",
            answered("plain", body(item("Yes, so it is."), item("And so on."))),
            id="one id for two items",
        ),
        pytest.param(
            VIOLATED,
            "response-usage-adds-up",
            answered("plain", body(item("Yes, so it is."), tokens=(20, 193))),
            id="more than the limit allows",
        ),
        pytest.param(
            UNDETERMINED,
            "cut-response-is-incomplete",
            answered("cut", body(item("The sea."), tokens=(20, 4))),
            id="a shorter answer this time",
        ),
        pytest.param(NO_EFFECT, "cut-response-is-incomplete", answered("cut", body(item("The"))), id="no limit"),
        pytest.param(REFUSED, "cut-response-is-incomplete", no("cut"), id="the limit is refused"),
        pytest.param(VIOLATED, "instructions-are-counted", failure("long"), id="instructions fail"),
        pytest.param(
            VIOLATED,
            "instructions-are-counted",
            answered("long", body(item("No."), tokens=(25, 2))),
            id="some of the instructions",
        ),
        pytest.param(
            UNDETERMINED, "instructions-are-counted", answered("long", body(item("No."), tokens=None)), id="no usage"
        ),
        pytest.param(VIOLATED, "wrong-response-request-does-no-harm", failure("wrong-limit"), id="a wrong limit fails"),
    ],
)
def test_the_judge_of_a_plain_response(expected: Outcome, check: str, step: Exchange) -> None:
    seen = exchange(step.step, step.body, status=step.status, request=step.request, path="/responses")
    assert basic(**{step.step.replace("-", "_"): seen})[check] is expected


def test_without_usage_the_whole_text_shows_that_the_limit_had_no_effect() -> None:
    plain, cut = (answered(step, body(item("The sea is wide."), tokens=None)) for step in ("plain", "cut"))
    assert basic(plain=plain, cut=cut)["cut-response-is-incomplete"] is NO_EFFECT


def test_a_missing_route_is_refused_once_and_nothing_else_is_said() -> None:
    assert basic(plain=no("plain", "File Not Found", 404)) == {"response-has-text": REFUSED}


@pytest.mark.parametrize(("expected", "made"), [(20, 40), (1, 2), (8, 1), (8, 0), (8, None)])
def test_a_limit_that_cuts_is_half_of_what_was_used(expected: int, made: int | None) -> None:
    tokens = None if made is None else (20, made)
    assert half_of(read(answered("w", body(item("Hi"), tokens=tokens)))) == expected


@pytest.mark.parametrize(
    ("expected", "plain", "streamed"),
    [
        ("b", "abc", "ac"),
        ("a", "abc", "bc"),
        ("bc", "abc", "a"),
        ("", "abc", "abc"),
        ("", "abcd", "abx"),
        ("", "ac", "abc"),
        ("abc", "abc", ""),
    ],
)
def test_a_lost_piece_is_told_from_an_answer_that_goes_on_differently(expected: str, plain: str, streamed: str) -> None:
    assert lost_piece(plain, streamed) == expected


# --------------------------------------------------------------------------- streams


AT: Event = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
PART: Event = {"type": "output_text", "text": "", "annotations": []}


def events(text: str = "The sea is wide.", **end: Any) -> list[Event]:
    last = body(item(text), **end) if end else body(item(text))
    begun: Json = {**last, "status": "in_progress", "output": [], "usage": None}
    made: list[Event] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item("", content=[])},
        {"type": "response.content_part.added", **AT, "part": PART},
        {"type": "response.output_text.delta", **AT, "delta": text[:5]},
        {"type": "response.output_text.delta", **AT, "delta": text[5:]},
        {"type": "response.output_text.done", **AT, "text": text},
        {"type": "response.content_part.done", **AT, "part": {**PART, "text": text}},
        {"type": "response.output_item.done", "output_index": 0, "item": item(text)},
        {"type": f"response.{last['status']}", "response": last},
    ]
    return [{**event, "sequence_number": place} for place, event in enumerate(made)]


def streamed(step: str, made: list[Event]) -> Exchange:
    frames = [f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n".encode() for event in made]
    return exchange(
        step, sse(frames, done=b""), content_type="text/event-stream", request={"stream": True}, path="/responses"
    )


def stream(made: list[Event], whole: Exchange | None = None) -> dict[str, Outcome]:
    plain = whole or answered("whole", body(item("The sea is wide.")))
    cut = streamed("cut", events("The", tokens=(20, 20), **CUT))
    seen = transcript(plain, streamed("plain", made), cut)
    return said(responses_stream.PROBE.judge(seen, responses_stream.ResponsesStreamParams()))


def broken(made: list[Event]) -> set[str]:
    return {check for check, outcome in stream(made).items() if outcome is not HELD}


def test_a_right_stream_holds_in_every_check() -> None:
    assert broken(events()) == set()
    assert set(stream(events())) == {check.id for check in responses_stream.PROBE.checks}


def _swap(made: list[Event]) -> None:
    made[2], made[3] = made[3], made[2]


def _second_part(made: list[Event]) -> None:
    made.insert(3, copy.deepcopy(made[2]))


def _grows_when_done(made: list[Event]) -> None:
    made.insert(6, copy.deepcopy(made[3]))


def _item_grows_when_done(made: list[Event]) -> None:
    made.insert(8, copy.deepcopy(made[3]))


def _no_text_done(made: list[Event]) -> None:
    del made[5]


def _other_item_text(made: list[Event]) -> None:
    made[7] = {**made[7], "item": item("Another text.")}


def _no_id(made: list[Event]) -> None:
    made[1] = {**made[1], "item": {**item("", content=[]), "id": None}}


def _no_response_id(made: list[Event]) -> None:
    last = made[8]["response"]
    assert isinstance(last, dict)
    made[8] = {**made[8], "response": {**last, "id": None}}


def _no_type(made: list[Event]) -> None:
    made.insert(1, {"note": "nothing"})


ORDER = "items-open-grow-and-close"


@pytest.mark.parametrize(
    ("expected", "spoil"),
    [
        pytest.param({ORDER}, _swap, id="a piece before its part"),
        pytest.param({ORDER}, _second_part, id="a part added twice"),
        pytest.param({ORDER, "pieces-join-to-the-whole"}, _grows_when_done, id="a piece after the text was done"),
        pytest.param({ORDER, "pieces-join-to-the-whole"}, _item_grows_when_done, id="a piece after the item was done"),
        pytest.param({ORDER}, _no_text_done, id="an item that ends before its text"),
        pytest.param({"pieces-join-to-the-whole"}, _other_item_text, id="an item that says something else"),
        pytest.param({"item-ids-stay-the-same"}, _no_id, id="an item without an id"),
        pytest.param({"one-response-id-per-stream"}, _no_response_id, id="a response without an id"),
        pytest.param({"event-lines-name-the-type"}, _no_type, id="an event without a type"),
    ],
)
def test_the_judge_of_a_stream(expected: set[str], spoil: Callable[[list[Event]], None]) -> None:
    made = events()
    spoil(made)
    numbered = [{**event, "sequence_number": place} for place, event in enumerate(made)]
    assert broken(numbered) == expected


def test_a_text_that_goes_on_differently_lacks_no_piece() -> None:
    other = answered("whole", body(item("The sea is deep and cold.")))
    assert stream(events(), other)["streamed-response-lacks-no-piece"] is HELD


def test_a_tool_call_that_is_refused_says_nothing_of_streams() -> None:
    seen = transcript(
        answered("whole", body(item("The sea is wide."))), streamed("plain", events()), no("tool"), failure("cut")
    )
    found = said(responses_stream.PROBE.judge(seen, responses_stream.ResponsesStreamParams()))
    assert found["response-is-streamed"] is HELD


# --------------------------------------------------------------------------- tools, formats, the store


TOOL: Json = {
    "type": "function",
    "name": "fn_a",
    "strict": True,
    "parameters": {"type": "object", "properties": {"code": {"enum": ["x"]}}, "required": ["code"]},
}


def called(step: str, arguments: str = '{"code": "x"}', **more: Any) -> Exchange:
    call: Event = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "fn_a", "arguments": arguments}
    return answered(step, body(call, **more), tools=[TOOL])


def tools(*exchanges: Exchange) -> dict[str, set[Outcome]]:
    control = answered("control", body(item("I am well.")))
    found: dict[str, set[Outcome]] = {}
    params = responses_tools.ResponsesToolsParams()
    for each in only(responses_tools.PROBE.judge(transcript(control, *exchanges), params)):
        if "not sent" not in each.why:
            found.setdefault(each.check, set()).add(each.outcome)
    return found


@pytest.mark.parametrize(
    ("expected", "check", "step"),
    [
        pytest.param(HELD, "required-call-is-an-item", called("plain"), id="a call"),
        pytest.param(
            VIOLATED,
            "required-call-is-an-item",
            answered("plain", body(item('<tool_call>{"name": "fn_a"}</tool_call>')), tools=[TOOL]),
            id="markup as text",
        ),
        pytest.param(
            VIOLATED, "call-item-arguments-fit-the-schema", called("plain", '{"code": "y"}'), id="other arguments"
        ),
        pytest.param(VIOLATED, "call-item-arguments-are-json", called("plain", "{code"), id="no JSON"),
        pytest.param(HELD, "foreign-tool-does-no-harm", no("foreign"), id="a foreign tool is refused"),
        pytest.param(
            HELD, "foreign-tool-does-no-harm", answered("foreign", body(item("Hi"))), id="a foreign tool is left alone"
        ),
        pytest.param(
            HELD, "response-with-a-call-is-completed", called("plain", status="incomplete"), id="another call was cut"
        ),
    ],
)
def test_the_judge_of_tools(expected: Outcome, check: str, step: Exchange) -> None:
    assert tools(step)[check] == {expected}


def test_a_missing_route_has_no_tools() -> None:
    gone = no("control", "File Not Found", 404)
    found = said(responses_tools.PROBE.judge(transcript(gone), responses_tools.ResponsesToolsParams()))
    assert found == {"required-call-is-an-item": REFUSED}


def formatted(step: str, text: str, *, status: str = "completed") -> Exchange:
    free: Json = {"format": {"type": "json_object"}}
    return answered(step, body(item(text), status=status), text=free)


@pytest.mark.parametrize(
    ("expected", "step"),
    [
        pytest.param(HELD, formatted("object", '{"a": 1}'), id="an object"),
        pytest.param(VIOLATED, formatted("object", "[1]"), id="a list"),
        pytest.param(VIOLATED, formatted("object", '{"a": }'), id="a broken object"),
        pytest.param(UNDETERMINED, formatted("object", '{"a": ', status="incomplete"), id="an object that was cut"),
        pytest.param(NO_EFFECT, formatted("object", "The sea is wide."), id="prose"),
        pytest.param(REFUSED, no("object"), id="refused"),
    ],
)
def test_the_judge_of_the_json_object_format(expected: Outcome, step: Exchange) -> None:
    control = answered("control", body(item("The sea is wide.")))
    params = responses_format.ResponsesFormatParams()
    found = only(responses_format.PROBE.judge(transcript(control, step), params))
    assert [each.outcome for each in found if each.check == "json-object-format-gives-an-object"] == [expected]


def stored(*exchanges: Exchange) -> dict[str, Outcome]:
    first = answered("first", body(item("So be it."), tokens=(90, 4)))
    control = answered("control", body(item("Nothing."), tokens=(12, 3)))
    params = responses_previous.ResponsesPreviousParams()
    return said(responses_previous.PROBE.judge(transcript(first, control, *exchanges), params))


@pytest.mark.parametrize(
    ("expected", "following"),
    [
        pytest.param(HELD, answered("next", body(item("That."), tokens=(110, 4))), id="all of it"),
        pytest.param(VIOLATED, answered("next", body(item("That."), tokens=(24, 4))), id="some of it"),
        pytest.param(NO_EFFECT, answered("next", body(item("What?"), tokens=(12, 4))), id="none of it"),
        pytest.param(UNDETERMINED, answered("next", body(item("What?"), tokens=None)), id="no usage"),
        pytest.param(REFUSED, no("next", "Response store is disabled"), id="refused"),
        pytest.param(
            VIOLATED, exchange("next", {"error": {}}, status=500, request={}, path="/responses"), id="a failure"
        ),
    ],
)
def test_a_conversation_is_carried_on_by_what_the_prompt_grows(expected: Outcome, following: Exchange) -> None:
    assert stored(following)["previous-response-is-carried-on"] is expected


def test_where_nothing_can_be_carried_on_an_unknown_id_that_is_answered_says_nothing() -> None:
    anew = answered("unknown", body(item("What?"), tokens=(12, 3)))
    assert stored(no("next"), anew)["unknown-previous-response-is-refused"] is UNDETERMINED


def test_an_id_that_cannot_stand_in_a_path_is_not_asked_for() -> None:
    first = answered("first", body(item("So be it."), id="../metrics?"))
    params = responses_previous.ResponsesPreviousParams()
    found = said(responses_previous.PROBE.judge(transcript(first), params))
    assert found["previous-response-is-carried-on"] is UNDETERMINED


def test_a_route_that_refuses_is_refused_in_the_row_of_the_store_too() -> None:
    found = responses_previous.PROBE.judge(transcript(refusal("first")), responses_previous.ResponsesPreviousParams())
    # The helper's refusal is one of the chat route; what counts is that its step was refused.
    assert {each.outcome for each in only(found)} == {REFUSED}


@pytest.mark.parametrize("language", ["obedient", "babbling", "declining", "reasoning"])
@pytest.mark.parametrize(
    "probe", ["responses_basic", "responses_stream", "responses_tools", "responses_format", "responses_previous"]
)
def test_the_reference_server_is_supported_by_every_check_of_its_route(probe: str, language: str) -> None:
    (trial,) = trials_of(probe, ReferenceServer(language=language))
    assert {(each.check, each.outcome) for each in trial.findings} == {
        (check, HELD) for check in {each.check for each in trial.findings}
    }
    assert {each.route for each in trial.findings} == {Route.RESPONSES}
