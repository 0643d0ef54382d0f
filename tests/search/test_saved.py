"""The lasting index: a copy of what the store holds, used only if it is exactly that.

These tests run on both stores: `Place` is where a store keeps saved indexes."""

from __future__ import annotations

import random
import shutil
import sqlite3
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
from memory._write.intake import session_of
from memory.entry import Tier
from memory.errors import StoreCorrupt
from memory.search import cache as cache_module
from memory.search import index as index_module
from memory.search.index import AgentIndex
from memory.search.saved import SavedIndexDamaged, read, write
from memory.search.vectors import row_sums
from memory.storage import Move
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
    # In a file, the saved one took the place of the one in RAM. What a server saved is not read back.
    assert answers(memory) == expected
    is_remote = memory._store.is_remote
    memory.close()
    memory = open_small()
    assert answers(memory) == expected
    assert loads == ([False, True] if is_remote else [False, True, True])


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


def contents_of_index(data: bytes) -> bytes:
    """Return the bytes of all arrays of a saved index: those of the compact form are compressed."""
    parts = read(memoryview(bytearray(data)), data[:32].decode())
    return b"".join(part.tobytes() for part in parts.values() if isinstance(part, np.ndarray))


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
    assert all(term in contents_of_index(place.indexes()[0]) for term in terms)
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
        assert not any(term in contents_of_index(data) for term in terms)
    memory.maintain()
    if way != "agent":  # maintenance saves what is left
        (data,) = place.indexes()
        assert not any(term in contents_of_index(data) for term in terms)
        memory.close()
        assert len(open_small().search("ann", "word1")) == 10


