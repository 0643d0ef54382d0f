"""The lasting form of a search index: its arrays one after the other, as they are in RAM.

So a saved index is used where it lies, mapped into memory, without reading it row by row. It is a copy of
what the store holds. If anything in it is not as it was written, it is refused, and the index is read from
the store.

The file: a token of 32 characters, a magic number with the version of the form, the length and the CRC of
the header, the header (JSON), then the arrays, each at a multiple of 4,096 bytes. The header names the
type, shape, place and checksum of each array. A checksum is the sum of the array's 64-bit words: a
change of one word always changes it, and making it is as fast as reading the array.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, BinaryIO, TypeAlias
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

Parts: TypeAlias = dict[str, Any]
"""Arrays, numbers and lists of numbers by name."""

_MAGIC = b"AMIDX\0\0\1" if sys.byteorder == "little" else b"AMIDX\1\0\1"
_TOKEN_BYTES = 32
_FIXED_BYTES = _TOKEN_BYTES + len(_MAGIC) + 8
_ALIGNMENT = 4096
_MAX_HEADER = 1 << 26


class SavedIndexDamaged(Exception):
    """The data is not a saved index, is of another version, or was changed since it was written."""


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where an array lies."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    checksum: int


class _Header(msgspec.Struct, frozen=True, array_like=True):
    values: dict[str, Any]
    places: list[_Place]
    size: int


def write(parts: Mapping[str, Any], file: BinaryIO, token: str) -> None:
    """Write the parts into an empty file."""
    values: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, part in parts.items():
        if isinstance(part, np.ndarray):
            arrays[name] = np.ascontiguousarray(part)
        else:
            values[name] = part
    # The offsets depend on the header's length, which depends on the offsets: reserve enough room.
    draft = _Header(
        values, [_Place(name, a.dtype.str, a.shape, 2**62, 2**63) for name, a in arrays.items()], 2**62
    )
    offset = _aligned(_FIXED_BYTES + len(msgspec.json.encode(draft)))
    places = []
    for name, array in arrays.items():
        places.append(_Place(name, array.dtype.str, array.shape, offset, _checksum(_bytes_of(array))))
        offset = _aligned(offset + array.nbytes)
    header = msgspec.json.encode(_Header(values, places, offset))
    fixed = token.encode() + _MAGIC + len(header).to_bytes(4, "little")
    file.write(fixed + crc32(header, crc32(fixed)).to_bytes(4, "little") + header)
    for place, array in zip(places, arrays.values(), strict=True):
        file.seek(place.offset)
        file.write(_bytes_of(array).data)
    file.truncate(offset)


def read(data: memoryview, token: str) -> Parts:
    """Return the parts that were written with this token; the arrays lie in `data`.

    Raises SavedIndexDamaged if anything has changed since."""
    fixed, length = data[:_FIXED_BYTES], int.from_bytes(data[_FIXED_BYTES - 8 : _FIXED_BYTES - 4], "little")
    if bytes(fixed[:-8]) != token.encode() + _MAGIC or length > _MAX_HEADER:
        raise SavedIndexDamaged("it has another token or version")
    encoded = data[_FIXED_BYTES : _FIXED_BYTES + length]
    if crc32(encoded, crc32(fixed[:-4])) != int.from_bytes(fixed[-4:], "little"):
        raise SavedIndexDamaged("its header is damaged")
    header = msgspec.json.decode(encoded, type=_Header)
    if len(data) != header.size:
        raise SavedIndexDamaged(f"it has {len(data)} bytes instead of {header.size}")
    parts: Parts = dict(header.values)
    for place in header.places:
        dtype = np.dtype(place.dtype)
        count = int(np.prod(place.shape, dtype=np.int64))
        array = np.frombuffer(data, dtype, count, place.offset).reshape(place.shape)
        if _checksum(_bytes_of(array)) != place.checksum:
            raise SavedIndexDamaged(f"{place.name} is damaged")
        parts[place.name] = array
    return parts


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _checksum(data: NDArray[np.uint8]) -> int:
    whole = len(data) // 8 * 8
    total = int(np.add.reduce(data[:whole].view(np.uint64), dtype=np.uint64))
    rest = int.from_bytes(data[whole:].tobytes(), "little")
    return (total + rest) % 2**63


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def under(prefix: str, parts: Mapping[str, Any]) -> Parts:
    """Return the parts under longer names."""
    return {f"{prefix}.{name}": part for name, part in parts.items()}


def below(prefix: str, parts: Mapping[str, Any]) -> Parts:
    """Return the parts whose names begin with `prefix`, under their shorter names."""
    start = f"{prefix}."
    return {name.removeprefix(start): part for name, part in parts.items() if name.startswith(start)}


def held(*arrays: NDArray[Any]) -> int:
    """Return the bytes of those arrays that are in RAM, not in a mapped file."""
    return sum(array.nbytes for array in arrays if array.flags.owndata)
