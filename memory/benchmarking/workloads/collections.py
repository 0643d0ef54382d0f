"""A collection: passages to store, and questions whose relevant passages are known.

A target never sees which passages are relevant. It gets text, time and metadata of passages, and the text
of questions. It does not get the ids: in some data sets they show the answer ("answer_4be1b6b4_2").
Relevant passages and other passages have metadata of the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Passage:
    """One memory: a turn of a conversation, or a document."""

    id: str
    """The data set's id, used for scoring only."""
    text: str
    timestamp: float | None = None
    metadata: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """A question with its relevant passages."""

    text: str
    category: str
    grades: Mapping[str, int]
    """Passage id to grade; a grade above 0 marks a relevant passage. Empty if there is no answer."""


@dataclass(frozen=True)
class Collection:
    """The passages that are searched together: one conversation, or one set of documents."""

    id: str
    """The data set's id, used for scoring only."""
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
