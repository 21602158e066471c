"""A user's own checks: what the judge says of replies, what the loader says of YAML, and what is never sent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from servecheck import features, plan, read_run, run_suite, scenario
from servecheck.errors import NothingSelected, UnknownName, UsageError
from servecheck.model import Endpoint, Exchange, Finding, Outcome, Status, Transcript
from servecheck.probes import discover
from servecheck.probes._assertions import fault_of
from servecheck.probes.exchange import PROBE, ExchangeParams
from servecheck.read import instance
from servecheck.reference import mock, mutants
from servecheck.reference.server import ReferenceServer
from servecheck.schema import publish
from servecheck.yamlfile import read
from tests import made
from tests.trying import trials_of

HELD, VIOLATED, NO_EFFECT = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT
REFUSED, UNDETERMINED = Outcome.REFUSED, Outcome.UNDETERMINED
BODY = {"messages": [{"role": "user", "content": "Hello."}]}
CONTROL = {"step": "plain", "control": True, "path": "/chat/completions", "body": BODY}


def params(*steps: dict[str, Any]) -> ExchangeParams:
    return ExchangeParams.model_validate_json(json.dumps({"steps": steps}))


def step(expect: dict[str, Any], **more: Any) -> dict[str, Any]:
    check = {"rule": "It is as expected.", "expect": expect}
    return {"step": "asked", "path": "/chat/completions", "body": BODY, "checks": {"mine": check}, **more}


def judged(expect: dict[str, Any], reply: Exchange | None, control: Exchange | None = None, **more: Any) -> Finding:
    steps = [step(expect, **more)] if control is None else [CONTROL, step(expect, **more)]
    sent = [each for each in (control, reply) if each is not None]
    [finding] = made.only(PROBE.judge(made.transcript(*sent), params(*steps)))
    return finding


# --------------------------------------------------------------------------- what the judge says

PLAIN = made.exchange("plain", made.whole(), request=BODY)
ANSWER = made.exchange("asked", made.whole(), request=BODY)
STREAM = made.stream("asked", made.spoken("Red"))
HAS_TIER = {"body": {"required": ["service_tier"]}}


@pytest.mark.parametrize(
    ("expected", "expect", "reply", "control"),
    [
        (HELD, {"status": 200}, ANSWER, None),
        (HELD, {"status": [200, 201]}, ANSWER, None),
        (HELD, {"status": "2xx"}, ANSWER, None),
        (HELD, {"status": 400}, made.refusal("asked"), None),
        (HELD, {"status": "4xx", "body": {"required": ["error"]}}, made.refusal("asked"), None),
        (HELD, {"status": "5xx"}, made.failure("asked"), None),
        (HELD, {"body": {"properties": {"model": {"const": made.MODEL}}, "required": ["model"]}}, ANSWER, None),
        (HELD, {"headers": {"properties": {"content-type": {"pattern": "json"}}}}, ANSWER, None),
        (HELD, {"each_event": {"required": ["choices"]}}, STREAM, None),
        (HELD, {"body": {"type": "array", "contains": {"required": ["choices"]}}}, STREAM, None),
        # Accepted and wrong.
        (VIOLATED, {"status": 400}, ANSWER, PLAIN),
        (VIOLATED, {"body": {"properties": {"object": {"const": "list"}}}}, ANSWER, PLAIN),
        (VIOLATED, {"body": {"type": "object"}}, made.exchange("asked", b"<html>", request=BODY), PLAIN),
        (VIOLATED, {"each_event": {"required": ["choices"]}}, ANSWER, PLAIN),
        (VIOLATED, {"each_event": {"required": ["choices"]}}, made.stream("asked", [b"data: {\n\n"]), PLAIN),
        (VIOLATED, {"each_event": {"required": ["choices"]}}, made.stream("asked", []), PLAIN),
        (VIOLATED, {"each_event": {"required": ["usage"]}}, STREAM, None),
        (VIOLATED, {"status": 200}, made.failure("asked"), PLAIN),
        (VIOLATED, {"status": 200}, made.cut("asked"), PLAIN),
        (VIOLATED, {"status": 404}, made.refusal("asked", status=400), PLAIN),
        (VIOLATED, HAS_TIER, ANSWER, None),
        # A schema that any object fits makes no refusal green.
        (REFUSED, {"body": {"type": "object"}}, made.refusal("asked"), PLAIN),
        (REFUSED, {"status": [200, 404]}, made.refusal("asked", status=400), PLAIN),
        (REFUSED, {"each_event": {"type": "object"}}, made.stream("asked", [{"error": {"code": 400}}]), PLAIN),
        # No different from the control.
        (NO_EFFECT, HAS_TIER, ANSWER, PLAIN),
        # Whose fault is it?
        (UNDETERMINED, {"status": 200}, made.refusal("asked"), None),
        (UNDETERMINED, {"status": 200}, made.refusal("asked"), made.refusal("plain")),
        (UNDETERMINED, {"status": 200}, made.failure("asked"), made.failure("plain")),
        (UNDETERMINED, HAS_TIER, ANSWER, made.failure("plain")),
        (UNDETERMINED, {"status": 200}, None, PLAIN),
        (HELD, {"status": 200}, ANSWER, made.failure("plain")),
    ],
)
def test_a_reply_is_judged_by_what_is_expected_and_by_the_control(
    expected: Outcome, expect: dict[str, Any], reply: Exchange | None, control: Exchange | None
) -> None:
    assert expected == judged(expect, reply, control).outcome


def test_the_reason_names_the_place_and_what_stands_there() -> None:
    usage = {"type": "object", "properties": {"prompt_tokens": {"minimum": 100}}}
    finding = judged({"body": {"properties": {"usage": usage}}}, ANSWER, PLAIN)

    assert finding.why == "body/usage/prompt_tokens: 20 is less than the minimum of 100"


def test_a_pattern_that_takes_too_long_is_no_fault_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "PATTERN_SECONDS", 0.02)
    reply = made.exchange("asked", made.whole("a" * 60 + "!"), request=BODY)
    text: dict[str, Any] = {"pattern": "^(a|a)*$"}
    for name in ("content", "message"):
        text = {"properties": {name: text}}
    text = {"properties": {"choices": {"items": text}}}
    finding = judged({"body": text}, reply, PLAIN)

    assert finding.outcome is UNDETERMINED
    assert "it tries too many ways" in finding.why


def test_the_reason_names_the_event() -> None:
    finding = judged({"each_event": {"required": ["usage"]}}, STREAM)

    assert finding.why == "event 1 of 3: 'usage' is missing"


def test_a_control_of_another_route_is_not_the_same_request_without_the_feature() -> None:
    elsewhere = made.exchange("plain", {"data": []}, request=BODY, path="/embeddings")
    assert judged(HAS_TIER, ANSWER, elsewhere).outcome is VIOLATED


def test_headers_are_compared_under_lower_case_names_and_joined_where_they_repeat() -> None:
    reply = made.exchange("asked", {}, request=BODY)
    twice = Exchange(
        id=reply.id, step=reply.step, method="POST", url=reply.url, status=200,
        response_headers=(("X-Seen", "a"), ("x-seen", "b")), chunks=reply.chunks,
    )  # fmt: skip
    assert (
        judged({"headers": {"properties": {"x-seen": {"const": "a, b"}}, "required": ["x-seen"]}}, twice).outcome
        is HELD
    )


@pytest.mark.parametrize(
    ("expected", "sent", "came"),
    [(HELD, "qzxw", "qzxw"), (VIOLATED, "qzxw", "qzx"), (HELD, "bcdf", "bcdf")],
)
def test_the_random_word_is_read_from_what_was_sent(expected: Outcome, sent: str, came: str) -> None:
    asked = step({"body": {"properties": {"id": {"const": "id-$nonce"}}}}, body={"user": "for $nonce, $nonce!"})
    reply = made.exchange("asked", {"id": f"id-{came}"}, request={"user": f"for {sent}, {sent}!"})
    [finding] = made.only(PROBE.judge(made.transcript(reply), params(asked)))

    assert finding.outcome is expected


LISTED = {"step": "models", "method": "GET", "path": "/models"}
FROM = {"$from": "models#/data/0/id"}


@pytest.mark.parametrize(
    ("expected", "why", "models"),
    [
        (HELD, "HTTP 200, body as expected", {"data": [{"id": made.MODEL}]}),
        (VIOLATED, "body/model: 'other' was expected", {"data": [{"id": "other"}]}),
        (UNDETERMINED, "what is expected is not known: the reply to 'models' has nothing at /data/0/id", {"data": []}),
    ],
)
def test_a_value_of_an_earlier_reply_can_be_expected(expected: Outcome, why: str, models: object) -> None:
    asked = step({"body": {"properties": {"model": {"const": FROM}}}})
    sent = made.transcript(made.exchange("models", models), ANSWER)
    [finding] = made.only(PROBE.judge(sent, params(LISTED, asked)))

    assert (expected, why) == (finding.outcome, finding.why)


def test_a_step_that_needs_what_was_not_said_is_not_sent_and_says_so() -> None:
    asked = step({"status": 200}, body={"model": FROM})
    [finding] = made.only(PROBE.judge(made.transcript(made.refusal("models")), params(LISTED, asked)))

    assert finding.outcome is UNDETERMINED
    assert finding.why == "not sent: the step 'models' gave no value: HTTP 400: “not supported here”"


def test_a_schema_never_fetches_anything_and_never_raises() -> None:
    elsewhere = fault_of({}, {"$ref": "https://example.com/schema"})
    loop = fault_of({}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})

    assert elsewhere is not None
    assert "refers to nothing" in elsewhere.message
    assert loop is not None
    assert "too deeply" in loop.message


def test_a_long_value_is_cut_in_the_reason() -> None:
    fault = fault_of({"text": "x" * 5000}, {"properties": {"text": {"const": "y"}}})
    assert fault is not None
    assert len(fault.message) < 200


# --------------------------------------------------------------------------- what the loader says

HEAD = """\
schema: servecheck/scenario/v1
id: mine
title: Mine
feature: own.mine
probe: exchange
why: I rely on it.
with:
  steps:
    - step: first
      path: /models
      method: GET
