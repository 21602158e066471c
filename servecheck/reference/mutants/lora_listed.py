"""Adapters that are listed without being there, there without being listed, or with a parent that nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["ADAPTERS", "HARMLESS", "MUTANTS"]

ADAPTERS: dict[str, Any] = {"adapters": ("sql-adapter", "poem-adapter")}
_PARENT, _ANSWERS = "adapters-name-a-listed-parent", "every-listed-adapter-answers"
_LENGTH, _UNKNOWN = "adapter-length-is-given-as-its-parent-s", "unknown-adapter-is-refused"


class ParentNotListed(ReferenceServer):
    """Names the folder of the weights as the parent, which is no model's name."""

    def adapter_entry(self, name: str) -> Event:
        """Name a folder."""
        return {**super().adapter_entry(name), "parent": "/models/base-7b"}


class ListRefused(ReferenceServer):
    """Has no list of models."""

    def models_list(self) -> Event:
        """Refuse."""
        raise ApiError("not found", status=404)


class LastAdapterGone(ReferenceServer):
    """Lists an adapter that failed to load."""

    def check_model(self, body: Event) -> None:
        """Refuse the last."""
        if self.adapters and body.get("model") == self.adapters[-1]:
            raise ApiError(f"the model {body['model']!r} does not exist", status=404, param="model")
        super().check_model(body)


class AdapterFails(ReferenceServer):
    """Fails inside where an adapter is used."""

    def check_model(self, body: Event) -> None:
        """Fail."""
        if body.get("model") in self.adapters:
            raise ApiError("rank 64 is greater than max_lora_rank 16", status=500, kind="InternalServerError")
        super().check_model(body)


class NullLength(ReferenceServer):
    """Has a length for the model and null for its adapters."""

    def adapter_entry(self, name: str) -> Event:
        """Forget the length."""
        return {**super().adapter_entry(name), "max_model_len": None}


class UnknownIsBase(ReferenceServer):
    """Answers for an adapter that does not exist, as the plain model."""

    def check_model(self, body: Event) -> None:
        """Let every name pass."""


class UnknownFails(ReferenceServer):
    """Fails inside on an adapter that does not exist."""

    def check_model(self, body: Event) -> None:
        """Fail."""
        if self.model_of(body) not in (self.model, *self.adapters):
            raise ApiError("KeyError", status=500, kind="InternalServerError")


class AnswersAsTheBase(ReferenceServer):
    """Names the base model in every reply, also where an adapter answered."""

    def text_envelope(self, job: Job) -> Event:
        """Name the base."""
        return {**super().text_envelope(job), "model": self.model}

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Name the base."""
        return {**super().completion(job, answers), "model": self.model}


# --------------------------------------------------------------------------- odd, but right


class WithAdapters(ReferenceServer):
    """Lists two adapters that work."""


class NoLength(ReferenceServer):
    """Gives no length for adapters, which is an extension of the API."""

    def adapter_entry(self, name: str) -> Event:
        """Leave the length out."""
        made = super().adapter_entry(name)
        del made["max_model_len"]
        return made


class NullParents(ReferenceServer):
    """Has a parent of null for the model, as vLLM does, and no adapters."""

    def model_entry(self) -> Event:
        """Add a null."""
        return {**super().model_entry(), "parent": None}


_V, _R = Outcome.VIOLATED, Outcome.REFUSED

MUTANTS = (
    Mutant(id="parent-not-listed", server=ParentNotListed, trips=((_PARENT, _V),), config=ADAPTERS),
    Mutant(id="list-refused", server=ListRefused, trips=((_PARENT, _R),), config=ADAPTERS),
    Mutant(
        id="last-adapter-gone",
        server=LastAdapterGone,
        trips=((_ANSWERS, _V),),
        config=ADAPTERS,
        source="vllm-project/vllm-metal#641",
    ),
    Mutant(id="adapter-fails", server=AdapterFails, trips=((_ANSWERS, _V),), config=ADAPTERS),
    Mutant(
        id="null-length",
        server=NullLength,
        trips=((_LENGTH, _V),),
        config=ADAPTERS,
        source="vllm-project/production-stack#331",
    ),
    Mutant(id="unknown-is-base", server=UnknownIsBase, trips=((_UNKNOWN, _V),), config=ADAPTERS),
    Mutant(id="unknown-fails", server=UnknownFails, trips=((_UNKNOWN, _V),), config=ADAPTERS),
    Mutant(
        id="answers-as-the-base",
        server=AnswersAsTheBase,
        trips=(("adapter-answers-under-its-own-name", Outcome.VIOLATED),),
        source="vllm-project/vllm#11090",
        config=ADAPTERS,
    ),
)

HARMLESS = (
    Harmless(id="with-adapters", server=WithAdapters, config=ADAPTERS),
    Harmless(id="no-length", server=NoLength, config=ADAPTERS),
    Harmless(id="null-parents", server=NullParents, models=("obedient",)),
)
