"""Plain functions timed a number of times, and their report: the interface for a script of one's own.

    runner = BenchmarkRunner()
    runner.add_benchmark("short query", lambda: search("tea"), iterations=100)
    runner.run()
    runner.print_summary()
    runner.save_report("memory_search_results.json")

It stands on the clock of `measure/timing.py`. All happens in this process, so the figures describe this
process: whether code became slower is a question for `membench run` and its rounds.
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
from memory.benchmarking.measure.timing import BLOCKS, time_calls
from memory.benchmarking.model.environment import available_cores
from memory.benchmarking.model.files import encode_json, write_whole
from memory.benchmarking.model.user_files import cause_of
from memory.benchmarking.text.display import figure_text, table

ITERATIONS = 100
_CALLS_PER_BLOCK = 100

EntriesCreated = int | Callable[[], int]
"""How many entries the timed calls create in all: a number, or a function that counts the entries there
are, asked before the first timed call and after the last one."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class BenchmarkResult:
    """What one function took, call by call; times in `unit`, which is seconds."""

    benchmark_name: str
    iterations: int
    mean: float
    median: float
    std_dev: float
    """Of the calls (n - 1 in the divisor); 0 for a single one."""
    p95: float
    p99: float
    min: float
    max: float
    entries_created: int = 0
    unit: str = "s"
    timestamp: str = field(default_factory=_now)

    def __post_init__(self) -> None:
        if not isinstance(self.benchmark_name, str) or not self.benchmark_name.strip():
            raise InvalidResult(f"benchmark_name is {self.benchmark_name!r}: give it a name")
        _check_whole("iterations", self.iterations, 1, InvalidResult)
        _check_whole("entries_created", self.entries_created, 0, InvalidResult)
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
        """The figures of calls that took this long."""
        found = calculate_percentiles(seconds)
        low, high = min(seconds), max(seconds)
        return cls(
            benchmark_name=name,
            iterations=len(seconds),
            # The mean of equal values can be off in the last digit, and then outside of them.
            mean=sorted((low, statistics.fmean(seconds), high))[1],
            median=found["p50"],
            std_dev=statistics.stdev(seconds) if len(seconds) > 1 else 0.0,
            p95=found["p95"],
            p99=found["p99"],
            min=low,
            max=high,
            entries_created=entries_created,
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class BenchmarkFailure:
    """A function that raised, and what; it has no figures."""

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
        for each in self.results:
            if each.benchmark_name == benchmark_name:
                return each
        raise UnknownName(f"the report {self.name!r} has no result of {benchmark_name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dictionaries, as they are in the file."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain

    def to_json(self) -> str:
        return encode_json(self).decode()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it, whole or not at all; an older report of that name is replaced."""
        file = Path(path)
        write_whole(file, encode_json(self))
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except FileNotFoundError:
            raise UnknownName(f"there is no file {path}") from None
        except OSError as problem:
            raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise DamagedResult(f"{path} is damaged or not a report: {problem}") from problem

    def summary(self) -> str:
        """An aligned table, one line a result, then what failed."""
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
    """`{"p50": …, "p95": …, "p99": …}`, linear between the two nearest values, as NumPy does."""
    wanted = list(percentiles)
    for percentile in wanted:
        if not 0 <= percentile <= 100:
            raise InvalidResult(f"percentile is {percentile!r}: use a number from 0 to 100")
    found = quantiles_of(list(values), [percentile / 100 for percentile in wanted])
    return {f"p{percentile:.12g}": value for percentile, value in zip(wanted, found, strict=True)}


def benchmark(
    function: Callable[[], object],
    iterations: int = ITERATIONS,
    *,
    name: str | None = None,
    warm_up: int = 0,
    entries_created: EntriesCreated = 0,
) -> BenchmarkResult:
    """Call a function `iterations` times and time each call.

    It is called exactly that often, so by default the first call is among the timed ones; `warm_up` is
    how many calls are made before them. Reading the clock is in each call's time (about 0.05 µs): for a
    function of a few microseconds or less take `bench.time`, which puts several calls into a sample.
    """
    label = getattr(function, "__name__", type(function).__name__) if name is None else name
    return _Entry(label, function, iterations, warm_up, entries_created).measure()


@dataclass(frozen=True)
class _Entry:
    """A function that is to be timed, and how."""

    name: str
    function: Callable[[], object]
    iterations: int
    warm_up: int
    entries_created: EntriesCreated

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidBenchmarkConfig(f"the benchmark's name is {self.name!r}: give it a name")
        if not callable(self.function):
            raise InvalidBenchmarkConfig(f"{self.name}: {self.function!r} can't be called: give a function")
        if inspect.iscoroutinefunction(self.function):
            raise InvalidBenchmarkConfig(
                f"{self.name} is async: calling it would only make a coroutine, "
                "so give a function that runs it, such as lambda: asyncio.run(main())"
            )
        _check_whole(f"{self.name}: iterations", self.iterations, 1, InvalidBenchmarkConfig)
        _check_whole(f"{self.name}: warm_up", self.warm_up, 0, InvalidBenchmarkConfig)
        if not callable(self.entries_created):
            what = f"{self.name}: entries_created"
            _check_whole(what, self.entries_created, 0, InvalidBenchmarkConfig)

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
            # So few that hardly any call comes right after a collection of garbage and is slower for it.
            blocks=min(BLOCKS, max(1, self.iterations // _CALLS_PER_BLOCK)),
            before_block=count,
        )
        count()
        created = self.entries_created if not callable(self.entries_created) else counts[-1] - counts[0]
        if created < 0:
            raise InvalidResult(f"{self.name}: the entries went from {counts[0]} to {counts[-1]}")
        return BenchmarkResult.of(self.name, [sample / 1e9 for sample in timing.samples_ns], created)


class FunctionSuite:
    """Functions under names, run one after the other into one report."""

    def __init__(self, name: str = "benchmarks") -> None:
        self.name = name
        self._entries: dict[str, _Entry] = {}
        self._report: BenchmarkReport | None = None

    @property
    def report(self) -> BenchmarkReport:
        """Of the last run."""
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
        """Add a function; see `benchmark` for what the settings mean."""
        if name in self._entries:
            raise InvalidBenchmarkConfig(f"there is a benchmark {name!r} already: give it another name")
        self._entries[name] = _Entry(name, function, iterations, warm_up, entries_created)
        return self

    def run(self) -> BenchmarkReport:
        """Time every function; one that raises is named in the report, and the others still run."""
        if not self._entries:
            raise NothingMeasured("there is nothing to run: call add_benchmark() first")
        results, failures = [], []
        for entry in self._entries.values():
            try:
                results.append(entry.measure())
            except (Exception, SystemExit) as problem:
                failures.append(BenchmarkFailure(entry.name, cause_of(problem)))
        self._report = BenchmarkReport(self.name, tuple(results), tuple(failures), _environment())
        return self._report

    def save_report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report of the last run as JSON."""
        return self.report.save(path)

    def print_summary(self, file: TextIO | None = None) -> None:
        """Print the report of the last run, to standard output if nothing else is given."""
        print(self.report.summary(), file=sys.stdout if file is None else file)


def _environment() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cores": str(available_cores()),
    }


def _check_whole(name: str, value: object, least: int, error: type[ValueError]) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise error(f"{name} is {value!r}: use a whole number ≥ {least}")
