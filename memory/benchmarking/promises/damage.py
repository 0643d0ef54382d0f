"""When the disk fails: full, read-only, or with flipped bytes. Silent wrong content is the worst answer."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory.benchmarking.promises.actor import ActorEnded, ActorFailed
from memory.benchmarking.promises.model import Outcome, check, judge, not_promised, not_tried, promise
from memory.benchmarking.promises.trial import ANN, Trial
from memory.benchmarking.targets.base import Item

_ROOM = 4_000_000
"""Bytes that the small disk has beyond an empty store."""
_MOST_WRITES = 20_000
_REMOUNT_SECONDS = 5.0
"""How long to try to make a file system read-only: a closed store may still have files open for a while."""
_LEAST_FLIPS = 6
"""So many in a slow system too, whatever time they take."""
_SEARCHES = 6
"""So many texts are searched for after each flip."""
_IN_RAM = "the system keeps nothing in files"


class _NoMount(Exception):
    """No file system can be mounted here."""


@contextmanager
def _small_disk(place: Path, size: int) -> Iterator[Path]:
    """Mount a small file system in RAM; it is gone afterwards."""
    place.mkdir()
    options = f"size={size},mode=0777"
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
        )
    except FileNotFoundError:
        raise _NoMount from None
    if done.returncode:
        raise _NoMount
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def _empty_store_bytes(trial: Trial) -> int:
    folder = trial.folder()
    target = trial.open(folder)
    target.add_one(Item(ANN, trial.text()))
    size = _allocated_bytes(folder)
    trial.close(target)
    return max(size, _allocated_bytes(folder))


def _allocated_bytes(folder: Path) -> int:
    """Return the bytes that the files take on the disk: a sparse file takes less than its size."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


with promise("a failing disk is noticed"):

    @check()
    def a_full_disk_is_an_error_and_loses_nothing(trial: Trial) -> Outcome:
        """Writes on a small file system until it is full; what was acknowledged must still be there."""
        if not (trial.capabilities.persistence and trial.capabilities.get):
            return not_promised(_IN_RAM)
        size = 2 * _empty_store_bytes(trial) + _ROOM
        try:
            with _small_disk(trial.scratch / "disk", size) as disk:
                return _fill(trial, disk / "store")
        except _NoMount:
            return not_tried("no small file system can be mounted here (it needs root)")

    @check()
    def a_read_only_folder_refuses_writes(trial: Trial) -> Outcome:
        """A write into a store on a read-only file system raises."""
        if not trial.capabilities.persistence:
            return not_promised(_IN_RAM)
        size = 2 * _empty_store_bytes(trial) + _ROOM
        try:
            with _small_disk(trial.scratch / "disk", size) as disk:
                return _write_read_only(trial, disk)
        except _NoMount:
            return not_tried("no small file system can be mounted here (it needs root)")

    @check({"quick": 300.0, "full": 3600.0}, promised=lambda has: has.detects_damage)
    def damaged_files_are_not_served_as_truth(trial: Trial) -> Outcome:
        """Bytes are flipped in the files of a closed store, which is then read, searched and counted."""
        if not (trial.capabilities.persistence and trial.capabilities.get):
            return not_promised(_IN_RAM)
        return _flip(trial, trial.size(12, 40, 200))


