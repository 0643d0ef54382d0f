"""Common rules for "slower", applied to the processes that a comparison of gate.py measured.

Such a rule is usually applied to two versions that were measured one after the other, not in turns. So the
base's process is taken from one pair, and the other side's from the next pair, a second later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, t

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Process:
    """One timing in one process, in milliseconds a call."""

    samples: Array
    """Empty from the third pair on, because those samples are not kept."""
    mean: float


@dataclass(frozen=True)
class Timing:
    """One timing in all first pairs of a comparison."""

    name: str
    base: list[Process]
    current: list[Process]


def timings_of(path: Path, pairs: int) -> Iterator[Timing]:
    """Yield the timings that a comparison saved; `pairs` is how many pairs are read."""
    with np.load(path) as arrays:
        found = {name: _parts(name) for name in arrays if name.endswith("/block_wall_ns")}
        by_timing: dict[tuple[str, str], dict[tuple[int, str], Process]] = {}
        for name, (case, number, side, where) in found.items():
            if int(number) < pairs:
                by_timing.setdefault((case, where), {})[int(number), side] = _process(
                    arrays, name.removesuffix("block_wall_ns")
                )
    for (case, where), processes in by_timing.items():
        numbers = sorted({number for number, _ in processes})
        yield Timing(
            f"{case}/{where}",
            [processes[number, "base"] for number in numbers],
            [processes[number, "current"] for number in numbers],
        )


def _parts(name: str) -> tuple[str, str, str, str]:
    case, number, side, rest = name.split("/", 3)
    return case, number, side, rest.rpartition("/")[0]


def _process(arrays: np.lib.npyio.NpzFile, prefix: str) -> Process:
    calls, _ = arrays[f"{prefix}calls_and_work"]
    samples = arrays.get(f"{prefix}wall_ns", np.array([]))
    mean = arrays[f"{prefix}block_wall_ns"].sum() / (arrays[f"{prefix}block_samples"].sum() * calls)
    return Process(samples / (calls * 1e6), float(mean / 1e6))


def mean_above(share: float) -> Callable[[Timing], bool]:
    return lambda timing: timing.current[1].mean > (1 + share) * timing.base[0].mean


def least_above(share: float) -> Callable[[Timing], bool]:
    return lambda timing: bool(timing.current[1].samples.min() > (1 + share) * timing.base[0].samples.min())


def samples_differ(timing: Timing) -> bool:
    """benchstat's rule: a larger median, and p < .05 in a Mann–Whitney test on one process's samples."""
    now, before = timing.current[1].samples, timing.base[0].samples
    return bool(np.median(now) > np.median(before) and mannwhitneyu(now, before).pvalue < 0.05)


def processes_differ(timing: Timing) -> bool:
    """A t-interval over the means of fresh processes (ABAB) above 0, and an effect above 3 %."""
    before = np.log([process.mean for process in timing.base])
    after = np.log([process.mean for process in timing.current])
    effects = np.roll(after, -1) - before
    centre, error = effects.mean(), effects.std(ddof=1) / math.sqrt(len(effects))
    low = centre - t.ppf(0.975, len(effects) - 1) * error
    return bool(low > 0 and centre > math.log(1.03))


RULES: dict[str, Callable[[Timing], bool]] = {
    "one process, mean > 10 %": mean_above(0.10),
    "one process, mean > 20 %": mean_above(0.20),
    "one process, minimum > 10 %": least_above(0.10),
    "one process, Mann–Whitney p < .05 on its samples": samples_differ,
    "fresh processes, means, t-interval and > 3 %": processes_differ,
}
