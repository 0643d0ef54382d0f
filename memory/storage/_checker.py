"""Checks a whole database: its structure, and every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from memory.errors import StoreError
from memory.storage._log_damage import damaged_logs
from memory.storage._reader import SQLiteReader
from memory.storage._rows import in_parts
from memory.storage.base import Row
from memory.storage.connections import Connections
from memory.storage.schema import AGENT_SHIFT, FORMAT_VERSION, SEQ_MASK, TIER_MASK, TIER_SHIFT, format_of

_MAX_STRUCTURE_PROBLEMS = 20
_ROWS_AT_ONCE = 200


class Checker:
    """The method `check` of `MemoryStore`, which documents it."""

    def __init__(
        self,
        path: Path | None,
        connections: Connections,
        reader: SQLiteReader,
        check_versions: Callable[[], None],
    ) -> None:
        """`check_versions` raises StoreError if the file of the versions can't be used."""
        self._check_versions = check_versions
        self._path = path
        self._connections = connections
        self._reader = reader

    def check(self, check_row: Callable[[Row], None]) -> tuple[int, list[str]]:
        problems: list[str] = []
        intact = 0
        for part in (self._versions, self._logs, self._structure, self._keys, self._tails, self._codecs):
            try:
                problems += part()
            except StoreError as problem:
                problems.append(str(problem))
        try:
            agents = self._reader.agents()
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
        found = self._connections.fetch(f"PRAGMA integrity_check({_MAX_STRUCTURE_PROBLEMS})")
        return [f"structure of the file: {line}" for (line,) in found if line != "ok"]

    def _keys(self) -> list[str]:
        (wrong,) = self._connections.fetch_one(
            f"SELECT COUNT(*) FROM memories WHERE key >> {AGENT_SHIFT} != agent"
            f" OR (key >> {TIER_SHIFT} & {TIER_MASK}) != tier OR agent NOT IN (SELECT no FROM agents)"
        )
        return [f"{wrong} memories have a key that does not fit their agent or tier"] if wrong else []

    def _tails(self) -> list[str]:
        """Check that only the rows of a tail are in no index; a file of an older format has no tail."""
        if self._connections.read(format_of) < FORMAT_VERSION:
            return []
        (wrong,) = self._connections.fetch_one(
            "SELECT COUNT(*) FROM memories LEFT JOIN agents ON no = agent"
            f" WHERE indexed != (tail IS NOT 1 OR tier != 0 OR key & {SEQ_MASK} <= last_seq)"
        )
        return [f"{wrong} memories are in no index, or in an index too early"] if wrong else []

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
