"""Hooks store the calls of existing agents, and a failure of the memory never disturbs an agent."""

from __future__ import annotations

import asyncio
import logging
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from small_embedder import small_embedder

from memory import AgentMemory, AgentMemorySystem, MemoryHooks, with_memory
from memory.hooks import to_json

Open = Callable[..., AgentMemorySystem]


@pytest.fixture
def memory(open_memory: Open) -> AgentMemorySystem:
    return open_memory(embedder=small_embedder())


class Plain:
    """An agent without a memory, which counts its calls."""

    agent_id = "walker"

    def __init__(self) -> None:
        self.calls = 0

    def act(self, observation: Any, *more: Any, **options: Any) -> Any:
        """Do something."""
        self.calls += 1
        if observation == "fail":
            raise KeyError("the agent's own error")
        return {"went": observation}

    def observe(self, what: Any) -> None:
        self.calls += 1

    def get_state(self) -> dict[str, Any]:
        self.calls += 1
        return {"calls": self.calls}


class PlainAsync:
    agent_id = "walker"

    def __init__(self) -> None:
        self.calls = 0

    async def act(self, observation: Any) -> Any:
        self.calls += 1
        await asyncio.sleep(0)
        if observation == "fail":
            raise KeyError("the agent's own error")
        return {"went": observation}


def decorated(memory: AgentMemorySystem, cls: type = Plain, **options: Any) -> Any:
    fresh = type(cls.__name__, (cls,), {})
    return with_memory(memory, **options)(fresh)


def mixed_in(memory: AgentMemorySystem, cls: type = Plain, **options: Any) -> Any:
    body = {f"memory_{name}": value for name, value in options.items()}
    return type(cls.__name__, (MemoryHooks, cls), {"memory_system": memory, **body})


WAYS = pytest.mark.parametrize("way", [decorated, mixed_in], ids=["decorator", "mixin"])


def recorded(memory: AgentMemorySystem, agent: str = "walker") -> list[tuple[str, int | None, Any]]:
    entries = memory.retrieve_by_time_range(agent)
    return [(entry.kind, entry.step, entry.content) for entry in entries]


# -- what is stored -------------------------------------------------------------------------------


@WAYS
def test_calls_are_stored_after_they_have_run(memory: AgentMemorySystem, way: Any) -> None:
    walker = way(memory)()
    walker.observe("a door")
    assert walker.act("open", "slowly", force=2) == {"went": "open"}
    assert walker.get_state() == {"calls": 3}
    walker.act("rest")
    assert recorded(memory) == [
        ("interaction", 0, {"method": "observe", "input": "a door"}),
        (
            "action",
            0,
            {
                "method": "act",
                "input": ["open", "slowly"],
                "options": {"force": 2},
                "result": {"went": "open"},
            },
        ),
        ("state", 1, {"calls": 3}),
        ("action", 1, {"method": "act", "input": "rest", "result": {"went": "rest"}}),
    ]
    assert walker.memory_failures == 0
    assert isinstance(walker.memory, AgentMemory)
    assert len(walker.memory.recent()) == 4


@WAYS
def test_an_async_method_stays_async_and_is_stored(memory: AgentMemorySystem, way: Any) -> None:
    walker = way(memory, PlainAsync)()
    assert asyncio.iscoroutinefunction(walker.act)

    async def run() -> list[Any]:
        return list(await asyncio.gather(*(walker.act(number) for number in range(5))))

    assert asyncio.run(run()) == [{"went": number} for number in range(5)]
    assert walker.calls == 5
    assert sorted(content["input"] for _, _, content in recorded(memory)) == list(range(5))


@WAYS
def test_an_exception_is_passed_on_and_nothing_is_stored(memory: AgentMemorySystem, way: Any) -> None:
    walker = way(memory)()
    with pytest.raises(KeyError, match="the agent's own error"):
        walker.act("fail")
    assert walker.calls == 1
    eager = way(memory, PlainAsync)()
    with pytest.raises(KeyError, match="the agent's own error"):
        asyncio.run(eager.act("fail"))
    assert recorded(memory) == []
    walker.act("again")
    assert len(recorded(memory)) == 1, "the call after a failed one is stored"


