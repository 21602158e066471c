"""The ladder's judge on transcripts made by hand: what it needs, what it leaves out, and what it says."""

from __future__ import annotations

import json
from typing import Any

from servecheck.model import Exchange, Outcome, Transcript
from servecheck.probes.compile_recompilation import PROBE, CompileRecompilationParams
from tests import made

_QUICK, _STAYS, _ANSWERED = "first-use-is-as-quick", "used-shape-stays-quick", "new-shape-is-answered"
PARAMS = CompileRecompilationParams()


def use(step: str, seconds: float, *, tokens: int = 40, cached: int | None = None) -> Exchange:
    """Return a streamed answer of one token whose last event came so many seconds after sending."""
    details = None if cached is None else {"cached_tokens": cached}
    usage = {
        "prompt_tokens": tokens,
        "completion_tokens": 1,
        "total_tokens": tokens + 1,
        "prompt_tokens_details": details,
    }
    events: list[Any] = [made.event({"role": "assistant", "content": ""}), made.event({"content": "a"}, "length")]
    events.append({**made.event(), "choices": [], "usage": usage})
    pieces = [(seconds, made.sse(events)), (seconds + 60, b": bye\n\n")]
    return made.exchange(step, request={"stream": True}, content_type="text/event-stream", pieces=pieces)


def counters(step: str, prompt: float, generated: float = 0.0, queued: float | None = None) -> Exchange:
    """Return a read of the engine's counters."""
    lines = [f"vllm:prompt_tokens_total {prompt}", f"vllm:generation_tokens_total {generated}"]
    if queued is not None:
        lines.append(f"vllm:request_queue_time_seconds_sum {queued}")
    return made.exchange(step, "\n".join(lines).encode() + b"\n", content_type="text/plain")


def shape(name: str, cold: float, *later: float, tokens: int = 96) -> list[Exchange]:
    """Return a first use, later ones, and the last of them as the second sweep."""
    *warm, again = later
    first = use(f"cold-{name}", cold, tokens=tokens)
    repeats = [use(f"warm-{name}-{number}", took, tokens=tokens) for number, took in enumerate(warm, 1)]
    return [first, *repeats, use(f"again-{name}", again, tokens=tokens)]


CONTROLS = [use(f"control-{number}", 0.1) for number in (1, 2, 3)]


def judged(*exchanges: Exchange) -> dict[str, Any]:
    return {found.check: found for found in made.only(PROBE.judge(made.transcript(*exchanges), PARAMS))}


def test_a_stall_is_told_with_the_usual_time_and_what_is_lost():
    found = judged(*CONTROLS, *shape("length-96", 8.0, 0.1, 0.12, 0.11, 0.1))
    assert found[_QUICK].outcome is Outcome.VIOLATED
    assert found[_QUICK].why == (
        "1 of 2 shapes stalled at their first use: 96 tokens 8.0 s (usually 0.11 s); 7.89 s lost (7.88 to 7.9); "
        "no counters were there to exclude other users"
    )
    assert found[_QUICK].evidence == ("cold-length-96", "warm-length-96-1")
    assert found[_QUICK].measured["warm_length_96_max_s"] == 0.12


def test_the_time_is_that_of_the_last_event_and_not_of_a_connection_held_open():
    assert judged(*CONTROLS, *shape("length-96", 8.0, 0.1, 0.1, 0.1, 0.1))[_QUICK].measured["cold_length_96_s"] == 8.0


def test_answers_from_the_prefix_cache_are_left_out_and_named():
    """A repeat that is quick because its prompt was known would make any first use look like a stall."""
    warm = [use(f"warm-length-96-{number}", 0.1, tokens=96, cached=80) for number in (1, 2, 3)]
    found = judged(*CONTROLS, use("cold-length-96", 2.0, tokens=96), *warm, use("again-length-96", 2.0, tokens=96))
    assert found[_QUICK].outcome is Outcome.UNDETERMINED
    assert "answers from the prefix cache, left out: 3" in found[_QUICK].why
    assert "not comparable: 96 tokens" in found[_QUICK].why


def test_a_cached_frame_that_all_chats_share_is_no_hit():
    """Two engines report the 24 tokens before a chat's text on every miss: more than half of a short prompt."""
    controls = [use(f"control-{number}", 0.1, tokens=40, cached=24 if number > 1 else 0) for number in (1, 2, 3)]
    steps = [*shape("length-96", 0.1, 0.1, 0.1), *shape("length-192", 0.1, 0.1, 0.1, tokens=192)]
    found = judged(counters("metrics-0", 40), *controls, *steps)
    assert found[_QUICK].outcome is Outcome.HELD
    assert "prefix cache" not in found[_QUICK].why


def test_a_wait_in_the_servers_own_queue_is_no_compilation():
    cold, *rest = shape("length-96", 8.0, 0.1, 0.1, 0.1, 0.1)
    found = judged(
        counters("metrics-0", 40, queued=0.0), *CONTROLS, counters("metrics-1", 160, 3, 0.0), cold,
        counters("metrics-2", 256, 4, 7.8), *rest,
    )  # fmt: skip
    assert found[_QUICK].outcome is Outcome.UNDETERMINED, "nothing stalled, and one shape alone may be new"
    assert "slow answers explained by the server's own queue: 1" in found[_QUICK].why


