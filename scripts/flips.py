"""Change one byte in the files of a memory and count what goes wrong in silence: `make flips`.

    python scripts/flips.py [--flips 1000] [--seed 1] [--only log]

Each trial copies a memory with all tiers, dictionaries, a fitted vector codec and saved search indexes,
changes one byte in one of its files, and uses the memory in a child process. It reads everything in every
way: by id, by ids, by search, by time, by step, by attribute, newest first, by counts, by the list of
agents, and by an export. Then it stores a memory, stores known ones again, checks, maintains, and reads
everything once more; a second child opens the memory and reads everything again. The byte lies in the
database (closed, or left by a killed process), in the log of a killed process, in the file of versions, in
a dictionary, in a vector codec, in a saved search index, or in the structure of the database: headers and
pointers of pages, starts of rows, and whole indexes.

An error of `memory.errors` is a good answer, a wrong memory is not. What counts as a failure:

    wrong      a memory with another content or another field was returned, or a deleted one
    missing    a call returned without an error, and without a memory that it should return. A warning
               that names the damaged log excuses the memories that were only in the log
    foreign    an exception that is not from `memory.errors`
    hang       no result within 30 seconds
    crash      the process died

Exit code 0: no failures. Exit code 1: there were some; the lines say which bytes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import select
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from _small_memory import open_small

from memory import AgentMemorySystem
from memory.errors import AgentMemoryError, IdConflict

TARGETS = ("database", "log", "pulse", "dictionary", "codec", "index", "structure")
_FILES = {"log": "memory.db-wal", "pulse": "memory.db-pulse", "index": "memory.db-index/1.index"}
_LIMIT_SECONDS = 30.0
_MEMORIES = 240
_IN_LOG = 60
_DELETED = 10
"""Memories that are stored and deleted before the first flip."""
_PAGE = 4096
_TABLE_LEAF, _INDEX_PAGES = 13, (2, 10)
"""Types of pages: https://sqlite.org/fileformat2.html#b_tree_pages."""
_CELL_START_BYTES = 12
"""Of a cell in a table: the size of the row, its key, and the first types of its values."""
_WORDS = ("weather", "garden", "kitchen", "letter", "morning", "station", "window", "coffee", "winter")
_AGENTS = ("ann", "bob")
_FAILURES = ("wrong", "missing", "foreign", "hang", "crash")

Stored = dict[tuple[str, str], dict[str, Any]]
"""The memories that must be there, by agent and id."""


def _new_memory(number: int, chance: random.Random) -> dict[str, Any]:
    words = chance.choices(_WORDS, k=chance.choice((3, 10, 40, 400)))
    return {
        "agent_id": chance.choice(_AGENTS),
        "content": f"unique{number}word " + " ".join(words),
        "id": f"id-{number}",
        "kind": chance.choice(("text", "note")),
        "step": chance.choice((None, number)),
        "metadata": {"speaker": chance.choice(_WORDS), "number": number},
        "importance": float(number % 7),
        "timestamp": 1.7e9 + number,
    }


