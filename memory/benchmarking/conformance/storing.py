"""Checks of storing, reading, changing and deleting, and of agents."""

from __future__ import annotations

from typing import Any

from memory.benchmarking.conformance.subject import ANN, BOB, DoesNotApply, Subject, short
from memory.benchmarking.targets.base import Item
from memory.benchmarking.workloads import agent_states

CONTENTS: list[Any] = [
    "a plain text",
    "größe, naïve, 日本, 🎈, and a quote ' and \" and \\",
    {"position": [1.5, -2.25, 0], "inventory": [], "goal": None, "deep": {"er": [True, {"x": 1}]}},
    *agent_states(3, complexity=2, seed=7),
]
THINGS = ["the lantern is in the harbour", "the bridge is broken", "bread is sold at the market"]
NAMES = ("ann lee", "ann_lee", "ann-lee", "ann/lee", "Ännchen's 🎈", "agent 0", "0")
"""Names of agents that some systems refuse or mix up."""


def items(agent: str, contents: list[Any]) -> list[Item]:
    return [Item(agent, content, step) for step, content in enumerate(contents)]


def it_is_empty_at_first(subject: Subject) -> None:
    """A new store is empty, and unknown ids are no error."""
    target = subject.open()
    subject.total(target, 0, " in a new store")
    if subject.capabilities.get:
        subject.equal("get", target.get(ANN, ["1"]), [None], "for an unknown id")
        subject.equal("get_one", target.get_one(ANN, "1"), None, "for an unknown id")
    subject.equal("delete", target.delete(ANN, ["1"]), 0, "for an unknown id")
    subject.equal("delete_all", target.delete_all(ANN), 0, "for an agent without memories")
    if subject.capabilities.search:
        subject.equal("search", target.search(ANN, "anything", subject.k(5)), [], "in an empty store")


def contents_come_back_unchanged(subject: Subject) -> None:
    """Contents come back as they were stored, in the order of the ids."""
    target = subject.open()
    ids = target.add(items(ANN, CONTENTS))
    subject.true("add", all(isinstance(each, str) for each in ids), "ids that are text", ids)
    subject.equal("add", len(set(ids)), len(CONTENTS), "different ids")
    subject.stored(target, ANN, ids, CONTENTS)
    subject.stored(target, ANN, ids[::-1], CONTENTS[::-1])


def unknown_ids_are_none(subject: Subject) -> None:
    """`get` returns None for an unknown id among known ones."""
    subject.needs("get", "it has no get")
    target = subject.open()
    ids = target.add(items(ANN, THINGS))
    came = target.get(ANN, [ids[0], "nothing like it", ids[1]])
    subject.equal("get", [each is None for each in came], [False, True, False], "as what is missing")
    subject.equal("get", target.get(ANN, []), [], "for no ids")


def the_same_id_twice_in_get(subject: Subject) -> None:
    """The same id twice in `get` returns the content twice."""
    subject.needs("get", "it has no get")
    target = subject.open()
    ids = target.add(items(ANN, THINGS))
    twice = [ids[0], ids[1], ids[0]]
    came = target.get(ANN, twice)
    subject.equal("get", came, target.get(ANN, [ids[0]]) + target.get(ANN, ids[1::-1]), "for an id twice")


def no_get_is_refused(subject: Subject) -> None:
    """A target without `get` refuses it and finds its memories by search."""
    if subject.capabilities.get:
        raise DoesNotApply("it has get")
    target = subject.open()
    (id_,) = target.add([Item(ANN, THINGS[0])])
    subject.refuses("get", lambda: target.get(ANN, [id_]))
    subject.stored(target, ANN, [id_], [THINGS[0]])


def one_by_one_is_the_same_as_a_batch(subject: Subject) -> None:
    """`add_one` and `get_one` do the same as batches."""
    target = subject.open()
    ids = [target.add_one(Item(ANN, content)) for content in CONTENTS]
    subject.equal("add_one", len(set(ids)), len(CONTENTS), "different ids")
    subject.stored(target, ANN, ids, CONTENTS)
    if subject.capabilities.get and subject.capabilities.exact:
        for id_, content in zip(ids, CONTENTS, strict=True):
            subject.equal("get_one", target.get_one(ANN, id_), content, "as it was stored")
    subject.total(target, len(CONTENTS))


def an_empty_batch_changes_nothing(subject: Subject) -> None:
    """An empty batch is no error and changes nothing."""
    target = subject.open()
    subject.equal("add", target.add([]), [], "for no items")
    subject.equal("delete", target.delete(ANN, []), 0, "for no ids")
    subject.total(target, 0)


def two_equal_texts_in_one_batch(subject: Subject) -> None:
    """Two equal texts in one batch are two memories."""
    target = subject.open()
    ids = target.add(items(ANN, [THINGS[0], THINGS[1], THINGS[0]]))
    subject.equal("add", len(set(ids)), 3, "different ids")
    subject.total(target, 3)
    subject.stored(target, ANN, ids, [THINGS[0], THINGS[1], THINGS[0]])
    subject.equal("delete", target.delete(ANN, ids[:1]), 1, "for one of two equal texts")
    subject.total(target, 2, " after one of two equal texts was deleted")
    subject.stored(target, ANN, ids[1:], [THINGS[1], THINGS[0]], " after its twin was deleted")


