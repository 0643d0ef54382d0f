"""The local executor keeps what every executor promises; test_ray_cluster.py checks that of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from executor_conformance import ExecutorConformance, Make

from memory.benchmarking.commands.run import _check_generators
from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.model.records import Case, Job
from memory.benchmarking.run.executors.base import Executor, Limits, check_executor
from memory.benchmarking.run.executors.local import LocalExecutor


class TestLocalExecutor(ExecutorConformance):
    @pytest.fixture
    def make(self) -> Make:
        def local(jobs: Sequence[Job], limits: Limits) -> Executor:
            return LocalExecutor(timeout_seconds=limits.timeout_seconds)

        return local


@pytest.mark.parametrize(
    ("executor", "workers", "generators", "message"),
    [
        ("dask", 1, 0, "--executor is 'dask': use local, ray, or ray=ADDRESS"),
        ("ray=", 1, 0, "use local, ray, or ray=ADDRESS"),
        ("local=x", 1, 0, "use local, ray, or ray=ADDRESS"),
        ("ray", 2, 0, "--parallel has no effect with --executor ray"),
        ("local", 1, 8, "--generators needs other hosts"),
        ("ray", 1, -1, "--generators is -1"),
    ],
)
def test_an_executor_that_can_not_do_what_is_asked_is_refused(
    executor: str, workers: int, generators: int, message: str
) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=message):
        check_executor(executor, workers, generators)


def test_generators_need_saturation_and_a_server_that_all_hosts_reach() -> None:
    def case(benchmark: str, target: str) -> Case:
        return Case(category="scalability", benchmark=benchmark, target=target, params={})

    _check_generators([case("saturation", "pgvector=postgresql://host/db")])
    with pytest.raises(InvalidBenchmarkConfig, match=r"no effect on scalability\.agent_scaling"):
        _check_generators([case("agent_scaling", "pgvector=postgresql://host/db")])
    with pytest.raises(InvalidBenchmarkConfig, match="and agentmemory is none: use --target NAME=ADDRESS"):
        _check_generators([case("saturation", "agentmemory")])


def test_executors_that_exist_are_accepted() -> None:
    for executor in ("local", "ray", "ray=10.0.0.1:6379", "ray=auto"):
        check_executor(executor)
