"""Measure the figures of README.md and docs/performance.md, and write their tables: `make figures`.

    python scripts/figures.py                    measure everything (an hour on a quiet machine), then write
    python scripts/figures.py storage quality    measure some parts, then write
    python scripts/figures.py --write            only write the tables, from docs/figures/*.json
    python scripts/figures.py --check            exit code 1 if a table is not what these files say

Nobody types a figure: every part keeps what it measured in docs/figures/PART.json, with the command, the
date, the revision and the machine. A table stands between `<!-- figures: NAME -->` and `<!-- /figures -->`.
The runs themselves are kept in the folder `--output-dir`.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from memory import __version__
from memory.benchmarking.model.environment import MEMBENCH, describe
from memory.benchmarking.model.files import read_result_of, read_run

ROOT = Path(__file__).parents[1]
STORED = ROOT / "docs" / "figures"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "performance.md")
_TABLE = re.compile(r"<!-- figures: (\w+) -->\n.*?<!-- /figures -->", re.DOTALL)
OURS, BASELINE = "agentmemory", "sqlite-baseline"
Figures = Mapping[str, Any]
"""What one part has stored."""


# -- measuring --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One measurement."""

    command: Sequence[str]
    """Its arguments: of membench, or of Python for a program of this repository."""
    keeps: Sequence[str] = ()
    """Patterns of the metrics to keep, `benchmark:path`; empty for a program that writes JSON."""


def _membench(*options: str) -> tuple[str, ...]:
    return ("membench", "run", *options)


PARTS = {
    "floor": Part(("scripts/floor.py", "--million")),
    "quality": Part(("scripts/quality.py",)),
    "runtimes": Part(("examples/compare_runtimes.py",)),
    "storage": Part(
        _membench("--category", "storage", "--target", OURS, "--target", BASELINE),
        (
            r"write_throughput:texts/batch_1000/\w+/(one_by_one|as_one_batch)/throughput_ops_per_second",
            r"read_latency:texts/\w+/single/p50_ms",
            r"memory_efficiency:(texts|complexity_[15])/\w+/disk_bytes_per_memory",
        ),
    ),
    "sizes": Part(
        _membench("--profile", "full", "--rounds", "1", "--benchmark", "memory_size_scaling"),
        (r"memory_size_scaling:size_\d+/(\w+_search|read)/p50_ms", r"memory_size_scaling:.*recall_at_10"),
    ),
    "turn": Part(_membench("--benchmark", "simple_invocation"), (r"simple_invocation:invoke/p50_ms",)),
}


def measure(name: str, output_dir: Path) -> None:
    """Run one part, and store what it measured."""
    part = PARTS[name]
    command = list(part.command)
    print(f"{name}: {shlex.join(command)}", flush=True)
    if part.keeps:
        program = [sys.executable, "-m", "memory.benchmarking.cli", *command[1:]]
        # Its exit code is 1 if a round failed: the others have figures all the same.
        done = subprocess.run(
            [*program, "--quiet", "--output-dir", str(output_dir)], stdout=subprocess.PIPE, text=True
        )
        if not done.stdout.strip():
            raise SystemExit(f"{name} measured nothing: see the lines above")
        found = _kept(Path(done.stdout.strip().splitlines()[-1]), part.keeps)
    else:
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "figures.json"
            # Its exit code is 1 if a goal is missed.
            subprocess.run([sys.executable, *command, "--json", str(answer)], cwd=ROOT, check=False)
            if not answer.exists():
                raise SystemExit(f"{name} measured nothing: see the lines above")
            found = {"figures": json.loads(answer.read_text())}
    where = describe(output_dir if output_dir.exists() else ROOT, {MEMBENCH: [ROOT]})
    about = {
        "command": shlex.join(command if part.keeps else ["python", *command]),
        "date": date.today().isoformat(),
        "version": __version__,
        "revision": where.sources[MEMBENCH].revision[:12],
        "machine": f"{where.cores} cores, {where.cpu}, Python {where.python}",
    }
    STORED.mkdir(exist_ok=True)
    (STORED / f"{name}.json").write_text(json.dumps({**about, **found}, indent=1, sort_keys=True) + "\n")


