"""Texts whose vocabulary, word frequencies and lengths are those of real text, generated from a seed.

A memory's costs depend on its words: how many different ones there are, how often each occurs, and how many
tokens they have. Templates with a few hundred words make every cache hit and every list of postings long.
These texts have no meaning, but they cost as much as real ones (docs/measuring.md has the comparison):

- The words are tokens of the default embedder's vocabulary, in the order of their numbers: the tokenizer
  was trained on real text, and frequent words got low numbers. Rare words have two or three tokens.
- The frequency of the word of rank r is about 1 / (r + 2.7) up to a rank of a thousand, and falls faster
  after it (Zipf's law with two regimes: Ferrer i Cancho and Solé, 2001). So new words keep coming (Heaps).
- Each text has a topic with words of its own, so that texts and questions about one topic are similar.
- Lengths are log-normal, as those of chat turns, of questions and of abstracts are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memory.benchmarking.errors import BrokenBenchmark

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FOLDER, _FILE = "agentmemory_embedder_files", "l2_supercat_tokenizer_config.json"
_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
"""What a token that begins a word starts with."""
_WORDS = 40_000
"""How many different words there are."""
_STEMS, _SUFFIXES, _LONGEST_WORD = 6000, 3000, 14
"""Rare words are composed of the most frequent tokens of each kind, up to 14 letters."""
_COMMON = 150
"""Words up to this rank belong to no topic: articles, pronouns and the like."""
_SHIFT = 2.7
"""Mandelbrot's shift: the first ranks differ less than by Zipf's law."""
_TOPICS, _TOPIC_WORDS = 300, 120
_RAREST_OF_TOPIC = 5000
"""The highest rank of a topic's words."""
_NUMBER_SHARE = 0.015
"""The share of words that are numbers."""
_SEPARATORS = (" ", ", ", ". ", "! ", "? ")
_ENDS = {". ", "! ", "? "}
_BATCH = 256
"""How many texts are drawn at once."""


@dataclass(frozen=True)
class Kind:
    """One kind of text: how long its texts are, and how rare their words."""

    median_words: float
    spread: float
    """The standard deviation of the logarithm of the number of words."""
    fewest: int
    most: int
    rare_from: int
    """The rank from which frequencies fall faster."""
    tail: float
    """The exponent from that rank on."""
    composed_from: int
    """The rank from which words have several tokens."""
    topic_share: float
    """The share of a text's rarer words that come from its topic."""
    topic_words: int
    """How many words of the topic occur: with few, a text repeats them."""
    separators: tuple[float, ...]
    """The share of each separator after a word: space, comma, full stop, exclamation, question mark."""
    end: str


TURN = Kind(20.0, 0.55, 4, 120, 1000, 2.1, 1800, 0.4, 120, (0.86, 0.05, 0.05, 0.025, 0.015), ".")
"""A turn of a chat, as in LoCoMo."""
QUESTION = Kind(9.7, 0.31, 4, 30, 1000, 2.1, 1800, 0.4, 120, (0.97, 0.03, 0.0, 0.0, 0.0), "?")
"""A question about such turns."""
DOCUMENT = Kind(217.0, 0.38, 40, 900, 4000, 1.35, 500, 0.7, 40, (0.87, 0.07, 0.06, 0.0, 0.0), ".")
"""An abstract of a paper, as in SciFact."""


def memory_texts(seed: int) -> Iterator[str]:
    """Yield texts of the length of chat turns, without end."""
    return _texts(TURN, seed)


def question_texts(seed: int) -> Iterator[str]:
    """Yield questions about the same topics, without end."""
    return _texts(QUESTION, seed)


def document_texts(seed: int) -> Iterator[str]:
    """Yield texts of the length of abstracts, without end."""
    return _texts(DOCUMENT, seed)


