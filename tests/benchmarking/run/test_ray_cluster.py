"""Rounds on a real Ray cluster of two nodes on this machine. `make test-cluster` installs Ray and runs it.

`make test` runs the first test only, and only where Ray is installed: a cluster takes minutes of CPU time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from executor_conformance import ExecutorConformance, Jobs, Make, pids_of, until
from membench import LIGHT, membench, surroundings, write
from two_nodes import ray_cluster

from memory.benchmarking.config import BenchmarkConfig
from memory.benchmarking.model.records import Job
from memory.benchmarking.run.executors.base import Callbacks, Executor, Limits
from memory.benchmarking.runner import BenchmarkRunner

pytest.importorskip("ray", reason="Ray is not installed: run make test-cluster")
pytestmark = pytest.mark.timeout(300)
whole = pytest.mark.skipif(
    "MEMBENCH_TEST_CLUSTER" not in os.environ, reason="takes minutes: run make test-cluster"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ray_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def make(cluster: Any) -> Make:
    from memory.benchmarking.run.executors.ray_cluster import RayExecutor

    def ray(jobs: Sequence[Job], limits: Limits, **options: Any) -> Executor:
        return RayExecutor(cluster.address, [job.case for job in jobs], limits=limits, **options)

    return ray


def test_rounds_run_on_the_nodes_with_the_code_of_this_machine(make: Make, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    planned = [jobs.of("good", number) for number in range(3)]
    with make(planned, Limits()) as executor:
        outcomes = list(executor.run(planned))
        environment = executor.environment
    assert environment is not None
    assert sorted(outcome.job.number for outcome in outcomes) == [0, 1, 2]
    for outcome in outcomes:
        assert outcome.round is not None, outcome.message
        assert outcome.fingerprint == environment.fingerprint
        assert outcome.host
        assert Path(outcome.job.answer).exists()


@whole
class TestRayExecutor(ExecutorConformance):
    pass


@whole
def test_the_rounds_of_a_killed_node_run_on_another_one(cluster: Any, make: Make, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    planned = [jobs.of(name, number) for number in range(2) for name in ("waits", "good")]
    said: list[str] = []
    killed: list[int] = []

    def kill() -> None:
        until(lambda: pids_of(jobs.marks))
        killed.extend(pids_of(jobs.marks))
        raylets = {parent.pid for parent in psutil.Process(killed[0]).parents()}
        (node,) = (
            each for each in cluster.worker_nodes if each.all_processes["raylet"][0].process.pid in raylets
        )
        cluster.remove_node(node, allow_graceful=False)
        until(lambda: not psutil.pid_exists(killed[0]))
        (jobs.marks / "release").touch()

    try:
        with make(planned, Limits(), callbacks=Callbacks(on_problem=said.append)) as executor:
            thread = threading.Thread(target=kill)
            thread.start()
            outcomes = list(executor.run(planned))
            thread.join()
    finally:
        cluster.add_node(node_ip_address="127.0.0.1", num_cpus=1, object_store_memory=100_000_000)
    assert sorted((each.job.case.benchmark, each.job.number) for each in outcomes) == [
        ("good", 0), ("good", 1), ("waits", 0), ("waits", 1),
    ]  # fmt: skip
    assert all(outcome.round is not None for outcome in outcomes), [each.message for each in outcomes]
    assert any("is lost" in text for text in said)


@whole
def test_a_run_on_a_cluster_is_resumed(cluster: Any, tmp_path: Path) -> None:
    source = write(
        tmp_path / "code" / "mine.py",
        "import pathlib\n"
        "def benchmark_sometimes(marks='', bench=None):\n"
        "    if not pathlib.Path(marks, 'works').exists():\n"
        "        raise ValueError('not yet')\n"
        "    return {'upper': bench.time('a'.upper)}\n"
        "def benchmark_good(bench=None):\n"
        "    return {'upper': bench.time('a'.upper)}\n",
    )
    config = BenchmarkConfig("quick")
    config.output_dir, config.targets, config.rounds = str(tmp_path / "results"), [LIGHT], 2
    runner = BenchmarkRunner(config, paths=[source], executor=f"ray={cluster.address}")
    cases = runner.plan(["mine"], params={"marks": str(tmp_path)})
    first = runner.run_cases(cases)
    assert first.run.status == "failed"
    # The message names the file here, not its copy on the node.
    assert {failure.message for failure in first.run.failures} == {
        f"ValueError: not yet ({source}, line 4)"
    }
    (tmp_path / "works").touch()
    second = BenchmarkRunner(config, paths=[source]).resume(first.run.id)
    assert second.succeeded
    assert second.run.executor == f"ray={cluster.address}"
    assert {moment.fingerprint for moment in second.run.moments} == {second.run.environment.fingerprint}
    assert {ref.rounds for ref in second.run.results} == {2}


@whole
def test_a_cluster_of_this_machine_is_started_and_stopped(tmp_path: Path) -> None:
    """Without an address. In a process of its own: this one is connected to the cluster of the tests."""
    done = membench(
        "run", "--executor", "ray", "--profile", "quick", "--benchmark", "read_latency", "--rounds", "1",
        "--target", LIGHT, "--output-dir", tmp_path / "results",
        cwd=tmp_path, env=surroundings(MEMBENCH_NODE=str(tmp_path / "node")),
    )  # fmt: skip
    assert done.code == 0, done.err
    left = [
        each
        for each in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(each.info["cmdline"] or [])
    ]
    assert not left
