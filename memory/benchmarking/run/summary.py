"""The end of a run: headline figures, changes since the previous run, failures, where the files are."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.model.figure_kinds import (
    different_kinds,
    durability_of,
    kinds_of,
    kinds_text,
    search_by_of,
)
from memory.benchmarking.model.files import DEFAULT_FOLDER, ResultFile, read_result_of
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import NO_FIGURES, leaf_of
from memory.benchmarking.model.records import Result, ResultRef, Run
from memory.benchmarking.report.gather import gather
from memory.benchmarking.report.matrix import Matrix, make_matrix, matrix_notes
from memory.benchmarking.report.matrix_text import matrix_text
from memory.benchmarking.report.sources import Source
from memory.benchmarking.run.previous_runs import SincePrevious, verdicts_since_previous
from memory.benchmarking.text.display import (
    NOTHING,
    clean,
    figure_text,
    interval_text,
    paragraph,
    table,
    table_rows,
)
from memory.benchmarking.text.notes import result_notes
from memory.benchmarking.text.terminal import terminal_width
from memory.benchmarking.verdicts.evidence import CaseKey
from memory.benchmarking.verdicts.headlines import HeadlineVerdict, headline_verdict
from memory.benchmarking.verdicts.words import ORDER, change_text

MOST_LISTED = 2
"""With more targets than this, only the matrix is printed, and not a line for each result."""
MOST_OTHER_REASONS = 8
"""With several targets, more reasons than this are counted and not printed."""
MOST_OF_A_REASON = 3
"""If more figures of a result are n/a for the same reason than this, they get one line."""
_DIM, _BOLD, _RED, _CYAN, _PLAIN = "\033[2m", "\033[1m", "\033[31m", "\033[36m", "\033[0m"


class Style:
    """Colours: on a terminal, unless NO_COLOR is set."""

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
    """Print the table of headlines, failures, warnings, and where the files are."""
    stream = stream or sys.stdout
    style, width = Style(stream), terminal_width(stream)
    rows, paths, notes, warnings = [], [], [], []
    results = [read_result_of(folder, ref) for ref in run.results]
    since, problem = _since_previous(folder, run, results)
    for ref, result in zip(run.results, results, strict=True):
        name = _name(run, ref)
        rows.append((name, *_cells(ref, result, since)))
        paths.append(f"{ref.headline}{kinds_text(kinds_of(result, ref.headline))}")
        for reason, missing in _by_reason(result).items():
            if reason == NO_FIGURES:
                warnings.append(f"WARNING: {name}: {reason}")
            elif len(missing) > MOST_OF_A_REASON:
                notes.append(f"{name}: {len(missing)} figures are n/a, {reason}")
            else:
                notes += [f"{name} {path}".rstrip() + f": n/a, {reason}" for path in missing]
        for found in result_notes(result):
            if found.is_warning:
                warnings.append(f"WARNING: {name} {found.where}: {found.short}")
    matrix = _matrix(folder, run, results) if len(run.targets) > 1 else None
    if rows and len(run.targets) <= MOST_LISTED:
        headers = ("benchmark", "figure", "95 % interval", "since the last run")
        head, *lines = table_rows(rows, headers, right=(1,), width=width, wrap=True)
        print(style.bold(head), file=stream)
        for line, path in zip(lines, paths, strict=True):
            print(line, file=stream)
            if path:
                print(style.dim(f"  {clean(path)}"), file=stream)
    if matrix is not None:
        text = matrix_text(matrix, width)
        print(f"\n{text}" if len(run.targets) <= MOST_LISTED else text, file=stream)
        known = [f"({number}) {reason}" for reason, number in matrix.reasons.items()]
        notes = [*matrix_notes(matrix, run), *known, *_other_reasons(notes, matrix)]
    about = (*different_kinds(results), *_conformance_notes(run))
    for note in (*notes, *about, *_counts(since), *_target_changes(since), *problem):
        print(style.dim(paragraph(clean(note), width)), file=stream)
    _print_failures(run, folder, style, stream)
    if warnings:
        lines = [paragraph(clean(warning), width) for warning in warnings]
        print(style.red("\n" + "\n".join(lines)), file=stream)
    if not run.times_count:
        print(
            f"{run.parallel} rounds ran in parallel: they disturb each other, so times are not judged",
            file=stream,
        )
    print(f"\n{_count(run)} in {clean(str(folder))}", file=stream)
    if run.results:
        more = f"more: membench results show {shlex.quote(_reference(folder))}"
        print(style.dim(clean(more)), file=stream)


def _by_reason(result: Result) -> dict[str, list[str]]:
    """Return the paths of the figures that are not available, by reason."""
    found: dict[str, list[str]] = {}
    for path, reason in result.metadata.get("not_available", {}).items():
        found.setdefault(reason, []).append(path)
    return found


def _matrix(folder: Path, run: Run, results: Sequence[Result]) -> Matrix:
    """Return the matrix of a run's headlines, with a column for each target."""
    sources = [Source(_target_name(run, target), run.id, run, target) for target in run.targets]
    loaded = [
        (
            run.targets.index(ref.target),
            LoadedResult(
                ResultFile(result.timestamp, folder / ref.file, ref.category, ref.benchmark, run.id), result
            ),
        )
        for ref, result in zip(run.results, results, strict=True)
    ]
    return make_matrix(gather(loaded), sources)


