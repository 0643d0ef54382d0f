"""The LangGraph store behaves as LangGraph's InMemoryStore, and is durable and searched by words too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from small_embedder import DIMENSIONS, small_embedder

from memory import AgentMemorySystem, ManualClock, MemoryConfig
from memory.errors import InvalidMemory
from memory.integrations.langgraph import AgentMemoryStore

OpenMemory = Callable[..., AgentMemorySystem]
EVERYTHING = 1000
_numbers = count()


@pytest.fixture
def store(open_memory: OpenMemory) -> AgentMemoryStore:
    return AgentMemoryStore(open_memory())


@pytest.fixture(scope="module")
def shared() -> Iterator[AgentMemorySystem]:
    """Return one memory for all examples of a property test; each example has its own agent."""
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = ":memory:"
    with AgentMemorySystem(config, embedder=small_embedder(), clock=ManualClock()) as system:
        yield system


def fresh(system: AgentMemorySystem, **options: Any) -> AgentMemoryStore:
    return AgentMemoryStore(system, agent_id=f"graph {next(_numbers)}", **options)


class Reference(InMemoryStore):
    """LangGraph's own store, but it lists no empty namespaces, and replaced values match no query."""

    def batch(self, ops: Any) -> list[Any]:
        ops = list(ops)
        results = [None if isinstance(op, PutOp) else self._read(op) for op in ops]
        puts = [op for op in ops if isinstance(op, PutOp)]
        for op in puts:
            self._vectors[op.namespace].pop(op.key, None)
        super().batch(puts)
        self._prune()
        return results

    def _read(self, op: Any) -> Any:
        (result,) = super().batch([op])
        self._prune()
        return result

    def _prune(self) -> None:
        for namespace in [name for name, items in self._data.items() if not items]:
            del self._data[namespace]


def embed(texts: Any) -> list[list[float]]:
    return small_embedder().embed(list(texts)).tolist()


# -- the same operations on both --------------------------------------------------------------

labels = st.sampled_from(["a", "b", "users", "langgraph", "größe"])
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
keys = st.sampled_from(["k", "k.1", "..", "", "a#0", "x" * 600])
values = st.fixed_dictionaries(
    {"n": st.integers(-3, 3) | st.floats(-2, 2)},
    optional={
        "text": st.text("abc ", max_size=8),
        "kind": st.sampled_from(["x", "y"]),
        "deep": st.dictionaries(st.sampled_from(["p", "q"]), st.integers(0, 2), max_size=2),
        "list": st.lists(st.sampled_from(["u", "v"]), max_size=2),
        "none": st.none(),
        "langgraph": st.just({"in": {"a": True}, "item": True, "found": True}),
    },
)
indexes = st.sampled_from([None, False, ["text"], ["list[*]"], ["deep.p", "missing"]])
puts = st.builds(PutOp, namespaces, keys, values | st.none(), indexes, ttl=st.none())
conditions = st.dictionaries(
    st.sampled_from(["text", "kind", "deep", "list", "none", "missing"]),
    st.sampled_from(["x", "a", None, ["u"], {"p": 1}, {"$eq": "y"}, {"$ne": "x"}, ["u", "v"]]),
    max_size=2,
) | st.dictionaries(
    st.just("n"),
    st.dictionaries(
        st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"]), st.integers(-2, 2), min_size=1
    )
    | st.integers(-2, 2),
)
prefixes = st.lists(labels, max_size=3).map(tuple)
searches = st.builds(
    SearchOp, prefixes, conditions | st.none(), st.just(EVERYTHING), st.just(0), st.none() | st.just("a")
)
wildcards = st.lists(labels | st.just("*"), max_size=3).map(tuple)
listings = st.builds(
    ListNamespacesOp,
    st.none()
    | st.lists(st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), wildcards), max_size=2).map(
        tuple
    ),
    st.none() | st.integers(0, 3),
    st.integers(0, 5),
    st.integers(0, 3),
)
operations = puts | puts | st.builds(GetOp, namespaces, keys) | searches | listings


def plain(result: Any) -> Any:
    """Return a result without times, scores and the order of a search."""
    if isinstance(result, list):
        return sorted(map(repr, (plain(each) for each in result)))
    if result is None or isinstance(result, tuple):
        return result
    return (result.namespace, result.key, sorted(result.value.items(), key=repr))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(operations, min_size=1, max_size=4), max_size=12))
