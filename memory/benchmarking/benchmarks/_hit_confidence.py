"""Whether the confidence of a hit means something: asked of its own and of another conversation."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memory.benchmarking.bench import not_available
from memory.benchmarking.measure.calibration import calibration_bins, calibration_error
from memory.benchmarking.measure.ranking import separation
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.workloads.collections import Collection


class ShownPassage(NamedTuple):
    """One passage of an answer."""

    id: str
    score: float
    content: Any
    """What the hit puts into a context."""
    confidence: float | None = None


Answer = Sequence[ShownPassage]
"""The passages that a system returns for a question, the best first."""


def foreign_questions(collections: Sequence[Collection], number: int) -> list[str]:
    """Return questions of the other collections, as many as collection `number` has, if there are so many.

    The choice depends on no label: a target must get the same questions whatever the right answers are.
    """
    others = [
        question.text
        for other, collection in enumerate(collections)
        if other != number
        for question in collection.questions
    ]
    return random.Random(number).sample(others, min(len(collections[number].questions), len(others)))


def confidence_figures(
    own: Sequence[tuple[Answer, Mapping[str, int]]], foreign: Sequence[Answer], without: str
) -> dict[str, Any] | NotAvailable:
    """Return how well confidences tell own from foreign questions, and how often hits are relevant.

    Args:
        own: the answers to questions of the searched conversation, each with the grades of its passages.
            Questions without a right passage do not count.
        foreign: the answers to questions of other conversations: no hit is relevant.
        without: why there is no confidence; empty if there is.
    """
    asked = [(answer, grades) for answer, grades in own if grades]
    if not without and not asked:
        without = "no question has an answer"
    if not without and not foreign:
        without = "there is no other conversation whose questions could be asked"
    if without:
        return not_available(without)
    hits = [(_chance(hit), grades.get(hit.id, 0) > 0) for answer, grades in asked for hit in answer]
    hits += [(_chance(hit), False) for answer in foreign for hit in answer]
    if not hits:
        return not_available("there are no hits")
    bins = calibration_bins([chance for chance, _ in hits], [relevant for _, relevant in hits])
    return {
        "confidence_separation": separation(
            [_first_chance(answer) for answer, _ in asked], [_first_chance(answer) for answer in foreign]
        ),
        "calibration_error": calibration_error(bins),
        **{
            f"bin_{each.number}": {
                "hits": each.count,
                "mean_confidence": each.mean_chance,
                "relevant_share": each.true_share,
            }
            for each in bins
        },
    }


def _first_chance(answer: Answer) -> float:
    return _chance(answer[0]) if answer else 0.0


def _chance(hit: ShownPassage) -> float:
    """Return a hit's confidence; a hit without one counts as surely irrelevant."""
    return 0.0 if hit.confidence is None else hit.confidence
