"""A comparison on disk: `ab/<id>.json` with the verdicts and the figures of each pair, and beside it
`<id>.npz` with every block of every timing."""

from __future__ import annotations

import io
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from memory.benchmarking.errors import DamagedResult, UnknownName, nearest
from memory.benchmarking.lockstep.sequence import Measured
from memory.benchmarking.model.files import encode_json, timestamp_now, write_whole
from memory.benchmarking.model.records import FORMAT, Environment, Round
from memory.benchmarking.verdicts.records import Comparison

AB = "ab"
_BLOCKS = ("block_samples", "block_wall_ns", "block_cpu_ns", "turn_blocks")


class PairFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of both processes of one pair, as in a run's round."""

    number: int
    fresh: bool
    """Measured again, because something was suspected."""
    seed: int
    seconds: float
    base: dict[str, float]
    current: dict[str, float]


class SavedComparison(msgspec.Struct, frozen=True, kw_only=True):
    """`ab/<id>.json`."""

    id: str
    command: str
    started_at: str
    seconds: float
    """All of it took."""
    profile: str
    seed: int
    timing_seconds: float
    environment: Environment
    comparison: Comparison
    failures: dict[str, str]
    """By case: which side gave no figures, and why."""
    pairs: dict[str, list[PairFigures]]
    """By case."""
    format: int = FORMAT


def new_id() -> str:
    return f"{timestamp_now()}_{secrets.token_hex(2)}"


def figures_of(measured: Mapping[str, Measured]) -> dict[str, list[PairFigures]]:
    return {
        key: [
            PairFigures(
                number=pair.base.number,
                fresh=fresh,
                seed=pair.base.seed,
                seconds=round(pair.base.seconds + pair.current.seconds, 3),
                base=pair.base.figures,
                current=pair.current.figures,
            )
            for fresh, pairs in ((False, each.first), (True, each.fresh))
            for pair in pairs
        ]
        for key, each in measured.items()
    }


def save(output_dir: Path, record: SavedComparison, measured: Mapping[str, Measured]) -> Path:
    path = output_dir / AB / f"{record.id}.json"
    blocks = blocks_of(measured)
    if blocks:
        write_whole(path.with_suffix(".npz"), blocks)
    write_whole(path, encode_json(record))
    return path


def blocks_of(measured: Mapping[str, Measured]) -> bytes:
    """A compressed NumPy file, arrays named `case/pair/side/path/what`; empty where nothing was timed."""
    import numpy as np

    arrays: dict[str, Any] = {}
    for key, each in measured.items():
        for pair in (*each.first, *each.fresh):
            for side, found in (("base", pair.base), ("current", pair.current)):
                arrays |= _arrays(f"{key}/{found.number}/{side}", found)
    if not arrays:
        return b""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _arrays(prefix: str, found: Round) -> dict[str, Any]:
    import numpy as np

    arrays: dict[str, Any] = {}
    for path, samples in found.samples.items():
        for what in _BLOCKS:
            arrays[f"{prefix}/{path}/{what}"] = np.frombuffer(getattr(samples, what), "<i8")
        arrays[f"{prefix}/{path}/calls_and_work"] = np.array([samples.calls_per_sample, samples.work])
    return arrays


def saved(output_dir: Path) -> list[Path]:
    """All comparisons, the oldest first."""
    return sorted((output_dir / AB).glob("*.json"))


def load(output_dir: Path, name: str) -> SavedComparison:
    """A comparison by its id, a part of it that no other has, `latest`, or its file."""
    path = _find(output_dir, name)
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedComparison)
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except msgspec.MsgspecError as problem:
        raise DamagedResult(f"{path} is no comparison of `membench ab`: {problem}") from problem


def _find(output_dir: Path, name: str) -> Path:
    if name.endswith(".json"):
        return Path(name)
    known: Sequence[Path] = saved(output_dir)
    fitting = known[-1:] if name == "latest" else [path for path in known if name in path.stem]
    if len(fitting) != 1:
        what = "there is no" if not fitting else "there is more than one"
        names = nearest(name, [path.stem for path in known])
        raise UnknownName(f"{what} comparison {name!r} in {output_dir / AB}: {names}")
    return fitting[0]
