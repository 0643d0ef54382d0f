"""A collection: passages that are stored, and questions whose right answers are known.

Right answers never reach a target: it gets passages, and the text of questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Passage:
    """One memory: a turn of a conversation, a document."""

    id: str
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
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
