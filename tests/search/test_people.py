"""A question about one speaker prefers that speaker's memories."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from memory import AgentMemorySystem
from memory._base.content import leaves_of
from memory.embedding import FunctionEmbedder
from memory.search import terms as terms_module
from memory.search.names import sound_of
from memory.search.terms import terms_of_memory

Open = Callable[..., AgentMemorySystem]


@pytest.fixture
def memory(open_memory: Open) -> AgentMemorySystem:
    return open_memory()


def tell(memory: AgentMemorySystem, *turns: tuple[str, str], key: str = "speaker") -> None:
    for number, (name, text) in enumerate(turns):
        memory.add("chat", text, id=text, metadata={key: name, "session": number // 2})


def bonuses(memory: AgentMemorySystem, question: str) -> dict[str, float]:
    return {hit.id: hit.why.bonus for hit in memory.search("chat", question)}


TURNS = (
    ("Fahim Khan", "I went hiking"),
    ("Muhhamed", "Khan went hiking with me"),
    ("Fahim Khan", "my dog is ill"),
    ("Muhhamed", "I play chess"),
)


@pytest.mark.parametrize("key", ["speaker", "author", "sender", "role"])
def test_the_memories_of_the_named_speaker_get_a_bonus(memory: AgentMemorySystem, key: str) -> None:
    tell(memory, *TURNS, key=key)
    found = bonuses(memory, "What did Fahim do?")
    assert {text for text, bonus in found.items() if bonus} == {"I went hiking", "my dog is ill"}
    assert memory.search("chat", "who went hiking? Fahim?")[0].id == "I went hiking"
    assert memory.search("chat", "who went hiking? Muhhamed?")[0].id == "Khan went hiking with me"


def test_all_words_of_a_name_mean_the_same_person(memory: AgentMemorySystem) -> None:
    tell(memory, *TURNS)
    found = bonuses(memory, "Where was Fahim Khan?")
    assert {text for text, bonus in found.items() if bonus} == {"I went hiking", "my dog is ill"}


def test_two_who_share_a_surname_are_told_apart(memory: AgentMemorySystem) -> None:
    tell(memory, ("Ann Weaver", "I cook"), ("Bob Weaver", "I sing"))
    assert bonuses(memory, "What does Ann Weaver do?")["I cook"] > 0
    assert bonuses(memory, "What does Ann Weaver do?")["I sing"] == 0


@pytest.mark.parametrize("question", ["Do Fahim and Muhhamed hike?", "Who hikes?", "what do users do?"])
def test_a_question_about_several_speakers_or_none_gives_no_bonus(
    memory: AgentMemorySystem, question: str
) -> None:
    tell(memory, *TURNS, ("user", "hello"))
    assert set(bonuses(memory, question).values()) == {0.0}


@pytest.mark.parametrize("written", ["Muhammad", "Mohamed", "Mohammed's"])
def test_a_name_that_is_spelled_differently_is_recognised_by_its_sound(
    memory: AgentMemorySystem, written: str
) -> None:
    tell(memory, *TURNS)
    found = bonuses(memory, f"What did {written} play?")
    assert {text for text, bonus in found.items() if bonus} == {"Khan went hiking with me", "I play chess"}


def test_a_common_word_that_sounds_like_a_name_is_no_name(memory: AgentMemorySystem) -> None:
    tell(memory, ("Robert", "I paint"), ("Ann", "I sing"))
    assert sound_of("rupert") == sound_of("robert")
    assert set(bonuses(memory, "is there a rupert?").values()) == {0.0}
    assert bonuses(memory, "is there a Rupert?")["I paint"] > 0


@pytest.mark.parametrize("role", ["user", "User", "human"])
def test_i_and_my_mean_the_turns_of_the_user(memory: AgentMemorySystem, role: str) -> None:
    tell(memory, (role, "the flat is in Leeds"), ("assistant", "Leeds has many flats"), key="role")
    assert bonuses(memory, "Where is my flat?")["the flat is in Leeds"] > 0
    assert bonuses(memory, "Where is my flat?")["Leeds has many flats"] == 0
    assert set(bonuses(memory, "Where is the flat?").values()) == {0.0}


def test_rows_without_sounds_are_found_by_the_exact_name(
    memory: AgentMemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms_module, "SPEAKER_KEYS", ())  # as version 0.2 stored them
    tell(memory, ("Ann", "I cook"), ("Bob", "I sing"))
    assert bonuses(memory, "What does Ann do?") == {"I cook": pytest.approx(1.5), "I sing": 0.0}


def test_a_speaker_adds_one_attribute_for_each_word_of_the_name() -> None:
    plain = terms_of_memory(leaves_of("x"), "text", [], leaves_of({"other": "Fahim Khan"}), None)
    named = terms_of_memory(leaves_of("x"), "text", [], leaves_of({"speaker": "Fahim Khan"}), None)
    role = terms_of_memory(leaves_of("x"), "text", [], leaves_of({"role": "user"}), None)
    assert [len(array("I", raw)) for raw in (plain, named, role)] == [3, 5, 3]


@pytest.mark.parametrize(
    ("words", "sound"),
    [
        (["robert", "rupert"], "r163"),
        (["ashcraft"], "a261"),
        (["tymczak"], "t522"),
        (["muhammad", "muhhamed", "mohamed"], "m53"),
        (["ann"], "a5"),
        (["王"], "王"),
        (["jo2"], "jo2"),
    ],
)
def test_sounds_follow_soundex_without_its_zeros(words: list[str], sound: str) -> None:
    assert {sound_of(word) for word in words} == {sound}


def test_another_embedder_gets_the_question_without_the_speakers_names(open_memory: Open) -> None:
    asked: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        return [[len(text), 1.0] for text in texts]

    memory = open_memory(embedder=FunctionEmbedder(embed, name="lengths", dimensions=2))
    tell(memory, *TURNS)
    asked.clear()
    memory.search("chat", "What is Fahim Khan's dog called?")
    memory.search("chat", "What is Rex called?")
    memory.search("chat", "Fahim")
    assert [" ".join(text.split()) for text in asked] == [
        "What is dog called?",
        "What is Rex called?",
        "Fahim",  # nothing else would be left
    ]
