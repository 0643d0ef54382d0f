"""Adapters of memory systems, so that `peers.py` can give all of them the same work.

Every system has its default settings, with the shared embedder plugged into its own embedder
interface. Nothing here calls a language model or the network.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

DIMENSIONS = 256


class Item(NamedTuple):
    """A memory to store; its text is unique in the run."""

    agent: str
    key: str
    text: str


class Embedder(Protocol):
    def embed(self, texts: list[str]) -> npt.NDArray[np.float32]: ...


class UnavailableError(Exception):
    """The system can't run here; the message says why and what to do."""


class System(ABC):
    """One memory system on disk (or in RAM), holding the memories of all agents."""

    name: str
    package: str
    install: str
    note: str
    on_disk = True
    fsync = False
    """Whether a write that has returned survives a power cut."""
    modes: tuple[str, ...] = ("vector",)

    def __init__(self) -> None:
        self.folder = Path()

    @abstractmethod
    def open(self, folder: Path, embedder: Embedder) -> None: ...

    @abstractmethod
    def add(self, item: Item) -> None: ...

    @abstractmethod
    def add_batch(self, items: Sequence[Item]) -> None: ...

    @abstractmethod
    def search(self, agent: str, query: str, k: int, mode: str) -> list[str]:
        """Return the texts of the agent's k nearest memories, the best first."""

    @abstractmethod
    def close(self) -> None: ...

    def disk_bytes(self) -> int | None:
        """Return the size of all files after close(); None for a store in RAM."""
        if not self.on_disk:
            return None
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def version(self) -> str:
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return "from source"


class AgentMemory(System):
    name = "AgentMemory"
    package = "agentmemory-tiers"
    install = "pip install -e ."
    note = "survives kill -9 of the process, not a power cut"
    modes: tuple[str, ...] = ("vector", "words + vector")

    def open(self, folder: Path, embedder: Embedder) -> None:
        from memory import AgentMemorySystem, MemoryConfig

        self.folder, self.embedder = folder, embedder
        config = MemoryConfig()
        config.ltm_config.db_path = str(folder / "memory.db")
        self.configure(config)
        self.memory: Any = AgentMemorySystem(config)

    def configure(self, config: Any) -> None:
        """Change the default configuration, in subclasses."""

    def add(self, item: Item) -> None:
        self.memory.add(item.agent, item.text)

    def add_batch(self, items: Sequence[Item]) -> None:
        self.memory.add_many([{"agent_id": item.agent, "content": item.text} for item in items])

    def search(self, agent: str, query: str, k: int, mode: str) -> list[str]:
        if mode == "vector":
            vector = self.embedder.embed([query])[0]
            hits = self.memory.retrieve_similar_states(agent, vector, k=k)
        else:
            hits = self.memory.search(agent, query, k=k)
        return [hit.entry.content for hit in hits]

    def close(self) -> None:
        self.memory.close()


class AgentMemoryFsync(AgentMemory):
    """AgentMemory with fsync at every write, as the other systems on disk do by default."""

    name = "AgentMemory, fsync"
    note = 'durability="disk": fsync at every write'
    fsync = True
    modes = ("vector",)

    def configure(self, config: Any) -> None:
        config.durability = "disk"


