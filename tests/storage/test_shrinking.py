"""Maintenance returns the space of moved and deleted memories to the file system; nothing else changes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from many_memories import ALL, MANY, contents, fill, text
from small_embedder import small_embedder
from subprocesses import PATIENCE, run_python, start_python
from threads import until_done

from memory import AgentMemorySystem, MemoryConfig
from memory.storage import _eraser, _shrinker, schema

OpenMemory = Callable[..., AgentMemorySystem]


@pytest.fixture
def open_small(open_memory: OpenMemory) -> OpenMemory:
    return lambda **settings: open_memory(**{"embedder": small_embedder(), **settings})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start_python` for processes that would run forever if a test fails."""
    started: list[subprocess.Popen[str]] = []

    def start_one(script: str, *arguments: object) -> subprocess.Popen[str]:
        started.append(start_python(script, *arguments))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed file with memories of ann and free pages between them, where bob's memories were."""
    config = MemoryConfig(maintenance="manual")
    path = tmp_path_factory.mktemp("model") / "memory.db"
    config.ltm_config.db_path = str(path)
    with AgentMemorySystem(config, embedder=small_embedder()) as memory:
        for start in range(0, MANY, 100):
            for agent in ("bob", "ann"):
                fill(memory, agent, range(start, start + 100))
        memory.delete_all("bob")
    count, free = pages(path)
    assert free > 0.4 * count
    return path


@pytest.fixture
def file_with_gaps(model: Path, path: Path) -> Path:
    """A copy of `model` for one test."""
    return Path(shutil.copy(model, path))


def pages(path: Path) -> tuple[int, int]:
    """Return the number of pages of the file and the number of free pages."""
    connection = sqlite3.connect(path)
    try:
        names = ("page_count", "freelist_count")
        count, free = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        return count, free
    finally:
        connection.close()


def sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def check_that_it_is_small(path: Path) -> None:
    """Check that the file has few free pages, no bytes after its pages, and no log."""
    count, free = pages(path)
    assert os.path.getsize(path) == count * schema.PAGE_SIZE
    assert free <= max(64, count // 16)
    log = Path(f"{path}-wal")
    assert not log.exists() or log.stat().st_size == 0


def make_old(path: Path) -> None:
    """Convert a closed file to the form of the first versions, which can't return pages."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA auto_vacuum = NONE")
    connection.execute("VACUUM")
    connection.close()


# -- files that shrink ------------------------------------------------------------------------


def test_a_bulk_move_followed_by_maintenance_makes_the_file_smaller(
    open_small: OpenMemory, path: Path
) -> None:
    memory = open_small(stm={"memory_limit": None}, im={"memory_limit": None})
    fill(memory, "ann")
    memory.force_consolidation()
    before = os.path.getsize(path)
    hits = [(hit.id, hit.score) for hit in memory.search("ann", "memory 77 of many things")]
    count, free = pages(path)
    assert free > count / 2

    memory.maintain()

    check_that_it_is_small(path)
    assert os.path.getsize(path) < before / 2
    assert pages(path)[1] >= 4, "some free pages are kept for the next memories"
    assert memory.get_memory_statistics()["tiers"] == {"stm": 0, "im": 0, "ltm": MANY}
    for one in (memory, open_small()):
        assert contents(one, "ann") == ALL
        assert one.get("ann", "77").content == text(77)
        assert [(hit.id, hit.score) for hit in one.search("ann", "memory 77 of many things")] == hits
    assert sound(path)


def test_deleting_everything_followed_by_maintenance_makes_the_file_smaller(
    open_small: OpenMemory, path: Path
) -> None:
    memory = open_small()
    fill(memory, "ann")
    memory.add("bob", "stays", id="stays")
    memory.delete_all("ann")
    memory.maintain()
    check_that_it_is_small(path)
    assert os.path.getsize(path) < 1_000_000
    assert memory.get("bob", "stays").content == "stays"
    fill(memory, "ann")
    assert contents(memory, "ann") == ALL


def test_memories_between_free_pages_stay_unchanged(open_small: OpenMemory, file_with_gaps: Path) -> None:
    memory = open_small(path=file_with_gaps)
    assert contents(memory, "ann") == ALL
    memory.maintain()
    check_that_it_is_small(file_with_gaps)
    assert contents(memory, "ann") == ALL
    memory.drop_caches()
    assert contents(memory, "ann") == ALL
    assert contents(memory, "bob") == {}
    assert sound(file_with_gaps)


def test_the_maintenance_thread_makes_the_file_smaller(
    open_small: OpenMemory, file_with_gaps: Path
) -> None:
    memory = open_small(
        path=file_with_gaps,
        maintenance="background",
        maintenance_interval_seconds=0.01,
        stm={"memory_limit": None},
    )
    before = os.path.getsize(file_with_gaps)
    memory.add("ann", "wakes it", id="new")
    deadline = time.monotonic() + PATIENCE
    while os.path.getsize(file_with_gaps) > before * 0.6:
        assert time.monotonic() < deadline, "the maintenance thread does not make the file smaller"
        time.sleep(0.01)
    assert contents(memory, "ann") == ALL | {"new": "wakes it"}


def test_a_memory_in_ram_shrinks_too(open_small: OpenMemory) -> None:
    memory = open_small(path=":memory:")
    fill(memory, "ann")
    fill(memory, "bob")
    before = memory.get_memory_statistics()["bytes_on_disk"]
    memory.delete_all("bob")
    memory.maintain()
    assert memory.get_memory_statistics()["bytes_on_disk"] < before * 0.6
    assert contents(memory, "ann") == ALL


# -- files that keep their size ---------------------------------------------------------------


@pytest.fixture
def too_large_to_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance rewrites small files after a deletion, so that they have no free pages at all."""
    monkeypatch.setattr(_eraser, "_MAX_REWRITE_BYTES", 0)


@pytest.mark.usefixtures("too_large_to_rewrite")
def test_a_file_in_steady_use_keeps_its_size(open_small: OpenMemory, path: Path) -> None:
    """The next memories reuse the free pages. Up to one free page in eight, none is returned."""
    memory = open_small(stm={"memory_limit": None})
    fill(memory, "ann")
    memory.maintain()  # stores the dictionaries
    for round_number in range(5):
        ids = [f"{round_number} {n}" for n in range(MANY // 10)]
        memory.add_many({"agent_id": "ann", "content": text(0), "id": id} for id in ids)
        memory.delete_many("ann", ids)
        count, free = pages(path)
        memory.maintain()
        assert pages(path) == (count, free)
        assert free > 64


@pytest.mark.usefixtures("too_large_to_rewrite")
def test_a_file_of_the_first_versions_works_and_keeps_its_size(
    open_small: OpenMemory, file_with_gaps: Path
) -> None:
    make_old(file_with_gaps)
    with open_small(path=file_with_gaps) as memory:
        fill(memory, "bob")
        memory._transitions.fit_codecs()
        memory._transitions.settle()
        memory.delete_all("bob")
        memory._transitions.fit_codecs()
        memory._transitions.settle()
        memory._indexes.save(lambda: True)
        memory._store.erase_in_maintenance()
    before = file_with_gaps.read_bytes()
    with open_small(path=file_with_gaps, stm={"memory_limit": None}) as memory:
        memory.maintain()
    assert file_with_gaps.read_bytes() == before
    with open_small(path=file_with_gaps) as memory:
        assert contents(memory, "ann") == ALL
        memory.force_consolidation()
        memory.maintain()
        assert contents(memory, "ann") == ALL
    assert len(file_with_gaps.read_bytes()) == len(before)
    assert sound(file_with_gaps)


def test_a_file_of_the_first_versions_can_be_converted_as_the_guide_describes(
    open_small: OpenMemory, file_with_gaps: Path
) -> None:
    make_old(file_with_gaps)
    connection = sqlite3.connect(file_with_gaps, isolation_level=None)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("VACUUM")
    connection.close()
    memory = open_small(path=file_with_gaps)
    fill(memory, "bob")
    memory.delete_all("bob")
    memory.maintain()
    check_that_it_is_small(file_with_gaps)
    assert contents(memory, "ann") == ALL


def test_a_read_only_memory_does_not_shrink_the_file(open_small: OpenMemory, file_with_gaps: Path) -> None:
    before = file_with_gaps.read_bytes()
    with open_small(path=file_with_gaps, read_only=True, stm={"memory_limit": None}) as memory:
        memory.maintain()
        assert contents(memory, "ann") == ALL
    assert file_with_gaps.read_bytes() == before


# -- with other threads and processes ---------------------------------------------------------


def test_shrinking_works_in_small_steps_and_can_be_stopped_between_them(
    open_small: OpenMemory, file_with_gaps: Path
) -> None:
    with open_small(path=file_with_gaps) as memory:
        count, _ = pages(file_with_gaps)
        memory._transitions.give_back_space(lambda: False)
        assert count - 70 <= pages(file_with_gaps)[0] < count
    with open_small(path=file_with_gaps) as memory:
        memory.maintain()
        assert contents(memory, "ann") == ALL
    check_that_it_is_small(file_with_gaps)


def test_shrinking_stops_while_a_long_read_holds_the_log(
    open_small: OpenMemory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_shrinker, "_MAX_LOG_PAGES", 100)
    memory = open_small(stm={"memory_limit": None})
    fill(memory, "ann")
    fill(memory, "bob")
    memory.maintain()  # stores the dictionaries
    rows = memory._store.all_rows("bob")
    read = [next(rows).id]
    memory.delete_all("bob")
    memory._transitions.fit_codecs()  # without the text of bob
    memory._transitions.settle()
    logged = os.path.getsize(f"{path}-wal")
    assert logged > 100 * schema.PAGE_SIZE
    for _ in range(3):
        memory.maintain()
    assert os.path.getsize(f"{path}-wal") == logged
    read += [row.id for row in rows]
    assert sorted(read) == sorted(ALL)
    memory.maintain()
    check_that_it_is_small(path)
    assert contents(memory, "ann") == ALL


def test_threads_read_and_write_while_the_file_shrinks(
    open_small: OpenMemory, file_with_gaps: Path
) -> None:
    memory = open_small(path=file_with_gaps, stm={"memory_limit": None})
    written: dict[str, str] = {}

    def shrink() -> None:
        for _ in range(3):
            memory.maintain()
            fill(memory, "bob")
            memory.delete_all("bob")

    def write() -> None:
        id = f"new {len(written)}"
        memory.add("cid", id, id=id)
        written[id] = id

    def read() -> None:
        for number in range(0, MANY, 50):
            assert memory.get("ann", str(number)).content == text(number)
        assert len(memory.recent("ann", 10 * MANY)) == MANY

    until_done(shrink, write, read)
    assert contents(memory, "ann") == ALL
    assert contents(memory, "cid") == written


def test_processes_read_write_and_open_while_the_file_shrinks(
    open_small: OpenMemory, start: Callable[..., subprocess.Popen[str]], file_with_gaps: Path
) -> None:
    script = """
from many_memories import ALL, contents, text
path, role = sys.argv[1:]
memory = open_memory(path, stm={"memory_limit": None})
print("ready", flush=True)
written = {}
while not os.path.exists(path + ".done"):
    if role == "writer":
        id = f"new {len(written)}"
        memory.add("cid", id, id=id)
        written[id] = id
        assert memory.update("ann", id[-1], importance=2.0)
    elif role == "reader":
        assert contents(memory, "ann") == ALL
        assert memory.search("ann", "memory 77")
    else:
        with open_memory(path, read_only=True) as other:
            assert other.get("ann", "77").content == text(77)
print(json.dumps(written))
memory.close()
"""
    processes = {role: start(script, file_with_gaps, role) for role in ("writer", "reader", "opener")}
    for process in processes.values():
        assert process.stdout.readline() == "ready\n", process.communicate()
    memory = open_small(path=file_with_gaps, stm={"memory_limit": None})
    for _ in range(3):
        memory.maintain()
        fill(memory, "bob")
        memory.delete_all("bob")
    Path(f"{file_with_gaps}.done").touch()
    outputs = {}
    for role, process in processes.items():
        outputs[role], stderr = process.communicate(timeout=PATIENCE)
        assert (process.returncode, stderr) == (0, ""), f"{role}: {stderr}"
    memory.maintain()
    check_that_it_is_small(file_with_gaps)
    assert contents(memory, "ann") == ALL
    assert contents(memory, "cid") == json.loads(outputs["writer"])
    assert sound(file_with_gaps)


def test_a_file_whose_length_changes_during_the_check_is_not_refused(
    file_with_gaps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may run a checkpoint between two reads of the check."""
    whole, has_log = file_with_gaps.read_bytes(), schema._has_log
    file_with_gaps.write_bytes(whole[: len(whole) // 2])

    def has_log_and_is_whole_now(path: Path) -> bool:
        path.write_bytes(whole)
        return has_log(path)

    monkeypatch.setattr(schema, "_has_log", has_log_and_is_whole_now)
    schema.check_file(file_with_gaps)


# -- kills ------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 7, 100, 400, 1_000, 2_000, 4_000])
def test_a_kill_while_pages_are_returned_loses_nothing(
    open_small: OpenMemory, file_with_gaps: Path, after: int
) -> None:
    """The process kills itself after a given number of steps of SQLite's virtual machine."""
    script = """
import signal
memory = open_memory(sys.argv[1], stm={"memory_limit": None})
connection = memory._store._connections.write(lambda connection: connection)
left = int(sys.argv[2])
def count():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
connection.set_progress_handler(count, 1)
memory.maintain()
"""
    process = start_python(script, file_with_gaps, after)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (-signal.SIGKILL, "")
    check_that_nothing_is_lost(open_small, file_with_gaps)


@pytest.mark.parametrize("share", [0.95, 0.8, 0.65])
def test_a_kill_while_the_file_is_truncated_loses_nothing(
    open_small: OpenMemory, start: Callable[..., subprocess.Popen[str]], file_with_gaps: Path, share: float
) -> None:
    script = """
from many_memories import fill
memory = open_memory(sys.argv[1], stm={"memory_limit": None})
print("ready", flush=True)
while True:
    memory.maintain()
    fill(memory, "bob")
    memory.delete_all("bob")
"""
    before = os.path.getsize(file_with_gaps)
    process = start(script, file_with_gaps)
    assert process.stdout.readline() == "ready\n", process.communicate()
    deadline = time.monotonic() + PATIENCE
    while os.path.getsize(file_with_gaps) > before * share:
        assert time.monotonic() < deadline, "the file does not get shorter"
    process.kill()
    process.communicate(timeout=PATIENCE)
    check_that_nothing_is_lost(open_small, file_with_gaps)


def check_that_nothing_is_lost(open_small: OpenMemory, path: Path) -> None:
    with open_small(path=path, stm={"memory_limit": None}) as memory:
        assert contents(memory, "ann") == ALL
        assert contents(memory, "bob") in ({}, ALL)
        memory.delete_all("bob")
        memory.maintain()
        assert contents(memory, "ann") == ALL
    check_that_it_is_small(path)
    assert sound(path)


def test_a_new_file_supports_incremental_vacuum(tmp_path: Path) -> None:
    run_python("open_memory(sys.argv[1]).close()", tmp_path / "memory.db")
    connection = sqlite3.connect(tmp_path / "memory.db")
    values = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("auto_vacuum", "page_size", "journal_mode")
    ]
    connection.close()
    assert values == [2, schema.PAGE_SIZE, "wal"]
