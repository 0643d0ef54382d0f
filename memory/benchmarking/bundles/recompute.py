"""Computes the figures of a result again, from its raw samples, answers and rounds, and names differences.

    samples ──▶ figures of a timing in one round ─┐
    answers ──▶ figures of quality in one round ──┼─▶ values of each round ─▶ figure, interval, tree
                figures that a benchmark returned ─┘

Files of format 1 have no file of rounds. Then the values of each round come from the result itself.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.measure.ranking import clustered_mean
from memory.benchmarking.measure.statistics import over_rounds
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.metrics import is_signed
from memory.benchmarking.model.aggregate import make_result
from memory.benchmarking.model.answers import Answers, read_answers
from memory.benchmarking.model.files import read_samples, samples_path
from memory.benchmarking.model.paths import join, leaf_of
from memory.benchmarking.model.records import Case, Figure, Result, Round, Samples
from memory.benchmarking.model.rounds_file import read_rounds, rounds_path
from memory.benchmarking.verdicts.paired import by_group, figures_of

_STORED = 1e-8
"""Stored figures have nine digits; and the last digit of a logarithm differs between machines."""
_EXACT = 1e-12
"""Values of one round are stored unrounded."""
_MOST_NAMED = 20
"""The most differences that are named for one result."""
_COMPUTED = (
    "rounds",
    "seeds",
    "wall_to_cpu",
    "peak_rss_bytes",
    "headline",
    "not_available",
    "execution_time",
)
"""The entries of a result's metadata that follow from the rounds."""


@dataclass
class Recomputed:
    """What was computed again, and what differs."""

    from_samples: int = 0
    """Figures of one round that were computed from raw samples."""
    from_answers: int = 0
    """Figures of one round that were computed from the answers to questions."""
    from_rounds: int = 0
    """Figures over all rounds that were computed from the values of the rounds."""
    differences: list[str] = field(default_factory=list)

    def differ(self, where: str, stored: object, computed: object) -> None:
        self.differences.append(
            f"{where} is {_shown(stored)}, but it follows from the data as {_shown(computed)}"
        )

    def add(self, other: Recomputed) -> None:
        """Add the counts of another result."""
        self.from_samples += other.from_samples
        self.from_answers += other.from_answers
        self.from_rounds += other.from_rounds


def recompute(path: Path, result: Result, case: Case) -> Recomputed:
    """Compute everything in a result's file again.

    Args:
        path: the result's file; its samples, answers and rounds are beside it.
        result: the content of the file.
        case: the run's own record of the case.
    """
    found = Recomputed()
    try:
        samples = _samples(path)
        answers = read_answers(result, path.parent)
        if rounds_path(path).exists():
            _check_against_rounds(path, result, case, samples, answers, found)
        elif result.format > 1:
            found.differences.append(
                f"the values of its rounds are gone: there is no {rounds_path(path).name}"
            )
        else:
            _check_without_rounds(result, samples, answers, found)
    except BenchmarkError as problem:
        found.differences.append(str(problem))
    if len(found.differences) > _MOST_NAMED:
        more = len(found.differences) - _MOST_NAMED
        found.differences = [*found.differences[:_MOST_NAMED], f"and {more} more differences"]
    return found


def _samples(path: Path) -> dict[int, dict[str, Samples]]:
    try:
        return read_samples(samples_path(path))
    except FileNotFoundError:
        return {}


# -- with the values of each round ------------------------------------------------------------


def _check_against_rounds(
    path: Path,
    result: Result,
    case: Case,
    samples: Mapping[int, Mapping[str, Samples]],
    answers: Answers | None,
    found: Recomputed,
) -> None:
    file = read_rounds(rounds_path(path))
    rounds = []
    for place, each in enumerate(file.rounds):
        own = dict(samples.get(each.number, {}))
        for where, value in _timed(own):
            found.from_samples += 1
            _compare(f"round {each.number}, {where}", each.figures.get(where), value, _EXACT, found)
        _check_wall_to_cpu(each, own, found)
        for where, value, bounds in _judged(answers, place):
            found.from_answers += 1
            _compare(f"round {each.number}, {where}", each.figures.get(where), value, _EXACT, found)
            if bounds is not None:
                _compare(
                    f"round {each.number}, interval of {where}",
                    list(each.intervals.get(where, ())),
                    bounds,
                    _EXACT,
                    found,
                )
        rounds.append(msgspec.structs.replace(each, samples=own))
    for number in samples.keys() - {each.number for each in file.rounds}:
        found.differences.append(f"there are samples of round {number}, which the result does not have")
    again = make_result(case, rounds, file.declaration, result.timestamp, {})
    found.from_rounds += len(again.metrics)
    _compare("figure", _plain(result.metrics), _plain(again.metrics), _STORED, found)
    _compare("results", result.results, again.results, _STORED, found)
    _compare("unit of", _plain(result.units), _plain(again.units), _STORED, found)
    for key in _COMPUTED:
        _compare(f"metadata, {key}", result.metadata.get(key), again.metadata.get(key), _STORED, found)
    for key, own_value in (("params", case.params), ("target", case.target)):
        _compare(f"metadata, {key}", result.metadata.get(key), own_value, _STORED, found)


