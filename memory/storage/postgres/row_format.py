"""Rows in PostgreSQL's binary format, for COPY and for results, and their checksums.

A row has three checksums: of the columns that never change without a new revision, of the body, and of the
columns that a search index reads. So a read checks what it has read, and a move to another tier, which
replaces body and features, needs to read nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
from psycopg.pq.abc import PGresult

from memory.entry import Tier
from memory.errors import StoreCorrupt, short
from memory.storage.base import NO_SESSION, NO_STEP, Features, IndexColumns, Move, Record, Row
from memory.storage.postgres.wire import escape_text, unescape_text

_TIERS = (Tier.STM, Tier.IM, Tier.LTM)
_CRC_BITS = 1 << 32
_SIGN = 1 << 31

RECORD = (
    f"int8send(seq) || int2send(tier) || int8send(coalesce(step, {NO_STEP})) || float8send(created_at)"
    f" || float8send(importance) || int8send(coalesce(session, {NO_SESSION})) || int4send(body_codec)"
    " || int4send(fixed_sum) || int4send(body_sum)"
    " || textsend(id) || '\\x00'::bytea || textsend(kind) || '\\x00'::bytea || body"
)
"""One value for all columns of a record: to take twelve values from the driver takes longer. A text on the
server has no NUL, so one ends the id and the kind. Parts that have a checksum are side by side."""
_RECORD_COLUMNS = (
    "id, seq, tier, kind, step, created_at, importance, body_codec, body, session, fixed_sum, body_sum"
)
ROW_COLUMNS = (
    f"{_RECORD_COLUMNS}, stored_at, dated, digest, revision, vector_codec, vector, fine, terms,"
    " terms_codec, features_sum"
)
ROW_KINDS = "tqhtqddibqiid?qiibbbii"
INDEX_COLUMNS = (
    f"seq, tier, created_at, coalesce(step, {NO_STEP}), coalesce(session, {NO_SESSION}), vector_codec,"
    " terms_codec, features_sum"
)
FEATURE_COLUMNS = f"{INDEX_COLUMNS}, vector, terms, fine"
INSERTED_COLUMNS = (
    "agent, seq, tier, id, kind, step, created_at, importance, stored_at, dated, revision, digest, session,"
    " fixed_sum, body_sum, features_sum, body_codec, terms_codec, vector_codec, body, terms, vector, fine"
)
INSERTED_KINDS = "iqhttqddd?iqqiiiiiibbbb"

_numbers = struct.Struct(">qddq").pack
_codecs = struct.Struct(">ii").pack
_integer = _body_codec = _length = struct.Struct(">i").pack
_tier = struct.Struct(">h").pack
_whole = struct.Struct(">q").pack
_float = struct.Struct(">d").pack
_NULL = _length(-1)


def _signed(checksum: int) -> int:
    """Return 32 bits as the integer that PostgreSQL stores."""
    return checksum - _CRC_BITS if checksum & _SIGN else checksum


def fixed_sum(
    id: str, kind: str, step: int | None, created_at: float, importance: float, session: int | None
) -> int:
    """Return the checksum of the columns that a move keeps."""
    numbers = _numbers(
        NO_STEP if step is None else step,
        created_at,
        importance,
        NO_SESSION if session is None else session,
    )
    return _signed(crc32(numbers, crc32(f"{id}\0{kind}".encode())))


def body_sum(codec: int, body: bytes) -> int:
    return _signed(crc32(body, crc32(_body_codec(codec))))


def features_sum(
    vector_codec: int, terms_codec: int, vector: bytes, terms: bytes, fine: bytes | None
) -> int:
    """Return the checksum of what a search index reads, except for the columns that a move keeps."""
    checksum = crc32(terms, crc32(vector, crc32(_codecs(vector_codec, terms_codec))))
    return _signed(checksum if fine is None else crc32(fine, checksum))


def damaged(agent: str, id: object) -> StoreCorrupt:
    """Return the error for a row whose values do not match their checksum."""
    return StoreCorrupt(
        f"memory {short(id)} of agent {short(agent)} is damaged in the database: its checksum does not "
        "match; restore a backup, or delete this memory"
    )


_record_head = struct.Struct(">qhqddqiII").unpack_from
_FIXED = slice(10, 42)
"""The numbers in the head of a RECORD that `fixed_sum` covers, as `_numbers` packs them."""
_CODEC = slice(42, 46)
_TEXTS_AT = 54
_length_at = struct.Struct(">i").unpack_from


def to_records(agent: str, result: PGresult) -> list[Record]:
    """Return the records of a result with one column RECORD, or raise StoreCorrupt."""
    get = result.get_value
    return [to_record(agent, get(place, 0)) for place in range(result.ntuples)]


def to_record(agent: str, value: bytes | None) -> Record:
    """Return the record for a value of RECORD, or raise StoreCorrupt."""
    assert value is not None
    seq, tier, step, created_at, importance, _, body_codec, fixed, of_body = _record_head(value)
    kind_at = value.index(b"\0", _TEXTS_AT) + 1
    end = value.index(b"\0", kind_at)
    texts, body = value[_TEXTS_AT:end], value[end + 1 :]
    id_, kind = value[_TEXTS_AT : kind_at - 1].decode(), value[kind_at:end].decode()
    if b"\x01" in texts:
        id_, kind = unescape_text(id_), unescape_text(kind)
        texts = f"{id_}\0{kind}".encode()
    if of_body != crc32(body, crc32(value[_CODEC])) or fixed != crc32(value[_FIXED], crc32(texts)):
        raise damaged(agent, id_)
    known_step = None if step == NO_STEP else step
    return Record(agent, id_, seq, _TIERS[tier], kind, known_step, created_at, importance, body_codec, body)


def _record_of(agent: str, values: Sequence[Any]) -> Record:
    """Return the record for values of ROW_COLUMNS, or raise StoreCorrupt."""
    id_, seq, tier, kind, step, created_at, importance, body_codec, body, session, fixed, of_body = values
    if of_body != body_sum(body_codec, body) or fixed != fixed_sum(
        id_, kind, step, created_at, importance, session
    ):
        raise damaged(agent, id_)
    return Record(agent, id_, seq, _TIERS[tier], kind, step, created_at, importance, body_codec, body)


def to_row(agent: str, values: Sequence[Any]) -> Row:
    """Return the row for values of ROW_COLUMNS, or raise StoreCorrupt."""
    record = _record_of(agent, values[:12])
    (
        stored_at,
        dated,
        digest,
        revision,
        vector_codec,
        vector,
        fine,
        terms,
        terms_codec,
        checksum,
    ) = values[12:]
    if checksum != features_sum(vector_codec, terms_codec, vector, terms, fine):
        raise damaged(agent, record.id)
    return Row(
        agent,
        record.id,
        record.seq,
        record.tier,
        record.kind,
        record.step,
        record.created_at,
        record.importance,
        record.body_codec,
        record.body,
        stored_at=stored_at,
        dated=dated,
        digest=digest,
        session=values[9],
        terms=terms,
        terms_codec=terms_codec,
        vector_codec=vector_codec,
        vector=vector,
        fine=fine,
        revision=revision,
    )


def to_params(row: Row) -> list[bytes | None]:
    """Return the encoded values of INSERTED_COLUMNS after agent and seq, which the server knows."""
    id_, kind = escape_text(row.id).encode(), escape_text(row.kind).encode()
    step, session = row.step, row.session
    body, terms, vector, fine = row.body, row.terms, row.vector, row.fine
    return [
        _tier(row.tier),
        id_,
        kind,
        None if step is None else _whole(step),
        _float(row.created_at),
        _float(row.importance),
        _float(row.stored_at),
        b"\x01" if row.dated else b"\x00",
        _integer(row.revision),
        _whole(row.digest),
        None if session is None else _whole(session),
        _integer(fixed_sum(row.id, row.kind, step, row.created_at, row.importance, session)),
        _integer(body_sum(row.body_codec, body)),
        _integer(features_sum(row.vector_codec, row.terms_codec, vector, terms, fine)),
        _integer(row.body_codec),
        _integer(row.terms_codec),
        _integer(row.vector_codec),
        body,
        terms,
        vector,
        fine,
    ]


# The fields of one copied row: 23 in all. Each is its length and its value; those without a fixed length
# or that can be NULL are written in between.
_copy_start = struct.Struct(">hiiiqih").pack
_copy_times = struct.Struct(">idididi?iiiq").pack
_copy_end = struct.Struct(">iiiiiiiiiiii").pack
_copy_whole = struct.Struct(">iq").pack


def to_copy(row: Row, agent_no: int, seq: int) -> bytes:
    """Return the row as COPY … FROM STDIN (FORMAT binary) takes it, in the order of INSERTED_COLUMNS."""
    id_, kind = escape_text(row.id).encode(), escape_text(row.kind).encode()
    body, terms, vector, fine = row.body, row.terms, row.vector, row.fine
    return b"".join(
        (
            _copy_start(23, 4, agent_no, 8, seq, 2, row.tier),
            _length(len(id_)),
            id_,
            _length(len(kind)),
            kind,
            _NULL if row.step is None else _copy_whole(8, row.step),
            _copy_times(
                8,
                row.created_at,
                8,
                row.importance,
                8,
                row.stored_at,
                1,
                row.dated,
                4,
                row.revision,
                8,
                row.digest,
            ),
            _NULL if row.session is None else _copy_whole(8, row.session),
            _copy_end(
                4,
                fixed_sum(row.id, row.kind, row.step, row.created_at, row.importance, row.session),
                4,
                body_sum(row.body_codec, body),
                4,
                features_sum(row.vector_codec, row.terms_codec, vector, terms, fine),
                4,
                row.body_codec,
                4,
                row.terms_codec,
                4,
                row.vector_codec,
            ),
            _length(len(body)),
            body,
            _length(len(terms)),
            terms,
            _length(len(vector)),
            vector,
            *((_NULL,) if fine is None else (_length(len(fine)), fine)),
        )
    )


def move_values(moves: Sequence[Move]) -> tuple[list[Any], ...]:
    """Return the columns of moves as lists, for a statement that takes arrays."""
    return (
        [move.seq for move in moves],
        [move.revision for move in moves],
        [move.body_codec for move in moves],
        [move.body for move in moves],
        [move.vector_codec for move in moves],
        [move.vector for move in moves],
        [move.fine for move in moves],
        [move.terms for move in moves],
        [move.terms_codec for move in moves],
        [body_sum(move.body_codec, move.body) for move in moves],
        [
            features_sum(move.vector_codec, move.terms_codec, move.vector, move.terms, move.fine)
            for move in moves
        ],
    )


# The fields of FEATURE_COLUMNS with a fixed length, and the length of the vector.
_feature_head = struct.Struct(">xxxxxxqxxxxhxxxxdxxxxqxxxxqxxxxixxxxixxxxii")
_feature_values = struct.Struct(">6xq 6x 12x 12x 12x 4xi 4xi 4xIi").unpack_from
_HEAD = np.dtype(
    {
        "names": ["seq", "tier", "created_at", "step", "session"],
        "formats": [">i8", ">i2", ">f8", ">i8", ">i8"],
        "offsets": [6, 18, 24, 36, 48],
        "itemsize": _feature_head.size,
    }
)


def copied_columns(agent: str, rows: Sequence[bytes], *, with_features: bool = True) -> IndexColumns:
    """Return the columns and features of rows that COPY returned for FEATURE_COLUMNS, ordered by seq."""
    size = _feature_head.size
    head = np.frombuffer(b"".join([row[:size] for row in rows]), _HEAD)
    order = np.argsort(head["seq"], kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        rows = [rows[place] for place in order.tolist()]
        head = head[order]
    return IndexColumns(
        seq=head["seq"].astype(np.int64),
        tier=head["tier"].astype(np.uint8),
        created_at=head["created_at"].astype(np.float64),
        step=head["step"].astype(np.int64),
        session=head["session"].astype(np.int64),
        features=copied_features(agent, rows) if with_features else None,
    )


def copied_features(agent: str, rows: Sequence[bytes]) -> list[Features]:
    """Return the features of rows that COPY returned for FEATURE_COLUMNS, or raise StoreCorrupt."""
    unpack, size, length_at, crc = _feature_values, _feature_head.size, _length_at, crc32
    features = []
    start_sums: dict[tuple[int, int], int] = {}  # of the codecs, by which each checksum starts
    for row in rows:
        seq, vector_codec, terms_codec, checksum, length = unpack(row)
        codecs = vector_codec, terms_codec
        if codecs not in start_sums:
            start_sums[codecs] = crc(_codecs(vector_codec, terms_codec))
        end = size + length
        vector = row[size:end]
        start = end + 4
        end = start + length_at(row, end)[0]
        terms = row[start:end]
        fine = row[end + 4 :] if row[end : end + 4] != _NULL else None
        found = crc(terms, crc(vector, start_sums[codecs]))
        if checksum != (found if fine is None else crc(fine, found)):
            raise damaged(agent, f"number {seq}")
        features.append((seq, vector_codec, vector, fine, terms, terms_codec))
    return features


def no_columns() -> IndexColumns:
    return copied_columns("", [])
