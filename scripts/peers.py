"""Compares AgentMemory with other memory systems: same memories, embedder, searches and machine.

    make peers                                          installs them all, then runs this
    python scripts/peers.py [--quick] [--json FILE]     systems that are not installed are n/a

It measures writes, searches and disk space at two sizes. The last memories of each size are written one by
one and timed, those before in batches, not timed. Systems take turns in short slices, in rotating order,
so noise hits all of them. Every time includes the embedder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from _peer_corpus import AGENTS, TOP, Corpus
from _peer_systems import ALL_SYSTEMS, AgentMemory, Embedder, Item, System, UnavailableError

WRITE_SLICE, SEARCH_SLICE, FILL_SLICE = 100, 20, 500
T = TypeVar("T")

LEGEND = """
×       the figure divided by AgentMemory's (vector search)
fresh   p50 of a search for a text right after it was written; found: it was in the top 10
recall  share of the exact cosine top 10 (not comparable for a search that also uses words)
"""


@dataclass
class Searches:
    """The searches of one system in one mode."""

    seconds: list[float] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    found: list[bool] = field(default_factory=list)

    def ms(self, percent: float) -> float:
        return float(np.percentile(self.seconds, percent)) * 1000


@dataclass
class Result:
    """One system's figures by size and search mode; `failure` is the reason if some are missing."""

    system: System
    failure: str | None = None
    write_seconds: dict[int, float] = field(default_factory=dict)
    writes: dict[int, int] = field(default_factory=dict)
    searches: dict[tuple[str, int], Searches] = field(default_factory=dict)
    fresh: dict[str, Searches] = field(default_factory=dict)
    bytes_each: float | None = None

    def writes_per_second(self) -> float:
        return sum(self.writes.values()) / sum(self.write_seconds.values())


class Run:
    """Gives all systems the same work; a system that fails is left out from then on."""

    def __init__(self, systems: Sequence[System], corpus: Corpus) -> None:
        self.corpus = corpus
        self.results = [Result(system) for system in systems]
        self.stored = 0
        self._turn = 0

    def in_turn(self, work: Callable[[Result], None]) -> None:
        """Give one slice of work to each system that has not failed, each time in another order."""
        running = [result for result in self.results if result.failure is None]
        self._turn += 1
        for at in range(len(running)):
            result = running[(at + self._turn) % len(running)]
            try:
                work(result)
            except UnavailableError as reason:
                result.failure = f"n/a ({reason})"
            except ImportError as error:
                result.failure = f"n/a ({result.system.install}): {error}"
            except Exception as error:  # a system's failure is reported, and the others continue
                result.failure = f"failed: {type(error).__name__}: {error}".splitlines()[0]

    def open(self, folder: Path, embedder: Embedder) -> None:
        def work(result: Result) -> None:
            own = folder / type(result.system).__name__
            own.mkdir()
            result.system.open(own, embedder)

        self.in_turn(work)

    def grow(self, size: int, timed: int) -> None:
        """Store memories up to `size`, the last `timed` of them one by one and timed."""
        singles = max(self.stored, size - timed)
        for batch in slices(self.corpus.items[self.stored : singles], FILL_SLICE):
            self.in_turn(partial(fill, items=batch))
        for items in slices(self.corpus.items[singles:size], WRITE_SLICE):
            self.in_turn(partial(write, items=items, size=size))
        self.stored = size

    def search(self) -> None:
        """Time all queries on the memories stored so far."""

        def work(result: Result, numbers: Sequence[int]) -> None:
            for mode in result.system.modes:
                searches = result.searches.setdefault((mode, self.stored), Searches())
                for number in numbers:
                    agent, query = self.corpus.queries[number]
                    found = self.timed_search(result.system, agent, query, mode, searches)
                    searches.recalls.append(self.corpus.recall(number, found, self.stored))

        for numbers in slices(range(len(self.corpus.queries)), SEARCH_SLICE):
            self.in_turn(partial(work, numbers=numbers))

    def probe(self) -> None:
        """Write one memory and search for its text right away: is it found, and how fast?

        This shows work that a system defers from its writes to the next search.
        """

        def work(result: Result, number: int, item: Item) -> None:
            system = result.system
            mode = system.modes[number % len(system.modes)]
            searches = result.fresh.setdefault(mode, Searches())
            system.add(item)
            found = self.timed_search(system, item.agent, item.text, mode, searches)
            searches.found.append(item.text in found)

        for number, item in enumerate(self.corpus.probes):
            self.in_turn(partial(work, number=number, item=item))
        self.stored += len(self.corpus.probes)

    def timed_search(self, system: System, agent: str, query: str, mode: str, into: Searches) -> list[str]:
        began = time.perf_counter()
        found = system.search(agent, query, TOP, mode)
        into.seconds.append(time.perf_counter() - began)
        if any(self.corpus.owner(text) != agent for text in found):
            raise RuntimeError(f"a search of {agent} returned another agent's memory")
        return found

    def close(self) -> None:
        def work(result: Result) -> None:
            result.system.close()
            size = result.system.disk_bytes()
            result.bytes_each = None if size is None else size / self.stored

        self.in_turn(work)
        for result in self.results:
            if result.failure:
                with suppress(Exception):
                    result.system.close()


