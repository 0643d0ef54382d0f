"""Converts rows of the database to records and back; SQL helpers."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from memory.entry import Tier
from memory.storage.base import IndexColumns, Record, Row
from memory.storage.schema import SEQ_MASK, TIER_MASK, TIER_SHIFT, key_of

ROWS_AT_ONCE = 4096  # rows fetched at a time from a query with many rows: bounds the RAM
VARIABLES = 500  # placeholders in one statement; older builds of SQLite allow 999

RECORD_COLUMNS = "key, id, kind, step, created_at, importance, body_codec, body"
ROW_COLUMNS = (
    f"{RECORD_COLUMNS}, stored_at, dated, digest, session, revision, terms, vector_codec, vector, fine"
)
TIERS = (Tier.STM, Tier.IM, Tier.LTM)


def to_record(agent: str, values: tuple[Any, ...]) -> Record:
    """Return the record for the values of RECORD_COLUMNS."""
    key, id_, kind, step, created_at, importance, body_codec, body = values
    return Record(
        agent,
        id_,
        key & SEQ_MASK,
        TIERS[key >> TIER_SHIFT & TIER_MASK],
        kind,
        step,
        created_at,
        importance,
        body_codec,
        body,
    )


def to_row(agent: str, values: tuple[Any, ...]) -> Row:
    """Return the row for the values of ROW_COLUMNS."""
    stored_at, dated, digest, session, revision, terms, vector_codec, vector, fine = values[8:]
    return Row(
        *msgspec.structs.astuple(to_record(agent, values[:8])),
        stored_at=stored_at,
        dated=bool(dated),
        digest=digest,
        session=session,
        terms=terms,
        vector_codec=vector_codec,
        vector=vector,
        fine=fine,
        revision=revision,
    )


def to_values(row: Row, agent_no: int, seq: int) -> tuple[Any, ...]:
    """Return the values of ROW_COLUMNS, then those of the columns agent and tier."""
    return (
        key_of(agent_no, row.tier, seq),
        row.id,
        row.kind,
        row.step,
        row.created_at,
        row.importance,
        row.body_codec,
        row.body,
        row.stored_at,
        row.dated,
        row.digest,
        row.session,
        row.revision,
        row.terms,
        row.vector_codec,
        row.vector,
        row.fine,
        agent_no,
        row.tier,
    )


def key_range(agent_no: int, tier: Tier, after_seq: int, last_seq: int) -> tuple[int, int]:
    """Return the bounds for `key > ? AND key <= ?`."""
    return key_of(agent_no, tier, after_seq), key_of(agent_no, tier, last_seq)


def in_parts(values: Sequence[Any], size: int = VARIABLES) -> Iterator[list[Any]]:
    """Split values into lists of at most `size`."""
    for start in range(0, len(values), size):
        yield list(values[start : start + size])


def fetch_slices(cursor: sqlite3.Cursor) -> Iterator[list[Any]]:
    """Yield a cursor's rows in lists of at most ROWS_AT_ONCE."""
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        yield rows


def to_index_columns(
    parts: Iterable[Sequence[tuple[Any, ...]]], with_features: Sequence[tuple[Any, ...]] | None = None
) -> IndexColumns:
    """Return columns for rows of (key, created_at, step, session), ordered by seq.

    `with_features` holds the same rows in the same order, each followed by the rest of its `Features`."""
    keys, times = [array("q")], [array("d")]
    steps, sessions = [array("q")], [array("q")]
    for part in parts:
        key_part, time_part, step_part, session_part = zip(*part, strict=True)
        keys.append(array("q", key_part))
        times.append(array("d", time_part))
        steps.append(array("q", step_part))
        sessions.append(array("q", session_part))
    key = np.concatenate(keys)
    order = np.argsort(key & SEQ_MASK)
    key = key[order]
    features = None
    if with_features is not None:
        ordered = (with_features[place] for place in order.tolist())
        features = [(row[0] & SEQ_MASK, *row[4:]) for row in ordered]
    return IndexColumns(
        seq=key & SEQ_MASK,
        tier=(key >> TIER_SHIFT & TIER_MASK).astype(np.uint8),
        created_at=np.concatenate(times)[order],
        step=np.concatenate(steps)[order],
        session=np.concatenate(sessions)[order],
        features=features,
    )


def placeholders(count: int) -> str:
    return ", ".join("?" * count)
