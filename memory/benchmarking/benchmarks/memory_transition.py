"""What it costs to move memories down the tiers, and what is kept."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.errors import InvalidResult, NotSupported
from memory.benchmarking.measure.statistics import percentiles
from memory.benchmarking.measure.timeline import Timeline
from memory.benchmarking.measure.timing import frozen_heap
from memory.benchmarking.metrics import SHARE, Metric, declare
from memory.benchmarking.model.parameters import Count, Fraction, Names, Sizes
from memory.benchmarking.model.presentation import Goal, LineChart
from memory.benchmarking.targets.base import Item, Settings, Stored, Target
from memory.benchmarking.workloads.states import agent_states

AGENT = "benchmark_agent"
_NOTHING_LOST = "Memories that moved down the tiers kept content, id, step and kind exactly."
_STM_SECONDS = 3600.0
_IM_SECONDS = 24 * 3600.0
_KINDS = ("state", "action", "interaction")
_STORES_A_ROUND = 5
"""Memories stored between two rounds of maintenance when the tiers are full."""


def _needs_transitions(bench: Bench) -> tuple[str, ...]:
    tiers = bench.capabilities.tiers
    if not bench.capabilities.transitions:
        raise NotSupported(f"{bench.system} has no transitions between tiers")
    return tiers


def _settings(clock: Any, **limits: int) -> Settings:
    return Settings(ages={"stm": _STM_SECONDS, "im": _IM_SECONDS}, clock=clock, limits=limits)


@declare(
    headline="ltm/content_exact_rate",
    expected_seconds={"quick": 0.4, "standard": 1.7, "full": 1.7},
    content_exact_rate=SHARE,
    id_exact_rate=SHARE,
    step_exact_rate=SHARE,
    kind_exact_rate=SHARE,
    preservation_rate=SHARE,
    avg_similarity=SHARE,
    total_transitioned=Metric("", "neither"),
    correctly_transitioned=Metric("", "neither"),
    importance_preservation_correlation=Metric("", "neither"),
    rounds={"quick": 1, "standard": 2, "full": 2},
    profiles={"quick": {"num_memories": 100}},
    goals={
        f"{what}_exact_rate": Goal(1.0, reached=_NOTHING_LOST) for what in ("content", "id", "step", "kind")
    },
    charts=[
        LineChart(
            "Memories that came through, by importance",
            "preservation_rate",
            "importance",
            label="preserved",
            lines=["tier"],
            share=True,
            note="1 means that a search by content still finds every memory of that importance.",
        ),
        LineChart(
            "Similarity with which a search finds them again",
            "avg_similarity",
            "importance",
            label="similarity",
            lines=["tier"],
            share=True,
        ),
    ],
)
def benchmark_transition_accuracy(
    num_memories: Count = 1000,
    importance_levels: Count = 5,
    similarity_threshold: Fraction = 0.8,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """What is still correct in a memory after it moved from stm to im and on to ltm.

    Read the rates as the share that is unchanged: 1.0 means that nothing was lost or changed. Each memory
    is read back by id and compared field by field. A search with its content also looks for it:
    `avg_similarity` is the similarity of the result (vectors are compressed with loss on the way).
    `correctly_transitioned` counts memories in the right tier with the same content, step and kind.
    `preservation_rate` is the share that is also found with at least `similarity_threshold`, and
    `importance_preservation_correlation` is the correlation of importance and being preserved. The
    benchmark sets the clock forward instead of waiting.

    Args:
        num_memories: how many memories move
        importance_levels: the importances are 1 to this number, in turn
        similarity_threshold: the least similarity of a preserved memory in the search
    """
    from memory.clock import ManualClock

    bench = bench or Bench()
    _needs_transitions(bench)
    clock = ManualClock()
    items = [
        Item(
            AGENT,
            state,
            step=number,
            importance=float(number % importance_levels + 1),
            kind=_KINDS[number % len(_KINDS)],
        )
        for number, state in enumerate(agent_states(num_memories, 1, bench.seed))
    ]
    found: dict[str, Any] = {}
    with bench.target(settings=_settings(clock)) as target:
        ids = bench.store(target, items, "stm", lasting=False)
        for tier, seconds in (("im", _STM_SECONDS), ("ltm", _IM_SECONDS)):
            clock.advance(seconds + 1)
            target.maintain()
            found[tier] = _compare(target, tier, ids, items, importance_levels, similarity_threshold)
    return found


def _compare(
    target: Target,
    tier: str,
    ids: Sequence[str],
    items: Sequence[Item],
    levels: int,
    threshold: float,
) -> dict[str, Any]:
    stored = target.inspect(AGENT, ids)
    whole = [
        entry is not None and entry.place == tier and _same(entry, id_, item)
        for entry, id_, item in zip(stored, ids, items, strict=True)
    ]
    there = [entry is not None and entry.place == tier for entry in stored]
    exact = [
        entry is not None and entry.content == item.content
        for entry, item in zip(stored, items, strict=True)
    ]
    near = _similarities(target, ids, items)
    rates = {
        **_passed(there, whole, exact, range(len(items))),
        "id_exact_rate": sum(
            entry is not None and entry.id == id_ for entry, id_ in zip(stored, ids, strict=True)
        )
        / len(ids),
        "step_exact_rate": _rate(stored, items, lambda entry, item: entry.step == item.step),
        "kind_exact_rate": _rate(stored, items, lambda entry, item: entry.kind == item.kind),
    }
    by_level: dict[str, Any] = {}
    preserved: list[tuple[float, float]] = []
    for level in range(1, levels + 1):
        numbers = [number for number, item in enumerate(items) if item.importance == level]
        if not numbers:
            continue
        kept = [whole[number] and near[number] >= threshold for number in numbers]
        preserved += [(level, float(each)) for each in kept]
        by_level[f"importance_{level}"] = {
            **_passed(there, whole, exact, numbers),
            "preservation_rate": sum(kept) / len(kept),
            "avg_similarity": sum(near[number] for number in numbers) / len(numbers),
        }
    correlation = _correlation(preserved)
    if correlation is None:
        by_level["importance_preservation_correlation"] = "undefined: every level was preserved equally"
    else:
        by_level["importance_preservation_correlation"] = correlation
    return {**rates, **by_level}


def _passed(
    there: Sequence[bool], whole: Sequence[bool], exact: Sequence[bool], numbers: Sequence[int]
) -> dict[str, float]:
    return {
        "total_transitioned": sum(there[number] for number in numbers),
        "correctly_transitioned": sum(whole[number] for number in numbers),
        "content_exact_rate": sum(exact[number] for number in numbers) / len(numbers),
    }


def _same(entry: Stored, id_: str, item: Item) -> bool:
    return (entry.id, entry.content, entry.step, entry.kind, entry.importance) == (
        id_,
        item.content,
        item.step,
        item.kind,
        item.importance,
    )


def _rate(
    stored: Sequence[Stored | None], items: Sequence[Item], right: Callable[[Stored, Item], bool]
) -> float:
    fits = sum(entry is not None and right(entry, item) for entry, item in zip(stored, items, strict=True))
    return fits / len(items)


def _similarities(target: Target, ids: Sequence[str], items: Sequence[Item]) -> list[float]:
    """Return the similarity with which a search by content finds each memory; 0 where it does not."""
    near = []
    for id_, item in zip(ids, items, strict=True):
        hits = target.search(AGENT, item.content, 10)
        near.append(next((hit.score for hit in hits if hit.id == id_), 0.0))
    return near


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Spearman's rank correlation; None where one side does not vary."""
    first, second = zip(*pairs, strict=True)
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)