def test_the_store_returns_what_langgraphs_own_store_returns(
    shared: AgentMemorySystem, batches: list[list[Any]]
) -> None:
    ours, theirs = fresh(shared), Reference()
    for batch in batches:
        expected = theirs.batch(batch)
        found = ours.batch(batch)
        for op, one, other in zip(batch, found, expected, strict=True):
            if isinstance(op, ListNamespacesOp):
                assert one == other, op
            else:
                assert plain(one) == plain(other), op


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(puts, max_size=12), prefixes, conditions | st.none())
def test_indexed_items_have_a_score_and_the_others_follow_without_one(
    shared: AgentMemorySystem, changes: list[PutOp], prefix: tuple[str, ...], condition: Any
) -> None:
    ours = fresh(shared)
    theirs = Reference(index={"dims": DIMENSIONS, "embed": embed})
    for change in changes:
        ours.batch([change])
        if change.index is None or change.value is None or change.index is False:
            theirs.batch([change])
        else:  # LangGraph's store indexes a repeated text twice, and an empty text too
            texts = {text for text in map(str, _texts(change)) if text}
            theirs.batch(
                [change._replace(index=["text"] if texts else False, value={**change.value, "text": "c"})]
            )
    found = ours.search(prefix, query="a b", filter=condition, limit=EVERYTHING)
    expected = theirs.search(prefix, query="a b", filter=None, limit=EVERYTHING)
    by_name = {(item.namespace, item.key): item.score is None for item in expected}
    assert [item.score is None for item in found] == sorted(item.score is None for item in found)
    scores = [item.score for item in found if item.score is not None]
    assert scores == sorted(scores, reverse=True)
    for item in found:
        assert (item.score is None) == by_name[item.namespace, item.key]


def _texts(change: PutOp) -> list[Any]:
    value: Any = change.value
    if change.index == ["text"]:
        return [value.get("text", "")]
    if change.index == ["list[*]"]:
        return list(value.get("list", []))
    return [value["deep"]["p"]] if "p" in value.get("deep", {}) else []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(puts, max_size=15), st.integers(1, 4), st.none() | st.just("a b"))
def test_all_pages_together_are_the_whole_result(
    shared: AgentMemorySystem, changes: list[PutOp], size: int, query: str | None
) -> None:
    ours = fresh(shared)
    ours.batch(changes)
    whole = ours.search((), query=query, limit=EVERYTHING)
    pages = [
        ours.search((), query=query, limit=size, offset=start)
        for start in range(0, len(whole) + size, size)
    ]
    assert [item for page in pages for item in page] == whole
    assert pages[-1] == []


# -- searching --------------------------------------------------------------------------------


def test_a_query_finds_by_words_and_meaning(store: AgentMemoryStore) -> None:
    store.put(("test",), "doc1", {"text": "zany zebra Xerxes"})
    store.put(("test",), "doc2", {"text": "something about dogs"})
    store.put(("test",), "doc3", {"text": "text about birds"})
    first = store.search(("test",), query="Zany Xerxes")
    assert first[0].key == "doc1"
    store.put(("test",), "doc1", {"text": "new text about dogs"})
    later = {item.key: item.score for item in store.search(("test",), query="Zany Xerxes")}
    assert later["doc1"] < first[0].score  # type: ignore[operator]
    store.put(("test",), "doc4", {"text": "new text about dogs"}, index=False)
    found = store.search(("test",), query="new text about dogs", limit=3)
    assert "doc4" not in [item.key for item in found]


def test_a_query_can_have_a_filter(store: AgentMemoryStore) -> None:
    store.put(("test",), "doc1", {"text": "red apple", "color": "red", "score": 4.5})
    store.put(("test",), "doc2", {"text": "red car", "color": "red", "score": 3.0})
    store.put(("test",), "doc3", {"text": "green apple", "color": "green", "score": 4.0})
    store.put(("test",), "doc4", {"text": "blue car", "color": "blue", "score": 3.5})

    def found(query: str, **filter: Any) -> list[str]:
        return [item.key for item in store.search(("test",), query=query, filter=filter)]

    assert found("apple", color="red") == ["doc1", "doc2"]
    assert found("car", color="red") == ["doc2", "doc1"]
    assert sorted(found("car", score={"$gt": 3.2})) == ["doc1", "doc3", "doc4"]
    assert found("apple", score={"$gte": 4.0}, color="green") == ["doc3"]


