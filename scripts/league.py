"""Measures the published league, bundles it, verifies the bundle, and writes docs/league.md from it.

    python scripts/league.py                          all installed targets, standard profile
    python scripts/league.py --target agentmemory …   other options of `membench league`
    python scripts/league.py --docs docs/league.zip   only the document, from a bundle that exists

A league that was stopped or killed is continued: start the same command again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from memory.benchmarking.league.gather import league_of
from memory.benchmarking.league.markdown import as_markdown
from memory.benchmarking.league.sources import unpacked_runs
from memory.benchmarking.league.suite import SUITE
from memory.benchmarking.model.files import read_run, run_folders

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "league.md"
BUNDLE = ROOT / "docs" / "league.zip"
RESULTS = ROOT / "benchmark_results" / "league"
BEGIN, END = "<!-- league: begin -->", "<!-- league: end -->"
LARGEST = 5_000_000
"""A larger bundle does not belong into the repository."""


def membench(*arguments: str) -> None:
    command = [sys.executable, "-m", "memory.benchmarking.cli", *arguments]
    code = subprocess.run(command, cwd=ROOT).returncode
    if code:
        sys.exit(code)


def unfinished() -> bool:
    """Return whether the newest league was stopped before its end."""
    runs = [read_run(folder) for folder in run_folders(RESULTS)]
    leagues = [run for run in runs if run.suite == SUITE]
    return bool(leagues) and leagues[-1].status in ("running", "interrupted")


def write_document(bundle: Path, document: Path = DOCUMENT) -> None:
    """Replace the part of the document between the two marks."""
    with tempfile.TemporaryDirectory() as scratch:
        league = league_of(unpacked_runs(bundle, Path(scratch) / "bundle"))
        text = document.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, found, after = rest.partition(END)
        if not found:
            sys.exit(f"{document} lacks the marks {BEGIN} and {END}")
        made = as_markdown(league, level=3)
        document.write_text(f"{before}{BEGIN}\n\n{made}\n{END}{after}", encoding="utf-8")


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--docs"]:
        write_document(Path(arguments[1]))
        return
    place = ("--output-dir", str(RESULTS.relative_to(ROOT)))
    if unfinished():
        membench("league", "--resume", *place)
    else:
        membench(
            "league", *(() if "--profile" in arguments else ("--profile", "standard")), *arguments, *place
        )
    membench("results", "bundle", *place, "-o", str(BUNDLE.relative_to(ROOT)))
    membench("results", "verify", str(BUNDLE.relative_to(ROOT)))
    write_document(BUNDLE)
    size = BUNDLE.stat().st_size
    print(f"{DOCUMENT}\n{BUNDLE}: {size:,} bytes")
    if size > LARGEST:
        print(f"The bundle is larger than {LARGEST:,} bytes: publish it elsewhere, and link to it.")


if __name__ == "__main__":
    main(sys.argv[1:])
