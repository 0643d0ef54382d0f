"""k-means in many sub-spaces at once: the codebooks of product quantisation."""

from __future__ import annotations

import numpy as np

from memory._base.yielding import yield_gil
from memory.compression.vectors._arrays import SMALL_PRODUCT, Codes, Floats

CENTROIDS = 256
"""The number of centroids of a sub-space: as many as one byte can distinguish."""
NO_VECTOR = 255
"""In the first sub-space this code means the zero vector. No other vector has this code there."""
SEEDING_ROWS = 2048
"""The first centroids are drawn from at most this many rows, 8 for each centroid, to limit the time."""
_NEVER = np.float32(1e30)  # A half squared length that is so large that the centroid is never the nearest


def codebooks(spaces: Floats, iterations: int, rng: np.random.Generator) -> Floats:
    """Return the (spaces, 256, width) centroids of (spaces, rows, width) values, by Lloyd's iterations."""
    sample = rng.permutation(spaces.shape[1])[:SEEDING_ROWS]
    centroids = _initial_centroids(spaces[:, sample], rng)
    for _ in range(iterations):
        centroids = _means(spaces, nearest(spaces, centroids), centroids)
    return centroids


def nearest(spaces: Floats, centroids: Floats) -> Codes:
    """Return a (spaces, rows) array: the index of the nearest centroid in each space.

    The nearest centroid c of x has the largest x·c - |c|²/2. One matrix product computes this if x has the
    additional component 1, and c the additional component -|c|²/2.
    """
    count, rows, width = spaces.shape
    halves = np.square(centroids).sum(axis=2) / np.float32(2.0)
    halves[0, NO_VECTOR] = _NEVER
    targets = np.concatenate([centroids, -halves[:, :, None]], axis=2).transpose(0, 2, 1).copy()
    points = np.ones((count, rows, width + 1), dtype=np.float32)
    points[:, :, :width] = spaces
    found = np.empty((count, rows), dtype=np.uint8)
    size = max(1, SMALL_PRODUCT // (CENTROIDS * (width + 1)))
    scores = np.empty((size, CENTROIDS), dtype=np.float32)
    for space in range(count):
        for start in range(0, rows, size):
            yield_gil()
            block = points[space, start : start + size]
            np.matmul(block, targets[space], out=scores[: len(block)])
            found[space, start : start + size] = scores[: len(block)].argmax(axis=1)
    return found


def _initial_centroids(spaces: Floats, rng: np.random.Generator) -> Floats:
    """Choose the first centroids in all spaces at once by k-means++ (Arthur and Vassilvitskii, 2007).

    Each centroid is a row. The probability of a row is proportional to its squared distance from the
    nearest centroid so far.
    """
    count, rows, width = spaces.shape
    all_spaces = np.arange(count)
    # Compute axis by axis over long rows: a sum over a last axis of 4 values takes three times as long.
    axes = np.ascontiguousarray(spaces.transpose(2, 0, 1))
    centroids = np.empty((count, CENTROIDS, width), dtype=np.float32)
    chosen = rng.integers(rows, size=count)
    distance = np.full((count, rows), np.inf, dtype=np.float32)
    step = np.empty_like(distance)
    for index in range(CENTROIDS):
        yield_gil()
        centroids[:, index] = spaces[all_spaces, chosen]
        to_new = np.zeros_like(distance)
        for axis in range(width):
            np.subtract(axes[axis], centroids[:, index, axis, None], out=step)
            to_new += np.square(step, out=step)
        np.minimum(distance, to_new, out=distance)
        cumulative = np.cumsum(distance, axis=1, dtype=np.float64)
        drawn = rng.random(count) * cumulative[:, -1]
        passed = np.count_nonzero(cumulative <= drawn[:, None], axis=1)
        chosen = np.minimum(passed, rows - 1)
    return centroids


def _means(spaces: Floats, assigned: Codes, centroids: Floats) -> Floats:
    """Return the mean of the rows of each centroid. A centroid without rows is not changed."""
    count, _, width = spaces.shape
    cells = (assigned.astype(np.intp) + np.arange(count)[:, None] * CENTROIDS).ravel()
    sizes = np.bincount(cells, minlength=count * CENTROIDS)
    sums = []
    for axis in range(width):
        yield_gil()
        sums.append(np.bincount(cells, spaces[:, :, axis].ravel(), minlength=count * CENTROIDS))
    means = (np.stack(sums, axis=1) / np.maximum(sizes, 1)[:, None]).reshape(centroids.shape)
    empty = (sizes == 0).reshape(count, CENTROIDS, 1)
    return np.where(empty, centroids, means).astype(np.float32)
