"""Deleted content leaves all files: with the next maintenance, or before a call with `erase=True` returns.

`make erasure` deletes 1,000 memories in every way and tier.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_embedder import small_embedder
from subprocesses import PATIENCE, start_python

from memory import AgentMemorySystem
from memory.errors import EraseIncomplete, ExportIncomplete, InvalidMemory, StoreCorrupt
from memory.storage import _eraser

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import erasure

OpenMemory = Callable[..., AgentMemorySystem]
SECRET = "xylophonequartz"


@pytest.fixture
def open_small(open_memory: OpenMemory) -> OpenMemory:
    return lambda **settings: open_memory(**{"embedder": small_embedder(), **settings})


def files_with(word: str, folder: Path) -> list[str]:
    """Return the names of the files that hold a word."""
    return sorted(file.name for file in folder.iterdir() if word.encode() in file.read_bytes())


def fill(memory: AgentMemorySystem, count: int = 300, **more: Any) -> None:
    """Store enough memories for a dictionary."""
    memory.add_many(
        {"agent_id": "ann", "content": f"the weather of day {n} was mild and quiet", "id": f"n{n}", **more}
        for n in range(count)
    )


@pytest.mark.parametrize("erase", [False, True], ids=["one maintenance", "erase=True"])
def test_no_byte_of_deleted_memories_is_left_in_any_tier_and_way(tmp_path: Path, erase: bool) -> None:
    experiment = erasure.Erasure(tmp_path, deletions=120, seed=3, erase=erase)
    assert experiment.run() == {}
    assert len(experiment.victims) >= 120


CALLS: dict[str, Callable[[AgentMemorySystem], object]] = {
    "delete": lambda memory: memory.delete("ann", "1", erase=True),
    "delete_many": lambda memory: memory.delete_many("ann", ["1", "unknown"], erase=True),
    "delete_all": lambda memory: memory.delete_all("ann", erase=True),
    "update": lambda memory: memory.update("ann", "1", content="harmless", erase=True),
    "delete of one agent": lambda memory: memory.agent("ann").delete("1", erase=True),
    "delete_many of one agent": lambda memory: memory.agent("ann").delete_many(["1"], erase=True),
    "delete_all of one agent": lambda memory: memory.agent("ann").delete_all(erase=True),
    "update of one agent": lambda memory: memory.agent("ann").update("1", content="harmless", erase=True),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("tier", ["stm", "im", "ltm"])
def test_erase_removes_the_content_before_the_call_returns(
    open_small: OpenMemory, tmp_path: Path, call: Callable[[AgentMemorySystem], object], tier: str
) -> None:
    memory = open_small()
    memory.add("bob", "stays", id="stays")
    memory.add("ann", f"the word is {SECRET}", id="1", tier=tier)
    assert files_with(SECRET, tmp_path)
    assert call(memory)
    assert files_with(SECRET, tmp_path) == []
    assert memory.get("bob", "stays").content == "stays"


def test_erase_replaces_a_dictionary_that_was_trained_on_the_memory(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    memory = open_small()
    fill(memory)
    # A dictionary keeps words of 4 or more samples, if it has room for them.
    words = [
        "harbour",
        "lantern",
        "meadow",
        "orchard",
        "pebble",
        "river",
        "saddle",
        "timber",
        "valley",
        "elm",
    ]
    texts = [f"{words[n % 10]} {n * 7919} {SECRET} {words[n // 7 % 10]} {n * 104729}" for n in range(200)]
    secrets = memory.add_many({"agent_id": "ann", "content": text} for text in texts)
    memory.force_consolidation()
    memory.maintain()
    dictionaries = [codec for codec in memory._store.codecs() if "dictionary" in codec.purpose]
    assert any(SECRET.encode() in codec.data for codec in dictionaries)
    assert memory.delete_many("ann", secrets, erase=True) == 200
    assert files_with(SECRET, tmp_path) == []
    numbers = {codec.number for codec in memory._store.codecs()}
    assert numbers.isdisjoint(codec.number for codec in dictionaries)
    assert memory.get("ann", "n7").content == "the weather of day 7 was mild and quiet"
    assert memory.check().ok


def test_one_deleted_sample_is_enough_to_replace_a_dictionary(open_small: OpenMemory) -> None:
    memory = open_small()
    fill(memory)
    memory.force_consolidation()
    before = {codec.number for codec in memory._store.codecs()}
    memory.delete("ann", "n3")
    memory.maintain()
    assert {codec.number for codec in memory._store.codecs()} == before
    memory.delete("ann", "n4", erase=True)
    assert before.isdisjoint(codec.number for codec in memory._store.codecs() if codec.deleted)
    assert [codec.deleted for codec in memory._store.codecs()] == [0] * len(memory._store.codecs())
    assert len(memory.recent("ann", 1000)) == 298


def test_erase_without_a_deletion_erases_what_was_deleted_before(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    memory = open_small()
    memory.add("ann", SECRET, id="1")
    memory.delete("ann", "1")
    assert files_with(SECRET, tmp_path)
    assert memory.delete("ann", "1", erase=True) is False
    assert files_with(SECRET, tmp_path) == []


def test_a_memory_in_ram_can_be_erased(open_small: OpenMemory) -> None:
    memory = open_small(path=":memory:")
    memory.add("ann", "one", id="1")
    assert memory.delete("ann", "1", erase=True)
    memory.maintain()


@pytest.mark.parametrize("erase", [1, "yes", None])
def test_erase_is_true_or_false(open_small: OpenMemory, erase: Any) -> None:
    memory = open_small()
    memory.add("ann", "one", id="1")
    for call in (
        lambda: memory.delete("ann", "1", erase=erase),
        lambda: memory.delete_many("ann", ["1"], erase=erase),
        lambda: memory.delete_all("ann", erase=erase),
        lambda: memory.update("ann", "1", content="two", erase=erase),
    ):
        with pytest.raises(InvalidMemory, match="True or False"):
            call()
    assert memory.get("ann", "1").content == "one"


# -- readers ----------------------------------------------------------------------------------


def test_erase_raises_while_a_reader_needs_the_log_and_maintenance_does_it_later(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    memory = open_small(busy_timeout_seconds=0.2)
    memory.add("bob", "stays")
    memory.add("ann", SECRET, id="1")
    reading = memory._store.all_rows()
    next(reading)
    with pytest.raises(EraseIncomplete, match=r"are deleted, but the log .* reader .* maintenance"):
        memory.delete("ann", "1", erase=True)
    assert memory.get("ann", "1") is None
    memory.maintain()
    assert files_with(SECRET, tmp_path), "the reader still needs the log"
    list(reading)
    memory.maintain()
    assert files_with(SECRET, tmp_path) == []


def test_erase_raises_while_a_reader_of_another_process_needs_the_log(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    memory = open_small(busy_timeout_seconds=0.2)
    memory.add("bob", "stays")
    memory.add("ann", SECRET, id="1")
    script = """
