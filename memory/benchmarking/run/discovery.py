"""Finding the benchmarks that can be run.

They come from this package (`benchmarks/`), from installed packages (entry points of the group
`agentmemory.benchmarks`: name = category, value = module) and from the user's own files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from memory.benchmarking.benchmarks import built_in_modules
from memory.benchmarking.errors import BrokenBenchmark, UnknownName, nearest
from memory.benchmarking.model.benchmark import PREFIX, Benchmark, benchmarks_of, import_benchmarks
from memory.benchmarking.model.files import LOGS, ROUNDS
from memory.benchmarking.model.user_files import load_file

GROUP = "agentmemory.benchmarks"


@dataclass(frozen=True)
class BenchmarkCatalog:
    """All benchmarks, and the modules that could not be loaded."""

    benchmarks: tuple[Benchmark, ...]
    problems: dict[str, BrokenBenchmark] = field(default_factory=dict)
    """By category."""

    def categories(self) -> list[str]:
        return list(dict.fromkeys(benchmark.category for benchmark in self.benchmarks))

    def select(self, categories: Sequence[str] = (), names: Sequence[str] = ()) -> list[Benchmark]:
        """Return the benchmarks of these categories and names; an unknown name is an error."""
        for category in categories:
            if category in self.problems:
                raise self.problems[category]
            if category not in self.categories():
                raise UnknownName(
                    f"there is no category {category!r}: {nearest(category, self.categories())}"
                )
        if not categories and self.problems:
            raise next(iter(self.problems.values()))
        chosen = [each for each in self.benchmarks if not categories or each.category in categories]
        if not names:
            return chosen
        for name in names:
            if not any(name in (each.name, each.full_name) for each in chosen):
                known = [each.full_name if "." in name else each.name for each in chosen]
                inside = f" in {', '.join(categories)}" if categories else ""
                raise UnknownName(f"there is no benchmark {name!r}{inside}: {nearest(name, known)}")
        return [each for each in chosen if each.name in names or each.full_name in names]


def discover(paths: Iterable[str | Path] = ()) -> BenchmarkCatalog:
    """Return all benchmarks, also those of the user's files. A broken module does not hide the others."""
    found: dict[str, Benchmark] = {}
    problems: dict[str, BrokenBenchmark] = {}
    files = [Path(path) for path in paths]
    for category, load, source in _places(files):
        try:
            module = load()
            benchmarks = benchmarks_of(module, category, source)
            if benchmarks:
                _check_category(category, source)
            for benchmark in benchmarks:
                other = found.setdefault(benchmark.full_name, benchmark)
                if other.function is not benchmark.function:
                    where = benchmark.source or benchmark.module
                    raise BrokenBenchmark(
                        f"{benchmark.full_name} is in {other.source or other.module} and in {where}: "
                        "give one of them another name"
                    )
        except BrokenBenchmark as problem:
            problems[category] = problem
    for path in files:
        if path.stem not in problems and not any(_is_in(path, each) for each in found.values()):
            problems[path.stem] = BrokenBenchmark(
                f"{path} holds no function whose name starts with {PREFIX}"
            )
    return BenchmarkCatalog(tuple(found.values()), problems)


def _is_in(path: Path, benchmark: Benchmark) -> bool:
    """Return whether a benchmark is in this file, or in a file of this folder."""
    if benchmark.source is None:
        return False
    return path.resolve() in (Path(benchmark.source), Path(benchmark.source).parent)


def _places(
    paths: Iterable[Path],
) -> Iterable[tuple[str, Callable[[], ModuleType], str | None]]:
    """Yield each category, the function that loads its module, and the user's file or None."""
    for category, name in [*built_in_modules().items(), *_entry_points().items()]:
        yield category, lambda name=name: import_benchmarks(name), None  # type: ignore[misc]
    for path in paths:
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        for file in files:
            if not file.name.startswith("_"):
                yield file.stem, lambda file=file: load_file(file), str(file.resolve())  # type: ignore[misc]


def _check_category(category: str, source: str | None) -> None:
    """Refuse names that a run's folder or the configuration uses for something else."""
    from memory.benchmarking.config import setting_names  # a worker does not need it

    if category in {ROUNDS, LOGS, *setting_names()} or not re.fullmatch(r"[\w-]+", category):
        where = f"{source}: rename the file" if source else "rename the entry point"
        raise BrokenBenchmark(f"{category!r} can't be the name of a category ({where})")


def _entry_points() -> dict[str, str]:
    from importlib.metadata import entry_points  # slow to load

    return {point.name: point.value for point in entry_points(group=GROUP)}
