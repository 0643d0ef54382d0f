"""The autoencoder's network, and its training.

The gradients are written out. With automatic differentiation on NumPy (autograd) a step took four
times as long, and on a busy machine forty times: its products woke all of BLAS's threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.compression.vectors._arrays import SMALL_PRODUCT, Doubles, Floats
from memory.compression.vectors._signed_bytes import LEVELS

Weights = Sequence[NDArray[Any]]

LAYERS = ("enter", "squeeze", "widen", "leave")
"""dimensions -> hidden -> code -> hidden -> dimensions"""


def shapes(dimensions: int, hidden: int, code: int) -> dict[str, tuple[int, ...]]:
    """The arrays of the network in the order of the forward pass, biases after weights."""
    sizes = (dimensions, hidden, code, hidden, dimensions)
    found: dict[str, tuple[int, ...]] = {}
    for layer, width, height in zip(LAYERS, sizes[:-1], sizes[1:], strict=True):
        found[layer] = (width, height)
        found[layer + "_bias"] = (height,)
    return found


def initial(layers: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> list[Doubles]:
    """Glorot and Bengio's initial weights (2010), and no bias."""
    weights = []
    for shape in layers.values():
        spread = np.sqrt(2.0 / sum(shape)) if len(shape) == 2 else 0.0
        weights.append(rng.normal(size=shape) * spread)
    return weights


def to_code(units: Doubles, weights: Weights) -> Doubles:
    """Unit rows to code values between -1 and 1.

    Components of a unit vector are small; times the root of their number they are about one,
    which is the range that the first layer's initial weights are made for.
    """
    enter, enter_bias, squeeze, squeeze_bias = weights[:4]
    inner = np.tanh(units * np.sqrt(len(enter)) @ enter + enter_bias)
    code: Doubles = np.tanh(inner @ squeeze + squeeze_bias)
    return code


def from_code(code: NDArray[np.floating], weights: Weights) -> Doubles:
    """Code values to rows whose direction is the answer."""
    widen, widen_bias, leave, leave_bias = weights[4:]
    rows: Doubles = np.tanh(code @ widen + widen_bias) @ leave + leave_bias
    return rows


def train(
    units: Floats,
    weights: Weights,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    rng: np.random.Generator,
) -> tuple[list[Floats], list[float]]:
    """The trained weights, and the mean loss (1 - cosine) of each epoch."""
    current = _Flat.copy_of(weights)
    slopes = _Flat.copy_of(weights)
    adam = _Adam(current.values.size, learning_rate)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for rows in _batches(units, rng.permutation(len(units)), batch_size):
            total += loss_and_slopes(rows, current.parts, slopes.parts) * len(rows)
            adam.step(current.values, slopes.values)
        losses.append(total / len(units))
    return current.parts, losses


def loss_and_slopes(
    units: Floats, weights: Sequence[Floats], slopes: Sequence[Floats], levels: float = LEVELS
) -> float:
    """The mean of 1 - cosine over these rows; its slope along each weight goes into `slopes`.

    The code is rounded as it will be stored, so that the decoder learns from what it will really get;
    going back, the rounding counts as if it were not there (the straight-through estimator).
    """
    enter, enter_bias, squeeze, squeeze_bias, widen, widen_bias, leave, leave_bias = weights
    scaled = units * np.float32(np.sqrt(units.shape[1]))
    first = np.tanh(_times(scaled, enter) + enter_bias)
    code = np.tanh(_times(first, squeeze) + squeeze_bias)
    rounded = np.rint(code * np.float32(levels)) / np.float32(levels)
    second = np.tanh(_times(rounded, widen) + widen_bias)
    out = _times(second, leave) + leave_bias

    along = np.einsum("ij,ij->i", out, units)
    squared = np.einsum("ij,ij->i", out, out) + np.float32(1e-12)
    length = np.sqrt(squared)
    cosine = along / length
    # The cosine's slope along out is (unit - out · along / length²) / length.
    slope = (out * (along / squared)[:, None] - units) / (length * np.float32(len(units)))[:, None]
    _back(second, slope, slopes[6:8])
    slope = _times(slope, leave.T) * (1 - np.square(second))
    _back(rounded, slope, slopes[4:6])
    slope = _times(slope, widen.T) * (1 - np.square(code))
    _back(first, slope, slopes[2:4])
    slope = _times(slope, squeeze.T) * (1 - np.square(first))
    _back(scaled, slope, slopes[0:2])
    return float(np.mean(1 - cosine, dtype=np.float64))


def _back(entered: Floats, slope: Floats, slopes: Sequence[Floats]) -> None:
    """The slopes of one layer's weights and bias, from what entered it and the slope of what left it."""
    _times(entered.T, slope, slopes[0])
    slope.sum(axis=0, out=slopes[1])


def _times(left: Floats, right: Floats, out: Floats | None = None) -> Floats:
    """``left @ right`` in pieces that BLAS works on in this thread (see SMALL_PRODUCT)."""
    rows, inner = left.shape
    columns = right.shape[1]
    if out is None:
        out = np.empty((rows, columns), dtype=np.float32)
    if rows >= columns:
        size = max(1, SMALL_PRODUCT // (inner * columns))
        for start in range(0, rows, size):
            np.matmul(left[start : start + size], right, out=out[start : start + size])
    else:
        size = max(1, SMALL_PRODUCT // (inner * rows))
        for start in range(0, columns, size):
            np.matmul(left, right[:, start : start + size], out=out[:, start : start + size])
    return out


def _batches(units: Floats, order: NDArray[np.intp], size: int) -> Iterator[Floats]:
    for start in range(0, len(units), size):
        yield units[order[start : start + size]]


@dataclass(frozen=True)
class _Flat:
    """All weights in one row, and each of them as a view of its part: one Adam step serves all."""

    values: Floats
    parts: list[Floats]

    @classmethod
    def copy_of(cls, weights: Weights) -> _Flat:
        values = np.concatenate([part.ravel() for part in weights]).astype(np.float32)
        ends = np.cumsum([part.size for part in weights])
        pieces = np.split(values, ends[:-1])
        return cls(values, [piece.reshape(part.shape) for piece, part in zip(pieces, weights, strict=True)])


class _Adam:
    """Kingma and Ba, "Adam: a method for stochastic optimization" (2015), with their constants."""

    def __init__(self, size: int, learning_rate: float) -> None:
        self._rate = learning_rate
        self._mean = np.zeros(size, dtype=np.float32)
        self._square = np.zeros(size, dtype=np.float32)
        self._spare = np.empty(size, dtype=np.float32)
        self._steps = 0

    def step(self, values: Floats, slopes: Floats) -> None:
        """Change the values in place. `slopes` is used up."""
        self._steps += 1
        spare = self._spare
        np.multiply(slopes, np.float32(0.1), out=spare)
        self._mean *= np.float32(0.9)
        self._mean += spare
        np.square(slopes, out=slopes)
        slopes *= np.float32(0.001)
        self._square *= np.float32(0.999)
        self._square += slopes
        # Both averages start at zero and are too small at first, by known factors.
        np.sqrt(self._square, out=spare)
        spare /= np.float32(np.sqrt(1 - 0.999**self._steps))
        spare += np.float32(1e-8)
        np.divide(self._mean, spare, out=spare)
        spare *= np.float32(self._rate / (1 - 0.9**self._steps))
        values -= spare
