"""Leftover logs, replaced and restored files, links in place of files, copies: nothing is mixed or lost."""

from __future__ import annotations

import logging
import math
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_embedder import small_embedder
from subprocesses import run_python, start_python

from memory import AgentMemorySystem, MemoryConfig
from memory.errors import (
    InvalidConfig,
    InvalidMemory,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreReplaced,
    TransferFailed,
)
from memory.storage._log_owner import has_foreign_log
from memory.storage.schema import PAGE_SIZE
from memory.storage.shared_versions import CHECK_SECONDS

OpenMemory = Callable[..., AgentMemorySystem]


@pytest.fixture
def open_small(open_memory: OpenMemory) -> OpenMemory:
    """`open_memory` with a fast embedder."""
    return lambda **settings: open_memory(**{"embedder": small_embedder(), **settings})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def ids_in(memory: AgentMemorySystem) -> list[str]:
    return sorted(entry.id for entry in memory.recent("ann", 1_000_000))


def crash(path: Path, *commands: str) -> None:
    """Run a process that stores memories as told, prints what it did, and dies with its log unread.

    "+a 10": store a0 … a9, one by one; "copy x": copy the database file alone to x; "check": checkpoint."""
    script = """
import shutil, signal
path = sys.argv[1]
memory = open_memory(path)
for command in sys.argv[2:]:
    verb, _, rest = command.partition(" ")
    if verb == "copy":
        shutil.copy(path, rest)
    elif verb == "check":
        memory._store._connections.fetch("PRAGMA wal_checkpoint(PASSIVE)")
    else:
        for number in range(int(rest)):
            memory.add("ann", f"{verb} {number} " + "x" * 300, id=f"{verb[1:]}{number}")
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start_python(script, path, *commands)
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == -9, complaints


# -- logs that do not belong to the file ------------------------------------------------------


def test_a_crash_loses_nothing_that_is_in_the_log(open_small: OpenMemory, path: Path) -> None:
    expected = []
    for number, commands in enumerate([["+a 30"], ["+b 30", "check", "+c 5"], ["check", "+d 1"], ["+e 1"]]):
        crash(path, *commands)
        expected += [f"{c[1]}{n}" for c in commands if c[0] == "+" for n in range(int(c[3:]))]
        with open_small(path=path) as memory:
            assert ids_in(memory) == sorted(expected), number
        assert not list(path.parent.glob("*.aside-*"))


def test_a_log_beside_a_deleted_file_is_not_read_into_a_new_one(
    open_small: OpenMemory, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crash(path, "+old 40")
    path.unlink()
    with caplog.at_level(logging.WARNING), open_small(path=path) as memory:
        assert ids_in(memory) == []
        memory.add("ann", "new", id="new")
    assert "memory.db-wal" in caplog.text
    with open_small(path=path) as memory:
        assert ids_in(memory) == ["new"]
    (log,) = path.parent.glob("memory.db-wal.aside-*")
    assert log.stat().st_size > 0


@pytest.mark.parametrize(
    "before_copy",
    [["+a 20"], ["+a 20", "check"], ["+a 20", "check", "+b 20"], ["+a 20", "check", "+b 20", "check"]],
)
@pytest.mark.parametrize(
    "after_copy",
    [["+y 15"], ["check", "+y 15"], ["+y 15", "check", "+z 15"], ["check", "+y 9", "check", "+z 9"]],
)
def test_a_restored_copy_and_a_newer_log_are_never_mixed(
    open_small: OpenMemory, path: Path, before_copy: list[str], after_copy: list[str]
) -> None:
    """The file has the state of the copy, or that of the log; never one that there has never been."""
    copy = path.with_name("copy.db")
    crash(path, *before_copy, f"copy {copy}", *after_copy)
    stored = [f"{c[1]}{n}" for c in [*before_copy, *after_copy] if c[0] == "+" for n in range(int(c[3:]))]
    path.unlink()
    shutil.copy(copy, path)
    with open_small(path=path) as memory:
        found = ids_in(memory)
        assert found in [sorted(stored[:count]) for count in range(len(stored) + 1)]
        assert memory.check().ok
        memory.add("ann", "after", id="zz-after")
    with open_small(path=path) as memory:
        assert ids_in(memory) == sorted([*found, "zz-after"])


def test_the_log_of_another_database_is_moved_aside(open_small: OpenMemory, path: Path) -> None:
    other = path.with_name("other.db")
    crash(other, "+other 30")
    with open_small(path=path) as memory:
        memory.add("ann", "mine", id="mine")
    shutil.move(f"{other}-wal", f"{path}-wal")
    with open_small(path=path) as memory:
        assert ids_in(memory) == ["mine"]
        assert memory.check().ok


@pytest.mark.parametrize("place", [0, 3, 8])
def test_a_damaged_page_of_the_settings_in_the_log_does_not_keep_the_file_from_opening(
    open_small: OpenMemory, path: Path, place: int
) -> None:
    crash(path, "+a 5")
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'settings'").fetchone()
    connection.close()
    log = Path(f"{path}-wal")
    content = bytearray(log.read_bytes())
    for start in range(32, len(content), 24 + PAGE_SIZE):
        if int.from_bytes(content[start : start + 4], "big") == page:
            content[start + 24 + place] = 0xFF
    log.write_bytes(content)
    with open_small(path=path) as memory:
        memory.add("ann", "after", id="after")
        assert "after" in ids_in(memory)


def test_a_log_that_another_process_truncates_meanwhile_is_not_foreign(path: Path) -> None:
    crash(path, "+a 5")
    log = Path(f"{path}-wal")

    class Truncating(type(path)):  # type: ignore[misc]
        """A path that is truncated between two reads, as a checkpoint of another process does."""

        def as_uri(self) -> str:
            os.truncate(log, 0)
            return super().as_uri()

    assert not has_foreign_log(Truncating(path))


def test_a_read_only_memory_refuses_a_foreign_log_and_leaves_it(open_small: OpenMemory, path: Path) -> None:
    crash(path.with_name("other.db"), "+other 30")
    with open_small(path=path) as memory:
        memory.add("ann", "mine", id="mine")
    for suffix in ("-wal", "-shm"):
        shutil.move(path.with_name(f"other.db{suffix}"), f"{path}{suffix}")
    with pytest.raises(StoreReadOnly, match="another file"):
        open_small(path=path, read_only=True)
    assert Path(f"{path}-wal").exists()


# -- backups ----------------------------------------------------------------------------------


def test_a_backup_taken_while_others_write_is_consistent(open_small: OpenMemory, path: Path) -> None:
    script = """