@WAYS
def test_a_hooked_method_looks_like_the_original(memory: AgentMemorySystem, way: Any) -> None:
    cls = way(memory)
    assert cls.act.__name__ == "act"
    assert cls.act.__doc__ == "Do something."


@WAYS
def test_the_agent_id_is_the_instances_own_or_the_given_one(memory: AgentMemorySystem, way: Any) -> None:
    way(memory, agent_id="fixed")().act("x")
    way(memory, agent_id=lambda instance: f"number {instance.calls}")().act("x")

    class Nameless:
        def act(self) -> None: ...

    way(memory, Nameless)().act()
    walker = way(memory)()
    walker.agent_id = "own"
    walker.act("x")
    assert memory.agents() == ["fixed", "number 1", "Nameless", "own"]


@WAYS
def test_importance_is_a_number_or_a_function(memory: AgentMemorySystem, way: Any) -> None:
    def weigh(kind: str, content: Any) -> float:
        return 5.0 if kind == "action" else 0.5

    weigh_it: Any = weigh if way is decorated else staticmethod(weigh)
    walker = way(memory, importance=weigh_it)()
    walker.act("x")
    walker.observe("y")
    light = way(memory, importance=2.5)()
    light.observe("z")
    assert [entry.importance for entry in memory.retrieve_by_time_range("walker")] == [5.0, 0.5, 2.5]


@WAYS
def test_a_class_need_not_have_all_methods(memory: AgentMemorySystem, way: Any) -> None:
    class Observer:
        agent_id = "walker"
        act = None

        def observe(self, what: str) -> str:
            return what

    observer = way(memory, Observer)()
    assert observer.observe("x") == "x"
    assert not hasattr(observer, "get_state")
    assert observer.act is None
    assert len(recorded(memory)) == 1


@WAYS
def test_static_and_class_methods_work_as_before(memory: AgentMemorySystem, way: Any) -> None:
    class Odd:
        agent_id = "walker"

        @staticmethod
        def act(observation: str) -> str:
            return f"static {observation}"

        @classmethod
        def observe(cls, what: str) -> str:
            return f"{cls.__name__} {what}"

    cls = way(memory, Odd)
    odd = cls()
    assert odd.act("x") == "static x"
    assert odd.observe("y") == f"{cls.__name__} y"


def test_only_the_given_methods_are_stored(memory: AgentMemorySystem) -> None:
    @with_memory(memory, methods=["speak"])
    class Speaker:
        agent_id = "walker"

        def speak(self, words: str) -> None: ...

        def act(self) -> None: ...

    speaker = Speaker()
    speaker.speak("hello")
    speaker.act()
    assert recorded(memory) == [("speak", 0, {"method": "speak", "input": "hello"})]


# -- inheritance ----------------------------------------------------------------------------------


def test_an_override_that_calls_its_parent_is_stored_once(memory: AgentMemorySystem) -> None:
    class Base(MemoryHooks):
        memory_system = memory
        agent_id = "walker"

        def act(self, observation: str) -> str:
            return f"base {observation}"

    class Middle(Base):
        def act(self, observation: str) -> str:
            return f"middle {super().act(observation)}"

    class Leaf(Middle):
        def act(self, observation: str) -> str:
            return f"leaf {super().act(observation)}"

    assert Leaf().act("x") == "leaf middle base x"
    assert [content["result"] for _, _, content in recorded(memory)] == ["leaf middle base x"]
    Base().act("y")
    assert len(recorded(memory)) == 2


def test_a_decorated_class_and_its_decorated_child_store_once(memory: AgentMemorySystem) -> None:
    parent = decorated(memory)

    @with_memory(memory)
    class Child(parent):  # type: ignore[misc, valid-type]
        def act(self, observation: str) -> Any:
            return [super().act(observation)]

    class Undecorated(parent):  # type: ignore[misc, valid-type]
        pass

    assert Child().act("x") == [{"went": "x"}]
    assert [content["result"] for _, _, content in recorded(memory)] == [[{"went": "x"}]]
    Undecorated().act("y")
    assert len(recorded(memory)) == 2


