"""One ranking from five parts: words (BM25), meaning (cosine), neighbours, the person and the time.

BM25 scores and cosines are put on one scale, on which 0 is the average memory and 1 is the mean of the
ten best. So they can be added, whatever the query and the collection. The neighbours in a memory's
conversation add to the sum (see `conversations.py`). Memories by the person that the question is about, and
memories of the time that it mentions, get a bonus (see `people.py` and `dates.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.embedding import ContentEmbedder, WeightedEmbedder
from memory.search.best import best_values, top
from memory.search.confidence import Evidence, Features, confidence
from memory.search.dates import Span, closeness, spans_in, without_ordinals
from memory.search.index import AgentIndex
from memory.search.lexical import WordMatches
from memory.search.people import Person
from memory.search.terms import function_terms, term_of, words_of
from memory.search.turn_links import OWN_SHARE

BONUS = np.float32(1.5)
"""What a memory gets for its speaker, and what it gets for its time. Measured on three sets: from 1 to 2 is
as good; less helps less, and more hides what others said about the person."""
_BEST = 10  # The memories whose mean score becomes 1: as many as a search returns by default

_NAME = re.compile(r"([^\W\d_]+)(?:['’]s\b)?")  # a word, also with its possessive ending

Floats = NDArray[np.float32]
QueryVector = Callable[[str, Callable[[str], float], Collection[str]], Floats]
"""Turns a text into a unit vector, given a function that returns the weight of a word, and the names of
speakers in the text, lower-case."""


class Match(msgspec.Struct, frozen=True, gc=False):
    """One ranked memory, before its content is read."""

    seq: int
    tier: int
    """The tier that it was in when it was ranked."""
    score: float
    similarity: float | None = None
    words: tuple[str, ...] = ()
    context: float = 0.0
    bonus: float = 0.0
    confidence: float | None = None


def by_vector(
    index: AgentIndex,
    query: Floats,
    k: int,
    allowed: NDArray[np.bool_] | None,
    threshold: float | None = None,
) -> list[Match]:
    """Return the k memories nearest to a unit vector, by cosine, best first.

    `allowed` masks the positions that may be returned; `threshold` is the lowest cosine.
    """
    found: list[tuple[float, int]] = []
    for base, count, block in index.blocks():
        part = None if allowed is None else allowed[base : base + count]
        at_least = found[-1][0] if len(found) == k else -1.0
        positions, cosines = block.vectors.nearest(query, count, k, part, at_least)
        found.extend(zip(cosines.tolist(), (positions + base).tolist(), strict=True))
        found.sort(reverse=True)  # of equal cosines the newer memory comes first
        del found[k:]
    best = np.array([position for _, position in found], np.int64)
    seqs, tiers = index.columns.seq[best].tolist(), index.columns.tier[best].tolist()
    return [
        Match(seq, tier, cosine, cosine)
        for seq, tier, (cosine, _) in zip(seqs, tiers, found, strict=True)
        if threshold is None or cosine >= threshold
    ]


class Ranking:
    """Memories ranked by a text, best first. The matched words are looked up when they are needed.

    It does not use the index after its construction, so the index may change."""

    def __init__(
        self, index: AgentIndex, best: NDArray[np.int64], total: Floats, cosines: Floats,
        context: Floats | None, bonus: Floats | None, words: WordMatches,
    ) -> None:  # fmt: skip
        self._best = best
        self._words = words
        columns = index.columns
        self._seqs: list[int] = columns.seq[best].tolist()
        self._tiers: list[int] = columns.tier[best].tolist()
        self._scores: list[float] = total[best].tolist()
        self._cosines: list[float] = cosines[best].tolist()
        self._context: list[float] = [0.0] * len(best) if context is None else context[best].tolist()
        self._evidence = Evidence(
            words.content_words,
            words.known_words,
            float(np.maximum.reduce(cosines)),
            self._scores[0] if self._scores else 0.0,
            index.count - index.deleted_count,
        )
        self._bonus: list[float] = [0.0] * len(best) if bonus is None else bonus[best].tolist()

    def __len__(self) -> int:
        return len(self._seqs)

    def matches(self, start: int = 0, stop: int | None = None) -> list[Match]:
        """Return the matches from rank `start` to rank `stop` - 1."""
        part = slice(start, stop)
        words = self._words.words_at(self._best[part])
        return [
            Match(*fields)
            for fields in zip(
                self._seqs[part],
                self._tiers[part],
                self._scores[part],
                self._cosines[part],
                words,
                self._context[part],
                self._bonus[part],
                map(confidence, self.features(start, words)),
                strict=True,
            )
        ]

    def features(self, start: int, words: list[tuple[str, ...]]) -> list[Features]:
        """Return what the confidence of hits depends on, from rank `start`, given the words they hold."""
        function_words = function_terms()
        return [
            self._evidence.features(
                rank, self._scores[rank], sum([term_of(word) not in function_words for word in held])
            )
            for rank, held in enumerate(words, start)
        ]


def by_text(
    index: AgentIndex,
    text: str,
    query_vector: QueryVector,
    k: int,
    allowed: NDArray[np.bool_] | None,
    now: float,
) -> Ranking | None:
    """Rank the k best memories by words, meaning, neighbours, person and time. Return None if there are no
    memories.

    `allowed` masks the positions that may be returned. Relative times in the text are counted from `now`.
    """
    if index.count == 0:
        return None
    person = Person(text)
    matches = WordMatches(index, without_ordinals(words_of(text)), person.terms)
    said = person.find(matches)
    weight = _weight_without(person.misspelled, matches.idf) if person.misspelled else matches.idf
    cosines = _cosines(index, query_vector(text, weight, person.names))
    living = index.living
    own = _on_one_scale(cosines, living)
    if matches:
        own += _on_one_scale(matches.scores(), living)
    context = index.conversations.context(own)
    # Without neighbours all scores are smaller by this factor, so the bonus must be too.
    share = BONUS if context is not None else BONUS / (1 + OWN_SHARE)
    bonus = _bonus(index, said, spans_in(text, now), share)
    total = own if context is None else own + context
    if bonus is not None:
        total += bonus
    if allowed is not None:
        total = np.where(allowed, total, -np.inf)
    best = top(total, k)
    best = best[np.lexsort((-best, -total[best]))]
    if allowed is not None:
        best = best[allowed[best]]
    return Ranking(index, best, total, cosines, context, bonus, matches)


def _bonus(
    index: AgentIndex, said: NDArray[np.bool_] | None, spans: list[Span], share: np.float32
) -> Floats | None:
    """Return what each memory gets for its speaker and its time; None if nothing."""
    close = closeness(spans, index.columns.created_at[: index.count]) if spans else None
    if said is None:
        return None if close is None else share * close
    bonus: Floats = share * said
    if close is not None:
        bonus += share * close
    return bonus


def _weight_without(words: Collection[str], weight: Callable[[str], float]) -> Callable[[str], float]:
    """Return a weight that ignores words: a misspelled name would count as the rarest word of all."""
    return lambda word: 0.0 if word.lower() in words else weight(word)


def query_vector_of(embedder: ContentEmbedder) -> QueryVector:
    """Return the function that embeds queries.

    Rare words count more if the embedder supports weights. For another embedder the names of speakers are
    removed: they are in few of the texts that it embeds, and say little about the meaning.
    """
    if isinstance(embedder.embedder, WeightedEmbedder):
        weighted = embedder.embedder.embed_weighted
        return lambda text, weight, _: weighted(text, weight)[0]
    return lambda text, _, names: embedder.embed_texts([_without(text, names)])[0]


def _without(text: str, names: Collection[str]) -> str:
    """Return a text without these names; the whole text if nothing else would be left."""
    if not names:
        return text
    kept = _NAME.sub(lambda match: "" if match.group(1).lower() in names else match.group(), text)
    return kept if words_of(kept) else text


def _cosines(index: AgentIndex, query: Floats) -> Floats:
    parts = [block.vectors.scores(query, count) for _, count, block in index.blocks()]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _on_one_scale(scores: Floats, living: NDArray[np.bool_] | None) -> Floats:
    """Scale the scores so that the average memory has 0 and the mean of the best ones is 1.

    Deleted memories get 0, so that they do not change the scores of their neighbours.
    """
    counted = scores if living is None else scores[living]
    count = len(counted)
    if count == 0:
        return np.zeros_like(scores)
    mean = np.add.reduce(counted) / np.float32(count)
    few = max(1, min(_BEST, count // 10))
    spread = np.add.reduce(best_values(counted, few)) / np.float32(few) - mean
    if spread <= 1e-9:  # all scores are equal, apart from rounding
        return np.zeros_like(scores)
    scaled: Floats = (scores - mean) * np.float32(1 / spread)
    if living is not None:
        scaled[~living] = 0.0
    return scaled
