"""What an embedder is, and how a plain function becomes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from memory._base.unit_vectors import FloatMatrix as FloatMatrix
from memory.errors import InvalidMemory


class Embedder(Protocol):
    """Turns texts into vectors of one length. `name` is kept in the file: vectors of two embedders
    can't be compared, so a file opened with another one is refused."""

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """One row a text; rows need not be of unit length."""
        ...


@runtime_checkable
class WeightedEmbedder(Protocol):
    """An embedder that can let some of a query's words count more than others."""

    def embed_weighted(self, text: str, weight: Callable[[str], float]) -> FloatMatrix:
        """One row; `weight` is asked for every word of the text."""
        ...


class FunctionEmbedder:
    """The user's own function, list of texts to list of vectors, as an embedder."""

    def __init__(self, function: Callable[[Sequence[str]], Any], *, name: str, dimensions: int) -> None:
        self._function = function
        self.name = name
        self.dimensions = dimensions

    def embed(self, texts: Sequence[str]) -> FloatMatrix:
        return checked_rows(self._function(texts), self.name, len(texts), self.dimensions)


def checked_rows(vectors: Any, name: str, rows: int, dimensions: int) -> FloatMatrix:
    """What an embedder returned, or InvalidMemory naming it."""
    try:
        wide = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidMemory(f"embedder {name!r} returned no array of numbers") from None
    if wide.shape != (rows, dimensions):
        raise InvalidMemory(
            f"embedder {name!r} returned shape {wide.shape} instead of {(rows, dimensions)}"
        )
    if not np.isfinite(wide).all():
        raise InvalidMemory(f"embedder {name!r} returned NaN or infinity")
    peak = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(wide, peak, out=np.zeros_like(wide), where=peak > 0)
    return np.asarray(scaled, dtype=np.float32)
