"""Clients that write and read while their PostgreSQL server is restarted and killed (docs/postgres.md).

    python scripts/postgres_faults.py --minutes 10

Every 20 seconds the server is stopped, killed, or one of its processes is killed. Each client adds,
updates, deletes and searches, and knows what was acknowledged. At the end nothing may be lost, doubled or
skipped.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psycopg
from postgres_servers import Server, running_server
from psycopg.conninfo import make_conninfo

from memory import AgentMemorySystem, MemoryConfig
from memory.errors import StoreError
from memory.storage.postgres.address import parse
from memory.storage.postgres.store import PostgresStore

_THREADS = 2
_AGENTS = 3
_KEPT = 3_000
"""Memories that each client keeps: 8 clients leave at most 8,000 in each of three agents. Without a limit
the agents grow for the whole run, and a search after a restart measures how long their indexes take."""
_LONG_CALL = 0.2
"""Seconds. For longer calls the report says how long the server was there meanwhile."""


class Client(threading.Thread):
    """One client: it writes to agents that all clients share, and remembers what was acknowledged."""

    def __init__(self, number: int, memory: AgentMemorySystem, until: float) -> None:
        super().__init__()
        self.number = number
        self.memory = memory
        self.until = until
        self.living: dict[str, tuple[str, int]] = {}
        self.calls = Counter[str]()
        self.longest: dict[str, float] = {}
        """Seconds of the longest call of each method."""
        self.slow: list[tuple[str, float, float]] = []
        """Method, start and end of each call that took long."""
        self.problems: list[str] = []

    def timed(self, name: str, call: object, *arguments: object, **named: object) -> object:
        start = time.monotonic()
        try:
            return call(*arguments, **named)  # type: ignore[operator]
        finally:
            end = time.monotonic()
            taken = end - start
            if taken > _LONG_CALL:
                self.slow.append((name, start, end))
            self.longest[name] = max(self.longest.get(name, 0.0), taken)
            self.calls[name] += 1

    def run(self) -> None:
        count = 0
        try:
            while time.monotonic() < self.until:
                self.step(count)
                count += 1
        except (StoreError, AssertionError) as problem:
            self.problems.append(f"{type(problem).__name__}: {problem}")

    def step(self, count: int) -> None:
        agent, id_ = f"agent {count % _AGENTS}", f"{self.number}-{count}"
        memory = self.memory
        content = f"client{self.number} wrote word{count} here"
        self.timed("add", memory.add, agent, content, id=id_, metadata={"version": 0})
        self.living[id_] = agent, 0
        if count % 5 == 1:
            batch = [
                {"agent_id": agent, "content": f"part {n} of a batch", "id": f"{id_}-{n}"}
                for n in range(20)
            ]
            self.timed("add_many", memory.add_many, batch)
            self.living.update({f"{id_}-{n}": (agent, -1) for n in range(20)})
        if count % 3 == 0:
            assert self.timed("update", memory.update, agent, id_, metadata={"version": count}), id_
            self.living[id_] = agent, count
        if count % 7 == 3:
            assert self.timed("delete", memory.delete, agent, id_) is True, f"{id_} was not there to delete"
            del self.living[id_]
        else:
            found = self.timed("get", memory.get, agent, id_)
            assert found is not None, f"{id_} is lost"
        while len(self.living) > _KEPT:
            oldest = [id_ for id_, _ in zip(self.living, range(100), strict=False)]
            of_agent = self.living[oldest[0]][0]
            oldest = [id_ for id_ in oldest if self.living[id_][0] == of_agent]
            deleted = self.timed("delete_many", memory.delete_many, of_agent, oldest)
            assert deleted == len(oldest), f"{deleted} of {len(oldest)} memories were there to delete"
            for id_ in oldest:
                del self.living[id_]
        if count % 4 == 0 and id_ in self.living:
            hits = self.timed("search", memory.search, agent, f"client{self.number} word{count}", 20)
            assert any(hit.id == id_ for hit in hits), f"{id_} was not found"  # type: ignore[attr-defined]


def longest_of(reports: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return the longest call of each method in all reports."""
    longest: dict[str, float] = {}
    for report in reports:
        for name, seconds in report.items():
            longest[name] = max(longest.get(name, 0.0), seconds)
    return longest


