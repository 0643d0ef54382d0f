"""Read your writes: the next call after `add`, from anywhere, sees the memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from statistics import median, quantiles

from memory.benchmarking.promises.model import Outcome, check, judge, not_promised, promise
from memory.benchmarking.promises.trial import ANN, Trial
from memory.benchmarking.targets.base import Item, Target

_LONGEST_LAG = (0.3, 2.0, 10.0)
"""Seconds after which a write counts as never seen, in quick, standard and full."""


def _lag_of(trial: Trial, lags: list[float | None], how: str, code: tuple[str, ...]) -> Outcome:
    seen = [lag for lag in lags if lag is not None]
    never = len(lags) - len(seen)
    late = sum(lag > 0 for lag in seen)
    figures: dict[str, float] = {"writes": len(lags), "never_seen": never, "seen_late": late}
    evidence = (
        f"{len(lags)} writes, {how}: {late} seen late, {never} never within {trial.size(*_LONGEST_LAG):g} s"
    )
    if len(seen) > 1:
        figures["lag_p50_ms"] = 1000 * median(seen)
        figures["lag_p99_ms"] = 1000 * quantiles(seen, n=100, method="inclusive")[-1]
        evidence += f"; lag p50 {figures['lag_p50_ms']:.1f} ms, p99 {figures['lag_p99_ms']:.1f} ms"
    return judge(never + late == 0, evidence, figures, code)


def _wait_until(trial: Trial, sees: Callable[[], bool]) -> float | None:
    """Return 0 if the first look sees it, else the seconds until one does; None for never."""
    start = time.monotonic()
    if sees():
        return 0.0
    while time.monotonic() - start < trial.size(*_LONGEST_LAG):
        if sees():
            return time.monotonic() - start
        time.sleep(0.001)
    return None


def _reads(target: Target, text: str, id_: str) -> bool:
    return target.get(ANN, [id_]) == [text]


def _finds(target: Target, text: str, id_: str) -> bool:
    return id_ in [hit.id for hit in target.search(ANN, text, 5)]


with promise("read your writes"):

    @check()
    def the_same_thread_reads_it(trial: Trial) -> Outcome:
        """`get` right after `add`, in the same thread."""
        if not trial.capabilities.get:
            return not_promised("the system can't read a memory by its id")
        target, lags = trial.open(), list[float | None]()
        for _ in range(trial.size(30, 100, 500)):
            text = trial.text()
            id_ = target.add_one(Item(ANN, text))
            lags.append(_wait_until(trial, partial(_reads, target, text, id_)))
        code = (
            'id_ = target.add_one(Item("ann", "a text"))',
            'target.get("ann", [id_])   # expected: ["a text"]',
        )
        return _lag_of(trial, lags, "read by id", code)

    @check(promised=lambda has: not has.delayed_search)
    def the_same_thread_finds_it(trial: Trial) -> Outcome:
        """`search` right after `add`, in the same thread."""
        if not trial.capabilities.search:
            return not_promised("the system can't search")
        target, lags = trial.open(), list[float | None]()
        for _ in range(trial.size(30, 100, 300)):
            text = trial.text()
            id_ = target.add_one(Item(ANN, text))
            lags.append(_wait_until(trial, partial(_finds, target, text, id_)))
        code = (
            'target.add_one(Item("ann", "a text"))',
            'target.search("ann", "a text", 5)   # expected: it is a hit',
        )
        return _lag_of(trial, lags, "searched", code)

    @check()
    def another_thread_reads_it(trial: Trial) -> Outcome:
        """`get` and `search` of another thread, after `add` has returned."""
        if not (trial.capabilities.threads and trial.capabilities.get):
            return not_promised("only one thread may use an open store")
        target, lags = trial.open(), list[float | None]()
        searches = trial.capabilities.search and not trial.capabilities.delayed_search

        def look(id_: str, text: str) -> None:
            lags.append(
                _wait_until(
                    trial,
                    lambda: (
                        target.get(ANN, [id_]) == [text] and (not searches or _finds(target, text, id_))
                    ),
                )
            )

        for _ in range(trial.size(30, 100, 300)):
            text = trial.text()
            thread = threading.Thread(target=look, args=(target.add_one(Item(ANN, text)), text))
            thread.start()
            thread.join()
        code = (
            'id_ = target.add_one(Item("ann", "a text"))',
            "# in another thread:",
            'target.get("ann", [id_])   # expected: ["a text"]',
            'target.search("ann", "a text", 5)   # expected: it is a hit',
        )
        return _lag_of(trial, lags, "read by another thread", code)

    @check(promised=lambda has: has.processes)
    def another_process_reads_it(trial: Trial) -> Outcome:
        """`get` and `search` of another process that has the store open and its caches warm."""
        if not (trial.capabilities.persistence and trial.capabilities.get):
            return not_promised("no other process can read the memories")
        folder, lags = trial.folder(), list[float | None]()
        target = trial.open(folder)
        trial.store(target, ANN, [trial.text() for _ in range(20)])
        searches = trial.capabilities.search and not trial.capabilities.delayed_search
        with trial.actor(folder) as reader:
            reader.call("open")
            reader.call("search", ANN, "harbour", 5) if trial.capabilities.search else reader.call("count")
            for _ in range(trial.size(20, 60, 200)):
                text = trial.text()
                id_ = target.add_one(Item(ANN, text))

                def sees(id_: str = id_, text: str = text) -> bool:
                    if reader.call("get", ANN, [id_]) != [text]:
                        return False
                    return not searches or id_ in [hit for hit, _ in reader.call("search", ANN, text, 5)]

                lags.append(_wait_until(trial, sees))
        code = (
            "# process 1 and process 2: target.open(folder)",
            'id_ = target.add_one(Item("ann", "a text"))   # process 1',
            'target.get("ann", [id_])   # process 2: ["a text"]',
            'target.search("ann", "a text", 5)   # process 2: a hit',
        )
        return _lag_of(trial, lags, "read by another process", code)
