"""Export and import are exact. A damaged file stores nothing; a repeated import adds nothing."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_embedder import DIMENSIONS, small_embedder

from memory import AgentMemorySystem, ManualClock
from memory._tiers.transitions import TransitionReport
from memory.errors import (
    ExportIncomplete,
    IdConflict,
    ImportDamaged,
    InvalidMemory,
    StoreClosed,
    StoreCorrupt,
    StoreReadOnly,
    TransferFailed,
)

Open = Callable[..., AgentMemorySystem]
TIERS = ("stm", "im", "ltm")
CONTENTS: list[Any] = [
    "text",
    "",
    {"a": [1, -0.0, {"b": None}], "end": True},
    [],
    2**70,
    "\ud800 \0 \n \u2028 é😀",
    "\ud83d\ude00",
    {"\udfff": "x", "é": 1e-300},
    1.0,
    True,
    None,
]


@pytest.fixture
def source(open_memory: Open, tmp_path: Path, clock: ManualClock) -> AgentMemorySystem:
    """Return a memory with two agents, all tiers, and all fields set."""
    memory = open_memory(path=tmp_path / "source.db", embedder=small_embedder())
    for number, content in enumerate(CONTENTS * 3):
        memory.add(
            "ann" if number % 4 else "bob",
            content,
            id=f"id {number}",
            kind=f"kind {number % 3}",
            tier=TIERS[number % 3],
            importance=number / 7,
            step=number - 5 if number % 2 else None,
            metadata={"n": number, "session": f"s{number % 2}"} if number % 5 else None,
            timestamp=1e9 / (number + 1) if number % 3 else None,
        )
        clock.advance(1.25)
    return memory


@pytest.fixture
def target(open_memory: Open, tmp_path: Path) -> AgentMemorySystem:
    return open_memory(path=tmp_path / "target.db", embedder=small_embedder())


def everything(memory: AgentMemorySystem) -> list[str]:
    return [
        repr(entry) for agent in sorted(memory.agents()) for entry in memory.retrieve_by_time_range(agent)
    ]


def memories_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of an export without the first and the last."""
    lines = path.read_bytes().split(b"\n")[1:-2]
    return [json.loads(line.decode("utf-8", "surrogatepass")) for line in lines]


def test_a_round_trip_is_exact(
    source: AgentMemorySystem, target: AgentMemorySystem, tmp_path: Path
) -> None:
    path = tmp_path / "all.jsonl"
    assert source.export_jsonl(path) == 33
    assert target.import_jsonl(path) == 33
    assert everything(target) == everything(source)
    assert target.get_memory_statistics()["tiers"] == source.get_memory_statistics()["tiers"]
    target.export_jsonl(tmp_path / "again.jsonl")
    one, two = memories_of(path), memories_of(tmp_path / "again.jsonl")
    assert len(one) == 33
    for first, second in zip(one, two, strict=True):
        for fields in (first, second):
            fields.pop("vector", None)
        assert first == second


def test_a_search_returns_the_same_after_an_import(
    source: AgentMemorySystem, target: AgentMemorySystem, tmp_path: Path
) -> None:
    source.export_jsonl(tmp_path / "all.jsonl")
    target.import_jsonl(tmp_path / "all.jsonl")
    for query in ("text", "november 2023", "kind", "session s1"):
        hits = [
            [
                (hit.id, round(hit.score, 3), hit.why.words, hit.tier)
                for hit in memory.search("ann", query, 40)
            ]
            for memory in (source, target)
        ]
        assert hits[0] == hits[1]
    assert [entry.id for entry in target.retrieve_by_attributes("ann", {"n": 7})] == ["id 7"]


def test_vectors_are_exported(source: AgentMemorySystem, target: AgentMemorySystem, tmp_path: Path) -> None:
    """Vectors passed by the caller, too: no embedder could compute them again."""
    rows = np.random.default_rng(1).standard_normal((9, DIMENSIONS))
    for number, row in enumerate(rows):
        source.add("vera", "all the same", id=str(number), vector=row, tier=TIERS[number % 3])
    source.export_jsonl(tmp_path / "vera.jsonl", "vera")
    target.import_jsonl(tmp_path / "vera.jsonl")
    for number, row in enumerate(rows):
        for memory in (source, target):
            hit = memory.retrieve_similar_states("vera", row, 1)[0]
            assert (hit.id, hit.tier) == (str(number), TIERS[number % 3])
            assert hit.score == pytest.approx(1.0, abs=0.01)


