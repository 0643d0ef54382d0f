"""Runs rounds on the nodes of a Ray cluster, one at a time on each.

    membench ──jobs──▶ Ray task on a node ──▶ node.py of the code that was sent ──▶ a round, as locally

- A task reserves all CPUs of its node, so that nothing else of the cluster runs there during a round.
- Only nodes with equal fingerprints are used: figures of unlike machines are not pooled.
- Round n of all cases runs on one node, so that cases stay comparable. The rounds of a node that is lost
  are planned again on another one.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from memory.benchmarking.errors import BenchmarkError, InvalidBenchmarkConfig, needs
from memory.benchmarking.model.files import write_whole
from memory.benchmarking.model.records import Case, Environment, Job, Round
from memory.benchmarking.run.executors.archive import Archive, make_archive
from memory.benchmarking.run.executors.base import Callbacks, Limits, Outcome
from memory.benchmarking.run.executors.node import (
    DescribeOrder,
    Description,
    GenerateOrder,
    Order,
    Problem,
    RoundAnswer,
    RoundOrder,
)
from memory.benchmarking.targets.environments import find_environment
from memory.benchmarking.targets.spelling import parse_target

_TICK_SECONDS = 0.25
_SUSPECT_SECONDS = 15.0
"""How long a node that lost a round is not used: Ray needs seconds to notice that a node is dead."""
_MOST_LOSSES = 3
"""A round that was lost so often is not planned again: it may be what kills its nodes."""
_NEW_NODES_SECONDS = 30.0
"""How long to wait for a node when none is left."""
_START_SECONDS = 120.0
"""How long nodes and load generators may take to answer at first."""
_LOOPBACK = "127.0.0.1"


@dataclass
class _Node:
    id: str
    ip: str
    cpus: float
    description: Description
    number: int | None = None
    """The number of the rounds that it works on."""
    suspect_until: float = 0.0


@dataclass
class _Running:
    job: Job
    node: _Node
    generators: list[Any] = field(default_factory=list)


@dataclass
class RayExecutor:
    """Runs jobs on the nodes of a Ray cluster.

    Args:
        address: of the cluster, as `ray.init` takes it; empty for RAY_ADDRESS, else a cluster that is
            started on this machine, and stopped at the end.
        cases: all cases of the run; their code is sent.
        embedder: as `--embedder` takes it.
        limits: of every round.
        callbacks: called as rounds run.
        generators: how many load generators a round gets, spread over the nodes.
        fingerprint: of the machines to use; empty for those that are most.
    """

    address: str
    cases: Sequence[Case]
    embedder: str = ""
    limits: Limits = field(default_factory=Limits)
    callbacks: Callbacks = field(default_factory=Callbacks)
    generators: int = 0
    fingerprint: str = ""
    _nodes: dict[str, _Node] = field(default_factory=dict)
    _unlike: set[str] = field(default_factory=set)
    _stopping: bool = False
    _aborting: bool = False
    _looked: float = 0.0

    # -- the cluster --------------------------------------------------------------------------

    def __enter__(self) -> Self:
        address = self.address or os.environ.get("RAY_ADDRESS", "")
        if not address:
            # A cluster of this machine listens on the loopback address only. Ray reads this when imported.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        try:
            import ray
        except ImportError:
            raise needs("ray", "ray", "--executor ray") from None
        from memory.benchmarking.run.executors import ray_tasks

        self._ray: Any = ray  # parts of it have no types
        self._tasks = ray_tasks
        self._archive: Archive = make_archive(self.cases, self.embedder)
        self._connect(address)
        try:
            self._ray.cloudpickle.register_pickle_by_value(ray_tasks)
            self._data = ray.put(self._archive.data)
            self._look_for_nodes()
            if not self._nodes:
                raise BenchmarkError("the Ray cluster has no node with a CPU: start one with `ray start`")
        except BaseException:
            ray.shutdown()
            raise
        return self

    def _connect(self, address: str) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        # Ray would otherwise install packages of this process's environment on the nodes (uv run).
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        if not address:
            options |= {"include_dashboard": False, "_node_ip_address": _LOOPBACK}
        try:
            self._ray.init(address=address or "local", **options)
        except (ConnectionError, ValueError, RuntimeError) as problem:
            where = address or "on this machine"
            raise BenchmarkError(f"Ray can't be reached at {where}: {_one_line(problem)}") from problem

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    @property
    def environment(self) -> Environment | None:
        """The environment of the nodes, which are all alike."""
        return next(iter(self._nodes.values())).description.environment

    @property
    def hosts(self) -> list[str]:
        """The names of the machines in use."""
        return sorted({node.description.host for node in self._nodes.values()})

    def _look_for_nodes(self) -> None:
        """Take in nodes that are new, and drop those that are dead."""
        self._looked = time.monotonic()
        alive = {
            each["NodeID"]: each
            for each in self._ray.nodes()
            if each["Alive"] and each["Resources"].get("CPU", 0) >= 1
        }
        for id_ in [id_ for id_ in self._nodes if id_ not in alive]:
            self.callbacks.on_problem(f"node {self._nodes[id_].description.host} is lost")
            del self._nodes[id_]
        new = [id_ for id_ in alive if id_ not in self._nodes and id_ not in self._unlike]
        order = DescribeOrder(embedder=self._moved(self.embedder), scratch="@NODE@/scratch")
        refs = {id_: self._submit(id_, order, cpus=0) for id_ in new}
        found: list[_Node] = []
        for id_, ref in refs.items():
            description = self._description(ref)
            if description is not None:
                each = alive[id_]
                found.append(_Node(id_, each["NodeManagerAddress"], each["Resources"]["CPU"], description))
        self._choose(found)

    def _description(self, ref: Any) -> Description | None:
        """Return what a node answered; None if it died meanwhile."""
        exceptions = self._ray.exceptions
        try:
            answer, printed = self._ray.get(ref, timeout=_START_SECONDS)
        except exceptions.RayTaskError as problem:
            raise BenchmarkError(f"a node can't run membench: {_one_line(problem.cause)}") from problem
        except (exceptions.RayError, exceptions.GetTimeoutError):
            return None
        found: Description = _decoded(answer, printed, Description)
        return found

    def _choose(self, found: Sequence[_Node]) -> None:
        """Use the nodes that are alike: those of the run's fingerprint, else the largest group."""
        if not found:
            return
        by_fingerprint: dict[str, list[_Node]] = {}
        for node in found:
            by_fingerprint.setdefault(node.description.environment.fingerprint, []).append(node)
        if not self.fingerprint:
            self.fingerprint = max(by_fingerprint, key=lambda each: len(by_fingerprint[each]))
        for fingerprint, nodes in by_fingerprint.items():
            if fingerprint == self.fingerprint:
                self._nodes.update({node.id: node for node in nodes})
                continue
            self._unlike.update(node.id for node in nodes)
            hosts = ", ".join(sorted({node.description.host for node in nodes}))
            self.callbacks.on_problem(
                f"{hosts} is not used: its hardware or versions differ from the run's machines"
            )
        if not self._nodes:
            raise InvalidBenchmarkConfig(
                "no node has the hardware and versions that the run was started with: start a new run"
            )

    def _submit(self, node: str, order: Order, *, cpus: float) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote = self._ray.remote(self._tasks.obey)
        return remote.options(
            num_cpus=cpus,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(self._archive.digest, self._data, msgspec.json.encode(order))

    # -- rounds -------------------------------------------------------------------------------

    def finish(self) -> None:
        """Start no more jobs; let running ones end."""
        self._stopping = True

    def abort(self) -> None:
        """Kill everything now."""
        self._stopping = self._aborting = True

    def run(self, jobs: Iterable[Job]) -> Generator[Outcome, None, None]:
        """Run jobs and yield their outcomes as they end. Closing the generator kills running ones."""
        waiting: dict[int, deque[Job]] = {}
        for job in jobs:
            waiting.setdefault(job.number, deque()).append(job)
        losses: dict[tuple[str, int], int] = {}
        running: dict[Any, _Running] = {}
        try:
            while not self._aborting:
                if not self._stopping:
                    self._start_jobs(waiting, running)
                if not running:
                    if self._stopping or not any(waiting.values()):
                        return
                    self._wait_for_nodes()
                    continue
                done, _ = self._ray.wait([*running], num_returns=1, timeout=_TICK_SECONDS)
                for ref in done:
                    each = running.pop(ref)
                    outcome = self._outcome(ref, each)
                    self._stop_generators(each.generators)
                    if outcome is not None:
                        yield outcome
                        continue
                    key = (each.job.case.key, each.job.number)
                    losses[key] = losses.get(key, 0) + 1
                    if losses[key] >= _MOST_LOSSES:
                        message = f"its node was lost {_MOST_LOSSES} times"
                        yield Outcome(each.job, None, "killed", message, host=each.node.description.host)
                    else:
                        waiting.setdefault(each.job.number, deque()).appendleft(each.job)
            yield from (
                Outcome(each.job, None, "killed", "the run was stopped") for each in running.values()
            )
        finally:
            for ref, each in running.items():
                self._ray.cancel(ref, force=True)
                self._stop_generators(each.generators)
            self._wait_until_cancelled([*running])

    def _start_jobs(self, waiting: dict[int, deque[Job]], running: dict[Any, _Running]) -> None:
        """Give each free node its next job."""
        busy = {each.node.id for each in running.values()}
        if time.monotonic() > self._looked + _SUSPECT_SECONDS:
            self._look_for_nodes()
        for node in self._nodes.values():
            if node.id in busy or time.monotonic() < node.suspect_until:
                continue
            taken = {each.number for each in self._nodes.values() if each is not node}
            if not waiting.get(node.number if node.number is not None else -1):
                free = [number for number, jobs in sorted(waiting.items()) if jobs and number not in taken]
                node.number = free[0] if free else None
            if node.number is None:
                continue
            job = waiting[node.number].popleft()
            each = _Running(job, node)
            order = self._round_order(job, self._start_generators(job, each))
            running[self._submit(node.id, order, cpus=node.cpus)] = each
            self.callbacks.on_start(job)

    def _wait_for_nodes(self) -> None:
        """Return when a node is free; raise BenchmarkError if there is none for too long."""
        until = time.monotonic() + _NEW_NODES_SECONDS
        while not self._aborting and not self._stopping:
            self._look_for_nodes()
            if any(time.monotonic() >= node.suspect_until for node in self._nodes.values()):
                return
            if time.monotonic() > until and not self._nodes:
                raise BenchmarkError(
                    "no node of the Ray cluster is left: start nodes, and continue with --resume"
                )
            time.sleep(1.0)

    def _round_order(self, job: Job, generators: list[str]) -> RoundOrder:
        case = job.case
        source = self._moved(case.source) if case.source else None
        place = f"@NODE@/scratch/{os.getpid()}-{case.key}.{job.number}"
        moved = msgspec.structs.replace(
            job,
            case=msgspec.structs.replace(case, source=source, target=self._moved(case.target)),
            scratch=place,
            answer=f"{place}.msgpack",
            embedder=self._moved(job.embedder),
            generators=generators,
        )
        return RoundOrder(
            job=moved,
            environment_of=self._moved(_exact_version(case.target)),
            timeout_seconds=self.limits.timeout_seconds,
            memory_bytes=self.limits.memory_bytes,
            scratch="@NODE@/scratch",
        )

    def _moved(self, text: str) -> str:
        return self._archive.moved(text, "@CODE@")

    def _outcome(self, ref: Any, each: _Running) -> Outcome | None:
        """Return the outcome of a round, with its record on disk; None if its node was lost."""
        exceptions = self._ray.exceptions
        job, host = each.job, each.node.description.host
        try:
            answer, printed = self._ray.get(ref)
        except exceptions.RayTaskError as problem:
            return Outcome(job, None, "crash", f"on {host}: {_one_line(problem.cause)}", host=host)
        except exceptions.RayError:
            each.node.suspect_until = time.monotonic() + _SUSPECT_SECONDS
            self._looked = 0.0
            return None
        try:
            found = _decoded(answer, printed, RoundAnswer)
        except BenchmarkError as problem:
            return Outcome(job, None, "crash", f"on {host}: {problem}", host=host)
        if found.record is not None and found.fingerprint != self.fingerprint:
            self.callbacks.on_problem(
                f"{host} has changed: it is not used any more, and its round is repeated"
            )
            self._unlike.add(each.node.id)
            self._nodes.pop(each.node.id, None)
            return None
        record = None
        if found.record is not None:
            write_whole(Path(job.answer), found.record)
            record = msgspec.msgpack.decode(found.record, type=Round)
        return Outcome(
            job,
            record,
            found.reason,
            self._archive.moved_back(found.message),
            self._archive.moved_back(found.log),
            found.start_seconds,
            found.seconds,
            found.busy_percent,
            found.host,
            found.fingerprint,
        )

    def _wait_until_cancelled(self, refs: Sequence[Any]) -> None:
        """Wait until cancelled tasks have ended; their rounds end with them."""
        if refs:
            self._ray.wait([*refs], num_returns=len(refs), timeout=10.0)

    # -- load generators ----------------------------------------------------------------------

    def _start_generators(self, job: Job, each: _Running) -> list[str]:
        """Start the load generators of a round, spread over the nodes; return their addresses."""
        if not self.generators:
            return []
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor: Any = self._ray.remote(self._tasks.Generator)
        started = []
        for node in _in_turns([*self._nodes.values()], self.generators):
            order = GenerateOrder(
                target=self._moved(job.case.target),
                environment_of=self._moved(_exact_version(job.case.target)),
                embedder=self._moved(job.embedder),
                listen=node.ip,
                secret="@SECRET@",
            )
            handle = actor.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
            ).remote()
            each.generators.append(handle)
            started.append(
                (node, handle.start.remote(self._archive.digest, self._data, msgspec.json.encode(order)))
            )
        addresses = []
        for node, ref in started:
            try:
                secret, answer = self._ray.get(ref, timeout=_START_SECONDS)
                port = _decoded(answer, "", dict[str, Any])["port"]
            except (self._ray.exceptions.RayError, BenchmarkError) as problem:
                self._stop_generators(each.generators)
                host = node.description.host
                raise BenchmarkError(
                    f"a load generator did not start on {host}: {_one_line(problem)}"
                ) from problem
            addresses.append(f"{node.ip}:{port}#{secret}")
        return addresses

    def _stop_generators(self, handles: Sequence[Any]) -> None:
        refs = [handle.stop.remote() for handle in handles]
        if refs:
            self._ray.wait(refs, num_returns=len(refs), timeout=10.0)
        for handle in handles:
            self._ray.kill(handle)


def _in_turns(nodes: Sequence[_Node], count: int) -> Iterator[_Node]:
    return (nodes[number % len(nodes)] for number in range(count))


def _exact_version(target: str) -> str:
    """Return a target with the version of its environment here, so that nodes build the same one."""
    spelling = parse_target(target)
    lock = find_environment(target)
    if lock is None or not lock.version or spelling.version or ":" in spelling.name:
        return target
    return f"{spelling.name}@{lock.version}"


def _decoded(answer: bytes, printed: str, kind: Any) -> Any:
    """Return a node's answer; raise BenchmarkError with its problem, or with what it printed."""
    if not answer:
        raise BenchmarkError(
            f"its program ended without an answer: {_one_line(printed) or 'it printed nothing'}"
        )
    try:
        problem = msgspec.msgpack.decode(answer, type=Problem)
    except msgspec.ValidationError:
        return msgspec.msgpack.decode(answer, type=kind)
    raise BenchmarkError(problem.problem)


def _one_line(problem: object) -> str:
    lines = str(problem).strip().splitlines()
    return lines[-1].strip()[:500] if lines else type(problem).__name__
