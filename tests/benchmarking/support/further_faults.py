"""More targets with one fault each: with those of `faulty_targets`, every check has a fault to find.

`FURTHER` says which checks find which fault, as `FOUND_BY` does. scripts/faults.py runs all the others too.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from memory.benchmarking.targets.base import Found, Item, Settings
from memory.benchmarking.targets.sqlite_baseline import SQLiteBaselineTarget

_HAS = SQLiteBaselineTarget.capabilities


class NeverSyncs(SQLiteBaselineTarget):
    """Says that an acknowledged write survives a power failure, and does not wait for the disk."""

    name = "never-syncs"
    capabilities = replace(_HAS, durability="machine")


class Shared(SQLiteBaselineTarget):
    """Has no fault: threads and processes may share it. The control for those that derive from it."""

    name = "shared"
    capabilities = replace(_HAS, threads=True, processes=True)

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        with self._lock:
            return super().add(items, place)

    def get_one(self, agent_id: str, id: str) -> Any:
        with self._lock:
            return super().get_one(agent_id, id)

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        with self._lock:
            self._vectors.clear()  # another process may have written
            return super().search_vector(agent_id, vector, k, place)

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        with self._lock:
            return super().update(agent_id, id, content)

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        with self._lock:
            return super().delete(agent_id, ids)


class KeepsToItsThread(Shared):
    """Shows a memory only to the thread that wrote it last."""

    name = "keeps-to-its-thread"

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._writer: dict[str, int] = {}

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = super().add(items, place)
        self._writer.update(dict.fromkeys(ids, threading.get_ident()))
        return ids

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        self._writer[id] = threading.get_ident()
        return super().update(agent_id, id, content)

    def get_one(self, agent_id: str, id: str) -> Any:
        own = threading.get_ident()
        return super().get_one(agent_id, id) if self._writer.get(id, own) == own else None


class OneFile(SQLiteBaselineTarget):
    """Reads one JSON file when it is opened, and writes it anew at every write, without checksums."""

    name = "one-file"

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._db.close()
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute(
            "CREATE TABLE memories (number INTEGER PRIMARY KEY, agent TEXT, step INTEGER,"
            " importance REAL, metadata TEXT, content TEXT, vector BLOB)"
        )
        for file in folder.glob("baseline.db*"):
            file.unlink(missing_ok=True)
        self._file = folder / "memories.json"
        rows = json.loads(self._file.read_text()) if self._file.exists() else []
        for number, agent, content in rows:
            vector = self.embed([json.loads(content)])[0].tobytes()
            self._db.execute(
                "INSERT INTO memories (number, agent, content, vector) VALUES (?, ?, ?, ?)",
                (number, agent, content, vector),
            )

    def _write(self) -> None:
        rows = self._db.execute("SELECT number, agent, content FROM memories").fetchall()
        new = self._file.with_name(f"new-{os.getpid()}")
        new.write_text(json.dumps(rows))
        new.replace(self._file)

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = super().add(items, place)
        self._write()
        return ids

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        changed = super().update(agent_id, id, content)
        self._write()
        return changed

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        deleted = super().delete(agent_id, ids)
        self._write()
        return deleted

    def delete_all(self, agent_id: str) -> int:
        deleted = super().delete_all(agent_id)
        self._write()
        return deleted


class OverwritesOtherProcesses(OneFile):
    """Says that processes may share the file (modelcontextprotocol/servers #4797)."""

    name = "overwrites-other-processes"
    capabilities = replace(_HAS, processes=True)


class TrustsItsFile(OneFile):
    """Says that it notices damaged files, and does not look."""

    name = "trusts-its-file"
    capabilities = replace(_HAS, detects_damage=True)


class MovesIntoRam(SQLiteBaselineTarget):
    """Its second tier is in RAM until `close`."""

    name = "moves-into-ram"
    capabilities = replace(_HAS, transitions=True)

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._limit = settings.limits["stm"] if settings else None
        self._second: list[tuple[Any, ...]] = []

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = super().add(items, place)
        if self._limit is not None:
            newest = f"SELECT number FROM memories ORDER BY number DESC LIMIT {self._limit}"
            self._second += self._db.execute(f"SELECT * FROM memories WHERE number NOT IN ({newest})")
            self._db.execute(f"DELETE FROM memories WHERE number NOT IN ({newest})")
        return ids

    def close(self) -> None:
        self._db.executemany("INSERT INTO memories VALUES (?, ?, ?, ?, ?, ?, ?)", self._second)
        super().close()


class CutsNames(SQLiteBaselineTarget):
    """Keeps the first 255 characters of an agent's name."""

    name = "cuts-names"

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        return super().add([replace(item, agent_id=item.agent_id[:255]) for item in items], place)

    def get_one(self, agent_id: str, id: str) -> Any:
        return super().get_one(agent_id[:255], id)

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        return super().search_vector(agent_id[:255], vector, k, place)


class ObeysQueries(SQLiteBaselineTarget):
    """Takes the agent from the query, if it names one."""

    name = "obeys-queries"

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        named = str(query).removeprefix("agent_id: ")
        return super().search(agent_id if named == query else named, query, k, place)


class ClaimsToErase(SQLiteBaselineTarget):
    """Says that a delete erases, and leaves the text in free pages and in the log."""

    name = "claims-to-erase"
    capabilities = replace(_HAS, erasure="delete")

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._db.execute("PRAGMA secure_delete = OFF")  # Debian builds SQLite with it


class IgnoresUpdates(SQLiteBaselineTarget):
    """Acknowledges an update without making it."""

    name = "ignores-updates"

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        return self.get_one(agent_id, id) is not None


class KeepsOldVersions(SQLiteBaselineTarget):
    """Keeps the old content of every update, for ever."""

    name = "keeps-old-versions"

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        self._db.execute("CREATE TABLE IF NOT EXISTS history (content TEXT)")
        self._db.execute("INSERT INTO history VALUES (?)", (json.dumps(self.get_one(agent_id, id)),))
        return super().update(agent_id, id, content)


class HashesIds(SQLiteBaselineTarget):
    """An id is the hash of the content, so that equal contents are one memory."""

    name = "hashes-ids"

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids: list[str] = []
        for item in items:
            digest = hashlib.sha256(json.dumps([item.agent_id, item.content]).encode()).digest()
            number = int.from_bytes(digest[:7], "big")
            self._db.execute("DELETE FROM memories WHERE number = ?", (number,))
            self._numbers = itertools.count(number)
            ids += super().add([item], place)
        return ids


class DoublesCallerIds(SQLiteBaselineTarget):
    """Stores an id of the caller again, beside the first one."""

    name = "doubles-caller-ids"
    capabilities = replace(_HAS, caller_ids=True)

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._number_of: dict[str, str] = {}

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = super().add(items, place)
        self._number_of.update({item.id: id_ for item, id_ in zip(items, ids, strict=True) if item.id})
        return ids

    def get_one(self, agent_id: str, id: str) -> Any:
        return super().get_one(agent_id, self._number_of.get(id, id))


class RoundsNumbers(SQLiteBaselineTarget):
    """Reads large whole numbers as floats."""

    name = "rounds-numbers"

    def get_one(self, agent_id: str, id: str) -> Any:
        return _rounded(super().get_one(agent_id, id))


def _rounded(content: Any) -> Any:
    if isinstance(content, list):
        return [_rounded(one) for one in content]
    return float(content) if type(content) is int and abs(content) >= 2**53 else content


class ParsesTexts(SQLiteBaselineTarget):
    """Reads a text that looks like JSON as JSON."""

    name = "parses-texts"

    def get_one(self, agent_id: str, id: str) -> Any:
        content = super().get_one(agent_id, id)
        try:
            return json.loads(content)
        except (TypeError, ValueError):
            return content


class CutsTexts(SQLiteBaselineTarget):
    """Keeps the first 65,535 characters of a text."""

    name = "cuts-texts"

    def get_one(self, agent_id: str, id: str) -> Any:
        content = super().get_one(agent_id, id)
        return content[:65_535] if isinstance(content, str) else content


class FindsWithNaN(SQLiteBaselineTarget):
    """Takes NaN and infinity in a vector as numbers."""

    name = "finds-with-nan"

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        return super().search_vector(agent_id, np.nan_to_num(vector), k, place)


class FindsAtLeastOne(SQLiteBaselineTarget):
    """A search for no memories returns one."""

    name = "finds-at-least-one"

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        return super().search_vector(agent_id, vector, max(k, 1), place)


class UpdatesTheUnknown(SQLiteBaselineTarget):
    """Acknowledges the update of a memory that does not exist."""

    name = "updates-the-unknown"

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        super().update(agent_id, id, content)
        return True


class SwallowsWrongTypes(SQLiteBaselineTarget):
    """Deletes nothing, without an error, if the ids are no list."""

    name = "swallows-wrong-types"

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        return super().delete(agent_id, ids) if isinstance(ids, list) else 0


class WritesAfterClose(SQLiteBaselineTarget):
    """Acknowledges writes into a closed store."""

    name = "writes-after-close"

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        try:
            return super().add(items, place)
        except sqlite3.ProgrammingError:
            return [str(next(self._numbers)) for _ in items]


class IgnoresDiskErrors(SQLiteBaselineTarget):
    """Acknowledges writes that the disk refused."""

    name = "ignores-disk-errors"

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        try:
            super().open(folder, settings)
        except sqlite3.OperationalError:
            self._db = sqlite3.connect(
                f"file:{folder / 'baseline.db'}?immutable=1", uri=True, isolation_level=None
            )
            self._vectors, self._numbers = {}, itertools.count(1)

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        try:
            return super().add(items, place)
        except sqlite3.OperationalError:
            return [str(next(self._numbers)) for _ in items]


FURTHER = {
    "NeverSyncs": {"an_acknowledged_write_reaches_the_disk"},
    "Shared": set[str](),
    "KeepsToItsThread": {
        "another_thread_reads_it",
        "threads_lose_nothing",
        "the_last_write_wins_among_threads",
    },
    "OverwritesOtherProcesses": {
        "three_killed_processes_lose_nothing",
        "another_process_reads_it",
        "another_process_no_longer_sees_it",
        "processes_lose_nothing",
        "the_last_write_wins_among_processes",
    },
    "TrustsItsFile": {"damaged_files_are_not_served_as_truth"},
    "MovesIntoRam": {"a_kill_during_a_move_loses_nothing"},
    "CutsNames": {"long_names_stay_apart"},
    "ObeysQueries": {"contents_that_name_others_stay_apart"},
    "ClaimsToErase": {"deleted_text_is_erased_at_once", "deleted_text_is_erased_by_maintenance"},
    "IgnoresUpdates": {"a_killed_process_loses_nothing", "old_content_is_not_found"},
    "KeepsOldVersions": {"updates_do_not_fill_the_disk"},
    "HashesIds": {"no_id_is_used_twice"},
    "DoublesCallerIds": {"an_id_of_the_caller_is_stored_once"},
    "RoundsNumbers": {"any_number_is_read_back"},
    "ParsesTexts": {"any_json_is_read_back"},
    "CutsTexts": {"long_and_empty_texts_are_read_back"},
    "FindsWithNaN": {"wrong_vectors_are_refused"},
    "FindsAtLeastOne": {"odd_searches_are_answered"},
    "UpdatesTheUnknown": {"unknown_ids_are_no_error"},
    "SwallowsWrongTypes": {"wrong_types_are_refused"},
    "WritesAfterClose": {"a_closed_store_refuses_calls"},
    "IgnoresDiskErrors": {
        "a_full_disk_is_an_error_and_loses_nothing",
        "a_read_only_folder_refuses_writes",
    },
}
"""For each fault, the checks that must call a promise broken; all others must not."""
