"""The codecs of each tier, and the forms in which a memory is stored there.

    stm   vector: float32                      content: raw     search terms: raw
    im    vector: the tier's codec (int8)      content: zstd    search terms: raw
    ltm   vector: the tier's codec (small)     content: zstd    search terms: by a vocabulary
          + a fine vector (int8), only if `keep_fine_vectors` is set

A memory that a caller stores in ltm is first stored in the form of im, so that the call is fast.
Maintenance then encodes it again. Maintenance also fits the codecs, once enough memories are stored. It
trains dictionaries again when there are 8 times as many memories, or when samples of a dictionary were
deleted.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory._base.content import compressible_body
from memory.compression.content_codecs import (
    LEAST_MEMORIES,
    RAW,
    SAMPLES_NEEDED,
    ContentCodecs,
    train_dictionary,
)
from memory.compression.quantise import to_int8
from memory.compression.term_codecs import RAW_TERMS, TermCodec, train_terms
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
from memory.storage import MemoryStore, Sample, StoredCodec
from memory.storage.base import FIRST_STORED_CODEC

_log = logging.getLogger(__name__)

FLOAT32 = 0
INT8 = 1
_OLD_DICTIONARY = "zstd dictionary"  # the purpose of the only dictionary in files of format 1
_CONTENT = "content dictionary"
_TERMS = "search terms"
_INSTEAD_OF = "instead of"
"""The purpose of a codec without data. It makes maintenance encode all memories again, because the codec
that it names is damaged."""
_MAX_SAMPLES = 2000
"""The most memories that dictionaries are trained on. More memories did not improve the compression."""
_GROWTH = 8
"""Dictionaries are trained again when there are 8 times as many memories as at the last training."""
_TRAINED_ENOUGH = 5000
"""After a training with this many memories, growth does not cause another training."""

StoredVector = tuple[int, bytes, bytes | None]
"""Codec number, encoded vector, and the fine vector (int8) or None."""


class Plan(msgspec.Struct, frozen=True):
    """What `fit` has to do."""

    dictionaries: bool
    tiers: tuple[Tier, ...]
    samples: int
    """How many memories `fit` gets as samples."""
    damaged: tuple[int, ...] = ()
    """Numbers of damaged vector codecs. All memories that use one are embedded again."""


class TierCodecs:
    """The codecs of one store. Safe to use from several threads."""

    def __init__(
        self,
        store: MemoryStore,
        config: MemoryConfig,
        dimensions: int,
        wanted: Mapping[Tier, VectorCodec],
    ) -> None:
        """Load the file's codecs. `wanted` is the result of `configured_codecs` for this configuration."""
        self._store = store
        self._dimensions = dimensions
        self._keep_fine = config.ltm_config.keep_fine_vectors
        self._lock = threading.RLock()
        self._bodies = ContentCodecs()
        self._terms: dict[int, TermCodec] = {}
        self._terms_in_use = RAW_TERMS
        self._vectors: dict[int, VectorCodec] = {
            FLOAT32: make_codec("float32", dimensions),
            INT8: make_codec("int8", dimensions),
        }
        self._damaged: set[int] = set()
        """Numbers of codecs that are damaged in the file."""
        self._wanted = wanted
        self._options = {
            Tier.IM: config.im_config.codec_options,
            Tier.LTM: config.ltm_config.codec_options,
        }
        self._in_use = {Tier.STM: FLOAT32}
        for tier, codec in self._wanted.items():
            self._in_use[tier] = FLOAT32 if codec.name == "float32" else INT8
        self.load()

    def start_in_child(self) -> None:
        """Make a new lock after a fork: another thread of the parent may have held the old one."""
        self._lock = threading.RLock()

    # -- content ------------------------------------------------------------------------------

    def body_for(self, tier: Tier, raw: bytes, *, quick: bool = False) -> tuple[int, bytes]:
        """Return the codec number and the body in the form of a tier. Use `quick` if a caller waits."""
        if tier is Tier.STM:
            return RAW, raw
        number, packed = self._bodies.compress(compressible_body(raw), quick=quick or tier is Tier.IM)
        return (RAW, raw) if number == RAW else (number, packed)

    def raw_body(self, number: int, body: bytes) -> bytes:
        """Return the body without compression."""
        if number == RAW:
            return body
        try:
            return self._bodies.decompress(number, body)
        except KeyError:
            self.load()  # another process may have trained the dictionary
        try:
            return self._bodies.decompress(number, body)
        except KeyError:
            raise StoreCorrupt(
                f"dictionary {number} is missing or damaged in the file: restore it from a backup"
            ) from None

    # -- search terms -------------------------------------------------------------------------

    def terms_for(self, tier: Tier, terms: bytes) -> tuple[int, bytes]:
        """Return the codec number and the terms in the form of a tier. `terms` must be uncompressed."""
        codec = self._terms.get(self._terms_in_use)
        if tier is not Tier.LTM or codec is None:
            return RAW_TERMS, terms
        return self._terms_in_use, codec.compress(terms)

    def raw_terms(self, stored: Sequence[tuple[bytes, int]]) -> list[bytes]:
        """Return uncompressed terms. Each item of `stored` is terms and the number of their codec."""
        if not any([number for _, number in stored]):
            return [terms for terms, _ in stored]
        rows: defaultdict[int, list[int]] = defaultdict(list)
        for row, (_, number) in enumerate(stored):
            rows[number].append(row)
        result = [terms for terms, _ in stored]
        for number, places in rows.items():
            if number == RAW_TERMS:
                continue
            if number not in self._terms:
                self.load()
            codec = self._terms.get(number)
            if codec is None:
                raise StoreCorrupt(f"vocabulary {number} is missing or damaged: restore it from a backup")
            for place, terms in zip(places, codec.decompress([result[at] for at in places]), strict=True):
                result[place] = terms
        return result

    def has_vocabulary(self, number: int) -> bool:
        """Return whether the terms of this codec can be decompressed, which needs its vocabulary."""
        if number != RAW_TERMS and number not in self._terms:
            self.load()
        return number == RAW_TERMS or number in self._terms

    # -- vectors ------------------------------------------------------------------------------

    def encoder(self, tier: Tier) -> VectorCodec:
        """Return the codec that encodes new vectors of the tier."""
        return self._vectors[self._in_use[tier]]

    def is_final(self, tier: Tier) -> bool:
        """Return whether the quick form of a tier is also its final form."""
        return tier is not Tier.LTM or (
            self._terms_in_use == RAW_TERMS and self._in_use[Tier.LTM] in (INT8, FLOAT32)
        )

    def vectors_for(
        self, tier: Tier, vectors: NDArray[np.float32], *, quick: bool = False
    ) -> list[StoredVector]:
        """Return unit vectors in the form of a tier. Use `quick` if a caller waits."""
        number = self._in_use[tier]
        if number == FLOAT32:
            return [(FLOAT32, row.tobytes(), None) for row in vectors]
        if number == INT8 or (quick and tier is Tier.LTM):
            return [(INT8, row.tobytes(), None) for row in to_int8(vectors)]
        codes = self._vectors[number].encode(vectors)
        fine: Sequence[bytes | None] = [None] * len(vectors)
        if tier is Tier.LTM and self._keep_fine and number != INT8:
            fine = [row.tobytes() for row in to_int8(vectors)]
        return [(number, code.tobytes(), extra) for code, extra in zip(codes, fine, strict=True)]

    def to_int8(self, stored: Sequence[StoredVector]) -> NDArray[np.int8]:
        """Return stored vectors as int8 rows, the form that searches use."""
        try:
            return self._to_int8(stored)
        except ValueError as problem:  # a stored vector has the wrong length
            raise _corrupt_vector(problem) from None

    def _to_int8(self, stored: Sequence[StoredVector]) -> NDArray[np.int8]:
        # A fast path for the usual cases: all memories that are new in the index are in stm, and one codec
        # has encoded all memories that a saved index leaves out.
        numbers, vectors, fine = zip(*stored, strict=True) if stored else ((), (), ())
        if numbers.count(FLOAT32) == len(numbers):
            return to_int8(self._decode(FLOAT32, vectors))
        if numbers[0] != INT8 and numbers.count(numbers[0]) == len(numbers) and not any(fine):
            return self._codes_to_int8(numbers[0], vectors)
        result = np.empty((len(stored), self._dimensions), np.int8)
        for number, rows in _rows_by_codec(stored).items():
            if number == INT8:
                joined = b"".join(stored[row][2] or stored[row][1] for row in rows)
                result[rows] = np.frombuffer(joined, np.int8).reshape(len(rows), -1)
            else:
                result[rows] = self._codes_to_int8(number, [stored[row][1] for row in rows])
        return result

    def _codes_to_int8(self, number: int, codes: Sequence[bytes]) -> NDArray[np.int8]:
        codec = self._vectors.get(number)
        if number == FLOAT32 or codec is None:
            return to_int8(self._decode(number, codes))
        return codec.decode_int8(np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), -1))

    def to_float32(self, stored: Sequence[StoredVector]) -> NDArray[np.float32]:
        """Return stored vectors as unit vectors. Use the fine vector where there is one."""
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
            self.load()
        codec = self._vectors.get(number)
        if codec is None and number in self._damaged:
            # Without their vectors, a search can still find these memories by their words.
            return np.zeros((len(codes), self._dimensions), np.float32)
        if codec is None:
            raise StoreCorrupt(f"vector codec {number} is not in the file: restore it from a backup")
        return codec.decode(joined.reshape(len(codes), -1))

    def has_final_form(self, tier: Tier, body_codec: int, terms_codec: int, vector_codec: int) -> bool:
        """Return whether a row of im or ltm is encoded with the tier's current codecs."""
        if body_codec != self._bodies.newest or vector_codec in self._damaged:
            return False
        return tier is Tier.IM or (
            terms_codec == self._terms_in_use and vector_codec == self._in_use[Tier.LTM]
        )

    def has_vector(self, stored: StoredVector) -> bool:
        """Return whether a stored vector can be decoded, which is not possible if its codec is damaged."""
        return stored[2] is not None or stored[0] not in self._damaged

    def dictionaries_of_deleted(self) -> list[int]:
        """Return the numbers of the stored dictionaries that may hold text of deleted memories."""
        return [
            codec.number
            for codec in self.load()
            if (_is_content(codec) or _is_terms(codec))
            and (
                codec.deleted
                or codec.is_damaged
                or not codec.is_writable
                or codec.purpose == _OLD_DICTIONARY
            )
        ]

    # -- fitting ------------------------------------------------------------------------------

    def plan(self, memories: int, *, strict: bool = False) -> Plan | None:
        """Return what `fit` should do if there are this many memories; None for nothing.

        strict: replace a dictionary after the first deletion of one of its samples, or if it may have been
            trained on deleted memories
        """
        stored = self.load()
        newest = max((codec for codec in stored if _is_content(codec)), key=_number, default=None)
        if newest is None or newest.is_damaged or newest.purpose == _OLD_DICTIONARY:
            dictionaries = memories >= SAMPLES_NEEDED or (strict and newest is not None)
        else:
            grown = newest.trained_on < _TRAINED_ENOUGH and memories >= _GROWTH * newest.trained_on
            allowed = 0 if strict else LEAST_MEMORIES - 1
            deleted = max(codec.deleted for codec in stored if codec.is_writable)
            dictionaries = deleted > allowed or (grown and memories >= SAMPLES_NEEDED)
        # The terms are made again from the contents, however few they are.
        dictionaries |= any(_is_terms(codec) and codec.is_damaged and codec.is_writable for codec in stored)
        tiers = tuple(
            tier
            for tier, codec in self._wanted.items()
            if self._is_pending(tier) and memories >= codec.min_fit_vectors
        )
        damaged = tuple(
            codec.number
            for codec in stored
            if codec.number in self._damaged
            and codec.is_writable
            and not (_is_content(codec) or _is_terms(codec))
        )
        if not dictionaries and not tiers and not damaged:
            return None
        return Plan(
            dictionaries, tiers, min(max(_MAX_SAMPLES, self.vectors_needed(tiers)), memories), damaged
        )

    def vectors_needed(self, tiers: Sequence[Tier]) -> int:
        """Return how many vectors are needed to fit the codecs of these tiers."""
        return max((self._wanted[tier].min_fit_vectors for tier in tiers), default=0)

    def fit(
        self,
        plan: Plan,
        memories: int,
        samples: Sequence[Sample],
        vectors: NDArray[np.float32],
        bodies: Sequence[bytes],
        terms: Sequence[bytes],
    ) -> None:
        """Carry out a plan with the samples, and store the results in the file.

        memories: the number of all memories
        vectors, bodies, terms: the data of the samples, uncompressed
        """
        stored = self.load()
        abandoned = set(plan.damaged)
        if plan.dictionaries:
            self._train(stored, memories, samples, bodies, terms)
        for tier in plan.tiers:
            codec = self._wanted[tier]
            try:
                if not codec.is_fitted:
                    codec.fit(vectors)
            except CodecNeedsMoreData:
                continue
            purpose = self._purpose(tier)
            damaged = [number for number in plan.damaged if self._is_for(stored, number, purpose)]
            again = f" again {max(damaged)}" if damaged else ""
            self._store.save_codec(purpose + again, codec.save(), replaces=damaged)
            abandoned.difference_update(damaged)
        for number in abandoned:  # there are too few memories, or the configuration names another codec
            self._store.save_codec(f"{_INSTEAD_OF} {number}", b"", replaces=[number])
        self.load()

    @staticmethod
    def _is_for(stored: Sequence[StoredCodec], number: int, purpose: str) -> bool:
        return any(codec.number == number and codec.purpose.startswith(purpose) for codec in stored)

    def _train(
        self,
        stored: Sequence[StoredCodec],
        memories: int,
        samples: Sequence[Sample],
        bodies: Sequence[bytes],
        terms: Sequence[bytes],
    ) -> None:
        """Train both dictionaries. If too few memories are left, replace the old ones by empty ones."""
        bodies = [compressible_body(body) for body in bodies]
        enough = len(bodies) >= SAMPLES_NEEDED
        total = sum(map(len, bodies)) * memories // max(len(bodies), 1)
        # Two processes that train at once choose the same purpose, so only one result is stored.
        generation = max(map(_number, stored), default=15) + 1
        for name, data, is_old in (
            (_CONTENT, train_dictionary(bodies, total) if enough else b"", _is_content),
            (_TERMS, train_terms(terms if enough else [], LEAST_MEMORIES), _is_terms),
        ):
            # Contents can't be made again, so a damaged dictionary of theirs stays.
            replaces = [
                codec.number
                for codec in stored
                if is_old(codec) and not (codec.is_damaged and _is_content(codec))
            ]
            used = samples if enough else ()
            self._store.save_codec(
                f"{name} {generation}", data, trained_on=memories, samples=used, replaces=replaces
            )

    def _is_pending(self, tier: Tier) -> bool:
        """Return whether the tier still writes int8 because its own codec is not in the file yet."""
        return self._in_use[tier] == INT8 and self._wanted[tier].name != "int8"

    def _purpose(self, tier: Tier) -> str:
        """Return the name of a tier's codec in the file. The name contains all options, so that changed
        options lead to a new fit."""
        codec = self._wanted[tier]
        options = sorted(self._options[tier].items())
        return f"{tier.label} vectors {codec.name} {codec.bytes_per_vector} {options}"

    def load(self) -> list[StoredCodec]:
        """Load the codecs of the file that are not loaded yet. Return all codecs of the file."""
        with self._lock:
            stored = self._store.codecs()
            purposes = {self._purpose(tier): tier for tier in self._wanted}
            for codec in stored:
                if codec.number not in self._damaged:
                    self._load_one(codec)
                tier = purposes.get(codec.purpose.partition(" again ")[0])
                if tier is not None and codec.number not in self._damaged:
                    self._in_use[tier] = codec.number
            self._stop_using_lost({codec.number for codec in stored})
            return stored

    def _stop_using_lost(self, stored: set[int]) -> None:
        """Encode nothing more with codecs that are gone: a server that went back in time has lost them.

        They can still decode, because another thread may just have read such a row."""
        self._bodies.stop_using_lost(stored)
        if self._terms_in_use != RAW_TERMS and self._terms_in_use not in stored:
            self._terms_in_use = max(stored.intersection(self._terms), default=RAW_TERMS)
        for tier, number in self._in_use.items():
            if number >= FIRST_STORED_CODEC and number not in stored:
                self._in_use[tier] = INT8

    def _load_one(self, codec: StoredCodec) -> None:
        try:
            if codec.is_damaged:
                raise StoreCorrupt("its checksum does not match")
            if codec.purpose.startswith(_INSTEAD_OF):
                return
            if _is_content(codec):
                if not self._bodies.has_codec(codec.number):
                    self._bodies.add_dictionary(codec.number, codec.data)
            elif _is_terms(codec):
                if codec.number not in self._terms:
                    self._terms[codec.number] = TermCodec(codec.data)
                self._terms_in_use = max(self._terms_in_use, codec.number)
            elif codec.number not in self._vectors:
                self._vectors[codec.number] = load_codec(codec.data)
        except (StoreCorrupt, CodecError) as problem:
            self._damaged.add(codec.number)
            _log.warning(
                "codec %d (%s) is damaged in the file: %s; maintenance makes a new one where it can",
                codec.number,
                codec.purpose,
                problem,
            )


def _number(codec: StoredCodec) -> int:
    return codec.number


def _is_content(codec: StoredCodec) -> bool:
    return codec.purpose == _OLD_DICTIONARY or codec.purpose.startswith(_CONTENT)


def _is_terms(codec: StoredCodec) -> bool:
    return codec.purpose.startswith(_TERMS)


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
