"""The differences between the sources of a page, with the verdicts of `membench compare`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from memory.benchmarking.errors import DamagedResult
from memory.benchmarking.model.answers import Answers, read_answers
from memory.benchmarking.model.figure_kinds import kinds_of
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import join, leaf_of, read_path, where_of
from memory.benchmarking.model.records import Figure, Result
from memory.benchmarking.report.charts import Axis, Chart, Line, Panel, Point
from memory.benchmarking.report.gather import GatheredResults
from memory.benchmarking.report.matrix import is_same_figure
from memory.benchmarking.report.sources import Source
from memory.benchmarking.verdicts.compare import StoredSide, compare_sides, run_label
from memory.benchmarking.verdicts.evidence import CaseKey, CaseResult
from memory.benchmarking.verdicts.headlines import HeadlineVerdict, headline_verdict
from memory.benchmarking.verdicts.noise import load_noise
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict
from memory.benchmarking.verdicts.words import BETWEEN_TARGETS

Pair = tuple[int, int]
"""The numbers of a base source and of the source that is compared with it."""


@dataclass(frozen=True)
class Compared:
    """The verdicts on some pairs of sources, all from one comparison."""

    pairs: tuple[Pair, ...]
    comparison: Comparison
    between_targets: bool
    """Whether two systems are compared, and not two runs of one system."""

    @cached_property
    def by_path(self) -> dict[CaseKey, dict[str, MetricVerdict]]:
        """The verdicts by case and path."""
        found: dict[CaseKey, dict[str, MetricVerdict]] = {}
        for each in self.comparison.metrics:
            found.setdefault((each.category, each.benchmark, each.target), {})[each.path] = each
        return found


@dataclass(frozen=True)
class Difference:
    """One figure of a source, compared with the same figure of its base."""

    name: str
    path: str
    base_path: str
    """Differs from `path` if the base has no such tier: then the base's own headline is compared."""
    base: Figure
    other: Figure
    base_source: int
    source: int
    headline: HeadlineVerdict
    between_targets: bool
    kinds: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
    """What stands beside the base's figure and the source's: durability, kind of search."""

    @property
    def ratio(self) -> float:
        """The source's figure ÷ the base's."""
        return self.headline.change.ratio or 1.0

    @property
    def goodness(self) -> tuple[float, float | None, float | None]:
        """The ratio and its interval, inverted if lower is better. So a value above 1 means better."""
        low, high = self.headline.change.ratio_interval or (None, None)
        if self.headline.change.better != "lower":
            return self.ratio, low, high
        return 1 / self.ratio, _inverse(high), _inverse(low)

    @property
    def word(self) -> str:
        """The verdict; if two systems are compared, in the words of BETWEEN_TARGETS."""
        verdict = self.headline.verdict or "not judged"
        return BETWEEN_TARGETS.get(verdict, verdict) if self.between_targets else verdict

    @property
    def is_clear(self) -> bool:
        return self.headline.verdict in ("regressed", "improved")


def compare_sources(gathered: Sequence[GatheredResults], sources: Sequence[Source]) -> list[Compared]:
    """Compare each source with its base: the first run with the same target, or else the first source.

    Two runs are compared once, for all their targets. Two targets are compared once, for all benchmarks.
    """
    groups: dict[tuple[object, ...], list[Pair]] = {}
    for base, source in dict.fromkeys(pair for each in gathered for pair in _pairs(each)):
        before, now = sources[base], sources[source]
        runs = (before.run_id, now.run_id)
        key = runs if before.target == now.target and all(runs) else (base, source)
        groups.setdefault(key, []).append((base, source))
    return [_compare(gathered, sources, pairs) for pairs in groups.values()]


def differences(
    gathered: Sequence[GatheredResults], compared: Iterable[Compared], *, headlines: bool
) -> list[Difference]:
    """Return the differences of the headline figures; if not `headlines`, of all figures with a verdict."""
    found = []
    by_pair = {pair: each for each in compared for pair in each.pairs}
    for each in gathered:
        results = dict(each.results)
        for pair in (pair for pair in _pairs(each) if pair in by_pair):
            base, other = (results[number] for number in pair)
            metrics = by_pair[pair].by_path.get((each.category, each.benchmark, other.target), {})
            if headlines and not is_same_figure(base.headline, other.headline):
                continue
            for path in [other.headline] if headlines else metrics:
                verdict = headline_verdict(path, metrics)
                before = _base_path(base, path)
                if before is None or verdict is None or not _has_ratio(verdict.change):
                    continue
                if headlines or verdict.change.verdict is not None:
                    figures = base.result.metrics[before], other.result.metrics[path]
                    between_targets = by_pair[pair].between_targets
                    kinds = kinds_of(base.result, before), kinds_of(other.result, path)
                    found.append(
                        Difference(
                            each.name, path, before, *figures, *pair, verdict, between_targets, kinds
                        )
                    )
    return found


def not_compared(
    gathered: Sequence[GatheredResults], compared: Iterable[Compared]
) -> Iterator[tuple[str, int, str]]:
    """Yield the headline figures that `differences` leaves out: benchmark, source and reason."""
    by_pair = {pair: each for each in compared for pair in each.pairs}
    for each in gathered:
        results = dict(each.results)
        for pair in (pair for pair in _pairs(each) if pair in by_pair):
            base, other = (results[number] for number in pair)
            metrics = by_pair[pair].by_path.get((each.category, each.benchmark, other.target), {})
            verdict = headline_verdict(other.headline, metrics)
            if not other.headline or not base.headline:
                missing = base if not base.headline else other
                why = next(iter(missing.not_available.values()), "it has no figures")
                yield each.name, pair[1], f"n/a, {why}"
            elif not is_same_figure(base.headline, other.headline):
                why = next(iter((*other.not_available.values(), *base.not_available.values())), "no figure")
                yield each.name, pair[1], f"n/a, {why}"
            elif _base_path(base, other.headline) is None:
                yield each.name, pair[1], f"{other.headline} is another figure than {base.headline}"
            elif verdict is None or not _has_ratio(verdict.change):
                yield (
                    each.name,
                    pair[1],
                    f"{other.headline} has no ratio to {base.headline}",
                )


