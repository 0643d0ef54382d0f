"""LangGraph's `InMemoryStore`, and what is common to its stores for long-term memory.

One namespace an agent. A memory is an item `{"text": …}`; the store embeds the field `text` by itself, with
the run's embedder. A list of texts is also in the field `texts`, which the stores on disk embed text by
text, as LangGraph's documents describe it for lists (`texts[*]`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from memory.benchmarking.targets._agent_names import hex_name
from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target

_PAGE = 1000
TEXT_BY_TEXT = ("text", "texts[*]")
"""The fields of stores that embed a list of texts text by text."""
STATES = "States are embedded as their JSON text."


class LangGraphMemoryTarget(Target):
    """`InMemoryStore`."""

    name = "langgraph-memory"
    requirements: ClassVar[tuple[str, ...]] = ("langgraph>=1.0",)
    distributions: ClassVar[tuple[str, ...]] = ("langgraph", "langgraph-checkpoint")
    capabilities = Capabilities(persistence=False)
    limits = (
        f"Everything is lost with the process. No count and no delete_all: both read all items. {STATES}"
    )

    store: Any
    _fields: ClassVar[tuple[str, ...]] = ("text",)
    """The fields that the store embeds. InMemoryStore refuses a text that comes twice in a batch."""

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        from langgraph.store.memory import InMemoryStore

        self.store = InMemoryStore(index=self._index())

    def close(self) -> None:
        self.store = None

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        from langgraph.store.base import PutOp

        ids = [uuid4().hex for _ in items]
        puts = [
            PutOp(_namespace(item.agent_id), id_, _value(item.content))
            for id_, item in zip(ids, items, strict=True)
        ]
        for batch in self._batches(puts):
            self.store.batch(batch)
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        from langgraph.store.base import GetOp

        found = self.store.batch([GetOp(_namespace(agent_id), id_) for id_ in ids]) if ids else []
        return [None if item is None else _content(item.value) for item in found]

    def get_one(self, agent_id: str, id: str) -> Any:
        item = self.store.get(_namespace(agent_id), id)
        return None if item is None else _content(item.value)

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        hits = self.store.search(_namespace(agent_id), query=_value(query)["text"], limit=k)
        return [Found(hit.key, hit.score or 0.0, _content(hit.value)) for hit in hits]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        if self.store.get(_namespace(agent_id), id) is None:
            return False
        self.store.put(_namespace(agent_id), id, _value(content))
        return True

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        from langgraph.store.base import GetOp, PutOp

        namespace, unique = _namespace(agent_id), list(dict.fromkeys(ids))
        if not unique:
            return 0
        found = self.store.batch([GetOp(namespace, id_) for id_ in unique])
        present = [item.key for item in found if item is not None]
        if present:
            self.store.batch([PutOp(namespace, id_, None) for id_ in present])
        return len(present)

    def delete_all(self, agent_id: str) -> int:
        deleted = 0
        while items := self.store.search(_namespace(agent_id), limit=_PAGE):
            deleted += self.delete(agent_id, [item.key for item in items])
        return deleted

    def count(self) -> dict[str, int]:
        total = 0
        while items := self.store.search(("memories",), limit=_PAGE, offset=total):
            total += len(items)
        return {WHOLE: total}

    def _index(self) -> Any:
        def embed(texts: Sequence[str]) -> list[list[float]]:
            vectors: list[list[float]] = self.embed_texts(texts).tolist()
            return vectors

        # SqliteStore reads the fields from "text_fields", the other two from "fields".
        fields = list(self._fields)
        return {"dims": self.dimensions, "embed": embed, "fields": fields, "text_fields": fields}

    def _batches(self, puts: Sequence[Any]) -> list[list[Any]]:
        """Split a batch so that no text comes twice in one: InMemoryStore refuses that."""
        batches: list[list[Any]] = []
        seen: dict[str, int] = {}
        for put in puts:
            number = seen[put.value["text"]] = seen.get(put.value["text"], -1) + 1
            if number == len(batches):
                batches.append([])
            batches[number].append(put)
        return batches


def _namespace(agent_id: str) -> tuple[str, ...]:
    """Return the namespace of an agent; labels allow no dot and no empty text, so the name is in hex.

    A search for a namespace finds those below it too. The last label makes sure that there are none.
    """
    return ("memories", hex_name(agent_id), "all")


def _value(content: Any) -> dict[str, Any]:
    if isinstance(content, str) and "\0" not in content:  # PostgreSQL stores no NUL
        return {"text": content}
    value = {"text": json.dumps(content), "json": True}
    is_texts = isinstance(content, list) and all(
        isinstance(text, str) and text and "\0" not in text for text in content
    )
    return {**value, "texts": content} if is_texts and content else value


def _content(value: Mapping[str, Any]) -> Any:
    return json.loads(value["text"]) if value.get("json") else value["text"]
