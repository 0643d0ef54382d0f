"""A histogram of latencies that can be merged over threads, processes and hosts.

It has the layout of an HDR histogram with three significant digits (Gil Tene): below 2,048 ns every
nanosecond has its own count, and above that every power of two has 1,024 counts of equal width.

    0 … 2047 ns        1 ns a count
    2048 … 4095 ns     2 ns a count
    4096 … 8191 ns     4 ns a count

Counts of histograms add up exactly; percentiles do not. So hosts exchange counts, never percentiles. It
needs NumPy only, because it also runs in the environments of the targets, which have few packages.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Self

from memory.benchmarking.errors import InvalidResult

LONGEST_NS = 3_600 * 10**9
"""The range: one hour. Longer latencies count as one hour."""
_BITS = 11
"""Each value keeps its 11 highest bits: the error is below 1 in 1,024."""
_HALF = 1 << (_BITS - 1)
_SIZE = (LONGEST_NS.bit_length() - _BITS) * _HALF + 2 * _HALF


def _index(value: int) -> int:
    shift = value.bit_length() - _BITS
    return value if shift <= 0 else shift * _HALF + (value >> shift)


def _highest(index: int) -> int:
    """Return the largest value that is counted at an index."""
    if index < 2 * _HALF:
        return index
    shift = index // _HALF - 1
    return ((index - shift * _HALF + 1) << shift) - 1


class Latencies:
    """Latencies are recorded in nanoseconds and returned in milliseconds."""

    def __init__(self) -> None:
        # Its size is fixed: a list of samples would grow like a leak of the system that is measured.
        self._counts = array("q", bytes(8 * _SIZE))
        self.count = 0

    def record(self, nanoseconds: int) -> None:
        """Count one latency; one below 1 ns counts as 1 ns, one above an hour as an hour."""
        self._counts[_index(min(max(nanoseconds, 1), LONGEST_NS))] += 1
        self.count += 1

    def add(self, other: Latencies) -> None:
        """Add the counts of another histogram."""
        import numpy as np

        np.frombuffer(self._counts, np.int64)[:] += np.frombuffer(other._counts, np.int64)
        self.count += other.count

    def percentile_ms(self, percent: float) -> float:
        """Return the latency that this share of all latencies did not exceed."""
        import numpy as np

        if not self.count:
            raise InvalidResult("there is no percentile: no latency was recorded")
        # The smallest rank that covers the share; rounding must not push 99.9 % of 1,000 to rank 1,000.
        rank = max(1, int(np.ceil(percent / 100 * self.count - 1e-9)))
        index = int(np.searchsorted(np.cumsum(np.frombuffer(self._counts, np.int64)), rank))
        return _highest(index) / 1e6

    def above(self, milliseconds: float) -> int:
        """Return how many latencies are longer than a limit, to three digits."""
        import numpy as np

        first = _index(min(max(round(milliseconds * 1e6), 1), LONGEST_NS)) + 1
        return int(np.frombuffer(self._counts, np.int64)[first:].sum())

    def figures(self) -> dict[str, float]:
        """Return the usual percentiles, by metric name."""
        return {
            "p50_ms": self.percentile_ms(50),
            "p99_ms": self.percentile_ms(99),
            "p999_ms": self.percentile_ms(99.9),
            "max_ms": self.percentile_ms(100),
        }

    def as_counts(self) -> dict[str, int]:
        """Return the counts that are not 0, by index, to be sent to another process."""
        import numpy as np

        counts = np.frombuffer(self._counts, np.int64)
        return {str(index): int(counts[index]) for index in np.flatnonzero(counts)}

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> Self:
        """Return the histogram whose counts another process sent."""
        made = cls()
        for index, count in counts.items():
            if not 0 <= int(index) < _SIZE or count < 0:
                raise InvalidResult(f"{index}: {count} is not a count of a histogram of latencies")
            made._counts[int(index)] += count
            made.count += count
        return made


def merged(parts: Iterable[Latencies]) -> Latencies:
    """Return one histogram with the counts of all."""
    whole = Latencies()
    for part in parts:
        whole.add(part)
    return whole
