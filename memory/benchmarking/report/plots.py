"""Plot a metric over a parameter, as lines with error bars; many lines are split into panels.

If no parameter varies, the figures are listed below each other, each with its name. This module uses
matplotlib's objects without pyplot, so it needs no display and has no global state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from memory.benchmarking.errors import NothingMeasured, UnknownName, nearest, needs
from memory.benchmarking.model.paths import ROW_COLUMNS, TIERS
from memory.benchmarking.report.charts import fitting_scale
from memory.benchmarking.report.gather import plain, short_name, words
from memory.benchmarking.report.palette import COLOURS
from memory.benchmarking.report.ticks import axis_label
from memory.benchmarking.text.display import clean, in_other_unit, unit_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

MOST_LINES = 6
"""The largest number of lines in one panel; more lines could not be distinguished."""
MOST_PANELS = 12
MOST_IN_LEGEND = 30
MOST_NAMES = 60
"""The largest number of figures that are listed below each other."""

_MARKERS = "os^Dv<>P"
_DASHES = ("-", "--", ":", "-.")
_NAMES = ("run", "category", "benchmark", "target", "tier", "part")
"""The dimensions that are not parameters."""
_LARGE, _NORMAL, _SMALL = 10, 9, 8
"""Font sizes in points, as in the text of most papers."""
_ASIDE = 0.009
"""Distance between the points of different lines at the same x, as a share of the axis length."""


@dataclass(frozen=True)
class _PlotLine:
    label: str
    points: DataFrame
    style: int


def plot(frame: DataFrame, metric: str, x_axis: str | None = None) -> Figure:
    """Plot one metric of a table that `compare_results` returned."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise needs("matplotlib", "bench", "plotting") from None
    chosen = _select(frame, metric)
    parameters = [name for name in frame.columns if name not in ROW_COLUMNS]
    dimensions = [name for name in (*parameters, *_NAMES) if chosen[name].nunique() > 1]
    x = _x_column(chosen, x_axis, parameters)
    chosen = chosen.dropna(subset=[x]).sort_values(x, kind="stable")
    if chosen.empty:
        known = [name for name in parameters if chosen[name].notna().any()]
        raise UnknownName(f"no figure of {metric!r} has a {x_axis!r}: {nearest(x, known)}")
    others = [name for name in dimensions if name != x and chosen[name].nunique(dropna=False) > 1]
    if x in ("timestamp", "run_id"):
        others = [name for name in others if name != "run"]  # the x axis already shows the run
    label = _in_readable_units(chosen, metric)
    figure = Figure()
    figure.set_layout_engine("constrained")
    if x_axis is None and x == "run" and chosen["run"].nunique() == 1 and others:
        _draw_names(figure, chosen, others, label)
    else:
        _draw_lines(figure, chosen, x, others, label)
    names = (chosen["category"] + "." + chosen["benchmark"]).unique()
    title = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    figure.suptitle(_safe(title), fontsize=_LARGE)
    return figure


def _draw_lines(figure: Figure, chosen: DataFrame, x: str, others: list[str], label: str) -> None:
    panels_by, lines_by = _split(chosen, others)
    panels = _panels(chosen, panels_by, lines_by)
    across = min(len(panels), 3 if len(panels) > 4 else 2)
    down = math.ceil(len(panels) / across)
    figure.set_size_inches(5.2 if across == 1 else 3.4 * across, 3.5 if down == 1 else 2.4 * down + 0.6)
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    _scale(axes[0][0], chosen, x)
    for panel, each in zip(panels, axes.flat, strict=False):
        _draw(each, panels[panel], x)
        each.set_title(_safe(panel), fontsize=_NORMAL)
        _plain_frame(each, "both" if _is_number(chosen, x) else "y")
    for number, each in enumerate(axes.flat):
        if number >= len(panels):
            each.set_visible(False)
        elif number + across >= len(panels):
            # Label the lowest panel of each column, even if the last row is not full.
            each.set_xlabel(_safe(plain(x)), fontsize=_NORMAL)
            each.tick_params(axis="x", labelbottom=True)
    _set_ticks(axes[0][0], chosen, x)
    figure.supylabel(_safe(label), fontsize=_NORMAL)
    _legend(figure, panels)


def _draw_names(figure: Figure, chosen: DataFrame, others: list[str], label: str) -> None:
    """Draw a row for each name, with its figure and interval."""
    groups = _groups(chosen, others)[:MOST_NAMES]
    figure.set_size_inches(5.2, 0.9 + 0.22 * max(4, len(groups)))
    axes = figure.subplots()
    for place, (_, points) in enumerate(groups):
        values, below, above = _bounds(points)
        axes.errorbar(
            values, [place] * len(values), xerr=[below, above], color=COLOURS[0], marker="o",
            markersize=4.5, linestyle="", elinewidth=1.1, capsize=2.5,
        )  # fmt: skip
    axes.set_yticks(range(len(groups)), [_safe(name) for name, _ in groups], fontsize=_SMALL)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    values = chosen["value"].tolist()
    if fitting_scale(values) == "log":
        axes.set_xscale("log")
    elif min(values) >= 0:
        axes.set_xlim(0, max(max(values), float(chosen["high"].max())) * 1.05 or 1.0)
    _plain_frame(axes, "x")
    axes.set_xlabel(_safe(label), fontsize=_NORMAL)


