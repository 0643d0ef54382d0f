"""A LangGraph store that uses an AgentMemorySystem: durable, with search by words and by meaning.

    store = AgentMemoryStore(memory)
    graph = builder.compile(store=store)

Each item is stored as one memory. The memory's content is the item's value, and its id consists of
namespace and key. The store's own fields are in the memory's metadata, under "langgraph". Each field
that is indexed separately (`index=["title"]`) is stored as one more memory, called a part. A search
ignores parts that their item does not list. So if a writer is killed halfway, no search returns the
parts that it left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar

from memory._base.checks import MAX_NAME
from memory._base.content import hash_of
from memory._write.intake import NewMemory
from memory.entry import MemoryEntry
from memory.errors import IdConflict
from memory.system import AgentMemorySystem

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
    )
except ImportError as problem:
    raise ImportError(
        f"a LangGraph store needs LangGraph ({problem}): pip install 'agentmemory-tiers[langgraph]'"
    ) from problem

Namespace: TypeAlias = tuple[str, ...]
_T = TypeVar("_T")

_WHOLE = "$"
"""The path that means: the whole value."""
_END = ".."
"""Separates namespace and key in an id. Labels have no periods, so the first ".." ends the namespace."""
_OURS = "langgraph"
"""The metadata key of the store's own fields:

item: True in an item, absent in a part
in: the namespace and all its parent namespaces; see `_marks`
found: True if a search may match this memory's content
parts: the hashes of the item's parts
mortal, ttl, expires_at: only in an item with a `ttl`
name: namespace and key, if the id is a hash
updated_at: when the item was last replaced
"""
_PART_SUFFIX = 17
"""Characters that follow the item's id in a part's id: "#" and 16 digits of the text's hash."""


