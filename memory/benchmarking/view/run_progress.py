"""A run that is not complete: its progress, its running rounds and its results so far.

The data is on disk: `run.json` lists every finished round, and each running round has a scratch folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Run
from memory.benchmarking.report.markup import Markup, element, join
from memory.benchmarking.report.parts import note, path_words, table
from memory.benchmarking.report.run_facts import duration_text, parse_time
from memory.benchmarking.run.previous_runs import Estimator
from memory.benchmarking.text.display import NOTHING, figure_text, interval_text
from memory.benchmarking.view.index import RunLine, running_rounds
from memory.benchmarking.view.layout import progress


def progress_note(line: RunLine, run: Run) -> Markup | None:
    """Return a note about an interrupted or running run; None for any other."""
    if line.status == "interrupted":
        return note(
            f"Interrupted after {line.done} of {line.total} rounds. Continue with: ",
            element("code", f"membench run --resume {line.id}"),
            tone="warn",
        )
    if not line.is_running:
        return None
    parts = [progress(line)]
    start = parse_time(run.started_at)
    if start is not None:
        elapsed = (datetime.now(start.tzinfo) - start).total_seconds()
        parts.append(element("span", f"started {duration_text(elapsed)} ago"))
    left = _seconds_left(line, run)
    if left is not None:
        parts.append(element("span", f"about {duration_text(left)} left"))
    running = ", ".join(map(_round_text, running_rounds(line)))
    now = element("p", f"Running now: {running}") if running else None
    return element("div", element("p", parts, class_="standing"), now, class_="note")


def _round_text(name: str) -> str:
    """Return the name of a scratch folder for people: `storage.read_latency@agentmemory, round 1`."""
    case, _, number = name.rpartition(".")
    return f"{case}, round {int(number) + 1}" if number.isdecimal() else name


def _seconds_left(line: RunLine, run: Run) -> float | None:
    """Estimate the time left from the finished rounds, else from previous runs; None if unknown."""
    seen: dict[str, list[float]] = {}
    for each in run.moments:
        seen.setdefault(each.case, []).append(each.seconds)
    failed = [failure.case for failure in run.failures]
    total = 0.0
    for case in run.cases:
        measured = seen.get(case.key, [])
        left = run.rounds_of(case) - len(measured) - failed.count(case.key)
        if left <= 0:
            continue
        if measured:
            seconds_a_round: float | None = sum(measured) / len(measured)
        else:
            seconds_a_round = _estimator(line.folder.parent, run.id, run.profile).seconds(case)
        if seconds_a_round is None:
            return None
        total += left * seconds_a_round
    return total / max(1, run.parallel)


@lru_cache(maxsize=4)
def _estimator(output_dir: Path, run_id: str, profile: str) -> Estimator:
    """Return the estimator for a run. It is cached, because previous runs do not change during the run."""
    return Estimator(output_dir, profile)


def results_so_far(results: Sequence[LoadedResult]) -> Markup:
    """Return the headline figures. There are no charts, because the page is built every two seconds."""
    if not results:
        text = "The first results appear when all rounds of a benchmark are done."
        return element("p", text, class_="soft")
    several = len({each.target for each in results}) > 1
    rows = []
    for each in results:
        path = each.headline
        figure, unit = each.result.metrics.get(path), each.metric(path).unit
        shown, bounds = NOTHING, ""
        if figure is not None:
            shown = figure_text(figure.value, unit)
            bounds = interval_text(figure.value, figure.low, figure.high, unit)
        rows.append(
            element(
                "tr",
                element("th", f"{each.name} on {each.target}" if several else each.name, scope="row"),
                element("td", shown, class_="n"),
                element("td", bounds or NOTHING, class_="n"),
                element("td", path_words(path) if path else NOTHING),
            )
        )
    names = ("Benchmark", "Figure", "95 % interval", "Metric")
    return join((element("h2", "Results so far"), table(names, rows, "Results so far", (1, 2))))
