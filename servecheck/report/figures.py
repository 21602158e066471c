"""What a run measured, as series to draw and as a table to read. No plotting, no markup; without data no figure.

Every maker takes the run and yields figures; one for another kind of row is added to :data:`MAKERS`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from servecheck.model import Exchange, Measured
from servecheck.parity import STEPS
from servecheck.read import reply, sse
from servecheck.report.data import RunReport, row_key

__all__ = ["MAKERS", "Figure", "Point", "Series", "drawn", "sampled"]

_MOST_POINTS = 400
"""Points of a line; a stream of more pieces is thinned, its first and last piece kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value at a place; ``low`` and ``high`` bound it where that is known."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one endpoint in order; ``dashed`` sets what is compared with apart from what is meant."""

    name: str
    points: tuple[Point, ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``kind`` is ``line``, ``steps``, ``bars`` or ``histogram``; with ``places``, x counts them.

    ``alt`` says what a picture shows, ``table`` has the numbers behind it, the header first; ``log_x`` is for lengths,
    that double from one to the next.
    """

    id: str
    title: str
    alt: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    table: tuple[tuple[str, ...], ...]
    kind: str = "line"
    places: tuple[str, ...] = ()
    log_x: bool = False
    note: str = ""

    @property
    def borders(self) -> tuple[str, ...]:
        """Where the steps of a histogram begin."""
        return ("0", *(place.split()[0] for place in self.places[1:]))

    def at(self, point: Point) -> str:
        """Say where a point is, as the table does."""
        return _place(point, self.places)


def drawn(run: RunReport) -> tuple[Figure, ...]:
    """Return the figures of a run, in reading order; none where nothing was measured."""
    return tuple(figure for maker in MAKERS for figure in maker(run) if figure.series)


_OF_A_LENGTH = re.compile(r"(?:cold|warm|look|again)-length-[a-z0-9]+(?:-[0-9]+)?")
"""Steps of ``compile.recompilation`` that send one prompt of a length and nothing beside it."""


def sampled(feature: str, transcript: Iterable[Exchange]) -> Iterator[str]:
    """Yield the ids of a transcript that figures need besides the evidence: a verdict may rest on a few of many."""
    if feature == "compile.recompilation":
        yield from (exchange.id for exchange in transcript if _OF_A_LENGTH.fullmatch(exchange.step))


# --------------------------------------------------------------------------- latency and scaling


def latency(run: RunReport) -> Iterator[Figure]:
    """Yield first token, time between tokens and throughput by the number of requests at once."""
    for key, title, label, low_high in (
        (
            "ttft_at_{}_ms",
            "Time to the first token by requests at once",
            "ms",
            ("ttft_at_{}_low_ms", "ttft_at_{}_high_ms"),
        ),
        (
            "between_tokens_at_{}_ms",
            "Time between tokens by requests at once",
            "ms a token",
            ("between_tokens_at_{}_low_ms", "between_tokens_at_{}_high_ms"),
        ),
        (
            "tokens_per_s_at_{}",
            "Tokens per second by requests at once",
            "tokens/s, all together",
            ("tokens_per_s_at_{}_low", "tokens_per_s_at_{}_high"),
        ),
    ):
        series = []
        for name in _names(run):
            measured = _observed(run, "performance.latency", name)
            points = []
            for at_once in sorted({int(found[1]) for each in measured if (found := re.search(r"_at_(\d+)", each))}):
                value = _number(measured, key.format(at_once))
                if value is not None:
                    low, high = (_number(measured, each.format(at_once)) for each in low_high)
                    points.append(Point(x=at_once, y=value, low=low, high=high))
            if points:
                series.append(Series(name=name, points=tuple(points)))
        yield _figure(
            id=f"latency-{key.partition('_at_')[0].replace('_', '-')}",
            title=title,
            x_label="Requests at once",
            y_label=label,
            series=series,
            note="Medians with 95 % intervals."
            if low_high[0].endswith("_ms")
            else "Median of the rounds; the bars reach from the slowest to the quickest.",
            as_places=True,
        )


# --------------------------------------------------------------------------- first token by prompt length


def first_token(run: RunReport) -> Iterator[Figure]:
    """Yield the time to the first token by prompt length: the first request of a length, and later ones."""
    series = []
    for name in _names(run):
        cold: dict[int, list[float]] = {}
        warm: dict[int, list[float]] = {}
        for exchange in _sampled(run, "compile.recompilation", name):
            timed = _first(exchange)
            if timed is None:
                continue
            tokens, seconds = timed
            (cold if exchange.step.startswith("cold-") else warm).setdefault(tokens, []).append(seconds * 1000)
        warm = {tokens: times for tokens, times in warm.items() if tokens in cold}
        if len(cold) > 1:
            series.append(Series(name=f"{name}, first of its length", points=_medians(cold)))
        if len(warm) > 1:
            series.append(Series(name=f"{name}, later", points=_medians(warm), dashed=True))
    yield _figure(
        id="first-token",
        title="Time to the first token by prompt length",
        x_label="Prompt tokens",
        y_label="ms",
        series=series,
        note="The first request of a length may wait for a compilation; prompts differ, so that no cache helps.",
        log_x=True,
    )


def _first(exchange: Exchange) -> tuple[int, float] | None:
    """Return the prompt's tokens and the seconds to the first event that carries a choice."""
    answer = reply.chat(exchange)
    if not isinstance(answer, reply.Answer) or answer.usage is None or not answer.usage.prompt:
        return None
    events = [event for event in sse.events(exchange.chunks).events if event.data.strip() not in (b"", sse.DONE)]
    spoken = [event.at for event in events if b'"content":"' in event.data.replace(b": ", b":").replace(b'""', b"")]
    at = spoken[0] if spoken else events[0].at if events else None
    return (answer.usage.prompt, at) if at is not None else None


def _medians(times: Mapping[int, list[float]]) -> tuple[Point, ...]:
    return tuple(
        Point(x=tokens, y=median(found), low=min(found), high=max(found))
        if len(found) > 1
        else Point(x=tokens, y=found[0])
        for tokens, found in sorted(times.items())
    )


# --------------------------------------------------------------------------- one stream beside the other


def timeline(run: RunReport) -> Iterator[Figure]:
    """Yield when the pieces of one streamed answer arrived, on each endpoint."""
    series = []
    for name in _names(run):
        streams = (
            (exchange, [e.at for e in sse.events(exchange.chunks).events if e.data.strip() not in (b"", sse.DONE)])
            for exchange in _evidence(run, "streaming.incremental", name)
        )
        exchange, arrivals = max(streams, key=lambda found: len(found[1]), default=(None, []))
        if exchange is None or len(arrivals) < 3:
            continue
        step = max(1, math.ceil(len(arrivals) / _MOST_POINTS))
        kept = [*range(0, len(arrivals) - 1, step), len(arrivals) - 1]
        points = tuple(Point(x=round(arrivals[place], 4), y=place + 1) for place in kept)
        series.append(Series(name=name, points=points))
    yield _figure(
        id="stream-timeline",
        title="One stream as it arrived",
        x_label="Seconds since the request was sent",
        y_label="events",
        series=series,
        kind="steps",
        note="A straight climb is a stream; a step is text that was held back.",
        thinned=8,
    )


# --------------------------------------------------------------------------- parity


def histograms(run: RunReport) -> Iterator[Figure]:
    """Yield for each comparison of log probabilities how far they lie apart, over what each is from itself."""
    borders = [f"{edge:g} to {end:g}" for edge, end in itertools.pairwise(STEPS)]
    places = (f"below {STEPS[1]:g}", *borders[1:], f"{STEPS[-1]:g} or more")
    seen: Counter[str] = Counter()
    for compared in run.comparisons:
        between = _shares(compared.measured, "delta_from")
        if not between:
            continue
        seen[compared.feature] += 1
        own = _shares(compared.measured, "own_delta_from")
        number = f"-{seen[compared.feature]}" if seen[compared.feature] > 1 else ""
        said = [
            f"{_said(value)} nat {words}"
            for name, words in (("p50", "at the median"), ("p95", "at 95 %"), ("p99", "at 99 %"), ("max", "at most"))
            if (value := _number(compared.measured, f"delta_{name}_nat")) is not None
        ]
        yield _figure(
            id=f"histogram-{re.sub('[^a-z0-9]+', '-', compared.feature)}{number}",
            title=f"Log probabilities of {compared.right} against {compared.left}, {compared.feature}",
            x_label="How far apart (nat)",
            y_label="% of positions",
            series=[
                Series(name=f"{compared.left} and {compared.right}", points=between),
                *([Series(name="noise floor: each with itself", points=own, dashed=True)] if own else []),
            ],
            kind="histogram",
            places=places,
            note=(f"Apart by {', '.join(said)}. " if said else "")
            + (
                "What lies to the right of the noise floor is a difference between the two."
                if own
                else "Own noise was not measured."
            ),
            peak=True,
        )


def _shares(measured: Measured, name: str) -> tuple[Point, ...]:
    """Return the share of positions in each step of the histogram, in percent; nothing where there is none."""
    counted = [_number(measured, f"{name}_{edge:g}_nat") or 0.0 for edge in STEPS]
    whole = sum(counted)
    return tuple(Point(x=place, y=100 * each / whole) for place, each in enumerate(counted)) if whole else ()


def noise_floor(run: RunReport) -> Iterator[Figure]:
    """Yield the mean KL divergence of each comparison, beside what each side differs from itself.

    Reads what the comparison rows ``parity.*`` measured: ``kl`` with its interval, ``noise_kl``. What a row does not
    have is left out.
    """
    noise = []
    for compared in run.comparisons:
        if not compared.feature.startswith("parity."):
            continue
        pair = f"{compared.left} and {compared.right}, {compared.feature}"
        kl = _number(compared.measured, "kl")
        if kl is not None:
            noise.append((pair, kl, compared.measured))
    between = tuple(
        Point(x=place, y=value, low=_number(measured, "kl_low"), high=_number(measured, "kl_high"))
        for place, (_, value, measured) in enumerate(noise)
    )
    own = tuple(
        Point(x=place, y=floor)
        for place, (_, _, measured) in enumerate(noise)
        if (floor := _number(measured, "noise_kl")) is not None
    )
    yield _figure(
        id="parity-noise",
        title="KL divergence against the noise floor",
        x_label="Compared",
        y_label="nat",
        series=[
            Series(name="between the endpoints", points=between),
            *([Series(name="of an endpoint with itself", points=own, dashed=True)] if own else []),
        ]
        if between
        else [],
        kind="bars",
        places=tuple(pair for pair, *_ in noise),
        note="What does not stand out of the lower bar is not told apart from noise.",
    )


MAKERS: tuple[Callable[[RunReport], Iterable[Figure]], ...] = (
    latency,
    first_token,
    timeline,
    histograms,
    noise_floor,
)
"""What makes figures, in reading order."""


# --------------------------------------------------------------------------- shared


def _names(run: RunReport) -> tuple[str, ...]:
    return tuple(subject.name for subject in run.subjects)


def _observed(run: RunReport, feature: str, endpoint: str) -> Measured:
    cell = run.cell(feature, endpoint)
    return cell.observed[0].measured if cell is not None and cell.observed else {}


def _evidence(run: RunReport, feature: str, endpoint: str) -> Iterator[Exchange]:
    cell = run.cell(feature, endpoint)
    ids = dict.fromkeys(name for finding in (cell.findings if cell else ()) for name in finding.evidence)
    return _timed(run, ids)


def _sampled(run: RunReport, feature: str, endpoint: str) -> Iterator[Exchange]:
    ids = run.samples.get(row_key(feature, endpoint), ())
    return _timed(run, ids)


def _timed(run: RunReport, ids: Iterable[str]) -> Iterator[Exchange]:
    exchanges = run.exchanges if run.timed is None else run.timed
    return (exchanges[name] for name in ids if name in exchanges)


def _number(measured: Measured, name: str) -> float | None:
    value = measured.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _figure(
    *,
    id: str,  # noqa: A002 - the field's name
    title: str,
    x_label: str,
    y_label: str,
    series: list[Series],
    kind: str = "line",
    places: tuple[str, ...] = (),
    log_x: bool = False,
    note: str = "",
    as_places: bool = False,
    thinned: int = 0,
    peak: bool = False,
) -> Figure:
    """Make a figure with its table and its words. ``as_places`` sets the values of x side by side, evenly.

    ``peak`` says of each series where most of it lies, and how far it reaches, in place of its ends.
    """
    if as_places:
        values = sorted({point.x for one in series for point in one.points})
        places = tuple(f"{value:g}" for value in values)
        series = [
            Series(
                name=one.name,
                dashed=one.dashed,
                points=tuple(
                    Point(x=values.index(point.x), y=point.y, low=point.low, high=point.high) for point in one.points
                ),
            )
            for one in series
        ]
    return Figure(
        id=id,
        title=title,
        alt=_arrivals(title, series)
        if thinned
        else _peaks(title, y_label, series, places)
        if peak
        else _alt(title, x_label, y_label, series, places),
        x_label=x_label,
        y_label=y_label,
        series=tuple(series),
        table=_table(x_label, y_label, series, places, thinned),
        kind=kind,
        places=places,
        log_x=log_x,
        note=note,
    )


def _alt(title: str, x_label: str, y_label: str, series: list[Series], places: tuple[str, ...]) -> str:
    """Say a figure in a sentence: what each series begins and ends with."""
    said = []
    for one in series:
        first, last = one.points[0], one.points[-1]
        ends = f"{_said(first.y)} {y_label} at {_place(first, places)}"
        if len(one.points) > 1:
            ends += f", {_said(last.y)} {y_label} at {_place(last, places)}"
        said.append(f"{one.name}: {ends}")
    return f"{title}; across: {x_label[:1].lower()}{x_label[1:]}. {'; '.join(said)}."


def _peaks(title: str, y_label: str, series: list[Series], places: tuple[str, ...]) -> str:
    """Say a histogram in a sentence: where most lies, and the last step that has any."""
    said = []
    for one in series:
        most = max(one.points, key=lambda point: point.y)
        last = [point for point in one.points if point.y][-1]
        words = f"{one.name}: most, {_said(most.y)} {y_label}, {_place(most, places)} nat"
        if last is not most:
            words += f", and up to the step {_place(last, places)} nat"
        said.append(words)
    return f"{title}. {'; '.join(said)}."


def _arrivals(title: str, series: list[Series]) -> str:
    """Say a timeline in a sentence: when its first and its last event came."""
    said = [
        f"{one.name}: the first of {one.points[-1].y:,.0f} events after {_said(one.points[0].x)} s, "
        f"the last after {_said(one.points[-1].x)} s"
        for one in series
    ]
    return f"{title}. {'; '.join(said)}."


def _table(
    x_label: str, y_label: str, series: list[Series], places: tuple[str, ...], thinned: int
) -> tuple[tuple[str, ...], ...]:
    """Return the numbers: a line for every x, a column for every series; ``thinned`` lines of a long one."""
    if thinned:
        header = (y_label, *(f"{one.name} (s)" for one in series))
        most = int(max((one.points[-1].y for one in series), default=0))
        wanted = sorted({max(1, round(most * part / thinned)) for part in range(thinned + 1)})
        lines = [
            (str(y), *(next((_said(point.x) for point in one.points if point.y >= y), "–") for one in series))
            for y in wanted
        ]
        return (header, *lines)
    header = (x_label, *(f"{one.name} ({y_label})" for one in series))
    by_x = [{point.x: point for point in one.points} for one in series]
    lines = [
        (_place(Point(x=x, y=0), places), *(_bounded(found[x]) if x in found else "–" for found in by_x))
        for x in sorted({x for found in by_x for x in found})
    ]
    return (header, *lines)


def _place(point: Point, places: tuple[str, ...]) -> str:
    return places[int(point.x)] if places else _said(point.x)


def _bounded(point: Point) -> str:
    if point.low is None or point.high is None or (point.low == point.high == point.y):
        return _said(point.y)
    return f"{_said(point.y)} ({_said(point.low)} to {_said(point.high)})"


def _said(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
