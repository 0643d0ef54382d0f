"""Saves and loads comparisons of `membench ab`.

`ab/<id>.json` has the verdicts and the figures of each pair, `ab/<id>.npz` every block of every timing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from memory.benchmarking.errors import DamagedResult, UnknownName, nearest
from memory.benchmarking.lockstep.sequence import Measured
from memory.benchmarking.model.files import compressed_arrays, encode_json, timestamp_now, write_whole
from memory.benchmarking.model.records import FORMAT, Environment, TargetInfo
from memory.benchmarking.model.regular_files import read_regular
from memory.benchmarking.verdicts.records import Comparison

AB = "ab"
_BLOCKS = ("block_samples", "block_wall_ns", "block_cpu_ns", "turn_blocks")


class PairFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of both processes of one pair, by path."""

    number: int
    fresh: bool
    """Whether the pair was measured to confirm a suspected change."""
    seed: int
    seconds: float
    """Time that both processes took together."""
    base: dict[str, float]
    current: dict[str, float]


class SavedComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `ab/<id>.json`."""

    id: str
    command: str
    started_at: str
    seconds: float
    """Time that the whole comparison took."""
    profile: str
    seed: int
    timing_seconds: float
    environment: Environment
    comparison: Comparison
    failures: dict[str, str]
    """Maps the key of a case to a text: which side failed, and why."""
    pairs: dict[str, list[PairFigures]]
    """Maps the key of a case to its pairs."""
    target_info: dict[str, TargetInfo] = {}
    """What is known of each target, as in `run.json`; empty if other interpreters were named."""
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
            for fresh, pairs in ((False, subject.first), (True, subject.fresh))
            for pair in pairs
        ]
        for key, subject in measured.items()
    }


def save(output_dir: Path, record: SavedComparison, measured: Mapping[str, Measured]) -> Path:
    """Write both files of a comparison; return the path of the JSON file."""
    path = output_dir / AB / f"{record.id}.json"
    blocks = blocks_of(measured)
    if blocks:
        write_whole(path.with_suffix(".npz"), blocks)
    write_whole(path, encode_json(record))
    return path


def blocks_of(measured: Mapping[str, Measured]) -> bytes:
    """Return a compressed NumPy file, arrays named `case/pair/side/path/what`; empty without timings."""
    rounds = {
        f"{key}/{one.number}/{side}": one
        for key, subject in measured.items()
        for pair in (*subject.first, *subject.fresh)
        for side, one in (("base", pair.base), ("current", pair.current))
    }
    return compressed_arrays(rounds, _BLOCKS)


def load(output_dir: Path, name: str) -> SavedComparison:
    """Load a comparison by its id, a unique part of it, `latest`, or its file."""
    path = _find(output_dir, name)
    try:
        return msgspec.json.decode(read_regular(path), type=SavedComparison)
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise DamagedResult(f"{path} is not a comparison of `membench ab`: {problem}") from problem


def _find(output_dir: Path, name: str) -> Path:
    if name.endswith(".json"):
        return Path(name)
    paths = sorted((output_dir / AB).glob("*.json"))  # ids sort by time
    matches = paths[-1:] if name == "latest" else [path for path in paths if name in path.stem]
    if len(matches) != 1:
        what = "there is no" if not matches else "there is more than one"
        hint = nearest(name, [path.stem for path in paths])
        raise UnknownName(f"{what} comparison {name!r} in {output_dir / AB}: {hint}")
    return matches[0]
