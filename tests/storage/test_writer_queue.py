"""Processes that write one file wait in order, and nobody waits for a process that is gone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance import everything, row
from subprocesses import PATIENCE, start_python

from memory.storage import SQLiteStore
from memory.storage._writer_queue import HAS_QUEUE, WriterQueue

pytestmark = pytest.mark.skipif(not HAS_QUEUE, reason="writers queue on 64-bit Linux only")

_HOLDER = """
from memory.storage._writer_queue import WriterQueue
queue = WriterQueue(sys.argv[1])
queue.enter()
print("has the turn", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    SQLiteStore(tmp_path / "m.db").close()
    return tmp_path / "m.db"


@pytest.fixture
def new_queue(path: Path) -> Iterator[Callable[[], WriterQueue]]:
    opened: list[WriterQueue] = []

    def new() -> WriterQueue:
        opened.append(WriterQueue(f"{path}-pulse"))
        return opened[-1]

    yield new
    for queue in opened:
        queue.close()


class Turn(threading.Thread):
    """Takes a turn in a thread, notes its name when it has it, and keeps it until `end`."""

    def __init__(self, queue: WriterQueue, name: str, turns: list[str]) -> None:
        super().__init__(daemon=True)
        self.queue, self.label, self.turns = queue, name, turns
        self._end = threading.Event()
        self.start()

    def run(self) -> None:
        self.queue.enter()
        self.turns.append(self.label)
        self._end.wait(PATIENCE)
        self.queue.leave()

    def end(self) -> None:
        self._end.set()
        self.join(PATIENCE)


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(PATIENCE * 1000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("the condition was never true")


def test_who_has_just_written_comes_after_those_who_wait(new_queue: Callable[[], WriterQueue]) -> None:
    # After a second, a writer goes on without its turn: on a very slow machine, try again.
    for _ in range(5):
        first, second, turns = new_queue(), new_queue(), list[str]()
        writing = Turn(first, "first", turns)
        wait_until(lambda turns=turns: turns == ["first"])
        waiting = Turn(second, "second", turns)
        wait_until(lambda second=second: has_place(second))
        writing.end()
        again = Turn(first, "first again", turns)
        wait_until(lambda turns=turns: len(turns) > 1)
        in_order = turns[:2] == ["first", "second"]
        waiting.end()
        wait_until(lambda turns=turns: len(turns) == 3)
        again.end()
        if in_order:
            return
    raise AssertionError("the process that had just written was first again")


def has_place(queue: WriterQueue) -> bool:
    """Return whether a queue has the first place and waits for its turn."""
    probe = WriterQueue(queue._path)
    probe._open(str(queue._path))
    from memory.storage import _writer_queue

    try:
        return not probe._take(_writer_queue._TAKE_PLACE)
    finally:
        probe.close()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_writer_does_not_wait_for_ever_for_a_process_that_has_the_turn(
    path: Path, ending: signal.Signals
) -> None:
    holder = start_python(_HOLDER, f"{path}-pulse")
    assert holder.stdout.readline() == "has the turn\n"
    holder.send_signal(ending)
    store = SQLiteStore(path, busy_timeout=PATIENCE)
    store._connections.queue.enter()  # as if it had met another writer
    store._connections.queue.leave()
    assert store.add([row("new")]) == [1]
    store.close()
    holder.kill()
    holder.communicate(timeout=PATIENCE)


def test_a_forked_child_has_a_turn_of_its_own(new_queue: Callable[[], WriterQueue]) -> None:
    queue, second = new_queue(), new_queue()
    queue.enter()
    child = os.fork()
    if child == 0:
        try:
            queue.leave()  # must not end the turn of the parent
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    second._open(str(second._path))
    from memory.storage import _writer_queue

    assert not second._take(_writer_queue._TAKE_TURN)
    queue.leave()
    assert second._take(_writer_queue._TAKE_TURN)


def test_writers_go_on_if_somebody_deletes_the_file_of_the_versions(path: Path) -> None:
    store = SQLiteStore(path)
    store._connections.queue.enter()
    store._connections.queue.leave()
    os.unlink(f"{path}-pulse")
    store._connections.queue.close()
    assert store.add([row("new")]) == [1]
    assert len(everything(store)) == 1
    store.close()
