"""Framing of streams: what the event stream format and the API allow, and what they do not."""

import pytest

from servecheck.model import Ending, Exchange, Outcome
from servecheck.probe import Judgement
from servecheck.probes.streaming_frames import PROBE
from tests import made
from tests.made import DONE, ROLE, event, spoken, sse

V, R, N, U = Outcome.VIOLATED, Outcome.REFUSED, Outcome.NO_EFFECT, Outcome.UNDETERMINED
PARAMS = PROBE.params()
PLAIN = spoken("Red", " and", " blue")
USAGE = event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12})


def judged(*exchanges: Exchange) -> Judgement:
    return PROBE.judge(made.transcript(*exchanges), PARAMS)


def spliced(place: int, *more: object) -> list[object]:
    return [*PLAIN[:place], *more, *PLAIN[place:]]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(PLAIN, {}, id="plain"),
        pytest.param([*PLAIN, USAGE], {}, id="usage chunk with empty choices"),
        pytest.param(spliced(1, b": ping\n\n"), {}, id="comment as an event"),
        pytest.param(spliced(1, b": ping\n"), {}, id="comment before an event"),
        pytest.param(spliced(1, b"retry: 3000\n\n"), {}, id="a field without data"),
        pytest.param(spliced(2, event({})), {}, id="empty delta"),
        pytest.param(spliced(2, event({"content": None})), {}, id="null delta"),
        pytest.param([*PLAIN[:-1], event({"content": "."}, "length")], {}, id="finishing chunk with text"),
        pytest.param([*PLAIN, event({})], {}, id="empty delta after the finish"),
        pytest.param([{"choices": [], "id": "", "prompt_filter_results": []}, *PLAIN], {}, id="empty choices first"),
        pytest.param(
            [ROLE, event({"content": "a"}), event({}, "stop", usage={"total_tokens": 1})], {}, id="usage with finish"
        ),
        pytest.param([*PLAIN, event({"content": "b"})], {"finish-then-only-usage": V}, id="text after the finish"),
        pytest.param(spliced(-1, USAGE), {"finish-then-only-usage": V}, id="usage before the finish"),
        pytest.param([*PLAIN, event(finish="stop")], {"one-finish-per-choice": V}, id="two finishes"),
        pytest.param(PLAIN[:-1], {"one-finish-per-choice": V}, id="no finish"),
        pytest.param(PLAIN[1:], {}, id="no role in plain text"),
        pytest.param([event({"role": None}), *PLAIN[1:]], {"role-is-given": V}, id="role null"),
        pytest.param([event({"role": "model"}), *PLAIN[1:]], {"role-is-given": V}, id="another role"),
        pytest.param(spliced(2, b"data:\n\n"), {"events-are-json": V}, id="an empty data line"),
        pytest.param(spliced(2, b"event: ping\n\n"), {}, id="a name without data"),
        pytest.param(spliced(2, ROLE), {"role-comes-once-first": V}, id="role twice"),
        pytest.param(
            spliced(2, event({}, id="other")), {"id-is-constant": V, "choices-share-the-id": V}, id="another id"
        ),
        pytest.param(spliced(2, event({}, model="other")), {"model-is-constant": V}, id="another model"),
        pytest.param(spliced(2, event({}, created=1)), {"created-is-constant": V}, id="another time"),
        pytest.param(
            [{**one, "id": None} for one in PLAIN],
            {"id-is-constant": V, "choices-share-the-id": V},
            id="an id that is never there",
        ),
        pytest.param(spliced(2, {"error": {"message": "no"}}), {"no-error-event": V}, id="error event"),
        pytest.param(spliced(2, {"object": "error", "message": "no"}), {"no-error-event": V}, id="flat error event"),
        pytest.param(spliced(2, b'data: {"p": NaN}\n\n'), {"events-are-json": V}, id="NaN"),
        pytest.param(spliced(2, b"data: {'p': None}\n\n"), {"events-are-json": V}, id="Python"),
    ],
)
def test_what_is_said_of_a_stream(events, expected):
    assert made.not_held(judged(made.stream("plain", events))) == expected


def test_a_role_is_missed_where_tools_are_offered():
    exchanges = (made.stream("plain", PLAIN), made.stream("tools", PLAIN[1:]))

    assert made.not_held(judged(*exchanges)) == {"role-is-given": V}


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        pytest.param(b"", {"stream-ends-with-done": V}, id="none"),
        pytest.param(DONE * 2, {"done-comes-once": V}, id="two"),
        pytest.param(
            b"data: [DONE]", {"stream-is-not-cut": V, "stream-ends-with-done": V}, id="without its blank line"
        ),
        pytest.param(b"data:[DONE]\n\n", {}, id="without its space"),
        pytest.param(b"data: [DONE] \n\n", {}, id="with a space behind"),
        pytest.param(DONE + b": bye\n\n", {}, id="a comment behind"),
        pytest.param(DONE + sse([USAGE], done=b""), {"nothing-follows-done": V}, id="an event behind"),
        pytest.param(b"event: done\ndata: [DONE]\n\n", {}, id="named"),
    ],
)
def test_what_is_said_of_the_end_marker(done, expected):
    assert made.not_held(judged(made.stream("plain", PLAIN, done=done))) == expected


