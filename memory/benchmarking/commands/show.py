"""`membench results show`: print a run's figures as text that fits the terminal.

Places with the same metrics share a table: one line for each place, one column for each metric.
`--all-metrics` and `--metric` list the figures one by one, with their intervals.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile

from memory.benchmarking.commands.results import warn
from memory.benchmarking.errors import (
    EXIT_FAILED,
    EXIT_FINE,
    DamagedResult,
    NothingMeasured,
    UnknownName,
    nearest,
)
from memory.benchmarking.model.figure_kinds import kinds_of, kinds_text
from memory.benchmarking.model.files import encode_json, find_run, read_run
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import join, leaf_of, read_path, segments_of
from memory.benchmarking.model.records import Figure, Run
from memory.benchmarking.report.gather import without_unit
from memory.benchmarking.report.run_facts import failures_by_error, result_facts, run_facts
from memory.benchmarking.results import BenchmarkResults
from memory.benchmarking.run.summary import Style
from memory.benchmarking.text.display import (
    NOTHING,
    TOO_FEW,
    clean,
    figure_text,
    interval_text,
    is_too_wide,
    table,
    text_width,
    with_interval,
)
from memory.benchmarking.text.notes import ResultNote, result_notes
from memory.benchmarking.text.terminal import PLOT_CHARACTERS, bar, can_draw, print_for_machines, sparkline

MOST_LINES = 24
"""The most lines of one table without `--all-metrics`: about one screen."""
WIDE = 1.5
"""An interval wider than this factor is shown as a factor: ± per cent would mislead."""
FACTOR = "×÷"
UNKNOWN = f"{FACTOR}?"
"""Short form of `TOO_FEW` in a column; `_legend` explains it below the tables."""
_FIRST_COLUMNS = ("throughput_ops_per_second", "p50_ms", "p99_ms", "p95_ms", "bytes_per_vector")
"""These metrics get a column first if not all columns fit."""
MOST_ALIKE = 3
"""The most rounds that are named if several rounds failed in the same way."""
BAR = 12
"""Width of a full bar, in characters."""
LEAST_ROUNDS = 3
"""The fewest rounds for which a sparkline is drawn."""
MOST_MESSAGE_LINES = 5
"""How many lines of an error message are shown: the last lines, which say what went wrong."""


@dataclass(frozen=True)
class Screen:
    """What the terminal can show."""

    width: int
    draws: bool
    style: Style


def show(arguments: argparse.Namespace) -> int:
    """Print the figures of the chosen runs and files; return the exit code."""
    manager = BenchmarkResults(arguments.output_dir)
    runs, results = _selected(manager, arguments.refs or ["latest"])
    warn(manager.problems)
    if not results and not runs:
        return EXIT_FAILED
    if arguments.metric:
        _check_pattern(results, arguments.metric)
    if arguments.json:
        shown = [
            {"run_id": each.file.run_id, "file": str(each.file), "result": each.result} for each in results
        ]
        print_for_machines(encode_json({"runs": runs, "results": shown}).decode())
        return EXIT_FINE
    width = max(40, shutil.get_terminal_size((80, 24)).columns)
    screen = Screen(width, can_draw(sys.stdout), Style(sys.stdout))
    blocks = []
    for run_id in dict.fromkeys([*runs, *(each.file.run_id for each in results)]):
        if run_id in runs:
            blocks += [*_run_blocks(runs[run_id], width)]
        for each in results:
            if each.file.run_id == run_id:
                blocks.append(_result_block(each, arguments.metric, arguments.all_metrics, screen))
    print("\n\n".join(blocks))
    return EXIT_FINE


def _selected(manager: BenchmarkResults, refs: Iterable[str]) -> tuple[dict[str, Run], list[LoadedResult]]:
    """Return the runs by id, including those without results, and all their results."""
    runs: dict[str, Run] = {}
    files = []
    problems = []
    for ref in refs:
        try:
            if ref.endswith(".json"):
                files += manager.find(ref)
                continue
            folder = find_run(manager.output_dir, ref)
            files += manager.list_results(run=str(folder))
            runs[folder.name] = read_run(folder)
        except DamagedResult as problem:
            problems.append(problem)
        except UnknownName:
            if ref == "latest" and not manager.list_results():
                raise NothingMeasured(
                    f"there are no results in {manager.output_dir}: measure some with `membench run`"
                ) from None
            raise
    results = manager.load_results(files)
    manager.problems += problems
    for run_id, run in manager.runs_of(each for each in results if each.file.run_id not in runs).items():
        runs[run_id] = run
    return runs, results


def _check_pattern(results: Sequence[LoadedResult], pattern: str) -> None:
    paths = [path for each in results for path in each.result.metrics]
    if not any(_matches(path, pattern) for path in paths):
        leaves = {leaf_of(path) for path in paths}
        raise UnknownName(f"no figure matches {pattern!r}: {nearest(pattern, leaves)}")


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(leaf_of(path), pattern)


# -- one run ----------------------------------------------------------------------------------


def _run_blocks(run: Run, width: int) -> list[str]:
    blocks = [f"Run {clean(run.id)}\n{_facts(run_facts(run), width)}"]
    if run.failures:
        count = len(run.failures)
        lines = [f"{count} round{'s' if count > 1 else ''} failed"]
        for (reason, message), failures in failures_by_error(run).items():
            for failure in failures[:MOST_ALIKE]:
                lines.append(f"  {clean(failure.case)}, round {failure.round + 1}: {reason}")
            if len(failures) > MOST_ALIKE:
                lines.append(f"  and {len(failures) - MOST_ALIKE} more rounds with the same error")
            message_lines = message.strip().splitlines() or [NOTHING]
            lines += [_wrapped(line, "    ", width) for line in message_lines[-MOST_MESSAGE_LINES:]]
            if failures[0].log:
                lines.append(f"    log: {clean(failures[0].log)}")
        blocks.append("\n".join(lines))
    return blocks


def _facts(facts: Mapping[str, str], width: int) -> str:
    space = max(map(len, facts)) + 4
    return "\n".join(_wrapped(text, " " * space, width, f"  {name}") for name, text in facts.items())


def _wrapped(text: str, indent: str, width: int, name: str = "") -> str:
    lines = textwrap.wrap(
        clean(text), width - len(indent), break_on_hyphens=False, break_long_words=False
    ) or [""]
    return "\n".join(
        (name.ljust(len(indent)) if not number else indent) + line for number, line in enumerate(lines)
    )


# -- one result -------------------------------------------------------------------------------


def _result_block(each: LoadedResult, pattern: str | None, everything: bool, screen: Screen) -> str:
    width = screen.width
    title = f"{each.name} on {each.target}" if each.target else each.name
    lines = [screen.style.bold(clean(title)), _facts(result_facts(each), width)]
    if each.headline and not pattern:
        figure, metric = each.result.metrics[each.headline], each.metric(each.headline)
        shown = with_interval(figure.value, figure.low, figure.high, metric.unit)
        kinds = kinds_text(kinds_of(each.result, each.headline))
        lines.append(_wrapped(f"{shown}  {each.headline}{kinds}", "    ", width, "  ▸ "))
        if screen.draws:
            lines += [_wrapped(text, "    ", width) for text in _trends(each)]
    found = result_notes(each.result)
    for note in found:
        if note.is_warning:
            warning = _wrapped(f"{note.where}: {note.short}", "    ", width, "  !")
            lines.append(screen.style.red(warning))
    for path, why in each.not_available.items():
        lines.append(_wrapped(f"{path}: {why}" if path else why, "       ", width, "  n/a "))
    groups = each.groups
    if pattern:
        groups = {
            where: {leaf: fig for leaf, fig in leaves.items() if _matches(join(where, leaf), pattern)}
            for where, leaves in groups.items()
        }
        groups = {where: leaves for where, leaves in groups.items() if leaves}
    if not groups:
        lines.append("  no figures" if not pattern else "  no figure matches")
    elif pattern or everything:
        lines.append(_list(each, groups, screen))
    else:
        for alike in _by_shape(groups):
            lines.append((_list if len(alike) == 1 else _pivot)(each, alike, screen))
        lines += [_wrapped(text, "  ", width) for text in _legend("\n".join(lines[2:]))]
    if not pattern:
        lines += _notes([note for note in found if not note.is_warning], everything, width)
    text = "\n".join(lines)
    return PLOT_CHARACTERS.sub(lambda found: screen.style.cyan(found[0]), text) if screen.draws else text


def _legend(text: str) -> list[str]:
    """Explain the signs for wide intervals that occur in a text."""
    known = f"{FACTOR}2: the interval goes from half to twice the figure; more --rounds make it smaller"
    unknown = f"{UNKNOWN}: {TOO_FEW}; a bound is more than ten times away from the figure"
    return ([known] if re.search(rf"{FACTOR}\d", text) else []) + ([unknown] if UNKNOWN in text else [])


def _notes(found: Sequence[ResultNote], everything: bool, width: int) -> list[str]:
    """Return the notes of a result; without `everything` only the first ones, and no details."""
    chosen = [note for note in found if everything or not note.is_detail]
    shown = chosen if everything else chosen[:MOST_LINES]
    lines = ["  notes:"] if shown else []
    for note in shown:
        text = note.text if everything else note.short
        lines.append("    " + _wrapped(f"{note.where}: {text}", "      ", width).lstrip())
    if len(shown) < len(chosen):
        lines.append(f"    … {len(chosen) - len(shown)} more: --all-metrics")
    return lines


def _trends(each: LoadedResult) -> list[str]:
    """Return a sparkline of the headline's metric for each parameter of its path with several values."""
    place = read_path(each.headline)
    found = []
    for name in place.parameters:
        alike = {}
        for path, figure in each.result.metrics.items():
            other = read_path(path)
            fixed = {key: value for key, value in other.parameters.items() if key != name}
            if (other.metric, other.tier, other.part) == (
                place.metric,
                place.tier,
                place.part,
            ) and fixed == {key: value for key, value in place.parameters.items() if key != name}:
                alike[other.parameters.get(name, 0)] = figure.value
        if len(alike) > 1:
            sizes = sorted(alike)
            line = sparkline([alike[size] for size in sizes])
            found.append(f"{line}  {clean(name)} {sizes[0]:,} to {sizes[-1]:,}")
    return found


