"""The settings of a run. Each category of benchmarks has settings of its own: the benchmarks' parameters.

config = BenchmarkConfig()                              # the standard profile
config.storage.batch_sizes = [10, 50, 100]              # every storage benchmark with batch_sizes
config.storage.read_latency.batch_sizes = [10]          # this benchmark only
config.save("custom_config.json")                       # or .toml
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import msgspec
from msgspec import Meta

from memory.benchmarking.benchmarks import built_in
from memory.benchmarking.errors import InvalidBenchmarkConfig, UnknownName, nearest, needs
from memory.benchmarking.model.benchmark import Benchmark
from memory.benchmarking.model.category_settings import CategorySettings, CompareSettings
from memory.benchmarking.model.files import DEFAULT_FOLDER, write_whole
from memory.benchmarking.model.parameters import Count, Names, Positive, checked, parse_text
from memory.benchmarking.model.profiles import DEFAULT_PROFILE, PROFILES, Profile
from memory.errors import short

CONFIG_FILE = "benchmark_config.json"
"""The file that `save` writes if it gets no path."""


class BuiltInSettings(CategorySettings):
    """The settings of a built-in category; see its subclasses, such as `StorageConfig`.

    Args:
        profile: quick, standard or full; gives the first values of all parameters
        parameters: values of parameters, for all benchmarks of the category that have them

    In a `BenchmarkConfig`, only the values that were set here replace those of the config's own profile.
    """

    _NAME: ClassVar[str]

    def __init__(self, *, profile: str = DEFAULT_PROFILE, **parameters: Any) -> None:
        super().__init__(self._NAME)
        _profile(profile)
        for benchmark in built_in().values():
            if benchmark.category == self._NAME:
                self.add_benchmark(benchmark.name, benchmark.types, benchmark.sizes(profile))
        for name, value in parameters.items():
            setattr(self, name, value)


class StorageConfig(BuiltInSettings):
    """The settings of the category storage: `StorageConfig(batch_sizes=[10, 100])`."""

    _NAME = "storage"


class CompressionConfig(BuiltInSettings):
    """The settings of the category compression."""

    _NAME = "compression"


class MemoryTransitionConfig(BuiltInSettings):
    """The settings of the category memory_transition."""

    _NAME = "memory_transition"


class RetrievalConfig(BuiltInSettings):
    """The settings of the category retrieval."""

    _NAME = "retrieval"


class ScalabilityConfig(BuiltInSettings):
    """The settings of the category scalability."""

    _NAME = "scalability"


class IntegrationConfig(BuiltInSettings):
    """The settings of the category integration."""

    _NAME = "integration"


class QualityConfig(BuiltInSettings):
    """The settings of the category quality."""

    _NAME = "quality"


class PromisesConfig(BuiltInSettings):
    """The settings of the category promises."""

    _NAME = "promises"


class AgentExecutionConfig(BuiltInSettings):
    """The settings of the category agent_execution."""

    _NAME = "agent_execution"


class MemorySearchConfig(BuiltInSettings):
    """The settings of the category memory_search."""

    _NAME = "memory_search"


class ContextBuildConfig(BuiltInSettings):
    """The settings of the category context_build."""

    _NAME = "context_build"


def _empty_settings(category: str) -> CategorySettings:
    """Return the settings of a category without any benchmark, of its own class if it is built in."""
    for kind in BuiltInSettings.__subclasses__():
        if category == kind._NAME:
            settings = kind.__new__(kind)
            CategorySettings.__init__(settings, category)
            return settings
    return CategorySettings(category)


class BenchmarkConfig:
    """All settings of a run.

    Args:
        profile: quick, standard or full; gives the first values of all settings
        output_dir: the folder for runs
        categories: parameters by category, as in `storage=StorageConfig(batch_sizes=[10])`
    """

    output_dir: str
    """The folder for runs; each run is a folder in it."""
    targets: Names
    rounds: Count
    """How many times each case runs, each time in a fresh process."""
    seconds: Positive
    """About how long one timing measures."""
    timeout_seconds: Positive
    """The longest time of a round, in seconds; a round that takes longer is ended."""
    memory_limit_mb: Count | None
    """The most RAM of a round, in MB; a round above it is ended. None for nine tenths of the free RAM."""
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    embedder: str
    """Of all targets: a name, `file.py:Class` or an address. Empty for the default one."""
    compare: CompareSettings
    """Thresholds of `compare` and `ab`; a run does not use them."""

    def __init__(
        self,
        profile: str = DEFAULT_PROFILE,
        *,
        output_dir: str | os.PathLike[str] = DEFAULT_FOLDER,
        **categories: Mapping[str, Any] | CategorySettings,
    ) -> None:
        chosen = _profile(profile)
        values = {
            "profile": profile,
            "output_dir": os.fspath(output_dir),
            "targets": ["agentmemory"],
            "rounds": chosen.rounds,
            "seconds": chosen.seconds,
            "timeout_seconds": chosen.timeout_seconds,
            "memory_limit_mb": None,
            "seed": 0,
            "embedder": "",
            "compare": CompareSettings(),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        for name, parameters in categories.items():
            self.category(name)  # raises the error
            setattr(self, name, parameters)

    @cached_property
    def _categories(self) -> dict[str, CategorySettings]:
        """The settings by category, filled at first use because filling loads the benchmarks."""
        found: dict[str, CategorySettings] = {}
        object.__setattr__(self, "_categories", found)
        for benchmark in built_in().values():
            self.add_benchmark(benchmark)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.category(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "profile":
            raise InvalidBenchmarkConfig(
                "profile can't be changed, its values are already set: use BenchmarkConfig(profile=...)"
            )
        if name == "output_dir" and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if name == "targets" and isinstance(value, list | tuple):
            value = list(dict.fromkeys(value))
        if name in _setting_types():
            object.__setattr__(self, name, checked(name, value, self._type_of(name)))
            return
        if name not in self._categories:
            self._type_of(name)  # raises the error
        settings = self._categories[name]
        if isinstance(value, CategorySettings):
            value = value.changes(name)
        if not isinstance(value, Mapping):
            raise InvalidBenchmarkConfig(f"{name} is {short(value)}: a category is a table of parameters")
        # Values of the whole category come first, so that those of one benchmark replace them.
        for key, inner in sorted(value.items(), key=lambda item: item[0] in settings.benchmarks()):
            setattr(settings, key, inner)

    def _type_of(self, name: str) -> Any:
        types = _setting_types()
        if name not in types:
            owners = [
                category for category, settings in self._categories.items() if settings.has_parameter(name)
            ]
            if owners:
                places = " or ".join(f"{category}.{name}" for category in owners)
                raise InvalidBenchmarkConfig(f"{name} is a parameter, not a setting: write {places}")
            known = {*types, *self._categories}
            raise InvalidBenchmarkConfig(f"{name} is not a setting or a category: {nearest(name, known)}")
        return types[name]

    def category(self, name: str) -> CategorySettings:
        """Return the settings of a category."""
        if name not in self._categories:
            self._type_of(name)
            raise InvalidBenchmarkConfig(f"{name} is a setting, not a category with parameters")
        return self._categories[name]

    def add_benchmark(self, benchmark: Benchmark) -> None:
        """Add the parameters of a benchmark that is not built in, so that they can be set."""
        if benchmark.category not in self._categories:
            self._categories[benchmark.category] = _empty_settings(benchmark.category)
        settings = self._categories[benchmark.category]
        if benchmark.name not in settings.benchmarks():
            settings.add_benchmark(benchmark.name, benchmark.types, benchmark.sizes(self.profile))

    def set_text(self, assignment: str) -> None:
        """Set a value from text: `storage.batch_sizes=10,100`, `storage.read_latency.num_samples=50`."""
        key, equals, text = assignment.partition("=")
        key, text = key.strip(), text.strip()
        if not equals or not key:
            raise InvalidBenchmarkConfig(f"--set {assignment}: write it as category.parameter=value")
        if "." not in key:
            if key in self._categories:
                raise InvalidBenchmarkConfig(f"--set {key}: name the parameter too: {key}.parameter=value")
            setattr(self, key, parse_text(key, text, self._type_of(key)))
            return
        category, *middle, name = key.split(".")
        settings = self.category(category)
        if len(middle) > 1 or (middle and middle[0] not in settings.benchmarks()):
            wrong = ".".join(middle)
            raise InvalidBenchmarkConfig(
                f"{key}: {category} has no benchmark {wrong!r}: {nearest(wrong, settings.benchmarks())}"
            )
        benchmark = middle[0] if middle else None
        settings.set(name, parse_text(key, text, settings.type_of(name, benchmark)), benchmark)

    def update(self, values: Mapping[str, Any]) -> None:
        """Set all values of a table such as `to_dict` returns."""
        for name, value in values.items():
            if name != "profile":
                setattr(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as JSON values."""
        settings = {name: msgspec.to_builtins(getattr(self, name)) for name in _setting_types()}
        return {
            "profile": self.profile,
            **settings,
            **{name: category.to_dict() for name, category in self._categories.items()},
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BenchmarkConfig) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write all settings to a file, as TOML if its name ends in .toml, else as JSON; return its path.

        Args:
            path: the file; by default `benchmark_config.json` in `output_dir`.
        """
        path = Path(self.output_dir, CONFIG_FILE) if path is None else Path(path)
        write_whole(path, _encode(path, self.to_dict()))
        return path

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        profile: str | None = None,
        benchmarks: Iterable[Benchmark] = (),
    ) -> BenchmarkConfig:
        """Read a file of settings.

        Args:
            path: a JSON or TOML file; it holds what differs from its profile
            profile: used instead of the profile that the file names
            benchmarks: benchmarks that are not built in, whose parameters the file may set
        """
        path = Path(path)
        values = read_table(path)
        chosen = profile or values.get("profile", DEFAULT_PROFILE)
        try:
            config = cls(chosen)
            for benchmark in benchmarks:
                config.add_benchmark(benchmark)
            config.update(values)
        except (InvalidBenchmarkConfig, UnknownName) as problem:
            raise type(problem)(f"{path}: {problem}") from None
        return config

    def __repr__(self) -> str:
        return f"BenchmarkConfig({self.to_dict()})"


@cache
def _setting_types() -> dict[str, Any]:
    return get_type_hints(BenchmarkConfig, include_extras=True)


def setting_names() -> set[str]:
    """Return the names of all settings: no category can have one of these names."""
    return {"profile", *_setting_types()}


def _profile(name: object) -> Profile:
    if not isinstance(name, str) or name not in PROFILES:
        raise UnknownName(f"there is no profile {name!r}: {nearest(str(name), PROFILES)}")
    return PROFILES[name]


def read_table(path: Path) -> dict[str, Any]:
    """Read a JSON or TOML file that holds a table."""
    try:
        data = path.read_bytes()
        values = tomllib.loads(data.decode()) if path.suffix == ".toml" else json.loads(data)
    except FileNotFoundError:
        raise InvalidBenchmarkConfig(f"there is no file {path}") from None
    except OSError as problem:
        raise InvalidBenchmarkConfig(f"{path} can't be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise InvalidBenchmarkConfig(f"{path} is not {kind}: {problem}") from None
    if not isinstance(values, dict):
        raise InvalidBenchmarkConfig(f"{path} holds {short(values)}: it must be a table of settings")
    return values


def _encode(path: Path, values: dict[str, Any]) -> bytes:
    try:
        if path.suffix != ".toml":
            return json.dumps(values, indent=2).encode() + b"\n"
        import tomli_w

        return tomli_w.dumps({key: value for key, value in values.items() if value is not None}).encode()
    except ImportError:
        raise needs("tomli-w", "bench", "writing TOML") from None
    except (TypeError, ValueError) as problem:
        raise InvalidBenchmarkConfig(f"{path} can't hold these settings: {problem}") from None
