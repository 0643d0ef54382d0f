"""Conformance tests of a target whose system is installed apart; without the system they are skipped.

tests/conftest.py lists at the end which systems' tests were not run.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest
from membench import PATIENCE, surroundings
from system_not_installed import NOT_INSTALLED
from target_conformance import ANN, BOB, CONTENTS, THINGS, OpenTarget, TargetConformance

from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads import agent_states

NAMES = ["ann", "Ann", "ann ", "two words", "o'neil", 'a "name"', "größe 日本 🎈", "a/b\\c", "%_*", "a\nb"]
"""Agents that a careless filter, file name or key would mix up."""


def missing_requirement(name: str) -> str:
    """Return the first requirement of a target that is not installed; "" if all are."""
    for requirement in load_target(name).requirements:
        try:
            version(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
        except PackageNotFoundError:
            return requirement
    return ""


def skip_if_not_installed(name: str) -> None:
    if requirement := missing_requirement(name):
        pytest.skip(f"{NOT_INSTALLED}{name} needs {requirement}")


class SystemConformance(TargetConformance):
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        skip_if_not_installed(self.name)

    def test_agents_of_any_name_are_kept_apart(self, open_target: OpenTarget) -> None:
        target = open_target()
        ids = {name: target.add([Item(name, f"the secret of {name!r}")])[0] for name in NAMES}
        target.flush()
        for name, id_ in ids.items():
            assert target.get(name, [id_]) == [f"the secret of {name!r}"]
            assert [hit.id for hit in target.search(name, "the secret", 99)] == [id_]
        target.close()
        again = open_target()
        gone, *others = NAMES
        assert again.delete_all(gone) == 1
        assert [again.get_one(name, ids[name]) for name in others] == [
            f"the secret of {name!r}" for name in others
        ]

    def test_equal_contents_in_one_batch_are_different_memories(self, target: Target) -> None:
        ids = target.add([Item(ANN, "twice"), Item(ANN, "twice"), Item(BOB, "twice")])
        assert len(set(ids)) == 3
        target.flush()
        assert {hit.id for hit in target.search(ANN, "twice", 9)} == set(ids[:2])
        assert target.delete(ANN, ids[:1]) == 1
        assert target.get(ANN, ids) == [None, "twice", None]

    def test_a_search_by_vector_is_the_search_by_its_text(self, target: Target) -> None:
        self.needs("vector_queries")
        target.add([Item(ANN, state) for state in agent_states(50, seed=4)])
        target.flush()
        query = agent_states(1, seed=5)[0]
        by_vector = target.search_vector(ANN, target.embed([query])[0], 10)
        by_content = target.search(ANN, query, 10)
        assert [hit.content for hit in by_vector] == [hit.content for hit in by_content]
        assert np.allclose([hit.score for hit in by_vector], [hit.score for hit in by_content], atol=1e-5)

    def test_updates_and_deletes_survive_the_end_of_the_process(
        self, open_target: OpenTarget, tmp_path: Path
    ) -> None:
        program = """
        import json, os, signal, sys
        from pathlib import Path
        from memory.benchmarking.targets import load_target
        from memory.benchmarking.targets.base import Item
        target = load_target(sys.argv[1])()
        target.open(Path(sys.argv[2]))
        ids = target.add([Item("ann", text) for text in json.loads(sys.argv[3])])
        target.delete("ann", ids[1:2])
        target.update("ann", ids[2], "the pump needs repair")
        print(json.dumps(ids), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
        if self.kind.capabilities.durability == "ram":
            pytest.skip(f"{self.kind.name} says that its writes survive nothing")
        folder = tmp_path / "store"
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), self.name, str(folder), json.dumps(THINGS)],
            env=surroundings(), capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr
        ids = json.loads(done.stdout)
        target = open_target()
        assert target.get(ANN, ids) == [THINGS[0], None, "the pump needs repair"]
        target.flush()
        assert {hit.id for hit in target.search(ANN, THINGS[1], 9)} == {ids[0], ids[2]}
        assert target.search(ANN, "the pump needs repair", 1)[0].id == ids[2]

    def test_a_store_is_used_after_maintenance_and_after_opening_it_again(
        self, open_target: OpenTarget
    ) -> None:
        target = open_target()
        ids = target.add([Item(ANN, content) for content in CONTENTS])
        target.delete(ANN, ids[:1])
        target.maintain()
        more = target.add([Item(ANN, text) for text in THINGS])
        target.close()
        again = open_target()
        again.maintain()
        again.flush()
        assert again.get(ANN, [*ids, *more]) == [None, *CONTENTS[1:], *THINGS]
        assert again.search(ANN, THINGS[0], 1)[0].id == more[0]
        assert again.delete_all(ANN) == len(CONTENTS) - 1 + len(THINGS)
        assert again.search(ANN, THINGS[0], 9) == []
