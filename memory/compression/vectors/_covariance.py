"""Principal axes of a set of vectors, with shrunk variances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memory.compression.vectors._arrays import Doubles, Floats


@dataclass(frozen=True)
class PrincipalAxes:
    """The mean, the variances in descending order, and their axes as columns."""

    mean: Doubles
    variances: Doubles
    axes: Doubles


def principal_axes(rows: Floats) -> PrincipalAxes:
    """Return the principal axes, with Ledoit and Wolf's shrinkage of the variances.

    A few hundred vectors have no variance along some axes, but later vectors can have some. So the
    covariance is shrunk towards a multiple of the identity, by the amount of Ledoit and Wolf ("A
    well-conditioned estimator for large-dimensional covariance matrices", 2004, section 3.3). Shrinking
    changes the variances, but not the axes.
    """
    wide = rows.astype(np.float64)
    mean = wide.mean(axis=0)
    wide -= mean
    count = len(wide)
    covariance = wide.T @ wide / count
    variances, axes = np.linalg.eigh(covariance)
    average = variances.mean()
    spread = np.square(variances - average).sum()
    fourth_moment = np.square(np.einsum("ij,ij->i", wide, wide)).sum() / count
    error = (fourth_moment - np.square(covariance).sum()) / count
    share = min(1.0, max(0.0, error / spread)) if spread > 0.0 else 1.0
    shrunk = (1.0 - share) * np.maximum(variances, 0.0) + share * average
    order = np.argsort(-shrunk, kind="stable")
    return PrincipalAxes(mean, shrunk[order], _with_fixed_signs(axes[:, order]))


def _with_fixed_signs(axes: Doubles) -> Doubles:
    """Make the largest component of each axis positive: LAPACK may return an axis or its negative."""
    strongest = np.abs(axes).argmax(axis=0)
    signs = np.sign(axes[strongest, np.arange(axes.shape[1])])
    return axes * np.where(signs == 0.0, 1.0, signs)
