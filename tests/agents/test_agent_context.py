"""Contexts: within the budget, without cut messages, valid in both forms, cached where that is safe."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subprocesses import run_python
from threads import together

from memory import AgentMemorySystem
from memory.agents import Context, ContextBuilder, Message, SessionStore, ToolCall, ToolRegistry, ToolResult
from memory.agents.builder import MESSAGE_TOKENS
from memory.agents.errors import BudgetTooSmall, InvalidAgentInput, UnknownSession
from memory.embedding import count_tokens

OpenMemory = Callable[..., AgentMemorySystem]


def words(text: str) -> int:
    return len(text.split())


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    return Message(role="assistant", content=text)


def calls(*ids: str, text: str = "") -> Message:
    return Message(
        role="assistant", content=text, tool_calls=tuple(ToolCall(id=each, name="look") for each in ids)
    )


def result(call_id: str, text: str = "found") -> Message:
    return Message.of_result(ToolResult(call_id=call_id, name="look", content=text))


def shown(context: Context) -> list[str]:
    return [message.content for message in context.messages]


def builder_on(store: SessionStore, budget: int = 10_000, **options: Any) -> ContextBuilder:
    return ContextBuilder(store, token_budget=budget, count_tokens=options.pop("count", words), **options)


# -- properties -------------------------------------------------------------------------------

short_texts = st.text("ab \n", max_size=30)
turns = st.one_of(
    short_texts.map(lambda text: [user(text)]),
    short_texts.map(lambda text: [assistant(text)]),
    short_texts.map(lambda text: [Message(role="system", content=text)]),
    st.tuples(short_texts, short_texts).map(
        lambda texts: [calls("1", text=texts[0]), result("1", texts[1])]
    ),
    st.sampled_from(
        [
            ("12", "21"),
            ("12", "1"),  # a result is missing
            ("1", ""),
            ("", "9"),  # the call is missing
            ("11", "11"),
            ("1", "11"),
        ]
    ).map(lambda ids: [*([calls(*ids[0])] if ids[0] else []), *map(result, ids[1])]),
)
histories = st.lists(turns, max_size=12).map(lambda parts: [message for part in parts for message in part])


def recounted(context: Context, count: Callable[[str], int]) -> int:
    """Return the tokens of a context, counted from its parts."""
    total = count(context.system) + (MESSAGE_TOKENS if context.system else 0)
    total += count(context.recalled) + (MESSAGE_TOKENS if context.recalled else 0)
    for message in context.messages:
        total += MESSAGE_TOKENS + count(message.content)
        total += sum(MESSAGE_TOKENS + count(f"{call.name} {{}}") for call in message.tool_calls)
    return total


@given(history=histories, budget=st.integers(1, 200), count=st.sampled_from([len, words, count_tokens]))
@settings(deadline=None, max_examples=60)
def test_every_context_keeps_the_promises(
    history: list[Message], budget: int, count: Callable[[str], int]
) -> None:
    with SessionStore() as store:
        session = store.create("ann", messages=history)
        for other in ("one", "two words", "three whole words"):
            store.create("ann", other, messages=[user(other * 3)])
        builder = builder_on(store, budget, count=count, system_prompt="Be brief.", recent_sessions=2)
        try:
            context = builder.build(session.id)
        except BudgetTooSmall:
            return
        assert context.tokens <= budget
        assert recounted(context, count) <= context.tokens
        numbers = [history.index(message) for message in context.messages]
        assert numbers == sorted(set(numbers))  # in order, none cut
        assert context.left_out.messages == len(history) - len(numbers)
        questions = [message for message in history if message.role == "user"]
        if questions:
            assert questions[-1] in context.messages
        assert_valid_openai(context.to_openai()["messages"])
        assert_valid_anthropic(context.to_anthropic()["messages"])
        assert builder.build(session.id) == context


@given(history=histories, budget=st.integers(20, 200), cuts=st.lists(st.integers(0, 40), max_size=5))
@settings(deadline=None, max_examples=60)
def test_building_step_by_step_gives_what_building_at_once_gives(
    history: list[Message], budget: int, cuts: list[int]
) -> None:
    """The cache must not change the result."""
    with SessionStore() as store:
        session = store.create("ann")
        warm = builder_on(store, budget, system_prompt="Be brief.")
        edges = sorted({0, len(history), *(cut for cut in cuts if cut < len(history))})
        for start, stop in pairwise(edges):
            store.append(session.id, *history[start:stop])
            cold = builder_on(store, budget, system_prompt="Be brief.")
            assert outcome(warm, session.id) == outcome(cold, session.id)
        warm.token_budget = cold_budget = budget * 3
        cold = builder_on(store, cold_budget, system_prompt="Be brief.")
        assert outcome(warm, session.id) == outcome(cold, session.id)


def outcome(builder: ContextBuilder, session_id: str) -> Context | str:
    try:
        return builder.build(session_id)
    except BudgetTooSmall as problem:
        return str(problem)


def assert_valid_openai(messages: list[dict[str, Any]]) -> None:
    """Assert that each call is followed by its results, each once, and that there are no other results."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])  # ValueError: no such call is open
            continue
        assert not open_calls
        open_calls = [call["id"] for call in message.get("tool_calls", [])]
        assert len(set(open_calls)) == len(open_calls)
    assert not open_calls


