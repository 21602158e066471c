"""Rankings that are not sorted, mixed up, upside down, or read half of the request."""

from __future__ import annotations

from collections.abc import Sequence

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants.embeddings_basic import MoreFields
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_FORM, _SORTED, _BEST = "rerank-results-are-scored-documents", "best-document-comes-first", "query-itself-ranks-first"
_FOLLOW, _TOP = "scores-follow-their-documents", "top-n-gives-the-best-n"
_TEXTS, _EMPTY = "documents-come-back-when-asked-for", "rerank-without-documents-is-refused"


class RerankNotServed(ReferenceServer):
    """Refuses to rank although the route is there, as a server does that was started without it."""

    def documents_of(self, body: Event) -> tuple[str, ...]:  # noqa: ARG002
        """Refuse."""
        raise ApiError("this server does not support reranking", status=501)


class Unsorted(ReferenceServer):
    """Lists results in the order of the documents."""

    def ranked(self, query: str, documents: Sequence[str], top: int) -> list[Event]:
        """Sort by place."""
        return sorted(super().ranked(query, documents, 0), key=lambda entry: entry["index"])[: top or None]


class WorstFirst(ReferenceServer):
    """Sorts the wrong way round."""

    def ranked(self, query: str, documents: Sequence[str], top: int) -> list[Event]:
        """Turn round."""
        return super().ranked(query, documents, 0)[::-1][: top or None]


class Distances(ReferenceServer):
    """Reports distances as scores, so that the nearest comes last."""

    def relevance(self, query: str, document: str) -> float:
        """Turn round."""
        return 1 - super().relevance(query, document)


class AllAlike(ReferenceServer):
    """Has one score for every document, as a model without its scoring head."""

    def relevance(self, query: str, document: str) -> float:  # noqa: ARG002
        """Return the same."""
        return 0.5


class IndexIsTheRank(ReferenceServer):
    """Numbers the results from the best on, and calls that the index."""

    def ranked(self, query: str, documents: Sequence[str], top: int) -> list[Event]:
        """Count anew."""
        return [{**entry, "index": place} for place, entry in enumerate(super().ranked(query, documents, top))]


class NoScores(ReferenceServer):
    """Leaves the scores out."""

    def ranked(self, query: str, documents: Sequence[str], top: int) -> list[Event]:
        """Return the indices."""
        return [{"index": entry["index"]} for entry in super().ranked(query, documents, top)]


class OneTwice(ReferenceServer):
    """Lists the best document twice and another not at all."""

    def ranked(self, query: str, documents: Sequence[str], top: int) -> list[Event]:
        """Double the first."""
        made = super().ranked(query, documents, top)
        return [made[0], *made[:-1]]


class NeighbourCounts(ReferenceServer):
    """Scores a document by what stands before it in the list, too."""

    def ranked(self, query: str, documents: Sequence[str], top: int) -> list[Event]:
        """Add a share of the one before."""
        own = {text: self.relevance(query, text) for text in documents}
        scores = [own[text] + 0.2 * own[documents[place - 1]] for place, text in enumerate(documents)]
        order = sorted(range(len(documents)), key=lambda place: -scores[place])
        return [{"index": place, "relevance_score": scores[place]} for place in order][: top or None]


class TopIgnored(ReferenceServer):
    """Takes top_n and returns all."""

    def top_of(self, body: Event) -> int:  # noqa: ARG002
        """Return all."""
        return 0


class TopBeforeSorting(ReferenceServer):
    """Cuts the list of documents first and ranks what is left."""

    def ranked(self, query: str, documents: Sequence[str], top: int) -> list[Event]:
        """Cut, then rank."""
        worst_first = super().ranked(query, documents, 0)[::-1]
        return sorted(worst_first[:top], key=lambda entry: -entry["relevance_score"]) if top else worst_first[::-1]


class DocumentsNotReturned(ReferenceServer):
    """Takes return_documents and returns none."""

    async def reply_rerank(self, request: Request) -> Reply:
        """Leave the documents out."""
        body = MoreFields.read_back(await super().reply_rerank(request))
        return json_reply({**body, "results": [_bare(entry) for entry in body["results"]]})


def _bare(entry: Event) -> Event:
    return {name: value for name, value in entry.items() if name != "document"}


