"""How fast memories are written and read back, and how much space they take.

Two workloads: states, whose size is their complexity, and texts, which have the words of chat turns. Every
benchmark reads a sample of what it stored back, also after opening the store again where the target claims
persistence. A target that lost memories gets no figures.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice
from typing import Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.benchmarks._space import disk_growth, ram_growth
from memory.benchmarking.errors import InvalidBenchmarkConfig, nearest
from memory.benchmarking.measure.resources import disk_bytes, settled_ram_bytes
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.metrics import TIMED, Metric, declare
from memory.benchmarking.model.parameters import Count, CountOrZero, Names, Sizes
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.presentation import BarChart, LineChart, PercentileChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import memory_texts
from memory.benchmarking.workloads.states import agent_states
from memory.benchmarking.workloads.states import generate_test_state as generate_test_state

AGENT = "benchmark_agent"
_LEAST_WRITES = 10
"""The least batches for one figure: a percentile needs several."""
_MOST_WRITES = 2_000
"""The most memories written for one figure, but at least one batch."""


STATES, TEXTS = "states", "texts"


def _items(count: int, complexity: int | None, seed: int) -> list[Item]:
    """Return states of a complexity, or texts if it is None."""
    contents: Sequence[Any]
    if complexity is None:
        contents = [*islice(memory_texts(seed), count)]
    else:
        contents = agent_states(count, complexity, seed)
    return [Item(AGENT, content, step=step) for step, content in enumerate(contents)]


def _workloads(contents: Sequence[str], complexities: Sequence[int]) -> dict[str, int | None]:
    """Return the groups of a result with their complexity; None for texts."""
    for name in contents:
        if name not in (STATES, TEXTS):
            raise InvalidBenchmarkConfig(f"contents has {name!r}: {nearest(name, (STATES, TEXTS))}")
    found: dict[str, int | None] = {}
    if STATES in contents:
        found |= {f"complexity_{complexity}": complexity for complexity in complexities}
    if TEXTS in contents:
        found[TEXTS] = None
    return found


@declare(
    headline="texts/batch_*/stm/one_by_one/throughput_ops_per_second"
    "|texts/*/one_by_one/throughput_ops_per_second|*/one_by_one/throughput_ops_per_second",
    reports=TIMED,
    write_figures="*",
    profiles={
        "quick": {"batch_sizes": [10, 50], "data_complexity_levels": [1], "settle_memories": 0},
        "standard": {"batch_sizes": [10, 100, 1000], "data_complexity_levels": [1]},
    },
    expected_seconds={"quick": 1.5, "standard": 12.0, "full": 150.0},
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
    contents: Names = (STATES, TEXTS),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How many memories per second can be stored in each tier, one by one and as one batch.

    Read it as the rate at which agents can store before they wait. `one_by_one` commits each memory, and
    its latencies are those of one memory. `as_one_batch` commits a whole batch, and its latencies are those
    of the batch. What an acknowledged memory survives depends on the target: it is shown beside the figure.

    Args:
        batch_sizes: how many memories are stored one by one, and as one batch
        data_complexity_levels: how large a state is; 1 is about 20 values, 10 about 400
        settle_memories: how many other memories the target stores first, to fit its codecs
        contents: states, texts (words and lengths of chat turns, about 33 tokens), or both
    """
    bench = bench or Bench()
    found: dict[str, Any] = {}
    for name, complexity in _workloads(contents, data_complexity_levels).items():
        sample = _items(settle_memories, complexity, bench.seed + 1)
        found[name] = {
            f"batch_{size}": {
                place: _write(bench, place, complexity, size, sample) for place in bench.capabilities.places
            }
            for size in batch_sizes
        }
    return found


