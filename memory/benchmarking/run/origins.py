"""Where the code of a run comes from: the folders with their names, and the versions of the targets."""

from __future__ import annotations

import hashlib
import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec

from memory.benchmarking.conformance.records import stored_mark
from memory.benchmarking.model.records import Case, TargetInfo
from memory.benchmarking.model.user_files import is_file_module
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Target
from memory.benchmarking.targets.environments import distribution_of, normalised
from memory.benchmarking.targets.interpreters import interpreter_of

_OWN = "memory"
"""The top package of membench and of the built-in targets."""


def source_paths(cases: Sequence[Case], targets: Iterable[str]) -> dict[str, list[Path]]:
    """Return the code that a run depends on, by name: benchmark files, targets, current folder, membench.

    Args:
        cases: their `source` files are the benchmark files.
        targets: the names of the targets, as `--target` takes them.
    """
    found: dict[str, list[Path]] = {}
    files = [Path(file) for file in dict.fromkeys(case.source for case in cases if case.source)]
    folders = {file.parent for file in files}
    for file in files:
        name = "benchmarks" if len(folders) == 1 else f"benchmarks {file.name}"
        found.setdefault(name, []).append(file)
    modules = dict.fromkeys(case.module for case in cases if case.module and not case.source)
    for package in dict.fromkeys(module.partition(".")[0] for module in modules):
        if package != _OWN:
            found[f"benchmarks {package}"] = [_package_folder(package)]
    for name in targets:
        kind = load_target(name)
        found[f"target {kind.name}"] = [_code_of(kind)]
    found["current folder"] = [Path.cwd()]
    found["membench"] = [_package_folder("memory.benchmarking")]
    return found


def _module_of(kind: type[Target]) -> ModuleType:
    return sys.modules[kind.__module__]


def _is_user_file(kind: type[Target]) -> bool:
    return is_file_module(kind.__module__)


def _code_of(kind: type[Target]) -> Path:
    """Return the user's file of a target, or the folder of its top package."""
    if _is_user_file(kind):
        return Path(str(_module_of(kind).__file__))
    return _package_folder(kind.__module__.partition(".")[0])


def _files_of(kind: type[Target]) -> list[Path]:
    """Return the user's file of a target, and those of its base classes in the same folder."""
    own = _code_of(kind).resolve()
    bases = [Path(inspect.getfile(each)).resolve() for each in kind.__mro__ if issubclass(each, Target)]
    return list(dict.fromkeys([own, *(file for file in bases if file.parent == own.parent)]))


def _package_folder(name: str) -> Path:
    module = import_module(name)
    if module.__file__ is not None:
        file = Path(module.__file__).resolve()
        return file.parent if file.name == "__init__.py" else file
    return Path(next(iter(module.__path__)))  # a package without __init__.py


def target_info(name: str) -> TargetInfo:
    """Return what a run records of a target: its name, durability, versions, and the hash of its file.

    The versions are those of the interpreter that runs the target.
    """
    kind = load_target(name)
    lock = interpreter_of(name).lock
    sha256 = ""
    if _is_user_file(kind):
        sha256 = hashlib.sha256(b"".join(file.read_bytes() for file in _files_of(kind))).hexdigest()
    declared = kind.distributions or tuple(map(distribution_of, kind.requirements))
    asked = list(dict.fromkeys([*declared, *_distributions_of(kind)]))
    info = TargetInfo(
        name=kind.name,
        durability=str(kind.capabilities.durability),
        search_by=kind.capabilities.search_by or "",
        versions=_versions(asked),
        sha256=sha256,
    )
    if lock is not None:
        packages = {**lock.packages, **lock.npm_packages}
        asked += [name for name in lock.npm_packages if lock.asked_of_npm(name)]
        versions = {
            name: packages.get(normalised(name)) or packages.get(name) or _versions([name])[name]
            for name in asked
        }
        info = msgspec.structs.replace(info, versions=versions, packages=packages, lock=lock.digest)
    return msgspec.structs.replace(info, conformance=stored_mark(name, info))


def _distributions_of(kind: type[Target]) -> list[str]:
    """Return the distributions of the target's package, and of the packages that its module imports."""
    module = _module_of(kind)
    names = {kind.__module__.partition(".")[0]}
    for value in vars(module).values():
        where = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(where, str):
            names.add(where.partition(".")[0])
    names -= {_OWN, *sys.stdlib_module_names}
    if kind.__module__.partition(".")[0] == _OWN or not names:
        return []  # built-in targets declare their distributions
    from importlib.metadata import packages_distributions  # slow: it reads all installed packages

    installed = packages_distributions()
    return sorted({each for name in names for each in installed.get(name, ())})


def _versions(distributions: Iterable[str]) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in dict.fromkeys(distributions):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def command_to_repeat(arguments: Sequence[str]) -> str:
    """Return a shell command that starts `membench` with the same arguments, from the same folder.

    Args:
        arguments: those after the name of the program.
    """
    config = os.environ.get("MEMBENCH_CONFIG")
    prefix = [f"MEMBENCH_CONFIG={shlex.quote(config)}"] if config else []
    return " ".join([*prefix, shlex.join([*_program(), *arguments])])


def _program() -> list[str]:
    """Return how to start membench: the script that was used, or the shortest spelling that works here."""
    script = Path(sys.argv[0])
    if script.name == "benchmark.py" and script.is_file():
        return [sys.executable, str(script.resolve())]
    installed = Path(sys.executable).parent / "membench"
    if installed.is_file():
        on_path = shutil.which("membench")
        same = on_path is not None and Path(on_path).resolve() == installed.resolve()
        return ["membench"] if same else [str(installed)]
    return [sys.executable, "-m", "memory.benchmarking.cli"]
