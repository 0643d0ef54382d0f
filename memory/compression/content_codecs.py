"""Content compressed without loss: zstd, with a dictionary trained on the memories themselves.

A memory is a sentence or a small state. Alone it hardly compresses; with a dictionary of what such
memories have in common it halves. The number stored with a body says how to read it back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import zstandard

from memory.errors import StoreCorrupt

RAW = 0
ZSTD = 1
DICTIONARY_BYTES = 16 * 1024
SAMPLES_NEEDED = 1000
_LEVEL = 6
_LEAST_GAIN = 8  # an eighth: reading it back costs two microseconds each time
# A frame's magic number, checksum and dictionary id would be a fifth of a small body.
_FORMAT = zstandard.FORMAT_ZSTD1_MAGICLESS


class _ThreadTools(threading.local):
    """Compressors and decompressors by number: none may be used by two threads at once."""

    def __init__(self) -> None:
        self.pack: dict[int, Callable[[bytes], bytes]] = {}
        self.unpack: dict[int, Callable[[bytes], bytes]] = {}


class ContentCodecs:
    """Compresses with the newest dictionary, reads with any. Safe to use from several threads."""

    def __init__(self) -> None:
        self._dictionaries: dict[int, zstandard.ZstdCompressionDict | None] = {ZSTD: None}
        self._newest = ZSTD
        self._tools = _ThreadTools()

    @property
    def has_dictionary(self) -> bool:
        return self._newest != ZSTD

    def learn(self, number: int, dictionary: bytes) -> None:
        """Know a dictionary by its number; the highest number is used for writing. Empty: none."""
        self._dictionaries[number] = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._newest = max(self._newest, number)

    def knows(self, number: int) -> bool:
        return number in self._dictionaries

    def compress(self, body: bytes) -> tuple[int, bytes]:
        """The codec's number and the smaller form; the body itself where that does not pay."""
        number = self._newest
        packed = (self._tools.pack.get(number) or self._compressor(number))(body)
        return (number, packed) if len(packed) <= len(body) - len(body) // _LEAST_GAIN else (RAW, body)

    def decompress(self, number: int, packed: bytes) -> bytes:
        """What was compressed; KeyError for a number that was not learned."""
        try:
            return (self._tools.unpack.get(number) or self._decompressor(number))(packed)
        except zstandard.ZstdError as problem:
            raise StoreCorrupt(f"a memory's content can't be read back: {problem}") from None

    def _compressor(self, number: int) -> Callable[[bytes], bytes]:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL, format=_FORMAT, write_checksum=False, write_dict_id=False
        )
        tool = zstandard.ZstdCompressor(dict_data=self._dictionaries[number], compression_params=parameters)
        self._tools.pack[number] = tool.compress
        return tool.compress

    def _decompressor(self, number: int) -> Callable[[bytes], bytes]:
        tool = zstandard.ZstdDecompressor(dict_data=self._dictionaries[number], format=_FORMAT)
        self._tools.unpack[number] = tool.decompress
        return tool.decompress


def train_dictionary(bodies: Sequence[bytes]) -> bytes | None:
    """A dictionary for bodies like these; None where they have too little in common."""
    try:
        return zstandard.train_dictionary(DICTIONARY_BYTES, list(bodies)).as_bytes()
    except zstandard.ZstdError:
        return None
