"""The search terms of stored memories, made again from the content if their vocabulary is damaged."""

from __future__ import annotations

from collections.abc import Sequence

from memory._base.content import decode_body, leaves_of
from memory.compression.tier_codecs import TierCodecs
from memory.errors import StoreCorrupt
from memory.search.terms import metadata_texts, terms_of_memory
from memory.storage import MemoryStore, Row
from memory.storage.base import Features


class StoredTerms:
    """Returns uncompressed terms, whatever state the vocabularies of the file are in."""

    def __init__(self, store: MemoryStore, codecs: TierCodecs) -> None:
        self._store = store
        self._codecs = codecs

    def of_features(self, agent: str, rows: Sequence[Features]) -> list[bytes]:
        """Return the terms of an agent's memories, for its search index."""
        stored = [row[4:6] for row in rows]
        try:
            return self._codecs.raw_terms(stored)
        except StoreCorrupt:
            lost = {row[0] for row in rows if not self._codecs.has_vocabulary(row[5])}
            if not lost:
                raise
        found = {row.seq: row for row in self._store.rows(agent, sorted(lost))}
        # A memory that was deleted meanwhile has no terms; the index hears of it later.
        return [
            self._again(found[seq])
            if seq in found
            else (b"" if seq in lost else self._codecs.raw_terms([pair])[0])
            for (seq, *_), pair in zip(rows, stored, strict=True)
        ]

    def of_rows(self, rows: Sequence[Row]) -> list[bytes]:
        """Return the terms of whole rows."""
        if all(self._codecs.has_vocabulary(row.terms_codec) for row in rows):
            return self._codecs.raw_terms([(row.terms, row.terms_codec) for row in rows])
        return [
            self._codecs.raw_terms([(row.terms, row.terms_codec)])[0]
            if self._codecs.has_vocabulary(row.terms_codec)
            else self._again(row)
            for row in rows
        ]

    def _again(self, row: Row) -> bytes:
        content, metadata = decode_body(self._codecs.raw_body(row.body_codec, row.body))
        metadata_leaves = leaves_of(metadata, "metadata") if metadata else []
        return terms_of_memory(
            leaves_of(content),
            row.kind,
            metadata_texts(metadata_leaves),
            metadata_leaves,
            row.created_at if row.dated else None,
        )