def _in_readable_units(chosen: DataFrame, metric: str) -> str:
    """Convert the figures, in place, to the unit that fits the largest one; return the axis label."""
    unit = next((unit for unit in chosen["unit"] if unit), "")
    shown = unit_for(float(chosen["value"].abs().max()), unit)
    for name in ("value", "low", "high"):
        chosen[name] = [in_other_unit(float(value), unit, shown) for value in chosen[name]]
    name = f"{short_name(metric)} time" if metric in ("p50_ms", "mean_ms") else short_name(metric)
    return axis_label(name, shown)


def _plain_frame(axes: Axes, grid: Literal["both", "x", "y"]) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, axis=grid, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=_SMALL)


def _select(frame: DataFrame, metric: str) -> DataFrame:
    import pandas as pd

    if frame.empty:
        raise NothingMeasured("there is nothing to plot: no result has figures")
    chosen = frame[frame["metric"] == metric].copy()
    if chosen.empty:
        raise UnknownName(f"no result has the metric {metric!r}: {nearest(metric, frame['metric'])}")
    # Sort by the order of the tiers, not by the alphabet.
    known = [tier for tier in TIERS if tier in set(chosen["tier"])]
    chosen["tier"] = chosen["tier"].astype(pd.CategoricalDtype(known, ordered=True))
    # A result that was saved by hand counts as its own run, named by its time.
    by_hand = chosen["timestamp"].dt.strftime("%Y-%m-%d %H:%M:%S").fillna("")
    chosen["run"] = chosen["run_id"].where(chosen["run_id"] != "", by_hand)
    return chosen


def _x_column(chosen: DataFrame, x_axis: str | None, parameters: list[str]) -> str:
    if x_axis is not None:
        known = [*parameters, *_NAMES, "run_id", "timestamp"]
        if x_axis not in known:
            raise UnknownName(f"there is no column {x_axis!r} to plot over: {nearest(x_axis, known)}")
        return x_axis
    spread = {name: chosen[name].nunique() for name in parameters}
    best = max(reversed(spread), key=lambda name: spread[name], default="")
    return best if best and spread[best] > 1 else "run"


def _split(chosen: DataFrame, others: list[str]) -> tuple[list[str], list[str]]:
    """Split dimensions into two lists, for panels and for lines, so that no panel has too many lines."""
    panels: list[str] = []
    lines = list(others)

    def count(names: list[str]) -> int:
        return len(chosen[names].drop_duplicates()) if names else 1

    while count(lines) > MOST_LINES:
        fitting = [name for name in lines if count([*panels, name]) <= MOST_PANELS]
        if not fitting:
            break
        # Choose the dimension that leaves the fewest lines; keep runs and targets together in a panel.
        fitting.sort(
            key=lambda name: (name in ("run", "target"), count([line for line in lines if line != name]))
        )
        panels.append(fitting[0])
        lines.remove(fitting[0])
    return panels, lines


def _panels(chosen: DataFrame, panels_by: list[str], lines_by: list[str]) -> dict[str, list[_PlotLine]]:
    """Return the lines of each panel. The same label has the same style in all panels."""
    panels: dict[str, list[_PlotLine]] = {}
    styles: dict[str, int] = {}
    for panel, part in _groups(chosen, panels_by):
        for label, points in _groups(part, lines_by):
            style = styles.setdefault(label, len(styles))
            panels.setdefault(panel, []).append(_PlotLine(label, points, style))
    return panels


def _groups(frame: DataFrame, names: list[str]) -> list[tuple[str, DataFrame]]:
    if not names:
        return [("", frame)]
    found = []
    for values, part in frame.groupby(names, dropna=False, sort=True, observed=True):
        known = [None if _is_missing(value) else value for value in values]
        # The names of runs and targets stay as they are; `words` would change them.
        labels = [
            str(value) if name in ("run", "target") and value is not None else words(value, names=(name,))
            for name, value in zip(names, known, strict=True)
        ]
        found.append((", ".join(filter(None, labels)) or "—", part))
    return found


def _is_missing(value: Any) -> bool:
    # First by its text: comparing a missing value of pandas (`<NA>`) raises.
    return value is None or str(value) in ("", "<NA>") or value != value


def _draw(axes: Axes, lines: list[_PlotLine], x: str) -> None:
    styles = list(product(_DASHES, range(len(COLOURS))))
    for number, line in enumerate(lines):
        dash, colour = styles[line.style % len(styles)]
        values, below, above = _bounds(line.points)
        axes.errorbar(
            _aside(axes, _positions(line.points, x), number - (len(lines) - 1) / 2),
            values,
            yerr=[below, above],
            label=_safe(line.label),
            color=COLOURS[colour],
            linestyle=dash,
            marker=_MARKERS[line.style % len(_MARKERS)],
            markersize=4.5,
            linewidth=1.4,
            elinewidth=1.0,
            capsize=2.5,
        )