class Flips:
    """The experiment: a memory, and trials with a copy of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.model = folder / "killed"
        self.model.mkdir()
        self.closed = folder / "closed"
        """The same memory, closed: everything is in the database."""
        self.memories = [_new_memory(number, self.random) for number in range(_MEMORIES)]
        self._fill()
        self.stored: Stored = {(one["agent_id"], one["id"]): one for one in self.memories}
        self._add_what_exports_show()
        self.only_in_log = {one["id"] for one in self.memories[-_IN_LOG:]}
        content = (self.closed / "memory.db").read_bytes()
        self.offsets = {
            "dictionary": self._offsets_of("purpose LIKE 'content%' OR purpose LIKE 'search terms%'"),
            "codec": self._offsets_of("purpose LIKE '%vectors%'"),
            "structure": list(_structure_of(content)),
        }
        self.trials = 0
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []

    def _fill(self) -> None:
        """Make the model: the last memories are only in the log of a process that was killed."""
        pid = os.fork()
        if pid == 0:
            try:
                memory = open_small(self.model / "memory.db")
                stored = self.memories[: _MEMORIES - _IN_LOG]
                memory.add_many(stored[:120])
                memory.force_consolidation()
                memory.maintain()
                memory.add_many(stored[120:150])
                memory.force_transition_to_im()
                extra = [_new_memory(number, self.random) for number in range(1000, 1000 + _DELETED)]
                memory.add_many([*stored[150:], *extra])
                for one in extra:
                    memory.delete(one["agent_id"], one["id"])
                memory._store._connections.checkpoint()
                for one in self.memories[_MEMORIES - _IN_LOG :]:
                    memory.add(**one)
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                traceback.print_exc()
                os._exit(1)
        os.waitpid(pid, 0)
        with sqlite3.connect(f"file:{self.model}/memory.db?mode=ro&immutable=1", uri=True) as connection:
            purposes = [purpose for (purpose,) in connection.execute("SELECT purpose FROM codecs")]
        assert len(purposes) == 4, purposes  # one of them is reserved
        shutil.copytree(self.model, self.closed)
        pid = os.fork()
        if pid == 0:
            try:
                memory = open_small(self.closed / "memory.db")
                memory.export_jsonl(self.folder / "intact.jsonl")
                memory.close()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert not (self.closed / "memory.db-wal").exists()

    def _add_what_exports_show(self) -> None:
        """Add to the stored memories the fields that only an export returns."""
        for line in _exported(self.folder / "intact.jsonl"):
            stored = self.stored[line["agent_id"], line["id"]]
            stored |= {"stored_at": line["stored_at"], "dated": line["dated"]}
        assert all("dated" in one for one in self.stored.values())

    def _offsets_of(self, condition: str) -> list[int]:
        """Return where bytes of codecs lie in the database. Long values are split into pages."""
        content = (self.closed / "memory.db").read_bytes()
        connection = sqlite3.connect(f"file:{self.closed}/memory.db?mode=ro&immutable=1", uri=True)
        found = [data for (data,) in connection.execute(f"SELECT data FROM codecs WHERE {condition}")]
        connection.close()
        offsets = []
        for data in found:
            for start in range(0, len(data) - 16, 16):
                place = content.find(data[start : start + 16])
                if place >= 0:
                    offsets += range(place, place + 16)
        return offsets

    def trial(self, target: str) -> None:
        """Flip one byte and use the memory in two child processes."""
        folder = self.folder / "trial"
        self.trials += 1
        is_closed = target in self.offsets or (target == "database" and self.trials % 2)
        shutil.copytree(self.closed if is_closed else self.model, folder)
        try:
            name = _FILES.get(target, "memory.db")
            content = bytearray((folder / name).read_bytes())
            if target in self.offsets:
                place = self.random.choice(self.offsets[target])
            else:
                place = self.random.randrange(len(content))
            flip = self.random.choice((1, 2, 4, 8, 16, 32, 64, 128, self.random.randrange(1, 256)))
            content[place] ^= flip
            (folder / name).write_bytes(content)
            result = self._in_child(lambda: self._use(folder))
            if result["outcome"] not in _FAILURES:
                again = self._in_child(lambda: self._use_again(folder, result["in log"]))
                if again["outcome"] in _FAILURES:
                    result = again | {"detail": f"opened again: {again['detail']}"}
        finally:
            shutil.rmtree(folder)
        self.outcomes[f"{target}: {result['outcome']}"] += 1
        if result["outcome"] in _FAILURES:
            where = f"{name} byte {place} (page {place // _PAGE + 1}, {place % _PAGE}) ^ {flip}"
            state = "closed" if is_closed else "killed"
            self.failures.append(f"{result['outcome']}: {state} {where}: {result['detail']}")

    def _in_child(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            try:
                os.write(writing, json.dumps(work()).encode()[:60_000])
            finally:
                os._exit(0)
        os.close(writing)
        try:
            ready, _, _ = select.select([reading], [], [], _LIMIT_SECONDS)
            if not ready:
                return {"outcome": "hang", "detail": ""}
            answer = os.read(reading, 65_536)
        finally:
            os.close(reading)
            if not ready:
                os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
        if not answer:
            return {"outcome": "crash", "detail": f"status {status}"}
        result: dict[str, Any] = json.loads(answer)
        return result

    def _use(self, folder: Path) -> dict[str, Any]:
        """Use a damaged memory. Return the outcome and its details."""
        warnings = _Warnings()
        use = _Use(self.stored)
        report = None
        try:
            memory = use.attempt(lambda: open_small(folder / "memory.db", busy_timeout_seconds=5))
            if memory is None:
                return {"outcome": "refused", "detail": str(use.errors), "in log": False}
            in_log = warnings.name_the_log()
            use.may_lack = self.only_in_log if in_log else set()
            use.read_all(memory, folder)
            report = use.attempt(memory.check)
            use.write(memory)
            use.attempt(memory.maintain)
            use.read_all(memory, folder)
            use.attempt(memory.close)
        except Exception:
            return {"outcome": "foreign", "detail": traceback.format_exc(limit=-4)}
        return use.outcome(report is None or not report.ok) | {"in log": in_log}

    def _use_again(self, folder: Path, in_log: bool) -> dict[str, Any]:
        """Open a memory that was damaged and used, and read it."""
        _Warnings()
        use = _Use(self.stored)
        use.may_lack = self.only_in_log if in_log else set()
        use.may_have_new = True
        try:
            memory = use.attempt(lambda: open_small(folder / "memory.db", busy_timeout_seconds=5))
            if memory is not None:
                use.read_all(memory, folder)
                use.attempt(memory.close)
        except Exception:
            return {"outcome": "foreign", "detail": traceback.format_exc(limit=-4)}
        return use.outcome(False)


class _Use:
    """Calls of a damaged memory, and what they returned."""

    def __init__(self, stored: Stored) -> None:
        self.stored = dict(stored)
        self.errors: list[str] = []
        self.wrong: set[str] = set()
        self.missing: set[str] = set()
        self.may_lack: set[str] = set()
        """Ids of memories that may be missing without an error, because a warning named them."""
        self.may_have_new = False
        """Whether the memories of `write` may be there."""

    def attempt(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call; None if it raised an error of the package."""
        try:
            return call()
        except AgentMemoryError as problem:
            self.errors.append(f"{type(problem).__name__}: {problem}")
            return None

    def read_all(self, memory: AgentMemorySystem, folder: Path) -> None:
        """Read all memories in every way."""
        for agent in _AGENTS:
            self._read_agent(memory, agent)
        agents = self.attempt(memory.agents)
        if agents is not None and set(agents) != set(_AGENTS) and not self.may_lack:
            self.missing.add(f"agents: {agents}")
        for agent in (*_AGENTS, None):
            self._count(memory, agent)
        file = folder / "export.jsonl"
        file.unlink(missing_ok=True)
        if self.attempt(lambda: memory.export_jsonl(file)) is not None:
            self._complete("export", {(line["agent_id"], line["id"]) for line in _exported(file)})
        for line in _exported(file) if file.exists() else ():
            self._compare("export", line)

    def _read_agent(self, memory: AgentMemorySystem, agent: str) -> None:
        own = {id: one for (owner, id), one in self.stored.items() if owner == agent}
        lists: dict[str, Callable[[], Sequence[Any]]] = {
            "get_many": lambda: [entry for entry in memory.get_many(agent, list(own)) if entry],
            "recent": lambda: memory.recent(agent, 10_000),
            "time range": lambda: memory.retrieve_by_time_range(agent, 0, 2e10),
            "attributes": lambda: [
                entry
                for kind in ("text", "note")
                for entry in memory.retrieve_by_attributes(agent, {"kind": kind})
            ],
        }
        for call, read in lists.items():
            entries = self.attempt(read)
            self._compare_all(call, agent, own, entries)
        steps = {id: one for id, one in own.items() if one["step"] is not None}
        found = self.attempt(lambda: memory.retrieve_by_step_range(agent, 0, 10**6))
        self._compare_all("step range", agent, steps, found)
        for id, one in own.items():
            before = len(self.errors)
            entry = self.attempt(lambda id=id: memory.get(agent, id))
            if len(self.errors) == before:
                self._compare_all("get", agent, {id: one}, [entry] if entry else [])
            word = one["content"].split()[0]
            hits = self.attempt(lambda word=word: memory.search(agent, word, k=3))
            if hits is not None:
                entries = [hit.entry for hit in hits]
                self._compare_all("search", agent, {id: one}, entries)

    def _compare_all(
        self, call: str, agent: str, own: dict[str, dict[str, Any]], entries: Sequence[Any] | None
    ) -> None:
        """Compare entries with what is stored, and note which of `own` are missing among them."""
        if entries is None:
            return
        for entry in entries:
            self._compare(call, msgspec.structs.asdict(entry))
        missing = own.keys() - {entry.id for entry in entries} - self.may_lack
        self.missing |= {f"{call}: {agent} {id}" for id in missing}

    def _complete(self, call: str, found: set[tuple[str, str]]) -> None:
        self.missing |= {
            f"{call}: {agent} {id}" for agent, id in self.stored.keys() - found if id not in self.may_lack
        }

    def _count(self, memory: AgentMemorySystem, agent: str | None) -> None:
        statistics = self.attempt(lambda: memory.get_memory_statistics(agent))
        if statistics is None:
            return
        own = [id for owner, id in self.stored if agent in (None, owner)]
        least = len([id for id in own if id not in self.may_lack])
        most = len(own) + (3 if self.may_have_new else 0)
        if not least <= statistics["total"] <= most:
            self.missing.add(f"statistics of {agent}: {statistics['total']} of {len(own)}")

    def write(self, memory: AgentMemorySystem) -> None:
        """Store new memories, and known ones again."""
        for agent in _AGENTS:
            new = {"agent_id": agent, "id": "new", "content": "newword after the damage"}
            new |= {"kind": "text", "step": None, "metadata": {}, "importance": 1.0, "timestamp": 1.8e9}
            for stored in (new, next(one for one in self.stored.values() if one["agent_id"] == agent)):
                given = {name: stored[name] for name in new}
                try:
                    memory.add(**given)
                except IdConflict as problem:
                    self.wrong.add(str(problem))
                except AgentMemoryError as problem:
                    self.errors.append(f"{type(problem).__name__}: {problem}")
                    continue
                self.stored[agent, stored["id"]] = stored

    def _compare(self, call: str, entry: dict[str, Any]) -> None:
        stored = self.stored.get((entry["agent_id"], entry["id"]))
        if stored is None:
            if not (self.may_have_new and entry["id"] == "new"):
                self.wrong.add(f"{call} returned unknown {entry['agent_id']!r}, {entry['id']!r}")
            return
        for field in ("content", "kind", "step", "metadata", "importance", "stored_at", "dated"):
            if field in entry and field in stored and entry[field] != stored[field]:
                self.wrong.add(f"{call}: {field} of {entry['id']} is {entry[field]!r}"[:300])
        if entry["created_at"] != stored["timestamp"]:
            self.wrong.add(f"{call}: created_at of {entry['id']} is {entry['created_at']!r}")

    def outcome(self, is_reported: bool) -> dict[str, Any]:
        """Return what the calls amount to."""
        if self.wrong:
            return {"outcome": "wrong", "detail": "; ".join(sorted(self.wrong)[:3])}
        if self.missing:
            return {"outcome": "missing", "detail": f"{len(self.missing)}: {sorted(self.missing)[:5]}"}
        if self.errors:
            return {"outcome": "named errors", "detail": self.errors[0]}
        if self.may_lack:
            return {"outcome": "the log is named in a warning", "detail": ""}
        return {"outcome": "reported by check()" if is_reported else "no effect", "detail": ""}


