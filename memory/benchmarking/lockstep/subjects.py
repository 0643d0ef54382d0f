"""What can be compared: two targets, two configurations, two installed environments, or a revision with
the working tree. Each becomes two sides and, for every benchmark, the case that each of them runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from memory.benchmarking.errors import BenchmarkError, NothingMeasured
from memory.benchmarking.lockstep.checkout import Checkout
from memory.benchmarking.lockstep.pair import Side
from memory.benchmarking.lockstep.sequence import Subject
from memory.benchmarking.metrics import Declaration, declaration_of
from memory.benchmarking.model.records import Case
from memory.benchmarking.run.worker import load_benchmark


def two_targets(base: Sequence[Case], current: Sequence[Case]) -> list[Subject]:
    """The same benchmarks on one target and on another."""
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
    """The cases that both configurations have; where each has one target, these may differ."""
    if len({case.target for case in base}) == len({case.target for case in current}) == 1:
        return two_targets(base, current)
    others = {case.key: case for case in base}
    return [_subject(case, others[case.key], case) for case in current if case.key in others]


def same_cases(cases: Sequence[Case]) -> list[Subject]:
    return [_subject(case, case, case) for case in cases]


def revision_side(checkout: Checkout, python: str) -> Side:
    """What lies in the repository is taken from the revision, everything else from where it is."""
    entries = [Path(os.path.abspath(entry)) for entry in sys.path]
    paths = [checkout.there(entry) for entry in entries]
    if python == sys.executable:
        found = [there or here for here, there in zip(entries, paths, strict=True)]
    else:
        found = [there for there in paths if there is not None]
    return Side(checkout.revision[:12], python, tuple(map(str, found)))


def revision_subjects(cases: Sequence[Case], checkout: Checkout) -> tuple[list[Subject], list[str]]:
    """The cases on both sides, and a line for each that the revision does not have."""
    subjects, notes = [], []
    for case in cases:
        base = case
        if case.source is not None and Path(case.source).resolve().is_relative_to(checkout.repository):
            there = checkout.there(Path(case.source))
            if there is None:
                notes.append(
                    f"{case.name} is new: {checkout.revision[:12]} has no {Path(case.source).name}"
                )
                continue
            base = msgspec.structs.replace(base, source=str(there))
        file, colon, name = case.target.rpartition(":")
        if colon and file.endswith(".py"):
            there = checkout.there(Path(file))
            if there is not None:
                base = msgspec.structs.replace(base, target=f"{there}:{name}")
        subjects.append(_subject(case, base, case))
    if not subjects:
        raise NothingMeasured("; ".join(notes) or "there is nothing to compare")
    return subjects, notes


def _subject(named: Case, base: Case, current: Case) -> Subject:
    return Subject(named, (base, current), _declared(current))


def _declared(case: Case) -> Declaration:
    try:
        return declaration_of(load_benchmark(case).function)
    except (BenchmarkError, ImportError):
        return Declaration()  # its rounds will say what is wrong


def _arrow(base: str, current: str) -> str:
    return base if base == current else f"{base} → {current}"
