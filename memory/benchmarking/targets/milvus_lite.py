"""Milvus Lite: Milvus's interface (`pymilvus`) over a local folder, one collection for all agents.

The agent is the partition key, which Milvus's documents recommend for many tenants; every call filters by
it. The index is `AUTOINDEX` with cosine. A gRPC server runs as threads of the same process, so every call
crosses the loopback interface; users of `MilvusClient("file.db")` pay the same.
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

_NAME = "memories"
_MOST_BYTES = 65_535
"""The longest VARCHAR of Milvus."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


class MilvusLiteTarget(Target):
    name = "milvus-lite"
    requirements = ("milvus-lite>=3.2.2", "pymilvus>=3.0.2")
    capabilities = Capabilities(durability="process", max_k=16_384, vector_queries=True)
    limits = (
        "For prototypes and tests: pure Python, one process, one writer at a time. A content has at most "
        "64 KiB as JSON."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        from pymilvus import DataType, MilvusClient

        self._path = str(folder / "milvus.db")
        self._client: Any = MilvusClient(self._path)
        if self._client.has_collection(_NAME):
            self._client.load_collection(_NAME)
            return
        schema = MilvusClient.create_schema(auto_id=False)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=36)
        schema.add_field("agent", DataType.VARCHAR, max_length=_MOST_BYTES, is_partition_key=True)
        schema.add_field("content", DataType.VARCHAR, max_length=_MOST_BYTES)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.dimensions)
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type="AUTOINDEX", metric_type="COSINE")
        self._client.create_collection(_NAME, schema=schema, index_params=index)

    def close(self) -> None:
        from milvus_lite.server_manager import server_manager_instance

        self._client.close()
        # The client leaves its server running until the process ends.
        server_manager_instance.release_server(self._path)

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        if not items:
            return []
        ids = [str(uuid4()) for _ in items]
        vectors = self.embed([item.content for item in items])
        rows = [
            _row(id_, item.agent_id, item.content, vector)
            for id_, item, vector in zip(ids, items, vectors, strict=True)
        ]
        self._client.insert(_NAME, rows)
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        if not ids:
            return []
        rows = self._client.get(_NAME, ids=list(dict.fromkeys(ids)), output_fields=["agent", "content"])
        contents = {row["id"]: json.loads(row["content"]) for row in rows if row["agent"] == agent_id}
        return [contents.get(id_) for id_ in ids]

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        (hits,) = self._client.search(
            _NAME, data=[vector.tolist()], limit=k, filter=_owned_by(agent_id), output_fields=["content"]
        )
        return [Found(hit["id"], hit["distance"], json.loads(hit["entity"]["content"])) for hit in hits]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        if self.get_one(agent_id, id) is None:
            return False
        self._client.upsert(_NAME, [_row(id, agent_id, content, self.embed([content])[0])])
        return True

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        if not ids:
            return 0
        listed = ", ".join(map(_literal, dict.fromkeys(ids)))
        return self._delete(f"{_owned_by(agent_id)} and id in [{listed}]")

    def delete_all(self, agent_id: str) -> int:
        return self._delete(_owned_by(agent_id))

    def _delete(self, which: str) -> int:
        answer = self._client.delete(_NAME, filter=which)
        # pymilvus returns the ids of what it deleted, or a count if it deleted nothing.
        return len(answer) if isinstance(answer, list) else int(answer["delete_count"])

    def count(self) -> dict[str, int]:
        (row,) = self._client.query(_NAME, output_fields=["count(*)"])
        return {WHOLE: int(row["count(*)"])}

    def maintain(self) -> None:
        """Write the memories from the log to segments, and merge segments."""
        self._client.flush(_NAME)
        self._client.compact(_NAME)


def _row(id_: str, agent_id: str, content: Any, vector: NDArray[np.float32]) -> dict[str, Any]:
    return {"id": id_, "agent": agent_id, "content": json.dumps(content), "vector": vector.tolist()}


def _owned_by(agent_id: str) -> str:
    return f"agent == {_literal(agent_id)}"


def _literal(text: str) -> str:
    """Return a string literal of a filter; Milvus Lite has no filter parameters."""
    return f'"{text.translate(_ESCAPES)}"'