@pytest.mark.parametrize("block", [1 << 16, 128])
@pytest.mark.parametrize("way", ["delete", "update"])
def test_the_sums_in_a_saved_index_do_not_tell_the_vector_of_a_deleted_memory(
    open_small: Open, place: Place, monkeypatch: pytest.MonkeyPatch, way: str, block: int
) -> None:
    """The sum of all vectors, less those that are left, was the vector of the deleted one."""
    monkeypatch.setattr(index_module, "BLOCK", block)
    memory = open_small()
    fill(memory, 250)
    id_ = memory.add("ann", "zyzzyva quokka axolotl", metadata={"session": "a secret session"})
    fill(memory, 40, start=251)
    memory.search("ann", "word1")  # the index in RAM holds all
    if way == "update":
        memory.update("ann", id_, content="other words", erase=True)
    else:
        memory.delete("ann", id_, erase=True)
    memory.maintain()
    (data,) = place.indexes()
    memory.close()
    parts = read(memoryview(data), data[:32].decode())
    for name in ("sessions", "runs.sessions"):
        is_there = session_of({"session": "a secret session"}) in parts[f"conversations.links.{name}"]
        assert is_there is (way == "update")
    memory = open_small()
    memory.search("ann", "word1")
    index = memory._indexes.index("ann")
    positions = np.arange(index.count)
    blocks, living = positions // block, index.columns.tier[: index.count] != index_module.DELETED
    before = index.conversations.before(positions)
    before = np.where(living[before], before, positions)
    observed = living & (before // block == blocks) & (positions < np.array(index._observed_to)[blocks])
    units = np.concatenate([part.vectors.unit(np.arange(count)) for _, count, part in index.blocks()])
    told = sum(parts[f"conversations.{name}.vector_sum"] for name in ("in_chain", "in_sessions"))
    assert np.allclose(told, units[observed].sum(axis=0), atol=1e-3)


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


@pytest.mark.parametrize("link", [True, False])
def test_files_of_others_in_the_folder_or_behind_a_link_are_not_touched(
    open_file: Open, tmp_path: Path, link: bool
) -> None:
    folder = tmp_path / "memory.db-index"
    others = tmp_path / "documents" if link else folder
    others.mkdir()
    names = ["letter.txt", "x.index", "1.index.old"] + ["1.index", "2.index.new-1-0123abcd"] * link
    for name in names:
        (others / name).write_text("of somebody else")
    if link:
        folder.symlink_to(others)
    with open_file() as memory:
        ids = fill(memory, 120)
        memory.search("ann", "word1")
        memory.maintain()
        memory.delete("ann", ids[0], erase=True)
        memory.maintain()
        assert len(memory.search("ann", "word1")) == 10
    with open_file() as memory:
        assert len(memory.search("ann", "word1")) == 10
    assert {name: (others / name).read_text() for name in names} == dict.fromkeys(names, "of somebody else")
    assert len(files_in(others)) == len(names) + (not link)


def test_another_process_may_remove_the_empty_folder_while_this_one_erases(
    open_file: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_file()
    ids = fill(memory, 120)
    folder = tmp_path / "memory.db-index"
    folder.mkdir()
    iterdir = Path.iterdir

    def remove_first(path: Path) -> Iterator[Path]:
        if path == folder:
            folder.rmdir()
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", remove_first)
    assert memory.delete("ann", ids[0], erase=True)
    assert not folder.exists()
    folder.mkdir()
    assert memory.get_memory_statistics()["bytes_on_disk"] > 0


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


# -- the compact form, of files with one block -------------------------------------------------


def fill_ltm(memory: AgentMemorySystem, count: int = 1500) -> list[str]:
    """Store memories in ltm, and encode them with a fitted codec. Return their ids."""
    choose = random.Random(7)
    ids = memory.add_many(
        {
            "agent_id": "ann",
            "content": " ".join(f"word{int(choose.expovariate(0.05))}" for _ in range(8)),
            "tier": "ltm",
            "metadata": {"session": number // 7} if number % 3 else {},
        }
        for number in range(count)
    )
    memory.maintain()
    memory.maintain()
    return ids


def codecs_in(tmp_path: Path) -> set[int]:
    with sqlite3.connect(tmp_path / "memory.db") as db:
        return {codec for (codec,) in db.execute("SELECT DISTINCT vector_codec FROM memories")}


def change_rows(tmp_path: Path, change: str) -> None:
    with sqlite3.connect(tmp_path / "memory.db") as db:
        db.execute(change)
    db.close()


def test_a_compact_index_is_small_and_answers_as_one_that_is_read_from_the_store(
    open_file: Open, tmp_path: Path, loads: list[bool]
) -> None:
    memory = open_file()
    fill_ltm(memory)
    assert min(codecs_in(tmp_path)) >= 16  # so no vector is in the index
    in_ram = answers(memory)
    memory.close()
    (file,) = files_of(tmp_path)
    assert file.stat().st_size / 1500 < 100
    memory = open_file()
    expected = answers(memory)
    assert loads[-1] is True
    assert memory._indexes.index("ann").nbytes > 1500 * 64  # the arrays count as RAM
    memory.close()
    shutil.rmtree(file.parent)
    memory = open_file()
    assert answers(memory) == expected == in_ram
    assert loads[-1] is False


def test_a_compact_index_keeps_the_vectors_that_no_stored_codec_encodes(
    open_file: Open, tmp_path: Path, loads: list[bool]
) -> None:
    memory = open_file()
    fill_ltm(memory)
    fill(memory, 300, start=5000)
    memory._indexes._save("ann", memory._indexes.index("ann"))
    expected = answers(memory)
    memory.close()
    memory = open_file()
    assert answers(memory) == expected
    assert loads[-1] is True
    memory.close()
    shutil.rmtree(tmp_path / "memory.db-index")
    assert answers(open_file()) == expected


def test_an_index_that_does_not_fit_the_cache_is_saved_in_the_full_form(
    open_file: Open, tmp_path: Path
) -> None:
    memory = open_file()
    memory._indexes._budget = 50_000  # the least that a user can set has room for this small index
    fill_ltm(memory)
    memory.close()
    (file,) = files_of(tmp_path)
    assert file.stat().st_size > 1500 * 64  # it is mapped, and takes no RAM


def vectors_of(memory: AgentMemorySystem) -> np.ndarray[Any, np.dtype[np.int8]]:
    index = memory._indexes.index("ann")
    with index.lock:
        index.catch_up()
        block = index.only_block
    assert block is not None
    return block.vectors.arrays[0][: index.count].copy()


def test_what_was_changed_after_the_saving_is_read_anew(
    open_file: Open, tmp_path: Path, loads: list[bool]
) -> None:
    memory = open_file()
    ids = fill_ltm(memory)
    memory.update("ann", ids[5], content="zyzzyva quokka axolotl")
    memory.delete_many("ann", ids[10:110])  # more than may have changed unnoticed
    memory.close()
    memory = open_file()
    assert memory.search("ann", "zyzzyva quokka")[0].id == ids[5]
    assert memory.retrieve_similar_states("ann", "zyzzyva quokka axolotl")[0].id == ids[5]
    assert loads[-1] is True
    found = {hit[0] for hits in answers(memory)[:-1] for hit in hits}
    assert found.isdisjoint(ids[10:110])


@pytest.mark.parametrize("rows", [3, 200])
def test_rows_that_were_encoded_again_after_the_saving_get_their_new_vectors(
    open_file: Open, tmp_path: Path, rows: int, loads: list[bool]
) -> None:
    """Encoding a row again in its tier is not in the change log: only its checksum tells."""
    memory = open_file()
    fill_ltm(memory)
    memory.close()
    memory = open_file()
    store = memory._store
    moved = [
        Move(
            seq=row.seq,
            revision=row.revision,
            body_codec=row.body_codec,
            body=row.body,
            vector_codec=other.vector_codec,
            vector=other.vector,
            fine=None,
            terms=row.terms,
            terms_codec=row.terms_codec,
        )
        for row, other in zip(
            store.rows("ann", range(1, rows + 1)), store.rows("ann", range(501, 501 + rows)), strict=True
        )
    ]
    assert store.move("ann", moved, Tier.LTM, Tier.LTM) == rows
    found = vectors_of(memory)
    memory.close()
    assert loads[-1] is True
    shutil.rmtree(tmp_path / "memory.db-index")
    assert np.array_equal(vectors_of(open_file()), found)


@pytest.mark.parametrize(
    "change",
    [
        "vector = zeroblob(length(vector))",
        "vector = substr(vector, 2)",
        "vector = 'text'",
        "vector_codec = 99",
        "vector_codec = 1",
    ],
)
def test_a_damaged_row_raises_as_if_it_were_read_from_the_store(
    open_file: Open, tmp_path: Path, change: str
) -> None:
    memory = open_file()
    fill_ltm(memory)
    memory.close()
    change_rows(tmp_path, f"UPDATE memories SET {change} WHERE key & 65535 = 700")
    with pytest.raises(StoreCorrupt):
        open_file().search("ann", "word1")


def test_a_damaged_row_is_not_saved_as_if_it_were_intact(
    open_file: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = open_file()
    fill_ltm(memory)
    answers(memory)
    shutil.rmtree(tmp_path / "memory.db-index")
    change_rows(tmp_path, "UPDATE memories SET vector = zeroblob(length(vector)) WHERE key & 65535 = 700")
    memory._indexes.save(lambda: True)
    assert files_of(tmp_path) == []
    assert "is not saved" in caplog.text


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "bool", "uint16", "int32", "int64", "float32", "float64"]
)
@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (100,), (33, 5), (3, 0)])
def test_compressed_arrays_come_back_and_own_their_memory(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    chosen = np.random.default_rng(1).integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    array = (chosen & 1 if dtype == "bool" else chosen).reshape(-1).view(dtype).reshape(shape)
    with (tmp_path / "saved").open("wb") as file:
        write({"array": array, "number": 3}, file, "t" * 32, compact=True)
    parts = read(memoryview((tmp_path / "saved").read_bytes()), "t" * 32)
    assert parts["number"] == 3
    assert parts["array"].dtype == array.dtype
    assert parts["array"].tobytes() == array.tobytes()
    assert not array.size or (parts["array"].flags.owndata and parts["array"].flags.writeable)


def test_an_index_of_the_first_version_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "saved").open("wb") as file:
        write({"array": np.arange(9)}, file, "t" * 32)
    data = bytearray((tmp_path / "saved").read_bytes())
    assert data[32:37] == b"AMIDX"
    data[39] = 1
    with pytest.raises(SavedIndexDamaged, match="version"):
        read(memoryview(data), "t" * 32)