def fill(result: Result, items: Sequence[Item]) -> None:
    result.system.add_batch(items)


def write(result: Result, items: Sequence[Item], size: int) -> None:
    began = time.perf_counter()
    for item in items:
        result.system.add(item)
    spent = time.perf_counter() - began
    result.write_seconds[size] = result.write_seconds.get(size, 0.0) + spent
    result.writes[size] = result.writes.get(size, 0) + len(items)


def fsync_ms(folder: Path) -> float:
    """Return the median time to fsync 4 KB: most of a write for a system that does so each time."""
    spent = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(50):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            spent.append(time.perf_counter() - began)
    return float(np.median(spent)) * 1000


def slices(items: Sequence[T], length: int) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), length):
        yield items[at : at + length]


def table(results: Sequence[Result], sizes: Sequence[int]) -> str:
    """Return a table with one row a system and search mode, or the reason why it has no figures."""
    base = next((r for r in results if type(r.system) is AgentMemory and not r.failure), None)
    head = ["", "writes/s", *[f"p50 ms {size:,}" for size in sizes]]
    head += [*[f"p95 ms {size:,}" for size in sizes], "fresh ms", "found"]
    head += [*[f"recall {size:,}" for size in sizes], "bytes each"]
    rows = [head]
    for result in results:
        if result.failure:
            rows.append([result.system.name, result.failure])
        else:
            rows += [row(result, mode, sizes, base) for mode in result.system.modes]
    full = [cells for cells in rows if len(cells) == len(head)]
    widths = [max(len(cells[column]) for cells in full) for column in range(len(head))]
    widths[0] = max(len(cells[0]) for cells in rows)
    lines = []
    for cells in rows:
        figures = "  ".join(map(str.rjust, cells[1:], widths[1:])) if cells in full else cells[1]
        lines.append(f"{cells[0]:<{widths[0]}}  {figures}")
    return "\n".join(lines)


def times(factor: float) -> str:
    return f"{factor:,.0f}×" if factor >= 10 else f"{factor:.2g}×"


def row(result: Result, mode: str, sizes: Sequence[int], base: Result | None) -> list[str]:
    def ratio(text: str, figure: float, reference: float | None) -> str:
        return f"{text} ({times(figure / reference)})" if reference else text

    first, *_ = result.system.modes
    at = [result.searches[mode, size] for size in sizes]
    cells = [result.system.name if mode == first else f"{result.system.name}, {mode}"]
    speed = result.writes_per_second()
    cells.append(ratio(f"{speed:,.0f}", speed, base.writes_per_second() if base else None))
    for size, searches in zip(sizes, at, strict=True):
        p50 = searches.ms(50)
        reference = base.searches[AgentMemory.modes[0], size].ms(50) if base else None
        cells.append(ratio(f"{p50:.2f}", p50, reference))
    cells += [f"{searches.ms(95):.2f}" for searches in at]
    fresh, each = result.fresh[mode], result.bytes_each
    cells += [f"{fresh.ms(50):.2f}", f"{np.mean(fresh.found):.0%}"]
    cells += [f"{np.mean(searches.recalls):.3f}" for searches in at]
    reference = base.bytes_each if base else None
    cells.append("RAM" if each is None else ratio(f"{each:,.0f}", each, reference))
    return cells


