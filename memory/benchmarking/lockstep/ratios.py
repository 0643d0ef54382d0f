"""What one pair of processes says of one timing: current ÷ base, as a logarithm.

Both sides measured the same items in the same blocks, turn by turn. Of each turn the least disturbed
block of either side counts, because being interrupted only ever adds; the median over the turns forgets
those in which all blocks were disturbed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.benchmarking.model.records import Samples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_UNDISTURBED = 0.1
"""The part of the blocks by which a timing's wall ÷ CPU is judged: others may have been interrupted."""


@dataclass(frozen=True)
class ClockRatio:
    """One clock's reading of one timing in one pair: milliseconds a call, and the log-ratio."""

    base: float
    current: float
    log_ratio: float


@dataclass(frozen=True)
class TimingRatio:
    """One timing in one pair."""

    cpu: ClockRatio | None
    """None where a side used no CPU time that its clock could see."""
    wall: ClockRatio
    wall_to_cpu: tuple[float, float]
    """Of the blocks of each side that were disturbed least."""


def timing_ratio(base: Samples, current: Samples) -> TimingRatio:
    wall = _clock(_per_call(base, base.block_wall_ns), _per_call(current, current.block_wall_ns))
    assert wall is not None, "a call takes time"
    cpu = _clock(_per_call(base, base.block_cpu_ns), _per_call(current, current.block_cpu_ns))
    return TimingRatio(cpu, wall, (_wall_to_cpu(base), _wall_to_cpu(current)))


def _per_call(samples: Samples, block_ns: bytes) -> list[Array]:
    """Milliseconds a call of each block, turn by turn."""
    import numpy as np

    nanoseconds = np.frombuffer(block_ns, "<i8")
    sizes = np.frombuffer(samples.block_samples, "<i8")
    turns = np.frombuffer(samples.turn_blocks, "<i8")
    per_call = nanoseconds / (sizes * samples.calls_per_sample * 1e6)
    if not len(turns):  # not in lockstep: each block by itself
        turns = np.ones(len(sizes), dtype="<i8")
    return np.split(per_call, np.cumsum(turns)[:-1])


def _clock(base: list[Array], current: list[Array]) -> ClockRatio | None:
    import numpy as np

    least_base = np.array([turn.min() for turn in base])
    least_current = np.array([turn.min() for turn in current])
    if len(least_base) != len(least_current):
        # Not the same turns, so nothing can be paired: each process speaks for itself.
        least_base, least_current = (np.median(each, keepdims=True) for each in (least_base, least_current))
    if not (least_base.min() > 0 and least_current.min() > 0):
        return None
    return ClockRatio(
        float(np.median(least_base)),
        float(np.median(least_current)),
        float(np.median(np.log(least_current / least_base))),
    )


def _wall_to_cpu(samples: Samples) -> float:
    import numpy as np

    wall = np.frombuffer(samples.block_wall_ns, "<i8")
    cpu = np.frombuffer(samples.block_cpu_ns, "<i8")
    return float(np.quantile(wall / np.maximum(cpu, 1), _UNDISTURBED))
