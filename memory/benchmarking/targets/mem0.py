"""mem0 without a language model: `infer=False`, one user id an agent, its local Qdrant store.

The embedder is plugged in as mem0's documentation describes it (provider "langchain"). Telemetry is off,
and the model's address is a closed port: nothing is sent.

Works with mem0ai 1.0.0 to 2.2.1. In 1.0.0, `delete_all` deletes the memories of all users (mem0 #3746).
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from inspect import signature
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

from memory.benchmarking.targets._agent_names import hex_name
from memory.benchmarking.targets._json_text import from_text, to_text
from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target

_COLLECTION = "memories"


class Mem0Target(Target):
    name = "mem0"
    requirements = ("mem0ai>=1.0.0", "qdrant-client>=1.12", "langchain>=0.3")
    distributions = ("mem0ai", "qdrant-client")
    capabilities = Capabilities(durability="machine")
    limits = (
        "Without its model it stores texts as they are, one by one, and without fastembed it searches by "
        "vector only. States are embedded as their JSON text. Hits with a negative score are left out. "
        "One process a folder."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        _keep_quiet()
        from langchain.embeddings.base import Embeddings
        from mem0 import Memory
        from qdrant_client import QdrantClient

        target = self

        class RunEmbeddings(Embeddings):  # type: ignore[misc]
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                vectors: list[list[float]] = target.embed_texts(texts).tolist()
                return vectors

            def embed_query(self, text: str) -> list[float]:
                return self.embed_documents([text])[0]

        nowhere = {"api_key": "never-sent", "openai_base_url": "http://127.0.0.1:9/v1"}
        # With a path alone, mem0 1.0 opens a second store for its telemetry, one a process at most.
        self._qdrant = QdrantClient(path=str(folder / "qdrant"))
        qdrant = {
            "client": self._qdrant,
            "path": str(folder / "qdrant"),
            "collection_name": _COLLECTION,
            "embedding_model_dims": self.dimensions,
            "on_disk": True,
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Payload indexes have no effect in the local Qdrant")
            self._memory = Memory.from_config(
                {
                    "llm": {"provider": "openai", "config": nowhere},
                    "embedder": {"provider": "langchain", "config": {"model": RunEmbeddings()}},
                    "vector_store": {"provider": "qdrant", "config": qdrant},
                    "history_db_path": str(folder / "history.db"),
                }
            )
        self._takes_filters = "top_k" in signature(self._memory.search).parameters

    def close(self) -> None:
        self._memory.db.close()
        self._qdrant.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids: list[str] = []
        for agent_id, group in groupby(items, key=lambda item: item.agent_id):
            messages = [{"role": "user", "content": to_text(item.content)} for item in group]
            stored = self._memory.add(messages, user_id=hex_name(agent_id), infer=False)
            ids += [memory["id"] for memory in stored["results"]]
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return [self.get_one(agent_id, id_) for id_ in ids]

    def get_one(self, agent_id: str, id: str) -> Any:
        memory = self._memory.get(id) if _is_uuid(id) else None
        if memory is None or memory["user_id"] != hex_name(agent_id):
            return None
        return from_text(memory["memory"])

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        user_id = hex_name(agent_id)
        if self._takes_filters:
            # The default threshold of 0.1 would hide some of the k nearest memories.
            scope: dict[str, Any] = {"filters": {"user_id": user_id}, "top_k": k, "threshold": 0.0}
        else:
            scope = {"user_id": user_id, "limit": k}
        hits = self._memory.search(to_text(query), **scope)["results"]
        return [Found(hit["id"], hit["score"], from_text(hit["memory"])) for hit in hits]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        if self.get_one(agent_id, id) is None:
            return False
        self._memory.update(id, to_text(content))
        return True

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        present = [id_ for id_ in dict.fromkeys(ids) if self.get_one(agent_id, id_) is not None]
        for id_ in present:
            self._memory.delete(id_)
        return len(present)

    def delete_all(self, agent_id: str) -> int:
        before = self.count()[WHOLE]
        self._memory.delete_all(user_id=hex_name(agent_id))
        return before - self.count()[WHOLE]

    def count(self) -> dict[str, int]:
        return {WHOLE: self._qdrant.count(_COLLECTION, exact=True).count}


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _keep_quiet() -> None:
    """Set what mem0 reads when it is imported: no telemetry, and no files in the home folder."""
    os.environ["MEM0_TELEMETRY"] = "False"
    if "MEM0_DIR" not in os.environ:
        os.environ["MEM0_DIR"] = tempfile.mkdtemp(prefix="membench-mem0-")
        atexit.register(shutil.rmtree, os.environ["MEM0_DIR"], ignore_errors=True)
    # Hides warnings that fastembed and spaCy, for its optional word search, are not installed.
    logging.getLogger("mem0").setLevel(logging.ERROR)