def _fill(trial: Trial, folder: Path) -> Outcome:
    folder.mkdir()
    acknowledged: list[tuple[str, str]] = []
    problem, crashed = "", False
    with trial.actor(folder) as writer:
        try:
            writer.call("open")
            while len(acknowledged) < _MOST_WRITES:
                batch = [(str(n), trial.text(40)) for n in range(20)]
                ids = writer.call("add", ANN, batch)
                acknowledged += [(id_, text) for id_, (_, text) in zip(ids, batch, strict=True)]
        except ActorFailed as raised:
            problem, crashed = str(raised), isinstance(raised, ActorEnded)
    lost = wrong = 0
    opened = ""
    # With room again, as after an administrator has cleaned up.
    subprocess.run(
        ["mount", "-o", "remount,size=2000m", str(folder.parent)], capture_output=True, check=False
    )
    with trial.actor(folder) as reader:
        try:
            reader.call("open")
            for start in range(0, len(acknowledged), 200):
                part = acknowledged[start : start + 200]
                contents = reader.call("get", ANN, [id_ for id_, _ in part])
                for content, (_, text) in zip(contents, part, strict=True):
                    lost += content is None
                    wrong += content is not None and content != text
        except ActorFailed as raised:
            opened = str(raised)
    if not problem and lost + wrong == 0:
        return not_tried(f"the small disk was not full after {len(acknowledged):,} memories")
    full = "no error" if not problem else f"the error was: {problem[:120]}"
    evidence = f"{len(acknowledged):,} memories acknowledged, {full}; {lost} lost, {wrong} wrong"
    if opened:
        evidence += f"; afterwards, with room again: {opened[:120]}"
    return judge(
        lost + wrong == 0 and not opened and bool(problem) and not crashed,
        evidence,
        {
            "acknowledged": len(acknowledged),
            "lost": lost,
            "wrong": wrong,
            "unusable": int(bool(opened)),
            "crashed": int(crashed),
        },
        (
            "target.add(items)   # until the disk is full",
            'target.get("ann", ids)   # expected: all acknowledged ones',
        ),
    )


def _write_read_only(trial: Trial, disk: Path) -> Outcome:
    folder = disk / "store"
    folder.mkdir()
    text = trial.text()
    target = trial.open(folder)
    (id_,) = target.add([Item(ANN, text)])
    trial.close(target)
    if not _make_read_only(disk):
        return not_tried("a file system can't be made read-only here, or the closed store still writes")
    said = "a write was acknowledged"
    reads = ""
    with trial.actor(folder) as actor:
        try:
            actor.call("open")
            if trial.capabilities.get:
                reads = (
                    "; reading works"
                    if actor.call("get", ANN, [id_]) == [text]
                    else "; reading gives nothing"
                )
            actor.call("add", ANN, [("new", trial.text())])
        except ActorFailed as raised:
            said = f"refused: {str(raised)[:120]}"
    accepted = said.startswith("a write")
    return judge(
        not accepted,
        said + reads,
        {"accepted": int(accepted)},
        (
            "# the folder is on a read-only file system",
            'target.add_one(Item("ann", "a text"))   # expected: an error',
        ),
    )


def _make_read_only(disk: Path) -> bool:
    """Return whether it worked. It fails while a thread of the system has a file open for writing."""
    deadline = time.monotonic() + _REMOUNT_SECONDS
    while True:
        done = subprocess.run(["mount", "-o", "remount,ro", str(disk)], capture_output=True, check=False)
        if not done.returncode or time.monotonic() > deadline:
            return not done.returncode
        time.sleep(0.1)


def _flip(trial: Trial, flips: int) -> Outcome:
    whole = trial.folder()
    target = trial.open(whole)
    texts = [trial.text() for _ in range(trial.size(60, 100, 200))]
    ids = trial.store(target, ANN, texts)
    target.maintain()
    trial.close(target)
    intact = _answers(trial, whole, ids, texts)
    counts = {"correct": 0, "clear_error": 0, "silent_wrong": 0, "silent_missing": 0, "hung_or_crashed": 0}
    first, code = "", list[str]()
    for number in range(flips):
        if number >= _LEAST_FLIPS and not trial.has_time():
            break
        copy = trial.scratch / f"damaged-{number}"
        shutil.copytree(whole, copy)
        file, place, bits = _flip_one_byte(copy, trial.random)
        answer = _judge_damaged(trial, copy, ids, texts, intact)
        counts[answer] += 1
        if answer not in ("correct", "clear_error") and not first:
            first = f"{answer.replace('_', ' ')} after a flip in {file}"
            code = [
                f"file = folder / {file!r}   # the store is closed",
                "data = bytearray(file.read_bytes())",
                f"data[{place}] ^= {bits}",
                "file.write_bytes(data)",
            ]
        shutil.rmtree(copy, ignore_errors=True)
    flips = sum(counts.values())
    evidence = (
        f"{flips} flipped bytes: {counts['correct']} without effect, {counts['clear_error']} clear errors, "
        f"{counts['silent_wrong']} silently wrong, {counts['silent_missing']} silently missing, "
        f"{counts['hung_or_crashed']} hung or crashed" + (f" (first: {first})" if first else "")
    )
    harm = counts["silent_wrong"] + counts["silent_missing"] + counts["hung_or_crashed"]
    return judge(
        harm == 0,
        evidence,
        {"flips": flips, **counts},
        [*code, "target.open(folder)", "# get, search, count: expected the truth, or an error"],
    )


