"""Many agents on one PostgreSQL server, from several processes (docs/postgres.md).

    python scripts/postgres_agents.py --agents 10000 --memories 100

The processes fill the agents together. Then each of them searches the same sample of agents for the first
time, changes some of them, and checks that it sees at once what the other processes have changed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from postgres_servers import running_server
from postgres_speed import texts

from memory import AgentMemorySystem, MemoryConfig

_AGENTS_AT_ONCE = 10
_SEARCHED = 400


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Worker:
    """One process: it runs a phase for each line that it reads, and answers with one line of JSON."""

    def __init__(self, memory: AgentMemorySystem, number: int, options: argparse.Namespace) -> None:
        self.memory = memory
        self.number = number
        self.options = options
        step = max(options.agents // _SEARCHED, 1)
        self.searched = [f"agent {number}" for number in range(0, options.agents, step)]

    def fill(self) -> dict[str, Any]:
        mine = range(self.number, self.options.agents, self.options.processes)
        memories = self.options.memories
        contents = texts(_AGENTS_AT_ONCE * memories, self.number)
        start = time.monotonic()
        for first in range(0, len(mine), _AGENTS_AT_ONCE):
            batch = [
                {"agent_id": f"agent {agent}", "content": contents[place * memories + n], "id": f"{n}"}
                for place, agent in enumerate(mine[first : first + _AGENTS_AT_ONCE])
                for n in range(memories)
            ]
            self.memory.add_many(batch)
        return {"stored": len(mine) * memories, "seconds": time.monotonic() - start}

    def search(self) -> dict[str, Any]:
        """Search each agent of the sample for the first time, and then once more."""
        self.memory.search("agent 0", "warms up", 1)
        self.memory.drop_caches()
        before = resident_bytes()
        first, second = [], []
        for agent in self.searched:
            for times in (first, second):
                start = time.perf_counter()
                hits = self.memory.search(agent, "harbour violin", 10)
                times.append(time.perf_counter() - start)
                assert len(hits) == 10, agent
        return {
            "first": statistics.median(first) * 1e3,
            "second": statistics.median(second) * 1e3,
            "bytes": (resident_bytes() - before) / len(self.searched),
        }

    def change(self) -> dict[str, Any]:
        """Add a memory to some agents of the sample, and delete one."""
        for agent in self.searched[self.number :: self.options.processes]:
            self.memory.add(agent, f"quokka seen by process {self.number}", id="new")
            assert self.memory.delete(agent, "0"), agent
        return {}

    def check(self) -> dict[str, Any]:
        """Count the agents in which this process misses what a process has changed."""
        stale = 0
        for agent in self.searched:
            hits = self.memory.search(agent, "quokka", 10)
            found = any(hit.id == "new" for hit in hits) and not any(hit.id == "0" for hit in hits)
            stale += not found or self.memory.get(agent, "0") is not None
        return {"checked": len(self.searched), "stale": stale}


def work(url: str, number: int, options: argparse.Namespace) -> None:
    with AgentMemorySystem(MemoryConfig(url=url, maintenance="manual")) as memory:
        worker = Worker(memory, number, options)
        for line in sys.stdin:
            print(json.dumps(getattr(worker, line.strip())()), flush=True)


def start(url: str, options: argparse.Namespace) -> list[subprocess.Popen[str]]:
    program = [sys.executable, *sys.argv, "--worker", url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return [subprocess.Popen([*program, str(number)], **pipes) for number in range(options.processes)]


def end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.communicate()


def phase(processes: list[subprocess.Popen[str]], name: str) -> list[dict[str, Any]]:
    """Let all processes run a phase at the same time; return their answers."""
    for process in processes:
        assert process.stdin is not None
        print(name, file=process.stdin, flush=True)
    answers = []
    for process in processes:
        assert process.stdout is not None
        answers.append(json.loads(process.stdout.readline()))
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--memories", type=int, default=100, help="of each agent")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker[0], int(options.worker[1]), options)
        return 0
    with running_server(fsync="on", shared_buffers="256MB") as server:
        url = server.url()
        AgentMemorySystem(MemoryConfig(url=url, maintenance="manual")).close()
        processes = start(url, options)
        began = time.monotonic()
        stored = sum(answer["stored"] for answer in phase(processes, "fill"))
        seconds = time.monotonic() - began
        rate = f"{stored / seconds:,.0f} a second from {options.processes} processes"
        print(
            f"stored {stored:,} memories of {options.agents:,} agents in {seconds:.0f} s, {rate}",
            flush=True,
        )
        end(processes)
        processes = start(url, options)  # new ones: the resident memory is that of the searches alone
        for answer in phase(processes, "search"):
            times = f"first {answer['first']:.2f} ms, second {answer['second']:.2f} ms"
            print(f"search of an agent, median: {times}; {answer['bytes'] / 1e3:.0f} kB resident an agent")
        phase(processes, "change")
        answers = phase(processes, "check")
        stale = sum(answer["stale"] for answer in answers)
        checked = sum(answer["checked"] for answer in answers)
        print(f"agents seen without a change by another process: {stale} of {checked}")
        end(processes)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
