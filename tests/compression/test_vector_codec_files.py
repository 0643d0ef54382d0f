"""Saved codecs: damage is detected, other data is refused, no code is executed."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vector_samples import clustered

from memory.compression.vectors import CodecDamaged, Int8Codec, PqCodec, load_codec, make_codec
from memory.compression.vectors._serialization import pack


@cache
def saved(name: str) -> bytes:
    return make_codec(name, 16).fit(clustered(300, 16, seed=0)).save()


some_codec = st.sampled_from(["int8", "pca", "binary", "scalar", "pq"])


@given(name=some_codec, place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(deadline=None)
def test_one_changed_byte_is_detected(name: str, place: float, flip: int) -> None:
    data = bytearray(saved(name))
    data[int(place * len(data))] ^= flip
    with pytest.raises(CodecDamaged):
        load_codec(bytes(data))


@given(name=some_codec, share=st.floats(0, 1, exclude_max=True))
@settings(deadline=None)
def test_data_that_is_cut_short_is_refused(name: str, share: float) -> None:
    data = saved(name)
    with pytest.raises(CodecDamaged):
        load_codec(data[: int(share * len(data))])


@given(data=st.binary(max_size=300))
@settings(deadline=None)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CodecDamaged):
        load_codec(data)
    with pytest.raises(CodecDamaged):
        load_codec(saved("int8") + data + b"!")


def test_a_pickle_is_never_opened() -> None:
    with pytest.raises(CodecDamaged, match="not a saved codec: it starts with"):
        load_codec(pickle.dumps(np.zeros(100)))


def test_a_newer_format_asks_for_an_upgrade() -> None:
    data = saved("int8")
    newer = data[:4] + (2).to_bytes(2, "little") + data[6:]
    with pytest.raises(CodecDamaged, match="format 2, but this version reads formats up to 1: upgrade"):
        load_codec(newer)


def test_a_codec_of_a_newer_version_is_named() -> None:
    with pytest.raises(CodecDamaged, match="'quantum', which this version does not have"):
        load_codec(pack("quantum", 16, {}, {}))


def test_a_class_loads_only_its_own() -> None:
    assert Int8Codec.load(saved("int8")).dimensions == 16
    with pytest.raises(CodecDamaged, match="'int8', not 'pq': use load_codec"):
        PqCodec.load(saved("int8"))


@pytest.mark.parametrize(
    ("name", "dimensions", "options", "shape"),
    [
        ("int8", 0, {}, None),
        ("int8", 16, {"keep": 3}, None),
        ("truncate", 16, {"keep": 99}, None),
        ("truncate", 16, {"keep": 3.5}, None),
        ("pca", 16, {"components": 4}, (16, 5)),
        ("int8", 16, {}, (3,)),
    ],
)
def test_invalid_content_is_refused_even_with_a_correct_digest(
    name: str, dimensions: int, options: dict[str, float], shape: tuple[int, ...] | None
) -> None:
    learnt = {} if shape is None else {"axes": np.zeros(shape, np.float32)}
    with pytest.raises(CodecDamaged, match="is damaged"):
        load_codec(pack(name, dimensions, options, learnt))


def test_learnt_values_that_are_not_numbers_are_refused() -> None:
    learnt = {"rotation": np.full((4, 4), np.nan, np.float32)}
    with pytest.raises(CodecDamaged, match="NaN"):
        load_codec(pack("scalar", 4, {"bits": 2, "seed": 0}, learnt))
