"""The autoencoder's network, and its training with the gradients of `autograd`.

The forward pass is written once and runs on either NumPy: the plain one to encode and decode,
autograd's to train. Only training needs autograd, so it is imported there.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.compression.vectors._arrays import Doubles, Floats
from memory.compression.vectors._signed import LEVELS

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


def initial(layers: dict[str, tuple[int, ...]], rng: np.random.Generator) -> list[Doubles]:
    """Glorot and Bengio's initial weights (2010), and no bias."""
    weights = []
    for shape in layers.values():
        spread = np.sqrt(2.0 / sum(shape)) if len(shape) == 2 else 0.0
        weights.append(rng.normal(size=shape) * spread)
    return weights


def to_code(units: Any, weights: Weights, xp: ModuleType = np) -> Any:
    """Unit rows to code values between -1 and 1.

    Components of a unit vector are small; times the root of their number they are about one,
    which is the range that the first layer's initial weights are made for.
    """
    enter, enter_bias, squeeze, squeeze_bias = weights[:4]
    inner = xp.tanh(xp.dot(units * np.sqrt(len(enter)), enter) + enter_bias)
    return xp.tanh(xp.dot(inner, squeeze) + squeeze_bias)


def from_code(code: Any, weights: Weights, xp: ModuleType = np) -> Any:
    """Code values to rows whose direction is the answer."""
    widen, widen_bias, leave, leave_bias = weights[4:]
    inner = xp.tanh(xp.dot(code, widen) + widen_bias)
    return xp.dot(inner, leave) + leave_bias


def train(
    units: Floats,
    weights: Weights,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    rng: np.random.Generator,
) -> tuple[list[Doubles], list[float]]:
    """The trained weights, and the mean loss (1 - cosine) of each epoch."""
    autograd, xp, adam = _import_autograd()
    getval = importlib.import_module("autograd.tracer").getval

    def loss(current: Any, rows: Floats) -> Any:
        code = to_code(rows, current, xp)
        # Rounded as it will be stored, with the gradient of the unrounded value (straight-through
        # estimator): the decoder learns from what it will really get.
        plain = getval(code)
        code = code + (np.rint(plain * LEVELS) / LEVELS - plain)
        out = from_code(code, current, xp)
        cosine = xp.sum(out * rows, axis=1) / xp.sqrt(xp.sum(out * out, axis=1) + 1e-12)
        return xp.mean(1.0 - cosine)

    value_and_gradient = autograd.value_and_grad(loss)
    starts = range(0, len(units), batch_size)
    orders = [rng.permutation(len(units)) for _ in range(epochs)]
    losses = np.zeros(epochs)

    def gradient(current: Any, step: int) -> Any:
        epoch, batch = divmod(step, len(starts))
        start = starts[batch]
        rows = units[orders[epoch][start : start + batch_size]]
        # Single precision halves the time; adam itself adds up in double precision.
        value, slopes = value_and_gradient([w.astype(np.float32) for w in current], rows)
        losses[epoch] += float(value) * len(rows) / len(units)
        return slopes

    trained = adam(gradient, list(weights), num_iters=epochs * len(starts), step_size=learning_rate)
    return trained, losses.tolist()


def _import_autograd() -> tuple[Any, ModuleType, Any]:
    try:
        autograd = importlib.import_module("autograd")
        xp = importlib.import_module("autograd.numpy")
        adam = importlib.import_module("autograd.misc.optimizers").adam
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"training the autoencoder needs the package 'autograd' ({error}): "
            "install it with the extra [neural]"
        ) from None
    return autograd, xp, adam
