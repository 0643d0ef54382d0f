"""A file that hides memories says so, and an intact file never does."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance import move_of, row
from tail_store import TailStore

from memory.entry import ALL_TIERS, Tier
from memory.errors import IdConflict, StoreCorrupt
from memory.storage import AgentState, SQLiteStore, _completeness

PAGE = 4096


def first_leaf(path: Path, name: str) -> int:
    """Return where the first leaf of a table or an index begins in the file."""
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    connection.close()
    content = path.read_bytes()
    while content[(page - 1) * PAGE] in (2, 5):  # an inner page: go to its first child
        start = (page - 1) * PAGE
        cell = int.from_bytes(content[start + 12 : start + 14], "big")
        page = int.from_bytes(content[start + cell : start + cell + 4], "big")
    return (page - 1) * PAGE


def lose_last_cell(path: Path, name: str) -> None:
    """Make the first leaf of a table or an index one cell shorter, as one changed byte does."""
    start = first_leaf(path, name)
    content = bytearray(path.read_bytes())
    content[start + 4] -= 1
    path.write_bytes(content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "m.db"
    store = SQLiteStore(path)
    store.add([row(f"id-{number}", step=number, created_at=float(number)) for number in range(200)])
    store.close()
    return path


def in_range(store: SQLiteStore) -> object:
    return store.in_range("ann", "created_at", None, None, tiers=ALL_TIERS, limit=None)


READS: dict[str, Callable[[SQLiteStore], object]] = {
    "get an unknown id": lambda store: store.get_one("ann", "unknown"),
    "get unknown ids": lambda store: store.get("ann", ["id-1", "unknown"]),
    "count": lambda store: store.counts("ann"),
    "count all": lambda store: store.counts(),
    "range": in_range,
    "load for a search": lambda store: store.catch_up("ann", 0, 0),
    "all rows": lambda store: list(store.all_rows()),
    "delete an unknown id": lambda store: store.delete("ann", ["unknown"]),
    "delete all": lambda store: store.delete_agent("ann"),
    "add a given id": lambda store: store.add([row("unknown")]),
}


@pytest.mark.parametrize("name", ["by_id", "by_time", "memories", "by_step"])
@pytest.mark.parametrize("read", READS)
def test_a_small_file_that_hides_a_row_says_so(path: Path, name: str, read: str) -> None:
    lose_last_cell(path, name)
    store = SQLiteStore(path)
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            READS[read](store)
    store.close()


@pytest.mark.parametrize("name", ["by_id", "by_time"])
@pytest.mark.parametrize("read", READS)
def test_a_large_file_that_hides_a_row_in_an_index_says_so(
    path: Path, name: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_completeness, "SMALL_BYTES", 0)
    lose_last_cell(path, name)
    store = SQLiteStore(path)
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            READS[read](store)
    store.close()


def test_new_rows_that_a_large_file_hides_are_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_completeness, "SMALL_BYTES", 0)
    lose_last_cell(path, "memories")
    store = SQLiteStore(path)
    with pytest.raises(StoreCorrupt):
        store.catch_up("ann", 1, 0)
    store.close()


def test_new_rows_of_a_large_file_are_read_whatever_an_index_hides(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_completeness, "SMALL_BYTES", 0)
    lose_last_cell(path, "by_id")
    store = SQLiteStore(path)
    assert store.catch_up("ann", 1, 0)[2].seq.tolist() == list(range(2, 201))
    with pytest.raises(StoreCorrupt):
        store.get_one("ann", "unknown")
    store.close()


def test_damage_of_one_agent_of_a_large_file_does_not_stop_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_completeness, "SMALL_BYTES", 0)
    store = SQLiteStore(path)
    store.add([row("id-1", "bob")])
    store.close()
    lose_last_cell(path, "by_time")
    store = SQLiteStore(path)
    with pytest.raises(StoreCorrupt):
        store.get_one("bob", "unknown")  # the last cell is his
    assert store.get_one("ann", "unknown") is None
    assert store.delete_agent("ann") == 200
    with pytest.raises(StoreCorrupt):
        store.get_one("bob", "unknown")
    store.close()


@pytest.mark.parametrize("read", ["load for a search", "all rows"])
def test_a_large_file_that_hides_a_row_of_the_table_says_so(
    path: Path, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_completeness, "SMALL_BYTES", 0)
    lose_last_cell(path, "memories")
    store = SQLiteStore(path)
    with pytest.raises(StoreCorrupt):
        READS[read](store)
    store.close()


@pytest.mark.parametrize("limit", [0, _completeness.SMALL_BYTES])
def test_a_hidden_agent_is_noticed(path: Path, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_completeness, "SMALL_BYTES", limit)
    lose_last_cell(path, "sqlite_autoindex_agents_1")
    store = SQLiteStore(path)
    for call in (
        lambda: store.get_one("ann", "id-1"),
        store.agents,
        lambda: store.delete_agent("ann"),
        lambda: store.add([row("new")]),
    ):
        with pytest.raises(StoreCorrupt):
            call()
    store.close()


@pytest.mark.parametrize("place", [3, 4, 5])
def test_a_changed_number_of_an_agent_is_noticed(path: Path, place: int) -> None:
    """The place of last_change, forgotten or unsettled. A type of 8 is the number 0, a type of 9 is 1."""
    start = first_leaf(path, "agents")
    content = bytearray(path.read_bytes())
    cell = start + int.from_bytes(content[start + 8 : start + 10], "big")
    assert content[cell + 2 + place + 1] == 8  # after the size, the key, and the size of the header
    content[cell + 2 + place + 1] = 9
    path.write_bytes(content)
    store = SQLiteStore(path)
    with pytest.raises(StoreCorrupt, match="checksum"):
        store.counts("ann")
    store.close()


def test_what_can_be_read_of_a_damaged_file_is_read(path: Path) -> None:
    lose_last_cell(path, "by_step")
    store = SQLiteStore(path)
    assert store.get_one("ann", "id-7").id == "id-7"
    problems: list[StoreCorrupt] = []
    assert len(list(store.all_rows(on_damage=problems.append))) == 200
    assert len(problems) == 1
    store.close()


def test_a_changed_definition_of_an_index_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    place = content.index(b"indexed = 1 AND tier < 2")
    path.write_bytes(content[: place + 23] + b"1" + content[place + 24 :])
    with pytest.raises(StoreCorrupt, match="definitions"):
        SQLiteStore(path)


@pytest.mark.parametrize("column", ["stored_at", "dated", "digest", "revision"])
def test_every_column_of_a_row_is_under_a_checksum(path: Path, column: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE memories SET {column} = {column} + 1 WHERE id = 'id-5'")
    connection.commit()
    connection.close()
    store = SQLiteStore(path)
    with pytest.raises(StoreCorrupt, match="id-5"):
        store.rows("ann", [6])
    with pytest.raises(StoreCorrupt, match="id-5"):
        list(store.all_rows())
    if column == "digest":
        with pytest.raises(StoreCorrupt, match="id-5"):
            store.add([row("id-5", step=5, created_at=5.0)])
    else:
        with pytest.raises(IdConflict):
            store.add([row("id-6", digest=99)])
    store.close()


@pytest.mark.parametrize("limit", [0, _completeness.SMALL_BYTES])
def test_an_intact_file_is_never_called_damaged(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_completeness, "SMALL_BYTES", limit)
    chance = random.Random(limit)
    path = tmp_path / "m.db"
    writer = TailStore(path)
    number = 0
    seen: dict[str, list[AgentState]] = {"ann": [], "bob": []}
    for turn in range(60):
        agent = chance.choice(("ann", "bob"))
        for _ in range(chance.choice((1, 3, 20))):
            number += 1
            writer.add([row(f"id-{number}", agent, step=chance.choice((None, number)))])
        if turn % 3 == 0:
            seqs = writer.seqs_after(agent, Tier.STM, 0, 5)
            writer.move(agent, [move_of(seq) for seq in seqs], Tier.STM, chance.choice((Tier.IM, Tier.LTM)))
        if turn % 4 == 0:
            writer.delete(agent, [f"id-{chance.randrange(1, number + 1)}" for _ in range(3)])
        if turn % 10 == 0:
            writer.evict(agent, writer.seqs_after(agent, Tier.LTM, 0, 2), Tier.LTM)
            writer.erase(5.0)
        if turn % 17 == 16:
            writer.delete_agent(agent)
        reader = SQLiteStore(path)  # as a new process: it has confirmed nothing yet
        assert reader.get_one(agent, "unknown") is None
        assert sum(reader.counts().values()) == len(list(reader.all_rows()))
        reader.catch_up(agent, 0, 0)
        for state in seen[agent]:  # as with an index that was saved then
            reader.catch_up(agent, state.last_seq, state.last_change)
        seen[agent].append(reader.state(agent))
        assert reader.check(lambda _: None)[1] == []
        reader.close()
    writer.close()
