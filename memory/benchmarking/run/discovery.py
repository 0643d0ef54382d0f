"""Finding benchmarks: functions named `benchmark_*` in a module, which is their category.

They come from this package (`benchmarks/`), from installed packages (entry points of the group
`agentmemory.benchmarks`: name = category, value = module) and from the user's own files.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from memory.benchmarking import benchmarks as package
from memory.benchmarking.errors import BrokenBenchmark, UnknownName, nearest
from memory.benchmarking.metrics import Metric, declaration_of
from memory.benchmarking.model.files import LOGS, ROUNDS
from memory.benchmarking.model.profiles import PROFILES
from memory.benchmarking.model.user_files import cause_of, load_file

PREFIX = "benchmark_"
GROUP = "agentmemory.benchmarks"
_NOT_PARAMETERS = {"bench"}


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: where it is, and how it is called."""

    category: str
    name: str
    function: Callable[..., Any]
    source: str | None = None
    """The user's own file; None for what is installed."""
    module: str | None = None

    @property
    def full_name(self) -> str:
        return f"{self.category}.{self.name}"

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        text = inspect.getdoc(self.function) or ""
        return " ".join(text.split("\n\n")[0].split())

    @property
    def description(self) -> str:
        """Its docstring without the list of parameters."""
        return (inspect.getdoc(self.function) or "").partition("\nArgs:")[0].strip()

    @property
    def about_parameters(self) -> dict[str, str]:
        """What its docstring says of each parameter."""
        lines = (inspect.getdoc(self.function) or "").partition("\nArgs:")[2].splitlines()
        pairs = (line.strip().partition(": ") for line in lines)
        return {name: about for name, colon, about in pairs if colon}

    @property
    def metrics(self) -> dict[str, Metric]:
        """The figures that it says it reports."""
        declared = declaration_of(self.function)
        return {name: declared.metric(name) for name in declared.reports}

    @property
    def defaults(self) -> dict[str, Any]:
        """Its parameters with their default values."""
        return {name: parameter.default for name, parameter in self._parameters().items()}

    @property
    def kinds(self) -> dict[str, Any]:
        """Its parameters with their types; Any where the signature does not say."""
        try:
            hints = get_type_hints(self.function, include_extras=True)
        except Exception:  # an annotation that needs what is imported for types only
            hints = {}
        return {name: hints.get(name, Any) for name in self._parameters()}

    @property
    def takes_bench(self) -> bool:
        signature = inspect.signature(self.function)
        return "bench" in signature.parameters or any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()
        )

    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {
            name: parameter
            for name, parameter in inspect.signature(self.function).parameters.items()
            if parameter.kind in named and name not in _NOT_PARAMETERS
        }


@dataclass(frozen=True)
class Found:
    """All benchmarks, and the modules that could not be loaded."""

    benchmarks: tuple[Benchmark, ...]
    problems: dict[str, BrokenBenchmark] = field(default_factory=dict)
    """By category."""

    def categories(self) -> list[str]:
        return list(dict.fromkeys(benchmark.category for benchmark in self.benchmarks))

    def select(self, categories: Sequence[str] = (), names: Sequence[str] = ()) -> list[Benchmark]:
        """Those of these categories, and of these names; a name that does not exist is an error."""
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


def discover(paths: Iterable[str | Path] = ()) -> Found:
    """Everything there is. A module that can't be loaded does not hide the others."""
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
    return Found(tuple(found.values()), problems)


def _is_in(path: Path, benchmark: Benchmark) -> bool:
    """Whether a benchmark is in this file, or in a file of this folder (which may hold helpers too)."""
    if benchmark.source is None:
        return False
    return path.resolve() in (Path(benchmark.source), Path(benchmark.source).parent)


def _places(
    paths: Iterable[Path],
) -> Iterable[tuple[str, Callable[[], ModuleType], str | None]]:
    for module in sorted(pkgutil.iter_modules(package.__path__), key=_specified_order):
        if not module.name.startswith("_"):
            name = f"{package.__name__}.{module.name}"
            yield module.name, lambda name=name: _import(name), None  # type: ignore[misc]
    for category, name in _announced().items():
        yield category, lambda name=name: _import(name), None  # type: ignore[misc]
    for path in paths:
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        for file in files:
            if not file.name.startswith("_"):
                yield file.stem, lambda file=file: load_file(file), str(file.resolve())  # type: ignore[misc]


def _check_category(category: str, source: str | None) -> None:
    """A category is a folder of a run and a section of the configuration, beside what is there already."""
    from memory.benchmarking.config import setting_names  # a round does not need it

    if category in {ROUNDS, LOGS, *setting_names()} or not re.fullmatch(r"[\w-]+", category):
        where = f"{source}: rename the file" if source else "rename the entry point"
        raise BrokenBenchmark(f"{category!r} can't be the name of a category ({where})")


def _specified_order(module: pkgutil.ModuleInfo) -> tuple[int, str]:
    """As the specification lists the categories."""
    order = list(PROFILES["full"].sizes)
    return (order.index(module.name) if module.name in order else len(order), module.name)


def _announced() -> dict[str, str]:
    from importlib.metadata import entry_points  # slow to load

    return {point.name: point.value for point in entry_points(group=GROUP)}


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as problem:
        sys.modules.pop(name, None)
        raise BrokenBenchmark(f"{name} can't be loaded: {cause_of(problem)}") from problem


def benchmarks_of(module: ModuleType, category: str, source: str | None = None) -> list[Benchmark]:
    """A module's own benchmarks, in the order of the file; not those that it imported."""
    found = [
        Benchmark(category, name.removeprefix(PREFIX), function, source, module.__name__)
        for name, function in vars(module).items()
        if name.startswith(PREFIX)
        and name != PREFIX
        and inspect.isfunction(function)
        and function.__module__ == module.__name__
    ]
    for benchmark in found:
        _check(benchmark)
    return found


def _check(benchmark: Benchmark) -> None:
    for name, parameter in inspect.signature(benchmark.function).parameters.items():
        required = parameter.default is parameter.empty
        if required and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            raise BrokenBenchmark(
                f"{benchmark.full_name}: the parameter {name!r} has no default; give it one"
            )
    if inspect.iscoroutinefunction(benchmark.function):
        raise BrokenBenchmark(
            f"{benchmark.full_name} is async: make it a plain function that calls asyncio.run(...)"
        )
