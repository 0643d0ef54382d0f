"""Leaves packages out of an environment: those that a target does not need (`Target.unneeded`).

uv resolves without them (`uv_overrides`). pip can't, so its answer is filtered (`needed_of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory.benchmarking.targets.environments import normalised


def uv_overrides(unneeded: Sequence[str]) -> str:
    """Return a file for `uv pip compile --override` that replaces each package by nothing."""
    return "".join(f"{name} ; python_version < '0'\n" for name in unneeded)


def needed_of(
    answer: Mapping[str, Any], requirements: Sequence[str], unneeded: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Return the packages that can be reached from the requirements without the unneeded ones.

    Args:
        answer: what `pip install --dry-run --report` wrote.
        requirements: what pip was asked to install.
        unneeded: names of packages.
    """
    from packaging.requirements import Requirement

    resolved = {normalised(each["metadata"]["name"]): each for each in answer["install"]}
    left_out = set(map(normalised, unneeded))
    todo = [(Requirement(each), "") for each in requirements]
    seen: set[tuple[str, str]] = set()
    while todo:
        needed, extra = todo.pop()
        name = normalised(needed.name)
        environment = {**answer["environment"], "extra": extra}
        if name in left_out or (needed.marker and not needed.marker.evaluate(environment)):
            continue
        for chosen in ("", *needed.extras):
            if name in resolved and (name, chosen) not in seen:
                seen.add((name, chosen))
                requires = resolved[name]["metadata"].get("requires_dist", ())
                todo += [(Requirement(each), chosen) for each in requires]
    reached = {name for name, _ in seen}
    return [each for name, each in resolved.items() if name in reached]
