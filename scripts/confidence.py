"""Fits and checks the model of a hit's confidence (memory/search/confidence.py).

    python scripts/confidence.py --data ../shared/data

Every conversation is asked its own questions and as many of other conversations. Also parts of 4, 16 and
64 turns are asked, because a young memory is small. The label of a hit is whether it is evidence; for a
question of another conversation it never is. For each set the table shows a model that was fitted on the
other two, then the model in the code. AUC: the chance that the first hit of a question has a higher
confidence in its own conversation than in another. Error: the expected calibration error of all hits, with
ten bins.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from _quality_sets import AGENT, CONVERSATIONS, DEPTH, load_sets, memory_of
from numpy.typing import NDArray
from scipy.optimize import minimize

from memory import AgentMemorySystem
from memory.benchmarking.measure.calibration import calibration_bins, calibration_error
from memory.benchmarking.measure.ranking import separation
from memory.benchmarking.workloads.collections import Collection, Question
from memory.search.confidence import COEFFICIENTS, Features
from memory.search.ranking import by_text

PARTS = (4, 16, 64)
PER_PART = 20
"""Questions of each conversation that are asked of a part of each size."""
Floats = NDArray[np.float64]


class Hits:
    """The features and labels of many hits, with the rank of each and whether the question was foreign."""

    def __init__(self, rows: Sequence[tuple[Features, bool, int, bool]]) -> None:
        self.features = np.array([row[0] for row in rows], np.float64)
        self.relevant = np.array([row[1] for row in rows], np.bool_)
        self.rank = np.array([row[2] for row in rows])
        self.foreign = np.array([row[3] for row in rows], np.bool_)

    def confidence(self, coefficients: Sequence[float]) -> Floats:
        result: Floats = 1 / (1 + np.exp(-(self.features @ np.array(coefficients))))
        return result


def ask(
    memory: AgentMemorySystem, question: Question, foreign: bool
) -> Iterator[tuple[Features, bool, int, bool]]:
    searcher = memory._searcher
    index = searcher._indexes.index(AGENT)
    index.catch_up()
    ranking = by_text(index, question.text, searcher._query_vector, DEPTH, index.living, memory.clock.now())
    if ranking is None:
        return
    matches = ranking.matches()
    ids = memory._reader.by_seq(AGENT, [match.seq for match in matches], [match.tier for match in matches])
    features = ranking.features(0, len(matches))
    for rank, (match, values) in enumerate(zip(matches, features, strict=True)):
        relevant = not foreign and question.grades.get(ids[match.seq].id, 0) > 0
        yield values, relevant, rank, foreign


def hits_of(collections: Sequence[Collection], parts: bool) -> Hits:
    rng = random.Random(0)
    rows = []
    answered = [[q for q in each.questions if q.grades] for each in collections]
    for number, collection in enumerate(collections):
        own = answered[number]
        others = [question for other, asked in enumerate(answered) if other != number for question in asked]
        foreign = rng.sample(others, min(len(own), len(others)))
        if not parts:
            with memory_of(collection.passages) as memory:
                for question in own:
                    rows += ask(memory, question, foreign=False)
                for question in foreign:
                    rows += ask(memory, question, foreign=True)
            continue
        places = {passage.id: place for place, passage in enumerate(collection.passages)}
        for size in PARTS:
            for question, other in zip(rng.sample(own, min(PER_PART, len(own))), foreign, strict=False):
                centre = places[rng.choice(list(question.grades))]
                start = max(0, centre - rng.randrange(size))
                with memory_of(collection.passages[start : start + size]) as memory:
                    rows += ask(memory, question, foreign=False)
                    rows += ask(memory, other, foreign=True)
    return Hits(rows)


def fit(sets: Sequence[Hits]) -> Floats:
    """Return the coefficients with the highest likelihood; every set has the same weight."""
    features = np.concatenate([each.features for each in sets])
    labels = np.concatenate([each.relevant for each in sets])
    weights = np.concatenate([np.full(len(each.rank), 1 / len(each.rank)) for each in sets])

    def loss(coefficients: Floats) -> tuple[float, Floats]:
        logits = features @ coefficients
        chances = 1 / (1 + np.exp(-logits))
        value = float((weights * (np.logaddexp(0, logits) - labels * logits)).sum())
        return value, features.T @ (weights * (chances - labels))

    found: Floats = minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x
    return found


def describe(hits: Hits, coefficients: Sequence[float]) -> str:
    chances = hits.confidence(coefficients)
    first = hits.rank == 0
    auc = separation(chances[first & ~hits.foreign].tolist(), chances[first & hits.foreign].tolist())
    error = calibration_error(calibration_bins(chances.tolist(), hits.relevant.tolist()))
    kept = (chances[hits.relevant] >= 0.02).mean()
    foreign = (chances[hits.foreign & (hits.rank < 5)] >= 0.02).mean()
    return f"{auc:.3f}  {error:.3f}        {kept:.3f}    {foreign:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    sets = load_sets(parser.parse_args().data, CONVERSATIONS)
    whole = {name: hits_of(collections, parts=False) for name, collections in sets.items()}
    parts = {name: hits_of(collections, parts=True) for name, collections in sets.items()}
    print("                        AUC    error  ≥ .02: evidence  first five foreign hits")
    for name in sets:
        left = [found[other] for other in sets if other != name for found in (whole, parts)]
        chosen = fit(left)
        print(f"{name:10} others      {describe(whole[name], chosen)}")
        print(f"{'':10} the code    {describe(whole[name], COEFFICIENTS)}")
        print(f"{'':10} parts, code {describe(parts[name], COEFFICIENTS)}")
    best = fit([*whole.values(), *parts.values()])
    print("fitted on all:", Features(*(round(float(each), 2) for each in best)))
    print("in the code:  ", COEFFICIENTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
