"""Run threads that start at the same time; their exceptions reach the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from subprocesses import PATIENCE


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run each function in its own thread, started at the same time; return the results or raise."""
    start = threading.Barrier(len(works))
    results: list[Future[Any]] = [Future() for _ in works]

    def run(work: Callable[[], Any], result: Future[Any]) -> None:
        try:
            start.wait(PATIENCE)
            result.set_result(work())
        except BaseException as problem:
            result.set_exception(problem)

    for work, result in zip(works, results, strict=True):
        threading.Thread(target=run, args=(work, result), daemon=True).start()
    return [result.result(PATIENCE) for result in results]


def until_done(work: Callable[[], Any], *others: Callable[[], Any]) -> None:
    """Run `work` once and repeat the others in their own threads until it ends, at least once each."""
    done = threading.Event()

    def leading() -> None:
        try:
            work()
        finally:
            done.set()

    def following(other: Callable[[], Any]) -> Callable[[], None]:
        def loop() -> None:
            other()
            while not done.is_set():
                other()

        return loop

    together(leading, *map(following, others))
