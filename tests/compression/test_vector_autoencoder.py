"""The autoencoder: it learns, continues to learn, and keeps to its number of bytes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from vector_samples import Floats, low_rank, unit

from memory.compression.vectors import AutoencoderCodec, VectorCodec, _network, load_codec, make_codec
from memory.compression.vectors._signed_bytes import NO_VECTOR

DIMENSIONS = 48
RANK = 6


def cosine(codec: VectorCodec, rows: Floats) -> float:
    return float(np.mean(np.sum(codec.decode(codec.encode(rows)) * rows, axis=1)))


@cache
def seen() -> Floats:
    return low_rank(1500, DIMENSIONS, RANK, seed=1)


@cache
def unseen() -> Floats:
    return low_rank(500, DIMENSIONS, RANK, seed=2)


def trained(**options: float) -> AutoencoderCodec:
    codec = make_codec("autoencoder", DIMENSIONS, **options)
    assert isinstance(codec, AutoencoderCodec)
    return codec.fit(seen())


@cache
def ready() -> AutoencoderCodec:
    return trained()


def test_the_loss_falls_and_unseen_vectors_decode_near() -> None:
    codec = ready()
    assert len(codec.history) == codec.epochs == 10
    assert codec.history[-1] < 0.1 * codec.history[0]
    assert cosine(codec, unseen()) > 0.97


def test_it_keeps_more_than_truncation_of_vectors_of_low_rank() -> None:
    codec = ready()
    truncate = make_codec("truncate", DIMENSIONS)
    assert codec.bytes_per_vector == truncate.bytes_per_vector == 12
    assert cosine(codec, unseen()) > cosine(truncate, unseen()) + 0.3


def test_fitting_again_continues_from_the_weights() -> None:
    codec = trained(epochs=3)
    before = cosine(codec, unseen())
    codec.fit(seen())
    assert len(codec.history) == 6
    assert codec.history[3] < codec.history[2]
    assert cosine(codec, unseen()) > before


def test_fitting_again_adapts_to_changed_data() -> None:
    other = unit(seen() @ np.random.default_rng(7).normal(size=(DIMENSIONS, DIMENSIONS)))
    codec = trained(epochs=5)
    lost = cosine(codec, other)
    codec.fit(other)
    assert cosine(codec, other) > lost + 0.2


def test_a_loaded_autoencoder_continues_like_the_saved_one() -> None:
    codec = trained(epochs=2)
    loaded = load_codec(codec.save())
    assert loaded.fit(seen()).save() == codec.fit(seen()).save()


def test_other_seeds_give_other_networks() -> None:
    assert trained(epochs=1, seed=1).save() == trained(epochs=1, seed=1).save()
    assert trained(epochs=1, seed=1).save() != trained(epochs=1, seed=2).save()


def test_codes_use_many_values_but_never_the_one_of_the_zero_vector() -> None:
    codes = ready().encode(unseen())
    assert not np.any(codes == NO_VECTOR)
    used = [len(np.unique(codes[:, place])) for place in range(codes.shape[1])]
    assert min(used) > 50


@pytest.mark.parametrize("batch_size", [7, 500, 1500])
def test_batches_need_not_divide_the_data(batch_size: int) -> None:
    codec = trained(epochs=2, batch_size=batch_size)
    assert len(codec.history) == 2
    assert codec.history[1] < codec.history[0]


def test_gradients_equal_finite_differences_of_the_loss() -> None:
    """Against finite differences of the loss in double precision, with so many levels that no code is
    rounded: the rounding's slope is left out on purpose."""
    rng = np.random.default_rng(3)
    layers = _network.shapes(10, 8, 4)
    weights = [part.astype(np.float32) for part in _network.initial(layers, rng)]
    weights = [part + rng.normal(size=part.shape).astype(np.float32) * np.float32(0.1) for part in weights]
    rows = unit(rng.normal(size=(6, 10)))
    slopes = [np.empty_like(part) for part in weights]
    _network.loss_and_gradients(rows, weights, slopes, levels=1e6)

    def loss(changed: list[NDArray[np.float64]]) -> float:
        out = _network.from_code(_network.to_code(rows.astype(np.float64), changed), changed)
        return float(np.mean(1 - np.sum(out * rows, axis=1) / np.linalg.norm(out, axis=1)))

    for place, part in enumerate(weights):
        for at in np.ndindex(part.shape):
            sides = []
            for sign in (1, -1):
                changed = [each.astype(np.float64) for each in weights]
                changed[place][at] += sign * 1e-5
                sides.append(loss(changed))
            assert slopes[place][at] == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=2e-5)
