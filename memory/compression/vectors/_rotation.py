"""A random rotation: spreads what a vector holds evenly over all of its dimensions."""

from __future__ import annotations

import numpy as np

from memory.compression.vectors._arrays import Doubles


def random_rotation(dimensions: int, seed: int) -> Doubles:
    """A uniformly distributed orthogonal matrix.

    The signs of R's diagonal are made positive: without that, QR leaves them to the LAPACK at
    hand, and the matrix is not uniform either (Mezzadri, "How to generate random matrices from
    the classical compact groups", 2007).
    """
    normal = np.random.default_rng(seed).normal(size=(dimensions, dimensions))
    orthogonal, triangular = np.linalg.qr(normal)
    return orthogonal * np.sign(np.diag(triangular))
