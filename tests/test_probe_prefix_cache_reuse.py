"""Reuse of a prompt's beginning: three kinds of evidence, which one counts, and when none does."""

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probes.prefix_cache_reuse import PROBE
from tests import made

V, R, N, U, H = (
    Outcome.VIOLATED,
    Outcome.REFUSED,
    Outcome.NO_EFFECT,
    Outcome.UNDETERMINED,
    Outcome.HELD,
)
REUSED, CONTROL = "same-prefix-is-reused", "other-prefix-is-not-reused"
PARAMS = PROBE.params()
TOKENS = 400
SIDES = ("cold", "warm", "other")
ABSENT = object()


def answered(step: str, cached: object = None, tokens: int | None = TOKENS) -> Exchange:
    total = None if tokens is None else tokens + 1
    usage: dict[str, object] = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": total}
    if cached is not ABSENT:
        usage["prompt_tokens_details"] = None if cached is None else {"cached_tokens": cached}
    return made.exchange(step, made.whole("a", "length", usage=usage), request={})


def usages(cold: object, warm: object, other: object, tokens: int | None = TOKENS) -> list[Exchange]:
    return [answered(step, cached, tokens) for step, cached in zip(SIDES, (cold, warm, other), strict=True)]


def counter(step: str, hits: int, queries: int, name: str = "vllm:prefix_cache") -> Exchange:
    text = f"# TYPE {name}_hits_total counter\n{name}_hits_total {hits}\n{name}_queries_total {queries}\n"
    return made.exchange(step, text.encode(), content_type="text/plain", path="/metrics")


def counters(*hits: int, step: int = TOKENS, start: int = 1000) -> list[Exchange]:
    """Return four reads: ``hits`` are the totals at each."""
    names = ("metrics-0", *(f"metrics-{side}" for side in SIDES))
    return [counter(name, hit, start + step * place) for place, (name, hit) in enumerate(zip(names, hits, strict=True))]


Times = tuple[float, float, float]


def timed(cold: Times, warm: Times, other: Times) -> list[Exchange]:
    """Return three rounds of streams; each side is three times to the first token."""
    made_up = []
    for turn in range(3):
        for side, times in zip(SIDES, (cold, warm, other), strict=True):
            role, text = made.sse([made.ROLE], done=b""), made.sse([made.event({"content": "a"}, "length")])
            pieces = [(0.001, role), (times[turn], text)]
            made_up.append(made.stream(f"timed-{side}-{turn}", b"", pieces=pieces))
    return made_up


def judged(*exchanges: Exchange, **fingerprint: str) -> dict[str, Outcome]:
    return made.said(PROBE.judge(made.transcript(*exchanges, **fingerprint), PARAMS))


@pytest.mark.parametrize(
    ("cached", "expected"),
    [
        pytest.param((0, 384, 0), (H, H), id="plain"),
        pytest.param((0, 200, 0), (H, H), id="half is enough"),
        pytest.param((0, 199, 0), (N, H), id="less than half is not"),
        pytest.param((0, 0, 0), (N, H), id="zero is zero"),
        pytest.param((24, 390, 25), (H, H), id="the chat header is cached on a miss too"),
        pytest.param((64, 384, 64), (H, H), id="up to 64 tokens are a miss"),
        pytest.param((0, 384, 65), (H, V), id="65 are not"),
        pytest.param((384, 384, 0), (H, V), id="cold claims a hit"),
        pytest.param((0, 401, 0), (V, H), id="more than there is"),
        pytest.param((None, 384, None), (H, H), id="null on a miss"),
        pytest.param((ABSENT, 384, ABSENT), (H, H), id="absent on a miss"),
    ],
)
def test_usage_is_read_first(cached, expected):
    assert judged(*usages(*cached)) == dict(zip((REUSED, CONTROL), expected, strict=True))