@pytest.mark.parametrize("line_end", [b"\r\n", b"\r", b"\n"])
def test_every_line_end_of_the_format_is_one(line_end):
    assert made.not_held(judged(made.stream("plain", sse(PLAIN).replace(b"\n", line_end)))) == {}


def test_a_character_split_between_reads_is_whole():
    body = sse([ROLE, event({"content": "🦊"}), event(finish="stop")]).replace(b"\\ud83e\\udd8a", "🦊".encode())
    pieces = [(0.1 * place, bytes([value])) for place, value in enumerate(body)]
    assert "🦊".encode() in body
    assert made.not_held(judged(made.stream("plain", b"", pieces=pieces))) == {}


def test_each_choice_has_a_role_and_a_finish_of_its_own():
    one = [event({"role": "assistant"}, index=0), event({"role": "assistant"}, index=1)]
    assert (
        made.not_held(
            judged(
                made.stream("plain", PLAIN),
                made.stream(
                    "two-choices",
                    [
                        *one,
                        event({"content": "a"}, index=1),
                        event(finish="stop", index=1),
                        event(finish="length", index=0),
                    ],
                ),
            )
        )
        == {}
    )
    missing = [*one, event(finish="stop", index=1)]
    findings = judged(made.stream("plain", PLAIN), made.stream("two-choices", missing))
    assert made.not_held(findings) == {"one-finish-per-choice": V}


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        pytest.param(made.refusal("plain"), {"answers-as-stream": R}, id="refused"),
        pytest.param(made.failure("plain"), {"answers-as-stream": V}, id="500"),
        pytest.param(made.cut("plain", b""), {"answers-as-stream": V}, id="cut before a byte"),
        pytest.param(made.exchange("plain", made.whole(), request={}), {"answers-as-stream": N}, id="one whole reply"),
    ],
)
def test_what_is_no_stream_says_one_thing(plain, expected):
    assert made.said(judged(plain)) == expected


def test_a_stream_that_was_cut_after_some_events_is_judged_as_far_as_it_came():
    body = sse(PLAIN[:2], done=b'data: {"id"')
    findings = judged(made.stream("plain", body, ending=Ending.TRUNCATED, detail="the connection was cut"))
    assert made.not_held(findings) == {
        "stream-is-not-cut": V,
        "stream-ends-with-done": V,
        "one-finish-per-choice": V,
    }


def test_a_variant_that_is_refused_belongs_to_another_row_and_one_that_fails_does_not():
    good = made.stream("plain", PLAIN)
    assert made.not_held(judged(good, made.refusal("tools", "no tool parser"))) == {}
    assert made.not_held(judged(good, made.failure("tools"))) == {"answers-as-stream": V}


def test_the_variant_that_shows_a_fault_is_the_evidence():
    lost = [ROLE, event({"content": "a"})]
    findings = judged(made.stream("plain", PLAIN), made.stream("logprobs", lost))
    (finding,) = [found for found in made.only(findings) if found.outcome is V]
    assert (finding.check, finding.evidence) == ("one-finish-per-choice", ("logprobs",))
    assert finding.measured == {"variant": "logprobs"}


def test_nothing_sent_is_undetermined():
    assert made.said(judged()) == {"answers-as-stream": U}


LOST = [ROLE, event({"content": "a"})]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (("two-choices",), "only with n 2: choice 0 has 0 finish reasons; streams of one choice are right"),
        (("logprobs", "two-choices"), "only with logprobs and with n 2: choice 0 has 0 finish reasons; the others are"),
        (("tools", "plain"), "only in a plain stream and with tools: choice 0 has 0 finish reasons; the others are"),
        (("plain", "logprobs", "two-choices", "tools"), "in all 4 kinds of request: choice 0 has 0 finish reasons"),
    ],
)
def test_the_reason_says_in_which_kinds_of_stream_a_rule_breaks_and_that_the_others_are_right(broken, reason):
    kinds = ("plain", "logprobs", "two-choices", "tools")
    findings = judged(*(made.stream(kind, LOST if kind in broken else PLAIN) for kind in kinds))
    (finding,) = [found for found in made.only(findings) if found.outcome is V]

    assert finding.why.startswith(reason)
