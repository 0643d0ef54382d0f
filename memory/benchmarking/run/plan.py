"""The plan of a run: cases from the configuration, and the order of their rounds."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from memory.benchmarking.config import BenchmarkConfig
from memory.benchmarking.errors import InvalidBenchmarkConfig, NothingMeasured, nearest
from memory.benchmarking.model.benchmark import Benchmark
from memory.benchmarking.model.parameters import checked
from memory.benchmarking.model.profiles import PROFILES
from memory.benchmarking.model.records import Case
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.interpreters import interpreter_of


def make_cases(
    benchmarks: Sequence[Benchmark],
    config: BenchmarkConfig,
    overrides: Mapping[str, Any] | None = None,
    *,
    installed: bool = True,
) -> list[Case]:
    """Return a case for every benchmark on every target.

    Args:
        benchmarks: what to run
        config: the settings, with the targets
        overrides: parameters for all benchmarks that have them, and tables of parameters by category
        installed: whether the targets have to be installed; not where another interpreter is named
    """
    if not benchmarks:
        raise NothingMeasured("there is no benchmark to run")
    for name in config.targets:
        # A wrong name, or one that is not installed, is an error before anything runs.
        (interpreter_of if installed else load_target)(name)
    chosen = _overrides_by_benchmark(benchmarks, config, overrides or {})
    asked_for_more = config.rounds > PROFILES[config.profile].rounds
    cases = []
    for benchmark in benchmarks:
        params = _parameters(benchmark, config, chosen[benchmark.full_name])
        for target in config.targets:
            cases.append(
                Case(
                    category=benchmark.category,
                    benchmark=benchmark.name,
                    target=target,
                    params=params,
                    source=benchmark.source,
                    module=benchmark.module,
                    most_rounds=benchmark.declaration.most_rounds(
                        config.profile, asked_for_more=asked_for_more
                    ),
                )
            )
    return cases


def _parameters(
    benchmark: Benchmark, config: BenchmarkConfig, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    known = benchmark.types
    configured = config.category(benchmark.category).parameters(benchmark.name)
    params = {
        **benchmark.defaults,
        **{name: value for name, value in configured.items() if name in known},
        **overrides,
    }
    try:
        # Convert the values as they are sent to the worker and written to the run's files.
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(params))
    except (TypeError, ValueError) as problem:
        raise InvalidBenchmarkConfig(
            f"{benchmark.full_name} has a parameter that can't be stored as JSON: {problem}"
        ) from None
    return plain


def _overrides_by_benchmark(
    benchmarks: Sequence[Benchmark], config: BenchmarkConfig, overrides: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the overrides of each benchmark; one that no benchmark has is an error."""
    chosen: dict[str, dict[str, Any]] = {benchmark.full_name: {} for benchmark in benchmarks}
    for name, value in overrides.items():
        owners = [benchmark for benchmark in benchmarks if name in benchmark.types]
        inside = [benchmark for benchmark in benchmarks if benchmark.category == name]
        if inside and not owners and isinstance(value, Mapping):
            chosen.update(_overrides_by_benchmark(inside, config, value))
            continue
        if not owners:
            known = {known for benchmark in benchmarks for known in benchmark.types}
            raise InvalidBenchmarkConfig(
                f"--params: no chosen benchmark takes {name!r}: {nearest(name, known)}"
            )
        for benchmark in owners:
            key = f"{benchmark.full_name}.{name}"
            kind = config.category(benchmark.category).type_of(name, benchmark.name)
            chosen[benchmark.full_name][name] = checked(key, value, kind)
    return chosen


def round_seed(seed: int, number: int) -> int:
    """Return a round's seed. All cases share it, so that all targets get the same data."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def order_of_rounds(cases: Sequence[Case], rounds: int, seed: int) -> Iterator[tuple[Case, int]]:
    """Yield all first rounds in random order, then all second rounds, and so on.

    A disturbance of the machine then affects one round of many cases, not all rounds of one case.
    """
    for number in range(rounds):
        this_round = [case for case in cases if number < (case.most_rounds or rounds)]
        random.Random(f"{seed}/{number}").shuffle(this_round)
        for case in this_round:
            yield case, number