@pytest.mark.parametrize(
    ("hits", "expected"),
    [
        pytest.param((0, 0, 384, 384), (H, H), id="moved by the second"),
        pytest.param((7000, 7024, 7414, 7438), (H, H), id="moved before, and by the header"),
        pytest.param((0, 0, 0, 0), (N, H), id="never moved"),
        pytest.param((0, 0, 384, 768), (H, V), id="moved by the control too"),
    ],
)
def test_counters_tell_where_usage_is_null(hits, expected):
    assert judged(*usages(None, None, None), *counters(*hits)) == dict(zip((REUSED, CONTROL), expected, strict=True))


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param([], id="no metrics asked for"),
        pytest.param([made.refusal(f"metrics-{n}", status=404) for n in ("0", *SIDES)], id="no such route"),
        pytest.param([made.exchange(f"metrics-{n}", b"<html>{", path="/metrics") for n in ("0", *SIDES)], id="a page"),
        pytest.param(counters(0, 0, 384, 384)[:3], id="one read is missing"),
        pytest.param(counters(0, 0, 384, 12), id="the counter was reset"),
        pytest.param(counters(0, 0, 384, 384, step=1400), id="others' prompts moved it too"),
    ],
)
def test_counters_that_cannot_be_used_are_no_evidence(reads):
    assert judged(*usages(None, None, None), *reads) == {REUSED: U}


def test_counters_that_hold_our_prompts_and_no_others_are_used_within_a_twentieth():
    assert judged(*usages(None, None, None), *counters(0, 0, 384, 384, step=TOKENS + 20))[REUSED] is H
    assert judged(*usages(None, None, None), *counters(0, 0, 384, 384, step=TOKENS + 21))[REUSED] is U


def test_a_usage_of_zero_is_overruled_by_counters_and_a_usage_of_hits_is_not():
    assert judged(*usages(0, 0, 0), *counters(0, 0, 384, 384)) == {REUSED: H, CONTROL: H}
    finding, _ = made.only(PROBE.judge(made.transcript(*usages(0, 0, 0), *counters(0, 0, 384, 384)), PARAMS))
    assert finding.why.startswith("usage reports 0 cached tokens, but the server's counter moved by 0")
    assert judged(*usages(0, 384, 0), *counters(0, 0, 0, 0)) == {REUSED: H, CONTROL: H}


def test_series_of_the_same_name_are_summed_over_their_labels():
    def read(step: str, device: int, host: int, prompts: int) -> Exchange:
        text = f'sglang:cached_tokens_total{{cache_source="device"}} {device}\n'
        text += f'sglang:cached_tokens_total{{cache_source="host"}} {host}\nsglang:prompt_tokens_total {prompts}\n'
        return made.exchange(step, text.encode(), path="/metrics")

    reads = [
        read("metrics-0", 0, 0, 0),
        read("metrics-cold", 24, 0, 400),
        read("metrics-warm", 24, 370, 800),
        read("metrics-other", 48, 370, 1200),
    ]
    assert judged(*usages(None, None, None), *reads) == {REUSED: H, CONTROL: H}


@pytest.mark.parametrize(
    ("cold", "warm", "other", "expected"),
    [
        pytest.param((1.0, 1.1, 0.9), (0.1, 0.1, 0.2), (1.0, 1.0, 1.1), {REUSED: H, CONTROL: H}, id="far apart"),
        pytest.param((2.2, 2.1, 2.3), (1.0, 1.1, 0.9), (2.1, 2.2, 2.2), {REUSED: H, CONTROL: H}, id="a slow hit"),
        pytest.param((7.2, 6.9, 7.4), (0.2, 0.2, 0.3), (4.8, 5.0, 5.1), {REUSED: H, CONTROL: H}, id="a busy machine"),
        pytest.param((1.0, 1.1, 0.9), (0.1, 0.1, 0.95), (1.0, 1.0, 1.0), {REUSED: U}, id="one slow warm"),
        pytest.param((1.0, 0.15, 1.0), (0.1, 0.1, 0.2), (1.0, 1.0, 1.0), {REUSED: U}, id="one fast cold"),
        pytest.param(
            (0.14, 0.14, 0.14), (0.1, 0.1, 0.1), (0.14, 0.14, 0.14), {REUSED: U}, id="apart, but by too little"
        ),
        pytest.param((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), {REUSED: U}, id="no difference"),
        pytest.param((1.0, 1.1, 0.9), (0.1, 0.1, 0.1), (0.1, 0.1, 0.1), {REUSED: H, CONTROL: V}, id="control is fast"),
        pytest.param((1.0, 1.1, 0.9), (0.1, 0.1, 0.1), (0.1, 1.0, 1.0), {REUSED: U}, id="one control is fast"),
    ],
)
def test_time_tells_only_where_it_separates(cold, warm, other, expected):
    assert judged(*usages(None, None, None), *timed(cold, warm, other)) == expected


