"""A damaged vector codec: the file opens, words are searched, vectors are made again, exports are whole."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem

OpenMemory = Callable[..., AgentMemorySystem]
COUNT = 120
TEXTS = [f"memory {n} of the {n * 7919}th {['garden', 'harbour', 'lantern'][n % 3]}" for n in range(COUNT)]
CODECS: dict[str, dict[str, Any]] = {
    "ltm": {"ltm": {"codec": "centred"}},
    "im": {"im": {"codec": "binary"}},
}


@pytest.fixture(params=CODECS)
def open_small(open_memory: OpenMemory, request: pytest.FixtureRequest) -> OpenMemory:
    """Open a memory in which one tier has a fitted codec."""
    settings = {"embedder": small_embedder(), "stm": {"memory_limit": None}, **CODECS[request.param]}
    return lambda **more: open_memory(**{**settings, **more})


@pytest.fixture
def damaged(open_small: OpenMemory, tmp_path: Path) -> Path:
    """A file whose memories all use a vector codec with one wrong bit."""
    with open_small() as memory:
        store_all(memory)
        memory.add("bob", "one more", id="more", tier="ltm")
    damage(tmp_path / "memory.db")
    return tmp_path / "memory.db"


def store_all(memory: AgentMemorySystem) -> None:
    memory.add_many({"agent_id": "ann", "content": text, "id": str(n)} for n, text in enumerate(TEXTS))
    memory.force_transition_to_im()
    memory._transitions.fit_codecs()
    if memory.config.im_config.codec == "int8":
        memory.force_transition_to_ltm()
    else:  # those that moved before the fit have another form
        for n in range(COUNT):
            assert memory.update("ann", str(n), importance=2.0)
    assert {row.vector_codec for row in memory._store.all_rows("ann")} <= fitted(memory)


def fitted(memory: AgentMemorySystem) -> set[int]:
    return {codec.number for codec in memory._store.codecs() if "vectors" in codec.purpose}


def damage(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    stored = "SELECT number, data FROM codecs WHERE purpose LIKE '%vectors%'"
    for number, data in connection.execute(stored).fetchall():
        wrong = bytearray(data)
        wrong[len(wrong) // 2] ^= 4
        connection.execute("UPDATE codecs SET data = ? WHERE number = ?", (bytes(wrong), number))
    connection.close()


def check_vectors(memory: AgentMemorySystem, at_least: float) -> None:
    """Check that the vector of each memory is similar to the vector of its content."""
    rows = list(memory._store.all_rows("ann"))
    vectors = memory._codecs.to_float32([(row.vector_codec, row.vector, row.fine) for row in rows])
    for row, vector in zip(rows, vectors, strict=True):
        assert np.dot(vector, unit(TEXTS[int(row.id)])) >= at_least


def unit(text: str) -> Any:
    (vector,) = small_embedder().embed([text])
    return vector / np.linalg.norm(vector)


def test_the_file_opens_and_words_are_found(open_small: OpenMemory, damaged: Path) -> None:
    for read_only in (True, False):
        memory = open_small(read_only=read_only)
        assert memory.search("ann", "memory 77")[0].id == "77"
        assert memory.get("ann", "77").content == TEXTS[77]
        report = memory.check()
        assert not report.ok
        assert "is damaged" in report.problems[0]
        memory.close()


def test_maintenance_fits_a_new_codec_though_all_samples_use_the_damaged_one(
    open_small: OpenMemory, damaged: Path
) -> None:
    memory = open_small()
    before = fitted(memory)
    memory.maintain()
    assert fitted(memory) - before, "there is a new codec"
    assert not fitted(memory) & before, "the damaged one is gone"
    assert {row.vector_codec for row in memory._store.all_rows("ann")} <= fitted(memory)
    check_vectors(memory, 0.6 if memory.config.im_config.codec == "binary" else 0.95)
    assert memory.retrieve_similar_states("ann", TEXTS[77], k=1)[0].id == "77"
    assert memory.check().ok
    memory.close()
    assert open_small().check().ok


def test_with_too_few_memories_for_a_new_codec_the_vectors_are_int8(
    open_memory: OpenMemory, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"embedder": small_embedder(), "stm": {"memory_limit": None}}
    with open_memory(**settings) as memory:
        store_all(memory)
        memory.delete_many("ann", [str(n) for n in range(40, COUNT)])
    damage(tmp_path / "memory.db")
    memory = open_memory(**settings)
    memory.maintain()
    check_vectors(memory, 0.99)
    assert memory.check().ok
    memory.add_many({"agent_id": "ann", "content": TEXTS[n], "id": str(n)} for n in range(40, COUNT))
    memory.force_consolidation()
    assert memory.get_encoder("ltm").name == "centred"
    check_vectors(memory, 0.95)


def test_another_configured_codec_takes_over_from_a_damaged_one(
    open_memory: OpenMemory, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"embedder": small_embedder(), "stm": {"memory_limit": None}}
    with open_memory(**settings) as memory:
        store_all(memory)
    damage(tmp_path / "memory.db")
    memory = open_memory(**settings, ltm={"codec": "int8"})
    memory.maintain()
    check_vectors(memory, 0.99)
    assert memory.check().ok


@pytest.mark.parametrize("read_only", [False, True])
def test_an_export_has_the_vectors_of_all_contents(
    open_small: OpenMemory, open_memory: OpenMemory, damaged: Path, tmp_path: Path, read_only: bool
) -> None:
    memory = open_small(read_only=read_only)
    assert memory.export_jsonl(tmp_path / "export.jsonl") == COUNT + 1
    for line in (tmp_path / "export.jsonl").read_text().splitlines()[1:-1]:
        fields = json.loads(line)
        vector = np.frombuffer(base64.b64decode(fields["vector"]), "<f4")
        assert np.dot(vector, unit(fields["content"])) > 0.99
    other = open_memory(path=tmp_path / "other.db", embedder=small_embedder())
    assert other.import_jsonl(tmp_path / "export.jsonl") == COUNT + 1
    assert other.retrieve_similar_states("ann", TEXTS[5], k=1)[0].id == "5"


def test_an_update_of_another_field_keeps_no_empty_vector(open_small: OpenMemory, damaged: Path) -> None:
    memory = open_small()
    assert memory.update("ann", "5", importance=3.0)
    assert memory.retrieve_similar_states("ann", TEXTS[5], k=1)[0].id == "5"
