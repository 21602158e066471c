"""Bad requests: what a refusal is in every family, and what is a must and what a should."""

from __future__ import annotations

import pytest

from servecheck.model import Ending, Exchange, Finding, Mode, Outcome
from servecheck.probe import Params
from servecheck.probes import bad_requests, errors_family, errors_leniency
from tests.handmade import answer, events, made, transcript

PARAMS = bad_requests.BadRequestsParams(fault="wrong_type")
ANSWERED, SERVED = "bad-request-gets-a-reply", "next-request-is-served"
REFUSED, JSON, MESSAGE = "bad-request-is-refused", "refusal-is-json", "refusal-has-a-message"
NESTED = {"error": {"message": "messages must be a list", "type": "BadRequestError", "code": 400}}


def seen(
    bad: Exchange, after: object = None, control: object = None, mode: Mode = Mode.NON_STREAM
) -> dict[str, Finding]:
    following = made(f"after/{bad.step}", after or answer())
    findings = bad_requests.judge(transcript(made("control", control or answer()), bad, following), PARAMS)
    return {finding.check: finding for finding in findings if finding.mode is mode}


def short(findings: dict[str, Finding]) -> set[str]:
    return {check for check, finding in findings.items() if finding.outcome is not Outcome.HELD}


REFUSALS: dict[str, tuple[object, int, set[str]]] = {
    # name: (body, status, the checks that must not hold)
    "nested": (NESTED, 400, set()),
    "flat": ({"object": "error", "message": "no", "type": "Bad Request", "code": 400}, 400, set()),
    "detail": ({"detail": "There was an error parsing the body"}, 400, set()),
    "detail as a list": ({"detail": [{"msg": "no", "loc": ["body"]}]}, 422, set()),
    "string": ({"error": "no"}, 400, set()),
    "not implemented": (NESTED, 501, set()),
    "server error": (NESTED, 500, {REFUSED}),
    "plain text": (b"Internal Server Error", 500, {REFUSED, JSON}),
    "page": ("<html>bad</html>", 400, {JSON, MESSAGE}),
    "empty": (b"", 400, {JSON, MESSAGE}),
    "no words": ({"error": {"message": "  "}}, 400, {MESSAGE}),
    "error under 200": (NESTED, 200, {REFUSED}),
    "accepted": (answer("Sure."), 200, {REFUSED}),
    "moved": (b"", 302, {REFUSED}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_every_family_of_refusal_is_read_and_each_lack_is_named(name):
    body, status, expected = REFUSALS[name]
    findings = seen(made("plain/x", body, status=status))
    assert short(findings) == expected
    assert findings[ANSWERED].outcome is findings[SERVED].outcome is Outcome.HELD


def test_what_is_said_of_refusals_where_there_is_none_is_nothing():
    assert {JSON, MESSAGE}.isdisjoint(seen(made("plain/x", answer())))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NESTED, set()),
        ({"error": {"object": "error", "message": "no", "type": "BAD_REQUEST", "code": 400}}, set()),
        ({"error": {"message": "no"}}, set()),
        ({"error": {"message": "no", "code": 500}}, {REFUSED}),
        ({"error": {"message": "", "code": 400}}, {MESSAGE}),
    ],
)
def test_a_stream_that_has_begun_refuses_by_an_event(error, expected):
    assert short(seen(events("stream/x", error), mode=Mode.STREAM)) == expected


def test_a_streamed_answer_to_a_bad_request_is_shown_in_words():
    chunk = {
        "model": "no-such-model-abc",
        "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}],
    }
    found = seen(events("stream/x", chunk, request={"model": "no-such-model-abc"}), mode=Mode.STREAM)[REFUSED]
    assert found.outcome is Outcome.VIOLATED
    assert found.why == "x: accepted with 200: “Hello”; its model is the name that was asked for"


@pytest.mark.parametrize(
    "bad",
    [
        made("plain/x", status=None, ending=Ending.TRUNCATED),
        made("plain/x", '{"error": {"mess', status=400, ending=Ending.TRUNCATED),
        made("plain/x", '{"cho', status=200, ending=Ending.TRUNCATED),
    ],
)
def test_a_request_without_a_whole_reply_breaks_a_must(bad):
    assert seen(bad)[ANSWERED].outcome is Outcome.VIOLATED


def test_a_server_that_fails_afterwards_breaks_a_must():
    found = seen(made("plain/x", NESTED, status=400), after={"error": {"message": "dead", "code": 500}})
    assert found[SERVED].outcome is Outcome.VIOLATED
    assert "after x" in found[SERVED].why


def test_without_a_control_nothing_is_known():
    found = seen(made("plain/x", NESTED, status=400), control=NESTED)
    assert {finding.outcome for finding in found.values()} == {Outcome.UNDETERMINED}


@pytest.mark.parametrize("garbage", ["", "[]", '{"error": []}', '{"error": {"message": {}}}', "NaN", "\x00"])
@pytest.mark.parametrize("status", [200, 400, 500])
def test_no_reply_is_strange_enough_to_raise(garbage, status):
    assert list(
        bad_requests.judge(transcript(made("control", answer()), made("plain/x", garbage, status=status)), PARAMS)
    )


# --------------------------------------------------------------------------- properties

SHAPES: dict[str, tuple[object, int]] = {
    "nested": (NESTED, 400),
    "flat": ({"object": "error", "message": "no", "code": 400}, 400),
    "string": ({"error": "Unauthorized"}, 401),
    "detail": ({"detail": "Not Found"}, 404),
    "page": ("<!doctype html>", 404),
    "text": ("Internal Server Error", 500),
    "empty": (b"", 404),
    "other JSON": ({"ok": False}, 400),
    "accepted": (answer(), 200),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_a_name(name):
    body, status = SHAPES[name]
    assert errors_family.shape(made("s", body, status=status)) == name


def family(*shapes: str) -> str:
    steps = ("wrong-type", "unknown-model", "unknown-route")
    said = [made(step, SHAPES[name][0], status=SHAPES[name][1]) for step, name in zip(steps, shapes, strict=True)]
    (found,) = errors_family.judge(transcript(*said), Params())
    return found.value


def test_one_word_is_enough_where_all_refusals_agree():
    assert family("nested", "nested", "nested") == "nested"
    assert family("flat", "accepted", "flat") == "flat"


def test_shapes_that_differ_are_named_by_what_they_answer():
    assert family("nested", "nested", "detail") == "wrong type: nested, unknown model: nested, unknown route: detail"


def test_a_server_that_refuses_nothing_has_no_shape_that_could_be_seen():
    assert family("accepted", "accepted", "accepted") == "unknown"


def test_leniency_tells_accepted_from_refused_and_from_failed():
    said = transcript(
        made("control", answer()),
        made("odd/temperature 99", answer()),
        made("odd/top_k -5", NESTED, status=400),
        made("odd/unknown role", "oops", status=500),
    )
    (found,) = errors_leniency.judge(said, Params())
    assert found.value == "accepts temperature 99; fails at unknown role"
    assert "refused: top_k -5" in found.why


def test_leniency_is_unknown_where_not_even_a_plain_request_is_answered():
    (found,) = errors_leniency.judge(transcript(made("control", NESTED, status=400)), Params())
    assert found.value == "unknown"
