"""Converts rows of the database to records and back, and checks their checksums; SQL helpers.

A row has three checksums: one of the columns of a record, one of the columns that a search index reads, one
of the rest. So a read checks what it has read, and reads nothing more to check it. The third one stands in
the high bits of the second. It is 0 in rows of format 2 and 3. Rows of format 1 have no checksums.
"""

from __future__ import annotations

import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from memory._base.native import core
from memory.entry import Tier
from memory.errors import StoreCorrupt, short
from memory.storage.base import NO_SESSION, NO_STEP, IndexColumns, Record, Row
from memory.storage.schema import AGENT_SHIFT, SEQ_MASK, TIER_MASK, TIER_SHIFT, key_of

ROWS_AT_ONCE = 4096  # rows fetched at a time from a query with many rows: bounds the RAM
VARIABLES = 500  # placeholders in one statement; older builds of SQLite allow 999

RECORD_COLUMNS = "key, checksum, id, kind, step, created_at, importance, body_codec, body"
ROW_COLUMNS = (
    f"{RECORD_COLUMNS}, features_checksum, stored_at, dated, digest, session, revision, vector_codec,"
    " vector, fine, terms, terms_codec"
)
INDEX_COLUMNS = f"key, created_at, IFNULL(step, {NO_STEP}), IFNULL(session, {NO_SESSION})"
FEATURE_COLUMNS = f"{INDEX_COLUMNS}, vector_codec, vector, fine, terms, terms_codec, features_checksum"
INSERTED_COLUMNS = f"{ROW_COLUMNS}, agent, tier"
TIERS = (Tier.STM, Tier.IM, Tier.LTM)
CHECKSUM_BITS = 0xFFFFFFFF
_REST_BITS = 0x7FFFFFFF
_REST_SHIFT = 32
encode_values = msgspec.msgpack.Encoder().encode


def old_columns(statement: str) -> str:
    """Return a statement for a file of format 1, which has no checksums and no codec of the terms."""
    for name, value in (("features_checksum", "NULL"), ("checksum", "NULL"), ("terms_codec", "0")):
        statement = statement.replace(name, value)
    return statement


def checksum_of(values: tuple[Any, ...]) -> int:
    """Return the checksum of values of a row, without its key; `with_key` adds the key."""
    return zlib.crc32(encode_values(values))


def with_key(checksum: int, key: int) -> int:
    """Return a checksum that also depends on the key, which is known only when the row is stored."""
    return checksum ^ (key ^ key >> 31) & CHECKSUM_BITS


def record_checksum(row: Row) -> int:
    """Return the checksum of a row's record, without its key."""
    # SQLite returns floats from these two columns, whatever was stored.
    created_at, importance = float(row.created_at), float(row.importance)
    values = (row.id, row.kind, row.step, created_at, importance, row.body_codec, row.body)
    return zlib.crc32(encode_values(values))  # `checksum_of`, without its call


def features_checksum(row: Row) -> int:
    """Return the checksum of what a search index reads of a row, without its key."""
    values = (
        float(row.created_at),
        NO_STEP if row.step is None else row.step,
        NO_SESSION if row.session is None else row.session,
        row.vector_codec,
        row.vector,
        row.fine,
        row.terms,
        row.terms_codec,
    )
    return zlib.crc32(encode_values(values))


def rest_checksum(stored_at: float, dated: int, digest: int, revision: int) -> int:
    """Return the checksum of the columns that are neither in a record nor in an index, in the high bits."""
    return (
        zlib.crc32(encode_values((float(stored_at), int(dated), digest, revision))) & _REST_BITS
    ) << _REST_SHIFT


def is_rest_intact(checksum: int | None, stored_at: Any, dated: Any, digest: Any, revision: Any) -> bool:
    """Return whether the values match the high bits of a row's `features_checksum`, if it has them."""
    rest = (checksum or 0) >> _REST_SHIFT << _REST_SHIFT
    if not rest:
        return True
    is_typed = isinstance(stored_at, float) and all(
        isinstance(one, int) for one in (dated, digest, revision)
    )
    return is_typed and rest == rest_checksum(stored_at, dated, digest, revision)


def carried_rest(checksum: int | None, stored_at: float, dated: int, digest: int, revision: int) -> int:
    """Return the high bits for a row that gets a new form; a row of an older format gets them now."""
    return (checksum or 0) & ~CHECKSUM_BITS or rest_checksum(stored_at, dated, digest, revision)


