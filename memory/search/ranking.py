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
from memory.search.best import top
from memory.search.candidates import candidates, may_choose
from memory.search.confidence import Evidence, Features, confidence
from memory.search.dates import Span, closeness, spans_in, without_ordinals
from memory.search.index import AgentIndex
from memory.search.lexical import WordMatches
from memory.search.own_scores import EstimatedScores, exact_scores
from memory.search.people import Person
from memory.search.terms import function_terms, term_of, words_of
from memory.search.turn_links import OWN_SHARE
from memory.search.vectors import Query

BONUS = np.float32(1.5)
"""What a memory gets for its speaker, and what it gets for its time. Measured on three sets: from 1 to 2 is
as good; less helps less, and more hides what others said about the person."""

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
    forms = Query.of(query)
    for base, count, block in index.blocks():
        part = None if allowed is None else allowed[base : base + count]
        at_least = found[-1][0] if len(found) == k else -1.0
        positions, cosines = block.vectors.nearest(forms, count, k, part, at_least)
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
        self,
        index: AgentIndex,
        best: NDArray[np.int64],
        positions: NDArray[np.int64] | None,
        total: Floats,
        cosines: Floats,
        context: Floats | None,
        bonus: Floats | None,
        words: WordMatches,
        best_cosine: float,
    ) -> None:
        """`best` are places in the arrays, whose elements belong to `positions`; None for all memories."""
        self._best = best if positions is None else positions[best]
        self._words = words
        columns = index.columns
        self._seqs: list[int] = columns.seq[self._best].tolist()
        self._tiers: list[int] = columns.tier[self._best].tolist()
        self._scores: list[float] = total[best].tolist()
        self._cosines: list[float] = cosines[best].tolist()
        self._context: list[float] = [0.0] * len(best) if context is None else context[best].tolist()
        self._evidence = Evidence(
            words.content_words,
            words.known_words,
            best_cosine,
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
    query = Query.of(query_vector(text, weight, person.names))
    words = matches.scores() if matches else None
    spans = spans_in(text, now)
    living = index.living
    if may_choose(index, k, None if allowed is living else allowed):
        scores = EstimatedScores(index, query, words, living)
        bonus = _bonus(index, said, spans, BONUS / (1 + OWN_SHARE))
        positions, own, cosines = candidates(index, scores, bonus, k)
        best_cosine = scores.best_cosine
        context = index.conversations.context_of(positions, index.columns.session[positions], own)
        if bonus is not None:
            bonus = bonus[positions] if context is None else bonus[positions] * (1 + OWN_SHARE)
        allowed = None if allowed is None else allowed[positions]
    else:
        positions = None
        own, cosines = exact_scores(index, query, words, living)
        best_cosine = float(np.maximum.reduce(cosines))
        context = index.conversations.context(own)
        # Without neighbours all scores are smaller by this factor, so the bonus must be too.
        bonus = _bonus(index, said, spans, BONUS if context is not None else BONUS / (1 + OWN_SHARE))
    total = own if context is None else own + context
    if bonus is not None:
        total += bonus
    if allowed is not None:
        total = np.where(allowed, total, -np.inf)
    best = top(total, k)
    best = best[np.lexsort((-best, -total[best]))]
    if allowed is not None:
        best = best[allowed[best]]
    return Ranking(index, best, positions, total, cosines, context, bonus, matches, best_cosine)


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
