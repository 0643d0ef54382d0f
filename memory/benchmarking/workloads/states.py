"""States of an agent in a world. The size of a state grows with its complexity.

A state of complexity c holds a position of 3c numbers, an inventory of 5c items, 10c numeric
attributes, 2c goals with c subgoals each, a timestamp, a step and a status.
"""

from __future__ import annotations

import random
from typing import Any

from memory.benchmarking.errors import InvalidBenchmarkConfig

_THINGS = (
    "rope", "lantern", "compass", "map", "water", "bread", "shovel", "blanket", "medicine", "radio",
    "battery", "whistle", "knife", "hammer", "coin", "key", "book", "mirror", "candle", "flint",
)  # fmt: skip
_KINDS = ("worn", "new", "broken", "heavy", "spare", "borrowed", "rusty", "sealed")
_VERBS = ("reach", "explore", "repair", "deliver", "guard", "collect", "avoid", "follow", "trade")
_PLACES = ("harbour", "mill", "bridge", "tower", "forest", "market", "mine", "well", "gate", "camp")
_STATUSES = ("active", "idle", "resting", "damaged")
_START = 1_700_000_000.0
"""Timestamp of step 0, in seconds since 1970; each step takes one second."""


def generate_test_state(
    complexity: int = 1, rng: random.Random | None = None, step: int = 0
) -> dict[str, Any]:
    """Generate one state.

    Args:
        complexity: how large the state is, ≥ 1.
        rng: the random generator; the same seed gives the same states. By default it has a random seed.
        step: the agent's step, stored in the state and in its timestamp.
    """
    if isinstance(complexity, bool) or not isinstance(complexity, int) or complexity < 1:
        raise InvalidBenchmarkConfig(f"complexity is {complexity!r}: use a whole number ≥ 1")
    draw = rng if rng is not None else random.Random()
    return {
        "position": [round(draw.uniform(-100, 100), 3) for _ in range(3 * complexity)],
        "inventory": [f"{draw.choice(_KINDS)} {draw.choice(_THINGS)}" for _ in range(5 * complexity)],
        "attributes": {f"attribute_{number}": round(draw.random(), 4) for number in range(10 * complexity)},
        "goals": [
            {
                "goal": f"{draw.choice(_VERBS)} the {draw.choice(_PLACES)}",
                "subgoals": [
                    f"{draw.choice(_VERBS)} the {draw.choice(_THINGS)}" for _ in range(complexity)
                ],
            }
            for _ in range(2 * complexity)
        ],
        "timestamp": _START + step,
        "step": step,
        "status": draw.choice(_STATUSES),
    }


def agent_states(count: int, complexity: int = 1, seed: int = 0) -> list[dict[str, Any]]:
    """Return `count` states in the order of their steps; the same seed gives the same states."""
    rng = random.Random(f"states {seed} {complexity}")
    return [generate_test_state(complexity, rng, step) for step in range(count)]
