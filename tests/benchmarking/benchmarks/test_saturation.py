"""`scalability.saturation`: the knee of targets whose service time is known, and what it refuses to say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memory.benchmarking.bench import Bench, Score
from memory.benchmarking.benchmarks.scalability._knee_search import (
    Configuration,
    Load,
    _Search,
    configurations_of,
)
from memory.benchmarking.benchmarks.scalability.saturation import benchmark_saturation
from memory.benchmarking.errors import InvalidBenchmarkConfig, NotSupported
from memory.benchmarking.load.clients import LoadClients
from memory.benchmarking.load.probe import Machine, Probe
from memory.benchmarking.measure.latencies import Latencies
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.run.worker import flatten_result
from memory.benchmarking.workloads.mixes import Mix

SUPPORT = Path(__file__).parents[1] / "support"


def bench_of(kind: str, **options: Any) -> Bench:
    return Bench(target=f"{SUPPORT / 'timed_target.py'}:{kind}", **options)


def saturate(kind: str, clients: Sequence[str] = ("1x1",), **parameters: Any) -> dict[str, Any]:
    settings = {"limit_ms": 100.0, "seconds": 12.0, "agents": 2, "memories": 5, **parameters}
    return benchmark_saturation(clients=clients, bench=bench_of(kind), **settings)


def test_the_knee_of_a_target_has_an_interval_and_a_curve() -> None:
    """`make knee` compares the knee with the truth. A machine that runs tests may be busy."""
    found = saturate("TimedTarget", seconds=6.0)
    flatten_result(found)
    cell = found["processes_1"]["threads_1"]
    knee = cell["knee_per_second"]
    if isinstance(knee, NotAvailable) and "the load generator gave way first" in knee.reason:
        pytest.skip(f"the machine is too busy: {knee.reason}")
    assert isinstance(knee, Score), knee
    assert knee.value > 0
    assert knee.low is not None
    assert knee.high is not None
    assert knee.low <= knee.value <= knee.high
    loads = {share: cell[f"load_{share}"] for share in (25, 50, 75, 100, 120)}
    for share, load in loads.items():
        assert load["offered_per_second"] == pytest.approx(knee.value * share / 100)
        assert load["p50_ms"] <= load["p99_ms"] <= load["p999_ms"] <= load["max_ms"]
    assert cell["gave_way_first"] in ("lock", "cpu", "generator")
    assert {probe["outcome"] for probe in cell["probes"]} >= {"passed", "failed"}


def test_a_mix_that_the_target_can_not_do_is_not_available() -> None:
    bench = Bench(target=f"{SUPPORT / 'light_target.py'}:LightTarget")
    with pytest.raises(NotSupported, match="light has no search: choose a mix without search"):
        benchmark_saturation(bench=bench)


def test_clients_that_the_target_does_not_allow_have_a_reason() -> None:
    found = saturate("TimedTarget", ["2x1"])
    cell = found["processes_2"]["threads_1"]
    assert isinstance(cell, NotAvailable)
    assert cell.reason == "timed can't be shared by processes"


def test_a_target_that_is_too_slow_without_load_has_no_knee() -> None:
    # Only searches, all of them slow: of a mix, more than half can be fast operations.
    found = saturate("SlowTarget", mix="search=1", limit_ms=10.0, seconds=2.0)["processes_1"]["threads_1"]
    assert isinstance(found["knee_per_second"], NotAvailable)
    assert (
        "without any load, more than the limit of 10 ms: raise limit_ms" in found["knee_per_second"].reason
    )
    assert isinstance(found["p99_ms"], NotAvailable)


@pytest.mark.parametrize("capacity", [360.0, 377.0, 390.0])
def test_the_advised_seconds_are_more_than_were_too_few(capacity: float) -> None:
    load = Load(Mix({"search": 1.0}), limit_ms=10.0, seconds=4.0, agents=2, memories=5)
    search = _Search(cast(LoadClients, SimpleNamespace(hosts=["here"])), load, Configuration(1, 1), seed=0)
    found = search._search(capacity, unloaded=1e-6)
    assert isinstance(found, NotAvailable)
    assert int(found.reason.partition("raise seconds to ")[2].partition(",")[0]) > load.seconds


def test_an_operation_that_fails_is_an_error() -> None:
    with pytest.raises(AssertionError, match="forgetful has lost a memory of agent_"):
        saturate("ForgetfulTarget", mix="read=1", seconds=2.0)


@pytest.mark.parametrize("text", ["1", "0x1", "1x0", "axb", "1x1x1", ""])
def test_a_wrong_configuration_of_clients_is_named(text: str) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=r"clients is .*: use PROCESSESxTHREADS"):
        configurations_of(["1x1", text])


# -- what a probe says ------------------------------------------------------------------------


def probe_of(
    *, served: bool = False, cores: int = 2, machine_cpu: float = 0.5, disk: float = 0.0, **changed: Any
) -> Probe:
    latencies, lateness = Latencies(), Latencies()
    for _ in range(1000):
        latencies.record(round(changed.get("latency_ms", 1.0) * 1e6))
        lateness.record(round(changed.get("late_ms", 0.1) * 1e6))
    answer = {
        "arrivals": 1000, "done": 1000, "dropped": 0, "failed": 0, "skipped": 0, "problem": "",
        "seconds": 1.0, "service_seconds": 0.9, "service_cpu_seconds": 0.1, "generator_cpu_seconds": 0.05,
        "cpu_seconds": 0.2, "written_bytes": 0, "start_late_ms": 0.0,
        "latencies": {"search": latencies.as_counts()}, "lateness": lateness.as_counts(), **changed,
    }  # fmt: skip
    return Probe(1000.0, 10.0, 1, 1, served, Machine(machine_cpu, disk, cores), (answer,))


def test_a_probe_passes_if_p99_meets_the_limit_and_nothing_is_dropped() -> None:
    assert probe_of().outcome == "passed"
    assert probe_of(latency_ms=11).outcome == "failed"
    for bad in ("dropped", "failed", "skipped"):
        assert probe_of(**{bad: 1}).outcome == "failed"


def test_a_failure_does_not_count_if_the_generator_was_late_or_busy() -> None:
    late = probe_of(latency_ms=11, late_ms=1.5)
    assert late.outcome == "invalid"
    assert "late (p99), more than a tenth of the limit" in late.summary()["reason"]
    busy = probe_of(latency_ms=11, generator_cpu_seconds=0.95)
    assert busy.outcome == "invalid"
    assert "95% of a core" in busy.summary()["reason"]


def test_a_late_generator_does_not_void_a_probe_that_passed() -> None:
    """Its lateness is part of every latency: without it they would be shorter."""
    assert probe_of(late_ms=1.5).outcome == "passed"


def test_operations_that_take_all_cores_delay_the_generator_themselves() -> None:
    assert probe_of(latency_ms=11, late_ms=5, service_cpu_seconds=1.9).outcome == "failed"
    assert probe_of(latency_ms=11, late_ms=5, service_cpu_seconds=1.9, served=True).outcome == "invalid"


@pytest.mark.parametrize(
    ("gave_way", "changes"),
    [
        ("generator", {"late_ms": 5}),
        ("cpu", {"machine_cpu": 0.95}),
        ("cpu", {"service_cpu_seconds": 0.85}),
        ("disk", {"disk": 0.9}),
        ("cpu", {"served": True, "cpu_seconds": 1.2}),
        ("lock", {}),
    ],
)
def test_what_gave_way_first(gave_way: str, changes: dict[str, Any]) -> None:
    assert probe_of(latency_ms=50, **changes).gave_way()[0] == gave_way
