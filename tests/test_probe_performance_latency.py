"""Latency at small loads: its figures are those of the clock, and what is missing is not guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from servecheck.model import How, Observed
from servecheck.probes.performance_latency import PROBE, PerformanceLatencyParams
from servecheck.reference.asgi import Reply, Request, json_reply
from servecheck.reference.server import ReferenceServer
from tests import made
from tests.trying import trials_of

PARAMS = PerformanceLatencyParams()


def observed(server: ReferenceServer) -> Observed:
    (trial,) = trials_of("performance_latency", server)
    (found,) = trial.observed
    return found


def test_the_figures_are_those_of_the_servers_own_pace():
    found = observed(ReferenceServer(decode_seconds=0.1, prefill_seconds=0.002))
    figures = found.measured
    # 55 tokens of prompt take 0.11 s and the first token 0.1 s; a round of 32 tokens takes 3.3 s.
    assert 200 <= float(figures["ttft_at_1_ms"] or 0) <= 320
    assert 97 <= float(figures["between_tokens_at_1_ms"] or 0) <= 103
    assert 8.5 <= float(figures["tokens_per_s_at_1"] or 0) <= 10
    assert 15 <= float(figures["tokens_per_s_at_16"] or 0) / float(figures["tokens_per_s_at_1"] or 1) <= 17
    for name in ("ttft_at_1", "between_tokens_at_16"):
        middle = float(figures[f"{name}_ms"] or 0)
        assert float(figures[f"{name}_low_ms"] or 0) <= middle <= float(figures[f"{name}_high_ms"] or 0)
    assert found.why.endswith("medians with 95 % intervals; no verdict")


def test_requests_that_wait_for_a_place_show_in_the_first_token_and_not_between_tokens():
    figures = observed(ReferenceServer(slots=4)).measured
    assert float(figures["ttft_at_16_ms"] or 0) > 5 * float(figures["ttft_at_4_ms"] or 0)
    assert abs(float(figures["between_tokens_at_16_ms"] or 0) - float(figures["between_tokens_at_4_ms"] or 0)) < 1


def test_a_level_with_a_request_that_failed_is_left_out_and_named():
    class Small(ReferenceServer):
        """Refuses what is too much, for good."""

        seen = 0

        async def reply_chat(self, request: Request) -> Reply:
            self.seen += 1
            if self.seen > 1 + 1 + 6 + 12 + 8:  # the canary, the warm-up, two levels and half of a round
                return json_reply({"error": {"message": "too many", "type": "x"}}, 400)
            return await super().reply_chat(request)

    found = observed(Small())
    assert "tokens_per_s_at_16" not in found.measured
    assert "tokens_per_s_at_4" in found.measured
    assert found.why.endswith("not every request was answered at 16 at once")


def test_nothing_answered_is_unknown_with_the_reason():
    (found,) = PROBE.judge(made.transcript(made.refusal("warm-up", "no chat here")), PARAMS)
    assert isinstance(found, Observed)
    assert (found.value, found.how) == ("unknown", How.UNKNOWN)
    assert "no chat here" in found.why


def test_a_stream_without_usage_cannot_be_counted():
    class Silent(ReferenceServer):
        """Never sends usage."""

        def stream_options_of(self, body: Any) -> Any:
            return replace(super().stream_options_of(body), include_usage=False)

    found = observed(Silent())
    assert (found.value, found.why) == ("unknown", "no answer was streamed and counted")
