"""Whether a search finds the passages that answer a question."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from memory.benchmarking.bench import Bench, Score
from memory.benchmarking.benchmarks._hit_confidence import (
    Answer,
    ShownPassage,
    confidence_figures,
    foreign_questions,
)
from memory.benchmarking.errors import InvalidBenchmarkConfig, needs
from memory.benchmarking.measure.ranking import clustered_mean, ranking_figures, separation
from memory.benchmarking.metrics import SHARE, Metric, declare
from memory.benchmarking.model.parameters import Count, Names
from memory.benchmarking.model.paths import join
from memory.benchmarking.model.presentation import BarChart, ScatterChart, SeriesChart, Versus
from memory.benchmarking.model.records import AnsweredQuestion
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.collections import Collection
from memory.benchmarking.workloads.conversations import synthetic_collections
from memory.benchmarking.workloads.datasets import load_data_set, name_of
from memory.benchmarking.workloads.downloads import SCIFACT_JUDGEMENTS, resolve

DEPTH = 10
SYNTHETIC = "synthetic"
APART = frozenset(("adversarial",))
"""Categories that do not count for all questions. LoCoMo's adversarial questions name the wrong person: to
find their evidence is no merit of a memory that knows who said what."""
_AGENT = "agent"
"""The agent of all collections. A collection's own id could reveal an answer: LongMemEval ends the ids of
questions without an answer in `_abs`. Each collection has a store of its own."""
_TARGET = "target"
_CONFIDENCE = "hit_confidence"
_RULER = "ruler"
_RULER_FIGURE, _RULER_SLACK = 0.679, 0.005
"""The published nDCG@10 of stemmed BM25 on SciFact, and the largest difference that is accepted. A larger
one means that this benchmark measures wrongly."""


@declare(
    headline="synthetic/target/all_questions/recall_at_5|*/target/all_questions/recall_at_5",
    search_figures="*/target/*",
    expected_seconds={"quick": 0.8, "standard": 1.8, "full": 1.8},
    reports=["recall_at_1", "recall_at_5", "recall_at_10", "ndcg_at_10", "mrr"],
    questions=Metric("", "neither"),
    any_at_1=SHARE,
    any_at_5=SHARE,
    any_at_10=SHARE,
    all_at_1=SHARE,
    all_at_5=SHARE,
    all_at_10=SHARE,
    no_answer_separation=SHARE,
    context_tokens=Metric("", "neither"),
    confidence_separation=SHARE,
    calibration_error=Metric("", "lower", most=1.0),
    mean_confidence=Metric("", "neither", most=1.0),
    relevant_share=Metric("", "neither", most=1.0),
    hits=Metric("", "neither"),
    rounds=1,
    profiles={"quick": {"conversations": 3}},
    charts=[
        SeriesChart(
            "Recall of all questions, by number of passages shown",
            pattern=r"recall_at_(\d+)",
            x_label="passages shown",
            label="recall",
            lines=["part1"],
            panels=["part0"],
            only="*all_questions",
            share=True,
        ),
        BarChart(
            "Recall at 5, by kind of question",
            metric="recall_at_5",
            names=["part2"],
            label="recall at 5",
            lines=["part1"],
            panels=["part0"],
            share=True,
        ),
        ScatterChart(
            "How often hits are relevant, by their confidence",
            x_metric="mean_confidence",
            y_metric="relevant_share",
            x_label="mean confidence of the hits",
            label="share of them that is relevant",
            names=["part1"],
            panels=["part0"],
            joined=True,
            diagonal="calibrated",
            share=True,
            note="On the diagonal, hits are relevant as often as their confidence says. Below it, the "
            "confidence is too high.",
        ),
    ],
    notes=[_RULER],
    versus=Versus(
        metric="recall_at_5",
        method="target",
        reference="bm25",
        where="all_questions",
        sentence="Of the passages that answer a question{group}, {figure} are among the first five "
        "({interval}); plain BM25 has {reference}.",
    ),
)
def benchmark_retrieval_quality(
    data_sets: Names = (SYNTHETIC,),
    conversations: Count = 20,
    sessions: Count = 12,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How many of the passages that answer a question are among the first that a search finds.

    Read `recall_at_5` as the share of the passages needed for an answer that are among the first five
    results. `any_at_5` is the share of the questions with at least one of these passages among the first
    five, `all_at_5` the share with all. The same questions are answered by `random`, `newest_first` and
    plain stemmed `bm25`: a memory should beat them. Intervals are over questions, clustered by
    conversation. `no_answer_separation` is the chance that a question with an answer scores higher than one
    without (0.5 is chance). `context_tokens` is what the results of a question cost in a context. Each
    conversation is also asked questions of other conversations: `confidence_separation` is the chance that
    the first hit has a higher confidence in its own conversation. `calibration_error` is how far confidence
    and the share of relevant hits are apart, on average. The target gets the passages with their time,
    speaker and session number, and the text of the questions. It returns at most 10 passages, and always
    fewer than all.

    Args:
        data_sets: `synthetic`, names from `membench data`, or paths (LoCoMo, LongMemEval, BEIR)
        conversations: how many synthetic conversations
        sessions: how many sessions each of them has
    """
    bench = bench or Bench()
    bench.require(bench.no_search(DEPTH))
    found: dict[str, Any] = {}
    on_scifact: list[float] = []
    for name, path in _named(data_sets).items():
        judgements = None
        if path is None:
            digest = f"made from seed 0, {conversations} conversations"
            # The same seed in every round and run: a figure of quality must not depend on chance.
            collections = synthetic_collections(conversations, sessions, seed=0)
        else:
            data_set = load_data_set(path)
            digest, judgements = data_set.sha256, data_set.judgements
            collections = list(data_set.collections)
        answered = dict(_answers(collections))
        answered[_TARGET], foreign = _target_answers(bench, collections)
        bench.keep_answers(join(join("", name), _TARGET), _records(answered[_TARGET]))
        results = {system: _judge(answers) for system, answers in answered.items()}
        results[_TARGET][_CONFIDENCE] = confidence_figures(
            _graded(answered[_TARGET]), foreign, _no_confidence(bench)
        )
        found[name] = {**results, "sha256": digest}
        if judgements == SCIFACT_JUDGEMENTS:
            on_scifact.append(results["bm25"]["all_questions"]["ndcg_at_10"].value)
    return {**found, _RULER: _ruler_note(on_scifact)}


