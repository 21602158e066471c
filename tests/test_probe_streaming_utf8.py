"""What the character probe says where no schema is applied, and where an answer tells nothing."""

from __future__ import annotations

import json

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probes.streaming_utf8 import PROBE, StreamingUtf8Params
from servecheck.reference.asgi import Event
from servecheck.reference.constraint import Constraint
from servecheck.reference.server import ReferenceServer
from tests.timed import delta, outcomes, sent_json, stream, transcript, whole
from tests.trying import trials_of

_STREAM, _WHOLE = "stream-keeps-characters", "whole-answer-keeps-characters"
_HELD, _VIOLATED, _UNDETERMINED = Outcome.HELD, Outcome.VIOLATED, Outcome.UNDETERMINED
_TEXT = "bcdfghjklmab🙂日e\u0301नम🇫🇷"
_REQUEST = json.dumps(
    {"response_format": {"json_schema": {"schema": {"properties": {"text": {"enum": [_TEXT]}}}}}}
).encode()
_NO_SCHEMA = whole("whole", "Which text do you mean?", request_body=_REQUEST)


def _says(*exchanges: Exchange) -> dict[str, Outcome]:
    return outcomes(PROBE.judge(transcript(*exchanges), StreamingUtf8Params()))


def _streamed(step: str, *pieces: str, finish: str = "stop") -> Exchange:
    return stream(step, [*(delta(piece) for piece in pieces), delta(finish=finish)], request_body=_REQUEST)


@pytest.mark.parametrize(
    ("expected", "copied", "pieces"),
    [
        pytest.param(_HELD, "ab🙂日", ["ab🙂", "日"], id="equal"),
        pytest.param(_VIOLATED, "ab🙂日", ["ab\ufffd\ufffd", "日"], id="replaced in the stream"),
        pytest.param(_VIOLATED, "ab🙂日", ["ab", "日"], id="lost in the stream"),
        pytest.param(_UNDETERMINED, "ab🙂日", ["something else, ", "日"], id="another answer"),
        pytest.param(_UNDETERMINED, "I cannot do that.", ["I cannot", " do that."], id="not copied"),
        pytest.param(_UNDETERMINED, "\ufffd", ["\ufffd"], id="the model itself writes U+FFFD"),
    ],
)
def test_without_a_schema_the_stream_is_compared_with_the_whole_copy(
    expected: Outcome, copied: str, pieces: list[str]
) -> None:
    assert _says(_NO_SCHEMA, whole("copy-whole", copied), _streamed("copy-stream", *pieces)) == {_STREAM: expected}


def _shaped(text: str, **more: str) -> Exchange:
    return whole("whole", json.dumps({"text": text}), request_body=_REQUEST, **more)


@pytest.mark.parametrize(
    ("expected", "text", "finish"),
    [
        pytest.param(_HELD, json.dumps({"text": _TEXT}), "stop", id="escaped"),
        pytest.param(_VIOLATED, json.dumps({"text": _TEXT.replace("e\u0301", "\u00e9")}), "stop", id="composed"),
        pytest.param(_VIOLATED, json.dumps({"text": _TEXT[:-1]}), "stop", id="half a flag"),
        pytest.param(_VIOLATED, '{"text": "bcdfghjklmab\ufffd', "stop", id="broken off at a lost character"),
        pytest.param(_UNDETERMINED, '{"text": "bcdfghjklmab\ufffd', "length", id="cut by length"),
        pytest.param(_UNDETERMINED, "Just prose.", "stop", id="no schema in the stream"),
    ],
)
def test_with_a_schema_every_code_point_is_known(expected: Outcome, text: str, finish: str) -> None:
    said = _says(_shaped(_TEXT), _streamed("stream", text[:9], text[9:], finish=finish))
    assert said == {_WHOLE: _HELD, _STREAM: expected}


def test_a_refused_stream_is_a_refusal() -> None:
    refused = sent_json("copy-stream", {"error": {"message": "no streams"}}, status=400)
    assert _says(_NO_SCHEMA, whole("copy-whole", "ab🙂"), refused) == {_STREAM: Outcome.REFUSED}


class _NoSchemas(ReferenceServer):
    def constraint_of(self, body: Event) -> Constraint | None:
        return None


@pytest.mark.parametrize(("expected", "language"), [(_HELD, "obedient"), (_UNDETERMINED, "declining")])
def test_a_server_that_ignores_schemas_is_asked_to_copy(expected: Outcome, language: str) -> None:
    trial, *_ = trials_of("streaming_utf8", _NoSchemas(language=language))
    assert outcomes(trial.findings) == {_STREAM: expected}