def _flip_one_byte(folder: Path, rng: random.Random) -> tuple[str, int, int]:
    """Change one bit of a random byte of all files of a store; return the file, the place and the bit."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.stat().st_size]
    file = rng.choices(files, [file.stat().st_size for file in files])[0]
    place = rng.randrange(file.stat().st_size)
    with open(file, "r+b") as opened:
        opened.seek(place)
        old = opened.read(1)[0]
        opened.seek(place)
        bit = 1 << rng.randrange(8)
        opened.write(bytes([old ^ bit]))
        opened.flush()
        os.fsync(opened.fileno())
    return file.relative_to(folder).as_posix(), place, bit


@dataclass
class _Answers:
    """What a store answered; `...` stands for an error."""

    contents: list[Any]
    """Of each memory, by its id."""
    hits: list[Any]
    """Of searches for some of the texts: the contents of the hits."""
    count: Any

    def all(self) -> list[Any]:
        return [*self.contents, *self.hits, self.count]


def _answers(trial: Trial, folder: Path, ids: list[str], texts: list[str]) -> _Answers:
    """Read a store in every way that a target has. Raises ActorFailed if it can't be opened."""
    with trial.actor(folder) as reader:
        reader.call("open")

        def ask(*call: Any) -> Any:
            try:
                return reader.call(*call)
            except ActorEnded:
                raise
            except ActorFailed:
                return ...

        contents = [... if (found := ask("get", ANN, [id_])) is ... else found[0] for id_ in ids]
        searched = texts[:: max(len(texts) // _SEARCHES, 1)]
        hits = [... if (found := ask("search", ANN, text, 5)) is ... else found for text in searched]
        return _Answers(
            contents,
            [answer if answer is ... else [content for _, content in answer] for answer in hits],
            ask("count"),
        )


def _judge_damaged(trial: Trial, folder: Path, ids: list[str], texts: list[str], intact: _Answers) -> str:
    """Compare the answers of a damaged store with the texts, and with the answers of the intact store."""
    try:
        damaged = _answers(trial, folder, ids, texts)
    except ActorEnded:
        return "hung_or_crashed"
    except ActorFailed:
        return "clear_error"
    known = set(texts)
    returned = [
        *damaged.contents,
        *(content for hits in damaged.hits if hits is not ... for content in hits),
    ]
    if any(content not in (None, ...) and content not in known for content in returned):
        return "silent_wrong"
    pairs = zip(damaged.contents, texts, strict=True)
    if any(content not in (text, None, ...) for content, text in pairs):
        return "silent_wrong"
    if None in damaged.contents or _lacks_hits(intact, damaged, texts) or _lacks_count(intact, damaged):
        return "silent_missing"
    return "clear_error" if ... in damaged.all() and ... not in intact.all() else "correct"


def _lacks_hits(intact: _Answers, damaged: _Answers, texts: list[str]) -> bool:
    """Return whether a text that a search of the intact store found is missing."""
    searched = texts[:: max(len(texts) // _SEARCHES, 1)]
    return any(
        before is not ... and after is not ... and text in before and text not in after
        for text, before, after in zip(searched, intact.hits, damaged.hits, strict=True)
    )


def _lacks_count(intact: _Answers, damaged: _Answers) -> bool:
    return intact.count is not ... and damaged.count is not ... and damaged.count < intact.count
