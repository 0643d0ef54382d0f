"""Lossless compression of content: zstd, with a dictionary trained on the stored memories.

A memory is a sentence or a small state, which hardly compresses by itself. With a dictionary of what the
memories have in common its size halves. The codec number stored with a body selects the dictionary.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import zstandard

from memory.errors import StoreCorrupt

RAW = 0
"""The codec number of a body that is not compressed."""
ZSTD = 1
"""The codec number of a body compressed without a dictionary; higher numbers have one each."""
DICTIONARY_BYTES = 16 * 1024
SAMPLES_NEEDED = 1000
"""Bodies that a dictionary is trained on: a round number, enough for zstd's trainer."""
_LEVEL = 6
"""zstd's compression level, from 1 (fast) to 22 (small). Decompression is as fast at every level."""
_LEAST_GAIN = 8
"""A body is compressed if that saves 1/8 or more: less is not worth the 2 µs of each decompression."""
# A frame's magic number, checksum and dictionary id would be a fifth of a small body.
_FORMAT = zstandard.FORMAT_ZSTD1_MAGICLESS


class _ThreadTools(threading.local):
    """Compressors and decompressors by codec number. Each thread has its own: they are not thread-safe."""

    def __init__(self) -> None:
        self.pack: dict[int, Callable[[bytes], bytes]] = {}
        self.unpack: dict[int, Callable[[bytes], bytes]] = {}


class ContentCodecs:
    """Compresses with the newest dictionary, decompresses with any. Safe to use from several threads."""

    def __init__(self) -> None:
        self._dictionaries: dict[int, zstandard.ZstdCompressionDict | None] = {ZSTD: None}
        self._newest = ZSTD
        self._tools = _ThreadTools()

    @property
    def has_dictionary(self) -> bool:
        return self._newest != ZSTD

    def add_dictionary(self, number: int, dictionary: bytes) -> None:
        """Add a codec. The one with the highest number compresses. Empty bytes: without a dictionary."""
        self._dictionaries[number] = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._newest = max(self._newest, number)

    def has_codec(self, number: int) -> bool:
        return number in self._dictionaries

    def compress(self, body: bytes) -> tuple[int, bytes]:
        """Return the codec number and the compressed body; RAW and the body if that saves too little."""
        number = self._newest
        packed = (self._tools.pack.get(number) or self._compressor(number))(body)
        return (number, packed) if len(packed) <= len(body) - len(body) // _LEAST_GAIN else (RAW, body)

    def decompress(self, number: int, packed: bytes) -> bytes:
        """Return the original body. Raise KeyError if the codec number is unknown."""
        try:
            return (self._tools.unpack.get(number) or self._decompressor(number))(packed)
        except zstandard.ZstdError as problem:
            raise StoreCorrupt(f"a memory's content can't be decompressed: {problem}") from None

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
    """Return a dictionary for bodies like these; None if they have too little in common."""
    try:
        return zstandard.train_dictionary(DICTIONARY_BYTES, list(bodies)).as_bytes()
    except zstandard.ZstdError:
        return None