def _texts(kind: Kind, seed: int) -> Iterator[str]:
    import numpy as np

    # The kinds differ in their last seed, so that a question is not the beginning of a memory.
    rng = np.random.default_rng((seed % 2**64, round(kind.median_words)))
    words, sums = _word_list(kind.composed_from), _sums(kind)
    topics = _topics()
    while True:
        lengths = np.exp(rng.normal(np.log(kind.median_words), kind.spread, _BATCH))
        lengths = np.clip(np.rint(lengths), kind.fewest, kind.most).astype(int)
        total = int(lengths.sum())
        ranks = np.searchsorted(sums, rng.random(total))
        topic = np.repeat(rng.integers(0, _TOPICS, _BATCH), lengths)
        on_topic = (ranks >= _COMMON) & (rng.random(total) < kind.topic_share)
        ranks[on_topic] = topics[topic[on_topic], rng.integers(0, kind.topic_words, int(on_topic.sum()))]
        numbers = np.where(rng.random(total) < _NUMBER_SHARE, rng.integers(1, 2100, total), 0)
        separators = rng.choice(len(_SEPARATORS), total, p=kind.separators)
        drawn = [
            str(number) if number else words[rank]
            for rank, number in zip(ranks.tolist(), numbers.tolist(), strict=True)
        ]
        between = [_SEPARATORS[separator] for separator in separators.tolist()]
        start = 0
        for length in lengths.tolist():
            end = start + length
            yield _text(drawn[start:end], between[start : end - 1], kind.end)
            start = end


def _text(words: list[str], separators: list[str], end: str) -> str:
    """Join words; the first one of a sentence is capitalised."""
    parts = [words[0].capitalize()]
    for word, separator in zip(words[1:], separators, strict=True):
        parts.append(separator)
        parts.append(word.capitalize() if separator in _ENDS else word)
    parts.append(end)
    return "".join(parts)


def all_words() -> frozenset[str]:
    """Return every word that a text can have, in lower case."""
    return frozenset(word for kind in (TURN, QUESTION, DOCUMENT) for word in _word_list(kind.composed_from))


@cache
def _word_list(composed_from: int) -> list[str]:
    """Return all words by rank, all different; those from `composed_from` on have several tokens."""
    import random

    vocabulary = _vocabulary()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    plain = [token for token in tokens if token.removeprefix(_MARK).isascii()]
    whole = [token[1:] for token in plain if token[0] == _MARK and _is_word(token[1:])]
    parts = [token for token in plain if token[0] != _MARK and _is_word(token)]
    found = dict.fromkeys(whole[:composed_from])
    rng = random.Random("words")
    # Drawn in one go: choosing word by word would take a quarter of a second in every process.
    drawn = zip(
        rng.choices(whole[:_STEMS], k=2 * _WORDS),
        rng.choices(parts[:_SUFFIXES], k=2 * _WORDS),
        rng.choices(
            [*parts[:_SUFFIXES], *[""] * (2 * _SUFFIXES)], k=2 * _WORDS
        ),  # a third has three tokens
        strict=True,
    )
    for stem, second, third in drawn:
        word = stem + second + third
        if len(word) <= _LONGEST_WORD:
            found.setdefault(word)
        if len(found) == _WORDS:
            break
    return list(found)


def _vocabulary() -> dict[str, int]:
    """Return the number of each token of the default embedder, by its text.

    It reads the installed file itself: `membench ab` measures other revisions of the memory, and both sides
    get the same texts.
    """
    spec = find_spec(_FOLDER)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (file := Path(folder, _FILE)).is_file():
            found: dict[str, int] = msgspec.json.decode(file.read_bytes())["model"]["vocab"]
            return found
    raise BrokenBenchmark(f"{_FILE} of the default embedder is missing: install agentmemory-tiers anew")


def _is_word(token: str) -> bool:
    return token.isalpha() and token.islower() and (len(token) > 1 or token in "ai")


@cache
def _sums(kind: Kind) -> NDArray[np.float64]:
    """Return the cumulative frequencies of the ranks."""
    import numpy as np

    ranks = np.arange(_WORDS) + _SHIFT
    knee = kind.rare_from + _SHIFT
    frequencies = np.where(ranks < knee, 1 / ranks, (ranks / knee) ** -kind.tail / knee)
    sums: NDArray[np.float64] = np.cumsum(frequencies / frequencies.sum())
    return sums


@cache
def _topics() -> NDArray[np.int64]:
    """Return the ranks of each topic's own words. They are the same for every kind and seed."""
    import numpy as np

    rng = np.random.default_rng(1)
    rarity = rng.random((_TOPICS, _TOPIC_WORDS))
    # Uniform in the logarithm of the rank: a topic has some frequent and many rare words.
    return (_COMMON * (_RAREST_OF_TOPIC / _COMMON) ** rarity).astype(np.int64)
