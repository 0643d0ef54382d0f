"""The memory as a LangGraph store: durable, and searched by words and meaning without further setup.

    store = AgentMemoryStore(memory)
    graph = builder.compile(store=store)

An item is one memory: its value is the content, namespace and key are in its id, and what the store has
to know about it is in its metadata, under "langgraph". Fields that are indexed by themselves
(`index=["title"]`) are memories of their own beside it, the parts. A part counts only as long as its item
still says the same: so a writer that is killed halfway leaves at most parts that nobody sees.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar

from memory._base.checks import MAX_NAME
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
_Found = TypeVar("_Found")

_WHOLE = "$"
"""The path that means: the whole value."""
_END = ".."
"""Stands between namespace and key in an id; no label has a period, so the first one ends the namespace."""
_OURS = "langgraph"
_PART_MARK = 17
"""A part's id is its item's, and "#" and 16 digits of its text's hash."""


class AgentMemoryStore(BaseStore):
    """LangGraph's `BaseStore` on an open `AgentMemorySystem`, which stays the caller's to close.

    `fields` are the paths that are indexed unless `put` says otherwise; by default the whole value is.
    Without a query the newest items come first. A search with one ranks by words and meaning, and what was
    not indexed follows, without a score. Items with a `ttl` (minutes since the last use) are out of
    sight when it has passed, and gone after `sweep_ttl()`.
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
        self._putting = threading.Lock()  # replacing an item and its parts takes several steps
        self._swept_at = system.clock.now()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out all operations: those that read see what was there before those that write."""
        results: list[Result] = []
        puts: dict[str, PutOp] = {}
        for op in ops:
            if isinstance(op, PutOp):
                puts[_id_of(_checked(op.namespace), op.key)] = op
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
                    pass  # another process was faster: look again
        self._sweep_if_due()
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same in a thread, so that the loop goes on meanwhile."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete the items whose time has passed; how many."""
        with self._putting:
            self._swept_at = self.system.clock.now()
            mortal = self.system.retrieve_by_attributes(self.agent_id, {f"{_OURS}.mortal": True})
            expired = [entry for entry in mortal if self._is_expired(entry)]
            self._delete(expired)
        return len(expired)

    def _sweep_if_due(self) -> None:
        minutes = (self.ttl_config or {}).get("sweep_interval_minutes")
        if minutes is not None and self.system.clock.now() - self._swept_at >= 60 * minutes:
            self.sweep_ttl()

    # -- reading ------------------------------------------------------------------------------

    def _get(self, op: GetOp) -> Item | None:
        entry = self.system.get(self.agent_id, _id_of(_checked(op.namespace), op.key))
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
        prefix = _checked(op.namespace_prefix)
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
        """The best items and their scores; an item is as good as its best part."""
        filters = {**_place(prefix), f"{_OURS}.found": True}

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

        return _enough(attempt, wanted)

    def _owners(self, parts: Sequence[MemoryEntry]) -> dict[str, MemoryEntry]:
        """The items of some parts, by the part's id; not of those that have become another's leftovers."""
        ids = list(dict.fromkeys(part.id[:-_PART_MARK] for part in parts))
        items = {item.id: item for item in self.system.get_many(self.agent_id, ids) if item is not None}
        said = {id_: set(_part_ids(item)) for id_, item in items.items()}
        return {
            part.id: items[owner]
            for part in parts
            if (owner := part.id[:-_PART_MARK]) in items and part.id in said[owner]
        }

    def _listed(
        self, prefix: Namespace, condition: Mapping[str, Any] | None, wanted: int | None
    ) -> list[MemoryEntry]:
        """Items of a namespace and those below it, the newest first."""
        filters: dict[str, Any] = {**_place(prefix), f"{_OURS}.item": True}
        # Equal texts are what our own filters know, too: fewer items are read then.
        filters |= {
            key: value
            for key, value in (condition or {}).items()
            if isinstance(value, str) and key not in ("", "kind")
        }

        def attempt(k: int | None) -> tuple[list[MemoryEntry], bool]:
            entries = self.system.retrieve_by_attributes(self.agent_id, filters, limit=k)
            fitting = [entry for entry in entries if self._fits(entry, prefix, condition)]
            return fitting, k is None or len(entries) < k

        return attempt(None)[0] if wanted is None else _enough(attempt, wanted)

    def _fits(self, entry: MemoryEntry, prefix: Namespace, condition: Mapping[str, Any] | None) -> bool:
        # Namespace and marks too: a value may look like the metadata by which it was found.
        return (
            "item" in _ours_of(entry)
            and _name_of(entry)[0][: len(prefix)] == prefix
            and not self._is_expired(entry)
            and all(_agrees(entry.content.get(key), wanted) for key, wanted in (condition or {}).items())
        )

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        for condition in conditions:
            _checked(condition.path)
        prefixes = [_literal(condition) for condition in conditions if condition.match_type == "prefix"]
        within = max(prefixes, key=len, default=())
        names = {_name_of(entry)[0] for entry in self._listed(within, None, None)}
        fitting = {name for name in names if all(_matches(condition, name) for condition in conditions)}
        return sorted({name[: op.max_depth] for name in fitting})[op.offset : op.offset + op.limit]

    # -- writing ------------------------------------------------------------------------------

    def _put(self, puts: Mapping[str, PutOp]) -> bool:
        """Store, replace and delete; False if somebody else changed one of them meanwhile.

        Parts come before the item that makes them count, and go after it.
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
            ours["parts"] = [_number_of(text) for text in texts]  # not as texts: those would be its words
        if _WHOLE in paths:
            ours["found"] = True
        if op.ttl is not None:
            ours |= {"mortal": True, "ttl": op.ttl, "expires_at": self._end_of(op.ttl)}
        if _END not in id_:
            ours["name"] = [*op.namespace, op.key]
        return NewMemory(agent_id=self.agent_id, content=value, kind="item", id=id_, metadata={_OURS: ours})

    def _parts(self, id_: str, op: PutOp) -> list[NewMemory]:
        return [
            NewMemory(
                agent_id=self.agent_id,
                content=text,
                kind="part",
                id=_part_id(id_, _number_of(text)),
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

    def _end_of(self, minutes: float) -> float:
        return self.system.clock.now() + 60 * minutes

    def _is_expired(self, entry: MemoryEntry) -> bool:
        expires_at = _ours_of(entry).get("expires_at")
        return expires_at is not None and expires_at <= self.system.clock.now()

    def _refresh(self, entry: MemoryEntry) -> None:
        minutes = _ours_of(entry).get("ttl")
        if minutes is not None:
            metadata = _with(entry.metadata, expires_at=self._end_of(minutes))
            self.system.update(self.agent_id, entry.id, metadata=metadata)


# -- names ------------------------------------------------------------------------------------


def _checked(namespace: Sequence[str]) -> Namespace:
    for label in namespace:
        if not isinstance(label, str) or not label or "." in label:
            raise InvalidNamespaceError(
                f"namespace {tuple(namespace)!r} has the label {label!r}: use text without periods"
            )
    return tuple(namespace)


def _id_of(namespace: Namespace, key: str) -> str:
    """Readable where it is short enough to be an id, else a hash."""
    name = ".".join(namespace) + _END + key
    if len(name) + _PART_MARK <= MAX_NAME:
        return name
    return "#" + blake2b(name.encode("utf-8", "surrogatepass"), digest_size=24).hexdigest()


def _name_of(item: MemoryEntry) -> tuple[Namespace, str]:
    labels, end, key = item.id.partition(_END)
    if not end:
        *namespace, key = _ours_of(item)["name"]
        return tuple(namespace), key
    return tuple(labels.split(".")) if labels else (), key


def _marks(namespace: Namespace) -> dict[str, bool]:
    """The namespace and all above it, as attributes: they can be filtered by, and are no words."""
    return {".".join(namespace[:depth]): True for depth in range(len(namespace) + 1)}


def _place(prefix: Namespace) -> dict[str, bool]:
    return {f"{_OURS}.in.{'.'.join(prefix)}": True}


def _number_of(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _part_id(item_id: str, number: int) -> str:
    return f"{item_id}#{number:016x}"


def _part_ids(item: MemoryEntry) -> list[str]:
    return [_part_id(item.id, number) for number in _ours_of(item).get("parts", ())]


def _texts_at(value: dict[str, Any], paths: Sequence[str]) -> list[str]:
    """What is indexed by itself: the texts at all paths but that of the whole value, each once."""
    texts = (text for path in paths if path != _WHOLE for text in get_text_at_path(value, path))
    return list(dict.fromkeys(text for text in texts if text))


# -- conditions -------------------------------------------------------------------------------


def _literal(condition: MatchCondition) -> Namespace:
    """A prefix up to its first wildcard."""
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


def _agrees(value: Any, wanted: Any) -> bool:
    """LangGraph's filter: a value, an object of values, or an object of operators such as $gt."""
    if isinstance(wanted, Mapping):
        if any(key.startswith("$") for key in wanted):
            return all(_compares(value, sign, bound) for sign, bound in wanted.items())
        return isinstance(value, dict) and all(_agrees(value.get(key), wanted[key]) for key in wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_agrees(*pair) for pair in zip(value, wanted, strict=True))
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
        return False  # what is no number is neither more nor less