def _by_shape(groups: Mapping[str, dict[str, Figure]]) -> list[dict[str, dict[str, Figure]]]:
    """Group the places that have the same metrics."""
    found: dict[frozenset[str], dict[str, dict[str, Figure]]] = {}
    for where, leaves in groups.items():
        found.setdefault(frozenset(leaves), {})[where] = leaves
    return [*found.values()]


def _list(each: LoadedResult, groups: Mapping[str, Mapping[str, Figure]], screen: Screen) -> str:
    """Return every figure on its own line, with its interval, below the name of its place.

    Where the terminal can draw, a sparkline shows the rounds in their order.
    """
    rows = []
    for leaves in groups.values():
        for leaf, figure in leaves.items():
            unit = each.metric(leaf).unit
            bounds = interval_text(figure.value, figure.low, figure.high, unit)
            differ = len(figure.rounds) >= LEAST_ROUNDS and len(set(figure.rounds)) > 1
            line = sparkline(figure.rounds) if differ else ""
            rows.append([leaf, figure_text(figure.value, unit), bounds, *([line] if screen.draws else [])])
    figures = iter(table(rows, right={1, 2}, indent="    ", width=screen.width).split("\n"))
    lines = []
    for where, leaves in groups.items():
        lines += [f"  {clean(where)}"] if where else []
        lines += [next(figures) for _ in leaves]
    return "\n".join(lines)


