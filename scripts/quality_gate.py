"""Count how often `membench compare` calls quality worse: for identical code, and for a known drop.

    python scripts/quality_gate.py                       20 identical runs, 10 degraded ones
    python scripts/quality_gate.py --identical 2 --degraded 2 --conversations 12     a short look

The target is AgentMemory. A degraded run finds nothing for a random share of the questions, so that recall
at 5 drops by about `--drop`. Each run is compared with one stored baseline. Runs are kept in the folder
`--output-dir`; calling it again adds what is missing. A drop counts as found if the exit code is 2.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from memory.benchmarking.measure.statistics import CONFIDENCE
from memory.benchmarking.model.files import read_run, run_folders
from memory.benchmarking.verdicts.baselines import set_baseline

RECALL = "synthetic/target/all_questions/recall_at_5"
TARGET = '''
import hashlib, os

from memory.benchmarking.targets.agentmemory import AgentMemoryTarget


class Target(AgentMemoryTarget):
    """AgentMemory that finds nothing for a share of the questions."""

    asked = 0

    def search(self, agent_id, query, k, place=None):
        found = super().search(agent_id, query, k, place)
        Target.asked += 1  # the same text is asked in many conversations
        digest = hashlib.sha256(f"{os.environ.get('DEGRADE_SEED')}/{Target.asked}".encode()).digest()
        is_hit = int.from_bytes(digest[:4], "big") / 2**32 < float(os.environ.get("DEGRADE_SHARE", "0"))
        return [] if is_hit else found
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--identical", type=int, default=20, help="runs of identical code (default 20)")
    parser.add_argument("--degraded", type=int, default=10, help="runs with a drop (default 10)")
    parser.add_argument("--drop", type=float, default=0.01, help="drop of recall at 5 (default 0.01)")
    parser.add_argument("--conversations", type=int, default=53, help="default 53: 2,014 questions")
    parser.add_argument("--output-dir", default="quality_gate_results", help="folder for the runs")
    options = parser.parse_args()

    home = Path(options.output_dir).resolve()
    home.mkdir(parents=True, exist_ok=True)
    target = home / "target.py"
    target.write_text(TARGET)
    base = measured(home / "base", target, options.conversations)
    set_baseline(home, "base", base)
    recall, questions = headline(base)
    print(f"baseline: recall at 5 {recall:.4f} over {questions:,} questions", flush=True)

    flagged = 0
    for number in range(options.identical):
        run = measured(home / f"identical {number}", target, options.conversations)
        code, comparison = compare(home, run)
        flagged += code != 0
        changed = len(comparison["questions"])
        print(f"identical {number}: exit code {code}, {changed} questions changed sides", flush=True)
    found, drops = 0, []
    for number in range(options.degraded):
        degrade = {"DEGRADE_SHARE": str(options.drop / recall), "DEGRADE_SEED": f"seed {number}"}
        run = measured(home / f"degraded {options.drop} {number}", target, options.conversations, degrade)
        code, comparison = compare(home, run)
        found += code == 2
        drops.append(recall - headline(run)[0])
        (metric,) = (each for each in comparison["metrics"] if each["path"] == RECALL)
        print(
            f"degraded {number}: drop {drops[-1]:.4f}, exit code {code}, {metric['verdict']}, "
            f"p {metric['p']:.2g}, {len(comparison['questions'])} questions changed sides",
            flush=True,
        )
    print("\n| runs | called worse | |\n| --- | --- | --- |")
    print(f"| identical code | {rate(flagged, options.identical)} | |")
    if drops:
        span = f"recall at 5 lower by {min(drops):.4f} to {max(drops):.4f}"
        print(f"| a known drop | {rate(found, options.degraded)} | {span} |")


def measured(folder: Path, target: Path, conversations: int, degrade: dict[str, str] | None = None) -> Path:
    """Return the run in a folder; make it if it is not there."""
    for each in run_folders(folder):
        if read_run(each).status == "complete":
            return each
    command = [
        *(sys.executable, "-m", "memory.benchmarking.cli", "run", "--category", "quality", "--quiet"),
        *("--target", f"{target}:Target", "--set", f"quality.conversations={conversations}"),
        *("--output-dir", str(folder)),
    ]
    subprocess.run(command, check=True, env=os.environ | (degrade or {}), stdout=subprocess.DEVNULL)
    return run_folders(folder)[-1]


def compare(home: Path, run: Path) -> tuple[int, dict[str, Any]]:
    """Compare a run with the baseline by the command; return the exit code and the document."""
    command = [sys.executable, "-m", "memory.benchmarking.cli", "compare", "--baseline", "base"]
    done = subprocess.run(
        [*command, str(run), "--output-dir", str(home), "--json"], capture_output=True, text=True
    )
    if done.returncode not in (0, 2):
        sys.exit(f"compare ended with {done.returncode}: {done.stderr}")
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def headline(run: Path) -> tuple[float, int]:
    """Return recall at 5 and the number of questions."""
    (file,) = run.glob("quality/*.json")
    metrics = json.loads(file.read_text())["metrics"]
    return metrics[RECALL]["value"], int(metrics[RECALL.replace("recall_at_5", "questions")]["value"])


def rate(count: int, total: int) -> str:
    """Return `0 of 20 (0 to 17 %)`, with the exact binomial interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    if not total:
        return "not measured"
    interval = binomtest(count, total).proportion_ci(CONFIDENCE)
    return f"{count} of {total} ({interval.low:.0%} to {interval.high:.0%})".replace("%", " %")


if __name__ == "__main__":
    main()
