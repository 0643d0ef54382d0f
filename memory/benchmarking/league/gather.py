"""From runs on disk to the league."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from memory.benchmarking.errors import BenchmarkError, InvalidBenchmarkConfig, NothingMeasured
from memory.benchmarking.league.axes import Results, axes_of, by_size_of, curve_of
from memory.benchmarking.league.model import Axis, Cell, CheckOutcome, League, System
from memory.benchmarking.league.standing import Measured, with_standings
from memory.benchmarking.model.answers import Answers, read_answers
from memory.benchmarking.model.files import read_result_of
from memory.benchmarking.model.records import Result, Run, TargetInfo
from memory.benchmarking.promises.suite import PROMISES, all_checks
from memory.benchmarking.targets import load_target

Source = tuple[Path, Run]
"""The folder of a run, and its record."""
_LONGEST_REASON = 300


def league_of(sources: Sequence[Source]) -> League:
    """Return the league of one or more runs of the same machine and profile.

    A system that is in several runs is taken from the newest. Runs that can't be compared are an error.
    """
    if not sources:
        raise NothingMeasured("there is no run of a league: measure one with `membench league`")
    refuse_to_mix([run for _, run in sources])
    newest = sorted(sources, key=lambda source: source[1].started_at)
    of_target = {target: source for source in newest for target in source[1].targets}
    order = dict.fromkeys(target for _, run in newest for target in run.targets)
    results: dict[str, Results] = {}
    answers: dict[str, dict[str, Answers]] = {}
    systems = []
    for target in order:
        folder, run = of_target[target]
        results[target], answers[target] = _results_of(folder, run, target)
        systems.append(_system(run, target))
    table = {
        axis: [
            _measured(axis, system, cells[system.target], of_target[system.target][1], results, answers)
            for system in systems
        ]
        for axis, cells in axes_of(results)
    }
    curves = {target: curve_of(found) for target, found in results.items()}
    size = max((size for size, _ in curves.values()), default=0)
    return League(
        tuple(run for _, run in newest),
        tuple(systems),
        tuple(table),
        with_standings(table),
        {target: points for target, (own, points) in curves.items() if points and own == size},
        size,
        {target: by_size_of(found) for target, found in results.items()},
        {target: tuple(_outcomes(found)) for target, found in results.items()},
    )


def refuse_to_mix(runs: Sequence[Run]) -> None:
    """Raise InvalidBenchmarkConfig if the figures of runs must not stand in one table."""
    first = runs[0]
    for run in runs[1:]:
        for what, one, other in (
            ("the machine or its versions", first.environment.fingerprint, run.environment.fingerprint),
            ("the profile", first.profile, run.profile),
            ("the seed", first.seed, run.seed),
        ):
            if one != other:
                raise InvalidBenchmarkConfig(
                    f"runs {first.id} and {run.id} can't be in one league: {what} differs ({one}, {other})"
                )
        params = {case.name: case.params for case in first.cases}
        for case in run.cases:
            if params.get(case.name, case.params) != case.params:
                raise InvalidBenchmarkConfig(
                    f"runs {first.id} and {run.id} can't be in one league: {case.name} has other parameters"
                )


def _results_of(folder: Path, run: Run, target: str) -> tuple[dict[str, Result], dict[str, Answers]]:
    results: dict[str, Result] = {}
    answers: dict[str, Answers] = {}
    for ref in run.results:
        if ref.target == target:
            name = f"{ref.category}.{ref.benchmark}"
            try:
                results[name] = read_result_of(folder, ref)
                found = read_answers(results[name], (folder / ref.file).parent)
            except BenchmarkError:
                results.pop(name, None)  # a damaged file leaves its cells empty; `results verify` names it
                continue
            if found is not None:
                answers[name] = found
    return results, answers


def _system(run: Run, target: str) -> System:
    info = run.target_info.get(target, TargetInfo())
    version = next((f"{name} {version}" for name, version in info.versions.items()), "")
    keys = {case.key: case for case in run.cases if case.target == target}
    failures = {
        keys[failure.case].name: _last_line(failure.message or failure.reason)
        for failure in run.failures
        if failure.case in keys
    }
    return System(
        target,
        info.name or target,
        version,
        info.durability,
        info.search_by,
        _limits(target),
        info.conformance,
        run.id,
        tuple(f"{name}: {message}" for name, message in failures.items()),
    )


def _limits(target: str) -> str:
    """Return what users should know of a system; empty where its class is not here, as in a bundle."""
    try:
        return load_target(target).limits
    except BenchmarkError:
        return ""


def _last_line(message: str) -> str:
    return (message.strip().splitlines() or [""])[-1][:_LONGEST_REASON]


def _measured(
    axis: Axis,
    system: System,
    cell: Cell,
    run: Run,
    results: Mapping[str, Results],
    answers: Mapping[str, Mapping[str, Answers]],
) -> Measured:
    if cell.figure is None:
        cell = Cell(reason=cell.reason or _missing(system, cell.benchmark, run), benchmark=cell.benchmark)
    result = results[system.target].get(cell.benchmark)
    own = answers[system.target].get(cell.benchmark) if axis.group == "Quality" else None
    return Measured(system, cell, result, run, own)


def _missing(system: System, benchmark: str, run: Run) -> str:
    """Return why a system has no result of a benchmark."""
    for failure in system.failures:
        name, _, message = failure.partition(": ")
        if name == benchmark or name.startswith(f"{benchmark}."):
            return f"failed: {message}"
    planned = [case.name for case in run.cases if case.target == system.target]
    if any(name == benchmark or name.startswith(f"{benchmark}.") for name in planned):
        return "not measured yet: the run is not complete" if run.status != "complete" else "no figure"
    return "not measured in this league"


def _outcomes(results: Results) -> Iterable[CheckOutcome]:
    """Yield the outcomes of all checks, in the order of the promises."""
    known = all_checks()
    order = list(known)
    found = []
    for name, result in results.items():
        if name.startswith("promises."):
            for check, group in result.results.items():
                if isinstance(group, dict) and check in known and "status" in group:
                    outcome = CheckOutcome(
                        known[check].promise,
                        check,
                        str(group["status"]),
                        str(group.get("evidence") or ""),
                        str(group.get("code") or ""),
                    )
                    found.append(outcome)
    return sorted(found, key=lambda one: (PROMISES.index(one.promise), order.index(one.check)))
