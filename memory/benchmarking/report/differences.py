"""How much two sources differ, figure by figure, and which way is better.

Two runs of one machine are judged by `verdicts` (`compare_runs`). This is for what can't be judged that
way, two targets of one run, and for the picture of both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memory.benchmarking.measure.statistics import Change, change
from memory.benchmarking.metrics import Better
from memory.benchmarking.records import SEPARATOR, Figure
from memory.benchmarking.report.charts import Axis, Chart, Line, Panel, Point
from memory.benchmarking.report.gather import Gathered
from memory.benchmarking.tidy import LoadedResult


@dataclass(frozen=True)
class Difference:
    """One figure of a source against that of the first one."""

    name: str
    path: str
    unit: str
    better: Better
    base: Figure
    other: Figure
    source: int
    change: Change

    @property
    def goodness(self) -> Change:
        """The change turned so that above 1 is better."""
        found = self.change
        if self.better != "lower":
            return found
        low = None if found.high is None else _inverse(found.high)
        high = None if found.low is None else _inverse(found.low)
        return Change(_inverse(found.ratio), low, high)

    @property
    def word(self) -> str:
        """Better, worse, or why neither."""
        found = self.goodness
        if found.low is None:
            return "one round only"
        if found.low == found.ratio == found.high == 1:
            return "the same"
        if not found.is_clear:
            return "not clear"
        return "better" if found.ratio > 1 else "worse"


def differences(gathered: Sequence[Gathered], *, headlines: bool) -> list[Difference]:
    """Of the headline figures, or of all that have a direction; each source against the first.

    The base is the result of the first source, and of the same target where there is one.
    """
    found = []
    for each in gathered:
        for source, result in each.results:
            base = _base(each, source, result)
            if base is None:
                continue
            paths = [each.headline] if headlines else [*result.result.metrics]
            for path in paths:
                made = _difference(each, path, base, result, source)
                if made is not None:
                    found.append(made)
    return found


def clear_ones(found: Iterable[Difference]) -> list[Difference]:
    """Those that the intervals bear out, the largest first."""
    chosen = [each for each in found if each.word in ("better", "worse")]
    return sorted(chosen, key=lambda each: -abs(math.log(each.change.ratio)))


def forest(found: Sequence[Difference], sources: Sequence[str]) -> Chart | None:
    """All headline figures against those of the first source, on one scale: right is better."""
    names = [*dict.fromkeys(each.name for each in found)]
    if not names:
        return None
    lines = []
    for source in sorted({each.source for each in found}):
        points = []
        for each in found:
            if each.source == source:
                good = each.goodness
                points.append(Point(names.index(each.name), good.ratio, good.low, good.high))
        lines.append(Line(sources[source], tuple(points), source, "dots"))
    shown = tuple(name.partition(".")[2] or name for name in names)
    return Chart(
        f"Headline figures, against {sources[0]}",
        Axis("", scale="names", names=shown),
        Axis("times as good; right is better", scale="log"),
        (Panel(tuple(lines)),),
        note="The ratio of the figures, turned so that more is better, with its 95 % interval. "
        "An interval that crosses 1 leaves open which is better.",
        lying=True,
        limits=((1.0, ""),),
        width=560,
    )


def _base(each: Gathered, source: int, result: LoadedResult) -> LoadedResult | None:
    others = [other for number, other in each.results if number < source]
    same = [other for other in others if other.target == result.target]
    first = [other for number, other in each.results if number == 0]
    if same:
        return same[0]
    return first[0] if first and source else None


def _difference(
    each: Gathered, path: str, base: LoadedResult, result: LoadedResult, source: int
) -> Difference | None:
    metric = each.metric(path.rpartition(SEPARATOR)[2])
    before, now = base.result.metrics.get(path), result.result.metrics.get(path)
    if before is None or now is None or metric.better == "neither":
        return None
    ratio = change(now.rounds or [now.value], before.rounds or [before.value])
    if ratio is None or not 0 < ratio.ratio < math.inf:
        return None
    return Difference(each.name, path, metric.unit, metric.better, before, now, source, ratio)


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf
