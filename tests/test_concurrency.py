"""Threads and processes that share a memory lose, duplicate and hide nothing, and read nothing stale."""

from __future__ import annotations

import gc
import json
import random
import signal
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_embedder import small_embedder
from subprocesses import PATIENCE, run_python, start_python
from threads import together, until_done

from memory import AgentMemorySystem, Hit, ManualClock, MemoryConfig, MemoryEntry
from memory.embedding import FunctionEmbedder
from memory.errors import StoreClosed

OpenMemory = Callable[..., AgentMemorySystem]


@pytest.fixture
def open_small(open_memory: OpenMemory) -> OpenMemory:
    """Return `open_memory` with a fast embedder."""
    return lambda **settings: open_memory(**{"embedder": small_embedder(), **settings})


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Switch threads as often as possible, so that rare interleavings happen."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def ids(found: Any) -> list[str]:
    return sorted(one.id for one in found)


# -- threads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["memory.db", ":memory:"])
def test_threads_write_read_search_move_and_delete_at_once(
    open_small: OpenMemory, tmp_path: Path, frequent_switches: None, path: str
) -> None:
    memory = open_small(
        path=path if path == ":memory:" else tmp_path / path,
        stm={"memory_limit": 10},
        im={"memory_limit": 10},
        transition_batch=3,
        maintenance="background",
        cache_bytes=1024 * 1024,
    )
    memory.add("ann", "the first", id="first")
    kept: dict[str, str] = {}

    def writer(name: str) -> Callable[[], None]:
        def write() -> None:
            for number in range(60):
                id = memory.add("ann", f"{name} wrote {number}", id=f"{name}{number}")
                if number % 3 == 0:
                    assert memory.update("ann", id, content=f"{name} changed {number}")
                if number % 5 == 0:
                    assert memory.delete("ann", id)
                    assert memory.get("ann", id) is None
                else:
                    kept[id] = memory.get("ann", id).content
            memory.add_many({"agent_id": "ann", "content": "batch", "id": f"{name}b{n}"} for n in range(20))
            kept.update({f"{name}b{n}": "batch" for n in range(20)})

        return write

    def read() -> None:
        for id, content in list(kept.copy().items())[-20:]:  # a copy: writers change it meanwhile
            assert memory.get("ann", id).content == content
        recent = ids(memory.recent("ann", 1_000))
        assert len(set(recent)) == len(recent)

    def search() -> None:
        hits = ids(memory.search("ann", "wrote 7", k=500))
        assert len(set(hits)) == len(hits)
        memory.retrieve_by_attributes("ann", {"kind": "text"})

    def maintain() -> None:
        memory.force_transition_to_im(30)
        memory.force_transition_to_ltm(30)
        memory.get_memory_statistics()
        memory.get_access_statistics()
        memory.maintain()

    until_done(lambda: together(*map(writer, "xyz")), read, search, maintain)
    kept["first"] = "the first"
    assert {entry.id: entry.content for entry in memory.recent("ann", 1_000)} == kept
    assert memory.get_memory_statistics("ann")["total"] == len(kept)
    assert ids(memory.search("ann", "wrote", k=1_000)) == sorted(kept)


@pytest.mark.parametrize("path", ["memory.db", ":memory:"])
def test_a_memory_is_found_exactly_once_while_it_is_moved(
    open_small: OpenMemory, tmp_path: Path, path: str
) -> None:
    memory = open_small(path=path if path == ":memory:" else tmp_path / path, transition_batch=1)
    names = sorted(f"m{number}" for number in range(8))
    everyone = [f"agent {number}" for number in range(12)]
    for agent in everyone:
        memory.add_many(
            {
                "agent_id": agent,
                "content": f"the {name}",
                "id": name,
                "step": 3,
                "metadata": {"colour": "red"},
            }
            for name in names
        )
    moving = {"agent": everyone[0]}

    def move() -> None:
        for agent in everyone:
            moving["agent"] = agent
            memory.force_transition_to_im(agent_id=agent)
            memory.force_transition_to_ltm(agent_id=agent)

    def find() -> None:
        agent = moving["agent"]
        assert [memory.get(agent, name).id for name in names] == names
        assert ids(memory.get_many(agent, names)) == names
        assert all(memory.exists(agent, name) for name in names)
        assert ids(memory.recent(agent, 100)) == names
        assert ids(memory.retrieve_by_time_range(agent)) == names
        assert ids(memory.retrieve_by_step_range(agent, 3, 3)) == names
        assert sum(memory.get_memory_statistics(agent)["tiers"].values()) == len(names)

    def search() -> None:
        agent = moving["agent"]
        assert ids(memory.search(agent, "the m3", k=100)) == names
        assert ids(memory.search(agent, "the", k=100, filters={"colour": "red"})) == names
        assert ids(memory.retrieve_by_attributes(agent, {"colour": "red"})) == names
        assert ids(memory.retrieve_similar_states(agent, "the m3", k=100)) == names

    until_done(move, find, search)
    assert memory.get_memory_statistics()["tiers"] == {"stm": 0, "im": 0, "ltm": 8 * 12}


def test_two_callers_and_the_maintenance_thread_move_each_memory_once(open_small: OpenMemory) -> None:
    memory = open_small(stm={"memory_limit": 5}, transition_batch=2, maintenance="background")
    memory.add_many({"agent_id": "ann", "content": f"{n}", "id": str(n)} for n in range(80))
    moved = together(*[lambda: memory.force_transition_to_im(agent_id="ann")] * 3)
    assert sum(moved) <= 80
    assert ids(memory.recent("ann", 1_000)) == sorted(map(str, range(80)))
    assert memory.get_memory_statistics("ann")["tiers"] == {"stm": 0, "im": 80, "ltm": 0}


def test_reads_work_while_the_cache_is_emptied(open_small: OpenMemory, frequent_switches: None) -> None:
    memory = open_small(cache_bytes=1024 * 1024)
    memory.add_many({"agent_id": "ann", "content": f"{n}", "id": str(n)} for n in range(50))

    def empty() -> None:
        for number in range(150):
            memory.update("ann", "0", importance=number)
            memory.drop_caches("ann")
            memory.add("bob", "x" * 100_000)  # evicts the other agents from the cache

    def read() -> None:
        for number in range(50):
            assert memory.get("ann", str(number)).content == str(number)
        assert len(memory.recent("ann", 100)) == 50

    until_done(empty, read, read)


def test_reads_work_during_maintenance(open_small: OpenMemory, frequent_switches: None) -> None:
    memory = open_small(maintenance="background", maintenance_interval_seconds=0.001)
    memory.add_many(
        {"agent_id": agent, "content": f"{n}", "id": str(n)} for n in range(300) for agent in ("ann", "bob")
    )

    def maintain() -> None:
        for _ in range(60):
            memory.maintain()
            memory.force_transition_to_im(1)
            memory.get_access_statistics()

    def read() -> None:
        memory.search("ann", "7", k=300)
        memory.recent("bob", 300)
        for number in range(0, 300, 7):
            memory.get("ann", str(number))

    until_done(maintain, read, read)
    assert memory.get_memory_statistics()["total"] == 600


def test_the_maintenance_thread_continues_after_a_failed_round(open_small: OpenMemory) -> None:
    memory = open_small(
        stm={"memory_limit": 2}, maintenance="background", maintenance_interval_seconds=0.001
    )
    moves, failed, moved = memory._store.move, threading.Event(), threading.Event()

    def fail_once(*arguments: Any) -> int:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("unexpected")
        count = moves(*arguments)
        moved.set()
        return count

    memory._store.move = fail_once  # type: ignore[method-assign]
    memory.add_many({"agent_id": "ann", "content": f"{n}"} for n in range(50))
    assert failed.wait(PATIENCE)
    assert moved.wait(PATIENCE)


def test_two_concurrent_updates_of_different_fields_are_both_kept(
    open_small: OpenMemory, frequent_switches: None
) -> None:
    memory = open_small()
    memory.add("ann", "0", id="1", importance=0.0, step=0)
    together(
        lambda: [memory.update("ann", "1", content=str(number)) for number in range(1, 80)],
        lambda: [memory.update("ann", "1", importance=number) for number in range(1, 80)],
        lambda: [memory.update("ann", "1", step=number) for number in range(1, 80)],
    )
    entry = memory.get("ann", "1")
    assert (entry.content, entry.importance, entry.step) == ("79", 79.0, 79)
    assert [hit.entry.content for hit in memory.search("ann", "79")] == ["79"]


class _Between:
    """An embedder that runs a function between the read and the write of an update."""

    def __init__(self) -> None:
        self.act: Callable[[], Any] | None = None
        self._embed = small_embedder().embed

    def embed(self, texts: Any) -> Any:
        act, self.act = self.act, None
        if act is not None:
            act()
        return self._embed(texts)

    def embedder(self) -> FunctionEmbedder:
        return FunctionEmbedder(self.embed, name="between", dimensions=32)


@pytest.fixture
def between() -> _Between:
    return _Between()


@pytest.fixture
def watched(open_memory: OpenMemory, between: _Between) -> AgentMemorySystem:
    """Return a memory with one entry; its next update of the content calls `between`."""
    memory = open_memory(embedder=between.embedder())
    memory.add("ann", "old", id="1", importance=1.0, metadata={"colour": "red"})
    return memory


def test_an_update_keeps_what_another_update_changed_meanwhile(
    watched: AgentMemorySystem, between: _Between
) -> None:
    between.act = lambda: watched.update("ann", "1", importance=5.0, metadata={"colour": "blue"})
    assert watched.update("ann", "1", content="new")
    entry = watched.get("ann", "1")
    assert (entry.content, entry.importance, entry.metadata) == ("new", 5.0, {"colour": "blue"})


def test_an_update_does_not_undo_a_move(watched: AgentMemorySystem, between: _Between) -> None:
    between.act = watched.force_transition_to_im
    assert watched.update("ann", "1", content="new")
    assert watched.get("ann", "1").content == "new"
    assert watched.get_memory_statistics("ann")["tiers"] == {"stm": 0, "im": 1, "ltm": 0}


def test_an_update_does_not_bring_back_a_deleted_memory(
    watched: AgentMemorySystem, between: _Between
) -> None:
    between.act = lambda: watched.delete("ann", "1")
    assert watched.update("ann", "1", content="new") is False
    assert watched.get("ann", "1") is None
    assert watched.search("ann", "new") == []


def test_an_update_does_not_change_a_new_memory_with_the_same_id(
    watched: AgentMemorySystem, between: _Between
) -> None:
    def replace_it() -> None:
        watched.delete("ann", "1")
        watched.add("ann", "another", id="1", importance=7.0)

    between.act = replace_it
    watched.update("ann", "1", content="new")
    entry = watched.get("ann", "1")
    assert (entry.content, entry.importance, entry.metadata) in [("new", 7.0, {}), ("another", 7.0, {})]


def test_a_move_does_not_undo_an_update(watched: AgentMemorySystem) -> None:
    move = watched._store.move

    def move_after_an_update(*arguments: Any) -> int:
        watched._store.move = move  # type: ignore[method-assign]
        assert watched.update("ann", "1", content="new", metadata={"colour": "blue"})
        return move(*arguments)

    watched._store.move = move_after_an_update  # type: ignore[method-assign]
    watched.force_transition_to_im()
    entry = watched.get("ann", "1")
    assert (entry.content, entry.metadata) == ("new", {"colour": "blue"})
    watched.force_transition_to_im()
    assert watched.get("ann", "1").content == "new"
    assert [hit.entry.content for hit in watched.search("ann", "new")] == ["new"]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, MemoryError])
def test_after_an_interrupted_search_each_memory_is_found_once(
    open_small: OpenMemory, problem: type[BaseException]
) -> None:
    memory = open_small()
    memory.add_many({"agent_id": "ann", "content": f"memory {n}", "id": str(n)} for n in range(600))
    features = memory._store.features

    def interrupted(*arguments: Any) -> Iterator[Any]:
        memory._store.features = features  # type: ignore[method-assign]
        yield next(features(*arguments))[:100]
        raise problem

    memory._store.features = interrupted  # type: ignore[method-assign]
    with pytest.raises(problem):
        memory.search("ann", "memory 7")
    assert ids(memory.search("ann", "memory 7", k=1_000)) == sorted(map(str, range(600)))
    assert ids(memory.retrieve_by_attributes("ann", {"kind": "text"})) == sorted(map(str, range(600)))


def test_reading_again_does_not_grow_the_cache(open_small: OpenMemory) -> None:
    memory = open_small()
    memory.add_many({"agent_id": "ann", "content": f"{n}", "id": str(n)} for n in range(50))

    def read() -> int:
        memory.recent("ann", 100)
        memory.get_many("ann", list(map(str, range(50))))
        memory.search("ann", "7", k=50)
        return memory.get_memory_statistics()["bytes_in_cache"]

    first = read()
    assert [read() for _ in range(10)] == [first] * 10


class _Closing:
    """Repeats calls while another thread closes the memory."""

    def __init__(self, memory: AgentMemorySystem, calls: int) -> None:
        self._memory = memory
        self._running = threading.Barrier(calls + 1)
        self._closed = threading.Event()

    def close(self) -> None:
        self._running.wait(PATIENCE)
        self._memory.close()
        self._closed.set()

    def repeat(self, call: Callable[[], Any]) -> Callable[[], None]:
        def loop() -> None:
            call()
            self._running.wait(PATIENCE)
            while True:
                closed = self._closed.is_set()
                try:
                    call()
                except StoreClosed:
                    return
                assert not closed, "a call succeeded after the memory was closed"

        return loop


