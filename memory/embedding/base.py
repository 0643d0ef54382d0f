"""The interface of embedders, and an embedder that calls a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from memory._base.unit_vectors import FloatMatrix as FloatMatrix
from memory.errors import InvalidMemory


class Embedder(Protocol):
    """Turns texts into vectors of `dimensions` numbers.

    `name` is stored in the file. Vectors of different embedders can't be compared. So opening a file with
    an embedder of another name raises EmbedderMismatch.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return one row for each text. Rows need not have unit length."""
        ...


@runtime_checkable
class WeightedEmbedder(Protocol):
    """An embedder that can give some words of a query more weight than others."""

    def embed_weighted(self, text: str, weight: Callable[[str], float]) -> FloatMatrix:
        """Return one row for the text. `weight` returns the weight of a word."""
        ...


class FunctionEmbedder:
    """An embedder that calls your function.

    Args:
        function: takes a list of texts and returns one vector for each, in any form that NumPy can convert.
        name: is stored in the file. Use another name if the function's vectors change.
        dimensions: the length of each vector.
    """

    def __init__(self, function: Callable[[Sequence[str]], Any], *, name: str, dimensions: int) -> None:
        self._function = function
        self.name = name
        self.dimensions = dimensions

    def embed(self, texts: Sequence[str]) -> FloatMatrix:
        return checked_rows(self._function(texts), self.name, len(texts), self.dimensions)


def checked_rows(vectors: Any, name: str, rows: int, dimensions: int) -> FloatMatrix:
    """Return the vectors of embedder `name`, scaled by their largest component, or raise InvalidMemory."""
    try:
        wide = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidMemory(f"embedder {name!r} did not return an array of numbers") from None
    if wide.shape != (rows, dimensions):
        raise InvalidMemory(
            f"embedder {name!r} returned shape {wide.shape} instead of {(rows, dimensions)}"
        )
    if not np.isfinite(wide).all():
        raise InvalidMemory(f"embedder {name!r} returned NaN or infinity")
    peak = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(wide, peak, out=np.zeros_like(wide), where=peak > 0)
    return np.asarray(scaled, dtype=np.float32)
