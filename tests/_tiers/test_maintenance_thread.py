"""The maintenance thread keeps the rules of the tiers in the background, also after failures."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from filled_tiers import fill, ids_in, tiers_of
from small_embedder import small_embedder

from memory import AgentMemorySystem, ManualClock, MemoryConfig
from memory.entry import Tier
from memory.errors import StoreBusy

Open = Callable[..., AgentMemorySystem]
DEADLINE = 30.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {DEADLINE} s"
        time.sleep(0.005)


def maintenance_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "agentmemory-maintenance"}


def test_the_maintenance_thread_applies_limits(open_memory: Open) -> None:
    memory = open_memory(
        embedder=small_embedder(),
        maintenance="background",
        stm={"memory_limit": 5},
        im={"memory_limit": 10},
        ltm={"memory_limit": 15},  # below 16, so that the background allows none above it
        transition_batch=4,
    )
    for number in range(50):
        memory.add("ann", f"n {number}")
    fill(memory, 12, "bob")
    wait_until(lambda: tiers_of(memory, "ann") == (5, 10, 15), "keeping ann's limits")
    wait_until(lambda: tiers_of(memory, "bob") == (5, 7, 0), "keeping bob's limits")
    assert memory.get_memory_statistics("ann")["evicted"] == 20
    assert len(memory.search("ann", "n", 100)) == 30


def test_the_maintenance_thread_applies_limits_to_a_batch_that_is_stored_in_im(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(), maintenance="background", im={"memory_limit": 100})
    fill(memory, 10, tier="im")
    wait_until(lambda: bool(memory._transitions._room), "the first check")
    fill(memory, 500, tier="im")
    wait_until(lambda: tiers_of(memory) == (0, 100, 410), "keeping the limit of im")


def test_the_maintenance_thread_applies_limits_to_a_batch_that_is_stored_in_ltm(open_memory: Open) -> None:
    limits = {"stm": {"memory_limit": 60}, "ltm": {"memory_limit": 200}}
    memory = open_memory(embedder=small_embedder(), maintenance="background", **limits)
    fill(memory, 100, tier="ltm")
    wait_until(lambda: bool(memory._transitions._room), "the first check")
    fill(memory, 500, tier="ltm")
    wait_until(lambda: tiers_of(memory) == (0, 0, 200), "keeping the limit of ltm")


@pytest.mark.parametrize("way", ["force", "maintain"])
def test_the_background_counts_im_again_after_memories_were_moved_on_request(
    open_memory: Open, way: str
) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 300}, im={"memory_limit": 320})
    background = partial(memory._transitions.by_capacity, ["ann"], in_background=True)
    background()  # there is much room in im
    if way == "force":
        fill(memory, 400)
        memory.force_transition_to_im(100, "ann")
    else:
        fill(memory, 630)
        memory.maintain()
        assert tiers_of(memory) == (300, 320, 10)
        fill(memory, 24)
    background()
    assert tiers_of(memory)[1] <= 320 + 320 // 16


def test_the_maintenance_thread_applies_ttls(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(
        embedder=small_embedder(),
        maintenance="background",
        maintenance_interval_seconds=0.01,
        stm={"ttl_seconds": 100.0},
        im={"ttl_seconds": 200.0},
    )
    ids = fill(memory, 30)
    clock.advance(101)
    wait_until(lambda: tiers_of(memory) == (0, 30, 0), "moving to im")
    clock.advance(100)
    wait_until(lambda: tiers_of(memory) == (0, 0, 30), "moving to ltm")
    assert ids_in(memory, "ann", "ltm") == set(ids)


@pytest.mark.parametrize(
    "step",
    ["stored_before", "counts", "importance_inputs", "rows", "move", "evict", "shrink"],
)
def test_limits_are_kept_soon_after_a_step_failed(
    open_memory: Open, step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = open_memory(
        embedder=small_embedder(),
        maintenance="background",
        maintenance_interval_seconds=1000,
        stm={"memory_limit": 5},
        im={"memory_limit": 10},
        ltm={"memory_limit": 15},
    )
    fill(memory, 50)
    wait_until(lambda: tiers_of(memory) == (5, 10, 15), "keeping the limits")
    real, failures = getattr(memory._store, step), 0

    def fail_once(*args: Any, **kwargs: Any) -> Any:
        nonlocal failures
        if threading.current_thread() in maintenance_threads() and not failures:
            failures += 1
            raise StoreBusy("another process writes")
        return real(*args, **kwargs)

    monkeypatch.setattr(memory._store, step, fail_once)
    fill(memory, 10)
    wait_until(lambda: failures == 1, step)
    wait_until(lambda: tiers_of(memory) == (5, 10, 15), "keeping the limits after a failure")
    assert "maintenance" in caplog.text


def test_reads_that_are_not_saved_yet_count(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 3})
    ids = fill(memory, 6)
    for read in ids[:2]:
        for _ in range(20):
            memory.get("ann", read)
    assert memory._transitions.by_capacity(["ann"], in_background=True)[0].moved_to_im == 3
    assert set(ids[:2]) < ids_in(memory, "ann", "stm"), "those that were read stay"
    saved = [reads for *_, reads in memory._store.importance_inputs("ann", Tier.STM)]
    assert saved == [0, 0, 0]


def test_the_maintenance_thread_saves_read_counts_also_after_a_failure(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = open_memory(
        embedder=small_embedder(), maintenance="background", maintenance_interval_seconds=0.01
    )
    real = memory._store.add_read_counts
    failures = 0

    def fail_once(read_counts: Any) -> None:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise StoreBusy("another process writes")
        real(read_counts)

    monkeypatch.setattr(memory._store, "add_read_counts", fail_once)
    (read,) = fill(memory, 1)
    for _ in range(7):
        memory.get("ann", read)

    def saved() -> list[int]:
        return [reads for *_, reads in memory._store.importance_inputs("ann", Tier.STM)]

    wait_until(lambda: saved() == [7], "saving read counts")
    assert "read counts are saved later" in caplog.text


def test_a_memory_that_changes_while_it_moves_moves_soon(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_memory(
        embedder=small_embedder(),
        maintenance="background",
        maintenance_interval_seconds=1000,
        stm={"memory_limit": 5},
    )
    real, changed = memory._transitions._moves, list[str]()

    def change_first(rows: Any, target: Tier) -> Any:
        if not changed:
            changed.extend(row.id for row in rows)
            for row in rows:
                memory.update(row.agent, row.id, importance=2)
        return real(rows, target)

    monkeypatch.setattr(memory._transitions, "_moves", change_first)
    fill(memory, 20)
    wait_until(lambda: tiers_of(memory) == (5, 15, 0) and bool(changed), "keeping the limit")


def test_limits_that_an_earlier_process_left_are_kept(open_memory: Open) -> None:
    limits: dict[str, Any] = {"embedder": small_embedder(), "stm": {"memory_limit": 60}}
    with open_memory(**limits) as memory:
        fill(memory, 200)
        fill(memory, 200, "bob")
    memory = open_memory(maintenance="background", maintenance_interval_seconds=1000, **limits)
    memory.add("carol", "a write of somebody else")
    wait_until(lambda: tiers_of(memory, "ann") == (60, 140, 0), "keeping ann's limit")
    wait_until(lambda: tiers_of(memory, "bob") == (60, 140, 0), "keeping bob's limit")


def test_the_next_write_starts_the_thread_if_it_could_not_start(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = open_memory(embedder=small_embedder(), maintenance="background", stm={"memory_limit": 5})
    with monkeypatch.context() as patched:

        def fail(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", fail)
        fill(memory, 5)
        wait_until(lambda: "did not start" in caplog.text, "the failure")
    fill(memory, 15)
    wait_until(lambda: tiers_of(memory) == (5, 15, 0), "keeping the limit")


def test_closing_stops_the_maintenance_thread(open_memory: Open) -> None:
    others = maintenance_threads()
    memory = open_memory(embedder=small_embedder(), maintenance="background", stm={"memory_limit": 5})
    assert maintenance_threads() == others, "there is no thread before the first write"
    fill(memory, 500)
    wait_until(lambda: len(maintenance_threads() - others) == 1, "starting one thread")
    memory.close()
    wait_until(lambda: maintenance_threads() == others, "ending it")
    again = open_memory(embedder=small_embedder())
    assert again.get_memory_statistics("ann")["total"] == 500


def test_with_manual_maintenance_there_is_no_thread(open_memory: Open) -> None:
    others = maintenance_threads()
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 5})
    fill(memory, 50)
    assert maintenance_threads() == others
    assert tiers_of(memory) == (50, 0, 0)


class _CollectingClock(ManualClock):
    """Runs the garbage collector when the maintenance thread reads the time."""

    def now(self) -> float:
        if threading.current_thread().name == "agentmemory-maintenance":
            gc.collect()
        return super().now()


def test_an_unreferenced_memory_is_closed_even_if_its_own_maintenance_thread_collects_it(
    tmp_path: Path,
) -> None:
    others = maintenance_threads()
    config = MemoryConfig(maintenance_interval_seconds=0.01)
    config.ltm_config.db_path = str(tmp_path / "memory.db")
    memory = AgentMemorySystem(config, clock=_CollectingClock(), embedder=small_embedder())
    memory.itself = memory  # type: ignore[attr-defined]
    memory.add("ann", "x", id="one")
    held = weakref.ref(memory)
    gc.disable()
    try:
        del memory
        wait_until(lambda: held() is None, "collecting the memory")
        wait_until(lambda: maintenance_threads() == others, "the end of its thread")
    finally:
        gc.enable()
    config.maintenance = "manual"
    with AgentMemorySystem(config, embedder=small_embedder()) as again:
        assert again.exists("ann", "one")
