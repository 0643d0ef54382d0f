"""Threads that wait to add a row share one commit, and each gets its own result."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conformance import everything, row
from subprocesses import PATIENCE
from tail_store import TailStore

from memory.storage import Row, SQLiteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TailStore]:
    opened = TailStore(tmp_path / "m.db")
    for agent in ("ann", "bob"):
        opened.add([row("first", agent)])
    yield opened
    opened.close()


class Writers:
    """Threads that have all begun to add a row while this thread holds the write lock."""

    def __init__(self, store: TailStore, rows: Sequence[Row]) -> None:
        self.results: dict[str, Any] = {}
        self._store = store
        self._threads = [threading.Thread(target=self._add, args=(one,)) for one in rows]
        self._count = len(rows)

    def _add(self, one: Row) -> None:
        try:
            (self.results[one.id],) = self._store._add_as_given([one])
        except BaseException as problem:
            self.results[one.id] = problem

    def run(self) -> list[str]:
        """Let all threads wait, then let them go on; return the statements that write."""
        tails = self._store._add_as_given.__self__._tails
        statements: list[str] = []
        with self._store._connections.lock:
            for thread in self._threads:
                thread.start()
            while len(tails._waiting) < self._count:
                threading.Event().wait(0.001)
            writer = self._store._connections._writing_connection()
            writer.set_trace_callback(statements.append)
        for thread in self._threads:
            thread.join(PATIENCE)
        writer.set_trace_callback(None)
        return [one for one in statements if one.startswith(("INSERT INTO memories", "BEGIN"))]


def fresh(id: str, agent: str = "ann", **fields: Any) -> Row:
    return row(id, agent, has_new_id=True, **fields)


def test_rows_of_waiting_threads_are_added_by_one_statement(store: TailStore) -> None:
    agents = ["ann", "bob", "ann", "ann", "bob", "ann"]
    writers = Writers(store, [fresh(f"n{number}", agent) for number, agent in enumerate(agents)])
    assert len(writers.run()) == 1
    stored = {one.id: one.seq for one in everything(store) if one.id != "first"}
    assert writers.results == stored
    assert sorted(one.seq for one in everything(store, "ann")) == [1, 2, 3, 4, 5]
    assert store.check(lambda _: None) == (8, [])


def test_the_error_of_one_row_is_not_the_error_of_another(store: TailStore) -> None:
    rows = [fresh("a"), fresh("b", digest=2**63), fresh("c")]
    writers = Writers(store, rows)
    writers.run()
    assert isinstance(writers.results.pop("b"), Exception)
    assert sorted(writers.results.values()) == [2, 3]
    assert sorted(one.id for one in everything(store, "ann")) == ["a", "c", "first"]


def test_if_the_tail_was_closed_meanwhile_each_row_is_added_all_the_same(
    store: TailStore, tmp_path: Path
) -> None:
    other = SQLiteStore(tmp_path / "m.db")
    other.delete("ann", ["first"])
    writers = Writers(store, [fresh(f"n{number}") for number in range(4)])
    writers.run()
    assert sorted(writers.results.values()) == [2, 3, 4, 5]
    assert sorted(one.seq for one in everything(other, "ann")) == [2, 3, 4, 5]
    other.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_of_the_thread_that_commits_costs_and_doubles_no_row_of_others(
    store: TailStore, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    write_alone = store._connections.write_alone
    interrupts = iter([True])

    def interrupted(statement: str, values: Sequence[Any]) -> int | None:
        is_first = next(interrupts, False)
        if is_first and when == "before":
            raise KeyboardInterrupt
        changed = write_alone(statement, values)
        if is_first:
            raise KeyboardInterrupt
        return changed

    monkeypatch.setattr(store._connections, "write_alone", interrupted)
    writers = Writers(store, [fresh(f"n{number}") for number in range(5)])
    writers.run()
    failed = [id_ for id_, result in writers.results.items() if isinstance(result, BaseException)]
    assert len(failed) == 1
    assert isinstance(writers.results[failed[0]], KeyboardInterrupt)
    stored = {one.id: one.seq for one in everything(store, "ann") if one.id != "first"}
    assert {id_: seq for id_, seq in writers.results.items() if id_ not in failed} == {
        id_: seq for id_, seq in stored.items() if id_ not in failed
    }
    assert (failed[0] in stored) == (when == "after")
    assert store.check(lambda _: None)[1] == []
