"""The tokenizer route: dialects, what it is compared with, and when it is not offered."""

from __future__ import annotations

import pytest

from servecheck.model import Exchange, Json, Outcome
from servecheck.probes.tokenize_round_trip import PROBE
from tests.replies import chat, completion, judged, refusal, reply, said, transcript, why

OFFERED, COUNT, BACK = "text-becomes-tokens", "token-count-is-the-usage", "tokens-give-the-text-back"
TEXT = PROBE.params().text


def tokens(number: int, step: str = "tokenize", **more: Json) -> Exchange:
    return reply(step, {"tokens": list(range(number)), **more}, path="/tokenize")


def back(name: str, text: str) -> Exchange:
    return reply("detokenize", {name: text}, path="/detokenize")


@pytest.mark.parametrize("name", ["prompt", "text", "content"])
def test_the_text_is_found_under_every_engines_name(name):
    found = judged(PROBE, transcript(tokens(9, count=9), back(name, TEXT), completion("completion", "x", prompt=9)))

    assert {each.outcome for each in found} == {Outcome.HELD}


def test_the_other_dialect_is_what_counts_where_the_first_gives_no_tokens():
    found = judged(PROBE, transcript(tokens(0), tokens(9, "tokenize-content"), completion("completion", "x", prompt=9)))

    assert said(found, OFFERED) == [Outcome.HELD]
    assert said(found, COUNT) == [Outcome.HELD]


@pytest.mark.parametrize(("status", "words"), [(404, "not offered"), (405, "not offered"), (401, "refused: POST")])
def test_a_route_that_is_not_there_is_not_offered_and_a_closed_one_is_refused(status, words):
    found = judged(PROBE, transcript(refusal("tokenize", "no", status, "/tokenize")))

    assert said(found, OFFERED) == [Outcome.REFUSED]
    assert why(found, OFFERED).startswith(words)


@pytest.mark.parametrize(
    "body", [{}, {"tokens": []}, {"tokens": ["The", "quick"]}, {"tokens": [1, None]}, [1, 2], b"ok"]
)
def test_a_reply_without_token_ids_is_wrong(body):
    assert said(judged(PROBE, transcript(reply("tokenize", body, path="/tokenize"))), OFFERED) == [Outcome.VIOLATED]


@pytest.mark.parametrize(
    ("billed", "outcome"), [(9, Outcome.HELD), (10, Outcome.VIOLATED), (None, Outcome.UNDETERMINED)]
)
def test_the_count_is_that_of_a_completion(billed, outcome):
    assert said(judged(PROBE, transcript(tokens(9), completion("completion", "x", prompt=billed))), COUNT) == [outcome]


@pytest.mark.parametrize(("billed", "outcome"), [(30, Outcome.HELD), (31, Outcome.VIOLATED)])
def test_a_server_without_completions_is_compared_with_its_chat(billed, outcome):
    none = refusal("completion", "no route", 404, "/v1/completions")
    found = judged(PROBE, transcript(tokens(9), none, tokens(30, "tokenize-chat"), chat("chat", prompt=billed)))

    assert said(found, COUNT) == [outcome]


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (TEXT, Outcome.HELD),
        ("<|begin_of_text|>" + TEXT, Outcome.HELD),
        (" " + TEXT, Outcome.HELD),
        (TEXT.replace("  ", " "), Outcome.VIOLATED),
        (TEXT.replace("🦊", "\ufffd"), Outcome.VIOLATED),
        (TEXT[:-1], Outcome.VIOLATED),
        ("", Outcome.VIOLATED),
    ],
)
def test_the_text_must_come_back_with_every_character(given, outcome):
    assert said(judged(PROBE, transcript(tokens(9), back("prompt", given))), BACK) == [outcome]