with open_memory(sys.argv[1]) as memory:
    print("ready", flush=True)
    number = 0
    while not os.path.exists(sys.argv[1] + ".stop"):
        pair = [{"agent_id": "ann", "content": f"pair {number}", "id": f"{number}{side}"} for side in "ab"]
        memory.add_many(pair)
        number += 1
"""
    memory = open_small(path=path)
    memory.add("ann", "first", id="first")
    with start_python(script, path) as writer:
        assert writer.stdout.readline() == "ready\n"
        for number in range(3):
            memory.backup(path.with_name("backup.db"))
            with open_small(path=path.with_name("backup.db")) as copy:
                found = ids_in(copy)
                assert "first" in found
                assert {id[:-1] + "b" for id in found if id.endswith("a")} <= set(found), number
                assert copy.check().ok
        Path(f"{path}.stop").touch()
        writer.communicate(timeout=60)
    assert stat.S_IMODE(path.with_name("backup.db").stat().st_mode) == 0o600


def test_a_backup_is_restored_beside_a_log_and_without_a_file(open_small: OpenMemory, path: Path) -> None:
    backup = path.with_name("backup.db")
    with open_small(path=path) as memory:
        memory.add("ann", "kept", id="kept")
        memory.backup(backup)
    crash(path, "+later 20")
    AgentMemorySystem.restore(backup, path)
    with open_small(path=path) as memory:
        assert ids_in(memory) == ["kept"]
        memory.add("ann", "new", id="new")
    assert list(path.parent.glob("memory.db-wal.aside-*"))
    assert list(path.parent.glob("memory.db.aside-*"))
    path.unlink()
    AgentMemorySystem.restore(backup, path)
    with open_small(path=path) as memory:
        assert ids_in(memory) == ["kept"]


def test_restoring_refuses_an_open_memory_and_a_damaged_backup(open_small: OpenMemory, path: Path) -> None:
    backup = path.with_name("backup.db")
    memory = open_small(path=path)
    memory.add("ann", "kept", id="kept")
    memory.backup(backup)
    with pytest.raises(StoreBusy, match="close it"):
        AgentMemorySystem.restore(backup, path)
    with pytest.raises(TransferFailed, match="in use"):
        memory.backup(path)
    memory.close()
    with start_python(
        "memory = open_memory(sys.argv[1]); memory.agents(); print('open', flush=True); sys.stdin.read()",
        path,
    ) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreBusy, match="close it"):
            AgentMemorySystem.restore(backup, path)
        other.communicate("", timeout=60)
    backup.write_bytes(b"not a database")
    with pytest.raises(StoreCorrupt):
        AgentMemorySystem.restore(backup, path)
    with pytest.raises(TransferFailed):
        AgentMemorySystem.restore("no\0path", path)
    assert ids_in(open_small(path=path)) == ["kept"]


def test_check_names_a_damaged_memory_and_counts_the_rest(open_small: OpenMemory, path: Path) -> None:
    with open_small(path=path) as memory:
        memory.add_many({"agent_id": "ann", "content": f"memory {n}", "id": str(n)} for n in range(30))
        report = memory.check()
        assert (report.ok, report.intact) == (True, 30)
        assert str(report) == "30 memories, nothing is damaged"
    connection = sqlite3.connect(path)
    connection.execute("UPDATE memories SET body = x'00ff00' WHERE id = '7'")
    connection.commit()
    connection.close()
    with open_small(path=path) as memory:
        report = memory.check()
        assert (report.ok, report.intact, len(report.problems)) == (False, 29, 1)
        assert "'7'" in report.problems[0]
        assert "29 memories are intact, 1 problems" in str(report)


def test_check_reports_a_versions_file_that_cannot_be_used(open_small: OpenMemory, path: Path) -> None:
    memory = open_small(path=path)
    memory.add("ann", "first", id="1")
    pulse = Path(f"{path}-pulse")
    pulse.write_bytes(os.urandom(pulse.stat().st_size))
    assert memory.check().ok, "any content of the file is valid"
    pulse.unlink()
    pulse.mkdir()
    report = memory.check()
    assert (report.ok, report.intact) == (False, 1)
    assert "memory.db-pulse can't be used" in report.problems[0]
    pulse.rmdir()
    assert memory.check().ok


@pytest.mark.parametrize("where", ["page", "salts", "checksum", "header"])
def test_a_damaged_log_is_kept_and_reported(
    open_small: OpenMemory, path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """SQLite reads a log up to its first wrong byte. It would drop the rest in silence."""
    crash(path, "+a 20")
    log = Path(f"{path}-wal")
    content = bytearray(log.read_bytes())
    frame = 32 + (24 + 4096) * 30
    content[{"page": frame + 500, "salts": frame + 9, "checksum": frame + 17, "header": 17}[where]] ^= 4
    log.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        memory = open_small(path=path)
    assert "memory.db-wal is damaged: its last" in caplog.text
    (copy,) = path.parent.glob("memory.db-wal.damaged-*")
    assert copy.read_bytes() == content
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    found = ids_in(memory)
    stored = [f"a{n}" for n in range(20)]
    assert found in [sorted(stored[:count]) for count in range(19)]
    report = memory.check()
    assert (report.ok, report.intact, len(report.problems)) == (False, len(found), 1)
    assert copy.name in report.problems[0]
    copy.unlink()
    assert memory.check().ok


def test_the_end_of_a_log_without_a_commit_is_not_damage(open_small: OpenMemory, path: Path) -> None:
    crash(path, "+a 20")
    log = Path(f"{path}-wal")
    with log.open("ab") as file:  # a commit of which the process wrote only a part
        file.write(log.read_bytes()[32 : 32 + 24 + 4096][:3000])
    with open_small(path=path) as memory:
        assert len(ids_in(memory)) == 20
        assert memory.check().ok


def test_a_read_only_memory_only_warns_of_a_damaged_log(
    open_small: OpenMemory, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crash(path, "+a 20")
    log = Path(f"{path}-wal")
    content = bytearray(log.read_bytes())
    content[50_000] ^= 1
    log.write_bytes(content)
    Path(f"{path}-shm").unlink()
    before = names_in(path.parent)
    with caplog.at_level(logging.WARNING), pytest.raises(StoreReadOnly):
        open_small(path=path, read_only=True)
    assert "is damaged: its last" in caplog.text
    assert names_in(path.parent) == before


# -- the file of the versions -----------------------------------------------------------------


def test_deleted_memories_are_not_served_after_the_versions_file_is_gone(
    open_small: OpenMemory, path: Path
) -> None:
    memory = open_small(path=path)
    memory.add_many({"agent_id": "ann", "content": f"memory {n}", "id": str(n)} for n in range(10))
    assert all(memory.get("ann", str(n)) for n in range(10))
    assert len(memory.search("ann", "memory")) == 10
    Path(f"{path}-pulse").unlink()
    run_python(
        "with open_memory(sys.argv[1]) as memory:\n    memory.delete_many('ann', list('0123456789'))", path
    )
    assert [memory.get("ann", str(n)) for n in range(10)] == [None] * 10
    assert memory.search("ann", "memory") == []
    memory.add("ann", "again", id="again")
    run_python("with open_memory(sys.argv[1]) as memory:\n    memory.delete('ann', 'again')", path)
    assert memory.get("ann", "again") is None


def test_a_truncated_versions_file_kills_nobody(path: Path) -> None:
    script = """