def assert_valid_anthropic(messages: list[dict[str, Any]]) -> None:
    roles = [message["role"] for message in messages]
    assert roles == [("user", "assistant")[number % 2] for number in range(len(roles))]
    wanted: list[str] = []
    for message in messages:
        blocks = message["content"]
        assert blocks
        kinds = [block["type"] for block in blocks]
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(wanted)
        assert kinds[: len(results)] == ["tool_result"] * len(results)  # results come first
        wanted = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert not wanted


# -- what is shown and what is not ------------------------------------------------------------


def test_the_newest_messages_are_shown_and_the_others_are_counted() -> None:
    with SessionStore() as store:
        session = store.create(
            "ann", messages=[user("one"), assistant("two"), user("three"), assistant("four"), user("five")]
        )
        each = MESSAGE_TOKENS + 1
        prompt = MESSAGE_TOKENS
        assert shown(builder_on(store, prompt + 5 * each).build(session.id)) == [
            "one",
            "two",
            "three",
            "four",
            "five",
        ]
        some = builder_on(store, prompt + 4 * each).build(session.id)
        assert shown(some) == ["three", "four", "five"]  # not "two": its question is not shown
        assert some.left_out.messages == 2
        assert some.left_out
        with pytest.raises(BudgetTooSmall, match=f"take {prompt + each}"):
            builder_on(store, prompt + each - 1).build(session.id)


def test_the_question_stays_when_tool_results_fill_the_budget() -> None:
    with SessionStore() as store:
        rounds = [
            message
            for number in range(5)
            for message in (calls(str(number)), result(str(number), "w " * 10))
        ]
        session = store.create("ann", messages=[user("old"), assistant("old"), user("question"), *rounds])
        context = builder_on(store, 75).build(session.id)
        assert shown(context)[0] == "question"
        assert [message.tool_result.call_id for message in context.messages if message.tool_result] == [
            "3",
            "4",
        ]
        assert context.left_out.messages == 2 + 6


def test_a_long_session_is_read_from_its_end() -> None:
    with SessionStore() as store:
        texts = [f"{number}" for number in range(5000)]
        session = store.create("ann", messages=[user(text) for text in texts])
        counted: list[str] = []

        def counting(text: str) -> int:
            counted.append(text)
            return len(text.split())

        builder = builder_on(store, 100, count=counting)
        context = builder.build(session.id)
        assert shown(context) == texts[-len(context.messages) :]
        assert context.left_out.messages == 5000 - len(context.messages)
        assert len(counted) < 200
        counted.clear()
        store.append(session.id, user("new"))
        assert shown(builder.build(session.id))[-1] == "new"
        assert counted == ["new"]  # building again costs the new message only


def test_the_least_recently_used_sessions_leave_the_cache() -> None:
    with SessionStore() as store:
        builder = builder_on(store, recent_sessions=3)
        sessions = [store.create("ann", messages=[user(str(number))]) for number in range(600)]
        for session in sessions:
            builder.build(session.id)
        assert len(builder._cached) <= 256
        assert len(builder._cached_lines) <= 256
        assert shown(builder.build(sessions[0].id)) == ["0"]


def test_only_the_end_that_the_budget_reaches_stays_in_ram() -> None:
    with SessionStore() as store:
        builder = builder_on(store, 100)
        session = store.create("ann")
        for number in range(300):
            store.append(session.id, user(str(number)))
            builder.build(session.id)
        assert len(builder._cached[session.id].groups) < 50


