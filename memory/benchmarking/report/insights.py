"""What stands out in a run, in sentences: rules that a person who knows the figures would look at first.

A rule says nothing where it has nothing to say. None of them judges whether something became slower: that
needs a second run (see `verdicts`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from memory.benchmarking.model.paths import leaf_of, segments_of
from memory.benchmarking.model.records import Figure, Run
from memory.benchmarking.report.gather import FigureRow, Gathered, plain, short_name, words
from memory.benchmarking.text.display import TOO_FEW, figure_text, interval_text, is_too_wide
from memory.benchmarking.text.remarks import remarks

Tone = Literal["good", "warn", "bad", ""]
MOST_NAMED = 3
GOALS_MS = {"agent_execution": 50.0, "memory_search": 10.0, "context_build": 100.0}
"""Medians of responsive interaction; see docs/performance/benchmarks.md."""
BUSY = 1.15
"""Wall ÷ CPU time, from which on a round was disturbed."""
WIDE = 1.5
"""From this factor between figure and bound on, a figure is known badly."""
_MUST_BE_ZERO = ("error_rate", "drop_rate", "messages_astray")
_MUST_BE_ONE = ("content_exact_rate", "id_exact_rate", "step_exact_rate", "kind_exact_rate")


@dataclass(frozen=True)
class Insight:
    """A sentence, and the benchmark that it is about."""

    text: str
    tone: Tone = ""
    about: str = ""


def insights(gathered: Sequence[Gathered], run: Run | None, source: int = 0) -> list[Insight]:
    """What stands out in one source, what is wrong first."""
    found = [
        *_not_trusted(gathered, source),
        *_disturbed(run),
        *_one_round(run),
        *_wrong(gathered, source),
        *_goals(gathered, source),
        *_growth(gathered, source),
        *_leak(gathered, source),
        *_quality(gathered, source),
        *_known_badly(gathered, source),
    ]
    order: tuple[Tone, ...] = ("bad", "warn", "good", "")
    return sorted(found, key=lambda each: order.index(each.tone))


def _not_trusted(gathered: Iterable[Gathered], source: int) -> Iterator[Insight]:
    """What a benchmark found wrong with itself."""
    for each in gathered:
        for number, result in each.results:
            for remark in remarks(result.result.results):
                if number == source and remark.is_warning:
                    yield Insight(f"{each.name}, {remark.where}: {remark.short}.", "bad", each.name)


def _disturbed(run: Run | None) -> Iterator[Insight]:
    """Whether the machine was ours."""
    if run is None:
        return
    if not run.gates:
        yield Insight(
            f"{run.parallel} rounds ran side by side and disturbed each other: the times are no measure of "
            "speed.",
            "warn",
        )
    meters = [each.wall_to_cpu for each in run.moments if each.wall_to_cpu is not None]
    busy = [meter for meter in meters if meter > BUSY]
    if len(busy) * 10 > len(meters):
        yield Insight(
            f"The machine was busy with other things: in {len(busy)} of {len(meters)} rounds the clock ran "
            f"more than {BUSY:g} times as long as the CPU worked (at most {max(busy):.2f}).",
            "warn",
        )
    elif meters:
        yield Insight(
            f"The machine was quiet: wall time was {statistics.median(meters):.2f} times CPU time in the "
            "middle of all rounds.",
            "good",
        )


def _one_round(run: Run | None) -> Iterator[Insight]:
    if run is not None and run.rounds == 1:
        yield Insight(
            "Each benchmark ran once, so no figure has an interval: nobody knows how far the next run will "
            "be away. Use `--rounds 3` or more.",
            "warn",
        )


def _wrong(gathered: Iterable[Gathered], source: int) -> Iterator[Insight]:
    """Things lost, changed or refused: a memory must not do that."""
    checked = []
    for each in gathered:
        for row in _rows(each, source):
            bad = (row.metric in _MUST_BE_ZERO and row.figure.value > 0) or (
                row.metric in _MUST_BE_ONE and row.figure.value < 1
            )
            if bad:
                yield Insight(
                    f"{each.name}: {_where(row)} is {figure_text(row.figure.value)}.", "bad", each.name
                )
            if row.metric in (*_MUST_BE_ZERO, *_MUST_BE_ONE):
                checked.append((row.metric, bad))
    if checked and not any(bad for _, bad in checked):
        exact = any(metric in _MUST_BE_ONE for metric, _ in checked)
        steady = any(metric in _MUST_BE_ZERO for metric, _ in checked)
        said = [
            "memories that moved down the tiers kept content, id, step and kind exactly" if exact else "",
            "no operation failed, was dropped or went astray" if steady else "",
        ]
        yield Insight(f"Nothing was lost: {'; '.join(filter(None, said))}.", "good")


def _goals(gathered: Iterable[Gathered], source: int) -> Iterator[Insight]:
    slowest: dict[str, tuple[float, Gathered, FigureRow]] = {}
    for each in gathered:
        if each.category in GOALS_MS:
            for row in _rows(each, source):
                if row.metric == "p50_ms" and row.figure.value >= slowest.get(each.category, (0.0,))[0]:
                    slowest[each.category] = (row.figure.value, each, row)
    reached = []
    for category, (value, each, row) in slowest.items():
        goal = GOALS_MS[category]
        text = f"{plain(category)} {figure_text(value, 'ms')} of {goal:g} ms"
        if value < goal:
            reached.append(text)
        else:
            yield Insight(f"Goal missed: {each.name}, {_where(row)}, {text}.", "bad", each.name)
    if reached:
        yield Insight(f"Slowest medians against their goals: {', '.join(reached)}.", "good")


def _growth(gathered: Iterable[Gathered], source: int) -> Iterator[Insight]:
    """The cost that grows most with size."""
    steepest: tuple[float, Gathered, FigureRow] | None = None
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


def _leak(gathered: Iterable[Gathered], source: int) -> Iterator[Insight]:
    for each in gathered:
        for row in _rows(each, source):
            if (
                row.metric == "leak_bytes_per_operation"
                and row.figure.low is not None
                and row.figure.low > 0
            ):
                bounds = interval_text(row.figure.value, row.figure.low, row.figure.high, "B")
                yield Insight(
                    f"{each.name}: the process grew by {figure_text(row.figure.value, 'B')} an operation "
                    f"({bounds}): it may leak.",
                    "warn",
                    each.name,
                )


def _quality(gathered: Iterable[Gathered], source: int) -> Iterator[Insight]:
    """The memory's own search beside plain BM25 on the same questions."""
    for each in gathered:
        if any(_not_trusted([each], source)):
            continue
        by_set: dict[str, dict[str, Figure]] = {}
        for row in _rows(each, source):
            if row.metric == "recall_at_5" and row.place.part.endswith("all_questions"):
                data_set, method, *_ = segments_of(row.place.part)
                by_set.setdefault(data_set, {})[method] = row.figure
        for data_set, figures in by_set.items():
            ours, plainly = figures.get("target"), figures.get("bm25")
            if ours is None or plainly is None:
                continue
            where = f" of {data_set}" if len(by_set) > 1 else ""
            bounds = interval_text(ours.value, ours.low, ours.high)
            yield Insight(
                f"Of the passages that answer a question{where}, {ours.value:.1%} are among the first five "
                f"({bounds}); plain BM25 has {plainly.value:.1%}.",
                "good" if ours.value >= plainly.value else "warn",
                each.name,
            )


def _known_badly(gathered: Iterable[Gathered], source: int) -> Iterator[Insight]:
    """Headline figures whose interval is wide."""
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
            f"Known badly, because the rounds differ: {named}{more}. More `--rounds` narrow it.", "warn"
        )


def _rows(each: Gathered, source: int) -> Iterator[FigureRow]:
    return (row for row in each.rows if row.source == source)


def _where(row: FigureRow) -> str:
    named = words(row.place.tier, row.place.part, *row.place.parameters.values(),
                  names=("", "", *row.place.parameters))  # fmt: skip
    return f"{short_name(row.metric)}{f' ({named})' if named else ''}"