def test_only_the_indexed_fields_are_searched(open_memory: OpenMemory) -> None:
    store = AgentMemoryStore(open_memory(), fields=["title", "notes[*].text"])
    store.put(("d",), "a", {"title": "volcanoes of Iceland", "body": "bread with butter"})
    store.put(("d",), "b", {"title": "baking", "notes": [{"text": "sourdough"}, {"text": "geysers"}]})
    store.put(("d",), "c", {"title": "glaciers", "body": "secret"}, index=["body"])
    assert store.search(("d",), query="volcanoes")[0].key == "a"
    assert store.search(("d",), query="geysers")[0].key == "b"
    assert store.search(("d",), query="secret")[0].key == "c"
    assert [item.key for item in store.search(("d",), query="sourdough geysers")].count("b") == 1
    by_body = store.search(("d",), query="bread butter")
    assert by_body[0].key == "b"  # the body of a was not indexed


def test_a_replaced_field_is_not_found(store: AgentMemoryStore) -> None:
    store.put(("d",), "a", {"title": "volcanoes"}, index=["title"])
    store.put(("d",), "b", {"title": "bread"}, index=["title"])
    store.put(("d",), "a", {"title": "butter"}, index=["title"])
    assert store.search(("d",), query="volcanoes butter", limit=1)[0].value == {"title": "butter"}
    assert store.system.get_memory_statistics("langgraph")["total"] == 4  # no old part is left
    store.delete(("d",), "a")
    store.delete(("d",), "b")
    assert store.system.get_memory_statistics("langgraph")["total"] == 0


def test_parts_left_by_a_killed_writer_are_not_found(store: AgentMemoryStore) -> None:
    store.put(("d",), "a", {"title": "bread"}, index=["title"])
    part = store._parts("d..a", PutOp(("d",), "a", {"title": "volcanoes"}, ["title"]))
    store.system.add_many(part)  # the item itself was not written
    (item,) = store.search(("d",), query="volcanoes")
    assert item.value == {"title": "bread"}
    store.delete(("d",), "a")
    assert store.search(("d",), query="volcanoes") == []


def test_the_namespace_is_not_searched_as_text(store: AgentMemoryStore) -> None:
    store.put(("volcano",), "geyser", {"text": "bread"})
    store.put(("plain",), "key", {"text": "a geyser is no volcano"})
    assert store.search((), query="volcano geyser")[0].key == "key"


# -- times ------------------------------------------------------------------------------------


def test_an_item_has_the_times_of_its_first_and_its_last_put(
    store: AgentMemoryStore, clock: ManualClock
) -> None:
    made = datetime.fromtimestamp(clock.now(), UTC)
    store.put(("a",), "k", {"n": 1})
    item = store.get(("a",), "k")
    assert item is not None
    assert item.created_at == item.updated_at == made
    clock.advance(60)
    store.put(("a",), "k", {"n": 2})
    (found,) = store.search(("a",))
    assert found.created_at == made
    assert (found.updated_at - made).total_seconds() == 60


def test_an_item_expires_when_it_was_not_used_for_its_ttl(
    store: AgentMemoryStore, clock: ManualClock
) -> None:
    store.put(("a",), "short", {"text": "x"}, index=["text"], ttl=1)
    store.put(("a",), "long", {"text": "y"}, ttl=10)
    store.put(("b",), "ever", {"text": "z"})
    clock.advance(50)
    assert store.get(("a",), "short") is not None  # this read restarts its minute
    clock.advance(50)
    assert {item.key for item in store.search(("a",), refresh_ttl=False)} == {"short", "long"}
    clock.advance(11)
    assert store.get(("a",), "short") is None
    assert [item.key for item in store.search(("a",), query="x", limit=1)] == ["long"]
    assert store.sweep_ttl() == 1
    assert store.system.get_memory_statistics("langgraph")["total"] == 2
    clock.advance(601)
    assert store.list_namespaces() == [("b",)]


