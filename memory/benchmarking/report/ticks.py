"""Lay out an axis: its scale, its ticks and their texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.errors import needs
from memory.benchmarking.report.charts import Axis
from memory.benchmarking.text.display import distinct_texts, in_other_unit, unit_for

ABOUT = 5
"""Approximate number of ticks of an axis whose ticks are at round numbers."""
MOST_GIVEN = 8
"""An axis with at most this many measured sizes has its ticks at these sizes, not at round numbers."""
_NINES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_UNIT_WORDS = {"/s": "per second", "/MB": "per MB", "×": "ratio"}
_TINY = 1e-200
"""A smaller span counts as 0: a division by it could overflow a float."""
_DIGITS = 4
"""Significant digits of a tick; more only if two ticks would otherwise have the same text."""
_THOUSANDS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class AxisLayout:
    """An axis as it is drawn. `place` maps a value to pixels; the ticks have these `values` and `texts`."""

    place: Callable[[float], float]
    values: list[float]
    texts: list[str]
    label: str
    minor: list[float]
    """Values of grid lines without a text, between the decades of a logarithmic axis."""


def load_d3() -> Any:
    """Import `detroit`, a Python version of D3; if it is missing, raise an error that names the extra."""
    try:
        import detroit
    except ImportError:
        raise needs("detroit", "bench", "drawing charts") from None
    return detroit


def lay_out_axis(
    axis: Axis, values: Sequence[float], start: float, end: float, about: int = ABOUT
) -> AxisLayout:
    """Lay out an axis for these values, from pixel `start` to pixel `end`, with about `about` ticks."""
    if axis.scale == "names":
        return _names(axis, start, end)
    if axis.scale == "nines":
        return _nines(axis, values, start, end)
    if axis.scale == "log":
        return _log(axis, values, start, end, about)
    return _linear(axis, values, start, end, about)


def _linear(axis: Axis, values: Sequence[float], start: float, end: float, about: int) -> AxisLayout:
    d3 = load_d3()

    low = min(values, default=0.0) if axis.low is None else axis.low
    high = max(values, default=1.0) if axis.high is None else axis.high
    if axis.low is None and low >= 0 and not axis.ticks:
        low = 0.0  # readers compare lengths, which is valid only from 0
    if high - low < _TINY:
        low, high = (low - 1, high + 1) if low < 0 else (0.0, high if high > _TINY else 1.0)
    scale = d3.scale_linear([low, high], [start, end])
    if axis.low is None or axis.high is None:
        scale = scale.nice(about)
    unit = unit_for(max(abs(low), abs(high)), axis.unit)
    given = 0 < len(axis.ticks) <= MOST_GIVEN
    chosen = [float(value) for value in (axis.ticks if given else scale.ticks(about))]
    shown = [in_other_unit(value, axis.unit, unit) for value in chosen]
    return AxisLayout(_rounded(scale), chosen, _same_decimals(shown), axis_label(axis.label, unit), [])


def _log(axis: Axis, values: Sequence[float], start: float, end: float, about: int) -> AxisLayout:
    d3 = load_d3()

    positive = [value for value in values if value > 0] or [1.0]
    low = min(positive) if axis.low is None else axis.low
    high = max(positive) if axis.high is None else axis.high
    if axis.ticks:
        low, high = low / 1.15, high * 1.15
    elif low == high:
        low, high = low / 2, high * 2
    scale = d3.scale_log([low, high], [start, end])
    decades = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    if 0 < len(axis.ticks) <= MOST_GIVEN:
        chosen = [*axis.ticks]
    else:
        chosen = [value for value in decades if low <= value <= high]
        if len(chosen) < 3:
            chosen = [v * f for v in decades for f in (1, 2, 5) if low <= v * f <= high]
        if len(chosen) < 3:
            chosen = [float(value) for value in d3.scale_linear([low, high], [0, 1]).ticks(about)]
        chosen = _thin_out(chosen, about + 1)
    minor = [v * f for v in decades for f in range(1, 10) if low <= v * f <= high and v * f not in chosen]
    units = {unit_for(value, axis.unit) for value in chosen}
    one = units.pop() if len(units) == 1 else None
    texts = distinct_texts(
        chosen,
        lambda value, digits: (
            short_number(in_other_unit(value, axis.unit, one), digits)
            if one is not None
            else _with_unit(value, axis.unit, digits)
        ),
        _DIGITS,
    )
    # A logarithmic axis can't show a bound that is 0 or negative: place such a bound far below the axis.
    place = _rounded(scale)
    return AxisLayout(
        lambda value: place(max(value, low / 1e3)), chosen, texts, axis_label(axis.label, one or ""), minor
    )


def _nines(axis: Axis, values: Sequence[float], start: float, end: float) -> AxisLayout:
    """Lay out percentiles on a scale of nines, which gives the tail more room."""
    d3 = load_d3()

    last = max(values, default=0.99)
    scale = d3.scale_linear([0.0, nines(last)], [start, end])
    chosen = [share for share in _NINES if share <= last]
    return AxisLayout(
        lambda share: round(float(scale(nines(share))), 1),
        chosen,
        ["min" if share == 0 else f"{share * 100:.10g} %" for share in chosen],
        axis.label,
        [],
    )


def nines(share: float) -> float:
    """Return the number of nines of a share: 1 for 0.9, 2 for 0.99."""
    return -math.log10(max(1 - share, 1e-9))


def _names(axis: Axis, start: float, end: float) -> AxisLayout:
    """Place each name in the middle of its band."""
    count = max(1, len(axis.names))
    band = (end - start) / count
    return AxisLayout(
        lambda number: round(start + band * (number + 0.5), 1),
        [float(number) for number in range(len(axis.names))],
        [*axis.names],
        axis.label,
        [],
    )


def short_number(value: float, digits: int = _DIGITS) -> str:
    """Return a short text for a number on an axis: `10k` for 10,000."""
    size = abs(value)
    for thousands, sign in _THOUSANDS:
        if size >= thousands and (size >= 1e4 or value % 1000 == 0):
            return f"{value / thousands:.{digits}g}{sign}"
    return f"{value:.{digits}g}" if size >= 1e-4 or value == 0 else f"{value:.{digits - _DIGITS}e}"


def _same_decimals(values: Sequence[float]) -> list[str]:
    """Format the numbers of an axis with the same number of decimals: 0.5 and 1.0."""
    if any(abs(value) >= 1e4 for value in values) or not values:
        return distinct_texts(values, short_number, _DIGITS)
    decimals = max((len(f"{value:.6g}".partition(".")[2]) for value in values), default=0)
    if decimals > 4 or any("e" in f"{value:.6g}" for value in values):
        return distinct_texts(values, short_number, _DIGITS)
    return [f"{value:,.{decimals}f}" for value in values]


def _with_unit(value: float, unit: str, digits: int) -> str:
    shown = unit_for(value, unit)
    text = short_number(in_other_unit(value, unit, shown), digits)
    return f"{text} {shown}" if shown else text


def axis_label(label: str, unit: str) -> str:
    """Return a label with its unit in words: `throughput (per second)`."""
    return f"{label} ({_UNIT_WORDS.get(unit, unit)})" if unit else label


def _thin_out(values: list[float], most: int) -> list[float]:
    step = math.ceil(len(values) / most)
    return values[::step] if step > 1 else values


def _rounded(scale: Any) -> Callable[[float], float]:
    return lambda value: round(float(scale(value)), 1)
