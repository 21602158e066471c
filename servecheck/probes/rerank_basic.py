"""Reranking scores each document for the query and lists the best first.

What it does: ranks documents of which one is the query itself, word for word, for three queries; ranks the same
documents in another order; asks for the two best, for documents and for no documents; sends an empty list.

Why it matters: the first results go into a prompt. A score beside the wrong document, or a list that is not sorted,
puts the wrong text there without an error.

How it could be fooled: a model that was not made for ranking may not prefer the query's own words. That is the model's
affair: it counts only where the query itself comes last each time, as it does where scores are turned round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import Field

from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, NotApplicable, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import made_of
from servecheck.probes._vectors import no_route
from servecheck.read import reply
from servecheck.read.text import dig, number, quote, string

__all__ = ["PROBE"]

_PART = Part(route=Route.NONE, mode=Mode.NONE)
_FORM, _SORTED, _BEST = "rerank-results-are-scored-documents", "best-document-comes-first", "query-itself-ranks-first"
_FOLLOW, _TOP = "scores-follow-their-documents", "top-n-gives-the-best-n"
_TEXTS, _EMPTY = "documents-come-back-when-asked-for", "rerank-without-documents-is-refused"
_SOURCE = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/#re-rank-api"
_COHERE = "https://docs.cohere.com/reference/rerank"
_NO_ROUTE = (404, 405)
_NOISE = 0.02  # of the span of scores; 16-bit scores of one pair in two batches were 0.001 apart (measured)
_TOP_N = 2
_DOCUMENTS = (
    "The recipe needs two eggs and a cup of flour.",
    "Rain is expected in the mountains on Tuesday.",
    "The museum closes at six in the evening.",
    "A red bicycle leans against the wall.",
)


class RerankBasicParams(Params):
    """What may be chosen in YAML."""

    documents: tuple[str, ...] = Field(
        default=_DOCUMENTS,
        min_length=4,
        max_length=32,
        strict=False,
        description="Documents with nothing in common; the first three are also the queries.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """One entry of a ranking, unchecked."""

    index: int | None
    score: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranking:
    exchange: Exchange
    results: tuple[_Result, ...]

    @property
    def scores(self) -> dict[int, float]:
        """The scores by index, as far as both are given."""
        return {one.index: one.score for one in self.results if one.index is not None and one.score is not None}


_Read: TypeAlias = _Ranking | reply.Refusal | reply.Failure


async def drive(session: Session, params: RerankBasicParams, _: Transcript | None) -> None:
    """Find the route; rank for each query, in another order, the two best, with and without documents, nothing."""
    documents: list[Json] = list(params.documents)
    query = params.documents[0]

    async def ask(step: str, body: dict[str, Json]) -> Exchange:
        send = session.post_server if _at_root(session.transcript) else session.post
        return await send(step, "/rerank", body)

    first = await session.post("first-1", "/rerank", {"query": query, "documents": documents})
    if first.status in _NO_ROUTE:
        await session.post_server("root-1", "/rerank", {"query": query, "documents": documents})
    if not isinstance(_first(session.transcript), _Ranking):
        return
    for place in (2, 3):
        await ask(f"first-{place}", {"query": params.documents[place - 1], "documents": documents})
    await ask("turned", {"query": query, "documents": documents[::-1]})
    await ask("top", {"query": query, "documents": documents, "top_n": _TOP_N})
    await ask("texts", {"query": query, "documents": documents, "return_documents": True})
    await ask("empty", {"query": query, "documents": []})


def _at_root(transcript: Transcript) -> bool:
    return transcript.get("root-1") is not None


def _first(transcript: Transcript) -> _Read | None:
    return _ranking(transcript, "root-1") if _at_root(transcript) else _ranking(transcript, "first-1")


def _ranking(transcript: Transcript, step: str) -> _Read | None:
    return made_of(transcript, step, _results)


def _results(exchange: Exchange, body: Json) -> _Ranking | reply.Failure:
    # SGLang and TEI give the list itself, Jina and Cohere an object around it.
    listed = body if isinstance(body, list) else dig(body, "results")
    if not isinstance(listed, list):
        return reply.Failure(exchange=exchange, what=f"no list of results in {quote(exchange.body)}")
    return _Ranking(exchange=exchange, results=tuple(map(_result, listed)))


def _result(entry: Json) -> _Result:
    given = next((dig(entry, name) for name in ("relevance_score", "score") if dig(entry, name) is not None), None)
    try:
        score = float(given) if isinstance(given, int | float) and not isinstance(given, bool) else None
    except OverflowError:
        score = None
    document = dig(entry, "document")
    text = string(document) or string(dig(document, "text")) or string(dig(entry, "text"))
    return _Result(index=number(dig(entry, "index")), score=score, text=text)


def judge(transcript: Transcript, params: RerankBasicParams) -> Iterator[Finding | NotApplicable]:
    """Judge each ranking by itself, then against the others."""
    first = _first(transcript)
    absent = no_route(first, "/rerank", "ranks nothing")
    if absent is not None:
        yield absent
        return
    missing = _unless_ranked(_FORM, first)
    if missing is not None or not isinstance(first, _Ranking):
        yield missing or _PART.undetermined(_FORM, "nothing was ranked")
        return
    whole = [first]
    for step in ("first-2", "first-3", "turned"):
        found = _ranking(transcript, step)
        missing = _unless_ranked(_FORM, found)
        if missing is not None:
            yield missing
        elif isinstance(found, _Ranking):
            whole.append(found)
    count = len(params.documents)
    for ranking in whole:
        yield _form(ranking, count)
    if not all(ranking.scores.keys() == set(range(count)) for ranking in whole):
        return
    for ranking in whole:
        yield _sorted(ranking)
    yield _best(whole[:3])
    turned = _ranking(transcript, "turned")
    if isinstance(turned, _Ranking):
        yield _follow(first, turned, count)
    yield _top(transcript, first)
    yield _texts(transcript, params, first)
    yield _empty(transcript)


def _unless_ranked(check: str, found: _Read | None, *controls: _Read | None, what: str = "") -> Finding | None:
    if isinstance(found, _Ranking):
        return None
    others = [control for control in controls if isinstance(control, reply.Refusal | reply.Failure)]
    return _PART.unless_answered(check, found, *others, what=what)


def _form(ranking: _Ranking, count: int) -> Finding:
    indices = [one.index for one in ranking.results]
    scores = [one.score for one in ranking.results]
    if len(ranking.results) != count:
        why = f"{len(ranking.results)} results for {count} documents"
    elif sorted(-1 if index is None else index for index in indices) != list(range(count)):
        why = f"the indices are {', '.join(map(str, indices))}, not each of 0 to {count - 1} once"
    elif any(score is None or not math.isfinite(score) for score in scores):
        why = f"not every result has a score: {quote(ranking.exchange.body)}"
    else:
        return _PART.held(_FORM, f"{count} documents, each with a score", ranking.exchange)
    return _PART.violated(_FORM, why, ranking.exchange)


def _sorted(ranking: _Ranking) -> Finding:
    scores = [one.score or 0.0 for one in ranking.results]
    said = f"scores in order: {_shown(scores)}"
    ordered = all(left >= right for left, right in itertools.pairwise(scores))
    return (_PART.held if ordered else _PART.violated)(_SORTED, said, ranking.exchange)


def _best(rankings: Sequence[_Ranking]) -> Finding:
    """Judge where the query itself stands: first is right, last each time is upside down, else the model decides."""
    ranks = []
    for query, ranking in enumerate(rankings):
        own = ranking.scores[query]
        better = sum(score > own for score in ranking.scores.values())
        ranks.append(better + 1)
    seen = [ranking.exchange for ranking in rankings]
    count = len(rankings[0].results)
    spans = [max(ranking.scores.values()) - min(ranking.scores.values()) for ranking in rankings]
    if not any(spans):
        return _PART.violated(
            _BEST, f"every document of every query has the score {_shown(_values(rankings[0]))}", *seen
        )
    said = f"the query itself ranks {', '.join(map(str, ranks))} of {count}"
    if all(rank == 1 for rank in ranks):
        return _PART.held(_BEST, said, *seen)
    if len(ranks) > 2 and all(rank == count for rank in ranks):
        return _PART.violated(_BEST, f"{said}: the ranking is upside down", *seen)
    return _PART.undetermined(_BEST, f"{said}: the model does not prefer the query's own words", *seen)


def _values(ranking: _Ranking) -> list[float]:
    return list(ranking.scores.values())


def _follow(first: _Ranking, turned: _Ranking, count: int) -> Finding:
    span = max(_values(first)) - min(_values(first))
    apart = {place: abs(score - turned.scores[count - 1 - place]) for place, score in first.scores.items()}
    worst = max(apart, key=lambda place: apart[place])
    seen = (first.exchange, turned.exchange)
    if apart[worst] <= max(_NOISE * span, 1e-6):
        return _PART.held(_FOLLOW, f"in another order each document keeps its score within {apart[worst]:.2g}", *seen)
    one, other = first.scores[worst], turned.scores[count - 1 - worst]
    why = f"document {worst + 1} scores {one:.4g}, and {other:.4g} where the documents are sent in another order"
    return _PART.violated(_FOLLOW, why, *seen)


def _top(transcript: Transcript, first: _Ranking) -> Finding:
    found = _ranking(transcript, "top")
    missing = _unless_ranked(_TOP, found, first, what=f"top_n {_TOP_N}")
    if missing is not None or not isinstance(found, _Ranking):
        return missing or _PART.undetermined(_TOP, "not sent")
    seen = (found.exchange, first.exchange)
    count = len(first.results)
    if len(found.results) == count:
        return _PART.no_effect(_TOP, f"top_n {_TOP_N}: all {count} documents came, as without it", *seen)
    if len(found.results) != _TOP_N:
        return _PART.violated(_TOP, f"top_n {_TOP_N}: {len(found.results)} results", *seen)
    values = sorted(_values(first), reverse=True)
    least = min(first.scores.get(one.index or 0, -math.inf) for one in found.results)
    # Two documents that score alike may change places.
    if least >= values[_TOP_N - 1] - _NOISE * (values[0] - values[-1]):
        return _PART.held(_TOP, f"top_n {_TOP_N}: the two best", *seen)
    chosen = ", ".join(str((one.index or 0) + 1) for one in found.results)
    return _PART.violated(_TOP, f"top_n {_TOP_N}: documents {chosen} came, which are not the best two", *seen)


def _texts(transcript: Transcript, params: RerankBasicParams, first: _Ranking) -> Finding:
    found = _ranking(transcript, "texts")
    missing = _unless_ranked(_TEXTS, found, first, what="return_documents")
    if missing is not None or not isinstance(found, _Ranking):
        return missing or _PART.undetermined(_TEXTS, "not sent")
    for one in found.results:
        if one.index is None or not 0 <= one.index < len(params.documents):
            continue
        wanted = params.documents[one.index]
        if not one.text:
            return _PART.no_effect(
                _TEXTS, "return_documents is accepted and the results hold no documents", found.exchange
            )
        if one.text != wanted:
            why = f"index {one.index} comes with {quote(one.text, 40)} instead of {quote(wanted, 40)}"
            return _PART.violated(_TEXTS, why, found.exchange)
    return _PART.held(_TEXTS, "each result holds the document of its index", found.exchange)


def _empty(transcript: Transcript) -> Finding:
    found = _ranking(transcript, "empty")
    if isinstance(found, reply.Refusal):
        return _PART.held(_EMPTY, found.what, found.exchange)
    if isinstance(found, reply.Failure):
        return _PART.violated(_EMPTY, f"an empty list of documents: {found.what}", found.exchange)
    if found is None:
        return _PART.undetermined(_EMPTY, "not sent")
    if not found.results:
        return _PART.held(_EMPTY, "no documents, no results", found.exchange)
    return _PART.violated(_EMPTY, f"no documents, and {len(found.results)} results", found.exchange)


def _shown(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values[:5]) + (" …" if len(values) > 5 else "")


PROBE = Probe(
    id="rerank_basic",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_FORM,
            rule="There is one result for each document, with its index and a finite score.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(id=_SORTED, rule="Results come with the highest score first.", level=Level.MUST, source=_COHERE),
        Check(
            id=_BEST,
            rule="A document that is the query itself ranks above documents that have nothing to do with it.",
            level=Level.MUST,
            source=_COHERE,
        ),
        Check(
            id=_FOLLOW,
            rule="A document keeps its score when the documents are sent in another order.",
            level=Level.MUST,
            source=_COHERE,
        ),
        Check(id=_TOP, rule="top_n gives the best N documents and no more.", level=Level.SHOULD, source=_COHERE),
        Check(
            id=_TEXTS,
            rule="With return_documents each result holds the document of its index.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_EMPTY,
            rule="An empty list of documents is refused, or gives an empty ranking.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
    ),
    params=RerankBasicParams,
    drive=drive,
    judge=judge,
    requests=7,
    prompt_tokens=0,
)
