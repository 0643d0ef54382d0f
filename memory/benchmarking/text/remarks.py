"""What benchmarks say in words: the texts that stand beside the figures in a result's tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.model.paths import join, leaf_of
from memory.benchmarking.text.display import shorten

NOT_TRUSTED = "NOT TO BE TRUSTED"
"""Begins the text of a benchmark that checked itself and found itself wrong."""
PICK = "pick"
"""The branch with the best codec for each share of the bytes."""
GROWTH = "growth"
"""The name of a sentence on how a cost grows with size."""
_FIRST = ("ruler", GROWTH, PICK)
"""Names of texts that say most, in this order."""
_LONGEST = 240
"""Letters that are shown at once: a text may be a whole answer of a model."""
_WITHIN = re.compile(r"within_1_(\d+)")


@dataclass(frozen=True)
class Remark:
    """A text, once, with all places of the tree where it stands."""

    name: str
    text: str
    paths: tuple[str, ...]

    @property
    def is_warning(self) -> bool:
        return self.text.startswith(NOT_TRUSTED)

    @property
    def is_detail(self) -> bool:
        """Checksums, and names of one word: not what a reader looks for first."""
        return self.name == "sha256" or (self.name not in _FIRST and " " not in self.text)

    @property
    def where(self) -> str:
        return ", ".join(self.paths)

    @property
    def short(self) -> str:
        return shorten(self.text, _LONGEST)


def remarks(tree: Mapping[str, Any]) -> list[Remark]:
    """All texts of a result's tree: warnings first, then what says most, details last."""
    alike: dict[tuple[str, str], list[str]] = {}
    for path, text in _texts(tree):
        alike.setdefault((leaf_of(path), text), []).append(path)
    found = [Remark(name, text, tuple(paths)) for (name, text), paths in alike.items()]
    return sorted(found, key=_order)


def _order(remark: Remark) -> tuple[bool, bool, int]:
    place = _FIRST.index(remark.name) if remark.name in _FIRST else len(_FIRST)
    return not remark.is_warning, remark.is_detail, place


def _texts(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        here = join(path, name)
        if isinstance(value, str):
            if words := " ".join(value.split()):
                yield here, words
        elif isinstance(value, Mapping):
            if name == PICK and value and all(isinstance(codec, str) for codec in value.values()):
                yield here, _picks(value)
            else:
                yield from _texts(value, here)


def _picks(codecs: Mapping[str, str]) -> str:
    """`int8 within 1/4 of the bytes, pq within 1/16`"""
    said: list[str] = []
    for name, codec in codecs.items():
        share = _WITHIN.fullmatch(name)
        where = f"within 1/{share[1]}{'' if said else ' of the bytes'}" if share else f"for {name}"
        said.append(f"{codec} {where}")
    return ", ".join(said)
