"""What will run: cases from the configuration, rounds from the cases, and how long it may take."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from memory.benchmarking.config import BenchmarkConfig
from memory.benchmarking.errors import InvalidBenchmarkConfig, NothingMeasured, nearest
from memory.benchmarking.metrics import declaration_of
from memory.benchmarking.model.profiles import PROFILES
from memory.benchmarking.model.records import Case
from memory.benchmarking.model.sections import checked
from memory.benchmarking.run.discovery import Benchmark
from memory.benchmarking.targets import load_target


def make_cases(
    benchmarks: Sequence[Benchmark],
    config: BenchmarkConfig,
    overrides: Mapping[str, Any] | None = None,
) -> list[Case]:
    """Every benchmark on every target. `overrides` are parameters for all that take them."""
    if not benchmarks:
        raise NothingMeasured("there is no benchmark to run")
    for name in config.targets:
        load_target(name)  # a wrong name is an error before anything runs
    chosen = _overrides_by_benchmark(benchmarks, config, overrides or {})
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
                    most_rounds=_most_rounds(benchmark, config.profile),
                )
            )
    return cases


def _most_rounds(benchmark: Benchmark, profile: str) -> int | None:
    bounds = (
        declaration_of(benchmark.function).rounds,
        PROFILES[profile].most_rounds.get(benchmark.full_name),
    )
    return min((bound for bound in bounds if bound is not None), default=None)


def _parameters(
    benchmark: Benchmark, config: BenchmarkConfig, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    known = benchmark.kinds
    configured = config.section(benchmark.category).parameters(benchmark.name)
    params = {
        **benchmark.defaults,
        **{name: value for name, value in configured.items() if name in known},
        **overrides,
    }
    try:
        # As the round will get them, and as they will be read from the run's files.
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(params))
    except (TypeError, ValueError) as problem:
        raise InvalidBenchmarkConfig(
            f"{benchmark.full_name} has a parameter that can't be written down: {problem}"
        ) from None
    return plain


def _overrides_by_benchmark(
    benchmarks: Sequence[Benchmark], config: BenchmarkConfig, overrides: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Each override for the benchmarks that take it; one that none takes is an error."""
    chosen: dict[str, dict[str, Any]] = {benchmark.full_name: {} for benchmark in benchmarks}
    for name, value in overrides.items():
        takers = [benchmark for benchmark in benchmarks if name in benchmark.kinds]
        if not takers:
            known = {known for benchmark in benchmarks for known in benchmark.kinds}
            raise InvalidBenchmarkConfig(
                f"--params: no chosen benchmark takes {name!r}: {nearest(name, known)}"
            )
        for benchmark in takers:
            key = f"{benchmark.full_name}.{name}"
            # The configuration's type says more than the signature's: a count is no zero.
            kind = config.section(benchmark.category).kind_of(name, benchmark.name)
            chosen[benchmark.full_name][name] = checked(key, value, kind)
    return chosen


def round_seed(seed: int, number: int) -> int:
    """The same for all cases of a round, so that targets meet the same data; another in each round."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def order_of_rounds(cases: Sequence[Case], rounds: int, seed: int) -> Iterator[tuple[Case, int]]:
    """All first rounds in random order, then all second ones, and so on.

    What disturbs the machine for a while then hits one round of many cases, not all rounds of one.
    """
    for number in range(rounds):
        turn = [case for case in cases if number < (case.most_rounds or rounds)]
        random.Random(f"{seed}/{number}").shuffle(turn)
        for case in turn:
            yield case, number
