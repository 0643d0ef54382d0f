"""Check new memories and turn them into rows: embed, encode, extract search terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory._base.checks import check_importance, check_name, check_step, check_timestamp, check_vector
from memory._base.content import Leaves, digest_of, encode_body, hash_of, leaves_of
from memory._base.ids import new_ids
from memory.clock import Clock
from memory.compression import TierCodecs
from memory.embedding import ContentEmbedder, render
from memory.entry import Tier, TierName, Timestamp
from memory.errors import InvalidMemory, short
from memory.search.terms import SESSION_KEYS, metadata_texts, terms_of_memory
from memory.storage import Row

_NO_METADATA: dict[str, Any] = {}


class NewMemory(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One memory as the caller passes it; the fields are the arguments of `AgentMemorySystem.add`."""

    agent_id: str
    content: Any
    kind: str | None = None
    tier: TierName = Tier.STM
    importance: float = 1.0
    step: int | None = None
    metadata: Mapping[str, Any] | None = None
    id: str | None = None
    timestamp: Timestamp | None = None
    vector: Sequence[float] | NDArray[np.float32] | None = None


class _Checked(msgspec.Struct, frozen=True, gc=False):
    """One memory whose fields are checked, but which is not embedded yet."""

    new: NewMemory
    tier: Tier
    importance: float
    step: int | None
    leaves: Leaves
    metadata: Mapping[str, Any]
    metadata_leaves: Leaves
    timestamp: float | None
    dated: bool
    body: bytes