class AgentMemoryStore(BaseStore):
    """LangGraph's `BaseStore` on an open `AgentMemorySystem`. The caller closes the system.

    A search without a query returns the newest items first. A search with a query ranks items by words and
    meaning; items that are not indexed come last, without a score. The `ttl` of an item is in minutes since
    its last use. After that time the item is not returned, and `sweep_ttl()` deletes it.

    Args:
        system: stores the items.
        agent_id: the agent that owns the items.
        fields: the paths that are indexed if `put` has no `index`; by default the whole value.
        ttl: LangGraph's settings for the lifetime of items.
    """

    supports_ttl = True

    def __init__(
        self,
        system: AgentMemorySystem,
        *,
        agent_id: str = "langgraph",
        fields: Sequence[str] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self.system = system
        self.agent_id = agent_id
        self.fields = [_WHOLE] if fields is None else list(fields)
        self.ttl_config = ttl
        self._putting = threading.Lock()  # held while several calls replace an item and its parts
        self._swept_at = system.clock.now()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run all operations. Reads do not see the writes of the same batch."""
        results: list[Result] = []
        puts: dict[str, PutOp] = {}
        for op in ops:
            if isinstance(op, PutOp):
                puts[_id_of(_check_namespace(op.namespace), op.key)] = op
                results.append(None)
            elif isinstance(op, GetOp):
                results.append(self._get(op))
            elif isinstance(op, SearchOp):
                results.append(self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(self._namespaces(op))
            else:
                raise ValueError(f"unknown operation {type(op).__name__}: use GetOp, PutOp, SearchOp, …")
        if puts:
            with self._putting:
                while not self._put(puts):
                    pass  # another process changed an item at the same time: try again
        self._sweep_if_due()
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run `batch` in a thread, so that the event loop is not blocked."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete the items whose `ttl` has passed. Return how many were deleted."""
        with self._putting:
            self._swept_at = self.system.clock.now()
            limited = self.system.retrieve_by_attributes(self.agent_id, {f"{_OURS}.mortal": True})
            expired = [entry for entry in limited if self._is_expired(entry)]
            self._delete(expired)
        return len(expired)

    def _sweep_if_due(self) -> None:
        minutes = (self.ttl_config or {}).get("sweep_interval_minutes")
        if minutes is not None and self.system.clock.now() - self._swept_at >= 60 * minutes:
            self.sweep_ttl()

    # -- reading ------------------------------------------------------------------------------

    def _get(self, op: GetOp) -> Item | None:
        entry = self.system.get(self.agent_id, _id_of(_check_namespace(op.namespace), op.key))
        if entry is None or self._is_expired(entry):
            return None
        if op.refresh_ttl:
            self._refresh(entry)
        namespace, key = _name_of(entry)
        created_at, updated_at = _times(entry)
        return Item(
            value=entry.content, key=key, namespace=namespace, created_at=created_at, updated_at=updated_at
        )

    def _search(self, op: SearchOp) -> list[SearchItem]:
        prefix = _check_namespace(op.namespace_prefix)
        end = op.offset + op.limit
        scores: dict[str, float | None] = {}
        found: dict[str, MemoryEntry] = {}
        if op.query:
            for entry, score in self._ranked(op, op.query, prefix, end):
                found[entry.id], scores[entry.id] = entry, score
        if len(found) < end:
            for entry in self._listed(prefix, op.filter, end + len(found)):
                found.setdefault(entry.id, entry)
        chosen = list(found.values())[op.offset : end]
        if op.refresh_ttl:
            for entry in chosen:
                self._refresh(entry)
        return [_found_item(entry, scores.get(entry.id)) for entry in chosen]

    def _ranked(
        self, op: SearchOp, query: str, prefix: Namespace, wanted: int
    ) -> list[tuple[MemoryEntry, float]]:
        """Return the best items and their scores. The score of an item is the score of its best part."""
        filters = {**_within(prefix), f"{_OURS}.found": True}

        def attempt(k: int) -> tuple[list[tuple[MemoryEntry, float]], bool]:
            hits = self.system.search(self.agent_id, query, k, filters=filters)
            owners = self._owners([hit.entry for hit in hits if hit.entry.kind == "part"])
            best: dict[str, tuple[MemoryEntry, float]] = {}
            for hit in hits:
                if "found" not in _ours_of(hit.entry):
                    continue
                item = owners.get(hit.id) if hit.entry.kind == "part" else hit.entry
                if item is not None and item.id not in best and self._fits(item, prefix, op.filter):
                    best[item.id] = (item, hit.score)
            return list(best.values()), len(hits) < k

        return _until_enough(attempt, wanted)

    def _owners(self, parts: Sequence[MemoryEntry]) -> dict[str, MemoryEntry]:
        """Return the item of each part, by the part's id. Skip parts that their item no longer lists."""
        ids = list(dict.fromkeys(part.id[:-_PART_SUFFIX] for part in parts))
        items = {item.id: item for item in self.system.get_many(self.agent_id, ids) if item is not None}
        listed = {id_: set(_part_ids(item)) for id_, item in items.items()}
        return {
            part.id: items[owner]
            for part in parts
            if (owner := part.id[:-_PART_SUFFIX]) in items and part.id in listed[owner]
        }

    def _listed(
        self, prefix: Namespace, condition: Mapping[str, Any] | None, wanted: int | None
    ) -> list[MemoryEntry]:
        """Return the items of a namespace and of its child namespaces, newest first."""
        filters: dict[str, Any] = {**_within(prefix), f"{_OURS}.item": True}
        # The system itself can compare texts for equality, so fewer items are read.
        filters |= {
            key: value
            for key, value in (condition or {}).items()
            if isinstance(value, str) and key not in ("", "kind")
        }

        def attempt(k: int | None) -> tuple[list[MemoryEntry], bool]:
            entries = self.system.retrieve_by_attributes(self.agent_id, filters, limit=k)
            fitting = [entry for entry in entries if self._fits(entry, prefix, condition)]
            return fitting, k is None or len(entries) < k

        return attempt(None)[0] if wanted is None else _until_enough(attempt, wanted)

    def _fits(self, entry: MemoryEntry, prefix: Namespace, condition: Mapping[str, Any] | None) -> bool:
        # Check namespace and marks again: an item's value may contain keys that look like this metadata.
        return (
            "item" in _ours_of(entry)
            and _name_of(entry)[0][: len(prefix)] == prefix
            and not self._is_expired(entry)
            and all(_passes(entry.content.get(key), wanted) for key, wanted in (condition or {}).items())
        )

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        for condition in conditions:
            _check_namespace(condition.path)
        prefixes = [
            _fixed_prefix(condition) for condition in conditions if condition.match_type == "prefix"
        ]
        within = max(prefixes, key=len, default=())
        names = {_name_of(entry)[0] for entry in self._listed(within, None, None)}
        fitting = {name for name in names if all(_matches(condition, name) for condition in conditions)}
        return sorted({name[: op.max_depth] for name in fitting})[op.offset : op.offset + op.limit]

    # -- writing ------------------------------------------------------------------------------

    def _put(self, puts: Mapping[str, PutOp]) -> bool:
        """Store, replace and delete items. Return False if another process changed an item meanwhile.

        Parts are stored before the item that lists them, and are deleted after the item.
        """
        system, agent = self.system, self.agent_id
        known = {entry.id: entry for entry in system.get_many(agent, list(puts)) if entry is not None}
        expired = [entry for entry in known.values() if self._is_expired(entry)]
        self._delete(expired)
        for entry in expired:
            del known[entry.id]
        new: list[NewMemory] = []
        changed: dict[str, NewMemory] = {}
        kept: set[str] = set()
        for id_, op in puts.items():
            if op.value is None:
                continue
            item = self._item(id_, op)
            parts = self._parts(id_, op)
            kept.update(part.id for part in parts if part.id is not None)
            new.extend(parts)
            if id_ in known:
                changed[id_] = item
            else:
                new.append(item)
        try:
            system.add_many(new)
        except IdConflict:
            return False
        for id_, item in changed.items():
            metadata = _with(item.metadata, updated_at=system.clock.now())
            if not system.update(agent, id_, content=item.content, metadata=metadata):
                return False
        gone = [known[id_] for id_, op in puts.items() if op.value is None and id_ in known]
        stale = [part for id_ in changed for part in _part_ids(known[id_]) if part not in kept]
        self._delete(gone, stale)
        return True

    def _item(self, id_: str, op: PutOp) -> NewMemory:
        value = dict(op.value or {})
        paths = self._paths(op)
        ours: dict[str, Any] = {"item": True, "in": _marks(op.namespace)}
        texts = _texts_at(value, paths)
        if texts:
            ours["parts"] = [
                hash_of(text) for text in texts
            ]  # numbers, because texts would be search terms
        if _WHOLE in paths:
            ours["found"] = True
        if op.ttl is not None:
            ours |= {"mortal": True, "ttl": op.ttl, "expires_at": self._expiry(op.ttl)}
        if _END not in id_:
            ours["name"] = [*op.namespace, op.key]
        return NewMemory(agent_id=self.agent_id, content=value, kind="item", id=id_, metadata={_OURS: ours})

    def _parts(self, id_: str, op: PutOp) -> list[NewMemory]:
        return [
            NewMemory(
                agent_id=self.agent_id,
                content=text,
                kind="part",
                id=_part_id(id_, hash_of(text)),
                metadata={_OURS: {"in": _marks(op.namespace), "found": True}},
            )
            for text in _texts_at(dict(op.value or {}), self._paths(op))
        ]

    def _paths(self, op: PutOp) -> list[str]:
        if op.index is False:
            return []
        return self.fields if op.index is None else list(op.index)

    def _delete(self, items: Sequence[MemoryEntry], ids: Sequence[str] = ()) -> None:
        every = [*ids, *(id_ for item in items for id_ in (item.id, *_part_ids(item)))]
        if every:
            self.system.delete_many(self.agent_id, every)

    # -- time ---------------------------------------------------------------------------------

    def _expiry(self, minutes: float) -> float:
        return self.system.clock.now() + 60 * minutes

    def _is_expired(self, entry: MemoryEntry) -> bool:
        expires_at = _ours_of(entry).get("expires_at")
        return expires_at is not None and expires_at <= self.system.clock.now()

    def _refresh(self, entry: MemoryEntry) -> None:
        minutes = _ours_of(entry).get("ttl")
        if minutes is not None:
            metadata = _with(entry.metadata, expires_at=self._expiry(minutes))
            self.system.update(self.agent_id, entry.id, metadata=metadata)


# -- names ------------------------------------------------------------------------------------


def _check_namespace(namespace: Sequence[str]) -> Namespace:
    for label in namespace:
        if not isinstance(label, str) or not label or "." in label:
            raise InvalidNamespaceError(
                f"namespace {tuple(namespace)!r} has the label {label!r}: use text without periods"
            )
    return tuple(namespace)


def _id_of(namespace: Namespace, key: str) -> str:
    """Return namespace and key as one text, or its hash if the text is too long for an id."""
    name = ".".join(namespace) + _END + key
    if len(name) + _PART_SUFFIX <= MAX_NAME:
        return name
    return "#" + blake2b(name.encode("utf-8", "surrogatepass"), digest_size=24).hexdigest()


def _name_of(item: MemoryEntry) -> tuple[Namespace, str]:
    labels, end, key = item.id.partition(_END)
    if not end:
        *namespace, key = _ours_of(item)["name"]
        return tuple(namespace), key
    return tuple(labels.split(".")) if labels else (), key


def _marks(namespace: Namespace) -> dict[str, bool]:
    """Return a namespace and its parents as attributes: filters use them, text searches do not."""
    return {".".join(namespace[:depth]): True for depth in range(len(namespace) + 1)}


def _within(prefix: Namespace) -> dict[str, bool]:
    return {f"{_OURS}.in.{'.'.join(prefix)}": True}


def _part_id(item_id: str, number: int) -> str:
    return f"{item_id}#{number:016x}"


def _part_ids(item: MemoryEntry) -> list[str]:
    return [_part_id(item.id, number) for number in _ours_of(item).get("parts", ())]


def _texts_at(value: dict[str, Any], paths: Sequence[str]) -> list[str]:
    """Return the texts that are indexed separately: at all paths except "$", without duplicates."""
    texts = (text for path in paths if path != _WHOLE for text in get_text_at_path(value, path))
    return list(dict.fromkeys(text for text in texts if text))


# -- conditions -------------------------------------------------------------------------------


def _fixed_prefix(condition: MatchCondition) -> Namespace:
    """Return the labels of a condition before its first wildcard."""
    path = tuple(condition.path)
    return path[: path.index("*")] if "*" in path else path


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"match_type is {condition.match_type!r}: use 'prefix' or 'suffix'")
    if len(path) > len(namespace):
        return False
    start = 0 if condition.match_type == "prefix" else len(namespace) - len(path)
    return all(wanted in ("*", label) for wanted, label in zip(path, namespace[start:], strict=False))