def test_the_role_alone_is_no_token():
    """All streams send their role after a millisecond; else nothing above could be told apart."""
    rounds = timed((1.0, 1.0, 1.0), (0.1, 0.1, 0.1), (1.0, 1.0, 1.0))
    finding, _ = made.only(PROBE.judge(made.transcript(*usages(None, None, None), *rounds), PARAMS))
    assert finding.measured == {"ttft_cold_s": 1.0, "ttft_warm_s": 0.1, "ttft_other_s": 1.0, "ratio": 10.0}


def test_a_timed_request_that_fails_is_a_fault_and_one_that_is_missing_is_not():
    rounds = timed((1.0, 1.0, 1.0), (0.1, 0.1, 0.1), (1.0, 1.0, 1.0))
    failed = [made.failure("timed-warm-1") if one.step == "timed-warm-1" else one for one in rounds]
    assert judged(*usages(None, None, None), *failed) == {REUSED: V}
    missing = [one for one in rounds if one.step != "timed-warm-1"]
    assert judged(*usages(None, None, None), *missing) == {REUSED: U}


@pytest.mark.parametrize(
    ("exchanges", "fingerprint", "expected"),
    [
        pytest.param(usages(0, 0, 0), {"prefix_caching": "False"}, {REUSED: R, CONTROL: H}, id="switched off"),
        pytest.param(
            usages(0, 384, 0), {"prefix_caching": "False"}, {REUSED: H, CONTROL: H}, id="off, and yet it works"
        ),
        pytest.param(usages(0, 0, 0), {"prefix_caching": "True"}, {REUSED: N, CONTROL: H}, id="on, and nothing"),
        pytest.param(usages(0, 0, 0), {"block_size": "16"}, {REUSED: N, CONTROL: H}, id="small blocks"),
        pytest.param(usages(0, 0, 0), {"block_size": "128"}, {REUSED: N, CONTROL: H}, id="blocks that fit"),
        pytest.param(
            usages(0, 0, 0), {"block_size": "4352"}, {REUSED: U, CONTROL: H}, id="blocks longer than the prompt"
        ),
        pytest.param(
            [*usages(None, None, None), *timed((1, 1, 1), (1, 1, 1), (1, 1, 1))],
            {"prefix_caching": "False"},
            {REUSED: R},
            id="switched off, by time",
        ),
        pytest.param(usages(0, 0, 0, tokens=None), {}, {REUSED: U, CONTROL: H}, id="no prompt tokens"),
    ],
)
def test_what_the_server_says_of_its_cache_counts(exchanges, fingerprint, expected):
    assert judged(*exchanges, **fingerprint) == expected


@pytest.mark.parametrize(
    ("broken", "expected"),
    [(made.refusal("warm"), R), (made.failure("warm"), V), (made.cut("warm"), V), (None, U)],
)
def test_a_prompt_that_got_no_answer_says_one_thing(broken, expected):
    cold, _, other = usages(0, 384, 0)
    assert judged(*([cold, broken, other] if broken else [cold, other])) == {REUSED: expected}
