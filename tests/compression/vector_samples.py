"""Seeded vectors for the codec tests, the same on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def unit(rows: NDArray[np.floating]) -> Floats:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(length == 0.0, 1.0, length)).astype(np.float32)


def clustered(count: int, dimensions: int, *, seed: int, clusters: int = 20) -> Floats:
    """Return unit vectors in clusters around a common mean, with falling variances, like embeddings."""
    world = np.random.default_rng(1)  # the same clusters for every seed
    scales = (1.0 + np.arange(dimensions)) ** -0.3
    turn = np.linalg.qr(world.normal(size=(dimensions, dimensions)))[0]
    common = world.normal(size=dimensions) * 0.5
    centres = world.normal(size=(clusters, dimensions)) * scales
    rng = np.random.default_rng(seed)
    around = centres[rng.integers(clusters, size=count)]
    rows = common + around + rng.normal(size=(count, dimensions)) * scales
    return unit(rows @ turn)


def low_rank(count: int, dimensions: int, rank: int, *, seed: int) -> Floats:
    """Return unit vectors that vary in ``rank`` directions only, spread over all dimensions."""
    basis = np.random.default_rng(2).normal(size=(rank, dimensions))
    rows = np.random.default_rng(seed).normal(size=(count, rank)) @ basis
    return unit(rows)


def neighbours_kept(true: Floats, decoded: Floats, k: int = 10) -> float:
    """Return the share of each row's k nearest other rows that are nearest after decoding too."""
    before, after = _nearest(true, k), _nearest(decoded, k)
    kept = [len(set(a) & set(b)) for a, b in zip(before.tolist(), after.tolist(), strict=True)]
    return float(np.mean(kept)) / k


def _nearest(rows: Floats, k: int) -> NDArray[np.intp]:
    scores = rows @ rows.T
    np.fill_diagonal(scores, -2.0)
    return np.argpartition(-scores, k, axis=1)[:, :k]
