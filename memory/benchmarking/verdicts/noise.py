"""The noise of a machine: how much runs of identical code differ. `calibrate` measures it, verdicts use it.

There is one file for each environment, `<results>/noise/<fingerprint>.json`, because noise depends on the
machine and on versions. The file has separate values for stored runs and for lockstep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from memory.benchmarking.errors import DamagedResult, InvalidResult
from memory.benchmarking.metrics import is_timed
from memory.benchmarking.model.files import encode_json, write_whole
from memory.benchmarking.model.regular_files import read_regular
from memory.benchmarking.verdicts.records import Kind

NOISE = "noise"
"""The name of the folder for noise files, beside the runs."""
UNCALIBRATED = 0.05
"""The noise that is assumed for times of stored runs on a machine that was not calibrated, as a share."""

_CPU_TIME = ("/cpu_ms", ":cpu_ms")
"""The ends of the keys of CPU times, which do not depend on how busy the machine is."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The measured noise of one kind of comparison: stored runs, or lockstep."""

    made_at: str
    comparisons: int
    """How many comparisons of identical code were measured."""
    floors: dict[str, float]
    """Noise by `metric_key`: as a share (0.05 is 5 %), or in points for metrics such as recall."""
    default: float = 0.0
    """The noise of times that were not calibrated, as a share."""


class NoiseFile(msgspec.Struct, kw_only=True):
    fingerprint: str
    stored: Calibration | None = None
    lockstep: Calibration | None = None
    format: int = 1


@dataclass(frozen=True)
class NoiseFloor:
    """The noise of one kind of comparison, as verdicts use it."""

    kind: Kind
    floors: Mapping[str, float] = field(default_factory=dict)
    default: float = 0.0
    calibrated: bool = False
    wall: float = 0.0
    """The share by which wall times differ because the machine was not equally busy."""

    def floor(self, key: str, unit: str) -> float:
        """Return the noise that an effect on a metric has to exceed; `key` is its `metric_key`."""
        return self.floors.get(key, self.default if is_timed(unit) else 0.0)

    def shift(self, key: str, unit: str) -> float:
        """Return how much both sides may differ for reasons that more rounds don't average out.

        The machine changes between two stored runs, and a test against "no change" would report that.
        In lockstep both sides run at the same time, so the spread between pairs includes such changes.
        """
        if self.kind == "lockstep":
            return 0.0
        is_wall_time = is_timed(unit) and not key.endswith(_CPU_TIME)
        return max(self.floor(key, unit), self.wall if is_wall_time else 0.0)


def metric_key(category: str, benchmark: str, target: str, path: str) -> str:
    """Return the name of a metric in a noise file."""
    return f"{category}.{benchmark}@{target}:{path}"


def uncalibrated(kind: Kind) -> NoiseFloor:
    """Return the noise that is assumed where none was measured."""
    return NoiseFloor(kind, default=UNCALIBRATED if kind == "stored" else 0.0)


def load_noise(folder: Path, fingerprint: str, kind: Kind) -> NoiseFloor:
    """Return the noise that was measured in this environment, else the assumed noise.

    `folder` is the folder of the runs.
    """
    found = _read(_path(folder, fingerprint))
    calibration = None if found is None else getattr(found, kind)
    if calibration is None:
        return uncalibrated(kind)
    return NoiseFloor(kind, calibration.floors, calibration.default, calibrated=True)


def store_noise(folder: Path, fingerprint: str, kind: Kind, calibration: Calibration) -> Path:
    """Store the noise of one kind of comparison; the noise of the other kind is kept."""
    for key, floor in calibration.floors.items():
        if not 0 <= floor < float("inf"):
            raise InvalidResult(f"the noise of {key} is {floor}: it must be a number ≥ 0")
    path = _path(folder, fingerprint)
    record = _read(path) or NoiseFile(fingerprint=fingerprint)
    setattr(record, kind, calibration)
    write_whole(path, encode_json(record))
    return path


def _path(folder: Path, fingerprint: str) -> Path:
    return folder / NOISE / f"{fingerprint}.json"


def _read(path: Path) -> NoiseFile | None:
    try:
        return msgspec.json.decode(read_regular(path), type=NoiseFile)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise DamagedResult(f"{path} is damaged: {problem}; remove it and calibrate again") from problem
