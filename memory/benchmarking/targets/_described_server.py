"""A target whose calls a TOML file describes (docs/described-servers.md); `mcp` and `http` send them.

The server decides the ids. This target notes them in the store's folder: so `delete_all` and `count` work
with any server, and an id of another agent is unknown.
"""

from __future__ import annotations

import json
import re
import tomllib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.targets._json_text import from_text, to_text
from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target

_CALLS = {"add": {"id"}, "search": {"hits", "id", "content"}, "get": {"content"}, "delete": set[str]()}
"""By call: the fields that say where its parts are in the answer."""
_CAPABILITIES = {"search_by", "durability", "persistence", "threads", "max_k", "delayed_search", "exact"}
IDS = "ids.jsonl"
"""The file in a store's folder with the store's name on the server and its ids."""
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class DescribedServerTarget(Target):
    """Reads the description, fills in the calls and finds ids, scores and contents in the answers."""

    address_form = "server.toml"
    description: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def for_address(cls, address: str) -> type[Target]:
        return _described(cls, address) if address else cls

    # -- what a protocol implements -----------------------------------------------------------

    @abstractmethod
    def connect(self, folder: Path) -> None:
        """Start the server or connect to it."""

    @abstractmethod
    def call(self, call: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        """Send one described call and return the answer; raise an error with the server's answer."""

    # -- the interface of a target ------------------------------------------------------------

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        if not self.description:
            raise InvalidBenchmarkConfig(f"{self.name} needs a file: --target {self.name}=server.toml")
        self._store, self._ids = _read_ids(folder / IDS)
        self.connect(folder)
        self._file = (folder / IDS).open("a")
        if not self._store:
            self._store = uuid4().hex[:12]
            self._note({"store": self._store})

    def close(self) -> None:
        self._file.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = []
        for item in items:
            values = self._values(item.agent_id, text=to_text(item.content), content=item.content)
            id_ = self._part("add", "id", self.call(self.description["add"], values))
            self._note({"agent": item.agent_id, "id": id_})
            self._ids.setdefault(item.agent_id, {})[str(id_)] = id_
            ids.append(str(id_))
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        known = self._ids.get(agent_id, {})
        return [self._get(agent_id, known[id_]) if id_ in known else None for id_ in ids]

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        call = self.description["search"]
        answer = self.call(call, self._values(agent_id, query=to_text(query), k=k))
        found = []
        for hit in self._part("search", "hits", answer):
            score = float(self._part("search", "score", hit)) if "score" in call else 1.0
            content = self._content(self._part("search", "content", hit))
            found.append(Found(str(self._part("search", "id", hit)), score, content))
        return found

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        if "update" not in self.description:
            return super().update(agent_id, id, content)
        known = self._ids.get(agent_id, {})
        if id not in known:
            return False
        values = self._values(agent_id, id=known[id], text=to_text(content), content=content)
        self.call(self.description["update"], values)
        return True

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        known = self._ids.get(agent_id, {})
        present = [id_ for id_ in dict.fromkeys(ids) if id_ in known]
        for id_ in present:
            self.call(self.description["delete"], self._values(agent_id, id=known[id_]))
            self._note({"agent": agent_id, "deleted": id_})
            del known[id_]
        return len(present)

    def delete_all(self, agent_id: str) -> int:
        if "delete_all" not in self.description:
            return self.delete(agent_id, list(self._ids.get(agent_id, {})))
        self.call(self.description["delete_all"], self._values(agent_id))
        self._note({"agent": agent_id, "deleted": None})
        return len(self._ids.pop(agent_id, {}))

    def agents(self) -> list[str]:
        """Return the agents that have memories in the open store."""
        return list(self._ids)

    def count(self) -> dict[str, int]:
        return {WHOLE: sum(map(len, self._ids.values()))}

    # -- placeholders, answers and the noted ids ----------------------------------------------

    def _get(self, agent_id: str, id_: Any) -> Any:
        answer = self.call(self.description["get"], self._values(agent_id, id=id_))
        return self._content(self._part("get", "content", answer))

    def _content(self, stored: Any) -> Any:
        """Return a content as it was before `add` filled it in: as it is, or as a text."""
        takes_json = "{content}" in json.dumps(self.description["add"])
        return stored if takes_json or not isinstance(stored, str) else from_text(stored)

    def _values(self, agent_id: str, **values: Any) -> dict[str, Any]:
        # Stores share a server: the store's own name keeps their agents apart.
        return {"agent": f"{self._store}-{agent_id.encode('utf-8', 'surrogatepass').hex()}", **values}

    def _part(self, call: str, field: str, answer: Any) -> Any:
        """Return a part of an answer by its path, such as `results.0.id`; "" is the whole answer."""
        part = answer
        path = self.description[call][field]
        for name in path.split(".") if path else ():
            try:
                part = part[int(name)] if isinstance(part, list) else part[name]
            except (KeyError, IndexError, TypeError, ValueError):
                shown = json.dumps(answer)[:300]
                raise RuntimeError(f"the answer to [{call}] has no {field} at {path!r}: {shown}") from None
        return part

    def _note(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def _read_ids(file: Path) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the name of the store, and by agent the ids as text and as the server wrote them."""
    store, ids = "", dict[str, dict[str, Any]]()
    for line in map(json.loads, file.read_text().splitlines() if file.exists() else ()):
        if "store" in line:
            store = line["store"]
        elif "id" in line:
            ids.setdefault(line["agent"], {})[str(line["id"])] = line["id"]
        elif line["deleted"] is None:
            ids.pop(line["agent"], None)
        else:
            del ids[line["agent"]][line["deleted"]]
    return store, ids


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """Return a template of JSON with its placeholders filled in.

    A text that is only a placeholder becomes the value with its type: "{k}" becomes a number.
    """
    if isinstance(template, dict):
        return {key: fill(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(value, values) for value in template]
    if not isinstance(template, str):
        return template
    whole = _PLACEHOLDER.fullmatch(template)
    if whole is not None and whole[1] in values:
        return values[whole[1]]
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), template)


@cache
def _described(kind: type[DescribedServerTarget], address: str) -> type[Target]:
    """Return a class with the capabilities that the file declares."""
    description = _read_description(address)
    options = dict(description.get("capabilities", {}))
    for name in options:
        if name not in _CAPABILITIES:
            raise InvalidBenchmarkConfig(
                f"{address}: [capabilities] has no {name!r}: use {', '.join(sorted(_CAPABILITIES))}"
            )
    capabilities = Capabilities(update="update" in description, get="get" in description, **options)
    parts = {"description": description, "capabilities": capabilities}
    return type(kind.__name__, (kind,), parts)


def _read_description(address: str) -> dict[str, Any]:
    try:
        description = tomllib.loads(Path(address).read_text())
    except OSError as problem:
        raise InvalidBenchmarkConfig(f"{address} can't be read: {problem.strerror}") from None
    except ValueError as problem:
        raise InvalidBenchmarkConfig(f"{address} is not valid TOML: {problem}") from None
    for call, parts in _CALLS.items():
        if call == "get" and call not in description:
            continue
        missing = parts - {*description.get(call, ())}
        if call not in description or missing:
            names = f" with {', '.join(sorted(missing))}" if missing else ""
            raise InvalidBenchmarkConfig(
                f"{address} needs a table [{call}]{names}: see docs/described-servers.md"
            )
    return description
