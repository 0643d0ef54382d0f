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
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import leaf_of, read_path
from memory.benchmarking.model.records import Figure
from memory.benchmarking.report.charts import Axis, Chart, Line, Panel, Point
from memory.benchmarking.report.gather import Gathered


@dataclass(frozen=True)
class Difference:
    """One figure of a source against that of the first one."""

    name: str
    path: str
    base_path: str
    """Another one where a target has no such tier: its own headline then stands for it."""
    unit: str
    better: Better
    base: Figure
    other: Figure
    base_source: int
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
    """Of the headline figures, or of all that have a direction.

    Runs are compared target by target, each with the first run that has the target. Targets that no other
    source has are compared with the first source.
    """
    found = []
    for each in gathered:
        for source, result in each.results:
            base_source, base = _base(each, source, result)
            if base is None:
                continue
            if headlines:
                pairs = [(base.headline, result.headline)]
            else:
                pairs = [(path, path) for path in result.result.metrics]
            for before, now in pairs:
                change_of = _change(each, base, before, result, now)
                if change_of is not None:
                    metric = each.metric(_leaf(now))
                    figures = base.result.metrics[before], result.result.metrics[now]
                    found.append(
                        Difference(
                            each.name, now, before, metric.unit, metric.better, *figures, base_source,
                            source, change_of,
                        )
                    )  # fmt: skip
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
        lines.append(Line("", tuple(points), source, "dots"))
    shown = tuple(name.partition(".")[2] or name for name in names)
    bases = [sources[source] for source in sorted({each.base_source for each in found})]
    return Chart(
        f"Headline figures, against {' and '.join(bases)}",
        Axis("", scale="names", names=shown),
        Axis("times as good; right is better", scale="log"),
        (Panel(tuple(lines)),),
        note="The ratio of the figures, turned so that more is better, with its 95 % interval. "
        "An interval that crosses 1 leaves open which is better.",
        horizontal=True,
        limits=((1.0, ""),),
        width=560,
    )


def _base(each: Gathered, source: int, result: LoadedResult) -> tuple[int, LoadedResult | None]:
    """What a result is compared with, and the number of its source."""
    same = [(number, other) for number, other in each.results if other.target == result.target]
    if len(same) > 1:
        return same[0] if same[0][0] != source else (source, None)
    alone = all(
        other.target != another.target
        for number, other in each.results
        for place, another in each.results
        if number < place
    )
    first = next(((number, other) for number, other in each.results if number == 0), None)
    return first if alone and first is not None and source else (source, None)


def _change(
    each: Gathered, base: LoadedResult, before: str, result: LoadedResult, now: str
) -> Change | None:
    """None where the two are not the same kind of figure at the same sizes, or have no ratio."""
    old_place, new_place = read_path(before), read_path(now)
    if (old_place.metric, old_place.parameters) != (new_place.metric, new_place.parameters):
        return None
    old, new = base.result.metrics.get(before), result.result.metrics.get(now)
    if old is None or new is None or each.metric(_leaf(now)).better == "neither":
        return None
    ratio = change(new.rounds or [new.value], old.rounds or [old.value])
    return ratio if ratio is not None and 0 < ratio.ratio < math.inf else None


def _leaf(path: str) -> str:
    return leaf_of(path)


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf
