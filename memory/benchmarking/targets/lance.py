"""LanceDB, embedded: one table for all agents, with a scalar index on the agent and on the id.

An agent's memories are selected by a filter before the vector search (`prefilter`). There is no vector
index, as LanceDB's documents advise below about 100,000 rows, so search is exact.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LanceDBTarget(Target):
    name = "lancedb"
    requirements = ("lancedb>=0.34", "pyarrow>=17.0")
    capabilities = Capabilities(durability="process", vector_queries=True, threads=True)
    limits = (
        "Every write adds files and a version of the table: small writes get slower until `optimize`. "
        "Other processes' writes are seen only after the table is opened again."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        import lancedb
        import pyarrow as pa
        from lancedb.index import BTree

        self._pa = pa
        self._schema = pa.schema(
            [
                ("id", pa.string()),
                ("agent", pa.string()),
                ("content", pa.string()),
                ("vector", pa.list_(pa.float32(), self.dimensions)),
            ]
        )
        self._db: Any = lancedb.connect(folder)
        self._memories: Any = self._db.create_table("memories", schema=self._schema, exist_ok=True)
        if not self._memories.list_indices():
            self._memories.create_index("id", config=BTree())
            self._memories.create_index("agent", config=BTree())

    def close(self) -> None:
        self._memories = self._db = None  # LanceDB has nothing to close

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        if not items:
            return []
        ids = [str(uuid4()) for _ in items]
        self._memories.add(self._rows(ids, items))
        return ids

    def _rows(self, ids: Sequence[str], items: Sequence[Item]) -> Any:
        vectors = self.embed([item.content for item in items])
        columns = {
            "id": ids,
            "agent": [item.agent_id for item in items],
            "content": [json.dumps(item.content) for item in items],
            "vector": self._pa.FixedSizeListArray.from_arrays(vectors.ravel(), self.dimensions),
        }
        return self._pa.table(columns, schema=self._schema)

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        if not ids:
            return []
        query = self._memories.search().where(_ids_of(agent_id, ids)).select(["id", "content"])
        rows = query.limit(len(ids)).to_list()
        contents = {row["id"]: json.loads(row["content"]) for row in rows}
        return [contents.get(id_) for id_ in ids]

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        rows = (
            self._memories.search(vector)
            .distance_type("cosine")
            .where(f"agent = {_quote(agent_id)}", prefilter=True)
            .select(["id", "content", "_distance"])
            .limit(k)
            .to_list()
        )
        return [Found(row["id"], 1.0 - row["_distance"], json.loads(row["content"])) for row in rows]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        vector = self.embed([content])[0]
        values = {"content": json.dumps(content), "vector": vector.tolist()}
        return bool(self._memories.update(where=_ids_of(agent_id, [id]), values=values).rows_updated)

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        return self._delete(_ids_of(agent_id, ids)) if ids else 0

    def delete_all(self, agent_id: str) -> int:
        return self._delete(f"agent = {_quote(agent_id)}")

    def _delete(self, where: str) -> int:
        return int(self._memories.delete(where).num_deleted_rows)

    def count(self) -> dict[str, int]:
        return {WHOLE: int(self._memories.count_rows())}

    def maintain(self) -> None:
        """Merge small files, index new rows and delete the files of older versions."""
        with warnings.catch_warnings():
            # LanceDB warns of other processes that read an older version. The store has only this one.
            warnings.filterwarnings("ignore", "optimize", UserWarning)
            self._memories.optimize(cleanup_older_than=timedelta(0))


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _ids_of(agent_id: str, ids: Sequence[str]) -> str:
    return f"agent = {_quote(agent_id)} AND id IN ({', '.join(map(_quote, ids))})"
