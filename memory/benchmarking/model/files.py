"""The files of a run: written whole or not at all, and read back with damage named.

Nothing here knows how figures are made. See `records.py` for what is in the files.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from memory.benchmarking.errors import DamagedResult, ResultNotSaved, UnknownName, nearest
from memory.benchmarking.model.records import FORMAT, Result, Round, Run, Samples

DEFAULT_FOLDER = "benchmark_results"
"""Shared by `run`, `results` and all that read what they wrote."""
RUN_FILE = "run.json"
ROUNDS = "rounds"
LOGS = "logs"
LOCK_FILE = ".lock"
"""In a run's folder; held by the process that carries the run out."""
SCRATCH = ".scratch"
"""Beside the runs; has a folder for each round that is going on."""
_RESULT_NAME = re.compile(r"(?P<benchmark>.+?)_(?P<timestamp>\d{8}_\d{6})(?:_(?P<rest>.+))?\.json")
_NUMBERS = re.compile(rb"\[\n\s+[-+.\deE]+(?:,\n\s+[-+.\deE]+)*\n\s+\]")
"""A list of numbers over several lines; never part of a text, which holds no line break in JSON."""
_Record = TypeVar("_Record", Result, Run)


@dataclass(frozen=True, order=True)
class ResultFile(os.PathLike[str]):
    """Where one result is, and what its path says about it."""

    timestamp: str
    path: Path
    category: str
    benchmark: str
    run_id: str = ""
    """Empty for a result that was saved by hand, outside of a run."""

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


def timestamp_now() -> str:
    """Local time, as in the specification: 20250323_145623."""
    return time.strftime("%Y%m%d_%H%M%S")


# -- writing ----------------------------------------------------------------------------------


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader sees the old one or the new one, also after a crash."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(scratch, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as problem:
        scratch.unlink(missing_ok=True)
        raise ResultNotSaved(f"{path} can't be written: {problem.strerror or problem}") from problem


def write_new(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    """Write a file under a name that nothing else has: `stem`, else `stem_2`, `stem_3` and so on."""
    scratch = folder / f".{stem}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(scratch, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        for number in range(1, 1_000_000):
            path = folder / f"{stem}{'' if number == 1 else f'_{number}'}{suffix}"
            try:
                os.link(scratch, path)  # fails if the name is taken, also by another process just now
            except FileExistsError:
                continue
            return path
        raise ResultNotSaved(f"{folder / stem}{suffix}: there are a million of that name already")
    except OSError as problem:
        raise ResultNotSaved(f"{folder} can't be written to: {problem.strerror or problem}") from problem
    finally:
        scratch.unlink(missing_ok=True)


def encode_json(record: object) -> bytes:
    """JSON that a person can read: indented, lists of numbers on one line."""
    try:
        text = msgspec.json.format(msgspec.json.encode(record), indent=1)
        return _NUMBERS.sub(lambda found: b" ".join(found[0].split()), text) + b"\n"
    except (TypeError, ValueError) as problem:
        raise ResultNotSaved(f"the results can't be written as JSON: {problem}") from problem


def new_run_folder(output_dir: Path) -> Path:
    """An empty folder whose name is the run's id: sorted by name is sorted by time."""
    for _ in range(100):
        folder = output_dir / f"{timestamp_now()}_{secrets.token_hex(2)}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as problem:
            raise ResultNotSaved(f"{folder} can't be made: {problem.strerror or problem}") from problem
        return folder
    raise ResultNotSaved(f"{output_dir}: no free name for a run")


def write_run(folder: Path, run: Run) -> None:
    write_whole(folder / RUN_FILE, encode_json(run))


def write_samples(path: Path, rounds: Iterable[Round]) -> None:
    """Every sample of every round in one compressed NumPy file, arrays named `round/path/what`."""
    import io

    import numpy as np

    arrays = {}
    for each in rounds:
        for name, samples in each.samples.items():
            for what in ("wall_ns", "block_samples", "block_wall_ns", "block_cpu_ns"):
                array = np.frombuffer(getattr(samples, what), dtype="<i8")
                arrays[f"{each.number}/{name}/{what}"] = array
            arrays[f"{each.number}/{name}/calls_and_work"] = np.array(
                [samples.calls_per_sample, samples.work], dtype="<i8"
            )
    if arrays:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        write_whole(path, buffer.getvalue())


def read_samples(path: Path) -> Mapping[tuple[int, str], Samples]:
    """What `write_samples` wrote, by round and path of the timing."""
    import numpy as np

    found: dict[tuple[int, str], dict[str, bytes]] = {}
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            for name in arrays.files:
                number, _, rest = name.partition("/")
                timing, _, what = rest.rpartition("/")
                found.setdefault((int(number), timing), {})[what] = arrays[name].astype("<i8").tobytes()
        samples = {}
        for key, parts in found.items():
            calls, work = np.frombuffer(parts.pop("calls_and_work"), dtype="<i8").tolist()
            samples[key] = Samples(calls_per_sample=calls, work=work, **parts)
    except FileNotFoundError:
        raise
    except Exception as problem:
        raise DamagedResult(f"{path} is damaged: {problem}") from problem
    return samples


def read_times(path: Path, timings: Collection[str]) -> dict[str, list[tuple[int, Any]]]:
    """Of these timings only, for each round: calls a sample, and the nanoseconds that each sample took.

    The rest of the file, which may be large, stays unread.
    """
    import numpy as np

    found: dict[str, list[tuple[int, Any]]] = {}
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            for name in arrays.files:
                rest, _, what = name.rpartition("/")
                timing = rest.partition("/")[2]
                if what == "wall_ns" and timing in timings:
                    calls = int(arrays[f"{rest}/calls_and_work"][0])
                    found.setdefault(timing, []).append((calls, arrays[name]))
    except FileNotFoundError:
        raise
    except Exception as problem:
        raise DamagedResult(f"{path} is damaged: {problem}") from problem
    return found


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
        raise DamagedResult(f"{path} is damaged or not a file of results: {problem}") from problem
    if record.format > FORMAT:
        raise DamagedResult(f"{path} has format {record.format}, written by a newer version than this one")
    return record


def run_folders(output_dir: Path) -> list[Path]:
    """All runs below a folder, the oldest first; the folder itself if it is a run."""
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
    """A run by its id, by a part of it that no other has, by `latest`, or by its folder's path."""
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
        raise UnknownName(f"{run_id!r} fits {len(matches)} runs: {', '.join(f.name for f in matches[:5])}")
    hint = nearest(run_id, names[-5:]) if names else "there are no runs yet"
    raise UnknownName(f"there is no run {run_id!r} in {output_dir}: {hint}")


def result_files(output_dir: Path) -> Iterator[ResultFile]:
    """All results below a folder, by their names alone: in runs, and saved by hand outside of them."""
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
    """Where the raw samples of a result are."""
    return result.with_suffix(".npz")


def remove_run(folder: Path) -> None:
    """Remove a run for good; it is no run from the first step on, so a kill leaves no half of one."""
    (folder / RUN_FILE).unlink()
    shutil.rmtree(folder)
