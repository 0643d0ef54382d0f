"""Rows in SQLite and a vector index in RAM for each agent: what an engineer writes around an index library.

SQLite has the truth: a write is acknowledged when its transaction is synced. The indexes are saved by
`maintain` and `close`. The table `unsaved` names the rows that changed since an agent's index was saved, so
an index is loaded and brought up to date from the rows; a crash loses nothing. Subclasses are one index
library each: `usearch.py`, `faiss.py`.
"""

from __future__ import annotations

import json
import os
import sqlite3
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from memory.benchmarking.targets.base import WHOLE, Found, Item, Settings, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS memories (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL, content TEXT NOT NULL, vector BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS by_agent ON memories (agent);
CREATE TABLE IF NOT EXISTS unsaved (agent TEXT, number INTEGER, PRIMARY KEY (agent, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS saved_indexes (agent TEXT PRIMARY KEY, file TEXT NOT NULL) WITHOUT ROWID;
"""


class IndexedRowsTarget(Target):
    @abstractmethod
    def new_index(self) -> Any: ...

    @abstractmethod
    def insert(self, index: Any, numbers: NDArray[np.int64], vectors: NDArray[np.float32]) -> None: ...

    @abstractmethod
    def remove(self, index: Any, numbers: NDArray[np.int64]) -> None:
        """Remove vectors from an index; unknown numbers are ignored."""

    @abstractmethod
    def nearest(self, index: Any, vector: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """Return numbers and scores, the best first."""

    @abstractmethod
    def save(self, index: Any, path: str) -> None: ...

    @abstractmethod
    def load(self, path: str) -> Any: ...

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        self._folder = folder
        self._db = sqlite3.connect(folder / "rows.db", isolation_level=None, check_same_thread=False)
        self._db.executescript(_TABLES)
        self._open = True
        self._indexes: dict[str, Any] = {}
        saved = {file for (file,) in self._db.execute("SELECT file FROM saved_indexes")}
        for path in folder.glob("*.index"):
            if path.name not in saved:  # a crash between saving and committing
                path.unlink()

    def close(self) -> None:
        if self._open:
            self._save_indexes()
            self._indexes.clear()
            self._db.close()
        self._open = False

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        if not items:
            return []
        vectors = self.embed([item.content for item in items])
        rows_by_agent: dict[str, list[int]] = {}
        for row, item in enumerate(items):
            rows_by_agent.setdefault(item.agent_id, []).append(row)
        indexes = {agent: self._index(agent) for agent in rows_by_agent}
        numbers = [0] * len(items)
        with self._transaction():
            for row, item in enumerate(items):
                inserted = self._db.execute(
                    "INSERT INTO memories (agent, content, vector) VALUES (?, ?, ?)",
                    (item.agent_id, json.dumps(item.content), vectors[row].tobytes()),
                )
                numbers[row] = inserted.lastrowid or 0
                self._mark_unsaved(item.agent_id, numbers[row])
        for agent, rows in rows_by_agent.items():
            self.insert(indexes[agent], _array([numbers[row] for row in rows]), vectors[rows])
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
        hits = self.nearest(self._index(agent_id), vector, k)
        return [Found(str(number), score, self.get_one(agent_id, str(number))) for number, score in hits]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        vectors = self.embed([content])
        index = self._index(agent_id)
        with self._transaction():
            changed = self._db.execute(
                "UPDATE memories SET content = ?, vector = ?"
                " WHERE number = ? AND agent = ? RETURNING number",
                (json.dumps(content), vectors[0].tobytes(), id, agent_id),
            ).fetchall()
            self._mark_unsaved(agent_id, *(number for (number,) in changed))
        for (number,) in changed:
            self.remove(index, _array([number]))
            self.insert(index, _array([number]), vectors)
        return bool(changed)

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        index = self._index(agent_id)
        with self._transaction():
            numbers = [
                number
                for id_ in ids
                for (number,) in self._db.execute(
                    "DELETE FROM memories WHERE number = ? AND agent = ? RETURNING number", (id_, agent_id)
                ).fetchall()
            ]
            self._mark_unsaved(agent_id, *numbers)
        self.remove(index, _array(numbers))
        return len(numbers)

    def delete_all(self, agent_id: str) -> int:
        with self._transaction():
            deleted = self._db.execute("DELETE FROM memories WHERE agent = ?", (agent_id,)).rowcount
            self._db.execute("DELETE FROM unsaved WHERE agent = ?", (agent_id,))
            old = self._saved_file(agent_id)
            self._db.execute("DELETE FROM saved_indexes WHERE agent = ?", (agent_id,))
        self._indexes.pop(agent_id, None)
        if old:
            (self._folder / old).unlink()
        return deleted

    def count(self) -> dict[str, int]:
        return {WHOLE: int(self._db.execute("SELECT count(*) FROM memories").fetchone()[0])}

    def maintain(self) -> None:
        self._save_indexes()
        self._db.executescript("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")

    def _index(self, agent: str) -> Any:
        """Return the agent's index; load it and bring it up to date at its first use."""
        if agent not in self._indexes:
            file = self._saved_file(agent)
            index = self.load(str(self._folder / file)) if file else self.new_index()
            changed = self._db.execute("SELECT number FROM unsaved WHERE agent = ?", (agent,)).fetchall()
            if file and changed:
                self.remove(index, _array([number for (number,) in changed]))
            rows = self._db.execute(
                "SELECT number, vector FROM memories JOIN unsaved USING (agent, number) WHERE agent = ?",
                (agent,),
            ).fetchall()
            if rows:
                self.insert(index, _array([row[0] for row in rows]), self._unpack([row[1] for row in rows]))
            self._indexes[agent] = index
        return self._indexes[agent]

    def _save_indexes(self) -> None:
        for (agent,) in self._db.execute("SELECT DISTINCT agent FROM unsaved").fetchall():
            path = self._folder / f"{uuid4().hex}.index"
            self.save(self._index(agent), str(path))
            with path.open("rb") as file:
                os.fsync(file.fileno())
            with self._transaction():
                old = self._saved_file(agent)
                self._db.execute("REPLACE INTO saved_indexes VALUES (?, ?)", (agent, path.name))
                self._db.execute("DELETE FROM unsaved WHERE agent = ?", (agent,))
            if old:
                (self._folder / old).unlink()

    def _saved_file(self, agent: str) -> str | None:
        row = self._db.execute("SELECT file FROM saved_indexes WHERE agent = ?", (agent,)).fetchone()
        return row[0] if row else None

    def _mark_unsaved(self, agent: str, *numbers: int) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO unsaved VALUES (?, ?)", [(agent, number) for number in numbers]
        )

    def _unpack(self, blobs: Sequence[bytes]) -> NDArray[np.float32]:
        import numpy as np

        return np.frombuffer(b"".join(blobs), dtype=np.float32).reshape(len(blobs), self.dimensions)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise


def _array(numbers: Sequence[int]) -> NDArray[np.int64]:
    import numpy as np

    return np.array(numbers, dtype=np.int64)
