"""What the judge of ``json_schema_routes`` makes of streams and completions that no mutant gives."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Finding, Mode, Outcome, Route
from servecheck.probes._schemas import NONCE_SCHEMA, response_format, with_nonce
from servecheck.probes.json_schema_routes import PROBE, JsonSchemaRoutesParams
from tests import made

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED

WORD = "bcdfghjklm"
JSON = f'{{"code": "{WORD}"}}'
REQUEST = {"stream": True, "response_format": response_format(with_nonce(NONCE_SCHEMA, WORD))}
STREAM, COMPLETIONS = JsonSchemaRoutesParams(where="stream"), JsonSchemaRoutesParams(where="completions")


def streamed(step: str, *pieces: str, finish: str = "stop", request: object = None) -> Exchange:
    body = made.sse(made.spoken(*pieces, finish=finish))
    return made.exchange(step, body, content_type="text/event-stream", request=request or REQUEST)


def text(step: str, said: str, *, finish: str = "stop", request: object = None) -> Exchange:
    choice = {"index": 0, "text": said, "finish_reason": finish, "logprobs": None}
    body = {"object": "text_completion", "choices": [choice]}
    return made.exchange(step, body, request=request or REQUEST, path="/completions")


PROSE = streamed("control", "The sea ", "is wide.", request={"stream": True})
PLAIN = text("control", " is wide.", request={"prompt": "The sea"})


def greedy(*exchanges: Exchange, params: JsonSchemaRoutesParams = STREAM) -> Finding:
    return made.only(PROBE.judge(made.transcript(*exchanges), params))[0]


@pytest.mark.parametrize(
    ("expected", "pieces", "finish"),
    [
        pytest.param(HELD, (JSON,), "stop", id="in one piece"),
        pytest.param(HELD, tuple(JSON), "stop", id="letter by letter"),
        pytest.param(HELD, ("", "\n", JSON, ""), "stop", id="with empty pieces around"),
        pytest.param(VIOLATED, (JSON[1:],), "stop", id="without its brace"),
        pytest.param(VIOLATED, (JSON, JSON), "stop", id="twice"),
        pytest.param(VIOLATED, (JSON[:12],), "stop", id="ended in the middle"),
        pytest.param(UNDETERMINED, (JSON[:12],), "length", id="cut in the middle"),
        pytest.param(VIOLATED, (), "stop", id="empty"),
        pytest.param(NO_EFFECT, ("Waves ", "come."), "stop", id="prose"),
    ],
)
def test_a_streamed_answer_is(expected: Outcome, pieces: tuple[str, ...], finish: str) -> None:
    seen = greedy(PROSE, streamed("greedy", *pieces, finish=finish))

    assert (seen.outcome, seen.route, seen.mode) == (expected, Route.CHAT, Mode.STREAM)


def test_an_error_event_of_a_client_code_is_a_refusal_and_another_a_fault() -> None:
    for expected, code in ((REFUSED, 400), (VIOLATED, 500)):
        event = {"error": {"message": "no grammar backend", "type": "BadRequestError", "code": code}}

        assert greedy(PROSE, made.stream("greedy", [event])).outcome is expected


def test_a_stream_that_is_refused_without_a_schema_too_tells_nothing_of_schemas() -> None:
    refused = made.refusal("control", "stream is not supported")

    assert greedy(refused, made.refusal("greedy", "stream is not supported")).outcome is UNDETERMINED


def test_completions_are_judged_on_their_own_route_in_both_modes() -> None:
    whole, pieces = text("greedy", JSON), text("streamed", JSON)
    found = made.only(PROBE.judge(made.transcript(PLAIN, whole, pieces), COMPLETIONS))

    assert {finding.route for finding in found} == {Route.COMPLETIONS}
    assert {(f.mode, f.outcome) for f in found if f.outcome is HELD} == {(Mode.NON_STREAM, HELD), (Mode.STREAM, HELD)}


def test_a_completion_that_goes_on_as_without_a_schema_is_no_effect() -> None:
    assert greedy(PLAIN, text("greedy", " was calm."), params=COMPLETIONS).outcome is NO_EFFECT


def test_the_second_look_at_an_answer_that_was_cut_counts() -> None:
    cut = streamed("greedy", '{"code": ', finish="length")

    assert greedy(PROSE, cut, streamed("greedy-again", JSON)).outcome is HELD
