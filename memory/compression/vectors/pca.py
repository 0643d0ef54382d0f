"""The codec `pca`: the principal components with the largest variance, one byte for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from memory.compression.vectors._arrays import Codes, Doubles, Floats, product
from memory.compression.vectors._covariance import principal_axes
from memory.compression.vectors._signed_bytes import NO_VECTOR, from_signed, to_signed
from memory.compression.vectors.base import VectorCodec, require_whole, sixteenth


class PcaCodec(VectorCodec):
    """The first ``components`` principal components, each scaled by its own fitted range.

    Because each component has its own range, components with a small variance also use all 255 steps.
    Values outside the range that ``fit`` found are clipped.

    Args:
        components: the number of components and of bytes; by default 1/16 of the float32 vector.
    """

    name: ClassVar[str] = "pca"
    _zero_code: ClassVar[int] = NO_VECTOR

    def __init__(self, dimensions: int, *, components: int | None = None) -> None:
        super().__init__(dimensions)
        self.components = sixteenth(dimensions) if components is None else components
        require_whole("components", self.components, 1, dimensions)
        self.bytes_per_vector = self.components
        self.min_fit_vectors = self.components + 1

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "mean": (self.dimensions,),
            "axes": (self.dimensions, self.components),
            "ranges": (self.components,),
        }

    def _fit(self, units: Floats) -> dict[str, Floats]:
        principal = principal_axes(units)
        axes = principal.axes[:, : self.components]
        ranges = np.abs(product(units - principal.mean, axes)).max(axis=0)
        return {
            "mean": principal.mean.astype(np.float32),
            "axes": axes.astype(np.float32),
            "ranges": np.maximum(ranges, 1e-6).astype(np.float32),
        }

    def _encode(self, units: Floats) -> Codes:
        values = product(units - self._learnt["mean"], self._learnt["axes"])
        return to_signed(values / self._learnt["ranges"])

    def _decode(self, codes: Codes) -> Doubles:
        values = from_signed(codes) * self._learnt["ranges"]
        return product(values, self._learnt["axes"].T) + self._learnt["mean"]
