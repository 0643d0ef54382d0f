"""Compare runs of identical code and count what is called changed: every such change is false.

    python scripts/identical_runs.py                     five runs, all ten pairs; call it again to resume
    python scripts/identical_runs.py --simulate 200      200 simulated pairs with 5 % noise, no measuring

Three places compare runs: the end of a run, the comparison page, and `membench compare`. Each pair is given
to all three. "Before" is the rule of the first two places up to version 0.1: Welch's 95 % interval of one
figure, without a correction and without a floor. Runs are kept in the folder `--output-dir`.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import msgspec

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.measure.statistics import CONFIDENCE, over_rounds, t_critical, welch
from memory.benchmarking.metrics import metric_of
from memory.benchmarking.model.files import RUN_FILE, read_result, read_run, run_folders
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.model.records import Case, Environment, Figure, Result, ResultRef, Run, Unit
from memory.benchmarking.report.differences import compare_sources, differences
from memory.benchmarking.report.gather import gather
from memory.benchmarking.report.sources import sources_of
from memory.benchmarking.results import BenchmarkResults
from memory.benchmarking.run.previous_runs import verdicts_since_previous
from memory.benchmarking.verdicts.compare import compare_runs
from memory.benchmarking.verdicts.evidence import metric_in
from memory.benchmarking.verdicts.headlines import headline_verdict
from memory.benchmarking.verdicts.records import MetricVerdict

PLACES = ("end of a run", "comparison page", "membench compare")
CHANGED = ("regressed", "improved")
CATEGORIES = ("storage", "retrieval", "memory_search")
BENCHMARKS = 19
"""Simulated benchmarks of a run, each with one headline."""
TIMINGS = 8
"""Simulated timings of a benchmark."""
NOISE = 0.05
"""The standard deviation of a simulated figure from round to round, as a share."""


@dataclass(frozen=True)
class Count:
    """What one place calls changed in one pair of runs."""

    headlines: int
    of_headlines: int
    figures: int
    of_figures: int


@dataclass(frozen=True)
class Pair:
    """Two runs of identical code, the only ones in their folder."""

    base: Path
    current: Path

    def counts(self) -> Iterator[tuple[str, str, Count]]:
        """Yield place, rule and count."""
        before, now = (
            {(ref.category, ref.benchmark, ref.target): (ref, read_result(folder / ref.file))
             for ref in read_run(folder).results}
            for folder in (self.base, self.current)
        )  # fmt: skip
        cases = [(ref.headline, before[case][1], result) for case, (ref, result) in now.items()]
        old_headlines = [
            old_rule(headline, base, result)
            for headline, base, result in cases
            if headline in base.metrics and headline in result.metrics
        ]
        yield PLACES[0], "before", Count(sum(old_headlines), len(old_headlines), 0, 0)
        old_figures = [
            old_rule(path, base, result)
            for _, base, result in cases
            for path in result.metrics
            if path in base.metrics and metric_in(result, path).better != "neither"
        ]
        yield (
            PLACES[1], "before",
            Count(sum(old_headlines), len(old_headlines), sum(old_figures), len(old_figures)),
        )  # fmt: skip

        run = read_run(self.current)
        results = [result for _, result in now.values()]
        since = verdicts_since_previous(self.current, run, results)
        verdicts = {case: found.metrics for case, found in since.items()}
        headlines = {case: ref.headline for case, (ref, _) in now.items()}
        yield PLACES[0], "now", count(verdicts, headlines)

        manager = BenchmarkResults(self.current.parent)
        files = [
            file for folder in (self.base, self.current) for file in manager.list_results(run=str(folder))
        ]
        loaded = manager.load_results(files)
        sources, numbered = sources_of(loaded, manager.runs_of(loaded))
        gathered = gather(numbered)
        compared = compare_sources(gathered, sources)
        shown = differences(gathered, compared, headlines=True)
        judged = [each for one in compared for each in one.comparison.metrics if each.verdict is not None]
        yield PLACES[1], "now", Count(
            sum(each.is_clear for each in shown), len(shown),
            sum(each.verdict in CHANGED for each in judged), len(judged),
        )  # fmt: skip

        by_case: dict[tuple[str, str, str], dict[str, MetricVerdict]] = {}
        for each in compare_runs(self.base, self.current).metrics:
            by_case.setdefault((each.category, each.benchmark, each.target), {})[each.path] = each
        yield PLACES[2], "now", count(by_case, headlines)


def old_rule(path: str, before: Result, now: Result) -> bool:
    """Whether Welch's 95 % interval of the ratio excludes 1: how two places decided up to version 0.1."""
    sides = [result.metrics[path].rounds or [result.metrics[path].value] for result in (now, before)]
    if not all(0 < value < math.inf for side in sides for value in side):
        return False
    effect = welch(*([math.log(value) for value in side] for side in sides))
    return (
        effect.error is not None
        and abs(effect.value) > t_critical(effect.freedom, CONFIDENCE) * effect.error
    )


def count(
    verdicts: Mapping[tuple[str, str, str], Mapping[str, MetricVerdict]],
    headlines: Mapping[tuple[str, str, str], str],
) -> Count:
    """Count the headlines and the judged figures that are called changed."""
    found = [headline_verdict(headlines[case], metrics) for case, metrics in verdicts.items()]
    shown = [each for each in found if each is not None]
    judged = [each.verdict for metrics in verdicts.values() for each in metrics.values() if each.verdict]
    return Count(
        sum(each.verdict in CHANGED for each in shown), len(shown),
        sum(verdict in CHANGED for verdict in judged), len(judged),
    )  # fmt: skip


