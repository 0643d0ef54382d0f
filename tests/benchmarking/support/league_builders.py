"""Builds the run of a league without measuring: any number of systems, with all kinds of cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from result_builders import ENVIRONMENT, make_result, make_run

from memory.benchmarking.league.suite import SUITE
from memory.benchmarking.measure.statistics import over_rounds
from memory.benchmarking.model.files import read_run, write_run
from memory.benchmarking.model.records import Case, Failure, Figure, Result, Run, TargetInfo
from memory.benchmarking.promises.suite import all_checks

CLASSES = ("process", "machine", "ram")
RATE = "throughput_ops_per_second"
RUN_ID = "20260801_101500_ab12"


def league_run(
    output_dir: Path, systems: int = 3, names: tuple[str, ...] = (), **changes: Any
) -> tuple[Path, Run]:
    """Write the run of a league with systems that get slower from the first to the last.

    The second system has a dial. The third one has no vector search, and its space failed to be measured.
    """
    targets = [*names, *(f"system-{number}" for number in range(len(names), systems))]
    results: list[Result] = []
    for number, target in enumerate(targets):
        results += _results(number, target)
    failures = []
    if systems > 2:
        case = f"storage.memory_efficiency@{targets[2]}"
        failures.append(Failure(case=case, round=0, reason="timeout", message="took > 240 s"))
    info = {
        target: TargetInfo(
            name=target,
            durability=CLASSES[number % 3],
            search_by="vector" if number else "both",
            versions={f"lib-{target}": f"1.{number}"},
        )
        for number, target in enumerate(targets)
    }
    options = {
        "suite": SUITE,
        "target_info": info,
        "targets": targets,
        "environment": ENVIRONMENT,
    } | changes
    folder = make_run(output_dir, changes.pop("run_id", RUN_ID), results, failures, **options)
    run = read_run(folder)
    if systems > 2:
        run.cases.append(
            Case(category="storage", benchmark="memory_efficiency", target=targets[2], params={})
        )
        write_run(folder, run)
    return folder, run


def _results(number: int, target: str) -> list[Result]:
    slower = 1.6**number
    common: dict[str, Any] = {"target": target, "seeds": [1, 2, 3], "rounds": 3}
    found = [
        _result("storage", "write_throughput", {
            f"texts/batch_50/store/one_by_one/{RATE}": figure(5000 / slower),
            f"texts/batch_50/store/as_one_batch/{RATE}": figure(50000 / slower),
        }, common),
        _result("storage", "read_latency", {"texts/store/single/p50_ms": figure(0.01 * slower)}, common),
        _result("storage", "footprint", {
            "installed_mb": exact(40.0 + 90 * number), "first_open_ms": figure(80 * slower),
            "first_search_ms": figure(30 * slower), "open_ms": figure(3 * slower),
            "open_rss_mb": figure(50 * slower),
        }, common),
        _result("quality", "retrieval_quality", {
            "synthetic/target/all_questions/recall_at_5": share(0.8 - 0.02 * number),
        }, common),
        *(_promise(name, checks, number, common) for name, checks in _promises().items()),
    ]  # fmt: skip
    sizes = {
        f"text/size_{size}/p50_ms": figure(0.3 * slower * (size / 1000) ** 0.5) for size in (1000, 3000)
    }
    if number == 2:
        reason = {"not_available": {"vector": f"{target} can't be searched by a vector"}}
        return [*found, _result("retrieval", "search_by_size", sizes, common | reason)]
    for setting, recall in _settings(number).items():
        sizes[f"vector/size_3000/{setting}/recall"] = exact(recall)
        sizes[f"vector/size_3000/{setting}/search/p50_ms"] = figure(0.2 * slower * recall**3)
    space = {
        "texts/store/disk_bytes_per_memory": exact(300.0 + 200 * number),
        "texts/store/ram_bytes_per_memory": figure(900 * slower),
    }
    return [
        *found,
        _result("retrieval", "search_by_size", sizes, common),
        _result("storage", "memory_efficiency", space, common),
    ]


def _settings(number: int) -> dict[str, float]:
    if number % 3 == 1:
        return {"default": 0.93, "ef_10": 0.8, "ef_40": 0.94, "ef_100": 0.97, "ef_200": 0.99}
    return {"default": 1.0 if number < 15 else 0.9}


def _result(category: str, benchmark: str, metrics: dict[str, Figure], metadata: dict[str, Any]) -> Result:
    return make_result(metrics, category=category, benchmark=benchmark, **metadata)


def figure(value: float) -> Figure:
    """Return a figure that follows from its rounds, so that a bundle of it can be verified."""
    estimate = over_rounds([value * 0.98, value, value * 1.02])
    return Figure(
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        rounds=list(estimate.rounds),
        interval_from="rounds",
    )


def exact(value: float) -> Figure:
    return Figure(value=value, low=value, high=value, rounds=[value] * 3, interval_from="rounds")


def share(value: float) -> Figure:
    return Figure(value=value, low=value - 0.03, high=value + 0.03, rounds=[value], interval_from="units")


def _promises() -> dict[str, list[str]]:
    from memory.benchmarking.benchmarks.promises import BENCHMARKS

    found: dict[str, list[str]] = {name: [] for name in BENCHMARKS.values()}
    for check in all_checks().values():
        found[BENCHMARKS[check.promise]].append(check.name)
    return found


def _promise(name: str, checks: list[str], number: int, metadata: dict[str, Any]) -> Result:
    """Return the outcomes of one promise; a later system breaks one check, and promises less."""
    metrics: dict[str, Figure] = {}
    tree: dict[str, Any] = {}
    for place, check in enumerate(checks):
        status = (
            "broken" if number % 4 == 3 and place == 0 else "not promised" if place + number > 4 else "kept"
        )
        tree[check] = {"status": status, "evidence": f"0 of {100 + number} writes were lost"}
        if status == "broken":
            tree[check] |= {"code": "target.delete_all('ann')", "evidence": "12 of 100 writes were lost"}
        if status != "not promised":
            metrics[f"{check}/kept"] = exact(float(status == "kept"))
    result = _result("promises", name, metrics, metadata)
    result.results = tree
    return result
