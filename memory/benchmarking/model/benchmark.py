"""A benchmark: a function named `benchmark_*` in a module, which is its category."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import msgspec

from memory.benchmarking.errors import BenchmarkError, BrokenBenchmark, InvalidBenchmarkConfig, nearest
from memory.benchmarking.metrics import Declaration, Metric, declaration_of
from memory.benchmarking.model.parameters import checked
from memory.benchmarking.model.presentation import Presentation, presentation_from
from memory.benchmarking.model.profiles import PROFILES
from memory.benchmarking.model.records import Case
from memory.benchmarking.model.user_files import cause_of, load_file

PREFIX = "benchmark_"
_NOT_PARAMETERS = {"bench"}


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: where it is and how it is called."""

    category: str
    name: str
    function: Callable[..., Any]
    source: str | None = None
    """The user's own file; None for an installed benchmark."""
    module: str | None = None

    @property
    def full_name(self) -> str:
        return f"{self.category}.{self.name}"

    @property
    def declaration(self) -> Declaration:
        return declaration_of(self.function)

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring."""
        return _first_paragraph(inspect.getdoc(self.function))

    @property
    def description(self) -> str:
        """Its docstring without the list of parameters."""
        return (inspect.getdoc(self.function) or "").partition("\nArgs:")[0].strip()

    @property
    def about_parameters(self) -> dict[str, str]:
        """What its docstring says about each parameter."""
        lines = (inspect.getdoc(self.function) or "").partition("\nArgs:")[2].splitlines()
        pairs = (line.strip().partition(": ") for line in lines)
        return {name: about for name, colon, about in pairs if colon}

    @property
    def metrics(self) -> dict[str, Metric]:
        """The figures that it declares to report."""
        declared = self.declaration
        return {name: declared.metric(name) for name in declared.reports}

    @property
    def presentation(self) -> Presentation:
        """How a report presents it."""
        module = inspect.getmodule(self.function)
        package = self.function.__module__.rpartition(".")[0]
        if package.rpartition(".")[2] == self.category:  # the category is a package, and this a part of it
            module = import_module(package)
        category = _first_paragraph(inspect.getdoc(module))
        return presentation_from(self.declaration, category, self.summary)

    @property
    def defaults(self) -> dict[str, Any]:
        """Its parameters with their default values."""
        return {name: parameter.default for name, parameter in self._parameters().items()}

    @property
    def types(self) -> dict[str, Any]:
        """Its parameters with their types; Any where the signature has no type."""
        try:
            hints = get_type_hints(self.function, include_extras=True)
        except Exception:  # an annotation names something that is imported for type checkers only
            hints = {}
        return {name: hints.get(name, Any) for name in self._parameters()}

    def sizes(self, profile: str) -> dict[str, Any]:
        """Return its parameters under a profile: as declared, else the default of a typed parameter."""
        types = self.types
        values: dict[str, Any] = {}
        for name, default in self.defaults.items():
            if types[name] is not Any:
                with suppress(InvalidBenchmarkConfig, TypeError):  # not every default is a JSON value
                    values[name] = msgspec.to_builtins(checked(name, default, types[name]))
        for name, value in self.declaration.profiles.get(profile, {}).items():
            values[name] = checked(f"{self.full_name}.{name}", value, types[name])
        return values

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


def benchmarks_of(module: ModuleType, category: str, source: str | None = None) -> list[Benchmark]:
    """Return a module's own benchmarks in the order of the file, without those that it imports.

    A category can be a package: then these are the benchmarks of its modules, in the order of their names.
    """
    if hasattr(module, "__path__"):
        return [
            benchmark
            for part in category_modules(module)
            for benchmark in benchmarks_of(import_benchmarks(part), category, source)
        ]
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


def category_modules(package: ModuleType) -> list[str]:
    """Return the modules of a category that is a package; names with a leading underscore are helpers."""
    parts = pkgutil.iter_modules(package.__path__)
    return [f"{package.__name__}.{part.name}" for part in parts if not part.name.startswith("_")]


def import_benchmarks(name: str) -> ModuleType:
    """Import a module with benchmarks; any problem becomes a BrokenBenchmark that says where it is."""
    try:
        return import_module(name)
    except (Exception, SystemExit) as problem:
        sys.modules.pop(name, None)
        raise BrokenBenchmark(f"{name} can't be loaded: {cause_of(problem)}") from problem


def load_benchmark(case: Case) -> Benchmark:
    """Load the benchmark of a case into this process."""
    if not case.source and not case.module:
        raise BrokenBenchmark(f"{case.name} has neither a file nor a module: start a new run")
    module = load_file(Path(case.source)) if case.source else import_module(case.module or "")
    for benchmark in benchmarks_of(module, case.category, case.source):
        if benchmark.name == case.benchmark:
            return benchmark
    raise BrokenBenchmark(f"{case.name} is no longer in {case.source or case.module}")


def declaration_of_case(case: Case) -> Declaration:
    """Return what a case's benchmark declares; an empty declaration if it can't be loaded."""
    try:
        return load_benchmark(case).declaration
    except (BenchmarkError, ImportError):
        return Declaration()


def presentation_of_case(case: Case) -> Presentation:
    """Return how to present a case's benchmark; an empty presentation if it can't be loaded."""
    try:
        return load_benchmark(case).presentation
    except (BenchmarkError, ImportError):
        return Presentation()


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


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
    _check_declaration(benchmark)


def _check_declaration(benchmark: Benchmark) -> None:
    declared, parameters = benchmark.declaration, benchmark.defaults
    limits = declared.rounds if isinstance(declared.rounds, Mapping) else {}
    for table in (declared.profiles, declared.expected_seconds, limits):
        for profile in table:
            if profile not in PROFILES:
                raise BrokenBenchmark(
                    f"{benchmark.full_name}: there is no profile {profile!r}: {nearest(profile, PROFILES)}"
                )
    for profile, sizes in declared.profiles.items():
        for name in sizes:
            if name not in parameters:
                raise BrokenBenchmark(
                    f"{benchmark.full_name}: profile {profile} sets {name!r}, which is not a parameter: "
                    f"{nearest(name, parameters)}"
                )
        try:
            benchmark.sizes(profile)
        except InvalidBenchmarkConfig as problem:
            raise BrokenBenchmark(f"profile {profile}: {problem}") from None
    try:
        msgspec.convert(msgspec.to_builtins(benchmark.presentation), Presentation)
    except (TypeError, ValueError) as problem:
        raise BrokenBenchmark(
            f"{benchmark.full_name}: goals, charts, notes or versus can't be used: {problem}"
        ) from None
