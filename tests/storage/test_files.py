"""Foreign, damaged and unreachable files and full disks: a named error, and the file stays unchanged."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from small_embedder import small_embedder
from subprocesses import run_python, start_python

from memory import AgentMemorySystem, ManualClock
from memory.errors import (
    AgentMemoryError,
    EmbedderMismatch,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreTooNew,
)
from memory.storage.schema import APPLICATION_ID, FORMAT_VERSION, PAGE_SIZE
from memory.storage.shared_versions import SharedVersions, replace_pure

OpenMemory = Callable[..., AgentMemorySystem]


@pytest.fixture
def open_small(open_memory: OpenMemory) -> OpenMemory:
    """`open_memory` with a fast embedder."""
    return lambda **settings: open_memory(**{"embedder": small_embedder(), **settings})


@pytest.fixture
def sound(open_small: OpenMemory, tmp_path: Path) -> Path:
    """A closed database with memories in all tiers and no other files in its folder."""
    path = tmp_path / "sound" / "memory.db"
    with open_small(path=path) as memory:
        memory.add_many(
            {"agent_id": "ann", "content": f"memory {number} " + "x" * 500, "id": str(number)}
            for number in range(300)
        )
        memory.force_transition_to_im(60)
        memory.force_transition_to_ltm(50)
    Path(f"{path}-pulse").unlink()
    assert os.listdir(path.parent) == ["memory.db"]
    return path


def picture(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and the modification time of every file in a folder."""
    return {
        file.name: (file.read_bytes() if file.is_file() else b"", file.stat().st_mtime_ns)
        for file in folder.iterdir()
    }


def refuse(open_small: OpenMemory, path: Path, error: type[StoreError], **settings: Any) -> str:
    """Check that opening raises this error, with the path in one line, and changes no file."""
    before = picture(path.parent)
    with pytest.raises(AgentMemoryError) as caught:
        open_small(path=path, **settings)
    assert caught.type is error
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert picture(path.parent) == before
    return message


def patch(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def problems(path: Path) -> list[str]:
    """Return the problems that SQLite's integrity check finds."""
    connection = sqlite3.connect(path)
    try:
        return [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
    finally:
        connection.close()


# -- foreign files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"SQLite format 3\x00", b"Dear diary,\n" * 1_000, bytes(20_000), b"\xff" * 20_000],
    ids=["empty", "newline", "only the magic", "text", "zeros", "ones"],
)
def test_a_file_that_is_not_a_database_is_refused(
    open_small: OpenMemory, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "memory.db"
    path.write_bytes(content)
    refuse(open_small, path, StoreCorrupt)
    refuse(open_small, path, StoreCorrupt, read_only=True)


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_another_programs_database_is_refused(open_small: OpenMemory, tmp_path: Path, journal: str) -> None:
    path = tmp_path / "memory.db"
    patch(path, f"PRAGMA journal_mode = {journal}", "CREATE TABLE memories (id TEXT)")
    assert "another program" in refuse(open_small, path, StoreCorrupt)
    refuse(open_small, path, StoreCorrupt, read_only=True)


@pytest.mark.parametrize("application_id", [0, 1, APPLICATION_ID - 1, 0x7FFFFFFF])
def test_an_unknown_application_id_is_refused(
    open_small: OpenMemory, sound: Path, application_id: int
) -> None:
    patch(sound, f"PRAGMA application_id = {application_id}")
    refuse(open_small, sound, StoreCorrupt)


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 2**31 - 1])
def test_a_newer_format_is_refused(open_small: OpenMemory, sound: Path, version: int) -> None:
    patch(sound, f"PRAGMA user_version = {version}")
    assert "upgrade" in refuse(open_small, sound, StoreTooNew)


def test_a_newer_format_that_is_still_in_the_log_is_refused(open_small: OpenMemory, sound: Path) -> None:
    connection = sqlite3.connect(sound)
    connection.execute("ALTER TABLE memories ADD COLUMN later INTEGER")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.commit()
    with pytest.raises(StoreTooNew, match="upgrade"):
        open_small(path=sound)
    connection.close()


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_our_application_id_without_our_tables_is_refused(
    open_small: OpenMemory, tmp_path: Path, journal: str
) -> None:
    path = tmp_path / "memory.db"
    patch(
        path,
        f"PRAGMA journal_mode = {journal}",
        f"PRAGMA application_id = {APPLICATION_ID}",
        f"PRAGMA user_version = {FORMAT_VERSION}",
        "CREATE TABLE other (id TEXT)",
    )
    refuse(open_small, path, StoreCorrupt)


