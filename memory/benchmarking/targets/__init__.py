"""Memory systems under test, one file each, all behind the interface of `base.py`.

A target of another package announces itself by the entry point group `agentmemory.targets`; one of
your own file is given as `--target my_target.py:MyTarget`. See docs/targets.md.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from memory.benchmarking.errors import BrokenBenchmark, UnknownName, nearest
from memory.benchmarking.model.user_files import cause_of, load_file
from memory.benchmarking.targets.base import Capabilities as Capabilities
from memory.benchmarking.targets.base import Item as Item
from memory.benchmarking.targets.base import Target as Target

GROUP = "agentmemory.targets"
DEFAULT = "agentmemory"

_BUILT_IN = {
    "agentmemory": "memory.benchmarking.targets.agentmemory:AgentMemoryTarget",
    "sqlite-baseline": "memory.benchmarking.targets.sqlite_baseline:SQLiteBaselineTarget",
}


def target_names() -> list[str]:
    return sorted({*_BUILT_IN, *_announced()})


def _announced() -> dict[str, str]:
    """Targets of installed packages: name to `package.module:Class`."""
    from importlib.metadata import entry_points  # slow to load, and most commands don't need it

    return {point.name: point.value for point in entry_points(group=GROUP)}


def load_target(name: str) -> type[Target]:
    """The class of a target by its name, or by `file.py:Class` or `package.module:Class`."""
    place = _BUILT_IN.get(name)
    if place is None and ":" not in name:
        place = _announced().get(name)
        if place is None:
            raise UnknownName(f"there is no target {name!r}: {nearest(name, target_names())}")
    home, _, attribute = (place or name).rpartition(":")
    try:
        module = load_file(Path(home)) if home.endswith(".py") else import_module(home)
        target = getattr(module, attribute)
    except BrokenBenchmark:
        raise
    except (Exception, SystemExit) as problem:
        raise BrokenBenchmark(f"target {name!r} can't be loaded: {cause_of(problem)}") from problem
    if not (isinstance(target, type) and issubclass(target, Target)):
        raise BrokenBenchmark(
            f"target {name!r} is not a class that derives from Target: see docs/targets.md"
        )
    return target
