"""The rows about a prefix cache besides reuse: conversations, answers on a hit, what is reported, and salts."""

from __future__ import annotations

import json

import pytest

from servecheck.model import Exchange, Finding, Outcome
from servecheck.probes import (
    prefix_cache_conversation,
    prefix_cache_correct,
    prefix_cache_isolation,
    prefix_cache_reported,
    prefix_cache_reuse,
)
from servecheck.reference.engine import Job, Prompt
from servecheck.reference.server import ReferenceServer
from tests import timed
from tests.trying import trials_of

V, R, N, U, H = Outcome.VIOLATED, Outcome.REFUSED, Outcome.NO_EFFECT, Outcome.UNDETERMINED, Outcome.HELD
TOKENS = 800


def usage(cached: int | None, tokens: int = TOKENS) -> dict[str, object]:
    details = None if cached is None else {"cached_tokens": cached}
    return {
        "prompt_tokens": tokens,
        "completion_tokens": 1,
        "total_tokens": tokens + 1,
        "prompt_tokens_details": details,
    }


def plain(step: str, cached: int | None, tokens: int = TOKENS, took: float = 1.0) -> Exchange:
    return timed.whole(step, "a", finish="length", usage=usage(cached, tokens), ended_at=took)


def streamed(step: str, cached: int | None, took: float = 1.0) -> Exchange:
    events = [timed.delta("a", finish="length"), {"choices": [], "usage": usage(cached)}]
    return timed.stream(step, events, times=[took, took])


def counter(step: str, hits: int, queries: int) -> Exchange:
    text = f"vllm:prefix_cache_hits_total {hits}\nvllm:prefix_cache_queries_total {queries}\n"
    return timed.exchange(f"metrics-{step}", method="GET", body=text.encode())


# --------------------------------------------------------------------------- reuse behind replicas


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        pytest.param((600, 600, 600), {"same-prefix-is-reused": H, "every-try-is-reused": V}, id="three of four"),
        pytest.param((0, 0, 600), {"same-prefix-is-reused": H, "every-try-is-reused": V}, id="one of four"),
        pytest.param((0, 0, 0), {"same-prefix-is-reused": N}, id="none of four"),
    ],
)
def test_replicas_are_told_as_a_share_of_tries(again, expected):
    sides = zip(("cold", "warm", "other", "again-1", "again-2", "again-3"), (0, 0, 0, *again), strict=True)
    found = list(
        prefix_cache_reuse.PROBE.judge(
            timed.transcript(*(plain(side, cached) for side, cached in sides)),
            prefix_cache_reuse.PrefixCacheReuseParams(),
        )
    )
    said = timed.outcomes(found)
    assert said.pop("other-prefix-is-not-reused") is H
    assert said == expected
    if H in expected.values():
        hits = sum(count > 0 for count in again)
        assert any(isinstance(one, Finding) and f"{hits} of 4 tries" in one.why for one in found)


# --------------------------------------------------------------------------- conversations


EACH, AGENT, FIRST = "each-turn-reuses-the-last", "reuse-holds-with-tools-and-schema", "first-turn-is-not-cached"
GROWN = (400, 440, 460, 480)


def turns(kind: str, *cached: int | None) -> list[Exchange]:
    pairs = zip(cached, GROWN, strict=True)
    return [plain(f"{kind}-{turn}", count, tokens) for turn, (count, tokens) in enumerate(pairs, start=1)]


def conversation(*exchanges: Exchange, **known: str) -> dict[str, Outcome]:
    params = prefix_cache_conversation.PrefixCacheConversationParams()
    return timed.outcomes(prefix_cache_conversation.PROBE.judge(timed.transcript(*exchanges, known=known), params))