@declare(
    headline="batch_*/read_p99_during_to_before|batch_*/read_p50_during_to_before",
    expected_seconds={"quick": 1.5, "standard": 4.5, "full": 9.0},
    write_figures="*/write_*|*/moves_per_second|*/transition_duration_seconds",
    reports=[
        "transition_duration_seconds",
        "moves_per_second",
        "read_p50_before_ms",
        "read_p50_during_ms",
        "read_p99_before_ms",
        "read_p99_during_ms",
        "write_p95_during_ms",
    ],
    reads_during=Metric("", "neither"),
    read_p99_during_to_before=Metric("×", "lower"),
    read_p50_during_to_before=Metric("×", "lower"),
    write_p95_during_to_before=Metric("×", "lower"),
    cpu_seconds_per_second=Metric("", "neither"),
    rss_growth_bytes=Metric("B", "lower"),
    moved=Metric("", "neither"),
    profiles={"quick": {"batch_sizes": [500]}, "standard": {"batch_sizes": [300, 3000]}},
    charts=[
        LineChart(
            "Time to move them all, by number of memories",
            "transition_duration_seconds",
            "batch_size",
            x_label="memories moved",
            label="time",
            fit=True,
        ),
        LineChart(
            "How long a reader waits, before and during the move",
            [f"read_{which}_{when}_ms" for which in ("p50", "p99") for when in ("before", "during")],
            "batch_size",
            x_label="memories moved",
            label="time of a read",
        ),
    ],
)
def benchmark_transition_overhead(
    batch_sizes: Sizes = (100, 1000, 10000),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """What it costs to move many memories at once, and how much it slows others down.

    Read it as the time of a mass transition, and as how much slower reads and writes are meanwhile. One
    agent reads and another writes on a schedule (500 and 20 per second) in the same process. Latency counts
    from the scheduled start, before and during the transition. `timeline` has the reads' p99 in
    milliseconds for each tenth of the transition. `rss_growth_bytes` is the largest growth of the
    process's RAM. A small batch has too few reads for a percentile: then it is n/a.

    Args:
        batch_sizes: how many memories are due at once
    """
    bench = bench or Bench()
    _needs_transitions(bench)
    return {f"batch_{size}": _overhead(bench, size) for size in batch_sizes}


_READS_PER_SECOND = 500.0
_WRITES_PER_SECOND = 20.0
_LEAST_BEFORE_SECONDS = 0.4
_LOOK_AT_RAM_EVERY_SECONDS = 0.02
_LEAST_READS = {"p50": 20, "p99": 100}
_LEAST_WRITES = 5


def _overhead(bench: Bench, size: int) -> dict[str, Any]:
    from memory.clock import ManualClock

    clock = ManualClock()
    states = agent_states(max(size, 200), 1, bench.seed)
    with bench.target(settings=_settings(clock)) as target:
        due = [Item(AGENT, state, step=step) for step, state in enumerate(states[:size])]
        ids = bench.store(target, due, "stm", lasting=False)
        clock.advance(_STM_SECONDS / 2)  # memories stored from here on are not due yet
        others = bench.store(target, [Item("reader", state) for state in states[:200]], "stm")
        agents = _Agents(target, others, states, bench.seed)
        agents.work(lambda: False, 0.2)
        with frozen_heap():  # otherwise the garbage collector would mostly walk the benchmark's own data
            before = agents.work(lambda: False, max(_LEAST_BEFORE_SECONDS, 10 * bench.seconds))
            clock.advance(_STM_SECONDS / 2 + 1)
            cpu_before = time.process_time()
            with Timeline(_LOOK_AT_RAM_EVERY_SECONDS, done=lambda: 0) as timeline:
                mover = _Mover(target)
                during = agents.work(mover.is_done, _PATIENCE_SECONDS)
            cpu = time.process_time() - cpu_before
            seconds = mover.seconds()
        bench.acknowledged(target, agents.written_ids, agents.written)
        moved = sum(entry is not None and entry.place == "im" for entry in target.inspect(AGENT, ids))
        if moved != size:
            raise InvalidResult(f"{moved} of {size} memories moved to im")
    return {
        "moved": moved,
        "transition_duration_seconds": seconds,
        "moves_per_second": size / seconds,
        "cpu_seconds_per_second": cpu / seconds,
        "rss_growth_bytes": max(each.rss_bytes for each in timeline.readings)
        - timeline.readings[0].rss_bytes,
        **_slowdown(before, during),
    }


_PATIENCE_SECONDS = 600.0


class _Mover:
    """Runs the transition in its own thread, as the maintenance thread does."""

    def __init__(self, target: Target) -> None:
        self._problem: BaseException | None = None
        self._ended = self._started = time.perf_counter()
        self._thread = threading.Thread(target=self._move, args=(target,))
        self._thread.start()

    def _move(self, target: Target) -> None:
        try:
            target.maintain()
        except BaseException as problem:
            self._problem = problem
        self._ended = time.perf_counter()

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def seconds(self) -> float:
        self._thread.join()
        if self._problem is not None:
            raise self._problem
        return self._ended - self._started


class _Latencies:
    """Latencies in milliseconds, from the scheduled start."""

    def __init__(self) -> None:
        self.reads: list[float] = []
        self.writes: list[float] = []


class _Agents:
    """One agent that reads and one that writes, each on its own schedule and in its own thread."""

    def __init__(self, target: Target, ids: Sequence[str], states: Sequence[Any], seed: int) -> None:
        self._target = target
        self._ids = ids
        self._states = states
        self._rng = random.Random(seed)
        self.written_ids: list[str] = []
        self.written: list[Item] = []

    def work(self, is_over: Callable[[], bool], most_seconds: float) -> _Latencies:
        """Read and write until it is over. An operation delayed by a slow one includes that delay."""
        latencies = _Latencies()
        writer = threading.Thread(
            target=_keep_schedule,
            args=(self._write, _WRITES_PER_SECOND, is_over, most_seconds, latencies.writes),
        )
        writer.start()
        _keep_schedule(self._read, _READS_PER_SECOND, is_over, most_seconds, latencies.reads)
        writer.join()
        return latencies

    def _read(self, number: int) -> None:
        self._target.get_one("reader", self._ids[self._rng.randrange(len(self._ids))])

    def _write(self, number: int) -> None:
        item = Item("writer", self._states[number % len(self._states)])
        self.written_ids.append(self._target.add_one(item, "stm"))
        self.written.append(item)


def _keep_schedule(
    operation: Callable[[int], None],
    per_second: float,
    is_over: Callable[[], bool],
    most_seconds: float,
    latencies_ms: list[float],
) -> None:
    clock = time.perf_counter
    start = clock()
    for number in count():
        due = start + number / per_second
        left = due - clock()
        if left > 0:
            time.sleep(left)
        if is_over() or due - start > most_seconds:
            return
        operation(number)
        latencies_ms.append((clock() - due) * 1e3)


def _slowdown(before: _Latencies, during: _Latencies) -> dict[str, Any]:
    figures: dict[str, Any] = {"reads_during": len(during.reads)}
    for name, quantile in (("p50", 0.5), ("p99", 0.99)):
        least = _LEAST_READS[name]
        if len(during.reads) < least:
            figures[f"read_{name}_during_to_before"] = not_available(
                f"it ended after {len(during.reads)} reads, and {name} needs {least}: increase batch_sizes"
            )
            continue
        first, second = (percentiles(side.reads, [quantile])[0] for side in (before, during))
        figures[f"read_{name}_before_ms"] = first
        figures[f"read_{name}_during_ms"] = second
        figures[f"read_{name}_during_to_before"] = second / first
    if len(during.writes) < _LEAST_WRITES:
        figures["write_p95_during_to_before"] = not_available(
            f"it ended after {len(during.writes)} writes, and p95 needs {_LEAST_WRITES}: "
            "increase batch_sizes"
        )
    else:
        first, second = (percentiles(side.writes, [0.95])[0] for side in (before, during))
        figures["write_p95_during_ms"] = second
        figures["write_p95_during_to_before"] = second / first
    if not during.reads:
        return figures
    tenth = max(1, len(during.reads) // 10)
    figures["timeline"] = [
        round(percentiles(during.reads[start : start + tenth], [0.99])[0], 4)
        for start in range(0, tenth * 10, tenth)
        if during.reads[start : start + tenth]
    ]
    return figures


@declare(
    headline="shuffled/prioritisation_effectiveness",
    expected_seconds={"quick": 1.1, "standard": 2.0, "full": 2.0},
    retention_rate=Metric("", "neither", most=1.0),
    prioritisation_effectiveness=SHARE,
    kept_importance=SHARE,
    rank_correlation=SHARE,
    rounds={"quick": 1, "standard": 2, "full": 2},
    profiles={
        "quick": {
            "tier_limits": [20, 10, 4],
            "memories_per_level": [20, 10, 6, 3, 1],
            "arrival_orders": ["shuffled"],
        }
    },
    charts=[
        LineChart(
            "Which tier holds memories of which importance",
            "retention_rate",
            "importance",
            label="share held",
            lines=["tier"],
            panels=["part"],
            share=True,
            note="The upper tier should hold the most important memories, in whatever order they arrive.",
        )
    ],
)
def benchmark_importance_scoring(
    tier_limits: Sizes = (100, 50, 20),
    memories_per_level: Sizes = (100, 50, 30, 15, 5),
    arrival_orders: Names = ("rising", "falling", "shuffled"),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Which memories are kept, and in which tier, when the tiers are too small for all.

    Read it as how well the memory chooses. `prioritisation_effectiveness` is the value of the kept memories
    (importance × 3 in stm, × 2 in im, × 1 in ltm, 0 if evicted) ÷ the value of the best possible choice,
    which needs all importances in advance; 1.0 is optimal. `kept_importance` is the same without the
    weights of the tiers. `retention_rate` is the share of a level that is in a tier. `rank_correlation`
    is the correlation of importance and tier, from the lowest to the highest. The order in which memories
    arrive should not matter.

    Args:
        tier_limits: how many memories stm, im and ltm may hold
        memories_per_level: how many memories there are of importance 1, 2, 3 and so on
        arrival_orders: rising, falling or shuffled importance
    """
    bench = bench or Bench()
    tiers = _needs_transitions(bench)
    if len(tier_limits) != len(tiers):
        raise InvalidResult(
            f"tier_limits has {len(tier_limits)} numbers: one for each of {', '.join(tiers)}"
        )
    levels = [float(level) for level, count in enumerate(memories_per_level, start=1) for _ in range(count)]
    return {
        order: _fill_tiers(bench, _in_arrival_order(levels, order, bench.seed), tier_limits)
        for order in arrival_orders
    }


def _in_arrival_order(levels: Sequence[float], order: str, seed: int) -> list[float]:
    if order == "shuffled":
        return random.Random(seed).sample(levels, len(levels))
    if order not in ("rising", "falling"):
        raise InvalidResult(f"arrival_orders has {order!r}: use rising, falling or shuffled")
    return sorted(levels, reverse=order == "falling")


def _fill_tiers(bench: Bench, levels: Sequence[float], limits: Sequence[int]) -> dict[str, Any]:
    from memory.clock import ManualClock

    clock = ManualClock()
    tiers = bench.capabilities.tiers
    settings = Settings(limits=dict(zip(tiers, limits, strict=True)), clock=clock)
    states = agent_states(len(levels), 1, bench.seed)
    with bench.target(settings=settings) as target:
        ids = []
        for step, (state, level) in enumerate(zip(states, levels, strict=True)):
            ids.append(target.add_one(Item(AGENT, state, step=step, importance=level), tiers[0]))
            clock.advance(1.0)
            if step % _STORES_A_ROUND == 0:
                target.maintain()
        target.maintain()
        places = [None if entry is None else entry.place for entry in target.inspect(AGENT, ids)]
    worth = {tier: float(len(tiers) - number) for number, tier in enumerate(tiers)}
    kept = [(level, place) for level, place in zip(levels, places, strict=True) if place is not None]
    best = sorted(levels, reverse=True)
    ideal_places = [tier for tier, limit in zip(tiers, limits, strict=True) for _ in range(limit)]
    ideal = sum(level * worth[tier] for level, tier in zip(best, ideal_places, strict=False))
    heights = [worth[place] if place else 0.0 for place in places]
    return {
        "prioritisation_effectiveness": sum(level * worth[place] for level, place in kept) / ideal,
        "kept_importance": sum(level for level, _ in kept) / sum(best[: sum(limits)]),
        "rank_correlation": _correlation(list(zip(levels, heights, strict=True))) or 0.0,
        **{
            tier: {
                f"importance_{int(level)}": {
                    "retention_rate": sum(each == (level, tier) for each in kept) / levels.count(level)
                }
                for level in sorted(set(levels))
            }
            for tier in tiers
        },
    }
