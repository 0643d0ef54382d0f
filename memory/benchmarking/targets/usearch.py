"""USearch beside SQLite: an HNSW index in RAM for each agent, rows in SQLite (see `indexed_rows.py`).

USearch's default graph (16 connections, expansions 128 and 64), cosine, float32. There is one index an
agent, because USearch's Python interface has no filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory.benchmarking.targets.base import Capabilities, Dial
from memory.benchmarking.targets.indexed_rows import IndexedRowsTarget

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class USearchTarget(IndexedRowsTarget):
    name = "usearch"
    requirements = ("usearch>=2.16",)
    capabilities = Capabilities(durability="machine", vector_queries=True)
    dial = Dial("ef", (10, 32, 64, 128, 256))
    limits = (
        "A library, not a store: rows, ids and recovery are this target's own code. Search is approximate."
    )

    def new_index(self) -> Any:
        from usearch.index import Index

        return Index(ndim=self.dimensions, metric="cos", dtype="f32")

    def turn_dial(self, setting: int) -> None:
        for index in self._indexes.values():
            index.expansion_search = setting

    def insert(self, index: Any, numbers: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        index.add(numbers.astype("uint64"), vectors)

    def remove(self, index: Any, numbers: NDArray[np.int64]) -> None:
        for number in numbers.tolist():
            index.remove(number)

    def nearest(self, index: Any, vector: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        if not len(index):
            return []
        found = index.search(vector, k)
        return [
            (int(number), 1.0 - float(distance))
            for number, distance in zip(found.keys, found.distances, strict=True)
        ]

    def save(self, index: Any, path: str) -> None:
        index.save(path)

    def load(self, path: str) -> Any:
        index = self.new_index()
        index.load(path)
        return index
