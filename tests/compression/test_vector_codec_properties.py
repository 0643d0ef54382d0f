"""Promises that every vector codec keeps for all vectors."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from vector_samples import Floats, clustered

from memory.compression.vectors import (
    CODEC_NAMES,
    CodecNeedsMoreData,
    CodecNotFitted,
    InvalidCodecOption,
    InvalidVector,
    UnknownCodec,
    VectorCodec,
    load_codec,
    make_codec,
)
from memory.compression.vectors.centred import LEVELS
from memory.compression.vectors.scalar import normal_levels

DIMENSIONS = 16
BYTES = {
    "float32": 64,
    "int8": 16,
    "truncate": 4,
    "pca": 4,
    "autoencoder": 4,
    "binary": 2,
    "scalar": 4,
    "centred": 14,
    "pq": 4,
}
LEARNING = [name for name in CODEC_NAMES if not make_codec(name, DIMENSIONS).is_fitted]

names = pytest.mark.parametrize("name", CODEC_NAMES)


def _odd_rows(count: int, seed: int) -> Floats:
    """Return rows of all kinds: ordinary, on one axis, equal to another, zero, tiny and huge."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, DIMENSIONS)).astype(np.float32)
    sort = rng.integers(6, size=count)
    rows[sort == 1] = np.eye(DIMENSIONS, dtype=np.float32)[rng.integers(DIMENSIONS)]
    rows[sort == 2] = rows[:1]
    rows[sort == 3] = 0.0
    rows[sort == 4] *= np.float32(1e-30)
    rows[sort == 5] *= np.float32(1e30)
    return rows


odd_rows = st.builds(_odd_rows, st.integers(0, 40), st.integers(0, 2**32 - 1))

values = st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0.0 or abs(x) > 1e-6)
anything = hnp.arrays(np.float32, st.tuples(st.integers(0, 6), st.just(DIMENSIONS)), elements=values)


@cache
def fitted(name: str, dimensions: int = DIMENSIONS) -> VectorCodec:
    options = {"epochs": 2} if name == "autoencoder" else {}
    return make_codec(name, dimensions, **options).fit(clustered(400, dimensions, seed=0))


@names
@given(rows=odd_rows)
@settings(max_examples=20, deadline=None)
def test_codes_and_decoded_vectors_have_the_promised_shapes(name: str, rows: Floats) -> None:
    codec = fitted(name)
    codes = codec.encode(rows)
    assert codec.bytes_per_vector == BYTES[name]
    assert codes.shape == (len(rows), BYTES[name])
    assert codes.dtype == np.uint8
    decoded = codec.decode(codes)
    assert decoded.shape == rows.shape
    assert decoded.dtype == np.float32


@names
@given(rows=odd_rows)
@settings(max_examples=20, deadline=None)
def test_a_decoded_vector_has_unit_length_and_zero_stays_zero(name: str, rows: Floats) -> None:
    codec = fitted(name)
    if name == "truncate":  # a vector whose kept dimensions are zero has lost its direction
        rows = rows * rows[:, : BYTES[name]].any(axis=1, keepdims=True)
    lengths = np.linalg.norm(codec.decode(codec.encode(rows)), axis=1)
    np.testing.assert_allclose(lengths, rows.any(axis=1).astype(float), atol=1e-5)


