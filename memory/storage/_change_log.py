"""The form of an entry in an agent's change log, with its checksum.

A process applies the changes to its copy of the agent's rows. A changed byte in an entry would hide a
memory from its searches. An entry that does not match its checksum counts as missing: then the process
reads all rows of the agent again, and needs no log for that.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from typing import Any

from memory.entry import Tier
from memory.storage.base import Change, ChangeKind

_KIND_BITS = 8
_KIND_MASK = (1 << _KIND_BITS) - 1


def to_entry(
    agent_no: int, number: int, kind: ChangeKind, tier: Tier | None, seqs: Sequence[int]
) -> tuple[Any, ...]:
    """Return the values of a new row of `changes`. The checksum stands in the high bits of the kind."""
    packed = array("q", seqs).tobytes()
    checksum = _checksum(agent_no, number, kind, tier, packed)
    return agent_no, number, kind | checksum << _KIND_BITS, tier, packed


def to_change(agent_no: int, number: int, kind: int, tier: int | None, packed: bytes) -> Change | None:
    """Return the change of a row, None if the row is damaged. Rows of older formats have no checksum."""
    try:
        kind, checksum = kind & _KIND_MASK, kind >> _KIND_BITS
        if checksum and checksum != _checksum(agent_no, number, kind, tier, packed):
            return None
        return Change(
            number=number,
            kind=ChangeKind(kind),
            tier=None if tier is None else Tier(tier),
            seqs=array("q", packed),
        )
    except (TypeError, ValueError):
        return None


def _checksum(agent_no: int, number: int, kind: int, tier: int | None, packed: bytes) -> int:
    """Return a checksum that is never 0."""
    return (
        zlib.crc32(f"{agent_no} {number} {int(kind)} {-1 if tier is None else int(tier)}".encode() + packed)
        | 1
    )