def test_an_empty_session_gives_an_empty_history() -> None:
    with SessionStore() as store:
        context = builder_on(store, system_prompt="Be brief.").build(store.create("ann").id)
        assert (context.messages, context.system, bool(context.left_out)) == ((), "Be brief.", False)


def test_a_greeting_at_the_beginning_is_kept() -> None:
    with SessionStore() as store:
        session = store.create("ann", messages=[assistant("hello"), user("hi")])
        context = builder_on(store).build(session.id)
        assert shown(context) == ["hello", "hi"]
        assert [message["role"] for message in context.to_anthropic()["messages"]] == ["user"]


# -- caching ----------------------------------------------------------------------------------


def test_messages_of_other_processes_and_builders_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with SessionStore(path) as store, SessionStore(path) as second:
        session = store.create("ann", messages=[user("one")])
        builder, other = builder_on(store), builder_on(second)
        assert shown(builder.build(session.id)) == shown(other.build(session.id)) == ["one"]
        run_python(
            """
            from memory.agents import Message, SessionStore
            with SessionStore(sys.argv[1]) as store:
                store.append(sys.argv[2], Message(role="user", content="two"))
            """,
            path,
            session.id,
        )
        assert shown(builder.build(session.id)) == ["one", "two"]
        second.append(session.id, user("three"))
        assert shown(builder.build(session.id)) == shown(other.build(session.id)) == ["one", "two", "three"]


def test_a_deleted_session_is_not_built_from_the_cache() -> None:
    with SessionStore() as store:
        builder = builder_on(store, recent_sessions=2)
        store.create("ann", id="mine", messages=[user("old one"), user("old two")])
        builder.build("mine")
        store.delete("mine")
        with pytest.raises(UnknownSession):
            builder.build("mine")
        store.create("ann", id="mine", messages=[user("new one"), user("new two"), user("new three")])
        assert shown(builder.build("mine")) == ["new one", "new two", "new three"]


def test_a_session_created_again_between_two_builds_is_read_again() -> None:
    with SessionStore() as store:
        builder = builder_on(store)
        store.create("ann", id="mine", messages=[user("old")])
        builder.build("mine")
        store.delete("mine")
        store.create("ann", id="mine", messages=[user("new"), user("newer")])
        assert shown(builder.build("mine")) == ["new", "newer"]


def test_changes_of_tools_and_prompt_are_seen() -> None:
    with SessionStore() as store:
        registry = ToolRegistry()
        builder = builder_on(store, tools=registry)  # empty, but it must be used
        session = store.create("ann", messages=[user("hello")])
        plain = builder.build(session.id)
        assert plain.tools == ()
        assert "tools" not in plain.to_openai()

        @registry.tool
        def look(where: str) -> str:
            """Look somewhere."""
            return where

        context = builder.build(session.id)
        assert [tool.name for tool in context.tools] == ["look"]
        assert context.tokens > plain.tokens
        assert context.to_openai()["tools"][0]["function"]["parameters"] == registry.get("look").parameters
        assert context.to_anthropic()["tools"][0]["input_schema"] == registry.get("look").parameters
        registry.deny = ["look"]
        assert builder.build(session.id) == plain
        builder.system_prompt = "Be brief."
        assert builder.build(session.id).to_anthropic()["system"] == "Be brief."


def test_threads_may_share_a_builder() -> None:
    with SessionStore() as store:
        builder = builder_on(store)
        shared = store.create("ann", messages=[user("shared")])

        def work(name: str) -> None:
            own = store.create("ann", messages=[user(name)])
            for number in range(40):
                store.append(own.id, user(f"{name}{number}"))
                assert shown(builder.build(own.id)) == [
                    name,
                    *(f"{name}{each}" for each in range(number + 1)),
                ]
                store.append(shared.id, user(f"{name}{number}"))
                seen = [text for text in shown(builder.build(shared.id)) if text.startswith(name)]
                assert seen == [f"{name}{each}" for each in range(number + 1)]

        together(*(lambda name=name: work(name) for name in "abcd"))


# -- memory and other sessions ----------------------------------------------------------------