def _named(data_sets: Sequence[str]) -> dict[str, Path | None]:
    """Return the path of each data set by its name in the results; None for the synthetic one.

    Two data sets with the same name get the names of their folders as prefixes.
    """
    paths = [None if given == SYNTHETIC else resolve(given, [SYNTHETIC]) for given in data_sets]
    names = [SYNTHETIC if path is None else name_of(path) for path in paths]
    wanted = Counter([*names, _RULER, SYNTHETIC])
    named: dict[str, Path | None] = {}
    for name, path in zip(names, paths, strict=True):
        if path is not None and wanted[name] > 1:
            name = f"{path.parent.name}-{name}"
        if name in named:
            raise InvalidBenchmarkConfig(
                f"data_sets has two of the name {name!r} ({named[name] or name} and {path or name}): "
                "leave one out, or rename it"
            )
        named[name] = path
    return named


def _ruler_note(figures: Sequence[float]) -> str:
    """Return whether BM25 has the published figure on every copy of SciFact; the worst copy counts."""
    if not figures:
        return "not checked: it needs the data set scifact, whole (membench data fetch scifact)"
    figure = max(figures, key=lambda each: abs(each - _RULER_FIGURE))
    if abs(figure - _RULER_FIGURE) <= _RULER_SLACK:
        return f"right: stemmed BM25 has nDCG@10 {figure:.3f} on SciFact, as published"
    return f"NOT TO BE TRUSTED: stemmed BM25 has nDCG@10 {figure:.3f} on SciFact, not {_RULER_FIGURE}"


def _answers(collections: Sequence[Collection]) -> dict[str, list[tuple[Collection, list[Answer]]]]:
    """Return what the plain systems answer."""
    systems = {"bm25": _ask_bm25, "newest_first": _newest_first, "random": _at_random}
    return {
        name: [(collection, ask(collection)) for collection in collections] for name, ask in systems.items()
    }


def _target_answers(
    bench: Bench, collections: Sequence[Collection]
) -> tuple[list[tuple[Collection, list[Answer]]], list[Answer]]:
    """Return what the target answers to each collection's questions, and to questions of the others."""
    answered, foreign = [], []
    for number, collection in enumerate(collections):
        texts = [question.text for question in collection.questions]
        others = [] if _no_confidence(bench) else foreign_questions(collections, number)
        answers = _ask_target(bench, collection, [*texts, *others])
        answered.append((collection, answers[: len(texts)]))
        foreign += answers[len(texts) :]
    return answered, foreign


def _no_confidence(bench: Bench) -> str:
    """Return why the target's hits have no confidence; empty if they have."""
    return "" if bench.capabilities.confidence else f"the hits of {bench.system} have no confidence"


def _graded(
    answered: list[tuple[Collection, list[Answer]]],
) -> list[tuple[Answer, Mapping[str, int]]]:
    return [
        (answer, question.grades)
        for collection, answers in answered
        for question, answer in zip(collection.questions, answers, strict=True)
    ]


def _depth(collection: Collection) -> int:
    """Return how many passages to request: fewer than all, because all would contain every answer."""
    return max(1, min(DEPTH, len(collection.passages) - 1))


def _ask_target(bench: Bench, collection: Collection, questions: Sequence[str]) -> list[Answer]:
    with bench.target() as target:
        ids = _store(target, collection)
        target.flush()
        return [
            [
                ShownPassage(ids[hit.id], hit.score, hit.content, hit.confidence)
                for hit in target.search(_AGENT, question, _depth(collection))
            ]
            for question in questions
        ]


