"""The pytest plugin: `def test_read(membench): …` gives records of the same form as a run of membench.

Without `--membench`, the fixture calls each operation once, so that an ordinary test session stays fast.
With it, every test that passed is repeated in fresh processes, one a round, and the session writes a run.

pytest loads this module in every session of an environment that has the package. So it imports nothing but
the standard library until it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from memory.benchmarking.pytest_plugin.recording import Recorder
    from memory.benchmarking.pytest_plugin.session import MeasuringSession

_ROUNDS = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("membench", "membench: measure tests that use the fixture `membench`")
    group.addoption(
        "--membench", action="store_true", help="measure them in fresh processes and save a run"
    )
    text = f"how many fresh processes measure each test (default {_ROUNDS})"
    group.addoption("--membench-rounds", type=int, default=_ROUNDS, metavar="N", help=text)
    text = "about how long one timing measures (default 0.2)"
    group.addoption("--membench-seconds", type=float, default=0.2, metavar="S", help=text)
    text = "folder of the results (default: benchmark_results)"
    group.addoption("--membench-dir", default="benchmark_results", metavar="DIR", help=text)
    # How the plugin starts its own processes.
    group.addoption("--membench-child", default="", metavar="FILE", help="used by the plugin itself")
    group.addoption("--membench-number", type=int, default=0, metavar="N", help="used by the plugin itself")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--membench") and not hasattr(config, "workerinput"):
        from memory.benchmarking.pytest_plugin.session import MeasuringSession

        if config.getoption("--membench-rounds") < 1:
            raise pytest.UsageError("--membench-rounds has to be at least 1")
        if config.getoption("--membench-seconds") <= 0:
            raise pytest.UsageError("--membench-seconds has to be above 0")
        config.pluginmanager.register(MeasuringSession(config), "membench-session")


@pytest.fixture
def membench(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """Times operations and records figures; see `Recorder`."""
    from memory.benchmarking.pytest_plugin.recording import Recorder

    config = request.config
    child = str(config.getoption("--membench-child"))
    number = int(config.getoption("--membench-number"))
    recorder = Recorder(
        measures=bool(child), number=number, seconds=float(config.getoption("--membench-seconds"))
    )
    session: MeasuringSession | Any = config.pluginmanager.get_plugin("membench-session")
    if session is not None:
        session.uses_fixture(request.node)
    yield recorder
    if child:
        recorder.write(child)
