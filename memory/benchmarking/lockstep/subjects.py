"""The subjects of a comparison: for every benchmark, the case that each of the two sides runs.

The sides can be two targets, two configurations, two installed environments, or a revision and the working
tree.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from memory.benchmarking.errors import NothingMeasured
from memory.benchmarking.lockstep.checkout import Checkout
from memory.benchmarking.lockstep.pair import Side
from memory.benchmarking.lockstep.sequence import Subject
from memory.benchmarking.model.benchmark import declaration_of_case
from memory.benchmarking.model.records import Case


def two_targets(base: Sequence[Case], current: Sequence[Case]) -> list[Subject]:
    """Pair the same benchmarks on one target and on another."""
    others = {case.name: case for case in base}
    return [
        _subject(
            msgspec.structs.replace(case, target=_arrow(others[case.name].target, case.target)),
            others[case.name],
            case,
        )
        for case in current
        if case.name in others
    ]


def two_configurations(base: Sequence[Case], current: Sequence[Case]) -> list[Subject]:
    """Pair the cases that both configurations have; if each has one target, these may differ."""
    if len({case.target for case in base}) == len({case.target for case in current}) == 1:
        return two_targets(base, current)
    others = {case.key: case for case in base}
    return [_subject(case, others[case.key], case) for case in current if case.key in others]


def same_cases(cases: Sequence[Case]) -> list[Subject]:
    """Pair each case with itself."""
    return [_subject(case, case, case) for case in cases]


def revision_side(checkout: Checkout, python: str) -> Side:
    """Return a side that loads modules of the repository from the revision, others as this process does."""
    entries = [Path(os.path.abspath(entry)) for entry in sys.path]
    revised = [checkout.path_in_revision(entry) for entry in entries]
    if python == sys.executable:
        paths = [new or entry for entry, new in zip(entries, revised, strict=True)]
    else:
        paths = [new for new in revised if new is not None]
    return Side(checkout.revision[:12], python, tuple(map(str, paths)))


def revision_subjects(cases: Sequence[Case], checkout: Checkout) -> tuple[list[Subject], list[str]]:
    """Return the cases that both sides have, and a line for each that the revision does not have."""
    subjects, notes = [], []
    for case in cases:
        base = case
        if case.source is not None and Path(case.source).resolve().is_relative_to(checkout.repository):
            source = checkout.path_in_revision(Path(case.source))
            if source is None:
                notes.append(
                    f"{case.name} is new: {checkout.revision[:12]} has no {Path(case.source).name}"
                )
                continue
            base = msgspec.structs.replace(base, source=str(source))
        file, colon, name = case.target.rpartition(":")
        if colon and file.endswith(".py"):
            target = checkout.path_in_revision(Path(file))
            if target is not None:
                base = msgspec.structs.replace(base, target=f"{target}:{name}")
        subjects.append(_subject(case, base, case))
    if not subjects:
        raise NothingMeasured("; ".join(notes) or "there is nothing to compare")
    return subjects, notes


def _subject(named: Case, base: Case, current: Case) -> Subject:
    return Subject(named, (base, current), declaration_of_case(current))


def _arrow(base: str, current: str) -> str:
    return base if base == current else f"{base} → {current}"
