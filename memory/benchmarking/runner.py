"""Discovers benchmarks, plans a run from a configuration, and executes it.

    runner = BenchmarkRunner(BenchmarkConfig(profile="quick"))
    finished = runner.run_category("storage")        # each round in a fresh process, saved in a folder

It also times your own functions in this process:

    runner = BenchmarkRunner("sorting")
    runner.add_benchmark("sort", lambda: sorted(data), iterations=100)
    runner.run(); runner.print_summary()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.config import BenchmarkConfig
from memory.benchmarking.errors import BenchmarkError, InvalidBenchmarkConfig, NothingMeasured
from memory.benchmarking.framework import FunctionSuite
from memory.benchmarking.model.environment import available_cores
from memory.benchmarking.model.files import find_run, read_result_of, read_run, run_folders
from memory.benchmarking.model.paths import NO_FIGURES
from memory.benchmarking.model.records import Case, Run
from memory.benchmarking.results import BenchmarkResults, same_argument
from memory.benchmarking.run.discovery import BenchmarkCatalog, discover
from memory.benchmarking.run.execution import Execution, Listener, new_run, resumable_run
from memory.benchmarking.run.executors.base import LOCAL, check_executor
from memory.benchmarking.run.plan import make_cases

if TYPE_CHECKING:
    from memory.benchmarking.run.until_decided import UntilDecided


@dataclass(frozen=True)
class FinishedRun(Mapping[str, list[Path]]):
    """A run that has ended: its folder, and its record as in `run.json`.

    As a mapping it holds the result files of each category: `finished["storage"]`.
    """

    folder: Path
    run: Run
    interrupted: bool = False
    """Whether the user stopped it."""

    @property
    def succeeded(self) -> bool:
        """Whether every round gave its figures."""
        return self.run.status == "complete"

    @property
    def paths(self) -> list[Path]:
        """All result files."""
        return [self.folder / ref.file for ref in self.run.results]

    def __getitem__(self, category: str) -> list[Path]:
        files = [self.folder / ref.file for ref in self.run.results if ref.category == category]
        if not files:
            raise KeyError(category)
        return files

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(ref.category for ref in self.run.results))

    def __len__(self) -> int:
        return len({ref.category for ref in self.run.results})

    def __bool__(self) -> bool:
        return True  # even if the run has no result


class BenchmarkRunner(FunctionSuite):
    """Runs benchmarks, each round in a fresh process, or functions added with `add_benchmark`.

    Args:
        config: profile, targets, rounds and sizes; the defaults of `BenchmarkConfig` without it. A text is
            the name of the report of added functions: `BenchmarkRunner("agent_execution")`.
        results_manager: the results to add to; its folder replaces the configuration's `output_dir`.
        name: the name of the report of added functions.
        paths: your own benchmark files or folders, in addition to the installed benchmarks.
        catalog: the benchmarks, if they are already discovered; then `paths` is not used.
        workers: how many rounds run at the same time; above 1, times are not used for verdicts.
        listener: called as the run progresses.
        executor: what runs the rounds: "local", "ray" or "ray=ADDRESS" (docs/cluster.md).
        generators: how many load generators on other hosts a round gets; only with Ray.
    """

    def __init__(
        self,
        config: BenchmarkConfig | str | None = None,
        results_manager: BenchmarkResults | None = None,
        *,
        name: str | None = None,
        paths: Iterable[str | Path] = (),
        catalog: BenchmarkCatalog | None = None,
        workers: int = 1,
        listener: Listener | None = None,
        executor: str = LOCAL,
        generators: int = 0,
    ) -> None:
        if isinstance(config, str):
            if name is not None:
                raise InvalidBenchmarkConfig(f"the report has two names, {config!r} and {name!r}: pass one")
            config, name = None, config
        super().__init__("benchmarks" if name is None else name)
        _check_workers("workers", workers)
        self.config = config or BenchmarkConfig()
        self.workers = workers
        check_executor(executor, workers, generators)
        self.executor = executor
        self.generators = generators
        self._results_manager: BenchmarkResults | None = None
        if results_manager is not None:
            self.results_manager = results_manager
        self._paths = tuple(paths)
        self._catalog = catalog
        self.listener = listener
        self.command: str | None = None
        """A shell command that repeats the run; the command line of this process by default."""
        self.suite = ""
        """What planned the run: see `Run.suite`."""
        self.until_decided: UntilDecided | None = None
        """If set, the cases that it finds undecided get more rounds."""

    @cached_property
    def found(self) -> BenchmarkCatalog:
        """All benchmarks; those from outside the package are added to the configuration."""
        found = self._catalog or discover(self._paths)
        for benchmark in found.benchmarks:
            self.config.add_benchmark(benchmark)
        return found

    @property
    def results_manager(self) -> BenchmarkResults:
        """The results in the configuration's `output_dir`; setting it also sets the folder."""
        manager = self._results_manager
        if manager is None or manager.output_dir != Path(self.config.output_dir):
            self._results_manager = manager = BenchmarkResults(self.config.output_dir)
        return manager

    @results_manager.setter
    def results_manager(self, manager: BenchmarkResults) -> None:
        self.config.output_dir = str(manager.output_dir)
        self._results_manager = manager

    def discover_benchmarks(self, category: str | None = None) -> dict[str, dict[str, Callable[..., Any]]]:
        """Return the benchmark functions by category and name.

        Args:
            category: only this one; all by default. `UnknownName` if there is none of this name.
        """
        found: dict[str, dict[str, Callable[..., Any]]] = {}
        for benchmark in self.found.select([] if category is None else [category]):
            found.setdefault(benchmark.category, {})[benchmark.name] = benchmark.function
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
            params: parameters that replace those of the configuration: `{"num_samples": 50}` for every
                benchmark that has it, `{"storage": {"num_samples": 50}}` for those of a category.
        """
        # A node of a cluster installs what it lacks.
        return make_cases(
            self.found.select(categories, benchmarks), self.config, params, installed=self.executor == LOCAL
        )

    def run_all(
        self,
        params: Mapping[str, Any] | None = None,
        parallel_categories: bool = False,
        parallel_benchmarks: bool = False,
        max_workers: int | None = None,
    ) -> FinishedRun:
        """Run every benchmark.

        Args:
            params: parameters by category; see `plan`.
            parallel_categories, parallel_benchmarks: if one is True, several rounds run at the same time,
                of any benchmarks; their times are not used for verdicts.
            max_workers: how many rounds then run at the same time; by default the number of cores.
        """
        workers = self._workers(parallel_categories or parallel_benchmarks, max_workers)
        return self.run_cases(self.plan(params=params), workers)

    def run_category(
        self,
        category: str,
        params: Mapping[str, Any] | None = None,
        parallel: bool = False,
        max_workers: int | None = None,
    ) -> FinishedRun:
        """Run the benchmarks of one category.

        Args:
            category: its name, as in `membench list`.
            params: parameters that replace those of the configuration.
            parallel, max_workers: whether several rounds run at the same time, and how many.
        """
        return self.run_cases(self.plan([category], params=params), self._workers(parallel, max_workers))

    def run_benchmark(
        self,
        category: str,
        benchmark: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        benchmark_name: str | None = None,
        **more_params: Any,
    ) -> FinishedRun:
        """Run one benchmark.

        Args:
            category: the category of the benchmark.
            benchmark: its name, without `benchmark_`.
            params: parameters that replace those of the configuration.
            benchmark_name: another name for `benchmark`.
            more_params: the same as `params`, one argument each.
        """
        name = same_argument("benchmark", benchmark, "benchmark_name", benchmark_name)
        if name is None:
            raise InvalidBenchmarkConfig("run_benchmark needs the name of a benchmark: pass benchmark")
        return self.run_cases(self.plan([category], [name], {**(params or {}), **more_params}))

    def _workers(self, parallel: bool, most: int | None) -> int:
        if most is not None:
            _check_workers("max_workers", most)
        if not parallel:
            return self.workers
        return most or max(self.workers, available_cores())

    def run_cases(self, cases: Sequence[Case], workers: int | None = None) -> FinishedRun:
        """Run planned cases; results go to a new folder in the configuration's `output_dir`.

        Args:
            cases: as `plan` returns them.
            workers: how many rounds run at the same time; the runner's own by default.

        Raises `NothingMeasured` if no round gave a figure, unless every round succeeded and returned none.
        """
        return self._execute(
            *new_run(
                self.config,
                cases,
                workers=workers or self.workers,
                command=self.command,
                executor=self.executor,
                generators=self.generators,
                suite=self.suite,
            )
        )

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
        execution = Execution(folder, run, self.listener, self.until_decided)
        finished = execution.execute()
        measured = any(ref.headline for ref in finished.results)
        if not measured and not execution.interrupted:
            reasons = _reasons_for_nothing(folder, finished)
            if reasons != {NO_FIGURES}:  # for this reason alone, the summary prints a warning instead
                why = "; ".join(sorted(reasons))
                raise NothingMeasured(f"no round gave a figure: {why} (see {folder})")
        return FinishedRun(folder, finished, execution.interrupted)


def _reasons_for_nothing(folder: Path, run: Run) -> set[str]:
    """Return why a run has no figures: messages of failed rounds, and reasons of what is not available."""
    reasons = {failure.message for failure in run.failures}
    for ref in run.results:
        reasons.update(read_result_of(folder, ref).metadata.get("not_available", {}).values())
    return reasons


def _check_workers(name: str, workers: int) -> None:
    if workers < 1:
        raise InvalidBenchmarkConfig(f"{name} is {workers}: use a whole number ≥ 1")


def _latest_unfinished(output_dir: Path) -> Path | None:
    for folder in reversed(run_folders(output_dir)):
        with suppress(BenchmarkError):  # a damaged run can't be resumed
            if read_run(folder).status != "complete":
                return folder
    return None
