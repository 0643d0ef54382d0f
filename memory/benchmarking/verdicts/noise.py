"""How far identical code lies apart from itself on one machine: measured by `calibrate`, used by verdicts.

One file for each environment, `<results>/noise/<fingerprint>.json`: what a machine's noise was under other
versions says little. The two ways to compare have different noise and are kept apart in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from memory.benchmarking.errors import DamagedResult, InvalidResult
from memory.benchmarking.metrics import is_timed
from memory.benchmarking.model.files import encode_json, write_whole
from memory.benchmarking.verdicts.records import Kind

NOISE = "noise"
"""The folder, beside the runs."""
UNCALIBRATED = 0.05
"""At least, for times against a stored baseline: what was never measured is not taken for quiet."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What identical code was seen to differ by, in one way of comparing."""

    made_at: str
    comparisons: int
    """Of identical code, that this was learnt from."""
    floors: dict[str, float]
    """By metric, as `metric_key` names it: a share, 0.05 for 5 %; in points for shares such as recall."""
    default: float = 0.0
    """For timed metrics that were not measured then."""


class NoiseFile(msgspec.Struct, kw_only=True):
    fingerprint: str
    stored: Calibration | None = None
    lockstep: Calibration | None = None
    format: int = 1


@dataclass(frozen=True)
class NoiseFloor:
    """The noise of one way to compare."""

    kind: Kind
    floors: Mapping[str, float] = field(default_factory=dict)
    default: float = 0.0
    calibrated: bool = False

    def floor(self, key: str, unit: str) -> float:
        return self.floors.get(key, self.default if is_timed(unit) else 0.0)

    def shift(self, key: str, unit: str) -> float:
        """By how much both sides may differ for reasons that more rounds don't average out.

        Two runs at different times meet a different machine: that is the noise of a stored baseline, and a
        test against "no change at all" would find it, rightly and to no use. In lockstep both sides meet
        the same moments, and what is left is spread, which the test covers by itself.
        """
        return self.floor(key, unit) if self.kind == "stored" else 0.0


def metric_key(category: str, benchmark: str, target: str, path: str) -> str:
    return f"{category}.{benchmark}@{target}:{path}"


def uncalibrated(kind: Kind) -> NoiseFloor:
    return NoiseFloor(kind, default=UNCALIBRATED if kind == "stored" else 0.0)


def load_noise(folder: Path, fingerprint: str, kind: Kind) -> NoiseFloor:
    """The noise that was measured in this environment, else what is assumed of an unknown one.

    `folder` is the one that has the runs.
    """
    found = _read(_path(folder, fingerprint))
    calibration = None if found is None else getattr(found, kind)
    if calibration is None:
        return uncalibrated(kind)
    return NoiseFloor(kind, calibration.floors, calibration.default, calibrated=True)


def store_noise(folder: Path, fingerprint: str, kind: Kind, calibration: Calibration) -> Path:
    """Keep what was measured; the other way's noise stays as it is."""
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
        return msgspec.json.decode(path.read_bytes(), type=NoiseFile)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except msgspec.MsgspecError as problem:
        raise DamagedResult(f"{path} is damaged: {problem}; remove it and calibrate again") from problem
