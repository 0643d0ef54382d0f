"""Looks for memory leaks: a million operations on a memory whose size stays the same.

    python scripts/soak.py                        about ten minutes
    python scripts/soak.py --operations 20000     a quick try

Several agents store, read, search and delete as fast as possible, while the maintenance thread moves
memories between the tiers. The number of memories stays the same. The script reads the resident memory of
the process at intervals. After a warm-up, the interval of its slope should contain 0 bytes an operation
(see measure/trend.py).

Before each reading glibc returns its free memory to the system, because that is no leak. --plain does not
do this.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from array import array
from collections import deque
from itertools import islice
from pathlib import Path

from memory import AgentMemorySystem, MemoryConfig
from memory.benchmarking.measure.resources import disk_bytes, give_back_free_memory, rss_bytes
from memory.benchmarking.measure.trend import WARM_UP_SHARE, trend
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

_AGENTS = 20
_LIVE = 200  # memories an agent has
_TURNS = ("store", "delete", "search", "read")
_READINGS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="also count the allocator's free memory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak(Path(folder), arguments.operations, arguments.seed, plain=arguments.plain)


def soak(folder: Path, operations: int, seed: int, *, plain: bool) -> None:
    config = MemoryConfig(maintenance_interval_seconds=5)
    config.ltm_config.db_path = str(folder / "memory.db")
    # With small limits all three tiers are in use, and memories move all the time.
    config.stm_config.memory_limit, config.im_config.memory_limit = _LIVE // 4, _LIVE // 4
    rng = random.Random(seed)
    texts = list(islice(memory_texts(seed), 20_000))
    queries = list(islice(question_texts(seed + 1), 2_000))
    agents = [f"agent {number}" for number in range(_AGENTS)]
    agent = agents[0]
    every = max(operations // _READINGS, 1)
    # Allocated in advance: growing lists would look like a leak.
    done = array("q", range(0, operations, every))
    resident = array("q", bytes(8 * len(done)))
    with AgentMemorySystem(config) as memory:
        live = {
            agent: deque(memory.add_many([{"agent_id": agent, "content": rng.choice(texts)}] * _LIVE))
            for agent in agents
        }
        start = time.perf_counter()
        for number in range(operations):
            turn = _TURNS[number % len(_TURNS)]
            if turn != "delete":  # the agent that has just stored deletes, so its memories stay as many
                agent = rng.choice(agents)
            mine = live[agent]
            if turn == "store":
                mine.append(memory.add(agent, rng.choice(texts), metadata={"session": number % 50}))
            elif turn == "delete":
                memory.delete(agent, mine.popleft())
            elif turn == "search":
                memory.search(agent, rng.choice(queries), 10)
            elif memory.get(agent, mine[rng.randrange(len(mine))]) is None:
                sys.exit(f"operation {number}: a memory that was stored is gone")
            if number % every == 0:
                if not plain:
                    give_back_free_memory()
                resident[number // every] = rss_bytes()
                _show(number, operations, start, resident[number // every])
        seconds = time.perf_counter() - start
        kept, statistics = sum(map(len, live.values())), memory.get_memory_statistics()
    if not statistics["total"] == kept <= _AGENTS * _LIVE + 1:
        sys.exit(f"{kept} memories at the end, expected {_AGENTS * _LIVE}; the memory counts {statistics}")
    slope = trend(done, resident)
    print(f"\r{operations:,} operations in {seconds:.0f} s, {kept:,} memories in {statistics['tiers']}")
    print(f"disk {disk_bytes(folder) / 1e6:.1f} MB; RSS in MB after each tenth of the operations:")
    tenths = [*resident[:: max(len(resident) // 10, 1)], resident[-1]]
    print(" ".join(f"{reading / 1e6:.1f}" for reading in tenths))
    if slope is None or slope.low is None or slope.high is None:
        print("too few readings for a slope: use more operations")
        return
    verdict = "contains 0: no leak found" if slope.low <= 0 <= slope.high else "does not contain 0"
    print(
        f"slope {slope.value:+.2f} bytes an operation, 95 % interval {slope.low:+.2f} to {slope.high:+.2f}"
        f" after the first {WARM_UP_SHARE:.0%}: {verdict}"
    )


def _show(number: int, operations: int, start: float, resident: int) -> None:
    if sys.stderr.isatty():
        rate = (number + 1) / (time.perf_counter() - start)
        print(
            f"\r{number / operations:4.0%} {rate:,.0f}/s {resident / 1e6:.1f} MB ", end="", file=sys.stderr
        )


if __name__ == "__main__":
    main()
