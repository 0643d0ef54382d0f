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
from memory.search._rank import Best, choose, rank
from memory.search.candidates import candidates, may_choose
from memory.search.confidence import Evidence, Features
from memory.search.dates import Span, closeness, may_mention_time, spans_in, without_ordinals
from memory.search.index import AgentIndex
from memory.search.lexical import WordMatches
from memory.search.own_scores import EstimatedScores
from memory.search.people import Person
from memory.search.terms import words_of
from memory.search.turn_links import OWN_SHARE
from memory.search.vectors import Query

BONUS = np.float32(1.5)
"""What a memory gets for its speaker, and what it gets for its time. Measured on three sets: from 1 to 2 is
as good; less helps less, and more hides what others said about the person."""

_LONE_BONUS = BONUS / (1 + OWN_SHARE)
"""The same where no neighbours count."""

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
    forms = Query(query)
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

    def __init__(self, index: AgentIndex, best: Best, words: WordMatches) -> None:
        self._best = best
        self._words = words
        # `item` takes a third of the time of an index, which makes a NumPy number.
        self._seqs = [*map(index.columns.seq.item, best.positions)]
        self._tiers = [*map(index.columns.tier.item, best.positions)]
        nothing = [0.0] * len(best.positions)
        self._context = nothing if best.context is None else best.context
        self._bonus = nothing if best.bonus is None else best.bonus
        self._evidence = Evidence(
            words.content_words,
            words.known_words,
            best.best_cosine,
            best.scores[0] if best.scores else 0.0,
            index.count - index.deleted_count,
        )

    def __len__(self) -> int:
        return len(self._seqs)

    def matches(self, start: int = 0, stop: int | None = None) -> list[Match]:
        """Return the matches from rank `start` to rank `stop` - 1."""
        part = slice(start, stop)
        held = self._words.held_at(self._best.positions[part])
        scores = self._best.scores[part]
        return [
            Match(*fields)
            for fields in zip(
                self._seqs[part],
                self._tiers[part],
                scores,
                self._best.cosines[part],
                [each.words for each in held],
                self._context[part],
                self._bonus[part],
                self._evidence.confidences(start, scores, [each.content_words for each in held]),
                strict=True,
            )
        ]

    def features(self, start: int, stop: int | None = None) -> list[Features]:
        """Return what the confidence of the hits from rank `start` to rank `stop` - 1 depends on."""
        held = self._words.held_at(self._best.positions[start:stop])
        return [
            self._evidence.features(rank, self._best.scores[rank], each.content_words)
            for rank, each in enumerate(held, start)
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
    words = words_of(text)
    matches = WordMatches(index, without_ordinals(words), person.terms)
    said = person.find(matches)
    weight = _weight_without(person.misspelled, matches.idf) if person.misspelled else matches.idf
    query = Query(query_vector(text, weight, person.names))
    spans = spans_in(text, now) if may_mention_time(text, words) else []
    living = index.living
    if may_choose(index, k, None if allowed is living else allowed):
        best = _best_of_candidates(
            index, k, query, matches, _bonus(index, said, spans, _LONE_BONUS), allowed
        )
    else:
        # Without neighbours all scores are smaller by this factor, so the bonus must be too.
        share = BONUS if index.conversations.count_neighbours else _LONE_BONUS
        best = rank(index, k, query, matches, _bonus(index, said, spans, share), allowed)
    return Ranking(index, best, matches)


def _best_of_candidates(
    index: AgentIndex,
    k: int,
    query: Query,
    matches: WordMatches,
    bonus: Floats | None,
    allowed: NDArray[np.bool_] | None,
) -> Best:
    """Do what `rank` does for an index with many memories: only candidates get exact scores."""
    scores = EstimatedScores(index, query, matches.scores() if matches else None, index.living)
    positions, own, cosines = candidates(index, scores, bonus, k)
    context = index.conversations.context_of(positions, index.columns.session[positions], own)
    if bonus is not None:
        bonus = bonus[positions] if context is None else bonus[positions] * (1 + OWN_SHARE)
    allowed = None if allowed is None else allowed[positions]
    return choose(positions, own, cosines, context, bonus, allowed, k, scores.best_cosine)


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
