"""Copy a whole memory from one store to another: from a file to a server, or back.

Rows keep their form, so nothing is embedded or compressed again: the codecs are copied first, and the rows
refer to the copies. At the end the copy is read back and compared with what was read from the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import groupby, islice
from typing import NamedTuple

import msgspec

from memory.entry import Tier
from memory.errors import TransferFailed, short
from memory.storage import MemoryStore, Row
from memory.storage.base import FIRST_STORED_CODEC

_ROWS_AT_ONCE = 1000
_MARK = "moved_from"
"""The setting of the copy that names its source, so that a broken move can be continued."""
Progress = Callable[[int, int], None]
"""Called with the number of memories that were read so far, and of all."""


class MoveReport(NamedTuple):
    """What a move has done."""

    agents: int
    memories: int
    new: int
    """Memories that were not in the destination yet."""
    read_counts: int
    """Memories whose read count was copied."""


class _Summary(NamedTuple):
    """What is compared of an agent: how many rows it has, and a digest of them in their order."""

    memories: int
    digest: bytes


def move_memory(source: MemoryStore, target: MemoryStore, progress: Progress | None = None) -> MoveReport:
    """Copy all memories, codecs and read counts to an empty memory, and check the copy.

    A move that was interrupted continues where it stopped. The source is not changed. Raises TransferFailed
    if the destination has other memories, or if the copy is not equal to the source."""
    _check_target(source, target)
    numbers = _copy_codecs(source, target)
    total = sum(source.counts().values())
    done = new = 0
    summaries: dict[str, _Summary] = {}
    for agent, rows in groupby(source.all_rows(), key=lambda row: row.agent):
        digest, count = blake2b(digest_size=16), 0
        while part := list(islice(rows, _ROWS_AT_ONCE)):
            new += sum(seq is not None for seq in target.add([_copied(row, numbers) for row in part]))
            for row in part:
                digest.update(_content(row))
            count += len(part)
            done += len(part)
            if progress is not None:
                progress(done, total)
        summaries[agent] = _Summary(count, digest.digest())
    _compare(summaries, target, {copy: original for original, copy in numbers.items()})
    return MoveReport(len(summaries), done, new, _copy_read_counts(source, target, summaries))


def _check_target(source: MemoryStore, target: MemoryStore) -> None:
    identity = source.setting("identity")
    embedder = source.setting("embedder")
    if identity is None:
        raise TransferFailed("the source has no identity: open it once with this version")
    if target.setting(_MARK) is None and (target.agents() or target.codecs()):
        raise TransferFailed("the destination has memories already: move to an empty one")
    if target.setting(_MARK, identity) != identity:
        raise TransferFailed("the destination has memories of another source: move to an empty one")
    if embedder is not None and target.setting("embedder", embedder) != embedder:
        raise TransferFailed(f"the destination has vectors of another embedder than {short(embedder)}")


def _copy_codecs(source: MemoryStore, target: MemoryStore) -> dict[int, int]:
    """Copy the codecs; return the number of each copy by the number of its original."""
    numbers: dict[int, int] = {}
    stored = sorted(source.codecs(), key=lambda codec: codec.number)
    for codec in stored:
        if codec.is_damaged:
            raise TransferFailed(f"codec {codec.number} of the source is damaged: run check(), and mend it")
        copy = target.save_codec(codec.purpose, codec.data, trained_on=codec.trained_on)
        if copy.data != codec.data:
            raise TransferFailed(f"the destination has another codec for {short(codec.purpose)}")
        numbers[codec.number] = copy.number
    return numbers


def _copied(row: Row, numbers: dict[int, int]) -> Row:
    """Return a row that refers to the copies of its codecs."""
    return msgspec.structs.replace(
        row,
        body_codec=numbers.get(row.body_codec, row.body_codec),
        vector_codec=numbers.get(row.vector_codec, row.vector_codec),
        terms_codec=numbers.get(row.terms_codec, row.terms_codec),
        # Maintenance of the copy looks at these rows once: the source does not say which are final.
        is_final=row.tier is Tier.STM,
    )


_encode = msgspec.msgpack.Encoder().encode


def _content(row: Row) -> bytes:
    """Return everything of a row that a move must keep."""
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    return _encode([value for name, value in values.items() if name not in ("seq", "is_final")])


def _compare(summaries: dict[str, _Summary], target: MemoryStore, originals: dict[int, int]) -> None:
    """Read the copy, and raise TransferFailed if it is not equal to what was read from the source."""
    found: dict[str, _Summary] = {}
    for agent, rows in groupby(target.all_rows(), key=lambda row: row.agent):
        digest, count = blake2b(digest_size=16), 0
        for row in _with_originals(rows, originals):
            digest.update(_content(row))
            count += 1
        found[agent] = _Summary(count, digest.digest())
    for agent in sorted(summaries.keys() | found.keys()):
        original, copy = summaries.get(agent), found.get(agent)
        if original != copy:
            counts = [0 if one is None else one.memories for one in (original, copy)]
            raise TransferFailed(
                f"the copy differs from the source: agent {short(agent)} has {counts[0]} memories there "
                f"and {counts[1]} in the copy; stop all writers, and move to an empty destination"
            )


def _with_originals(rows: Iterable[Row], originals: dict[int, int]) -> Iterator[Row]:
    for row in rows:
        codecs = (row.body_codec, row.vector_codec, row.terms_codec)
        if any(number >= FIRST_STORED_CODEC for number in codecs):
            body, vector, terms = (originals.get(number, number) for number in codecs)
            row = msgspec.structs.replace(row, body_codec=body, vector_codec=vector, terms_codec=terms)
        yield row


def _copy_read_counts(source: MemoryStore, target: MemoryStore, agents: Iterable[str]) -> int:
    """Copy how often memories were read. Rows have other seqs in the copy, but the same order."""
    copied = 0
    for agent in agents:
        of_source, of_target = (
            sorted(found for tier in Tier for found in store.importance_inputs(agent, tier))
            for store in (source, target)
        )
        missing = {
            there[0]: here[3] - there[3]
            for here, there in zip(of_source, of_target, strict=False)
            if here[3] > there[3]
        }
        if missing and len(of_source) == len(of_target):
            target.add_read_counts({agent: missing})
            copied += len(missing)
    return copied
