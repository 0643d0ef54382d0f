"""A history as a picture: a panel for each series, with intervals, levels and changes.

It uses matplotlib's objects without pyplot, so it needs no display and has no global state.
"""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from memory.benchmarking.errors import InvalidBenchmarkConfig, needs
from memory.benchmarking.text.display import clean
from memory.benchmarking.verdicts.history import Series
from memory.benchmarking.verdicts.history_text import change_text, date_texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PANELS = 12
_POINTS, _LEVEL = "#0072B2", "#000000"
_CHANGE = {"worse": "#D55E00", "better": "#009E73", "neither": "#CC79A7"}
"""Okabe and Ito's colours, which people with any colour vision can distinguish."""


def history_picture(series: Sequence[Series]) -> bytes:
    """Return a PNG image with a panel for each series."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise needs("matplotlib", "bench", "drawing a history") from None
    if len(series) > MOST_PANELS:
        raise InvalidBenchmarkConfig(
            f"the pattern fits {len(series)} series: a picture has {MOST_PANELS} at most; narrow it"
        )
    across = 1 if len(series) <= 3 else 2
    down = math.ceil(len(series) / across)
    figure = Figure(figsize=(9 if across == 1 else 14, 3.2 * down + 0.4))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for number, each in enumerate(axes.flat):
        if number < len(series):
            _draw(each, series[number])
        else:
            each.set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _draw(axes: Axes, series: Series) -> None:
    places = range(len(series.points))
    values = series.values
    below = [max(0.0, point.value - point.low) if point.low is not None else 0 for point in series.points]
    above = [max(0.0, point.high - point.value) if point.high is not None else 0 for point in series.points]
    axes.errorbar(
        places, values, yerr=[below, above], fmt="o", markersize=4, elinewidth=0.8, color=_POINTS, alpha=0.8
    )
    for start, end in pairwise([0, *(change.index for change in series.changes), len(values)]):
        level = statistics.median(values[start:end])
        axes.plot([start - 0.4, end - 0.6], [level, level], color=_LEVEL, linewidth=1.2)
    for change in series.changes:
        axes.axvline(
            change.index - 0.5,
            color=_CHANGE[change.direction],
            linestyle="--",
            linewidth=1.2,
            label=_safe(change_text(change, series)),
        )
    if series.changes:
        axes.legend(fontsize="small", loc="best")
    _frame(axes, series)


def _frame(axes: Axes, series: Series) -> None:
    # The axis covers the figures and not the intervals: one wide interval would flatten all figures.
    low, high = min(series.values), max(series.values)
    room = (high - low) * 0.35 or abs(high) * 0.05 or 1.0
    axes.set_ylim(low - room, high + room)
    axes.set_title(_safe(f"{series.name} on {series.target}: {series.path}"), fontsize="medium")
    axes.set_ylabel(_safe(series.unit))
    step = max(1, len(series.points) // 8)
    ticks = list(range(0, len(series.points), step))
    texts = date_texts([series.points[place].started_at for place in ticks], shortest=10)
    axes.set_xticks(ticks, [_safe(text).replace("T", "\n") for text in texts], fontsize="small")
    axes.grid(True, alpha=0.25)


def _safe(text: str) -> str:
    """Return text with dollar signs escaped: they would start a formula."""
    return clean(text).replace("$", r"\$")
