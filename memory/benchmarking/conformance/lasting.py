"""Checks of folders, processes, threads, upkeep and declarations."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from memory.benchmarking.conformance.another_process import AGENT
from memory.benchmarking.conformance.another_process import CONTENTS as OTHERS
from memory.benchmarking.conformance.storing import CONTENTS, THINGS, items
from memory.benchmarking.conformance.subject import ANN, BOB, DoesNotApply, Subject, short
from memory.benchmarking.targets.base import Item
from memory.benchmarking.workloads import agent_states


def a_folder_opened_again_is_the_same(subject: Subject) -> None:
    """A folder that was closed and opened again has the same memories, and new ids for new ones."""
    subject.needs("persistence", "it declares no persistence")
    first = subject.open()
    ids = {place: first.add(items(ANN, CONTENTS), place) for place in subject.capabilities.places}
    gone = first.add([Item(ANN, "gone with the wind")])
    first.delete(ANN, gone)
    counts = first.count()
    subject.close(first)
    again = subject.open()
    subject.equal("count", again.count(), counts, "after the folder was opened again")
    for each in ids.values():
        subject.stored(again, ANN, each, CONTENTS, " after the folder was opened again")
    subject.missing(again, ANN, gone, ["gone with the wind"])
    used = {id_ for each in (*ids.values(), gone) for id_ in each}
    new = again.add([Item(ANN, "new")])
    subject.true("add", not used & set(new), f"another id than {short(sorted(used))}", new)


def a_folder_outlives_its_process(subject: Subject) -> None:
    """A folder that another process closed has its memories."""
    subject.needs("persistence", "it declares no persistence")
    ids = subject.in_another_process("add")
    subject.stored(subject.open(), AGENT, ids, OTHERS, " by a process that has ended")


def a_killed_process_loses_nothing(subject: Subject) -> None:
    """Acknowledged memories survive the end of the process, without `close`."""
    if subject.capabilities.durability == "ram":
        raise DoesNotApply("it declares that its writes survive nothing (durability ram)")
    ids = subject.in_another_process("kill")
    subject.stored(subject.open(), AGENT, ids, OTHERS, " after its process was killed")


def two_folders_are_two_stores(subject: Subject) -> None:
    """Two folders are two stores."""
    one, two = subject.open("one"), subject.open("two")
    ids = one.add([Item(ANN, "in one folder")])
    subject.total(two, 0, " in the other folder")
    subject.missing(two, ANN, ids, ["in one folder"])


def all_files_are_in_the_folder(subject: Subject) -> None:
    """All files are in the folder that `open` was given."""
    subject.needs("persistence", "it declares no persistence")
    if subject.text.partition("=")[2]:
        raise DoesNotApply("its data is at the address")
    before = set(subject.folder.iterdir())
    target = subject.open()
    target.add(items(ANN, CONTENTS))
    subject.close(target)
    others = sorted(path.name for path in set(subject.folder.iterdir()) - before if path.name != "store")
    subject.true("open", not others, "no files beside the folder", others)
    subject.true("add", any((subject.folder / "store").rglob("*")), "files in the folder", "none")


def another_process_is_seen_at_once(subject: Subject) -> None:
    """What another process stored in the same folder is seen at once."""
    subject.needs("processes", "it declares that one process at a time may open a folder")
    reader = subject.open()
    ids = subject.in_another_process("add")
    subject.stored(reader, AGENT, ids, OTHERS, " by another process")


def threads_share_one_store(subject: Subject) -> None:
    """Several threads may use one open store."""
    subject.needs("threads", "it declares that one thread at a time may use a store")
    target = subject.open()
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda number: target.add_one(Item(ANN, f"text {number}")), range(40)))
    subject.equal("add_one", len(set(ids)), 40, "different ids from four threads")
    subject.stored(target, ANN, ids, [f"text {number}" for number in range(40)])


def maintenance_keeps_every_memory(subject: Subject) -> None:
    """`maintain` keeps every memory."""
    target = subject.open()
    ids = target.add(items(ANN, CONTENTS))
    target.maintain()
    subject.stored(target, ANN, ids, CONTENTS, " after maintain")
    subject.total(target, len(CONTENTS), " after maintain")


def settling_keeps_nothing_of_the_sample(subject: Subject) -> None:
    """`settle` keeps the memories, and none of the sample."""
    target = subject.open()
    ids = target.add(items(ANN, THINGS))
    sample = [Item(BOB, state) for state in agent_states(100, seed=9)]
    target.settle(sample)
    counts = target.count()
    subject.equal("settle", sum(counts.values()), len(ids), "memories after settling")
    subject.stored(target, ANN, ids, THINGS, " after settling")
    if subject.capabilities.search:
        hits = target.search(BOB, sample[0].content, subject.k(5))
        subject.equal("search", hits, [], "for the agent of the sample")
    subject.stored(target, ANN, target.add(items(ANN, CONTENTS)), CONTENTS, " after settling")


def it_has_a_name_and_distinct_places(subject: Subject) -> None:
    """It has a name and distinct places."""
    name, places = getattr(subject.kind, "name", None), subject.capabilities.places
    subject.true("name", isinstance(name, str) and bool(name), "a text as name", name)
    subject.equal("capabilities", len(set(places)), len(places), "different places")


def what_it_can_not_do_is_refused(subject: Subject) -> None:
    """What it does not declare raises NotSupported with the name of the system."""
    target = subject.open()
    (id_,) = target.add([Item(ANN, "text")])
    vector = target.embed(["text"])[0]
    for capability, method, act in (
        ("update", "update", lambda: target.update(ANN, id_, "other")),
        ("vector_queries", "search_vector", lambda: target.search_vector(ANN, vector, 1)),
        ("forms", "kept", lambda: target.kept(ANN, [id_])),
        ("compression", "codec_names", lambda: target.codec_names()),
    ):
        if not getattr(subject.capabilities, capability):
            subject.refuses(method, act)


CHECKS = (
    a_folder_opened_again_is_the_same,
    a_folder_outlives_its_process,
    a_killed_process_loses_nothing,
    two_folders_are_two_stores,
    all_files_are_in_the_folder,
    another_process_is_seen_at_once,
    threads_share_one_store,
    maintenance_keeps_every_memory,
    settling_keeps_nothing_of_the_sample,
    it_has_a_name_and_distinct_places,
    what_it_can_not_do_is_refused,
)
