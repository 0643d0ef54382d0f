"""Chroma, embedded: a `PersistentClient` with one collection for all agents.

An agent's memories are selected by a metadata filter (`where`), the way Chroma's documents describe for
several users of one collection. The index is HNSW with Chroma's default settings and cosine distance.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from memory.benchmarking.targets.base import WHOLE, Capabilities, Dial, Found, Item, Settings, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ChromaTarget(Target):
    name = "chroma"
    requirements = ("chromadb>=1.5.3",)
    capabilities = Capabilities(durability="machine", vector_queries=True, threads=True)
    dial = Dial("ef", (10, 25, 50, 100, 200))
    limits = (
        "One process only. Search is approximate (HNSW), and deleted text stays in the file until "
        "`chroma vacuum`."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        import chromadb
        from chromadb.config import Settings as ChromaSettings

        self._folder = folder
        self._client: Any = chromadb.PersistentClient(
            folder, settings=ChromaSettings(anonymized_telemetry=False)
        )
        # Without an embedding function, Chroma takes vectors and does not download its default model.
        self._memories: Any = self._client.get_or_create_collection(
            "memories", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def close(self) -> None:
        self._client.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        if not items:
            return []
        ids = [str(uuid4()) for _ in items]
        contents = [json.dumps(item.content) for item in items]
        owners = [{"agent": item.agent_id} for item in items]
        vectors = self.embed([item.content for item in items])
        most = self._client.get_max_batch_size()
        for start in range(0, len(ids), most):
            part = slice(start, start + most)
            self._memories.add(
                ids=ids[part], embeddings=vectors[part], documents=contents[part], metadatas=owners[part]
            )
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        if not ids:
            return []
        answer = self._memories.get(
            ids=list(dict.fromkeys(ids)),  # Chroma refuses duplicates
            where={"agent": agent_id},
            include=["documents"],
        )
        contents = dict(zip(answer["ids"], map(json.loads, answer["documents"]), strict=True))
        return [contents.get(id_) for id_ in ids]

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        answer = self._memories.query(
            query_embeddings=[vector],
            n_results=k,
            where={"agent": agent_id},
            include=["documents", "distances"],
        )
        hits = zip(answer["ids"][0], answer["distances"][0], answer["documents"][0], strict=True)
        return [Found(id_, 1.0 - distance, json.loads(content)) for id_, distance, content in hits]

    def turn_dial(self, setting: int) -> None:
        self._memories.modify(configuration={"hnsw": {"ef_search": setting}})
        # An index that is loaded keeps its old setting until the store is opened again.
        self.close()
        self.open(self._folder)

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        if self.get_one(agent_id, id) is None:  # Chroma ignores an update of an unknown id in silence
            return False
        self._memories.update(ids=[id], embeddings=self.embed([content]), documents=[json.dumps(content)])
        return True

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        if not ids:
            return 0
        answer = self._memories.delete(ids=list(dict.fromkeys(ids)), where={"agent": agent_id})
        return int(answer["deleted"])

    def delete_all(self, agent_id: str) -> int:
        return int(self._memories.delete(where={"agent": agent_id})["deleted"])

    def count(self) -> dict[str, int]:
        return {WHOLE: int(self._memories.count())}
