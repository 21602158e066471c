"""Figure → SVG with matplotlib, where that is installed; without it a report has the numbers as tables and no pictures.

A picture is the same for the same figure, holds its words as text, and is legible on light and on dark: its ink is the
text colour of the page, or follows the reader's scheme where the file stands alone.
"""

from __future__ import annotations

import importlib.util
import io
import re
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from servecheck.report.figures import Figure

__all__ = ["available", "inline", "standalone"]

_INK = "#010203"
_COLOURS = ("#2f81f7", "#d9730d", "#2da44e", "#a475f9", "#bf8700", "#e5534b")
"""Each stands out of white and of near black by 3:1; markers and dashes tell the series apart where colours do not."""

_MARKERS = "osD^vP"
_SIZE = (7.2, 3.4)
_ROOM = 90
"""Characters that fit side by side under a picture."""

_STYLE = "svg{color:#1f2328;background:#fff}@media(prefers-color-scheme:dark){svg{color:#e6edf3;background:#0d1117}}"


def available() -> bool:
    """Tell whether pictures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def inline(figure: Figure) -> str:
    """Return an ``svg`` element for a page: its ink is ``currentColor``, its ids are its own."""
    return _named(_svg(figure), figure, "")


def standalone(figure: Figure) -> str:
    """Return an SVG file, with a ground of its own in either scheme."""
    return _named(_svg(figure), figure, f"<style>{_STYLE}</style>") + "\n"


def _named(svg: str, figure: Figure, style: str) -> str:
    """Give the picture its name and its description, for those who do not see it."""
    words = f'<title id="{figure.id}-title">{escape(figure.title)}</title>'
    words += f'<desc id="{figure.id}-desc">{escape(figure.alt)}</desc>{style}'
    start = re.match(r"<svg[^>]*>", svg)
    assert start is not None
    head = start.group()[:-1] + f' role="img" aria-labelledby="{figure.id}-title {figure.id}-desc">'
    return head + words + svg[start.end() :]


def _svg(figure: Figure) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    settings: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": figure.id,
        "svg.id": figure.id,
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": _INK,
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "text.parse_math": False,  # a name with a dollar sign is no formula
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(settings):
        canvas = Canvas(figsize=_SIZE, layout="constrained")
        FigureCanvasSVG(canvas)
        axes = canvas.add_subplot()
        _draw(axes, figure)
        out = io.StringIO()
        canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _tidied(out.getvalue(), figure.id)


def _draw(axes: Any, figure: Figure) -> None:  # noqa: ANN401 - matplotlib may not be installed
    width = 0.8 / max(1, len(figure.series))
    hue = -1
    for number, series in enumerate(figure.series):
        hue += not series.dashed or number == 0  # dashed is of the same endpoint as the one before
        colour, marker = _COLOURS[hue % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
        x, y = [point.x for point in series.points], [point.y for point in series.points]
        # A dash: matplotlib leaves a label out of the legend where it begins with an underscore.
        label = f"\u200b{series.name}" if series.name.startswith("_") else series.name
        if figure.kind == "histogram" and series.dashed:
            edges = [x[0] - 0.5, *(at + 0.5 for at in x)]
            axes.stairs(y, edges, color=_INK, linestyle="--", linewidth=1.6, label=label)
        elif figure.kind == "histogram":
            axes.bar(x, y, 1.0, color=colour, alpha=0.75, edgecolor=colour, label=label)
        elif figure.kind == "bars":
            shift = (number - (len(figure.series) - 1) / 2) * width
            x = [at + shift for at in x]
            axes.bar(
                *(x, y, width * 0.92),
                color=(colour, 0.3 if series.dashed else 0.9),
                edgecolor=colour,
                hatch="///" if series.dashed else None,
                label=label,
            )
        elif figure.kind == "steps":
            marks = {"marker": marker, "markersize": 5, "markevery": max(1, len(x) // 8)}
            axes.step(x, y, where="post", color=colour, label=label, **marks)
        else:
            style = "--" if series.dashed else "-"
            if figure.places:  # side by side, so that no interval covers another
                x = [at + (number - (len(figure.series) - 1) / 2) * 0.05 for at in x]
            axes.plot(x, y, color=colour, marker=marker, markersize=5, linestyle=style, label=label)
        if any(point.low is not None and point.high is not None for point in series.points):
            spread = [
                [max(0.0, point.y - (point.y if point.low is None else point.low)) for point in series.points],
                [max(0.0, (point.y if point.high is None else point.high) - point.y) for point in series.points],
            ]
            ink = _INK if figure.kind == "bars" else colour
            axes.errorbar(x, y, yerr=spread, fmt="none", ecolor=ink, capsize=3, elinewidth=1)
    if figure.log_x:
        axes.set_xscale("log", base=2)
        ticks = sorted({point.x for series in figure.series for point in series.points})
        apart: list[float] = []
        for tick in ticks:  # endpoints count the same prompt a token differently
            if not apart or tick > 1.2 * apart[-1]:
                apart.append(tick)
        axes.set_xticks(apart, [f"{tick:,.0f}" for tick in apart])
        axes.minorticks_off()
    elif figure.kind == "histogram":
        axes.set_xticks([place - 0.5 for place in range(len(figure.borders))], figure.borders)
        axes.set_xlim(-0.5, len(figure.places) - 0.5)
    elif figure.places:
        narrow = sum(map(len, figure.places)) < _ROOM
        axes.set_xticks(range(len(figure.places)), figure.places, **({} if narrow else {"rotation": 20, "ha": "right"}))
        if figure.kind == "bars":
            spare = max(0.0, (3 - len(figure.places)) / 2)  # a bar alone would fill the picture
            axes.set_xlim(-0.5 - spare, len(figure.places) - 0.5 + spare)
    axes.set_ylim(bottom=0)
    if figure.kind == "steps":
        axes.yaxis.get_major_locator().set_params(integer=True)  # events are counted
    elif axes.get_ylim()[1] >= 1000:
        axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.grid(axis="y", alpha=0.25, color=_INK, linewidth=0.6)
    axes.set_axisbelow(True)
    if figure.series:  # above the axes: inside, it would lie on somebody's line
        columns = 1 if max(len(series.name) for series in figure.series) > _ROOM / 2 else 2
        axes.figure.legend(frameon=False, loc="outside upper left", fontsize=9, ncols=columns)


def _tidied(svg: str, name: str) -> str:
    """Return the element alone: no prolog and metadata, ink as the page's, styles and ids that stay inside."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<style type="text/css">[^<]*</style>', "", svg)
    svg = svg.replace(_INK, "currentColor").replace("\u200b", "")
    # Ids of axes and ticks are the same in every picture, and a page has several.
    svg = re.sub(r'\bid="(?!' + re.escape(name) + r')([^"]*)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)(?!' + re.escape(name) + r")", rf"\g<1>{name}-", svg)
    return re.sub(r"[ \t]+\n", "\n", svg)
