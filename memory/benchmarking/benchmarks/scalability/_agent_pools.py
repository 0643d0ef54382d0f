"""Agents that share one store: their work, and the pools of worker threads or processes that do it.

A pool does the work of a cell in passes. In a pass each agent stores, reads and searches the same number of
times; the agents of one worker take turns after every operation. Before the next pass all memories are
deleted, outside of the measured time, so that each pass starts with empty agents.

As a program (`python -m memory.benchmarking.benchmarks.scalability._agent_pools`) this is one process of a
`ProcessPool`. It reads orders as JSON lines from standard input, and answers each on standard output.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, Protocol, Self

import msgspec

from memory.benchmarking.bench import Bench
from memory.benchmarking.errors import BrokenBenchmark
from memory.benchmarking.measure.resources import ProcessTree
from memory.benchmarking.measure.timing import wall_ns
from memory.benchmarking.model.environment import available_cores
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

KINDS = {"S": "store", "R": "read", "F": "search"}
TURNS = "SSRSSRFSSRFSSRSSRF"
"""The operations of an agent in one pass: 10 stores, 5 reads, 3 searches."""
K = 5
"""How many memories each search requests."""
_MAX_PROCESSES_PER_CORE = 4
"""The most processes per core: more would measure the scheduler."""


@dataclass
class Measurements:
    """What the workers measured: nanoseconds by kind of operation, time, CPU and RAM."""

    samples: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in KINDS.values()})
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    rss_bytes: int = 0

    @property
    def operations(self) -> int:
        return sum(map(len, self.samples.values()))

    def add(self, samples: Mapping[str, Iterable[int]]) -> None:
        for kind, values in samples.items():
            self.samples[kind].extend(values)

    def milliseconds(self) -> dict[str, list[float]]:
        """Return the times of all operations, by kind, without kinds that did not occur."""
        return {kind: [value / 1e6 for value in values] for kind, values in self.samples.items() if values}


class Work:
    """One worker's part of a pass, prepared in advance.

    `turns` holds the operations of each agent, in order: S stores, R reads, F searches.
    """

    def __init__(self, target: Target, agents: Sequence[str], turns: str, seed: str) -> None:
        self._target = target
        rng = random.Random(seed)
        texts = memory_texts(rng.getrandbits(32))
        queries = list(islice(question_texts(rng.getrandbits(32)), 50))
        self._ids: dict[str, list[tuple[str, str]]] = {agent: [] for agent in agents}
        self._plan: list[tuple[str, str, Any]] = []
        for turn in turns:
            for agent in agents:
                if turn == "S":
                    self._plan.append((turn, agent, Item(agent, next(texts))))
                elif turn == "R":
                    self._plan.append((turn, agent, rng.random()))
                else:
                    self._plan.append((turn, agent, rng.choice(queries)))
        self.samples = {kind: array("q") for kind in KINDS.values()}

    def run(self) -> None:
        """Do the work and keep the time of every operation; raise on a wrong answer."""
        target, ids, clock = self._target, self._ids, wall_ns
        keep = {turn: self.samples[kind].append for turn, kind in KINDS.items()}
        for turn, agent, argument in self._plan:
            if turn == "S":
                start = clock()
                id_ = target.add_one(argument)
                keep[turn](clock() - start)
                ids[agent].append((id_, argument.content))
            elif turn == "R":
                id_, content = ids[agent][int(argument * len(ids[agent]))]
                start = clock()
                answer = target.get_one(agent, id_)
                keep[turn](clock() - start)
                if answer is None or (answer != content and target.capabilities.exact):
                    raise AssertionError(f"{target.name} returned other content to {agent} than it stored")
            else:
                start = clock()
                hits = target.search(agent, argument, K)
                keep[turn](clock() - start)
                known = {id_ for id_, _ in ids[agent]}
                missed = not hits and not target.capabilities.delayed_search
                if missed or not all(hit.id in known for hit in hits):
                    raise AssertionError(
                        f"{target.name} returned nothing to {agent}, or memories of another agent"
                    )

    def stored(self) -> list[tuple[str, str, str]]:
        """Return agent, id and content of all that the last pass stored."""
        return [(agent, id_, text) for agent, known in self._ids.items() for id_, text in known]

    def clean(self) -> None:
        for agent in self._ids:
            self._target.delete_all(agent)


def warm_up(target: Target, agent: str) -> None:
    """Connect, and load everything that is loaded at first use."""
    id_ = target.add_one(Item(agent, "to load the embedder"))
    if target.capabilities.get:
        target.get_one(agent, id_)
    if target.capabilities.search:
        target.search(agent, "the embedder", 1)
    target.delete_all(agent)


def most_processes() -> int:
    """Return how many processes may work at the same time on this machine."""
    return _MAX_PROCESSES_PER_CORE * available_cores()


def distribute(agents: Sequence[str], workers: int) -> list[list[str]]:
    """Return the agents of each worker, distributed evenly."""
    return [list(agents[number::workers]) for number in range(workers)]


def as_items(stored: Iterable[tuple[str, str, str]]) -> tuple[list[str], list[Item]]:
    """Return ids and items of what a pool stored: agent, id and content."""
    memories = list(stored)
    return [id_ for _, id_, _ in memories], [Item(agent, content) for agent, _, content in memories]


class WorkerPool(Protocol):
    """Workers on one store."""

    def prepare(self, agents: Sequence[str], seed: str) -> None:
        """Prepare a pass."""

    def run_pass(self, measured: Measurements) -> None:
        """Run the pass; add its time and its samples."""

    def stored(self) -> list[tuple[str, str, str]]:
        """Return agent, id and content of all that the last pass stored."""

    def clean(self) -> None:
        """Delete what the pass stored."""


class ThreadPool:
    """Threads that share one open target; the calling thread is one of them."""

    def __init__(self, target: Target, workers: int, turns: str = TURNS) -> None:
        self._target = target
        self._workers = workers
        self._turns = turns
        self._works: list[Work] = []
        warm_up(target, "warm_up")

    def prepare(self, agents: Sequence[str], seed: str) -> None:
        self._works = [
            Work(self._target, part, self._turns, f"{seed} {number}")
            for number, part in enumerate(distribute(agents, self._workers))
        ]

    def run_pass(self, measured: Measurements) -> None:
        problems: list[BaseException] = []

        def run(work: Work) -> None:
            try:
                work.run()
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in self._works[1:]]
        processes = ProcessTree()
        cpu, start = processes.cpu_seconds(), time.perf_counter()
        for thread in threads:
            thread.start()
        run(self._works[0])
        for thread in threads:
            thread.join()
        measured.wall_seconds += time.perf_counter() - start
        measured.cpu_seconds += processes.cpu_seconds() - cpu
        if problems:
            raise problems[0]
        measured.rss_bytes = max(measured.rss_bytes, processes.rss_bytes())
        for work in self._works:
            measured.add(work.samples)

    def stored(self) -> list[tuple[str, str, str]]:
        return [each for work in self._works for each in work.stored()]

    def clean(self) -> None:
        for work in self._works:
            work.clean()


class ProcessPool:
    """Processes that each open the same store; reused for one store after another.

    `most` is how many are started: the most workers that `opened` may ask for.
    """

    def __init__(self, target_name: str, most: int, turns: str = TURNS) -> None:
        self._turns = turns
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", __name__, target_name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for _ in range(most)
        ]
        self._workers = 0

    @contextmanager
    def opened(self, folder: Path, workers: int) -> Iterator[None]:
        """Open the store of a folder in the first `workers` processes."""
        self._workers = workers
        self._each([{"do": "open", "folder": str(folder), "number": number} for number in range(workers)])
        yield
        self._each([{"do": "close"}] * workers)

    def prepare(self, agents: Sequence[str], seed: str) -> None:
        self._each(
            [
                {"do": "prepare", "agents": part, "turns": self._turns, "seed": f"{seed} {number}"}
                for number, part in enumerate(distribute(agents, self._workers))
            ]
        )

    def run_pass(self, measured: Measurements) -> None:
        start = time.perf_counter()
        answers = self._each([{"do": "go"}] * self._workers)
        measured.wall_seconds += time.perf_counter() - start
        measured.cpu_seconds += sum(answer["cpu_seconds"] for answer in answers)
        measured.rss_bytes = max(measured.rss_bytes, sum(answer["rss_bytes"] for answer in answers))
        for answer in self._each([{"do": "samples"}] * self._workers):
            measured.add(answer["samples"])

    def stored(self) -> list[tuple[str, str, str]]:
        answers = self._each([{"do": "stored"}] * self._workers)
        return [tuple(each) for answer in answers for each in answer["stored"]]

    def clean(self) -> None:
        self._each([{"do": "clean"}] * self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes: each ends when its standard input ends."""
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _each(self, orders: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        for process, order in zip(self._processes, orders, strict=False):
            _send(process.stdin, order)
        answers = []
        for process in self._processes[: len(orders)]:
            line = process.stdout.readline() if process.stdout is not None else b""
            if not line:
                raise BrokenBenchmark(f"a process of agents ended with code {process.wait()}: see the log")
            answer = msgspec.json.decode(line)
            if "problem" in answer:
                raise AssertionError(answer["problem"])
            answers.append(answer)
        return answers


def _send(pipe: IO[bytes] | None, message: Any) -> None:
    if pipe is not None:
        try:
            pipe.write(msgspec.json.encode(message) + b"\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # the process has ended; the missing answer is reported


def main() -> None:
    """Serve a `ProcessPool` until it closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a target's prints go to the log
    bench = Bench(target=sys.argv[1])
    with ExitStack() as opened:
        target: Target | None = None
        work: Work | None = None
        for line in sys.stdin.buffer:
            order = msgspec.json.decode(line)
            answer: dict[str, Any] = {}
            try:
                if order["do"] == "open":
                    target = opened.enter_context(bench.open_target(Path(order["folder"])))
                    warm_up(target, f"warm_up_{order['number']}")
                elif order["do"] == "prepare" and target is not None:
                    work = Work(target, order["agents"], order["turns"], order["seed"])
                elif order["do"] == "go" and work is not None:
                    processes = ProcessTree()
                    cpu = processes.cpu_seconds()
                    work.run()
                    answer = {
                        "cpu_seconds": processes.cpu_seconds() - cpu,
                        "rss_bytes": processes.rss_bytes(),
                    }
                elif order["do"] == "samples" and work is not None:
                    answer = {"samples": {kind: values.tolist() for kind, values in work.samples.items()}}
                elif order["do"] == "stored" and work is not None:
                    answer = {"stored": work.stored()}
                elif order["do"] == "clean" and work is not None:
                    work.clean()
                elif order["do"] == "close":
                    target = work = None
                    opened.close()
            except Exception as problem:
                answer = {"problem": f"{type(problem).__name__}: {problem}"}
            _send(answers, answer)


if __name__ == "__main__":
    main()
