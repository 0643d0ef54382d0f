"""The parameters of each category: names, types, and which of several values counts.

What counts, from the strongest: set for the benchmark, set for the category, the profile's value for the
benchmark, the function's own default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from memory.benchmarking.errors import InvalidBenchmarkConfig, nearest
from memory.benchmarking.model.profiles import Parameters
from memory.errors import short

Count = Annotated[int, Meta(ge=1)]
Sizes = Annotated[list[Count], Meta(min_length=1)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Fractions = Annotated[list[Fraction], Meta(min_length=1)]
Positive = Annotated[float, Meta(gt=0)]
Names = Annotated[list[str], Meta(min_length=1)]

Share = Annotated[float, Meta(ge=0)]


class CompareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """From which size on a change matters: `[compare]` of a configuration file."""

    threshold: Share | None = None
    """Of times, rates and sizes, as a share; None for the command's own."""
    quality_threshold: Share | None = None
    """Of recall and other shares, in points."""
    thresholds: dict[str, Share] = {}
    """For some metrics, by pattern: `storage.read_latency:*/p50_ms`."""


def checked(key: str, value: Any, kind: Any) -> Any:
    """The value as its parameter's type, or an error that names the key."""
    if isinstance(value, tuple | set):
        value = list(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise InvalidBenchmarkConfig(f"{key} is {short(value)}: {str(problem).lower()}") from None
    except TypeError:
        return value  # an annotation that says nothing about JSON values: the benchmark knows


def parse_text(key: str, text: str, kind: Any) -> Any:
    """A value given on the command line: JSON, or a comma between the values of a list, or plain text."""
    problems = []
    for attempt in (text, f"[{text}]", json.dumps(text), json.dumps(text.split(","))):
        try:
            return checked(key, json.loads(attempt), kind)
        except json.JSONDecodeError:
            continue
        except InvalidBenchmarkConfig as problem:
            problems.append(problem)
    # The message about a list's items says more than that it should be a list.
    raise next((problem for problem in problems if "array" not in str(problem)), problems[0])


class Section:
    """The parameters of one category. Attributes are its parameters, and its benchmarks by name."""

    def __init__(self, category: str, sizes: Mapping[str, Parameters]) -> None:
        object.__setattr__(self, "_category", category)
        object.__setattr__(self, "_profile", deepcopy(dict(sizes)))  # its lists may be changed in place
        object.__setattr__(self, "_shared", {})
        object.__setattr__(self, "_parts", {name: {} for name in sizes})
        object.__setattr__(self, "_kinds", self._own_kinds())

    def _own_kinds(self) -> dict[str, dict[str, Any]]:
        hints = get_type_hints(type(self), include_extras=True)
        return {
            benchmark: {name: hints.get(name, Any) for name in values}
            for benchmark, values in self._profile.items()
        }

    def add_benchmark(self, name: str, kinds: Mapping[str, Any]) -> None:
        """Let a benchmark that was found, not built in, be configured by the names of its parameters."""
        self._profile.setdefault(name, {})
        self._parts.setdefault(name, {})
        self._kinds[name] = {**kinds, **self._kinds.get(name, {})}

    def benchmarks(self) -> list[str]:
        return list(self._kinds)

    def has_parameter(self, name: str) -> bool:
        """Whether one of its benchmarks takes it."""
        return any(name in kinds for kinds in self._kinds.values())

    def kind_of(self, name: str, benchmark: str | None = None) -> Any:
        """The type of a parameter; an error that names the nearest one if there is none such."""
        homes = [benchmark] if benchmark is not None else list(self._kinds)
        for home in homes:
            if name in self._kinds[home]:
                return self._kinds[home][name]
        key = ".".join(part for part in (self._category, benchmark, name) if part)
        known = {parameter for home in homes for parameter in self._kinds[home]}
        if benchmark is None:
            known |= set(self._kinds)
        raise InvalidBenchmarkConfig(f"{key} is not a parameter: {nearest(name, known)}")

    def parameters(self, benchmark: str) -> Parameters:
        """What a benchmark is called with."""
        known = self._kinds.get(benchmark, {})
        shared = {name: value for name, value in self._shared.items() if name in known}
        return {**self._profile.get(benchmark, {}), **shared, **self._parts.get(benchmark, {})}

    def set(self, name: str, value: Any, benchmark: str | None = None) -> None:
        key = ".".join(part for part in (self._category, benchmark, name) if part)
        value = checked(key, value, self.kind_of(name, benchmark))
        (self._shared if benchmark is None else self._parts[benchmark])[name] = value
        if benchmark is None:
            for part in self._parts.values():
                part.pop(name, None)  # said later, and for all of them

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._kinds and isinstance(value, Mapping):
            for parameter, each in value.items():
                self.set(parameter, each, name)
        else:
            self.set(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._kinds:
            return Part(self, name)
        self.kind_of(name)
        if name in self._shared:
            return self._shared[name]
        homes = [benchmark for benchmark in self._kinds if name in self._kinds[benchmark]]
        return self.parameters(homes[0]).get(name)

    def __dir__(self) -> list[str]:
        return sorted({*self._kinds, *(name for kinds in self._kinds.values() for name in kinds)})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Section) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Every value that counts: what all benchmarks that take it share, and what is one's own."""
        by_name: dict[str, list[tuple[str, Any]]] = {}
        for benchmark in self._kinds:
            for name, value in self.parameters(benchmark).items():
                by_name.setdefault(name, []).append((benchmark, value))
        shared: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for name, uses in by_name.items():
            shared[name] = self._shared.get(name, uses[0][1])
            for benchmark, value in uses:
                if value != shared[name]:
                    parts.setdefault(benchmark, {})[name] = value
        return {**shared, **parts}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_dict()})"


