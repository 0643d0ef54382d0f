"""What a test gets as `membench`: it times operations and records figures, as a benchmark does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memory.benchmarking.bench import Bench
from memory.benchmarking.measure.timing import Timing, time_calls
from memory.benchmarking.run.plan import round_seed


class Recorder(Bench):
    """The fixture `membench`: a `Bench` that keeps what it measured under a name.

    Args:
        measures: whether this process measures. If not, each operation is called once.
        number: the number of the round.
        seconds: about how long one timing measures.
    """

    def __init__(self, *, measures: bool, number: int, seconds: float) -> None:
        super().__init__(seed=round_seed(0, number), seconds=seconds)
        self.measures = measures
        self._number = number
        self._tree: dict[str, Any] = {}
        self._started = (time.time(), time.perf_counter())

    def __call__(self, operation: Callable[..., object], *arguments: Any, **more: Any) -> Any:
        """Time a function with these arguments, and return what it returns."""
        self.time(lambda: operation(*arguments, **more))
        return operation(*arguments, **more)

    def time(
        self,
        operation: Callable[..., object],
        items: Sequence[Any] | None = None,
        *,
        name: str = "call",
        **options: Any,
    ) -> Timing:
        """Time an operation and record its figures.

        Args:
            operation: what to time; it gets one item, if there are items.
            items: the arguments, one for each call.
            name: the group of the figures, such as `read`. Two timings of a test need two names.
            options: as of `Bench.time`: `calls`, `work`, `warm_up`, `calls_per_sample`.
        """
        if self.measures:
            timing = time_calls(operation, items, seconds=self.seconds, **options)
        else:
            first = None if items is None else items[:1]
            timing = time_calls(operation, first, calls=1, warm_up=0, calls_per_sample=1)
        self.record(name, timing)
        return timing

    def record(self, name: str, value: Any) -> None:
        """Record a figure, a timing, a text, or a dictionary of them, under a name."""
        if name in self._tree:
            raise ValueError(f"membench has two results with the name {name!r}: give one another name")
        self._tree[name] = value

    def write(self, path: str) -> None:
        """Write what was recorded as a round, for the session that started this process."""
        import msgspec

        from memory.benchmarking.measure.resources import peak_rss_bytes
        from memory.benchmarking.model.files import write_whole
        from memory.benchmarking.model.records import Round
        from memory.benchmarking.run.worker import flatten_result, pack_timing, wall_to_cpu

        leaves = flatten_result(self._tree)
        answer = Round(
            number=self._number,
            seed=self.seed,
            figures=leaves.figures,
            samples={where: pack_timing(timing) for where, timing in leaves.timings.items()},
            other=leaves.other,
            not_available=leaves.not_available,
            intervals=leaves.intervals,
            answers=self.answers,
            started_at=self._started[0],
            load_seconds=0.0,
            seconds=time.perf_counter() - self._started[1],
            peak_rss_bytes=peak_rss_bytes(),
            wall_to_cpu=wall_to_cpu(leaves.timings.values()),
        )
        write_whole(Path(path), msgspec.msgpack.encode(answer))
