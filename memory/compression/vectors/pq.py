"""The codec `pq`: product quantisation, the codec with the best recall at 1/16 of the bytes.

The vector is rotated and cut into sub-spaces. For each sub-space, the code has the number of the nearest of
256 centroids (Jégou, Douze and Schmid, "Product quantization for nearest neighbor search", 2011).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from memory.compression.vectors._arrays import Codes, Doubles, Floats, product
from memory.compression.vectors._covariance import principal_axes
from memory.compression.vectors._kmeans import CENTROIDS, NO_VECTOR, codebooks, nearest
from memory.compression.vectors.base import VectorCodec, require_whole, sixteenth

FEWEST_ROWS = 2048
"""The fewest rows for learning the centroids, 8 for each. If there are fewer vectors, rows are drawn."""
MOST_ROWS = 16_384
"""The most rows for learning the centroids, to limit the time. Of more vectors, a sample is used."""


class PqCodec(VectorCodec):
    """One byte for each sub-space of the rotated vector.

    The rotation distributes the principal axes so that all sub-spaces hold about the same information
    (the parametric form of Ge and others, "Optimized product quantization", 2013).

    If there are fewer vectors than ``FEWEST_ROWS``, the others are drawn from a normal distribution that is
    fitted to the vectors. So the centroids do not just repeat the vectors. Measured recall with 300
    vectors, with and without these draws: SciFact sentences .73 and .67, dialogue .82 and .78. States
    rendered from a template are not normally distributed: .91 and .94.

    Args:
        subspaces: the number of sub-spaces and of bytes; by default 1/16 of the float32 vector.
        iterations: the iterations of k-means after the choice of the first centroids.
        seed: the seed for the sample, for the drawn rows and for k-means.
    """

    name: ClassVar[str] = "pq"
    _zero_code: ClassVar[int] = NO_VECTOR

    def __init__(
        self,
        dimensions: int,
        *,
        subspaces: int | None = None,
        iterations: int = 12,
        seed: int = 0,
    ) -> None:
        super().__init__(dimensions)
        self.subspaces = sixteenth(dimensions) if subspaces is None else subspaces
        self.iterations = iterations
        self.seed = seed
        require_whole("subspaces", self.subspaces, 1, dimensions)
        require_whole("iterations", iterations, 1)
        require_whole("seed", seed, 0)
        self.bytes_per_vector = self.subspaces
        self.min_fit_vectors = CENTROIDS

    @property
    def _width(self) -> int:
        """Dimensions of a sub-space. If they can't be divided evenly, some places stay empty."""
        return -(-self.dimensions // self.subspaces)

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "mean": (self.dimensions,),
            "rotation": (self.dimensions, self.subspaces * self._width),
            "centroids": (self.subspaces, CENTROIDS, self._width),
        }

    def _fit(self, units: Floats) -> dict[str, Floats]:
        rng = np.random.default_rng(self.seed)
        sample = units[rng.permutation(len(units))[:MOST_ROWS]]
        principal = principal_axes(sample)
        places = distribute_axes(principal.variances, self.subspaces, self._width)
        # An empty place has the index -1, which selects the column of zeros added at the end.
        rotation = np.pad(principal.axes, ((0, 0), (0, 1)))[:, places]
        deviations = np.sqrt(np.pad(principal.variances, (0, 1))[places])
        missing = max(0, FEWEST_ROWS - len(sample))
        drawn = rng.normal(size=(missing, len(places))) * deviations
        rows = np.concatenate([product(sample - principal.mean, rotation), drawn])
        return {
            "mean": principal.mean.astype(np.float32),
            "rotation": rotation.astype(np.float32),
            "centroids": codebooks(self._cut(rows), self.iterations, rng),
        }

    def _encode(self, units: Floats) -> Codes:
        rows = product(units - self._learnt["mean"], self._learnt["rotation"])
        return nearest(self._cut(rows), self._learnt["centroids"]).T

    def _decode(self, codes: Codes) -> Doubles:
        rows = self._learnt["centroids"][np.arange(self.subspaces), codes]
        flat = rows.reshape(len(codes), self.subspaces * self._width)
        return product(flat, self._learnt["rotation"].T) + self._learnt["mean"]

    def _cut(self, rows: Doubles) -> Floats:
        cut = rows.astype(np.float32).reshape(len(rows), self.subspaces, self._width)
        return np.ascontiguousarray(cut.transpose(1, 0, 2))


def distribute_axes(variances: Doubles, subspaces: int, width: int) -> NDArray[np.intp]:
    """Return the axis at each place of each sub-space, -1 for an empty place.

    The axes are assigned in order, largest variance first. Each axis goes to the sub-space that has room
    and the smallest product of variances. If the products are equal, 256 centroids are equally good in all
    sub-spaces (Ge and others, 2013).
    """
    floor = max(float(variances[0]) * 1e-9, 1e-30)
    gains = np.log(np.maximum(variances, floor) / floor)
    places = np.full((subspaces, width), -1, dtype=np.intp)
    filled = np.zeros(subspaces, dtype=np.intp)
    total = np.zeros(subspaces)
    for axis, gain in enumerate(gains):
        space = int(np.argmin(np.where(filled < width, total, np.inf)))
        places[space, filled[space]] = axis
        filled[space] += 1
        total[space] += gain
    return places.ravel()