def _pivot(each: LoadedResult, groups: Mapping[str, Mapping[str, Figure]], screen: Screen) -> str:
    """Return a table: a line for each place, a column for each metric that fits, bars for the first."""
    width = screen.width
    leaves = _columns(each, next(iter(groups.values())))
    shown = _nearest(groups, each.headline)
    names = _short_names(leaves)
    columns = [
        [names[leaf], *(_with_spread(fig[leaf], each.metric(leaf).unit) for fig in shown.values())]
        for leaf in leaves
    ]
    bars = _bars([fig[leaves[0]].value for fig in shown.values()]) if screen.draws else []
    first = ["", *shown]
    room = width - 4 - min(max(map(text_width, first)), width // 2)
    # A second column is more useful than bars for the first one.
    if room < sum(max(map(text_width, column)) + 2 for column in columns[:2]) + BAR + 2:
        bars = []
    room -= BAR + 2 if bars else 0
    fitting = 0
    for column in columns:
        room -= max(map(text_width, column)) + 2
        if room < 0 and fitting:
            break
        fitting += 1
    beside = [["", *bars]] if bars else []
    kept = [columns[0], *beside, *columns[1:fitting]]
    rows = [list(row) for row in zip(first, *kept, strict=True)]
    right = {place for place in range(1, len(kept) + 1) if not (bars and place == 2)}
    lines = table(rows[1:], rows[0], right=right, indent="  ", width=width).split("\n")
    # Mark the places where lines are left out.
    numbers = [number for number, where in enumerate(groups) if where in shown]
    for place, (before, number) in reversed([*enumerate(zip([-1, *numbers], numbers, strict=False), 1)]):
        if number - before > 1:
            lines.insert(place, "  …")
    rest = [names[leaf] for leaf in leaves[fitting:]]
    hidden = len(groups) - len(shown)
    if hidden or rest:
        more = ([f"{hidden} more lines"] if hidden else []) + ([", ".join(rest)] if rest else [])
        lines.append(_wrapped(f"… {'; '.join(more)}: --all-metrics", "  ", width))
    return "\n".join(lines)


def _nearest(groups: Mapping[str, Mapping[str, Figure]], headline: str) -> dict[str, Mapping[str, Figure]]:
    """Return at most `MOST_LINES` places, in their order: those with the path closest to the headline's."""
    segments = segments_of(headline)[:-1]

    def shared(where: str) -> int:
        pairs = zip(segments_of(where), segments, strict=False)
        return len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])

    kept = {*sorted(groups, key=shared, reverse=True)[:MOST_LINES]}
    return {where: leaves for where, leaves in groups.items() if where in kept}