def _kept(folder: Path, patterns: Sequence[str]) -> dict[str, Any]:
    """Return the figures of a run whose names match, by target: value, low and high."""
    run = read_run(folder)
    found: dict[str, dict[str, Any]] = {}
    for ref in run.results:
        result = read_result_of(folder, ref)
        for path, figure in result.metrics.items():
            name = f"{ref.benchmark}:{path}"
            if any(re.fullmatch(pattern, name) for pattern in patterns):
                found.setdefault(ref.target, {})[name] = [figure.value, figure.low, figure.high]
    return {"run": run.id, "rounds": run.rounds, "figures": found}


# -- writing ----------------------------------------------------------------------------------


def _number(value: float | None) -> str:
    """Return a figure with three digits; an em dash for none."""
    if value is None:
        return "—"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def _value(figures: Figures, target: str, pattern: str) -> float | None:
    """Return the first figure of a target whose name matches."""
    for name, (value, *_) in figures["figures"].get(target, {}).items():
        if re.fullmatch(pattern, name):
            return float(value)
    return None


def _ratio(figures: Figures, ours: str, theirs: str) -> tuple[float | None, float | None, str]:
    mine, other = _value(figures, OURS, ours), _value(figures, BASELINE, theirs)
    return mine, other, f"{mine / other:.2f} ×" if mine and other else "—"


_WRITES = "write_throughput:texts/batch_1000/{place}/{how}/throughput_ops_per_second"
_READS = "read_latency:texts/{place}/single/p50_ms"
_BYTES = "memory_efficiency:{kind}/{place}/disk_bytes_per_memory"
STORAGE_ROWS = (
    ("texts written a second, one by one", _WRITES, {"how": "one_by_one"}, ("stm",)),
    ("texts written a second, in batches of 1,000", _WRITES, {"how": "as_one_batch"}, ("stm",)),
    ("one text read by its id, p50 ms", _READS, {}, ("stm", "im", "ltm")),
    ("bytes a text on disk", _BYTES, {"kind": "texts"}, ("stm", "im", "ltm")),
    ("bytes a small state on disk", _BYTES, {"kind": "complexity_1"}, ("stm", "im", "ltm")),
)


def storage_table(figures: Figures) -> list[str]:
    rows = []
    for words, pattern, names, places in STORAGE_ROWS:
        for place in places:
            mine, other, ratio = _ratio(
                figures, *(pattern.format(place=one, **names) for one in (place, "store"))
            )
            rows.append([f"{words}, {place}", _number(other), _number(mine), ratio])
    return _markdown(("what", BASELINE, "ours", "ours ÷ baseline"), rows)


def sizes_table(figures: Figures) -> list[str]:
    names = list(figures["figures"].get(OURS, {}))
    sizes = sorted({int(found[1]) for name in names if (found := re.search(r"size_(\d+)", name))})
    rows = [
        [words, *(_number(_value(figures, OURS, rf".*size_{size}/.*{leaf}")) for size in sizes)]
        for words, leaf in (
            ("search by vector, p50 ms", "vector_search/p50_ms"),
            ("search by text, p50 ms", "text_search/p50_ms"),
            ("read by id, p50 ms", "read/p50_ms"),
            ("first search of a process, ms", "first_search/p50_ms"),
            ("recall@10 against exact", "recall_at_10"),
        )
    ]
    return _markdown(("memories of the agent", *(f"{size:,}" for size in sizes)), rows)


def turn_table(figures: Figures) -> list[str]:
    (low, high) = figures["figures"][OURS]["simple_invocation:invoke/p50_ms"][1:]
    value = _value(figures, OURS, ".*")
    within = f" ({_number(low)} to {_number(high)})" if low is not None else ""
    return _markdown(("what", "figure"), [["one turn of an agent, p50 ms", f"{_number(value)}{within}"]])


def floor_table(figures: Figures) -> list[str]:
    rows = []
    for line in figures["figures"]:
        # Other goals are for our figure alone.
        is_compared = "×" in line["goal"] or not line["goal"]
        ratio = f"{line['ratio']:.2f}" if is_compared else ""
        rows.append([line["what"], line["floor"], line["ours"], ratio, line["goal"]])
    return _markdown(("what", "floor", "ours", "ratio", "goal"), rows)