def test_reading_without_refresh_does_not_extend_the_ttl(
    open_memory: OpenMemory, clock: ManualClock
) -> None:
    store = AgentMemoryStore(open_memory(), ttl={"default_ttl": 1, "refresh_on_read": False})
    store.put(("a",), "k", {"n": 1})
    clock.advance(59)
    assert store.get(("a",), "k") is not None
    clock.advance(2)
    assert store.get(("a",), "k") is None


def test_an_expired_item_can_be_put_again(store: AgentMemoryStore, clock: ManualClock) -> None:
    store.put(("a",), "k", {"n": 1}, ttl=1)
    clock.advance(61)
    store.put(("a",), "k", {"n": 2})
    item = store.get(("a",), "k")
    assert item is not None
    assert item.created_at.timestamp() == clock.now()
    clock.advance(1000)
    assert store.get(("a",), "k") is not None


def test_expired_items_are_swept_automatically(open_memory: OpenMemory, clock: ManualClock) -> None:
    store = AgentMemoryStore(open_memory(), ttl={"default_ttl": 1, "sweep_interval_minutes": 5})
    store.put(("a",), "k", {"n": 1})
    clock.advance(5 * 60)
    store.get(("b",), "other")
    assert store.system.get_memory_statistics("langgraph")["total"] == 0


# -- durability and errors --------------------------------------------------------------------


def test_items_survive_reopening(open_memory: OpenMemory) -> None:
    first = open_memory()
    AgentMemoryStore(first).put(("a", "b"), "k" * 600, {"text": "hello", "n": [1, {"x": None}]})
    first.close()
    store = AgentMemoryStore(open_memory())
    (item,) = store.search(("a",), query="hello")
    assert (item.namespace, item.key) == (("a", "b"), "k" * 600)
    assert item.value == {"text": "hello", "n": [1, {"x": None}]}


def test_items_are_found_in_every_tier(store: AgentMemoryStore) -> None:
    for n in range(30):
        store.put(("a",), f"k{n}", {"text": f"number {n}"}, index=["text"] if n % 2 else None)
    store.system.force_transition_to_im(50)
    store.system.force_consolidation()
    store.put(("a",), "k3", {"text": "changed"})
    assert len(store.search(("a",), limit=EVERYTHING)) == 30
    assert store.search(("a",), query="changed")[0].key == "k3"
    assert store.search(("a",), query="number 7")[0].key == "k7"


def test_a_value_that_is_not_json_is_refused_and_nothing_is_stored(store: AgentMemoryStore) -> None:
    with pytest.raises(InvalidMemory, match="holds a set"):
        store.batch([PutOp(("a",), "good", {"n": 1}), PutOp(("a",), "bad", {"n": {1, 2}})])
    assert store.search(()) == []


@pytest.mark.parametrize("namespace", [(), ("the", "thing.about"), ("some", ""), ("langgraph", "x"), (1,)])
def test_a_bad_namespace_is_refused(store: AgentMemoryStore, namespace: Any) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.put(namespace, "k", {})
    with pytest.raises(InvalidNamespaceError):
        asyncio.run(store.aput(namespace, "k", {}))


def test_labels_with_periods_are_refused_in_every_operation(store: AgentMemoryStore) -> None:
    for op in (
        PutOp(("a.b",), "k", {}),
        GetOp(("a.b",), "k"),
        SearchOp(("a.b",)),
        ListNamespacesOp((MatchCondition("prefix", ("a.b",)),)),
    ):
        with pytest.raises(InvalidNamespaceError, match=r"a\.b"):
            store.batch([op])


def test_unknown_operators_and_operations_are_refused(store: AgentMemoryStore) -> None:
    store.put(("a",), "k", {"n": 1})
    with pytest.raises(ValueError, match=r"unknown operator \$in"):
        store.search(("a",), filter={"n": {"$in": [1]}})
    with pytest.raises(ValueError, match="unknown operation str"):
        store.batch(["get"])  # type: ignore[list-item]


def test_comparing_values_that_are_not_numbers_finds_nothing(store: AgentMemoryStore) -> None:
    store.put(("a",), "k", {"n": "many"})
    assert store.search(("a",), filter={"n": {"$gt": 1}}) == []
    assert store.search(("a",), filter={"missing": {"$lt": 1}}) == []


