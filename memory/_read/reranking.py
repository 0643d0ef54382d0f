"""Rerank the best candidates of a search with a caller's model, bounded in number and time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Protocol, runtime_checkable

import numpy as np

from memory.entry import MemoryEntry
from memory.errors import InvalidMemory, RerankerUnavailable

_log = logging.getLogger(__name__)


@runtime_checkable
class Reranker(Protocol):
    """Scores the best candidates of a search again, for example with a cross-encoder."""

    def rerank(self, query: str, candidates: Sequence[MemoryEntry]) -> Sequence[float]:
        """Return one score for each candidate; the highest is the best.

        It may raise `RerankerUnavailable`: then the search keeps its own order.
        """
        ...


class BoundedReranking:
    """Calls rerankers, and waits for each call at most `seconds`; without a limit if it is None.

    Python can't end a thread. So a call beyond the limit goes on, but its scores are not used. Until it
    has ended, no other call is started: a reranker that hangs takes one thread, not one for each search.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._late: threading.Thread | None = None

    def scores(
        self, reranker: Reranker, query: str, candidates: Sequence[MemoryEntry]
    ) -> list[float] | None:
        """Return one score for each candidate, or None if the reranker is unavailable or too slow."""
        try:
            found = self._call(reranker, query, candidates)
        except RerankerUnavailable as problem:
            _log.warning("the hits of a search are not reranked: %s", problem)
            return None
        return _checked(found, len(candidates))

    def _call(self, reranker: Reranker, query: str, candidates: Sequence[MemoryEntry]) -> Sequence[float]:
        if self._seconds is None:
            return reranker.rerank(query, candidates)
        if self._late is not None and self._late.is_alive():
            raise RerankerUnavailable("an earlier call that took too long has not ended yet")
        future: Future[Sequence[float]] = Future()

        def run() -> None:
            try:
                future.set_result(reranker.rerank(query, candidates))
            except BaseException as problem:  # `result` raises it again, in the thread of the caller
                future.set_exception(problem)

        thread = threading.Thread(target=run, name="agentmemory-rerank", daemon=True)
        thread.start()
        if not wait((future,), self._seconds).done:
            self._late = thread
            future.add_done_callback(_log_late_problem)
            raise RerankerUnavailable(
                f"the reranker took longer than {self._seconds:g} s for {len(candidates)} candidates: "
                "raise rerank_seconds, or lower rerank_candidates"
            )
        return future.result()


def _log_late_problem(future: Future[Sequence[float]]) -> None:
    problem = future.exception()
    if problem is not None:
        _log.warning("a reranker that took too long has failed: %r", problem)


def _checked(found: Sequence[float], count: int) -> list[float]:
    try:
        scores = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidMemory(f"the reranker returned a {type(found).__name__}, not numbers") from None
    if scores.shape != (count,):
        raise InvalidMemory(f"the reranker returned shape {scores.shape} instead of {(count,)}")
    if not np.isfinite(scores).all():
        raise InvalidMemory("the reranker returned NaN or infinity")
    return [float(score) for score in scores]
