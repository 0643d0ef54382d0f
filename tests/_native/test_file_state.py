"""`file_state` in the compiled core returns what the operating system says, like its twin."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memory._base.file_state import file_state, file_state_pure


@pytest.mark.parametrize("name", ["memory.db", "größe in °C.db"])
def test_both_ways_return_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"first")
    for moment in (0, 1_500_000_000_123_456_789, -1):
        os.utime(path, ns=(moment, moment))
        state = file_state(os.fsencode(path))
        assert state == file_state_pure(os.fsencode(path))
        assert state[2] == moment


def test_another_file_at_the_path_is_noticed(tmp_path: Path) -> None:
    path, other = tmp_path / "memory.db", tmp_path / "other.db"
    path.write_bytes(b"")
    other.write_bytes(b"")
    before = file_state(os.fsencode(path))
    other.replace(path)
    assert file_state(os.fsencode(path))[:2] != before[:2]


@pytest.mark.parametrize("read", [file_state, file_state_pure])
def test_a_missing_file_is_an_error(tmp_path: Path, read: object) -> None:
    assert callable(read)
    with pytest.raises(FileNotFoundError):
        read(os.fsencode(tmp_path / "missing.db"))
