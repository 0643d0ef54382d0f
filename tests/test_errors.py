"""All exceptions are in one module, and the tree in its docstring is the real one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import memory
from memory import errors
from memory.agents import errors as agent_errors
from memory.errors import AgentMemoryError


def subclasses_of(error: type[Exception]) -> Iterator[type[Exception]]:
    for child in error.__subclasses__():
        yield child
        yield from subclasses_of(child)


def lines_of(error: type[Exception]) -> list[str]:
    """Draw an error and those below it, in the order of their definition."""
    others = [base.__name__ for base in error.__bases__ if not issubclass(base, AgentMemoryError)]
    lines = [error.__name__ + (f" ({', '.join(others)})" if others else "")]
    children = [child for child in error.__subclasses__() if child.__module__ == errors.__name__]
    for child in children:
        first, rest = ("└── ", "    ") if child is children[-1] else ("├── ", "│   ")
        head, *tail = lines_of(child)
        lines += [first + head, *(rest + line for line in tail)]
    return lines


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawing = "\n".join(f"    {line}" for line in lines_of(AgentMemoryError))
    assert f"\n\n{drawing}\n\n" in (errors.__doc__ or ""), f"draw it so:\n{drawing}"


def test_all_public_exceptions_are_defined_in_the_errors_module() -> None:
    for module in pkgutil.walk_packages(memory.__path__, "memory."):
        if not module.name.startswith(("memory.benchmarking", "memory.integrations")):
            importlib.import_module(module.name)
    elsewhere = {
        error
        for error in subclasses_of(AgentMemoryError)
        if error.__module__ != errors.__name__
        and error.__module__.startswith("memory.")
        and not error.__module__.startswith("memory.benchmarking")
        and not error.__name__.startswith("_")
    }
    assert not elsewhere


def test_the_errors_of_the_agent_loop_are_importable_from_both_places() -> None:
    for error in (errors.AgentError, *subclasses_of(errors.AgentError)):
        if error.__module__ == errors.__name__:
            assert getattr(agent_errors, error.__name__) is error


def test_every_exception_has_a_docstring_of_its_own() -> None:
    for _, error in inspect.getmembers(errors, inspect.isclass):
        assert error.__doc__ not in (None, *(base.__doc__ for base in error.__bases__)), error
