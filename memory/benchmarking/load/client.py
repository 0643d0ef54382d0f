"""One client process: it opens a target and sends it operations on a schedule.

It obeys orders, one JSON line each, and answers each with one JSON line:

    open    open the store of a folder             fill    store the memories that every probe starts with
    files   return the small files of the folder   know    take over the ids of the memories
    clock   return the time of this host           closed  call operations back to back
    prepare draw a schedule and its operations     go      run the schedule from a given time
    clean   delete what the last probe added       close   close the store; read back what was stored

`python -m memory.benchmarking.load.client TARGET` takes the orders from standard input. With
`--listen HOST` it prints a port and serves connections that begin with the secret from standard input, one
after the other, until standard input ends.
"""

from __future__ import annotations

import argparse
import gc
import hmac
import os
import random
import socket
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from memory.benchmarking.bench import Bench
from memory.benchmarking.measure.arrivals import poisson_starts
from memory.benchmarking.measure.latencies import Latencies
from memory.benchmarking.measure.open_loop import GiveUp, run_open_loop
from memory.benchmarking.measure.resources import ProcessTree
from memory.benchmarking.measure.timing import wall_ns
from memory.benchmarking.targets.base import Item, Settings, Target
from memory.benchmarking.workloads.mixes import Mix
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

K = 5
"""How many memories each search requests."""
_SECRET_SECONDS = 10.0
"""How long a connection may take to send the secret."""
_WARM_SHARE = 0.5
"""The most time for searches before a probe, as a share of the probe's."""
_MOST_FILE_BYTES = 10_000_000
_LONGEST_LINE = 64_000_000
"""The most bytes of one order: the ids of a million memories."""


