"""Mixes of operations: which share of the load searches, adds or reads, and for which agents."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory.benchmarking.errors import InvalidBenchmarkConfig, nearest

OPERATIONS = ("search", "add", "read")
_ZIPF_EXPONENT = 0.99
"""The n-th agent gets 1 / n^0.99 of the load of the first one, as in YCSB's zipfian distribution."""


@dataclass(frozen=True)
class Mix:
    """Shares of operations, and how they are spread over the agents."""

    shares: Mapping[str, float]
    """By operation; their sum is 1."""
    zipf: bool = False
    """Whether few agents cause most of the load; otherwise all agents cause the same."""

    def kinds(self, count: int, rng: random.Random) -> list[str]:
        """Return the operation of each arrival."""
        return rng.choices([*self.shares], [*self.shares.values()], k=count)

    def agents(self, agents: Sequence[str], count: int, rng: random.Random) -> list[str]:
        """Return the agent of each arrival."""
        if not self.zipf:
            return rng.choices(agents, k=count)
        weights = [1 / number**_ZIPF_EXPONENT for number in range(1, len(agents) + 1)]
        return rng.choices(agents, cum_weights=[*itertools.accumulate(weights)], k=count)


PRESETS = {
    "chat": Mix({"search": 0.70, "add": 0.25, "read": 0.05}),
    "ingest": Mix({"add": 0.90, "search": 0.10}),
    "read-heavy": Mix({"search": 0.50, "read": 0.45, "add": 0.05}),
    "multi-tenant": Mix({"search": 0.70, "add": 0.25, "read": 0.05}, zipf=True),
}


def mix_of(text: str) -> Mix:
    """Return a mix by the name of a preset, or from shares such as `search=60,add=40`."""
    if text in PRESETS:
        return PRESETS[text]
    if "=" not in text:
        raise InvalidBenchmarkConfig(
            f"mix is {text!r}: {nearest(text, PRESETS)}, or shares such as search=60,add=40"
        )
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (each.strip() for each in part.partition("="))
        if name not in OPERATIONS or name in shares:
            raise InvalidBenchmarkConfig(
                f"mix is {text!r}: {name!r} is unknown or twice in it: use {', '.join(OPERATIONS)}"
            )
        try:
            shares[name] = float(number)
        except ValueError:
            shares[name] = -1.0
        if not 0 < shares[name] < float("inf"):
            raise InvalidBenchmarkConfig(f"mix is {text!r}: {name} is {number!r}: use a number > 0")
    total = sum(shares.values())
    return Mix({name: share / total for name, share in shares.items()})
