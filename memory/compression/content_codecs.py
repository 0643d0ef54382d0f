"""Lossless compression of content: zstd, with a dictionary trained on the stored memories.

A memory is a sentence or a small state, which hardly compresses by itself. A dictionary of the text that
the memories have in common halves the size. The codec number stored with a body selects the dictionary.

A dictionary holds text of the memories. It must not keep text of deleted memories. So `train_dictionary`
blanks every word that fewer than `LEAST_MEMORIES` samples contain. As long as fewer samples than that were
deleted, each word in the dictionary is still in an existing memory. Numbers are not blanked: that
would make small states a tenth larger.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import zstandard

from memory.errors import StoreCorrupt
from memory.storage.base import FIRST_STORED_CODEC

RAW = 0
"""The codec number of a body that is not compressed."""
ZSTD = 1
"""The codec number of a body compressed without a dictionary. Each higher number has its own dictionary."""
SAMPLES_NEEDED = 100
"""The fewest memories for which a dictionary is trained: enough for zstd's trainer."""
LEAST_MEMORIES = 4
"""A dictionary keeps a word only if this many samples contain the word. After this many of its samples were
deleted, the dictionary is replaced."""
_MAX_DICTIONARY_BYTES = 16 * 1024
_MIN_DICTIONARY_BYTES = 1024
_DICTIONARY_SHARE = 32
"""A dictionary has 1/32 of the bytes of all memories, within the two bounds above."""
_WORD = re.compile(
    rb"[0-9A-Za-z]{4,}"
    rb"|(?:[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}){2,}"
)
"""A word in a body: at least 4 letters or digits, or 2 other characters in UTF-8."""
_QUICK_LEVEL = 6
"""zstd's compression level while a caller waits, from 1 (fast) to 22 (small)."""
_SMALL_LEVEL = 19
"""zstd's compression level in maintenance: 6 to 16 % smaller, and decompression is not slower."""
_LEAST_GAIN = 8
"""A body is compressed only if that saves at least 1/8. Less is not worth 2 µs for each decompression."""
# A frame's magic number, checksum and dictionary id would be a fifth of a small body.
_FORMAT = zstandard.FORMAT_ZSTD1_MAGICLESS


class _ThreadTools(threading.local):
    """Compressors and decompressors by codec number. Each thread has its own: they are not thread-safe."""

    def __init__(self) -> None:
        self.pack: dict[tuple[int, int], Callable[[bytes], bytes]] = {}
        self.unpack: dict[int, Callable[[bytes], bytes]] = {}


class ContentCodecs:
    """Compresses with the newest dictionary, decompresses with any. Safe to use from several threads."""

    def __init__(self) -> None:
        self._dictionaries: dict[int, zstandard.ZstdCompressionDict | None] = {ZSTD: None}
        self._newest = ZSTD
        self._tools = _ThreadTools()

    @property
    def newest(self) -> int:
        """The number of the codec that compresses."""
        return self._newest

    def add_dictionary(self, number: int, dictionary: bytes) -> None:
        """Add a codec; empty bytes mean no dictionary. The codec with the highest number compresses."""
        self._dictionaries[number] = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._newest = max(self._newest, number)

    def stop_using_lost(self, stored: Collection[int]) -> None:
        """Compress with another codec if the newest one is no longer in the store."""
        if self._newest >= FIRST_STORED_CODEC and self._newest not in stored:
            self._newest = max((number for number in self._dictionaries if number in stored), default=ZSTD)

    def has_codec(self, number: int) -> bool:
        return number in self._dictionaries

    def compress(self, body: bytes, *, quick: bool = True) -> tuple[int, bytes]:
        """Return the codec number and the compressed body; or RAW and the body if that saves too little."""
        number = self._newest
        level = _QUICK_LEVEL if quick else _SMALL_LEVEL
        packed = (self._tools.pack.get((number, level)) or self._compressor(number, level))(body)
        return (number, packed) if len(packed) <= len(body) - len(body) // _LEAST_GAIN else (RAW, body)

    def decompress(self, number: int, packed: bytes) -> bytes:
        """Return the original body. Raise KeyError if the codec number is unknown."""
        try:
            return (self._tools.unpack.get(number) or self._decompressor(number))(packed)
        except zstandard.ZstdError as problem:
            raise StoreCorrupt(f"a memory's content can't be decompressed: {problem}") from None

    def _compressor(self, number: int, level: int) -> Callable[[bytes], bytes]:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            level, format=_FORMAT, write_checksum=False, write_dict_id=False
        )
        tool = zstandard.ZstdCompressor(dict_data=self._dictionaries[number], compression_params=parameters)
        self._tools.pack[number, level] = tool.compress
        return tool.compress

    def _decompressor(self, number: int) -> Callable[[bytes], bytes]:
        tool = zstandard.ZstdDecompressor(dict_data=self._dictionaries[number], format=_FORMAT)
        self._tools.unpack[number] = tool.decompress
        return tool.decompress


def train_dictionary(bodies: Sequence[bytes], total_bytes: int | None = None) -> bytes:
    """Return a dictionary for bodies like these; empty bytes if they have too little in common.

    total_bytes: the size of all bodies that will use the dictionary; by default the size of `bodies`
    """
    total = sum(map(len, bodies)) if total_bytes is None else total_bytes
    size = min(max(total // _DICTIONARY_SHARE, _MIN_DICTIONARY_BYTES), _MAX_DICTIONARY_BYTES)
    try:
        trained = zstandard.train_dictionary(size, list(bodies)).as_bytes()
    except zstandard.ZstdError:
        return b""
    return _without_rare_words(trained, bodies)


def _without_rare_words(dictionary: bytes, bodies: Sequence[bytes]) -> bytes:
    """Return a dictionary with zeros in place of each word that fewer than LEAST_MEMORIES bodies have.

    A part of a word counts as a separate word. zstd's own tables, before the text, can contain bytes that
    look like a word. These bytes are kept: only the text after the tables is changed.
    """
    counts = Counter(word for body in bodies for word in set(_WORD.findall(body)))
    start = _text_start(dictionary)

    def blank(match: re.Match[bytes]) -> bytes:
        word = match.group()
        return word if counts[word] >= LEAST_MEMORIES else bytes(len(word))

    return dictionary[:start] + _WORD.sub(blank, dictionary[start:])


def _text_start(dictionary: bytes) -> int:
    """Return where zstd's tables end: the length of the shortest prefix that is a valid dictionary."""
    low, high = 8, len(dictionary)
    while low < high:
        middle = (low + high) // 2
        if _is_dictionary(dictionary[:middle]):
            high = middle
        else:
            low = middle + 1
    return low


def _is_dictionary(data: bytes) -> bool:
    try:
        zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT).precompute_compress(
            level=1
        )
    except zstandard.ZstdError:
        return False
    return True