@pytest.mark.parametrize("dimensions", [1, 8, 64, 100, 256])
def test_a_change_of_one_byte_changes_the_checksum_of_its_row_only(dimensions: int) -> None:
    random_ = np.random.default_rng(dimensions)
    codes = random_.integers(-127, 128, (50, dimensions)).astype(np.int8)
    before = row_sums(codes)
    for _ in range(200):
        row, place = random_.integers(50), random_.integers(dimensions)
        changed = codes.copy()
        changed[row, place] ^= np.int8(1 << random_.integers(7))
        assert (row_sums(changed) != before).nonzero()[0].tolist() == [row]


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("bit", [0, 7])
def test_every_changed_byte_is_noticed_or_without_effect(compact: bool, bit: int, tmp_path: Path) -> None:
    """Also the highest bit of a word, which a sum of words modulo 2**63 would not see."""
    path, token = tmp_path / "index", "t" * 32
    numbers = np.random.default_rng(1).integers(0, 2**62, 8)
    with path.open("wb") as file:
        write({"numbers": numbers}, file, token, compact=compact)
    data = bytearray(path.read_bytes())
    assert read(memoryview(bytes(data)), token)["numbers"].tolist() == numbers.tolist()
    noticed = 0
    for place in range(len(data)):
        data[place] ^= 1 << bit
        try:
            assert read(memoryview(bytes(data)), token)["numbers"].tolist() == numbers.tolist(), place
        except SavedIndexDamaged:
            noticed += 1
        data[place] ^= 1 << bit
    assert noticed > numbers.nbytes
