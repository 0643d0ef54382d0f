"""Save, find, compare, plot, export and report the results on disk.

    results = BenchmarkResults("benchmark_results")
    files = results.list_results(category="storage")
    table = results.compare_results(files)

pandas and matplotlib are imported only by the methods that need them.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from memory.benchmarking.errors import (
    BenchmarkError,
    DamagedResult,
    InvalidBenchmarkConfig,
    InvalidResult,
    NothingMeasured,
    UnknownName,
    nearest,
    needs,
)
from memory.benchmarking.metrics import metric_of
from memory.benchmarking.model.files import (
    DEFAULT_FOLDER,
    RUN_FILE,
    ResultFile,
    encode_json,
    find_run,
    read_result,
    read_run,
    result_files,
    run_folders,
    timestamp_now,
    write_new,
    write_whole,
)
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import check_count, flatten, leaf_of, plain
from memory.benchmarking.model.records import FORMAT, Figure, Result, Run, Unit
from memory.benchmarking.model.tables import columns_of, rows, time_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot
    from pandas import DataFrame

    from memory.benchmarking.verdicts.records import Comparison

T = TypeVar("T")
Ref = ResultFile | os.PathLike[str] | str
"""A result: what `list_results` returns, or the path of its file, relative to `output_dir` or not."""
PLOTS = "plots"
REPORTS = "reports"
"""The folders inside `output_dir` for plots and pages."""
_TIMESTAMP = re.compile(r"\d{8}_\d{6}")
_PLOT_FORMATS = ("png", "svg", "pdf")


class BenchmarkResults:
    """The results below one folder.

    Most methods take `refs`: results as `list_results` returns them, paths of result files, or run ids.
    Files that can't be read are left out with a warning, and listed in `problems`.

    Args:
        output_dir: the folder; `benchmark_results` by default.
        results_dir: another name for `output_dir`.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        *,
        results_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        folder = same_argument(
            "output_dir",
            None if output_dir is None else os.fspath(output_dir),
            "results_dir",
            None if results_dir is None else os.fspath(results_dir),
        )
        self.output_dir = Path(DEFAULT_FOLDER if folder is None else folder)
        if self.output_dir.is_file():
            raise InvalidBenchmarkConfig(f"{self.output_dir} is a file: name the folder with the results")
        self.problems: list[DamagedResult] = []
        """The files that the last call could not read."""

    @property
    def results_dir(self) -> Path:
        """Another name for `output_dir`."""
        return self.output_dir

    # -- one result -----------------------------------------------------------------------------

    def save_result(
        self,
        category: str,
        benchmark: str | None = None,
        results: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: str | None = None,
        *,
        benchmark_name: str | None = None,
    ) -> ResultFile:
        """Save a result outside of any run, as `<category>/<benchmark>_<timestamp>.json`.

        - `category`, `benchmark`: their names; `benchmark_name` is another name for `benchmark`.
        - `results`: the measured values, as nested dictionaries; numbers become figures.
        - `metadata`: anything else to store with them, such as the parameters.
        - `timestamp`: like `20250323_145623`; by default now.
        """
        category = _check_name("category", category)
        benchmark = same_argument("benchmark", benchmark, "benchmark_name", benchmark_name)
        benchmark = _check_name("benchmark", benchmark)
        timestamp = timestamp_now() if timestamp is None else timestamp
        if (
            not isinstance(timestamp, str)
            or time_of(timestamp) is None
            or not _TIMESTAMP.fullmatch(timestamp)
        ):
            raise InvalidResult(f"timestamp {timestamp!r} is not a time: use the form '20250323_145623'")
        if not isinstance(results, Mapping) or not results:
            raise InvalidResult(f"results is {results!r:.60}: use a dictionary with at least one entry")
        not_available: dict[str, str] = {}
        tree = plain(results, not_available)
        details = plain(metadata or {}, {}, "metadata")
        if not_available:
            details["not_available"] = not_available
        values = flatten(tree)
        check_count(len(values))
        result = Result(
            benchmark=benchmark,
            category=category,
            timestamp=timestamp,
            results=tree,
            metadata=details,
            metrics={path: Figure(value=value) for path, value in values.items()},
            units=_units(values),
            format=FORMAT,
        )
        folder = self.output_dir / category
        path = write_new(folder, f"{benchmark}_{timestamp}", ".json", encode_json(result))
        return ResultFile(timestamp, path, category, benchmark, _run_id(path))

    def load_result(self, ref: Ref) -> Result:
        """Read one result, which can also be read as a dictionary: `result["results"]`.

        Numbers become figures if the file has no `metrics`.
        """
        return self._load(ref).result

    def list_results(
        self,
        category: str | None = None,
        benchmark: str | None = None,
        run: str | None = None,
        *,
        benchmark_name: str | None = None,
    ) -> list[ResultFile]:
        """List results, oldest first, by their file names: no file is opened.

        - `category`, `benchmark`: only results of these; `benchmark_name` is another name for `benchmark`.
        - `run`: only results of this run: its id, a unique part of its id, its folder, or `latest`.
        """
        benchmark = same_argument("benchmark", benchmark, "benchmark_name", benchmark_name)
        folder = self.output_dir if run is None else find_run(self.output_dir, run)
        return sorted(
            file
            for file in result_files(folder)
            if category in (None, file.category) and benchmark in (None, file.benchmark)
        )

    # -- several results ------------------------------------------------------------------------

    def find(self, ref: Ref) -> list[ResultFile]:
        """Return the result at a path, or all results of a run."""
        path = self._path(ref)
        if isinstance(ref, ResultFile):
            return [ref]
        if path.exists() and not path.is_dir():
            return [self._load(ref).file]
        name = os.fspath(ref)
        if not name.endswith(".json"):
            return self.list_results(run=name)
        raise UnknownName(f"there is no file {name}, here or in {self.output_dir}")

    def load_results(self, refs: Iterable[Ref]) -> list[LoadedResult]:
        """Read all results that can be read; `problems` lists the damaged files."""
        self.problems = []
        loaded = []
        for ref in [refs] if isinstance(refs, str | os.PathLike) else refs:
            try:
                loaded += [self._load(file) for file in self.find(ref)]
            except DamagedResult as problem:
                self.problems.append(problem)
        return loaded

    def run_of(self, file: ResultFile) -> Run | None:
        """Return the run of a result; None if it was saved with `save_result`."""
        return read_run(file.path.parent.parent) if file.run_id else None

    def runs_of(self, results: Iterable[LoadedResult]) -> dict[str, Run]:
        """Return the runs of results, by id; a damaged `run.json` is added to `problems`."""
        runs: dict[str, Run] = {}
        for file in {each.file.run_id: each.file for each in results if each.file.run_id}.values():
            try:
                run = self.run_of(file)
            except (DamagedResult, UnknownName) as problem:
                self.problems.append(DamagedResult(str(problem)))
                continue
            if run is not None:
                runs[file.run_id] = run
        return runs

    def compare_results(self, refs: Iterable[Ref]) -> DataFrame:
        """Return a table with one row for each figure; parameters such as batch_size are columns."""
        try:
            import pandas as pd
        except ImportError:
            raise needs("pandas", "bench", "comparing results") from None
        found = rows(self._load_or_warn(refs))
        columns, parameters = columns_of(found)
        frame = pd.DataFrame(found, columns=columns)
        types = dict.fromkeys(["value", "low", "high"], "float64")
        types |= dict.fromkeys(["rounds", "samples"], "int64")
        for name in parameters:
            whole = all(isinstance(row.get(name, 0), int) for row in found)
            types[name] = "Int64" if whole else "float64"
        return frame.astype({**types, "timestamp": "datetime64[s]"})

    def plot_comparison(self, refs: Iterable[Ref], metric: str, x_axis: str | None = None) -> Plot:
        """Plot a metric, with one line for each combination of the parameters that differ.

        - `metric`: the name of the metric, as in `p50_ms`.
        - `x_axis`: a parameter, `run_id` or `timestamp`; by default the parameter with the most values.
        """
        from memory.benchmarking.report.plots import plot

        return plot(self.compare_results(refs), metric, x_axis)

    def save_plot(
        self,
        fig: Plot,
        filename: str | os.PathLike[str],
        output_dir: str | os.PathLike[str] | None = None,
    ) -> Path:
        """Save a plot and return its path. `filename` ends in .png, .svg or .pdf; by default in .png.

        A relative name is a file in `output_dir`; by default in `plots` inside the results' folder.
        """
        path = (self.output_dir / PLOTS if output_dir is None else Path(output_dir)) / Path(filename)
        path = path if path.suffix else path.with_suffix(".png")
        kind = path.suffix[1:].lower()
        if kind not in _PLOT_FORMATS:
            raise InvalidBenchmarkConfig(
                f"{path.name} has an unknown format: use a name that ends in .png, .svg or .pdf"
            )
        try:
            from matplotlib import rc_context
        except ImportError:
            raise needs("matplotlib", "bench", "saving a plot") from None
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            # Letters that the font lacks are drawn as boxes; this needs no warning.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            # Publishers refuse Type 3 fonts, matplotlib's default in a PDF; 42 is TrueType.
            with rc_context({"pdf.fonttype": 42}):
                fig.savefig(buffer, format=kind, dpi=200)
        write_whole(path, buffer.getvalue())
        return path

    def generate_report(
        self,
        category: str | None = None,
        run: str | Iterable[str] | None = None,
        path: str | os.PathLike[str] | None = None,
        baseline: str | None = None,
        *,
        benchmark_name: str | None = None,
        output_dir: str | os.PathLike[str] | None = None,
    ) -> Path:
        """Write an HTML page of results and return its path.

        - `category`, `benchmark_name`: only results of these.
        - `run`: the runs to show; by default the newest one, and all results saved with `save_result`.
        - `path`: the file to write; by default one in `output_dir`.
        - `output_dir`: the page's folder; by default `reports` inside the results' folder.
        - `baseline`: a run or the name of a baseline, to compare the newest of the runs with.
        """
        from memory.benchmarking.report.page import page

        named = None if run is None else [run] if isinstance(run, str) else list(run)
        files, left_out = self._for_report(category, benchmark_name, named)
        # A run that is named is shown even if all of its rounds failed.
        folders = [find_run(self.output_dir, name) for name in named or ()]
        runs = {folder.name: read_run(folder) for folder in folders}
        if not files and not any(each.failures for each in runs.values()):
            raise self.nothing_of(category, benchmark_name)
        comparison = None
        if baseline is not None:
            base, comparison = self._against(baseline, files, category)
            files += base
            if left_out and any(file.path.parents[2] == self.output_dir for file in base):
                left_out -= 1  # the baseline is one of the older runs, and is on the page
        loaded = self._load_or_warn(files)
        runs |= self.runs_of(each for each in loaded if each.file.run_id not in runs)
        text = page(
            loaded,
            runs,
            category=category,
            problems=self.problems,
            older_runs=left_out,
            baseline=comparison,
        )
        return self._write_page(text, path, [category, benchmark_name, *(named or ())], output_dir)

    def compare_report(
        self,
        names: Iterable[str],
        category: str | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> Path:
        """Write an HTML page that compares runs, baselines or targets, and return its path.

        - `names`: two or more; the others are compared with the first. A target alone means the newest run
          that has it; `latest@sqlite-baseline` names the run and the target.
        - `category`, `path`: as in `generate_report`.
        """
        from memory.benchmarking.report.comparison import comparison_page
        from memory.benchmarking.report.run_references import resolve_names

        names = list(names)
        chosen = resolve_names(self.output_dir, names)
        loaded: list[LoadedResult] = []
        problems: list[DamagedResult] = []
        for reference in chosen:
            found = self.load_results(self.list_results(category, run=str(reference.folder)))
            problems += self.problems
            loaded += [each for each in found if reference.target in (None, each.target)]
        self.problems = problems
        if not loaded:
            raise self.nothing_of(category)
        text = comparison_page(loaded, self.runs_of(loaded), problems=self.problems)
        return self._write_page(text, path, ["compare", category, *names])

    def _against(
        self, baseline: str, files: list[ResultFile], category: str | None
    ) -> tuple[list[ResultFile], Comparison]:
        """Return the results of a baseline, and the comparison of the newest run of `files` with it."""
        from memory.benchmarking.report.run_references import find_run_or_baseline
        from memory.benchmarking.verdicts.compare import compare_runs

        base = find_run_or_baseline(self.output_dir, baseline)
        current = [file.path.parent.parent for file in files if file.run_id]
        if not current:
            raise NothingMeasured(f"there is no run to compare with {baseline!r}: use `membench run`")
        if base.resolve() in (folder.resolve() for folder in current):
            raise InvalidBenchmarkConfig(f"{baseline!r} is on the page already: name another baseline")
        comparison = compare_runs(base, current[-1])
        comparison.metrics = [each for each in comparison.metrics if category in (None, each.category)]
        return self.list_results(category, run=str(base)), comparison

    def _write_page(
        self,
        text: str,
        path: str | os.PathLike[str] | None,
        parts: Iterable[str | None],
        folder: str | os.PathLike[str] | None = None,
    ) -> Path:
        name = "_".join(filter(None, parts)) or "all"
        pages = self.output_dir / REPORTS if folder is None else Path(folder)
        out = Path(path) if path is not None else pages / f"{_as_file_name(name)}.html"
        # Replace half surrogate pairs, which can't be encoded, instead of failing.
        write_whole(out, text.encode("utf-8", "replace"))
        return out

    def nothing_of(self, category: str | None, benchmark: str | None = None) -> BenchmarkError:
        """Return the error for an empty list: nothing was measured yet, or a name is unknown."""
        files = self.list_results()
        if not files:
            return NothingMeasured(
                f"there are no results in {self.output_dir}: measure some with `membench run`"
            )
        categories = {file.category for file in files}
        if category is not None and category not in categories:
            return UnknownName(
                f"there are no results of category {category!r}: {nearest(category, categories)}"
            )
        known = {file.benchmark for file in files if category in (None, file.category)}
        if benchmark is not None and benchmark not in known:
            return UnknownName(
                f"there are no results of benchmark {benchmark!r}: {nearest(benchmark, known)}"
            )
        return NothingMeasured("no run has such results: `membench results list --all` lists all runs")

    def export(self, refs: Iterable[Ref], format: str, path: str | os.PathLike[str]) -> Path:
        """Export results to a file for another tool, and return its path.

        `format` is csv, parquet, json, pytest-benchmark or bmf (Bencher).
        """
        from memory.benchmarking.report.export import export

        loaded = self._load_or_warn(refs)
        write_whole(Path(path), export(loaded, format, self.runs_of(loaded)))
        return Path(path)

    # -- helpers --------------------------------------------------------------------------------

    def _path(self, ref: Ref) -> Path:
        if isinstance(ref, ResultFile):
            return ref.path
        inside = self.output_dir / Path(ref)
        return inside if inside.exists() else Path(ref)

    def _load(self, ref: Ref) -> LoadedResult:
        path = self._path(ref)
        try:
            result = read_result(path)
            if not result.metrics:
                values = flatten(result.results)
                result.metrics = {name: Figure(value=value) for name, value in values.items()}
                result.units = _units(values)
        except (InvalidResult, OverflowError, RecursionError) as problem:
            raise DamagedResult(f"{path} is not a valid result: {problem}") from problem
        if isinstance(ref, ResultFile):
            return LoadedResult(ref, result)
        file = ResultFile(result.timestamp, path, result.category, result.benchmark, _run_id(path))
        return LoadedResult(file, result)

    def _load_or_warn(self, refs: Iterable[Ref]) -> list[LoadedResult]:
        loaded = self.load_results(refs)
        if self.problems and not loaded:
            raise DamagedResult(
                f"no result can be read; the first of {len(self.problems)}: {self.problems[0]}"
            )
        for problem in self.problems:
            warnings.warn(f"left out: {problem}", stacklevel=3)
        return loaded

    def _for_report(
        self, category: str | None, benchmark: str | None, runs: list[str] | None
    ) -> tuple[list[ResultFile], int]:
        """Return the results that a report shows, and the number of older runs that it leaves out."""
        if runs is not None:
            return [file for run in runs for file in self.list_results(category, benchmark, run)], 0
        files = self.list_results(category, benchmark)
        with_results = {file.run_id for file in files}
        ids = [folder.name for folder in run_folders(self.output_dir) if folder.name in with_results]
        newest = ids[-1:]
        return [file for file in files if file.run_id in ("", *newest)], len(ids) - len(newest)


def _units(values: Iterable[str]) -> dict[str, Unit]:
    leaves = dict.fromkeys(leaf_of(path) for path in values)
    found = {leaf: metric_of(leaf) for leaf in leaves}
    return {leaf: Unit(unit=metric.unit, better=metric.better) for leaf, metric in found.items()}


def _run_id(path: Path) -> str:
    folder = path.absolute().parent.parent
    return folder.name if (folder / RUN_FILE).is_file() else ""


def _check_name(what: str, name: str | None) -> str:
    """Return a name. Raise InvalidResult if a file of this name could not be found again by it."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidResult(f"{what} is {name!r}: use a text that is not empty")
    bad = next((letter for letter in name if letter in "/\\" or not letter.isprintable()), None)
    if bad is not None:
        raise InvalidResult(f"{what} {name!r} contains {bad!r}: use letters, digits, '_' and '-'")
    if name.startswith("."):
        raise InvalidResult(f"{what} {name!r} starts with a dot, which hides the file: use another name")
    if re.search(r"_\d{8}_\d{6}", name):
        raise InvalidResult(f"{what} {name!r} contains a time, which the file name adds: leave it out")
    return name


def same_argument(name: str, value: T | None, other: str, other_value: T | None) -> T | None:
    """Return the value of an argument that has two names; an error if both are given."""
    if value is not None and other_value is not None:
        raise InvalidBenchmarkConfig(f"{name} and {other} are two words for the same: pass one of them")
    return value if value is not None else other_value


def _as_file_name(text: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in text)
    return kept[:100].lstrip(".") or "report"
