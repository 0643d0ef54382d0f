"""Which memories a dictionary was trained on, so that the store can count how many of them were deleted."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_SEQ_BITS = 40


def place_of(agent_no: int, seq: int) -> int:
    """Return one number for a row, whichever tier it is in."""
    return agent_no << _SEQ_BITS | seq


def pack_samples(places: Sequence[int]) -> bytes:
    """Return places as bytes. The samples of a small store are consecutive and take almost no room."""
    ordered = np.sort(np.array(places, np.int64))
    return zlib.compress(np.diff(ordered, prepend=0).astype("<i8").tobytes()) if len(ordered) else b""


def _unpack(packed: bytes) -> NDArray[np.int64]:
    return np.cumsum(np.frombuffer(zlib.decompress(packed), "<i8"), dtype=np.int64)


class SampleSets:
    """The samples of the dictionaries of one file, each read once: they never change."""

    def __init__(self) -> None:
        self._places: dict[int, NDArray[np.int64] | None] = {}

    def count(
        self, connection: sqlite3.Connection, agent_no: int, seqs: Sequence[int] | None
    ) -> Iterator[tuple[int, int]]:
        """Yield (codec number, how many of its samples are among these rows of an agent).

        seqs: the rows; None for all rows of the agent
        """
        found = connection.execute("SELECT number FROM codecs WHERE samples <> x''").fetchall()
        for (number,) in found:
            places = self._of(connection, number)
            if places is None:
                count = 1 if seqs is None else len(seqs)
            elif seqs is None:
                first, end = np.searchsorted(places, [agent_no << _SEQ_BITS, (agent_no + 1) << _SEQ_BITS])
                count = int(end - first)
            else:
                wanted = np.array([place_of(agent_no, seq) for seq in seqs], np.int64)
                count = int(np.isin(wanted, places).sum())
            if count:
                yield number, count

    def _of(self, connection: sqlite3.Connection, number: int) -> NDArray[np.int64] | None:
        """Return the samples of a codec, None if they are damaged: then every deletion counts."""
        if number not in self._places:
            (packed,) = connection.execute(
                "SELECT samples FROM codecs WHERE number = ?", (number,)
            ).fetchone()
            try:
                self._places[number] = _unpack(packed)
            except (zlib.error, ValueError, TypeError):
                self._places[number] = None
        return self._places[number]
