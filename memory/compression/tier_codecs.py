"""The codecs of each tier, and the forms in which a memory is stored there.

    stm   vector: float32                      content: raw
    im    vector: the tier's codec (int8)      content: zstd
    ltm   vector: the tier's codec (small)     content: zstd
          + a fine vector: int8, which is searched

Maintenance fits codecs that need fitting, once enough memories are stored. Until then the tier stores
int8 vectors, so that writes never wait for a codec.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from memory.compression.content_codecs import RAW, SAMPLES_NEEDED, ContentCodecs, train_dictionary
from memory.compression.quantise import to_int8
from memory.compression.vectors import (
    CodecError,
    CodecNeedsMoreData,
    VectorCodec,
    load_codec,
    make_codec,
)
from memory.config import MemoryConfig
from memory.entry import Tier
from memory.errors import InvalidConfig, StoreCorrupt
from memory.storage import MemoryStore

FLOAT32 = 0
INT8 = 1
_DICTIONARY = "zstd dictionary"

StoredVector = tuple[int, bytes, bytes | None]
"""Codec number, encoded vector, and the fine vector (int8) or None."""


class TierCodecs:
    """The codecs of one store. Safe to use from several threads."""

    def __init__(
        self,
        store: MemoryStore,
        config: MemoryConfig,
        dimensions: int,
        wanted: Mapping[Tier, VectorCodec],
    ) -> None:
        """`wanted` is what `configured_codecs` returned for this configuration."""
        self._store = store
        self._dimensions = dimensions
        self._keep_fine = config.ltm_config.keep_fine_vectors
        self._lock = threading.RLock()
        self._bodies = ContentCodecs()
        self._vectors: dict[int, VectorCodec] = {
            FLOAT32: make_codec("float32", dimensions),
            INT8: make_codec("int8", dimensions),
        }
        self._wanted = wanted
        self._options = {
            Tier.IM: config.im_config.codec_options,
            Tier.LTM: config.ltm_config.codec_options,
        }
        self._in_use = {Tier.STM: FLOAT32}
        for tier, codec in self._wanted.items():
            self._in_use[tier] = FLOAT32 if codec.name == "float32" else INT8
        self._load()

    def start_in_child(self) -> None:
        """Make a new lock after a fork: another thread of the parent may have held the old one."""
        self._lock = threading.RLock()

    # -- content ------------------------------------------------------------------------------

    def body_for(self, tier: Tier, raw: bytes) -> tuple[int, bytes]:
        """Return the codec number and the body as a tier stores it."""
        return (RAW, raw) if tier is Tier.STM else self._bodies.compress(raw)

    def raw_body(self, number: int, body: bytes) -> bytes:
        """Return the body without compression."""
        if number == RAW:
            return body
        try:
            return self._bodies.decompress(number, body)
        except KeyError:
            self._load()  # another process may have trained the dictionary
        try:
            return self._bodies.decompress(number, body)
        except KeyError:
            raise StoreCorrupt(
                f"content codec {number} is not in the file: restore it from a backup"
            ) from None

    # -- vectors ------------------------------------------------------------------------------

    def encoder(self, tier: Tier) -> VectorCodec:
        """Return the codec that new vectors of the tier are written with."""
        return self._vectors[self._in_use[tier]]

    def vectors_for(self, tier: Tier, vectors: NDArray[np.float32]) -> list[StoredVector]:
        """Return vectors as a tier stores them."""
        number = self._in_use[tier]
        if number == FLOAT32:
            return [(FLOAT32, row.tobytes(), None) for row in vectors]
        codes = self._vectors[number].encode(vectors)
        fine: Sequence[bytes | None] = [None] * len(vectors)
        if tier is Tier.LTM and self._keep_fine and number != INT8:
            fine = [row.tobytes() for row in to_int8(vectors)]
        return [(number, code.tobytes(), extra) for code, extra in zip(codes, fine, strict=True)]

    def to_int8(self, stored: Sequence[StoredVector]) -> NDArray[np.int8]:
        """Return stored vectors as int8 rows, the form that is searched."""
        try:
            return self._to_int8(stored)
        except ValueError as problem:  # a stored vector has the wrong length
            raise _corrupt_vector(problem) from None

    def _to_int8(self, stored: Sequence[StoredVector]) -> NDArray[np.int8]:
        # A shortcut for the usual case: all memories that are new in the index are in stm.
        if all([number == FLOAT32 for number, _, _ in stored]):
            return to_int8(self._decode(FLOAT32, [vector for _, vector, _ in stored]))
        result = np.empty((len(stored), self._dimensions), np.int8)
        for number, rows in _rows_by_codec(stored).items():
            if number == INT8:
                joined = b"".join(stored[row][2] or stored[row][1] for row in rows)
                result[rows] = np.frombuffer(joined, np.int8).reshape(len(rows), -1)
            else:
                result[rows] = to_int8(self._decode(number, [stored[row][1] for row in rows]))
        return result

    def to_float32(self, stored: Sequence[StoredVector]) -> NDArray[np.float32]:
        """Return stored vectors as unit vectors, from their fine vector if they have one."""
        result = np.empty((len(stored), self._dimensions), np.float32)
        try:
            for number, rows in _rows_by_codec(stored).items():
                finest = [stored[row][2] or stored[row][1] for row in rows]
                result[rows] = self._decode(number, finest)
        except ValueError as problem:
            raise _corrupt_vector(problem) from None
        return result

    def _decode(self, number: int, codes: Sequence[bytes]) -> NDArray[np.float32]:
        joined = np.frombuffer(b"".join(codes), np.uint8)
        if number == FLOAT32:
            return joined.view(np.float32).reshape(len(codes), -1)
        if number not in self._vectors:
            self._load()
        codec = self._vectors.get(number)
        if codec is None:
            raise StoreCorrupt(f"vector codec {number} is not in the file: restore it from a backup")
        return codec.decode(joined.reshape(len(codes), -1))

    # -- fitting ------------------------------------------------------------------------------

    def samples_wanted(self) -> int:
        """Return how many memories the next `fit` should get; 0 if there is nothing to fit."""
        pending = [codec for tier, codec in self._wanted.items() if self._is_pending(tier)]
        if pending:
            return max(2 * SAMPLES_NEEDED, *(codec.min_fit_vectors for codec in pending))
        return 0 if self._bodies.has_dictionary else SAMPLES_NEEDED

    def fit(self, vectors: NDArray[np.float32], bodies: Sequence[bytes]) -> None:
        """Fit the codecs that are not fitted yet, and store them in the file."""
        if not self._bodies.has_dictionary:
            # An empty dictionary records that training failed, so that it is not tried again.
            self._store.save_codec(_DICTIONARY, train_dictionary(bodies) or b"")
        for tier, codec in self._wanted.items():
            if self._is_pending(tier):
                try:
                    if not codec.is_fitted:
                        codec.fit(vectors)
                except CodecNeedsMoreData:
                    continue
                self._store.save_codec(self._purpose(tier), codec.save())
        self._load()

    def _is_pending(self, tier: Tier) -> bool:
        """Return whether the tier still writes int8 because its own codec is not in the file yet."""
        return self._in_use[tier] == INT8 and self._wanted[tier].name != "int8"

    def _purpose(self, tier: Tier) -> str:
        """Return the name of a tier's codec in the file. It holds all options, so that a codec with
        other options is fitted again."""
        codec = self._wanted[tier]
        options = sorted(self._options[tier].items())
        return f"{tier.label} vectors {codec.name} {codec.bytes_per_vector} {options}"

    def _load(self) -> None:
        """Load the codecs of the file that are not loaded yet."""
        with self._lock:
            purposes = {self._purpose(tier): tier for tier in self._wanted}
            for stored in self._store.codecs():
                if stored.purpose == _DICTIONARY:
                    if not self._bodies.has_codec(stored.number):
                        self._bodies.add_dictionary(stored.number, stored.data)
                    continue
                if stored.number not in self._vectors:
                    self._vectors[stored.number] = load_codec(stored.data)
                tier = purposes.get(stored.purpose)
                if tier is not None:
                    self._in_use[tier] = stored.number


def configured_codecs(config: MemoryConfig, dimensions: int) -> dict[Tier, VectorCodec]:
    """Return the vector codecs that a configuration names, by tier, or raise InvalidConfig."""
    codecs = {}
    for tier, name, part in (
        (Tier.IM, "im_config", config.im_config),
        (Tier.LTM, "ltm_config", config.ltm_config),
    ):
        try:
            codecs[tier] = make_codec(part.codec, dimensions, **part.codec_options)
        except (CodecError, TypeError, AttributeError) as problem:
            raise InvalidConfig(f"{name}.codec or codec_options can't be used: {problem}") from None
    return codecs


def _corrupt_vector(problem: ValueError) -> StoreCorrupt:
    return StoreCorrupt(f"a memory's vector can't be decoded: {problem}")


def _rows_by_codec(stored: Sequence[StoredVector]) -> dict[int, list[int]]:
    """Group the rows by the codec of their finest vector."""
    rows: defaultdict[int, list[int]] = defaultdict(list)
    for row, (number, _, fine) in enumerate(stored):
        rows[INT8 if fine is not None else number].append(row)
    return rows
