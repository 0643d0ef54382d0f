"""Dictionaries of contents: what they may hold."""

from __future__ import annotations

import random

from memory._base.content import compressible_body, encode_body
from memory.benchmarking.workloads import agent_states
from memory.compression.content_codecs import LEAST_MEMORIES, ContentCodecs, train_dictionary


def bodies(count: int) -> list[bytes]:
    rng = random.Random(1)
    return [
        b"\x92\xd9\x60the visitor asked about the weather, the harbour and token"
        + rng.randbytes(6).hex().encode()
        + b"\x80"
        for _ in range(count)
    ]


def test_a_dictionary_holds_no_word_of_a_single_memory() -> None:
    samples = bodies(400)
    dictionary = train_dictionary(samples)
    assert b"weather" in dictionary
    tokens = [body[body.index(b"token") : -1] for body in samples]
    for token in tokens:
        for start in range(len(token) - 6):
            assert token[start : start + 7] not in dictionary or token[start : start + 5] == b"token"


def test_a_word_of_enough_memories_stays() -> None:
    samples = bodies(300)
    for number in range(LEAST_MEMORIES):
        samples[number] = samples[number].replace(b"harbour", b"lighthouse" * 3)
    for number in range(LEAST_MEMORIES - 1):
        samples[-1 - number] = samples[-1 - number].replace(b"harbour", b"observatory" * 3)
    assert b"observatory" not in train_dictionary(samples)


def test_a_dictionary_makes_bodies_smaller_at_both_levels() -> None:
    samples = bodies(300)
    codecs = ContentCodecs()
    _, alone = codecs.compress(samples[0])
    codecs.add_dictionary(16, train_dictionary(samples))
    for quick in (True, False):
        number, small = codecs.compress(samples[0], quick=quick)
        assert number == 16
        assert len(small) < len(alone) / 2
        assert codecs.decompress(16, small) == samples[0]


def test_states_with_rounded_numbers_take_less_than_their_messagepack() -> None:
    raw = [encode_body(state, {}) for state in agent_states(400, 1, 7)]
    plain, compact = (
        sum(len(codecs.compress(body)[1]) for body in samples)
        for samples in (raw, [compressible_body(body) for body in raw])
        for codecs in [_with_dictionary(samples)]
    )
    assert compact < 0.85 * plain


def _with_dictionary(samples: list[bytes]) -> ContentCodecs:
    codecs = ContentCodecs()
    codecs.add_dictionary(16, train_dictionary(samples))
    return codecs
