"""What stands between a client and an engine is recognised and said, in the row that it spoils, with what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from servecheck import compare, features, root_causes, verdict
from servecheck import plan as plans
from servecheck.model import Cell, Endpoint, Exchange, FaultKind, Fingerprint, Json, Status, Trial
from servecheck.probes import discover
from servecheck.read import gateway
from servecheck.reference import virtual
from servecheck.reference.asgi import Cut, Reply, Request, json_reply
from servecheck.reference.gateway import Gateway
from servecheck.reference.server import ReferenceServer
from servecheck.runner import Runner
from servecheck.store import CaseEnd
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.transport import Transport
from tests.made import exchange
from tests.trying import builtin


class Old(ReferenceServer):
    """A replica of the version before."""

    fingerprint = "vllm-0.31.0-tp8-1c9fe1a0"


class New(ReferenceServer):
    """A replica of the version that is being rolled out."""

    fingerprint = "vllm-0.32.0-tp8-3689bfa3"


class Failing(ReferenceServer):
    """A replica whose chat route fails."""

    async def reply_chat(self, _: Request) -> Reply:
        return json_reply({"error": {"message": "EngineCore died", "type": "InternalServerError"}}, 500)


class Cutting(ReferenceServer):
    """A replica that breaks every connection."""

    async def reply_chat(self, _: Request) -> Reply:
        raise Cut


class Kept:
    """A keeper of the fingerprint only."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def write(self, kind: str, **fields: Json) -> None:
        pass

    def exchange(self, exchange: Exchange, *, endpoint: str, case: str | None) -> None:
        self.exchanges.append(exchange)

    def case(self, end: CaseEnd) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a run through a gateway says."""

    cells: dict[str, Cell]
    fingerprint: Fingerprint
    trials: tuple[Trial, ...]
    exchanges: tuple[Exchange, ...]

    @property
    def causes(self) -> dict[str, str]:
        hits = root_causes.explain(tuple(self.cells.values()), {"it": self.fingerprint})
        return {row: hit.cause.id for hit in hits for row in hit.rows}


def through(app: Gateway, *rows: str, **more: object) -> Seen:
    probes = discover()
    endpoint = replace(
        Endpoint(name="it", base_url="http://127.0.0.1:1/v1", api_key_env="", model=app.model),
        **more,  # type: ignore[arg-type]
    )
    plan = plans.Plan(
        endpoints=(endpoint,),
        scenarios=tuple(each for each in builtin() if each.feature in rows),
        skips=(),
        settings=plans.Settings(trials=1),
        estimate=plans.Estimate(requests=0, prompt_tokens=0, output_tokens=0),
    )
    kept = Kept()
    runner = Runner(plan, probes, lambda each: Transport(each, app=MemoryTransport(app)), kept)
    virtual.run(runner.run(), limit=86_400.0)
    cells = {
        row: verdict.cell(features.get(row), "it", [each for each in runner.trials if each.case.feature == row])
        for row in rows
    }
    return Seen(
        cells=cells, fingerprint=runner.lanes[0].fingerprint, trials=runner.trials, exchanges=tuple(kept.exchanges)
    )


def two(first: type[ReferenceServer] = New, second: type[ReferenceServer] = New) -> list[ReferenceServer]:
    return [first(jitter_seed=1), second(jitter_seed=2)]


# --------------------------------------------------------------------------- which gateway


@pytest.mark.parametrize(
    ("dialect", "named"),
    [
        ("llm-d", "inference-gateway"),
        ("litellm", "litellm"),
        ("ray-serve", "ray-serve"),
        ("nginx", "nginx"),
        ("envoy", "envoy"),
    ],
)
def test_a_gateway_is_recognised_and_the_engine_behind_it_too(dialect: str, named: str) -> None:
    seen = through(Gateway(two(), dialect=dialect), "health.ready")
    assert seen.fingerprint.value("gateway") == named
    assert seen.fingerprint.value("engine") == "vllm"
    assert seen.cells["health.ready"].status is Status.SUPPORTED


def test_a_plain_proxy_is_not_taken_for_the_engine() -> None:
    seen = through(Gateway([ReferenceServer()], dialect="envoy"), "health.ready")
    assert seen.fingerprint.value("gateway") == "envoy"
    assert seen.fingerprint.value("engine") is None


def test_a_server_without_a_gateway_has_none() -> None:
    seen = through(Gateway([ReferenceServer()], dialect="ray-serve"), "health.ready")
    bare = through(ReferenceServer(), "health.ready")  # type: ignore[arg-type]
    assert seen.fingerprint.value("gateway") == "ray-serve"
    assert bare.fingerprint.value("gateway") is None


# --------------------------------------------------------------------------- replicas


def test_unlike_replicas_are_told_as_a_share_of_the_replies() -> None:
    seen = through(Gateway(two(Old, New)), "identity.replicas")
    cell = seen.cells["identity.replicas"]
    assert cell.status is Status.BROKEN
    assert "2 fingerprints: “vllm-0.31.0-tp8-1c9fe1a0” 10 of 20, “vllm-0.32.0-tp8-3689bfa3” 10 of 20" in cell.reason
    assert "answered by “replica-1” 10 of 20, “replica-2” 10 of 20" in cell.reason
    assert seen.causes == {"identity.replicas": "replicas-differ"}


def test_replicas_that_look_the_same_are_named_and_are_no_fault() -> None:
    seen = through(Gateway(two()), "identity.replicas")
    cell = seen.cells["identity.replicas"]
    assert cell.status is Status.SUPPORTED
    assert "answered by “replica-1” 10 of 20, “replica-2” 10 of 20" in cell.findings[0].why
    assert seen.causes == {}


def test_a_client_that_stays_with_one_replica_sees_one_version() -> None:
    app = Gateway(two(Old, New), affinity=True)
    seen = through(app, "identity.replicas", headers=(("x-session-token", "1"),))
    cell = seen.cells["identity.replicas"]
    assert cell.status is Status.SUPPORTED
    assert "“vllm-0.32.0-tp8-3689bfa3” 20 of 20" in cell.findings[0].why
    assert seen.fingerprint.value("session_affinity") == "x-session-token"


def test_a_prefix_that_each_replica_caches_for_itself_is_told_as_a_share() -> None:
    seen = through(Gateway(two()), "prefix_cache.reuse")
    cell = seen.cells["prefix_cache.reuse"]
    assert cell.status is Status.DEGRADED
    assert "reused at 3 of 4 tries" in cell.reason
    assert seen.causes == {"prefix_cache.reuse": "replicas-without-prefix-routing"}


def test_a_client_that_stays_with_one_replica_finds_its_prefix_again() -> None:
    seen = through(Gateway(two(), affinity=True), "prefix_cache.reuse", headers=(("x-session-token", "0"),))
    assert seen.cells["prefix_cache.reuse"].status is Status.SUPPORTED


# --------------------------------------------------------------------------- buffering


def test_a_gateway_that_buffers_is_told_from_a_server_that_does_not_stream() -> None:
    seen = through(Gateway(two(), dialect="nginx", buffers=True), "streaming.incremental")
    cell = seen.cells["streaming.incremental"]
    assert cell.status is Status.BROKEN
    assert "all events come at once at the end, as behind a proxy that gathers the reply" in cell.reason
    assert seen.causes == {"streaming.incremental": "gateway-buffers"}
    remedy = next(cause.remedy for cause in root_causes.ROOT_CAUSES if cause.id == "gateway-buffers")
    assert "proxy_buffering off" in remedy
    assert "X-Accel-Buffering: no" in remedy


def test_a_gateway_that_passes_a_stream_on_is_no_fault() -> None:
    seen = through(Gateway(two(), dialect="nginx"), "streaming.incremental")
    assert seen.cells["streaming.incremental"].status is Status.SUPPORTED
    assert seen.causes == {}


# --------------------------------------------------------------------------- hidden metrics


@pytest.mark.parametrize("dialect", ["llm-d", "litellm", "ray-serve"])
def test_hidden_metrics_say_what_to_set(dialect: str) -> None:
    seen = through(Gateway(two(), dialect=dialect), "metrics.exposed")
    cell = seen.cells["metrics.exposed"]
    assert cell.status is Status.UNSUPPORTED
    assert "hides the engine's own (give the engine's address as metrics_url)" in cell.reason
    assert seen.causes == {"metrics.exposed": "metrics-behind-a-gateway"}
    remedy = next(cause.remedy for cause in root_causes.ROOT_CAUSES if cause.id == "metrics-behind-a-gateway")
    assert "metrics_url" in remedy


def test_a_gateway_that_passes_everything_on_hides_no_metrics() -> None:
    seen = through(Gateway([New()], dialect="nginx"), "metrics.exposed")
    assert seen.cells["metrics.exposed"].status is Status.SUPPORTED


# --------------------------------------------------------------------------- retries


@pytest.mark.parametrize(
    ("dialect", "said"), [("litellm", "x-litellm-attempted-retries: 1"), ("envoy", "x-envoy-attempt-count: 2")]
)
def test_retries_that_hide_a_fault_are_a_note_and_a_confounder(dialect: str, said: str) -> None:
    retrying = through(Gateway(two(New, Failing), dialect=dialect, retries=1), "chat.basic")
    cell = retrying.cells["chat.basic"]
    assert cell.status is Status.SUPPORTED
    (note,) = cell.notes
    assert note.startswith("a gateway tried again for ")
    assert f"({said}), so what failed behind it does not show" in note
    plain = through(Gateway([New()], dialect=dialect, retries=1), "chat.basic").cells["chat.basic"]
    assert plain.notes == ()
    unlike = compare.confounders(
        retrying.fingerprint,
        retrying.fingerprint,
        (replace(cell, endpoint="a"), replace(plain, endpoint="b")),
        left="a",
        right="b",
    )
    assert "rows in which a gateway tried again: 1 | 0" in unlike


def test_a_gateway_that_retries_in_silence_leaves_nothing_to_see() -> None:
    seen = through(Gateway(two(New, Cutting), dialect="nginx", retries=1), "chat.basic")
    assert seen.cells["chat.basic"].status is Status.SUPPORTED
    assert seen.cells["chat.basic"].notes == ()


def test_a_fault_that_no_replica_is_left_to_hide_shows() -> None:
    seen = through(Gateway(two(New, Failing), dialect="litellm"), "chat.basic")
    assert seen.cells["chat.basic"].status is not Status.SUPPORTED


SAID = {
    # name: (headers, status, body, further attempts)
    "none": ((("x-litellm-attempted-retries", "0"), ("x-litellm-attempted-fallbacks", "0")), 200, b"{}", 0),
    "a retry": ((("x-litellm-attempted-retries", "2"),), 200, b"{}", 2),
    "a fallback": ((("x-litellm-attempted-fallbacks", "1"),), 200, b"{}", 1),
    "the first attempt of Envoy's": ((("x-envoy-attempt-count", "1"),), 200, b"{}", 0),
    "Envoy's third": ((("x-envoy-attempt-count", "3"),), 200, b"{}", 2),
    "given up": ((), 500, b'{"error":{"message":"boom. LiteLLM Retried: 3 times, LiteLLM Max Retries: 3"}}', 3),
    "an answer that speaks of it": ((), 200, b'{"content":"LiteLLM Retried: 3 times"}', 0),
    "no number": ((("x-envoy-attempt-count", "many"),), 200, b"{}", 0),
    "a number beyond belief": ((("x-envoy-attempt-count", "9" * 400),), 200, b"{}", 0),
}


@pytest.mark.parametrize("name", SAID)
def test_further_attempts_are_read_from_headers(name: str) -> None:
    headers, status, body, wanted = SAID[name]
    made = replace(exchange("step", body, status=status), response_headers=headers)
    assert gateway.further_attempts(made)[0] == wanted


# --------------------------------------------------------------------------- drops


def test_a_dropped_request_gives_the_reason_that_the_gateway_gave() -> None:
    app = Gateway(two(), drops=1, reason="rejected-capacity")
    (trial,) = through(app, "chat.basic").trials
    assert trial.fault is not None
    assert trial.fault.kind is FaultKind.OVERLOADED
    assert "HTTP 429" in trial.reason
    assert "x-llm-d-request-dropped-reason: rejected-capacity" in trial.reason


def test_a_request_that_is_dropped_once_is_sent_again_and_judged() -> None:
    seen = through(Gateway(two(), drops=3), "chat.basic")
    assert seen.cells["chat.basic"].status is Status.SUPPORTED
    assert [each.status for each in seen.exchanges if each.method == "POST"].count(429) >= 1


def test_replicas_are_asked_in_turn() -> None:
    servers = two()
    through(Gateway(servers), "identity.replicas")
    one, other = (server.metrics.prompt_tokens for server in servers)
    assert one
    assert abs(one - other) <= one / 2