def _write(
    bench: Bench, place: str, complexity: int | None, size: int, sample: Sequence[Item]
) -> dict[str, Timing]:
    batches = max(1, min(_LEAST_WRITES, _MOST_WRITES // size))
    with bench.target(sample) as target:
        items = _items(size * batches, complexity, bench.seed)
        parts = [items[start : start + size] for start in range(0, len(items), size)]
        kind = TEXTS if complexity is None else f"complexity {complexity}"
        label = f"{place}, {kind}, batch {size}"
        one_by_one: list[tuple[str, Item]] = []
        in_batches: list[tuple[list[str], list[Item]]] = []
        timings = {
            "one_by_one": bench.time(
                lambda item: one_by_one.append((target.add_one(item, place), item)),
                parts[0],
                calls=size,
                label=label,
            ),
            "as_one_batch": bench.time(
                lambda part: in_batches.append((target.add(part, place), part)),
                parts,
                calls=batches,
                work=size,
                warm_up=1 if size <= 1000 else 0,
                label=label,
            ),
        }
        bench.acknowledged(target, [id_ for id_, _ in one_by_one], [item for _, item in one_by_one])
        for ids, part in in_batches:
            bench.acknowledged(target, ids, part)
        return timings


@declare(
    headline="texts/stm/single/p50_ms|texts/*/single/p50_ms|*/single/p50_ms",
    reports=(*TIMED, "transport_ms"),
    profiles={
        "quick": {"num_samples": 200, "batch_sizes": [10], "settle_memories": 0},
        "standard": {"num_samples": 500},
    },
    expected_seconds={"quick": 0.7, "standard": 6.0, "full": 11.0},
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
    contents: Names = (STATES, TEXTS),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long it takes to read one memory, or a batch, back by id from each tier.

    Read it as the time that an agent waits for a memory whose id it has. `single` is one memory, `batch_50`
    is one call for fifty. Ids are drawn at random from `num_samples` memories. States are those of
    complexity 1. For a system behind a protocol, `transport_ms` is the time of an empty round trip. It is
    part of every read.

    Args:
        num_samples: how many memories are stored; at least as many reads are timed
        batch_sizes: how many memories one call reads
        settle_memories: how many other memories the target stores first, to fit its codecs
        contents: states, texts (words and lengths of chat turns, about 33 tokens), or both
    """
    bench = bench or Bench()
    bench.require(bench.no_get())
    found: dict[str, Any] = {}
    for name, complexity in _workloads(contents, (1,)).items():
        items = _items(num_samples, complexity, bench.seed)
        sample = _items(settle_memories, complexity, bench.seed + 1)
        found[name] = _read(bench, items, sample, batch_sizes)
    return found


def _read(
    bench: Bench, items: Sequence[Item], sample: Sequence[Item], batch_sizes: Sequence[int]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    num_samples = len(items)
    for place in bench.capabilities.places:
        with bench.target(sample) as target:
            ids = bench.store(target, items, place)
            target.flush()
            rng = random.Random(bench.seed)
            picks = rng.choices(ids, k=num_samples)
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
            transport = target.transport_ms()
            if transport is not None:
                found[place]["transport_ms"] = transport
    return found


_BYTES = Metric("B", "lower")
_FIRST_USE = 200
"""Memories that are stored and used once in another store, before RAM is measured."""


@declare(
    headline="texts/ltm/disk_bytes_per_memory|texts/*/disk_bytes_per_memory|*/disk_bytes_per_memory",
    reports=["memories_per_mb"],
    disk_bytes_per_memory=_BYTES,
    ram_bytes_per_memory=_BYTES,
    content_bytes_per_memory=Metric("B", "neither"),
    empty_store_bytes=_BYTES,
    im_to_stm_ratio=Metric("×", "lower"),
    ltm_to_stm_ratio=Metric("×", "lower"),
    rounds={"quick": 1, "standard": 2, "full": 2},
    profiles={
        "quick": {
            "num_memories": 2000,
            "data_complexity_levels": [1],
            "settle_memories": 0,
            "contents": [TEXTS],
        },
        "standard": {"num_memories": 5000, "data_complexity_levels": [1]},
    },
    expected_seconds={"quick": 2.5, "standard": 30.0, "full": 300.0},
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
    num_memories: Count = 10000,
    data_complexity_levels: Sizes = (1, 5, 10),
    settle_memories: CountOrZero = 2000,
    contents: Names = (STATES, TEXTS),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How much space the same memories take in each tier, on disk and in RAM.

    Read it as the cost of a million memories. Disk is the size of all files after the target's own
    maintenance (`Target.maintain`) and closing, less that of an empty store (`empty_store_bytes`). RAM is
    by how much the resident memory of the process and its children, such as a server, grew while all
    memories were stored and read once, and one was searched for. Pages of mapped files do not count. Growth
    below 3 MB is not resolved: with n memories, a figure below 3 MB ÷ n is n/a. Caches of a fixed size are
    included: their share falls with more memories. `memories_per_mb` counts disk. The ratios compare disk
    with stm.

    Args:
        num_memories: how many memories are stored
        data_complexity_levels: how large a state is
        settle_memories: how many other memories the target stores first, to fit its codecs
        contents: states, texts (words and lengths of chat turns, about 33 tokens), or both
    """
    bench = bench or Bench()
    workloads = _workloads(contents, data_complexity_levels)
    with bench.target() as target:  # the first use of a library takes RAM that the later ones share
        _store_and_use(target, None, _items(_FIRST_USE, None, bench.seed + 2))
    found: dict[str, Any] = {}
    for name, complexity in workloads.items():
        items = _items(num_memories, complexity, bench.seed)
        sample = _items(settle_memories, complexity, bench.seed + 1)
        places = {place: _space(bench, place, items, sample) for place in bench.capabilities.places}
        found[name] = {**places, **_ratios(places, bench)}
    return found


def _space(bench: Bench, place: str, items: Sequence[Item], sample: Sequence[Item]) -> dict[str, Any]:
    import msgspec

    with bench.target_folder(sample) as folder, bench.folder() as aside:
        with bench.open_target(folder) as target:
            _warm_up(target, items[0])
            target.maintain()
        empty = disk_bytes(folder)
        with bench.open_target(folder) as target:
            _warm_up(target, items[0])
            before = settled_ram_bytes()
            # In a file, because ids in a list would count as RAM of the target.
            ids = aside / "ids.json"
            ids.write_bytes(msgspec.json.encode(_store_and_use(target, place, items)))
            ram = settled_ram_bytes() - before
            bench.acknowledged(target, msgspec.json.decode(ids.read_bytes()), items)
            target.maintain()
        disk = disk_bytes(folder) - empty
    content = sum(len(msgspec.json.encode(item.content)) for item in items)
    count = len(items)
    on_disk = disk_growth(bench, disk, count)
    return {
        "disk_bytes_per_memory": on_disk,
        "ram_bytes_per_memory": ram_growth(bench, ram, count),
        "content_bytes_per_memory": content / count,
        "empty_store_bytes": empty,
        "memories_per_mb": on_disk if isinstance(on_disk, NotAvailable) else 1e6 / on_disk,
    }


def _warm_up(target: Target, item: Item) -> None:
    """Load what is loaded at first use, such as the embedder: it does not grow with the memories."""
    other = Item("another_agent", item.content)
    target.add_one(other)
    if target.capabilities.search:
        target.search(other.agent_id, other.content, 1)
    target.delete_all(other.agent_id)


def _store_and_use(target: Target, place: str | None, items: Sequence[Item]) -> list[str]:
    ids = [
        id_
        for start in range(0, len(items), 1000)
        for id_ in target.add(items[start : start + 1000], place)
    ]
    target.flush()
    if target.capabilities.search:
        target.search(AGENT, items[0].content, min(10, target.capabilities.max_k or 10))
    if target.capabilities.get:
        for id_ in ids:
            target.get_one(AGENT, id_)
    return ids


def _ratios(places: dict[str, dict[str, Any]], bench: Bench) -> dict[str, Any]:
    disk = {place: found["disk_bytes_per_memory"] for place, found in places.items()}
    if "stm" not in disk:
        none = not_available(f"{bench.system} has no tiers")
        return {name: none for name in ("im_to_stm_ratio", "ltm_to_stm_ratio")}
    return {
        f"{tier}_to_stm_ratio": next(
            (each for each in (disk[tier], disk["stm"]) if isinstance(each, NotAvailable)), None
        )
        or disk[tier] / disk["stm"]
        for tier in ("im", "ltm")
        if tier in disk
    }


@declare(
    headline="first_open_ms",
    reports=["open_ms", "first_search_ms"],
    first_open_ms=Metric("ms", "lower"),
    installed_mb=Metric("MB", "lower"),
    open_rss_mb=Metric("MB", "lower"),
    packages=Metric("", "neither", whole=True),
    rounds=3,
    expected_seconds={"quick": 1.0, "standard": 4.0, "full": 4.0},
    profiles={"quick": {"memories": 300}},
    charts=[
        BarChart(
            "Until a new process can use the store",
            metric=["first_open_ms", "open_ms", "first_search_ms"],
            names=["metric"],
            label="time",
        )
    ],
)
def benchmark_footprint(
    memories: Count = 1000, bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """What a system needs before it does anything: installed size, import, opening, RAM.

    Read `first_open_ms` as the delay that the system adds to the start of a program: a new process imports
    it and opens an empty store. Another process did the same before, so that Python's compiled modules and
    the file cache are warm for every system. `open_ms` then opens a store with `memories`, and
    `first_search_ms` is the first search in it, with loading the embedder. `open_rss_mb` is by how much the
    resident memory of the process and its children has grown by then. `installed_mb` is the size of the
    files of the system's packages and of all that they need; `packages` is their number. Python itself does
    not count, nor does Node.js.

    Args:
        memories: how many memories the store has
    """
    from memory.benchmarking.benchmarks._footprint import in_a_new_process, installed_size

    bench = bench or Bench()
    items = _items(memories, None, bench.seed)
    found: dict[str, Any] = installed_size(bench.target_name)
    with bench.target_folder() as empty, bench.target_folder() as filled:
        with bench.open_target(filled) as target:
            bench.store(target, items)
            target.maintain()
        found |= in_a_new_process(bench, empty, filled, AGENT, str(items[0].content))
    return found
