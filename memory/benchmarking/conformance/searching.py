"""Checks of searches."""

from __future__ import annotations

from itertools import islice

import numpy as np

from memory.benchmarking.conformance.storing import THINGS, items
from memory.benchmarking.conformance.subject import ANN, DoesNotApply, Subject, scores_fall
from memory.benchmarking.targets.base import Found, Item
from memory.benchmarking.workloads import agent_states
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

_MANY = 30
"""The memories of the checks about k."""
_IN_A_GRAPH, _QUESTIONS = 2000, 30
"""The memories and searches of the check of the dial: enough for a graph to miss some."""


def a_search_returns_the_best_first(subject: Subject) -> None:
    """A search returns at most k hits, the best first."""
    subject.needs("search", "it can't search")
    target = subject.open()
    ids = target.add(items(ANN, THINGS))
    target.flush()
    for id_, text in zip(ids, THINGS, strict=True):
        hits = target.search(ANN, text, subject.k(2))
        _first(subject, hits, id_, text)
        subject.true("search", len(hits) <= 2, "at most 2 hits for k = 2", hits)
        subject.true("search", scores_fall(hits), "scores that fall", [hit.score for hit in hits])
        if subject.capabilities.confidence:
            chances = [hit.confidence for hit in hits]
            is_chance = all(chance is not None and 0 <= chance <= 1 for chance in chances)
            subject.true("search", is_chance, "a confidence from 0 to 1 for each hit", chances)


def _first(subject: Subject, hits: list[Found], id_: str, content: object) -> None:
    subject.true("search", bool(hits), f"a hit for {content!r}", hits)
    subject.true("search", hits[0].id == id_, f"first the id {id_!r}", hits)
    if subject.capabilities.exact:
        subject.equal("search", hits[0].content, content, "as content of the first hit")


def a_state_is_the_best_hit_for_itself(subject: Subject) -> None:
    """A search for a stored state finds that state first."""
    subject.needs("search", "it can't search")
    target = subject.open()
    states = agent_states(20, seed=3)
    ids = target.add(items(ANN, list(states)))
    target.flush()
    for number in (0, 7, 19):
        _first(subject, target.search(ANN, states[number], subject.k(5)), ids[number], states[number])


def a_new_memory_is_found_at_once(subject: Subject) -> None:
    """A new memory is found as soon as `add` has returned."""
    subject.needs("search", "it can't search")
    if subject.capabilities.delayed_search:
        raise DoesNotApply("it declares delayed_search")
    target = subject.open()
    target.add(items(ANN, THINGS[1:]))
    (id_,) = target.add([Item(ANN, THINGS[0])])
    _first(subject, target.search(ANN, THINGS[0], subject.k(3)), id_, THINGS[0])


def a_flushed_memory_is_found(subject: Subject) -> None:
    """A memory is found at the latest when `flush` has returned."""
    subject.needs("search", "it can't search")
    if not subject.capabilities.delayed_search:
        raise DoesNotApply("it does not declare delayed_search")
    target = subject.open()
    for text in THINGS:
        (id_,) = target.add([Item(ANN, text)])
        target.flush()
        _first(subject, target.search(ANN, text, subject.k(3)), id_, text)


def k_may_be_larger_than_the_store(subject: Subject) -> None:
    """A k that is larger than the store returns each memory at most once."""
    subject.needs("search", "it can't search")
    target = subject.open()
    ids = target.add(items(ANN, THINGS))
    target.flush()
    hits = target.search(ANN, THINGS[0], subject.k(1000))
    _first(subject, hits, ids[0], THINGS[0])
    subject.equal("search", len({hit.id for hit in hits}), len(hits), "different ids")
    subject.true("search", {hit.id for hit in hits} <= set(ids), "only ids of this agent", hits)


