"""Low-priority work yields to other threads; the same work done for a caller does not."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from memory._base.yielding import _GIL_INTERVAL_SECONDS, low_priority, yield_gil


def sleeps(work_seconds: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often work of this length sleeps."""
    slept = []
    monkeypatch.setattr("memory._base.yielding.time.sleep", slept.append)
    end = time.perf_counter() + work_seconds
    while time.perf_counter() < end:
        yield_gil()
    return len(slept)


def test_only_low_priority_work_yields(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sleeps(0.02, monkeypatch) == 0
    with low_priority():
        assert 1 <= sleeps(0.02, monkeypatch) <= 0.02 / _GIL_INTERVAL_SECONDS
        with low_priority():
            assert sleeps(0.02, monkeypatch) >= 1
        assert sleeps(0.02, monkeypatch) >= 1
    assert sleeps(0.02, monkeypatch) == 0


def test_short_work_does_not_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("memory._base.yielding.time.sleep", slept.append)
    monkeypatch.setattr("memory._base.yielding.time.perf_counter", lambda: 5.0)
    with low_priority():
        for _ in range(100):
            yield_gil()
    assert slept == []


def test_low_priority_is_set_for_one_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    with low_priority():
        other = threading.Thread(target=lambda: found.append(sleeps(0.02, monkeypatch)))
        other.start()
        other.join()
    assert found == [0]


def test_another_thread_runs_while_one_works() -> None:
    """The switch interval is longer than the work, so only `yield_gil` can switch threads."""
    before = sys.getswitchinterval()
    turns = 0
    over = threading.Event()

    def count_turns() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            time.sleep(0)

    sys.setswitchinterval(60)
    try:
        other = threading.Thread(target=count_turns)
        other.start()
        with low_priority():
            at_first = turns
            end = time.perf_counter() + 0.2
            while time.perf_counter() < end:
                yield_gil()
            assert turns > at_first
        over.set()
        other.join()
    finally:
        over.set()
        sys.setswitchinterval(before)
