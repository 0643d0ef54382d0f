"""Loading a user's own file as a module: benchmarks and targets that are not installed."""

from __future__ import annotations

import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from memory.benchmarking.errors import BrokenBenchmark


def load_file(path: Path) -> ModuleType:
    """Run a file as a module. Its folder is on the path meanwhile, so that it may import its neighbours."""
    path = path.resolve()
    if not path.is_file():
        raise BrokenBenchmark(f"{path} is not a file: give the path of a Python file")
    name = f"membench_file_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BrokenBenchmark(f"{path} is not a Python file: its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        sys.modules.pop(name, None)
        raise BrokenBenchmark(f"{path.name} can't be loaded: {cause_of(problem, path)}") from problem
    finally:
        sys.path.remove(str(path.parent))
    return module


def cause_of(problem: BaseException, path: Path | None = None) -> str:
    """An exception in one line, with the place in the user's file where it came from."""
    what = traceback.format_exception_only(problem)[-1].strip()
    if isinstance(problem, SyntaxError):
        return f"{what} ({problem.filename}, line {problem.lineno})"
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if path is None or frame.filename == str(path)]
    place = ours[-1] if ours else (frames[-1] if frames else None)
    return what if place is None else f"{what} ({place.filename}, line {place.lineno})"
