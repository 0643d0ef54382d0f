"""FAISS beside SQLite: a flat index in RAM for each agent, rows in SQLite (see `indexed_rows.py`).

`IDMap,Flat` with the inner product of unit vectors, so search is exact. FAISS's graph index (HNSW) can't
remove vectors, and its inverted lists need training; a memory has deletes from its first day. One index an
agent, so that no search scans another agent's vectors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.targets.base import Capabilities, Settings
from memory.benchmarking.targets.indexed_rows import IndexedRowsTarget

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FaissTarget(IndexedRowsTarget):
    name = "faiss"
    requirements = ("faiss-cpu>=1.15",)
    capabilities = Capabilities(durability="machine", vector_queries=True)
    limits = (
        "A library, not a store: rows, ids and recovery are this target's own code. Search scans an agent."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        import faiss

        # A search is one query. OpenMP's threads would wait for each other: 51 instead of 2 ms over 30,000
        # vectors on two busy cores.
        faiss.omp_set_num_threads(1)
        super().open(folder, settings)

    def new_index(self) -> Any:
        import faiss

        return faiss.index_factory(self.dimensions, "IDMap,Flat", faiss.METRIC_INNER_PRODUCT)

    def insert(self, index: Any, numbers: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        index.add_with_ids(vectors, numbers)

    def remove(self, index: Any, numbers: NDArray[np.int64]) -> None:
        if len(numbers):
            index.remove_ids(numbers)

    def nearest(self, index: Any, vector: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        scores, numbers = (
            index.search(vector[None, :], min(k, index.ntotal)) if index.ntotal else ([()], [()])
        )
        hits = zip(numbers[0], scores[0], strict=True)
        return [(int(number), float(score)) for number, score in hits if number >= 0]  # -1: no hit

    def save(self, index: Any, path: str) -> None:
        import faiss

        faiss.write_index(index, path)

    def load(self, path: str) -> Any:
        import faiss

        return faiss.read_index(path)
