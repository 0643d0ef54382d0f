"""The axes of the league, and how a cell is read from the results of one system.

Where a system has tiers, the figure is that of the tier in which a new memory is stored (`stm`): the same
tier for writing, reading and space, so that no system is shown with the best tier for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from memory.benchmarking.league.model import Axis, Cell, CurvePoint
from memory.benchmarking.metrics import Metric, metric_of
from memory.benchmarking.model.paths import leaf_of, read_path, segments_of
from memory.benchmarking.model.records import Figure, Result
from memory.benchmarking.text.display import figure_text

RECALL_FLOOR = 0.95
"""Vector searches are compared at this recall: each system with its fastest setting that reaches it."""
AT_RECALL = "vector_at_recall"
PROMISES = "promises"
QUALITY = "quality."
"""Before the name of a data set: the axis of its quality."""
_QUALITY_BENCHMARK = "quality.retrieval_quality"
_SIZES = ("retrieval.search_by_size", "retrieval.search_large")

Results = Mapping[str, Result]
"""The results of one system by `category.benchmark`."""


_RATE = "throughput_ops_per_second"


@dataclass(frozen=True)
class Spec:
    """An axis that is one figure of one benchmark."""

    key: str
    title: str
    group: str
    benchmark: str
    patterns: tuple[str, ...]
    """The first that fits counts; of several paths that fit it, the last, which has the largest size."""
    explanation: str
    by_durability: bool = False


SPECS = (
    Spec(
        "text_search", "Text search", "Search", "retrieval.search_by_size", ("text/size_*/p50_ms",),
        "Median time of a search by text for 10 hits, with embedding the question, at the largest size of "
        "the profile; ten agents share the store. Recall is not part of it: see quality.",
    ),
    Spec(
        "write_one", "Write", "Write", "storage.write_throughput",
        (f"texts/*/stm/one_by_one/{_RATE}", f"texts/*/one_by_one/{_RATE}"),
        "Memories a second, stored one by one, each acknowledged before the next. Systems are ranked only "
        "among those whose writes survive the same.",
        by_durability=True,
    ),
    Spec(
        "write_batch", "Write, batch", "Write", "storage.write_throughput",
        (f"texts/*/stm/as_one_batch/{_RATE}", f"texts/*/as_one_batch/{_RATE}"),
        "Memories a second, stored as one batch. Ranked among systems of the same durability.",
        by_durability=True,
    ),
    Spec(
        "read", "Read", "Read", "storage.read_latency",
        ("texts/stm/single/p50_ms", "texts/*/single/p50_ms"),
        "Median time to read one memory by its id.",
    ),
    Spec(
        "load", "Load", "Load", "scalability.saturation",
        ("*/threads_1/knee_per_second", "*/knee_per_second"),
        "The knee: the highest rate of mixed operations, arriving at random times, at which 99 % of them "
        "take less than 10 ms and none is dropped. Ranked among systems of the same durability.",
        by_durability=True,
    ),
    Spec(
        "disk", "Disk", "Space", "storage.memory_efficiency",
        ("texts/stm/disk_bytes_per_memory", "texts/*/disk_bytes_per_memory"),
        "Bytes on disk a memory (a line of conversation of about 35 tokens, with its vector), after the "
        "system's own maintenance, less an empty store.",
    ),
    Spec(
        "ram", "RAM", "Space", "storage.memory_efficiency",
        ("texts/stm/ram_bytes_per_memory", "texts/*/ram_bytes_per_memory"),
        "By how much resident memory grew for each memory, all processes of the system together.",
    ),
    Spec(
        "open_rss", "RAM, open", "Footprint", "storage.footprint", ("open_rss_mb",),
        "Resident memory that the system adds to a new process: imported, a store opened, one search made.",
    ),
    Spec(
        "installed", "Installed", "Footprint", "storage.footprint", ("installed_mb",),
        "Size of the system's packages and of all that they need, without Python itself.",
    ),
    Spec(
        "first_open", "Start", "Footprint", "storage.footprint", ("first_open_ms",),
        "Time in a new process to import the system and open an empty store.",
    ),
    Spec(
        "cold_search", "First search", "Footprint", "storage.footprint", ("first_search_ms",),
        "Time of the first search in a new process, after opening a store with memories, with loading the "
        "embedder.",
    ),
)  # fmt: skip


def axes_of(systems: Mapping[str, Results]) -> Iterator[tuple[Axis, dict[str, Cell]]]:
    """Yield each axis that at least one system has, with the cell of every system by target."""
    for name in _data_sets(systems):
        found = {target: _quality(results, name) for target, results in systems.items()}
        yield _axis_of_quality(name), found
    found = {target: _at_recall(results) for target, results in systems.items()}
    if any(cell.figure for cell in found.values()):
        yield replace(AXIS_AT_RECALL, at=_at(found)), found
    for spec in SPECS:
        found = {target: _cell(results, spec) for target, results in systems.items()}
        metric = _metric(systems, found)
        if metric is not None:
            yield _axis(spec, metric, _at(found)), found
    found = {target: _promises(results) for target, results in systems.items()}
    if any(cell.figure for cell in found.values()):
        yield AXIS_PROMISES, found


def _axis(spec: Spec, metric: Metric, at: str) -> Axis:
    return Axis(
        spec.key,
        spec.title,
        spec.group,
        metric.unit,
        metric.better,
        spec.explanation,
        at,
        spec.by_durability,
    )


def _at(cells: Mapping[str, Cell]) -> str:
    """Return the size of the store that the figures of an axis have; empty where they have none."""
    sizes = {read_path(cell.path).parameters.get("size") for cell in cells.values() if cell.figure}
    known = [size for size in sizes if size]
    return f"{max(known):,} memories" if known else ""


def _metric(systems: Mapping[str, Results], cells: Mapping[str, Cell]) -> Metric | None:
    for target, cell in cells.items():
        if cell.figure is not None:
            result = systems[target][cell.benchmark]
            unit = result.units.get(leaf_of(cell.path))
            return metric_of(leaf_of(cell.path)) if unit is None else Metric(unit.unit, unit.better)
    return None


def _cell(results: Results, spec: Spec) -> Cell:
    result = results.get(spec.benchmark)
    if result is None:
        return Cell(reason="", benchmark=spec.benchmark)
    path = _last(result, spec.patterns)
    if path is None:
        return Cell(reason=_reason(result, spec.patterns), benchmark=spec.benchmark)
    return Cell(result.metrics[path], benchmark=spec.benchmark, path=path)


def _last(result: Result, patterns: tuple[str, ...]) -> str | None:
    for pattern in patterns:
        fitting = [path for path in result.metrics if fnmatchcase(path, pattern)]
        if fitting:
            return fitting[-1]
    return None


def _reason(result: Result, patterns: tuple[str, ...]) -> str:
    """Return why a result lacks a figure: the reason of the path itself, else of the whole benchmark."""
    reasons = result.metadata.get("not_available") or {}
    for where, why in reasons.items():
        if any(
            not where or fnmatchcase(where, pattern) or pattern.startswith(f"{where}/")
            for pattern in patterns
        ):
            return str(why)
    leaves = {leaf_of(pattern) for pattern in patterns}
    alike = [str(why) for where, why in reasons.items() if leaf_of(where) in leaves]
    return next(iter(alike), "the benchmark gave no such figure")


# -- quality ----------------------------------------------------------------------------------


def _data_sets(systems: Mapping[str, Results]) -> list[str]:
    found: dict[str, None] = {}
    for results in systems.values():
        result = results.get(_QUALITY_BENCHMARK)
        for path in result.metrics if result else ():
            if path.endswith("/target/all_questions/recall_at_5"):
                found[segments_of(path)[0]] = None
    return list(found)


def _quality(results: Results, data_set: str) -> Cell:
    result = results.get(_QUALITY_BENCHMARK)
    if result is None:
        return Cell(benchmark=_QUALITY_BENCHMARK)
    path = f"{data_set}/target/all_questions/recall_at_5"
    figure = result.metrics.get(path)
    if figure is None:
        return Cell(reason=_reason(result, (path,)), benchmark=_QUALITY_BENCHMARK)
    return Cell(figure, benchmark=_QUALITY_BENCHMARK, path=path)


def _axis_of_quality(data_set: str) -> Axis:
    return Axis(
        f"{QUALITY}{data_set}",
        f"Quality, {data_set}",
        "Quality",
        "",
        "higher",
        f"Recall at 5 on {data_set}: the share of the passages that answer a question and are among the "
        "first five hits of a text search. All systems get the same vectors; one that also compares words "
        "can find more.",
    )


# -- recall and latency -----------------------------------------------------------------------

AXIS_AT_RECALL = Axis(
    AT_RECALL,
    f"Vector search at recall {RECALL_FLOOR:g}",
    "Search",
    "ms",
    "lower",
    f"Median time of a vector search for 10 hits with the fastest setting whose recall is at least "
    f"{RECALL_FLOOR:g}, at the largest size that was measured in several rounds. The setting and its "
    "recall stand beside the figure.",
)


def curve_of(results: Results) -> tuple[int, tuple[CurvePoint, ...]]:
    """Return the size of the store, and recall and time of each setting; size 0 without any.

    The size is the largest one of the benchmark with several rounds.
    """
    result = results.get(_SIZES[0])
    if result is None:
        return 0, ()
    sizes = {
        int(size)
        for path in result.metrics
        if path.endswith("/recall") and (size := read_path(path).parameters.get("size"))
    }
    if not sizes:
        return 0, ()
    size = max(sizes)
    points = []
    for path, figure in result.metrics.items():
        start = f"vector/size_{size}/"
        if path.startswith(start) and path.endswith("/recall"):
            setting = path.removeprefix(start).removesuffix("/recall")
            time = result.metrics[f"{start}{setting}/search/p50_ms"]
            points.append(CurvePoint(setting.replace("_", " "), figure.value, time))
    return size, tuple(points)


def _at_recall(results: Results) -> Cell:
    benchmark = _SIZES[0]
    result = results.get(benchmark)
    if result is None:
        return Cell(benchmark=benchmark)
    size, points = curve_of(results)
    if not points:
        return Cell(reason=_reason(result, ("vector/*/search/p50_ms",)), benchmark=benchmark)
    enough = [point for point in points if point.recall >= RECALL_FLOOR]
    if not enough:
        best = max(points, key=lambda point: point.recall)
        reason = (
            f"no setting reaches recall {RECALL_FLOOR:g}: the most is {best.recall:.3f} ({best.setting}), "
            f"in {figure_text(best.milliseconds.value, 'ms')}"
        )
        return Cell(reason=reason, benchmark=benchmark)
    fastest = min(enough, key=lambda point: point.milliseconds.value)
    setting = fastest.setting.replace(" ", "_")
    return Cell(
        fastest.milliseconds,
        f"recall {fastest.recall:.3f}, {fastest.setting}",
        benchmark=benchmark,
        path=f"vector/size_{size}/{setting}/search/p50_ms",
    )


def by_size_of(results: Results) -> dict[int, Figure]:
    """Return the median time of a text search by number of memories."""
    found: dict[int, Figure] = {}
    for benchmark in _SIZES:
        result = results.get(benchmark)
        for path, figure in result.metrics.items() if result else ():
            if fnmatchcase(path, "text/size_*/p50_ms"):
                found[int(read_path(path).parameters["size"])] = figure
    return dict(sorted(found.items()))


# -- promises ---------------------------------------------------------------------------------

AXIS_PROMISES = Axis(
    PROMISES,
    "Promises kept",
    "Promises",
    "",
    "higher",
    "Share of the checks that the system kept, of those that it promises and that could be tried. What a "
    "system does not promise does not count against it: the grid below shows it.",
)


def _promises(results: Results) -> Cell:
    kept = broken = 0
    for name, result in results.items():
        if name.startswith("promises."):
            for path, figure in result.metrics.items():
                if leaf_of(path) == "kept":
                    kept += figure.value == 1
                    broken += figure.value != 1
    if not kept + broken:
        return Cell(benchmark="promises")
    value = kept / (kept + broken)
    return Cell(
        Figure(value=value, rounds=[value]),
        f"{kept} of {kept + broken}",
        benchmark="promises",
        path="kept_share",
    )