def _other_reasons(notes: Sequence[str], matrix: Matrix) -> list[str]:
    """Return the notes on missing figures that the matrix does not explain, if they are few."""
    others = [note for note in notes if not any(note.endswith(reason) for reason in matrix.reasons)]
    if len(others) <= MOST_OTHER_REASONS:
        return others
    return [f"{len(others)} other figures are n/a: membench results show gives the reasons"]


def _name(run: Run, ref: ResultRef) -> str:
    name = f"{ref.category}.{ref.benchmark}"
    return name if run.targets == ["agentmemory"] else f"{name} on {_target_name(run, ref.target)}"


def _target_name(run: Run, target: str) -> str:
    """Return the name of the target's class if it is unique in the run; else the given name."""
    names = [info.name for info in run.target_info.values()]
    info = run.target_info.get(target)
    return info.name if info is not None and names.count(info.name) == 1 else target


def _since_previous(
    folder: Path, run: Run, results: Sequence[Result]
) -> tuple[dict[CaseKey, SincePrevious], list[str]]:
    """Return the verdicts on each case, and a message if there are none because of an error."""
    try:
        return verdicts_since_previous(folder, run, results), []
    except BenchmarkError as problem:  # The stored noise measurements are damaged.
        return {}, [f"not compared with the previous run: {problem}"]


def _headline(ref: ResultRef, since: Mapping[CaseKey, SincePrevious]) -> HeadlineVerdict | None:
    found = since.get((ref.category, ref.benchmark, ref.target))
    return None if found is None else headline_verdict(ref.headline, found.metrics)


def _cells(ref: ResultRef, result: Result, since: Mapping[CaseKey, SincePrevious]) -> tuple[str, str, str]:
    figure = result.metrics.get(ref.headline)
    if figure is None:
        return "n/a", "", ""
    unit = result.units[leaf_of(ref.headline)].unit
    bounds = interval_text(figure.value, figure.low, figure.high, unit)
    return figure_text(figure.value, unit), bounds or NOTHING, since_text(_headline(ref, since))


def since_text(headline: HeadlineVerdict | None) -> str:
    """Return change and verdict: `+8.1 % (+6.9 to +9.4), regressed`."""
    if headline is None:
        return NOTHING
    change = headline.change
    verdict = str(headline.verdict or "not judged")
    if headline.judged_by:
        verdict += f" ({', '.join(headline.judged_by)})"
    if change.ratio is None or (change.change == 0 and change.low == change.high):
        return f"{change_text(change)}, {verdict}"
    text = f"{_percent(change.ratio)} %"
    if change.ratio_interval is None:
        return f"{text}, {verdict}: one round only"
    low, high = change.ratio_interval
    return f"{text} ({_percent(low)} to {_percent(high)}), {verdict}"


def _percent(ratio: float) -> str:
    percent = (ratio - 1) * 100
    return f"{percent:+.1f}" if abs(percent) < 100 else f"{percent:+,.0f}"


def _counts(since: Mapping[CaseKey, SincePrevious]) -> Iterator[str]:
    """Yield `since 20261116_115624_1af3: 2 regressed, 340 unchanged`, where something was judged."""
    verdicts = [metric.verdict for case in since.values() for metric in case.metrics.values()]
    counts = ", ".join(f"{verdicts.count(each):,} {each}" for each in ORDER if each in verdicts)
    if counts:
        run_ids = dict.fromkeys(case.run_id for case in since.values())
        yield f"since {', '.join(run_ids)}: {counts} (membench compare lists them)"


