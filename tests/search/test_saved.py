"""The lasting index: a copy of what the store holds, used only if it is exactly that.

These tests run on both stores: `Place` is where a store keeps saved indexes."""

from __future__ import annotations

import random
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import psycopg
import pytest
from postgres_servers import Server
from small_embedder import small_embedder
from subprocesses import start_python

from memory import AgentMemorySystem, Hit
from memory.search import cache as cache_module
from memory.search import index as index_module
from memory.search.index import AgentIndex
from memory.storage.postgres.saved_indexes import PART_BYTES

Open = Callable[..., AgentMemorySystem]
QUESTIONS = [f"word{number} word{number * 7 % 90} about" for number in range(25)]


@pytest.fixture(autouse=True)
def _save_small_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "LEAST_SAVED", 50)


class Place(Protocol):
    """Where a store keeps the saved indexes of the test's memory."""

    memory: str
    """The path or the URL of the memory."""

    def indexes(self) -> list[bytes]:
        """Return the data of all saved indexes."""

    def overwrite(self, data: bytes) -> None:
        """Replace the data of the only saved index."""

    def remove(self) -> None:
        """Remove all saved indexes."""


class Files:
    """Beside the file of the memory."""

    def __init__(self, tmp_path: Path) -> None:
        self.memory = str(tmp_path / "memory.db")
        self._folder = tmp_path / "memory.db-index"

    def indexes(self) -> list[bytes]:
        return [file.read_bytes() for file in files_in(self._folder)]

    def overwrite(self, data: bytes) -> None:
        (file,) = files_in(self._folder)
        file.write_bytes(data)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class Tables:
    """In two tables of a server."""

    def __init__(self, url: str, server: Server) -> None:
        self.memory = url
        self._schema = url.partition("schema=")[2]
        self._db = psycopg.connect(f"host={server.folder} user=postgres dbname=postgres", autocommit=True)

    def close(self) -> None:
        self._db.close()

    def indexes(self) -> list[bytes]:
        if self._db.execute("SELECT to_regnamespace(%s)", (self._schema,)).fetchone() == (None,):
            return []
        found = self._db.execute(
            f"SELECT string_agg(data, ''::bytea ORDER BY part) FROM {self._schema}.index_parts"
            f" JOIN {self._schema}.indexes USING (agent) GROUP BY agent ORDER BY agent"
        )
        return [data for (data,) in found]

    def overwrite(self, data: bytes) -> None:
        ((agent,),) = self._db.execute(f"SELECT agent FROM {self._schema}.indexes").fetchall()
        with self._db.transaction():
            self._db.execute(f"DELETE FROM {self._schema}.index_parts")
            for part, start in enumerate(range(0, len(data), PART_BYTES)):
                self._db.execute(
                    f"INSERT INTO {self._schema}.index_parts VALUES (%s, %s, %s)",
                    (agent, part, data[start : start + PART_BYTES]),
                )

    def remove(self) -> None:
        self._db.execute(f"TRUNCATE {self._schema}.indexes, {self._schema}.index_parts")


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "file":
        yield Files(tmp_path)
    else:
        tables = Tables(request.getfixturevalue("url"), request.getfixturevalue("server"))
        yield tables
        tables.close()


@pytest.fixture
def open_small(open_memory: Open, place: Place) -> Open:
    def open_one(**settings: Any) -> AgentMemorySystem:
        return open_memory(**{"embedder": small_embedder(), "path": place.memory, **settings})

    return open_one


@pytest.fixture
def open_file(open_memory: Open, tmp_path: Path) -> Open:
    """Return a function that opens a memory in a file, for tests of the files themselves."""

    def open_one(**settings: Any) -> AgentMemorySystem:
        path = tmp_path / "memory.db"
        return open_memory(**{"embedder": small_embedder(), "path": path, **settings})

    return open_one


