"""Keys and doors: what guards, what only looks so, and that nothing is sent where no key is configured."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from servecheck import features
from servecheck.model import Endpoint, Exchange, Finding, Fingerprint, Outcome, SkipCode, Status
from servecheck.probe import Params
from servecheck.probes import auth_admin_exposed, auth_required, discover
from servecheck.reference.asgi import Reply, Request
from servecheck.reference.killmatrix import trials_on
from servecheck.reference.server import ReferenceServer
from servecheck.scenario import builtin_dir, load
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.transport import Transport
from tests.handmade import answer, made, transcript
from tests.sessions import session_of

DENIED = {"error": "Unauthorized"}
ENDPOINT = Endpoint(name="it", base_url="http://127.0.0.1:1/v1", api_key_env="KEY")


def judged(*exchanges: Exchange) -> dict[str, Finding]:
    defaults = {
        "control": made("control", answer()),
        "wrong": made("wrong", DENIED, status=401),
        "missing": made("missing", DENIED, status=401),
        "models": made("models", DENIED, status=401),
        "door/server_info": made("door/server_info", DENIED, status=401),
    }
    given = {exchange.step: exchange for exchange in exchanges}
    findings = auth_required.judge(transcript(*{**defaults, **given}.values()), Params())
    return {finding.check: finding for finding in findings}


def short(findings: dict[str, Finding]) -> set[str]:
    return {check for check, finding in findings.items() if finding.outcome is not Outcome.HELD}


def test_a_server_that_guards_everything_holds_every_rule():
    assert short(judged()) == set()


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (made("wrong", answer()), {"wrong-key-is-refused"}),
        (made("missing", answer()), {"missing-key-is-refused"}),
        (made("models", {"data": []}), {"model-list-needs-the-key"}),
        (made("wrong", DENIED, status=500), {"refusal-of-a-key-is-401"}),
        (made("wrong", DENIED, status=403), set()),
        (made("door/invocations", answer()), {"side-doors-need-the-key"}),
        (made("door/tokenize", {"count": 3, "tokens": [1, 2, 3]}), {"side-doors-need-the-key"}),
        (made("door/tokenize", "<html>hello</html>"), set()),
        (made("door/tokenize", {"detail": "Not Found"}, status=404), set()),
        (made("door/server_info", {"version": "1", "tp_size": 1, "api_key": None}), {"side-doors-need-the-key"}),
        (
            made("door/server_info", {"version": "1", "internal_states": [{"admin_api_key": "********"}]}),
            {"side-doors-need-the-key", "settings-show-no-keys"},
        ),
    ],
)
def test_each_open_door_is_named(exchange, expected):
    assert short(judged(exchange)) == expected


def test_a_control_that_is_denied_says_nothing_about_other_keys():
    findings = judged(made("control", DENIED, status=401))
    assert {finding.outcome for finding in findings.values()} == {Outcome.UNDETERMINED}


@pytest.mark.parametrize(
    ("endpoint", "applies"),
    [
        (ENDPOINT, True),
        (replace(ENDPOINT, api_key_env=""), False),
        (replace(ENDPOINT, api_key_env="", header_envs=(("X-API-Key", "K"),)), True),
        (replace(ENDPOINT, api_key_env="", headers=(("X-Team", "a"),)), False),
    ],
)
def test_the_row_applies_where_a_key_is_configured(endpoint, applies):
    assert (auth_required.PROBE.applies(endpoint, Fingerprint(fields={})) == "") is applies


def test_a_row_that_does_not_apply_is_skipped_with_the_reason_and_sends_nothing():
    asked: list[str] = []

    class Counting(ReferenceServer):
        async def reply(self, request: Request) -> Reply:
            asked.append(request.path)
            return await super().reply(request)

    scenario = load(builtin_dir() / "auth" / "key-required.yaml", probes=discover(), features=features.BY_ID)
    (trial,) = trials_on(Counting(), discover(), [scenario])
    assert (trial.status, trial.skip_code) == (Status.SKIPPED, SkipCode.NOT_APPLICABLE)
    assert trial.reason == "no key is configured for this endpoint"
    assert "/tokenize" not in asked
    (trial,) = trials_on(Counting(api_key="a-key-that-guards"), discover(), [scenario])
    assert trial.status is Status.SUPPORTED
    assert "/tokenize" in asked


ROUTES = {
    "/v1/chat/completions": False,
    "/v1/responses/{response_id}/cancel": False,
    "/is_sleeping": False,
    "/is_paused": False,
    "/load": False,
    "/v1/loads": False,
    "/server_info": False,
    "/metrics": False,
    "/sleep": True,
    "/wake_up": True,
    "/wakeup": True,
    "/reset_prefix_cache": True,
    "/flush_cache": True,
    "/update_weights_from_disk": True,
    "/update_weight_version": True,
    "/release_memory_occupation": True,
    "/pause_generation": True,
    "/abort_request": True,
    "/v1/load_lora_adapter": True,
    "/fault_tolerance/apply": True,
    "/hicache/storage-backend": True,
    "/collective_rpc": True,
    "/scale_elastic_ep": True,
    "/reload_kernel": True,
    "/load_model": True,
    "/shutdown": True,
}


@pytest.mark.parametrize("path", ROUTES)
def test_a_route_that_manages_the_server_is_known_by_its_name(path):
    assert auth_admin_exposed.is_dangerous(path) is ROUTES[path]


@pytest.mark.parametrize(
    ("exchange", "outcome"),
    [
        (made("openapi", {"paths": {"/v1/models": {}}}), Outcome.HELD),
        (made("openapi", {"paths": {"/sleep": {}}}), Outcome.VIOLATED),
        (made("openapi", DENIED, status=401), Outcome.HELD),
        (made("openapi", {"detail": "Not Found"}, status=404), Outcome.UNDETERMINED),
        (made("openapi", "<html>"), Outcome.UNDETERMINED),
        (made("openapi", {"paths": []}), Outcome.UNDETERMINED),
    ],
)
def test_a_list_is_judged_and_no_list_proves_nothing(exchange, outcome):
    (finding,) = auth_admin_exposed.judge(transcript(exchange), Params())
    assert finding.outcome is outcome


# --------------------------------------------------------------------------- without the key


def sent(**call: object) -> Exchange:
    """Send once without the key; the server refuses whatever has none."""

    async def go() -> Exchange:
        secrets = {"KEY": "the-right-key", "TEAM": "a-team"}
        endpoint = replace(ENDPOINT, header_envs=(("X-Team", "TEAM"), ("x-api-key", "KEY")))
        app = MemoryTransport(ReferenceServer(api_key="the-right-key"))
        async with Transport(endpoint, secrets=secrets, key_env="KEY", app=app) as transport:
            session = session_of(endpoint, transport)
            return await session.without_key("step", "GET", "/models", **call)  # type: ignore[arg-type]

    return asyncio.run(go())


def test_no_header_that_carries_the_key_is_sent_and_the_others_are():
    exchange = sent()
    names = {name.lower() for name, _ in exchange.request_headers}
    assert {"authorization", "x-api-key"}.isdisjoint(names)
    assert "x-team" in names
    assert exchange.status == 401


def test_a_wrong_key_is_sent_as_it_is_and_stands_in_the_evidence():
    exchange = sent(wrong="no-key-of-yours")
    assert ("authorization", "Bearer no-key-of-yours") in exchange.request_headers
    assert exchange.status == 401


def test_the_server_s_root_can_be_asked_too():
    assert sent(server=True).url == "http://127.0.0.1:1/models"