def _conformance_notes(run: Run) -> Iterator[str]:
    """Yield which targets break promises or were never checked; nothing for a run of agentmemory alone."""
    marks = {
        _target_name(run, target): info.conformance
        for target, info in run.target_info.items()
        if info.conformance not in ("", "kept")
    }
    if marks and run.targets != ["agentmemory"]:
        shown = "; ".join(f"{name} {mark}" for name, mark in marks.items())
        yield f"conformance: {shown} (membench targets check TARGET)"


def _target_changes(since: Mapping[CaseKey, SincePrevious]) -> Iterator[str]:
    """Yield where the previous run measured another version of a target."""
    for change in dict.fromkeys(change for case in since.values() for change in case.target_changes):
        yield f"since the last run another version of the system is measured: {change}"


def _print_failures(run: Run, folder: Path, style: Style, stream: TextIO) -> None:
    if not run.failures:
        return
    count = len(run.failures)
    print(style.red(f"\n{count} {'round' if count == 1 else 'rounds'} failed:"), file=stream)
    for failure in run.failures:
        print(clean(f"  {failure.case} round {failure.round + 1}: {failure.message}"), file=stream)
        if failure.log:
            print(style.dim(clean(f"    log: {folder / failure.log}")), file=stream)


def _count(run: Run) -> str:
    count = len(run.results)
    return f"{count} {'result' if count == 1 else 'results'} of {run.profile} run {run.id}"


def _reference(folder: Path) -> str:
    return folder.name if str(folder.parent) == DEFAULT_FOLDER else str(folder)


def summary_for_machines(folder: Path, run: Run, *, interrupted: bool) -> dict[str, Any]:
    """Return the document that `run --json` prints."""
    read = [read_result_of(folder, ref) for ref in run.results]
    since, _ = _since_previous(folder, run, read)
    results = []
    for ref, result in zip(run.results, read, strict=True):
        figure = result.metrics.get(ref.headline)
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
                "unit": result.units[leaf_of(ref.headline)].unit if figure else None,
                "durability": durability_of(result, ref.headline) or None,
                "search_by": search_by_of(result, ref.headline) or None,
                "not_available": result.metadata.get("not_available", {}),
                "change": _change_for_machines(ref, since),
            }
        )
    return {
        "run": run.id,
        "folder": str(folder),
        "status": run.status,
        "interrupted": interrupted,
        "profile": run.profile,
        "gates": run.times_count,
        "fingerprint": run.environment.fingerprint,
        "sources": run.environment.sources,
        "target_info": run.target_info,
        "results": results,
        "failures": run.failures,
        "timings": run.timings,
    }


def _change_for_machines(ref: ResultRef, since: Mapping[CaseKey, SincePrevious]) -> dict[str, Any] | None:
    headline = _headline(ref, since)
    if headline is None:
        return None
    low, high = headline.change.ratio_interval or (None, None)
    return {
        "since": since[ref.category, ref.benchmark, ref.target].run_id,
        "ratio": headline.change.ratio,
        "low": low,
        "high": high,
        "verdict": headline.verdict,
    }


def timings_text(run: Run) -> str:
    """Return a table of where the time went: the benchmarks, and what the harness added."""
    total = run.timings.get("all", 0.0)
    parts = {name: seconds for name, seconds in run.timings.items() if name != "all"}
    if run.parallel == 1:
        parts["plan, collect, wait"] = max(0.0, total - sum(parts.values()))
    base = total if run.parallel == 1 else sum(parts.values())
    rows = [
        (name, f"{seconds:.2f} s", f"{100 * seconds / base:.1f} %" if base else NOTHING)
        for name, seconds in sorted(parts.items(), key=lambda part: -part[1])
    ]
    measured = parts.get("benchmark", 0.0) + parts.get("failed rounds", 0.0)
    harness = 100 * (1 - measured / base) if base else 0.0
    rows.append(("all", f"{total:.2f} s", ""))
    lines = table(rows, ("time spent on", "seconds", "share"), right=(1, 2))
    of = "the run" if run.parallel == 1 else "all rounds"
    return f"{lines}\nthe harness itself: {harness:.1f} % of {of}"
