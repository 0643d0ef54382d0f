"""Memory and disk use of processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from memory.benchmarking.errors import InvalidResult, MissingDependency
from memory.benchmarking.measure.resources import (
    disk_bytes,
    give_back_free_memory,
    load_psutil,
    peak_rss_bytes,
    rss_bytes,
    traced_peak_bytes,
)

MEGABYTE = 1_000_000


def test_resident_memory_is_at_most_its_peak() -> None:
    assert (
        0 < rss_bytes() <= peak_rss_bytes() + 10 * MEGABYTE
    )  # the system updates the two at different times


def test_the_peak_includes_memory_that_was_freed() -> None:
    program = (
        "from memory.benchmarking.measure.resources import peak_rss_bytes, rss_bytes\n"
        "large = bytearray(b'x') * 100_000_000\n"
        "del large\n"
        "print(peak_rss_bytes() - rss_bytes())"
    )
    assert int(_run(program)) > 80 * MEGABYTE


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries can't be told")
def test_free_memory_of_the_allocator_can_be_returned() -> None:
    program = (
        "from memory.benchmarking.measure.resources import give_back_free_memory, rss_bytes\n"
        "blocks = [bytes(10_000) for _ in range(5_000)]\n"
        "del blocks[:-1]\n"  # the last block is on top of the heap, so the others stay with the process
        "before = rss_bytes()\n"
        "give_back_free_memory()\n"
        "print(before - rss_bytes())"
    )
    assert int(_run(program)) > 40 * MEGABYTE


def test_returning_free_memory_keeps_live_objects() -> None:
    kept = [bytes([number % 256]) * 10_000 for number in range(500)]
    give_back_free_memory()
    assert all(block == bytes([number % 256]) * 10_000 for number, block in enumerate(kept))


def test_a_small_process_does_not_report_the_peak_of_its_large_parent() -> None:
    child = "from memory.benchmarking.measure.resources import peak_rss_bytes; print(peak_rss_bytes())"
    program = (
        "import subprocess, sys\n"
        "large = bytearray(b'x') * 200_000_000\n"
        f"print(subprocess.check_output([sys.executable, '-c', {child!r}], text=True))"
    )
    assert int(_run(program)) < 150 * MEGABYTE


def _run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_the_size_on_disk_includes_all_subfolders(tmp_path: Path) -> None:
    assert disk_bytes(tmp_path) == 0
    (tmp_path / "one").write_bytes(b"x" * 1000)
    (tmp_path / "deeper" / "still").mkdir(parents=True)
    (tmp_path / "deeper" / "still" / ".hidden").write_bytes(b"x" * 234)
    assert disk_bytes(tmp_path) == 1234


def test_what_a_file_reserves_does_not_count(tmp_path: Path) -> None:
    with (tmp_path / "reserved").open("wb") as file:
        file.truncate(10 * MEGABYTE)
        file.seek(5 * MEGABYTE)
        file.write(b"x" * 100_000)
    assert 100_000 <= disk_bytes(tmp_path) <= 200_000


def test_a_file_with_two_names_counts_once_and_a_link_not_at_all(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "one").write_bytes(b"x" * 1000)
    os.link(inside / "one", inside / "same")
    (tmp_path / "outside").write_bytes(b"x" * 5000)
    (inside / "link").symlink_to(tmp_path / "outside")
    (inside / "circle").symlink_to(inside)
    (inside / "nowhere").symlink_to(tmp_path / "gone")
    assert disk_bytes(inside) == 1000


def test_a_file_that_is_deleted_meanwhile_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.db").write_bytes(b"x" * 1000)
    (tmp_path / "memory.db-wal").write_bytes(b"x" * 500)
    really = os.lstat

    def lstat(path: str) -> os.stat_result:
        if path.endswith("-wal") and os.path.exists(path):
            os.unlink(path)
        return really(path)

    monkeypatch.setattr(os, "lstat", lstat)
    assert disk_bytes(tmp_path) == 1000


def test_the_size_of_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidResult, match="not a folder"):
        disk_bytes(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidResult, match="not a folder"):
        disk_bytes(tmp_path / "file")


def test_the_traced_peak_is_the_most_allocated_at_once() -> None:
    def operation() -> None:
        for _ in range(5):
            bytearray(10 * MEGABYTE)

    assert 10 * MEGABYTE <= traced_peak_bytes(operation) < 12 * MEGABYTE
    assert traced_peak_bytes(lambda: None) < MEGABYTE


def test_tracing_is_left_on_or_off_as_before() -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        traced_peak_bytes(fail)
    assert not tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        kept = bytearray(20 * MEGABYTE)
        assert 10 * MEGABYTE <= traced_peak_bytes(lambda: bytearray(10 * MEGABYTE)) < 12 * MEGABYTE
        assert tracemalloc.is_tracing()
        assert len(kept) == 20 * MEGABYTE
    finally:
        tracemalloc.stop()


def test_without_psutil_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(MissingDependency, match=r"pip install 'agentmemory-tiers\[bench\]'"):
        load_psutil()