def test_an_import_does_not_make_memories_young_again(
    open_memory: Open, tmp_path: Path, clock: ManualClock
) -> None:
    old = open_memory(path=tmp_path / "old.db", embedder=small_embedder())
    old.add("ann", "old", id="old")
    clock.advance(60)
    new = open_memory(path=tmp_path / "new.db", embedder=small_embedder(), stm={"ttl_seconds": 100.0})
    new.add("ann", "already there", id="young")
    old.export_jsonl(tmp_path / "old.jsonl")
    new.import_jsonl(tmp_path / "old.jsonl")
    clock.advance(50)
    assert new.maintain() == TransitionReport(moved_to_im=1)
    assert new.exists("ann", "old", "im")
    assert new.exists("ann", "young", "stm")


def test_a_repeated_import_adds_nothing(
    source: AgentMemorySystem, target: AgentMemorySystem, tmp_path: Path
) -> None:
    path = tmp_path / "all.jsonl"
    source.export_jsonl(path)
    assert source.import_jsonl(path) == 0
    assert target.import_jsonl(path) == 33
    target.force_consolidation()
    before = everything(target)
    assert target.import_jsonl(path) == 0
    assert everything(target) == before
    target.delete("ann", "id 1")
    assert target.import_jsonl(path) == 1
    assert target.exists("ann", "id 1")


def test_one_agent_can_be_exported(
    source: AgentMemorySystem, target: AgentMemorySystem, tmp_path: Path
) -> None:
    assert source.export_jsonl(tmp_path / "bob.jsonl", "bob") == 9
    assert target.import_jsonl(tmp_path / "bob.jsonl") == 9
    assert target.agents() == ["bob"]
    assert [repr(entry) for entry in target.retrieve_by_time_range("bob")] == [
        repr(entry) for entry in source.retrieve_by_time_range("bob")
    ]
    assert source.export_jsonl(tmp_path / "nobody.jsonl", "nobody") == 0
    assert target.import_jsonl(tmp_path / "nobody.jsonl") == 0


def test_an_empty_memory_can_be_exported(
    target: AgentMemorySystem, source: AgentMemorySystem, tmp_path: Path
) -> None:
    assert target.export_jsonl(str(tmp_path / "empty.jsonl")) == 0
    assert source.import_jsonl(str(tmp_path / "empty.jsonl")) == 0


def test_more_memories_than_one_batch_are_imported(open_memory: Open, tmp_path: Path) -> None:
    one = open_memory(path=tmp_path / "one.db", embedder=small_embedder())
    ids = one.add_many([{"agent_id": f"agent {n % 3}", "content": f"memory {n}"} for n in range(2500)])
    one.export_jsonl(tmp_path / "many.jsonl")
    other = open_memory(path=":memory:", embedder=small_embedder())
    assert other.import_jsonl(tmp_path / "many.jsonl") == 2500
    assert everything(other) == everything(one)
    assert other.exists("agent 0", ids[0])


def test_the_export_of_compressed_memories_is_exact(open_memory: Open, tmp_path: Path) -> None:
    one = open_memory(path=tmp_path / "one.db", embedder=small_embedder())
    texts = [f"word{n % 50} word{n % 7} the end of {n}" for n in range(2000)]
    ids = one.add_many([{"agent_id": "ann", "content": text} for text in texts])
    one.maintain()
    one.force_consolidation()
    assert one.get_encoder("ltm").name == "centred"
    one.export_jsonl(tmp_path / "ltm.jsonl")
    other = open_memory(path=tmp_path / "other.db", embedder=small_embedder())
    assert other.import_jsonl(tmp_path / "ltm.jsonl") == 2000
    assert everything(other) == everything(one)
    assert other.get_memory_statistics()["tiers"]["ltm"] == 2000
    assert other.retrieve_similar_states("ann", texts[3], 1)[0].id == ids[3]


