"""Time plain functions in your own script, and save or print a report.

    runner = BenchmarkRunner()
    runner.add_benchmark("short query", lambda: search("tea"), iterations=100)
    runner.run()
    runner.print_summary()
    runner.save_report("memory_search_results.json")

Everything runs in this process, so the figures describe this one process. To learn whether code became
slower, use `membench run`, which measures in several processes.
"""

from __future__ import annotations

import inspect
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, Self, TextIO

import msgspec

from memory.benchmarking.errors import (
    DamagedResult,
    InvalidBenchmarkConfig,
    InvalidResult,
    NothingMeasured,
    UnknownName,
)
from memory.benchmarking.measure.statistics import percentiles as quantiles_of
from memory.benchmarking.measure.timing import BLOCKS, check_whole, time_calls
from memory.benchmarking.model.environment import available_cores
from memory.benchmarking.model.files import encode_json, write_whole
from memory.benchmarking.model.user_files import cause_of
from memory.benchmarking.text.display import figure_text, table

ITERATIONS = 100
_CALLS_PER_BLOCK = 100
"""The fewest calls between two garbage collections: the first call after a collection is slower."""

EntriesCreated = int | Callable[[], int]
"""How many entries all timed calls create together: a number, or a function that counts the entries.
The function is called before each block of timed calls and after the last one."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class BenchmarkResult:
    """The times of one function over all its calls, in `unit`, which is seconds."""

    benchmark_name: str
    iterations: int
    mean: float
    median: float
    std_dev: float
    """Sample standard deviation of the calls (divisor n - 1); 0 for a single call."""
    p95: float
    p99: float
    min: float
    max: float
    entries_created: int = 0
    unit: str = "s"
    timestamp: str = field(default_factory=_now)

    def __post_init__(self) -> None:
        if not isinstance(self.benchmark_name, str) or not self.benchmark_name.strip():
            raise InvalidResult(f"benchmark_name is {self.benchmark_name!r}: use a text that is not empty")
        check_whole("iterations", self.iterations, 1)
        check_whole("entries_created", self.entries_created, 0)
        for name in ("mean", "median", "std_dev", "p95", "p99", "min", "max"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
                raise InvalidResult(f"{name} is {value!r}: it must be a number")
            if value < 0:
                raise InvalidResult(f"{name} is {value!r}: a time can't be negative")
        if not self.min <= self.median <= self.p95 <= self.p99 <= self.max:
            raise InvalidResult("min, median, p95, p99 and max must not decrease in this order")
        if not self.min <= self.mean <= self.max:
            raise InvalidResult(f"mean is {self.mean!r}: it must lie between min and max")

    @classmethod
    def of(cls, name: str, seconds: Sequence[float], entries_created: int = 0) -> Self:
        """Compute the result from the seconds of each call."""
        percentiles = calculate_percentiles(seconds)
        low, high = min(seconds), max(seconds)
        return cls(
            benchmark_name=name,
            iterations=len(seconds),
            # Rounding can put the mean of equal values just outside of their range.
            mean=sorted((low, statistics.fmean(seconds), high))[1],
            median=percentiles["p50"],
            std_dev=statistics.stdev(seconds) if len(seconds) > 1 else 0.0,
            p95=percentiles["p95"],
            p99=percentiles["p99"],
            min=low,
            max=high,
            entries_created=entries_created,
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class BenchmarkFailure:
    """A function that raised an exception; it has no figures."""

    benchmark_name: str
    error: str


@dataclass(frozen=True)
class BenchmarkReport:
    """The results of one run of several functions."""

    name: str
    results: tuple[BenchmarkResult, ...] = ()
    failures: tuple[BenchmarkFailure, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    created: str = field(default_factory=_now)

    def result(self, benchmark_name: str) -> BenchmarkResult:
        """Return the result of one function; raises `UnknownName` if there is none."""
        for result in self.results:
            if result.benchmark_name == benchmark_name:
                return result
        raise UnknownName(f"the report {self.name!r} has no result of {benchmark_name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, as in the file."""
        values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return values

    def to_json(self) -> str:
        return encode_json(self).decode()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as JSON in one atomic step, replacing an older file; return its path."""
        file = Path(path)
        write_whole(file, encode_json(self))
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a report that `save` wrote."""
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except FileNotFoundError:
            raise UnknownName(f"there is no file {path}") from None
        except OSError as problem:
            raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise DamagedResult(f"{path} is damaged or not a report: {problem}") from problem

    def summary(self) -> str:
        """Return a text table with one line a result, then the failures."""
        lines = [self.name]
        if self.results:
            lines.append(_summary_table(self.results))
        count = len(self.results) + len(self.failures)
        if self.failures:
            lines.append(f"{len(self.failures)} of {count} failed:")
            lines += [f"  {failure.benchmark_name}: {failure.error}" for failure in self.failures]
        return "\n".join(lines)


def _summary_table(results: Sequence[BenchmarkResult]) -> str:
    figures = ("mean", "median", "std_dev", "p95", "p99", "min", "max")
    headers = ["benchmark", "iterations", *(name.replace("_", " ") for name in figures), "entries"]
    rows = [
        [
            result.benchmark_name,
            figure_text(result.iterations),
            *(figure_text(getattr(result, name), result.unit) for name in figures),
            figure_text(result.entries_created),
        ]
        for result in results
    ]
    return table(rows, headers, right=range(1, len(headers)))


