"""The one interface of all vector codecs.

A codec turns unit vectors into rows of bytes of one fixed width, and back into unit vectors
that are near them. Only directions are kept: the memory compares by cosine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.compression.vectors._arrays import Codes, Floats, as_codes, as_vectors, unit_rows
from memory.compression.vectors._serialization import Option, SavedCodec, pack, unpack
from memory.errors import CodecDamaged, CodecError, CodecNeedsMoreData, CodecNotFitted, InvalidCodecOption

BLOCK_ROWS = 8192
"""Rows worked on at once: enough to keep NumPy busy, few enough to bound the memory."""


class VectorCodec(ABC):
    """Vectors of ``dimensions`` floats to ``bytes_per_vector`` bytes each, and back.

    A subclass says what it learns by the names and shapes of its arrays (``_shapes``); saving,
    loading, checking and the zero vector are the same for all and live here.

    Invariants: a code never depends on the other vectors of the batch; a decoded row has unit
    length, and a zero vector comes back as zero.
    """

    name: ClassVar[str]

    def __init__(self, dimensions: int) -> None:
        require_whole("dimensions", dimensions, 1)
        self.dimensions = dimensions
        self._learnt: dict[str, Floats] = {}

    @property
    @abstractmethod
    def bytes_per_vector(self) -> int:
        """The width of a code."""

    @property
    def is_fitted(self) -> bool:
        """Whether it can encode; always true of a codec with nothing to learn."""
        return self._learnt.keys() == self._shapes().keys()

    @property
    def min_fit_vectors(self) -> int:
        """How many vectors ``fit`` needs; 0 when there is nothing to learn."""
        return 0

    def fit(self, vectors: ArrayLike) -> Self:
        """Learns from ``vectors`` anew: codes made before no longer belong to it.

        The autoencoder alone continues from its weights when it is already fitted.
        """
        rows = as_vectors(vectors, self.dimensions)
        units = unit_rows(rows)
        units = units[units.any(axis=1)]
        if len(units) < self.min_fit_vectors:
            raise CodecNeedsMoreData(
                f"codec '{self.name}' needs at least {self.min_fit_vectors} vectors "
                f"that are not zero to fit, got {len(units)}"
            )
        self._learnt = self._fit(units)
        return self

    def encode(self, vectors: ArrayLike) -> Codes:
        """(n, dimensions) floats to (n, bytes_per_vector) bytes."""
        self._require_fitted("encode")
        rows = as_vectors(vectors, self.dimensions)
        codes = np.empty((len(rows), self.bytes_per_vector), dtype=np.uint8)
        for start in range(0, len(rows), BLOCK_ROWS):
            units = unit_rows(rows[start : start + BLOCK_ROWS])
            block = self._encode(units)
            block[~units.any(axis=1)] = self._zero_code
            codes[start : start + BLOCK_ROWS] = block
        return codes

    def decode(self, codes: NDArray[np.uint8]) -> Floats:
        """(n, bytes_per_vector) bytes to (n, dimensions) floats; rows have unit length."""
        self._require_fitted("decode")
        checked = as_codes(codes, self.bytes_per_vector)
        vectors = np.empty((len(checked), self.dimensions), dtype=np.float32)
        for start in range(0, len(checked), BLOCK_ROWS):
            block = checked[start : start + BLOCK_ROWS]
            units = unit_rows(self._decode(block))
            units[(block == self._zero_code).all(axis=1)] = 0.0
            vectors[start : start + BLOCK_ROWS] = units
        return vectors

    def save(self) -> bytes:
        """Everything that ``load`` needs, with a digest; fitted or not."""
        return pack(self.name, self.dimensions, self._options(), self._learnt)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The codec that ``save`` wrote; ``load_codec`` is for when its name is not known."""
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
                f"codec '{self.name}' can't {verb} before it learnt from data: call fit first"
            )

    @property
    def _zero_code(self) -> int:
        """The byte which, repeated, stands for the zero vector."""
        return 0

    def _options(self) -> Mapping[str, Option]:
        """The keyword arguments that build this codec again."""
        return {}

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The arrays that ``fit`` learns, by name."""
        return {}

    def _fit(self, units: Floats) -> dict[str, Floats]:
        """The learnt arrays; what has nothing to learn returns none."""
        return {}

    @abstractmethod
    def _encode(self, units: Floats) -> Codes:
        """Codes of unit rows; never the zero code for a vector that it can represent."""

    @abstractmethod
    def _decode(self, codes: Codes) -> NDArray[np.floating]:
        """Vectors of any length near what was encoded."""


def require(condition: bool, message: str) -> None:
    """Raises InvalidCodecOption with ``message`` unless ``condition`` holds."""
    if not condition:
        raise InvalidCodecOption(message)


def require_whole(option: str, value: object, least: int, most: int | None = None) -> None:
    """Raises InvalidCodecOption unless ``value`` is a whole number from ``least`` to ``most``."""
    upto = "or more" if most is None else f"to {most}"
    require(
        isinstance(value, int)
        and not isinstance(value, bool)
        and least <= value
        and (most is None or value <= most),
        f"{option} must be a whole number, {least} {upto}, got {value!r}",
    )


def sixteenth(dimensions: int) -> int:
    """Bytes of a code that is a sixteenth of the float32 vector: what the long-term tier gets."""
    return max(1, dimensions // 4)
