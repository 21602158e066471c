"""Our judges agree with suites that other people made: what they call right is right, what they call wrong is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servecheck.model import Outcome
from servecheck.probes import _schemas, _tools
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.markup import call_mark
from tests import made

HERE = Path(__file__).parent
SUITE = sorted((HERE / "json_schema_suite").glob("*.json"))


def answered(text: str, schema: object) -> reply.Reply:
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return reply.chat(made.exchange("shaped", made.whole(text), request={"response_format": wanted}))


CONTROL = reply.chat(made.exchange("control", made.whole("The sea is wide and blue."), request={}))


def verdict(schema: object, instance: object) -> Outcome:
    shaped = answered(json.dumps(instance), schema)
    return _schemas.judge_schema(Part(), "schema-shapes-the-answer", shaped, CONTROL, schema).outcome


@pytest.mark.parametrize("path", SUITE, ids=lambda path: path.stem)
def test_an_answer_is_right_exactly_where_the_json_schema_test_suite_says_valid(path):
    wrong = []
    for group in json.loads(path.read_text("utf-8")):
        for case in group["tests"]:
            said = verdict(group["schema"], case["data"])
            right = Outcome.HELD if case["valid"] else (Outcome.VIOLATED, Outcome.NO_EFFECT)
            if said is not right and (case["valid"] or said not in right):
                wrong.append(f"{group['description']}: {case['description']}: {said}")
    assert wrong == []


def test_the_suite_says_enough_of_both():
    cases: list[Any] = [
        case for path in SUITE for group in json.loads(path.read_text("utf-8")) for case in group["tests"]
    ]
    valid = sum(case["valid"] for case in cases)

    assert valid > 300
    assert len(cases) - valid > 300


# --------------------------------------------------------------------------- calls

RECORDINGS = [json.loads(line) for line in (HERE / "toolcall_recordings" / "recordings.jsonl").read_text().splitlines()]
CALLED = [each for each in RECORDINGS if "truncated" not in each["tags"] and each["expected"]["tool_calls"]]
CUT = [each for each in RECORDINGS if "truncated" in each["tags"]]
CHECKS = _tools.Forced(
    called="called",
    offered="offered",
    own_id="own-id",
    json="json",
    loose="loose",
    strict="strict",
    finish="finish",
    clean="clean",
)


def named(recording: dict[str, Any]) -> str:
    return str(recording["id"])


def calls_in(recording: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{place}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)},
        }
        for place, call in enumerate(recording["expected"]["tool_calls"])
    ]


def came_back(
    recording: dict[str, Any], text: str | None, calls: list[dict[str, Any]], finish: str = "tool_calls"
) -> reply.Answer:
    """Return the reply of a server that made this of what the model wrote; its request offers the called tool first."""
    wanted = (recording["expected"] or {}).get("tool_calls") or []
    tools = sorted(recording["tools"], key=lambda tool: not wanted or tool["function"]["name"] != wanted[0]["name"])
    more = {"tool_calls": calls} if calls else {}
    made_of = made.exchange("call", made.whole(text, finish, **more), request={"tools": tools})
    answer = reply.chat(made_of)
    assert isinstance(answer, reply.Answer)
    return answer


def not_held(answer: reply.Answer) -> dict[str, Outcome]:
    found = _tools.judge_forced(CHECKS, Part(), answer, CONTROL, strict=True)
    return {each.check: each.outcome for each in found if each.outcome is not Outcome.HELD}


@pytest.mark.parametrize("recording", CALLED, ids=named)
def test_what_a_right_parser_makes_of_a_call_is_right(recording):
    content, calls = recording["expected"]["content"], calls_in(recording)
    answer = came_back(recording, content, calls)

    assert _tools.malformed(answer.first.tool_calls) == ""
    assert _tools.judge_ids("own-id", Part(), answer).outcome is Outcome.HELD
    assert call_mark(content or "") == ""
    if len({call["function"]["name"] for call in calls}) == 1:
        assert not_held(answer) == {}


@pytest.mark.parametrize("recording", CALLED, ids=named)
def test_a_call_that_is_left_in_the_text_is_none(recording):
    answer = came_back(recording, recording["raw_output"], [], "stop")

    assert not_held(answer) == {"called": Outcome.VIOLATED}


@pytest.mark.parametrize("recording", [each for each in CALLED if each["markers"]], ids=named)
def test_marks_of_every_family_are_known(recording):
    """Each family's own marks are seen in what its models write, before any parser."""
    assert call_mark(recording["raw_output"]) != ""


@pytest.mark.parametrize("recording", CALLED, ids=named)
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda text: text[:-1], id="the last brace is lost"),
        pytest.param(lambda text: text + text, id="written twice"),
        pytest.param(lambda text: "{" + text, id="a brace in front"),
        pytest.param(json.dumps, id="quoted once more"),
        pytest.param(lambda _: "", id="lost"),
    ],
)
def test_arguments_that_a_parser_spoils_are_no_arguments(recording, spoil):
    calls = calls_in(recording)
    calls[-1]["function"]["arguments"] = spoil(calls[-1]["function"]["arguments"])
    answer = came_back(recording, None, calls)

    assert _tools.malformed(answer.first.tool_calls) != ""
    if len({call["function"]["name"] for call in calls}) == 1:
        assert Outcome.VIOLATED in not_held(answer).values()


@pytest.mark.parametrize("recording", CUT, ids=named)
def test_a_call_that_the_limit_cut_is_nobodys_fault(recording):
    answer = came_back(recording, recording["raw_output"], [], "length")

    assert Outcome.VIOLATED not in not_held(answer).values()
