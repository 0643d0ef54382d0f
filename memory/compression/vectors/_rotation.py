"""A random rotation, which spreads a vector's information evenly over its dimensions."""

from __future__ import annotations

import numpy as np

from memory.compression.vectors._arrays import Doubles


def random_rotation(dimensions: int, seed: int) -> Doubles:
    """Return a uniformly distributed orthogonal matrix.

    The diagonal of R is made positive. Otherwise its signs depend on the LAPACK version, and the matrix is
    not uniform (Mezzadri, "How to generate random matrices from the classical compact groups", 2007).
    """
    normal = np.random.default_rng(seed).normal(size=(dimensions, dimensions))
    orthogonal, triangular = np.linalg.qr(normal)
    return orthogonal * np.sign(np.diag(triangular))