def _passes(value: Any, wanted: Any) -> bool:
    """Apply a LangGraph filter: a value, an object of values, or an object of operators such as $gt."""
    if isinstance(wanted, Mapping):
        if any(key.startswith("$") for key in wanted):
            return all(_compares(value, sign, bound) for sign, bound in wanted.items())
        return isinstance(value, dict) and all(_passes(value.get(key), wanted[key]) for key in wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_passes(*pair) for pair in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "$gt": lambda value, bound: value > bound,
    "$gte": lambda value, bound: value >= bound,
    "$lt": lambda value, bound: value < bound,
    "$lte": lambda value, bound: value <= bound,
}


def _compares(value: Any, sign: str, bound: Any) -> bool:
    if sign == "$eq":
        return bool(value == bound)
    if sign == "$ne":
        return bool(value != bound)
    order = _ORDERS.get(sign)
    if order is None:
        raise ValueError(f"unknown operator {sign}: use $eq, $ne, $gt, $gte, $lt or $lte")
    try:
        return order(float(value), float(bound))
    except (TypeError, ValueError):
        return False  # values that are not numbers have no order


# -- entries and items ------------------------------------------------------------------------


def _until_enough(attempt: Callable[[int], tuple[list[_T], bool]], wanted: int) -> list[_T]:
    """Call `attempt` with a growing k until it returns enough results or all existing results."""
    k = wanted
    while True:
        found, is_all = attempt(k)
        if is_all or len(found) >= wanted:
            return found[:wanted]
        k *= 4


def _found_item(entry: MemoryEntry, score: float | None) -> SearchItem:
    return SearchItem(*_name_of(entry), entry.content, *_times(entry), score)


def _times(entry: MemoryEntry) -> tuple[datetime, datetime]:
    """Return when an item was first put and when it was last put."""
    updated_at = _ours_of(entry).get("updated_at", entry.created_at)
    return datetime.fromtimestamp(entry.created_at, UTC), datetime.fromtimestamp(updated_at, UTC)


def _ours_of(entry: MemoryEntry) -> dict[str, Any]:
    ours = entry.metadata.get(_OURS)
    return ours if isinstance(ours, dict) else {}


def _with(metadata: Mapping[str, Any] | None, **changes: Any) -> dict[str, Any]:
    """Return the metadata with some of the store's own fields changed."""
    metadata = dict(metadata or {})
    return {**metadata, _OURS: {**metadata.get(_OURS, {}), **changes}}