def test_another_embedder_embeds_the_memories_again(
    source: AgentMemorySystem, open_memory: Open, tmp_path: Path
) -> None:
    source.add("ann", "a purple giraffe", id="giraffe")
    source.export_jsonl(tmp_path / "all.jsonl")
    for number, embedder in enumerate((small_embedder(48, "other"), None, small_embedder(48))):
        other = open_memory(path=tmp_path / f"other {number}.db", embedder=embedder)
        assert other.import_jsonl(tmp_path / "all.jsonl") == 34
        assert everything(other) == everything(source)
        nearest = other.retrieve_similar_states("ann", "a purple giraffe", 1)[0]
        assert nearest.id == "giraffe"
        assert nearest.score == pytest.approx(1.0, abs=0.01)


# -- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def small_export(open_memory: Open, tmp_path: Path) -> bytes:
    memory = open_memory(path=tmp_path / "few.db", embedder=small_embedder(2))
    for number, tier in enumerate(TIERS):
        memory.add("ann", {"n": number, "é": "x\ny"}, id=f"id {number}", tier=tier, metadata={"m": 1})
    memory.export_jsonl(tmp_path / "few.jsonl")
    return (tmp_path / "few.jsonl").read_bytes()


def refused(target: AgentMemorySystem, path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(ImportDamaged) as caught:
        target.import_jsonl(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert target.get_memory_statistics()["total"] == 0
    return message


@pytest.fixture
def two_dimensions(open_memory: Open) -> AgentMemorySystem:
    return open_memory(path=":memory:", embedder=small_embedder(2))


def test_a_truncated_export_is_refused(
    two_dimensions: AgentMemorySystem, small_export: bytes, tmp_path: Path
) -> None:
    lines = small_export.splitlines(keepends=True)
    assert len(lines) == 5
    cuts = {sum(map(len, lines[:number])) for number in range(5)}
    cuts |= set(range(0, len(small_export) - 1, 7))
    for cut in sorted(cuts):
        refused(two_dimensions, tmp_path / "cut.jsonl", small_export[:cut])
    for missing in range(5):
        kept = b"".join(line for number, line in enumerate(lines) if number != missing)
        refused(two_dimensions, tmp_path / "cut.jsonl", kept)


def test_an_export_with_any_byte_changed_is_refused(
    two_dimensions: AgentMemorySystem, small_export: bytes, tmp_path: Path
) -> None:
    for place in range(len(small_export)):
        for change in (0x01, 0x80):
            damaged = bytearray(small_export)
            damaged[place] ^= change
            refused(two_dimensions, tmp_path / "changed.jsonl", bytes(damaged))
    (tmp_path / "changed.jsonl").write_bytes(small_export)
    assert two_dimensions.import_jsonl(tmp_path / "changed.jsonl") == 3


def test_moved_repeated_or_added_lines_are_refused(
    two_dimensions: AgentMemorySystem, small_export: bytes, tmp_path: Path
) -> None:
    lines = small_export.splitlines(keepends=True)
    path = tmp_path / "moved.jsonl"
    refused(two_dimensions, path, b"".join([lines[0], lines[2], lines[1], *lines[3:]]))
    refused(two_dimensions, path, b"".join([*lines[:2], *lines[1:]]))
    for garbage in (b"x", b"{}\n", b"\n", b" \n", lines[1], lines[-1], small_export, b"\0" * 100):
        refused(two_dimensions, path, small_export + garbage)
        refused(two_dimensions, path, garbage + small_export)


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[]\n",
        b"null",
        b"not json at all",
        b"\xff\xfe\x00\x00",
        b"\x00" * 1000,
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"format":"agentmemory","version":2,"embedder":"x"}\n{"end":true,"count":0,"sha256":""}\n',
        b'{"format":"agentmemory","version":1,"embedder":"x"}\n',
        b'{"end":true,"count":-1,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}\n',
        b'{"id": 1, "content": "of another program"}\n{"id": 2}\n',
    ],
    ids=lambda data: repr(data[:20]),
)
def test_a_file_of_another_format_is_refused(
    two_dimensions: AgentMemorySystem, tmp_path: Path, foreign: bytes
) -> None:
    assert "foreign.jsonl" in refused(two_dimensions, tmp_path / "foreign.jsonl", foreign)


