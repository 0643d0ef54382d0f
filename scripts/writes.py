"""Measures writing beside `sqlite-baseline`, the simplest memory with the same durability and embedder.

    python scripts/writes.py                      about a minute
    python scripts/writes.py --batched 100000     also one rate over that many memories

Both sides take turns in short blocks in one process, in random order, so noise hits both. A ratio is the
median over the blocks, above 1 if ours is faster. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from floor import alternate, median_ratio

from memory import AgentMemorySystem, MemoryConfig
from memory.benchmarking.targets import Item, Target, make_target
from memory.benchmarking.workloads.contents import contents_of
from memory.benchmarking.workloads.states import agent_states

OURS, BASELINE = "agentmemory", "sqlite-baseline"
AGENT = "agent"
BLOCKS = 25
LEAST_ONE_BY_ONE = 0.8
LEAST_IMPORTED, LEAST_IMPORTED_VECTORS = 18_000, 25_000  # memories a second


def items(kind: str, count: int) -> list[Item]:
    contents = contents_of("dialogue", count, 7) if kind == "texts" else agent_states(count, 1, 7)
    return [Item(AGENT, content, step=step) for step, content in enumerate(contents)]


def opened(folder: Path, name: str) -> Target:
    target = make_target(name)
    place = folder / name
    place.mkdir()
    target.open(place)
    return target


def compare(what: str, kind: str, size: int, *, in_batches: bool) -> float:
    """Print the rates of both sides and return the ratio. Every block stores `size` memories."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [opened(Path(folder), name) for name in (BASELINE, OURS)]
        parts = items(kind, size * (BLOCKS + 1))

        def store(target: Target, block: int) -> None:
            part = parts[(block + 1) * size : (block + 2) * size]
            if in_batches:
                target.add(part)
            else:
                for item in part:
                    target.add_one(item)

        theirs, ours = alternate(BLOCKS, *[lambda block, side=side: store(side, block) for side in sides])
        for side in sides:
            side.close()
    ratio = median_ratio(theirs, ours)
    rates = [f"{size / statistics.median(seconds):,.0f}/s" for seconds in (theirs, ours)]
    print(f"{what:<32} {rates[0]:>12} {rates[1]:>12} {ratio:>7.2f} ×")
    return ratio


def rate(what: str, count: int, seconds: float, theirs: float | None = None) -> float:
    """Print the rate of one side, or of both."""
    shown = "" if theirs is None else f"{count / theirs:,.0f}/s"
    ratio = "" if theirs is None else f"{theirs / seconds:>7.2f} ×"
    print(f"{what:<32} {shown:>12} {f'{count / seconds:,.0f}/s':>12} {ratio}")
    return count / seconds


def batched(count: int) -> None:
    """Store many memories in batches of 1,000, once on each side."""
    parts = items("texts", count)
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in (BASELINE, OURS):
            target = opened(Path(folder), name)
            start = time.perf_counter()
            for at in range(0, count, 1000):
                target.add(parts[at : at + 1000])
            seconds[name] = time.perf_counter() - start
            target.close()
    rate(f"add_many, {count:,} in all", count, seconds[OURS], seconds[BASELINE])


def memory_at(path: Path) -> AgentMemorySystem:
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = str(path)
    return AgentMemorySystem(config)


def imports(count: int) -> Sequence[float]:
    """Print how fast an export is read, and memories with given vectors are stored; return both rates."""
    texts = [str(item.content) for item in items("texts", count)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "export.jsonl")
        with memory_at(Path(folder, "source.db")) as source:
            source.add_many([{"agent_id": AGENT, "content": text} for text in texts])
            source.export_jsonl(file)
        with memory_at(Path(folder, "copy.db")) as copy:
            start = time.perf_counter()
            copy.import_jsonl(file)
            read = rate(f"import_jsonl, {count:,}", count, time.perf_counter() - start)
            vectors = copy.embedder.embed(texts)
        with memory_at(Path(folder, "vectors.db")) as given:
            start = time.perf_counter()
            for at in range(0, count, 1000):
                part = zip(texts[at : at + 1000], vectors[at : at + 1000], strict=True)
                given.add_many([{"agent_id": AGENT, "content": text, "vector": row} for text, row in part])
            stored = rate("add_many with given vectors", count, time.perf_counter() - start)
    return read, stored


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure writing beside plain SQLite.")
    parser.add_argument("--batched", type=int, default=20_000, help="memories of the large batched rate")
    options = parser.parse_args()
    print(f"{'':<32} {'baseline':>12} {'ours':>12} {'ratio':>9}")
    texts = compare("add of a text, one by one", "texts", 200, in_batches=False)
    states = compare("add of a state, one by one", "states", 200, in_batches=False)
    compare("add_many of 1,000 texts", "texts", 1000, in_batches=True)
    batched(options.batched)
    read, stored = imports(20_000)
    missed = [
        f"{what}: {found:,.2f}, goal ≥ {least:,}"
        for what, found, least in (
            ("text ÷ baseline", texts, LEAST_ONE_BY_ONE),
            ("state ÷ baseline", states, LEAST_ONE_BY_ONE),
            ("import", read, LEAST_IMPORTED),
            ("given vectors", stored, LEAST_IMPORTED_VECTORS),
        )
        if found < least
    ]
    for line in missed:
        print("missed:", line)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