def is_intact(values: tuple[Any, ...], may_lack: bool) -> bool:
    """Return whether the values of FEATURE_COLUMNS match their checksum.

    may_lack: whether the file can have rows of format 1, which have no checksum
    """
    checksum = values[-1]
    if checksum is None and may_lack:
        _, created_at, step, session, codec, vector, fine, terms, terms_codec, _ = values
        return (
            isinstance(created_at, float)
            and isinstance(vector, bytes)
            and isinstance(terms, bytes)
            and isinstance(fine, bytes | None)
            and all(isinstance(number, int) for number in (step, session, codec, terms_codec))
        )
    if type(checksum) is not int:
        return False
    return checksum & CHECKSUM_BITS == with_key(checksum_of(values[1:-1]), values[0])


def damaged(agent: str, id: object) -> StoreCorrupt:
    """Return the error for a row whose values do not match their checksum."""
    return StoreCorrupt(
        f"memory {short(id)} of agent {short(agent)} is damaged in the file: its checksum does not match; "
        "restore the file from a copy, or delete this memory"
    )


def has_types(values: tuple[Any, ...]) -> bool:
    """Return whether the values of a record without a checksum have the right types at least."""
    id_, kind, step, created_at, importance, body_codec, body = values
    return (
        isinstance(id_, str)
        and isinstance(kind, str)
        and isinstance(step, int | None)
        and isinstance(created_at, float)
        and isinstance(importance, float)
        and isinstance(body_codec, int)
        and isinstance(body, bytes)
        and body != b""
    )


def is_row_intact(row: tuple[Any, ...], *id: str) -> bool:
    """Return whether the values after the key and the checksum match them.

    id: the first value of the checksum, if the row lacks it"""
    # Every read of a memory calls this.
    return is_row_intact_pure(row, *id) if core is None else core.is_row_intact(row, *id)


def is_row_intact_pure(row: tuple[Any, ...], *id: str) -> bool:
    return type(row[1]) is int and row[1] == with_key(checksum_of((*id, *row[2:])), row[0])


def to_record(agent: str, values: tuple[Any, ...], may_lack: bool) -> Record:
    """Return the record for the values of RECORD_COLUMNS, or raise StoreCorrupt.

    may_lack: whether the file can have rows of format 1, which have no checksum
    """
    key, checksum, id_, kind, step, created_at, importance, body_codec, body = values
    if not is_row_intact(values) and not (checksum is None and may_lack and has_types(values[2:])):
        raise damaged(agent, id_)
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


def to_row(agent: str, values: tuple[Any, ...], may_lack: bool) -> Row:
    """Return the row for the values of ROW_COLUMNS, or raise StoreCorrupt."""
    checksum, stored_at, dated, digest, session, revision = values[9:15]
    vector_codec, vector, fine, terms, terms_codec = values[15:]
    row = Row(
        *msgspec.structs.astuple(to_record(agent, values[:9], may_lack)),
        stored_at=stored_at,
        dated=bool(dated),
        digest=digest,
        session=session,
        terms=terms,
        terms_codec=terms_codec,
        vector_codec=vector_codec,
        vector=vector,
        fine=fine,
        revision=revision,
    )
    if checksum is None and may_lack:
        return row
    if (
        type(checksum) is not int
        or checksum & CHECKSUM_BITS != with_key(features_checksum(row), values[0])
        or not is_rest_intact(checksum, stored_at, dated, digest, revision)
    ):
        raise damaged(agent, row.id)
    return row


Checksums = tuple[int, int]
"""The `record_checksum` of a row, and its `features_checksum` with its `rest_checksum`."""


def checksums_of(row: Row) -> Checksums:
    rest = rest_checksum(row.stored_at, row.dated, row.digest, row.revision)
    return record_checksum(row), features_checksum(row) | rest


def to_values(row: Row, agent_no: int, seq: int, checksums: Checksums) -> tuple[Any, ...]:
    """Return the values of INSERTED_COLUMNS."""
    # Every added row passes here, so the calls of `key_of` and `with_key` are written out.
    key = agent_no << AGENT_SHIFT | row.tier << TIER_SHIFT | seq
    of_record, of_features = checksums
    of_key = (key ^ key >> 31) & CHECKSUM_BITS
    return (
        key,
        of_record ^ of_key,
        row.id,
        row.kind,
        row.step,
        row.created_at,
        row.importance,
        row.body_codec,
        row.body,
        of_features ^ of_key,
        row.stored_at,
        row.dated,
        row.digest,
        row.session,
        row.revision,
        row.vector_codec,
        row.vector,
        row.fine,
        row.terms,
        row.terms_codec,
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
    """Return columns for rows of INDEX_COLUMNS, ordered by seq.

    `with_features` holds the values of FEATURE_COLUMNS of the same rows in the same order."""
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
        features = [(row[0] & SEQ_MASK, *row[4:9]) for row in ordered]
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