def test_other_memories_of_the_same_agent_are_not_items(store: AgentMemoryStore) -> None:
    store.system.add("langgraph", "a plain memory")
    store.system.add("langgraph", "another", metadata={"langgraph": "text"})
    store.put(("a",), "k", {"text": "a plain item"})
    assert [item.key for item in store.search((), query="plain memory")] == ["k"]
    assert len(store.search(())) == 1


def test_threads_that_put_the_same_key_leave_one_item_and_its_parts(store: AgentMemoryStore) -> None:
    def work(name: str) -> None:
        for n in range(20):
            store.put(("a",), "k", {"text": f"{name} {n % 3}"}, index=["text"])

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (item,) = store.search((), query="one two three")
    assert item.score is not None
    assert store.system.get_memory_statistics("langgraph")["total"] == 2


def test_a_put_is_repeated_if_another_process_changed_the_item_meanwhile(
    store: AgentMemoryStore, monkeypatch: Any
) -> None:
    """The item appears, and later disappears, between the read and the write."""
    system = store.system
    real_add, real_update = system.add_many, system.update

    def add_after_another(batch: Any) -> Any:
        monkeypatch.undo()
        AgentMemoryStore(system).put(("a",), "k", {"n": "theirs"})
        return real_add(batch)

    monkeypatch.setattr(system, "add_many", add_after_another)
    store.put(("a",), "k", {"n": "ours"})
    assert store.get(("a",), "k").value == {"n": "ours"}  # type: ignore[union-attr]

    def update_after_deletion(*args: Any, **fields: Any) -> bool:
        monkeypatch.undo()
        AgentMemoryStore(system).delete(("a",), "k")
        return real_update(*args, **fields)

    monkeypatch.setattr(system, "update", update_after_deletion)
    store.put(("a",), "k", {"n": "again"})
    assert store.get(("a",), "k").value == {"n": "again"}  # type: ignore[union-attr]


# -- in a graph -------------------------------------------------------------------------------


class State(TypedDict):
    user: str
    said: str
    reply: str


def remember(state: State, *, store: BaseStore) -> dict[str, str]:
    known = store.search(("users", state["user"]), query=state["said"], limit=1)
    store.put(("users", state["user"]), state["said"], {"text": state["said"]})
    return {"reply": known[0].value["text"] if known else "nothing yet"}


async def aremember(state: State, *, store: BaseStore) -> dict[str, str]:
    known = await store.asearch(("users", state["user"]), query=state["said"], limit=1)
    await store.aput(("users", state["user"]), state["said"], {"text": state["said"]})
    return {"reply": known[0].value["text"] if known else "nothing yet"}


def graph_with(node: Any, store: BaseStore) -> Any:
    builder = StateGraph(State)
    builder.add_node("remember", node)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", END)
    return builder.compile(store=store)


def test_a_graph_remembers_from_run_to_run(store: AgentMemoryStore) -> None:
    graph = graph_with(remember, store)

    def say(user: str, said: str) -> str:
        return graph.invoke({"user": user, "said": said})["reply"]  # type: ignore[no-any-return]

    assert say("ann", "I like jazz music") == "nothing yet"
    assert say("ann", "my cat is called Tom") == "I like jazz music"
    assert say("ann", "which music do I like") == "I like jazz music"
    assert say("bo", "which music do I like") == "nothing yet"
    assert store.list_namespaces(prefix=("users",)) == [("users", "ann"), ("users", "bo")]


def test_a_graph_can_be_asynchronous(store: AgentMemoryStore) -> None:
    graph = graph_with(aremember, store)

    async def talk() -> list[str]:
        replies = []
        for said in ("I like jazz music", "which music do I like"):
            replies.append((await graph.ainvoke({"user": "ann", "said": said}))["reply"])
        others = [graph.ainvoke({"user": f"u{n}", "said": "hello"}) for n in range(10)]
        return replies + [state["reply"] for state in await asyncio.gather(*others)]

    assert asyncio.run(talk()) == ["nothing yet", "I like jazz music", *["nothing yet"] * 10]
    assert len(store.list_namespaces()) == 11


def test_without_langgraph_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "langgraph").mkdir()
    (tmp_path / "langgraph" / "__init__.py").write_text("raise ImportError('not here')\n")
    done = subprocess.run(
        [sys.executable, "-c", "import memory.integrations.langgraph"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install 'agentmemory-tiers[langgraph]'" in done.stderr.splitlines()[-1]
