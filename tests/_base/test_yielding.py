"""Long work in the background lets others run; the same work for a caller goes straight on."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from memory._base.yielding import low_priority, yield_gil


def rests(work_seconds: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often work of so long sleeps."""
    slept = []
    monkeypatch.setattr("memory._base.yielding.time.sleep", slept.append)
    end = time.perf_counter() + work_seconds
    while time.perf_counter() < end:
        yield_gil()
    return len(slept)


def test_only_who_says_so_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rests(0.02, monkeypatch) == 0
    with low_priority():
        assert 1 <= rests(0.02, monkeypatch) <= 20
        with low_priority():
            assert rests(0.02, monkeypatch) >= 1
        assert rests(0.02, monkeypatch) >= 1
    assert rests(0.02, monkeypatch) == 0


def test_short_work_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("memory._base.yielding.time.sleep", slept.append)
    monkeypatch.setattr("memory._base.yielding.time.perf_counter", lambda: 5.0)
    with low_priority():
        for _ in range(100):
            yield_gil()
    assert slept == []


def test_each_thread_is_asked_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    with low_priority():
        other = threading.Thread(target=lambda: found.append(rests(0.02, monkeypatch)))
        other.start()
        other.join()
    assert found == [0]


def test_another_thread_gets_its_turn_while_one_works() -> None:
    """With an interval between forced turns in which the work would be over, only `yield_gil` gives one."""
    before = sys.getswitchinterval()
    turns = 0
    over = threading.Event()

    def wait_for_turns() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            time.sleep(0)

    sys.setswitchinterval(60)
    try:
        other = threading.Thread(target=wait_for_turns)
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