def test_memories_are_ordered_by_weight_within_their_share(open_memory: OpenMemory) -> None:
    memory = open_memory()
    memory.add("ann", "The umbrella is in the cellar.")
    memory.add("ann", "The umbrella\nis blue. " + "Really. " * 300)
    memory.add("ann", "The cat likes fish.")
    memory.add("bob", "The umbrella is Bob's secret.")
    with SessionStore() as store:
        session = store.create("ann", messages=[user("Where is my umbrella?")])
        context = builder_on(store, 200, memory=memory).build(session.id)
        first = '<recalled>\nMemories:\n- note: "The umbrella is in the cellar."\n'
        assert context.recalled.startswith(first)
        assert "Bob" not in context.recalled
        assert "Really" not in context.recalled  # too long: left out, but the shorter ones are shown
        assert context.left_out.memories == 1
        assert context.memories[0].entry.content == "The umbrella is in the cellar."
        assert context.tokens <= 200
        assert "blue. Really. Really." in builder_on(store, 9000, memory=memory).build(session.id).recalled


def test_recency_and_importance_order_memories_that_match_equally(
    open_memory: OpenMemory, clock: Any
) -> None:
    memory = open_memory()
    # The same words and the same meaning: only recency and importance differ.
    memory.add("ann", "Tea (kitchen)", importance=2.0, metadata={"which": "first"})
    clock.advance(30 * 24 * 3600)
    memory.add("ann", "tea kitchen", importance=1.0, metadata={"which": "unimportant"})
    memory.add("ann", "tea, kitchen", importance=5.0, metadata={"which": "important"})
    for number in range(20):
        memory.add("ann", f"Cat number {number} sleeps on the roof.", importance=5.0)
    with SessionStore() as store:
        session = store.create("ann", messages=[user("Where is tea?")])
        context = builder_on(store, memory=memory, memories=3).build(session.id)
    hits = {hit.entry.metadata["which"]: hit.score for hit in context.memories}
    assert abs(hits["important"] - hits["unimportant"]) < 0.1, "not like enough for this test"
    assert list(hits).index("important") < list(hits).index("unimportant")


def test_recency_and_importance_choose_among_memories_that_match_equally(
    open_memory: OpenMemory, clock: Any
) -> None:
    memory = open_memory()
    for number in range(10):
        memory.add("ann", f"tea kitchen{'.' * number}", importance=1.0)
    clock.advance(30 * 24 * 3600)
    memory.add("ann", "tea, in the kitchen", importance=5.0)
    for number in range(20):
        memory.add("ann", f"Cat number {number} sleeps on the roof.", importance=5.0)
    question = "tea kitchen?"
    hits = memory.search("ann", question, 40)
    contents = [hit.entry.content for hit in hits]
    place = contents.index("tea, in the kitchen")
    assert place > 6, "it must rank behind the others for this test"
    assert hits[0].score - hits[place].score < 0.3, "not like enough for this test"
    with SessionStore() as store:
        session = store.create("ann", messages=[user(question)])
        for wanted in (1, 3):
            context = builder_on(store, memory=memory, memories=wanted).build(session.id)
            assert len(context.memories) == wanted
            assert context.memories[0].entry.content == "tea, in the kitchen"


def test_messages_in_the_history_are_not_shown_as_memories_too(open_memory: OpenMemory) -> None:
    memory = open_memory()
    messages = [user("My umbrella is in the cellar."), assistant("Noted: the umbrella is in the cellar.")]
    for message in messages:
        memory.add("ann", message.content, id=message.id)
    memory.add("ann", "The umbrella was a gift.")
    with SessionStore() as store:
        session = store.create("ann", messages=[*messages, user("Where is the umbrella?")])
        context = builder_on(store, memory=memory, memories=1).build(session.id)
        assert context.recalled == '<recalled>\nMemories:\n- note: "The umbrella was a gift."\n</recalled>'
        # Another session does not show them.
        other = store.create("ann", messages=[user("Where is the umbrella?")])
        assert "cellar" in builder_on(store, memory=memory).build(other.id).recalled


def test_each_text_is_shown_once_and_the_question_not_as_a_memory(open_memory: OpenMemory) -> None:
    memory = open_memory()
    for _ in range(7):
        memory.add("ann", "Where is the umbrella?")
        memory.add("ann", "The umbrella is in the cellar.")
    memory.add("ann", "An umbrella keeps the rain off.")
    with SessionStore() as store:
        session = store.create("ann", messages=[user("Where is the umbrella?")])
        context = builder_on(store, memory=memory, memories=3).build(session.id)
    assert sorted(context.recalled.splitlines()[2:-1]) == [
        '- note: "An umbrella keeps the rain off."',
        '- note: "The umbrella is in the cellar."',
    ]