memory = open_memory(sys.argv[1])
rows = memory._store.all_rows()
next(rows)
print("reading", flush=True)
sys.stdin.readline()
rows.close()
print("done", flush=True)
sys.stdin.readline()
"""
    with start_python(script, tmp_path / "memory.db") as other:
        assert other.stdout.readline() == "reading\n"
        with pytest.raises(EraseIncomplete):
            memory.delete("ann", "1", erase=True)
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "done\n"
        assert memory.delete("ann", "1", erase=True) is False  # the other process still has the file open
        assert files_with(SECRET, tmp_path) == []
        other.communicate("\n", timeout=PATIENCE)


def test_a_log_that_a_reader_has_read_to_its_end_is_not_taken_for_truncated(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    """All pages of such a log can be copied into the file, but the log stays."""
    memory = open_small()
    memory.add("ann", SECRET, id="1")
    memory.add("bob", "stays")
    memory.delete("ann", "1")
    reading = memory._store.all_rows()
    next(reading)
    assert memory._store._connections.checkpoint() == (0, False)
    memory.maintain()
    assert files_with(SECRET, tmp_path) == ["memory.db-wal"]
    list(reading)
    memory.maintain()
    assert files_with(SECRET, tmp_path) == []


def test_erase_waits_for_a_short_reader(open_small: OpenMemory, tmp_path: Path) -> None:
    memory = open_small()
    memory.add("bob", "stays")
    memory.add("ann", SECRET, id="1")
    script = """
