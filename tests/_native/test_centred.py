"""The codec `centred` decodes to the same signed bytes with and without the compiled core."""

from __future__ import annotations

import numpy as np
import pytest

from memory.compression.vectors.centred import CentredCodec


@pytest.mark.parametrize("dimensions", [1, 7, 64, 256])
@pytest.mark.parametrize("rows", [0, 1, 300])
def test_both_forms_decode_to_the_same_bytes(dimensions: int, rows: int) -> None:
    random = np.random.default_rng(dimensions)
    codec = CentredCodec(dimensions).fit(random.normal(size=(100, dimensions)) + 0.3)
    vectors = random.normal(size=(rows, dimensions))
    vectors[: rows // 10] = 0
    codes = codec.encode(vectors)
    decoded = codec.decode_int8(codes)
    assert np.array_equal(decoded, codec.decode_int8_pure(codes))
    assert not decoded[: rows // 10].any()
    damaged = random.integers(0, 256, codes.shape).astype(np.uint8)
    assert np.array_equal(codec.decode_int8(damaged), codec.decode_int8_pure(damaged))