def each_place_holds_what_was_stored_there(subject: Subject) -> None:
    """Each place holds what was stored there."""
    target = subject.open()
    ids = {}
    for number, place in enumerate(subject.capabilities.places, 1):
        some = [Item(ANN, f"{place} {each}") for each in range(number)]
        ids[place] = [*target.add(some, place), target.add_one(Item(ANN, place), place)]
    subject.equal("count", target.count(), {place: len(each) for place, each in ids.items()})
    for place, each in ids.items():
        subject.stored(target, ANN, each[-1:], [place])


def ids_are_never_used_again(subject: Subject) -> None:
    """The id of a deleted memory is not given to a new one."""
    target = subject.open()
    before = target.add(items(ANN, THINGS))
    target.delete(ANN, before)
    again = target.add(items(ANN, THINGS))
    subject.true("add", not set(before) & set(again), f"other ids than {short(before)}", again)


# -- agents -----------------------------------------------------------------------------------


def agents_are_kept_apart(subject: Subject) -> None:
    """An agent never sees or changes the memories of another."""
    target = subject.open()
    ann = target.add(items(ANN, THINGS))
    bob = target.add([Item(BOB, "a secret")])
    subject.missing(target, BOB, ann, THINGS)
    subject.equal("delete", target.delete(BOB, ann), 0, "for ids of another agent")
    if subject.capabilities.update:
        subject.equal("update", target.update(BOB, ann[0], "changed"), False, "for another agent's id")
    subject.stored(target, ANN, ann, THINGS, " after another agent tried to delete it")
    subject.equal("delete_all", target.delete_all(ANN), len(ann), "memories of this agent")
    subject.stored(target, BOB, bob, ["a secret"], " after another agent deleted all of its own")
    subject.total(target, 1)


def agent_names_may_be_any_text(subject: Subject) -> None:
    """Agents with spaces, slashes and other letters in their names are different agents."""
    target = subject.open()
    ids = {name: target.add([Item(name, f"the word of {name}")])[0] for name in NAMES}
    for name, id_ in ids.items():
        subject.stored(target, name, [id_], [f"the word of {name}"], f" for the agent {name!r}")
        others = [other for other in NAMES if other != name]
        for other in others if subject.capabilities.get else ():
            subject.equal("get", target.get(name, [ids[other]]), [None], f"for {name!r}, of {other!r}")
    subject.equal("delete_all", target.delete_all(NAMES[0]), 1, f"for the agent {NAMES[0]!r}")
    subject.total(target, len(NAMES) - 1)


# -- changing ---------------------------------------------------------------------------------


def a_deleted_memory_is_gone(subject: Subject) -> None:
    """A deleted memory is gone, and is counted."""
    target = subject.open()
    ids = target.add(items(ANN, THINGS))
    subject.equal("delete", target.delete(ANN, ids[:2]), 2, "for two memories")
    subject.missing(target, ANN, ids[:2], THINGS[:2])
    subject.stored(target, ANN, ids[2:], THINGS[2:], " after others were deleted")
    subject.total(target, 1, " after two of three were deleted")
    subject.equal("delete", target.delete(ANN, ids[:1]), 0, "for a memory that is already deleted")


def the_same_id_twice_in_delete(subject: Subject) -> None:
    """The same id twice in `delete` counts once, and an unknown id does not count."""
    target = subject.open()
    ids = target.add(items(ANN, THINGS))
    subject.equal("delete", target.delete(ANN, [ids[0], ids[0], "nothing like it"]), 1, "for an id twice")
    subject.total(target, len(ids) - 1)


def delete_all_returns_how_many(subject: Subject) -> None:
    """`delete_all` deletes all memories of an agent, however many, and returns their number."""
    target = subject.open()
    target.add([Item(ANN, f"memory number {number}") for number in range(250)])
    subject.equal("delete_all", target.delete_all(ANN), 250, "for 250 memories")
    subject.total(target, 0, " after all were deleted")
    subject.equal("delete_all", target.delete_all(ANN), 0, "the second time")


def an_update_replaces_the_content(subject: Subject) -> None:
    """An update replaces the content under the same id."""
    subject.needs("update", "it has no update")
    target = subject.open()
    ids = target.add(items(ANN, THINGS))
    subject.equal("update", target.update(ANN, ids[0], {"now": "a state"}), True, "for a known id")
    subject.stored(target, ANN, ids, [{"now": "a state"}, *THINGS[1:]], " after an update")
    subject.total(target, len(ids), " after an update")
    subject.equal("update", target.update(ANN, "nothing like it", "x"), False, "for an unknown id")
    if subject.capabilities.search:
        target.update(ANN, ids[0], "the pump needs repair")
        target.flush()
        hits = target.search(ANN, "the pump needs repair", subject.k(3))
        subject.true("search", bool(hits) and hits[0].id == ids[0], f"first the id {ids[0]!r}", hits)


CHECKS = (
    it_is_empty_at_first,
    contents_come_back_unchanged,
    unknown_ids_are_none,
    the_same_id_twice_in_get,
    no_get_is_refused,
    one_by_one_is_the_same_as_a_batch,
    an_empty_batch_changes_nothing,
    two_equal_texts_in_one_batch,
    each_place_holds_what_was_stored_there,
    ids_are_never_used_again,
    agents_are_kept_apart,
    agent_names_may_be_any_text,
    a_deleted_memory_is_gone,
    the_same_id_twice_in_delete,
    delete_all_returns_how_many,
    an_update_replaces_the_content,
)
