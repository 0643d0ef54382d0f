"""The engine: discovers benchmarks, plans what the configuration asks for, and carries it out.

    runner = BenchmarkRunner(BenchmarkConfig(profile="quick"))
    finished = runner.run_category("storage")        # each round in a fresh process, saved in a folder

and, for functions of your own in this process, the small interface:

    runner = BenchmarkRunner()
    runner.add_benchmark("sort", lambda: sorted(data), iterations=100)
    runner.run(); runner.print_summary()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memory.benchmarking.config import BenchmarkConfig
from memory.benchmarking.errors import BenchmarkError, InvalidBenchmarkConfig, NothingMeasured
from memory.benchmarking.framework import FunctionSuite
from memory.benchmarking.model.files import find_run, read_run, run_folders
from memory.benchmarking.model.records import Case, Run
from memory.benchmarking.run.discovery import Found, discover
from memory.benchmarking.run.execution import Execution, Listener, new_run, old_run
from memory.benchmarking.run.plan import make_cases


@dataclass(frozen=True)
class FinishedRun:
    """What a run left behind."""

    folder: Path
    run: Run
    interrupted: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether every round gave its figures."""
        return self.run.status == "complete"


class BenchmarkRunner(FunctionSuite):
    """Runs what it discovers, each round in a fresh process, or functions that are added by hand."""

    def __init__(
        self,
        config: BenchmarkConfig | None = None,
        *,
        name: str = "benchmarks",
        paths: Iterable[str | Path] = (),
        workers: int = 1,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(name)
        if workers < 1:
            raise InvalidBenchmarkConfig(f"workers is {workers}: use a whole number ≥ 1")
        self.config = config or BenchmarkConfig()
        self.workers = workers
        self._paths = tuple(paths)
        self.listener = listener

    @cached_property
    def found(self) -> Found:
        """All benchmarks there are; the configuration gets to know those from outside of this package."""
        found = discover(self._paths)
        for benchmark in found.benchmarks:
            self.config.know(benchmark.category, benchmark.name, benchmark.kinds)
        return found

    def plan(
        self,
        categories: Sequence[str] = (),
        benchmarks: Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
    ) -> list[Case]:
        """The cases that would run."""
        return make_cases(self.found.select(categories, benchmarks), self.config, params)

    def run_all(self) -> FinishedRun:
        """Every benchmark there is."""
        return self.run_cases(self.plan())

    def run_category(self, category: str) -> FinishedRun:
        return self.run_cases(self.plan([category]))

    def run_benchmark(self, category: str, benchmark: str, **params: Any) -> FinishedRun:
        return self.run_cases(self.plan([category], [benchmark], params))

    def run_cases(self, cases: Sequence[Case]) -> FinishedRun:
        """Carry out a plan in a new folder below the configuration's `output_dir`."""
        return self._carry_out(*new_run(self.config, cases, workers=self.workers))

    def resume(self, run_id: str = "latest") -> FinishedRun:
        """Run what an earlier run has not finished, under the settings that it began with.

        The latest is the latest of those that are not complete.
        """
        output_dir = Path(self.config.output_dir)
        folder = (_latest_unfinished(output_dir) if run_id == "latest" else None) or find_run(
            output_dir, run_id
        )
        return self._carry_out(folder, old_run(folder))

    def _carry_out(self, folder: Path, run: Run) -> FinishedRun:
        execution = Execution(folder, run, self.listener)
        finished = execution.carry_out()
        measured = any(ref.headline for ref in finished.results)
        if not measured and not execution.interrupted:
            reasons = {failure.message for failure in finished.failures}
            raise NothingMeasured(f"no round gave a figure: {'; '.join(sorted(reasons))} (see {folder})")
        return FinishedRun(folder, finished, execution.interrupted)


def _latest_unfinished(output_dir: Path) -> Path | None:
    for folder in reversed(run_folders(output_dir)):
        with suppress(BenchmarkError):  # a damaged one can't be resumed
            if read_run(folder).status != "complete":
                return folder
    return None
