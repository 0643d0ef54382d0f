"""Resolve the names of runs, baselines and targets that a user passes to a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memory.benchmarking.errors import BenchmarkError, InvalidBenchmarkConfig, UnknownName, nearest
from memory.benchmarking.model.files import find_run, read_run, run_folders
from memory.benchmarking.verdicts.baselines import baseline_folder, list_baselines

AT = "@"
"""Separates a run from one of its targets: `latest@sqlite-baseline`."""


@dataclass(frozen=True)
class RunReference:
    """A run, or only one of its targets."""

    folder: Path
    target: str | None = None


def resolve_names(output_dir: Path, names: Sequence[str]) -> list[RunReference]:
    """Return the runs that the names refer to. Raise an error for fewer than two names or duplicates."""
    if len(names) < 2:
        raise InvalidBenchmarkConfig("name at least two runs or targets to compare")
    found = [_resolve(output_dir, name) for name in names]
    if len(set(found)) < len(found):
        twice = next(name for name, each in zip(names, found, strict=True) if found.count(each) > 1)
        raise InvalidBenchmarkConfig(f"{twice!r} is named twice: name two different runs or targets")
    return found


def find_run_or_baseline(output_dir: Path, name: str) -> Path:
    """Return the folder of a run, from its id or from the name of a baseline."""
    known = [each.name for each in list_baselines(output_dir)]
    if name in known:
        return baseline_folder(output_dir, name)
    try:
        return find_run(output_dir, name)
    except UnknownName as problem:
        hint = f"; baselines: {', '.join(known)}" if known else ""
        raise UnknownName(f"{problem}{hint}") from None


def _resolve(output_dir: Path, name: str) -> RunReference:
    try:
        return RunReference(find_run_or_baseline(output_dir, name))
    except UnknownName as problem:
        unknown = problem
    # RUN@TARGET, where also the target may have an @: latest@mem0@1.0.0.
    parts = name.split(AT)
    for cut in range(1, len(parts)):
        run, target = AT.join(parts[:cut]), AT.join(parts[cut:])
        try:
            folder = find_run_or_baseline(output_dir, run)
        except UnknownName as problem:
            unknown = problem if cut == 1 else unknown
            continue
        targets = read_run(folder).targets
        if target not in targets:
            raise UnknownName(f"{run} has no target {target!r}: {nearest(target, targets)}")
        return RunReference(folder, target)
    # A target alone means the newest run that has it.
    seen: set[str] = set()
    for folder in reversed(run_folders(output_dir)):
        try:
            targets = read_run(folder).targets
        except BenchmarkError:
            continue
        if name in targets:
            return RunReference(folder, name)
        seen.update(targets)
    hint = f", and no target of that name (known: {', '.join(sorted(seen))})" if seen else ""
    raise UnknownName(f"{unknown}{hint}")
