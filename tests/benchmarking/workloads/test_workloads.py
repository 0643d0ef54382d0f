"""Generated data: as large as requested, and the same for the same seed."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.model.environment import WORKLOADS_VERSION
from memory.benchmarking.workloads import agent_states, generate_test_state
from memory.benchmarking.workloads.contents import mixed_contents
from memory.benchmarking.workloads.conversations import synthetic_collections
from memory.benchmarking.workloads.natural_texts import document_texts, memory_texts, question_texts


@settings(deadline=None)
@given(st.integers(1, 12))
def test_the_complexity_determines_the_size_of_a_state(complexity: int) -> None:
    state = generate_test_state(complexity)
    assert len(state["position"]) == 3 * complexity
    assert len(state["inventory"]) == 5 * complexity
    assert len(state["attributes"]) == 10 * complexity
    assert len(state["goals"]) == 2 * complexity
    assert {len(goal["subgoals"]) for goal in state["goals"]} == {complexity}
    assert set(state) == {
        "position", "inventory", "attributes", "goals", "timestamp", "step", "status",
    }  # fmt: skip
    assert json.loads(json.dumps(state)) == state


def test_states_differ_between_calls_unless_a_seeded_generator_is_passed() -> None:
    assert generate_test_state() != generate_test_state()
    one, other = (generate_test_state(2, random.Random(5)) for _ in range(2))
    assert one == other


@settings(deadline=None)
@given(st.integers(0, 20), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_a_seed_gives_the_same_states_and_more_begin_with_the_same(
    count: int, complexity: int, seed: int
) -> None:
    states = agent_states(count, complexity, seed)
    assert len(states) == count
    assert states == agent_states(count + 5, complexity, seed)[:count]
    assert [state["step"] for state in states] == list(range(count))


def test_other_seeds_and_complexities_give_other_states() -> None:
    assert agent_states(3, seed=1) != agent_states(3, seed=2)
    assert agent_states(1, 2, seed=1)[0]["position"][:3] != agent_states(1, 1, seed=1)[0]["position"]


def test_another_process_generates_the_same_states() -> None:
    """Its hash seed does not matter: two rounds with the same seed must use the same data."""
    program = (
        "import json; from memory.benchmarking.workloads import agent_states;"
        "print(json.dumps(agent_states(3, 2, seed=11)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == agent_states(3, 2, seed=11)


@pytest.mark.parametrize("complexity", [0, -1, 1.5, True, "2", None])
def test_an_invalid_complexity_is_refused(complexity: Any) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=r"complexity is .*: use a whole number ≥ 1"):
        generate_test_state(complexity)


def test_changed_data_needs_another_version_of_the_workloads() -> None:
    """Runs with other data must not be compared. So this digest changes only with WORKLOADS_VERSION."""
    data = [
        *agent_states(20, 3, seed=5),
        *mixed_contents(60, seed=5),
        *islice(memory_texts(5), 50),
        *islice(question_texts(5), 50),
        *islice(document_texts(5), 20),
        *(passage.text for one in synthetic_collections(1, 3, seed=5) for passage in one.passages),
    ]
    digest = hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]
    assert (WORKLOADS_VERSION, digest) == ("2", "282096f7f29a5f9e")