def _bounds(points: DataFrame) -> tuple[Any, Any, Any]:
    """Return the values, and the lengths of their intervals below and above each value."""
    values = points["value"].to_numpy(dtype=float)
    below = (points["value"] - points["low"]).fillna(0).clip(lower=0).to_numpy(dtype=float)
    above = (points["high"] - points["value"]).fillna(0).clip(lower=0).to_numpy(dtype=float)
    return values, below, above


def _aside(axes: Axes, positions: Any, steps: float) -> Any:
    """Shift numbers by `steps` × `_ASIDE`, so that intervals at the same x do not cover each other."""
    if not steps or isinstance(positions, list) or positions.dtype.kind != "f":
        return positions
    low, high = axes.get_xlim()
    if axes.get_xscale() == "log":
        return positions * (high / low) ** (_ASIDE * steps)
    return positions + (high - low) * _ASIDE * steps


def _positions(points: DataFrame, x: str) -> Any:
    if x == "timestamp":
        return points[x].to_numpy()
    if _is_number(points, x):
        return points[x].to_numpy(dtype=float)
    return [_safe(str(value)) or "—" for value in points[x]]


def _is_number(points: DataFrame, x: str) -> bool:
    return x not in (*_NAMES, "run_id", "timestamp")


def _scale(axes: Axes, chosen: DataFrame, x: str) -> None:
    """Set the scales and limits, before anything is drawn."""
    values = chosen["value"].tolist()
    if fitting_scale(values) == "log":
        axes.set_yscale("log")
        axes.set_ylim(*_limits(chosen, min(values) / 3, max(values) * 3))
    else:
        spread = max(abs(value) for value in values) or 1.0
        low = 0.0 if min(values) >= 0 else min(values) - spread / 2
        axes.set_ylim(*_limits(chosen, low, max(values) + spread / 2))
    if _is_number(chosen, x):
        numbers = sorted({float(value) for value in chosen[x]})
        if fitting_scale(numbers) == "log":
            axes.set_xscale("log")
            axes.set_xlim(numbers[0] / 1.3, numbers[-1] * 1.3)
        elif len(numbers) > 1:
            margin = (numbers[-1] - numbers[0]) * 0.06
            axes.set_xlim(numbers[0] - margin, numbers[-1] + margin)


def _limits(chosen: DataFrame, least: float, most: float) -> tuple[float, float]:
    """Return limits of y that include the intervals, but only as far as `least` and `most`."""
    low = min(float(chosen["low"].min()), float(chosen["value"].min()))
    high = max(float(chosen["high"].max()), float(chosen["value"].max()))
    low = least if math.isnan(low) else max(low, least)
    high = most if math.isnan(high) else min(high, most)
    if least <= 0:
        return (0.0 if least == 0 else low, high + (high - low) * 0.05)
    return low / 1.1, high * 1.1


def _set_ticks(axes: Axes, chosen: DataFrame, x: str) -> None:
    """Set the ticks and their texts."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if _is_number(chosen, x):
        numbers = sorted({float(value) for value in chosen[x]})
        if len(numbers) <= 8:
            # Put the ticks at the measured values, not at powers of ten.
            axes.set_xticks(numbers, [f"{number:,g}" for number in numbers])
            axes.xaxis.set_minor_formatter(NullFormatter())
    elif x == "timestamp" or sum(map(len, {str(value) for value in chosen[x]})) > 30:
        for each in axes.figure.get_axes():
            each.tick_params(axis="x", labelrotation=30, labelsize=_SMALL)
            for label in each.get_xticklabels():
                label.set_horizontalalignment("right")


def _legend(figure: Figure, panels: dict[str, list[_PlotLine]]) -> None:
    handles: dict[str, Any] = {}
    for axes in figure.get_axes():
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if len(handles) < 2:
        return
    shown = list(handles)[:MOST_IN_LEGEND]
    lines = [handles[label] for label in shown]
    if len(handles) <= 4 and len(panels) == 1:
        figure.get_axes()[0].legend(lines, shown, fontsize=_SMALL, frameon=False)
        return
    width, height = figure.get_size_inches()
    columns = max(1, min(len(shown), int(width * 12 / (max(map(len, shown)) + 6))))
    figure.set_size_inches(width, height + 0.2 * math.ceil(len(shown) / columns) + 0.2)
    figure.legend(
        lines,
        shown,
        title=f"{len(shown)} of {len(handles)} lines" if len(handles) > len(shown) else None,
        loc="outside lower center",
        ncols=columns,
        fontsize=_SMALL,
        title_fontsize=_SMALL,
        frameon=False,
    )


def _safe(text: str) -> str:
    """Escape a text for matplotlib: `$` would start a formula; a first `_` would hide a legend entry."""
    return (" " if text.startswith("_") else "") + clean(text).replace("$", r"\$")
