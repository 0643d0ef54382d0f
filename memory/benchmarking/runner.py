"""Discovers benchmarks, plans a run from a configuration, and executes it.

    runner = BenchmarkRunner(BenchmarkConfig(profile="quick"))
    finished = runner.run_category("storage")        # each round in a fresh process, saved in a folder

It also times your own functions in this process:

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
from memory.benchmarking.model.files import find_run, read_result, read_run, run_folders
from memory.benchmarking.model.paths import NO_FIGURES
from memory.benchmarking.model.records import Case, Run
from memory.benchmarking.run.discovery import BenchmarkCatalog, discover
from memory.benchmarking.run.execution import Execution, Listener, new_run, resumable_run
from memory.benchmarking.run.plan import make_cases


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended: its folder, and its record as in `run.json`."""

    folder: Path
    run: Run
    interrupted: bool = False
    """Whether the user stopped it."""

    @property
    def succeeded(self) -> bool:
        """Whether every round gave its figures."""
        return self.run.status == "complete"


class BenchmarkRunner(FunctionSuite):
    """Runs benchmarks, each round in a fresh process, or functions added with `add_benchmark`.

    Args:
        config: profile, targets, rounds and sizes; the defaults of `BenchmarkConfig` without it.
        name: the name of the report of added functions.
        paths: your own benchmark files or folders, in addition to the installed benchmarks.
        catalog: the benchmarks, if they are already discovered; then `paths` is not used.
        workers: how many rounds run at the same time; above 1, times are not used for verdicts.
        listener: called as the run progresses.
    """

    def __init__(
        self,
        config: BenchmarkConfig | None = None,
        *,
        name: str = "benchmarks",
        paths: Iterable[str | Path] = (),
        catalog: BenchmarkCatalog | None = None,
        workers: int = 1,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(name)
        if workers < 1:
            raise InvalidBenchmarkConfig(f"workers is {workers}: use a whole number ≥ 1")
        self.config = config or BenchmarkConfig()
        self.workers = workers
        self._paths = tuple(paths)
        self._catalog = catalog
        self.listener = listener

    @cached_property
    def found(self) -> BenchmarkCatalog:
        """All benchmarks; those from outside the package are added to the configuration."""
        found = self._catalog or discover(self._paths)
        for benchmark in found.benchmarks:
            self.config.add_benchmark(benchmark)
        return found

    def plan(
        self,
        categories: Sequence[str] = (),
        benchmarks: Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
    ) -> list[Case]:
        """Return the cases that would run.

        Args:
            categories: only these; all by default.
            benchmarks: only these, as `name` or `category.name`; all by default.
            params: parameters that replace those of the configuration.
        """
        return make_cases(self.found.select(categories, benchmarks), self.config, params)

    def run_all(self) -> FinishedRun:
        """Run every benchmark."""
        return self.run_cases(self.plan())

    def run_category(self, category: str) -> FinishedRun:
        """Run the benchmarks of one category."""
        return self.run_cases(self.plan([category]))

    def run_benchmark(self, category: str, benchmark: str, **params: Any) -> FinishedRun:
        """Run one benchmark; `params` replace its parameters of the configuration."""
        return self.run_cases(self.plan([category], [benchmark], params))

    def run_cases(self, cases: Sequence[Case]) -> FinishedRun:
        """Run planned cases; results go to a new folder in the configuration's `output_dir`.

        Raises `NothingMeasured` if no round gave a figure, unless every benchmark only returned none.
        """
        return self._execute(*new_run(self.config, cases, workers=self.workers))

    def resume(self, run_id: str = "latest") -> FinishedRun:
        """Run the missing rounds of a previous run, with the settings it was started with.

        `run_id` is its id or a part of it; "latest" is the latest run that is not complete.
        """
        output_dir = Path(self.config.output_dir)
        folder = (_latest_unfinished(output_dir) if run_id == "latest" else None) or find_run(
            output_dir, run_id
        )
        return self._execute(folder, resumable_run(folder))

    def _execute(self, folder: Path, run: Run) -> FinishedRun:
        execution = Execution(folder, run, self.listener)
        finished = execution.execute()
        measured = any(ref.headline for ref in finished.results)
        if not measured and not execution.interrupted:
            reasons = _reasons_for_nothing(folder, finished)
            if reasons != {NO_FIGURES}:  # that alone is a warning of the summary
                why = "; ".join(sorted(reasons))
                raise NothingMeasured(f"no round gave a figure: {why} (see {folder})")
        return FinishedRun(folder, finished, execution.interrupted)


def _reasons_for_nothing(folder: Path, run: Run) -> set[str]:
    """Return why a run has no figures: messages of failed rounds, and reasons of what is not available."""
    reasons = {failure.message for failure in run.failures}
    for ref in run.results:
        reasons.update(read_result(folder / ref.file).metadata.get("not_available", {}).values())
    return reasons


def _latest_unfinished(output_dir: Path) -> Path | None:
    for folder in reversed(run_folders(output_dir)):
        with suppress(BenchmarkError):  # a damaged run can't be resumed
            if read_run(folder).status != "complete":
                return folder
    return None