class Client:
    """The state of one client process between orders."""

    def __init__(self, bench: Bench, opened: ExitStack) -> None:
        self._bench = bench
        self._opened = opened
        self._target: Target | None = None
        self._folder = Path()
        self._ids: dict[str, list[str]] = {}
        """The memories that every probe starts with, by agent."""
        self._added: list[tuple[str, str]] = []
        self._texts: Iterator[str] = iter(())
        self._queries: Iterator[str] = iter(())
        self._mix = Mix({})
        self._prepared: tuple[Sequence[float], list[str], Callable[[int], object]] | None = None
        self.orders: dict[str, Callable[..., dict[str, Any]]] = {
            "open": self.open,
            "fill": self.fill,
            "files": self.files,
            "know": self.know,
            "clock": self.clock,
            "closed": self.closed,
            "prepare": self.prepare,
            "go": self.go,
            "clean": self.clean,
            "close": self.close,
        }

    @property
    def target(self) -> Target:
        assert self._target is not None, "the first order is `open`"
        return self._target

    def open(
        self,
        folder: str | None,
        seed: str,
        shares: dict[str, float],
        zipf: bool,
        files: dict[str, bytes] | None = None,
    ) -> dict[str, Any]:
        """Open the store; return whether the system runs outside of this process.

        Without a folder the store is a server, and the folder is a new one on this host. `files` are what
        another client's folder holds, such as the name of the store on the server.
        """
        rng = random.Random(seed)
        self._texts = memory_texts(rng.getrandbits(32))
        self._queries = question_texts(rng.getrandbits(32))
        self._mix = Mix(shares, zipf)
        place = self._opened.enter_context(self._bench.folder()) if folder is None else Path(folder)
        for name, data in (files or {}).items():
            (place / name).write_bytes(b64decode(data))
        # As users have it, with its background work: that is part of the load that a system bears.
        settings = Settings(as_shipped=True) if self._bench.capabilities.transitions else None
        self._target = self._opened.enter_context(self._bench.open_target(place, settings))
        self._folder = place
        tree = ProcessTree()
        served = bool(self.target.address) or tree.has_children or self.target.transport_ms() is not None
        return {"served": served}

    def fill(self, agents: int, memories: int) -> dict[str, Any]:
        """Store the memories that every probe starts with."""
        for number in range(agents):
            agent = f"agent_{number}"
            items = [Item(agent, text) for text in islice(self._texts, memories)]
            self._ids[agent] = self._bench.store(self.target, items)
        self.target.flush()
        return {"ids": self._ids}

    def files(self) -> dict[str, Any]:
        """Return the small files of the folder, which tell other hosts where the store on the server is."""
        files = [path for path in sorted(self._folder.iterdir()) if path.is_file()]
        if sum(path.stat().st_size for path in files) > _MOST_FILE_BYTES:
            raise AssertionError(
                f"{self.target.name} keeps its data on one host: name a server, as in NAME=ADDRESS"
            )
        return {"files": {path.name: b64encode(path.read_bytes()).decode() for path in files}}

    def know(self, ids: dict[str, list[str]]) -> dict[str, Any]:
        """Take over the ids that another client stored."""
        self._ids = ids
        return {}

    def clock(self) -> dict[str, Any]:
        """Return the time of this host."""
        return {"time": time.time(), "host": socket.gethostname()}

    def _operations(self, count: int, seed: str) -> tuple[list[str], Callable[[int], object]]:
        """Draw operations; return their kinds, and the function that does one by its number."""
        rng = random.Random(seed)
        kinds = self._mix.kinds(count, rng)
        agents = self._mix.agents([*self._ids], count, rng)
        draw: dict[str, Callable[[str], Any]] = {
            "search": lambda agent: next(self._queries),
            "add": lambda agent: Item(agent, next(self._texts)),
            "read": lambda agent: rng.choice(self._ids[agent]),
        }
        arguments = [draw[kind](agent) for kind, agent in zip(kinds, agents, strict=True)]
        target, added = self.target, self._added
        may_miss = target.capabilities.delayed_search

        def operation(number: int) -> None:
            kind, agent, argument = kinds[number], agents[number], arguments[number]
            if kind == "search":
                if not target.search(agent, argument, K) and not may_miss:
                    raise AssertionError(f"{target.name} found nothing for {agent}")
            elif kind == "add":
                added.append((agent, target.add_one(argument)))
            elif target.get_one(agent, argument) is None:
                raise AssertionError(f"{target.name} has lost a memory of {agent}")

        return kinds, operation

    def closed(self, seconds: float, threads: int, most: int, seed: str) -> dict[str, Any]:
        """Call operations back to back; return how many a second, and how long they took."""
        _, operation = self._operations(most, seed)
        numbers, lock, until = iter(range(most)), threading.Lock(), wall_ns() + round(seconds * 1e9)
        parts = [Latencies() for _ in range(threads)]
        problems: list[Exception] = []

        def work(latencies: Latencies) -> None:
            while (begin := wall_ns()) < until and not problems:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                try:
                    operation(number)
                except Exception as problem:
                    problems.append(problem)
                    return
                latencies.record(wall_ns() - begin)

        begin = wall_ns()
        workers = [threading.Thread(target=work, args=(part,), daemon=True) for part in parts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        elapsed = (wall_ns() - begin) / 1e9
        if problems:
            raise problems[0]
        whole = Latencies()
        for part in parts:
            whole.add(part)
        return {"done": whole.count, "seconds": elapsed, "latencies": whole.as_counts()}

    def prepare(self, rate: float, seconds: float, seed: str) -> dict[str, Any]:
        """Draw a schedule and its operations, so that nothing but the target costs time later."""
        starts = poisson_starts(rate, seconds, seed)
        self._prepared = (starts, *self._operations(len(starts), seed))
        self._warm(seconds * _WARM_SHARE)
        return {"arrivals": len(starts)}

    def _warm(self, most_seconds: float) -> None:
        """Search once for each agent, so that the probe does not begin with what `clean` left to do.

        Many systems read an agent anew after a delete. The load itself deletes nothing. But without this,
        its first operations would wait for that, and these alone can be more than one in a hundred.
        """
        if "search" not in self._mix.shares:
            return
        until = wall_ns() + round(most_seconds * 1e9)
        for agent in self._ids:
            self.target.search(agent, next(self._queries), K)
            if wall_ns() > until:
                return

    def go(
        self,
        threads: int,
        at: float,
        max_wait_seconds: float,
        served: bool,
        limit_ms: float,
        most_late: float | None,
    ) -> dict[str, Any]:
        """Run the prepared schedule from `at`, in seconds since 1970 by this host's clock."""
        assert self._prepared is not None, "`prepare` comes before `go`"
        (starts, kinds, operation), self._prepared = self._prepared, None
        tree = ProcessTree()
        gc.collect()
        gc.freeze()  # the prepared operations must not make collections during the probe longer
        ready_late = time.time() - at
        origin = wall_ns() + round(max(0.0, -ready_late) * 1e9)
        before = tree.cpu_seconds(), tree.written_bytes(), time.process_time()
        try:
            loop = run_open_loop(
                operation,
                starts,
                kinds,
                workers=threads,
                max_wait_seconds=max_wait_seconds,
                give_up=None if most_late is None else GiveUp(limit_ms, most_late),
                only_idle_lateness=not served,
                origin_ns=origin,
            )
        finally:
            gc.unfreeze()
        cpu, written, own_cpu = tree.cpu_seconds(), tree.written_bytes(), time.process_time()
        return {
            "arrivals": loop.arrivals,
            "done": loop.done,
            "dropped": loop.dropped,
            "failed": loop.failed,
            "skipped": loop.skipped,
            "problem": "" if loop.problem is None else f"{type(loop.problem).__name__}: {loop.problem}",
            "seconds": loop.seconds,
            "latencies": {kind: part.as_counts() for kind, part in loop.latencies.items()},
            "lateness": loop.lateness.as_counts(),
            "start_late_ms": max(0.0, ready_late) * 1e3,
            "service_seconds": loop.service_seconds,
            "service_cpu_seconds": loop.service_cpu_seconds,
            "generator_cpu_seconds": own_cpu - before[2] if served else loop.generator_cpu_seconds,
            "cpu_seconds": cpu - before[0],
            "written_bytes": None if written is None or before[1] is None else written - before[1],
        }

    def clean(self) -> dict[str, Any]:
        """Delete what was added since the last `clean`, so that every probe starts with equal memories."""
        by_agent: dict[str, list[str]] = {}
        for agent, id_ in self._added:
            by_agent.setdefault(agent, []).append(id_)
        self._added.clear()
        for agent, ids in by_agent.items():
            deleted = self.target.delete(agent, ids)
            if deleted != len(ids):
                raise AssertionError(
                    f"{self.target.name} deleted {deleted} of {len(ids)} memories that it had stored"
                )
        return {}

    def close(self) -> dict[str, Any]:
        """Close the store; a sample of the memories of `fill` is read back."""
        self._target = None
        self._opened.close()
        return {}


def serve(client: Client, orders: BinaryIO, answers: BinaryIO) -> None:
    """Obey orders until their stream ends. A problem is an answer, not the end."""
    while line := orders.readline(_LONGEST_LINE):
        order = msgspec.json.decode(line)
        try:
            answer = client.orders[order.pop("do")](**order)
        except Exception as problem:
            answer = {"problem": f"{type(problem).__name__}: {problem}", "is_error": True}
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


def _listen(make_client: Callable[[ExitStack], Client], host: str, announcements: BinaryIO) -> None:
    """Serve connections that begin with the secret, one after the other; it comes from standard input."""
    secret = sys.stdin.buffer.readline().strip()
    with socket.create_server((host, 0)) as server:
        announcements.write(b"%d\n" % server.getsockname()[1])
        announcements.flush()
        threading.Thread(target=_end_with_parent, daemon=True).start()
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as file, ExitStack() as opened:
                stream = cast("BinaryIO", file)
                connection.settimeout(_SECRET_SECONDS)
                try:
                    given = stream.readline(1000).strip()
                except OSError:
                    continue  # it sent nothing in time, or has gone
                if not hmac.compare_digest(given, secret):
                    continue
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with suppress(OSError):  # the coordinator was killed
                    serve(make_client(opened), stream, stream)


def _end_with_parent() -> None:
    """End this process when its standard input ends: whoever started it has ended."""
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Serve orders from standard input, or from a connection."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--embedder", default="")
    parser.add_argument("--listen", metavar="HOST")
    arguments = parser.parse_args()
    answers = cast("BinaryIO", os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # a target's prints go to the log
    embedder = None
    if arguments.embedder:
        from memory.benchmarking.targets.embedders import load_embedder

        embedder = load_embedder(arguments.embedder)
    bench = Bench(target=arguments.target, embedder=embedder)
    if arguments.listen:
        _listen(lambda opened: Client(bench, opened), arguments.listen, answers)
    else:
        with ExitStack() as opened:
            serve(Client(bench, opened), cast("BinaryIO", sys.stdin.buffer), answers)


if __name__ == "__main__":
    main()
