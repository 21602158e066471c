"""A plain answer: what clients cannot do without, and what the model rather than the server decides."""

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probe import Judgement
from servecheck.probes.chat_basic import PROBE
from tests import made

V, R, U = Outcome.VIOLATED, Outcome.REFUSED, Outcome.UNDETERMINED
PARAMS = PROBE.params()
LISTED = made.exchange(
    "models", {"data": [{"id": made.MODEL, "object": "model"}, {"id": "alias", "object": "model"}]}, path="/models"
)


def asked(step: str, body: object, *, max_tokens: int = 48) -> Exchange:
    request = {"model": made.MODEL, "messages": [], "max_tokens": max_tokens}
    return made.exchange(step, body, request=request)


def judged(*exchanges: Exchange) -> Judgement:
    return PROBE.judge(made.transcript(*exchanges), PARAMS)


def usage(prompt: int, completion: int | None, total: int) -> dict[str, int | None]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(made.whole(), {}, id="plain"),
        pytest.param(made.whole(finish="length"), {}, id="cut by the limit"),
        pytest.param(made.whole(reasoning_content=None, tool_calls=None), {}, id="explicit nulls"),
        pytest.param(made.whole("\n\nRed.", reasoning="hm"), {}, id="reasoning beside the answer"),
        pytest.param(made.whole("🦊" * 3), {}, id="three emoji are too few to call garbage"),
        pytest.param({**made.whole(), "model": "alias"}, {}, id="alias"),
        pytest.param(made.whole(None), {"answer-has-text": V}, id="content null"),
        pytest.param(made.whole(" \n"), {"answer-has-text": V}, id="content blank"),
        pytest.param(made.whole("", usage=usage(20, 1, 21)), {"answer-has-text": U}, id="the model ended at once"),
        pytest.param(made.whole("", usage=usage(20, 9, 29)), {"answer-has-text": V}, id="billed and not delivered"),
        pytest.param(made.whole("", reasoning="hm"), {"answer-has-text": V}, id="finished, all in the reasoning"),
        pytest.param(made.whole("", "length", reasoning="hm"), {"answer-has-text": U}, id="thought all its room away"),
        pytest.param(made.whole("", "length"), {"answer-has-text": V}, id="length and nothing at all"),
        pytest.param(made.whole("!" * 48, "length"), {"text-is-not-garbage": V}, id="one character"),
        pytest.param(made.whole("\ufffd" * 8 + "abc"), {"text-is-not-garbage": V}, id="replacement characters"),
        pytest.param(made.whole("0" * 20), {}, id="digits may repeat"),
        pytest.param(made.whole(finish=None), {"finish-reason-is-given": V}, id="no finish"),
        pytest.param(made.whole(finish="tool_calls"), {"finish-reason-is-given": V}, id="calls without tools"),
        pytest.param(made.whole(role="model"), {"role-is-assistant": V}, id="role"),
        pytest.param({**made.whole(), "usage": None}, {"usage-adds-up": V}, id="usage null"),
        pytest.param(made.whole(usage=usage(20, 6, 27)), {"usage-adds-up": V}, id="usage off by one"),
        pytest.param(made.whole(usage=usage(20, 49, 69)), {"usage-adds-up": V}, id="one above the limit"),
        pytest.param(made.whole(usage=usage(20, 48, 68)), {}, id="at the limit"),
        pytest.param(made.whole(usage=usage(20, None, 20)), {"usage-adds-up": V}, id="usage with a null"),
        pytest.param({**made.whole(), "model": "other"}, {"model-is-the-one-asked-for": V}, id="unlisted name"),
        pytest.param({**made.whole(), "created": "now"}, {"completion-object-is-named": V}, id="created is text"),
        pytest.param({**made.whole(), "id": None}, {"completion-object-is-named": V}, id="no id"),
        pytest.param({**made.whole(), "choices": None}, {"answer-has-text": V}, id="no choices"),
    ],
)
def test_what_is_said_of_a_reply(body, expected):
    assert made.not_held(judged(asked("greedy", body), asked("bare", body), LISTED)) == expected


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (made.refusal("bare"), R),
        (made.failure("bare"), V),
        (made.cut("bare"), V),
        (made.exchange("bare", b'{"choices": NaN}', request={}), V),
        (made.exchange("bare", {"error": {"message": "no", "code": 404}}, request={}), R),
        (made.exchange("bare", {"error": {"message": "no", "code": 500}}, request={}), V),
    ],
)
def test_no_answer_to_the_bare_request_is_found_beside_a_good_greedy_one(exchange, expected):
    findings = made.only(judged(asked("greedy", made.whole()), exchange, LISTED))
    assert [f.outcome for f in findings if f.evidence == ("bare",)] == [expected]
    assert all(f.outcome is Outcome.HELD for f in findings if f.evidence == ("greedy",))


def test_the_roomier_of_two_greedy_replies_is_judged():
    thought = asked("greedy", made.whole("", "length", reasoning="hm"))
    roomy = asked("greedy-roomy", made.whole(usage=usage(20, 900, 920)), max_tokens=2048)
    findings = made.only(judged(thought, roomy, LISTED))
    assert made.not_held(findings) == {}
    assert {f.evidence for f in findings} == {("greedy-roomy",)}


def test_another_name_is_wrong_where_the_list_cannot_be_read():
    body = {**made.whole(), "model": "alias"}
    findings = judged(asked("greedy", body), made.failure("models"))
    assert made.not_held(findings) == {"model-is-the-one-asked-for": V}


def test_a_request_that_named_no_model_cannot_tell_whether_it_was_the_one():
    nameless = made.exchange("greedy", made.whole(), request={"max_tokens": 48})
    assert made.not_held(judged(nameless, LISTED)) == {"model-is-the-one-asked-for": U}
