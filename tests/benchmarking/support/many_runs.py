"""Writes thousands of runs, as large as real ones, without running anything."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from result_builders import ENVIRONMENT, make_result, storage_figures

from memory.benchmarking.model.files import RUN_FILE
from memory.benchmarking.model.records import Case, MachineState, Result, ResultRef, Run

CATEGORIES = ("storage", "retrieval", "compression", "quality", "integration", "scalability")
BENCHMARKS_EACH = 5
ROUNDS = 3
FIRST = datetime(2026, 1, 1, 8, 0)
STEP_AT = 0.5
"""After this share of the runs, everything is faster by a fifth."""


def make_many_runs(output_dir: Path, count: int, *, with_results: bool = True) -> list[str]:
    """Write runs; return their ids, the oldest first. One benchmark of each has a result file."""
    chance = random.Random(7)
    ids = []
    for number in range(count):
        start = FIRST + timedelta(hours=2 * number)
        run_id = f"{start:%Y%m%d_%H%M%S}_{number:04x}"
        cases = [
            Case(
                category=category,
                benchmark=f"{category}_{each}",
                target="agentmemory",
                params={"size": 1000},
            )
            for category in CATEGORIES
            for each in range(BENCHMARKS_EACH)
        ]
        cases[0] = Case(category="storage", benchmark="write_throughput", target="agentmemory", params={})
        folder = output_dir / run_id
        folder.mkdir(parents=True)
        run = Run(
            id=run_id,
            status="failed" if number % 50 == 7 else "interrupted" if number % 50 == 9 else "complete",
            started_at=start.isoformat(),
            finished_at=(start + timedelta(seconds=chance.randint(50, 400))).isoformat(),
            profile=("quick", "standard", "full")[number % 3],
            seed=0,
            rounds=ROUNDS,
            seconds=0.1,
            parallel=1,
            targets=["agentmemory"] if number % 4 else ["agentmemory", "sqlite"],
            cases=cases,
            environment=ENVIRONMENT,
            config={"rounds": ROUNDS, "seconds": 0.1},
            command=f"membench run --profile {('quick', 'standard', 'full')[number % 3]}",
            results=[
                ResultRef(
                    category=case.category, benchmark=case.benchmark, target=case.target, params_digest="0",
                    file=f"{case.category}/{case.benchmark}_{start:%Y%m%d_%H%M%S}.json", rounds=ROUNDS,
                    headline="complexity_1/batch_100/stm/throughput_ops_per_second", seconds=0.7,
                )
                for case in cases
            ],
            moments=[
                MachineState(
                    case=case.key, round=each, started_at=start.timestamp() + each, seconds=1.25,
                    busy_percent=55.5, wall_to_cpu=1.01,
                )
                for case in cases
                for each in range(ROUNDS)
            ],
        )  # fmt: skip
        # Not written atomically as the runner does: that would take minutes here.
        (folder / RUN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
        if with_results:
            (folder / "storage").mkdir()
            path = folder / run.results[0].file
            path.write_bytes(msgspec.json.encode(_result(run, number / count, chance)))
        ids.append(run_id)
    return ids


def _result(run: Run, place: float, chance: random.Random) -> Result:
    level = chance.gauss(1.0, 0.02) * (1.2 if place >= STEP_AT else 1.0)
    return make_result(storage_figures(level), timestamp=run.id[:15], run_id=run.id, params={})
