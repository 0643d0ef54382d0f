"""What the checks of a target found, and where that is kept beside its environment."""

from __future__ import annotations

import hashlib
import inspect
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

import memory
from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.model.files import write_whole
from memory.benchmarking.model.records import TargetInfo
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Target
from memory.benchmarking.targets.environments import CHECK, slug_of, targets_folder

State = Literal["kept", "broken", "does not apply"]
NOT_CHECKED = "not checked"
KEPT = "kept"
"""The mark of a target that breaks no promise."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one check found."""

    check: str
    promise: str
    """What the target promises, in plain words."""
    state: State
    reason: str = ""
    """Why it does not apply, or what is wrong, in one line."""
    method: str = ""
    """The method at fault."""
    place: str = ""
    """File and line: where the method raised, else where it is defined."""
    expected: str = ""
    came: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All outcomes of one target."""

    target: str
    digest: str
    """Of what was checked: versions, code of the target, version of membench."""
    lock: str = ""
    """The digest of its environment; empty if it ran where membench runs."""
    outcomes: list[Outcome]

    def count(self, state: State) -> int:
        return sum(each.state == state for each in self.outcomes)

    @property
    def mark(self) -> str:
        """The mark beside the target's figures: "kept" or "2 of 31 broken"."""
        broken, kept = self.count("broken"), self.count("kept")
        return f"{broken} of {broken + kept} broken" if broken else KEPT


def checked_digest(text: str, info: TargetInfo) -> str:
    """Return the digest of what a check depends on; a stored report with another one is out of date."""
    code = hashlib.sha256(f"{memory.__version__} {info.digest}".encode())
    for kind in load_target(text).__mro__:
        if issubclass(kind, Target) and kind is not Target:
            code.update(Path(inspect.getfile(kind)).read_bytes())
    return code.hexdigest()[:12]


def save_report(text: str, report: Report) -> Path:
    """Keep the newest report of a target."""
    path = targets_folder() / f"{slug_of(text)}{CHECK}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BenchmarkError(f"{path.parent} can't be made: {problem.strerror or problem}") from problem
    write_whole(path, msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return path


def stored_report(text: str, info: TargetInfo) -> Report | None:
    """Return the report of exactly this code and these versions; None if there is none."""
    with suppress(OSError, msgspec.MsgspecError):
        data = (targets_folder() / f"{slug_of(text)}{CHECK}").read_bytes()
        report = msgspec.json.decode(data, type=Report)
        return report if report.digest == checked_digest(text, info) else None
    return None


def stored_mark(text: str, info: TargetInfo) -> str:
    """Return the mark of a target: "kept", "2 of 31 broken" or "not checked"."""
    report = stored_report(text, info)
    return NOT_CHECKED if report is None else report.mark
