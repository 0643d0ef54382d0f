"""Detects a damaged log that a killed process left.

SQLite reads a log up to the first frame whose checksum is wrong, and takes the rest for a commit that was
never completed. If a byte of the log was changed, it silently drops all commits after that byte. So this
module verifies the log before SQLite opens it (https://sqlite.org/fileformat2.html#the_write_ahead_log). A
commit beyond the first wrong frame was complete once: it is lost. Then a copy of the log is kept, a warning
says so, and `check()` reports the copy.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memory.storage._log_owner import is_locked_elsewhere
from memory.storage._new_files import like_file, new_file
from memory.storage.schema import PAGE_SIZE

_log = logging.getLogger(__name__)

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_BIG_ENDIAN_MAGIC = 0x377F0683
_MAGIC = 0x377F0682
_FRAMES_AT_ONCE = 256
_SAME_SALT_BYTES = 6
"""The salts of a frame are 8 bytes. Frames of an earlier log have other salts. A frame with one wrong byte
in its salts still has the other seven."""
_SUFFIX = "-wal.damaged-"


def keep_damaged_log(path: Path, *, read_only: bool) -> None:
    """Warn if commits in the log are lost, and keep a copy of the log unless `read_only`.

    The caller makes sure that this process does not have the file open."""
    log = Path(f"{path}-wal")
    lost = _lost_commits(log)
    # Another process may be writing the log just now. That process has checked it.
    if not lost or is_locked_elsewhere(path) or _lost_commits(log) != lost:
        return
    if read_only:
        _log.warning("%s is damaged: its last %d commits are lost", log, lost)
        return
    copy = Path(f"{path}{_SUFFIX}{os.urandom(4).hex()}")
    try:
        with new_file(copy) as draft:
            shutil.copyfile(log, draft)
            like_file(draft, path)
        kept = f"a copy is kept as {copy}"
    except OSError as problem:
        kept = f"no copy could be kept ({problem.strerror})"
    _log.warning("%s is damaged: its last %d commits are lost; %s", log, lost, kept)


def damaged_logs(path: Path) -> list[Path]:
    """Return the copies of damaged logs that are kept beside a database."""
    return sorted(path.parent.glob(f"{_escaped(path.name)}{_SUFFIX}*"))


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _lost_commits(log: Path) -> int:
    """Return how many commits of a log come after its first wrong byte."""
    try:
        with log.open("rb") as file:
            header = file.read(_HEADER_BYTES)
            if len(header) < _HEADER_BYTES:
                return 0
            magic, _, page_size, _ = struct.unpack(">IIII", header[:16])
            words = ">u4" if magic == _BIG_ENDIAN_MAGIC else "<u4"
            state = _checksum(np.frombuffer(header[:24], words).astype(np.uint32).reshape(1, -1))[0]
            is_valid = magic in (_MAGIC, _BIG_ENDIAN_MAGIC) and state == struct.unpack(">II", header[24:])
            if not is_valid:
                page_size = PAGE_SIZE
            length = _FRAME_HEADER_BYTES + page_size
            lost = 0
            while data := file.read(length * _FRAMES_AT_ONCE):
                frames = np.frombuffer(data, np.uint8)[: len(data) // length * length].reshape(-1, length)
                is_commit = frames[:, 4:8].any(axis=1)
                is_own = (frames[:, 8:16] == np.frombuffer(header[16:24], np.uint8)).sum(axis=1)
                first = 0
                if is_valid:
                    first, state = _valid_frames(frames, words, state, header[16:24])
                    is_valid = first == len(frames)
                lost += int((is_commit & (is_own >= _SAME_SALT_BYTES))[first:].sum())
            return lost
    except OSError:
        return 0


def _valid_frames(
    frames: NDArray[np.uint8], words: str, state: tuple[int, int], salts: bytes
) -> tuple[int, tuple[int, int]]:
    """Return how many of the frames are valid, and the checksum after them."""
    covered = np.concatenate([frames[:, :8], frames[:, _FRAME_HEADER_BYTES:]], axis=1)
    sums = _checksum(np.ascontiguousarray(covered).view(words).astype(np.uint32))
    stored = np.ascontiguousarray(frames[:, 16:24]).view(">u4").tolist()
    has_salts = (frames[:, 8:16] == np.frombuffer(salts, np.uint8)).all(axis=1).tolist()
    advance = _powers(covered.shape[1] // 8 + 1)[-1].tolist()
    for number, own in enumerate(sums):
        after = _add(_times(advance, state), own)
        if not has_salts[number] or list(after) != stored[number]:
            return number, state
        state = after
    return len(frames), state


def _checksum(values: NDArray[np.uint32]) -> list[tuple[int, int]]:
    """Return SQLite's checksum of each row of words, from the state (0, 0).

    For each pair of words x, y the state (s, t) becomes (s + t + x, s + 2t + x + y) modulo 2^32. So the
    last state is a sum of matrix powers times the words."""
    x, y = values[:, 0::2], values[:, 0::2] + values[:, 1::2]
    powers = _powers(x.shape[1])[::-1]
    s = (x * powers[:, 0, 0] + y * powers[:, 0, 1]).sum(axis=1, dtype=np.uint32)
    t = (x * powers[:, 1, 0] + y * powers[:, 1, 1]).sum(axis=1, dtype=np.uint32)
    return list(zip(s.tolist(), t.tolist(), strict=True))


@lru_cache(maxsize=4)
def _powers(count: int) -> NDArray[np.uint32]:
    """Return the matrix [[1, 1], [1, 2]] to the powers 0, 1, 2 …, modulo 2^32."""
    powers = np.empty((count, 2, 2), np.uint32)
    a, b, d = 1, 0, 1  # the matrix is symmetric
    for number in range(count):
        powers[number] = [[a, b], [b, d]]
        a, b, d = (a + b) & 0xFFFFFFFF, (b + d) & 0xFFFFFFFF, (b + 2 * d) & 0xFFFFFFFF
    return powers


def _times(matrix: list[list[int]], state: tuple[int, int]) -> tuple[int, int]:
    (a, b), (c, d) = matrix
    return a * state[0] + b * state[1], c * state[0] + d * state[1]


def _add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return (one[0] + other[0]) & 0xFFFFFFFF, (one[1] + other[1]) & 0xFFFFFFFF
