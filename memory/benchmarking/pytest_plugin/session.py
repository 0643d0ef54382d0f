"""A pytest session with `--membench`: repeats tests in fresh processes, and writes a run of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memory.benchmarking.metrics import Declaration
from memory.benchmarking.model.aggregate import make_result, params_digest
from memory.benchmarking.model.answers import ANSWERS, answers_path, write_answers
from memory.benchmarking.model.environment import describe
from memory.benchmarking.model.files import (
    encode_json,
    new_run_folder,
    samples_path,
    write_run,
    write_samples,
    write_whole,
)
from memory.benchmarking.model.records import Case, Failure, ResultRef, Round, Run
from memory.benchmarking.model.rounds_file import rounds_path, write_rounds
from memory.benchmarking.run.execution import now_text

TARGET = "pytest"
SUITE = "pytest"
_PATIENCE = 600.0
"""The most seconds of one process."""


class MeasuringSession:
    """Hooks of a session with `--membench`."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._used: set[str] = set()
        """The tests that asked for the fixture, by node id."""
        self._rounds: dict[str, list[Round]] = {}
        self._failures: dict[str, list[str]] = {}
        self._started_at = now_text()
        self.folder: Path | None = None

    def uses_fixture(self, item: pytest.Item) -> None:
        """Note that a test uses the fixture."""
        self._used.add(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """After a test has passed, measure it in fresh processes."""
        if report.when == "teardown" and report.passed and report.nodeid in self._used:
            self._used.discard(report.nodeid)
            for number in range(int(self._config.getoption("--membench-rounds"))):
                self._measure(report.nodeid, number)
        elif report.failed:
            self._used.discard(report.nodeid)

    def _measure(self, nodeid: str, number: int) -> None:
        config = self._config
        with tempfile.TemporaryDirectory(prefix="membench-pytest-") as scratch:
            answer = Path(scratch) / "round.msgpack"
            command = [
                sys.executable, "-m", "pytest", nodeid, "-q", "-p", "no:cacheprovider",
                "--membench-child", str(answer), "--membench-number", str(number),
                "--membench-seconds", str(config.getoption("--membench-seconds")),
                *(["-c", str(config.inipath)] if config.inipath else []),
                *(["-n", "0"] if config.pluginmanager.hasplugin("xdist") else []),
                *(["--no-cov"] if config.pluginmanager.hasplugin("pytest_cov") else []),
            ]  # fmt: skip
            try:
                done = subprocess.run(
                    command, cwd=config.rootpath, capture_output=True, text=True, timeout=_PATIENCE
                )
            except subprocess.TimeoutExpired:
                self._failures.setdefault(nodeid, []).append(
                    f"round {number}: took more than {_PATIENCE:g} s"
                )
                return
            if done.returncode or not answer.exists():
                last = (done.stdout.strip().splitlines() or ["no output"])[-1]
                self._failures.setdefault(nodeid, []).append(f"round {number}: {last}")
                return
            found = msgspec.msgpack.decode(answer.read_bytes(), type=Round)
            self._rounds.setdefault(nodeid, []).append(found)

    def pytest_sessionfinish(self) -> None:
        """Write the run, if something was measured."""
        if self._rounds or self._failures:
            self.folder = _write(self._config, self._started_at, self._rounds, self._failures)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say where the results are."""
        terminalreporter.section("membench")
        if self.folder is None:
            terminalreporter.line("no test that passed uses the fixture `membench`: nothing was measured")
            return
        count = len(self._rounds)
        terminalreporter.line(f"{count} test{'s' if count != 1 else ''} measured: {self.folder}")
        terminalreporter.line(f"more: membench results show {self.folder}")
        for nodeid, messages in self._failures.items():
            for message in messages:
                terminalreporter.line(f"not measured: {nodeid}, {message}")


def _write(
    config: pytest.Config,
    started_at: str,
    rounds: dict[str, list[Round]],
    failures: dict[str, list[str]],
) -> Path:
    output_dir = Path(config.invocation_params.dir) / str(config.getoption("--membench-dir"))
    folder = new_run_folder(output_dir)
    cases = _cases({*rounds, *failures})
    wanted = int(config.getoption("--membench-rounds"))
    failed = [
        Failure(case=cases[nodeid].key, round=0, reason="exception", message=message)
        for nodeid, messages in failures.items()
        for message in messages
    ]
    run = Run(
        id=folder.name,
        status="failed" if failed else "complete",
        started_at=started_at,
        profile="pytest",
        seed=0,
        rounds=wanted,
        seconds=float(config.getoption("--membench-seconds")),
        parallel=1,
        targets=[TARGET],
        cases=list(cases.values()),
        environment=describe(output_dir, {"current folder": [Path.cwd()]}),
        config={},
        command=" ".join(["pytest", *map(str, config.invocation_params.args)]),
        folder=str(config.invocation_params.dir),
        finished_at=now_text(),
        failures=failed,
        suite=SUITE,
    )
    run.results = [_save(folder, run, cases[nodeid], found) for nodeid, found in rounds.items()]
    write_run(folder, run)
    return folder


def _cases(nodeids: set[str]) -> dict[str, Case]:
    """Return a case for each test: the module is the category, the function is the benchmark."""
    found: dict[str, Case] = {}
    for nodeid in sorted(nodeids):
        file, _, rest = nodeid.partition("::")
        category = re.sub(r"\W+", "_", Path(file).stem.removeprefix("test_")) or "tests"
        function, bracket, parameters = rest.replace("::", ".").partition("[")
        name = re.sub(
            r"[^\w.]+", "_", function.removeprefix("test_") + (f"_{parameters}" if bracket else "")
        )
        params = {"id": parameters.rstrip("]")} if bracket else {}
        found[nodeid] = Case(
            category=category,
            benchmark=name.strip("_") or "test",
            target=TARGET,
            params=params,
            source=file,
        )
    return found


def _save(folder: Path, run: Run, case: Case, rounds: list[Round]) -> ResultRef:
    timestamp = run.id[:15]
    path = folder / case.category / f"{case.benchmark}_{timestamp}.json"
    metadata: dict[str, Any] = {"profile": run.profile, "run_id": run.id, "parallel": False, "failures": []}
    if any(one.answers for one in rounds):
        metadata[ANSWERS] = answers_path(path).name
        write_answers(answers_path(path), rounds)
    declaration = Declaration()
    result = make_result(case, rounds, declaration, timestamp, metadata)
    write_samples(samples_path(path), rounds)
    write_rounds(rounds_path(path), rounds, declaration)
    write_whole(path, encode_json(result))
    return ResultRef(
        category=case.category,
        benchmark=case.benchmark,
        target=case.target,
        params_digest=params_digest(case),
        file=f"{case.category}/{path.name}",
        rounds=len(rounds),
        headline=result.metadata["headline"],
        seconds=sum(one.seconds for one in rounds) / len(rounds),
    )
