"""Tests of every promise in targets/base.py; the tests of a target derive from this class."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from membench import PATIENCE, surroundings

from memory.benchmarking.errors import NotSupported
from memory.benchmarking.targets import load_target, make_target
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads import agent_states

ANN, BOB = "ann", "bob"
CONTENTS: list[Any] = [
    "a plain text",
    "größe, naïve, 日本, 🎈, and a quote ' and \" and \\",
    {"position": [1.5, -2.25, 0], "inventory": [], "goal": None, "deep": {"er": [True, {"x": 1}]}},
    *agent_states(3, complexity=2, seed=7),
]
THINGS = ["the lantern is in the harbour", "the bridge is broken", "bread is sold at the market"]

OpenTarget = Callable[..., Target]


class TargetConformance:
    name: str
    """The target's name for `--target`."""

    @pytest.fixture
    def open_target(self, tmp_path: Path) -> Iterator[OpenTarget]:
        """Open the target in a folder of the test; all are closed at the end."""
        opened: list[Target] = []

        def open_one(folder: str = "store") -> Target:
            (tmp_path / folder).mkdir(exist_ok=True)
            target = make_target(self.name)
            target.open(tmp_path / folder)
            opened.append(target)
            return target

        yield open_one
        for target in opened:
            target.close()

    @pytest.fixture
    def target(self, open_target: OpenTarget) -> Target:
        return open_target()

    @property
    def kind(self) -> type[Target]:
        return load_target(self.name)

    def needs(self, capability: str) -> None:
        if not getattr(self.kind.capabilities, capability):
            pytest.skip(f"{self.kind.name} says that it has no {capability}")

    # -- storing and reading ------------------------------------------------------------------

    def test_it_is_empty_at_first(self, target: Target) -> None:
        assert target.count() == dict.fromkeys(target.capabilities.places, 0)
        assert target.get(ANN, ["1"]) == [None]
        assert target.get_one(ANN, "1") is None
        assert target.delete(ANN, ["1"]) == 0
        assert target.delete_all(ANN) == 0
        assert target.search(ANN, "anything", 5) == []

    def test_contents_are_returned_unchanged_and_in_the_order_of_the_ids(self, target: Target) -> None:
        ids = target.add([Item(ANN, content, step) for step, content in enumerate(CONTENTS)])
        assert len(set(ids)) == len(CONTENTS)
        assert target.get(ANN, ids) == CONTENTS
        assert target.get(ANN, ids[::-1]) == CONTENTS[::-1]
        assert target.get(ANN, [ids[0], "nothing like it", ids[1], ids[0]]) == [
            CONTENTS[0], None, CONTENTS[1], CONTENTS[0],
        ]  # fmt: skip
        assert target.get(ANN, []) == []

    def test_one_by_one_is_the_same_as_a_batch(self, target: Target) -> None:
        ids = [target.add_one(Item(ANN, content)) for content in CONTENTS]
        assert [target.get_one(ANN, id_) for id_ in ids] == CONTENTS
        assert sum(target.count().values()) == len(CONTENTS)

    def test_an_empty_batch_changes_nothing(self, target: Target) -> None:
        assert target.add([]) == []
        assert target.delete(ANN, []) == 0
        assert sum(target.count().values()) == 0

    def test_each_place_holds_what_was_stored_there(self, target: Target) -> None:
        ids = {}
        for number, place in enumerate(target.capabilities.places, 1):
            items = [Item(ANN, f"{place} {each}") for each in range(number)]
            ids[place] = [*target.add(items, place), target.add_one(Item(ANN, place), place)]
        assert target.count() == {place: len(each) for place, each in ids.items()}
        for place, each in ids.items():
            assert target.get(ANN, each)[-1] == place

    # -- agents -------------------------------------------------------------------------------

    def test_an_agent_never_sees_the_memories_of_another(self, target: Target) -> None:
        ann = target.add([Item(ANN, text) for text in THINGS])
        bob = target.add([Item(BOB, "a secret")])
        assert target.get(BOB, ann) == [None] * len(ann)
        assert target.delete(BOB, ann) == 0
        if target.capabilities.update:
            assert not target.update(BOB, ann[0], "changed")
        target.flush()
        assert THINGS[0] not in [found.content for found in target.search(BOB, THINGS[0], 9)]
        assert target.delete_all(ANN) == len(ann)
        assert target.get(BOB, bob) == ["a secret"]
        assert sum(target.count().values()) == 1

    # -- changing -----------------------------------------------------------------------------

    def test_a_deleted_memory_is_gone_and_counted_once(self, target: Target) -> None:
        ids = target.add([Item(ANN, text) for text in THINGS])
        assert target.delete(ANN, [ids[0], ids[0], "nothing like it"]) == 1
        assert target.delete(ANN, [ids[0]]) == 0
        assert target.get(ANN, ids) == [None, *THINGS[1:]]
        assert sum(target.count().values()) == len(ids) - 1
        target.flush()
        assert THINGS[0] not in [found.content for found in target.search(ANN, THINGS[0], 9)]

    def test_an_update_replaces_the_content(self, target: Target) -> None:
        self.needs("update")
        ids = target.add([Item(ANN, text) for text in THINGS])
        assert target.update(ANN, ids[0], {"now": "a state"})
        assert target.get(ANN, ids) == [{"now": "a state"}, *THINGS[1:]]
        assert sum(target.count().values()) == len(ids)
        assert not target.update(ANN, "nothing like it", "x")
        if target.capabilities.search:
            target.update(ANN, ids[0], "the pump needs repair")
            target.flush()
            (first, *_) = target.search(ANN, "the pump needs repair", 3)
            assert (first.id, first.content) == (ids[0], "the pump needs repair")

    # -- finding ------------------------------------------------------------------------------

    def test_a_search_returns_at_most_k_hits_the_best_first(self, target: Target) -> None:
        self.needs("search")
        ids = target.add([Item(ANN, text) for text in THINGS])
        target.flush()
        for id_, text in zip(ids, THINGS, strict=True):
            found = target.search(ANN, text, 2)
            assert (found[0].id, found[0].content) == (id_, text)
            assert len(found) <= 2
            assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert len({each.id for each in target.search(ANN, THINGS[0], 99)}) <= len(THINGS)

    def test_a_state_is_the_best_hit_for_itself(self, target: Target) -> None:
        self.needs("search")
        states = agent_states(20, seed=3)
        ids = target.add([Item(ANN, state) for state in states])
        target.flush()
        for number in (0, 7, 19):
            (first, *_) = target.search(ANN, states[number], 5)
            assert (first.id, first.content) == (ids[number], states[number])

    def test_a_search_in_one_place_finds_nothing_of_another(self, target: Target) -> None:
        self.needs("tiers")
        for place in target.capabilities.places:
            target.add([Item(ANN, f"{text} {place}") for text in THINGS], place)
        target.flush()
        for place in target.capabilities.places:
            found = target.search(ANN, THINGS[0], 9, place)
            assert found
            assert all(each.content.endswith(place) for each in found)

    # -- the folder ---------------------------------------------------------------------------

    def test_a_folder_opened_again_has_the_same_memories(self, open_target: OpenTarget) -> None:
        self.needs("persistence")
        first = open_target()
        ids = {
            place: first.add([Item(ANN, content) for content in CONTENTS], place)
            for place in first.capabilities.places
        }
        gone = first.add([Item(ANN, "gone")])
        first.delete(ANN, gone)
        counts = first.count()
        first.close()
        again = open_target()
        assert again.count() == counts
        for each in ids.values():
            assert again.get(ANN, each) == CONTENTS
        assert again.get(ANN, gone) == [None]
        if again.capabilities.search:
            assert again.search(ANN, CONTENTS[0], 1)[0].content == CONTENTS[0]
        assert not {*again.add([Item(ANN, "new")])} & {id_ for each in ids.values() for id_ in each}

    def test_acknowledged_memories_survive_the_end_of_the_process(
        self, open_target: OpenTarget, tmp_path: Path
    ) -> None:
        if self.kind.capabilities.durability == "ram":
            pytest.skip(f"{self.kind.name} says that its writes survive nothing")
        program = """
        import json, os, sys
        from pathlib import Path
        from memory.benchmarking.targets import make_target
        from memory.benchmarking.targets.base import Item
        target = make_target(sys.argv[1])
        target.open(Path(sys.argv[2]))
        ids = target.add([Item("ann", "in a batch"), Item("ann", {"a": 1})])
        ids.append(target.add_one(Item("ann", "alone")))
        print(json.dumps(ids), flush=True)
        os._exit(0)
        """
        folder = tmp_path / "store"
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), self.name, str(folder)],
            env=surroundings(), capture_output=True, text=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        assert open_target().get(ANN, json.loads(done.stdout)) == ["in a batch", {"a": 1}, "alone"]

    def test_two_folders_are_two_stores(self, open_target: OpenTarget) -> None:
        one, two = open_target("one"), open_target("two")
        ids = one.add([Item(ANN, "in one")])
        assert sum(two.count().values()) == 0
        assert two.get(ANN, ids) == [None]

    def test_all_files_are_in_the_folder(self, open_target: OpenTarget, tmp_path: Path) -> None:
        self.needs("persistence")
        before = set(tmp_path.iterdir())
        target = open_target()
        target.add([Item(ANN, content) for content in CONTENTS])
        target.close()
        assert set(tmp_path.iterdir()) - before == {tmp_path / "store"}
        assert any((tmp_path / "store").rglob("*"))

    # -- settling and threads -----------------------------------------------------------------

    def test_maintenance_keeps_every_memory(self, target: Target) -> None:
        ids = target.add([Item(ANN, content) for content in CONTENTS])
        target.maintain()
        assert target.get(ANN, ids) == CONTENTS

    def test_settling_keeps_the_memories_and_none_of_the_sample(self, target: Target) -> None:
        ids = target.add([Item(ANN, text) for text in THINGS])
        sample = [Item(BOB, state) for state in agent_states(100, seed=9)]
        target.settle(sample)
        assert sum(target.count().values()) == len(ids)
        assert target.get(ANN, ids) == THINGS
        assert target.search(BOB, sample[0].content, 5) == []
        more = target.add([Item(ANN, content) for content in CONTENTS])
        assert target.get(ANN, more) == CONTENTS

    def test_threads_share_one_store(self, target: Target) -> None:
        self.needs("threads")
        with ThreadPoolExecutor(4) as pool:
            ids = list(pool.map(lambda number: target.add_one(Item(ANN, f"text {number}")), range(40)))
        assert target.get(ANN, ids) == [f"text {number}" for number in range(40)]

    def test_a_second_open_store_sees_new_memories_at_once(self, open_target: OpenTarget) -> None:
        self.needs("processes")
        writer, reader = open_target(), open_target()
        ids = writer.add([Item(ANN, "seen")])
        assert reader.get(ANN, ids) == ["seen"]

    # -- name and capabilities ---------------------------------------------------------------

    def test_it_has_a_name_and_distinct_places(self, target: Target) -> None:
        assert target.name
        assert isinstance(target.name, str)
        assert len(set(target.capabilities.places)) == len(target.capabilities.places) > 0

    def test_a_missing_capability_raises_not_supported_with_the_name(self, target: Target) -> None:
        (id_,) = target.add([Item(ANN, "text")])
        refused = {
            "update": lambda: target.update(ANN, id_, "other"),
            "vector_queries": lambda: target.search_vector(ANN, None, 1),  # type: ignore[arg-type]
            "forms": lambda: target.kept(ANN, [id_]),
            "compression": lambda: target.codec_names(),
        }
        for capability, act in refused.items():
            if not getattr(target.capabilities, capability):
                with pytest.raises(NotSupported, match=target.name):
                    act()
