"""The axes along which a set of vectors varies, trusted no further than its size allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memory.compression.vectors._arrays import Doubles, Floats


@dataclass(frozen=True)
class PrincipalAxes:
    """Mean, variances (falling) and the axes they belong to, as columns."""

    mean: Doubles
    variances: Doubles
    axes: Doubles


def principal_axes(rows: Floats) -> PrincipalAxes:
    """Principal components with Ledoit and Wolf's shrinkage of the variances.

    The sample covariance of a few hundred vectors calls directions empty that the next vectors
    will use. Shrinking it towards a multiple of the identity, by the amount that Ledoit and Wolf
    derive from the data ("A well-conditioned estimator for large-dimensional covariance
    matrices", 2004, section 3.3), changes no axis, only how far the variances are believed.
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
    """An axis and its negative are the same axis; which one LAPACK gives should not matter."""
    strongest = np.abs(axes).argmax(axis=0)
    signs = np.sign(axes[strongest, np.arange(axes.shape[1])])
    return axes * np.where(signs == 0.0, 1.0, signs)