def _exported(file: Path) -> list[dict[str, Any]]:
    """Return the memories of an export."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in lines if "content" in line]


def _structure_of(content: bytes) -> Iterator[int]:
    """Yield where the structure of a database lies: headers, pointers, starts of cells, whole indexes."""
    yield from range(100)
    for page in range(0, len(content), _PAGE):
        start = page + (100 if page == 0 else 0)
        kind = content[start]
        if kind not in (_TABLE_LEAF, 5, *_INDEX_PAGES):
            continue
        header = 8 if kind in (_TABLE_LEAF, 10) else 12
        cells = int.from_bytes(content[start + 3 : start + 5], "big")
        pointers = range(start + header, start + header + 2 * cells)
        yield from range(start, start + header)
        yield from pointers
        for pointer in pointers[::2]:
            cell = page + int.from_bytes(content[pointer : pointer + 2], "big")
            if cell + _CELL_START_BYTES < len(content):
                length = 40 if kind in _INDEX_PAGES else _CELL_START_BYTES
                yield from range(cell, min(cell + length, page + _PAGE))


class _Warnings(logging.Handler):
    """Keeps the warnings of the memory."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("memory").addHandler(self)
        logging.getLogger("memory").propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def name_the_log(self) -> bool:
        """Return whether a warning says that the log is damaged or was moved aside."""
        return any("-wal" in line for line in self.lines)