@pytest.mark.parametrize("path", ["memory.db", ":memory:"])
@pytest.mark.parametrize("attempt", range(6))
def test_calls_that_run_while_the_memory_closes_raise_store_closed(
    open_small: OpenMemory, tmp_path: Path, frequent_switches: None, path: str, attempt: int
) -> None:
    where = path if path == ":memory:" else tmp_path / path
    memory = open_small(path=where, maintenance="background", stm={"memory_limit": 3 + attempt})
    acknowledged = [memory.add("ann", "first", id="first")]
    closing = _Closing(memory, calls=5)
    together(
        closing.close,
        closing.repeat(lambda: acknowledged.append(memory.add("ann", "more"))),
        closing.repeat(lambda: memory.get("ann", "first")),
        closing.repeat(lambda: memory.update("ann", "first", importance=2.0)),
        closing.repeat(lambda: memory.search("ann", "first")),
        closing.repeat(lambda: memory.delete("ann", "nobody's")),
    )
    if path != ":memory:":
        with open_small(path=where) as again:
            assert ids(again.recent("ann", 100_000)) == sorted(acknowledged)


@pytest.mark.parametrize("way", ["fetch", "read"])
def test_a_reader_that_is_in_use_while_the_memory_closes_is_closed_afterwards(
    open_small: OpenMemory, way: str
) -> None:
    memory = open_small()
    memory.add("ann", "first", id="1")
    connections = memory._store._connections
    used: list[sqlite3.Connection] = []

    class Closing(deque):  # type: ignore[type-arg]
        def append(self, connection: Any) -> None:
            memory.close()
            used.append(connection)
            super().append(connection)

    connections._idle = Closing(connections._idle)
    if way == "fetch":
        connections.fetch("SELECT 1")
    else:
        connections.read(lambda connection: (memory.close(), used.append(connection)))
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        used[0].execute("SELECT 1")


def test_closing_waits_for_one_batch_only(open_small: OpenMemory, clock: ManualClock) -> None:
    """Between batches the maintenance thread checks whether it must stop."""
    memory = open_small(stm={"memory_limit": 1}, transition_batch=3)
    memory.add_many({"agent_id": f"agent {n % 40}", "content": f"{n}"} for n in range(400))
    report, _ = memory._transitions.by_capacity(memory.agents(), lambda: False)
    assert report.moved_to_im <= 3
    clock.advance(365 * 24 * 3600)
    report, _ = memory._transitions.by_age(lambda: False)
    assert report.moved_to_im + report.moved_to_ltm <= 3


def _maintenance_threads() -> set[threading.Thread]:
    # `enumerate` also has threads that are about to start, which can't be joined.
    threads = (thread for thread in threading.enumerate() if thread.is_alive())
    return {thread for thread in threads if thread.name == "agentmemory-maintenance"}


def test_a_memory_collected_in_its_maintenance_thread_is_closed(tmp_path: Path) -> None:
    class CollectingClock(ManualClock):
        """Runs the garbage collector when the maintenance thread reads the time, and only there."""

        def now(self) -> float:
            if threading.current_thread().name == "agentmemory-maintenance" and collect.wait(PATIENCE):
                gc.collect()
            return super().now()

    collect = threading.Event()
    config = MemoryConfig()
    config.ltm_config.db_path = str(tmp_path / "memory.db")
    before = _maintenance_threads()
    gc.disable()
    try:
        memory = AgentMemorySystem(config, clock=CollectingClock(), embedder=small_embedder())
        memory.add("ann", "first", id="1")
        while not (started := _maintenance_threads() - before):
            time.sleep(0.001)
        (maintenance,) = started
        store = memory._store
        cycle: list[Any] = [memory]
        cycle.append(cycle)
        del memory, cycle
        collect.set()
        maintenance.join(PATIENCE)
    finally:
        gc.enable()
    assert not maintenance.is_alive()
    with pytest.raises(StoreClosed):
        store.agents()


# -- one system that follows the changes of another -------------------------------------------


def _some_change(memory: AgentMemorySystem, rng: random.Random, number: int) -> None:
    there = ids(memory.recent("ann", 10_000))
    some = rng.sample(there, min(len(there), 5))
    words = " ".join(f"word{rng.randrange(30)}" for _ in range(rng.randrange(1, 12)))
    match rng.randrange(10) if there else 9:
        case 0:
            memory.delete_many("ann", some)
        case 1:
            memory.force_transition_to_im(rng.choice([10, 50]), agent_id="ann")
        case 2:
            memory.force_transition_to_ltm(50, agent_id="ann")
        case 3 | 4:
            memory.update("ann", some[0], content=words, metadata={"session": rng.randrange(3)})
        case 5:
            memory.update("ann", some[0], importance=rng.random(), step=number)
        case 6 if number % 7 == 0:
            memory.delete_all("ann")
        case _:
            count = rng.choice([1, 1, 3, 40, 300])
            memory.add_many(
                {
                    "agent_id": "ann",
                    "content": f"{words} {n}",
                    "id": f"{number}-{n}",
                    "metadata": {"n": n % 3},
                }
                for n in range(count)
            )


