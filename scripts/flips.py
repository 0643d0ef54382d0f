"""Change one byte in the files of a memory and count what goes wrong in silence: `make flips`.

    python scripts/flips.py [--flips 1000] [--seed 1] [--only log]

Each trial copies a memory with all tiers, dictionaries and a fitted vector codec, changes one byte in
one of its files, and uses the memory in a child process: it reads every memory with `get`, searches, lists,
checks, maintains, exports, and reads every memory again. The byte lies in the database (closed, or left by
a killed process), in the log of a killed process, in the file of versions, in a dictionary or in a vector
codec, in turns.

An error of `memory.errors` is a good answer, a wrong memory is not. What counts as a failure:

    wrong      a memory with another content or another field was returned
    missing    a memory was not found, `check()` reported nothing, and no warning named the damaged log
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _small_memory import open_small

from memory import AgentMemorySystem
from memory.errors import AgentMemoryError

TARGETS = ("database", "log", "pulse", "dictionary", "codec", "index")
_FILES = {"log": "memory.db-wal", "pulse": "memory.db-pulse", "index": "memory.db-index/1.index"}
_LIMIT_SECONDS = 30.0
_MEMORIES = 240
_IN_LOG = 60
_PAGE = 4096
_WORDS = ("weather", "garden", "kitchen", "letter", "morning", "station", "window", "coffee", "winter")
_FAILURES = ("wrong", "missing", "foreign", "hang", "crash")


def _new_memory(number: int, chance: random.Random) -> dict[str, Any]:
    words = chance.choices(_WORDS, k=chance.choice((3, 10, 40, 400)))
    return {
        "agent_id": chance.choice(("ann", "bob")),
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
        self.offsets = {
            "dictionary": self._offsets_of("purpose LIKE 'content%' OR purpose LIKE 'search terms%'"),
            "codec": self._offsets_of("purpose LIKE '%vectors%'"),
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
                memory.add_many(stored[150:])
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
                open_small(self.closed / "memory.db").close()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert not (self.closed / "memory.db-wal").exists()

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
        """Flip one byte and use the memory in a child process."""
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
            result = self._in_child(folder)
        finally:
            shutil.rmtree(folder)
        self.outcomes[f"{target}: {result['outcome']}"] += 1
        if result["outcome"] in _FAILURES:
            where = f"{name} byte {place} (page {place // _PAGE + 1}, {place % _PAGE}) ^ {flip}"
            self.failures.append(f"{result['outcome']}: {where}: {result['detail']}")

    def _in_child(self, folder: Path) -> dict[str, str]:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            try:
                os.write(writing, json.dumps(self._use(folder)).encode()[:60_000])
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
        result: dict[str, str] = json.loads(answer)
        return result

    def _use(self, folder: Path) -> dict[str, str]:
        """Use a damaged memory. Return the outcome and its details."""
        warnings = _Warnings()
        logging.getLogger("memory").addHandler(warnings)
        logging.getLogger("memory").propagate = False
        use = _Use(self.memories)
        try:
            memory = use.attempt(lambda: open_small(folder / "memory.db", busy_timeout_seconds=5))
            if memory is None:
                return {"outcome": "refused", "detail": str(use.errors)}
            use.read_all(memory)
            report = use.attempt(memory.check)
            is_noticed = report is None or not report.ok or any("log" in line for line in warnings.lines)
            use.attempt(memory.maintain)
            use.attempt(lambda: memory.export_jsonl(folder / "export.jsonl"))
            use.read_all(memory)
            use.attempt(memory.close)
        except Exception:
            return {"outcome": "foreign", "detail": traceback.format_exc(limit=-4)}
        if use.wrong:
            return {"outcome": "wrong", "detail": "; ".join(sorted(use.wrong)[:3])}
        if use.missing:
            outcome = "reported by check() or a warning" if is_noticed else "missing"
            return {"outcome": outcome, "detail": f"{len(use.missing)} memories: {sorted(use.missing)[:3]}"}
        if use.errors:
            return {"outcome": "named errors", "detail": ""}
        return {"outcome": "no effect" if report is not None and report.ok else "reported", "detail": ""}


class _Use:
    """Calls of a damaged memory, and what they returned."""

    def __init__(self, memories: list[dict[str, Any]]) -> None:
        self.memories = {(one["agent_id"], one["id"]): one for one in memories}
        self.errors: list[str] = []
        self.wrong: set[str] = set()
        self.missing: set[str] = set()

    def attempt(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call; None if it raised an error of the package."""
        try:
            return call()
        except AgentMemoryError as problem:
            self.errors.append(f"{type(problem).__name__}: {problem}")
            return None

    def read_all(self, memory: AgentMemorySystem) -> None:
        for agent, id in self.memories:
            before = len(self.errors)
            entry = self.attempt(lambda agent=agent, id=id: memory.get(agent, id))
            if entry is not None:
                self._compare("get", entry)
            elif len(self.errors) == before:
                self.missing.add(id)
        for agent in ("ann", "bob"):
            own = [one for one in self.memories.values() if one["agent_id"] == agent]
            before = len(self.errors)
            for entry in self.attempt(lambda agent=agent: memory.recent(agent, 10_000)) or ():
                self._compare("recent", entry)
            for one in own[:: len(own) // 12]:
                word = one["content"].split()[0]
                hits = self.attempt(lambda agent=agent, word=word: memory.search(agent, word, k=3))
                for hit in hits or ():
                    self._compare("search", hit.entry)
                if hits is not None and one["id"] not in {hit.id for hit in hits}:
                    self.missing.add(one["id"])

    def _compare(self, call: str, entry: Any) -> None:
        stored = self.memories.get((entry.agent_id, entry.id))
        if stored is None:
            self.wrong.add(f"{call} returned unknown {entry.agent_id!r}, {entry.id!r}")
            return
        for field in ("content", "kind", "step", "metadata", "importance"):
            if getattr(entry, field) != stored[field]:
                self.wrong.add(f"{call}: {field} of {entry.id} is {getattr(entry, field)!r}"[:300])
        if entry.created_at != stored["timestamp"]:
            self.wrong.add(f"{call}: created_at of {entry.id} is {entry.created_at!r}")


class _Warnings(logging.Handler):
    """Keeps the warnings of the memory."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def run(folder: Path, flips: int, seed: int, targets: tuple[str, ...] = TARGETS) -> Flips:
    """Run trials of all targets in turns."""
    experiment = Flips(folder, seed)
    for number in range(flips):
        experiment.trial(targets[number % len(targets)])
    return experiment


def main() -> None:
    parser = argparse.ArgumentParser(description="flip bytes in the files of a memory")
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=TARGETS, action="append")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        experiment = run(Path(folder), options.flips, options.seed, tuple(options.only or TARGETS))
    for outcome, count in sorted(experiment.outcomes.items()):
        print(f"{count:5} {outcome}")
    for failure in experiment.failures:
        print(failure)
    seconds = time.monotonic() - start
    print(f"{options.flips} flips in {seconds:.0f} s: {len(experiment.failures)} failures")
    sys.exit(1 if experiment.failures else 0)


if __name__ == "__main__":
    main()
