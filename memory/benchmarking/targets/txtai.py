"""txtai: an `Embeddings` index with content, one for all agents.

Vectors come from the run's embedder (`method="external"`), so txtai loads neither PyTorch nor Transformers.
An agent's memories are selected in SQL, `similar(…) AND agent = …`, as txtai's documents show. txtai
filters after the vector search, among ten times as many candidates as hits. So where many agents share an
index, an agent gets fewer hits than it has memories. Vectors are in FAISS, contents in a temporary SQLite
file; both reach the folder with `save`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TxtaiTarget(Target):
    name = "txtai"
    requirements = ("txtai>=9.14",)
    unneeded = ("torch", "transformers")
    capabilities = Capabilities(durability="ram", vector_queries=True)
    limits = (
        "A write is lost if the process ends before `save`, which writes everything again. Among many "
        "agents, searches miss hits."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        from txtai import Embeddings

        self._path = folder / "embeddings"
        config = {
            "method": "external",
            "transform": lambda texts: self.embed([json.loads(text) for text in texts]),
            "content": True,
        }
        self._embeddings: Any = Embeddings(config)
        if self._path.exists():
            self._embeddings.load(str(self._path), config=config)
        self._changed = False

    def close(self) -> None:
        self.maintain()
        self._embeddings.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = [str(uuid4()) for _ in items]
        self._upsert([_row(id_, item.agent_id, item.content) for id_, item in zip(ids, items, strict=True)])
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return [self.get_one(agent_id, id_) for id_ in ids]

    def get_one(self, agent_id: str, id: str) -> Any:
        rows = self._select("SELECT text FROM txtai WHERE id = :id AND agent = :agent", 1, agent_id, id=id)
        return json.loads(rows[0]["text"]) if rows else None

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        sql = "SELECT id, text, score FROM txtai WHERE similar(:vector) AND agent = :agent"
        rows = self._select(sql, k, agent_id, vector=vector)
        return [Found(row["id"], row["score"], json.loads(row["text"])) for row in rows]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        if self.get_one(agent_id, id) is None:
            return False
        self._upsert([_row(id, agent_id, content)])
        return True

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        return self._delete([id_ for id_ in dict.fromkeys(ids) if self.get_one(agent_id, id_) is not None])

    def delete_all(self, agent_id: str) -> int:
        sql = "SELECT id FROM txtai WHERE agent = :agent"
        rows = self._select(sql, max(self._embeddings.count(), 1), agent_id)
        return self._delete([row["id"] for row in rows])

    def count(self) -> dict[str, int]:
        return {WHOLE: int(self._embeddings.count())}

    def maintain(self) -> None:
        """Save all changes."""
        if self._changed:
            self._embeddings.save(str(self._path))
            self._changed = False

    def _select(self, sql: str, limit: int, agent_id: str, **values: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._embeddings.search(
            sql, limit, parameters={"agent": agent_id, **values}
        )
        return rows

    def _upsert(self, rows: list[tuple[str, dict[str, str], None]]) -> None:
        if rows:
            self._embeddings.upsert(rows)
            self._changed = True

    def _delete(self, ids: list[str]) -> int:
        if not ids:
            return 0
        self._changed = True
        return len(self._embeddings.delete(ids))


def _row(id_: str, agent_id: str, content: Any) -> tuple[str, dict[str, str], None]:
    return id_, {"text": json.dumps(content), "agent": agent_id}, None