def report(pairs: Sequence[Sequence[tuple[str, str, Count]]]) -> str:
    """Return the table over all pairs, in Markdown."""
    lines = [
        "| place | rule | headlines called changed | figures called changed | pairs with a false headline "
        "| pairs with any false change |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    kinds = [(place, rule) for place, rule, _ in pairs[0]]
    for kind in sorted(kinds, key=lambda each: (each[1], PLACES.index(each[0]))):
        counts = [found for pair in pairs for place, rule, found in pair if (place, rule) == kind]
        figures, of_figures = sum(each.figures for each in counts), sum(each.of_figures for each in counts)
        cells = (
            *kind,
            f"{sum(each.headlines for each in counts):,} of {sum(each.of_headlines for each in counts):,}",
            f"{figures:,} of {of_figures:,}" if of_figures else "not shown",
            f"{sum(each.headlines > 0 for each in counts):,} of {len(counts):,}",
            f"{sum(each.headlines + each.figures > 0 for each in counts):,} of {len(counts):,}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# -- real runs --------------------------------------------------------------------------------


def measure(folder: Path, runs: int, options: Sequence[str]) -> list[Path]:
    """Make the runs that are not there yet, and return the folders of all."""
    while len(done := complete_runs(folder)) < runs:
        print(f"run {len(done) + 1} of {runs}", flush=True)
        command = [sys.executable, "-m", "memory.benchmarking.cli", "run", *options]
        subprocess.run([*command, "--quiet", "--output-dir", str(folder)], check=True)
    return done[:runs]


def complete_runs(folder: Path) -> list[Path]:
    found = []
    for each in run_folders(folder):
        try:
            if read_run(each).status == "complete":
                found.append(each)
        except BenchmarkError:
            continue
    return found


def all_pairs(folders: Sequence[Path]) -> Iterator[list[tuple[str, str, Count]]]:
    """Yield the counts of every pair; a folder of its own hides the other runs from it."""
    for base, current in combinations(folders, 2):
        with tempfile.TemporaryDirectory() as name:
            links = [Path(name) / each.name for each in (base, current)]
            for link, each in zip(links, (base, current), strict=True):
                link.symlink_to(each.resolve(), target_is_directory=True)
            yield list(Pair(*links).counts())


# -- simulated runs ---------------------------------------------------------------------------


def simulated_pairs(number: int, rounds: int) -> Iterator[list[tuple[str, str, Count]]]:
    for seed in range(number):
        with tempfile.TemporaryDirectory() as name:
            folders = [
                simulated_run(
                    Path(name), f"2026010{day}_000000_0000", rounds, random.Random(f"{seed} {day}")
                )
                for day in (1, 2)
            ]
            yield list(Pair(*folders).counts())


def simulated_run(output_dir: Path, run_id: str, rounds: int, noise: random.Random) -> Path:
    """Write a run whose figures differ from round to round by noise alone."""
    folder = output_dir / run_id
    refs, cases = [], []
    for number in range(BENCHMARKS):
        metrics = {}
        for timing in range(TIMINGS):
            for leaf in ("cpu_ms", "p50_ms", "throughput_ops_per_second"):
                values = [math.exp(noise.gauss(0, NOISE)) for _ in range(rounds)]
                found = over_rounds(values)
                metrics[f"size_{timing}/{leaf}"] = Figure(
                    value=found.value, low=found.low, high=found.high, rounds=values, samples=100,
                    interval_from="rounds",
                )  # fmt: skip
        name = f"benchmark_{number}"
        leaves = {leaf_of(path) for path in metrics}
        result = Result(
            benchmark=name, category="simulated", timestamp=run_id[:15], results={},
            metadata={"target": "agentmemory", "params": {}, "seeds": list(range(rounds))}, metrics=metrics,
            units={leaf: Unit(unit=metric_of(leaf).unit, better=metric_of(leaf).better) for leaf in leaves},
        )  # fmt: skip
        file = folder / "simulated" / f"{name}_{run_id[:15]}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(result))
        headline = "size_7/p50_ms" if number % 2 else "size_7/throughput_ops_per_second"
        cases.append(Case(category="simulated", benchmark=name, target="agentmemory", params={}))
        refs.append(
            ResultRef(
                category="simulated", benchmark=name, target="agentmemory", params_digest="0",
                file=str(file.relative_to(folder)), rounds=rounds, headline=headline,
            )
        )  # fmt: skip
    environment = Environment(
        fingerprint="simulated", cpu="", cores=1, memory_gb=1, os="", python="", packages={}
    )
    run = Run(
        id=run_id, status="complete", started_at=run_id, profile="quick", seed=0, rounds=rounds,
        seconds=0.1, parallel=1, targets=["agentmemory"], cases=cases, environment=environment, config={},
        results=refs,
    )  # fmt: skip
    (folder / RUN_FILE).write_bytes(msgspec.json.encode(run))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--simulate", type=int, metavar="N", help="compare N simulated pairs of runs")
    parser.add_argument("--runs", type=int, default=5, help="how many runs to make (default 5)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each run (default 5)")
    parser.add_argument("--profile", default="quick", help="profile of the runs (default quick)")
    parser.add_argument(
        "--category", action="append", help=f"may be repeated (default: {', '.join(CATEGORIES)})"
    )
    parser.add_argument(
        "--output-dir", type=Path, default=Path("identical_results"), help="folder of the runs"
    )
    asked = parser.parse_args()
    if asked.simulate:
        print(report(list(simulated_pairs(asked.simulate, asked.rounds))))
        return
    options = ["--profile", asked.profile, "--rounds", str(asked.rounds)]
    for category in asked.category or CATEGORIES:
        options += ["--category", category]
    print(report(list(all_pairs(measure(asked.output_dir, asked.runs, options)))))


if __name__ == "__main__":
    main()