"""
CHECKS = "      checks: {mine: {rule: It is so., expect: {status: 200}}}\n"


def complaints(tmp_path: Path, text: str) -> list[str]:
    """Return each problem as the text that its caret points to, the message, and the suggestion."""
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    lines = text.splitlines()
    said = []
    for each in scenario.problems_of([file], probes=discover(), features=features.BY_ID):
        pointed = lines[each.line - 1][each.column - 1 :].partition(",")[0].split("}")[0]
        said.append(f"{pointed} | {each.message}" + f" | {each.suggestion}" * bool(each.suggestion))
    return said


def request(line: str) -> str:
    return HEAD + f"    - step: asked\n      {line}\n" + CHECKS


def expecting(text: str, **more: str) -> str:
    lines = "".join(f"      {name}: {value}\n" for name, value in more.items())
    head = HEAD + "    - step: asked\n      path: /our/own/route\n" + lines
    return head + f"      checks:\n        mine:\n          rule: It is so.\n          expect: {{{text}}}\n"


def test_a_right_scenario_has_no_problem(tmp_path: Path) -> None:
    assert complaints(tmp_path, request("path: /chat/completions")) == []
    assert complaints(tmp_path, request("path: /v1/rerank\n      root: server")) == []
    assert complaints(tmp_path, expecting("headers: {required: [x-a]}, body: {const: {$from: first#/data/0}}")) == []


@pytest.mark.parametrize(
    "path",
    [
        *("/rerank", "/score", "/classify", "/pooling", "/moderations", "/audio/transcriptions", "/images/generations"),
        *("/files", "/batches", "/embedding", "/responses/compact", "/messages/count_tokens", "/models/some-model"),
    ],
)
def test_a_route_that_few_servers_have_is_no_misspelt_one(tmp_path: Path, path: str) -> None:
    # Only what is one letter away from a route of the API is taken for it.
    expected = ["/embedding | no such route: /embedding | did you mean '/embeddings'?"] if path == "/embedding" else []
    assert complaints(tmp_path, request(f"path: {path}")) == expected
    assert complaints(tmp_path, request(f"path: {path}\n      root: server")) == []


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ("/chat/completion | no such route: /chat/completion | did you mean '/chat/completions'?",
         "path: /chat/completion"),
        ("/v1/models | the API root ends in a version already | write /models, or root: server", "path: /v1/models"),
        ("models | expected a path that begins with / | write /models", "path: models"),
        ("http://x/y | expected a path that begins with / | which endpoint is asked is named on the command line",
         "path: http://x/y"),
        ("/a/../b | expected a plain path: ASCII without spaces, .., // and #", "path: /a/../b"),
        ("/x/$nonce | $nonce belongs into headers and bodies; a path is sent as it is", "path: /x/$nonce"),
        ("body: { | a GET has no body | write method: POST",
         "path: /models\n      method: GET\n      body: {}"),
        (("Authorization: me | the header 'Authorization' holds a secret | secrets are named, never given: "
         "see api_key_env and header_envs of an endpoints file"), "path: /x\n      headers: {Authorization: me}"),
        ("Host: me | the header 'Host' is servecheck's own business", "path: /x\n      headers: {Host: me}"),
        ("$nonec | unknown word '$nonec' | did you mean '$nonce'?", "path: /x\n      body: {user: $nonec}"),
        ("$model | unknown word '$model' | there is $nonce only", "path: /x\n      body: {user: $model}"),
        ("frist#/id | no step before this one is called 'frist' | did you mean 'first'?",
         "path: /x\n      body: {user: {$from: frist#/id}}"),
        ("asked#/id | no step before this one is called 'asked' | known: first",
         "path: /x\n      body: {user: {$from: asked#/id}}"),
        (("first | expected a step and a JSON pointer, and no other key | write {$from: step#/pointer}, "
         "as {$from: models#/data/0/id}"), "path: /x\n      body: {user: {$from: first}}"),
        (("control: true | a control is what others are compared with, and is not checked itself | "
         "put the check on another step, or leave out control"), "path: /x\n      control: true"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_pointed_at(tmp_path: Path, expected: str, line: str) -> None:
    text = request(line)
    if line.endswith("control: true"):
        expected = expected.replace("control: true", "checks: {mine: {rule: It is so.")

    assert complaints(tmp_path, text) == [expected]


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (("requierd: [x] | unknown JSON Schema keyword 'requierd', which would check nothing | "
         "did you mean 'required'?"), "body: {requierd: [x]}"),
        ("strin | no JSON Schema: 'strin' is not valid under any of the given schemas", "body: {type: strin}"),
        ("'[' | '[' is no pattern that can be read, so it would check nothing",
         "body: {properties: {a: {pattern: '['}}}"),
        (("'#/$defs/a' | '#/$defs/a' refers to nothing here | definitions stand under $defs of the same schema, "
         "as #/$defs/name"), "body: {$ref: '#/$defs/a'}"),
        (("https://example.com/s | 'https://example.com/s' refers to nothing here | definitions stand under $defs of "
         "the same schema, as #/$defs/name"), "body: {$ref: https://example.com/s}"),
        ("body: { | this schema accepts everything, so the check could never fail", "body: {}"),
        ("expect: { | nothing is expected | give status, headers, body or each_event", ""),
        ("X-A: {const: a | names of headers are compared in lower case | write x-a",
         "headers: {properties: {X-A: {const: a}}}"),
        ("X-A] | names of headers are compared in lower case | write x-a", "headers: {required: [X-A]}"),
        ("$nonce | no request up to here has $nonce, so no reply can", "body: {const: $nonce}"),
        ("429 | 429 and 503 say that the server is busy: they are waited out, so no check sees them", "status: 429"),
        (("6xx | expected a whole number or a list or '2xx', '3xx', '4xx' or '5xx', got the text '6xx' | "
         "did you mean '5xx'?"), "status: 6xx"),
        ("boddy: { | unknown key 'boddy' | did you mean 'body'?", "status: 200, boddy: {}"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_expectation_is_pointed_at(tmp_path: Path, expected: str, text: str) -> None:
    [said] = complaints(tmp_path, expecting(text))
    # The caret of a mapping in braces is at its brace; of a key, at the key.
    assert said.removeprefix("{ |") in (expected, expected.partition(" |")[2])


def test_events_of_a_reply_that_was_not_asked_to_stream_cannot_be_checked(tmp_path: Path) -> None:
    text = expecting("each_event: {type: object}").replace("/our/own/route", "/chat/completions")
    [said] = complaints(tmp_path, text)

    assert said.endswith("this step asks for no stream | write stream: true in the body of this step")


@pytest.mark.parametrize(
    "body",
    [
        "{prompt: [1, 2]}",
        "{prompt: [[1, 2], [3]]}",
        "{allowed_token_ids: [70000000]}",
        "{stop_token_ids: [1]}",
        "{logit_bias: {'5': 1}}",
        "{extra: {input_ids: [5]}}",
    ],
)
def test_token_ids_that_a_person_wrote_are_never_sent(tmp_path: Path, body: str) -> None:
    [said] = complaints(tmp_path, request(f"path: /completions\n      body: {body}"))
    assert "one outside the vocabulary can end an engine, so none is sent" in said


def test_token_ids_of_the_server_itself_may_be_sent(tmp_path: Path) -> None:
    assert complaints(tmp_path, request("path: /completions\n      body: {prompt: {$from: first#/tokens}}")) == []


@pytest.mark.parametrize(
    "path",
    [
        *("/flush_cache", "/FLUSH_CACHE", "/flush%5Fcache", "/flush-cache", "/flush_cache/", "/flush_cache?x=1"),
        *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/reset_prefix_cache", "/sleep", "/wake_up"),
        *("/update_weights_from_disk", "/collective_rpc", "/start_profile", "/abort_request", "/shutdown"),
        *("/slots/0", "/props", "/lora-adapters", "/models/load", "/key/generate", "/cache/flushall"),
    ],
)
def test_routes_that_manage_a_server_are_never_sent_to(tmp_path: Path, path: str) -> None:
    [said] = complaints(tmp_path, request(f"path: {path}\n      root: server"))
    assert "manages the server or may change it for others, so servecheck never sends to it" in said


def test_a_folder_edited_by_hand_cannot_make_the_probe_send_them_either() -> None:
    wrong = params(step({"status": 200}, path="/flush_cache"))
    with pytest.raises(UsageError, match="manages the server"):
        asyncio.run(PROBE.drive(None, wrong, None))  # type: ignore[arg-type]


def test_a_check_is_named_once_and_no_other_probe_has_it(tmp_path: Path) -> None:
    taken = request("path: /x").replace("mine: {rule", "schema-shapes-the-answer: {rule")
    assert "the check 'schema-shapes-the-answer' belongs to json_schema" in complaints(tmp_path, taken)[0]
    reserved = request("path: /x").replace("mine: {rule", "server-stays-healthy: {rule")
    assert "belongs to servecheck" in complaints(tmp_path, reserved)[0]

    text = request("path: /x")
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text(text.replace("id: mine", "id: other"))
    found = scenario.problems_of([tmp_path], probes=discover(), features=features.BY_ID)
    assert [each.message for each in found] == [f"the check 'mine' is taken by {tmp_path / 'mine.yaml'}"]


@pytest.mark.parametrize(
    ("expected", "feature"),
    [
        ([], "own.mine"),
        ([], "own.request-id_2"),
        ([], "chat.basic"),
        (["Own.Mine | unknown feature 'Own.Mine' | for a row of your own write own.Mine"], "Own.Mine"),
        ([("own.Mine | 'own.Mine' is no name for a row of your own | "
          "write own. and lower-case words, as own.request-id")], "own.Mine"),
        (["billing.cached | unknown feature 'billing.cached' | for a row of your own write own.cached"],
         "billing.cached"),
        ([("sampling.greedy | checks of your own give a status, and 'sampling.greedy' is a property row | "
          "name a row of your own, such as own.mine")], "sampling.greedy"),
    ],
)  # fmt: skip
def test_a_row_of_ones_own_is_named_by_own_and_a_word(tmp_path: Path, expected: list[str], feature: str) -> None:
    assert expected == complaints(tmp_path, request("path: /x").replace("own.mine", feature))


# --------------------------------------------------------------------------- rows, cost and sending


def example(name: str) -> scenario.Scenario:
    return scenario.load(scenario.examples_dir() / f"{name}.yaml", probes=discover(), features=features.BY_ID)


ENDPOINT = Endpoint(name="here", base_url="http://127.0.0.1:1/v1")


def test_a_row_of_ones_own_stands_behind_all_others_and_is_core() -> None:
    *others, own = features.with_own([("own.mine", "Mine"), ("chat.basic", "Chat")])

    assert tuple(others) == features.FEATURES
    assert (own.id, own.title, own.group, own.core) == ("own.mine", "Mine", "own", True)


def test_own_rows_are_selected_like_any_other() -> None:
    scenarios = [example("request-id-comes-back"), example("listed-model-answers")]

    def chosen(*globs: str) -> list[str]:
        made_ = plan.make([ENDPOINT], scenarios, discover(), settings=plan.Settings(), globs=globs, given=True)
        return [each.feature for each in made_.scenarios]

    assert chosen() == ["own.listed-model", "own.request-id"]
    assert chosen("own") == ["own.listed-model", "own.request-id"]
    assert chosen("own.request-id") == ["own.request-id"]
    with pytest.raises(UnknownName, match=r"did you mean 'own\.request-id'"):
        chosen("own.request-ids")
    with pytest.raises(NothingSelected):
        chosen("chat.basic")


def test_rows_without_a_given_scenario_are_not_said_to_have_no_probe() -> None:
    planned = plan.make(
        [ENDPOINT], [example("request-id-comes-back")], discover(), settings=plan.Settings(), given=True
    )
    assert {skip.code for skip in planned.skips} == {"not-selected"}


def test_the_cost_of_a_check_is_what_its_steps_say() -> None:
    found = example("request-id-comes-back").params
    assert isinstance(found, ExchangeParams)
    cost = PROBE.of(found)

    assert (cost.requests, cost.output_tokens) == (3, 24)


def test_an_endpoint_that_embeds_is_never_asked_to_generate() -> None:
    sent: list[str] = []

    class Session:
        endpoint = Endpoint(name="e", base_url="http://e/v1", kind="embedding")
        transcript = Transcript()

        def nonce(self) -> str:
            return "bcd"

        async def request(self, step: str, method: str, path: str, body: object, **_: object) -> None:
            sent.append(path)

    asyncio.run(PROBE.drive(Session(), example("listed-model-answers").params, None))  # type: ignore[arg-type]
    assert sent == ["/models"]


def test_the_examples_hold_on_a_right_server() -> None:
    trials = trials_of("exchange", ReferenceServer())

    assert [(trial.case.feature, trial.status) for trial in trials] == [
        ("own.listed-model", Status.SUPPORTED),
        ("own.request-id", Status.SUPPORTED),
        ("own.streamed-usage-details", Status.SUPPORTED),
    ]


@pytest.mark.parametrize("path", sorted(scenario.examples_dir().glob("*.yaml")), ids=lambda path: path.stem)
def test_an_editor_takes_the_examples_and_not_a_misspelt_key(path: Path) -> None:
    schema = publish.scenario_json_schema(discover())
    text = path.read_text("utf-8")

    assert [each.message for each in Draft7Validator(schema).iter_errors(read(path).data)] == []
    assert not Draft7Validator(schema).is_valid(json.loads(json.dumps(read(path).data).replace('"expect"', '"expct"')))
    assert "# yaml-language-server: $schema=../../servecheck/schema/scenario.v1.json" in text


def test_the_level_of_a_check_is_the_one_that_its_author_gave() -> None:
    trials = trials_of("exchange", ReferenceServer(reports_cached=False))
    [details] = [trial for trial in trials if trial.case.feature == "own.streamed-usage-details"]

    assert details.status is Status.DEGRADED
    assert {each.check: str(each.level) for each in details.findings} == {
        "streamed-usage-comes": "must",
        "streamed-usage-has-details": "should",
        "every-event-is-a-chunk": "must",
    }


# --------------------------------------------------------------------------- from the page to the report

PAGE = (Path(__file__).parent.parent / "docs" / "write-your-own-check.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("expected", "decision", "mutant"), [("supported", "ready", None), ("ignored", "not_ready", "request-id-lost")]
)
def test_the_check_of_the_page_is_a_row_of_the_report(
    tmp_path: Path, expected: str, decision: str, mutant: str | None
) -> None:
    faults, _ = mutants.discover()["exchange"]
    kind = next((each.server for each in faults if each.id == mutant), ReferenceServer)
    file = tmp_path / "request-id.yaml"
    file.write_text(PAGE.partition("```yaml\n")[2].partition("```")[0])
    with mock.background(kind()) as url:
        report = run_suite([f"{url}/v1"], tmp_path / "run", scenarios=[file], environ={})

    [row] = [feature for feature in report.features if features.is_own(feature.id)]
    [cell] = [each for each in report.cells if each.feature == row.id]
    assert (expected, decision) == (cell.status, report.verdict.decision)
    assert (row.id, row.title) == ("own.request-id", "Our gateway gives the x-request-id back")
    assert report.checks["request-id-is-echoed"].rule == "A reply carries the x-request-id that its request had."
    assert f'"feature": "{row.id}"' in (tmp_path / "run" / "results.json").read_text("utf-8")
    assert read_run(tmp_path / "run").cells == report.cells


def test_the_built_in_suite_can_run_beside_scenarios_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(request("path: /x"))
    loaded = scenario.load_all([scenario.BUILTIN, file], probes=discover(), features=features.BY_ID)

    assert {"mine", "json-schema-nonce"} <= {each.id for each in loaded}
    assert "request-id-comes-back" not in {each.id for each in loaded}
