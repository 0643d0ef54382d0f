"""The interface of all vector codecs.

A codec turns vectors into codes (rows of bytes of a fixed width), and codes into unit vectors near the
original vectors. A code keeps only the direction, because memories are compared by cosine.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.compression.quantise import to_int8
from memory.compression.vectors._arrays import Codes, Floats, as_codes, as_vectors, robust_unit_rows
from memory.compression.vectors._serialization import Option, SavedCodec, pack, unpack
from memory.errors import CodecDamaged, CodecError, CodecNeedsMoreData, CodecNotFitted, InvalidCodecOption

BLOCK_ROWS = 8192
"""The most rows in one step of encoding or decoding, to limit RAM: 16 MB of doubles with 256 dimensions."""


class VectorCodec(ABC):
    """Turns vectors of ``dimensions`` floats into ``bytes_per_vector`` bytes each, and back.

    A subclass declares the arrays that it learns (``_shapes``), and how to fit, encode and decode unit
    vectors. This class does the rest: validation, saving, loading and zero vectors.

    Invariants: a code does not depend on the other vectors of the batch. A decoded row has unit length, or
    is zero if the encoded vector was zero.
    """

    name: ClassVar[str]
    bytes_per_vector: int
    """The bytes of one code."""
    min_fit_vectors: int = 0
    """How many vectors that are not zero ``fit`` needs; 0 if there is nothing to fit."""
    _zero_code: ClassVar[int] = 0
    """The byte that a zero vector's code consists of."""

    def __init__(self, dimensions: int) -> None:
        require_whole("dimensions", dimensions, 1)
        self.dimensions = dimensions
        self._learnt: dict[str, Floats] = {}

    @property
    def is_fitted(self) -> bool:
        """Whether the codec can encode; always true if there is nothing to fit."""
        return self._learnt.keys() == self._shapes().keys()

    def fit(self, vectors: ArrayLike) -> Self:
        """Fit the codec to an (n, dimensions) array and return the codec. Earlier codes become invalid.

        A codec that is already fitted starts from the beginning. Only the autoencoder continues from its
        weights.
        """
        rows = as_vectors(vectors, self.dimensions)
        units = robust_unit_rows(rows)
        units = units[units.any(axis=1)]
        if len(units) < self.min_fit_vectors:
            raise CodecNeedsMoreData(
                f"codec '{self.name}' was given {len(units)} vectors that are not zero: "
                f"fit it with at least {self.min_fit_vectors}"
            )
        self._learnt = self._fit(units)
        return self

    def encode(self, vectors: ArrayLike) -> Codes:
        """Return the (n, bytes_per_vector) codes of an (n, dimensions) array of floats."""
        self._require_fitted("encode")
        rows = as_vectors(vectors, self.dimensions)
        codes = np.empty((len(rows), self.bytes_per_vector), dtype=np.uint8)
        for start in range(0, len(rows), BLOCK_ROWS):
            units = robust_unit_rows(rows[start : start + BLOCK_ROWS])
            block = self._encode(units)
            block[~units.any(axis=1)] = self._zero_code
            codes[start : start + BLOCK_ROWS] = block
        return codes

    def decode(self, codes: NDArray[np.uint8]) -> Floats:
        """Return the (n, dimensions) unit vectors of an (n, bytes_per_vector) array of codes."""
        self._require_fitted("decode")
        checked = as_codes(codes, self.bytes_per_vector)
        vectors = np.empty((len(checked), self.dimensions), dtype=np.float32)
        for start in range(0, len(checked), BLOCK_ROWS):
            block = checked[start : start + BLOCK_ROWS]
            units = robust_unit_rows(self._decode(block))
            units[(block == self._zero_code).all(axis=1)] = 0.0
            vectors[start : start + BLOCK_ROWS] = units
        return vectors

    def decode_int8(self, codes: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Return what ``decode`` returns, with each vector as signed bytes: the form that searches use."""
        return to_int8(self.decode(codes))

    def save(self) -> bytes:
        """Return the codec, fitted or not, as bytes with a digest. ``load`` checks the digest."""
        return pack(self.name, self.dimensions, self._options(), self._learnt)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Return the codec that ``save`` wrote. Use ``load_codec`` if its class is not known."""
        return cls._from_saved(unpack(data))

    @classmethod
    def _from_saved(cls, saved: SavedCodec) -> Self:
        if saved.name != cls.name:
            raise CodecDamaged(f"the data holds a codec '{saved.name}', not '{cls.name}': use load_codec")
        try:
            codec = cls(saved.dimensions, **saved.options)
        except (TypeError, CodecError) as error:
            raise CodecDamaged(f"the saved codec '{saved.name}' is damaged: {error}") from None
        arrays = {key: value.to_numpy() for key, value in saved.learnt.items()}
        if arrays:
            shapes = {key: value.shape for key, value in arrays.items()}
            if shapes != dict(codec._shapes()):
                raise CodecDamaged(
                    f"the saved codec '{saved.name}' is damaged: its arrays have shapes {shapes}"
                )
            if not all(np.isfinite(value).all() for value in arrays.values()):
                raise CodecDamaged(f"the saved codec '{saved.name}' is damaged: it holds NaN")
            codec._learnt = arrays
        return codec

    def _require_fitted(self, verb: str) -> None:
        if not self.is_fitted:
            raise CodecNotFitted(
                f"codec '{self.name}' can't {verb} because it is not fitted: call fit first"
            )

    def _options(self) -> Mapping[str, Option]:
        """Return the keyword arguments of an equal codec. Each one is an attribute of the same name."""
        parameters = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in parameters if name != "dimensions"}

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the arrays that ``fit`` learns, by name."""
        return {}

    def _fit(self, units: Floats) -> dict[str, Floats]:
        """Return the learnt arrays, by name."""
        return {}

    @abstractmethod
    def _encode(self, units: Floats) -> Codes:
        """Return the codes of unit rows. Use the zero code only for a vector that would decode to zero."""

    @abstractmethod
    def _decode(self, codes: Codes) -> NDArray[np.floating]:
        """Return vectors of any length, in nearly the same directions as the encoded vectors."""


def require(condition: bool, message: str) -> None:
    """Raise InvalidCodecOption with ``message`` unless ``condition`` is true."""
    if not condition:
        raise InvalidCodecOption(message)


def require_whole(option: str, value: object, least: int, most: int | None = None) -> None:
    """Raise InvalidCodecOption unless ``value`` is a whole number from ``least`` to ``most``."""
    upto = "or more" if most is None else f"to {most}"
    require(
        isinstance(value, int)
        and not isinstance(value, bool)
        and least <= value
        and (most is None or value <= most),
        f"{option} must be a whole number, {least} {upto}, got {value!r}",
    )


def sixteenth(dimensions: int) -> int:
    """Return the bytes of a code that is 1/16 of the float32 vector: the default size in ltm."""
    return max(1, dimensions // 4)