def verdict(results: Sequence[Result], sizes: Sequence[int]) -> str:
    """Return whether AgentMemory is faster, in one sentence for writes and one for searches."""
    measured = [result for result in results if not result.failure]
    ours = [result for result in measured if isinstance(result.system, AgentMemory)]
    peers = [result for result in measured if not isinstance(result.system, AgentMemory)]
    if not ours or type(ours[0].system) is not AgentMemory:
        return "No verdict: AgentMemory was not measured."
    if not peers:
        return "No verdict: no peer was measured."

    def compare(what: str, pairs: list[tuple[str, float]]) -> str:
        """Each pair is another system, and how many times as fast AgentMemory is."""
        behind = [f"{name} ({times(factor)})" for name, factor in pairs if factor <= 1]
        if behind:
            return f"{what}: not ahead of {', '.join(behind)}"
        name, factor = min(pairs, key=lambda pair: pair[1])
        return f"{what}: ahead of all (nearest: {name}, {times(factor)})"

    said: list[str] = []
    for result in ours:
        speed = result.writes_per_second()
        on_disk = [peer for peer in peers if peer.system.on_disk]
        factors = [(peer.system.name, speed / peer.writes_per_second()) for peer in on_disk]
        if factors:
            unequal = "" if result.system.fsync else " (they fsync, it does not)"
            what = f"{result.system.name}, writes against stores on disk{unequal}"
            said.append(compare(what, factors))
        else:
            said.append("writes: no other store on disk was measured")
    for mode in ours[0].system.modes:
        factors = [
            (
                f"{peer.system.name} at {size:,}",
                peer.searches[peer.system.modes[0], size].ms(50) / ours[0].searches[mode, size].ms(50),
            )
            for peer in peers
            for size in sizes
        ]
        said.append(compare(f"search p50 ({mode})", factors))
    missing = [result.system.name for result in results if result.failure]
    if missing:
        said.append(f"not measured: {', '.join(missing)}")
    return "; ".join(said) + "."


def as_json(results: Sequence[Result], settings: dict[str, Any]) -> dict[str, Any]:
    """Return all figures, including the raw search times."""
    return {
        "settings": settings,
        "systems": [
            {
                "name": result.system.name,
                "version": result.system.version(),
                "note": result.system.note,
                "failure": result.failure,
                "on_disk": result.system.on_disk,
                "fsync": result.system.fsync,
                "writes_per_second": {
                    size: count / result.write_seconds[size] for size, count in result.writes.items()
                },
                "searches": [
                    {
                        "mode": mode,
                        "memories": size,
                        "p50_ms": searches.ms(50),
                        "p95_ms": searches.ms(95),
                        "recall_at_10": float(np.mean(searches.recalls)),
                        "seconds": searches.seconds,
                    }
                    for (mode, size), searches in result.searches.items()
                    if searches.recalls
                ],
                "right_after_a_write": [
                    {"mode": mode, "p50_ms": fresh.ms(50), "found": float(np.mean(fresh.found))}
                    for mode, fresh in result.fresh.items()
                    if fresh.found
                ],
                "bytes_each": result.bytes_each,
            }
            for result in results
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="300 and 1,000 memories, 60 searches")
    parser.add_argument("--timed-writes", type=int, default=1000, metavar="N", help="for each size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    options = parser.parse_args()
    if options.timed_writes < 1:
        parser.error(f"--timed-writes is {options.timed_writes}: use at least 1")
    sizes, queries, probes = ([300, 1000], 60, 20) if options.quick else ([1000, 10_000], 200, 100)
    try:
        from memory.embedding import WordLlamaEmbedder
    except ImportError as error:
        print(f"no shared embedder ({error}): pip install -e .", file=sys.stderr)
        return 2
    embedder = WordLlamaEmbedder()
    run = Run([kind() for kind in ALL_SYSTEMS], Corpus(embedder, sizes[-1], queries, probes))
    with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
        run.open(Path(folder), embedder)
        fsync = [fsync_ms(Path(folder))]
        for size in sizes:
            run.grow(size, options.timed_writes)
            run.search()
        run.probe()
        run.close()
        fsync.append(fsync_ms(Path(folder)))

    print(
        f"{len(AGENTS)} agents; {queries} searches of one agent's memories at each size, "
        f"top {TOP}; Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"an fsync takes {fsync[0]:.2f} ms before and {fsync[1]:.2f} ms after the run.\n"
        f"Timed writes: up to {options.timed_writes:,} to reach each size, one by one; "
        "the rest was filled in before, in batches.\n"
    )
    print(table(run.results, sizes))
    print(LEGEND)
    for result in run.results:
        if not result.failure:
            print(f"{result.system.name} {result.system.version()}: {result.system.note}")
    print("\n" + verdict(run.results, sizes))
    if options.json:
        settings = {
            "sizes": sizes,
            "queries": queries,
            "timed_writes": options.timed_writes,
            "fsync_ms": fsync,
        }
        options.json.write_text(json.dumps(as_json(run.results, settings), indent=1))
    return 1 if verdict(run.results, sizes).startswith("No verdict") else 0


if __name__ == "__main__":
    sys.exit(main())
