"""The baseline: the simplest memory that SQLite and NumPy allow.

It has AgentMemory's durability (WAL, a commit per batch) and embedder. Search is exact, over all float32
vectors of an agent, which stay in RAM once read. It has no tiers, no compression and no word search.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.benchmarking.targets.base import (
    WHOLE,
    Capabilities,
    Coding,
    Found,
    Item,
    Kept,
    Settings,
    Target,
    VectorForm,
)

_TABLE = """
CREATE TABLE IF NOT EXISTS memories (
    number INTEGER PRIMARY KEY, agent TEXT NOT NULL, step INTEGER, importance REAL,
    metadata TEXT, content TEXT NOT NULL, vector BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS by_agent ON memories (agent);
"""


class SQLiteBaselineTarget(Target):
    name = "sqlite-baseline"
    capabilities = Capabilities(vector_queries=True, forms=True, durability="process")
    distributions = ("agentmemory-tiers",)

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        self._db = sqlite3.connect(folder / "baseline.db", isolation_level=None, check_same_thread=False)
        self._db.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; {_TABLE}")
        self._vectors: dict[str, tuple[list[int], NDArray[np.float32]]] = {}
        # SQLite would give the number of a deleted last row again. The time is above all numbers given.
        (last,) = self._db.execute("SELECT ifnull(max(number), 0) FROM memories").fetchone()
        self._numbers = itertools.count(max(last + 1, time.time_ns()))

    def close(self) -> None:
        self._db.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        vectors = self.embed([item.content for item in items])
        with self._transaction():
            numbers = [
                self._db.execute(
                    "INSERT INTO memories (number, agent, step, importance, metadata, content, vector)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        next(self._numbers),
                        item.agent_id,
                        item.step,
                        item.importance,
                        json.dumps(dict(item.metadata)),
                        json.dumps(item.content),
                        vector.tobytes(),
                    ),
                ).lastrowid
                for item, vector in zip(items, vectors, strict=True)
            ]
        self._drop_cached_vectors(*{item.agent_id for item in items})
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
        if not np.isfinite(vector).all():
            raise ValueError("the vector holds NaN or infinity")
        numbers, matrix = self._matrix(agent_id)
        if not numbers or k < 1:
            return []
        scores = matrix @ vector
        top = np.argpartition(-scores, min(k, len(scores)) - 1)[:k]
        best = top[np.argsort(-scores[top], kind="stable")]
        ids = [str(numbers[row]) for row in best]
        contents = self.get(agent_id, ids)
        return [
            Found(id_, float(scores[row]), content)
            for id_, row, content in zip(ids, best, contents, strict=True)
        ]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        vector = self.embed([content])[0]
        changed = self._db.execute(
            "UPDATE memories SET content = ?, vector = ? WHERE number = ? AND agent = ?",
            (json.dumps(content), vector.tobytes(), id, agent_id),
        ).rowcount
        self._drop_cached_vectors(agent_id)
        return changed == 1

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        with self._transaction():
            deleted = sum(
                self._db.execute(
                    "DELETE FROM memories WHERE number = ? AND agent = ?", (id_, agent_id)
                ).rowcount
                for id_ in ids
            )
        self._drop_cached_vectors(agent_id)
        return deleted

    def delete_all(self, agent_id: str) -> int:
        deleted = self._db.execute("DELETE FROM memories WHERE agent = ?", (agent_id,)).rowcount
        self._drop_cached_vectors(agent_id)
        return int(deleted)

    def count(self) -> dict[str, int]:
        return {WHOLE: int(self._db.execute("SELECT count(*) FROM memories").fetchone()[0])}

    def kept(self, agent_id: str, ids: Sequence[str]) -> Kept:
        rows = [
            self._db.execute(
                "SELECT length(content), vector FROM memories WHERE number = ? AND agent = ?",
                (id_, agent_id),
            ).fetchone()
            for id_ in ids
        ]
        vectors = self._unpack([row[1] for row in rows])
        width = sum(len(row[1]) for row in rows) / max(len(rows), 1)
        return Kept(sum(row[0] for row in rows), (VectorForm("float32", width, vectors),))

    def coding(self, place: str) -> Coding:
        return Coding(
            encode_content=json.dumps,
            decode_content=json.loads,
            encode_vectors=lambda vectors: [vector.tobytes() for vector in vectors],
            decode_vectors=self._unpack,
        )

    def _unpack(self, blobs: Sequence[bytes]) -> NDArray[np.float32]:
        joined = np.frombuffer(b"".join(blobs), dtype=np.float32)
        return joined.reshape(len(blobs), self.dimensions)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite itself rolls back when the disk is full
                self._db.execute("ROLLBACK")
            raise

    def _matrix(self, agent_id: str) -> tuple[list[int], NDArray[np.float32]]:
        cached = self._vectors.get(agent_id)
        if cached is None:
            rows = self._db.execute(
                "SELECT number, vector FROM memories WHERE agent = ?", (agent_id,)
            ).fetchall()
            cached = self._vectors[agent_id] = (
                [row[0] for row in rows],
                self._unpack([row[1] for row in rows]),
            )
        return cached

    def _drop_cached_vectors(self, *agents: str) -> None:
        for agent in agents:
            self._vectors.pop(agent, None)