class Part:
    """One benchmark's own values, as attributes."""

    def __init__(self, section: Section, benchmark: str) -> None:
        object.__setattr__(self, "_section", section)
        object.__setattr__(self, "_benchmark", benchmark)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._section.kind_of(name, self._benchmark)
        return self._section.parameters(self._benchmark).get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._section.set(name, value, self._benchmark)

    def __repr__(self) -> str:
        return f"{self._benchmark}({self._section.parameters(self._benchmark)})"


class StorageConfig(Section):
    batch_sizes: Sizes
    data_complexity_levels: Sizes
    num_samples: Count
    num_memories: Count
    settle_memories: Annotated[int, Meta(ge=0)]


class CompressionConfig(Section):
    test_data_categories: Names
    samples: Count
    corpus_vectors: Count
    training_vectors: Count
    dataset_sizes: Sizes
    settle_memories: Annotated[int, Meta(ge=0)]
    data_sizes: Sizes
    epochs: Count
    batch_size: Count


class MemoryTransitionConfig(Section):
    num_memories: Count
    importance_levels: Count
    similarity_threshold: Fraction
    batch_sizes: Sizes
    tier_limits: Sizes
    memories_per_level: Sizes
    arrival_orders: Names


class RetrievalConfig(Section):
    data_volumes: Sizes
    k: Count
    queries: Count
    clusters: Count
    items_per_cluster: Count
    noise: Positive
    similarity_thresholds: Fractions
    stm_memories: Count
    im_memories: Count
    ltm_memories: Count
    related_groups: Count


class ScalabilityConfig(Section):
    agent_counts: Sizes
    parallel_operations: Sizes
    data_volumes: Sizes
    duration_seconds: Positive
    operation_rate: Positive


class IntegrationConfig(Section):
    num_operations: Count
    num_steps: Count
    frameworks: Names
    training_iterations: Count


class QualityConfig(Section):
    data_sets: Names
    conversations: Count
    sessions: Count


class AgentExecutionConfig(Section):
    iterations: Count


class MemorySearchConfig(Section):
    entries: Sizes
    iterations: Count
    threads: Sizes


class ContextBuildConfig(Section):
    sessions: Sizes
    tools: Sizes
    iterations: Count


SECTIONS: dict[str, type[Section]] = {
    "storage": StorageConfig,
    "compression": CompressionConfig,
    "memory_transition": MemoryTransitionConfig,
    "retrieval": RetrievalConfig,
    "scalability": ScalabilityConfig,
    "integration": IntegrationConfig,
    "quality": QualityConfig,
    "agent_execution": AgentExecutionConfig,
    "memory_search": MemorySearchConfig,
    "context_build": ContextBuildConfig,
}
