"""Checks a whole database: its structure, and every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from memory.errors import StoreError
from memory.storage._completeness import Completeness
from memory.storage._log_damage import damaged_logs
from memory.storage._reader import SQLiteReader
from memory.storage._rows import in_parts
from memory.storage.base import Row
from memory.storage.connections import Connections
from memory.storage.schema import AGENT_SHIFT, SEQ_MASK

_MAX_STRUCTURE_PROBLEMS = 20
_ROWS_AT_ONCE = 200


class Checker:
    """The method `check` of `MemoryStore`, which documents it."""

    def __init__(
        self,
        path: Path | None,
        connections: Connections,
        reader: SQLiteReader,
        completeness: Completeness,
        check_versions: Callable[[], None],
    ) -> None:
        """`check_versions` raises StoreError if the file of the versions can't be used."""
        self._check_versions = check_versions
        self._path = path
        self._connections = connections
        self._reader = reader
        self._completeness = completeness

    def check(self, check_row: Callable[[Row], None]) -> tuple[int, list[str]]:
        problems: list[str] = []
        intact = 0
        for part in (self._versions, self._logs, self._structure, self._tables, self._codecs):
            try:
                problems += part()
            except StoreError as problem:
                problems.append(str(problem))
        try:
            agents = self._reader.named_agents()
        except StoreError as problem:
            return 0, [*problems, str(problem)]
        for agent in agents:
            try:
                for problem_of_row in self._rows(agent, check_row):
                    if problem_of_row is None:
                        intact += 1
                    else:
                        problems.append(problem_of_row)
            except StoreError as problem:
                problems.append(f"agent {agent!r}: {problem}")
        return intact, list(dict.fromkeys(problems))

    def _versions(self) -> list[str]:
        # Its content is not checked: it has random numbers only. A wrong number makes caches stale.
        self._check_versions()
        return []

    def _logs(self) -> list[str]:
        logs = [] if self._path is None else damaged_logs(self._path)
        return [
            f"{log} is a damaged log whose last commits are lost: delete it to accept that" for log in logs
        ]

    def _structure(self) -> list[str]:
        found = self._completeness.structure_problems(_MAX_STRUCTURE_PROBLEMS)
        return [f"structure of the file: {line}" for line in found]

    def _tables(self) -> list[str]:
        return self._completeness.table_problems()

    def _codecs(self) -> list[str]:
        return [
            f"codec {codec.number} ({codec.purpose}) is damaged"
            for codec in self._reader.codecs()
            if codec.is_damaged
        ]

    def _rows(self, agent: str, check_row: Callable[[Row], None]) -> Iterator[str | None]:
        """Yield for each memory of an agent what is wrong with it, or None."""
        seqs = [
            key & SEQ_MASK
            for (key,) in self._connections.fetch(
                "SELECT key FROM memories"
                f" WHERE key >= (SELECT no << {AGENT_SHIFT} FROM agents WHERE name = ?)"
                f" AND key < (SELECT (no + 1) << {AGENT_SHIFT} FROM agents WHERE name = ?)",
                (agent, agent),
            )
        ]
        for part in in_parts(seqs, _ROWS_AT_ONCE):
            try:
                groups = [self._reader.rows(agent, part)]
            except StoreError:  # one of them is damaged: find out which
                groups = []
                for seq in part:
                    try:
                        groups.append(self._reader.rows(agent, [seq]))
                    except StoreError as problem:
                        yield f"agent {agent!r}: {problem}"
            for row in (row for rows in groups for row in rows):
                try:
                    check_row(row)
                    yield None
                except StoreError as problem:
                    yield f"agent {agent!r}, memory {row.id!r}: {problem}"
