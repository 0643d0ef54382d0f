"""Qdrant Edge: Qdrant's Rust engine in the process, one shard for all agents.

An agent's memories are selected by a payload filter. As Qdrant's documents recommend for many tenants, the
agent has a keyword index with `is_tenant`, and each agent has its own HNSW graph (`payload_m`).
`optimize` builds the graphs once a segment is larger than the engine's threshold; before, it is scanned.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from memory.benchmarking.targets.base import WHOLE, Capabilities, Dial, Found, Item, Settings, Target
from memory.benchmarking.targets.qdrant import known_form

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class QdrantEdgeTarget(Target):
    name = "qdrant-edge"
    requirements = ("qdrant-edge-py>=0.9",)
    capabilities = Capabilities(durability="process", vector_queries=True)
    dial = Dial("ef", (10, 32, 64, 128, 256))
    limits = (
        "Beta: the interface changes between releases. One process only; the caller has to run `optimize`, "
        "and an empty store has 140 MB of sparse files."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        import qdrant_edge

        self._edge: Any = qdrant_edge
        self._ef = 0  # 0 leaves it to the engine
        path = folder / "shard"
        if path.exists():
            self._shard: Any = qdrant_edge.EdgeShard.load(str(path))
            return
        config = qdrant_edge.EdgeConfig(
            vectors=qdrant_edge.EdgeVectorParams(self.dimensions, qdrant_edge.Distance.Cosine),
            # Qdrant's defaults, except that the edges are those of each agent's own graph.
            hnsw_config=qdrant_edge.HnswIndexConfig(
                m=0, payload_m=16, ef_construct=100, full_scan_threshold=10_000
            ),
        )
        path.mkdir()
        self._shard = qdrant_edge.EdgeShard.create(str(path), config)
        by_agent = qdrant_edge.KeywordIndexParams(is_tenant=True)
        self._update(qdrant_edge.UpdateOperation.create_field_index("agent", by_agent))

    def close(self) -> None:
        self._shard.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        if not items:
            return []
        ids = [str(uuid4()) for _ in items]
        vectors = self.embed([item.content for item in items])
        points = [
            self._point(id_, vector, item.agent_id, item.content)
            for id_, vector, item in zip(ids, vectors, items, strict=True)
        ]
        self._update(self._edge.UpdateOperation.upsert_points(points))
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        records = self._shard.retrieve(known_form(ids), with_payload=True, with_vector=False)
        contents = {
            str(record.id): json.loads(record.payload["content"])
            for record in records
            if record.payload["agent"] == agent_id
        }
        return [contents.get(id_) for id_ in ids]

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        request = self._edge.QueryRequest(
            limit=k,
            query=self._edge.Query.Nearest(vector.tolist()),
            filter=self._owned_by(agent_id),
            with_payload=["content"],
            params=self._edge.SearchParams(hnsw_ef=self._ef) if self._ef else None,
        )
        points = self._shard.query(request)
        return [Found(str(point.id), point.score, json.loads(point.payload["content"])) for point in points]

    def turn_dial(self, setting: int) -> None:
        self._ef = setting

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        if self.get_one(agent_id, id) is None:
            return False
        point = self._point(id, self.embed([content])[0], agent_id, content)
        self._update(self._edge.UpdateOperation.upsert_points([point]))
        return True

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        return self._delete(self._owned_by(agent_id, self._edge.HasIdCondition(set(known_form(ids)))))

    def delete_all(self, agent_id: str) -> int:
        return self._delete(self._owned_by(agent_id))

    def count(self) -> dict[str, int]:
        return {WHOLE: int(self._shard.count(self._edge.CountRequest()))}

    def maintain(self) -> None:
        """Merge segments, remove deleted points, build the index, and write everything to disk."""
        self._shard.optimize()
        self._shard.flush()

    def _point(self, id_: str, vector: NDArray[np.float32], agent_id: str, content: Any) -> Any:
        return self._edge.Point(id_, vector.tolist(), {"agent": agent_id, "content": json.dumps(content)})

    def _owned_by(self, agent_id: str, *conditions: Any) -> Any:
        match = self._edge.MatchValue(agent_id)
        return self._edge.Filter(must=[self._edge.FieldCondition("agent", match=match), *conditions])

    def _update(self, operation: Any) -> None:
        self._shard.update(operation)

    def _delete(self, which: Any) -> int:
        """Delete points and return how many there were; Qdrant does not return a count."""
        there = int(self._shard.count(self._edge.CountRequest(filter=which)))
        if there:
            self._update(self._edge.UpdateOperation.delete_points_by_filter(which))
        return there
