"""How fast memories are written and read back, and how much space they take."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from typing import Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.measure.resources import disk_bytes
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.metrics import TIMED, Metric, declare
from memory.benchmarking.model.parameters import Count, CountOrZero, Sizes
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.presentation import BarChart, LineChart, PercentileChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.states import agent_states
from memory.benchmarking.workloads.states import generate_test_state as generate_test_state

AGENT = "benchmark_agent"
_LEAST_WRITES = 10
"""The least batches for one figure: a percentile needs several."""
_MOST_WRITES = 2_000
"""The most memories written for one figure, but at least one batch."""


def _items(count: int, complexity: int, seed: int) -> list[Item]:
    return [
        Item(AGENT, state, step=step) for step, state in enumerate(agent_states(count, complexity, seed))
    ]


@declare(
    headline="complexity_1/batch_*/stm/one_by_one/throughput_ops_per_second"
    "|*/one_by_one/throughput_ops_per_second",
    reports=TIMED,
    profiles={
        "quick": {"batch_sizes": [10, 50], "data_complexity_levels": [1], "settle_memories": 0},
        "standard": {"batch_sizes": [10, 100, 300], "data_complexity_levels": [1]},
    },
    expected_seconds={"quick": 0.6, "standard": 5.5, "full": 120.0},
    charts=[
        LineChart(
            "Memories written per second, by batch size",
            "throughput_ops_per_second",
            "batch_size",
            lines=["tier"],
            panels=["part", "complexity"],
        ),
        PercentileChart(
            "How long one write takes",
            label="time of a write",
            lines=["tier"],
            only="one_by_one",
            largest="batch_size",
        ),
    ],
)
def benchmark_write_throughput(
    batch_sizes: Sizes = (10, 100, 1000, 10000),
    data_complexity_levels: Sizes = (1, 5, 10),
    settle_memories: CountOrZero = 2000,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How many states per second can be stored in each tier, one by one and as one batch.

    Read it as the rate at which agents can store before they wait. `one_by_one` commits each state, and its
    latencies are those of one state. `as_one_batch` commits a whole batch, and its latencies are those of
    the batch. Every acknowledged state survives the end of the process.

    Args:
        batch_sizes: how many states are stored one by one, and as one batch
        data_complexity_levels: how large a state is; 1 is about 20 values, 10 about 400
        settle_memories: how many other states the target stores first, to fit its codecs
    """
    bench = bench or Bench()
    found: dict[str, Any] = {}
    for complexity in data_complexity_levels:
        sample = _items(settle_memories, complexity, bench.seed + 1)
        found[f"complexity_{complexity}"] = {
            f"batch_{size}": {
                place: _write(bench, place, complexity, size, sample) for place in bench.capabilities.places
            }
            for size in batch_sizes
        }
    return found


