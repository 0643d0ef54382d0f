"""Qdrant's local mode: `QdrantClient(path=…)` with one collection for all agents.

An agent's memories are selected by a payload filter in one collection, as Qdrant's documents recommend for
many tenants. Local mode has no payload indexes and no HNSW: it scans NumPy arrays, so search is exact.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NAME = "memories"


class QdrantTarget(Target):
    name = "qdrant"
    requirements = ("qdrant-client>=1.12",)
    capabilities = Capabilities(durability="machine", vector_queries=True)
    limits = (
        "Local mode is pure Python for development and tests: one process, one thread, and every search "
        "scans all memories of all agents."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        from qdrant_client import QdrantClient, models

        self._models: Any = models
        self._client: Any = QdrantClient(path=str(folder))
        if not self._client.collection_exists(_NAME):
            vectors = models.VectorParams(size=self.dimensions, distance=models.Distance.COSINE)
            self._client.create_collection(_NAME, vectors_config=vectors)

    def close(self) -> None:
        self._client.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        if not items:
            return []
        ids = [str(uuid4()) for _ in items]
        vectors = self.embed([item.content for item in items])
        points = [
            self._point(id_, vector, item.agent_id, item.content)
            for id_, vector, item in zip(ids, vectors, items, strict=True)
        ]
        self._client.upsert(_NAME, points)
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        records = self._client.retrieve(_NAME, known_form(ids))
        contents = {
            record.id: json.loads(record.payload["content"])
            for record in records
            if record.payload["agent"] == agent_id
        }
        return [contents.get(id_) for id_ in ids]

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        points = self._client.query_points(
            _NAME, query=vector, query_filter=self._owned_by(agent_id), limit=k
        ).points
        return [Found(point.id, point.score, json.loads(point.payload["content"])) for point in points]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        if self.get_one(agent_id, id) is None:
            return False
        self._client.upsert(_NAME, [self._point(id, self.embed([content])[0], agent_id, content)])
        return True

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        owned = self._owned_by(agent_id)
        owned.must.append(self._models.HasIdCondition(has_id=known_form(ids)))
        return self._delete(owned)

    def delete_all(self, agent_id: str) -> int:
        return self._delete(self._owned_by(agent_id))

    def count(self) -> dict[str, int]:
        return {WHOLE: int(self._client.count(_NAME).count)}

    def _point(self, id_: str, vector: NDArray[np.float32], agent_id: str, content: Any) -> Any:
        payload = {"agent": agent_id, "content": json.dumps(content)}
        return self._models.PointStruct(id=id_, vector=vector.tolist(), payload=payload)

    def _owned_by(self, agent_id: str) -> Any:
        match = self._models.MatchValue(value=agent_id)
        return self._models.Filter(must=[self._models.FieldCondition(key="agent", match=match)])

    def _delete(self, which: Any) -> int:
        """Delete points and return how many there were; Qdrant does not return a count."""
        there = int(self._client.count(_NAME, count_filter=which).count)
        if there:
            self._client.delete(_NAME, self._models.FilterSelector(filter=which))
        return there


def known_form(ids: Sequence[str]) -> list[str]:
    """Return each id once, without those that Qdrant would refuse because they are no UUIDs."""
    return [id_ for id_ in dict.fromkeys(ids) if _is_uuid(id_)]


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
