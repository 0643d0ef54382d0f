"""Turn any content into one vector: words with the embedder, numbers with sines and cosines.

A state such as {"position": {"x": 3.1}, "status": "hungry"} is rendered into text and numbers. Texts and
their keys are embedded as words. Each number adds sines and cosines of its value, along random directions
that its path selects. So two states with similar numbers at the same paths have similar vectors. Embedding
the digits as text would not have this effect.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory._base.content import Leaves
from memory._base.native import TermCache, TextPreparer, core
from memory._base.unit_vectors import FloatMatrix, unit, unit_rows
from memory.embedding.base import Embedder, checked_rows
from memory.embedding.wordllama import WordLlamaEmbedder, text_preparer

_FREQUENCIES = np.array((0.7, 2.0, 6.0))
"""Radians per unit of asinh(value). The low frequency keeps distant values a little similar. The high
frequency separates close values."""
_DIRECTIONS = 4096
"""The number of random directions, shared by all paths: 4 MB with 256 dimensions, and few collisions of
paths. `_DIRECTIONS`, `_STEPS` and `_SEED` must never change: every stored vector depends on them."""
_STEPS = 7919 * np.arange(2 * len(_FREQUENCIES))
"""The offsets from a path's first direction to all its directions. They differ, because 7919 is odd."""
_SEED = 20_250_323
_CACHED_SHAPES = 32
"""The combinations of paths whose directions are cached, 6 KB for each path with 256 dimensions."""
_CACHED_PATHS = 64
"""The most paths of such a combination: all together take at most 12 MB."""


class Rendering(msgspec.Struct, frozen=True, gc=False):
    """The parts of a content that are embedded."""

    text: str
    words: int
    """The number of the content's texts in `text`. A text counts once, even if it has many words."""
    numbers: tuple[tuple[str, float], ...]
    """Each number with its path."""


def render(leaves: Leaves) -> Rendering:
    """Return the rendering of a content's scalars. The order of an object's keys does not matter."""
    if len(leaves) == 1 and leaves[0][0] == "" and isinstance(leaves[0][1], str):
        return Rendering(leaves[0][1], 1, ())
    phrases: list[str] = []
    numbers: list[tuple[str, float]] = []
    last, keys = "", ""
    for path, value in leaves:
        if isinstance(value, str):
            if path != last:
                last, keys = path, path.replace(".", " ").replace("_", " ")
            phrases.append(f"{keys} {value}")
        elif type(value) is float:
            numbers.append((path, value))
        elif value is not None:
            numbers.append((path, _as_float(value)))
    phrases.sort()
    return Rendering("; ".join(phrases), len(phrases), tuple(numbers))


class ContentEmbedder:
    """Turns renderings into unit vectors. `embedder` embeds their text."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.dimensions = embedder.dimensions
        self._last_directions: dict[tuple[str, ...], tuple[NDArray[np.int64] | None, FloatMatrix]] = {}
        self._trusted = isinstance(embedder, WordLlamaEmbedder)

    def text_preparer(self, terms: TermCache) -> TextPreparer | None:
        """Return what prepares texts with this embedder in one call, where that is compiled."""
        return text_preparer(terms) if type(self.embedder) is WordLlamaEmbedder else None

    def embed_texts(self, texts: Sequence[str]) -> FloatMatrix:
        """Return the unit vectors of texts. Validate the vectors of embedders that are not built in."""
        vectors = self.embedder.embed(texts)
        if self._trusted:
            return vectors
        return unit_rows(checked_rows(vectors, self.embedder.name, len(texts), self.dimensions))

    def embed(self, renderings: Sequence[Rendering]) -> FloatMatrix:
        """Return one unit vector for each rendering."""
        words = self.embed_texts([rendering.text for rendering in renderings])
        for row, rendering in enumerate(renderings):
            if rendering.numbers:
                self._mix_numbers(words[row], rendering)
        return words

    def _mix_numbers(self, words: FloatMatrix, rendering: Rendering) -> None:
        """Mix the vector of the numbers into that of the words, by the share of numbers in the content."""
        if core is None or not words.flags.c_contiguous or words.dtype != np.float32:
            words[:] = self._with_numbers_pure(words, rendering)
            return
        numbers = rendering.numbers
        slot_of, directions = self._directions_for(tuple([path for path, _ in numbers]))
        share = len(numbers) / (rendering.words + len(numbers))
        core.mix_numbers(words, numbers, slot_of, directions, _FREQUENCIES, share)

    def _with_numbers_pure(self, words: FloatMatrix, rendering: Rendering) -> FloatMatrix:
        """Do what `_mix_numbers` does, without the compiled core. Return the vector."""
        count = len(rendering.numbers)
        slot_of, directions = self._directions_for(tuple([path for path, _ in rendering.numbers]))
        waves = np.arcsinh([value for _, value in rendering.numbers])[:, None] * _FREQUENCIES
        amounts = np.empty((count, 2 * len(_FREQUENCIES)))
        np.cos(waves, out=amounts[:, : len(_FREQUENCIES)])
        np.sin(waves, out=amounts[:, len(_FREQUENCIES) :])
        if slot_of is not None:  # the numbers of a list share their path and its directions
            summed = np.zeros((len(directions) // amounts.shape[1], amounts.shape[1]))
            np.add.at(summed, slot_of, amounts)
            amounts = summed
        numbers = amounts.astype(np.float32).ravel() @ directions
        share = count / (rendering.words + count)
        return unit(np.float32((1 - share) ** 0.5) * words + np.float32(share**0.5) * unit(numbers))

    def _directions_for(self, paths: tuple[str, ...]) -> tuple[NDArray[np.int64] | None, FloatMatrix]:
        """Return the directions of these paths, and the place of each path if some are equal.

        The states of one agent have the same paths again and again, so the last ones are cached."""
        cached = self._last_directions
        found = cached.get(paths)
        if found is not None:
            return found
        slots: dict[str, int] = {}
        slot_of = [slots.setdefault(path, len(slots)) for path in paths]
        first = np.array([zlib.crc32(path.encode("utf-8", "replace")) for path in slots], dtype=np.int64)
        picks = (first[:, None] + _STEPS) % _DIRECTIONS
        places = np.array(slot_of, np.int64) if len(slots) < len(slot_of) else None
        found = places, self._directions[picks.ravel()]
        if len(paths) <= _CACHED_PATHS:
            # A full cache is replaced by an empty one, never cleared, so that readers need no lock.
            self._last_directions = {**(cached if len(cached) < _CACHED_SHAPES else {}), paths: found}
        return found

    @cached_property
    def _directions(self) -> FloatMatrix:
        """Random directions, always from the same seed, so that stored vectors stay comparable."""
        return np.random.default_rng(_SEED).standard_normal(
            (_DIRECTIONS, self.dimensions), dtype=np.float32
        )


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer too large for a float
        return 1e308 if value > 0 else -1e308
