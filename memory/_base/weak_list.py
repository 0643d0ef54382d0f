"""A list of objects that it does not keep alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

_T = TypeVar("_T")


class WeakList(Generic[_T]):
    """Objects, as long as they live.

    Unlike `weakref.WeakSet`, it runs no Python code when one of them ends: that would swallow an interrupt.
    """

    def __init__(self) -> None:
        self._references: list[weakref.ref[_T]] = []

    def add(self, item: _T) -> None:
        self._references = [known for known in self._references if known() is not None]
        self._references.append(weakref.ref(item))

    def __iter__(self) -> Iterator[_T]:
        return iter([item for known in self._references if (item := known()) is not None])
