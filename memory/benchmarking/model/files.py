"""The files of a run: written atomically, and read with clear errors for damaged ones.

`records.py` describes what is in the files.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from memory.benchmarking.errors import DamagedResult, ResultNotSaved, UnknownName, nearest
from memory.benchmarking.model.records import FORMAT, Result, Round, Run

DEFAULT_FOLDER = "benchmark_results"
"""The folder of results if the user names none."""
RUN_FILE = "run.json"
ROUNDS = "rounds"
LOGS = "logs"
LOCK_FILE = ".lock"
"""In a run's folder; locked by the process that executes the run."""
SCRATCH = ".scratch"
"""Beside the runs; has a folder for each round in progress."""
_RESULT_NAME = re.compile(r"(?P<benchmark>.+?)_(?P<timestamp>\d{8}_\d{6})(?:_(?P<rest>.+))?\.json")
_NUMBERS = re.compile(rb"\[\n\s+[-+.\deE]+(?:,\n\s+[-+.\deE]+)*\n\s+\]")
"""A JSON list of numbers over several lines. It can't match inside a text: those have no line breaks."""
_Record = TypeVar("_Record", Result, Run)


@dataclass(frozen=True, order=True)
class ResultFile(os.PathLike[str]):
    """The path of one result, and what can be read from it."""

    timestamp: str
    path: Path
    category: str
    benchmark: str
    run_id: str = ""
    """Empty for a result that was saved outside of a run."""

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


def timestamp_now() -> str:
    """Return the local time in the specification's form: 20250323_145623."""
    return time.strftime("%Y%m%d_%H%M%S")


# -- writing ----------------------------------------------------------------------------------


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader sees the old one or the new one, also after a crash."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        _write_durably(scratch, data)
        os.replace(scratch, path)
    except OSError as problem:
        scratch.unlink(missing_ok=True)
        raise ResultNotSaved(f"{path} can't be written: {problem.strerror or problem}") from problem