def _answers(memory: AgentMemorySystem) -> dict[str, Any]:
    """Return all results of each kind of search; scores are rounded, their last digits may differ."""

    def by_id(hits: list[Hit]) -> dict[str, Any]:
        found = {hit.id: (hit.entry, hit.why.words) for hit in hits}
        assert len(found) == len(hits), "a memory was found twice"
        return found

    nearest = memory.retrieve_similar_states("ann", "word1 word2", k=10_000)
    return {
        "words": by_id(memory.search("ann", "word3 word7", k=10_000)),
        "words in im": by_id(memory.search("ann", "word5", k=10_000, tier="im")),
        "vectors": by_id(nearest),
        "cosines": {hit.id: hit.why.similarity for hit in nearest},
        "filter": memory.retrieve_by_attributes("ann", {"n": 1}),
        "filter in stm": memory.retrieve_by_attributes("ann", {"session": 2}, tier="stm"),
    }


@pytest.mark.parametrize("seed", range(3))
def test_an_old_and_a_new_system_return_the_same_after_every_change(
    open_small: OpenMemory, seed: int
) -> None:
    rng = random.Random(seed)
    changing, following = open_small(), open_small()
    for number in range(60):
        _some_change(changing, rng, number)
        if rng.random() < 0.5:
            fresh = open_small()
            expected = _answers(fresh)
            expected["cosines"] = pytest.approx(expected["cosines"], abs=0.03)
            fresh.close()
            for memory in (following, changing):
                for way, found in _answers(memory).items():
                    assert found == expected[way], f"{way} after change {number} of seed {seed}"


# -- processes --------------------------------------------------------------------------------