import time
memory = open_memory(sys.argv[1])
memory.add("ann", "first", id="1")
memory.get("ann", "1")
os.truncate(sys.argv[1] + "-pulse", 0)
time.sleep(float(sys.argv[2]))
assert memory.get("ann", "1").content == "first"
os.truncate(sys.argv[1] + "-pulse", 0)
memory.delete("ann", "1")
assert memory.get("ann", "1") is None
print("alive")
"""
    assert run_python(script, path, 2 * CHECK_SECONDS).strip() == "alive"


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_only_a_regular_file_is_used_for_the_versions(
    open_small: OpenMemory, path: Path, kind: str
) -> None:
    victim = path.with_name("victim")
    pulse = Path(f"{path}-pulse")
    open_small(path=path).close()
    pulse.unlink()
    if kind == "link":
        victim.write_text("precious")
    if "link" in kind:
        pulse.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(pulse)
    else:
        pulse.mkdir()
    with pytest.raises(StoreError, match=r"pulse|folder"):
        open_small(path=path)
    assert victim.read_text() == "precious" if kind == "link" else not victim.exists()


def test_closing_unmaps_the_versions(open_small: OpenMemory, path: Path) -> None:
    memory = open_small(path=path)
    memory.add("ann", "first", id="1")
    memory.get("ann", "1")
    memory.search("ann", "first")
    assert f"{path}-pulse" in Path("/proc/self/maps").read_text()
    memory.close()
    assert f"{path}-pulse" not in Path("/proc/self/maps").read_text()
    assert str(path) not in " ".join(os.readlink(f"/proc/self/fd/{n}") for n in _open_files())


def _open_files() -> list[str]:
    return [name for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")]


# -- reading only -----------------------------------------------------------------------------


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_read_only_memory_writes_nothing(open_small: OpenMemory, path: Path) -> None:
    with open_small(path=path) as memory:
        memory.add("ann", "first", id="1")
    Path(f"{path}-pulse").unlink()
    assert names_in(path.parent) == ["memory.db"]
    with open_small(path=path, read_only=True) as reader:
        assert reader.get("ann", "1").content == "first"
        assert reader.search("ann", "first")
        assert names_in(path.parent) == ["memory.db"]
        with open_small(path=path) as owner:
            owner.add("ann", "second", id="2")
            assert reader.get("ann", "2").content == "second"
            owner.delete("ann", "1")
            assert reader.get("ann", "1") is None
            assert [hit.id for hit in reader.search("ann", "first second")] == ["2"]
        assert reader.get("ann", "2").content == "second"
        with open_small(path=path) as owner:
            owner.add("ann", "third", id="3")
        assert reader.get("ann", "3").content == "third"


def test_a_read_only_memory_reads_the_log_of_a_crashed_owner(open_small: OpenMemory, path: Path) -> None:
    crash(path, "+a 10")
    before = names_in(path.parent)
    with open_small(path=path, read_only=True) as reader:
        assert len(ids_in(reader)) == 10
    assert names_in(path.parent) == before
    with open_small(path=path) as owner:
        owner.add("ann", "next")
        assert len(ids_in(owner)) == 11


# -- files that are deleted, replaced or full -------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "replaced", "moved"])
def test_a_write_after_the_file_is_gone_is_refused(open_small: OpenMemory, path: Path, how: str) -> None:
    memory = open_small(path=path)
    memory.add("ann", "first", id="1")
    if how == "replaced":
        memory.backup(path.with_name("other.db"))
        path.with_name("other.db").rename(path)
    elif how == "moved":
        path.rename(path.with_name("elsewhere.db"))
    else:
        path.unlink()
    for write in (
        lambda: memory.add("ann", "into nowhere"),
        lambda: memory.delete("ann", "1"),
        lambda: memory.update("ann", "1", importance=2.0),
    ):
        with pytest.raises(StoreReplaced, match="while it was open"):
            write()


def test_a_forked_child_does_not_use_cached_numbers_with_another_file(
    open_small: OpenMemory, path: Path
) -> None:
    with open_small(path=path.with_name("other.db")) as other:
        other.add("bob", "bob's", id="1")
        other.add("ann", "ann's", id="1")
    script = """