@pytest.mark.parametrize(
    ("cached", "expected"),
    [
        pytest.param((0, 384, 432, 448), {EACH: H, AGENT: H, FIRST: H}, id="all"),
        pytest.param((24, 200, 220, 230), {EACH: H, AGENT: H, FIRST: H}, id="half of the last turn is enough"),
        pytest.param((300, 384, 432, 448), {EACH: H, AGENT: H, FIRST: V}, id="the first claims a hit"),
        pytest.param((None, 384, 432, 448), {EACH: H, AGENT: H, FIRST: H}, id="left out on a miss"),
        pytest.param((None, None, None, None), {EACH: U}, id="nothing tells"),
    ],
)
def test_each_turn_is_held_against_the_turn_before(cached, expected):
    assert conversation(*turns("agent", *cached)) == expected


@pytest.mark.parametrize(
    ("agent", "control", "expected"),
    [
        pytest.param((0, 0, 0, 0), (0, 384, 432, 448), {EACH: H, AGENT: V, FIRST: H}, id="tools are in the way"),
        pytest.param((0, 384, 0, 0), (0, 384, 432, 448), {EACH: H, AGENT: V, FIRST: H}, id="the schema is"),
        pytest.param((0, 0, 0, 0), (0, 0, 0, 0), {EACH: N, FIRST: H}, id="nothing is reused"),
        pytest.param((0, 0, 0, 0), (0, 384, 432, 0), {EACH: V, FIRST: H}, id="one turn of the control is not"),
    ],
)
def test_a_conversation_without_tools_tells_what_is_in_the_way(agent, control, expected):
    assert conversation(*turns("agent", *agent), *turns("plain", *control)) == expected


def test_a_cache_that_is_off_or_too_coarse_is_not_called_broken():
    none = [*turns("agent", 0, 0, 0, 0), *turns("plain", 0, 0, 0, 0)]
    assert conversation(*none, prefix_caching="False")[EACH] is R
    assert conversation(*none, block_size="1024")[EACH] is U


# --------------------------------------------------------------------------- answers on a hit


SAME, SANE = "hit-says-what-a-miss-says", "hit-is-no-garbage"
Row = tuple[str, float, str, float]


def walk(step: str, rows: list[Row] | None, cached: int = 0, text: str | None = None) -> Exchange:
    """Return an answer with logprobs; each row is the token with its logprob, and the best other one with its."""
    content = [
        {
            "token": token,
            "logprob": value,
            "bytes": None,
            "top_logprobs": [{"token": token, "logprob": value}, {"token": other, "logprob": lesser}],
        }
        for token, value, other, lesser in rows or ()
    ]
    said = text if text is not None else "".join(row[0] for row in rows or ())
    message = {"role": "assistant", "content": said}
    logprobs = {"content": content} if rows is not None else None
    choice = {"index": 0, "message": message, "finish_reason": "length", "logprobs": logprobs}
    return timed.sent_json(step, {"choices": [choice], "usage": usage(cached)})


BASE: list[Row] = [("The", -0.5, " A", -1.5), (" sea", -0.4, " sky", -1.4), (" is", -0.7, " was", -0.8)]


def correct(hit: list[Row] | None, miss: list[Row] | None = BASE, cached: int = 700, text: str | None = None):
    sides = {"cold-1": (miss, 0, None), "warm-1": (hit, cached, text), "branch": (miss, cached, None)}
    sides |= {"salted": (miss, 0, None), "cold-2": (miss, 0, None), "warm-2": (miss, cached, None)}
    exchanges = [walk(step, rows, count, said) for step, (rows, count, said) in sides.items()]
    params = prefix_cache_correct.PrefixCacheCorrectParams()
    return timed.outcomes(prefix_cache_correct.PROBE.judge(timed.transcript(*exchanges), params))