def _store(target: Target, collection: Collection) -> dict[str, str]:
    """Store all passages; return our passage ids by the target's ids."""
    ids: dict[str, str] = {}
    for start in range(0, len(collection.passages), 1000):
        part = collection.passages[start : start + 1000]
        items = [
            Item(_AGENT, each.text, metadata=each.metadata, kind="message", timestamp=each.timestamp)
            for each in part
        ]
        ids.update(zip(target.add(items), (each.id for each in part), strict=True))
    return ids


def _ask_bm25(collection: Collection) -> list[Answer]:
    """Rank by Lucene's BM25 (k1 1.2, b 0.75) over stemmed words without stop words, with bm25s."""
    try:
        import bm25s
    except ImportError:
        raise needs("bm25s", "bench", "the quality benchmarks") from None
    import Stemmer

    def words(texts: list[str]) -> Any:
        return bm25s.tokenize(
            texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False
        )

    if not collection.questions:
        return []
    passages = words([passage.text for passage in collection.passages])
    if not any(len(ids) for ids in passages.ids):
        return _newest_first(collection)  # only stop words: BM25 has nothing to rank by
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index(passages, show_progress=False)
    places, scores = index.retrieve(
        words([question.text for question in collection.questions]),
        k=_depth(collection),
        show_progress=False,
    )
    return [
        [
            ShownPassage(collection.passages[place].id, float(score), collection.passages[place].text)
            for place, score in zip(row, row_scores, strict=True)
        ]
        for row, row_scores in zip(places.tolist(), scores.tolist(), strict=True)
    ]


def _newest_first(collection: Collection) -> list[Answer]:
    order = sorted(
        range(len(collection.passages)),
        key=lambda place: (collection.passages[place].timestamp or 0.0, place),
        reverse=True,
    )
    first = [collection.passages[place] for place in order[: _depth(collection)]]
    answer = [ShownPassage(passage.id, 0.0, passage.text) for passage in first]
    return [answer for _ in collection.questions]


def _at_random(collection: Collection) -> list[Answer]:
    rng = random.Random(collection.id)
    return [
        [
            ShownPassage(passage.id, 0.0, passage.text)
            for passage in rng.sample(collection.passages, _depth(collection))
        ]
        for _ in collection.questions
    ]


def _records(answered: list[tuple[Collection, list[Answer]]]) -> list[AnsweredQuestion]:
    """Return the ranks of the relevant passages, and the score of the first hit, for every question."""
    records = []
    for collection, answers in answered:
        for question, answer in zip(collection.questions, answers, strict=True):
            ranks = {hit.id: rank for rank, hit in enumerate(answer, start=1)}
            relevant = {id_: grade for id_, grade in question.grades.items() if grade > 0}
            records.append(
                AnsweredQuestion(
                    collection.id,
                    question.text,
                    question.category,
                    [ranks.get(id_, 0) for id_ in relevant],
                    list(relevant.values()),
                    float(f"{answer[0].score:.6g}") if answer else 0.0,
                    question.category in APART,
                )
            )
    return records


def _judge(answered: list[tuple[Collection, list[Answer]]]) -> dict[str, Any]:
    """Return means over all questions and over each category, and the separation of the scores."""
    groups: dict[str, list[tuple[str, dict[str, float]]]] = {}
    tokens: dict[str, list[int]] = {}
    best: dict[bool, list[float]] = {True: [], False: []}
    for collection, answers in answered:
        for question, answer in zip(collection.questions, answers, strict=True):
            best[bool(question.grades)].append(answer[0].score if answer else 0.0)
            if not question.grades:
                continue
            figures = ranking_figures([hit.id for hit in answer], question.grades)
            cost = sum(_tokens(hit.content) for hit in answer)
            whole = () if question.category in APART else ("all_questions",)
            for group in dict.fromkeys((*whole, question.category)):
                groups.setdefault(group, []).append((collection.id, figures))
                tokens.setdefault(group, []).append(cost)
    found: dict[str, Any] = {}
    for group, entries in groups.items():
        clusters = [cluster for cluster, _ in entries]
        found[group] = {
            "questions": len(entries),
            "context_tokens": sum(tokens[group]) / len(entries),
        }
        for name in entries[0][1]:
            estimate = clustered_mean([figures[name] for _, figures in entries], clusters)
            found[group][name] = Score(estimate.value, estimate.low, estimate.high)
    if best[True] and best[False]:
        found["no_answer_separation"] = separation(best[True], best[False])
    return found


def _tokens(content: Any) -> int:
    """Return what a passage costs in a context, as a target returns it."""
    return _tokens_of_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))


@lru_cache(maxsize=100_000)
def _tokens_of_text(text: str) -> int:
    from memory.embedding import count_tokens  # loads NumPy

    return count_tokens(text)
