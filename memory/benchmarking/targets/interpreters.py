"""Which interpreter runs a target: that of its environment, or the one that runs membench."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from memory.benchmarking.errors import MissingDependency, UnknownName
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Target
from memory.benchmarking.targets.environments import (
    Lock,
    code_folder,
    distribution_of,
    find_environment,
    held,
    slug_of,
)
from memory.benchmarking.targets.spelling import parse_target


@dataclass(frozen=True)
class Interpreter:
    """How to start a process that can use a target."""

    python: str = sys.executable
    paths: tuple[str, ...] | None = None
    """Its module search path; None for that of this process."""
    lock: Lock | None = None
    """What is installed in its environment; None for the interpreter that runs membench."""


def interpreter_of(text: str) -> Interpreter:
    """Return the interpreter of a target; the error for one that is not installed names the command.

    The target's own environment comes first, then the packages of this process. A version has to be the
    exact one, wherever it is.
    """
    spelling = parse_target(text)
    kind = load_target(text)
    for name in dict.fromkeys((spelling.environment, spelling.name)):
        lock = find_environment(name)
        if lock is not None and spelling.version in ("", lock.version):
            return Interpreter(str(lock.interpreter), (str(code_folder()),), lock)
    here = version_here(kind)
    if here is not None and spelling.version in ("", here):
        return Interpreter()
    if spelling.version and not kind.requirements and not kind.npm_requirements:
        raise UnknownName(f"there is no {spelling.environment}: the target has no versions")
    other = f" (here is version {here})" if here else ""
    raise MissingDependency(
        f"{spelling.environment} is not installed{other}: "
        f"run `membench targets install {spelling.environment}`"
    )


@contextmanager
def environments_in_use(targets: Iterable[str]) -> Iterator[None]:
    """Keep other processes from changing or removing the environments of these targets meanwhile."""
    with ExitStack() as locks:
        for text in dict.fromkeys(targets):
            lock = interpreter_of(text).lock
            if lock is not None:
                locks.enter_context(held(slug_of(lock.target), exclusive=False))
        yield


def version_here(kind: type[Target]) -> str | None:
    """Return the version of a system that membench can import itself; None if a package is missing.

    It is empty for a target that needs no packages.
    """
    from importlib.metadata import PackageNotFoundError, version

    if kind.npm_requirements:
        return None  # `node_modules` belongs to an environment
    found = ""
    for number, requirement in enumerate(kind.requirements):
        try:
            each = version(distribution_of(requirement))
        except PackageNotFoundError:
            if number and ";" in requirement:
                continue  # needed on some systems only
            return None
        found = found or each
    return found
