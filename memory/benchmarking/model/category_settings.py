"""The settings of one category of benchmarks: parameters, their types, and which of several values counts.

The strongest first: set for the benchmark, set for the category, declared for the profile, the default of
the function's signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from memory.benchmarking.errors import InvalidBenchmarkConfig, nearest
from memory.benchmarking.model.parameters import Parameters, checked

Share = Annotated[float, Meta(ge=0)]


class CompareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The smallest change that matters: `[compare]` of a configuration file."""

    threshold: Share | None = None
    """For times, rates and sizes, as a share; None for the command's default."""
    quality_threshold: Share | None = None
    """For recall and other shares, in points."""
    thresholds: dict[str, Share] = {}
    """For single metrics, by pattern: `storage.read_latency:*/p50_ms`."""


class CategorySettings:
    """The settings of one category. Its attributes are the parameters, and the benchmarks by name."""

    def __init__(self, category: str) -> None:
        object.__setattr__(self, "_category", category)
        object.__setattr__(self, "_profile", {})
        object.__setattr__(self, "_shared", {})
        object.__setattr__(self, "_own", {})
        object.__setattr__(self, "_types", {})

    def add_benchmark(self, name: str, types: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
        """Add a benchmark: the types of its parameters, and its values under the run's profile."""
        self._profile[name] = deepcopy(dict(sizes))  # the caller may change the lists in place
        self._own.setdefault(name, {})
        self._types[name] = dict(types)

    def benchmarks(self) -> list[str]:
        return list(self._types)

    def has_parameter(self, name: str) -> bool:
        """Return whether one of its benchmarks has this parameter."""
        return any(name in types for types in self._types.values())

    def type_of(self, name: str, benchmark: str | None = None) -> Any:
        """Return the type of a parameter; an unknown one is an error that names the nearest."""
        homes = [benchmark] if benchmark is not None else list(self._types)
        for home in homes:
            if name in self._types[home]:
                return self._types[home][name]
        key = ".".join(part for part in (self._category, benchmark, name) if part)
        known = {parameter for home in homes for parameter in self._types[home]}
        if benchmark is None:
            known |= set(self._types)
        raise InvalidBenchmarkConfig(f"{key} is not a parameter: {nearest(name, known)}")

    def parameters(self, benchmark: str) -> Parameters:
        """Return the values that a benchmark is called with."""
        known = self._types.get(benchmark, {})
        shared = {name: value for name, value in self._shared.items() if name in known}
        return {**self._profile.get(benchmark, {}), **shared, **self._own.get(benchmark, {})}

    def set(self, name: str, value: Any, benchmark: str | None = None) -> None:
        """Set a parameter of one benchmark, or of all benchmarks that have it."""
        key = ".".join(part for part in (self._category, benchmark, name) if part)
        value = checked(key, value, self.type_of(name, benchmark))
        (self._shared if benchmark is None else self._own[benchmark])[name] = value
        if benchmark is None:
            for own in self._own.values():
                own.pop(name, None)  # the later value overrides it, for all benchmarks

    def changes(self, category: str) -> dict[str, Any]:
        """Return only the values that were set; raise an error if `category` is not their category."""
        if self._category != category:
            raise InvalidBenchmarkConfig(
                f"{category} can't have the settings of {self._category}: set {self._category} instead"
            )
        return {**self._shared, **{name: dict(values) for name, values in self._own.items() if values}}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._types and isinstance(value, Mapping):
            for parameter, new in value.items():
                self.set(parameter, new, name)
        else:
            self.set(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._types:
            return BenchmarkSettings(self, name)
        self.type_of(name)
        if name in self._shared:
            return self._shared[name]
        homes = [benchmark for benchmark in self._types if name in self._types[benchmark]]
        return self.parameters(homes[0]).get(name)

    def __dir__(self) -> list[str]:
        return sorted({*self._types, *(name for types in self._types.values() for name in types)})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CategorySettings) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return every value in use: those that benchmarks share, and those of single benchmarks."""
        by_name: dict[str, list[tuple[str, Any]]] = {}
        for benchmark in self._types:
            for name, value in self.parameters(benchmark).items():
                by_name.setdefault(name, []).append((benchmark, value))
        shared: dict[str, Any] = {}
        own: dict[str, dict[str, Any]] = {}
        for name, values in by_name.items():
            shared[name] = self._shared.get(name, values[0][1])
            for benchmark, value in values:
                if value != shared[name]:
                    own.setdefault(benchmark, {})[name] = value
        return {**shared, **own}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_dict()})"


class BenchmarkSettings:
    """The settings of one benchmark, as attributes."""

    def __init__(self, settings: CategorySettings, benchmark: str) -> None:
        object.__setattr__(self, "_settings", settings)
        object.__setattr__(self, "_benchmark", benchmark)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._settings.type_of(name, self._benchmark)
        return self._settings.parameters(self._benchmark).get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._settings.set(name, value, self._benchmark)

    def __repr__(self) -> str:
        return f"{self._benchmark}({self._settings.parameters(self._benchmark)})"
