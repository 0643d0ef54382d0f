"""Bad arguments of public methods raise a named exception with one line, and nothing is stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_embedder import DIMENSIONS, small_embedder

from memory import AgentMemorySystem, ManualClock, MemoryConfig
from memory.agents import SessionStore
from memory.errors import AgentError, AgentMemoryError, InvalidConfig, InvalidMemory, UnknownTier

ID = "the one that is there"
TOO_LONG = "x" * 513
BAD_NAMES: dict[str, Any] = {
    "empty": "",
    "None": None,
    "number": 5,
    "bytes": b"ann",
    "list": ["ann"],
    "object": {"a": 1},
    "too long": TOO_LONG,
    "half a surrogate pair": "ann\ud800",
}
SQUARE = np.zeros((2, 2))
"""Its repr has two lines."""


@pytest.fixture
def system(open_memory: Callable[..., AgentMemorySystem]) -> AgentMemorySystem:
    memory = open_memory(path=":memory:", embedder=small_embedder())
    memory.add("ann", {"a": 1}, id=ID, step=1)
    memory.add("5", "named like a number", id="5")
    return memory


def short(value: object) -> str:
    return " ".join(repr(value).split())[:40]


def assert_refused(
    system: AgentMemorySystem,
    call: Callable[[], object],
    error: type[AgentMemoryError] = InvalidMemory,
    naming: str = "",
) -> None:
    before = [system.retrieve_by_time_range(agent) for agent in system.agents()]
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    message = str(caught.value)
    assert len(message.splitlines()) == 1, message
    assert len(message) < 400, "the message is too long"
    assert naming in message
    message.encode()
    assert [system.retrieve_by_time_range(agent) for agent in system.agents()] == before


# -- agents and ids -------------------------------------------------------------------------------

BY_AGENT: dict[str, Callable[[AgentMemorySystem, Any], object]] = {
    "add": lambda memory, name: memory.add(name, "x"),
    "add_many": lambda memory, name: memory.add_many([{"agent_id": name, "content": "x"}]),
    "store_agent_state": lambda memory, name: memory.store_agent_state(name, {"x": 1}),
    "store_agent_action": lambda memory, name: memory.store_agent_action(name, {"x": 1}),
    "store_agent_interaction": lambda memory, name: memory.store_agent_interaction(name, {"x": 1}),
    "update": lambda memory, name: memory.update(name, ID, content="y"),
    "delete": lambda memory, name: memory.delete(name, ID),
    "delete_many": lambda memory, name: memory.delete_many(name, [ID]),
    "delete_all": lambda memory, name: memory.delete_all(name),
    "get": lambda memory, name: memory.get(name, "5"),
    "get_many": lambda memory, name: memory.get_many(name, [ID, "5"]),
    "exists": lambda memory, name: memory.exists(name, ID),
    "search": lambda memory, name: memory.search(name, "x"),
    "search for nothing": lambda memory, name: memory.search(name, "x", 0),
    "retrieve_similar_states": lambda memory, name: memory.retrieve_similar_states(name, "x"),
    "retrieve_by_time_range": lambda memory, name: memory.retrieve_by_time_range(name),
    "retrieve_by_step_range": lambda memory, name: memory.retrieve_by_step_range(name),
    "retrieve_by_attributes": lambda memory, name: memory.retrieve_by_attributes(name, {"a": 1}),
    "recent": lambda memory, name: memory.recent(name),
}
BY_AGENT_OR_ALL: dict[str, Callable[[AgentMemorySystem, Any], object]] = {
    "force_transition_to_im": lambda memory, name: memory.force_transition_to_im(100, name),
    "force_transition_to_ltm": lambda memory, name: memory.force_transition_to_ltm(100, name),
    "force_consolidation": lambda memory, name: memory.force_consolidation(name),
    "get_memory_statistics": lambda memory, name: memory.get_memory_statistics(name),
    "drop_caches": lambda memory, name: memory.drop_caches(name),
}


@pytest.mark.parametrize("bad", BAD_NAMES)
@pytest.mark.parametrize("verb", BY_AGENT)
def test_every_method_refuses_a_bad_agent_id(system: AgentMemorySystem, verb: str, bad: str) -> None:
    assert_refused(system, lambda: BY_AGENT[verb](system, BAD_NAMES[bad]), naming="agent_id")


@pytest.mark.parametrize("bad", [name for name in BAD_NAMES if name != "None"])
@pytest.mark.parametrize("verb", BY_AGENT_OR_ALL)
def test_methods_for_one_or_all_agents_refuse_a_bad_agent_id(
    system: AgentMemorySystem, verb: str, bad: str
) -> None:
    assert_refused(system, lambda: BY_AGENT_OR_ALL[verb](system, BAD_NAMES[bad]), naming="agent_id")


def test_an_export_refuses_a_bad_agent_id(system: AgentMemorySystem, tmp_path: Path) -> None:
    assert_refused(system, lambda: system.export_jsonl(tmp_path / "x", 5), naming="agent_id")  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


BY_ID: dict[str, Callable[[AgentMemorySystem, Any], object]] = {
    "update": lambda memory, id_: memory.update("ann", id_, content="y"),
    "delete": lambda memory, id_: memory.delete("5", id_),
    "delete_many": lambda memory, id_: memory.delete_many("5", ["x", id_]),
    "get": lambda memory, id_: memory.get("5", id_),
    "get_many": lambda memory, id_: memory.get_many("5", ["x", id_]),
    "get_many of one": lambda memory, id_: memory.get_many("5", [id_]),
    "exists": lambda memory, id_: memory.exists("5", id_),
}


@pytest.mark.parametrize("bad", BAD_NAMES)
@pytest.mark.parametrize("verb", BY_ID)
def test_every_method_refuses_a_bad_id(system: AgentMemorySystem, verb: str, bad: str) -> None:
    assert_refused(system, lambda: BY_ID[verb](system, BAD_NAMES[bad]), naming="id")


@pytest.mark.parametrize("verb", ["get_many", "delete_many"])
def test_a_single_id_instead_of_a_list_is_refused_and_not_split_into_letters(
    system: AgentMemorySystem, verb: str
) -> None:
    assert_refused(system, lambda: getattr(system, verb)("5", "5"))


@pytest.mark.parametrize("bad", [name for name in BAD_NAMES if name != "None"])
@pytest.mark.parametrize("field", ["id", "kind"])
def test_a_memory_with_a_bad_name_is_refused(system: AgentMemorySystem, field: str, bad: str) -> None:
    assert_refused(system, lambda: system.add("ann", "x", **{field: BAD_NAMES[bad]}), naming=field)


# -- fields of a memory ---------------------------------------------------------------------------

BAD_FIELDS: list[tuple[str, Any, str]] = [
    *(("importance", value, "importance is") for value in (
        math.nan, math.inf, -math.inf, -1, -0.001, "1", None, True, [1], 1j, 10**400, np.int64(1), SQUARE,
    )),
    *(("step", value, "step is") for value in (
        1.5, "1", True, 2**63, -(2**63), 10**400, math.nan, [1], np.int64(1), SQUARE,
    )),
    *(("timestamp", value, "timestamp is") for value in (
        math.nan, math.inf, "2023-05-08", True, [1], 10**400, np.int64(1), SQUARE, datetime.min,
    )),
    *(("metadata", value, "metadata") for value in (
        [1], [], "text", "", 5, 0, False, {1: 2}, {"a": {2}}, SQUARE, ["x" * 10_000],
    )),
    *(("vector", value, "vector") for value in (
        [1.0] * (DIMENSIONS - 1),
        [1.0] * (DIMENSIONS + 1),
        [[1.0] * DIMENSIONS],
        [],
        [math.nan] * DIMENSIONS,
        [math.inf] * DIMENSIONS,
        ["a"] * DIMENSIONS,
        "text",
        5,
        {"a": 1},
        [1j] * DIMENSIONS,
        [[1.0], [2.0, 3.0]],
    )),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "naming"), BAD_FIELDS, ids=short)
def test_a_memory_with_a_bad_field_is_refused(
    system: AgentMemorySystem, field: str, value: Any, naming: str
) -> None:
    assert_refused(system, lambda: system.add("ann", "x", **{field: value}), naming=naming)
    assert_refused(
        system,
        lambda: system.add_many(
            [{"agent_id": "ann", "content": "x"}, {"agent_id": "ann", "content": "x", field: value}]
        ),
        naming=naming,
    )
    if field not in ("timestamp", "vector"):
        assert_refused(system, lambda: system.update("ann", ID, **{field: value}), naming=naming)


@pytest.mark.parametrize("value", [math.nan, -1, "1", True, 10**400], ids=short)
def test_a_bad_priority_is_refused(system: AgentMemorySystem, value: Any) -> None:
    assert_refused(
        system, lambda: system.store_agent_state("ann", {}, priority=value), naming="importance is"
    )


@pytest.mark.parametrize(
    "item",
    [
        {"agent_id": "ann"},
        {"content": "x"},
        {"agent_id": "ann", "content": "x", "colour": "red"},
        {"agent_id": "ann", "content": "x", 5: "red"},
        {},
        5,
        "text",
        None,
        ["agent_id", "content"],
    ],
)
def test_an_item_that_is_not_a_memory_is_refused(system: AgentMemorySystem, item: Any) -> None:
    assert_refused(
        system,
        lambda: system.add_many([{"agent_id": "ann", "content": "x"}, item]),
        naming="arguments of add()",
    )


def test_a_single_item_instead_of_a_batch_is_refused(system: AgentMemorySystem) -> None:
    assert_refused(system, lambda: system.add_many({"agent_id": "ann", "content": "x"}))  # type: ignore[arg-type]


# -- tiers ----------------------------------------------------------------------------------------

BAD_TIERS: list[Any] = ["attic", "", "STM", "stm ", 0, 1, 3, True, ["stm"], b"stm", 1.5, {"stm"}]
BY_TIER: dict[str, Callable[[AgentMemorySystem, Any], object]] = {
    "add": lambda memory, tier: memory.add("ann", "x", tier=tier),
    "store_agent_state": lambda memory, tier: memory.store_agent_state("ann", "x", tier=tier),
    "store_agent_action": lambda memory, tier: memory.store_agent_action("ann", "x", tier=tier),
    "store_agent_interaction": lambda memory, tier: memory.store_agent_interaction("ann", "x", tier=tier),
    "exists": lambda memory, tier: memory.exists("ann", ID, tier),
    "search": lambda memory, tier: memory.search("ann", "x", tier=tier),
    "retrieve_similar_states": lambda memory, tier: memory.retrieve_similar_states("ann", "x", tier=tier),
    "retrieve_by_time_range": lambda memory, tier: memory.retrieve_by_time_range("ann", tier=tier),
    "retrieve_by_step_range": lambda memory, tier: memory.retrieve_by_step_range("ann", tier=tier),
    "retrieve_by_attributes": lambda memory, tier: memory.retrieve_by_attributes("ann", {}, tier=tier),
    "recent": lambda memory, tier: memory.recent("ann", tier=tier),
    "get_encoder": lambda memory, tier: memory.get_encoder(tier),
}


@pytest.mark.parametrize("tier", BAD_TIERS, ids=short)
@pytest.mark.parametrize("verb", BY_TIER)
def test_an_unknown_tier_is_refused_and_named(system: AgentMemorySystem, verb: str, tier: Any) -> None:
    assert_refused(system, lambda: BY_TIER[verb](system, tier), UnknownTier, naming=repr(tier))


def test_the_tier_all_is_refused_for_storing(system: AgentMemorySystem) -> None:
    assert_refused(system, lambda: system.add("ann", "x", tier="all"), UnknownTier, naming="'all'")
    assert_refused(system, lambda: system.get_encoder("all"), UnknownTier, naming="'all'")


# -- numbers of results ---------------------------------------------------------------------------

BY_COUNT: dict[str, Callable[[AgentMemorySystem, Any], object]] = {
    "search": lambda memory, k: memory.search("ann", "x", k),
    "retrieve_similar_states": lambda memory, k: memory.retrieve_similar_states("ann", "x", k),
    "recent": lambda memory, k: memory.recent("ann", k),
    "retrieve_by_time_range": lambda memory, k: memory.retrieve_by_time_range("ann", limit=k),
    "retrieve_by_step_range": lambda memory, k: memory.retrieve_by_step_range("ann", limit=k),
    "retrieve_by_attributes": lambda memory, k: memory.retrieve_by_attributes("ann", {"a": 1}, limit=k),
}


@pytest.mark.parametrize(
    "k", [-1, -(10**30), 1.0, math.nan, "3", True, False, [3], np.float64(2), SQUARE], ids=short
)
@pytest.mark.parametrize("verb", BY_COUNT)
def test_a_bad_number_of_results_is_refused(system: AgentMemorySystem, verb: str, k: Any) -> None:
    assert_refused(system, lambda: BY_COUNT[verb](system, k), naming=" is ")


@pytest.mark.parametrize("k", [2**31, 2**63, 10**30])
@pytest.mark.parametrize("verb", BY_COUNT)
def test_a_huge_number_of_results_returns_all(system: AgentMemorySystem, verb: str, k: int) -> None:
    assert len(BY_COUNT[verb](system, k)) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "percentage", [-1, 100.001, math.nan, math.inf, "50", None, True, 10**400, SQUARE], ids=short
)
@pytest.mark.parametrize("verb", ["force_transition_to_im", "force_transition_to_ltm"])
def test_a_bad_percentage_is_refused(system: AgentMemorySystem, verb: str, percentage: Any) -> None:
    assert_refused(system, lambda: getattr(system, verb)(percentage), naming="percentage is")
    assert system.get_memory_statistics()["tiers"]["stm"] == 2


# -- filters, ranges and queries ------------------------------------------------------------------


@pytest.mark.parametrize(
    "filters",
    ["text", [("a", 1)], 5, {"": 1}, {5: 1}, {None: 1}, {"a": [1]}, {"a": {"b": 1}}, {"a": {1}},
     {"a": b"x"}, {"a": SQUARE}, [], "", {"a" * 10_000: [1]}, {"a": Path("x")}],
    ids=short,
)  # fmt: skip
def test_bad_filters_are_refused(system: AgentMemorySystem, filters: Any) -> None:
    assert_refused(system, lambda: system.search("ann", "x", filters=filters), naming="filter")
    assert_refused(system, lambda: system.retrieve_by_attributes("ann", filters), naming="filter")


@pytest.mark.parametrize(
    "timestamp", [math.nan, math.inf, "today", True, [1], 10**400, SQUARE, datetime.min], ids=short
)
def test_bad_timestamps_are_refused(system: AgentMemorySystem, timestamp: Any) -> None:
    assert_refused(system, lambda: system.search("ann", "x", since=timestamp), naming="since is")
    assert_refused(system, lambda: system.search("ann", "x", until=timestamp), naming="until is")
    assert_refused(system, lambda: system.retrieve_by_time_range("ann", timestamp), naming="start_time is")
    assert_refused(
        system, lambda: system.retrieve_by_time_range("ann", None, timestamp), naming="end_time is"
    )


@pytest.mark.parametrize("step", [math.nan, "1", True, [1], SQUARE], ids=short)
def test_bad_steps_are_refused(system: AgentMemorySystem, step: Any) -> None:
    assert_refused(system, lambda: system.retrieve_by_step_range("ann", step), naming="first_step is")
    assert_refused(system, lambda: system.retrieve_by_step_range("ann", None, step), naming="last_step is")


@pytest.mark.parametrize("far", [2**63, 2**64, 10**400], ids=short)
def test_step_bounds_beyond_64_bits_work(system: AgentMemorySystem, far: int) -> None:
    assert [entry.id for entry in system.retrieve_by_step_range("ann", -far, far)] == [ID]
    assert system.retrieve_by_step_range("ann", far) == []
    assert system.retrieve_by_step_range("ann", None, -far) == []


@pytest.mark.parametrize("query", [None, 5, b"x", ["x"], {"a": 1}])
def test_a_query_that_is_not_text_is_refused(system: AgentMemorySystem, query: Any) -> None:
    assert_refused(system, lambda: system.search("ann", query), naming="query is")


@pytest.mark.parametrize("threshold", [math.nan, "0.5", True, [0.5], SQUARE], ids=short)
def test_a_bad_threshold_is_refused(system: AgentMemorySystem, threshold: Any) -> None:
    assert_refused(
        system,
        lambda: system.retrieve_similar_states("ann", "x", threshold=threshold),
        naming="threshold is",
    )


@pytest.mark.parametrize("memory_type", [5, "", ["state"], b"state"])
def test_a_bad_memory_type_is_refused(system: AgentMemorySystem, memory_type: Any) -> None:
    assert_refused(
        system,
        lambda: system.retrieve_similar_states("ann", "x", memory_type=memory_type),
        naming="memory_type",
    )


@pytest.mark.parametrize(
    "vector",
    [
        np.ones(DIMENSIONS - 1),
        np.ones((1, DIMENSIONS)),
        np.full(DIMENSIONS, np.nan),
        np.full(DIMENSIONS, np.inf),
        np.array(["a"] * DIMENSIONS),
        np.ones(DIMENSIONS, complex),
        SQUARE,
    ],
    ids=short,
)
def test_a_bad_query_vector_is_refused(system: AgentMemorySystem, vector: Any) -> None:
    assert_refused(system, lambda: system.retrieve_similar_states("ann", vector), naming="vector")


# -- configuration --------------------------------------------------------------------------------

BAD_CONFIG: list[tuple[str, Any]] = [
    *(
        (f"{part}.memory_limit", value)
        for part in ("stm_config", "im_config", "ltm_config")
        for value in (-1, 1.5, "5", True, math.nan)
    ),
    *(
        (f"{part}.ttl_seconds", value)
        for part in ("stm_config", "im_config")
        for value in (0, -1, "5", True, math.nan, math.inf, 10**400)
    ),
    *((f"{part}.codec", value) for part in ("im_config", "ltm_config") for value in ("zip", "", 5, None)),
    *(
        (f"{part}.codec_options", value)
        for part in ("im_config", "ltm_config")
        for value in (5, None, {"zip": 1})
    ),
    *(("ltm_config.db_path", value) for value in ("", 5, None, b"x")),
    *(("ltm_config.keep_fine_vectors", value) for value in ("yes", None, 2)),
    *(("durability", value) for value in ("none", None, 1, ["disk"])),
    *(("maintenance", value) for value in ("auto", None, True, ["manual"])),
    *(("cache_bytes", value) for value in (0, 1024 * 1024 - 1, 1e9, "1", True, -5)),
    *(("transition_batch", value) for value in (0, -1, 1.5, True, "1")),
    *(
        (name, value)
        for name in ("maintenance_interval_seconds", "busy_timeout_seconds")
        for value in (0, -1, math.nan, math.inf, "1", True, 10**400)
    ),
    *(("read_only", value) for value in ("no", None, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD_CONFIG, ids=short)
def test_a_bad_setting_is_refused_and_named(tmp_path: Path, field: str, value: Any) -> None:
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = str(tmp_path / "memory.db")
    *parts, name = field.split(".")
    setattr(getattr(config, parts[0]) if parts else config, name, value)
    with pytest.raises(InvalidConfig) as caught:
        AgentMemorySystem(config, embedder=small_embedder()).close()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert name in message
    assert list(tmp_path.iterdir()) == [], "a bad configuration creates no file"


@pytest.mark.parametrize(
    "place",
    [
        "mysql://app:se3cret@db/agents",
        "PostgreSQL://app:se3cret@db/agents",
        "postgresql+psycopg://app:se3cret@db/agents",
        "host=db user=app password=se3cret",
        "postgresql://app:12/se3cret@db/agents",
        "postgresql://app:12#se3cret@db/agents",
        "postgresql://app:12?se3cret@db/agents",
        "postgresql://app:12?a=se3cret@db/agents",
        "postgresql://app:se3cret/12@db/agents",
        "postgresql://app:[se3cret@db/agents",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    config = MemoryConfig(url=place, maintenance="manual", busy_timeout_seconds=0.1)
    seen = [repr(config), config.shown_place]
    for open_one, expected in (
        (lambda: AgentMemorySystem(config, embedder=small_embedder()), InvalidConfig),
        (lambda: SessionStore(place), (InvalidConfig, AgentError)),
    ):
        with pytest.raises(expected) as caught:
            open_one()
        seen.append(f"{caught.value!r}")
    assert "se3cret" not in " ".join(seen)
    assert list(tmp_path.iterdir()) == [], "no file has the address as its name"


def test_the_defaults_and_the_limits_of_settings_are_accepted(tmp_path: Path) -> None:
    MemoryConfig().validate()
    config = MemoryConfig(cache_bytes=1024 * 1024, transition_batch=1, durability="disk")
    config.stm_config.memory_limit = 0
    config.im_config.memory_limit = None
    config.stm_config.ttl_seconds = None
    config.im_config.ttl_seconds = 1e-9
    config.ltm_config.memory_limit = 0
    config.ltm_config.db_path = tmp_path / "a path.db"  # type: ignore[assignment]
    config.validate()
    AgentMemorySystem(config, embedder=small_embedder()).close()
    assert (tmp_path / "a path.db").exists()


# -- steps where times belong -----------------------------------------------------------------


def test_steps_in_a_time_range_name_the_method_for_steps(
    open_memory: Callable[..., AgentMemorySystem],
) -> None:
    memory = open_memory()
    for step in range(20):
        memory.store_agent_state("ann", {"energy": step}, step_number=step)
    with pytest.raises(InvalidMemory, match=r"end_time is 10 seconds .* use retrieve_by_step_range"):
        memory.retrieve_by_time_range("ann", 0, 10)
    with pytest.raises(InvalidMemory, match="retrieve_by_step_range"):
        memory.retrieve_by_time_range("ann", 5, 8, tier="ltm")
    assert len(memory.retrieve_by_step_range("ann", 0, 10)) == 11
    assert memory.retrieve_by_time_range("ann", 0) == memory.retrieve_by_time_range("ann")
    assert memory.retrieve_by_time_range("ann", datetime(1970, 1, 2), datetime(1970, 1, 3)) == []
    assert memory.retrieve_by_time_range("nobody", 0, 10) == []


def test_a_simulation_whose_clock_starts_at_0_finds_its_memories_by_time(tmp_path: Path) -> None:
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = str(tmp_path / "simulation.db")
    clock = ManualClock(0.0)
    with AgentMemorySystem(config, clock=clock) as memory:
        for step in range(5):
            memory.add("ann", f"step {step}", step=step)
            clock.advance(1)
        assert [entry.step for entry in memory.retrieve_by_time_range("ann", 1, 3)] == [1, 2, 3]
        assert memory.retrieve_by_time_range("ann", 50, 60) == []
