"""Reranking: forms of several engines, scores beside their documents, and what is the model's own affair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from servecheck.model import Exchange, Json, NotApplicable, Outcome
from servecheck.probes.rerank_basic import PROBE
from tests.replies import judged, refusal, reply, said, transcript, why

H, V, N, R, U = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.UNDETERMINED
PATH = "/v1/rerank"
DOCUMENTS = PROBE.params().documents
SCORES = {0: 0.9, 1: 0.5, 2: 0.3, 3: 0.1}


def ranking(
    step: str,
    scores: Mapping[int, float | None],
    *,
    order: Sequence[int] | None = None,
    name: str = "relevance_score",
    bare: bool = False,
) -> Exchange:
    places = order or sorted(scores, key=lambda place: -(scores[place] or 0.0))
    turned = step == "turned"
    listed: list[Json] = [
        {
            "index": place,
            name: scores[place],
            "document": {"text": DOCUMENTS[(3 - place if turned else place) % 4]},
        }
        for place in places
    ]
    return reply(step, listed if bare else {"results": listed}, path=PATH)


def own(query: int) -> dict[int, float]:
    return {place: 0.9 if place == query else 0.4 - 0.1 * place for place in range(4)}


def ranked(*exchanges: Exchange) -> list[Any]:
    right = (
        ranking("first-1", SCORES),
        ranking("first-2", own(1)),
        ranking("first-3", own(2)),
        ranking("turned", {3 - place: score for place, score in SCORES.items()}),
        ranking("top", {0: 0.9, 1: 0.5}),
        ranking("texts", SCORES),
        refusal("empty", "documents must not be empty", path=PATH),
    )
    given = {exchange.step: exchange for exchange in (*right, *exchanges)}
    return judged(PROBE, transcript(*given.values()))


def test_a_right_ranking_holds_every_rule():
    assert {finding.outcome for finding in ranked()} == {H}
    assert {finding.check for finding in ranked()} == {check.id for check in PROBE.checks}


def test_a_bare_list_with_score_is_a_ranking_too():
    found = ranked(ranking("first-1", SCORES, name="score", bare=True))

    assert said(found, "rerank-results-are-scored-documents")[0] is H


@pytest.mark.parametrize(("order", "outcome"), [([0, 1, 2, 3], H), ([1, 0, 2, 3], V), ([3, 2, 1, 0], V)])
def test_the_highest_score_comes_first(order, outcome):
    assert said(ranked(ranking("first-1", SCORES, order=order)), "best-document-comes-first")[0] is outcome


@pytest.mark.parametrize(
    ("queries", "outcome"),
    [
        ((0.9, 0.9, 0.9), H),
        ((0.0, 0.0, 0.0), V),
        ((0.9, 0.0, 0.9), U),
        ((0.0, 0.25, 0.0), U),
    ],
)
def test_the_query_s_own_rank_counts_where_it_is_first_or_last_each_time(queries, outcome):
    rest = {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1}
    made = [{**rest, place: value} for place, value in enumerate(queries)]
    found = ranked(*(ranking(f"first-{place + 1}", scores) for place, scores in enumerate(made)))

    assert said(found, "query-itself-ranks-first") == [outcome]


@pytest.mark.parametrize(
    "scores",
    [{0: 0.9, 1: 0.5, 2: 0.3}, {0: 0.9, 1: 0.5, 2: 0.3, 4: 0.1}, {0: None, 1: 0.5, 2: 0.3, 3: 0.1}],
    ids=["one missing", "index out of range", "no score"],
)
def test_each_document_has_one_score(scores):
    order = list(scores)

    assert V in said(ranked(ranking("first-1", scores, order=order)), "rerank-results-are-scored-documents")


def test_a_score_that_stays_with_the_place_is_found_by_another_order():
    found = ranked(ranking("turned", SCORES))

    assert said(found, "scores-follow-their-documents") == [V]
    assert "in another order" in why(found, "scores-follow-their-documents")


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [(SCORES, N), ({0: 0.9, 1: 0.5}, H), ({0: 0.9, 3: 0.1}, V), ({0: 0.9}, V)],
)
def test_top_n_are_the_best(scores, outcome):
    assert said(ranked(ranking("top", scores)), "top-n-gives-the-best-n") == [outcome]


def test_the_route_at_the_root_counts_and_none_anywhere_is_not_applicable():
    nowhere = reply("first-1", {"detail": "Not Found"}, path=PATH, status=404)
    root = reply("root-1", {"detail": "Not Found"}, path="/rerank", status=404)
    off = refusal("first-1", "Start it with `--reranking`", 501, PATH)

    assert [type(one) for one in judged(PROBE, transcript(nowhere, root))] == [NotApplicable]
    assert said(judged(PROBE, transcript(off)), "rerank-results-are-scored-documents") == [R]
    assert said(judged(PROBE, transcript(nowhere, ranking("root-1", SCORES))), "best-document-comes-first") == [H]


@pytest.mark.parametrize("body", [b"", b"null", b'{"results": 1}', b'{"results": [1, null]}', b"[]", b"[[1e999]]"])
def test_the_judge_says_something_of_any_bytes(body):
    found = judged(PROBE, transcript(reply("first-1", body, path=PATH)))

    assert {one.outcome for one in found} <= {V, U}
    assert found