def max_k_is_reached(subject: Subject) -> None:
    """A search for `max_k` hits works and returns no more than that."""
    subject.needs("search", "it can't search")
    most = subject.capabilities.max_k
    if most is None:
        raise DoesNotApply("it declares no max_k")
    target = subject.open()
    target.add([Item(ANN, f"the lantern of house {number}") for number in range(_MANY)])
    target.flush()
    hits = target.search(ANN, "the lantern", most)
    wanted = min(most, _MANY)
    subject.true("search", 0 < len(hits) <= wanted, f"1 to {wanted} hits for k = {most}", hits)


def k_hits_if_there_are_more(subject: Subject) -> None:
    """A search returns k hits if more memories than that fit."""
    subject.needs("search", "it can't search")
    target = subject.open()
    target.add([Item(ANN, f"the lantern of house {number}") for number in range(_MANY)])
    target.flush()
    wanted = subject.k(10)
    hits = target.search(ANN, "the lantern", wanted)
    subject.equal("search", len(hits), wanted, f"hits, because all {_MANY} memories have these words")


def a_place_is_searched_alone(subject: Subject) -> None:
    """A search in one place finds nothing of another."""
    subject.needs("search", "it can't search")
    subject.needs("tiers", "it has no tiers")
    target = subject.open()
    for place in subject.capabilities.places:
        target.add([Item(ANN, f"{text} {place}") for text in THINGS], place)
    target.flush()
    for place in subject.capabilities.places:
        hits = target.search(ANN, THINGS[0], subject.k(9), place)
        subject.true("search", bool(hits), f"hits in {place}", hits)
        inside = all(str(hit.content).endswith(place) for hit in hits)
        subject.true("search", inside or not subject.capabilities.exact, f"hits of {place} only", hits)


def a_vector_finds_its_memory(subject: Subject) -> None:
    """A search by a memory's own vector finds that memory first."""
    subject.needs("vector_queries", "it has no search_vector")
    target = subject.open()
    ids = target.add(items(ANN, THINGS))
    target.flush()
    for id_, vector in zip(ids, target.embed(THINGS), strict=True):
        hits = target.search_vector(ANN, vector, subject.k(2), None)  # with `place`, as benchmarks call it
        subject.true("search_vector", bool(hits) and hits[0].id == id_, f"first the id {id_!r}", hits)
        subject.true("search_vector", len(hits) <= 2, "at most 2 hits for k = 2", hits)


def a_dial_changes_what_is_found(subject: Subject) -> None:
    """A search that is not exact finds other memories after the dial was turned."""
    dial = subject.kind.dial
    if dial is None:
        raise DoesNotApply("it has no dial")
    target = subject.open()
    texts = list(dict.fromkeys(islice(memory_texts(1), _IN_A_GRAPH)))
    ids = np.array(target.add(items(ANN, texts)))
    target.flush()
    stored, asked = target.embed(texts), target.embed(list(islice(question_texts(2), _QUESTIONS)))
    k = subject.k(10)
    found: list[list[set[str]]] = []
    for setting in (dial.settings[0], dial.settings[-1]):
        target.turn_dial(setting)
        found.append([{hit.id for hit in target.search_vector(ANN, vector, k, None)} for vector in asked])
    exact = [set(ids[np.argsort(-(stored @ vector))[:k]]) for vector in asked]
    subject.true(
        "turn_dial",
        found[0] != found[1] or found[0] == exact,
        f"other hits at {dial.name} {dial.settings[-1]} than at {dial.settings[0]}, or exact ones at both",
        f"the same hits, {sum(map(len, map(set.intersection, found[0], exact)))} of {k * len(exact)} right",
    )


CHECKS = (
    a_search_returns_the_best_first,
    a_state_is_the_best_hit_for_itself,
    a_new_memory_is_found_at_once,
    a_flushed_memory_is_found,
    k_may_be_larger_than_the_store,
    max_k_is_reached,
    k_hits_if_there_are_more,
    a_place_is_searched_alone,
    a_vector_finds_its_memory,
    a_dial_changes_what_is_found,
)
