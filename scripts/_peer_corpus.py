"""The data of `peers.py`: seeded memories and queries, and the results of an exact search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from _peer_systems import Embedder, Item

from memory.benchmarking.workloads.texts import MEMORIES, QUERIES, sentences

AGENTS = [f"agent-{number}" for number in range(10)]
TOP = 10
TIE = 1e-5  # cosines closer than this count as equal: float32 sums depend on their order


class Corpus:
    """`items` to store, `queries` to search for, and `probes` to store and search for right away."""

    def __init__(self, embedder: Embedder, memories: int, queries: int, probes: int) -> None:
        texts, questions = sentences(MEMORIES, seed=1), sentences(QUERIES, seed=2)
        everything = [
            Item(AGENTS[number % len(AGENTS)], f"memory-{number}", next(texts))
            for number in range(memories + probes)
        ]
        self.items, self.probes = everything[:memories], everything[memories:]
        self.queries = [(AGENTS[number % len(AGENTS)], next(questions)) for number in range(queries)]
        self._row = {item.text: row for row, item in enumerate(everything)}
        self._vectors = _embed(embedder, [item.text for item in everything])
        self._query_vectors = _embed(embedder, [text for _, text in self.queries])

    def owner(self, text: str) -> str:
        return AGENTS[self._row[text] % len(AGENTS)]

    def recall(self, query: int, found: Sequence[str], stored: int) -> float:
        """Return the share of the agent's exact top 10, among the first `stored` memories, in `found`."""
        vector, first = self._query_vectors[query], AGENTS.index(self.queries[query][0])
        cosines = self._vectors[first : stored : len(AGENTS)] @ vector
        least = np.sort(cosines)[-TOP] - TIE
        rows = {self._row[text] for text in found}
        return sum(bool(self._vectors[row] @ vector >= least) for row in rows) / TOP


def _embed(embedder: Embedder, texts: list[str]) -> npt.NDArray[np.float32]:
    return np.concatenate([embedder.embed(texts[at : at + 256]) for at in range(0, len(texts), 256)])
