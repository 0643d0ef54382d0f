"""sqlite-vec: vectors in a `vec0` table beside the rows, in one SQLite file.

The agent is the partition key of the `vec0` table, sqlite-vec's way to search one user's vectors only.
Search is exact: sqlite-vec scans the agent's vectors. SQLite has its own durable settings: WAL and
`synchronous=FULL`. Where Python's sqlite3 can't load extensions, pysqlite3 takes its place.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS memories (
    number INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, content TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_agent ON memories (agent);
CREATE VIRTUAL TABLE IF NOT EXISTS vectors USING vec0 (
    number INTEGER PRIMARY KEY,
    agent TEXT PARTITION KEY, vector FLOAT[{dimensions}] distance_metric=cosine);
"""


class SQLiteVecTarget(Target):
    name = "sqlite-vec"
    requirements = ("sqlite-vec>=0.1.6", "pysqlite3-binary>=0.5; sys_platform == 'linux'")
    capabilities = Capabilities(durability="machine", max_k=4096, vector_queries=True)
    limits = (
        "Search scans all vectors of an agent, for at most 4,096 hits. Every agent takes space for 1,024 "
        "vectors at once, so many small agents need much disk."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        import sqlite_vec

        path = str(folder / "memories.db")
        self._db: Any = _sqlite().connect(path, isolation_level=None, check_same_thread=False)
        self._db.enable_load_extension(True)
        sqlite_vec.load(self._db)
        self._db.enable_load_extension(False)
        self._db.executescript(_TABLES.format(dimensions=self.dimensions))

    def close(self) -> None:
        self._db.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        if not items:
            return []
        vectors = self.embed([item.content for item in items])
        numbers = []
        with self._transaction():
            for item, vector in zip(items, vectors, strict=True):
                row = self._db.execute(
                    "INSERT INTO memories (agent, content) VALUES (?, ?)",
                    (item.agent_id, json.dumps(item.content)),
                )
                numbers.append(row.lastrowid)
                self._db.execute(
                    "INSERT INTO vectors (number, agent, vector) VALUES (?, ?, ?)",
                    (row.lastrowid, item.agent_id, vector.tobytes()),
                )
        return [str(number) for number in numbers]

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return [self.get_one(agent_id, id_) for id_ in ids]

    def get_one(self, agent_id: str, id: str) -> Any:
        row = self._db.execute(
            "SELECT content FROM memories WHERE number = ? AND agent = ?", (id, agent_id)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        rows = self._db.execute(
            "WITH nearest AS (SELECT number, distance FROM vectors"
            " WHERE vector MATCH ? AND k = ? AND agent = ?)"
            " SELECT number, distance, content FROM nearest JOIN memories USING (number) ORDER BY distance",
            (vector.tobytes(), k, agent_id),
        ).fetchall()
        return [
            Found(str(number), 1.0 - distance, json.loads(content)) for number, distance, content in rows
        ]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        vector = self.embed([content])[0].tobytes()
        with self._transaction():
            changed = self._db.execute(
                "UPDATE memories SET content = ? WHERE number = ? AND agent = ? RETURNING number",
                (json.dumps(content), id, agent_id),
            ).fetchall()
            for (number,) in changed:
                self._db.execute("UPDATE vectors SET vector = ? WHERE number = ?", (vector, number))
        return bool(changed)

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        return self._delete("number = ? AND agent = ?", [(id_, agent_id) for id_ in ids])

    def delete_all(self, agent_id: str) -> int:
        return self._delete("agent = ?", [(agent_id,)])

    def _delete(self, where: str, values: Sequence[tuple[str, ...]]) -> int:
        with self._transaction():
            numbers = [
                row
                for value in values
                for row in self._db.execute(
                    f"DELETE FROM memories WHERE {where} RETURNING number", value
                ).fetchall()
            ]
            self._db.executemany("DELETE FROM vectors WHERE number = ?", numbers)
        return len(numbers)

    def count(self) -> dict[str, int]:
        return {WHOLE: int(self._db.execute("SELECT count(*) FROM memories").fetchone()[0])}

    def maintain(self) -> None:
        """Return free pages to the file system, and empty the log."""
        self._db.executescript("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise


def _sqlite() -> Any:
    """Return a sqlite3 module that can load extensions; Python's own often can't."""
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    import pysqlite3

    return pysqlite3
