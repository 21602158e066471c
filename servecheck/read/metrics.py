"""Prometheus text to numbers, read by the library made for it. Sums over labels, since an engine may split a series."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from servecheck.model import Exchange
from servecheck.read import reply

__all__ = ["Metrics", "Sample", "metrics", "moved"]

_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample: its full name (``_total`` and ``_bucket`` included), labels and value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """All samples of one read, or the ``problem`` that prevented it."""

    samples: tuple[Sample, ...] = field(default=(), repr=False)
    problem: str = ""

    def total(self, *names: str) -> float | None:
        """Return the sum over labels of the first of ``names`` that is there, ``None`` where none is."""
        for name in names:
            found = [sample.value for sample in self.samples if sample.name == name]
            if found:
                return sum(found)
        return None

    def label(self, name: str, label: str) -> str | None:
        """Return a label of the first sample of that name."""
        return next((sample.labels.get(label) for sample in self.samples if sample.name == name), None)

    @property
    def names(self) -> frozenset[str]:
        """All sample names."""
        return frozenset(sample.name for sample in self.samples)


def metrics(exchange: Exchange) -> Metrics:
    """Read a metrics reply."""
    cut = reply.not_answered(exchange)  # half of a page would read as series that are not there
    if cut is not None or exchange.status != _OK:
        return Metrics(problem=cut.what if cut is not None else f"HTTP {exchange.status}")
    text = exchange.body.decode("utf-8", "replace")
    try:
        samples = tuple(_samples(text))
    except (ValueError, KeyError, IndexError) as error:  # what the library raises for text that is not Prometheus'
        return Metrics(problem=f"not Prometheus text: {error}")
    return Metrics(samples=samples)


def _samples(text: str) -> Iterable[Sample]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield Sample(name=sample.name, labels=sample.labels, value=sample.value)


def moved(before: Metrics, after: Metrics, *names: str) -> float | None:
    """Return by how much a series grew between two reads, ``None`` where either lacks it or it was reset."""
    first, second = before.total(*names), after.total(*names)
    if first is None or second is None or not (math.isfinite(first) and math.isfinite(second)) or second < first:
        return None
    return second - first
