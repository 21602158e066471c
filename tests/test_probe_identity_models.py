"""The list of models: what is a fault, what a refusal, and what is only another engine's habit."""

import json
from dataclasses import replace

import pytest

from servecheck.identify import served_models
from servecheck.model import Exchange, Outcome
from servecheck.probe import Judgement, Params
from servecheck.probes.identity_models import PROBE
from tests import made

V, R, U = Outcome.VIOLATED, Outcome.REFUSED, Outcome.UNDETERMINED
ENTRY = {"id": made.MODEL, "object": "model", "created": 1, "owned_by": "vllm", "max_model_len": 4096}

BARE = {name: value for name, value in ENTRY.items() if name != "max_model_len"}


def listing(*entries: object) -> dict[str, object]:
    return {"object": "list", "data": list(entries)}


def judged(exchange: Exchange, model: str | None = made.MODEL) -> Judgement:
    return PROBE.judge(made.transcript(exchange, model=model), Params())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(listing(ENTRY), {}, id="plain"),
        pytest.param(listing({**BARE, "id": "other"}, ENTRY), {}, id="one of several, one without a length"),
        pytest.param(listing({**ENTRY, "max_model_len": None}), {}, id="length null for all"),
        pytest.param(
            listing(ENTRY, {**ENTRY, "id": "adapter", "max_model_len": None}),
            {"max-model-len-is-a-length": V},
            id="length null for some",
        ),
        pytest.param(listing({**ENTRY, "max_model_len": 0}), {"max-model-len-is-a-length": V}, id="length zero"),
        pytest.param(listing({**ENTRY, "max_model_len": True}), {"max-model-len-is-a-length": V}, id="length true"),
        pytest.param(listing({**ENTRY, "max_model_len": 4096.5}), {"max-model-len-is-a-length": V}, id="length broken"),
        pytest.param(listing(ENTRY, ENTRY), {"model-entries-are-well-formed": V}, id="twice"),
        pytest.param(listing({**ENTRY, "created": None}), {"model-list-has-the-documented-types": V}, id="no time"),
        pytest.param(listing({**ENTRY, "created": 1.7e9}), {}, id="a time as a proxy writes it"),
        pytest.param(listing({**ENTRY, "owned_by": None}), {"model-list-has-the-documented-types": V}, id="no owner"),
        pytest.param(listing({**ENTRY, "owned_by": ""}), {}, id="an owner without a name"),
        pytest.param({"data": [ENTRY]}, {"model-list-has-the-documented-types": V}, id="no name for the list"),
        pytest.param(listing(ENTRY, "adapter"), {"model-entries-are-well-formed": V}, id="an entry that is text"),
        pytest.param(listing({**ENTRY, "id": "TINY"}), {"configured-model-is-listed": V}, id="other case"),
        pytest.param(listing(), {"models-are-listed": V}, id="empty"),
        pytest.param({"data": {made.MODEL: ENTRY}}, {"models-are-listed": V}, id="data is an object"),
        pytest.param({"error": {"message": "no"}}, {"models-are-listed": V}, id="error with 200"),
        pytest.param(b'{"data": [{"id": "tiny", "max_model_len": NaN}]}', {"models-are-listed": V}, id="NaN"),
        pytest.param(b"<html>sign in</html>", {"models-are-listed": V}, id="a page"),
        pytest.param(b"", {"models-are-listed": V}, id="nothing"),
    ],
)
def test_what_is_said_of_a_list(body, expected):
    assert made.not_held(judged(made.exchange("models", body, path="/models"))) == expected


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (made.refusal("models", status=404), {"models-are-listed": R}),
        (made.refusal("models", status=501), {"models-are-listed": R}),
        (made.failure("models"), {"models-are-listed": V}),
        (made.cut("models", json.dumps(listing(ENTRY))[:30].encode()), {"models-are-listed": V}),
    ],
)
def test_no_list_is_refused_or_broken_and_nothing_else_is_said(exchange, expected):
    assert made.said(judged(exchange)) == expected


def test_a_redirect_is_not_followed_and_its_target_is_shown():
    moved = replace(made.exchange("models", status=307), response_headers=(("location", "/sign-in"),))
    (finding,) = made.only(judged(moved))
    assert finding.outcome is V
    assert finding.why == "HTTP 307 to “/sign-in”"


def test_without_a_configured_model_the_list_is_judged_and_the_model_is_not():
    exchange = made.exchange("models", listing(ENTRY), path="/models")
    assert made.not_held(judged(exchange, model=None)) == {"configured-model-is-listed": U}


def test_a_case_that_never_asked_is_undetermined():
    assert made.said(PROBE.judge(made.transcript(), Params())) == {"models-are-listed": U}


def test_a_model_that_is_listed_twice_is_one_model_to_choose_from():
    assert served_models(made.exchange("models", listing(ENTRY, ENTRY), path="/models")) == (made.MODEL,)
