"""Search terms in the small form: nothing is lost but their order."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.compression.term_codecs import TermCodec, train_terms
from memory.errors import StoreCorrupt

TERM = st.integers(0, 2**32 - 1)
COMMON = [number * 7_919 for number in range(3000)]
SAMPLES = [array("I", COMMON[:: 1 + number % 9]).tobytes() for number in range(200)]


def packed(terms: list[int]) -> bytes:
    return array("I", terms).tobytes()


@given(st.lists(st.lists(st.one_of(TERM, st.sampled_from(COMMON)), max_size=60), min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_terms_come_back_in_another_order(memories: list[list[int]]) -> None:
    codec = TermCodec(train_terms(SAMPLES, 4))
    small = [codec.compress(packed(terms)) for terms in memories]
    for found in (codec.decompress(small), [codec.decompress([one])[0] for one in small]):
        assert [sorted(array("I", one)) for one in found] == [sorted(terms) for terms in memories]


def test_a_codec_without_a_vocabulary_works() -> None:
    codec = TermCodec(train_terms([], 4))
    assert codec.decompress([codec.compress(packed([3, 1, 2])), codec.compress(b"")]) == [
        packed([1, 2, 3]),
        b"",
    ]


def test_the_vocabulary_holds_only_terms_of_several_memories() -> None:
    shared, alone = 0x11223344, 0x55667788
    data = train_terms([packed([shared, alone + number]) for number in range(50)], 4)
    assert packed([shared]) in data
    assert not any(packed([alone + number]) in data for number in range(50))


def test_common_terms_take_about_a_byte() -> None:
    codec = TermCodec(train_terms(SAMPLES, 4))
    assert len(codec.compress(packed(COMMON[::100]))) < 1.5 * 30 + 8


@pytest.mark.parametrize("data", [b"", b"\x92", b"\x93\1\2\3", b"\x92\xc4\3abc\xc4\0"])
def test_a_damaged_codec_is_refused(data: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        TermCodec(data)


@pytest.mark.parametrize("small", [b"", b"\1garbage", b"\0\3\0\0\xff\xff\1"])
def test_damaged_terms_are_refused(small: bytes) -> None:
    codec = TermCodec(train_terms(SAMPLES, 4))
    with pytest.raises(StoreCorrupt):
        codec.decompress([small])