@pytest.mark.parametrize(
    ("hit", "expected"),
    [
        pytest.param(BASE, H, id="the same"),
        pytest.param([("The", -0.7, " A", -1.2), *BASE[1:]], H, id="a fifth of a nat off"),
        pytest.param([("The", -0.8, " A", -1.2), *BASE[1:]], V, id="three tenths off"),
        pytest.param([*BASE[:2], (" was", -0.7, " is", -0.8)], H, id="a near-tie falls the other way"),
        pytest.param([BASE[0], (" sky", -0.4, " sea", -1.4)], V, id="a clear choice does"),
        pytest.param([(" A", -0.5, "The", -0.7), *BASE[1:]], V, id="another first token"),
        pytest.param([(" Z", -0.1, " Y", -3.0)], V, id="the first token is not listed any more"),
        pytest.param([("The", -0.5, " Q", -3.0), *BASE[1:]], V, id="its alternative is far less likely"),
    ],
)
def test_a_hit_may_differ_by_rounding_and_no_more(hit, expected):
    assert correct(hit)[SAME] is expected


def test_without_a_sign_of_a_hit_nothing_is_claimed():
    assert correct(BASE, cached=0)[SAME] is U


def test_without_logprobs_equal_texts_count_and_different_ones_do_not():
    assert correct(None, None)[SAME] is H
    assert correct(None, None, text="Something else.")[SAME] is U


def test_garbage_on_a_hit_only_is_called_so():
    bangs: list[Row] = [("!", -0.1, "?", -3.0)] * 12
    assert correct(bangs) == {SAME: V, SANE: V}
    assert correct(bangs, bangs)[SANE] is H


def test_a_server_that_bypasses_its_cache_for_logprobs_is_undetermined():
    class Bypasses(ReferenceServer):
        def lookup_cached(self, job: Job, prompt: Prompt) -> int:
            return 0 if job.logprobs is not None else super().lookup_cached(job, prompt)

    (trial,) = trials_of("prefix_cache_correct", Bypasses())
    assert {one.check: one.outcome for one in trial.findings}[SAME] is U


# --------------------------------------------------------------------------- what is reported


SAYS, TRUE, STREAMED = "usage-has-cached-tokens", "cached-tokens-are-true", "streamed-usage-has-them-too"


def rounds(
    cold: tuple[int | None, ...] = (0, 0, 0),
    warm: tuple[int | None, ...] = (768, 768, 768),
    times: tuple[float, float] = (1.0, 0.1),
    counted: int | None = None,
    short: float = 0.05,
) -> list[Finding]:
    exchanges = [plain(f"short-{place}", 0, 10, short) for place in (1, 2)]
    for turn in range(3):
        make = streamed if turn else plain
        exchanges.append(make(f"cold-{turn}", cold[turn], took=times[0]))
        exchanges.append(make(f"warm-{turn}", warm[turn], took=times[1]))
    if counted is not None:
        exchanges += [counter("0", 0, 0), counter("end", counted, 6 * TOKENS)]
    params = prefix_cache_reported.PrefixCacheReportedParams()
    found = list(prefix_cache_reported.PROBE.judge(timed.transcript(*exchanges), params))
    assert all(isinstance(one, Finding) for one in found)
    return [one for one in found if isinstance(one, Finding)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {SAYS: H, TRUE: H, STREAMED: H}, id="told, and fast"),
        pytest.param({"counted": 3 * 768}, {SAYS: H, TRUE: H, STREAMED: H}, id="told and counted"),
        pytest.param({"counted": 0}, {SAYS: H, TRUE: V, STREAMED: H}, id="told, and the counter stands still"),
        pytest.param({"warm": (0, 0, 0), "counted": 2304}, {SAYS: H, TRUE: V, STREAMED: H}, id="zero, but counted"),
        pytest.param({"warm": (0, 0, 0)}, {SAYS: H, TRUE: V, STREAMED: H}, id="zero, but fast"),
        pytest.param({"warm": (0, 0, 0), "times": (1.0, 0.9)}, {SAYS: H, TRUE: H, STREAMED: H}, id="a true zero"),
        pytest.param({"times": (1.0, 1.0)}, {SAYS: H, TRUE: V, STREAMED: H}, id="told, and computed again"),
        pytest.param({"times": (0.06, 0.06)}, {SAYS: H, TRUE: H, STREAMED: H}, id="too fast for time to tell"),
        pytest.param({"times": (1.0, 0.79)}, {SAYS: H, TRUE: H, STREAMED: H}, id="a little faster is no lie"),
        pytest.param({"cold": (0, 0, 768)}, {SAYS: H, TRUE: V, STREAMED: H}, id="a miss that is told as a hit"),
        pytest.param({"warm": (801, 768, 768)}, {SAYS: H, TRUE: V, STREAMED: H}, id="more than there is"),
        pytest.param({"warm": (768, None, 768)}, {SAYS: H, TRUE: H, STREAMED: V}, id="a stream is silent"),
    ],
)
def test_what_usage_says_is_held_against_counters_and_time(given, expected):
    assert timed.outcomes(rounds(**given)) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({"counted": 2304}, "works but is not reported: usage has no cached tokens, but the", id="counted"),
        pytest.param({}, "works but is not reported: usage has no cached tokens, but the same prompt", id="fast"),
        pytest.param({"times": (1.0, 1.0)}, "not reported: usage has no cached tokens, and nothing else", id="nothing"),
    ],
)
def test_a_cache_that_works_and_is_not_reported_is_told_from_one_of_which_nothing_shows(given, words):
    (finding,) = rounds(cold=(None,) * 3, warm=(None,) * 3, **given)
    assert (finding.check, finding.outcome) == (SAYS, R)
    assert finding.why.startswith(words)


