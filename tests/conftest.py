"""Fixtures of all tests: memories in a temporary file, with a manual clock."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import NO_BROWSER
from system_not_installed import NOT_INSTALLED

from memory import AgentMemorySystem, ManualClock, MemoryConfig

pytest.register_assert_rewrite("conformance")

# A shell starts background jobs with SIGINT ignored, and child processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_memory(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., AgentMemorySystem]]:
    """Return a function that opens a memory in the test's own file, with settings of MemoryConfig:
    open_memory(stm={"memory_limit": 5}, durability="disk", path=":memory:")."""
    opened: list[AgentMemorySystem] = []

    def open_one(
        *,
        path: str | Path = tmp_path / "memory.db",
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


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List at the end the tests that did not run for lack of a browser or of a system under test."""
    reasons = {
        report.nodeid: report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    }
    missing = {name: reason for name, reason in reasons.items() if NO_BROWSER in reason}
    if missing:
        terminalreporter.section("the browser tests were NOT run", yellow=True, bold=True)
        for name in missing:
            terminalreporter.write_line(name)
        why = next(iter(missing.values()))
        terminalreporter.write_line(
            f"{len(missing)} tests: {why}. Install Chromium or Chrome and run them again; "
            "as root on Debian `make test` installs it."
        )
    systems = Counter(reason for reason in reasons.values() if reason.startswith(NOT_INSTALLED))
    if systems:
        terminalreporter.section("the tests of these systems were NOT run", yellow=True, bold=True)
        for reason, tests in sorted(systems.items()):
            terminalreporter.write_line(f"{tests} tests: {reason.removeprefix(NOT_INSTALLED)}")
