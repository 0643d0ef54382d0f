"""Check new memories and turn them into rows: embed, encode, extract search terms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory._base.checks import (
    MAX_WHOLE,
    check_importance,
    check_name,
    check_step,
    check_timestamp,
    check_vector,
)
from memory._base.content import Leaves, digest_of, encode_body, encode_metadata, hash_of, leaves_of
from memory._base.ids import new_id, new_ids
from memory._base.native import PreparedText, TextPreparer
from memory.clock import Clock
from memory.compression import TierCodecs
from memory.compression.content_codecs import RAW
from memory.compression.tier_codecs import FLOAT32, StoredVector
from memory.embedding import ContentEmbedder, render
from memory.entry import Tier, TierName, Timestamp
from memory.errors import InvalidMemory, short
from memory.search.terms import (
    SESSION_KEYS,
    kind_terms,
    metadata_texts,
    term_cache,
    terms_after_words,
    terms_of_memory,
)
from memory.storage import Row

_NO_METADATA: dict[str, Any] = {}
_NO_METADATA_BODY = b"\x80"
"""The end of a body without metadata: an empty object in MessagePack."""


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
    kind: str
    importance: float
    step: int | None
    leaves: Leaves | None
    """None for a text, which is its own only leaf."""
    metadata: Mapping[str, Any]
    metadata_leaves: Leaves
    metadata_body: bytes | None
    """The end of the body, if it does not depend on the content."""
    timestamp: float | None
    dated: bool
    body: bytes | None
    """None for a text."""


_Prepared = tuple[int, bytes, int, StoredVector, bytes]
"""The parts of a row that depend on its content: codec of the body, body, digest, vector, search terms."""


class Intake:
    """Turns new memories into rows. It has no state that a row depends on."""

    def __init__(self, embedder: ContentEmbedder, codecs: TierCodecs, clock: Clock) -> None:
        self._embedder = embedder
        self._codecs = codecs
        self._clock = clock
        self._preparer: TextPreparer | None = None
        self._has_preparer = True
        """False once it is known that there is none."""
        self._checked_agent: object = object()
        """The name that was last checked: mostly the next one too."""

    def rows(self, batch: Sequence[NewMemory], dated: Sequence[bool] | None = None) -> list[Row]:
        """Return the rows of a batch, or raise InvalidMemory.

        `dated` says for each memory whether the caller chose its timestamp. If so, the date is a search
        term. By default, this is true for each timestamp that is not None.
        """
        if dated is None:
            dated = [new.timestamp is not None for new in batch]
        checked = [self._check(new, is_dated) for new, is_dated in zip(batch, dated, strict=True)]
        prepared = self._prepare(checked)
        ids = iter(new_ids(sum(item.new.id is None for item in checked)))
        now = self._clock.now()
        return [
            self._row(item, item.new.id if item.new.id is not None else next(ids), parts, now)
            for item, parts in zip(checked, prepared, strict=True)
        ]

    def only_ids(self, batch: Sequence[NewMemory]) -> list[Row]:
        """Return rows without content, to check their ids. Raise InvalidMemory if `rows` would."""
        rows = []
        for new in batch:
            item = self._check(new, False)
            if new.vector is not None:
                check_vector(new.vector, self._embedder.dimensions)
            no_parts = (0, b"", digest_of(new.content), (0, b"", None), b"")
            rows.append(self._row(item, item.new.id or "", no_parts, 0.0))
        return rows

    def row(self, new: NewMemory) -> Row:
        """Return the row of one memory, or raise InvalidMemory."""
        item = self._check(new, new.timestamp is not None)
        parts: _Prepared | None = None
        is_usual = item.tier is Tier.STM and item.leaves is None and new.vector is None
        if is_usual and item.metadata_body is not None:
            preparer = self._preparer or self._find_preparer()
            if preparer is not None:
                found = preparer.of_text(new.content, item.metadata_body, _terms_after_words(item))
                if found is not None:
                    body, digest, vector, terms = found
                    parts = RAW, body, digest, (FLOAT32, vector, None), terms
        if parts is None:
            if new.vector is None:
                vectors = self._embedder.embed([render(_leaves(item))])
            else:
                vectors = check_vector(new.vector, self._embedder.dimensions)[None, :]
            (stored,) = self._codecs.vectors_for(item.tier, vectors, quick=True)
            parts = self._prepare_other(item, stored)
        id_ = item.new.id
        return self._row(item, new_id() if id_ is None else id_, parts, self._clock.now())

    def _check(self, new: NewMemory, dated: bool) -> _Checked:
        content, kind, importance, step, tier = new.content, new.kind, new.importance, new.step, new.tier
        if new.agent_id is not self._checked_agent:
            agent_id = check_name("agent_id", new.agent_id)
            if agent_id is not new.agent_id:  # it was a subclass of str
                new = msgspec.structs.replace(new, agent_id=agent_id)
            self._checked_agent = agent_id
        if new.id is not None:
            id_ = check_name("id", new.id)
            if id_ is not new.id:
                new = msgspec.structs.replace(new, id=id_)
        if kind is not None:
            kind = check_name("kind", kind)
        leaves = None if type(content) is str else leaves_of(content)
        metadata: Mapping[str, Any] = _NO_METADATA
        metadata_leaves: Leaves = []
        metadata_body: bytes | None = _NO_METADATA_BODY
        if new.metadata is not None and (type(new.metadata) is not dict or new.metadata):
            if not isinstance(new.metadata, Mapping):
                raise InvalidMemory(f"metadata is {short(new.metadata)}: use a dict")
            metadata = dict(new.metadata)
            metadata_leaves = leaves_of(metadata, "metadata")
            metadata_body = encode_metadata(metadata) if leaves is None else None
        # The usual values are recognised here: a call takes longer than the rest of a check.
        return _Checked(
            new,
            Tier.STM if type(tier) is str and tier == "stm" else Tier.parse(tier),
            kind or ("text" if isinstance(content, str) else "state"),
            importance
            if type(importance) is float and 0 <= importance < math.inf
            else check_importance(importance),
            step if type(step) is int and -MAX_WHOLE <= step <= MAX_WHOLE else check_step("step", step),
            leaves,
            metadata,
            metadata_leaves,
            metadata_body,
            None if new.timestamp is None else check_timestamp("timestamp", new.timestamp),
            dated,
            None if metadata_body is not None and leaves is None else encode_body(content, metadata),
        )

    def _find_preparer(self) -> TextPreparer | None:
        """Return what prepares texts in one call. The first call loads the embedder's vectors."""
        if self._has_preparer and self._preparer is None:
            terms = term_cache()
            self._preparer = None if terms is None else self._embedder.text_preparer(terms)
            self._has_preparer = self._preparer is not None
        return self._preparer

    def _prepare(self, checked: Sequence[_Checked]) -> list[_Prepared]:
        """Return what depends on the contents of memories: texts in one call, then the others."""
        prepared: list[_Prepared | None] = [None] * len(checked)
        texts = [
            place
            for place, item in enumerate(checked)
            if item.leaves is None and item.metadata_body is not None and item.new.vector is None
        ]
        preparer = self._find_preparer() if texts else None
        if preparer is not None:
            found = _prepare_texts(preparer, [checked[place] for place in texts], vectors=True)
            self._keep_prepared(prepared, checked, texts, found)
        others = [place for place, parts in enumerate(prepared) if parts is None]
        if others:
            items = [checked[place] for place in others]
            vectors = self._encode_vectors(items, self._vectors(items))
            for place, item, vector, parts in zip(
                others, items, vectors, self._without_vectors(items), strict=True
            ):
                if parts is None:
                    prepared[place] = self._prepare_other(item, vector)
                else:
                    body, digest, _, terms = parts
                    prepared[place] = (
                        *self._codecs.body_for(item.tier, body, quick=True),
                        digest,
                        vector,
                        terms,
                    )
        return [parts for parts in prepared if parts is not None]

    def _without_vectors(self, items: Sequence[_Checked]) -> Sequence[PreparedText | None]:
        """Prepare the texts with given vectors in one call; return None for each of the others."""
        found: list[PreparedText | None] = [None] * len(items)
        texts = [
            place
            for place, item in enumerate(items)
            if item.leaves is None and item.metadata_body is not None and item.new.vector is not None
        ]
        preparer = self._find_preparer() if texts else None
        if preparer is not None:
            parts = _prepare_texts(preparer, [items[place] for place in texts], vectors=False)
            for place, one in zip(texts, parts, strict=True):
                found[place] = one
        return found

    def _keep_prepared(
        self,
        prepared: list[_Prepared | None],
        checked: Sequence[_Checked],
        places: Sequence[int],
        found: Sequence[PreparedText | None],
    ) -> None:
        """Put texts that were prepared at their places, in the form of their tiers."""
        lower: list[tuple[int, PreparedText]] = []
        for place, parts in zip(places, found, strict=True):
            if parts is None:
                continue
            if checked[place].tier is not Tier.STM:
                lower.append((place, parts))
                continue
            body, digest, vector, terms = parts
            prepared[place] = RAW, body, digest, (FLOAT32, vector, None), terms
        if lower:
            items = [checked[place] for place, _ in lower]
            joined = np.frombuffer(b"".join([parts[2] for _, parts in lower]), np.float32)
            vectors = self._encode_vectors(items, joined.reshape(len(items), -1))
            for (place, (body, digest, _, terms)), item, codes in zip(lower, items, vectors, strict=True):
                body_codec, small = self._codecs.body_for(item.tier, body, quick=True)
                prepared[place] = body_codec, small, digest, codes, terms

    def _prepare_other(self, item: _Checked, vector: StoredVector) -> _Prepared:
        """Do what the preparer does, for any content."""
        content = item.new.content
        raw = item.body if item.body is not None else encode_body(content, item.metadata)
        body_codec, body = self._codecs.body_for(item.tier, raw, quick=True)
        terms = terms_of_memory(
            _leaves(item),
            item.kind,
            metadata_texts(item.metadata_leaves),
            item.metadata_leaves,
            item.timestamp if item.dated else None,
        )
        return body_codec, body, digest_of(content), vector, terms

    def _vectors(self, checked: Sequence[_Checked]) -> NDArray[np.float32]:
        if all(item.new.vector is None for item in checked):
            return self._embedder.embed([render(_leaves(item)) for item in checked])
        vectors = np.zeros((len(checked), self._embedder.dimensions), np.float32)
        plain = [row for row, item in enumerate(checked) if item.new.vector is None]
        if plain:
            vectors[plain] = self._embedder.embed([render(_leaves(checked[row])) for row in plain])
        for row, item in enumerate(checked):
            if item.new.vector is not None:
                vectors[row] = check_vector(item.new.vector, self._embedder.dimensions)
        return vectors

    def _encode_vectors(
        self, checked: Sequence[_Checked], vectors: NDArray[np.float32]
    ) -> list[StoredVector]:
        tiers = {item.tier for item in checked}
        if len(tiers) == 1:
            return self._codecs.vectors_for(tiers.pop(), vectors, quick=True)
        encoded: list[StoredVector] = [(0, b"", None)] * len(checked)
        for tier in tiers:
            rows = [row for row, item in enumerate(checked) if item.tier is tier]
            for row, codes in zip(
                rows, self._codecs.vectors_for(tier, vectors[rows], quick=True), strict=True
            ):
                encoded[row] = codes
        return encoded

    def _row(self, item: _Checked, id_: str, parts: _Prepared, now: float) -> Row:
        new = item.new
        body_codec, body, digest, (vector_codec, vector, fine), terms = parts
        return Row(
            new.agent_id,
            id_,
            0,
            item.tier,
            item.kind,
            item.step,
            now if item.timestamp is None else item.timestamp,
            item.importance,
            body_codec,
            body,
            stored_at=now,
            dated=item.dated,
            digest=digest,
            session=session_of(item.metadata) if item.metadata else None,
            terms=terms,
            vector_codec=vector_codec,
            vector=vector,
            fine=fine,
            is_final=item.tier is not Tier.LTM or self._codecs.is_final(Tier.LTM),
            has_new_id=new.id is None,
        )


def _prepare_texts(
    preparer: TextPreparer, items: Sequence[_Checked], *, vectors: bool
) -> list[PreparedText | None]:
    return preparer.of_texts(
        [item.new.content for item in items],
        [item.metadata_body or b"" for item in items],
        [_terms_after_words(item) for item in items],
        vectors,
    )


def _leaves(item: _Checked) -> Leaves:
    return item.leaves if item.leaves is not None else leaves_of(item.new.content)


def _terms_after_words(item: _Checked) -> bytes:
    if not item.metadata_leaves and not item.dated:
        return kind_terms(item.kind)
    return terms_after_words(
        item.kind,
        metadata_texts(item.metadata_leaves),
        item.metadata_leaves,
        item.timestamp if item.dated else None,
    )


def session_of(metadata: Mapping[str, Any]) -> int | None:
    """Return the conversation that metadata names, as a 63-bit number."""
    for key in SESSION_KEYS:
        value = metadata.get(key)
        if value is not None:
            # The text of a str enum, as it is stored. An f-string would take the name of the member.
            text = str.__str__(value) if isinstance(value, str) else value
            return _session_number(f"{key}\0{text}")
    return None


_session_number = lru_cache(maxsize=256)(hash_of)