@pytest.mark.parametrize("embedder", [small_embedder(name="other"), small_embedder(dimensions=16)])
def test_another_embedder_is_refused(open_small: OpenMemory, sound: Path, embedder: Any) -> None:
    before = sound.read_bytes()
    for read_only in (True, False):
        with pytest.raises(EmbedderMismatch, match=r"words-by-hash/32.*" + embedder.name) as caught:
            open_small(path=sound, embedder=embedder, read_only=read_only)
        assert str(sound) in str(caught.value)
        assert sound.read_bytes() == before
    assert not Path(f"{sound}-wal").exists()
    with open_small(path=sound) as memory:
        assert memory.get("ann", "7") is not None


# -- damaged files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kept",
    [
        lambda size: 1,
        lambda size: 50,
        lambda size: 99,
        lambda size: 100,
        lambda size: 512,
        lambda size: PAGE_SIZE - 1,
        lambda size: PAGE_SIZE,
        lambda size: PAGE_SIZE + 1,
        lambda size: size // 2,
        lambda size: size - PAGE_SIZE,
        lambda size: size - 1,
    ],
    ids=["1", "50", "99", "100", "512", "page-1", "page", "page+1", "half", "last page", "last byte"],
)
def test_a_truncated_file_is_refused(
    open_small: OpenMemory, sound: Path, kept: Callable[[int], int]
) -> None:
    content = sound.read_bytes()
    sound.write_bytes(content[: kept(len(content))])
    refuse(open_small, sound, StoreCorrupt)
    refuse(open_small, sound, StoreCorrupt, read_only=True)


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes_in_a_file_raise_store_errors_only(
    open_small: OpenMemory, sound: Path, seed: int
) -> None:
    """Every call returns a value or raises a StoreError."""
    rng = random.Random(seed)
    content = bytearray(sound.read_bytes())
    for _ in range(seed + 1):
        place = rng.randrange(PAGE_SIZE, len(content) - 200)
        content[place : place + 200] = rng.randbytes(200)
    sound.write_bytes(content)
    with contextlib.suppress(StoreError), open_small(path=sound, read_only=True) as memory:
        for number in range(300):
            _try(lambda number=number: memory.get("ann", str(number)))
        _try(lambda: memory.search("ann", "memory 7"))
        _try(lambda: memory.recent("ann", 300))
        _try(lambda: memory.get_memory_statistics())
        _try(lambda: memory.export_jsonl(sound.parent / "export.jsonl"))


def _try(read: Callable[[], Any]) -> None:
    with contextlib.suppress(StoreError):
        read()


def test_one_damaged_memory_does_not_stop_other_moves(
    open_small: OpenMemory, sound: Path, clock: ManualClock
) -> None:
    oldest_in_im = "SELECT MIN(key) FROM memories WHERE tier = 1"
    patch(sound, f"UPDATE memories SET body = x'00ff00', body_codec = 1 WHERE key = ({oldest_in_im})")
    memory = open_small(path=sound)
    clock.advance(365 * 24 * 3600)
    for _ in range(2):
        _try(memory.maintain)
    tiers = memory.get_memory_statistics("ann")["tiers"]
    assert sum(tiers.values()) == 300
    assert tiers["ltm"] >= 299


