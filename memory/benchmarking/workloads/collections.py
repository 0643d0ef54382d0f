"""A collection: passages that are stored, and questions whose right answers are known.

Right answers never reach a target: of passages it gets text, time and metadata, of questions the text.
Data sets are known to name things after what they are for ("answer_4be1b6b4_2"), so ids stay here, and what
metadata says is the same for right passages and others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Passage:
    """One memory: a turn of a conversation, a document."""

    id: str
    """As the data set has it; for judging alone."""
    text: str
    timestamp: float | None = None
    metadata: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """A question with its right passages and their grades; none where there is no answer."""

    text: str
    category: str
    grades: Mapping[str, int]


@dataclass(frozen=True)
class Collection:
    """What is searched together: one conversation, one set of documents."""

    id: str
    """As the data set has it; for judging alone."""
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
