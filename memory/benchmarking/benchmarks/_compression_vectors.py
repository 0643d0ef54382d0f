"""The quality of vectors that went through a codec or a tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.benchmarking.bench import Bench, Score
from memory.benchmarking.measure.ranking import clustered_mean
from memory.benchmarking.targets.base import Codec
from memory.benchmarking.targets.memory_content import leaves_of
from memory.embedding import ContentEmbedder, WordLlamaEmbedder, render

Floats = NDArray[np.float32]

NEIGHBOURS = 10
FULL_BYTES = 4 * WordLlamaEmbedder.dimensions
"""Bytes of a vector as the embedder returns it."""


def embedded(contents: Sequence[Any], embedder: ContentEmbedder | None = None) -> Floats:
    """Return the vectors of the embedder that all targets use: that of the bench, or the default one."""
    embedder = embedder or ContentEmbedder(WordLlamaEmbedder())
    return embedder.embed([render(leaves_of(content)) for content in contents])


def quality(
    samples: Floats, read_back: Floats, corpus: Floats, kept_corpus: Floats, width: float
) -> dict[str, Any]:
    """Return how similar the samples are after reading them back, and how many neighbours are still found.

    The search uses the original vector and the corpus as it is kept: a memory embeds each question again,
    and compares it with what it stored.
    """
    lengths = np.linalg.norm(samples, axis=1) * np.linalg.norm(read_back, axis=1)
    cosines = np.sum(samples * read_back, axis=1) / np.maximum(lengths, 1e-12)
    shares = neighbours_kept(samples, corpus, kept_corpus)
    kept = clustered_mean(shares, range(len(shares)))
    return {
        "reconstruction_mse": float(np.mean(np.square(samples - read_back))),
        "cosine_similarity": float(cosines.mean()),
        "neighbour_recall_at_10": Score(kept.value, kept.low, kept.high),
        "bytes_per_vector": width,
        "vs_full_ratio": width / FULL_BYTES,
    }


def neighbours_kept(samples: Floats, corpus: Floats, kept_corpus: Floats) -> list[float]:
    """Return for each sample the share of its nearest vectors that are still nearest in the kept form."""
    k = min(NEIGHBOURS, len(corpus))
    pairs = zip(_nearest(samples, corpus, k), _nearest(samples, kept_corpus, k), strict=True)
    return [len(set(true) & set(found)) / k for true, found in pairs]


def _nearest(samples: Floats, corpus: Floats, k: int) -> list[list[int]]:
    order = np.argsort(-(samples @ corpus.T), axis=1, kind="stable")
    return [row[:k] for row in order.tolist()]


def through_codec(
    bench: Bench, codec: Codec, label: str, training: Floats, samples: Floats, corpus: Floats
) -> dict[str, Any]:
    """Fit a codec on one kind of data, and return its quality and speed."""
    fitting = bench.time(lambda: codec.fit(training), calls=1, warm_up=0, label=f"{label}, fit")
    codes = codec.encode(samples)
    kept_corpus = codec.decode(codec.encode(corpus))
    figures = quality(samples, codec.decode(codes), corpus, kept_corpus, codec.bytes_per_vector)
    count = len(samples)
    encoding = bench.time(lambda: codec.encode(samples), work=count, label=f"{label}, encode")
    decoding = bench.time(lambda: codec.decode(codes), work=count, label=f"{label}, decode")
    return figures | {
        "fit_seconds": fitting["total_time_seconds"],
        "encode_ops_per_second": encoding["throughput_ops_per_second"],
        "decode_ops_per_second": decoding["throughput_ops_per_second"],
    }


def picks(codecs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the codec with the highest recall for each share of the full vector's bytes."""
    found = {}
    for part in (4, 16, 32):
        small = {name: each for name, each in codecs.items() if each["vs_full_ratio"] <= 1 / part}
        if small:
            best = max(small, key=lambda name: float(small[name]["neighbour_recall_at_10"].value))
            found[f"within_1_{part}"] = best
    return found