@names
@given(rows=odd_rows, seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_a_code_does_not_depend_on_the_other_vectors_of_the_batch(
    name: str, rows: Floats, seed: int
) -> None:
    codec = fitted(name)
    codes = codec.encode(rows)
    order = np.random.default_rng(seed).permutation(len(rows))
    np.testing.assert_array_equal(codec.encode(rows[order]), codes[order])
    for row, code in zip(rows, codes, strict=True):
        np.testing.assert_array_equal(codec.encode(row[None]), code[None])


@names
def test_a_code_does_not_depend_on_its_place_in_a_large_batch(name: str) -> None:
    codec = fitted(name)
    rows = clustered(9000, DIMENSIONS, seed=3)  # more than BLOCK_ROWS
    codes = codec.encode(rows)
    order = np.random.default_rng(0).permutation(len(rows))
    np.testing.assert_array_equal(codec.encode(rows[order]), codes[order])
    np.testing.assert_array_equal(codec.encode(rows[:777]), codes[:777])


@names
@given(rows=odd_rows)
@settings(max_examples=20, deadline=None)
def test_a_loaded_codec_gives_the_same_codes_and_the_same_vectors(name: str, rows: Floats) -> None:
    codec = fitted(name)
    loaded = load_codec(codec.save())
    assert type(loaded) is type(codec)
    assert loaded.save() == codec.save()
    codes = codec.encode(rows)
    np.testing.assert_array_equal(loaded.encode(rows), codes)
    np.testing.assert_array_equal(loaded.decode(codes), codec.decode(codes))


@names
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_any_bytes_of_the_right_width_decode_to_finite_vectors(name: str, seed: int) -> None:
    codec = fitted(name)
    codes = np.random.default_rng(seed).integers(256, size=(50, codec.bytes_per_vector), dtype=np.uint8)
    lengths = np.linalg.norm(codec.decode(codes), axis=1)
    assert np.all((lengths < 1e-5) | (np.abs(lengths - 1.0) < 1e-5))


@names
def test_scale_does_not_matter_even_at_the_ends_of_the_float_range(name: str) -> None:
    codec = fitted(name)
    rows = clustered(50, DIMENSIONS, seed=4)
    for scale in (1e-30, 1e30):
        scaled = codec.decode(codec.encode(rows * np.float32(scale)))
        plain = codec.decode(codec.encode(rows))
        assert np.mean(np.sum(scaled * plain, axis=1)) > 0.999


@names
@pytest.mark.parametrize("dimensions", [1, 2, 3, 7, 33, 100])
def test_any_number_of_dimensions_works(name: str, dimensions: int) -> None:
    codec = fitted(name, dimensions)
    rows = clustered(40, dimensions, seed=5)
    decoded = codec.decode(codec.encode(rows))
    np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), 1.0, atol=1e-5)


@given(rows=anything)
@settings(max_examples=50, deadline=None)
def test_int8_keeps_every_direction_to_a_cosine_of_999(rows: Floats) -> None:
    rows = rows[rows.any(axis=1)]
    codec = make_codec("int8", DIMENSIONS)
    decoded = codec.decode(codec.encode(rows)).astype(np.float64)
    wide = rows.astype(np.float64)
    cosine = np.sum(decoded * wide, axis=1) / np.linalg.norm(wide, axis=1)
    assert np.all(cosine >= 0.999)


def test_float32_gives_unit_vectors_back_bit_by_bit() -> None:
    rows = clustered(500, 256, seed=6)
    codec = make_codec("float32", 256)
    np.testing.assert_array_equal(codec.decode(codec.encode(rows)), rows)


@pytest.mark.parametrize("name", ["truncate", "pca", "autoencoder", "scalar", "pq", "binary"])
def test_small_codecs_take_at_most_a_sixteenth_of_the_bytes_by_default(name: str) -> None:
    for dimensions in (64, 256, 384, 768):
        assert make_codec(name, dimensions).bytes_per_vector * 16 <= dimensions * 4


def test_only_codecs_that_learn_start_unfitted() -> None:
    assert LEARNING == ["pca", "autoencoder", "binary", "centred", "pq"]


@pytest.mark.parametrize("name", LEARNING)
def test_an_unfitted_codec_says_so_and_can_be_saved(name: str) -> None:
    codec = load_codec(make_codec(name, DIMENSIONS).save())
    assert not codec.is_fitted
    with pytest.raises(CodecNotFitted, match=f"'{name}'.*call fit"):
        codec.encode(np.ones((1, DIMENSIONS), np.float32))
    with pytest.raises(CodecNotFitted, match=f"'{name}'.*call fit"):
        codec.decode(np.zeros((1, codec.bytes_per_vector), np.uint8))


@pytest.mark.parametrize("name", LEARNING)
def test_too_few_vectors_are_refused_with_both_numbers(name: str) -> None:
    codec = make_codec(name, DIMENSIONS)
    need = codec.min_fit_vectors
    few = clustered(need - 1, DIMENSIONS, seed=0)
    with pytest.raises(CodecNeedsMoreData, match=rf"given {need - 1} vectors .* at least {need}$"):
        codec.fit(few)
    with_zeros = np.concatenate([few, np.zeros((50, DIMENSIONS), np.float32)])
    with pytest.raises(CodecNeedsMoreData, match=rf"given {need - 1} vectors"):
        codec.fit(with_zeros)
    assert not codec.is_fitted


def test_a_failed_fit_leaves_a_fitted_codec_as_it_was() -> None:
    codec = make_codec("pq", DIMENSIONS).fit(clustered(400, DIMENSIONS, seed=0))
    before = codec.save()
    with pytest.raises(CodecNeedsMoreData, match=r"given 255 vectors .* at least 256"):
        codec.fit(clustered(255, DIMENSIONS, seed=1))
    assert codec.save() == before


