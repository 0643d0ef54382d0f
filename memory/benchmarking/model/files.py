"""The files of a run: written atomically, and read with clear errors for damaged ones.

`records.py` describes what is in the files.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from memory.benchmarking.errors import DamagedResult, InvalidResult, ResultNotSaved, UnknownName, nearest
from memory.benchmarking.model.paths import check_count, check_tree
from memory.benchmarking.model.records import FORMAT, Result, ResultRef, Round, Run, Samples
from memory.benchmarking.model.regular_files import open_regular, read_below, read_regular

if TYPE_CHECKING:
    from zipfile import ZipFile

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
MOST_KEYS = 500_000
"""The most keys of a JSON file, counted by its colons; those inside texts count too."""
MOST_SAMPLE_BYTES = 256_000_000
"""The most bytes of samples that are read from one file, after decompression: 32 million samples."""
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
    """Read the samples of these timings: for each round, (calls per sample, nanoseconds).

    The rest of the file, which may be large, is not read.
    """
    import zipfile

    times: dict[str, list[tuple[int, Any]]] = {}
    left = MOST_SAMPLE_BYTES
    try:
        with open(open_regular(path), "rb") as file, zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                rest, _, what = name.rpartition("/")
                timing = rest.partition("/")[2]
                if what == "wall_ns.npy" and timing in timings:
                    calls = int(_read_array(archive, f"{rest}/calls_and_work.npy", left)[0])
                    array = _read_array(archive, name, left)
                    left -= array.nbytes
                    times.setdefault(timing, []).append((calls, array))
    except FileNotFoundError:
        raise
    except Exception as problem:
        raise DamagedResult(
            f"{path} is damaged: {getattr(problem, 'strerror', '') or problem}"
        ) from problem
    return times


def read_samples(path: Path) -> dict[int, dict[str, Samples]]:
    """Read the samples of all timings, by the number of the round and the path of the timing.

    DamagedResult if the file is damaged; FileNotFoundError if there is none: a result without timings.
    """
    import zipfile

    fields: dict[tuple[int, str], dict[str, bytes]] = {}
    left = MOST_SAMPLE_BYTES
    try:
        with open(open_regular(path), "rb") as file, zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                rest, _, what = name.rpartition("/")
                round_number, _, timing = rest.partition("/")
                array = _read_array(archive, name, left)
                left -= array.nbytes
                values = array.astype("<i8", casting="equiv").tobytes()
                fields.setdefault((int(round_number), timing), {})[what.removesuffix(".npy")] = values
        found: dict[int, dict[str, Samples]] = {}
        for (number, timing), each in fields.items():
            calls, work = memoryview(each.pop("calls_and_work")).cast("q")
            samples = Samples(**each, calls_per_sample=calls, work=work)
            found.setdefault(number, {})[timing] = samples
    except FileNotFoundError:
        raise
    except Exception as problem:
        raise DamagedResult(
            f"{path} is damaged: {getattr(problem, 'strerror', '') or problem}"
        ) from problem
    return found


def _read_array(archive: ZipFile, name: str, most: int) -> Any:
    """Read one array of a NumPy file; ValueError if it takes more than `most` bytes.

    Not with `numpy.load`: that decompresses everything, and a small file can hold gigabytes of zeros.
    """
    import io

    from numpy.lib import format as npy

    size = archive.getinfo(name).file_size
    if size > most:
        raise ValueError(f"it has more than {MOST_SAMPLE_BYTES:,} bytes of samples")
    with archive.open(name) as member:
        data = member.read(size)  # the header's size may be wrong, so never read to the end
    return npy.read_array(io.BytesIO(data), allow_pickle=False)


# -- reading ----------------------------------------------------------------------------------


def read_result(path: Path | os.PathLike[str]) -> Result:
    """Read one result. UnknownName if there is no such file, DamagedResult for any other problem."""
    return _read(Path(path), Result, lambda: read_regular(path))


def read_result_of(folder: Path, ref: ResultRef) -> Result:
    """Read a result that a run names; DamagedResult if it is not inside the run's folder."""
    return _read(folder / ref.file, Result, lambda: read_below(folder, ref.file))


def read_run(folder: Path) -> Run:
    """Read the `run.json` of a folder, with the errors of `read_result`."""
    return _read(folder / RUN_FILE, Run, lambda: read_regular(folder / RUN_FILE))


def _read(path: Path, kind: type[_Record], read: Callable[[], bytes]) -> _Record:
    try:
        data = read()
        if data.count(b":") > MOST_KEYS:
            raise DamagedResult(f"{path} is too large: it has more than {MOST_KEYS:,} keys")
        record = msgspec.json.decode(data, type=kind)
        _check_size(record)
    except FileNotFoundError:
        raise UnknownName(f"there is no file {path}") from None
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except msgspec.MsgspecError as problem:
        raise DamagedResult(f"{path} is damaged or not a result file: {problem}") from problem
    except InvalidResult as problem:
        raise DamagedResult(f"{path} is too large: {problem}") from problem
    except RecursionError:
        raise DamagedResult(f"{path} is damaged: its values are nested too deep") from None
    except ValueError as problem:
        if isinstance(problem, DamagedResult):
            raise
        # A number with too many digits, or a text that is not Unicode.
        raise DamagedResult(f"{path} is damaged or not a result file: {problem}") from problem
    if record.format > FORMAT:
        raise DamagedResult(f"{path} has format {record.format}: install a newer version to read it")
    return record


def _check_size(record: Result | Run) -> None:
    """Raise InvalidResult for a record that would take minutes or too much stack to show."""
    if isinstance(record, Run):
        check_tree([record.config, [case.params for case in record.cases]])
        return
    check_tree([record.results, record.metadata])
    check_count(len(record.metrics))


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
        elif not folder.is_symlink():
            yield from _results_of_category(folder, "")


def _results_in(run: Path, run_id: str) -> Iterator[ResultFile]:
    """Yield the results of a run. Its folder may be a symbolic link; links inside are not followed."""
    for category in _folders(run):
        if category.name not in (ROUNDS, LOGS) and not category.is_symlink():
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
