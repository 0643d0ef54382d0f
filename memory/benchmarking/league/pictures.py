"""The pictures of the league: charts of `report/charts.py`, made from the cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from memory.benchmarking.league.axes import QUALITY, RECALL_FLOOR
from memory.benchmarking.league.model import League, System
from memory.benchmarking.model.figure_kinds import SURVIVES
from memory.benchmarking.model.records import Figure
from memory.benchmarking.report.charts import Axis, Chart, Line, Panel, Point, fitting_scale
from memory.benchmarking.targets.base import DURABILITIES

WIDE = 560
"""Width of a picture, in pixels: names of systems need room."""
Picture = tuple[str, Chart, tuple[str, ...]]
"""An anchor, the chart, and the names of its sources."""


def pictures_of(league: League) -> Iterator[Picture]:
    """Yield the pictures that the league has figures for."""
    yield from _quality_and_latency(league)
    yield from _curves(league)
    yield from _by_size(league)
    yield from _writes(league)
    yield from _space(league)


def names_of(systems: Sequence[System]) -> tuple[str, ...]:
    return tuple(system.name if ":" in system.target else system.target for system in systems)


def _point(x: float, figure: Figure, text: str = "") -> Point:
    return Point(x, figure.value, figure.low, figure.high, text=text)


def _below(shares: Iterable[float]) -> float:
    """Return where an axis of shares begins: a tenth, so that the points do not crowd at the top."""
    return max(0.0, math.floor((min(shares) - 0.02) * 10) / 10)


def front(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the Pareto front: the points that no other one beats in time and in quality, by time."""
    found: list[Point] = []
    for point in sorted(points, key=lambda each: (each.x, -each.y)):
        if not found or point.y > found[-1].y:
            found.append(point)
    return tuple(Point(point.x, point.y) for point in found)


def _quality_and_latency(league: League) -> Iterator[Picture]:
    for axis in league.axes:
        if not axis.key.startswith(QUALITY):
            continue
        data_set = axis.key.removeprefix(QUALITY)
        points = []
        for system, name in zip(league.systems, names_of(league.systems), strict=True):
            time = league.value(system.target, "text_search")
            figure = league.cell(system.target, axis.key).figure
            if time is not None and figure is not None:
                points.append(_point(time, figure, name))
        if len(points) < 2:
            continue
        best = front(points)
        on_front = {(point.x, point.y) for point in best}
        named = [
            point.text for point in sorted(points, key=lambda one: one.x) if (point.x, point.y) in on_front
        ]
        chart = Chart(
            f"Quality against latency, {data_set}",
            Axis("median time of a text search", "ms", fitting_scale(point.x for point in points)),
            Axis("recall at 5", low=_below(point.y for point in points)),
            (Panel((Line("", tuple(points), drawn="dots"), Line("front", best, drawn="fit"))),),
            findings=(
                f"On the front, where no other system is faster and finds more: {', '.join(named)}.",
            ),
            note="Up and to the left is better. The dotted line joins the front.",
            width=WIDE,
        )
        yield f"picture-quality-{data_set}", chart, ("",)


def _curves(league: League) -> Iterator[Picture]:
    measured = [system for system in league.systems if league.curves.get(system.target)]
    if not measured:
        return
    lines = []
    for number, system in enumerate(measured):
        points = sorted(league.curves[system.target], key=lambda point: point.milliseconds.value)
        line = Line(
            "",
            tuple(Point(point.milliseconds.value, point.recall) for point in points),
            source=number,
            drawn="line" if len(points) > 1 else "dots",
        )
        lines.append(line)
    times = [point.x for line in lines for point in line.points]
    chart = Chart(
        f"Recall and latency of a vector search, {league.curve_size:,} memories",
        Axis("median time", "ms", fitting_scale(times)),
        Axis("recall at 10", low=_below(point.y for line in lines for point in line.points), high=1.0),
        (Panel(tuple(lines)),),
        findings=("A line is one system with several settings of its dial; the table below names them.",),
        note=f"Up and to the left is better. The table compares systems at recall {RECALL_FLOOR:g}.",
        limits=((RECALL_FLOOR, f"recall {RECALL_FLOOR:g}"),),
        width=WIDE,
    )
    yield "picture-recall", chart, names_of(measured)


def _by_size(league: League) -> Iterator[Picture]:
    measured = [system for system in league.systems if league.by_size.get(system.target)]
    sizes = sorted({size for system in measured for size in league.by_size[system.target]})
    if len(sizes) < 2:
        return
    lines = [
        Line(
            "",
            tuple(_point(size, figure) for size, figure in league.by_size[system.target].items()),
            source=number,
        )
        for number, system in enumerate(measured)
    ]
    chart = Chart(
        "Time of a text search, by number of memories",
        Axis("memories", scale="log", ticks=tuple(map(float, sizes))),
        Axis("median time", "ms", "log"),
        (Panel(tuple(lines)),),
        note="Both axes are logarithmic: a line that rises by one decade for each decade is linear growth.",
        width=WIDE,
    )
    yield "picture-sizes", chart, names_of(measured)


def _writes(league: League) -> Iterator[Picture]:
    found = [
        (system, name, league.cell(system.target, "write_one").figure)
        for system, name in zip(league.systems, names_of(league.systems), strict=True)
    ]
    measured = [(system, name, figure) for system, name, figure in found if figure is not None]
    if len(measured) < 2:
        return
    measured.sort(key=lambda each: (-_class_rank(each[0].durability), -each[2].value))
    used = dict.fromkeys(system.durability for system, _, _ in measured)
    classes = "; of class ".join(f"{each} survives {SURVIVES.get(each, 'unknown')}" for each in used)
    points = tuple(_point(place, figure) for place, (_, _, figure) in enumerate(measured))
    names = tuple(f"{system.durability} · {name}" for system, name, _ in measured)
    chart = Chart(
        "Writes a second, one by one, by what a write survives",
        Axis("", scale="names", names=names),
        Axis("memories a second", "/s", fitting_scale(figure.value for _, _, figure in measured)),
        (Panel((Line("", points, drawn="dots"),)),),
        note=f"Compare systems of one class. A write of class {classes}.",
        horizontal=True,
        width=WIDE,
    )
    yield "picture-writes", chart, ("",)


def _class_rank(durability: str) -> int:
    return [*DURABILITIES].index(durability) if durability in DURABILITIES else -1


def _space(league: League) -> Iterator[Picture]:
    measured = [
        (system, name)
        for system, name in zip(league.systems, names_of(league.systems), strict=True)
        if league.value(system.target, "disk") is not None or league.value(system.target, "ram") is not None
    ]
    if len(measured) < 2:
        return
    order = sorted(measured, key=lambda each: league.value(each[0].target, "disk") or float("inf"))
    lines = []
    for key, title in (("disk", "on disk"), ("ram", "in RAM")):
        points = tuple(
            _point(place, figure)
            for place, (system, _) in enumerate(order)
            if (figure := league.cell(system.target, key).figure) is not None
        )
        if points:
            lines.append(Line(title, points, drawn="dots"))
    values = [point.y for line in lines for point in line.points]
    chart = Chart(
        "Space of one memory",
        Axis("", scale="names", names=tuple(name for _, name in order)),
        Axis("bytes a memory", "B", fitting_scale(values)),
        (Panel(tuple(lines)),),
        note="A memory is a line of conversation of about 35 tokens, with its vector. Less is better.",
        horizontal=True,
        width=WIDE,
    )
    yield "picture-space", chart, ("",)
