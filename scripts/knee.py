"""Check `scalability.saturation` on a target whose operations take 2 ms: its knee follows from that.

Run it on an idle machine: `make knee`. It prints the found and the true knee of each repeat, and exits with
1 if one is more than 10 % off.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from memory.benchmarking.bench import Bench, Score
from memory.benchmarking.benchmarks.scalability.saturation import benchmark_saturation
from memory.benchmarking.measure.knee import expected_knee

TARGET = Path(__file__).parents[1] / "tests" / "benchmarking" / "support" / "timed_target.py"
SERVICE_MS, LIMIT_MS, CREDIT_MS = 2.0, 100.0, 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    # The target makes up for up to 10 ms of delays of its sleeps, so its queue may be that much longer.
    truth = expected_knee(1000 / SERVICE_MS, SERVICE_MS, LIMIT_MS + CREDIT_MS, 1)
    wrong = 0
    for seed in range(arguments.repeats):
        found = benchmark_saturation(
            clients=["1x1"],
            limit_ms=LIMIT_MS,
            seconds=arguments.seconds,
            agents=2,
            memories=5,
            bench=Bench(target=f"{TARGET}:TimedTarget", seed=seed),
        )["processes_1"]["threads_1"]
        knee = found["knee_per_second"]
        if not isinstance(knee, Score):
            print(f"no knee: {knee.reason}")
            wrong += 1
            continue
        off = knee.value / truth - 1
        print(
            f"knee {knee.value:.0f}/s ({knee.low:.0f} to {knee.high:.0f}), truth {truth:.0f}/s: {off:+.1%}"
        )
        wrong += abs(off) > 0.10
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
