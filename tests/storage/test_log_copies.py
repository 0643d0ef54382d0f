"""The log is copied into the file before a commit has to do it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem

Open = Callable[..., AgentMemorySystem]
DEADLINE = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def fill(memory: AgentMemorySystem, count: int) -> None:
    for number in range(count):
        memory.add("ann", f"memory {number} " + "x" * 500)


def held_without_log(path: Path) -> int:
    """Return how many memories a copy of the file alone holds; 0 before the first copy of the log."""
    alone = path.with_name("alone.db")
    shutil.copyfile(path, alone)
    with closing(sqlite3.connect(alone)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM memories").fetchone()[0])
        except sqlite3.Error:
            return 0


def test_copying_puts_every_memory_into_the_file_and_starts_the_log_again(
    open_memory: Open, path: Path
) -> None:
    with open_memory(path=path, embedder=small_embedder()) as memory:
        fill(memory, 300)
        assert held_without_log(path) < 300, "the memories are in the log only"
        memory._store.copy_log()
        assert held_without_log(path) == 300
        size = os.path.getsize(f"{path}-wal")
        fill(memory, 100)
        assert os.path.getsize(f"{path}-wal") == size, "the log was not started again"
    with open_memory(path=path, embedder=small_embedder()) as memory:
        assert memory.get_memory_statistics("ann")["total"] == 400


def test_copying_while_others_write_loses_nothing(open_memory: Open, path: Path) -> None:
    with open_memory(path=path, embedder=small_embedder()) as memory:
        writers = [threading.Thread(target=fill, args=(memory, 300)) for _ in range(3)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            memory._store.copy_log()
        memory._store.copy_log()
        assert held_without_log(path) == 900
        assert not memory.check().problems


def test_copying_waits_for_no_reader(open_memory: Open, path: Path) -> None:
    """A reader keeps the log from being started again, but not its pages from being copied."""
    with open_memory(path=path, embedder=small_embedder()) as memory:
        fill(memory, 100)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM memories").fetchone()
            fill(memory, 100)
            memory._store.copy_log()
            fill(memory, 10)
        memory._store.copy_log()
        assert held_without_log(path) == 210


def test_the_background_copies_the_log_after_some_writes(open_memory: Open, path: Path) -> None:
    with open_memory(path=path, embedder=small_embedder(), maintenance="background") as memory:
        for _ in range(4):
            fill(memory, 300)
        end = time.monotonic() + DEADLINE
        while held_without_log(path) < 1000:
            assert time.monotonic() < end, "the log was not copied"
            time.sleep(0.02)


def test_a_memory_in_ram_has_no_log(open_memory: Open) -> None:
    with open_memory(path=":memory:", embedder=small_embedder()) as memory:
        fill(memory, 3)
        memory._store.copy_log()
        assert memory.get_memory_statistics("ann")["total"] == 3
