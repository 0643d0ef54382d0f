"""Filters on attributes: the index finds candidates by their terms, then each memory is compared.

An attribute is a dotted path into the metadata or the content. A list matches if any of its elements
does: {"speaker": "Ann"}, {"position.room": "kitchen"}, {"inventory": "sword"}. "kind" is always the
memory's kind.
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
    """A set of attributes with the values that a memory must have, all of them."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        if not isinstance(attributes, Mapping):
            raise InvalidMemory(f"filters is {short(attributes)}: use a dict of paths and values")
        self._wanted: dict[str, Scalar] = {}
        for path, value in attributes.items():
            if not isinstance(path, str) or not path:
                raise InvalidMemory(f"filter {short(path)} is not a path: use text such as 'a.b'")
            if not isinstance(value, str | int | float) and value is not None:
                raise InvalidMemory(
                    f"filter {short(path)} has a value of type {type(value).__name__}: "
                    "use text, a number, True, False or None"
                )
            self._wanted[path] = value

    def positions(self, index: AgentIndex) -> NDArray[np.bool_]:
        """Return a mask of the positions that may match. Two attributes can share a term, so `matches`
        must confirm each one."""
        mask = np.ones(index.count, np.bool_)
        for path, value in self._wanted.items():
            mask &= _positions_with(index, _term(path, value))
        return mask

    def matches(self, entry: MemoryEntry) -> bool:
        """Return whether the memory has all the wanted values."""
        leaves = leaves_of(entry.metadata, "metadata")
        if not isinstance(entry.content, str):
            leaves = leaves + leaves_of(entry.content)
        return all(
            value == entry.kind if path == "kind" else _has_value(leaves, path, value)
            for path, value in self._wanted.items()
        )


def _term(path: str, value: Scalar) -> int:
    return attribute_term(KIND if path == "kind" else path, value)


def _positions_with(index: AgentIndex, term: int) -> NDArray[np.bool_]:
    mask = np.zeros(index.count, np.bool_)
    for base, _, block in index.blocks():
        mask[block.postings.find(term) + base] = True
    return mask


def _has_value(leaves: Leaves, path: str, value: Scalar) -> bool:
    # In Python True == 1. Here they are different values.
    return any(
        leaf_path == path and leaf == value and isinstance(leaf, bool) == isinstance(value, bool)
        for leaf_path, leaf in leaves
    )