def test_an_async_override_that_calls_its_parent_is_stored_once(memory: AgentMemorySystem) -> None:
    class Child(mixed_in(memory, PlainAsync)):  # type: ignore[misc]
        async def act(self, observation: str) -> Any:
            return [await super().act(observation)]

    assert asyncio.run(Child().act("x")) == [{"went": "x"}]
    assert [content["result"] for _, _, content in recorded(memory)] == [[{"went": "x"}]]


def test_calls_of_two_agents_that_call_each_other_are_both_stored(memory: AgentMemorySystem) -> None:
    cls = decorated(memory, agent_id=lambda instance: instance.name)

    class Caller(cls):  # type: ignore[misc, valid-type]
        name = "caller"

        def observe(self, what: Any) -> None:
            what.act("from the caller")

    other = cls()
    other.name = "other"
    caller = with_memory(memory, agent_id=lambda instance: instance.name)(Caller)()
    caller.observe(other)
    assert len(recorded(memory, "other")) == 1
    assert len(recorded(memory, "caller")) == 1


# -- failures -------------------------------------------------------------------------------------


def broken_memories() -> dict[str, Callable[[AgentMemorySystem, Any], Any]]:
    def closed(memory: AgentMemorySystem, way: Any) -> Any:
        memory.close()
        return way(memory)

    def importance_raises(memory: AgentMemorySystem, way: Any) -> Any:
        def weigh(kind: str, content: Any) -> float:
            raise RuntimeError("no idea")

        return way(memory, importance=weigh if way is decorated else staticmethod(weigh))

    def importance_is_nonsense(memory: AgentMemorySystem, way: Any) -> Any:
        return way(memory, importance=float("nan"))

    def id_raises(memory: AgentMemorySystem, way: Any) -> Any:
        return way(memory, agent_id=lambda instance: instance.no_such_attribute)

    def id_is_too_long(memory: AgentMemorySystem, way: Any) -> Any:
        return way(memory, agent_id="x" * 1000)

    return {
        "closed": closed,
        "importance raises": importance_raises,
        "importance is nonsense": importance_is_nonsense,
        "id raises": id_raises,
        "id is too long": id_is_too_long,
    }


@WAYS
@pytest.mark.parametrize("how", broken_memories())
def test_a_memory_that_fails_does_not_disturb_the_agent(
    memory: AgentMemorySystem, caplog: pytest.LogCaptureFixture, way: Any, how: str
) -> None:
    walker = broken_memories()[how](memory, way)()
    with caplog.at_level(logging.WARNING):
        assert walker.act("x") == {"went": "x"}
    assert walker.calls == 1
    assert walker.memory_failures == 1
    assert len(caplog.records) == 1
    assert "act was not stored" in caplog.text
    walker.observe("y")
    assert (walker.calls, walker.memory_failures) == (2, 2)
    with pytest.raises(KeyError):
        walker.act("fail")
    assert walker.memory_failures == 2
    other = type(walker)()
    assert other.memory_failures == 0, "failures are counted by instance"


@WAYS
def test_a_memory_that_fails_does_not_disturb_an_async_agent(memory: AgentMemorySystem, way: Any) -> None:
    walker = way(memory, PlainAsync)()
    memory.close()
    assert asyncio.run(walker.act("x")) == {"went": "x"}
    assert (walker.calls, walker.memory_failures) == (1, 1)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def holding_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@WAYS
@pytest.mark.parametrize("result", [Unprintable(), holding_itself()], ids=["no repr", "holds itself"])
def test_results_that_can_not_be_stored_are_passed_on(
    memory: AgentMemorySystem, way: Any, result: Any
) -> None:
    class Odd:
        agent_id = "walker"

        def act(self) -> Any:
            return result

    odd = way(memory, Odd)()
    assert odd.act() is result
    assert odd.memory_failures == 1
    assert recorded(memory) == []


def with_slots(memory: AgentMemorySystem) -> Any:
    @with_memory(memory)
    class Slotted:
        __slots__ = ("calls",)

        def __init__(self) -> None:
            self.calls = 0

        def act(self, observation: Any) -> Any:
            self.calls += 1
            return observation

        def observe(self, what: Any) -> Any:
            return what

    return Slotted()