def fill(memory: AgentMemorySystem, count: int, agent: str = "ann", start: int = 0) -> list[str]:
    choose = random.Random(start)
    return memory.add_many(
        {
            "agent_id": agent,
            "content": " ".join(f"word{int(choose.expovariate(0.05))}" for _ in range(8)),
            # Not ltm: maintenance makes its vectors smaller, so an index that is read anew differs.
            "tier": choose.choice(("stm", "im")),
            "metadata": {"session": number // 7} if number % 3 else {},
        }
        for number in range(start, start + count)
    )


def answers(memory: AgentMemorySystem, agent: str = "ann") -> list[Any]:
    def known(hits: list[Hit]) -> list[Any]:
        return [(hit.id, round(hit.score, 4), hit.tier, hit.why.words) for hit in hits]

    found: list[Any] = [known(memory.search(agent, question)) for question in QUESTIONS]
    found += [known(memory.retrieve_similar_states(agent, question)) for question in QUESTIONS]
    found.append([entry.id for entry in memory.retrieve_by_attributes(agent, {"session": 3})])
    return found


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def files_of(tmp_path: Path) -> list[Path]:
    return files_in(tmp_path / "memory.db-index")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each index that is loaded whether the saved one was used."""
    used: list[bool] = []
    load = AgentIndex._load_saved

    def record(index: AgentIndex) -> None:
        load(index)
        used.append(index.count > 0)

    monkeypatch.setattr(AgentIndex, "_load_saved", record)
    return used


@pytest.mark.parametrize("block", [1 << 16, 128])
def test_a_saved_index_answers_as_the_one_that_is_read_from_the_store(
    open_small: Open, place: Place, loads: list[bool], monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(index_module, "BLOCK", block)
    memory = open_small()
    fill(memory, 400)
    expected = answers(memory)
    memory.maintain()
    assert len(place.indexes()) == 1
    assert answers(memory) == expected  # by the saved one, which took the place of the one in RAM
    memory.close()
    memory = open_small()
    assert answers(memory) == expected
    assert loads == [False, True, True]


def test_what_came_after_the_saving_is_found_too(open_small: Open, place: Place, loads: list[bool]) -> None:
    memory = open_small()
    ids = fill(memory, 300)
    memory.maintain()
    fill(memory, 30, start=300)
    memory.update("ann", ids[5], content="word1 word7 about something else")
    memory.force_transition_to_im(50)
    memory.delete_many("ann", ids[10:14])
    memory.close()
    memory = open_small()
    found = answers(memory)
    assert loads[-1] is True
    place.remove()
    memory.close()
    memory = open_small()
    assert {hit[0] for hits in found[:-1] for hit in hits}.isdisjoint(ids[10:14])
    # Deleted turns leave gaps in the links of an index that is not read anew: scores of texts may differ.
    for ours, theirs in zip(found[25:50], answers(memory)[25:50], strict=True):
        assert [hit[0] for hit in ours] == [hit[0] for hit in theirs]


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_byte_is_never_used(
    open_small: Open, place: Place, seed: int, caplog: pytest.LogCaptureFixture, loads: list[bool]
) -> None:
    memory = open_small()
    fill(memory, 120)
    expected = answers(memory)
    memory.maintain()
    memory.close()
    data = bytearray(*place.indexes())
    # Zeros between the arrays belong to nothing: choose among the bytes that are not 0.
    changed = random.Random(seed).choice([at for at, byte in enumerate(data) if byte])
    data[changed] ^= 1 << seed % 8
    place.overwrite(bytes(data))
    memory = open_small()
    assert answers(memory) == expected
    assert loads[-1] is False
    assert "is made again" in caplog.text


@pytest.mark.parametrize("size", [0, 1, 40, 5000, -1])
def test_a_truncated_index_is_never_used(
    open_small: Open, place: Place, size: int, loads: list[bool]
) -> None:
    memory = open_small()
    fill(memory, 120)
    expected = answers(memory)
    memory.maintain()
    memory.close()
    (data,) = place.indexes()
    place.overwrite(data[:size])
    memory = open_small()
    assert answers(memory) == expected
    assert not loads[-1]


def test_the_index_of_another_database_is_never_used(
    open_small: Open, open_file: Open, place: Place, tmp_path: Path
) -> None:
    other = open_file(path=tmp_path / "other.db")
    fill(other, 120, start=1000)
    other.maintain()
    memory = open_small()
    fill(memory, 120)
    expected = answers(memory)
    memory.maintain()
    memory.close()
    place.overwrite((tmp_path / "other.db-index" / "1.index").read_bytes())
    assert answers(open_small()) == expected


def test_a_restored_backup_does_not_use_the_index_of_what_came_after_it(
    open_file: Open, tmp_path: Path
) -> None:
    memory = open_file()
    fill(memory, 120)
    memory.backup(tmp_path / "copy.db")
    fill(memory, 60, start=500)
    memory.maintain()  # saves an index of 180 memories
    memory.close()
    shutil.copy(tmp_path / "copy.db", tmp_path / "memory.db")
    memory = open_file()
    fill(memory, 60, start=900)  # others under the same numbers
    found = answers(memory)
    memory.close()
    shutil.rmtree(tmp_path / "memory.db-index")
    assert answers(open_file()) == found


def secret_terms(text: str) -> list[bytes]:
    from memory.search.terms import terms_of_text

    return [term.to_bytes(4, "little") for term in terms_of_text(text)]


@pytest.mark.parametrize("way", ["maintain", "erase", "update", "agent"])
def test_deleted_content_is_gone_from_the_index_after_one_maintenance(
    open_small: Open, place: Place, way: str
) -> None:
    memory = open_small()
    fill(memory, 120)
    id_ = memory.add("ann", "zyzzyva quokka axolotl")
    memory.maintain()
    terms = secret_terms("zyzzyva quokka axolotl")
    assert all(term in place.indexes()[0] for term in terms)
    if way == "update":
        memory.update("ann", id_, content="other words", erase=True)
    elif way == "agent":
        memory.delete_all("ann")
        memory.maintain()
    else:
        memory.delete("ann", id_, erase=way == "erase")
        if way == "maintain":
            memory.maintain()
    for data in place.indexes():
        assert not any(term in data for term in terms)
    memory.maintain()
    if way != "agent":  # maintenance saves what is left
        (data,) = place.indexes()
        assert not any(term in data for term in terms)
        memory.close()
        assert len(open_small().search("ann", "word1")) == 10


def test_an_index_of_deleted_content_is_not_published(open_small: Open, place: Place) -> None:
    memory = open_small()
    ids = fill(memory, 120)
    store = memory._store

    def delete_meanwhile(file: Any, token: str) -> None:
        file.write(token.encode())
        memory.delete("ann", ids[0])

    assert store.save_index("ann", store.state("ann"), delete_meanwhile) is False
    assert place.indexes() == []


def test_files_belong_to_their_owner_and_nobody_else(open_file: Open, tmp_path: Path) -> None:
    memory = open_file()
    fill(memory, 120)
    memory.maintain()
    (file,) = files_of(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert memory.get_memory_statistics()["bytes_on_disk"] >= file.stat().st_size


def test_small_agents_and_memories_in_ram_and_read_only_ones_save_nothing(
    open_small: Open, place: Place, loads: list[bool]
) -> None:
    memory = open_small()
    fill(memory, 40)
    memory.maintain()
    assert place.indexes() == []
    fill(memory, 100, start=40)
    expected = answers(memory)
    memory.maintain()
    before = place.indexes()
    memory.close()
    reader = open_small(read_only=True)
    assert answers(reader) == expected
    assert loads[-1] is True
    assert place.indexes() == before  # with the same random token
    in_ram = open_small(path=":memory:")
    fill(in_ram, 120)
    in_ram.maintain()
    assert answers(in_ram)


def test_a_draft_of_a_killed_process_is_removed_by_the_next_erasure(
    open_file: Open, tmp_path: Path
) -> None:
    memory = open_file()
    ids = fill(memory, 120)
    memory.maintain()
    draft = tmp_path / "memory.db-index" / "1.index.new-1-00000000"
    draft.write_bytes(b"words of a deleted memory")
    memory.delete("ann", ids[0], erase=True)
    assert not draft.exists()


_SAVE_FOR_EVER = """
from memory.search import cache
cache.LEAST_SAVED, cache._NEW_MIN, cache._NEW_SHARE = 50, 0, 10**9
memory = open_memory(sys.argv[1])
number = 0
while True:
    print(memory.add("ann", f"number{number} word{number % 50}"), flush=True)
    memory.maintain()
    number += 1
"""


def killed_while_saving(place: str, memories: int) -> list[str]:
    """Store and save in another process, kill it after some memories; return their ids."""
    process = start_python(_SAVE_FOR_EVER, place)
    assert process.stdout is not None
    ids = [process.stdout.readline().strip() for _ in range(memories)]
    process.kill()
    process.communicate()
    assert all(ids)
    return ids


def test_a_kill_while_an_index_is_written_loses_nothing(open_small: Open, place: Place) -> None:
    memory = open_small()
    fill(memory, 200)
    memory.close()
    acknowledged: list[str] = []
    for seed in range(6):
        acknowledged += killed_while_saving(place.memory, 3 + 2 * seed)
        memory = open_small()
        found = answers(memory)
        assert all(entry is not None for entry in memory.get_many("ann", acknowledged))
        memory.close()
        place.remove()
        memory = open_small()
        assert answers(memory) == found
        memory.close()


def test_searches_go_on_while_an_index_is_saved(open_small: Open) -> None:
    memory = open_small()
    fill(memory, 2000)
    expected = answers(memory)
    problems: list[Any] = []
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            if answers(memory) != expected:
                problems.append("another answer")

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        memory._indexes._save("ann", memory._indexes.index("ann"))
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []


def test_an_interrupt_while_an_index_is_saved_leaves_no_partly_merged_postings(
    open_small: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small() as memory:
        fill(memory, 60)
        answers(memory)
        memory.add("ann", "a memory whose words are not merged yet")
        expected = answers(memory)

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(np, "append", interrupt)  # between the steps of a merge
            with pytest.raises(KeyboardInterrupt):
                memory.maintain()
        memory.maintain()
        assert answers(memory) == expected