def write_new(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    """Write a file under a free name: `stem`, else `stem_2`, `stem_3` and so on; return its path."""
    scratch = folder / f".{stem}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        _write_durably(scratch, data)
        for number in range(1, 1_000_000):
            path = folder / f"{stem}{'' if number == 1 else f'_{number}'}{suffix}"
            try:
                os.link(scratch, path)  # unlike a rename, it fails if another process took the name
            except FileExistsError:
                continue
            return path
        raise ResultNotSaved(f"{folder / stem}{suffix}: there are already a million files of that name")
    except OSError as problem:
        raise ResultNotSaved(f"{folder} can't be written to: {problem.strerror or problem}") from problem
    finally:
        scratch.unlink(missing_ok=True)


def _write_durably(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def encode_json(record: object) -> bytes:
    """Return JSON that a person can read: indented, lists of numbers on one line."""
    try:
        text = msgspec.json.format(msgspec.json.encode(record), indent=1)
        return _NUMBERS.sub(lambda match: b" ".join(match[0].split()), text) + b"\n"
    except (TypeError, ValueError) as problem:
        raise ResultNotSaved(f"the results can't be written as JSON: {problem}") from problem


def new_run_folder(output_dir: Path) -> Path:
    """Make an empty folder whose name is the run's id; ids sort by time."""
    for _ in range(100):
        folder = output_dir / f"{timestamp_now()}_{secrets.token_hex(2)}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as problem:
            raise ResultNotSaved(f"{folder} can't be created: {problem.strerror or problem}") from problem
        return folder
    raise ResultNotSaved(f"{output_dir} has no free name for a run: try again")


def write_run(folder: Path, run: Run) -> None:
    write_whole(folder / RUN_FILE, encode_json(run))


def write_samples(path: Path, rounds: Iterable[Round]) -> None:
    """Write every sample of every round to a compressed NumPy file, with arrays named `round/path/what`."""
    what = ("wall_ns", "block_samples", "block_wall_ns", "block_cpu_ns")
    data = compressed_arrays({str(one.number): one for one in rounds}, what)
    if data:
        write_whole(path, data)


def compressed_arrays(rounds: Mapping[str, Round], what: Iterable[str]) -> bytes:
    """Return a NumPy file with these fields of all samples; empty without timings.

    Arrays are named `key/path/what`, with the key of the round in `rounds`.
    """
    import io

    import numpy as np

    what, arrays = tuple(what), {}
    for key, one in rounds.items():
        for timing, samples in one.samples.items():
            for name in what:
                arrays[f"{key}/{timing}/{name}"] = np.frombuffer(getattr(samples, name), "<i8")
            calls_and_work = np.array([samples.calls_per_sample, samples.work], "<i8")
            arrays[f"{key}/{timing}/calls_and_work"] = calls_and_work
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue() if arrays else b""


def read_times(path: Path, timings: Collection[str]) -> dict[str, list[tuple[int, Any]]]:
    """Read the samples of these timings: for each round, the calls a sample and the nanoseconds of each.

    The rest of the file, which may be large, is not read.
    """
    import numpy as np

    times: dict[str, list[tuple[int, Any]]] = {}
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            for name in arrays.files:
                rest, _, what = name.rpartition("/")
                timing = rest.partition("/")[2]
                if what == "wall_ns" and timing in timings:
                    calls = int(arrays[f"{rest}/calls_and_work"][0])
                    times.setdefault(timing, []).append((calls, arrays[name]))
    except FileNotFoundError:
        raise
    except Exception as problem:
        raise DamagedResult(f"{path} is damaged: {problem}") from problem
    return times


# -- reading ----------------------------------------------------------------------------------


def read_result(path: Path | os.PathLike[str]) -> Result:
    return _read(Path(path), Result)


def read_run(folder: Path) -> Run:
    return _read(folder / RUN_FILE, Run)


def _read(path: Path, kind: type[_Record]) -> _Record:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise UnknownName(f"there is no file {path}") from None
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except msgspec.MsgspecError as problem:
        raise DamagedResult(f"{path} is damaged or not a result file: {problem}") from problem
    if record.format > FORMAT:
        raise DamagedResult(f"{path} has format {record.format}: install a newer version to read it")
    return record


def run_folders(output_dir: Path) -> list[Path]:
    """Return all runs in a folder, the oldest first; the folder itself if it is a run."""
    if (output_dir / RUN_FILE).is_file():
        return [output_dir]
    try:
        with os.scandir(output_dir) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise UnknownName(f"{output_dir} can't be read: {problem.strerror or problem}") from problem
    return [output_dir / name for name in names if (output_dir / name / RUN_FILE).is_file()]


def find_run(output_dir: Path, run_id: str) -> Path:
    """Return a run's folder by its id, a unique part of it, `latest`, or the folder's path."""
    if (Path(run_id) / RUN_FILE).is_file():
        return Path(run_id)
    folders = run_folders(output_dir)
    names = [folder.name for folder in folders]
    if run_id == "latest" and folders:
        return folders[-1]
    matches = [folder for folder in folders if run_id in folder.name]
    exact = [folder for folder in matches if folder.name == run_id]
    if len(exact) == 1 or len(matches) == 1:
        return (exact or matches)[0]
    if matches:
        names = [folder.name for folder in matches[:5]]
        raise UnknownName(f"{run_id!r} fits {len(matches)} runs: {', '.join(names)}")
    hint = nearest(run_id, names[-5:]) if names else "there are no runs yet"
    raise UnknownName(f"there is no run {run_id!r} in {output_dir}: {hint}")


def result_files(output_dir: Path) -> Iterator[ResultFile]:
    """Yield all results in a folder, of runs and saved outside of runs, without opening the files."""
    if (output_dir / RUN_FILE).is_file():
        yield from _results_in(output_dir, output_dir.name)
        return
    for folder in _folders(output_dir):
        if (folder / RUN_FILE).is_file():
            yield from _results_in(folder, folder.name)
        else:
            yield from _results_of_category(folder, "")


def _results_in(run: Path, run_id: str) -> Iterator[ResultFile]:
    for category in _folders(run):
        if category.name not in (ROUNDS, LOGS):
            yield from _results_of_category(category, run_id)


def _results_of_category(category: Path, run_id: str) -> Iterator[ResultFile]:
    with os.scandir(category) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        parts = _RESULT_NAME.fullmatch(name)
        if parts and not name.startswith("."):
            yield ResultFile(parts["timestamp"], category / name, category.name, parts["benchmark"], run_id)


def _folders(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            names = sorted(
                entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
            )
    except FileNotFoundError:
        return []
    return [parent / name for name in names]


def samples_path(result: Path) -> Path:
    """Return the path of a result's raw samples."""
    return result.with_suffix(".npz")


def delete_run(folder: Path) -> None:
    """Delete a run. `run.json` goes first: a folder without it is no run, so a kill leaves no half run."""
    (folder / RUN_FILE).unlink()
    shutil.rmtree(folder)


def delete_if_empty(folder: Path) -> None:
    """Delete a folder unless something else uses it."""
    with suppress(OSError):
        folder.rmdir()