def test_memories_are_looked_up_once_for_a_question_and_its_tool_calls(open_memory: OpenMemory) -> None:
    memory = open_memory()
    memory.add("ann", "The umbrella is in the cellar.")
    with SessionStore() as store:
        builder = builder_on(store, memory=memory)
        session = store.create("ann", messages=[user("Where is my umbrella?")])
        first = builder.build(session.id)
        memory.add("ann", "The umbrella is in the car.")
        store.append(session.id, calls("1"), result("1"))
        assert builder.build(session.id).recalled == first.recalled
        store.append(session.id, user("Where is my umbrella?"))
        assert "in the car" in builder.build(session.id).recalled


def test_a_large_result_leaves_less_room_for_memories(open_memory: OpenMemory) -> None:
    """The memories had room at first; the newest message needs it now."""
    memory = open_memory()
    for number in range(5):
        memory.add("ann", f"The umbrella number {number} is in the cellar, " + "far back " * 3)
    with SessionStore() as store:
        builder = builder_on(store, 150, memory=memory, memory_share=1.0)
        session = store.create("ann", messages=[user("umbrella")])
        assert len(builder.build(session.id).memories) == 5
        store.append(session.id, calls("1"), result("1", "word " * 110))
        context = builder.build(session.id)
        assert len(context.messages) == 3
        assert context.tokens <= 150
        assert len(context.memories) + context.left_out.memories == 5


def test_other_sessions_are_shown_and_kept_up_to_date() -> None:
    with SessionStore() as store:
        builder = builder_on(store, recent_sessions=2)
        store.create("bob", "Bob's", messages=[user("secret")])
        garden = store.create("ann", "Garden", messages=[user("roses")])
        store.create("ann", "Empty")
        store.create("ann", "Kitchen", messages=[user("salt and " * 50)])
        session = store.create("ann", messages=[user("hello")])

        def others() -> list[str]:
            return builder.build(session.id).recalled.splitlines()[2:-1]

        kitchen = f'- "Kitchen", user: "{("salt and " * 50).strip()}"'
        assert others() == [kitchen]  # never cut; an empty session is not shown
        store.append(garden.id, assistant("tulips"))
        assert others() == [kitchen]  # the question is the same
        store.append(session.id, user("hello again"))
        assert others() == ['- "Garden", assistant: "tulips"', kitchen]
        store.rename(garden.id, "Orchard")
        store.append(session.id, user("once more"))
        assert others()[0] == '- "Orchard", assistant: "tulips"'
        store.delete(garden.id)
        store.append(session.id, user("and again"))
        assert others() == [kitchen]


def test_no_session_is_dropped_while_the_cache_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.agents.builder._MAX_CACHED_SESSIONS", 4)
    with SessionStore() as store:
        builder = builder_on(store, recent_sessions=2)
        store.create("ann", "old", messages=[user("old")])
        session = store.create("ann", messages=[user("hello")])
        builder.build(session.id)
        for name in ("bob", "cid", "dan"):  # their sessions fill the cache
            store.create(name, "other", messages=[user("other")])
            builder.build(store.create(name, messages=[user("hello")]).id)
        store.create("ann", "new", messages=[user("new")])
        store.append(session.id, user("and now?"))
        assert builder.build(session.id).recalled.splitlines()[2:-1] == [
            '- "new", user: "new"',
            '- "old", user: "old"',
        ]


def test_threads_see_all_other_sessions_while_the_cache_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memory.agents.builder._MAX_CACHED_SESSIONS", 8)
    with SessionStore() as store:
        builder = builder_on(store, recent_sessions=4)

        def work(agent: str) -> None:
            for number in range(150):
                session = store.create(agent, str(number), messages=[user("hello")])
                lines = builder.build(session.id).recalled.splitlines()[2:-1]
                assert len(lines) == min(number, 4)

        together(*(lambda agent=agent: work(agent) for agent in "abcdef"))


def test_invalid_settings_are_refused() -> None:
    with SessionStore() as store:
        for wrong in ({"budget": 0}, {"memories": -1}, {"recent_sessions": -1}, {"memory_share": 1.5}):
            with pytest.raises(InvalidAgentInput):
                builder_on(store, **wrong)  # type: ignore[arg-type]
