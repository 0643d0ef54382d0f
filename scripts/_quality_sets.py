"""The four data sets that the search was developed on, and memories that hold them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from memory import AgentMemorySystem, MemoryConfig
from memory.benchmarking.workloads.collections import Collection, Passage
from memory.benchmarking.workloads.datasets import load_data_set

PATHS = {
    "locomo": "locomo/locomo_dev.json",
    "realtalk": "realtalk/realtalk_dev.jsonl",
    "beam": "beam/beam_dev.jsonl",
    "scifact": "scifact",
}
CONVERSATIONS = ("locomo", "realtalk", "beam")
AGENT = "agent"
DEPTH = 10


def load_sets(folder: Path, names: Sequence[str] = tuple(PATHS)) -> dict[str, list[Collection]]:
    """Return the collections of each set. Exit with a message if one is missing."""
    missing = [str(folder / PATHS[name]) for name in names if not (folder / PATHS[name]).exists()]
    if missing:
        sys.exit(f"not found: {', '.join(missing)}; pass their folder with --data")
    return {name: list(load_data_set(folder / PATHS[name]).collections) for name in names}


@contextmanager
def memory_of(passages: Sequence[Passage]) -> Iterator[AgentMemorySystem]:
    """Open a memory in RAM that holds the passages, with their ids."""
    config = MemoryConfig()
    config.ltm_config.db_path = ":memory:"
    config.maintenance = "manual"
    with AgentMemorySystem(config) as memory:
        memory.add_many(
            {
                "agent_id": AGENT,
                "id": passage.id,
                "content": passage.text,
                "kind": "message",
                "metadata": dict(passage.metadata),
                "timestamp": passage.timestamp,
            }
            for passage in passages
        )
        yield memory
