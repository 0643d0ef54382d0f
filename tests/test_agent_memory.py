"""AgentMemory has the methods of AgentMemorySystem, with the same signatures but without `agent_id`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from memory import AgentMemory, AgentMemorySystem
from memory.system import NewMemory

OTHER_NAMES = {"similar": "retrieve_similar_states", "statistics": "get_memory_statistics"}
OTHER_PARAMETERS = {("similar", "state"): "query_state"}
METHODS = [name for name, _ in inspect.getmembers(AgentMemory, inspect.isfunction) if name[0] != "_"]


def parameters_of(method: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(method).parameters.values()
    return [parameter for parameter in parameters if parameter.name not in ("self", "agent_id")]


def of_system(name: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(AgentMemorySystem, OTHER_NAMES.get(name, name))
    return method


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_signature_of_the_systems_method(name: str) -> None:
    mine, theirs = parameters_of(getattr(AgentMemory, name)), parameters_of(of_system(name))
    expected = [OTHER_PARAMETERS.get((name, parameter.name), parameter.name) for parameter in mine]
    assert expected == [parameter.name for parameter in theirs]
    for one, other in zip(mine, theirs, strict=True):
        assert (one.kind, one.default) == (other.kind, other.default)
        if one.name != "batch":  # an agent's batch has no NewMemory, which names the agent
            assert one.annotation == other.annotation
    returned = [
        inspect.signature(method).return_annotation
        for method in (getattr(AgentMemory, name), of_system(name))
    ]
    assert returned[0] == returned[1]


@pytest.mark.parametrize("owner", [AgentMemory, AgentMemorySystem])
def test_every_public_method_has_a_docstring_and_no_unnamed_arguments(owner: type) -> None:
    for name, method in inspect.getmembers(owner, inspect.isfunction):
        if name[0] != "_":
            assert method.__doc__, name
            for parameter in inspect.signature(method).parameters.values():
                assert parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD), name


def test_the_fields_of_a_new_memory_are_the_arguments_of_add() -> None:
    names = [parameter.name for parameter in parameters_of(AgentMemorySystem.add)]
    assert ["agent_id", *names] == list(NewMemory.__struct_fields__)
