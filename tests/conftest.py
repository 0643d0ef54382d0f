"""Fixtures of all tests: memories in a temporary file, with a manual clock."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from chromium import NO_BROWSER
from postgres_servers import MISSING, Server, programs, running_server

from memory import AgentMemorySystem, ManualClock, MemoryConfig

pytest.register_assert_rewrite("conformance")

SERVER_URL = os.environ.get("AGENTMEMORY_TEST_URL")
"""The URL of a PostgreSQL server on which the tests run instead of in files: `make test-postgres`."""

# A shell starts background jobs with SIGINT ignored, and child processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if SERVER_URL else ():
        if item.get_closest_marker("reads_the_file"):
            item.add_marker(pytest.mark.skip(reason="the memory is on a server"))


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from the modules and tests.

    Each measurement collects garbage first. Among the objects of thousands of tests that takes a tenth of a
    second, and a test can make hundreds of measurements.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_memory(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., AgentMemorySystem]]:
    """Return a function that opens a memory in the test's own file, with settings of MemoryConfig:
    open_memory(stm={"memory_limit": 5}, durability="disk", path=":memory:")."""
    opened: list[AgentMemorySystem] = []

    place: str | Path = tmp_path / "memory.db"
    if SERVER_URL:
        place = f"{SERVER_URL}&schema=t_{uuid4().hex}"

    def open_one(
        *,
        path: str | Path = place,
        stm: dict[str, Any] | None = None,
        im: dict[str, Any] | None = None,
        ltm: dict[str, Any] | None = None,
        embedder: Any = None,
        **settings: Any,
    ) -> AgentMemorySystem:
        config = MemoryConfig(**{"maintenance": "manual", **settings})
        config.ltm_config.db_path = str(path)
        for part, fields in (
            (config.stm_config, stm),
            (config.im_config, im),
            (config.ltm_config, ltm),
        ):
            for name, value in (fields or {}).items():
                setattr(part, name, value)
        system = AgentMemorySystem(config, clock=clock, embedder=embedder)
        opened.append(system)
        return system

    yield open_one
    for system in opened:
        system.close()


@pytest.fixture
def memory(open_memory: Callable[..., AgentMemorySystem]) -> AgentMemorySystem:
    return open_memory()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Start one server for all tests of a run; `make test-postgres` chooses it."""
    version = os.environ.get("AGENTMEMORY_TEST_POSTGRES", "wheel")
    if programs(version) is None:
        pytest.fail(f"{MISSING} (wanted: {version})")
    with running_server(version) as started:
        yield started


@pytest.fixture
def url(server: Server) -> str:
    """Return the URL of a new, empty schema on that server."""
    return server.url(f"t_{uuid4().hex}")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List at the end the tests that did not run because there is no browser."""
    reasons = {report.nodeid: report.longrepr for report in terminalreporter.getreports("skipped")}
    missing = {
        name: reason[2]
        for name, reason in reasons.items()
        if isinstance(reason, tuple) and NO_BROWSER in reason[2]
    }
    if missing:
        terminalreporter.section("the browser tests were NOT run", yellow=True, bold=True)
        for name in missing:
            terminalreporter.write_line(name)
        why = next(iter(missing.values())).removeprefix("Skipped: ")
        terminalreporter.write_line(
            f"{len(missing)} tests: {why}. Install Chromium or Chrome and run them again; "
            "as root on Debian `make test` installs it."
        )
