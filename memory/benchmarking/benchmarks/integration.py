"""What the memory adds to the code around it."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.errors import InvalidBenchmarkConfig, NotSupported, nearest, needs
from memory.benchmarking.measure.interleaved import (
    InnerTime,
    overhead_us,
    time_interleaved,
    turn_medians_us,
)
from memory.benchmarking.measure.resources import disk_bytes, traced_peak_bytes
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.metrics import TIMED, Metric, declare
from memory.benchmarking.model.parameters import Count, Names
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.presentation import BarChart
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import WHOLE, Item, Settings, Target
from memory.benchmarking.workloads.states import agent_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory.system import AgentMemorySystem

_AGENT = "walker"
"""The same agent for all sides: rows of different agents are in different places of the file."""
_K = 10
_SEARCHES_A_TURN = 10
"""Enough that most searches of a turn run with warm CPU caches."""
_STEPS_TRACED = 200
"""Steps whose RAM is traced; tracing is slow, and all steps take the same space."""

_OVERHEAD = Metric("%", "lower")


# -- the facade -------------------------------------------------------------------------------


@declare(
    headline="get/im/overhead_us|*/overhead_us",
    write_figures="add/*|update/*|delete/*",
    reports=[*TIMED, "overhead_us"],
    overhead_percent=_OVERHEAD,
    throughput_overhead_percent=_OVERHEAD,
    preparing_us=Metric("µs", "lower"),
    profiles={"quick": {"num_operations": 50}, "standard": {"num_operations": 300}},
    expected_seconds={"quick": 0.6, "standard": 2.5, "full": 5.0},
    charts=[
        BarChart(
            "Time that the facade adds to a call",
            metric="overhead_us",
            names=["part", "tier"],
            label="added",
            note="Lower is better. A negative value means that the facade was faster.",
        )
    ],
)
def benchmark_api_overhead(
    num_operations: Count = 1000, bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """How much longer a call through the public facade takes than the same work done by its parts.

    Read `overhead_us` as the cost of checks, caches, counts and result objects. A negative value means that
    the facade is faster than its parts: it serves short-term memories, and memories that a search has found
    before, from RAM. `facade` and `below` are timed in turns. `below` is, for each method: `add`: checking,
    embedding, encoding and the store's commit; `get`: the store's record and decoding it; `search`: the
    vector index, the store's records and decoding them; `update`: reading the row, preparing the new one
    and replacing it; `delete`: the store's commit. For `get` and `search` the overhead is the difference of
    the two times. For the others the noise of the commits would hide a difference, so the overhead is the
    time that a call of the facade spends outside of these parts. `store_only` of `add` takes ready-made
    rows, and `preparing_us` is the time to make them.

    Args:
        num_operations: how many calls of each method are timed on each side; a fifth as many searches
    """
    bench = bench or Bench()
    if not _is_own_memory(bench):
        raise NotSupported(f"{bench.system} has no facade over a tier store: only agentmemory has")
    from memory.benchmarking.benchmarks._integration_below import Below

    warm_up = max(1, num_operations // 10)
    states = _for_each_side(("facade", "below", "store_only"), num_operations + warm_up, bench.seed)
    with bench.target() as target:
        memory = _system_of(target)
        below = Below(memory)
        inside = InnerTime()
        _watch(inside, memory._intake, "rows")
        _watch(inside, memory._store, "add", "rows", "replace", "delete")
        found: dict[str, Any] = {}
        ids: dict[str, list[str]] = {"facade": [], "below": []}
        timings = time_interleaved(
            {
                "facade": inside.around(lambda state: ids["facade"].append(memory.add(_AGENT, state))),
                "below": lambda state: ids["below"].append(below.add(_AGENT, state)),
                "store_only": below.add_row,
            },
            states | {"store_only": below.rows(_AGENT, states["store_only"])},
            warm_up=warm_up,
        )
        found["add"] = _compared(timings, inside) | {
            "preparing_us": overhead_us(timings["below"], timings["store_only"])
        }
        found["get"], found["search"] = _reading(memory, below, num_operations, bench)
        # Watched from here on only: a `get` does little else, so watching would distort its time.
        _watch(inside, memory._store, "get_one")
        if hasattr(memory, "_reader"):
            _watch(inside, memory._reader, "decode")
        else:  # version 0.1, for `membench ab`
            _watch(inside, memory, "_entry")
        changed = _for_each_side(("facade", "below"), num_operations + warm_up, bench.seed + 1000)
        by_side = {name: list(zip(ids[name], changed[name], strict=True)) for name in ids}
        timings = time_interleaved(
            {
                "facade": inside.around(lambda pair: memory.update(_AGENT, pair[0], content=pair[1])),
                "below": lambda pair: below.update(_AGENT, *pair),
            },
            by_side,
            warm_up=warm_up,
        )
        found["update"] = _compared(timings, inside)
        for pairs in by_side.values():
            _check_stored(memory, pairs)
        timings = time_interleaved(
            {
                "facade": inside.around(lambda id_: memory.delete(_AGENT, id_)),
                "below": lambda id_: below.delete(_AGENT, id_),
            },
            ids,
            warm_up=warm_up,
        )
        found["delete"] = _compared(timings, inside)
    return found


def _watch(inside: InnerTime, part: object, *names: str) -> None:
    for name in names:
        setattr(part, name, inside.watched(getattr(part, name)))


def _reading(
    memory: AgentMemorySystem, below: Any, count: int, bench: Bench
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Time getting and searching in each tier, each with an agent of its own."""
    rng = random.Random(bench.seed)
    contents = agent_states(count, 1, bench.seed + 1)
    warm_up, searches = max(1, count // 10), max(20, count // 5)
    gets: dict[str, Any] = {}
    finds: dict[str, Any] = {}
    for tier in ("stm", "im", "ltm"):
        agent = f"agent_of_{tier}"
        ids = memory.add_many(
            [{"agent_id": agent, "content": content, "tier": tier} for content in contents]
        )
        for id_ in ids:
            memory.get(agent, id_)  # from now on, short-term memories are in RAM
        # Different ids for each side: what one side has just read is faster on the other.
        picks = {side: rng.choices(ids, k=count + warm_up) for side in ("facade", "below")}
        gets[tier] = _compared(
            time_interleaved(
                {
                    "facade": partial(memory.get, agent),
                    "below": partial(below.get, agent),
                },
                picks,
                warm_up=warm_up,
            )
        )
        vectors = {
            side: _vectors(memory, rng.choices(contents, k=searches + 2)) for side in ("facade", "below")
        }
        finds[tier] = _compared(
            time_interleaved(
                {
                    "facade": partial(memory.retrieve_similar_states, agent, k=_K),
                    "below": partial(below.search, agent, k=_K),
                },
                vectors,
                turns=max(1, searches // _SEARCHES_A_TURN),
                warm_up=2,
            )
        )
        query = vectors["facade"][0]
        hits = memory.retrieve_similar_states(agent, query, _K)
        if [hit.entry.content for hit in hits] != [
            content for _, content in below.search(agent, query, _K)
        ]:
            raise AssertionError(f"the facade and its parts found different memories in {tier}")
    return gets, finds


def _vectors(memory: AgentMemorySystem, contents: Sequence[Any]) -> list[Any]:
    from memory.benchmarking.targets.memory_content import leaves_of
    from memory.embedding import ContentEmbedder, render

    embedder = ContentEmbedder(memory.embedder)
    return list(embedder.embed([render(leaves_of(content)) for content in contents]))


def _check_stored(memory: AgentMemorySystem, pairs: Sequence[tuple[str, Any]]) -> None:
    """Raise if the memories were not changed as requested: the figures would mean nothing."""
    for id_, content in pairs[:10]:
        entry = memory.get(_AGENT, id_)
        if entry is None or entry.content != content:
            raise AssertionError(f"memory {id_} does not have its new content")


def _for_each_side(names: Sequence[str], count: int, seed: int) -> dict[str, Any]:
    """Return different states for each side: what one side has seen would be faster on the other."""
    return {name: agent_states(count, 1, seed + 100 * number) for number, name in enumerate(names, 1)}


def _compared(timings: Mapping[str, Timing], inside: InnerTime | None = None) -> dict[str, Any]:
    facade, below = timings["facade"], timings["below"]
    overhead = overhead_us(facade, below) if inside is None else inside.outside_us(facade)
    return {
        **timings,
        "overhead_us": overhead,
        "overhead_percent": 100 * overhead / statistics.median(turn_medians_us(below)),
        "throughput_overhead_percent": 100
        * (1 - facade["throughput_ops_per_second"] / below["throughput_ops_per_second"]),
    }


def _is_own_memory(bench: Bench) -> bool:
    """Return whether the target is AgentMemory itself, however it was named."""
    from memory.benchmarking.targets.agentmemory import AgentMemoryDiskTarget, AgentMemoryTarget

    return load_target(bench.target_name) in (AgentMemoryTarget, AgentMemoryDiskTarget)


def _system_of(target: Target) -> AgentMemorySystem:
    from memory.benchmarking.targets.agentmemory import AgentMemoryTarget

    return cast(AgentMemoryTarget, target).memory


# -- hooks ------------------------------------------------------------------------------------


@declare(
    headline="act/overhead_us|*/overhead_us",
    write_figures="observe/*|act/*",
    reports=[*TIMED, "overhead_us"],
    overhead_percent=_OVERHEAD,
    hooked_to_plain_us=Metric("µs", "lower"),
    ram_bytes_per_step=Metric("B", "lower"),
    disk_bytes_per_step=Metric("B", "lower"),
    profiles={"quick": {"num_steps": 50}, "standard": {"num_steps": 300}},
    expected_seconds={"quick": 0.4, "standard": 2.5, "full": 4.0},
    charts=[
        BarChart(
            "Time of a step",
            metric="p50_ms",
            names=["part0"],
            lines=["part1", "tier"],
            note="store is the storing alone, hooked is the agent with the hook.",
        )
    ],
)
def benchmark_hook_implementation(
    num_steps: Count = 1000, bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """How much time memory hooks add to an agent's `observe` and `act`, by storing and by the hook itself.

    Read `hooked_to_plain_us` as how much longer each call of the agent takes. Most of it is the durable
    write; `store` is the same content stored without a hook. `overhead_us` is the hook's own time, neither
    in the agent nor in storing: turning arguments and result into JSON, and finding the agent's name and
    step. `overhead_percent` compares it with the storing. Plain agent, hooked agent and plain storing are
    timed in turns. A step is one `observe` and one `act`; bytes are those of both.

    Args:
        num_steps: how many steps the agent takes
    """
    bench = bench or Bench()
    warm_up = max(1, num_steps // 10)
    found: dict[str, Any] = {}
    with bench.target() as target:
        recorder, inside = _TargetAsMemory(target), InnerTime()
        plain, hooked = _walker(None), _walker(recorder, inside)
        for method, kind in (("observe", "interaction"), ("act", "action")):
            seen = _for_each_side(("plain", "hooked", "store"), num_steps + warm_up, bench.seed)
            timings = time_interleaved(
                {
                    "plain": getattr(plain, method),
                    "hooked": inside.around(getattr(hooked, method)),
                    "store": partial(recorder.add_ready, kind),
                },
                seen | {"store": _as_stored(plain, method, seen["store"])},
                warm_up=warm_up,
            )
            overhead = inside.outside_us(timings["hooked"]) - 1000 * timings["plain"]["p50_ms"]
            found[method] = {
                **timings,
                "hooked_to_plain_us": overhead_us(timings["hooked"], timings["plain"]),
                "overhead_us": overhead,
                "overhead_percent": 100 * overhead / statistics.median(turn_medians_us(timings["store"])),
            }
        _check_remembered(hooked, target, 2 * (num_steps + warm_up))
        bench.acknowledged(target, recorder.ids, recorder.items)
    found["room"] = _space(bench, agent_states(min(num_steps, _STEPS_TRACED), 1, bench.seed))
    return found


class _TargetAsMemory:
    """A target with the `add` method that hooks call; it keeps what was stored, to check it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.ids: list[str] = []
        self.items: list[Item] = []

    def add(
        self,
        agent_id: str,
        content: Any,
        *,
        kind: str | None = None,
        step: int | None = None,
        importance: float = 1.0,
    ) -> str:
        item = Item(agent_id, content, step=step, importance=importance, kind=kind)
        id_ = self._target.add_one(item)
        self.ids.append(id_)
        self.items.append(item)
        return id_

    def add_ready(self, kind: str, step_and_content: tuple[int, Any]) -> str:
        step, content = step_and_content
        return self.add(_AGENT, content, kind=kind, step=step)


def _walker(recorder: _TargetAsMemory | None, inside: InnerTime | None = None) -> Any:
    """Return an agent. Its class has memory hooks if a recorder is given."""

    class Walker:
        agent_id = _AGENT

        def __init__(self) -> None:
            self.seen = 0

        def observe(self, observation: Mapping[str, Any]) -> None:
            self.seen += len(observation["inventory"])

        def act(self, observation: Mapping[str, Any]) -> dict[str, Any]:
            x, y, _ = observation["position"]
            return {"walk": "west" if x > 0 else "east", "by": abs(x) + abs(y)}

    if recorder is None:
        return Walker()
    from memory.hooks import with_memory

    if inside is not None:
        recorder = copy(recorder)
        recorder.add = inside.watched(recorder.add)  # type: ignore[method-assign]
    return with_memory(cast("AgentMemorySystem", recorder))(Walker)()


def _as_stored(
    plain: Any, method: str, seen: Sequence[Mapping[str, Any]]
) -> list[tuple[int, dict[str, Any]]]:
    """Return step and content of what the hook would store."""
    stored = []
    for step, observation in enumerate(seen):
        content: dict[str, Any] = {"method": method, "input": observation}
        result = getattr(plain, method)(observation)
        if result is not None:
            content["result"] = result
        stored.append((step, content))
    return stored


def _check_remembered(hooked: Any, target: Target, calls: int) -> None:
    """Raise if a call was not stored: a hook hides its failures from the agent."""
    if hooked.memory_failures:
        raise AssertionError(f"{hooked.memory_failures} calls were not stored: see the log")
    stored = sum(target.count().values())
    if stored != 2 * calls:
        raise AssertionError(f"{calls} hooked calls left {stored - calls} memories")


def _space(bench: Bench, seen: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    with bench.folder() as folder:
        with bench.open_target(folder) as target:
            recorder = _TargetAsMemory(target)
            hooked = _walker(recorder)
            hooked.act(seen[0])  # loads everything that is loaded at first use

            def walk() -> None:
                for observation in seen:
                    hooked.observe(observation)
                    hooked.act(observation)
                    recorder.ids.clear()  # these would count as the target's RAM
                    recorder.items.clear()

            ram = traced_peak_bytes(walk)
        disk = disk_bytes(folder)
    return {"ram_bytes_per_step": ram / len(seen), "disk_bytes_per_step": disk / len(seen)}


# -- frameworks -------------------------------------------------------------------------------

_Framework = Callable[[Bench, int], dict[str, Any]]


@declare(
    headline="langgraph/overhead_us_per_step|*/overhead_us_per_step",
    reports=TIMED,
    iteration_overhead_percent=_OVERHEAD,
    overhead_us_per_step=Metric("µs", "lower"),
    reward=Metric("", "higher"),
    steps=Metric("", "neither"),
    reads=Metric("", "neither"),
    writes=Metric("", "neither"),
    read_write_ratio=Metric("×", "neither"),
    profiles={
        "quick": {"frameworks": ["gymnasium"], "training_iterations": 1},
        "standard": {"training_iterations": 5},
    },
    expected_seconds={"quick": 0.4, "standard": 2.0, "full": 4.0},
    charts=[BarChart("Time of an iteration", metric="p50_ms", names=["part0"], lines=["part1"])],
)
def benchmark_framework_integration(
    frameworks: Names = ("gymnasium", "langgraph"),
    training_iterations: Count = 10,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How much time a memory adds to an iteration of Gymnasium's CartPole and of a LangGraph graph.

    Read `iteration_overhead_percent` together with `overhead_us_per_step`. A step of CartPole takes
    microseconds, so any durable memory takes many times as long; a turn of a graph is mostly the
    framework's own time. gymnasium: an iteration is an episode. Every tenth step searches; at the end, all
    steps are stored as one batch, and 32 previous ones are read again. langgraph: an iteration is a
    conversation of ten turns; each turn searches, and half of them store. `as_store` is the same through
    LangGraph's own interface for stores. The tiers are small (200 and 500 memories), so that all three are
    used. `accesses` counts the reads of each tier. `reward` is the mean return of the episodes (the same
    with and without a correct memory) or the share of questions answered.

    Args:
        frameworks: which frameworks; those that are not installed are n/a
        training_iterations: how many episodes are played, and how many conversations are held
    """
    bench = bench or Bench()
    known: dict[str, _Framework] = {"gymnasium": _gymnasium, "langgraph": _langgraph}
    for name in frameworks:
        if name not in known:
            raise InvalidBenchmarkConfig(f"frameworks has {name!r}: {nearest(name, known)}")
    return {name: _if_installed(name, known[name], bench, training_iterations) for name in frameworks}


def _if_installed(
    name: str, run: _Framework, bench: Bench, iterations: int
) -> dict[str, Any] | NotAvailable:
    from importlib.util import find_spec

    if find_spec(name) is None:
        return not_available(str(needs(name, name, f"the loop of {name}")))
    return run(bench, iterations)


def _gymnasium(bench: Bench, iterations: int) -> dict[str, Any]:
    from memory.benchmarking.benchmarks._integration_gymnasium import Player, RememberingPlayer

    with _working_target(bench) as target:
        reads = _ReadsByTier(target)
        with closing(Player(bench.seed)) as plain, closing(RememberingPlayer(bench.seed, target)) as other:
            work = {"without_memory": plain.iterate, "with_memory": reads.counted(other.iterate)}
            timings = _iterated(work, iterations)
        bench.acknowledged(target, *other.stored())
        rewards = {"without_memory": plain.rewards, "with_memory": other.rewards}
        return {
            **{
                name: {"iteration": timings[name], "reward": statistics.fmean(rewards[name])}
                for name in timings
            },
            **_overhead(timings["with_memory"], timings["without_memory"], other.steps),
            **_accesses(target, reads, other.reads, other.writes),
        }


def _langgraph(bench: Bench, iterations: int) -> dict[str, Any]:
    if not bench.capabilities.search:
        raise NotSupported(f"{bench.system} can't search")
    from memory.benchmarking.benchmarks._integration_langgraph import (
        Talk,
        TargetNodes,
        conversation,
        store_nodes,
    )

    with _working_target(bench) as target:
        nodes = TargetNodes(target)
        talks = {
            "without_memory": Talk(bench.seed),
            "with_memory": Talk(bench.seed, nodes.recall, nodes.remember),
        }
        if _is_own_memory(bench):
            from memory.integrations.langgraph import AgentMemoryStore

            store = AgentMemoryStore(_system_of(target))
            talks["as_store"] = Talk(bench.seed, *store_nodes(), store)
        reads = _ReadsByTier(target)
        work = {name: talk.iterate for name, talk in talks.items()}
        timings = _iterated(work | {"with_memory": reads.counted(work["with_memory"])}, iterations)
        bench.acknowledged(target, nodes.ids, nodes.items)
        steps = iterations * len(conversation(0, bench.seed))
        found: dict[str, Any] = {
            name: {"iteration": timing, "reward": talks[name].answered / talks[name].asked}
            for name, timing in timings.items()
        }
        if "as_store" in talks:
            found["as_store"] |= _overhead(timings["as_store"], timings["without_memory"], steps)
        else:
            found["as_store"] = not_available(f"{bench.system} has no LangGraph store here")
        return {
            **found,
            **_overhead(timings["with_memory"], timings["without_memory"], steps),
            **_accesses(target, reads, nodes.reads, nodes.writes),
        }


@contextmanager
def _working_target(bench: Bench) -> Iterator[Target]:
    """Open a target as in normal use: small tiers, maintenance running, everything loaded."""
    settings = None
    if bench.capabilities.transitions:
        settings = Settings(limits={"stm": 200, "im": 500}, background=True)
    with bench.target(settings=settings) as target:
        target.add_one(Item("somebody_else", {"said": "hello"}))
        if target.capabilities.search:
            target.search("somebody_else", "hello", 1)
        target.delete_all("somebody_else")
        yield target


def _iterated(work: Mapping[str, Callable[[int], None]], iterations: int) -> dict[str, Timing]:
    numbers = list(range(iterations))
    return time_interleaved(work, dict.fromkeys(work, numbers), turns=iterations)


def _overhead(longer: Timing, shorter: Timing, steps: int) -> dict[str, float]:
    """Return the median ratio of iterations, which differ in length, and the time added per step."""
    ratios = [one / other for one, other in zip(longer.samples_ns, shorter.samples_ns, strict=True)]
    added = sum(longer.samples_ns) - sum(shorter.samples_ns)
    return {
        "iteration_overhead_percent": 100 * (statistics.median(ratios) - 1),
        "overhead_us_per_step": added / 1000 / steps,
        "steps": steps,
    }


class _ReadsByTier:
    """Counts from which tiers memories are read, with the memory's own counters.

    It counts at the time of reading, because maintenance moves memories later.
    """

    def __init__(self, target: Target) -> None:
        from memory.benchmarking.targets.agentmemory import AgentMemoryTarget

        self._memory = target.memory if isinstance(target, AgentMemoryTarget) else None
        self.counts: Counter[str] | None = None if self._memory is None else Counter()
        """None where the target has no such counters."""

    def counted(self, work: Callable[[int], None]) -> Callable[[int], None]:
        """Return the same work with its reads counted, without those of other work between its turns."""
        memory, counts = self._memory, self.counts
        if memory is None or counts is None:
            return work

        def counted_work(number: int) -> None:
            before = memory.get_access_statistics()["reads"]
            work(number)
            counts.update(memory.get_access_statistics()["reads"])
            counts.subtract(before)

        return counted_work


def _accesses(target: Target, by_tier: _ReadsByTier, reads: int, writes: int) -> dict[str, Any]:
    """Return how many memories were read from each tier, and how many were stored."""
    places: dict[str, Any] | NotAvailable
    if by_tier.counts is not None:
        places = {tier: {"reads": by_tier.counts[tier]} for tier in target.capabilities.tiers}
    elif target.capabilities.tiers:
        places = not_available(f"{target.name} does not show from which tier it reads a memory")
    else:
        places = {WHOLE: {"reads": reads}}
    return {"accesses": places, "writes": writes, "read_write_ratio": reads / writes}
