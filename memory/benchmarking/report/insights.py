"""Sentences about the most important findings of a run.

The rules are general, or use what a benchmark declares: its goals, its reference method, its notes. No rule
judges whether something became slower: that needs a second run (see `verdicts`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from memory.benchmarking.metrics import Metric
from memory.benchmarking.model.paths import leaf_of, segments_of
from memory.benchmarking.model.presentation import Goal
from memory.benchmarking.model.records import Figure, Run
from memory.benchmarking.report.benchmark_charts import presentation_of
from memory.benchmarking.report.gather import FigureRow, GatheredResults, plain, short_name, words
from memory.benchmarking.text.display import TOO_FEW, figure_text, interval_text, is_too_wide
from memory.benchmarking.text.notes import result_notes

Tone = Literal["good", "warn", "bad", ""]
MOST_NAMED = 3
"""The largest number of wide intervals that a sentence names."""
BUSY = 1.15
"""If wall time ÷ CPU time of a round is above this, other programs disturbed the round."""
WIDE = 1.5
"""An interval is wide if its bounds are more than this factor away from its (geometric) middle."""


@dataclass(frozen=True)
class Insight:
    """A sentence about a run. `about` is the name of its benchmark; empty for the whole run."""

    text: str
    tone: Tone = ""
    about: str = ""


def insights(gathered: Sequence[GatheredResults], run: Run | None, source: int = 0) -> list[Insight]:
    """Return the insights about one source, problems first."""
    found = [
        *_warnings(gathered, source),
        *_disturbed(run),
        *_one_round(run),
        *_goals(gathered, source),
        *_growth(gathered, source),
        *_versus(gathered, source),
        *_wide_intervals(gathered, source),
    ]
    order: tuple[Tone, ...] = ("bad", "warn", "good", "")
    return sorted(found, key=lambda insight: order.index(insight.tone))


def _warnings(gathered: Iterable[GatheredResults], source: int) -> Iterator[Insight]:
    """Yield the errors that benchmarks found when they checked their own work."""
    for each in gathered:
        for number, result in each.results:
            for note in result_notes(result.result):
                if number == source and note.is_warning:
                    yield Insight(f"{each.name}, {note.where}: {note.short}.", "bad", each.name)


def _disturbed(run: Run | None) -> Iterator[Insight]:
    """Yield whether parallel rounds or other programs disturbed the run."""
    if run is None:
        return
    if not run.times_count:
        yield Insight(
            f"{run.parallel} rounds ran side by side and disturbed each other: do not read the times as "
            "speed.",
            "warn",
        )
    meters = [each.wall_to_cpu for each in run.moments if each.wall_to_cpu is not None]
    busy = [meter for meter in meters if meter > BUSY]
    if len(busy) * 10 > len(meters):
        yield Insight(
            f"Other programs used the machine: in {len(busy)} of {len(meters)} rounds wall time was more "
            f"than {BUSY:g} times CPU time (at most {max(busy):.2f}).",
            "warn",
        )
    elif meters:
        yield Insight(
            f"The machine was quiet: the median of wall ÷ CPU time over all rounds is "
            f"{statistics.median(meters):.2f}.",
            "good",
        )


def _one_round(run: Run | None) -> Iterator[Insight]:
    if run is not None and run.rounds == 1:
        yield Insight(
            "Each benchmark ran once, so no figure has an interval. Use `--rounds 3` or more.",
            "warn",
        )


def _goals(gathered: Iterable[GatheredResults], source: int) -> Iterator[Insight]:
    """Yield the missed goals, each with its worst figure, then the reached goals."""
    sentences: dict[str, bool] = {}
    worst: dict[tuple[str, str, float], tuple[float, str]] = {}
    for each in gathered:
        for leaf, goal in presentation_of(each).goals.items():
            metric = each.metric(leaf)
            find_worst = min if metric.better == "higher" else max
            rows = [row for row in _rows(each, source) if row.metric == leaf]
            if not rows:
                continue
            missed = [
                row
                for row in rows
                if goal.is_missed(row.figure.value, row.figure.low, row.figure.high, metric.better)
            ]
            if missed:
                yield _missed_goal(each, find_worst(missed, key=_value), goal, metric)
            if goal.reached:
                sentences[goal.reached] = sentences.get(goal.reached, True) and not missed
            elif not missed and not goal.missed:
                key = (each.category, leaf, goal.limit)
                values = [row.figure.value for row in rows]
                if key in worst:
                    values.append(worst[key][0])
                worst[key] = (find_worst(values), metric.unit)
    yield from (Insight(sentence, "good") for sentence, holds in sentences.items() if holds)
    if worst:
        texts = [
            f"{plain(category)} {short_name(leaf)} {figure_text(value, unit)} (goal: {_limit(limit, unit)})"
            for (category, leaf, limit), (value, unit) in worst.items()
        ]
        yield Insight(f"Goals reached, with the worst figure of each: {', '.join(texts)}.", "good")


def _missed_goal(each: GatheredResults, row: FigureRow, goal: Goal, metric: Metric) -> Insight:
    figure = row.figure
    value = figure_text(figure.value, metric.unit)
    tone: Tone = "warn" if goal.whole_interval else "bad"
    if goal.missed:
        interval = interval_text(figure.value, figure.low, figure.high, metric.unit)
        return Insight(
            f"{each.name}: {goal.missed.format(figure=value, interval=interval)}.", tone, each.name
        )
    limit = _limit(goal.limit, metric.unit)
    return Insight(f"Goal missed: {each.name}, {_where(row)} is {value} (goal: {limit}).", tone, each.name)


def _limit(limit: float, unit: str) -> str:
    return f"{limit:g} {unit}".strip()


def _value(row: FigureRow) -> float:
    return row.figure.value


def _growth(gathered: Iterable[GatheredResults], source: int) -> Iterator[Insight]:
    """Yield the cost that grows most with size."""
    steepest: tuple[float, GatheredResults, FigureRow] | None = None
    for each in gathered:
        for row in _rows(each, source):
            if row.metric == "growth_exponent" and (steepest is None or row.figure.value > steepest[0]):
                steepest = (row.figure.value, each, row)
    if steepest is None:
        return
    exponent, each, row = steepest
    where = words(row.place.tier, row.place.part.removeprefix("growth/").removeprefix("growth"))
    name = f"{each.name}{f' ({where})' if where else ''}"
    bounds = interval_text(exponent, row.figure.low, row.figure.high)
    shown = f"n^{exponent:.2f}{f' ({bounds})' if bounds else ''}"
    if exponent > 0.9:
        yield Insight(f"{name} grows about as fast as its data: {shown}.", "warn", each.name)
    else:
        yield Insight(
            f"No search grows as fast as its data; the steepest is {name}: {shown}, "
            f"{10**exponent:.1f} times the cost for ten times the memories.",
            "good",
            each.name,
        )


def _versus(gathered: Iterable[GatheredResults], source: int) -> Iterator[Insight]:
    """Yield a sentence for each comparison with a reference method that a benchmark declares."""
    for each in gathered:
        versus = presentation_of(each).versus
        if versus is None or any(_warnings([each], source)):
            continue
        by_group: dict[str, dict[str, Figure]] = {}
        for row in _rows(each, source):
            match segments_of(row.place.part):
                case [group, method, versus.where] if row.metric == versus.metric:
                    by_group.setdefault(group, {})[method] = row.figure
        for group, figures in by_group.items():
            ours, other = figures.get(versus.method), figures.get(versus.reference)
            if ours is None or other is None:
                continue
            text = versus.sentence.format(
                group=f" of {group}" if len(by_group) > 1 else "",
                figure=f"{ours.value:.1%}",
                interval=interval_text(ours.value, ours.low, ours.high),
                reference=f"{other.value:.1%}",
            )
            yield Insight(text, "good" if ours.value >= other.value else "warn", each.name)


def _wide_intervals(gathered: Iterable[GatheredResults], source: int) -> Iterator[Insight]:
    """Yield the headline figures whose intervals are wide."""
    wide = []
    for each in gathered:
        for number, result in each.results:
            figure = result.result.metrics.get(result.headline)
            if number != source or figure is None or figure.low is None or figure.high is None:
                continue
            if figure.low > 0 and figure.high / figure.low > WIDE**2:
                factor = (figure.high / figure.low) ** 0.5
                unit = each.metric(leaf_of(result.headline)).unit
                unknown = is_too_wide(figure.value, figure.low, figure.high, unit)
                wide.append((factor, each.name, TOO_FEW if unknown else f"×÷ {factor:.1f}"))
    if wide:
        wide.sort(reverse=True)
        named = ", ".join(f"{name} ({how})" for _, name, how in wide[:MOST_NAMED])
        more = f" and {len(wide) - MOST_NAMED} more" if len(wide) > MOST_NAMED else ""
        yield Insight(
            f"Wide intervals, because the rounds differ: {named}{more}. Use more `--rounds`.", "warn"
        )


def _rows(each: GatheredResults, source: int) -> Iterator[FigureRow]:
    return (row for row in each.rows if row.source == source)


def _where(row: FigureRow) -> str:
    named = words(row.place.tier, row.place.part, *row.place.parameters.values(),
                  names=("", "", *row.place.parameters))  # fmt: skip
    return f"{short_name(row.metric)}{f' ({named})' if named else ''}"