def _write(
    bench: Bench, place: str, complexity: int, size: int, sample: Sequence[Item]
) -> dict[str, Timing]:
    batches = max(1, min(_LEAST_WRITES, _MOST_WRITES // size))
    with bench.target(sample) as target:
        items = _items(size * batches, complexity, bench.seed)
        parts = [items[start : start + size] for start in range(0, len(items), size)]
        label = f"{place}, complexity {complexity}, batch {size}"
        return {
            "one_by_one": bench.time(
                lambda item: target.add_one(item, place), parts[0], calls=size, label=label
            ),
            "as_one_batch": bench.time(
                lambda part: target.add(part, place),
                parts,
                calls=batches,
                work=size,
                warm_up=1 if size <= 1000 else 0,
                label=label,
            ),
        }


@declare(
    headline="stm/single/p50_ms|*/single/p50_ms",
    reports=TIMED,
    profiles={
        "quick": {"num_samples": 200, "batch_sizes": [10], "settle_memories": 0},
        "standard": {"num_samples": 500},
    },
    expected_seconds={"quick": 0.4, "standard": 3.5, "full": 6.0},
    charts=[
        PercentileChart("How long one read takes", label="time of a read", lines=["tier"], only="single"),
        LineChart(
            "Memories read per second, by batch size",
            "throughput_ops_per_second",
            "batch_size",
            x_if_missing=1,
            lines=["tier"],
        ),
    ],
)
def benchmark_read_latency(
    num_samples: Count = 1000,
    batch_sizes: Sizes = (10, 50, 100),
    settle_memories: CountOrZero = 2000,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long it takes to read one memory, or a batch, back by id from each tier.

    Read it as the time that an agent waits for a memory whose id it has. `single` is one memory, `batch_50`
    is one call for fifty. Ids are drawn at random from `num_samples` memories.

    Args:
        num_samples: how many memories are stored, and at least how many reads are timed
        batch_sizes: how many memories one call reads
        settle_memories: how many other states the target stores first, to fit its codecs
    """
    bench = bench or Bench()
    items = _items(num_samples, 1, bench.seed)
    sample = _items(settle_memories, 1, bench.seed + 1)
    found: dict[str, Any] = {}
    for place in bench.capabilities.places:
        with bench.target(sample) as target:
            ids = target.add(items, place)
            target.flush()
            rng = random.Random(bench.seed)
            picks = rng.choices(ids, k=num_samples)
            _check_content(target, ids, items)
            found[place] = {
                "single": bench.time(
                    lambda id_: target.get_one(AGENT, id_), picks, label=f"{place}, one by one"
                )
            }
            for size in batch_sizes:
                batches = [rng.choices(ids, k=size) for _ in range(max(1, num_samples // size))]
                found[place][f"batch_{size}"] = bench.time(
                    lambda batch: target.get(AGENT, batch),
                    batches,
                    work=size,
                    label=f"{place}, batches of {size}",
                )
    return found


def _check_content(target: Target, ids: Sequence[str], items: Sequence[Item]) -> None:
    """Raise if the target returns other content than was stored: its figures would mean nothing."""
    for id_, item in zip(ids[:10], items[:10], strict=True):
        if target.get_one(AGENT, id_) != item.content:
            raise AssertionError(f"{target.name} gave back other content for {id_} than was stored")


_BYTES = Metric("B", "lower")


@declare(
    headline="complexity_1/ltm/disk_bytes_per_memory|*/disk_bytes_per_memory",
    reports=["memories_per_mb"],
    disk_bytes_per_memory=_BYTES,
    ram_bytes_per_memory=_BYTES,
    content_bytes_per_memory=Metric("B", "neither"),
    im_to_stm_ratio=Metric("×", "lower"),
    ltm_to_stm_ratio=Metric("×", "lower"),
    rounds={"quick": 1, "standard": 2, "full": 2},
    profiles={
        "quick": {"num_memories": 100, "data_complexity_levels": [1], "settle_memories": 0},
        "standard": {"num_memories": 500, "data_complexity_levels": [1]},
    },
    expected_seconds={"quick": 0.4, "standard": 7.0, "full": 60.0},
    charts=[
        BarChart(
            "Space that one memory takes",
            metric=["disk_bytes_per_memory", "ram_bytes_per_memory"],
            names=["tier"],
            panels=["complexity"],
            label="space per memory",
            renamed={"disk bytes per memory": "on disk", "ram bytes per memory": "in RAM"},
        )
    ],
)
def benchmark_memory_efficiency(
    num_memories: Count = 2000,
    data_complexity_levels: Sizes = (1, 5, 10),
    settle_memories: CountOrZero = 2000,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How much space the same memories take in each tier, on disk and in RAM.

    Read it as the cost of a million memories. Disk is the size of all files after closing. RAM is what the
    allocators of Python and NumPy hold after all memories were stored and read once, and after one search.
    SQLite's own caches (a few MB) are not included. `memories_per_mb` counts disk. The ratios compare disk
    with stm.

    Args:
        num_memories: how many memories are stored
        data_complexity_levels: how large a state is
        settle_memories: how many other states the target stores first, to fit its codecs
    """
    bench = bench or Bench()
    found: dict[str, Any] = {}
    for complexity in data_complexity_levels:
        items = _items(num_memories, complexity, bench.seed)
        sample = _items(settle_memories, complexity, bench.seed + 1)
        places = {place: _space(bench, place, items, sample) for place in bench.capabilities.places}
        found[f"complexity_{complexity}"] = {**places, **_ratios(places, bench)}
    return found


def _space(bench: Bench, place: str, items: Sequence[Item], sample: Sequence[Item]) -> dict[str, Any]:
    import msgspec

    with bench.target_folder(sample) as folder:
        with bench.open_target(folder) as target:
            _warm_up(target, items[0])
            ram = _held_after(lambda: _store_and_use(target, place, items))
        disk = disk_bytes(folder)
    content = sum(len(msgspec.json.encode(item.content)) for item in items)
    count = len(items)
    nothing = not_available(f"{bench.target_name} keeps nothing on disk")
    return {
        "disk_bytes_per_memory": disk / count if disk else nothing,
        "ram_bytes_per_memory": ram / count,
        "content_bytes_per_memory": content / count,
        "memories_per_mb": count / (disk / 1e6) if disk else nothing,
    }


def _warm_up(target: Target, item: Item) -> None:
    """Load what is loaded at first use, such as the embedder: it does not grow with the memories."""
    other = Item("another agent", item.content)
    target.add_one(other)
    if target.capabilities.search:
        target.search(other.agent_id, other.content, 1)
    target.delete_all(other.agent_id)


def _store_and_use(target: Target, place: str, items: Sequence[Item]) -> None:
    ids = [
        id_
        for start in range(0, len(items), 1000)
        for id_ in target.add(items[start : start + 1000], place)
    ]
    target.flush()
    if target.capabilities.search:
        target.search(AGENT, items[0].content, 10)
    for id_ in ids:
        target.get_one(AGENT, id_)


def _held_after(work: Any) -> int:
    """Bytes that are still allocated when the work is done, above what was before."""
    import gc

    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def _ratios(places: dict[str, dict[str, Any]], bench: Bench) -> dict[str, Any]:
    disk = {place: found["disk_bytes_per_memory"] for place, found in places.items()}
    if "stm" not in disk:
        none = not_available(f"{bench.target_name} has no tiers")
        return {name: none for name in ("im_to_stm_ratio", "ltm_to_stm_ratio")}
    return {
        f"{tier}_to_stm_ratio": disk[tier]
        if isinstance(disk[tier], NotAvailable)
        else disk[tier] / disk["stm"]
        for tier in ("im", "ltm")
        if tier in disk
    }
