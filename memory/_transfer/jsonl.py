"""Export and import memories as JSON lines: a header, one line for each memory, a checksum.

    {"format": "agentmemory", "version": 1, "embedder": "…"}
    {"agent_id": "ann", "id": "…", "tier": "stm", "content": …, "vector": "<base64 of float32>", …}
    {"end": true, "count": 2, "sha256": "<of all lines before>"}

The whole file is checked before the first memory is stored. Importing a file twice stores nothing new,
because the ids are the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from binascii import a2b_base64
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory._base.checks import check_timestamp
from memory._base.content import to_json_bytes
from memory._write.intake import NewMemory
from memory.entry import MemoryEntry
from memory.errors import AgentMemoryError, ImportDamaged, TransferFailed, short
from memory.storage import Row

_FORMAT = "agentmemory"
_VERSION = 1
_BATCH = 1000
"""Memories stored in one commit."""


@dataclass(frozen=True)
class Imported:
    """One memory of an export.

    `stored_at` is when the memory was first stored. `dated` says whether the caller chose its timestamp.
    """

    memory: NewMemory
    stored_at: float
    dated: bool

    def restored(self, row: Row) -> Row:
        """Return the row with its original `stored_at`: an import must not reset the memory's age."""
        return msgspec.structs.replace(row, stored_at=self.stored_at)


@contextmanager
def named_errors(path: object) -> Iterator[None]:
    """Raise TransferFailed, with the path, for an error of the file system."""
    try:
        yield
    except AgentMemoryError:
        raise
    except OSError as problem:
        raise TransferFailed(f"{path}: {problem.strerror or problem}") from None
    except ValueError as problem:
        if "null byte" not in str(problem) and "null character" not in str(problem):
            raise
        raise TransferFailed(f"{short(path)} can't be a path: {problem}") from None


def export_rows(
    path: Path,
    rows: Iterable[tuple[Row, MemoryEntry, NDArray[np.float32]]],
    *,
    embedder: str,
) -> int:
    """Write an export, complete or not at all. Return the number of memories."""
    if path.exists() and not path.is_file():
        raise TransferFailed(
            f"{path} is not a regular file, and an export would replace it: name another one"
        )
    draft = path.with_name(f"{path.name}.new-{os.getpid()}-{os.urandom(4).hex()}")
    checksum = hashlib.sha256()
    count = 0
    try:
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            for line in _lines(rows, embedder):
                checksum.update(line)
                file.write(line)
                count += 1
            end = {"end": True, "count": count - 1, "sha256": checksum.hexdigest()}
            file.write(_line(end))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return count - 1


def read_batches(path: Path, *, embedder: str) -> Iterator[list[Imported]]:
    """Check the whole file, then yield its memories.

    `embedder` is the name of the system's embedder. Vectors of another embedder are dropped, so that the
    memories are embedded again.
    """
    same_embedder = _check(path) == embedder
    batch: list[Imported] = []
    for line in _memory_lines(path):
        batch.append(_imported(line, same_embedder))
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _lines(rows: Iterable[tuple[Row, MemoryEntry, NDArray[np.float32]]], embedder: str) -> Iterator[bytes]:
    yield _line({"format": _FORMAT, "version": _VERSION, "embedder": embedder})
    for row, entry, vector in rows:
        fields = msgspec.structs.asdict(entry)
        fields["stored_at"] = row.stored_at
        fields["dated"] = row.dated
        fields["vector"] = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        yield _line(fields)


def _line(fields: dict[str, Any]) -> bytes:
    return to_json_bytes(fields) + b"\n"


def _check(path: Path) -> str:
    """Return the embedder of an export. Raise ImportDamaged if the file is incomplete or was changed."""
    checksum = hashlib.sha256()
    count = -1
    embedder = ""
    end: dict[str, Any] | None = None
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if end is not None:
                raise ImportDamaged(
                    f"{path} has text after its closing line, at line {number}: export it again"
                )
            if number == 1:
                embedder = _embedder_of(path, line)
            if line.startswith(b'{"end":true'):
                end = _parse(path, number, line)
                continue
            checksum.update(line)
            count += 1
    if end is None:
        raise ImportDamaged(f"{path} is cut short: it has no closing line; export it again")
    if end.get("count") != count or end.get("sha256") != checksum.hexdigest():
        raise ImportDamaged(f"{path} was changed: its checksum does not match; export it again")
    return embedder


def _embedder_of(path: Path, line: bytes) -> str:
    head = _parse(path, 1, line)
    if head.get("format") != _FORMAT:
        raise ImportDamaged(
            f"{path} is not an export of this package: use a file written by export_jsonl()"
        )
    if head.get("version") != _VERSION:
        raise ImportDamaged(
            f"{path} has version {head.get('version')!r}, this package reads {_VERSION}: upgrade it"
        )
    return str(head.get("embedder"))


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        fields = _parse_leniently(line)
    if not isinstance(fields, dict):
        raise ImportDamaged(f"{path} is damaged at line {number}: it is not a JSON object; export it again")
    return fields


def _parse_leniently(line: bytes) -> object:
    """Parse JSON with lone surrogates, NaN or Infinity, which only Python's own parser takes; slower."""
    try:
        return json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None


def _memory_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            fields = _parse(path, number, line)
            if number > 1 and "end" not in fields:
                yield fields


def _imported(fields: dict[str, Any], with_vector: bool) -> Imported:
    try:
        vector = None
        if with_vector:
            vector = np.frombuffer(a2b_base64(fields["vector"], strict_mode=True), "<f4")
        if not isinstance(fields["dated"], bool):
            raise ImportDamaged(
                f"a memory of the export has dated {short(fields['dated'])}; export it again"
            )
        memory = NewMemory(
            agent_id=fields["agent_id"],
            content=fields["content"],
            kind=fields["kind"],
            tier=fields["tier"],
            importance=fields["importance"],
            step=fields["step"],
            metadata=fields["metadata"],
            id=fields["id"],
            timestamp=check_timestamp("created_at", fields["created_at"]),
            vector=vector,
        )
        return Imported(memory, check_timestamp("stored_at", fields["stored_at"]), fields["dated"])
    except (KeyError, TypeError, ValueError) as problem:
        raise ImportDamaged(f"a memory of the export can't be read ({problem}); export it again") from None
