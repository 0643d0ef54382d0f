"""Rows of the database to records and back, and the small change of SQL."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from memory.entry import Tier
from memory.storage.base import IndexColumns, Record, Row
from memory.storage.schema import SEQ_MASK, TIER_MASK, TIER_SHIFT, key_of

SLICE = 4096  # rows fetched at a time where there may be many
VARIABLES = 500  # placeholders in one statement

RECORD_COLUMNS = "key, id, kind, step, created_at, importance, body_codec, body"
ROW_COLUMNS = (
    f"{RECORD_COLUMNS}, stored_at, dated, digest, session, revision, terms, vector_codec, vector, fine"
)
TIERS = (Tier.STM, Tier.IM, Tier.LTM)


def to_record(agent: str, found: tuple[Any, ...]) -> Record:
    key, id_, kind, step, created_at, importance, body_codec, body = found
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


def to_row(agent: str, found: tuple[Any, ...]) -> Row:
    key, id_, kind, step, created_at, importance, body_codec, body = found[:8]
    stored_at, dated, digest, session, revision, terms, vector_codec, vector, fine = found[8:]
    return Row(
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
    """Bounds for `key > ? AND key <= ?`."""
    return key_of(agent_no, tier, after_seq), key_of(agent_no, tier, last_seq)


def parts_of(values: Sequence[Any], size: int = VARIABLES) -> Iterator[list[Any]]:
    for start in range(0, len(values), size):
        yield list(values[start : start + size])


def slices_of(cursor: sqlite3.Cursor) -> Iterator[list[Any]]:
    """A cursor's rows, never more at a time than fit easily into memory."""
    while rows := cursor.fetchmany(SLICE):
        yield rows


def to_index_columns(
    parts: Iterable[Sequence[tuple[Any, ...]]], few: Sequence[tuple[Any, ...]] | None = None
) -> IndexColumns:
    """Columns of (key, moment, step, session); `few` has the same rows with their features behind."""
    keys, moments = [array("q")], [array("d")]
    steps, sessions = [array("q")], [array("q")]
    for part in parts:
        key_part, moment_part, step_part, session_part = zip(*part, strict=True)
        keys.append(array("q", key_part))
        moments.append(array("d", moment_part))
        steps.append(array("q", step_part))
        sessions.append(array("q", session_part))
    key = np.concatenate(keys)
    order = np.argsort(key & SEQ_MASK)
    key = key[order]
    return IndexColumns(
        seq=key & SEQ_MASK,
        tier=(key >> TIER_SHIFT & TIER_MASK).astype(np.uint8),
        created_at=np.concatenate(moments)[order],
        step=np.concatenate(steps)[order],
        session=np.concatenate(sessions)[order],
        features=None
        if few is None
        else [(few[place][0] & SEQ_MASK, *few[place][4:]) for place in order.tolist()],
    )


def marks_for(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