# -- small change -----------------------------------------------------------------------------


def _enough(attempt: Callable[[int], tuple[list[_Found], bool]], wanted: int) -> list[_Found]:
    """Ask for more and more until enough is left of it, or it was everything."""
    k = wanted
    while True:
        found, is_all = attempt(k)
        if is_all or len(found) >= wanted:
            return found[:wanted]
        k *= 4


def _found_item(entry: MemoryEntry, score: float | None) -> SearchItem:
    return SearchItem(*_name_of(entry), entry.content, *_times(entry), score)


def _times(entry: MemoryEntry) -> tuple[datetime, datetime]:
    """When it was first put, and when last."""
    updated_at = _ours_of(entry).get("updated_at", entry.created_at)
    return datetime.fromtimestamp(entry.created_at, UTC), datetime.fromtimestamp(updated_at, UTC)


def _ours_of(entry: MemoryEntry) -> dict[str, Any]:
    ours = entry.metadata.get(_OURS)
    return ours if isinstance(ours, dict) else {}


def _with(metadata: Mapping[str, Any] | None, **changes: Any) -> dict[str, Any]:
    """The metadata with some of our own fields changed."""
    metadata = dict(metadata or {})
    return {**metadata, _OURS: {**metadata.get(_OURS, {}), **changes}}
