"""The ratio current ÷ base of one timing in one pair of processes, as a logarithm.

Both sides measured the same items in the same blocks, turn by turn. The fastest block of each turn counts,
because interruptions only make blocks slower. The median over the turns leaves out the turns in which all
blocks were interrupted.
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
"""The quantile of wall ÷ CPU over blocks that is used: interruptions raise the higher quantiles."""


@dataclass(frozen=True)
class ClockRatio:
    """CPU or wall time of one timing in one pair: milliseconds a call on each side, and the log-ratio."""

    base: float
    current: float
    log_ratio: float


@dataclass(frozen=True)
class TimingRatio:
    """Both clocks of one timing in one pair."""

    cpu: ClockRatio | None
    """None if a side used less CPU time than the clock can resolve."""
    wall: ClockRatio
    wall_to_cpu: tuple[float, float]
    """Wall ÷ CPU of the least disturbed blocks, for each side."""


def timing_ratio(base: Samples, current: Samples) -> TimingRatio:
    """Compare one timing of both sides."""
    wall = _clock_ratio(_per_call(base, base.block_wall_ns), _per_call(current, current.block_wall_ns))
    assert wall is not None, "a call takes time"
    cpu = _clock_ratio(_per_call(base, base.block_cpu_ns), _per_call(current, current.block_cpu_ns))
    return TimingRatio(cpu, wall, (_wall_to_cpu(base), _wall_to_cpu(current)))


def _per_call(samples: Samples, block_ns: bytes) -> list[Array]:
    """Return the milliseconds a call of each block, one array a turn."""
    import numpy as np

    nanoseconds = np.frombuffer(block_ns, "<i8")
    sizes = np.frombuffer(samples.block_samples, "<i8")
    turns = np.frombuffer(samples.turn_blocks, "<i8")
    per_call = nanoseconds / (sizes * samples.calls_per_sample * 1e6)
    if not len(turns):  # not measured in turns: each block counts as one
        turns = np.ones(len(sizes), dtype="<i8")
    return np.split(per_call, np.cumsum(turns)[:-1])


def _clock_ratio(base: list[Array], current: list[Array]) -> ClockRatio | None:
    import numpy as np

    base_turns = np.array([turn.min() for turn in base])
    current_turns = np.array([turn.min() for turn in current])
    if len(base_turns) != len(current_turns):
        # The turns can't be paired, so the medians of the two processes are compared.
        base_turns, current_turns = (
            np.median(turns, keepdims=True) for turns in (base_turns, current_turns)
        )
    if not (base_turns.min() > 0 and current_turns.min() > 0):
        return None
    return ClockRatio(
        float(np.median(base_turns)),
        float(np.median(current_turns)),
        float(np.median(np.log(current_turns / base_turns))),
    )


def _wall_to_cpu(samples: Samples) -> float:
    import numpy as np

    wall = np.frombuffer(samples.block_wall_ns, "<i8")
    cpu = np.frombuffer(samples.block_cpu_ns, "<i8")
    return float(np.quantile(wall / np.maximum(cpu, 1), _UNDISTURBED))