def quality_table(figures: Figures) -> list[str]:
    rows = [[one["set"], f"{one['questions']:,}", _named(one["figures"])] for one in figures["figures"]]
    return _markdown(("set", "questions", "figures"), rows)


def _named(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in figures.items())


def runtimes_table(figures: Figures) -> list[str]:
    found = {name: one for name, one in figures["figures"].items() if name != "not_available"}
    ours = next(iter(found.values()))["p50_ms"]
    rows = [[name, _number(one["p50_ms"]), f"{ours / one['p50_ms']:.2f} ×"] for name, one in found.items()]
    return _markdown(("runtime", "p50 ms of a message", "ours ÷ theirs"), rows)


def headline_table(part: Callable[[str], Figures | None]) -> list[str]:
    """Return README's table, from whatever parts were measured."""
    rows = []
    if storage := part("storage"):
        for words, pattern, names, places in STORAGE_ROWS[:3]:
            texts = [
                _ratio(storage, *(pattern.format(place=one, **names) for one in (place, "store")))[2]
                for place in places
            ]
            where = f" ({' / '.join(places)})" if len(places) > 1 else ""
            rows.append([f"{words}{where}, against plain SQLite ({BASELINE})", " / ".join(texts)])
    if floor := part("floor"):
        for line in floor["figures"]:
            if line["what"].startswith(("vector search", "text search")):
                how = f"{line['ours']}, {line['ratio']:.2f} of the time of NumPy and FTS5"
                rows.append([line["what"], how])
    if sizes := part("sizes"):
        sizes_rows = sizes_table(sizes)[2:5]
        last = [row.strip("| ").split(" | ") for row in sizes_rows]
        rows.append(
            [
                "one agent with 1,000,000 memories: search by vector / by text / read by id, p50 ms",
                " / ".join(cells[-1] for cells in last),
            ]
        )
    if turn := part("turn"):
        rows.append([cell.strip() for cell in turn_table(turn)[2].strip("|").split("|")])
    if quality := part("quality"):
        for one in quality["figures"]:
            rows.append(
                [one["set"], ", ".join(f"{key} {value:.3f}" for key, value in one["figures"].items())]
            )
    return _markdown(("what", "figure"), rows)


TABLES: dict[str, Callable[[Figures], list[str]]] = {
    "floor": floor_table,
    "quality": quality_table,
    "runtimes": runtimes_table,
    "storage": storage_table,
    "sizes": sizes_table,
    "turn": turn_table,
}


def stored(name: str) -> Figures | None:
    path = STORED / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _about(figures: Figures) -> str:
    run = f", run {figures['run']} of {figures['rounds']} rounds" if "run" in figures else ""
    return (
        f"`{figures['command']}`\\\n{figures['date']}, version {figures['version']} "
        f"({figures['revision']}), {figures['machine']}{run}"
    )


def written(text: str) -> str:
    """Return a document with the tables of all parts that were measured; the others stay."""

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name == "headlines":
            about = "[How, and the commands to repeat it](docs/performance.md)."
            lines = [about, "", *headline_table(stored)] if stored("storage") else None
        else:
            figures = stored(name)
            lines = None if figures is None else [_about(figures), "", *TABLES[name](figures)]
        if lines is None:
            return match[0]
        return "\n".join([f"<!-- figures: {name} -->", "", *lines, "", "<!-- /figures -->"])

    return _TABLE.sub(table, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--write", action="store_true", help="only write the tables")
    parser.add_argument("--check", action="store_true", help="only compare the tables with the files")
    parser.add_argument("--output-dir", type=Path, default=Path("figures_results"), help="of the runs")
    asked = parser.parse_args()
    for name in asked.parts:
        if name not in PARTS:
            parser.error(f"there is no part {name!r}: use {', '.join(PARTS)}")
    if not (asked.write or asked.check):
        for name in asked.parts or PARTS:
            measure(name, asked.output_dir)
    old = [document for document in DOCUMENTS if written(document.read_text()) != document.read_text()]
    if asked.check:
        for document in old:
            print(f"{document.relative_to(ROOT)}: run `python scripts/figures.py --write`", file=sys.stderr)
        return 1 if old else 0
    for document in old:
        document.write_text(written(document.read_text()))
        print(f"wrote {document.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
