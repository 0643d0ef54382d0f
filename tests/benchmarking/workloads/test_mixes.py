"""Mixes of operations: presets, shares of your own, and how agents share the load."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.workloads.mixes import PRESETS, mix_of


@pytest.mark.parametrize("name", PRESETS)
def test_the_shares_of_a_preset_are_those_of_its_operations(name: str) -> None:
    mix = mix_of(name)
    assert sum(mix.shares.values()) == pytest.approx(1)
    drawn = Counter(mix.kinds(20_000, random.Random(1)))
    assert {kind: count / 20_000 for kind, count in drawn.items()} == pytest.approx(mix.shares, abs=0.02)


def test_tenants_are_zipf_distributed() -> None:
    agents = [f"agent_{number}" for number in range(100)]
    drawn = Counter(mix_of("multi-tenant").agents(agents, 50_000, random.Random(1)))
    assert drawn["agent_0"] / drawn["agent_9"] == pytest.approx(10**0.99, rel=0.15)
    even = Counter(mix_of("chat").agents(agents, 50_000, random.Random(1)))
    assert max(even.values()) / min(even.values()) < 1.5


def test_shares_of_your_own() -> None:
    assert mix_of("search=60, add=20").shares == {"search": 0.75, "add": 0.25}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chatt", "did you mean 'chat'|chat"),
        ("find=1", "'find' is unknown"),
        ("add=1,add=2", "twice"),
        ("add=0", "use a number > 0"),
        ("add=many", "use a number > 0"),
        ("add=", "use a number > 0"),
    ],
)
def test_a_wrong_mix_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=message):
        mix_of(text)