def _langgraph_index(embedder: Embedder) -> Any:
    """Return an index of the text only: one store reads "fields", the other "text_fields"."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        vectors: list[list[float]] = embedder.embed(list(texts)).tolist()
        return vectors

    return {"dims": DIMENSIONS, "embed": embed, "fields": ["text"], "text_fields": ["text"]}


class LangGraphInMemory(System):
    name = "LangGraph InMemoryStore"
    package = "langgraph"
    install = "pip install langgraph"
    note = "RAM only: gone with the process; one namespace an agent"
    on_disk = False

    store: Any

    def open(self, folder: Path, embedder: Embedder) -> None:
        from langgraph.store.memory import InMemoryStore

        self.store = InMemoryStore(index=_langgraph_index(embedder))

    def add(self, item: Item) -> None:
        self.store.put(("memories", item.agent), item.key, {"text": item.text})

    def add_batch(self, items: Sequence[Item]) -> None:
        from langgraph.store.base import PutOp

        self.store.batch([PutOp(("memories", item.agent), item.key, {"text": item.text}) for item in items])

    def search(self, agent: str, query: str, k: int, mode: str) -> list[str]:
        hits = self.store.search(("memories", agent), query=query, limit=k)
        return [hit.value["text"] for hit in hits]

    def close(self) -> None:
        pass


class LangGraphSqlite(LangGraphInMemory):
    name = "LangGraph SqliteStore"
    package = "langgraph-checkpoint-sqlite"
    install = "pip install langgraph-checkpoint-sqlite sqlite-vec pysqlite3-binary"
    note = "one namespace an agent; fsync at every write"
    on_disk = True
    fsync = True

    def open(self, folder: Path, embedder: Embedder) -> None:
        from langgraph.store.sqlite import SqliteStore

        self.folder = folder
        # The settings of SqliteStore.from_conn_string, which can't use another sqlite3 module.
        self.connection = self._sqlite().connect(
            str(folder / "store.db"), check_same_thread=False, isolation_level=None
        )
        self.store = SqliteStore(self.connection, index=_langgraph_index(embedder))
        self.store.setup()

    def _sqlite(self) -> Any:
        """Return a sqlite3 module that can load sqlite-vec; Python's own often can't."""
        if hasattr(sqlite3.Connection, "enable_load_extension"):
            return sqlite3
        try:
            import pysqlite3
        except ImportError:
            raise UnavailableError(
                "this Python's sqlite3 can't load extensions: pip install pysqlite3-binary"
            ) from None
        self.note = f"{type(self).note}; through pysqlite3, as this sqlite3 loads no extensions"
        return pysqlite3

    def close(self) -> None:
        self.connection.close()


class Chroma(System):
    name = "chromadb"
    package = "chromadb"
    install = "pip install chromadb"
    note = "PersistentClient, one collection, filtered by agent; HNSW; fsync at every write"
    fsync = True

    def open(self, folder: Path, embedder: Embedder) -> None:
        import chromadb
        from chromadb.config import Settings

        class Shared(chromadb.EmbeddingFunction):  # type: ignore[type-arg]
            def __init__(self) -> None:
                pass

            def __call__(self, input: list[str]) -> Any:
                return list(embedder.embed(list(input)))

            @staticmethod
            def name() -> str:
                return "shared"

            def get_config(self) -> dict[str, Any]:
                return {}

            @staticmethod
            def build_from_config(config: dict[str, Any]) -> Any:
                return Shared()

        self.folder = folder
        self.client: Any = chromadb.PersistentClient(
            str(folder), settings=Settings(anonymized_telemetry=False)
        )
        self.collection: Any = self.client.create_collection(
            "memories",
            embedding_function=Shared(),
            configuration={"hnsw": {"space": "cosine"}},
        )

    def add(self, item: Item) -> None:
        self.add_batch([item])

    def add_batch(self, items: Sequence[Item]) -> None:
        self.collection.add(
            ids=[item.key for item in items],
            documents=[item.text for item in items],
            metadatas=[{"agent": item.agent} for item in items],
        )

    def search(self, agent: str, query: str, k: int, mode: str) -> list[str]:
        found = self.collection.query(
            query_texts=[query], n_results=k, where={"agent": agent}, include=["documents"]
        )
        return list(found["documents"][0])

    def close(self) -> None:
        self.client.close()


class Mem0(System):
    name = "mem0, local qdrant"
    package = "mem0ai"
    install = "pip install mem0ai qdrant-client"
    note = "infer=False: no LLM; one user id an agent; fsync at every write; filled one by one"
    fsync = True

    def open(self, folder: Path, embedder: Embedder) -> None:
        # mem0 reads these when it is imported; without them it creates ~/.mem0.
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ["ANONYMIZED_TELEMETRY"] = "False"
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["MEM0_DIR"] = str(folder / "settings")
        from mem0 import Memory
        from mem0.embeddings.base import EmbeddingBase

        class Shared(EmbeddingBase):  # type: ignore[misc]
            def embed(self, text: str, memory_action: str | None = None) -> list[float]:
                vector: list[float] = embedder.embed([text])[0].tolist()
                return vector

        # Hides warnings that fastembed and spaCy, for its optional keyword search, are not installed.
        logging.getLogger("mem0").setLevel(logging.ERROR)
        self.folder = folder
        unused = {"provider": "openai", "config": {"api_key": "never-sent"}}
        qdrant = {
            "path": str(folder / "qdrant"),
            "collection_name": "memories",
            "embedding_model_dims": DIMENSIONS,
            "on_disk": True,
        }
        self.memory: Any = Memory.from_config(
            {
                "llm": unused,
                "embedder": unused,
                "vector_store": {"provider": "qdrant", "config": qdrant},
                "history_db_path": str(folder / "history.db"),
            }
        )
        self.memory.embedding_model = Shared()
        self.memory.llm = None  # a call to the language model must fail, not be measured

    def add(self, item: Item) -> None:
        self.memory.add(item.text, user_id=item.agent, infer=False)

    def add_batch(self, items: Sequence[Item]) -> None:
        for item in items:
            self.add(item)

    def search(self, agent: str, query: str, k: int, mode: str) -> list[str]:
        # The default threshold of 0.1 would hide some of the ten nearest memories.
        found = self.memory.search(query, top_k=k, filters={"user_id": agent}, threshold=0.0)
        return [hit["memory"] for hit in found["results"]]

    def close(self) -> None:
        self.memory.close()
        self.memory.vector_store.client.close()


ALL_SYSTEMS: tuple[type[System], ...] = (
    AgentMemory,
    AgentMemoryFsync,
    LangGraphInMemory,
    LangGraphSqlite,
    Chroma,
    Mem0,
)