class AnotherDocument(ReferenceServer):
    """Puts the text of the rank beside the index."""

    async def reply_rerank(self, request: Request) -> Reply:
        """Take texts in the order of the request."""
        given = self.documents_of(self.body_of(request))
        body = MoreFields.read_back(await super().reply_rerank(request))
        results = [{**entry, "document": {"text": given[place]}} for place, entry in enumerate(body["results"])]
        return json_reply({**body, "results": results})


class EmptyListFails(ReferenceServer):
    """Fails inside on an empty list of documents."""

    def documents_of(self, body: Event) -> tuple[str, ...]:
        """Fail."""
        if body.get("documents") == []:
            raise ApiError("list index out of range", status=500, kind="InternalServerError")
        return super().documents_of(body)


# --------------------------------------------------------------------------- odd, but right


class BareList(ReferenceServer):
    """Returns the list itself with “score” and the text as a string, as SGLang does."""

    async def reply_rerank(self, request: Request) -> Reply:
        """Write the other form."""
        body = MoreFields.read_back(await super().reply_rerank(request))
        return json_reply(
            [
                {"score": entry["relevance_score"], "document": entry["document"]["text"], "index": entry["index"]}
                for entry in body["results"]
            ]
        )


class AtTheRoot(ReferenceServer):
    """Has the route below the server's root and not below the API's."""

    @classmethod
    def routes(cls) -> dict[tuple[str, str], str]:
        """Move the route."""
        return {
            (method, "/rerank" if name == "reply_rerank" else path): name
            for (method, path), name in super().routes().items()
        }


class Logits(ReferenceServer):
    """Scores by raw logits, of which some are below 0."""

    def relevance(self, query: str, document: str) -> float:
        """Stretch."""
        return 12 * super().relevance(query, document) - 7


class NothingForNothing(ReferenceServer):
    """Answers an empty list of documents with an empty ranking."""

    async def reply_rerank(self, request: Request) -> Reply:
        """Rank nothing."""
        if self.body_of(request).get("documents") == []:
            return json_reply({"results": []})
        return await super().reply_rerank(request)


class NoRerank(ReferenceServer):
    """Has no such route."""

    @classmethod
    def routes(cls) -> dict[tuple[str, str], str]:
        """Leave the route out."""
        return {key: name for key, name in super().routes().items() if name != "reply_rerank"}


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED

MUTANTS = (
    Mutant(id="rerank-not-served", server=RerankNotServed, trips=((_FORM, _R),)),
    Mutant(id="unsorted", server=Unsorted, trips=((_SORTED, _V),), source="mudler/LocalAI#7189"),
    Mutant(id="worst-first", server=WorstFirst, trips=((_SORTED, _V),)),
    Mutant(id="distances", server=Distances, trips=((_BEST, _V),)),
    Mutant(id="all-alike", server=AllAlike, trips=((_BEST, _V),)),
    Mutant(id="index-is-the-rank", server=IndexIsTheRank, trips=((_FOLLOW, _V),)),
    Mutant(id="no-scores", server=NoScores, trips=((_FORM, _V),)),
    Mutant(id="one-twice", server=OneTwice, trips=((_FORM, _V),)),
    Mutant(id="neighbour-counts", server=NeighbourCounts, trips=((_FOLLOW, _V),)),
    Mutant(id="top-ignored", server=TopIgnored, trips=((_TOP, _N),), source="mudler/LocalAI#6700"),
    Mutant(id="top-before-sorting", server=TopBeforeSorting, trips=((_TOP, _V),), source="michaelfeil/infinity#396"),
    Mutant(id="documents-not-returned", server=DocumentsNotReturned, trips=((_TEXTS, _N),)),
    Mutant(id="another-document", server=AnotherDocument, trips=((_TEXTS, _V),)),
    Mutant(id="empty-list-fails", server=EmptyListFails, trips=((_EMPTY, _V),)),
)

HARMLESS = (
    Harmless(id="bare-list", server=BareList),
    Harmless(id="at-the-root", server=AtTheRoot),
    Harmless(id="logits", server=Logits, source="ggml-org/llama.cpp#9510"),
    Harmless(id="nothing-for-nothing", server=NothingForNothing),
    Harmless(id="no-rerank", server=NoRerank, models=("obedient",)),
)
