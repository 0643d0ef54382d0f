"""The highest load that a target bears."""

from __future__ import annotations

from typing import Any

from memory.benchmarking.bench import Bench
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.parameters import Count, Names, Positive
from memory.benchmarking.model.presentation import ScatterChart


@declare(
    headline="*/knee_per_second",
    write_figures="*/knee_per_second|*/p50_ms|*/p99_ms|*/p999_ms|*/max_ms",
    search_figures="*/knee_per_second|*/p50_ms|*/p99_ms|*/p999_ms|*/max_ms",
    reports=[
        "knee_per_second",
        "closed_loop_per_second",
        "achieved_per_second",
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "max_ms",
        "drop_rate",
        "error_rate",
        "generator_late_p99_ms",
        "generator_cpu_percent",
    ],
    offered_per_second=Metric("/s", "neither"),
    generator_cpu_percent=Metric("%", "neither"),
    cpu_seconds_per_operation=Metric("s", "lower"),
    written_bytes_per_operation=Metric("B", "lower"),
    profiles={
        "quick": {"seconds": 4.0, "clients": ["1x1"], "agents": 4, "memories": 50},
        "standard": {"seconds": 40.0, "clients": ["1x1"]},
    },
    rounds={"quick": 1, "standard": 1, "full": 3},
    expected_seconds={"quick": 5.0, "standard": 42.0, "full": 170.0},
    charts=[
        ScatterChart(
            "Latency over load",
            "offered_per_second",
            "p99_ms",
            "operations offered",
            ["processes", "threads"],
            label="p99 latency",
            joined=True,
            note="Points at 25, 50, 75, 100 and 120 % of the knee. Lower and further right is better.",
        ),
    ],
)
def benchmark_saturation(
    mix: str = "chat",
    clients: Names = ("1x1", "1x4", "2x1"),
    limit_ms: Positive = 10.0,
    seconds: Positive = 45.0,
    agents: Count = 20,
    memories: Count = 200,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How much load the target bears: the highest rate at which 99 % of the operations meet a limit.

    Read `knee_per_second` as the rate up to which callers wait less than `limit_ms` in 99 of 100 cases,
    and nothing is dropped or fails. Operations arrive at random times, whether or not earlier ones are
    done. Latencies count from the intended start. The search begins near the rate of callers that never
    wait. Each probe sends up to 3,000 operations at one rate, and passes or fails. The interval holds the
    knee with a probability of 95 %, by all probes. A short probe passes too easily; how much so is
    simulated, and taken off. `confirmed` says whether a last probe at its lower bound passed. Then the
    latencies at 25, 50, 75, 100 and 120 % of the knee are measured. Every probe starts with the same
    memories: what the last one added is deleted, and each agent is searched once. A system with background
    work has it, with its default settings. CPU and written bytes are
    those of the clients and of servers that they started. `gave_way_first` is what an overloaded probe
    lacked: cpu, disk, lock (operations waited, but not for CPU or disk), or generator. A failed probe does
    not count if the generator itself was late by more than a tenth of the limit, or used more than 90 % of
    a core.

    Args:
        mix: chat, ingest, read-heavy, multi-tenant, or shares as in search=60,add=40 (docs/saturation.md)
        clients: client processes and the threads of each: 2x4 is two processes of four threads
        limit_ms: what 99 % of the latencies should not exceed, in milliseconds
        seconds: about how long one configuration takes after filling; at most 1.4 times as long
        agents: how many agents there are
        memories: how many memories each agent has when a probe starts
    """
    from memory.benchmarking.benchmarks.scalability import _knee_search as saturation
    from memory.benchmarking.workloads.mixes import mix_of

    bench = bench or Bench()
    load = saturation.Load(mix_of(mix), limit_ms, seconds, agents, memories)
    configurations = saturation.configurations_of(clients, len(bench.generators))
    saturation.check_mix(bench, load.mix)
    found: dict[str, Any] = {}
    for each in configurations:
        by_threads = found.setdefault(f"processes_{each.processes}", {})
        by_threads[f"threads_{each.threads}"] = saturation.saturate(bench, each, load)
    return found
