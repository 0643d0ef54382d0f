"""A KeyboardInterrupt at any moment leaves nothing locked, hung or lost. `make interrupts` does more."""

from __future__ import annotations

import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from subprocesses import run_python

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import interrupts

# Python drops an interrupt that comes while it frees an object, and reports it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def own_timer() -> Iterator[None]:
    """Give back the timer's signal."""
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_timed_interrupts_leak_and_lose_nothing(own_timer: None, tmp_path: Path) -> None:
    experiment = interrupts.TimedInterrupts(tmp_path / "memory.db", seed=7)
    experiment.run(600)
    assert experiment.found == {}


def test_a_program_that_gets_a_sigint_ends_and_loses_nothing(tmp_path: Path) -> None:
    scripts = Path(interrupts.__file__).parent
    script = """
sys.path.insert(0, sys.argv[1])
import interrupts
from pathlib import Path
print(dict(interrupts.interrupt_programs(Path(sys.argv[2]), 15, 3)))
"""
    assert run_python(script, scripts, tmp_path / "memory.db").strip() == "{}"


@pytest.mark.parametrize("where", ["add", "search"])
def test_a_signal_handler_may_close_the_memory_in_the_middle_of_a_call(tmp_path: Path, where: str) -> None:
    script = """
import signal, threading
from memory.errors import StoreClosed
memory = open_memory(sys.argv[1], maintenance="background", maintenance_interval_seconds=0.001,
                     stm={"memory_limit": 3})
stored = [memory.add("ann", f"note {n}") for n in range(20)]
signal.signal(signal.SIGALRM, lambda *_: memory.close())
act = (lambda: stored.append(memory.add("ann", "more"))) if sys.argv[2] == "add" else (
    lambda: memory.search("ann", "note"))
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    while True:
        act()
except StoreClosed:
    pass
with open_memory(sys.argv[1]) as again:
    assert len(again.recent("ann", 10_000_000)) >= len(stored)
print("closed")
"""
    for number in range(3):
        assert run_python(script, tmp_path / f"{number}.db", where).strip() == "closed"


def test_an_interrupted_read_whose_traceback_is_kept_makes_no_later_read_stale(tmp_path: Path) -> None:
    # An interactive Python keeps the last traceback, and with it the cursors in its frames.
    with interrupts._open(tmp_path / "memory.db", maintenance="manual") as memory:
        memory.add("ann", "one", id="1")
        connections = memory._store._connections  # type: ignore[attr-defined]

        def work(connection: sqlite3.Connection) -> None:
            cursor = connection.execute("SELECT id FROM memories")
            raise KeyboardInterrupt(cursor)

        with pytest.raises(KeyboardInterrupt) as kept:
            connections.read(work)
        memory.add("ann", "two", id="2")
        assert sum(memory._store.counts("ann").values()) == 2
        assert connections.checkpoint().is_truncated is False, "the kept cursor still needs the log"
        assert kept.value.args


def test_locks_are_free_for_other_threads_after_an_interrupt(own_timer: None, tmp_path: Path) -> None:
    experiment = interrupts.TimedInterrupts(tmp_path / "memory.db", seed=8)
    while experiment.interrupts < 100:
        experiment.step()
    thread = threading.Thread(
        target=lambda: experiment.memory.add("ann", "from another thread", id="other")
    )
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    entry = experiment.memory.get("ann", "other")
    assert entry is not None
    experiment.memory.close()