def frozen(memory: AgentMemorySystem) -> Any:
    @with_memory(memory)
    @dataclass(frozen=True)
    class Frozen:
        name: str = "frozen"

        def act(self, observation: Any) -> Any:
            return observation

    return Frozen()


def test_calls_of_a_class_with_slots_are_stored(memory: AgentMemorySystem) -> None:
    slotted = with_slots(memory)
    assert not hasattr(slotted, "__dict__")
    assert slotted.act("x") == "x"
    assert slotted.observe("y") == "y"
    assert slotted.act("z") == "z"
    kinds = [(kind, step) for kind, step, _ in recorded(memory, "Slotted")]
    assert kinds == [("action", None), ("interaction", None), ("action", None)], (
        "there is no attribute to count steps"
    )
    assert slotted.memory_failures == 0


def test_a_memory_that_fails_does_not_disturb_a_class_with_slots(memory: AgentMemorySystem) -> None:
    slotted = with_slots(memory)
    memory.close()
    assert slotted.act("x") == "x"
    assert (slotted.calls, slotted.memory_failures) == (1, 1)


def test_calls_of_a_frozen_class_are_stored_and_failures_do_not_disturb_it(
    memory: AgentMemorySystem,
) -> None:
    agent = frozen(memory)
    assert agent.act("x") == "x"
    assert len(recorded(memory, "Frozen")) == 1
    memory.close()
    assert agent.act("y") == "y"


@WAYS
def test_an_agent_with_a_memory_of_its_own_keeps_it(memory: AgentMemorySystem, way: Any) -> None:
    class Owner:
        agent_id = "walker"

        def __init__(self) -> None:
            self.memory = ["its own"]

        def act(self) -> list[str]:
            return self.memory

    owner = way(memory, Owner)()
    assert owner.act() == ["its own"]
    assert len(recorded(memory)) == 1


def test_the_error_of_a_mixin_without_a_system_says_what_to_do(memory: AgentMemorySystem) -> None:
    class WithoutSystem(MemoryHooks, Plain):
        pass

    agent = WithoutSystem()
    assert agent.act("x") == {"went": "x"}
    with pytest.raises(AttributeError, match="memory_system"):
        _ = agent.memory


# -- Python values as JSON ------------------------------------------------------------------------


class Level(IntEnum):
    HIGH = 3


Point = namedtuple("Point", "x y")


@dataclass
class Part:
    name: str
    inner: Any = field(default_factory=list)


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (None, None),
        (True, True),
        (Level.HIGH, 3),
        (2**70, 2**70),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (np.float32(0.5), 0.5),
        (np.float64("inf"), "inf"),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.0, np.nan]), [1.0, "nan"]),
        (np.array(5), 5),
        ((1, "a", [None]), [1, "a", [None]]),
        ({3}, [3]),
        (frozenset({"a"}), ["a"]),
        ({1: {"a": {2.5: ()}}}, {"1": {"a": {"2.5": []}}}),
        (Point(1, 2), [1, 2]),
        (Part("a", [Part("b")]), {"name": "a", "inner": [{"name": "b", "inner": []}]}),
        (b"x", "b'x'"),
        (Part, repr(Part)),
        (1j, "1j"),
        (range(2), "range(0, 2)"),
    ],
)
def test_python_values_become_json(memory: AgentMemorySystem, value: Any, json: Any) -> None:
    assert to_json(value) == json
    entry = memory.get("ann", memory.add("ann", {"v": to_json(value)}))
    assert entry is not None
    assert entry.content == {"v": json}
    agent = with_memory(memory)(type("Walker", (Plain,), {}))()
    agent.act({"seen": [value]})
    agent.observe(value)
    stored = [each.content for each in agent.memory.recent(2)]
    by_act = {"method": "act", "input": {"seen": [json]}, "result": {"went": {"seen": [json]}}}
    assert stored == [{"method": "observe", "input": json}, by_act]
    assert agent.memory_failures == 0
