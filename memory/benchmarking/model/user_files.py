"""Loading a user's own file as a module: benchmarks and targets that are not installed."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from memory.benchmarking.errors import BenchmarkError, BrokenBenchmark

_MOST_CHARACTERS = 500
"""Of an exception's text; a whole page of it is in the log."""


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
    except (Exception, SystemExit) as problem:
        sys.modules.pop(name, None)
        raise BrokenBenchmark(f"{path.name} can't be loaded: {cause_of(problem, path)}") from problem
    finally:
        with suppress(ValueError):  # the file has taken it off itself
            sys.path.remove(str(path.parent))
    return module


def cause_of(problem: BaseException, path: Path | None = None) -> str:
    """An exception in one line, with the place in the user's file where it came from."""
    what = _one_line(problem)
    if isinstance(problem, SyntaxError):
        return f"{what} ({problem.filename}, line {problem.lineno})"
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if path is None or frame.filename == str(path)]
    if isinstance(problem, BenchmarkError) and (path is None or not ours):
        return what  # it says all by itself
    place = ours[-1] if ours else (frames[-1] if frames else None)
    return what if place is None else f"{what} ({place.filename}, line {place.lineno})"


def _one_line(problem: BaseException) -> str:
    if isinstance(problem, BenchmarkError):
        text = str(problem)
    else:
        lines = traceback.format_exception_only(problem)
        # A syntax error shows its place first, indented; notes come after everything.
        text = next(line for line in lines if not line.startswith(" "))
    text = " ".join(text.split()).encode(errors="backslashreplace").decode()
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