def test_processes_write_move_and_delete_on_one_file(open_small: OpenMemory, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    script = """
path, role = sys.argv[1:]
memory = open_memory(path, stm={"memory_limit": 20}, im={"memory_limit": 20}, transition_batch=4,
                     maintenance="background" if role == "writer 0" else "manual")
print("ready", flush=True)
sys.stdin.readline()
if role.startswith("writer"):
    for number in range(150):
        memory.add("ann", f"{role} {number}", id=f"{role} {number}", step=number)
        memory.add("ann", "by all", id=f"shared {number}")
        memory.update("ann", f"{role} {number}", metadata={"by": role})
        batch = [{"agent_id": "bob", "content": f"{n}", "id": f"{role} {number} {n}"} for n in range(3)]
        memory.add_many(batch)
elif role == "mover":
    while not os.path.exists(path + ".done"):
        memory.force_transition_to_im(40)
        memory.force_transition_to_ltm(40)
else:
    gone = set()
    while len(gone) < 50:
        for entry in memory.recent("bob", 10_000):
            due = entry.id.endswith(" 1") and entry.id.startswith("writer 1")
            if due and memory.delete("bob", entry.id):
                assert memory.get("bob", entry.id) is None
                gone.add(entry.id)
    print(json.dumps(sorted(gone)))
memory.close()
"""
    roles = ["writer 0", "writer 1", "writer 2", "mover", "deleter"]
    processes = {role: start_python(script, path, role) for role in roles}
    for process in processes.values():
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes.values():
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = {}
    for role in ("writer 0", "writer 1", "writer 2", "deleter", "mover"):
        if role == "mover":
            Path(f"{path}.done").touch()
        outputs[role], stderr = processes[role].communicate(timeout=PATIENCE)
        assert (processes[role].returncode, stderr) == (0, ""), stderr
    gone = set(json.loads(outputs["deleter"]))
    memory = open_small(path=path)
    written = {f"{role} {n}": {"by": role} for role in roles[:3] for n in range(150)}
    expected = written | {f"shared {n}": {} for n in range(150)}
    assert {entry.id: entry.metadata for entry in memory.recent("ann", 10_000)} == expected
    assert len(memory.recent("ann", 10_000)) == len(expected)
    of_bob = {f"{role} {n} {part}" for role in roles[:3] for n in range(150) for part in range(3)}
    assert ids(memory.recent("bob", 10_000)) == sorted(of_bob - gone)
    assert memory.get_memory_statistics()["total"] == len(expected) + len(of_bob - gone)
    assert sorted(set(ids(memory.search("ann", "writer", k=10_000)))) == sorted(expected)


class OtherProcess:
    """A memory in another process, which evaluates one expression at a time."""

    def __init__(self, path: Path) -> None:
        script = """
memory = open_memory(sys.argv[1])
def ids(found): return sorted(one.id for one in found)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""
        self._process = start_python(script, path)

    def ask(self, expression: str) -> Any:
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._process.stderr.read()
        return json.loads(answer)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def open_elsewhere() -> Iterator[Callable[[Path], OtherProcess]]:
    opened: list[OtherProcess] = []

    def open_one(path: Path) -> OtherProcess:
        opened.append(OtherProcess(path))
        return opened[-1]

    yield open_one
    for other in opened:
        other.end()


def _check_that_changes_are_seen(here: AgentMemorySystem, there: OtherProcess) -> None:
    """Change the memory here and check that the next call in the other process sees the change."""
    get = 'getattr(memory.get("ann", "1"), "content", None)'
    tier = 'getattr(memory.get("ann", "1"), "tier", None)'
    search = '[hit.entry.content for hit in memory.search("ann", "word")]'
    by_attribute = 'ids(memory.retrieve_by_attributes("ann", {"colour": "red"}))'
    for round_number in range(3):
        assert there.ask(get) is None
        here.add("ann", "word stored", id="1", metadata={"colour": "red"})
        for question, answer in ((get, "word stored"), (search, ["word stored"]), (by_attribute, ["1"])):
            assert there.ask(question) == answer
            assert there.ask(question) == answer  # now it is cached there
        assert here.update("ann", "1", content="word changed", metadata={"colour": "blue"})
        for question, answer in ((get, "word changed"), (search, ["word changed"]), (by_attribute, [])):
            assert there.ask(question) == answer
            assert there.ask(question) == answer
        here.force_transition_to_im()
        assert there.ask(tier) == "im"
        assert there.ask('ids(memory.search("ann", "word", tier="stm"))') == []
        assert there.ask(search) == ["word changed"]
        if round_number % 2:
            here.delete_all("ann")
        else:
            here.delete("ann", "1")
        assert there.ask(get) is None
        assert there.ask(search) == []
        assert there.ask('memory.get_memory_statistics("ann")["total"]') == 0


def test_a_process_sees_the_changes_of_another_at_once(
    open_small: OpenMemory, open_elsewhere: Callable[[Path], OtherProcess], tmp_path: Path
) -> None:
    here, there = open_small(), open_elsewhere(tmp_path / "memory.db")
    _check_that_changes_are_seen(here, there)
    there.ask('memory.add("ann", "word from there", id="2")')
    assert here.get("ann", "2").content == "word from there"
    assert here.get("ann", "2").content == "word from there"
    there.ask('memory.update("ann", "2", content="word changed there")')
    assert here.get("ann", "2").content == "word changed there"
    assert [hit.entry.content for hit in here.search("ann", "word")] == ["word changed there"]
    there.ask('memory.delete("ann", "2")')
    assert here.get("ann", "2") is None
    assert here.search("ann", "word") == []


def test_a_process_reads_with_codecs_that_another_has_fitted(
    open_small: OpenMemory, open_elsewhere: Callable[[Path], OtherProcess], tmp_path: Path
) -> None:
    here, there = open_small(), open_elsewhere(tmp_path / "memory.db")
    texts = [f"memory {n} of {n % 17} things and {n % 31} others, as so often before" for n in range(2_500)]
    here.add_many({"agent_id": "ann", "content": text, "id": str(n)} for n, text in enumerate(texts))
    before = there.ask('[hit.id for hit in memory.search("ann", "memory 77", k=3)]')
    here.force_consolidation()
    here.add_many({"agent_id": "ann", "content": text, "tier": "ltm"} for text in texts[:10])
    assert here.get_memory_statistics()["codecs"]["ltm"] == "centred"
    assert there.ask('[memory.get("ann", str(n)).content for n in range(2_500)]') == texts
    assert there.ask('[hit.id for hit in memory.search("ann", "memory 77", k=3)]') == before
    assert there.ask('memory.update("ann", "7", metadata={"by": "there"})')
    assert here.get("ann", "7").content == texts[7]
    assert len(there.ask('ids(memory.recent("ann", 10_000))')) == 2_510


def test_a_symbolic_link_to_the_file_sees_its_changes(
    open_small: OpenMemory, open_elsewhere: Callable[[Path], OtherProcess], tmp_path: Path
) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.db"
    link.symlink_to(tmp_path / "memory.db")
    _check_that_changes_are_seen(open_small(), open_elsewhere(link))


def test_opening_the_file_twice_in_a_process_loses_nothing(
    open_small: OpenMemory, open_elsewhere: Callable[[Path], OtherProcess], tmp_path: Path
) -> None:
    """Closing any descriptor of a file drops all locks that the process has on it."""
    path = tmp_path / "memory.db"
    one = open_small(path=path)
    one.add("ann", "1", id="1")
    open_small(path=path).close()
    for number in ("2", "4"):
        other = open_elsewhere(path)
        other.ask(f'memory.add("ann", "{number}", id="{number}")')
        other.ask("memory.close()")
        assert Path(f"{path}-wal").exists(), "another process deleted a log that is in use"
        one.add("ann", str(int(number) + 1), id=str(int(number) + 1))
    assert open_elsewhere(path).ask('ids(memory.recent("ann", 10))') == ["1", "2", "3", "4", "5"]


def test_a_killed_writer_does_not_stop_the_others(open_small: OpenMemory, tmp_path: Path) -> None:
    script = """
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
memory = open_memory(path, busy_timeout_seconds=20)
acknowledged = os.open(f"{path}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for number in range(count):
    memory.add("ann", f"{name} {number}", id=f"{name} {number}")
    memory.update("ann", f"{name} {number}", importance=2.0)
    os.write(acknowledged, f"{name} {number}\\n".encode())
    if number == 20:
        print("now", flush=True)
"""
    path = tmp_path / "memory.db"
    survivors = [start_python(script, path, name, 200) for name in ("one", "two")]
    victims = [f"victim {number}" for number in range(3)]
    for name in victims:
        victim = start_python(script, path, name, 100_000)
        assert victim.stdout.readline() == "now\n", victim.communicate()
        victim.send_signal(signal.SIGKILL)
        victim.communicate(timeout=PATIENCE)
    for survivor in survivors:
        _, stderr = survivor.communicate(timeout=PATIENCE)
        assert (survivor.returncode, stderr) == (0, "")
    logs = [Path(f"{path}.{name}").read_text() for name in ("one", "two", *victims)]
    acknowledged = {line for log in logs for line in log.splitlines()}
    entries = open_small(path=path).recent("ann", 100_000)
    found: dict[str, MemoryEntry] = {entry.id: entry for entry in entries}
    assert len(found) == len(entries)
    assert acknowledged <= found.keys()
    assert len(found) <= len(acknowledged) + len(victims)  # the last call of each victim may be done or not
    assert all(found[id].importance == 2.0 for id in acknowledged)


# -- fork -------------------------------------------------------------------------------------

_FORK = """
import signal, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # the test is about forking with threads

def fork(work):
    "Run work in a forked child and return its process id."
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(60)
        work()
        code = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        os._exit(code)

def join(pid):
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"

def ids(found): return sorted(one.id for one in found)
"""


def test_a_forked_child_and_its_parent_both_read_and_write(open_small: OpenMemory, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    script = (
        _FORK
        + """
memory = open_memory(sys.argv[1], stm={"memory_limit": 5}, maintenance="background", transition_batch=2)
memory.add("ann", "from the parent", id="parent")
memory.search("ann", "parent")
def child():
    assert memory.get("ann", "parent").content == "from the parent"
    for number in range(30):
        memory.add("ann", f"from the child {number}", id=f"child {number}")
    assert memory.update("ann", "parent", content="changed by the child")
    found = ids(memory.search("ann", "child", k=100))
    assert len(found) == len(set(found)) and {f"child {number}" for number in range(30)} <= set(found)
    memory.force_transition_to_im()
pid = fork(child)
for number in range(30):
    memory.add("ann", f"from the parent {number}", id=f"parent {number}")
join(pid)
assert memory.get("ann", "parent").content == "changed by the child"
assert len(memory.search("ann", "child", k=100)) == 61
assert len(memory.recent("ann", 100)) == 61
memory.close()
"""
    )
    run_python(script, path)
    assert len(open_small(path=path).recent("ann", 100)) == 61


def test_a_forked_child_keeps_what_it_stored_when_the_parent_closes(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    """The child inherits SQLite's table of locks, which is wrong for it."""
    path = tmp_path / "memory.db"
    script = (
        _FORK
        + """
memory = open_memory(sys.argv[1])
memory.add("ann", "from the parent", id="parent")
memory.get("ann", "parent")
stored, closed = os.pipe(), os.pipe()
def child():
    memory.add("ann", "before", id="before")
    os.write(stored[1], b"x")
    os.read(closed[0], 1)
    memory.add("ann", "after", id="after")
    assert ids(memory.recent("ann")) == ["after", "before", "parent"]
    os.kill(os.getpid(), signal.SIGKILL)
pid = fork(child)
os.read(stored[0], 1)
memory.close()
os.write(closed[1], b"x")
assert os.waitpid(pid, 0)[1] == signal.SIGKILL
"""
    )
    run_python(script, path)
    assert ids(open_small(path=path).recent("ann")) == ["after", "before", "parent"]


def test_a_child_that_exits_normally_does_not_disturb_the_parent(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    """At exit it runs the finalisers of inherited objects, and closes what it used."""
    path = tmp_path / "memory.db"
    script = (
        _FORK
        + """
memory = open_memory(sys.argv[1], maintenance="background")
for number in range(5):
    memory.add("ann", "from the parent", id=f"parent {number}")
    pid = os.fork()
    if pid == 0:
        memory.add("ann", "from the child", id=f"child {number}")
        if number % 2:
            memory.close()
        sys.exit(0)
    join(pid)
    assert len(memory.recent("ann", 100)) == 2 * number + 2
"""
    )
    run_python(script, path)
    assert len(open_small(path=path).recent("ann", 100)) == 10


def test_a_forked_child_of_a_forked_child_works(open_small: OpenMemory, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    script = (
        _FORK
        + """
memory = open_memory(sys.argv[1])
memory.add("ann", "0", id="0")
def grandchild():
    memory.add("ann", "2", id="2")
def child():
    memory.add("ann", "1", id="1")
    join(fork(grandchild))
    memory.add("ann", "3", id="3")
join(fork(child))
assert ids(memory.recent("ann")) == ["0", "1", "2", "3"]
"""
    )
    run_python(script, path)


def test_a_memory_in_ram_is_copied_by_a_fork(tmp_path: Path) -> None:
    script = (
        _FORK
        + """
memory = open_memory(":memory:")
memory.add("ann", "0", id="0")
def child():
    memory.add("ann", "1", id="1")
    assert ids(memory.search("ann", "1")) == ["0", "1"]
join(fork(child))
assert ids(memory.recent("ann")) == ["0"]
"""
    )
    run_python(script)


def test_a_child_forked_during_a_search_can_search(tmp_path: Path) -> None:
    """A thread of the parent holds the lock of the index; the child does not have that thread."""
    script = (
        _FORK
        + """
memory = open_memory(sys.argv[1])
memory.add("ann", "something", id="1")
embed, inside, leave = memory.embedder.embed, threading.Event(), threading.Event()
def slow(texts):
    if threading.current_thread() is not threading.main_thread():
        inside.set()
        leave.wait(60)
    return embed(texts)
memory.embedder.embed = slow
thread = threading.Thread(target=lambda: memory.search("ann", "something"))
thread.start()
assert inside.wait(60)
def child():
    assert ids(memory.search("ann", "something")) == ["1"]
    memory.add("ann", "more", id="2")
    assert ids(memory.search("ann", "something")) == ["1", "2"]
    memory.close()
pid = fork(child)
leave.set()
thread.join(60)
join(pid)
"""
    )
    run_python(script, tmp_path / "memory.db")


def test_a_child_forked_while_threads_are_busy_works(open_small: OpenMemory, tmp_path: Path) -> None:
    """Fork twenty times while writers, readers and the maintenance thread run."""
    path = tmp_path / "memory.db"
    script = (
        _FORK
        + """
memory = open_memory(sys.argv[1], stm={"memory_limit": 5}, maintenance="background", transition_batch=2,
                     busy_timeout_seconds=20)
memory.add("ann", "first", id="first")
done = threading.Event()
def busy():
    while not done.is_set():
        memory.add("bob", "busy")
        memory.search("bob", "busy")
        memory.get("ann", "first")
        memory.recent("bob", 5)
threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads: thread.start()
try:
    for number in range(20):
        def child():
            assert memory.get("ann", "first") is not None
            memory.add("ann", "child", id=f"child {number}")
            assert len(memory.search("ann", "child", k=100)) == number + 2
        join(fork(child))
finally:
    done.set()
for thread in threads: thread.join(60)
"""
    )
    run_python(script, path)
    assert len(open_small(path=path).recent("ann", 100)) == 21


def test_threads_can_fork_at_the_same_time(open_small: OpenMemory, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    script = (
        _FORK
        + """
sys.setswitchinterval(1e-6)
memory = open_memory(sys.argv[1], busy_timeout_seconds=20)
memory.add("ann", "first", id="first")
def forking(name):
    for number in range(12):
        join(fork(lambda: memory.add("ann", "child", id=f"{name} {number}")))
        memory.add("ann", "parent", id=f"parent {name} {number}")
threads = [threading.Thread(target=forking, args=(name,), daemon=True) for name in "abc"]
for thread in threads: thread.start()
for thread in threads:
    thread.join(60)
    assert not thread.is_alive(), "a lock was never released"
assert len(memory.recent("ann", 1000)) == 1 + 3 * 12 * 2
"""
    )
    run_python(script, path)
    assert len(open_small(path=path).recent("ann", 1_000)) == 1 + 3 * 12 * 2
