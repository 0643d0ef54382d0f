"""What one host has stored, updated, moved or deleted is seen by the next call on any other."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conformance import add, everything, move_of, numbered, row
from postgres_servers import Server
from threads import together

from memory import AgentMemorySystem, ManualClock, MemoryConfig
from memory.entry import Tier
from memory.errors import CodecRetired, StoreBusy
from memory.storage.postgres.schema import TABLES
from memory.storage.postgres.store import PostgresStore

OpenMemory = Callable[..., AgentMemorySystem]


@pytest.fixture
def open_memory(url: str) -> Iterator[OpenMemory]:
    opened: list[AgentMemorySystem] = []

    def open_one(**settings: Any) -> AgentMemorySystem:
        clock = settings.pop("clock", None)
        config = MemoryConfig(**{"url": url, "maintenance": "manual", **settings})
        opened.append(AgentMemorySystem(config, clock=clock))
        return opened[-1]

    yield open_one
    for memory in opened:
        memory.close()


def found(memory: AgentMemorySystem, query: str, k: int = 1) -> list[str]:
    return [hit.id for hit in memory.search("ann", query, k)]


def test_every_kind_of_change_is_seen_by_the_next_call_elsewhere(open_memory: OpenMemory) -> None:
    one, other = open_memory(), open_memory()
    for number in range(20):
        one.add("ann", f"submarine number {number}", id=f"s{number}")
    assert found(other, "zebra submarine", 20)
    one.add("ann", "the zebra eats grass", id="zebra")
    assert found(other, "zebra") == ["zebra"]
    assert other.get("ann", "zebra").content == "the zebra eats grass"
    one.update("ann", "zebra", content="a violin sonata")
    assert other.get("ann", "zebra").content == "a violin sonata"
    (hit,) = other.search("ann", "violin", 1)
    assert (hit.id, hit.entry.content) == ("zebra", "a violin sonata")
    one.force_transition_to_im(agent_id="ann")
    (hit,) = other.search("ann", "violin", 1)
    assert (hit.tier, hit.entry.tier) == ("im", "im")
    one.delete("ann", "zebra")
    assert found(other, "violin") != ["zebra"]
    assert other.get("ann", "zebra") is None
    one.delete_all("ann")
    assert found(other, "submarine", 5) == []
    one.add("ann", "back again", id="back")
    assert found(other, "again", 5) == ["back"]


def test_a_cached_entry_that_another_host_changed_is_not_returned_by_a_search(
    open_memory: OpenMemory,
) -> None:
    one, other = open_memory(), open_memory()
    one.add("ann", "the zebra eats grass", id="zebra", metadata={"n": 0})
    for number in range(1, 30):
        assert other.search("ann", "zebra", 1)[0].entry.metadata == {"n": number - 1}
        one.update("ann", "zebra", metadata={"n": number})
        assert other.get_many("ann", ["zebra"])[0].metadata == {"n": number}


def test_a_cached_entry_that_another_host_changed_is_not_returned_by_get(
    open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_memory(), open_memory()
    one.add("ann", "the zebra eats grass", id="zebra", metadata={"n": 0})
    other.search("ann", "zebra")
    reads: list[str] = []
    get_one = other._store.get_one
    monkeypatch.setattr(other._store, "get_one", lambda agent, id: reads.append(id) or get_one(agent, id))

    def metadata() -> object:
        entry = other.get("ann", "zebra")
        other.search("ann", "zebra")  # caches what was read
        return None if entry is None else entry.metadata["n"]

    for number in range(1, 10):
        assert [metadata(), metadata(), metadata()] == [number - 1] * 3
        one.update("ann", "zebra", metadata={"n": number})
    assert metadata() == 9
    assert len(reads) <= 10  # one for each content; the others came from the cache
    one.force_transition_to_im(agent_id="ann")
    moved = other.get("ann", "zebra")
    assert moved is not None
    assert moved.tier == "im"
    one.delete("ann", "zebra")
    assert metadata() is None


def test_memories_of_own_batches_are_read_from_the_cache_until_another_host_changes_them(
    open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_memory(), open_memory()
    one.add_many([{"agent_id": "ann", "content": "the first batch"}])
    ids = one.add_many([{"agent_id": "ann", "content": f"violin {number}"} for number in range(40)])
    one.search("ann", "violin", 1)  # caches the last rows, which wait for the next search
    reads: list[str] = []
    get_one = one._store.get_one
    monkeypatch.setattr(one._reader, "_get_one", lambda agent, id: reads.append(id) or get_one(agent, id))
    assert [one.get("ann", id).content for id in ids] == [f"violin {number}" for number in range(40)]
    assert reads == []
    other.update("ann", ids[3], content="a zebra")
    other.delete("ann", ids[4])
    assert one.get("ann", ids[3]).content == "a zebra"
    assert one.get("ann", ids[4]) is None
    assert one.get("ann", ids[5]).content == "violin 5"
    assert reads == ids[3:6]


def test_read_counts_of_several_agents_leave_the_statements_prepared(open_memory: OpenMemory) -> None:
    store = open_memory()._store
    assert isinstance(store, PostgresStore)
    (first,), (second,) = add(store, [row("1")]), add(store, [row("2", "bob")])
    store.add_read_counts({"ann": {first.seq: 2}, "bob": {second.seq: 3}})
    uses = [store.importance_inputs(agent, Tier.STM)[0][3] for agent in ("ann", "bob")]
    assert uses == [2, 3]
    assert store._pool._may_prepare  # a statement that was prepared twice would turn preparing off


def test_no_row_is_skipped_by_readers_that_follow_several_writers(url: str) -> None:
    """A plain sequence would skip rows that commit late."""
    writers = [PostgresStore(url) for _ in range(3)]
    reader = PostgresStore(url)

    def write(number: int) -> int:
        for count in range(60):
            size = 1 + (count + number) % 4
            writers[number].add([row(f"{number}-{count}-{part}") for part in range(size)])
        return 0

    seen: list[int] = []

    def read() -> int:
        last = 0
        while True:
            done = sum(writers_done) == 3
            state, _, columns = reader.catch_up("ann", last, 0)
            seen.extend(columns.seq.tolist())
            last = state.last_seq
            if done:
                return 0

    writers_done = [0, 0, 0]

    def finishing(number: int) -> Callable[[], int]:
        def work() -> int:
            try:
                return write(number)
            finally:
                writers_done[number] = 1

        return work

    together(finishing(0), finishing(1), finishing(2), read)
    assert seen == [one.seq for one in everything(reader, "ann")]
    assert seen == list(range(1, len(seen) + 1))
    for store in (*writers, reader):
        store.close()


def test_within_its_freshness_a_reader_may_miss_changes_of_others_but_not_its_own(
    open_memory: OpenMemory,
) -> None:
    one, other = open_memory(), open_memory(freshness_seconds=3600.0)
    one.add("ann", "the zebra eats grass", id="zebra")
    assert found(other, "zebra", 5) == ["zebra"]
    one.add("ann", "a second zebra", id="second")
    assert found(other, "zebra", 5) == ["zebra"]
    other.add("ann", "a third zebra", id="third")
    assert set(found(other, "zebra", 5)) == {"zebra", "second", "third"}
    other.delete("ann", "second")
    assert set(found(other, "zebra", 5)) == {"zebra", "third"}
    assert other.get("ann", "second") is None


def test_maintenance_is_done_by_one_host_at_a_time(open_memory: OpenMemory, url: str) -> None:
    clock = ManualClock()
    one, other = open_memory(clock=clock), open_memory(clock=clock, busy_timeout_seconds=0.2)
    one.add_many({"agent_id": f"a{n % 3}", "content": f"memory {n}"} for n in range(200))
    clock.advance(25 * 3600)
    third = PostgresStore(url)
    with third.maintaining(0.0) as is_alone:
        assert is_alone
        with pytest.raises(StoreBusy, match="another host"):
            other.maintain()
    reports = together(one.maintain, lambda: open_memory(clock=clock).maintain())
    assert sum(report.moved_to_im for report in reports) == 200
    third.close()
    assert one.check().ok


def test_a_codec_that_another_host_replaced_is_refused(url: str) -> None:
    one, other = PostgresStore(url), PostgresStore(url)
    old = one.save_codec("dictionary 1", b"old")
    (stored,) = add(one, [row("1", body_codec=old.number)])
    new = one.save_codec("dictionary 2", b"new", replaces=[old.number])
    assert new.number > old.number
    with pytest.raises(CodecRetired):
        other.add([row("2", body_codec=old.number)])
    with pytest.raises(CodecRetired):
        other.replace(stored, row("1", body_codec=old.number))
    move = move_of(stored.seq)
    with pytest.raises(CodecRetired):
        other.move("ann", [type(move)(**{**_fields(move), "body_codec": old.number})], Tier.STM, Tier.IM)
    other.retire_codec(old.number)
    assert old.number in [codec.number for codec in one.codecs()]
    one.delete("ann", ["1"])
    other.retire_codec(old.number)
    assert [codec.number for codec in one.codecs()] == [new.number]
    one.close()
    other.close()


def test_a_codec_that_the_server_has_lost_is_not_used_any_more(open_memory: OpenMemory, url: str) -> None:
    memory = open_memory()
    memory.add_many({"agent_id": "ann", "content": f"submarine number {n} dives"} for n in range(400))
    memory.force_consolidation()
    store = PostgresStore(url)
    assert len(store.codecs()) > 0
    memory.add_many({"agent_id": "bob", "content": f"zebra number {n} eats"} for n in range(10))
    # A server that went back in time has neither the codecs nor the memories that use them.
    memory.delete_all("ann")
    store._pool.write(lambda wire, again: wire.command("DELETE FROM @codecs"))
    assert memory.force_consolidation("bob").moved_to_ltm == 10
    assert memory.check().ok
    assert open_memory().search("bob", "zebra", 3)[0].tier == "ltm"
    store.close()


def _fields(move: Any) -> dict[str, Any]:
    return {name: getattr(move, name) for name in move.__struct_fields__}


def test_get_returns_no_memory_of_another_agent_from_tables_that_were_restored(
    open_memory: OpenMemory, url: str
) -> None:
    """The agents of the restored tables have each other's numbers."""
    memory, store = open_memory(), PostgresStore(url)
    for agent in ("ann", "bob"):
        memory.add(agent, f"{agent}'s", id="same")
    memory.force_transition_to_im()
    for _ in range(2):
        assert [memory.get(agent, "same").content for agent in ("ann", "bob")] == ["ann's", "bob's"]
    schema = store._address.schema
    of_agents = (
        "3 - no, key, name, last_seq, last_change, version, stm, im, ltm, evicted, unsettled, settled_codec"
    )
    commands = [f"ALTER SCHEMA {schema} RENAME TO {schema}_old", f"CREATE SCHEMA {schema}"]
    for table in TABLES:
        columns = of_agents if table == "agents" else "*"
        commands += [
            f"CREATE TABLE @{table} (LIKE {schema}_old.{table} INCLUDING ALL)",
            f"INSERT INTO @{table} OVERRIDING SYSTEM VALUE SELECT {columns} FROM {schema}_old.{table}",
        ]
    for table in ("memories", "changes"):
        commands += [f"UPDATE @{table} SET agent = -agent", f"UPDATE @{table} SET agent = 3 + agent"]
    for command in commands:
        store._pool.write(lambda wire, again, command=command: wire.command(command))
    for _ in range(2):
        assert [memory.get(agent, "same").content for agent in ("ann", "bob")] == ["ann's", "bob's"]
    store.close()


