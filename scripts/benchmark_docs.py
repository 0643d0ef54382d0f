"""Write docs/benchmarks.md from the benchmarks' docstrings, signatures and declarations.

python scripts/benchmark_docs.py            writes the page
python scripts/benchmark_docs.py --check    exits with 1 if the page is not up to date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from memory.benchmarking.benchmarks import built_in
from memory.benchmarking.metrics import TIMED, Metric, metric_of
from memory.benchmarking.model.benchmark import Benchmark
from memory.benchmarking.model.profiles import PROFILES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
INTRODUCTION = """# The benchmarks

`make docs` writes this page from the benchmarks; `membench list --verbose` prints the same. The sizes are
those of the profiles quick, standard and full.

## The figures of a timing

Every timing has these ten figures. In the tables below, "timing" stands for all of them. See
[measuring](measuring.md) for how they are measured.

"""
MEANINGS = {
    "throughput_ops_per_second": "items per second of wall time, in one thread",
    "total_time_seconds": "wall time of all calls together",
    "items_processed": "how many items the calls processed",
    "mean_ms": "mean time of a call",
    "p50_ms": "median time of a call",
    "p95_ms": "95 % of the calls took no longer",
    "p99_ms": "99 % of the calls took no longer",
    "max_ms": "the slowest call",
    "cpu_ms": "CPU time of a call",
    "wall_to_cpu": "wall time ÷ CPU time: above 1, the calls waited or the machine was busy",
}
BETTER = {"higher": "higher", "lower": "lower", "neither": "—"}


def page() -> str:
    """Return the whole page."""
    rows = [f"{row} {MEANINGS[name]} |" for name, row in figure_rows({n: metric_of(n) for n in TIMED})]
    table = ["| figure | unit | better | what |", "| --- | --- | --- | --- |", *rows]
    parts = [INTRODUCTION + "\n".join(table) + "\n"]
    category = ""
    for benchmark in built_in().values():
        if benchmark.category != category:
            category = benchmark.category
            parts.append(f"## {category}\n\n{benchmark.presentation.category}\n")
        parts.append(section(benchmark))
    return "\n".join(parts)


def section(benchmark: Benchmark) -> str:
    """Return the part of the page about one benchmark."""
    lines = [f"### {benchmark.name}\n", benchmark.description, ""]
    if benchmark.defaults:
        lines += ["| parameter | quick | standard | full | what |", "| --- | --- | --- | --- | --- |"]
        lines += [parameter_row(benchmark, name) for name in benchmark.defaults]
        lines.append("")
    metrics = benchmark.metrics
    lines += ["| figure | unit | better |", "| --- | --- | --- |"]
    if set(TIMED) <= set(metrics):
        lines.append("| timing | | |")
        metrics = {name: metric for name, metric in metrics.items() if name not in TIMED}
    lines += [row for _, row in figure_rows(metrics)]
    goals = benchmark.presentation.goals
    if goals:
        limits = [
            f"{name} {'≥' if benchmark.declaration.metric(name).better == 'higher' else '≤'} {goal.limit:g}"
            for name, goal in goals.items()
        ]
        lines += ["", f"Goals: {', '.join(limits)}."]
    return "\n".join(lines) + "\n"


def figure_rows(metrics: Mapping[str, Metric]) -> list[tuple[str, str]]:
    """Return the table row of each metric, by its name."""
    return [
        (name, f"| {name} | {metric.unit or '—'} | {BETTER[metric.better]} |")
        for name, metric in metrics.items()
    ]


def parameter_row(benchmark: Benchmark, name: str) -> str:
    """Return the table row of a parameter: its value under each profile."""
    shown = [json.dumps(benchmark.sizes(profile)[name]) for profile in PROFILES]
    about = benchmark.about_parameters.get(name, "").replace("|", "\\|")
    return f"| {name} | {' | '.join(shown)} | {about} |"


def main() -> int:
    """Write or check the page; return the exit code."""
    new = page()
    if "--check" not in sys.argv:
        PAGE.write_text(new)
        return 0
    if PAGE.exists() and PAGE.read_text() == new:
        return 0
    print("docs/benchmarks.md is not up to date: make docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
