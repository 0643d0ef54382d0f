"""The notes of a result: the texts that a benchmark returns with its figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.model.paths import join, leaf_of
from memory.benchmarking.model.presentation import stored_presentation
from memory.benchmarking.model.records import Result
from memory.benchmarking.text.display import shorten

NOT_TRUSTED = "NOT TO BE TRUSTED"
"""A note that starts with this text is a warning: the benchmark checked its own work and found an error."""
GROWTH = "growth"
"""The name of a note that says how a cost grows with size."""
_LONGEST = 240
"""Longest short note, in terminal columns. A note can be long: a model's whole answer, for example."""


@dataclass(frozen=True)
class ResultNote:
    """One text, with all paths of the result that hold this text."""

    name: str
    text: str
    paths: tuple[str, ...]

    @property
    def is_warning(self) -> bool:
        return self.text.startswith(NOT_TRUSTED)

    @property
    def is_detail(self) -> bool:
        """Whether the note is a checksum or a single word, which few readers need."""
        return self.name == "sha256" or " " not in self.text

    @property
    def where(self) -> str:
        return ", ".join(self.paths)

    @property
    def short(self) -> str:
        return shorten(self.text, _LONGEST)


def result_notes(result: Result) -> list[ResultNote]:
    """Return all notes of a result: warnings, the notes that its benchmark declares, others, details."""
    presentation = stored_presentation(result.metadata)
    first = presentation.notes if presentation else ()
    paths: dict[tuple[str, str], list[str]] = {}
    for path, text in _texts(result.results, first):
        paths.setdefault((leaf_of(path), text), []).append(path)
    notes = [ResultNote(name, text, tuple(found)) for (name, text), found in paths.items()]

    def order(note: ResultNote) -> tuple[bool, bool, int]:
        place = first.index(note.name) if note.name in first else len(first)
        return not note.is_warning, note.is_detail, place

    return sorted(notes, key=order)


def _texts(tree: Mapping[str, Any], declared: Sequence[str], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each note. A declared mapping of texts becomes one note."""
    for name, value in tree.items():
        here = join(path, name)
        if isinstance(value, str):
            if text := " ".join(value.split()):
                yield here, text
        elif isinstance(value, Mapping):
            if name in declared and value and all(isinstance(text, str) for text in value.values()):
                yield here, ", ".join(f"{text} {_plain(key)}" for key, text in value.items())
            else:
                yield from _texts(value, declared, here)


def _plain(name: str) -> str:
    """Return `within 1/4` for `within_1_4`."""
    return re.sub(r"(\d+)_(\d+)", r"\1/\2", name).replace("_", " ")