class Intake:
    """Turns new memories into rows. It has no state of its own."""

    def __init__(self, embedder: ContentEmbedder, codecs: TierCodecs, clock: Clock) -> None:
        self._embedder = embedder
        self._codecs = codecs
        self._clock = clock

    def rows(self, batch: Sequence[NewMemory], dated: Sequence[bool] | None = None) -> list[Row]:
        """Return the rows of a batch, or raise InvalidMemory.

        `dated` says for each memory whether the caller chose its timestamp. If so, the date is a search
        term. By default, this is true for each timestamp that is not None.
        """
        if dated is None:
            dated = [new.timestamp is not None for new in batch]
        checked = [self._check(new, is_dated) for new, is_dated in zip(batch, dated, strict=True)]
        vectors = self._vectors(checked)
        ids = iter(new_ids(sum(item.new.id is None for item in checked)))
        encoded = self._encode_vectors(checked, vectors)
        now = self._clock.now()
        return [
            self._row(item, item.new.id if item.new.id is not None else next(ids), codes, now)
            for item, codes in zip(checked, encoded, strict=True)
        ]

    def only_ids(self, batch: Sequence[NewMemory]) -> list[Row]:
        """Return rows without content, to check their ids. Raise InvalidMemory if `rows` would."""
        rows = []
        for new in batch:
            item = self._check(new, False)
            if new.vector is not None:
                check_vector(new.vector, self._embedder.dimensions)
            rows.append(
                Row(
                    new.agent_id,
                    new.id or "",
                    0,
                    item.tier,
                    new.kind or "",
                    item.step,
                    0.0,
                    item.importance,
                    0,
                    b"",
                    stored_at=0.0,
                    dated=False,
                    digest=digest_of(new.content),
                    session=None,
                    terms=b"",
                    vector_codec=0,
                    vector=b"",
                    fine=None,
                )
            )
        return rows

    def row(self, new: NewMemory) -> Row:
        """Return the row of one memory, or raise InvalidMemory. `rows` takes a quarter longer for one."""
        item = self._check(new, new.timestamp is not None)
        if new.vector is None:
            vectors = self._embedder.embed([render(item.leaves)])
        else:
            vectors = check_vector(new.vector, self._embedder.dimensions)[None, :]
        (codes,) = self._codecs.vectors_for(item.tier, vectors, quick=True)
        id_ = new.id if new.id is not None else new_ids(1)[0]
        return self._row(item, id_, codes, self._clock.now())

    def _check(self, new: NewMemory, dated: bool) -> _Checked:
        check_name("agent_id", new.agent_id)
        if new.id is not None:
            check_name("id", new.id)
        if new.kind is not None:
            check_name("kind", new.kind)
        leaves = leaves_of(new.content)
        metadata: Mapping[str, Any] = _NO_METADATA
        metadata_leaves: Leaves = []
        if new.metadata is not None:
            if not isinstance(new.metadata, Mapping):
                raise InvalidMemory(f"metadata is {short(new.metadata)}: use a dict")
            metadata = dict(new.metadata)
            metadata_leaves = leaves_of(metadata, "metadata")
        return _Checked(
            new=new,
            tier=Tier.parse(new.tier),
            importance=check_importance(new.importance),
            step=check_step("step", new.step),
            leaves=leaves,
            metadata=metadata,
            metadata_leaves=metadata_leaves,
            timestamp=None if new.timestamp is None else check_timestamp("timestamp", new.timestamp),
            dated=dated,
            body=encode_body(new.content, metadata),
        )

    def _vectors(self, checked: Sequence[_Checked]) -> NDArray[np.float32]:
        if all(item.new.vector is None for item in checked):
            return self._embedder.embed([render(item.leaves) for item in checked])
        vectors = np.zeros((len(checked), self._embedder.dimensions), np.float32)
        plain = [row for row, item in enumerate(checked) if item.new.vector is None]
        if plain:
            vectors[plain] = self._embedder.embed([render(checked[row].leaves) for row in plain])
        for row, item in enumerate(checked):
            if item.new.vector is not None:
                vectors[row] = check_vector(item.new.vector, self._embedder.dimensions)
        return vectors

    def _encode_vectors(
        self, checked: Sequence[_Checked], vectors: NDArray[np.float32]
    ) -> list[tuple[int, bytes, bytes | None]]:
        tiers = {item.tier for item in checked}
        if len(tiers) == 1:
            return self._codecs.vectors_for(tiers.pop(), vectors, quick=True)
        encoded: list[tuple[int, bytes, bytes | None]] = [(0, b"", None)] * len(checked)
        for tier in tiers:
            rows = [row for row, item in enumerate(checked) if item.tier is tier]
            for row, codes in zip(
                rows, self._codecs.vectors_for(tier, vectors[rows], quick=True), strict=True
            ):
                encoded[row] = codes
        return encoded

    def _row(self, item: _Checked, id_: str, codes: tuple[int, bytes, bytes | None], now: float) -> Row:
        new = item.new
        body_codec, body = self._codecs.body_for(item.tier, item.body, quick=True)
        vector_codec, vector, fine = codes
        kind = new.kind or ("text" if isinstance(new.content, str) else "state")
        return Row(
            new.agent_id,
            id_,
            0,
            item.tier,
            kind,
            item.step,
            now if item.timestamp is None else item.timestamp,
            item.importance,
            body_codec,
            body,
            stored_at=now,
            dated=item.dated,
            digest=digest_of(new.content),
            session=session_of(item.metadata) if item.metadata else None,
            terms=terms_of_memory(
                item.leaves,
                kind,
                metadata_texts(item.metadata_leaves),
                item.metadata_leaves,
                item.timestamp if item.dated else None,
            ),
            vector_codec=vector_codec,
            vector=vector,
            fine=fine,
            is_final=item.tier is not Tier.LTM or self._codecs.is_final(Tier.LTM),
            has_new_id=new.id is None,
        )


def session_of(metadata: Mapping[str, Any]) -> int | None:
    """Return the conversation that metadata names, as a 63-bit number."""
    for key in SESSION_KEYS:
        value = metadata.get(key)
        if value is not None:
            return _session_number(f"{key}\0{value}")
    return None


_session_number = lru_cache(maxsize=256)(hash_of)