def test_names_may_have_every_character(url: str) -> None:
    store = PostgresStore(url)
    names = ["a\0b", "a\x01b", "a\x01\x02b", "\0", "\x01", "\x01\x01\0", "ä🜁'\";--", "%s $1 @x"]
    stored = [add(store, [row(name, name, kind=name)])[0] for name in names]
    assert store.agents() == names
    assert everything(store) == stored
    for name in names:
        assert [one.id for one in store.get(name, names)] == [name]
        assert store.delete(name, [name]) == 1
    store.close()


def test_a_forked_child_and_its_parent_both_go_on(open_memory: OpenMemory) -> None:
    memory = open_memory()
    memory.add("ann", "before", id="before")
    assert found(memory, "before") == ["before"]
    child = os.fork()
    if child == 0:
        try:
            memory.add("ann", "of the child", id="child")
            ok = found(memory, "before") == ["before"] and found(memory, "child") == ["child"]
            os._exit(0 if ok else 1)
        finally:
            os._exit(2)
    memory.add("ann", "of the parent", id="parent")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {entry.id for entry in memory.recent("ann")} == {"before", "child", "parent"}
    assert set(found(memory, "before child parent", 5)) == {"before", "child", "parent"}


def test_erased_bytes_are_in_no_table(open_memory: OpenMemory, server: Server, url: str) -> None:
    memory = open_memory()
    token = "qwertzuiopas"
    for number in range(30):
        memory.add("ann", f"{token} number {number}", id=f"{number}")
    memory.add("ann", "this one stays", id="stays")
    memory.update("ann", "0", content="replaced")
    memory.delete("ann", "0")
    memory.delete_many("ann", [f"{number}" for number in range(1, 29)])
    memory.delete("ann", "29", erase=True)
    assert memory.get("ann", "stays") is not None
    # The server writes its buffers, then every file of its tables is read; its log (WAL) is not.
    import psycopg

    with psycopg.connect(f"host={server.folder} user=postgres dbname=postgres", autocommit=True) as db:
        db.execute("CHECKPOINT")
    files = [path for path in (server.data / "base").rglob("*") if path.is_file()]
    assert [path.name for path in files if token.encode() in path.read_bytes()] == []


def test_psycopg_is_imported_only_for_a_server() -> None:
    program = """
        import sys
        from memory import AgentMemorySystem, MemoryConfig
        with AgentMemorySystem(MemoryConfig(url=":memory:")) as memory:
            memory.add("ann", "a memory")
        assert not any(name.startswith("psycopg") for name in sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_the_environment_variable_names_the_place(url: str) -> None:
    program = """
        from memory import AgentMemorySystem
        with AgentMemorySystem() as memory:
            assert memory.config.is_on_server
            memory.add("ann", "stored by another process", id="1")
    """
    environment = {**os.environ, "AGENTMEMORY_URL": url}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, env=environment)
    store = PostgresStore(url)
    assert [one.id for one in store.all_rows("ann")] == ["1"]
    store.close()


def test_many_rows_and_few_rows_are_indexed_alike(url: str) -> None:
    store = PostgresStore(url)
    stored = add(store, numbered(300, fine=b"f"))
    _, _, columns = store.catch_up("ann", 0, 0)
    assert columns.seq.tolist() == [one.seq for one in stored]
    assert columns.features is not None
    assert [features[1:] for features in columns.features] == [
        (one.vector_codec, one.vector, one.fine, one.terms, one.terms_codec) for one in stored
    ]
    store.close()
