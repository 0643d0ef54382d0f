"""A metric over a parameter, as lines with error bars; many lines are split into panels.

Drawn on matplotlib's own objects, without pyplot: no display, no global state, nothing to close.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import NothingMeasured, UnknownName, nearest, needs
from memory.benchmarking.tidy import COLUMNS, TIERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

MOST_LINES = 6
"""In one panel; more can't be told apart."""
MOST_PANELS = 12
MOST_IN_LEGEND = 30
LOG_FROM = 1.5
"""Decades between the smallest and the largest value."""

# Okabe and Ito's colours, which people with any colour vision can tell apart; without the faint yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "os^Dv<>P"
_DASHES = ("-", "--", ":", "-.")
_NAMES = ("run", "category", "benchmark", "target", "tier", "part")
"""The dimensions that are not parameters."""


@dataclass(frozen=True)
class _Line:
    label: str
    points: DataFrame
    style: int


def plot(frame: DataFrame, metric: str, x_axis: str | None = None) -> Figure:
    """Draw one metric of a table as `compare_results` makes it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise needs("matplotlib", "bench", "plotting") from None
    chosen = _select(frame, metric)
    parameters = [name for name in frame.columns if name not in COLUMNS]
    dimensions = [name for name in (*parameters, *_NAMES) if chosen[name].nunique() > 1]
    x = _x_column(chosen, x_axis, parameters)
    chosen = chosen.dropna(subset=[x]).sort_values(x, kind="stable")
    if chosen.empty:
        known = [name for name in parameters if chosen[name].notna().any()]
        raise UnknownName(f"no figure of {metric!r} has a {x_axis!r}: {nearest(x, known)}")
    others = [name for name in dimensions if name != x and chosen[name].nunique(dropna=False) > 1]
    if x in ("timestamp", "run_id"):
        others = [name for name in others if name != "run"]  # the axis says already which run it is
    panels_by, lines_by = _split(chosen, others)
    panels = _panels(chosen, panels_by, lines_by)

    across = min(len(panels), 3 if len(panels) > 4 else 2)
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(8 if across == 1 else 4.4 * across, 4.8 if down == 1 else 3.2 * down + 0.8))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for panel, each in zip(panels, axes.flat, strict=False):
        _draw(each, panels[panel], x)
        each.set_title(_safe(panel), fontsize="medium")
        each.grid(True, alpha=0.25)
    for number, each in enumerate(axes.flat):
        if number >= len(panels):
            each.set_visible(False)
        elif number + across >= len(panels):
            # The lowest of its column, also where the last row is not full.
            each.set_xlabel(_safe(x))
            each.tick_params(axis="x", labelbottom=True)
    _scale(axes[0][0], chosen, x)
    unit = next((unit for unit in chosen["unit"] if unit), "")
    figure.supylabel(_safe(f"{metric} [{unit}]" if unit else metric))
    names = (chosen["category"] + "." + chosen["benchmark"]).unique()
    figure.suptitle(_safe(", ".join(names[:3]) + (" …" if len(names) > 3 else "")))
    _legend(figure, panels)
    return figure


def _select(frame: DataFrame, metric: str) -> DataFrame:
    import pandas as pd

    if frame.empty:
        raise NothingMeasured("there is nothing to plot: no result has figures")
    chosen = frame[frame["metric"] == metric].copy()
    if chosen.empty:
        raise UnknownName(f"no result has the metric {metric!r}: {nearest(metric, frame['metric'])}")
    # In the order of the tiers, not of their letters.
    known = [tier for tier in TIERS if tier in set(chosen["tier"])]
    chosen["tier"] = chosen["tier"].astype(pd.CategoricalDtype(known, ordered=True))
    # A result that was saved by hand is a run of its own, told from the others by its time.
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
    """Which dimensions get panels of their own, so that no panel has too many lines."""
    panels: list[str] = []
    lines = list(others)

    def count(names: list[str]) -> int:
        return len(chosen[names].drop_duplicates()) if names else 1

    while count(lines) > MOST_LINES:
        fitting = [name for name in lines if count([*panels, name]) <= MOST_PANELS]
        if not fitting:
            break
        # The one that leaves the fewest lines in a panel; runs and targets are best seen side by side.
        fitting.sort(
            key=lambda name: (name in ("run", "target"), count([line for line in lines if line != name]))
        )
        panels.append(fitting[0])
        lines.remove(fitting[0])
    return panels, lines


def _panels(chosen: DataFrame, panels_by: list[str], lines_by: list[str]) -> dict[str, list[_Line]]:
    """The lines of each panel; the same label has the same style in all of them."""
    panels: dict[str, list[_Line]] = {}
    styles: dict[str, int] = {}
    for panel, part in _groups(chosen, panels_by):
        for label, points in _groups(part, lines_by):
            style = styles.setdefault(label, len(styles))
            panels.setdefault(panel, []).append(_Line(label, points, style))
    return panels


def _groups(frame: DataFrame, names: list[str]) -> list[tuple[str, DataFrame]]:
    if not names:
        return [("", frame)]
    found = []
    for values, part in frame.groupby(names, dropna=False, sort=True, observed=True):
        words = [_word(name, value) for name, value in zip(names, values, strict=True)]
        found.append((", ".join(filter(None, words)) or "—", part))
    return found


def _word(name: str, value: Any) -> str:
    if value is None or value != value or str(value) in ("", "<NA>"):
        return "" if name == "part" else f"no {name}"
    return str(value) if name in _NAMES else f"{name} {value}"


def _draw(axes: Axes, lines: list[_Line], x: str) -> None:
    styles = list(product(_DASHES, range(len(_COLOURS))))
    for line in lines:
        dash, colour = styles[line.style % len(styles)]
        points = line.points
        values = points["value"].to_numpy(dtype=float)
        below = (points["value"] - points["low"]).fillna(0).clip(lower=0).to_numpy(dtype=float)
        above = (points["high"] - points["value"]).fillna(0).clip(lower=0).to_numpy(dtype=float)
        axes.errorbar(
            _positions(points, x),
            values,
            yerr=[below, above],
            label=_safe(line.label),
            color=_COLOURS[colour],
            linestyle=dash,
            marker=_MARKERS[line.style % len(_MARKERS)],
            markersize=4,
            linewidth=1.4,
            capsize=2.5,
        )


def _positions(points: DataFrame, x: str) -> Any:
    if x == "timestamp":
        return points[x].to_numpy()
    if _is_number(points, x):
        return points[x].to_numpy(dtype=float)
    return [_safe(str(value)) or "—" for value in points[x]]


def _is_number(points: DataFrame, x: str) -> bool:
    return x not in (*_NAMES, "run_id", "timestamp")


def _scale(axes: Axes, chosen: DataFrame, x: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    if _spans_decades(chosen["value"].tolist()):
        axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if _is_number(chosen, x):
        numbers = sorted({float(value) for value in chosen[x]})
        if _spans_decades(numbers):
            axes.set_xscale("log")
        if len(numbers) <= 8:
            # What was measured is what the axis names, not the powers between.
            axes.set_xticks(numbers, [f"{number:,g}" for number in numbers])
            axes.xaxis.set_minor_formatter(NullFormatter())
    elif x == "timestamp" or sum(map(len, {str(value) for value in chosen[x]})) > 30:
        for each in axes.figure.get_axes():
            each.tick_params(axis="x", labelrotation=30, labelsize="small")
            for label in each.get_xticklabels():
                label.set_horizontalalignment("right")


def _spans_decades(values: list[float]) -> bool:
    return bool(values) and min(values) > 0 and math.log10(max(values) / min(values)) > LOG_FROM


def _legend(figure: Figure, panels: dict[str, list[_Line]]) -> None:
    handles: dict[str, Any] = {}
    for axes in figure.get_axes():
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if len(handles) < 2:
        return
    shown = list(handles)[:MOST_IN_LEGEND]
    lines = [handles[label] for label in shown]
    if len(handles) <= 4 and len(panels) == 1:
        figure.get_axes()[0].legend(lines, shown, fontsize="small")
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
        fontsize="small",
    )


def _safe(text: str) -> str:
    """Text that matplotlib draws as it is: a dollar sign would start a formula, `_` hide it in a legend."""
    cleaned = "".join(letter if letter.isprintable() else "�" for letter in text)
    return (" " if cleaned.startswith("_") else "") + cleaned.replace("$", r"\$")
