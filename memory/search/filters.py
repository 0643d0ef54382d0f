"""Conditions on attributes: found through the index's terms, then compared with the memory itself.

An attribute is a dotted path into the metadata or the content, and a list matches by any of its
elements: {"speaker": "Ann"}, {"position.room": "kitchen"}, {"inventory": "sword"}. "kind" is
always the memory's kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory._base.content import Leaves, Scalar, leaves_of
from memory.entry import MemoryEntry
from memory.errors import InvalidMemory, short
from memory.search.index import AgentIndex
from memory.search.terms import KIND, attribute_term


class Filter:
    """All of some attributes must hold."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        if not isinstance(attributes, Mapping):
            raise InvalidMemory(f"filters are {short(attributes)}: give an object (a dict)")
        self._wanted: dict[str, Scalar] = {}
        for path, value in attributes.items():
            if not isinstance(path, str) or not path:
                raise InvalidMemory(f"filter {short(path)}: an attribute's path is text such as 'a.b'")
            if not isinstance(value, str | int | float) and value is not None:
                raise InvalidMemory(
                    f"filter {short(path)} is a {type(value).__name__}: compare with text, a number, "
                    "true/false or null"
                )
            self._wanted[path] = value

    def positions(self, index: AgentIndex) -> NDArray[np.bool_]:
        """Which memories may match; `matches` decides."""
        mask = np.ones(index.count, np.bool_)
        for path, value in self._wanted.items():
            mask &= _holding(index, _term(path, value))
        return mask

    def matches(self, entry: MemoryEntry) -> bool:
        """Whether a memory really holds all of it."""
        leaves = leaves_of(entry.metadata, "metadata")
        if not isinstance(entry.content, str):
            leaves = leaves + leaves_of(entry.content)
        return all(
            value == entry.kind if path == "kind" else _has(leaves, path, value)
            for path, value in self._wanted.items()
        )


def _term(path: str, value: Scalar) -> int:
    return attribute_term(KIND if path == "kind" else path, value)


def _holding(index: AgentIndex, term: int) -> NDArray[np.bool_]:
    mask = np.zeros(index.count, np.bool_)
    for base, _, block in index.blocks():
        mask[block.postings.find(term) + base] = True
    return mask


def _has(leaves: Leaves, path: str, value: Scalar) -> bool:
    # True == 1 in Python; as attributes they are two things.
    return any(
        place == path and leaf == value and isinstance(leaf, bool) == isinstance(value, bool)
        for place, leaf in leaves
    )
