"""The codec `autoencoder`: a neural network that learns a code for the vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from memory.compression.vectors import _network
from memory.compression.vectors._arrays import Codes, Doubles, Floats
from memory.compression.vectors._signed_bytes import NO_VECTOR, from_signed, to_signed
from memory.compression.vectors.base import VectorCodec, require, require_whole, sixteenth


class AutoencoderCodec(VectorCodec):
    """A network with the layers dimensions -> ``hidden`` -> ``code`` -> ``hidden`` -> dimensions.

    ``fit`` on a fitted autoencoder continues from its weights, so that it can adapt to new data. Codes that
    were written before this call can't be decoded any more. Each call appends the mean loss of its epochs
    to ``history``, which is not saved. The same seed and the same vectors give the same network.

    Args:
        code: the size of a code in bytes; by default 1/16 of the float32 vector.
        hidden: the number of neurons of each hidden layer; by default ``dimensions``.
        epochs: how often ``fit`` uses each vector.
        batch_size: the number of vectors in one training step; ``fit`` needs at least this many.
        learning_rate: Adam's step size, between 0 and 1.
        seed: the seed for the initial weights and for the order of the vectors.
    """

    name: ClassVar[str] = "autoencoder"
    _zero_code: ClassVar[int] = NO_VECTOR

    def __init__(
        self,
        dimensions: int,
        *,
        code: int | None = None,
        hidden: int | None = None,
        epochs: int = 10,
        batch_size: int = 32,
        learning_rate: float = 0.001,
        seed: int = 0,
    ) -> None:
        super().__init__(dimensions)
        self.code = sixteenth(dimensions) if code is None else code
        self.hidden = dimensions if hidden is None else hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed
        self.history: list[float] = []
        for option in ("code", "hidden", "epochs", "batch_size"):
            require_whole(option, getattr(self, option), 1)
        require_whole("seed", seed, 0)
        require(
            0.0 < learning_rate < 1.0,
            f"learning_rate is {learning_rate}: use a number between 0 and 1",
        )
        self.bytes_per_vector = self.code
        self.min_fit_vectors = batch_size

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        return _network.shapes(self.dimensions, self.hidden, self.code)

    def _fit(self, units: Floats) -> dict[str, Floats]:
        rng = np.random.default_rng(self.seed)
        layers = dict(self._shapes())
        weights, losses = _network.train(
            units,
            self._weights() if self.is_fitted else _network.initial(layers, rng),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            rng=rng,
        )
        self.history.extend(losses)
        return {name: w.astype(np.float32) for name, w in zip(layers, weights, strict=True)}

    def _encode(self, units: Floats) -> Codes:
        return to_signed(_network.to_code(units.astype(np.float64), self._weights()))

    def _decode(self, codes: Codes) -> Doubles:
        rows: Doubles = _network.from_code(from_signed(codes), self._weights())
        return rows

    def _weights(self) -> list[Doubles]:
        return [self._learnt[name].astype(np.float64) for name in self._shapes()]