def test_pq_fits_on_as_few_vectors_as_it_says() -> None:
    assert make_codec("pq", DIMENSIONS).fit(clustered(256, DIMENSIONS, seed=0)).is_fitted


@pytest.mark.parametrize("name", LEARNING)
def test_fitting_twice_with_one_seed_gives_the_same_codec(name: str) -> None:
    options = {"epochs": 2} if name == "autoencoder" else {}
    rows = clustered(300, DIMENSIONS, seed=0)
    one, two = (make_codec(name, DIMENSIONS, **options).fit(rows) for _ in range(2))
    assert one.save() == two.save()


@pytest.mark.parametrize("name", [name for name in LEARNING if name != "autoencoder"])
def test_fitting_again_starts_from_nothing(name: str) -> None:
    rows = clustered(300, DIMENSIONS, seed=0)
    codec = make_codec(name, DIMENSIONS).fit(clustered(300, DIMENSIONS, seed=9)).fit(rows)
    assert codec.save() == make_codec(name, DIMENSIONS).fit(rows).save()


@names
def test_a_codec_can_be_fitted_on_vectors_that_are_all_the_same(name: str) -> None:
    rows = np.repeat(clustered(1, DIMENSIONS, seed=0), 300, axis=0)
    options = {"epochs": 2} if name == "autoencoder" else {}
    codec = make_codec(name, DIMENSIONS, **options).fit(rows)
    lengths = np.linalg.norm(codec.decode(codec.encode(rows)), axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-5)


@names
def test_wrong_vectors_and_codes_are_refused_with_the_numbers(name: str) -> None:
    codec = fitted(name)
    good = clustered(3, DIMENSIONS, seed=0)
    for wrong in (good[:, :-1], good[0], good[None]):
        with pytest.raises(InvalidVector, match=r"\(n, 16\), got \("):
            codec.encode(wrong)
    for bad in (np.nan, np.inf):
        holed = good.copy()
        holed[1, 5] = bad
        with pytest.raises(InvalidVector, match=r"1 of 3 vectors hold NaN or infinity.* row 1"):
            codec.encode(holed)
        with pytest.raises(InvalidVector, match="row 1"):
            codec.fit(holed)
    with pytest.raises(InvalidVector, match="array of numbers"):
        codec.encode([["a"] * DIMENSIONS])
    width = codec.bytes_per_vector
    with pytest.raises(InvalidVector, match=rf"\(n, {width}\), got \(2, {width + 1}\)"):
        codec.decode(np.zeros((2, width + 1), np.uint8))
    with pytest.raises(InvalidVector, match="int64"):
        codec.decode(np.zeros((2, width), np.int64))


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownCodec, match="'pcaa', did you mean 'pca'"):
        make_codec("pcaa", 8)
    with pytest.raises(UnknownCodec, match="did you mean 'autoencoder'"):
        make_codec("AutoEncoder", 8)
    with pytest.raises(UnknownCodec, match="codecs are: float32, int8"):
        make_codec("zzz", 8)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pq", {"subspaces": 0}, "subspaces must be a whole number, 1 to 16, got 0"),
        ("pq", {"iterations": 0}, "iterations"),
        ("pca", {"components": 33}, "components must be a whole number, 1 to 16, got 33"),
        ("truncate", {"keep": 2.5}, "got 2.5"),
        ("scalar", {"bits": 3}, "1, 2 or 4, got 3"),
        ("autoencoder", {"learning_rate": 0.0}, "learning_rate"),
        ("autoencoder", {"epochs": 0}, "epochs"),
        ("binary", {"seed": -1}, "seed"),
        ("int8", {"bits": 3}, "'int8' has no option 'bits' .it has: none"),
        ("pca", {"component": 3}, "it has: components"),
    ],
)
def test_options_that_cannot_work_are_refused(name: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidCodecOption, match=message):
        make_codec(name, DIMENSIONS, **options)


@pytest.mark.parametrize("dimensions", [0, -1, True, 2.0])
def test_dimensions_are_a_positive_whole_number(dimensions: int) -> None:
    with pytest.raises(InvalidCodecOption, match="dimensions"):
        make_codec("int8", dimensions)


def test_the_levels_of_centred_are_those_for_a_normal_variable() -> None:
    assert np.abs(LEVELS - normal_levels(64)).max() < 1e-6
