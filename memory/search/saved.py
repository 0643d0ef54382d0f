"""The lasting form of a search index: its arrays one after the other.

It is a copy of what the store holds. If anything in it is not as it was written, it is refused, and the
index is read from the store. There are two forms:

- The full form holds the arrays as they are in RAM, each at a multiple of 4,096 bytes. So the index is used
  where it lies, mapped into memory, without reading it row by row.
- The compact form holds them compressed, and they are read into RAM. It is for indexes of one block: those
  are fast to read, and the disk space of many small agents counts more.

The file: a token of 32 characters, a magic number with the version of the form, the length and the CRC of
the header, the header (JSON), then the arrays. The header names the type, shape, place and checksum of each
array. A checksum is the sum of the stored 64-bit words: a change of one word always changes it, and making
it is as fast as reading the array.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, BinaryIO, TypeAlias
from zlib import crc32

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

Parts: TypeAlias = dict[str, Any]
"""Arrays, numbers and lists of numbers by name."""

_MAGIC = b"AMIDX\0\0\2" if sys.byteorder == "little" else b"AMIDX\1\0\2"
_TOKEN_BYTES = 32
_FIXED_BYTES = _TOKEN_BYTES + len(_MAGIC) + 8
_ALIGNMENT = 4096
_MAX_HEADER = 1 << 26
_COMPACT_ALIGNMENT = 8  # of a 64-bit word, which the checksum reads
_LEVEL = 3  # of zstd: the next levels take twice the time for 2 % less


class SavedIndexDamaged(Exception):
    """The data is not a saved index, is of another version, or was changed since it was written."""


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where an array lies."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    checksum: int
    packed: int
    """The length of the compressed array; 0 if it is not compressed."""


class _Header(msgspec.Struct, frozen=True, array_like=True):
    values: dict[str, Any]
    places: list[_Place]
    size: int


def write(parts: Mapping[str, Any], file: BinaryIO, token: str, *, compact: bool = False) -> None:
    """Write the parts into an empty file.

    compact: compress the arrays, so that they are read into RAM instead of mapped"""
    values: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, part in parts.items():
        if isinstance(part, np.ndarray):
            arrays[name] = np.ascontiguousarray(part)
        else:
            values[name] = part
    # The offsets depend on the header's length, which depends on the offsets: reserve enough room.
    longest = [_Place(name, a.dtype.str, a.shape, 2**62, 2**64 - 1, 2**62) for name, a in arrays.items()]
    draft = _Header(values, longest, 2**62)
    alignment = _COMPACT_ALIGNMENT if compact else _ALIGNMENT
    offset = _aligned(_FIXED_BYTES + len(msgspec.json.encode(draft)), alignment)
    places, contents = [], []
    for name, array in arrays.items():
        is_packed = compact and array.nbytes > 0
        content = _pack(array) if is_packed else _bytes_of(array)
        contents.append(content)
        packed = len(content) if is_packed else 0
        places.append(_Place(name, array.dtype.str, array.shape, offset, _checksum(content), packed))
        offset = _aligned(offset + len(content), alignment)
    header = msgspec.json.encode(_Header(values, places, offset))
    fixed = token.encode() + _MAGIC + len(header).to_bytes(4, "little")
    file.write(fixed + crc32(header, crc32(fixed)).to_bytes(4, "little") + header)
    for place, content in zip(places, contents, strict=True):
        file.seek(place.offset)
        file.write(content.data)
    file.truncate(offset)


def read(data: memoryview, token: str) -> Parts:
    """Return the parts that were written with this token; arrays of the full form lie in `data`.

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
        size = place.packed or count * dtype.itemsize
        stored = np.frombuffer(data, np.uint8, size, place.offset)
        if _checksum(stored) != place.checksum:
            raise SavedIndexDamaged(f"{place.name} is damaged")
        if place.packed:
            parts[place.name] = _unpack(stored, dtype, place.shape)
        else:
            parts[place.name] = stored.view(dtype).reshape(place.shape)
    return parts


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _checksum(data: NDArray[np.uint8]) -> int:
    whole = len(data) // 8 * 8
    total = int(np.add.reduce(data[:whole].view(np.uint64), dtype=np.uint64))
    rest = int.from_bytes(data[whole:].tobytes(), "little")
    return (total + rest) % 2**64  # all 64 bits: a smaller modulus does not see a change of the highest one


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _pack(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an array compressed: the differences of consecutive elements, their lowest bytes first."""
    size = array.dtype.itemsize
    data = _bytes_of(array)
    if size > 1:
        words = data.view(f"u{size}")
        steps = words.copy()
        steps[1:] -= words[:-1]
        data = np.ascontiguousarray(steps.view(np.uint8).reshape(-1, size).T)
    return np.frombuffer(zstandard.ZstdCompressor(level=_LEVEL).compress(data.tobytes()), np.uint8)


def _unpack(packed: NDArray[np.uint8], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array that `_pack` packed. It owns its memory, so it counts as held in RAM."""
    array = np.zeros(shape, dtype)
    try:
        data = zstandard.ZstdDecompressor().decompress(packed.tobytes(), max_output_size=array.nbytes)
    except zstandard.ZstdError as problem:
        raise SavedIndexDamaged(str(problem)) from None
    planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
    columns = _bytes_of(array).reshape(-1, dtype.itemsize)
    for number, plane in enumerate(planes):
        if plane.any():  # the high bytes of most arrays are zero, and writing them takes longer
            columns[:, number] = plane
    if dtype.itemsize > 1:
        steps = array.reshape(-1).view(f"u{dtype.itemsize}")
        np.cumsum(steps, dtype=steps.dtype, out=steps)
    return array


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