def client_process(url: str, first: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    with AgentMemorySystem(MemoryConfig(url=url, busy_timeout_seconds=30.0)) as memory:
        clients = [Client(first + number, memory, until) for number in range(_THREADS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        skipped = follow(memory, url)
    print(
        json.dumps(
            {
                "living": {id_: place for client in clients for id_, place in client.living.items()},
                "calls": dict(sum((client.calls for client in clients), Counter[str]())),
                "longest": longest_of(client.longest for client in clients),
                "slow": [call for client in clients for call in client.slow],
                "problems": [problem for client in clients for problem in client.problems] + skipped,
            }
        )
    )


def follow(memory: AgentMemorySystem, url: str) -> list[str]:
    """Compare the warm search indexes of this process with the rows of the server."""
    store, problems = PostgresStore(url), []
    for agent in store.agents():
        memory.search(agent, "anything", 1)
        index = memory._indexes.index(agent)
        before = store.state(agent)
        with index.lock:
            index.catch_up()
            living = index.living
            seqs = index.columns.seq[: index.count]
            have = set((seqs if living is None else seqs[living]).tolist())
        rows = {row.seq for row in store.all_rows(agent)}
        if store.state(agent) == before and have != rows:
            problems.append(f"{agent}: {len(rows - have)} rows skipped, {len(have - rows)} too many")
    store.close()
    return problems


Outage = tuple[str, float, float]
"""What was done to the server, and from when to when it could not answer."""


def disturb(server: Server, seconds: float, every: float) -> list[Outage]:
    """Disturb the server, and return the outages."""
    outages = []
    ways = ("restart", "kill", "kill one process")
    end, number = time.monotonic() + seconds, 0
    address = make_conninfo(**parse(server.url()).parameters)
    while time.monotonic() + every < end:
        time.sleep(every)
        way = ways[number % len(ways)]
        number += 1
        start = time.monotonic()
        if way == "kill one process":
            with psycopg.connect(address, autocommit=True) as witness:
                server.kill_backends()
                wait_until_it_fails(witness)
        else:
            server.restart(signal.SIGKILL if way == "kill" else signal.SIGINT)
        wait_until_it_answers(address)
        outages.append((way, start, time.monotonic()))
    return outages


def wait_until_it_fails(connection: psycopg.Connection) -> None:
    """Wait until the server has noticed that a process is gone: then it ends all others too."""
    while True:
        try:
            connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return
        time.sleep(0.01)


def wait_until_it_answers(address: str) -> None:
    while True:
        try:
            with psycopg.connect(address) as connection:
                connection.execute("SELECT 1")
                return
        except psycopg.OperationalError:
            time.sleep(0.01)


def beyond_outages(call: tuple[str, float, float], outages: list[Outage]) -> float:
    """Return the seconds of a call in which the server could answer."""
    _, start, end = call
    return end - start - sum(max(min(end, over) - max(start, down), 0.0) for _, down, over in outages)


def check(url: str, reports: list[dict[str, object]]) -> list[str]:
    """Compare what the clients know with what the server has."""
    problems = [problem for report in reports for problem in report["problems"]]  # type: ignore[attr-defined]
    expected = {id_: place for report in reports for id_, place in report["living"].items()}  # type: ignore[attr-defined]
    store, stored = PostgresStore(url), Counter[str]()
    with AgentMemorySystem(MemoryConfig(url=url, maintenance="manual")) as memory:
        for agent in store.agents():
            seqs = []
            for row in store.all_rows(agent):
                stored[row.id] += 1
                seqs.append(row.seq)
                version = memory._reader.decode(row).metadata.get("version", -1)
                if row.id in expected and expected[row.id] != [agent, version]:
                    problems.append(f"{row.id} is {version}, not {expected[row.id]}")
            if len(set(seqs)) != len(seqs):
                problems.append(f"{agent} has a number twice")
        report = memory.check()
        if not report.ok:
            problems.append(str(report))
    store.close()
    problems += [f"{id_} is lost" for id_ in expected if not stored[id_]]
    problems += [f"{id_} is there {times} times" for id_, times in stored.items() if times > 1]
    problems += [f"{id_} was deleted, or never acknowledged" for id_ in stored if id_ not in expected]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two faults")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client_process(options.client[0], int(options.client[1]), float(options.client[2]))
        return 0
    seconds = options.minutes * 60
    with running_server(fsync="on", shared_buffers="128MB") as server:
        url = server.url()
        PostgresStore(url).close()
        program = [sys.executable, str(Path(__file__).resolve()), "--client", url]
        processes = [
            subprocess.Popen([*program, str(number * _THREADS), str(seconds)], stdout=subprocess.PIPE)
            for number in range(options.processes)
        ]
        outages = disturb(server, seconds, options.every)
        reports = []
        for process in processes:
            output, _ = process.communicate()
            if process.returncode:
                print(f"a client ended with {process.returncode}")
                return 1
            reports.append(json.loads(output))
        problems = check(url, reports)
    calls = sum((Counter(report["calls"]) for report in reports), Counter[str]())
    by_method = longest_of(report["longest"] for report in reports)
    longest = max(by_method.values())
    print(f"{options.processes * _THREADS} clients in {options.processes} processes, {seconds:.0f} s")
    for way, count in Counter(way for way, _, _ in outages).items():
        away = max(end - start for one, start, end in outages if one == way)
        print(f"{count} × {way}: no server for {away:.2f} s at most")
    print(f"calls: {', '.join(f'{count:,} {name}' for name, count in sorted(calls.items()))}")
    print(f"longest call: {longest:.2f} s (goal: at most 5 s)")
    print(
        f"  of each: {', '.join(f'{name} {seconds:.2f} s' for name, seconds in sorted(by_method.items()))}"
    )
    slow = [tuple(call) for report in reports for call in report["slow"]]
    for call in sorted(slow, key=lambda call: call[2] - call[1], reverse=True)[:5]:
        there = beyond_outages(call, outages)
        print(f"  {call[0]}: {call[2] - call[1]:.2f} s, for {there:.2f} s of it there was a server")
    print(f"lost, doubled, skipped or wrong: {len(problems)}")
    for problem in problems[:20]:
        print(f"  {problem}")
    return 1 if problems or longest > 5 else 0


if __name__ == "__main__":
    sys.exit(main())
