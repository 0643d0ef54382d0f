"""Checks a whole memory on a server: its counters, its codecs, and every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from memory.errors import StoreError
from memory.storage.base import Row
from memory.storage.postgres.pool import Pool
from memory.storage.postgres.reader import PostgresReader, key_of
from memory.storage.postgres.wire import Statement, in_parts, rows_of

_ROWS_AT_ONCE = 200
_COUNTERS = Statement(
    "SELECT coalesce(a.name, '?') FROM @agents a LEFT JOIN (SELECT agent, max(seq) AS last,"
    " count(*) FILTER (WHERE tier = 0) AS stm, count(*) FILTER (WHERE tier = 1) AS im,"
    " count(*) FILTER (WHERE tier = 2) AS ltm FROM @memories GROUP BY agent) m ON m.agent = a.no"
    " WHERE a.last_seq < coalesce(m.last, 0) OR a.stm <> coalesce(m.stm, 0) OR a.im <> coalesce(m.im, 0)"
    " OR a.ltm <> coalesce(m.ltm, 0) OR (a.name IS NULL) <> (m.agent IS NULL)"
)
_STRAY = Statement("SELECT count(*) FROM @memories WHERE agent NOT IN (SELECT no FROM @agents)")
_SEQS = Statement(
    "SELECT seq FROM @memories WHERE agent = (SELECT no FROM @agents WHERE key = $1) ORDER BY seq", "b"
)


class Checker:
    """The method `check` of `MemoryStore`, which documents it."""

    def __init__(self, pool: Pool, reader: PostgresReader) -> None:
        self._pool = pool
        self._reader = reader

    def check(self, check_row: Callable[[Row], None]) -> tuple[int, list[str]]:
        counters = rows_of(self._pool.read(lambda wire: wire.run(_COUNTERS)), "t")
        problems = [f"agent {name!r}: its counters do not fit its memories" for (name,) in counters]
        ((stray,),) = rows_of(self._pool.read(lambda wire: wire.run(_STRAY)), "q")
        if stray:
            problems.append(f"{stray} memories belong to no agent")
        problems += [
            f"codec {codec.number} ({codec.purpose}) is damaged"
            for codec in self._reader.codecs()
            if codec.is_damaged
        ]
        intact = 0
        for agent in self._reader.agents():
            for problem in self._rows(agent, check_row):
                if problem is None:
                    intact += 1
                else:
                    problems.append(problem)
        return intact, list(dict.fromkeys(problems))

    def _rows(self, agent: str, check_row: Callable[[Row], None]) -> Iterator[str | None]:
        """Yield for each memory of an agent what is wrong with it, or None."""
        key = key_of(agent)
        seqs = [seq for (seq,) in rows_of(self._pool.read(lambda wire: wire.run(_SEQS, key)), "q")]
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
