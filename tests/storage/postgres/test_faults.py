"""Faults of a real server: no call loses or doubles a memory, and every error says what happened."""

from __future__ import annotations

import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import psycopg
import pytest
from conformance import add, change, everything, ids, move_of, numbered, row, tiers, whole
from postgres_proxy import Proxy
from postgres_servers import Server, running_server

from memory import AgentMemorySystem, MemoryConfig
from memory.entry import Tier
from memory.errors import StoreBusy, StoreError, StoreReadOnly, StoreUnavailable
from memory.storage.postgres.store import PostgresStore

OpenStore = Callable[..., PostgresStore]
SECRET = "not-shown-anywhere"


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server that the tests of this file may stop and kill."""
    with running_server(max_connections="12") as started:
        yield started


@pytest.fixture
def faulty_url(own_server: Server) -> str:
    return own_server.url(f"t_{uuid4().hex}")


@pytest.fixture
def open_store(faulty_url: str) -> Iterator[OpenStore]:
    opened: list[PostgresStore] = []

    def open_one(url: str = faulty_url, **settings: float) -> PostgresStore:
        opened.append(PostgresStore(url, **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


def connect(server: Server) -> psycopg.Connection:
    return psycopg.connect(f"host={server.folder} user=postgres dbname=postgres", autocommit=True)


def all_connections(server: Server) -> list[psycopg.Connection]:
    """Open connections until the server has no more."""
    held: list[psycopg.Connection] = []
    while True:
        try:
            held.append(connect(server))
        except psycopg.OperationalError:
            return held


# -- a lost reply to the commit -----------------------------------------------------------------


@pytest.fixture
def proxy(own_server: Server) -> Iterator[Proxy]:
    with TemporaryDirectory(prefix="px") as folder:
        started = Proxy(Path(folder), own_server.folder)
        started.folder = folder  # type: ignore[attr-defined]
        yield started
        started.close()


@pytest.fixture
def through_proxy(open_store: OpenStore, proxy: Proxy) -> PostgresStore:
    schema = f"t_{uuid4().hex}"
    return open_store(f"postgresql://postgres@/postgres?host={proxy.folder}&schema={schema}")  # type: ignore[attr-defined]


def test_one_memory_whose_reply_is_lost_is_stored_once(through_proxy: PostgresStore, proxy: Proxy) -> None:
    add(through_proxy, [row("0")])
    proxy.lose_reply_to(b"body of 1")
    (stored,) = add(through_proxy, [row("1")])
    assert proxy.lost == 1
    assert everything(through_proxy)[1] == stored
    assert through_proxy.add([row("1")]) == [None]
    assert through_proxy.state("ann").last_seq == 2


def test_a_batch_whose_reply_is_lost_is_stored_once(through_proxy: PostgresStore, proxy: Proxy) -> None:
    add(through_proxy, [row("0"), row("0", "bob")])
    proxy.lose_reply_to(b"COMMIT")
    stored = add(through_proxy, [*numbered(3), *numbered(3, "bob")])
    assert proxy.lost == 1
    assert everything(through_proxy, "ann")[1:] == stored[:3]
    assert through_proxy.counts() == tiers(stm=8)


def test_changes_whose_reply_is_lost_are_counted_right(through_proxy: PostgresStore, proxy: Proxy) -> None:
    store = through_proxy
    stored = add(store, numbered(9))
    first, second, third, *_ = stored
    # Prepared once, so that the names below are in the message that is lost.
    change(store, stored[8].id, body=b"x")
    store.move("ann", [move_of(stored[7].seq)], Tier.STM, Tier.IM)
    store.delete("ann", [stored[6].id])
    store.evict("ann", [stored[5].seq], Tier.STM)
    before = store.state("ann").last_change
    old = whole(store, first.id)
    for act, part, expected in (
        (lambda: store.replace(old, row(first.id, body=b"new body")), b"new body", True),
        (lambda: store.move("ann", [move_of(second.seq, "mark")], Tier.STM, Tier.IM), b"mark body", 1),
        (lambda: store.delete("ann", [third.id, "nobody's"]), b"nobody's", 1),
        (lambda: store.evict("ann", [stored[3].seq], Tier.STM), stored[3].seq.to_bytes(8), 1),
        (lambda: store.delete_agent("ann"), b"", 5),
    ):
        lost = proxy.lost
        proxy.lose_reply_to(part)
        assert act() == expected
        assert proxy.lost == lost + 1
    assert store.state("ann").last_change == before + 5
    assert store.counts() == tiers()


# -- restarts and crashes -----------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
def test_calls_go_on_after_a_restart(
    own_server: Server, open_store: OpenStore, how: signal.Signals
) -> None:
    store = open_store()
    stored = add(store, numbered(2))
    own_server.restart(how)
    assert store.get_one("ann", "00000") is not None
    own_server.restart(how)
    stored += add(store, [row("after")])
    own_server.restart(how)
    assert store.delete("ann", ["00001"]) == 1
    assert ids(everything(store)) == ["00000", "after"]


def test_writers_lose_and_double_nothing_while_the_server_is_killed(
    own_server: Server, open_store: OpenStore
) -> None:
    stores = [open_store(), open_store()]
    acknowledged: list[str] = []
    done = threading.Event()
    problems: list[BaseException] = []

    def write(number: int) -> None:
        count = 0
        try:
            while not done.is_set():
                id_ = f"{number}-{count}"
                (seq,) = stores[number % 2].add([row(id_)])
                assert seq is not None
                acknowledged.append(id_)
                count += 1
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for how in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        seen = len(acknowledged)
        while len(acknowledged) < seen + 40 and not problems:
            done.wait(0.005)
        own_server.restart(how)
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
    stored = everything(stores[0])
    assert sorted(ids(stored)) == sorted(acknowledged)
    assert [one.seq for one in stored] == list(range(1, len(stored) + 1))


def test_read_counts_of_several_processes_and_deletes_do_not_wait_for_each_other_in_a_circle(
    own_server: Server, open_store: OpenStore, faulty_url: str
) -> None:
    agents = [f"agent {number}" for number in range(10)]
    stores = [open_store(), open_store(), open_store()]
    # The rows lie in the opposite order of their seqs, as they can after updates: a delete finds them so.
    seqs = {agent: [one.seq for one in add(stores[0], numbered(150, agent)[::-1])] for agent in agents}
    with connect(own_server) as connection:
        schema = faulty_url.rpartition("schema=")[2]
        connection.execute(f"CLUSTER {schema}.memories USING memories_by_id".encode())
    before = (own_server.folder / "log").read_text().count("deadlock detected")
    problems: list[BaseException] = []

    def count(store: PostgresStore, order: list[str]) -> None:
        for _ in range(12):
            store.add_read_counts({agent: dict.fromkeys(seqs[agent], 1) for agent in order})

    def delete(store: PostgresStore) -> None:
        for start in range(0, 150, 25):
            for agent in agents:
                store.delete(agent, [f"{number:05}" for number in range(start, start + 25)])

    def run(work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except BaseException as problem:
            problems.append(problem)

    threads = [
        threading.Thread(target=run, args=(count, stores[0], agents)),
        threading.Thread(target=run, args=(count, stores[1], agents[::-1])),
        threading.Thread(target=run, args=(delete, stores[2])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert (own_server.folder / "log").read_text().count("deadlock detected") == before


def test_a_server_that_is_gone_is_a_named_error_that_says_nothing_was_stored(
    own_server: Server, open_store: OpenStore
) -> None:
    store = open_store(busy_timeout=0.3)
    add(store, numbered(1))
    own_server.stop()
    try:
        for call in (lambda: store.get_one("ann", "00000"), lambda: store.counts()):
            with pytest.raises(StoreUnavailable) as caught:
                call()
            assert SECRET not in str(caught.value)
            assert str(own_server.folder) not in str(caught.value)
        with pytest.raises(StoreUnavailable, match="nothing was stored") as caught:
            store.add([row("new")])
        assert caught.value.stored is False
    finally:
        own_server.start()
    assert len(add(store, [row("new")])) == 1


def test_threads_that_wait_for_a_server_do_not_all_try_to_connect(
    own_server: Server, open_store: OpenStore
) -> None:
    store = open_store(busy_timeout=1.0)
    add(store, numbered(1))
    own_server.stop()
    attempts = 0
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            store.counts()
        except StoreUnavailable as problem:
            errors.append(problem)

    with socket.socket(socket.AF_UNIX) as refusing:
        refusing.bind(str(own_server.folder / ".s.PGSQL.5432"))
        refusing.listen(100)
        own_server.folder.joinpath(".s.PGSQL.5432").chmod(0o777)
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        refusing.settimeout(0.1)
        while any(thread.is_alive() for thread in threads):
            try:
                refusing.accept()[0].close()
                attempts += 1
            except TimeoutError:
                continue
    own_server.folder.joinpath(".s.PGSQL.5432").unlink()
    own_server.start()
    assert len(errors) == 8
    # One at the start and one at the end of each thread's second; and those of one thread, with pauses of
    # 5 milliseconds or more at first and 50 later. If every thread tried, there would be 150.
    assert 8 < attempts < 60
    assert store.counts() == tiers(stm=1)


def test_all_threads_that_wait_for_a_server_go_on_when_it_is_back(
    own_server: Server, open_store: OpenStore
) -> None:
    store = open_store(most_connections=2)
    add(store, numbered(1))
    own_server.stop()
    threads = [threading.Thread(target=store.add, args=([row(f"of {number}")],)) for number in range(8)]
    for thread in threads:
        thread.start()
    own_server.start()
    for thread in threads:
        thread.join()
    assert store.counts() == tiers(stm=9)


def test_a_server_that_went_back_in_time_is_noticed_by_a_warm_index(
    own_server: Server, faulty_url: str, tmp_path: Path
) -> None:
    with AgentMemorySystem(MemoryConfig(url=faulty_url, maintenance="manual")) as memory:
        memory.add("ann", "the zebra eats grass", id="zebra")
        own_server.stop()
        shutil.copytree(own_server.data, tmp_path / "earlier")
        own_server.start()
        memory.add("ann", "submarines dive deep", id="submarine")
        memory.add("bob", "a memory of bob", id="his")
        assert [hit.id for hit in memory.search("ann", "submarine", 1)] == ["submarine"]
        own_server.stop()
        shutil.rmtree(own_server.data)
        shutil.copytree(tmp_path / "earlier", own_server.data)
        own_server.data.chmod(0o700)
        own_server.start()
        # Another host stores other memories under the same numbers.
        with AgentMemorySystem(MemoryConfig(url=faulty_url, maintenance="manual")) as other:
            other.add("ann", "a violin sonata", id="violin")
            other.add("eve", "a memory of eve", id="hers")
        assert [hit.id for hit in memory.search("ann", "submarine", 3)] != ["submarine"]
        assert {hit.id for hit in memory.search("ann", "violin zebra", 5)} == {"violin", "zebra"}
        assert memory.search("bob", "memory", 3) == []
        memory.add("bob", "again", id="his")
        assert [hit.id for hit in memory.search("eve", "memory", 3)] == ["hers"]
        assert memory.check().ok


# -- servers that refuse ------------------------------------------------------------------------


def test_a_call_waits_while_the_server_is_out_of_connections(
    own_server: Server, open_store: OpenStore
) -> None:
    patient = open_store()
    impatient = open_store(busy_timeout=0.3)
    held = all_connections(own_server)
    with pytest.raises(StoreUnavailable, match="nothing was stored"):
        impatient.add([row("1")])
    threading.Timer(0.3, lambda: [one.close() for one in held]).start()
    assert len(add(patient, [row("1")])) == 1


def test_a_server_that_accepts_no_writes_is_read_and_named(
    own_server: Server, open_store: OpenStore
) -> None:
    store = open_store(busy_timeout=0.5)
    add(store, [row("1")])
    with connect(own_server) as db:
        db.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
        try:
            own_server.restart()
            with pytest.raises(StoreReadOnly, match="read-only"):
                store.add([row("2")])
            assert ids(everything(store)) == ["1"]
        finally:
            own_server.restart()
    with connect(own_server) as db:
        db.execute("SET default_transaction_read_only = off")
        db.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
    own_server.restart()
    assert len(add(store, [row("2")])) == 1


def test_a_statement_that_takes_too_long_is_named_and_nothing_is_stored(
    own_server: Server, open_store: OpenStore, faulty_url: str
) -> None:
    add(open_store(), [row("1")])  # to create tables can take longer than the time allowed below
    options = "&options=-c%20statement_timeout%3D50"
    store = open_store(faulty_url + options, busy_timeout=0.3)
    schema = faulty_url.partition("schema=")[2]
    with connect(own_server) as db, db.transaction():
        db.execute(f"SELECT * FROM {schema}.agents FOR UPDATE")
        with pytest.raises(StoreBusy, match="nothing was stored"):
            store.add([row("2")])
    assert ids(everything(store)) == ["1"]


def test_connecting_takes_no_longer_than_the_call_may(open_store: OpenStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts connections and never answers
        url = f"postgresql://someone@127.0.0.1:{silent.getsockname()[1]}/postgres?connect_timeout=3600"
        with pytest.raises(StoreUnavailable, match=r"no answer within 0\.[23] s") as caught:
            open_store(url, busy_timeout=0.3)
    assert caught.value.stored is False


def test_no_error_and_no_representation_shows_the_password(
    own_server: Server, faulty_url: str, open_store: OpenStore
) -> None:
    config = MemoryConfig(url=faulty_url)
    assert SECRET not in repr(config)
    wrong = [
        faulty_url.replace("/postgres?", "/no_such_database?"),
        faulty_url.replace("//postgres:", "//nobody_here:"),
        f"postgresql://postgres:{SECRET}@localhost:1/postgres?connect_timeout=1",
        f"postgresql://postgres:{SECRET}@host:port:wrong/postgres?x",
        faulty_url.replace("schema=", "schema=Not Allowed"),
    ]
    for url in wrong:
        with pytest.raises((StoreError, ValueError)) as caught:
            open_store(url, busy_timeout=0.2)
        assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__}"
        assert "localhost" not in str(caught.value)