def calculate_percentiles(
    values: Iterable[float], percentiles: Iterable[float] = (50, 95, 99)
) -> dict[str, float]:
    """Return percentiles of values by name: `{"p50": …, "p95": …, "p99": …}`.

    Percentiles between two values are interpolated linearly, as in NumPy.

    Args:
        values: at least one number.
        percentiles: numbers from 0 to 100.
    """
    percents = list(percentiles)
    for percent in percents:
        if not 0 <= percent <= 100:
            raise InvalidResult(f"percentile is {percent!r}: use a number from 0 to 100")
    quantiles = quantiles_of(list(values), [percent / 100 for percent in percents])
    return {f"p{percent:.12g}": value for percent, value in zip(percents, quantiles, strict=True)}


def benchmark(
    function: Callable[[], object],
    iterations: int = ITERATIONS,
    *,
    name: str | None = None,
    warm_up: int = 0,
    entries_created: EntriesCreated = 0,
) -> BenchmarkResult:
    """Time each call of a function.

    Each time includes one reading of the clock, about 0.05 µs. For functions of a few microseconds or
    less use `Bench().time`, which times several calls together.

    Args:
        function: called without arguments.
        iterations: how many calls to time.
        name: name in the result; the function's own by default.
        warm_up: calls before the timed ones; by default the first call is timed.
        entries_created: how many entries all timed calls create, or a function that counts entries.
    """
    label = getattr(function, "__name__", type(function).__name__) if name is None else name
    return _Entry(label, function, iterations, warm_up, entries_created).measure()


@dataclass(frozen=True)
class _Entry:
    """A function to time, and how."""

    name: str
    function: Callable[[], object]
    iterations: int
    warm_up: int
    entries_created: EntriesCreated

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidBenchmarkConfig(f"name is {self.name!r}: use a text that is not empty")
        if not callable(self.function):
            raise InvalidBenchmarkConfig(f"{self.name}: {self.function!r} can't be called: pass a function")
        if inspect.iscoroutinefunction(self.function):
            raise InvalidBenchmarkConfig(
                f"{self.name} is async: a call would only create a coroutine; "
                "pass a function that runs it, such as lambda: asyncio.run(main())"
            )
        check_whole(f"{self.name}: iterations", self.iterations, 1, InvalidBenchmarkConfig)
        check_whole(f"{self.name}: warm_up", self.warm_up, 0, InvalidBenchmarkConfig)
        if not callable(self.entries_created):
            what = f"{self.name}: entries_created"
            check_whole(what, self.entries_created, 0, InvalidBenchmarkConfig)

    def measure(self) -> BenchmarkResult:
        counts: list[int] = []

        def count() -> None:
            if callable(self.entries_created):
                counts.append(self.entries_created())

        timing = time_calls(
            self.function,
            calls=self.iterations,
            calls_per_sample=1,
            warm_up=self.warm_up,
            blocks=min(BLOCKS, max(1, self.iterations // _CALLS_PER_BLOCK)),
            before_block=count,
        )
        count()
        created = self.entries_created if not callable(self.entries_created) else counts[-1] - counts[0]
        if created < 0:
            raise InvalidResult(
                f"{self.name}: entries_created fell from {counts[0]} to {counts[-1]}: it must not decrease"
            )
        return BenchmarkResult.of(self.name, [sample / 1e9 for sample in timing.samples_ns], created)


class FunctionSuite:
    """Times several named functions one after the other; `name` is the name of their report."""

    def __init__(self, name: str = "benchmarks") -> None:
        self.name = name
        self._entries: dict[str, _Entry] = {}
        self._report: BenchmarkReport | None = None

    @property
    def report(self) -> BenchmarkReport:
        """The report of the last `run`."""
        if self._report is None:
            raise NothingMeasured("there is no report yet: call run() first")
        return self._report

    def add_benchmark(
        self,
        name: str,
        function: Callable[[], object],
        iterations: int = ITERATIONS,
        *,
        warm_up: int = 0,
        entries_created: EntriesCreated = 0,
    ) -> Self:
        """Add a function to time under a unique name; see `benchmark` for the other parameters."""
        if name in self._entries:
            raise InvalidBenchmarkConfig(f"there is already a benchmark {name!r}: use another name")
        self._entries[name] = _Entry(name, function, iterations, warm_up, entries_created)
        return self

    def run(self) -> BenchmarkReport:
        """Time every function; a function that raises is listed as a failure, and the others still run."""
        if not self._entries:
            raise NothingMeasured("no functions were added: call add_benchmark() first")
        results, failures = [], []
        for entry in self._entries.values():
            try:
                results.append(entry.measure())
            except (Exception, SystemExit) as problem:
                failures.append(BenchmarkFailure(entry.name, cause_of(problem)))
        self._report = BenchmarkReport(self.name, tuple(results), tuple(failures), _environment())
        return self._report

    def save_report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report of the last run as JSON; return its path."""
        return self.report.save(path)

    def print_summary(self, file: TextIO | None = None) -> None:
        """Print the report of the last run, to standard output by default."""
        print(self.report.summary(), file=sys.stdout if file is None else file)


def _environment() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cores": str(available_cores()),
    }
