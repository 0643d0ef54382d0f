"""Add a memory to an existing agent class, with a decorator or a mixin.

    @with_memory(system)
    class Walker:
        agent_id = "walker"
        def act(self, observation): ...

    class Walker(MemoryHooks, OldWalker):
        memory_system = system

Each call of `act`, `observe` and `get_state` is stored as a memory after the call has returned. The hooks
do not change what the agent does: its method runs exactly once, and its result or exception is passed on.
If a call can't be stored, the hook logs a warning and increases `memory_failures`.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import math
from collections.abc import Callable, Mapping, Sequence, Set
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from memory.agent import AgentMemory
from memory.errors import InvalidMemory

if TYPE_CHECKING:
    from memory.system import AgentMemorySystem

_log = logging.getLogger(__name__)

KINDS = {"act": "action", "observe": "interaction", "get_state": "state"}
"""The recorded methods, and the kind of their memories."""

C = TypeVar("C", bound=Any)
AgentId = str | Callable[[Any], str] | None
"""A name, or a function that gets the instance and returns the name."""
Importance = float | Callable[[str, Any], float]
"""A number, or a function that gets the kind and the content and returns the number."""

# The (instance id, method) pairs that are running. If an override calls its parent's method, only one
# memory is stored.
_running: ContextVar[frozenset[tuple[int, str]]] = ContextVar("agentmemory_running", default=frozenset())


def with_memory(
    system: AgentMemorySystem,
    *,
    agent_id: AgentId = None,
    importance: Importance = 1.0,
    methods: Sequence[str] = tuple(KINDS),
) -> Callable[[C], C]:
    """Return a class decorator that records calls and adds the attribute `memory` to instances.

    Args:
        system: stores the memories.
        agent_id: by default the instance's `agent_id`, or the name of its class.
        importance: the importance of each memory.
        methods: the names of the methods to record. A method that is not in `KINDS` has its name as kind.
    """

    def decorate(cls: C) -> C:
        for name in methods:
            _hook(cls, name, system, agent_id, importance)
        if not hasattr(cls, "memory"):
            cls.memory = _MemoryOf(lambda instance: AgentMemory(system, _id_of(instance, agent_id)))
        cls.memory_failures = 0
        return cls

    return decorate


class _MemoryOf:
    """A descriptor that creates the value on access. An instance attribute of the same name wins."""

    def __init__(self, make: Callable[[Any], AgentMemory]) -> None:
        self._make = make

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else self._make(instance)


def _memory_of_mixin(instance: Any) -> AgentMemory:
    owner = type(instance)
    if owner.memory_system is None:
        raise AttributeError(f"{owner.__name__} has no memory: set memory_system in its body")
    return AgentMemory(owner.memory_system, _id_of(instance, owner.memory_agent_id))


class MemoryHooks:
    """A mixin that records calls. Put it before the agent's class and set `memory_system` in the body."""

    memory_system: ClassVar[AgentMemorySystem | None] = None
    memory_agent_id: ClassVar[AgentId] = None
    """By default the instance's `agent_id`, or the name of its class."""
    memory_importance: ClassVar[Importance] = 1.0
    memory_failures: int = 0
    """How many calls could not be stored."""
    memory: Any = _MemoryOf(_memory_of_mixin)
    """An `AgentMemory`, unless the agent has a `memory` of its own."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.memory_system is not None:
            for name in KINDS:
                _hook(cls, name, cls.memory_system, cls.memory_agent_id, cls.memory_importance)


def _hook(
    cls: type, name: str, system: AgentMemorySystem, agent_id: AgentId, importance: Importance
) -> None:
    method = inspect.getattr_static(cls, name, None)
    # Skip static methods, class methods and callables that are not bound: their calls have no instance.
    if isinstance(method, staticmethod | classmethod) or not hasattr(type(method), "__get__"):
        return
    if not callable(method) or getattr(method, "__recorded__", False):
        return
    recorder = _Recorder(name, KINDS.get(name, name), system, agent_id, importance)
    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def recorded(self: Any, *args: Any, **named: Any) -> Any:
            key = (id(self), name)
            if key in _running.get():
                return await method(self, *args, **named)
            token = _running.set(_running.get() | {key})
            try:
                result = await method(self, *args, **named)
            finally:
                _running.reset(token)
            recorder.record(self, args, named, result)
            return result

    else:

        @wraps(method)
        def recorded(self: Any, *args: Any, **named: Any) -> Any:
            key = (id(self), name)
            if key in _running.get():
                return method(self, *args, **named)
            token = _running.set(_running.get() | {key})
            try:
                result = method(self, *args, **named)
            finally:
                _running.reset(token)
            recorder.record(self, args, named, result)
            return result

    recorded.__recorded__ = True  # type: ignore[attr-defined]
    setattr(cls, name, recorded)


@dataclasses.dataclass(frozen=True)
class _Recorder:
    """Stores the calls of one method. A failure never reaches the agent."""

    name: str
    kind: str
    system: AgentMemorySystem
    agent_id: AgentId
    importance: Importance

    def record(self, instance: Any, args: Sequence[Any], named: Mapping[str, Any], result: Any) -> None:
        try:
            content = self._content(args, named, result)
            weight = self.importance
            if callable(weight):
                content = to_json(content)
                weight = weight(self.kind, content)
            agent_id, step = _id_of(instance, self.agent_id), _step_of(instance, self.name)
            try:
                self.system.add(agent_id, content, kind=self.kind, step=step, importance=weight)
            except InvalidMemory:  # most content is JSON already, so converting first would waste time
                self.system.add(agent_id, to_json(content), kind=self.kind, step=step, importance=weight)
        except Exception as problem:  # no error of the memory may reach the agent
            _count_failure(instance)
            _log.warning("a call of %s.%s was not stored: %s", type(instance).__name__, self.name, problem)

    def _content(self, args: Sequence[Any], named: Mapping[str, Any], result: Any) -> Any:
        if self.name == "get_state":
            return result
        content: dict[str, Any] = {"method": self.name}
        if args:
            content["input"] = args[0] if len(args) == 1 else list(args)
        if named:
            content["options"] = dict(named)
        if result is not None:
            content["result"] = result
        return content


_ALREADY_JSON = frozenset((str, int, bool, type(None)))


def to_json(value: Any) -> Any:
    """Convert a value to JSON: arrays to lists, dataclasses to objects, other values to their repr."""
    # The agent waits for this function, so the most common types are checked first.
    kind = type(value)
    if kind in _ALREADY_JSON:
        return value
    if kind is float:
        return value if math.isfinite(value) else repr(value)
    if kind is dict:
        return {
            key if type(key) is str else str(key): child if type(child) in _ALREADY_JSON else to_json(child)
            for key, child in value.items()
        }
    if kind is list:
        return [child if type(child) in _ALREADY_JSON else to_json(child) for child in value]
    return _other_to_json(value)


def _other_to_json(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return to_json(float(value))
    if isinstance(value, Mapping):
        return {str(key): to_json(child) for key, child in value.items()}
    if isinstance(value, list | tuple | Set):
        return [to_json(child) for child in value]
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        return to_json(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: to_json(getattr(value, part.name)) for part in dataclasses.fields(value)}
    return repr(value)


def _id_of(instance: Any, agent_id: AgentId) -> str:
    if callable(agent_id):
        return agent_id(instance)
    return str(agent_id or getattr(instance, "agent_id", None) or type(instance).__name__)


def _step_of(instance: Any, name: str) -> int | None:
    """Return how often the agent has acted so far. Calls before an act have the same step as the act.

    Return None if the instance can't have new attributes, because the count is stored in an attribute."""
    step: int = getattr(instance, "_memory_step", 0)
    try:
        object.__setattr__(instance, "_memory_step", step + 1 if name == "act" else step)
    except AttributeError:
        return None
    return step


def _count_failure(instance: Any) -> None:
    try:
        object.__setattr__(instance, "memory_failures", instance.memory_failures + 1)
    except AttributeError:  # the instance can't have attributes: count in its class
        type(instance).memory_failures += 1
