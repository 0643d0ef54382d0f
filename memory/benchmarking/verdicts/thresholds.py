"""Thresholds: how large an effect has to be to count. Patterns set other thresholds for some metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.model.category_settings import CompareSettings
from memory.benchmarking.verdicts.patterns import fits
from memory.benchmarking.verdicts.records import Scale

STORED_THRESHOLD = 0.1
"""The threshold for stored runs, as a share: runs of identical code rarely differ by more than 10 %."""
LOCKSTEP_THRESHOLD = 0.03
"""The threshold of `membench ab`, as a share: with 3 %, nearly all changes of 5 % are found."""
QUALITY_THRESHOLD = 0.01
"""The threshold of recall and other shares, in points."""


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of one comparison. The last pattern that fits a metric counts (see `patterns.py`)."""

    default: float = STORED_THRESHOLD
    """A share: 0.1 is 10 %."""
    quality: float = QUALITY_THRESHOLD
    """In points: recall from 0.90 to 0.89 is 0.01."""
    patterns: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {"threshold": self.default, "quality_threshold": self.quality, **self.patterns}
        for name, value in named.items():
            if not 0 <= value < float("inf"):
                raise InvalidBenchmarkConfig(f"{name} is {value}: use a number ≥ 0, 0.1 for 10 %")

    def of(self, name: str, path: str, scale: Scale, *, paired: bool = False) -> float:
        """Return the threshold of a metric.

        Args:
            name: `category.benchmark`
            path: the metric
            scale: whether it changes by a factor or by points
            paired: whether it was compared question by question. Then half of the threshold counts, so that
                a change as large as the threshold is found nearly always, not in every second comparison.
        """
        named = self.named(name, path)
        if named is not None:
            return named
        if scale == "ratio":
            return self.default
        return self.quality / 2 if paired else self.quality

    def named(self, name: str, path: str) -> float | None:
        """Return the threshold that a pattern sets for this metric; None where none fits."""
        fitting = [value for pattern, value in self.patterns.items() if fits(pattern, name, path)]
        return fitting[-1] if fitting else None


def thresholds_from(settings: CompareSettings, given: float | None, default: float) -> Thresholds:
    """Return the thresholds of the command line, else of the configuration, else the command's default."""
    chosen = given if given is not None else settings.threshold
    quality = settings.quality_threshold
    return Thresholds(
        default if chosen is None else chosen,
        QUALITY_THRESHOLD if quality is None else quality,
        settings.thresholds,
    )