def with_checksum(lines: list[dict[str, Any]]) -> bytes:
    """Return an export of any lines with the right checksum."""
    body = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    end = {"end": True, "count": len(lines) - 1, "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize(
    "change",
    [
        {"content": ...},
        {"agent_id": ...},
        {"stored_at": ...},
        {"vector": ...},
        {"vector": "no base 64!"},
        {"vector": "AAAA"},
        {"vector": 5},
        {"vector": None},
        {"agent_id": ""},
        {"agent_id": 5},
        {"tier": "attic"},
        {"importance": -1},
        {"importance": "much"},
        {"step": 1.5},
        {"metadata": [1]},
        {"created_at": "yesterday"},
        {"stored_at": "yesterday"},
        {"stored_at": None},
        {"stored_at": float("nan")},
        {"kind": ""},
        {"id": 7},
        {"dated": "maybe"},
    ],
    ids=repr,
)
def test_a_file_with_a_right_checksum_and_wrong_fields_is_refused(
    two_dimensions: AgentMemorySystem, small_export: bytes, tmp_path: Path, change: dict[str, Any]
) -> None:
    """Only another program can write such a file."""
    lines = [json.loads(line) for line in small_export.splitlines()[:-1]]
    for name, value in change.items():
        if value is ...:
            del lines[2][name]
        else:
            lines[2][name] = value
    path = tmp_path / "with_checksum.jsonl"
    path.write_bytes(with_checksum(lines))
    with pytest.raises((ImportDamaged, InvalidMemory)) as caught:
        two_dimensions.import_jsonl(path)
    assert len(str(caught.value).splitlines()) == 1
    assert two_dimensions.get_memory_statistics()["total"] == 0


def test_an_id_conflict_stores_nothing_of_the_file(open_memory: Open, tmp_path: Path) -> None:
    one = open_memory(path=tmp_path / "one.db", embedder=small_embedder())
    one.add_many([{"agent_id": "ann", "content": f"memory {n}", "id": str(n)} for n in range(1500)])
    one.export_jsonl(tmp_path / "one.jsonl")
    other = open_memory(path=":memory:", embedder=small_embedder())
    other.add("ann", "something else", id="1400")
    with pytest.raises(IdConflict, match="1400"):
        other.import_jsonl(tmp_path / "one.jsonl")
    assert other.get_memory_statistics()["total"] == 1


def test_a_failed_export_leaves_the_old_file_unchanged(source: AgentMemorySystem, tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    source.export_jsonl(path)
    before = path.read_bytes()
    source.close()
    with pytest.raises(StoreClosed):
        source.export_jsonl(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.glob("*.jsonl*")] == ["all.jsonl"], "a temporary file is left"


def test_a_missing_file_and_a_read_only_memory_raise_named_errors(
    source: AgentMemorySystem, open_memory: Open, tmp_path: Path
) -> None:
    with pytest.raises(TransferFailed, match=r"nothing\.jsonl"):
        source.import_jsonl(tmp_path / "nothing.jsonl")
    source.export_jsonl(tmp_path / "all.jsonl", "bob")
    reader = open_memory(path=tmp_path / "source.db", embedder=small_embedder(), read_only=True)
    assert reader.export_jsonl(tmp_path / "read.jsonl", "bob") == 9
    with pytest.raises(StoreReadOnly):
        reader.import_jsonl(tmp_path / "all.jsonl")


@pytest.mark.reads_the_file
def test_an_export_leaves_out_damaged_memories_and_says_so(open_memory: Open, tmp_path: Path) -> None:
    export = tmp_path / "export.jsonl"
    with open_memory(maintenance="manual") as memory:
        for number in range(6):
            memory.add("ann", f"note {number}", id=str(number))
    connection = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    connection.execute("UPDATE memories SET body = CAST(body || x'00' AS BLOB) WHERE id = '2'")
    connection.execute("UPDATE memories SET body = CAST(body AS TEXT) WHERE id = '4'")  # a wrong type
    connection.close()
    with open_memory(maintenance="manual") as memory:
        with pytest.raises(
            ExportIncomplete,
            match=r"has 4 memories, but not all of the memory: 2 problems.*memory '2' of agent 'ann'",
        ):
            memory.export_jsonl(export)
        assert memory.export_jsonl(tmp_path / "bob.jsonl", "bob") == 0
        for id_ in ("2", "4"):
            with pytest.raises(StoreCorrupt):
                memory.get("ann", id_)
    with open_memory(path=tmp_path / "other.db") as other:
        assert other.import_jsonl(export) == 4
        assert {entry.id for entry in other.recent("ann", 10)} == {"0", "1", "3", "5"}