# --------------------------------------------------------------------------- salts


APART, SHARES = "other-salt-does-not-hit", "same-salt-hits"


def salted(*cached: int | None, **known: str) -> dict[str, Outcome]:
    names = ("first", "same-salt", "other-salt", "no-salt", "no-salt-again")
    exchanges = [plain(name, count) for name, count in zip(names, cached, strict=False)]
    params = prefix_cache_isolation.PrefixCacheIsolationParams()
    return timed.outcomes(prefix_cache_isolation.PROBE.judge(timed.transcript(*exchanges, known=known), params))


@pytest.mark.parametrize(
    ("cached", "expected"),
    [
        pytest.param((0, 768, 0, 0), {APART: H, SHARES: H}, id="apart"),
        pytest.param((24, 768, 24, 24), {APART: H, SHARES: H}, id="the chat header is on every miss"),
        pytest.param((0, 768, 768, 768), {APART: N}, id="ignored"),
        pytest.param((0, 768, 0, 768), {APART: V}, id="no salt reads what was salted"),
        pytest.param((0, 0, 768, 0, 0), {APART: V}, id="only the other salt hits"),
        pytest.param((0, 0, 0, 0, 768), {APART: H, SHARES: V}, id="a salt switches the cache off"),
        pytest.param((0, 0, 0, 0, 0), {APART: U}, id="nothing is cached"),
        pytest.param((768, 768, 768, 768), {APART: U}, id="everything is told as a hit"),
        pytest.param((None, None, None, None), {APART: U}, id="nothing tells"),
    ],
)
def test_who_hits_tells_whether_salts_keep_apart(cached, expected):
    assert salted(*cached) == expected


def test_a_refused_salt_counts_only_where_the_control_is_answered():
    refused = timed.exchange("first", status=400, body=json.dumps({"error": {"message": "cache_salt"}}).encode())
    params = prefix_cache_isolation.PrefixCacheIsolationParams()
    judge = prefix_cache_isolation.PROBE.judge
    assert timed.outcomes(judge(timed.transcript(refused, plain("control", 0)), params)) == {APART: R}
    sick = timed.exchange("control", status=400, body=b"{}")
    assert timed.outcomes(judge(timed.transcript(refused, sick), params)) == {APART: U}