def run(
    folder: Path,
    flips: int,
    seed: int,
    targets: tuple[str, ...] = TARGETS,
    tell: Callable[[int, Flips], None] = lambda number, experiment: None,
) -> Flips:
    """Run trials of all targets in turns; call `tell` after each."""
    experiment = Flips(folder, seed)
    for number in range(flips):
        experiment.trial(targets[number % len(targets)])
        tell(number + 1, experiment)
    return experiment


def _print_progress(number: int, experiment: Flips) -> None:
    """Print a line every 50 flips, so that a run that is stopped has told something."""
    if number % 50 == 0:
        print(
            f"{number} flips: {len(experiment.failures)} failures",
            *experiment.failures,
            sep="\n  ",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="flip bytes in the files of a memory")
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=TARGETS, action="append")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        experiment = run(
            Path(folder), options.flips, options.seed, tuple(options.only or TARGETS), _print_progress
        )
    for outcome, count in sorted(experiment.outcomes.items()):
        print(f"{count:5} {outcome}")
    for failure in experiment.failures:
        print(failure)
    seconds = time.monotonic() - start
    print(f"{options.flips} flips in {seconds:.0f} s: {len(experiment.failures)} failures")
    sys.exit(1 if experiment.failures else 0)


if __name__ == "__main__":
    main()
