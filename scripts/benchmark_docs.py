"""docs/benchmarks.md, made from the benchmarks' docstrings, signatures and declarations.

python scripts/benchmark_docs.py            writes it
python scripts/benchmark_docs.py --check    exits 1 if it is not up to date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from memory.benchmarking.model.profiles import PROFILES
from memory.benchmarking.run.discovery import Benchmark, discover

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
INTRODUCTION = """# The benchmarks

Made by `make docs` from the benchmarks themselves; `membench list --verbose` shows the same. Sizes are
those of the profiles quick, standard and full. Every `bench.time` gives throughput, mean, percentiles,
maximum, CPU time and the contention meter; see [measuring](measuring.md).
"""
BETTER = {"higher": "higher", "lower": "lower", "neither": "—"}


def page() -> str:
    found = discover()
    if found.problems:
        raise next(iter(found.problems.values()))
    parts = [INTRODUCTION]
    for category in found.categories():
        parts.append(f"## {category}\n")
        parts += [section(each) for each in found.benchmarks if each.category == category]
    return "\n".join(parts)


def section(benchmark: Benchmark) -> str:
    lines = [f"### {benchmark.name}\n", benchmark.description, ""]
    if benchmark.defaults:
        lines += ["| parameter | quick | standard | full | what |", "| --- | --- | --- | --- | --- |"]
        lines += [parameter_row(benchmark, name) for name in benchmark.defaults]
        lines.append("")
    lines += ["| figure | unit | better |", "| --- | --- | --- |"]
    lines += [
        f"| {name} | {metric.unit or '—'} | {BETTER[metric.better]} |"
        for name, metric in benchmark.metrics.items()
    ]
    return "\n".join(lines) + "\n"


def parameter_row(benchmark: Benchmark, name: str) -> str:
    sizes = [
        profile.sizes.get(benchmark.category, {})
        .get(benchmark.name, {})
        .get(name, benchmark.defaults[name])
        for profile in PROFILES.values()
    ]
    shown = [json.dumps(list(size) if isinstance(size, tuple) else size) for size in sizes]
    about = benchmark.about_parameters.get(name, "").replace("|", "\\|")
    return f"| {name} | {' | '.join(shown)} | {about} |"


def main() -> int:
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