def _bars(values: Sequence[float]) -> list[str]:
    """Return a bar for each value; none if all values are the same, or one is negative."""
    if len(values) < 2 or min(values) < 0 or max(values) <= 0 or len(set(values)) == 1:
        return []
    # All bars have the full width, so that the table does not shorten them like long names.
    return [bar(value, max(values), BAR).ljust(BAR) for value in values]


def _columns(each: LoadedResult, leaves: Iterable[str]) -> list[str]:
    """Return the metrics that have a better direction, else all; the headline's metric first."""
    known = [*leaves]
    useful = [leaf for leaf in known if each.metric(leaf).better != "neither"] or known
    first = [leaf_of(each.headline), *_FIRST_COLUMNS]
    return sorted(useful, key=lambda leaf: first.index(leaf) if leaf in first else len(first))


def _short_names(leaves: Iterable[str]) -> dict[str, str]:
    """Return the metrics' names without their units, unless two would become the same."""
    names = {leaf: without_unit(leaf) for leaf in leaves}
    taken = [*names.values()]
    return {leaf: name if taken.count(name) == 1 else leaf for leaf, name in names.items()}


def _with_spread(figure: Figure, unit: str) -> str:
    """Return a figure with the width of its interval: `10,000 /s ±5 %`, or `10,000 /s ×÷2.1` if it is wide.

    The intervals of positive figures are symmetric as factors (see `over_rounds`), not as differences.
    Shares and negative figures are shown with their bounds where a percentage would mislead.
    """
    shown = figure_text(figure.value, unit)
    low, high = figure.low, figure.high
    if low is None or high is None or low == high:
        return shown
    if is_too_wide(figure.value, low, high, unit):
        return f"{shown} {UNKNOWN}"
    if not unit and abs(figure.value) <= 1:
        return with_interval(figure.value, low, high, unit)
    if low > 0:
        factor = math.sqrt(high / low)
        if factor > WIDE:
            return f"{shown} {FACTOR}{factor:.1f}"
        spread = (factor - 1) * 100
    else:
        half_width = (high - low) / 2
        if half_width > abs(figure.value):
            return with_interval(figure.value, low, high, unit)
        spread = half_width / abs(figure.value) * 100
    return f"{shown} ±{spread:.0f} %" if spread >= 1 else f"{shown} ±{spread:.1f} %"