def test_others_tokens_explain_as_much_as_they_cost_and_no_more():
    cold, *rest = shape("length-96", 8.0, 0.1, 0.1, 0.1, 0.1)

    def with_others(tokens: int) -> Outcome:
        reads = (counters("metrics-0", 40), counters("metrics-1", 160, 3), counters("metrics-2", 256 + tokens, 4))
        outcome: Outcome = judged(reads[0], *CONTROLS, reads[1], cold, reads[2], *rest)[_QUICK].outcome
        return outcome

    assert with_others(0) is Outcome.VIOLATED
    assert with_others(500) is Outcome.VIOLATED
    assert with_others(8_000) is Outcome.UNDETERMINED


def test_counters_that_hear_of_our_own_tokens_late_are_no_other_user():
    cold, *rest = shape("length-96", 8.0, 0.1, 0.1, 0.1, 0.1)
    reads = (counters("metrics-0", 40), counters("metrics-1", 40, 0), counters("metrics-2", 256, 4))
    found = judged(reads[0], *CONTROLS, reads[1], cold, reads[2], *rest)
    assert found[_QUICK].outcome is Outcome.VIOLATED
    assert found[_QUICK].measured["other_users_tokens"] == 0


def test_counters_that_go_backwards_are_not_used():
    cold, *rest = shape("length-96", 8.0, 0.1, 0.1, 0.1, 0.1)
    reads = (counters("metrics-0", 40), counters("metrics-1", 90_000), counters("metrics-2", 50))
    found = judged(reads[0], *CONTROLS, reads[1], cold, reads[2], *rest)
    assert found[_QUICK].measured["other_users_tokens"] is None
    assert found[_QUICK].outcome is Outcome.VIOLATED


def test_the_first_json_answer_is_named_and_not_counted():
    steps = [*shape("length-96", 0.1, 0.1, 0.1, 0.1, 0.1), *shape("feature-json", 9.1, 0.1, 0.1, 0.1, 0.1, tokens=40)]
    found = judged(counters("metrics-0", 40), *CONTROLS, *steps)
    assert found[_QUICK].outcome is Outcome.HELD
    assert "the first JSON answer took 9.0 s more, a grammar's set-up or a shape, not counted" in found[_QUICK].why


def test_a_batch_takes_as_long_as_the_last_of_it_and_a_failed_one_is_left_out():
    def batch(step: str, *seconds: float) -> list[Exchange]:
        return [use(f"{step}/{number}", took) for number, took in enumerate(seconds, 1)]

    later = [*batch("warm-batch-2-1", 0.1, 0.1), *batch("warm-batch-2-2", 0.1, 0.1), *batch("again-batch-2", 0.1, 0.1)]
    found = judged(*CONTROLS, *batch("cold-batch-2", 0.1, 6.0), *later)
    assert "2 at once 6.0 s (usually 0.10 s)" in found[_QUICK].why
    failed = [use("cold-batch-2/1", 0.1), made.failure("cold-batch-2/2")]
    found = judged(counters("metrics-0", 10), *CONTROLS, *shape("length-96", 0.1, 0.1, 0.1, 0.1, 0.1), *failed)
    assert found[_ANSWERED].outcome is Outcome.VIOLATED
    assert found[_ANSWERED].why.startswith("2 at once: HTTP 500")


def test_a_refusal_by_name_is_named_and_no_fault():
    steps = [*shape("length-96", 0.1, 0.1, 0.1), *shape("length-192", 0.1, 0.1, 0.1, tokens=192)]
    refused = made.refusal("cold-feature-logprobs", "no logprobs here")
    found = judged(counters("metrics-0", 40), *CONTROLS, *steps, refused)
    assert found[_ANSWERED].outcome is Outcome.HELD
    assert "refused: first use of logprobs" in found[_QUICK].why


def test_a_server_that_answers_no_short_request_says_nothing_of_shapes():
    (found,) = made.only(PROBE.judge(made.transcript(made.failure("control-1")), PARAMS))
    assert (found.check, found.outcome) == (_QUICK, Outcome.VIOLATED)
    (nothing,) = made.only(PROBE.judge(Transcript(), PARAMS))
    assert nothing.outcome is Outcome.UNDETERMINED


def test_requests_as_sent_tell_the_ladder_apart_from_nothing_else():
    """Steps of other names are nobody's business here."""
    stranger = use("cold-elephants", 30.0)
    assert judged(*CONTROLS, *shape("length-96", 8.0, 0.1, 0.1, 0.1, 0.1), stranger)[_QUICK].measured["shapes"] == 2


def test_figures_are_plain_json():
    found = judged(*CONTROLS, *shape("length-96", 8.0, 0.1, 0.1, 0.1, 0.1))
    assert json.loads(json.dumps(dict(found[_QUICK].measured)))["stalled_shapes"] == 1
