"""Search: by words and meaning, vector, attributes, time and step, with and without caches."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_embedder import DIMENSIONS, small_embedder

from memory import AgentMemorySystem, Hit, ManualClock, MemoryConfig
from memory.errors import StoreBusy
from memory.search import index as index_module
from memory.search.lexical import WordMatches
from memory.search.terms import words_of
from memory.storage._reader import SQLiteReader

Open = Callable[..., AgentMemorySystem]
TIERS = ("stm", "im", "ltm")
MIB = 1024 * 1024


@pytest.fixture
def memory(open_memory: Open) -> AgentMemorySystem:
    return open_memory(embedder=small_embedder())


def ids_of(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def corpus(count: int, seed: int = 0) -> list[str]:
    """Return texts over a vocabulary with frequent and rare words."""
    choose = random.Random(seed)
    vocabulary = ["".join(choose.choices(string.ascii_lowercase, k=6)) for _ in range(400)]
    weights = [1 / (rank + 1) for rank in range(len(vocabulary))]
    return [" ".join(choose.choices(vocabulary, weights, k=12)) for _ in range(count)]


def store(memory: AgentMemorySystem, texts: list[str], agent: str = "ann", **fields: Any) -> list[str]:
    return memory.add_many([{"agent_id": agent, "content": text, **fields} for text in texts])


# -- stored memories are found --------------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_a_memory_just_stored_is_found_by_the_next_call(memory: AgentMemorySystem, tier: str) -> None:
    store(memory, corpus(50), tier=tier)
    for number in range(20):
        text = f"zebra{number} crossing at noon"
        id_ = memory.add("ann", text, tier=tier)
        for scope in (tier, "all"):
            assert memory.search("ann", f"zebra{number}", 3, tier=scope)[0].id == id_
            assert memory.retrieve_similar_states("ann", text, 3, tier=scope)[0].id == id_
        for other in TIERS:
            if other != tier:
                assert memory.search("ann", f"zebra{number}", tier=other) == []
                assert memory.retrieve_similar_states("ann", text, tier=other) == []


def test_a_memory_is_found_again_after_every_move(memory: AgentMemorySystem) -> None:
    ids = store(memory, corpus(40))
    wanted = memory.add("ann", "a purple giraffe")
    for tier, move in (
        ("stm", lambda: 0),
        ("im", memory.force_transition_to_im),
        ("ltm", memory.force_transition_to_ltm),
    ):
        move()
        for scope in ("all", tier):
            hit, *rest = memory.search("ann", "giraffe", 100, tier=scope)
            assert (hit.id, hit.tier, hit.entry.tier) == (wanted, tier, tier)
            assert {hit.id, *ids_of(rest)} == {*ids, wanted}
            assert memory.retrieve_similar_states("ann", "a purple giraffe", tier=scope)[0].id == wanted


def test_all_tiers_are_one_ranking(open_memory: Open) -> None:
    texts = corpus(90)
    mixed = open_memory(embedder=small_embedder())
    ids = [
        mixed.add("ann", text, tier=TIERS[number % 3], id=str(number)) for number, text in enumerate(texts)
    ]
    flat = open_memory(embedder=small_embedder(), path=":memory:")
    for id_, text in zip(ids, texts, strict=True):
        flat.add("ann", text, id=id_)
    for query in texts[:10]:
        one = mixed.search("ann", query, 20)
        assert ids_of(one) == ids_of(flat.search("ann", query, 20))
        assert {hit.tier for hit in one} == set(TIERS)
        parts = [hit for tier in TIERS for hit in mixed.search("ann", query, 20, tier=tier)]
        parts.sort(key=lambda hit: -hit.score)
        assert [hit.score for hit in parts[:20]] == pytest.approx([hit.score for hit in one], abs=1e-6)


def test_hits_come_best_first_with_where_and_why(open_memory: Open) -> None:
    memory = open_memory()
    memory.add("ann", "The kitten sleeps on the warm sofa", id="kitten")
    memory.add("ann", "Interest rates rose by two percent", id="rates")
    memory.add("ann", "She fed the cats and the dogs", id="cats", tier="ltm")
    hits = memory.search("ann", "Where does the CAT sleep?", 3)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    found = {hit.id: hit for hit in hits}
    assert set(found) == {"kitten", "rates", "cats"}
    assert found["cats"].tier == "ltm"
    assert found["kitten"].entry == memory.get("ann", "kitten")
    assert set(found["kitten"].why.words) == {"sleep", "the"}
    assert set(found["cats"].why.words) == {"cat", "the"}
    assert found["rates"].why.words == ()
    assert found["kitten"].why.similarity is not None
    assert found["rates"].why.similarity is not None
    assert found["kitten"].why.similarity > found["rates"].why.similarity
    assert hits[-1].id == "rates"
    assert str(found["cats"].why).startswith("words: ")
    assert f"meaning: {found['cats'].why.similarity:.2f}" in str(found["cats"].why)
    assert str(found["rates"].why).startswith("meaning: ")
    (nearest, *_) = memory.retrieve_similar_states("ann", "She fed the cats and the dogs")
    assert nearest.score == nearest.why.similarity == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("tier", TIERS)
def test_why_names_the_matched_words_in_every_tier_and_after_reopening(
    open_memory: Open, tier: str
) -> None:
    memory = open_memory(embedder=small_embedder())
    ids = store(memory, [f"apple item{number} banana" for number in range(60)])
    memory.force_transition_to_im(60)
    memory.force_transition_to_ltm(50)
    for system in (memory, None):
        if system is None:
            memory.close()
            system = open_memory(embedder=small_embedder())
        for hit in system.search("ann", "banana apple cherry", 60, tier=tier):
            assert set(hit.why.words) == {"apple", "banana"}
        for number in (0, 20, 40, 59):
            hit = system.search("ann", f"item{number}", 1)[0]
            assert (hit.id, hit.why.words) == (ids[number], (f"item{number}",))


def test_search_returns_at_most_k_hits(memory: AgentMemorySystem) -> None:
    store(memory, corpus(30))
    for k in (1, 7, 30):
        assert len(memory.search("ann", "anything", k)) == k
        assert len(memory.retrieve_similar_states("ann", "anything", k)) == k
    for k in (31, 1000, 10**9):
        assert len(memory.search("ann", "anything", k)) == 30
        assert len(memory.retrieve_similar_states("ann", "anything", k)) == 30
    assert memory.search("ann", "anything", 0) == []
    assert memory.retrieve_similar_states("ann", "anything", 0) == []
    assert memory.recent("ann", 0) == []


def test_k_above_the_number_of_memories_returns_all(memory: AgentMemorySystem) -> None:
    ids = store(memory, corpus(3000))
    memory.force_transition_to_im(50)
    for k in (2999, 3000, 50_000, 10**30):
        assert len(memory.retrieve_similar_states("ann", "anything", k)) == min(k, 3000)
        assert len(memory.retrieve_similar_states("ann", "anything", k, tier="im")) == min(k, 1500)
    assert {hit.id for hit in memory.retrieve_similar_states("ann", "anything", 10**30)} == set(ids)


def test_an_empty_memory_finds_nothing(memory: AgentMemorySystem) -> None:
    memory.add("bob", "x", id="x")
    memory.add("carl", "x", id="x")
    memory.delete("carl", "x")
    for agent in ("ann", "carl"):
        assert memory.search(agent, "x") == []
        assert memory.search(agent, "x", filters={"kind": "text"}, since=0) == []
        assert memory.retrieve_similar_states(agent, "x") == []
        assert memory.retrieve_by_attributes(agent, {"kind": "text"}) == []
        assert memory.retrieve_by_time_range(agent) == []
        assert memory.retrieve_by_step_range(agent) == []
        assert memory.recent(agent) == []
    assert memory.agents() == ["bob"], "to search is not to store"


@pytest.mark.parametrize(
    "query",
    [
        "",
        " \t\n",
        "?!.,;:-_()[]{}",
        '"',
        "'",
        '" OR 1=1 --',
        "'; DROP TABLE memories; --",
        "NEAR(a b, 5) AND NOT c*",
        "content:cat ^cat -cat +cat",
        "(((((",
        "cat*",
        "%_%",
        "\0",
        "cat\0dog",
        "".join(map(chr, range(32))),
        "\ud800",
        "cat \udfff\ud800 dog",
        "😀" * 100,
        "\u202e\u200b\ufeff",
        "İstanbul ǅ ß ﬀ",
        "word " * 20_000,
        "x" * 100_000,
        " ".join(f"w{number}" for number in range(20_000)),
    ],
    ids=lambda text: repr(text[:12]),
)
@pytest.mark.parametrize("kind", ["default", "small"])
def test_any_text_is_a_query(open_memory: Open, query: str, kind: str) -> None:
    memory = open_memory(embedder=small_embedder() if kind == "small" else None)
    ids = [memory.add("ann", text) for text in ("a cat", "a dog", query, "")]
    hits = memory.search("ann", query, 10)
    assert sorted(ids_of(hits)) == sorted(ids)
    assert all(np.isfinite(hit.score) for hit in hits)
    assert sorted(ids_of(memory.retrieve_similar_states("ann", query, 10))) == sorted(ids)
    assert memory.get_memory_statistics()["total"] == 4


@settings(max_examples=60, deadline=None)
@given(query=st.text(st.characters(exclude_categories=())))
def test_no_query_fails(query: str) -> None:
    hits = _shared().search("ann", query, 3)
    assert len(hits) == 3
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


_shared_memory: list[AgentMemorySystem] = []


def _shared() -> AgentMemorySystem:
    return _shared_memory[0]


@pytest.fixture(scope="module", autouse=True)
def shared_memory() -> Any:
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = ":memory:"
    with AgentMemorySystem(config, embedder=small_embedder()) as memory:
        store(memory, ["one cat", "two dogs", "three \0 birds", "日本語 text", "é à ü"])
        _shared_memory.append(memory)
        yield
    _shared_memory.clear()


def test_of_equal_memories_the_newer_comes_first(memory: AgentMemorySystem) -> None:
    ids = store(memory, ["the same words"] * 5)
    assert ids_of(memory.search("ann", "the same words")) == ids[::-1]
    assert ids_of(memory.retrieve_similar_states("ann", "the same words")) == ids[::-1]


def test_a_rare_word_counts_more_than_a_frequent_one(open_memory: Open) -> None:
    memory = open_memory()
    store(memory, [f"Ann said that Ann likes day number {number}" for number in range(40)])
    wanted = memory.add("ann", "the saxophone is in the attic")
    assert memory.search("ann", "What did Ann say about the saxophone?", 1)[0].id == wanted


def test_a_given_date_is_searched_like_words(open_memory: Open) -> None:
    memory = open_memory()
    store(memory, [f"we talked about topic {number}" for number in range(20)], timestamp=0.0)
    wanted = memory.add("ann", "we talked", timestamp=datetime(2023, 5, 8, tzinfo=UTC))
    hit = memory.search("ann", "8 May 2023", 1)[0]
    assert hit.id == wanted
    assert set(hit.why.words) == {"8", "may", "2023"}


def test_words_of_the_metadata_find_a_memory(memory: AgentMemorySystem) -> None:
    store(memory, corpus(30))
    wanted = memory.add("ann", "hello there", metadata={"speaker": "Wilhelmina", "session": "s1"})
    assert memory.search("ann", "wilhelmina", 1)[0].id == wanted


# -- filters --------------------------------------------------------------------------------------


def filtered(memory: AgentMemorySystem, filters: dict[str, Any], **more: Any) -> set[str]:
    """Return the ids that both ways of filtering find; they must agree."""
    by_attributes = {entry.id for entry in memory.retrieve_by_attributes("ann", filters, **more)}
    by_search = set(ids_of(memory.search("ann", "anything at all", 1000, filters=filters, **more)))
    assert by_search == by_attributes
    return by_attributes


def test_filters_compare_metadata_and_content_by_path(memory: AgentMemorySystem) -> None:
    memory.add(
        "ann", {"position": {"room": "kitchen", "x": 3}, "items": ["sword", {"name": "axe"}]}, id="a"
    )
    memory.add("ann", {"position": {"room": "hall"}, "items": ["sword", "axe"]}, id="b", tier="ltm")
    memory.add(
        "ann", "kitchen sword", id="c", metadata={"position": {"room": "kitchen"}, "tags": ["x", "y"]}
    )
    memory.add("ann", {"position.room": "kitchen"}, id="d", kind="map")
    assert filtered(memory, {"position.room": "kitchen"}) == {"a", "c", "d"}
    assert filtered(memory, {"items": "sword"}) == {"a", "b"}
    assert filtered(memory, {"items": "axe"}) == {"b"}
    assert filtered(memory, {"items.name": "axe"}) == {"a"}
    assert filtered(memory, {"tags": "y"}) == {"c"}
    assert filtered(memory, {"position.room": "kitchen", "items": "sword"}) == {"a"}
    assert filtered(memory, {"position.room": "Kitchen"}) == set()
    assert filtered(memory, {"position": "kitchen"}) == set()
    assert filtered(memory, {"kind": "map"}) == {"d"}
    assert filtered(memory, {"kind": "text"}) == {"c"}
    assert filtered(memory, {"kind": "state", "position.x": 3}) == {"a"}
    assert filtered(memory, {"items": "sword"}, tier="ltm") == {"b"}
    assert filtered(memory, {}) == {"a", "b", "c", "d"}


NUMBERS: list[Any] = [
    1234, 1235, 1234.0, 0.1234, 0.12341, 1e300, 1.0001e300, 10**400, 10**400 + 1, -(10**400), 2**53,
    2**53 + 1, 0, 1, True, False, None, -1, 1e-320, 123, 1.5, "1", "1234", "True", "None", "",
]  # fmt: skip


def same_attribute(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


@pytest.mark.parametrize("where", ["content", "metadata"])
def test_filters_compare_exactly_whatever_the_index_rounds(memory: AgentMemorySystem, where: str) -> None:
    for number, value in enumerate(NUMBERS):
        if where == "content":
            memory.add("ann", {"v": value}, id=str(number))
        else:
            memory.add("ann", "text", metadata={"v": value}, id=str(number))
    for wanted in NUMBERS:
        expected = {str(n) for n, value in enumerate(NUMBERS) if same_attribute(value, wanted)}
        assert filtered(memory, {"v": wanted}) == expected


def test_zero_finds_minus_zero(memory: AgentMemorySystem) -> None:
    memory.add("ann", {"v": -0.0}, id="minus")
    memory.add("ann", {"v": 0.0}, id="plus")
    assert filtered(memory, {"v": 0}) == {"minus", "plus"}
    assert filtered(memory, {"v": -0.0}) == {"minus", "plus"}


def test_a_filter_that_the_index_rounds_finds_k_if_there_are_k(memory: AgentMemorySystem) -> None:
    """Hundreds of memories share a rounded term with the few that match."""
    memory.add_many(
        [
            {"agent_id": "ann", "content": {"v": 100_000 + number % 100, "n": number}}
            for number in range(600)
        ]
    )
    hits = memory.search("ann", "v", 6, filters={"v": 100_042})
    assert len(hits) == 6
    assert {hit.entry.content["v"] for hit in hits} == {100_042}
    assert len(memory.search("ann", "v", 100, filters={"v": 100_042})) == 6
    assert len(memory.retrieve_by_attributes("ann", {"v": 100_042}, limit=4)) == 4


def test_long_texts_that_begin_alike_are_two_attributes(memory: AgentMemorySystem) -> None:
    memory.add("ann", {"v": "x" * 300 + "a"}, id="a")
    memory.add("ann", {"v": "x" * 300 + "b"}, id="b")
    assert filtered(memory, {"v": "x" * 300 + "a"}) == {"a"}


def test_memory_type_is_the_kind_and_nothing_in_the_content(memory: AgentMemorySystem) -> None:
    state = memory.store_agent_state("ann", {"x": 1})
    memory.store_agent_action("ann", {"x": 1, "kind": "state"}, metadata={"kind": "state"})
    assert ids_of(memory.retrieve_similar_states("ann", {"x": 1}, memory_type="state")) == [state]
    assert memory.retrieve_similar_states("ann", {"x": 1}, memory_type="nothing") == []


def test_attributes_come_newest_first_and_limited(memory: AgentMemorySystem, clock: ManualClock) -> None:
    ids = []
    for number in range(20):
        ids.append(memory.add("ann", {"n": number, "even": number % 2 == 0}))
        clock.advance(1)
    found = memory.retrieve_by_attributes("ann", {"even": True})
    assert [entry.id for entry in found] == ids[-2::-2]
    assert [entry.id for entry in memory.retrieve_by_attributes("ann", {"even": True}, limit=3)] == ids[
        -2::-2
    ][:3]
    assert memory.retrieve_by_attributes("ann", {"even": True}, limit=0) == []


json_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(json_scalars.filter(lambda v: v not in (float("inf"), float("-inf"))), max_size=8),
    wanted=json_scalars,
)
def test_filters_agree_with_a_plain_comparison(values: list[Any], wanted: Any) -> None:
    memory = _shared()
    memory.delete_all("filters")
    memory.add_many(
        [{"agent_id": "filters", "content": {"v": value}, "id": str(n)} for n, value in enumerate(values)]
    )
    found = {entry.id for entry in memory.retrieve_by_attributes("filters", {"v": wanted})}
    assert found == {str(n) for n, value in enumerate(values) if same_attribute(value, wanted)}


# -- time and step --------------------------------------------------------------------------------


def test_time_bounds_include_both_ends(memory: AgentMemorySystem) -> None:
    for time in range(10):
        memory.add("ann", f"at {time}", timestamp=float(time), id=str(time), tier=TIERS[time % 3])
    for low, high in ((3, 6), (None, 4), (7, None), (5, 5), (6, 3), (3.5, 3.6), (None, None)):
        wanted = [str(m) for m in range(10) if (low is None or m >= low) and (high is None or m <= high)]
        assert [entry.id for entry in memory.retrieve_by_time_range("ann", low, high)] == wanted
        assert sorted(ids_of(memory.search("ann", "at", 100, since=low, until=high))) == wanted
    since = datetime.fromtimestamp(8, UTC)
    assert [entry.id for entry in memory.retrieve_by_time_range("ann", since)] == ["8", "9"]
    assert [entry.id for entry in memory.retrieve_by_time_range("ann", 2, limit=3)] == ["2", "3", "4"]
    assert [entry.id for entry in memory.retrieve_by_time_range("ann", tier="im")] == ["1", "4", "7"]
    assert [entry.id for entry in memory.recent("ann", 3)] == ["9", "8", "7"]
    assert [entry.id for entry in memory.recent("ann", 2, tier="stm")] == ["9", "6"]


def test_step_bounds_include_both_ends(memory: AgentMemorySystem) -> None:
    memory.add("ann", "without a step", id="none")
    for step in (5, 1, 3, -2, 1):
        memory.add("ann", f"step {step}", step=step, id=f"{step}" if step != 1 else None)
    steps = [entry.step for entry in memory.retrieve_by_step_range("ann")]
    assert steps == [-2, 1, 1, 3, 5]
    assert [entry.step for entry in memory.retrieve_by_step_range("ann", 1, 3)] == [1, 1, 3]
    assert [entry.step for entry in memory.retrieve_by_step_range("ann", None, 0)] == [-2]
    assert [entry.step for entry in memory.retrieve_by_step_range("ann", 3)] == [3, 5]
    assert [entry.step for entry in memory.retrieve_by_step_range("ann", limit=2)] == [-2, 1]
    assert memory.retrieve_by_step_range("ann", tier="ltm") == []


def test_memories_with_equal_timestamps_keep_their_order_across_tiers(
    memory: AgentMemorySystem,
) -> None:
    ids = memory.add_many(
        [
            {"agent_id": "ann", "content": f"n {number}", "step": 1, "importance": float(number % 3)}
            for number in range(9)
        ]
    )
    memory.force_transition_to_im(60)
    memory.force_transition_to_ltm(50)
    assert [entry.id for entry in memory.retrieve_by_time_range("ann")] == ids
    assert [entry.id for entry in memory.retrieve_by_step_range("ann")] == ids
    assert [entry.id for entry in memory.recent("ann", 4)] == ids[:-5:-1]
    assert [entry.id for entry in memory.retrieve_by_attributes("ann", {"kind": "text"})] == ids[::-1]


# -- deleted memories -----------------------------------------------------------------------------


def found_anywhere(memory: AgentMemorySystem, text: str) -> set[str]:
    return {
        *(hit.id for hit in memory.search("ann", text, 1000)),
        *(hit.id for hit in memory.retrieve_similar_states("ann", text, 1000)),
        *(entry.id for entry in memory.recent("ann", 1000)),
        *(entry.id for entry in memory.retrieve_by_time_range("ann")),
        *(entry.id for entry in memory.retrieve_by_step_range("ann")),
        *(entry.id for entry in memory.retrieve_by_attributes("ann", {"kind": "text"})),
    }


@pytest.mark.parametrize("tier", TIERS)
def test_a_deleted_memory_is_found_by_no_search(open_memory: Open, tier: str) -> None:
    memory = open_memory(embedder=small_embedder())
    other = open_memory(embedder=small_embedder())
    ids = store(memory, corpus(30), tier=tier, step=1)
    deleted = memory.add("ann", "a purple giraffe", tier=tier, step=1)
    for system in (memory, other):
        assert found_anywhere(system, "a purple giraffe") == {*ids, deleted}
    memory.delete("ann", deleted)
    for system in (memory, other):
        assert found_anywhere(system, "a purple giraffe") == set(ids)
        assert system.get("ann", deleted) is None
    memory.delete_many("ann", ids[:10])
    assert found_anywhere(other, "x") == set(ids[10:])
    memory.close()
    assert found_anywhere(open_memory(embedder=small_embedder()), "a purple giraffe") == set(ids[10:])
    other.delete_all("ann")
    assert found_anywhere(other, "x") == set()


@pytest.mark.parametrize("tier", TIERS)
def test_an_updated_memory_is_found_by_its_new_content(open_memory: Open, tier: str) -> None:
    memory = open_memory(embedder=small_embedder())
    other = open_memory(embedder=small_embedder())
    store(memory, corpus(30))
    memory.add("ann", "a purple giraffe", id="x", tier=tier, metadata={"colour": "purple"})
    for system in (memory, other):
        assert system.search("ann", "giraffe", 1)[0].id == "x"
    memory.update("ann", "x", content="a yellow submarine", metadata={"colour": "yellow"})
    reopened = None
    for system in (memory, other, None):
        if system is None:
            memory.close()
            system = reopened = open_memory(embedder=small_embedder())
        hit = system.search("ann", "submarine", 1)[0]
        assert (hit.id, hit.entry.content, hit.tier) == ("x", "a yellow submarine", tier)
        assert all("giraffe" not in hit.why.words for hit in system.search("ann", "giraffe", 100))
        nearest = system.retrieve_similar_states("ann", "a yellow submarine", 1)[0]
        assert (nearest.id, round(nearest.score, 1)) == ("x", 1.0)
        assert system.retrieve_by_attributes("ann", {"colour": "purple"}) == []
        assert [entry.id for entry in system.retrieve_by_attributes("ann", {"colour": "yellow"})] == ["x"]
        assert len(system.search("ann", "x", 1000)) == 31
    assert reopened is not None


def test_an_update_that_changes_the_conversation_changes_its_neighbours(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    for session in "ab":
        for number in range(5):
            memory.add("ann", f"{session} {number}", metadata={"session": session}, id=f"{session}{number}")
    memory.search("ann", "a 2")
    memory.update("ann", "a2", metadata={"session": "b"})
    before = memory.search("ann", "a 2", 10)
    memory.drop_caches()
    assert [(hit.id, round(hit.score, 4)) for hit in before] == [
        (hit.id, round(hit.score, 4)) for hit in memory.search("ann", "a 2", 10)
    ]


@pytest.mark.parametrize("sessions", [0, 3])
def test_an_index_without_its_deleted_memories_equals_one_that_is_read_again(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch, sessions: int
) -> None:
    memory = open_memory(embedder=small_embedder())
    texts = corpus(2500)
    of_session = [{"session": f"s{number}"} for number in range(sessions)] or [{}]
    ids = memory.add_many(
        {"agent_id": "ann", "content": text, "metadata": metadata}
        for text, metadata in zip(texts[:2300], cycle(of_session), strict=False)
    )
    memory.retrieve_similar_states("ann", texts[0])  # makes the sign bits
    later = [memory.add("ann", text) for text in texts[2300:]]
    memory.update("ann", ids[1], content="a purple giraffe")
    memory.search("ann", texts[0])
    before = memory._indexes.index("ann").view()
    held = {name: np.copy(part) for name, part in vars(before.columns).items()}
    with monkeypatch.context() as patch:
        patch.setattr(index_module.AgentIndex, "reset", lambda self: pytest.fail("it is read again"))
        memory.delete_many("ann", ids[::3] + later[::5])
        hits = memory.search("ann", texts[1], 50)
    index, fresh = memory._indexes.index("ann"), open_memory(embedder=small_embedder())
    assert (index.count, index.deleted_count) == (2500 - 767 - 40, 0)
    assert fresh.search("ann", texts[1], 50) == hits
    assert ids_of(memory.search("ann", "a purple giraffe", 1)) == [ids[1]]
    (_, own), (_, read) = index.parts(), fresh._indexes.index("ann").parts()
    assert own.keys() == read.keys()
    for name, part in read.items():
        np.testing.assert_allclose(own[name], part, rtol=1e-6, err_msg=name)
    for name, part in held.items():  # a search that runs meanwhile still has what it began with
        np.testing.assert_array_equal(getattr(before.columns, name), part)


def test_a_search_does_not_depend_on_deleted_memories(open_memory: Open) -> None:
    """Deleted memories count in no frequency, no average and no scale."""
    memory = open_memory()
    store(memory, [f"a walk in park {number}" for number in range(25)])
    memory.add("ann", "the orchard has apples", id="orchard")
    memory.add("ann", "a visit to the museum", id="museum")
    deleted = store(memory, ["apples in the orchard, apples and apples"] * 300)
    memory.search("ann", "apples")
    memory.delete_many("ann", deleted)
    with_cache = memory.search("ann", "apples of the orchard after the visit", 27)
    memory.drop_caches()
    without_cache = memory.search("ann", "apples of the orchard after the visit", 27)
    assert without_cache[0].id == "orchard"
    assert with_cache[0].id == "orchard"
    assert [(hit.id, round(hit.score, 3)) for hit in with_cache] == [
        (hit.id, round(hit.score, 3)) for hit in without_cache
    ]


def test_a_memory_is_found_after_many_updates(open_memory: Open) -> None:
    memory = open_memory()
    store(memory, [f"a walk in park {number}" for number in range(25)])
    memory.add("ann", "the orchard has 0 apples", id="orchard")
    memory.add("ann", "a visit to the museum", id="museum")
    for number in range(300):
        memory.update("ann", "orchard", content=f"the orchard has {number} apples")
        if number % 20 == 0:
            assert memory.search("ann", "apples of the orchard after the visit", 1)[0].id == "orchard"
    with_cache = memory.search("ann", "apples of the orchard after the visit", 27)
    memory.drop_caches()
    without_cache = memory.search("ann", "apples of the orchard after the visit", 27)
    assert [(hit.id, round(hit.score, 3)) for hit in with_cache] == [
        (hit.id, round(hit.score, 3)) for hit in without_cache
    ]


# -- caches ---------------------------------------------------------------------------------------


def answers(memory: AgentMemorySystem, queries: list[str]) -> list[Any]:
    return [
        [
            [(hit.id, round(hit.score, 4), hit.why.words) for hit in memory.search("ann", query, 10)],
            [hit.id for hit in memory.search("ann", query, 5, tier="im", filters={"even": True})],
            [hit.id for hit in memory.retrieve_similar_states("ann", query, 10)],
            [hit.id for hit in memory.retrieve_similar_states("ann", query, 10, tier="ltm")],
            [entry.id for entry in memory.retrieve_by_attributes("ann", {"even": True}, limit=20)],
        ]
        for query in queries
    ]


def test_an_agent_larger_than_the_cache_gets_the_same_answers(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "BLOCK", 512)
    texts = corpus(4000)
    large = open_memory(embedder=small_embedder(256))
    ids = large.add_many(
        [
            {"agent_id": "ann", "content": text, "metadata": {"even": number % 2 == 0}}
            for number, text in enumerate(texts)
        ]
    )
    large.force_transition_to_im(60)
    large.force_transition_to_ltm(50)
    small = open_memory(embedder=small_embedder(256), cache_bytes=MIB)
    queries = texts[:3]
    for _ in range(2):
        assert answers(small, queries) == answers(large, queries)
        assert small.get_memory_statistics()["bytes_in_cache"] <= MIB
    large.delete_many("ann", ids[100:200])
    large.update("ann", ids[3], content="something new")
    later = large.add("ann", texts[0], metadata={"even": True})
    assert answers(small, [*queries, "something new"]) == answers(large, [*queries, "something new"])
    assert small.search("ann", texts[0], 2, filters={"even": True})[0].id == later
    assert small.get_memory_statistics()["bytes_in_cache"] <= MIB


def test_an_agent_larger_than_the_cache_is_saved_and_mapped_by_its_first_search(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "BLOCK", 512)
    texts = corpus(5000)
    large = open_memory(embedder=small_embedder(256))
    store(large, texts)
    small = open_memory(embedder=small_embedder(256), cache_bytes=MIB)
    assert answers(small, texts[:3]) == answers(large, texts[:3])
    assert small._store.saved_index_state("ann") is not None
    read: list[object] = []
    features = small._store.features
    monkeypatch.setattr(small._store, "features", lambda *each: [read.append(each), *features(*each)][1:])
    store(large, texts[:3])
    assert answers(small, texts[3:6]) == answers(large, texts[3:6])
    assert not read
    assert small.get_memory_statistics()["bytes_in_cache"] <= MIB


@pytest.mark.parametrize("is_busy", [True, False])
def test_an_index_that_can_not_be_saved_does_not_stop_a_search(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    monkeypatch.setattr(index_module, "BLOCK", 512)
    texts = corpus(5000)
    large = open_memory(embedder=small_embedder(256))
    store(large, texts)
    small = open_memory(embedder=small_embedder(256), cache_bytes=MIB)
    attempts: list[object] = []

    def fail(*arguments: object) -> bool:
        attempts.append(arguments)
        if is_busy:
            raise StoreBusy("another process holds the lock")
        return False

    monkeypatch.setattr(small._store, "save_index", fail)
    assert answers(small, texts[:3]) == answers(large, texts[:3])
    assert len(attempts) == 1
    assert small._store.saved_index_state("ann") is None


@pytest.mark.parametrize("session", [None, "one for all"])
def test_context_does_not_depend_on_how_much_fits_into_the_cache(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch, session: str | None
) -> None:
    """Coherence is also measured on blocks that do not fit into the cache."""
    monkeypatch.setattr(index_module, "BLOCK", 256)
    rng = np.random.default_rng(0)
    large = open_memory(embedder=small_embedder(256))
    metadata = None if session is None else {"session": session}
    topics = rng.normal(size=(400, 256))
    large.add_many(
        [
            {
                "agent_id": "ann",
                "content": f"note {number} {'birch' if number % 9 else 'amber'}",
                "metadata": metadata,
                # Memories of one topic are alike: neighbours without a session, and distant ones with one.
                "vector": topics[number // 8 if session is None else number % 400]
                + 0.5 * rng.normal(size=256),
            }
            for number in range(3200)
        ]
    )
    small = open_memory(embedder=small_embedder(256), cache_bytes=MIB)
    for query in ("note amber", "birch 17"):
        hits, again = large.search("ann", query, 10), small.search("ann", query, 10)
        assert [(hit.id, hit.entry, hit.why.words) for hit in again] == [
            (hit.id, hit.entry, hit.why.words) for hit in hits
        ]
        # Seen twice, after many other tests in one process: a score that differs in its last bit.
        for number in ("score", "confidence"):
            assert [getattr(hit, number) for hit in again] == pytest.approx(
                [getattr(hit, number) for hit in hits], rel=1e-5
            )
        assert any(hit.why.context for hit in hits) == (session is None)


def test_memories_that_another_process_deletes_while_they_are_loaded_are_not_missed(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, other = open_memory(embedder=small_embedder()), open_memory(embedder=small_embedder())
    store(memory, corpus(20))
    memory.search("ann", "text")
    ids = store(other, [f"late text {number}" for number in range(300)])
    features = memory._store.features

    def delete_then_read(*arguments: Any) -> Any:
        monkeypatch.undo()
        other.delete_many("ann", ids[-10:])
        return features(*arguments)

    monkeypatch.setattr(memory._store, "features", delete_then_read)
    for _ in range(2):
        hits = memory.search("ann", "late text", 400)
        assert {hit.id for hit in hits}.isdisjoint(ids[-10:])
        assert len(hits) == 310
        assert len(memory.retrieve_similar_states("ann", "late text", 400)) == 310


def test_several_blocks_return_the_same_hits_as_one(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = open_memory(embedder=small_embedder())
    texts = corpus(500)
    for number, text in enumerate(texts):
        whole.add("ann", text, metadata={"even": number % 2 == 0})
        if number % 100 == 50:
            whole.force_transition_to_im(50)
            whole.force_transition_to_ltm(30)
    expected = answers(whole, texts[:10])
    monkeypatch.setattr(index_module, "BLOCK", 64)
    blocks = open_memory(embedder=small_embedder())
    assert answers(blocks, texts[:10]) == expected
    for number, text in enumerate(corpus(200, seed=9)):
        blocks.add("ann", text, metadata={"even": number % 2 == 0})
        blocks.search("ann", text, 1)
    kept = answers(blocks, texts[:10])
    blocks.drop_caches()
    assert answers(blocks, texts[:10]) == kept


def test_dropping_caches_frees_them_and_changes_no_answer(memory: AgentMemorySystem) -> None:
    texts = corpus(200)
    store(memory, texts)
    store(memory, texts, "bob")
    before = answers(memory, texts[:5])
    memory.search("bob", texts[0])
    full = memory.get_memory_statistics()["bytes_in_cache"]
    memory.drop_caches("bob")
    half = memory.get_memory_statistics()["bytes_in_cache"]
    assert 0 < half < full
    memory.drop_caches()
    assert memory.get_memory_statistics()["bytes_in_cache"] == 0
    assert answers(memory, texts[:5]) == before
    memory.drop_caches("nobody")


def test_a_first_search_does_not_read_earlier_changes(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_memory(embedder=small_embedder())
    ids = store(memory, [*corpus(100), "zebra crossing"])
    for id_ in ids[:50]:
        memory.delete("ann", id_)
    memory.drop_caches()
    with monkeypatch.context() as patched:
        patched.setattr(SQLiteReader, "_changes", lambda *_: pytest.fail("the log was read"))
        assert memory.search("ann", "zebra", 1)[0].id == ids[-1]
    memory.delete("ann", ids[-1])
    assert ids[-1] not in ids_of(memory.search("ann", "zebra", 100))


def test_many_agents_stay_within_the_cache(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(), cache_bytes=MIB)
    texts = corpus(100)
    agents = [f"agent {number}" for number in range(60)]
    for agent in agents:
        store(memory, texts, agent)
    for agent in [*agents, *agents[::-1], *agents[::7]]:
        assert memory.search(agent, texts[3], 1)[0].entry.content == texts[3]
        memory.get_many(agent, ids_of(memory.search(agent, texts[5], 20)))
        assert memory.get_memory_statistics()["bytes_in_cache"] <= MIB


def test_one_agent_alone_stays_within_the_cache(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(256), cache_bytes=MIB)
    texts = corpus(4000)
    ids = store(memory, texts)
    for number in (0, 1, 3999):
        assert memory.search("ann", texts[number], 1)[0].id == ids[number]
        assert memory.get_memory_statistics()["bytes_in_cache"] <= MIB
    store(memory, texts[:50], "bob")
    for _ in range(3):
        memory.search("bob", texts[0])
        memory.search("ann", texts[0])
        assert memory.get_memory_statistics()["bytes_in_cache"] <= MIB


# -- vectors --------------------------------------------------------------------------------------


def unit_vectors(count: int, dimensions: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((count, dimensions))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def recall_at_10(
    memory: AgentMemorySystem, vectors: np.ndarray, queries: np.ndarray, **scope: Any
) -> float:
    right = 0
    for query in queries:
        true = np.argsort(-(vectors @ query))[:10]
        found = {int(hit.id) for hit in memory.retrieve_similar_states("ann", query, 10, **scope)}
        right += len(found & set(true.tolist()))
    return right / (10 * len(queries))


@pytest.mark.parametrize("dimensions", [256, 64, 300])
def test_nearest_neighbours_of_random_vectors_are_found(open_memory: Open, dimensions: int) -> None:
    """Random directions are the hardest case: no two of them are near each other."""
    memory = open_memory(embedder=small_embedder(dimensions))
    vectors = unit_vectors(5000, dimensions, 1)
    memory.add_many(
        [{"agent_id": "ann", "content": n, "id": str(n), "vector": row} for n, row in enumerate(vectors)]
    )
    assert recall_at_10(memory, vectors, unit_vectors(40, dimensions, 2)) >= 0.95


def test_nearest_neighbours_are_found_among_few_allowed(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(256))
    vectors = unit_vectors(5000, 256, 1)
    memory.add_many(
        [
            {
                "agent_id": "ann",
                "content": n,
                "id": str(n),
                "vector": row,
                "tier": "im" if n < 1000 else "stm",
            }
            for n, row in enumerate(vectors)
        ]
    )
    assert recall_at_10(memory, vectors[:1000], unit_vectors(40, 256, 2), tier="im") >= 0.95
    for k in (10, 100, 999, 1000, 2000):
        hits = memory.retrieve_similar_states("ann", vectors[7], k, tier="im")
        assert len(hits) == min(k, 1000)
        assert {hit.tier for hit in hits} == {"im"}
        assert hits[0].id == "7"


def test_cosines_are_those_of_the_vectors_that_were_given(memory: AgentMemorySystem) -> None:
    vectors = unit_vectors(50, DIMENSIONS, 3)
    for number, row in enumerate(vectors):
        memory.add("ann", number, id=str(number), vector=(row * 7.5).tolist(), tier=TIERS[number % 3])
    query = unit_vectors(1, DIMENSIONS, 4)[0]
    hits = memory.retrieve_similar_states("ann", query * 3, 50)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert hit.score == pytest.approx(float(vectors[int(hit.id)] @ query), abs=0.01)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e-3, 1.0, 1e20, 1e30, 1e300])
def test_only_the_direction_of_a_vector_counts(memory: AgentMemorySystem, scale: float) -> None:
    vectors = unit_vectors(5, DIMENSIONS, 3)
    for number, row in enumerate(vectors):
        memory.add("ann", number, id=str(number), vector=row * scale, tier=TIERS[number % 3])
    for number, row in enumerate(vectors):
        hit = memory.retrieve_similar_states("ann", row * scale, 1)[0]
        assert hit.id == str(number)
        assert hit.score == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("scale", [1e-30, 1e-7, 1e-6, 1.0, 1e6, 1e7, 1e30])
def test_the_memory_layout_of_a_vector_does_not_matter(memory: AgentMemorySystem, scale: float) -> None:
    vectors = (unit_vectors(5, DIMENSIONS, 3) * scale).astype(np.float32)
    columns = np.ascontiguousarray(vectors.T)
    for number, row in enumerate(vectors):
        memory.add("ann", number, id=str(number), vector=row)
    for number in range(len(vectors)):
        by_row = memory.retrieve_similar_states("ann", vectors[number], 2)
        by_column = memory.retrieve_similar_states("ann", columns[:, number], 2)
        assert [hit.id for hit in by_row] == [hit.id for hit in by_column]
        assert by_row[0].id == str(number)
        assert [hit.score for hit in by_row] == pytest.approx([hit.score for hit in by_column])


def test_a_threshold_bounds_the_cosine(memory: AgentMemorySystem) -> None:
    axis = np.eye(DIMENSIONS)[0]
    other = np.eye(DIMENSIONS)[1]
    for cosine in (1.0, 0.9, 0.5, 0.0, -0.5, -1.0):
        vector = cosine * axis + np.sqrt(1 - cosine**2) * other
        memory.add("ann", cosine, id=str(cosine), vector=vector)
    for threshold, wanted in ((0.95, 1), (0.85, 2), (0.4, 3), (-0.1, 4), (-2, 6), (2, 0), (None, 6)):
        hits = memory.retrieve_similar_states("ann", axis, 10, threshold=threshold)
        assert len(hits) == wanted
        assert ids_of(hits) == ["1.0", "0.9", "0.5", "0.0", "-0.5", "-1.0"][:wanted]


@pytest.mark.parametrize("kind", ["default", "small"])
def test_near_states_come_before_far_ones(open_memory: Open, kind: str) -> None:
    memory = open_memory(embedder=small_embedder() if kind == "small" else None)
    for x in range(0, 100, 5):
        memory.store_agent_state("ann", {"position": {"x": float(x), "y": 50.0}, "status": "walking"}, x)
    for x in (12.0, 47.0, 81.0):
        hits = memory.retrieve_similar_states(
            "ann", {"status": "walking", "position": {"y": 50.0, "x": x}}, 20
        )
        nearest = hits[0].entry.content["position"]["x"]
        assert abs(nearest - x) <= 5
        ratios = [abs(np.arcsinh(hit.entry.content["position"]["x"]) - np.arcsinh(x)) for hit in hits]
        assert np.mean(ratios[:5]) < np.mean(ratios[-5:])


def test_states_that_differ_in_words_or_numbers_are_told_apart(open_memory: Open) -> None:
    memory = open_memory()
    states = {
        "hungry": {"status": "hungry", "health": 0.9, "room": "kitchen"},
        "tired": {"status": "tired", "health": 0.9, "room": "bedroom"},
        "hurt": {"status": "hungry", "health": 0.1, "room": "kitchen"},
    }
    for name, state in states.items():
        memory.store_agent_state("ann", state, state_id=name)
    for name, state in states.items():
        assert memory.retrieve_similar_states("ann", state, 1)[0].id == name


# -- conversations --------------------------------------------------------------------------------

TURNS = [
    "Good morning, did you sleep well?",
    "Yes, thank you, very well indeed.",
    "I adopted a greyhound called Pirate last week.",
    "Oh how lovely, what is he like?",
    "Quiet, and he loves the beach.",
    "We should go there together some time.",
    "Is Saturday fine for you?",
    "Saturday is perfect.",
]
STRANGERS = [f"The quarterly figures of department {number} were approved." for number in range(40)]


def test_the_neighbour_of_a_strong_match_outranks_a_stranger(open_memory: Open) -> None:
    memory = open_memory()
    store(memory, STRANGERS[:20], metadata={"session": "work"})
    turns = store(memory, TURNS, metadata={"session": "home"})
    store(memory, STRANGERS[20:], metadata={"session": "work"})
    hits = memory.search("ann", "Which greyhound did she adopt, what is Pirate's name?", 5)
    assert hits[0].id == turns[2]
    assert {turns[1], turns[3]} <= set(ids_of(hits))
    assert all(hit.why.context for hit in hits)
    assert "context: " in str(hits[1].why)


def test_sessions_do_not_leak_into_each_other(open_memory: Open) -> None:
    """Turns of two conversations stored alternately are neighbours only within their own."""
    memory = open_memory()
    batch = []
    for number, turn in enumerate(TURNS):
        batch.append(
            {"agent_id": "ann", "content": turn, "metadata": {"session": "home"}, "id": f"h{number}"}
        )
        batch.append(
            {
                "agent_id": "ann",
                "content": STRANGERS[number],
                "metadata": {"session": "work"},
                "id": f"w{number}",
            }
        )
    memory.add_many(batch)
    hits = memory.search("ann", "Which greyhound did she adopt, what is Pirate's name?", 3)
    assert {hit.id[0] for hit in hits} == {"h"}


def test_documents_that_do_not_cohere_get_no_context(open_memory: Open) -> None:
    memory = open_memory()
    choose = random.Random(4)
    topics = [
        "the harbour and its ships", "a recipe for lentil soup", "the orbit of a comet", "tax law of 1911",
        "how violins are made", "mountain goats in winter", "a sonnet about rain", "repairing a bicycle",
    ]  # fmt: skip
    texts = [f"Text {number} on {choose.choice(topics)}" for number in range(200)]
    store(memory, texts)
    for query in ("lentil soup", "comet", "violin"):
        assert all(hit.why.context == 0.0 for hit in memory.search("ann", query, 20))


def test_a_conversation_without_sessions_gets_context_because_it_coheres(open_memory: Open) -> None:
    memory = open_memory()
    texts = [
        f"About {topic}: remark {number} on {topic}"
        for topic in ("whales", "guitars", "volcanoes", "chess", "bread", "satellites", "castles", "bees")
        for number in range(12)
    ]
    store(memory, texts)
    assert any(hit.why.context != 0.0 for hit in memory.search("ann", "volcanoes", 10))


def test_function_words_count_half(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    memory.add_many([{"agent_id": "ann", "content": text} for text in ("talk about falcon", "one", "two")])
    index = memory._indexes.index("ann")
    with index.lock:
        index.catch_up()
        matches = WordMatches(index, words_of("What do we know about the falcon"))
    assert matches.idf("about") == pytest.approx(matches.idf("falcon") / 2)
    assert matches.idf("Know") == pytest.approx(matches.idf("heron") / 2)  # both are in no memory


@pytest.mark.parametrize("sessions", [None, 9])
def test_an_index_updated_step_by_step_ranks_like_a_new_one(
    open_memory: Open, sessions: int | None
) -> None:
    """Coherence is measured while memories are added; the result must not depend on the steps."""
    memory = open_memory(embedder=small_embedder())
    for number in range(120):
        subject = string.ascii_lowercase[number // 10]
        metadata = None if sessions is None else {"session": number // sessions}
        memory.add("ann", f"talk of {subject * 5} and {subject * 5} again, {number}", metadata=metadata)
        followed = memory.search("ann", "talk of ccccc", 10)
        if number % 6 == 5:
            fresh = open_memory(embedder=small_embedder())
            assert fresh.search("ann", "talk of ccccc", 10) == followed, number
            fresh.close()


def test_an_index_that_grew_one_by_one_is_the_same_as_one_read_anew(memory: AgentMemorySystem) -> None:
    texts = corpus(60)
    store(memory, texts[:20])
    memory.search("ann", "first")

    def parts() -> dict[str, Any]:
        index = memory._indexes.index("ann")
        with index.lock:
            parts = index.parts()[1]
        for key, value in (
            ("sessions", "last"),
            ("near.later", "near.earlier"),
            ("far.later", "far.earlier"),
        ):
            key, value = f"conversations.links.{key}", f"conversations.links.{value}"
            order = parts[key].argsort()  # without a meaning
            parts |= {key: parts[key][order], value: parts[value][order]}
        return parts

    for number, text in enumerate(texts[20:]):
        if number % 5 == 4:  # a state has numbers, and its vector is encoded
            memory.add("ann", {"what": text, "x": number}, tier="im", step=number)
        else:
            memory.add("ann", text, metadata={"session_id": f"s{number % 3}"} if number % 2 else None)
        if number % 7 or number == 39:  # a few are added to the index together
            memory.search("ann", "later")
    grown = parts()
    memory.drop_caches("ann")
    memory.search("ann", "again")
    read = parts()
    assert grown.keys() == read.keys()
    for name, value in read.items():
        np.testing.assert_allclose(grown[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