import time
memory = open_memory(sys.argv[1])
rows = memory._store.all_rows()
next(rows)
print("reading", flush=True)
time.sleep(0.5)
rows.close()
"""
    with start_python(script, tmp_path / "memory.db") as other:
        assert other.stdout.readline() == "reading\n"
        assert memory.delete("ann", "1", erase=True)
        assert files_with(SECRET, tmp_path) == []
        other.communicate(timeout=PATIENCE)


# -- maintenance ------------------------------------------------------------------------------


def test_maintenance_of_another_system_erases_too(open_small: OpenMemory, tmp_path: Path) -> None:
    one, other = open_small(), open_small()
    one.add("ann", SECRET, id="1")
    one.add("ann", f"{SECRET} again", id="2")
    one.update("ann", "2", content="harmless")
    one.delete("ann", "1")
    one.close()
    assert files_with(SECRET, tmp_path)
    other.maintain()
    assert files_with(SECRET, tmp_path) == []


def test_maintenance_after_a_crash_erases_too(open_small: OpenMemory, tmp_path: Path) -> None:
    script = """
import signal
memory = open_memory(sys.argv[1])
memory.add("ann", sys.argv[2], id="1")
memory.delete("ann", "1")
os.kill(os.getpid(), signal.SIGKILL)
"""
    start_python(script, tmp_path / "memory.db", SECRET).communicate(timeout=PATIENCE)
    memory = open_small()
    assert files_with(SECRET, tmp_path)
    memory.maintain()
    assert files_with(SECRET, tmp_path) == []


def test_the_maintenance_thread_erases(open_small: OpenMemory, tmp_path: Path) -> None:
    memory = open_small(maintenance="background", maintenance_interval_seconds=0.01)
    memory.add("bob", "stays")
    memory.add("ann", SECRET, id="1")
    memory.update("ann", "1", content="harmless")
    deadline = time.monotonic() + PATIENCE
    while files_with(SECRET, tmp_path):
        assert time.monotonic() < deadline, "the thread does not erase"
        time.sleep(0.01)


_HOLD = {
    # The byte that SQLite locks while it copies the log: https://sqlite.org/walformat.html#wal_locks.
    "a process that copies the log": """
        import fcntl
        descriptor = os.open(sys.argv[1] + "-shm", os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, 121)
    """,
    "a process that writes": """
        import sqlite3
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
    """,
}


@pytest.mark.skipif(sys.platform != "linux", reason="locks a byte of SQLite's file as Linux does")
@pytest.mark.parametrize("holds", _HOLD.values(), ids=_HOLD)
def test_one_maintenance_erases_beside_others_that_write_or_copy_the_log(
    open_small: OpenMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holds: str
) -> None:
    memory = open_small()
    path = tmp_path / "memory.db"
    memory.add("bob", "stays")
    memory.add("ann", SECRET, id="1")
    memory.delete("ann", "1")
    assert files_with(SECRET, tmp_path) == [f"{path.name}-wal"]
    other = start_python(f"{textwrap.dedent(holds)}\nprint('ready', flush=True)\nsys.stdin.read()", path)
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"

    def end_other(seconds: float) -> None:
        other.kill()
        other.communicate()

    monkeypatch.setattr(time, "sleep", end_other)
    memory._store.erase_in_maintenance()
    assert other.returncode is not None, "it did not wait for the other process"
    assert files_with(SECRET, tmp_path) == []


def test_the_background_rewrites_seldom_and_a_call_of_maintain_at_once(
    open_small: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_small()
    memory.add_many({"agent_id": "ann", "content": f"memory {n}", "id": str(n)} for n in range(50))
    rewrites = []
    rewrite = memory._store._connections.rewrite
    monkeypatch.setattr(
        memory._store._connections, "rewrite", lambda: rewrites.append(len(rewrites)) or rewrite()
    )
    for n in range(10):
        memory.delete("ann", str(n))
        memory._store.erase_in_maintenance(in_background=True)
    assert len(rewrites) == 1
    memory.maintain()
    memory.maintain()
    assert len(rewrites) == 2, "without a deletion there is nothing to erase"


def test_a_large_file_is_rewritten_only_by_erase(
    open_small: OpenMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_eraser, "_MAX_REWRITE_BYTES", 0)
    memory = open_small()
    memory.add_many(
        {"agent_id": "ann", "content": f"memory {n} {SECRET}", "id": str(n)} for n in range(400)
    )
    memory.delete_many("ann", [str(n) for n in range(1, 400)])
    memory.update("ann", "0", content="harmless")
    free = "PRAGMA freelist_count"
    memory._store.erase_in_maintenance()
    assert os.path.getsize(tmp_path / "memory.db-wal") == 0
    assert memory._store._connections.fetch_one(free)[0] > 0
    memory.delete("ann", "unknown", erase=True)
    assert memory._store._connections.fetch_one(free)[0] == 0
    assert files_with(SECRET, tmp_path) == []


def test_an_agents_name_is_gone_when_its_last_memory_is_evicted(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    memory = open_small(ltm={"memory_limit": 0})
    memory.add(SECRET, "the only memory", tier="ltm")
    assert memory.maintain().evicted == 1
    assert memory.agents() == []
    assert files_with(SECRET, tmp_path) == []
    assert memory.get_memory_statistics(SECRET)["evicted"] == 1
    memory.close()
    assert open_small().get_memory_statistics(SECRET)["evicted"] == 1


# -- damaged files ----------------------------------------------------------------------------


def test_a_damaged_memory_keeps_its_dictionary_and_erase_says_so(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    with open_small() as memory:
        fill(memory)
        memory.force_consolidation()
    connection = sqlite3.connect(tmp_path / "memory.db")
    connection.execute("UPDATE memories SET vector = zeroblob(length(vector)) WHERE id = 'n9'")
    connection.commit()
    connection.close()
    memory = open_small()
    with pytest.raises(EraseIncomplete, match=r"dictionary \d+ may hold words.*check"):
        memory.delete("ann", "n1", erase=True)
    for _ in range(2):
        memory.maintain()
    assert memory.get("ann", "n9").content == "the weather of day 9 was mild and quiet"
    assert memory.delete("ann", "n9", erase=True)
    assert memory.check().ok


def test_a_file_with_a_damaged_structure_is_not_rewritten(open_small: OpenMemory, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with open_small() as memory:
        fill(memory, 50)
        memory.add("ann", SECRET, id="secret")
    connection = sqlite3.connect(path)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'by_step'").fetchone()
    connection.close()
    with path.open("r+b") as file:  # an index that no call of this test reads
        file.seek((root - 1) * 4096 + 3)
        file.write(b"\x00\x05")  # the number of its cells
    memory = open_small()
    with pytest.raises(EraseIncomplete, match=r"are deleted, but the file could not be rewritten"):
        memory.delete("ann", "secret", erase=True)
    with pytest.raises(StoreCorrupt, match="memories may be hidden"):
        memory.maintain()
    with pytest.raises(ExportIncomplete, match="has 50 memories"):
        memory.export_jsonl(tmp_path / "export.jsonl")
