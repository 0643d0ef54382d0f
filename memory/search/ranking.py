"""One ranking from five parts: words (BM25), meaning (cosine), neighbours, the person and the time.

BM25 scores and cosines are put on one scale, on which 0 is the average memory and 1 is the mean of the
ten best. So they can be added, whatever the query and the collection. The neighbours in a memory's
conversation add to the sum (see `conversations.py`). Memories by the person that the question is about, and
memories of the time that it mentions, get a bonus (see `people.py` and `dates.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory._base.native import core
from memory.embedding import ContentEmbedder, WeightedEmbedder, WordLlamaEmbedder
from memory.search._rank import Best, choose, rank
from memory.search._scratch import scratch
from memory.search.candidates import candidates, may_choose
from memory.search.confidence import COEFFICIENTS, LOWEST_COSINE, Evidence, Features
from memory.search.dates import Span, closeness, may_mention_time, spans_in, without_ordinals
from memory.search.index import AgentIndex
from memory.search.lexical import (
    FUNCTION_SHARE,
    K1,
    LONG_B,
    LONG_WORDS,
    SHORT_B,
    SHORT_WORDS,
    Held,
    WordMatches,
)
from memory.search.nearest import nearest
from memory.search.own_scores import EstimatedScores
from memory.search.people import Person
from memory.search.question import QuestionPieces, pieces_of_question
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
EmbedQuery = Callable[[str, Callable[[str], float], Collection[str]], Floats]
"""Turns a text into a unit vector, given a function that returns the weight of a word, and the names of
speakers in the text, lower-case."""

_CONSTANTS = np.array(
    (K1, SHORT_B, LONG_B, SHORT_WORDS, LONG_WORDS, FUNCTION_SHARE, LOWEST_COSINE, *COEFFICIENTS), np.float64
)
"""What the compiled core ranks with, in the order of `Constants` in memory/_native/question.c."""


class QueryVector(NamedTuple):
    """How questions become vectors."""

    embed: EmbedQuery
    token_vectors: Callable[[], NDArray[np.float16]] | None = None
    """Returns the vectors of tokens, if the compiled core can embed questions with them."""
    after: Callable[[], None] | None = None
    """Called when the question is embedded, or when no code of the embedder will run."""


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
    found = nearest(index, Query(query), k, allowed)
    best = np.array([position for _, position in found], np.int64)
    seqs, tiers = index.columns.seq[best].tolist(), index.columns.tier[best].tolist()
    return [
        Match(seq, tier, cosine, cosine)
        for seq, tier, (cosine, _) in zip(seqs, tiers, found, strict=True)
        if threshold is None or cosine >= threshold
    ]


class Ranking:
    """Memories ranked by a text, best first.

    It does not use the index after its construction, so the index may change."""

    def __init__(
        self,
        seqs: list[int],
        tiers: list[int],
        scores: list[float],
        cosines: list[float],
        words: list[tuple[str, ...]],
        context: list[float] | None,
        bonus: list[float] | None,
        confidences: list[float],
        content_words: list[int],
        evidence: Evidence,
        look_up: Callable[[int, int], list[Held]] | None = None,
    ) -> None:
        """look_up: returns which words of the query the memories from one rank to another hold.

        With it, `words`, `confidences` and `content_words` may be shorter than the others. Callers of long
        rankings rarely need all of them."""
        nothing = [0.0] * len(seqs)
        self._columns = (
            seqs,
            tiers,
            scores,
            cosines,
            words,
            nothing if context is None else context,
            nothing if bonus is None else bonus,
            confidences,
        )
        self._scores = scores
        self._words = words
        self._confidences = confidences
        self._content_words = content_words
        self._evidence = evidence
        self._look_up = look_up

    @classmethod
    def of(cls, index: AgentIndex, best: Best, words: WordMatches) -> Ranking:
        """Return the ranking of the best memories of an index."""
        evidence = Evidence(
            words.content_words,
            words.known_words,
            best.best_cosine,
            best.scores[0] if best.scores else 0.0,
            index.count - index.deleted_count,
        )
        return cls(
            # `item` takes a third of the time of an index, which makes a NumPy number.
            [*map(index.columns.seq.item, best.positions)],
            [*map(index.columns.tier.item, best.positions)],
            best.scores,
            best.cosines,
            [],
            best.context,
            best.bonus,
            [],
            [],
            evidence,
            lambda start, stop: words.held_at(best.positions[start:stop]),
        )

    def __len__(self) -> int:
        return len(self._scores)

    def matches(self, start: int = 0, stop: int | None = None) -> list[Match]:
        """Return the matches from rank `start` to rank `stop` - 1."""
        self._complete(stop)
        if start == 0 and stop is None:
            return [*map(Match, *self._columns)]
        part = slice(start, stop)
        return [*map(Match, *(column[part] for column in self._columns))]

    def features(self, start: int, stop: int | None = None) -> list[Features]:
        """Return what the confidence of the hits from rank `start` to rank `stop` - 1 depends on."""
        self._complete(stop)
        return [
            self._evidence.features(rank, self._scores[rank], content_words)
            for rank, content_words in enumerate(self._content_words[start:stop], start)
        ]

    def _complete(self, stop: int | None) -> None:
        """Look up the words of the memories before rank `stop`, as far as this was not done before."""
        start, stop = len(self._words), len(self) if stop is None else min(stop, len(self))
        if self._look_up is None or start >= stop:
            return
        held = self._look_up(start, stop)
        content_words = [each.content_words for each in held]
        self._words += [each.words for each in held]
        self._content_words += content_words
        self._confidences += self._evidence.confidences(start, self._scores[start:stop], content_words)


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
    may_choose_some = may_choose(index, k, None if allowed is index.living else allowed)
    pieces = None
    if not may_choose_some and query_vector.token_vectors is not None:
        pieces = _pieces_for_core(index, text)
    if pieces is not None:
        spans = spans_in(text, now) if pieces.mention_time else []
        bonus = _bonus(index, None, spans, _share_of(index)) if spans else None
        ranking = _rank_pieces(index, pieces, query_vector, k, bonus, allowed, finds_people=True)
        if ranking is not None:
            return ranking
    person = Person(text)
    words = words_of(text)
    matches = WordMatches(index, without_ordinals(words), person.terms)
    said = person.find(matches)
    spans = spans_in(text, now) if may_mention_time(text, words) else []
    share = _LONE_BONUS if may_choose_some else _share_of(index)
    bonus = _bonus(index, said, spans, share)
    if pieces is not None and not person.misspelled:
        ranking = _rank_pieces(index, pieces, query_vector, k, bonus, allowed, finds_people=False)
        if ranking is not None:
            return ranking
    weight = _weight_without(person.misspelled, matches.idf) if person.misspelled else matches.idf
    query = Query(query_vector.embed(text, weight, person.names))
    if query_vector.after is not None:
        query_vector.after()
    find = _best_of_candidates if may_choose_some else rank
    return Ranking.of(index, find(index, k, query, matches, bonus, allowed), matches)


def _share_of(index: AgentIndex) -> np.float32:
    """Return the bonus of one speaker or time. Without neighbours all scores are smaller, so it is too."""
    return BONUS if index.conversations.count_neighbours else _LONE_BONUS


def _pieces_for_core(index: AgentIndex, text: str) -> QuestionPieces | None:
    """Return the pieces of a question that the compiled core can search an index with, or None."""
    block = index.only_block
    return None if block is None or block.postings.has_replaced else pieces_of_question(text)


def _rank_pieces(
    index: AgentIndex,
    pieces: QuestionPieces,
    query_vector: QueryVector,
    k: int,
    bonus: Floats | None,
    allowed: NDArray[np.bool_] | None,
    *,
    finds_people: bool,
) -> Ranking | None:
    """Do what `by_text` does, in one call of the compiled core: a third of the time for a small agent.

    Return None for a question of too many words. With `finds_people`, also return None for a question about
    a speaker who has memories: these get a bonus."""
    assert core is not None
    assert query_vector.token_vectors is not None
    if query_vector.after is not None:
        query_vector.after()
    token_vectors, for_core = query_vector.token_vectors(), index.for_core()
    found = core.rank_question(
        pieces.for_core, finds_people, k, for_core, token_vectors, bonus, allowed, _CONSTANTS
    )
    if found is None:
        return None
    *_, words, known, best_cosine = found
    seqs, tiers, scores, cosines, held, context, added, confidences, content_words = found[:9]
    living = index.count - index.deleted_count
    evidence = Evidence(words, known, best_cosine, scores[0] if scores else 0.0, living)
    return Ranking(seqs, tiers, scores, cosines, held, context, added, confidences, content_words, evidence)


def _best_of_candidates(
    index: AgentIndex,
    k: int,
    query: Query,
    matches: WordMatches,
    bonus: Floats | None,
    allowed: NDArray[np.bool_] | None,
) -> Best:
    """Do what `rank` does for an index with many memories: only candidates get exact scores."""
    with scratch(index.count) as arrays:
        words = matches.scores(arrays.scores) if matches else None
        scores = EstimatedScores(index, query, words, index.living, arrays.differing)
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
    """Return how queries are embedded.

    Rare words count more if the embedder supports weights. For another embedder the names of speakers are
    removed: they are in few of the texts that it embeds, and say little about the meaning.
    """
    own = embedder.embedder
    if isinstance(own, WeightedEmbedder):
        weighted = own.embed_weighted
        # Not a subclass, which may embed in another way.
        is_default = core is not None and type(embedder.embedder) is WordLlamaEmbedder
        return QueryVector(
            lambda text, weight, _: weighted(text, weight)[0],
            WordLlamaEmbedder.token_vectors if is_default else None,
        )
    return QueryVector(lambda text, _, names: embedder.embed_texts([_without(text, names)])[0])


def _without(text: str, names: Collection[str]) -> str:
    """Return a text without these names; the whole text if nothing else would be left."""
    if not names:
        return text
    kept = _NAME.sub(lambda match: "" if match.group(1).lower() in names else match.group(), text)
    return kept if words_of(kept) else text
