"""What can be set for a run: one section a category, whose fields are the benchmarks' parameters.

config = BenchmarkConfig()                              # the standard profile
config.storage.batch_sizes = [10, 50, 100]              # every storage benchmark that takes batch_sizes
config.storage.read_latency.batch_sizes = [10]          # this benchmark only
config.save("custom_config.json")                       # or .toml
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from memory.benchmarking.errors import InvalidBenchmarkConfig, UnknownName, nearest, needs
from memory.benchmarking.model.files import DEFAULT_FOLDER, write_whole
from memory.benchmarking.model.profiles import DEFAULT_PROFILE, PROFILES, Profile
from memory.benchmarking.model.sections import (
    SECTIONS,
    AgentExecutionConfig,
    CompareSettings,
    CompressionConfig,
    ContextBuildConfig,
    Count,
    IntegrationConfig,
    MemorySearchConfig,
    MemoryTransitionConfig,
    Names,
    Positive,
    QualityConfig,
    RetrievalConfig,
    ScalabilityConfig,
    Section,
    StorageConfig,
    checked,
    parse_text,
)
from memory.errors import short


class BenchmarkConfig:
    """All settings of a run."""

    storage: StorageConfig
    compression: CompressionConfig
    memory_transition: MemoryTransitionConfig
    retrieval: RetrievalConfig
    scalability: ScalabilityConfig
    integration: IntegrationConfig
    quality: QualityConfig
    agent_execution: AgentExecutionConfig
    memory_search: MemorySearchConfig
    context_build: ContextBuildConfig

    output_dir: str
    """Where runs are kept; each is a folder in it."""
    targets: Names
    rounds: Count
    """How often each case runs, each time in a fresh process."""
    seconds: Positive
    """About how long one timing measures."""
    timeout_seconds: Positive
    """After which a round is taken for hung and ended."""
    memory_limit_mb: Count | None
    """RAM of a round's process above which it is ended; None for nine tenths of what is free."""
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    compare: CompareSettings
    """What `compare` and `ab` go by; a run takes no notice of it."""

    def __init__(
        self, profile: str = DEFAULT_PROFILE, *, output_dir: str | os.PathLike[str] = DEFAULT_FOLDER
    ) -> None:
        sizes = _profile(profile)
        sections = {name: kind(name, sizes.sizes[name]) for name, kind in SECTIONS.items()}
        values = {
            "profile": profile,
            "_sections": sections,
            "output_dir": os.fspath(output_dir),
            "targets": ["agentmemory"],
            "rounds": sizes.rounds,
            "seconds": sizes.seconds,
            "timeout_seconds": sizes.timeout_seconds,
            "memory_limit_mb": None,
            "seed": 0,
            "compare": CompareSettings(),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.section(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "profile":
            raise InvalidBenchmarkConfig(
                "profile can't be changed, its values are in place already: BenchmarkConfig(profile=...)"
            )
        if name == "output_dir" and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if name == "targets" and isinstance(value, list | tuple):
            value = list(dict.fromkeys(value))
        if name in self._sections:
            if not isinstance(value, Mapping):
                raise InvalidBenchmarkConfig(
                    f"{name} is {short(value)}: a section is a table of parameters"
                )
            self._fill(name, value)
            return
        object.__setattr__(self, name, checked(name, value, self._kind_of(name)))

    def _kind_of(self, name: str) -> Any:
        kinds = _setting_kinds()
        if name not in kinds:
            owners = [category for category, each in self._sections.items() if each.has_parameter(name)]
            if owners:
                places = " or ".join(f"{category}.{name}" for category in owners)
                raise InvalidBenchmarkConfig(f"{name} is a parameter, not a setting: write {places}")
            known = {*kinds, *self._sections}
            raise InvalidBenchmarkConfig(f"{name} is not a setting or a category: {nearest(name, known)}")
        return kinds[name]

    def section(self, category: str) -> Section:
        """A category's parameters."""
        if category not in self._sections:
            self._kind_of(category)
            raise InvalidBenchmarkConfig(f"{category} is a setting, not a category with parameters")
        found: Section = self._sections[category]
        return found

    def know(self, category: str, benchmark: str, kinds: Mapping[str, Any]) -> None:
        """Let a benchmark of the user's own, or of another package, be configured too."""
        section = self._sections.setdefault(category, Section(category, {}))
        section.add_benchmark(benchmark, kinds)

    def set_text(self, assignment: str) -> None:
        """One `--set`: `storage.batch_sizes=10,100`, `storage.read_latency.num_samples=50`, `rounds=3`."""
        key, equals, text = assignment.partition("=")
        key, text = key.strip(), text.strip()
        if not equals or not key:
            raise InvalidBenchmarkConfig(f"--set {assignment}: write it as section.parameter=value")
        if "." not in key:
            if key in self._sections:
                raise InvalidBenchmarkConfig(f"--set {key}: name the parameter too: {key}.parameter=value")
            setattr(self, key, parse_text(key, text, self._kind_of(key)))
            return
        category, *middle, name = key.split(".")
        section = self.section(category)
        if len(middle) > 1 or (middle and middle[0] not in section.benchmarks()):
            wrong = ".".join(middle)
            raise InvalidBenchmarkConfig(
                f"{key}: {category} has no benchmark {wrong!r}: {nearest(wrong, section.benchmarks())}"
            )
        benchmark = middle[0] if middle else None
        section.set(name, parse_text(key, text, section.kind_of(name, benchmark)), benchmark)

    def update(self, values: Mapping[str, Any]) -> None:
        """Take over settings and sections from a table as `to_dict` makes it."""
        for name, value in values.items():
            if name != "profile":
                setattr(self, name, value)

    def _fill(self, category: str, values: Mapping[str, Any]) -> None:
        section = self._sections[category]
        # What is said for the whole category first, so that what is said for one benchmark stands.
        for name, value in sorted(values.items(), key=lambda item: item[0] in section.benchmarks()):
            setattr(section, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Everything that counts, as JSON values."""
        settings = {name: msgspec.to_builtins(getattr(self, name)) for name in _setting_kinds()}
        return {
            "profile": self.profile,
            **settings,
            **{name: section.to_dict() for name, section in self._sections.items()},
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BenchmarkConfig) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything that counts, so that a later run can use just this; TOML for a name in .toml."""
        path = Path(path)
        write_whole(path, _encode(path, self.to_dict()))
        return path

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        profile: str | None = None,
        known: Iterable[tuple[str, str, Mapping[str, Any]]] = (),
    ) -> BenchmarkConfig:
        """Read a file that says what differs from its profile (or from this one).

        `known` names benchmarks outside of this package: category, name, types of the parameters.
        """
        path = Path(path)
        values = read_table(path)
        chosen = profile or values.get("profile", DEFAULT_PROFILE)
        try:
            config = cls(chosen)
            for category, benchmark, kinds in known:
                config.know(category, benchmark, kinds)
            config.update(values)
        except (InvalidBenchmarkConfig, UnknownName) as problem:
            raise type(problem)(f"{path}: {problem}") from None
        return config

    def __repr__(self) -> str:
        return f"BenchmarkConfig({self.to_dict()})"


def _setting_kinds() -> dict[str, Any]:
    hints = get_type_hints(BenchmarkConfig, include_extras=True)
    return {name: kind for name, kind in hints.items() if name not in SECTIONS}


def setting_names() -> set[str]:
    """What a category can't be called."""
    return {"profile", *_setting_kinds()}


def _profile(name: object) -> Profile:
    if not isinstance(name, str) or name not in PROFILES:
        raise UnknownName(f"there is no profile {name!r}: {nearest(str(name), PROFILES)}")
    return PROFILES[name]


def read_table(path: Path) -> dict[str, Any]:
    """A JSON or TOML file that holds a table."""
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