def test_random_bytes_in_place_of_the_log_are_ignored(open_small: OpenMemory, sound: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{sound}{suffix}").write_bytes(os.urandom(50_000))
    with open_small(path=sound) as memory:
        assert memory.get_memory_statistics("ann")["total"] == 300
        memory.add("ann", "after", id="after")
    with open_small(path=sound) as memory:
        assert memory.get("ann", "after").content == "after"
    assert problems(sound) == []


# -- paths ------------------------------------------------------------------------------------


def test_missing_folders_are_created(open_small: OpenMemory, tmp_path: Path) -> None:
    path = tmp_path / "some" / "new" / "folder" / "memory.db"
    with open_small(path=path) as memory:
        memory.add("ann", "first", id="1")
    with open_small(path=path) as memory:
        assert memory.get("ann", "1").content == "first"


def test_creating_a_file_leaves_no_draft_file(open_small: OpenMemory, tmp_path: Path) -> None:
    with open_small(path=tmp_path / "memory.db"):
        names = {file.name for file in tmp_path.iterdir()}
    assert names <= {f"memory.db{suffix}" for suffix in ("", "-wal", "-shm", "-pulse")}


@pytest.mark.parametrize(
    "name", ["with space.db", "a?mode=ro#b%20.db", "größe-🜁.db", "no extension", "'\"&;"]
)
def test_any_file_name_works(open_small: OpenMemory, tmp_path: Path, name: str) -> None:
    with open_small(path=tmp_path / name) as memory:
        memory.add("ann", "first", id="1")
    assert (tmp_path / name).is_file()
    with open_small(path=tmp_path / name, read_only=True) as memory:
        assert memory.get("ann", "1").content == "first"


def test_a_folder_is_refused(open_small: OpenMemory, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    refuse(open_small, path, StoreCorrupt)
    refuse(open_small, path, StoreCorrupt, read_only=True)


def test_a_file_in_place_of_the_folder_is_refused(open_small: OpenMemory, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreReadOnly, match="file"):
        open_small(path=tmp_path / "file" / "memory.db")
    assert (tmp_path / "file").read_text() == "not a folder"


def test_a_relative_path_is_resolved_when_it_is_opened(
    open_small: OpenMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    memory = open_small(path="memory.db")
    monkeypatch.chdir(tmp_path / "there")
    memory.add("ann", "first", id="1")
    assert [hit.id for hit in memory.search("ann", "first")] == ["1"]
    memory.close()
    assert list((tmp_path / "there").iterdir()) == []
    assert (tmp_path / "here" / "memory.db").is_file()


def test_a_tilde_stands_for_the_home_folder(
    open_small: OpenMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_small(path="~/memory.db").add("ann", "first")
    assert (tmp_path / "memory.db").is_file()


# -- read only --------------------------------------------------------------------------------


def test_read_only_creates_no_file(open_small: OpenMemory, tmp_path: Path) -> None:
    refuse(open_small, tmp_path / "memory.db", StoreReadOnly, read_only=True)
    with pytest.raises(StoreReadOnly, match="missing"):
        open_small(path=tmp_path / "missing" / "memory.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_read_only_reads_everything_and_refuses_writes(open_small: OpenMemory, sound: Path) -> None:
    before = sound.read_bytes()
    with open_small(path=sound, read_only=True) as memory:
        assert [memory.get("ann", str(number)).id for number in range(300)] == list(map(str, range(300)))
        assert memory.search("ann", "memory 7")
        assert memory.get_memory_statistics("ann")["total"] == 300
        for write in (
            lambda: memory.add("ann", "new"),
            lambda: memory.add("bob", "new"),
            lambda: memory.update("ann", "7", content="new"),
            lambda: memory.delete("ann", "7"),
            lambda: memory.delete_all("ann"),
            lambda: memory.force_transition_to_im(),
            lambda: memory.force_consolidation(),
        ):
            with pytest.raises(StoreReadOnly, match="memory"):
                write()
    assert sound.read_bytes() == before


def test_a_read_only_memory_sees_new_writes(open_small: OpenMemory, sound: Path) -> None:
    writer, reader = open_small(path=sound), open_small(path=sound, read_only=True)
    writer.add("ann", "newly stored", id="new")
    assert reader.get("ann", "new").content == "newly stored"
    writer.update("ann", "new", content="changed")
    assert reader.get("ann", "new").content == "changed"
    writer.delete("ann", "new")
    assert reader.get("ann", "new") is None
    assert "new" not in [hit.id for hit in reader.search("ann", "changed")]


_AS_NOBODY = """
sound, path = sys.argv[1:]
def read(path):
    with open_memory(path, read_only=True) as memory:
        hits = memory.search("ann", "memory")
        return [memory.get("ann", "7").id, len(hits), len(memory.recent("ann", 999))]
def attempt(act, path):
    try:
        return act(path)
    except Exception as problem:
        return [type(problem).__name__, str(problem)]
read(sound)  # everything is imported while root may still read it
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print(json.dumps([attempt(open_memory, path), attempt(read, path)]))
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users can read; pytest's own folders are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_file_without_write_permission_can_be_read(sound: Path, public_folder: Path) -> None:
    path = shutil.copy(sound, public_folder)
    os.chmod(path, 0o444)
    public_folder.chmod(0o555)
    before = picture(public_folder)
    opened, read = json.loads(run_python(_AS_NOBODY, sound, path))
    assert opened[0] == "StoreReadOnly"
    assert path in opened[1]
    assert read == ["7", 10, 300]
    assert picture(public_folder) == before


def test_a_reader_without_write_permission_sees_later_writes(
    open_small: OpenMemory, sound: Path, public_folder: Path
) -> None:
    """Only the owner may write in this folder; it starts to write after the reader opened the file."""
    script = """
sound, path = sys.argv[1:]
def read(memory):
    memory.search("ann", "new")
    return [memory.get("ann", "7").content, len(memory.recent("ann", 999))]
with open_memory(sound) as memory:
    read(memory)  # everything is imported while root may still read it
os.setgid(65534)
os.setuid(65534)
memory = open_memory(path, read_only=True)
for _ in range(3):
    print(json.dumps(read(memory)), flush=True)
    sys.stdin.readline()
"""
    if os.geteuid() != 0:
        pytest.skip("needs a second user")
    path = Path(shutil.copy(sound, public_folder))
    path.chmod(0o644)
    with start_python(script, sound, path) as reader:
        seen = [json.loads(reader.stdout.readline())]
        for text in ("new", "newer"):
            with open_small(path=path) as writer:
                writer.update("ann", "7", content=text)
                writer.add("ann", text)
                reader.stdin.write("\n")
                reader.stdin.flush()
                seen.append(json.loads(reader.stdout.readline()))
        _, stderr = reader.communicate("\n")
    assert stderr == ""
    assert seen[1:] == [["new", 301], ["newer", 302]]


def test_a_file_without_read_permission_is_refused(sound: Path, public_folder: Path) -> None:
    path = shutil.copy(sound, public_folder)
    os.chmod(path, 0o000)
    for name, message in json.loads(run_python(_AS_NOBODY, sound, path)):
        assert name == "StoreReadOnly"
        assert path in message
    assert os.listdir(public_folder) == ["memory.db"]


# -- a full disk ------------------------------------------------------------------------------

_FILL = """
import resource, signal
from memory.errors import StoreError, StoreFull

def fill(memory, kept):
    "Store until nothing more fits, in ones and in batches; what was acknowledged is in `kept`."
    for number in range(len(kept), 10_000):
        batch = [(f"{number}-{part}", f"{number} {part} " + "x" * 3_000) for part in range(number % 4 + 1)]
        try:
            memory.add_many({"agent_id": "ann", "content": text, "id": id} for id, text in batch)
        except StoreError as problem:
            return problem, [id for id, _ in batch]
        kept.update(batch)
    raise AssertionError("the disk never got full")

def check(memory, kept, refused):
    assert {entry.id: entry.content for entry in memory.recent("ann", 100_000)} == kept
    assert memory.get_memory_statistics("ann")["total"] == len(kept)
    assert not any(memory.exists("ann", id) for id in refused)
    some = next(iter(kept))
    assert memory.get("ann", some).content == kept[some]
    assert memory.search("ann", kept[some][:5])
"""


def test_a_failed_write_stores_nothing(open_small: OpenMemory, tmp_path: Path) -> None:
    """A limit on the file size makes writes fail like a broken disk."""
    path = tmp_path / "memory.db"
    script = (
        _FILL
        + """
memory, kept = open_memory(sys.argv[1]), {}
memory.add("ann", "before the limit", id="before")
kept["before"] = "before the limit"
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
for _ in range(3):
    problem, refused = fill(memory, kept)
    assert sys.argv[1] in str(problem) and "\\n" not in str(problem), problem
    check(memory, kept, refused)
memory.close()  # the disk is still full: all that was acknowledged is there, so that is no error
print(json.dumps(kept))
"""
    )
    kept = json.loads(run_python(script, path))
    assert len(kept) > 50
    with open_small(path=path) as memory:
        assert {entry.id: entry.content for entry in memory.recent("ann", 100_000)} == kept
        memory.add("ann", "there is space again", id="again")
        assert memory.get("ann", "again") is not None
    assert problems(path) == []


def _small_disk() -> tuple[str, ...]:
    """Return a command that runs another one with a private file system of 4 MB on /mnt."""
    for way in (("unshare", "--mount"), ("unshare", "--mount", "--map-root-user")):
        command = (*way, "sh", "-c", 'mount -t tmpfs -o size=4m none /mnt && exec "$@"', "sh")
        if (
            shutil.which("unshare")
            and subprocess.run([*command, "true"], capture_output=True).returncode == 0
        ):
            return command
    pytest.skip("this system does not let a test mount a small disk")


def test_a_read_only_file_system_is_named_with_the_way_to_open_the_memory() -> None:
    script = """
import subprocess
from memory.errors import StoreReadOnly
path = "/mnt/memory.db"
with open_memory(path) as memory:
    memory.add("ann", "kept", id="1")
subprocess.run(["mount", "-o", "remount,ro", "/mnt"], check=True)
for attempt in (path, path, "/mnt/new.db"):
    try:
        open_memory(attempt)
    except StoreReadOnly as problem:
        print(problem)
with open_memory(path, read_only=True) as memory:
    print(memory.get("ann", "1").content)
"""
    *told, new, content = run_python(script, before=_small_disk()).splitlines()
    assert told == 2 * ["/mnt/memory.db is on a read-only file system: open it with read_only=True"]
    assert "/mnt/new.db" in new
    assert "read_only=True" not in new, "there is nothing to read"
    assert content == "kept"


def test_a_full_disk_raises_store_full_and_loses_nothing() -> None:
    script = (
        _FILL
        + """
path, kept = "/mnt/memory.db", {}
with open("/mnt/ballast", "wb") as ballast:
    ballast.write(bytes(1_000_000))
with open_memory(path) as memory:
    problem, refused = fill(memory, kept)
    assert type(problem) is StoreFull, repr(problem)
    assert path in str(problem) and "\\n" not in str(problem)
    check(memory, kept, refused)
    for change in (
        lambda: memory.update("ann", "0-0", content="y" * 100_000),
        lambda: memory.force_transition_to_im(),
    ):
        try:
            change()
        except StoreError as problem:
            assert type(problem) is StoreFull, repr(problem)
    assert memory.get("ann", "0-0").content in (kept["0-0"], "y" * 100_000)
    kept["0-0"] = memory.get("ann", "0-0").content
os.remove("/mnt/ballast")
with open_memory(path) as memory:
    check(memory, kept, refused)
    memory.add("ann", "there is space again", id="again")
import sqlite3
connection = sqlite3.connect(path)
assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
connection.close()
"""
    )
    run_python(script, before=_small_disk())


def test_a_full_disk_does_not_kill_a_process_that_deletes() -> None:
    """The mapped file must be allocated in full: a write to an unallocated block raises SIGBUS."""
    script = """
from memory.errors import StoreError
memory = open_memory("/mnt/memory.db")
memory.add_many({"agent_id": f"agent {number}", "content": "x", "id": "x"} for number in range(4_500))
with open("/mnt/ballast", "wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(4096))
    except OSError:
        pass
for number in range(0, 4_500, 100):
    try:
        assert memory.delete(f"agent {number}", "x")
    except StoreError as problem:
        assert type(problem).__name__ == "StoreFull", repr(problem)
"""
    run_python(script, before=_small_disk())


def test_shrinking_on_a_full_disk_loses_nothing() -> None:
    script = """
from memory.errors import StoreFull
path = "/mnt/memory.db"
memory = open_memory(path, stm={"memory_limit": None})
kept = {str(number): f"{number} " + "x" * 3_000 for number in range(100)}
for agent, count in (("ann", 50), ("bob", 340), ("ann", 100)):
    batch = [{"agent_id": agent, "content": f"{n} " + "x" * 3_000, "id": str(n)} for n in range(count)]
    memory.add_many(batch)
memory.close()
memory = open_memory(path, stm={"memory_limit": None})
memory.delete_all("bob")
def contents():
    return {entry.id: entry.content for entry in memory.recent("ann", 1_000)}
with open("/mnt/ballast", "wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(4096))
    except OSError:
        pass
for _ in range(2):
    try:
        memory.maintain()
    except StoreFull as problem:
        assert path in str(problem), problem
    assert contents() == kept
os.remove("/mnt/ballast")
memory.maintain()
assert contents() == kept
assert os.path.getsize(path) < 1_200_000, os.path.getsize(path)
"""
    run_python(script, before=_small_disk())


def test_creating_a_file_on_a_full_disk_names_the_file() -> None:
    script = """
from memory.errors import StoreError
with open("/mnt/ballast", "wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(4096))
    except OSError:
        pass
try:
    open_memory("/mnt/memory.db")
except StoreError as problem:
    assert "/mnt/memory.db" in str(problem), problem
assert os.listdir("/mnt") == ["ballast"], os.listdir("/mnt")
os.remove("/mnt/ballast")
with open_memory("/mnt/memory.db") as memory:
    memory.add("ann", "there is space again")
"""
    run_python(script, before=_small_disk())


# -- shared versions --------------------------------------------------------------------------


def _check_that_caches_follow_changes(memory: AgentMemorySystem) -> None:
    """Check that reads after every change return the new state, not a cached one."""
    memory.add("ann", "first", id="watched")
    for text in ("second", "third"):
        assert memory.get("ann", "watched") is not None
        memory.update("ann", "watched", content=text)
        assert memory.get("ann", "watched").content == text
    memory.force_transition_to_im(agent_id="ann")
    assert memory.get("ann", "watched").tier == "im"
    memory.delete("ann", "watched")
    assert memory.get("ann", "watched") is None


@pytest.mark.parametrize("size", [0, 1, 7, 4_096, 32_768, 100_000])
def test_random_bytes_in_the_versions_file_are_harmless(
    open_small: OpenMemory, sound: Path, size: int
) -> None:
    Path(f"{sound}-pulse").write_bytes(random.Random(size).randbytes(size))
    with open_small(path=sound) as memory:
        _check_that_caches_follow_changes(memory)
        _check_that_caches_follow_changes(open_small(path=sound))


def test_a_version_left_odd_by_a_killed_writer_is_harmless(open_small: OpenMemory, sound: Path) -> None:
    Path(f"{sound}-pulse").write_bytes(b"\x01\x02\x03\x04\x05\x06\x07\x08" * 4_096)  # odd: a killed writer
    with open_small(path=sound) as memory:
        assert memory.get("ann", "7") == memory.get("ann", "7")
        _check_that_caches_follow_changes(memory)


def test_a_versions_file_may_be_deleted_while_open(open_small: OpenMemory, sound: Path) -> None:
    with open_small(path=sound) as memory:
        memory.get("ann", "7")
        Path(f"{sound}-pulse").unlink()
        _check_that_caches_follow_changes(memory)
    with open_small(path=sound) as memory:
        _check_that_caches_follow_changes(memory)
        assert Path(f"{sound}-pulse").is_file()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A file in place of a database: the versions take over its permissions."""
    path = tmp_path / "memory.db"
    path.touch(0o640)
    return path


def test_the_end_of_one_change_keeps_the_mark_of_another(database: Path) -> None:
    one, other = SharedVersions(database), SharedVersions(database)
    one.begin(3)
    other.begin(3)
    mark = other.slots[3]
    one.end_all()
    assert other.slots[3] == mark
    other.end_all()
    assert one.slots[3] % 2 == 0
    assert one.slots[3] != 0


def test_every_change_leaves_a_new_version() -> None:
    """The end of another process's change may overwrite our mark while we commit."""
    versions = SharedVersions(None)
    versions.begin(3)
    late_end_of_another = 4_444
    versions.slots[3] = late_end_of_another
    versions.end_all()
    assert versions.slots[3] != late_end_of_another
    assert versions.slots[3] % 2 == 0


def test_opening_a_versions_file_again_keeps_its_versions(database: Path) -> None:
    one = SharedVersions(database)
    one.begin(5)
    one.end_all()
    other = SharedVersions(database)
    assert other.slots[5] == one.slots[5] != 0
    other.begin(5)
    assert one.slots[5] == other.slots[5]
    assert one.slots[5] % 2 == 1


def _interrupted_by(
    other: SharedVersions, versions: SharedVersions, step: int
) -> list[tuple[int, int]] | None:
    """Call `end_all`; another process makes a change before its n-th byte code. None if there is none."""
    left, traced = step, (SharedVersions.end_all.__code__, replace_pure.__code__)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code not in traced:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                other.begin(3)
                other.end_all()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        undisturbed = versions.end_all()
    finally:
        sys.settrace(before)
    return undisturbed if left <= 0 else None


def test_a_whole_change_of_another_process_does_not_pass_unnoticed(database: Path) -> None:
    one, other = SharedVersions(database), SharedVersions(database)
    step = steps_unnoticed = 0
    while True:
        step += 1
        one.begin(3)
        undisturbed = _interrupted_by(other, one, step)
        if undisturbed is None:
            break
        # Its version must differ from the one that we say that we have left.
        steps_unnoticed += (3, one.slots[3]) in undisturbed
    assert step > 5
    assert steps_unnoticed == 0
