"""AgentMemory in both durability classes.

Memories stay in their tier, and nothing runs in the background, unless a benchmark asks for it.


Benchmarks of one tier need memories to stay in it; the benchmarks of transitions move them on purpose.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from memory.benchmarking.targets.base import (
    Capabilities,
    Coding,
    Found,
    Item,
    Kept,
    Settings,
    Stored,
    Target,
    VectorForm,
)
from memory.benchmarking.targets.memory_content import decode_body, encode_body
from memory.compression.vectors import CODEC_NAMES, VectorCodec, make_codec
from memory.config import MemoryConfig
from memory.embedding import WordLlamaEmbedder
from memory.entry import Tier
from memory.system import AgentMemorySystem, NewMemory

_SAMPLE_AGENT = "agent_of_the_sample"


class AgentMemoryTarget(Target):
    name = "agentmemory"
    capabilities = Capabilities(
        tiers=("stm", "im", "ltm"),
        search_by="both",
        transitions=True,
        compression=True,
        forms=True,
        threads=True,
        processes=True,
        vector_queries=True,
        caller_ids=True,
        erasure="maintain",
        detects_damage=True,
        durability="process",
        confidence=True,
    )
    distributions: ClassVar[tuple[str, ...]] = ("agentmemory-tiers",)
    options: ClassVar[Mapping[str, Any]] = {}
    """Settings of `MemoryConfig` that differ from the defaults."""

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        config = self._config(settings)
        config.ltm_config.db_path = self._place(folder)
        self.memory = AgentMemorySystem(config, embedder=self.embedder.embedder, clock=settings.clock)
        self._opened = (folder, settings)

    def _config(self, settings: Settings) -> MemoryConfig:
        if settings.as_shipped:
            return MemoryConfig(**self.options)
        background = "background" if settings.background else "manual"
        config = MemoryConfig(**{"maintenance": background, **self.options})
        config.stm_config.memory_limit = settings.limits.get("stm")
        config.im_config.memory_limit = settings.limits.get("im")
        config.ltm_config.memory_limit = settings.limits.get("ltm")
        config.stm_config.ttl_seconds = settings.ages.get("stm")
        config.im_config.ttl_seconds = settings.ages.get("im")
        return config

    def _place(self, folder: Path) -> str:
        """Return where the memory is."""
        return str(folder / "memory.db")

    def close(self) -> None:
        self.memory.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        return self.memory.add_many(
            [
                NewMemory(
                    agent_id=item.agent_id,
                    content=item.content,
                    tier=place or "stm",
                    step=item.step,
                    importance=item.importance,
                    metadata=item.metadata,
                    kind=item.kind,
                    timestamp=item.timestamp,
                    id=item.id,
                )
                for item in items
            ]
        )

    def add_one(self, item: Item, place: str | None = None) -> str:
        # This repeats code of `add`: a shared helper would add a call to the measured time.
        return self.memory.add(
            item.agent_id,
            item.content,
            tier=place or "stm",
            step=item.step,
            importance=item.importance,
            metadata=item.metadata,
            kind=item.kind,
            timestamp=item.timestamp,
            id=item.id,
        )

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        entries = self.memory.get_many(agent_id, ids)
        return [None if entry is None else entry.content for entry in entries]

    def get_one(self, agent_id: str, id: str) -> Any:
        entry = self.memory.get(agent_id, id)
        return None if entry is None else entry.content

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        if isinstance(query, str):
            hits = self.memory.search(agent_id, query, k, tier=place or "all")
        else:
            hits = self.memory.retrieve_similar_states(agent_id, query, k, place or "all")
        return [Found(hit.id, hit.score, hit.entry.content, hit.confidence) for hit in hits]

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        hits = self.memory.retrieve_similar_states(agent_id, vector, k, place or "all")
        return [Found(hit.id, hit.score, hit.entry.content) for hit in hits]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        return self.memory.update(agent_id, id, content=content)

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        return self.memory.delete_many(agent_id, ids)

    def delete_all(self, agent_id: str) -> int:
        return self.memory.delete_all(agent_id)

    def count(self) -> dict[str, int]:
        return dict(self.memory.get_memory_statistics()["tiers"])

    def inspect(self, agent_id: str, ids: Sequence[str]) -> list[Stored | None]:
        return [
            None
            if entry is None
            else Stored(entry.id, entry.content, entry.tier, entry.step, entry.kind, entry.importance)
            for entry in self.memory.get_many(agent_id, ids)
        ]

    @property
    def _codecs(self) -> Any:
        """The codecs of the open memory; version 0.1 had them under another name (`membench ab`)."""
        return getattr(self.memory, "_codecs", None) or vars(self.memory)["_forms"]

    def kept(self, agent_id: str, ids: Sequence[str]) -> Kept:
        system, id_set = self.memory, set(ids)
        by_id = {row.id: row for row in system._store.all_rows(agent_id) if row.id in id_set}
        rows = [by_id[id_] for id_ in ids]
        if not rows:
            return Kept(0, ())
        content_bytes = sum(len(row.body) for row in rows)
        coarse = [(row.vector_codec, row.vector, None) for row in rows]
        forms = [
            VectorForm(
                system.get_encoder(rows[0].tier.label).name,
                sum(len(row.vector) for row in rows) / len(rows),
                self._codecs.to_float32(coarse),
            )
        ]
        if all(row.fine is not None for row in rows):
            fine = [(row.vector_codec, row.vector, row.fine) for row in rows]
            forms.append(
                VectorForm(
                    "int8",
                    sum(len(row.fine or b"") for row in rows) / len(rows),
                    self._codecs.to_float32(fine),
                )
            )
        return Kept(content_bytes, tuple(forms))

    def coding(self, place: str) -> Coding:
        forms, tier = self._codecs, Tier.parse(place)
        return Coding(
            encode_content=lambda content: forms.body_for(tier, encode_body(content, {})),
            decode_content=lambda encoded: decode_body(forms.raw_body(*encoded))[0],
            encode_vectors=lambda vectors: forms.vectors_for(tier, vectors),
            decode_vectors=forms.to_float32,
        )

    @classmethod
    def codec(cls, name: str, **options: Any) -> VectorCodec:
        return make_codec(name, WordLlamaEmbedder.dimensions, **options)

    @classmethod
    def codec_names(cls) -> tuple[str, ...]:
        return CODEC_NAMES

    def maintain(self) -> None:
        self.memory.maintain()

    def settle(self, sample: Sequence[Item]) -> None:
        """Fit the dictionary and the codecs, as the maintenance thread does once enough is stored."""
        self._fit_on(sample)
        # Without this, the measured memories would reuse the pages that the sample has freed, and their
        # size on disk would be 0.
        self.close()
        with closing(sqlite3.connect(self.memory.config.ltm_config.db_path)) as file:
            file.execute("VACUUM")
        self.open(*self._opened)

    def _fit_on(self, sample: Sequence[Item]) -> None:
        self.memory.add_many([NewMemory(agent_id=_SAMPLE_AGENT, content=item.content) for item in sample])
        self.memory.maintain()
        self.memory.delete_all(_SAMPLE_AGENT)


class AgentMemoryDiskTarget(AgentMemoryTarget):
    """The same with `durability="disk"`: a write is synced to disk before it is acknowledged."""

    name = "agentmemory-disk"
    capabilities = replace(AgentMemoryTarget.capabilities, durability="machine")
    options: ClassVar[Mapping[str, Any]] = {"durability": "disk"}
