"""The format of a saved codec: a magic word, a format version, a digest, and MessagePack.

The format is not pickle, because a pickle can run code, and the file may come from another person.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping

import msgspec
import numpy as np

from memory.compression.vectors._arrays import Floats
from memory.errors import CodecDamaged

MAGIC = b"AMVC"
VERSION = 1

_HEADER = struct.Struct("<4sH16s")

Option = int | float | bool


class SavedArray(msgspec.Struct, frozen=True):
    """One float32 array, little-endian, in C order."""

    shape: tuple[int, ...]
    data: bytes

    def to_numpy(self) -> Floats:
        if any(length < 0 for length in self.shape) or 4 * math.prod(self.shape) != len(self.data):
            raise CodecDamaged(f"the saved codec is damaged: {len(self.data)} bytes for shape {self.shape}")
        return np.frombuffer(self.data, dtype="<f4").reshape(self.shape).astype(np.float32)


class SavedCodec(msgspec.Struct, frozen=True):
    """The parts of a saved codec."""

    name: str
    dimensions: int
    options: dict[str, Option]
    learnt: dict[str, SavedArray]


def pack(name: str, dimensions: int, options: Mapping[str, Option], learnt: Mapping[str, Floats]) -> bytes:
    """Return the bytes of a codec."""
    arrays = {key: SavedArray(value.shape, value.astype("<f4").tobytes()) for key, value in learnt.items()}
    body = msgspec.msgpack.encode(SavedCodec(name, dimensions, dict(options), arrays))
    return _HEADER.pack(MAGIC, VERSION, _digest(body)) + body


def unpack(data: bytes) -> SavedCodec:
    """Return the parts of a saved codec, or raise CodecDamaged."""
    if len(data) < _HEADER.size:
        raise CodecDamaged(f"not a saved codec: it has only {len(data)} bytes")
    magic, version, digest = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != MAGIC:
        raise CodecDamaged(f"not a saved codec: it starts with {magic!r} instead of {MAGIC!r}")
    if version > VERSION:
        raise CodecDamaged(
            f"the codec was saved in format {version}, but this version reads formats up to {VERSION}: "
            "upgrade agentmemory-tiers"
        )
    if version != VERSION or _digest(body) != digest:
        raise CodecDamaged("the saved codec is damaged: its digest does not match its content")
    try:
        return msgspec.msgpack.decode(body, type=SavedCodec)
    except msgspec.MsgspecError as error:
        raise CodecDamaged(f"the saved codec is damaged: {error}") from None


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
