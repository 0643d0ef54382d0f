"""The end of a run for people: each benchmark's headline figure, what changed, what failed, where it is."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any, TextIO

from memory.benchmarking.model.files import read_result
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.model.records import Result, ResultRef, Run, Unit
from memory.benchmarking.run.previous_runs import Comparison, compared_with_earlier
from memory.benchmarking.text.display import NOTHING, clean, figure_text, interval_text, table
from memory.benchmarking.text.remarks import remarks

_DIM, _BOLD, _RED, _CYAN, _PLAIN = "\033[2m", "\033[1m", "\033[31m", "\033[36m", "\033[0m"


class Style:
    """Colours where they are wanted: on a terminal, and not with NO_COLOR."""

    def __init__(self, stream: TextIO) -> None:
        self._on = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def dim(self, text: str) -> str:
        return f"{_DIM}{text}{_PLAIN}" if self._on else text

    def bold(self, text: str) -> str:
        return f"{_BOLD}{text}{_PLAIN}" if self._on else text

    def cyan(self, text: str) -> str:
        return f"{_CYAN}{text}{_PLAIN}" if self._on else text

    def red(self, text: str) -> str:
        return f"{_RED}{text}{_PLAIN}" if self._on else text


def print_summary(folder: Path, run: Run, stream: TextIO | None = None) -> None:
    """Table, failures, what is not to be trusted, and where the files are."""
    stream = stream or sys.stdout
    style = Style(stream)
    rows, paths, notes, warnings = [], [], [], []
    for ref in run.results:
        result = read_result(folder / ref.file)
        name = _name(run, ref)
        rows.append((name, *_cells(folder, run, ref, result)))
        paths.append(ref.headline)
        for path, reason in result.metadata.get("not_available", {}).items():
            notes.append(f"{name} {path}".rstrip() + f": n/a, {reason}")
        for remark in remarks(result.results):
            if remark.is_warning:
                warnings.append(f"WARNING: {name} {remark.where}: {remark.short}")
    if rows:
        head, *lines = table(
            rows, ("benchmark", "figure", "95 % interval", "since the last run"), right=(1,)
        ).splitlines()
        print(style.bold(head), file=stream)
        for line, path in zip(lines, paths, strict=True):
            print(line, file=stream)
            if path:
                print(style.dim(f"  {clean(path)}"), file=stream)
    for note in notes:
        print(style.dim(clean(note)), file=stream)
    _print_failures(run, folder, style, stream)
    if warnings:
        print(style.red("\n" + "\n".join(map(clean, warnings))), file=stream)
    if not run.gates:
        print(
            f"{run.parallel} rounds ran side by side: timed figures disturb each other and never gate",
            file=stream,
        )
    print(f"\n{_count(run)} in {folder}", file=stream)
    if run.results:
        print(style.dim(f"more: membench results show {shlex.quote(_reference(folder))}"), file=stream)


def _name(run: Run, ref: ResultRef) -> str:
    name = f"{ref.category}.{ref.benchmark}"
    return name if run.targets == ["agentmemory"] else f"{name} on {ref.target}"


def _cells(folder: Path, run: Run, ref: ResultRef, result: Result) -> tuple[str, str, str]:
    figure = result.metrics.get(ref.headline)
    if figure is None:
        return "n/a", "", ""
    unit = result.units[_leaf(ref.headline)]
    bounds = interval_text(figure.value, figure.low, figure.high, unit.unit)
    since = change_text(compared_with_earlier(folder, run, ref, result), unit)
    return figure_text(figure.value, unit.unit), bounds or NOTHING, since


def _leaf(path: str) -> str:
    return leaf_of(path)


def change_text(comparison: Comparison | None, unit: Unit) -> str:
    """`+8.1 % (+6.9 to +9.4), worse`; only what the interval bears out is called better or worse."""
    if comparison is None:
        return NOTHING
    change = comparison.change
    text = f"{_percent(change.ratio)} %"
    if change.low is None or change.high is None:
        return f"{text}, one round only"
    text += f" ({_percent(change.low)} to {_percent(change.high)})"
    if change.low == change.ratio == change.high == 1:
        return "the same"
    if not change.is_clear:
        return f"{text}, not clear"
    if unit.better == "neither":
        return f"{text}, changed"
    return f"{text}, {'better' if (change.ratio > 1) == (unit.better == 'higher') else 'worse'}"


def _percent(ratio: float) -> str:
    percent = (ratio - 1) * 100
    return f"{percent:+.1f}" if abs(percent) < 100 else f"{percent:+,.0f}"


def _print_failures(run: Run, folder: Path, style: Style, stream: TextIO) -> None:
    if not run.failures:
        return
    count = len(run.failures)
    print(style.red(f"\n{count} {'round' if count == 1 else 'rounds'} failed:"), file=stream)
    for failure in run.failures:
        print(clean(f"  {failure.case} round {failure.round + 1}: {failure.message}"), file=stream)
        if failure.log:
            print(style.dim(f"    log: {folder / failure.log}"), file=stream)


def _count(run: Run) -> str:
    count = len(run.results)
    return f"{count} {'result' if count == 1 else 'results'} of {run.profile} run {run.id}"


def _reference(folder: Path) -> str:
    from memory.benchmarking.model.files import DEFAULT_FOLDER

    return folder.name if str(folder.parent) == DEFAULT_FOLDER else str(folder)


def summary_for_machines(folder: Path, run: Run, *, interrupted: bool) -> dict[str, Any]:
    """What `run --json` prints: one document."""
    results = []
    for ref in run.results:
        result = read_result(folder / ref.file)
        figure = result.metrics.get(ref.headline)
        comparison = compared_with_earlier(folder, run, ref, result)
        results.append(
            {
                "category": ref.category,
                "benchmark": ref.benchmark,
                "target": ref.target,
                "file": str(folder / ref.file),
                "rounds": ref.rounds,
                "headline": ref.headline or None,
                "value": figure and figure.value,
                "low": figure and figure.low,
                "high": figure and figure.high,
                "unit": result.units[_leaf(ref.headline)].unit if figure else None,
                "not_available": result.metadata.get("not_available", {}),
                "change": comparison
                and {
                    "since": comparison.run_id,
                    "ratio": comparison.change.ratio,
                    "low": comparison.change.low,
                    "high": comparison.change.high,
                },
            }
        )
    return {
        "run": run.id,
        "folder": str(folder),
        "status": run.status,
        "interrupted": interrupted,
        "profile": run.profile,
        "gates": run.gates,
        "fingerprint": run.environment.fingerprint,
        "results": results,
        "failures": run.failures,
        "timings": run.timings,
    }


def timings_text(run: Run) -> str:
    """Where the time went: the benchmarks, and what the harness added."""
    whole = run.timings.get("all", 0.0)
    parts = {name: seconds for name, seconds in run.timings.items() if name != "all"}
    if run.parallel == 1:
        parts["plan, collect, wait"] = max(0.0, whole - sum(parts.values()))
    base = whole if run.parallel == 1 else sum(parts.values())
    rows = [
        (name, f"{seconds:.2f} s", f"{100 * seconds / base:.1f} %" if base else NOTHING)
        for name, seconds in sorted(parts.items(), key=lambda part: -part[1])
    ]
    measured = parts.get("benchmark", 0.0) + parts.get("failed rounds", 0.0)
    harness = 100 * (1 - measured / base) if base else 0.0
    rows.append(("all", f"{whole:.2f} s", ""))
    lines = table(rows, ("time spent on", "seconds", "share"), right=(1, 2))
    of = "the run" if run.parallel == 1 else "all rounds"
    return f"{lines}\nthe harness itself: {harness:.1f} % of {of}"
