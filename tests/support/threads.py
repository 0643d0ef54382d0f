"""Threads that start together, and whose exceptions are not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from subprocesses import PATIENCE


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run each in its own thread, all started at one moment; their results, or the first exception."""
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
    """Run `work` once, and the others over and over beside it: at least once, and until it has ended."""
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
