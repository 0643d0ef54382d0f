"""How many metrics a comparison with a stored baseline leaves undecided: `make undecided`.

    python scripts/undecided.py [--comparisons 20] [--budget 300] [--output-dir undecided_results]

Identical code all the time, so every change that is found is a false alarm:

1. four runs, from which the noise of the machine is calculated as `membench calibrate` does,
2. a baseline of five rounds,
3. one run after the other with `run --until-decided --baseline main --budget SECONDS`.

Runs are kept in `--output-dir`. Call it again to resume; `--comparisons 0` only prints the table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from identical_runs import CATEGORIES, CHANGED, complete_runs

from memory.benchmarking.lockstep.calibration import stored_calibration
from memory.benchmarking.model.files import read_result_of, read_run
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.verdicts.baselines import baseline_folder, set_baseline
from memory.benchmarking.verdicts.compare import compare_runs
from memory.benchmarking.verdicts.noise import store_noise
from memory.benchmarking.verdicts.records import MetricVerdict

CALIBRATING = 4
BASELINE = "main"


def membench(folder: Path, profile: str, rounds: int, options: Sequence[str] = ()) -> None:
    command = [sys.executable, "-m", "memory.benchmarking.cli", "run", "--profile", profile]
    command += ["--rounds", str(rounds), "--quiet", "--output-dir", str(folder), *options]
    for category in CATEGORIES:
        command += ["--category", category]
    subprocess.run(command, check=True)


def prepare(folder: Path, profile: str, rounds: int) -> None:
    """Make the runs of the calibration and the baseline that are not there yet."""
    while len(done := complete_runs(folder)) < CALIBRATING + 1:
        print(f"run {len(done) + 1} of {CALIBRATING + 1} before the comparisons", flush=True)
        membench(folder, profile, rounds)
    runs = [[read_result_of(run, ref) for ref in read_run(run).results] for run in done[:CALIBRATING]]
    noise = stored_calibration(runs, datetime.now().astimezone().isoformat(timespec="seconds"))
    base = done[CALIBRATING]
    store_noise(folder, read_run(base).environment.fingerprint, "stored", noise)
    set_baseline(folder, BASELINE, base)


def verdicts_of(folder: Path) -> list[list[MetricVerdict]]:
    """Return the judged metrics of every comparison with the baseline."""
    base = baseline_folder(folder, BASELINE)
    return [
        [each for each in compare_runs(base, run).metrics if each.verdict is not None]
        for run in complete_runs(folder)[CALIBRATING + 1 :]
    ]


def report(comparisons: Sequence[Sequence[MetricVerdict]]) -> str:
    """Return the table in Markdown, and which figures were undecided."""
    lines = ["| comparison | judged metrics | undecided | false alarms |", "| ---: | ---: | ---: | ---: |"]
    reasons: Counter[str] = Counter()
    alarms = total = undecided = 0
    for number, metrics in enumerate(comparisons, 1):
        open_ = [each for each in metrics if each.verdict == "inconclusive"]
        false = [each for each in metrics if each.verdict in CHANGED]
        reasons.update(f"{leaf_of(each.path)}: {each.reason}" for each in open_)
        alarms, total, undecided = alarms + bool(false), total + len(metrics), undecided + len(open_)
        share = len(open_) / max(1, len(metrics))
        lines.append(f"| {number} | {len(metrics)} | {len(open_)} ({share:.1%}) | {len(false)} |")
    share = undecided / max(1, total)
    lines.append(f"| all | {total} | {undecided} ({share:.1%}) | in {alarms} of {len(comparisons)} |")
    lines += ["", *(f"- {count} × {what}" for what, count in reasons.most_common())]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--comparisons", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds before more are added (default 5)")
    parser.add_argument("--budget", type=float, default=300, help="seconds for more rounds (default 300)")
    parser.add_argument("--profile", default="quick", help="profile of the runs (default quick)")
    parser.add_argument("--output-dir", type=Path, default=Path("undecided_results"), help="of the runs")
    asked = parser.parse_args()
    prepare(asked.output_dir, asked.profile, asked.rounds)
    options = ["--until-decided", "--baseline", BASELINE, "--budget", str(asked.budget)]
    while (done := len(complete_runs(asked.output_dir)) - CALIBRATING - 1) < asked.comparisons:
        print(f"comparison {done + 1} of {asked.comparisons}", flush=True)
        membench(asked.output_dir, asked.profile, asked.rounds, options)
    print(report(verdicts_of(asked.output_dir)))


if __name__ == "__main__":
    main()