from memory.errors import StoreReplaced
path, other = sys.argv[1:]
memory = open_memory(path)
memory.add("ann", "first", id="1")
memory.get("ann", "1")
os.rename(other, path)
if os.fork() == 0:
    for act in (lambda: memory.add("ann", "ann's note"), lambda: memory.recent("ann")):
        try:
            act()
        except StoreReplaced:
            continue
        os._exit(1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
os._exit(0)  # closing would log that the read counts are not saved
"""
    assert run_python(script, path, path.with_name("other.db")).strip() == "0"
    with open_small(path=path) as memory:
        assert [entry.content for entry in memory.recent("bob")] == ["bob's"]


def test_new_files_and_folders_belong_to_their_owner_alone(open_small: OpenMemory, tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "memory.db"
    os.umask(before := os.umask(0o022))
    try:
        with open_small(path=path) as memory:
            memory.add("ann", "first")
            memory.export_jsonl(tmp_path / "export.jsonl")
            for file in (*path.parent.iterdir(), tmp_path / "export.jsonl"):
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    finally:
        os.umask(before)
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_versions_have_the_permissions_of_the_database(open_small: OpenMemory, path: Path) -> None:
    open_small(path=path).close()
    Path(f"{path}-pulse").unlink()
    path.chmod(0o660)
    with open_small(path=path):
        assert stat.S_IMODE(Path(f"{path}-pulse").stat().st_mode) == 0o660


def test_export_and_import_name_the_file_that_fails(open_small: OpenMemory, tmp_path: Path) -> None:
    memory = open_small()
    for act in (memory.export_jsonl, memory.import_jsonl, memory.backup):
        for path in (tmp_path, tmp_path / "no\0path", "/proc/nowhere/file"):
            with pytest.raises(TransferFailed) as caught:
                act(path)
            assert "\n" not in str(caught.value)
    with pytest.raises(TransferFailed, match="missing"):
        memory.import_jsonl(tmp_path / "missing.jsonl")
    # As root, a device was replaced by a file.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    memory.backup(tmp_path / "backup.db")
    for replace in (
        memory.export_jsonl,
        memory.backup,
        lambda path: AgentMemorySystem.restore(tmp_path / "backup.db", path),
    ):
        with pytest.raises(TransferFailed, match="not a regular file"):
            replace(pipe)
        assert pipe.is_fifo()
    with pytest.raises(InvalidConfig, match="db_path"):
        open_small(path="no\0path")


@pytest.mark.parametrize("time_given", [math.nan, math.inf, -math.inf, None, "now"])
def test_a_clock_without_a_finite_time_is_refused(path: Path, time_given: Any) -> None:
    class BrokenClock:
        def now(self) -> Any:
            return time_given

    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = str(path)
    memory = AgentMemorySystem(config, embedder=small_embedder(), clock=BrokenClock())
    with pytest.raises(InvalidMemory, match="clock"):
        memory.add("ann", "when?")
    with pytest.raises(InvalidMemory, match="clock"):
        memory.maintain()
    assert memory.agents() == []
    memory.close()
