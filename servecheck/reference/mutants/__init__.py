"""Broken and harmless variants of the reference server, one module per probe, discovered by file name.

A module is named as its probe and exports ``MUTANTS`` and ``HARMLESS``. The sentence that says what is wrong with a
variant is its class's docstring.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.models import MODELS
from servecheck.reference.server import ReferenceServer

__all__ = ["Harmless", "Mutant", "discover"]

_NO_CONFIG: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    """A reference server that is unlike a plain one in one thing, which its class's docstring says in a sentence."""

    id: str
    server: type[ReferenceServer]
    source: str = ""
    models: tuple[str, ...] = tuple(MODELS)
    config: Mapping[str, Any] = field(default_factory=lambda: _NO_CONFIG)
    beside: type[ReferenceServer] | None = None
    wants_key: bool = False

    @property
    def sentence(self) -> str:
        """What is wrong with it, or odd about it and why that is right."""
        return " ".join((vars(self.server).get("__doc__") or "").split())

    def make(self, language: str, **config: Any) -> ReferenceServer:  # noqa: ANN401
        """Return a fresh server of this kind that speaks with a reference model."""
        return self.server(language=language, **{**self.config, **config})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant(_Variant):
    """A fault. ``trips`` names the (check, outcome) pairs that the probe must report, others may come with them.

    ``source`` is the public report it is modelled on (``owner/repository#number``), empty where it is ours. ``models``
    are the reference models under which it can be seen, all of them by default; ``config`` are keyword arguments.
    ``beside`` is what it is compared with, with the same arguments, where that is not the reference server as it is.
    ``wants_key`` says that a server without a key would not show it.
    """

    trips: tuple[tuple[str, Outcome], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Harmless(_Variant):
    """A variation that is right although it looks odd; no check may object to it."""


def discover() -> dict[str, tuple[tuple[Mutant, ...], tuple[Harmless, ...]]]:
    """Return the mutants and harmless variations by probe id.

    Raises :class:`ValueError` where a module exports neither, an id is used twice, or a variant has no sentence.
    """
    found: dict[str, tuple[tuple[Mutant, ...], tuple[Harmless, ...]]] = {}
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        mutants: tuple[Mutant, ...] = tuple(getattr(loaded, "MUTANTS", ()))
        harmless: tuple[Harmless, ...] = tuple(getattr(loaded, "HARMLESS", ()))
        if not mutants and not harmless:
            raise ValueError(f"{loaded.__name__} exports neither MUTANTS nor HARMLESS")
        variants: list[Mutant | Harmless] = [*mutants, *harmless]
        ids = [variant.id for variant in variants]
        for variant in variants:
            if ids.count(variant.id) > 1:
                raise ValueError(f"{loaded.__name__}: the id {variant.id!r} is used twice")
            if not variant.sentence:
                raise ValueError(f"{loaded.__name__}: {variant.server.__name__} has no docstring of its own")
        found[module.name] = (mutants, harmless)
    return found
