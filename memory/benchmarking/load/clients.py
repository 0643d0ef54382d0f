"""All clients of one load: they start together, and what they measured is merged.

The clients may be on hosts whose clocks differ. So each clock is compared with ours first: of several short
exchanges the fastest counts, and half of its duration is how far the offset can be wrong.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from memory.benchmarking.load.channels import Channel, LocalClient, RemoteClient
from memory.benchmarking.load.probe import ALLOWED_LATE, Machine, Probe
from memory.benchmarking.measure.resources import load_psutil
from memory.benchmarking.model.environment import available_cores
from memory.benchmarking.workloads.mixes import Mix

_CLOCK_EXCHANGES = 9
_START_SECONDS = 0.05
"""Time for the order to start to arrive at every client."""
_LONGEST_WAIT_LIMITS = 100
"""An operation that waited for 100 times the limit is dropped."""
_SHORTEST_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Host:
    """The host of a client."""

    name: str
    offset_seconds: float
    """How far its clock is ahead of ours."""
    offset_error_seconds: float
    """How far the offset can be wrong."""


class LoadClients:
    """Client processes that send operations to one store.

    Args:
        target: the target's name, as `--target` takes it.
        embedder: as `--embedder` takes it.
        processes: how many client processes to start on this machine.
        threads: how many operations one client can have in progress.
        remote: addresses of clients on other hosts, in place of processes here.
    """

    def __init__(
        self, target: str, embedder: str, *, processes: int, threads: int, remote: Sequence[str] = ()
    ) -> None:
        self._threads = threads
        self._remote = bool(remote)
        self._served = False
        self.hosts: list[Host] = []
        self._probes = 0
        with ExitStack() as opened:
            self._clients: list[Channel] = []
            for number in range(len(remote) or processes):
                client: Channel = RemoteClient(remote[number]) if remote else LocalClient(target, embedder)
                opened.callback(client.end)
                self._clients.append(client)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def open(self, folder: Path, mix: Mix, seed: str, *, agents: int, memories: int) -> None:
        """Open the store in every client, and store the memories that every probe starts with."""
        orders: list[dict[str, Any]] = [
            {
                "do": "open",
                "folder": None if self._remote else str(folder),
                "seed": f"{seed} client {number}",
                "shares": mix.shares,
                "zipf": mix.zipf,
            }
            for number in range(len(self._clients))
        ]
        first, *others = self._clients
        self._served = bool(_ask(first, orders[0])["served"])
        ids = _ask(first, {"do": "fill", "agents": agents, "memories": memories})["ids"]
        files = _ask(first, {"do": "files"})["files"] if self._remote else {}
        for name, data in files.items():
            (folder / name).write_bytes(b64decode(data))  # to discard the store later
        for client, order in zip(others, orders[1:], strict=True):
            client.send({**order, "files": files})
        for client in others:
            client.receive()
            _ask(client, {"do": "know", "ids": ids})
        self.hosts = [_host(client) for client in self._clients]

    def closed_loop(self, seconds: float, most: int, seed: str) -> list[dict[str, Any]]:
        """Let every thread call operations back to back, at most `most` a client."""
        order = {"do": "closed", "seconds": seconds, "threads": self._threads, "most": most}
        return self._each([{**order, "seed": f"{seed} {number}"} for number in range(len(self._clients))])

    def probe(
        self, rate: float, seconds: float, limit_ms: float, seed: str, *, to_the_end: bool = False
    ) -> Probe:
        """Send load at a rate, and measure its latencies.

        Args:
            rate: arrivals a second, all clients together.
            seconds: how long operations arrive.
            limit_ms: what 99 % of the latencies should not exceed.
            seed: for arrivals and operations.
            to_the_end: also if it is certain that the limit is missed. Otherwise the rest is skipped.
        """
        self._probes += 1
        count = len(self._clients)
        each = {"do": "prepare", "rate": rate / count, "seconds": seconds}
        prepared = self._each(
            [{**each, "seed": f"{seed} {self._probes} {number}"} for number in range(count)]
        )
        arrivals = sum(answer["arrivals"] for answer in prepared)
        start = time.time() + _START_SECONDS
        order = {
            "do": "go",
            "threads": self._threads,
            "max_wait_seconds": max(_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_LIMITS * limit_ms / 1e3),
            "served": self._served,
            "limit_ms": limit_ms,
            "most_late": None if to_the_end else ALLOWED_LATE * arrivals,
        }
        for client, host in zip(self._clients, self.hosts, strict=True):
            client.send({**order, "at": start + host.offset_seconds})
        time.sleep(max(0.0, start - time.time()))
        before = _machine_counters()
        answers = [client.receive() for client in self._clients]
        machine = _machine_since(before)
        return Probe(rate, limit_ms, count, self._threads, self._served, machine, tuple(answers))

    def clean(self) -> None:
        """Delete what was added since the last time."""
        self._each([{"do": "clean"}] * len(self._clients))

    def close(self) -> None:
        """Close the store in every client; the first one reads back what must still be there."""
        for client in reversed(self._clients):
            _ask(client, {"do": "close"})

    def _each(self, orders: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        for client, order in zip(self._clients, orders, strict=True):
            client.send(order)
        return [client.receive() for client in self._clients]


def _ask(client: Channel, order: dict[str, Any]) -> dict[str, Any]:
    client.send(order)
    return client.receive()


def _host(client: Channel) -> Host:
    best = Host("", 0.0, float("inf"))
    for _ in range(_CLOCK_EXCHANGES):
        begin = time.time()
        answer = _ask(client, {"do": "clock"})
        end = time.time()
        if (end - begin) / 2 < best.offset_error_seconds:
            best = Host(answer["host"], answer["time"] - (begin + end) / 2, (end - begin) / 2)
    return best


def _machine_counters() -> tuple[float, Any, dict[str, Any]]:
    psutil = load_psutil()
    return time.time(), psutil.cpu_times(), psutil.disk_io_counters(perdisk=True) or {}


def _machine_since(before: tuple[float, Any, dict[str, Any]]) -> Machine:
    begin, cpu_before, disks_before = before
    end, cpu, disks = _machine_counters()
    total = sum(cpu) - sum(cpu_before)
    idle = cpu.idle - cpu_before.idle + getattr(cpu, "iowait", 0.0) - getattr(cpu_before, "iowait", 0.0)
    busy = [
        (disk.busy_time - disks_before[name].busy_time) / 1e3 / (end - begin)
        for name, disk in disks.items()
        if name in disks_before and hasattr(disk, "busy_time")
    ]
    return Machine(1 - idle / total if total > 0 else 0.0, max(busy, default=0.0), available_cores())
