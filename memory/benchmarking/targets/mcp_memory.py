"""The Model Context Protocol's reference memory server: a knowledge graph in one file, over stdio.

A memory is an entity: its id is the name, its content the only observation, its agent the type. All agents
share one server and one file, as the clients of one user do.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from memory.benchmarking.errors import MissingDependency
from memory.benchmarking.targets._agent_names import hex_name
from memory.benchmarking.targets._json_text import from_text, to_text
from memory.benchmarking.targets._mcp_client import McpServer
from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target

_PROGRAM = "mcp-server-memory"


class McpMemoryTarget(Target):
    name = "mcp-memory"
    npm_requirements = ("@modelcontextprotocol/server-memory@>=2025.4.25",)
    capabilities = Capabilities(search_by="words", durability="process")
    limits = (
        "Search finds the memories that contain the whole query, in the order stored, without scores. "
        "Every call reads the whole file, and every write rewrites it. One process a folder."
    )

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        file = {"MEMORY_FILE_PATH": str(folder.resolve() / "memory.jsonl")}
        self._server = McpServer([_program()], folder / "server.log", file)

    def close(self) -> None:
        self._server.close()

    def transport_ms(self) -> float:
        return self._server.ping_ms()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = [uuid4().hex for _ in items]
        entities = [
            {
                "name": id_,
                "entityType": hex_name(item.agent_id),
                "observations": [to_text(item.content)],
            }
            for id_, item in zip(ids, items, strict=True)
        ]
        if entities:
            self._server.call("create_entities", {"entities": entities})
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        found = self._open_nodes(agent_id, ids)
        return [from_text(found[id_]) if id_ in found else None for id_ in ids]

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        graph = self._server.call("search_nodes", {"query": to_text(query)})
        hits = _observations(graph, agent_id).items()
        return [Found(id_, 1.0, from_text(text)) for id_, text in list(hits)[: max(0, k)]]

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        graph = self._server.call("open_nodes", {"names": [id]})
        if id not in _observations(graph, agent_id):
            return False
        # First the new text: a process that is killed between the two calls leaves the old one as well.
        new = to_text(content)
        self._server.call("add_observations", {"observations": [{"entityName": id, "contents": [new]}]})
        old = [text for text in graph["entities"][0]["observations"] if text != new]
        self._server.call("delete_observations", {"deletions": [{"entityName": id, "observations": old}]})
        return True

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        present = list(self._open_nodes(agent_id, ids))
        if present:
            self._server.call("delete_entities", {"entityNames": present})
        return len(present)

    def delete_all(self, agent_id: str) -> int:
        return self.delete(agent_id, list(_observations(self._server.call("read_graph", {}), agent_id)))

    def count(self) -> dict[str, int]:
        return {WHOLE: len(self._server.call("read_graph", {})["entities"])}

    def _open_nodes(self, agent_id: str, ids: Sequence[str]) -> dict[str, str]:
        """Return the texts of the agent's memories by id."""
        if not ids:
            return {}
        return _observations(self._server.call("open_nodes", {"names": list(ids)}), agent_id)


def _observations(graph: Mapping[str, Any], agent_id: str) -> dict[str, str]:
    """Return the text of each of the agent's entities, by name."""
    kind = hex_name(agent_id)  # a search also compares the type with the query
    return {
        entity["name"]: entity["observations"][0]
        for entity in graph["entities"]
        if entity["entityType"] == kind
    }


def _program() -> str:
    installed = Path(sys.prefix) / "node_modules" / ".bin" / _PROGRAM
    program = str(installed) if installed.exists() else shutil.which(_PROGRAM)
    if program is None:
        raise MissingDependency(
            f"{_PROGRAM} is not installed: run `membench targets install {McpMemoryTarget.name}`"
        )
    return program