def clear_ones(found: Iterable[Difference]) -> list[Difference]:
    """Return the differences that are regressions or improvements, the largest first."""
    return sorted((each for each in found if each.is_clear), key=lambda each: -abs(math.log(each.ratio)))


def forest(found: Sequence[Difference], sources: Sequence[str]) -> Chart | None:
    """Return a chart of all headline figures as ratios to their bases, on one scale: right is better."""
    names = [*dict.fromkeys(each.name for each in found)]
    if not names:
        return None
    lines = []
    for source in sorted({each.source for each in found}):
        points = [Point(names.index(each.name), *each.goodness) for each in found if each.source == source]
        lines.append(Line("", tuple(points), source, "dots"))
    shown = tuple(name.partition(".")[2] or name for name in names)
    bases = [sources[source] for source in sorted({each.base_source for each in found})]
    return Chart(
        f"Headline figures, against {' and '.join(bases)}",
        Axis("", scale="names", names=shown),
        Axis("times as good; right is better", scale="log"),
        (Panel(tuple(lines)),),
        note="The ratio of the figures, turned so that more is better, with its 95 % interval. The verdict "
        "in the table asks for more than an interval that excludes 1: it is corrected for the number of "
        "metrics, and the difference has to exceed the noise of the machine.",
        horizontal=True,
        limits=((1.0, ""),),
        width=560,
    )


def _pairs(each: GatheredResults) -> Iterator[Pair]:
    """Yield the pairs of sources of a benchmark that are compared."""
    for number, result in each.results:
        base = _base(each, number, result)
        if base is not None:
            yield base, number


def _base(each: GatheredResults, source: int, result: LoadedResult) -> int | None:
    """Return the number of the source that a result is compared with; None if the result has no base."""
    same = [number for number, other in each.results if other.target == result.target]
    if len(same) > 1:
        return same[0] if same[0] != source else None
    targets = [other.target for _, other in each.results]
    has_first = any(number == 0 for number, _ in each.results)
    return 0 if source and has_first and len(set(targets)) == len(targets) else None


def _compare(
    gathered: Sequence[GatheredResults], sources: Sequence[Source], pairs: Sequence[Pair]
) -> Compared:
    base, source = pairs[0]
    before, now = sources[base], sources[source]
    between_targets = before.target != now.target
    sides: tuple[dict[CaseKey, CaseResult], dict[CaseKey, CaseResult]] = ({}, {})
    noise = None
    for each in gathered:
        results = dict(each.results)
        for number, loaded in each.results:
            owner = sources[number]
            whole_run = not between_targets and owner.run_id
            is_base = number == base or (whole_run and owner.run_id == before.run_id)
            if not is_base and number != source and not (whole_run and owner.run_id == now.run_id):
                continue
            result = loaded.result
            if is_base and between_targets:
                result = _with_headline_of(loaded, results.get(source))
            elif not is_base and owner.run is not None and noise is None:
                folder = loaded.file.path.parent.parent.parent
                noise = load_noise(folder, owner.run.environment.fingerprint, "stored")
            # Use the same target name for both sides, so that their cases match.
            case = (each.category, each.benchmark, now.target if between_targets else loaded.target)
            sides[not is_base][case] = CaseResult.of(result, owner.run, _answers(loaded))
    comparison = compare_sides(_side(before, sides[0]), _side(now, sides[1]), noise=noise)
    return Compared(tuple(pairs), comparison, between_targets)


def _answers(loaded: LoadedResult) -> Answers | None:
    """Return the answers of a result; None if they are damaged: the page must be shown anyway."""
    try:
        return read_answers(loaded.result, loaded.file.path.parent)
    except DamagedResult:
        return None


def _side(source: Source, results: dict[CaseKey, CaseResult]) -> StoredSide:
    return StoredSide(source.name if source.run is None else run_label(source.run), results, source.run)


def _with_headline_of(base: LoadedResult, other: LoadedResult | None) -> Result:
    """Return the base's result. Copy the figures at its headline to the path of the other's headline."""
    metrics = base.result.metrics
    if other is None or not _is_like(base.headline, other.headline):
        return base.result
    where, new_place = where_of(base.headline), where_of(other.headline)
    moved = {join(new_place, leaf_of(path)): metrics[path] for path in metrics if where_of(path) == where}
    return msgspec.structs.replace(base.result, metrics=moved | metrics)


def _base_path(base: LoadedResult, path: str) -> str | None:
    """Return the base's path of the figure that is compared with `path`; None if there is none."""
    if path in base.result.metrics:
        return path
    found = join(where_of(base.headline), leaf_of(path))
    return found if found in base.result.metrics and _is_like(found, path) else None


def _is_like(one: str, other: str) -> bool:
    """Return whether two paths have the same metric and the same parameters."""
    first, second = read_path(one), read_path(other)
    return (first.metric, first.parameters) == (second.metric, second.parameters)


def _has_ratio(change: MetricVerdict) -> bool:
    return change.better != "neither" and change.ratio is not None and 0 < change.ratio < math.inf


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value if value else math.inf
