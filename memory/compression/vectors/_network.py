"""The autoencoder's network and its training.

The gradients are coded by hand. With automatic differentiation (autograd), a step took four times as long.
On a busy machine it took forty times as long, because the matrix products used all threads of BLAS.
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
"""dimensions -> hidden -> code -> hidden -> dimensions. These names are part of the saved format."""


def shapes(dimensions: int, hidden: int, code: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the network's arrays, in the order of the forward pass."""
    sizes = (dimensions, hidden, code, hidden, dimensions)
    arrays: dict[str, tuple[int, ...]] = {}
    for layer, width, height in zip(LAYERS, sizes[:-1], sizes[1:], strict=True):
        arrays[layer] = (width, height)
        arrays[layer + "_bias"] = (height,)
    return arrays


def initial(layers: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> list[Doubles]:
    """Return random weights by Glorot and Bengio (2010), and biases of zero."""
    weights = []
    for shape in layers.values():
        spread = np.sqrt(2.0 / sum(shape)) if len(shape) == 2 else 0.0
        weights.append(rng.normal(size=shape) * spread)
    return weights


def to_code(units: Doubles, weights: Weights) -> Doubles:
    """Return code values between -1 and 1 for unit rows.

    The components of a unit vector are small. Multiplied by the square root of their number, they are about
    1, which is the range that the initial weights of the first layer expect.
    """
    enter, enter_bias, squeeze, squeeze_bias = weights[:4]
    inner = np.tanh(units * np.sqrt(len(enter)) @ enter + enter_bias)
    code: Doubles = np.tanh(inner @ squeeze + squeeze_bias)
    return code


def from_code(code: NDArray[np.floating], weights: Weights) -> Doubles:
    """Return the rows that code values represent. Only the direction of a row matters."""
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
    """Return the trained weights, and the mean loss (1 - cosine) of each epoch."""
    current = _FlatWeights.copy_of(weights)
    gradients = _FlatWeights.copy_of(weights)
    adam = _Adam(current.values.size, learning_rate)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for rows in _batches(units, rng.permutation(len(units)), batch_size):
            total += loss_and_gradients(rows, current.parts, gradients.parts) * len(rows)
            adam.step(current.values, gradients.values)
        losses.append(total / len(units))
    return current.parts, losses


def loss_and_gradients(
    units: Floats, weights: Sequence[Floats], gradients: Sequence[Floats], levels: float = LEVELS
) -> float:
    """Return the mean loss (1 - cosine) of these rows, and write its gradients to `gradients`.

    The forward pass rounds the code, as `encode` does, so that the decoder learns from rounded codes. The
    backward pass ignores the rounding (the straight-through estimator).
    """
    enter, enter_bias, squeeze, squeeze_bias, widen, widen_bias, leave, leave_bias = weights
    scaled = units * np.float32(np.sqrt(units.shape[1]))
    first = np.tanh(_matmul(scaled, enter) + enter_bias)
    code = np.tanh(_matmul(first, squeeze) + squeeze_bias)
    rounded = np.rint(code * np.float32(levels)) / np.float32(levels)
    second = np.tanh(_matmul(rounded, widen) + widen_bias)
    out = _matmul(second, leave) + leave_bias

    dot = np.einsum("ij,ij->i", out, units)
    squared = np.einsum("ij,ij->i", out, out) + np.float32(1e-12)
    length = np.sqrt(squared)
    cosine = dot / length
    # The gradient of the cosine by out is (unit - out · dot / length²) / length.
    gradient = (out * (dot / squared)[:, None] - units) / (length * np.float32(len(units)))[:, None]
    _layer_gradients(second, gradient, gradients[6:8])
    gradient = _matmul(gradient, leave.T) * (1 - np.square(second))
    _layer_gradients(rounded, gradient, gradients[4:6])
    gradient = _matmul(gradient, widen.T) * (1 - np.square(code))
    _layer_gradients(first, gradient, gradients[2:4])
    gradient = _matmul(gradient, squeeze.T) * (1 - np.square(first))
    _layer_gradients(scaled, gradient, gradients[0:2])
    return float(np.mean(1 - cosine, dtype=np.float64))


def _layer_gradients(inputs: Floats, gradient: Floats, gradients: Sequence[Floats]) -> None:
    """Write the gradients of a layer's weights and bias, given its inputs and its outputs' gradient."""
    _matmul(inputs.T, gradient, gradients[0])
    gradient.sum(axis=0, out=gradients[1])


def _matmul(left: Floats, right: Floats, out: Floats | None = None) -> Floats:
    """Return ``left @ right``, computed in parts so small that BLAS uses only this thread."""
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
class _FlatWeights:
    """All weights in one array, so that one Adam step updates all; `parts` are views of that array."""

    values: Floats
    parts: list[Floats]

    @classmethod
    def copy_of(cls, weights: Weights) -> _FlatWeights:
        values = np.concatenate([part.ravel() for part in weights]).astype(np.float32)
        ends = np.cumsum([part.size for part in weights])
        pieces = np.split(values, ends[:-1])
        return cls(values, [piece.reshape(part.shape) for piece, part in zip(pieces, weights, strict=True)])


class _Adam:
    """The optimiser of Kingma and Ba, "Adam: a method for stochastic optimization" (2015).

    The constants are theirs: 0.9 and 0.999 (decay rates), 1e-8 (avoids division by zero).
    """

    def __init__(self, size: int, learning_rate: float) -> None:
        self._rate = learning_rate
        self._mean = np.zeros(size, dtype=np.float32)
        self._square = np.zeros(size, dtype=np.float32)
        self._buffer = np.empty(size, dtype=np.float32)
        self._steps = 0

    def step(self, values: Floats, gradients: Floats) -> None:
        """Change the values in place. `gradients` is overwritten."""
        self._steps += 1
        buffer = self._buffer
        np.multiply(gradients, np.float32(0.1), out=buffer)
        self._mean *= np.float32(0.9)
        self._mean += buffer
        np.square(gradients, out=gradients)
        gradients *= np.float32(0.001)
        self._square *= np.float32(0.999)
        self._square += gradients
        # Both averages start at zero. The powers of the decay rates correct this bias.
        np.sqrt(self._square, out=buffer)
        buffer /= np.float32(np.sqrt(1 - 0.999**self._steps))
        buffer += np.float32(1e-8)
        np.divide(self._mean, buffer, out=buffer)
        buffer *= np.float32(self._rate / (1 - 0.9**self._steps))
        values -= buffer
