"""The profiles: how much a run measures and how long it may take.

`full` has the sizes of the specification. `standard`, the default, takes minutes on two cores. `quick` is a
smoke run. Each benchmark declares its own sizes for them (see `metrics.declare`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """Settings that hold for every benchmark of a run."""

    rounds: int
    seconds: float
    """About how long one timing measures."""
    timeout_seconds: float
    """The longest time of a round; after it the round is ended."""


PROFILES = {
    "quick": Profile(rounds=2, seconds=0.02, timeout_seconds=120.0),
    "standard": Profile(rounds=5, seconds=0.1, timeout_seconds=600.0),
    "full": Profile(rounds=5, seconds=0.3, timeout_seconds=3600.0),
}
DEFAULT_PROFILE = "standard"