def _timed(samples: Mapping[str, Samples]) -> Iterator[tuple[str, float]]:
    """Yield path and value of each figure that follows from samples."""
    for path, each in samples.items():
        for name, value in _timing(each).items():
            yield join(path, name), value


def _timing(samples: Samples) -> Timing:
    return Timing(
        _integers(samples.wall_ns),
        _integers(samples.block_samples),
        _integers(samples.block_wall_ns),
        _integers(samples.block_cpu_ns),
        samples.calls_per_sample,
        samples.work,
    )


def _integers(data: bytes) -> tuple[int, ...]:
    return tuple(array("q", data))


def _check_wall_to_cpu(each: Round, samples: Mapping[str, Samples], found: Recomputed) -> None:
    wall = sum(sum(_integers(one.block_wall_ns)) for one in samples.values())
    cpu = sum(sum(_integers(one.block_cpu_ns)) for one in samples.values())
    _compare(
        f"round {each.number}, wall_to_cpu", each.wall_to_cpu, wall / cpu if cpu else None, _EXACT, found
    )


def _judged(answers: Answers | None, place: int) -> Iterator[tuple[str, float, list[float] | None]]:
    """Yield path, value and interval of each figure that follows from the answers of one round."""
    if answers is None or place >= len(answers):
        return
    for group, asked in answers[place].items():
        judged = [each for each in asked if each.ranks]
        figures = [figures_of(each) for each in judged]
        for kind, chosen in by_group(judged).items():
            clusters = [judged[n].collection for n in chosen]
            for name in figures[0]:
                mean = clustered_mean([figures[n][name] for n in chosen], clusters)
                bounds = None if mean.low is None or mean.high is None else [mean.low, mean.high]
                yield join(join(group, kind), name), mean.value, bounds


# -- format 1 ---------------------------------------------------------------------------------


def _check_without_rounds(
    result: Result,
    samples: Mapping[int, Mapping[str, Samples]],
    answers: Answers | None,
    found: Recomputed,
) -> None:
    """Check the figures over rounds, and the values of each round that follow from samples and answers."""

    def check(place: int, where: str, value: float) -> None:
        stored = result.metrics[where].rounds if where in result.metrics else []
        own = stored[place] if place < len(stored) else None
        _compare(f"round {place}, {where}", own, value, _STORED, found)

    for place, number in enumerate(sorted(samples)):
        for where, value in _timed(samples[number]):
            found.from_samples += 1
            check(place, where, value)
    for place in range(len(answers or ())):
        for where, value, _ in _judged(answers, place):
            found.from_answers += 1
            check(place, where, value)
    for path, figure in result.metrics.items():
        if figure.rounds and figure.interval_from != "units":
            found.from_rounds += 1
            _check_figure(path, figure, found)


def _check_figure(path: str, figure: Figure, found: Recomputed) -> None:
    again = over_rounds(figure.rounds, signed=is_signed(leaf_of(path)))
    whole = float(figure.value).is_integer() and all(float(each).is_integer() for each in figure.rounds)
    tolerance = 1.0 if whole else 0.0  # counts are rounded to whole numbers
    pairs = {
        "": (figure.value, again.value),
        ", low": (figure.low, again.low),
        ", high": (figure.high, again.high),
    }
    for name, (stored, value) in pairs.items():
        if stored is None or value is None:
            if (stored is None) != (value is None):
                found.differ(f"figure {path}{name}", stored, value)
        elif name == ", high" and stored == 1 < value:
            continue  # the interval of a share ends at 1
        elif abs(stored - value) > max(tolerance, 1e-7 * abs(value)):
            found.differ(f"figure {path}{name}", stored, value)


# -- comparing --------------------------------------------------------------------------------


def _plain(records: Mapping[str, Any]) -> dict[str, Any]:
    return {name: msgspec.to_builtins(record) for name, record in records.items()}


def _compare(where: str, stored: Any, computed: Any, tolerance: float, found: Recomputed) -> None:
    """Add a difference for each leaf of two JSON values that differs."""
    if isinstance(stored, Mapping) and isinstance(computed, Mapping):
        for key in dict.fromkeys((*stored, *computed)):
            _compare(f"{where} {key}" if where in ("figure", "unit of") else f"{where}/{key}",
                     stored.get(key), computed.get(key), tolerance, found)  # fmt: skip
    elif _is_number(stored) and _is_number(computed):
        if not math.isclose(stored, computed, rel_tol=tolerance, abs_tol=1e-300):
            found.differ(where, stored, computed)
    elif isinstance(stored, Sequence) and isinstance(computed, Sequence) and not isinstance(stored, str):
        if len(stored) != len(computed):
            found.differ(where, stored, computed)
        else:
            for number, (one, other) in enumerate(zip(stored, computed, strict=True)):
                _compare(f"{where}[{number}]", one, other, tolerance, found)
    elif stored != computed:
        found.differ(where, stored, computed)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = "nothing" if value is None else f"{value}"
    return text if len(text) <= 60 else f"{text[:60]}…"
