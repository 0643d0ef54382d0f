"""Loads a user's own file as a module: benchmarks and targets that are not installed."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

from memory.benchmarking.errors import BenchmarkError, BrokenBenchmark

_PREFIX = "membench_file_"
"""The modules of users' files are called this and the name of the file."""
_PREDEFINED = {"Any": Any, "Dict": dict, "List": list, "Optional": Optional}
"""Names that a file can use without an import: the annotations of the usual benchmark skeleton."""
_MOST_CHARACTERS = 500
"""The most characters of an exception's text in a message; the log has all of it."""


def load_file(path: Path) -> ModuleType:
    """Import a file as a module. It can import other files of its folder, and use `_PREDEFINED` names."""
    path = path.resolve()
    if not path.is_file():
        raise BrokenBenchmark(f"{path} is not a file: pass the path of a Python file")
    name = f"{_PREFIX}{path.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BrokenBenchmark(f"{path} is not a Python file: its name must end in .py")
    module = module_from_spec(spec)
    vars(module).update(_PREDEFINED)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        sys.modules.pop(name, None)
        raise BrokenBenchmark(f"{path.name} can't be loaded: {cause_of(problem, path)}") from problem
    finally:
        with suppress(ValueError):  # the file may have removed it
            sys.path.remove(str(path.parent))
    return module


def is_file_module(name: str) -> bool:
    """Return whether a module is a user's file, loaded by `load_file`."""
    return name.startswith(_PREFIX)


def cause_of(problem: BaseException, path: Path | None = None) -> str:
    """Return an exception in one line, with the line of the user's file `path` that raised it."""
    what = _one_line(problem)
    if isinstance(problem, SyntaxError):
        return f"{what} ({problem.filename}, line {problem.lineno})"
    frames = traceback.extract_tb(problem.__traceback__)
    in_file = [frame for frame in frames if path is None or frame.filename == str(path)]
    if isinstance(problem, BenchmarkError) and (path is None or not in_file):
        return what  # its text is enough
    place = in_file[-1] if in_file else (frames[-1] if frames else None)
    return what if place is None else f"{what} ({place.filename}, line {place.lineno})"


def _one_line(problem: BaseException) -> str:
    if isinstance(problem, BenchmarkError):
        text = str(problem)
    else:
        lines = traceback.format_exception_only(problem)
        # A syntax error begins with its place, in indented lines; notes come last.
        text = next(line for line in lines if not line.startswith(" "))
    text = " ".join(text.split()).encode(errors="backslashreplace").decode()
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
