"""Draw a chart's panels as inline SVG. Texts are SVG text elements, and styles come from the page.

Colours, dashes and fonts are classes of `charts.css`. The description of a point is its `title` element, so
the browser shows it under the pointer even without a script. Scales and shapes come from `detroit` (D3).

    ┌─ label of y ────────────┐
    │ 10k ┤        ╭──●       │
    │  1k ┤  ●─────╯          │
    │     └──┬─────┬──────────│
    │       10    100         │
    └──────────── label of x ─┘
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from memory.benchmarking.report.charts import Axis, Chart, Line, Panel, Point
from memory.benchmarking.report.markup import Markup, element, join
from memory.benchmarking.report.ticks import AxisLayout, lay_out_axis, load_d3
from memory.benchmarking.text.display import clean, figure_text, interval_text, shorten

HEIGHT = 224
"""Height of a panel that is not horizontal, in pixels."""
COLOURS = 12
"""Number of colours of lines in `charts.css`."""
SHAPES = ("circle", "square", "triangle", "diamond2", "cross", "star", "wye")
_LETTER = 6.2
"""Average width of a letter, in pixels."""
_TOP, _RIGHT, _BOTTOM = 26, 12, 40
"""Room around the frame for labels, in pixels."""
_ROW = 15
"""Height of one bar of a horizontal chart, in pixels."""
_SHARE_OF_NAMES = 0.42
"""The most of a chart's width for the names on an axis; longer ones are cut."""
_LABEL_HEIGHT = 12
"""Height of the name beside a point, in pixels."""
_MANY = 40
"""A curve with more points than this has smaller dots."""
_MOST_MINOR = 40
"""If an axis has more minor grid lines than this, none are drawn."""
_BEYOND = 3.0
"""To show intervals, a logarithmic axis extends at most this factor beyond the figures."""


@dataclass(frozen=True)
class _Frame:
    """The axes of a panel, and the edges of its plot area in pixels."""

    x: AxisLayout
    y: AxisLayout
    left: float
    right: float
    top: float
    bottom: float
    horizontal: bool

    def place(self, x: float, y: float) -> tuple[float, float]:
        return (self.y.place(y), self.x.place(x)) if self.horizontal else (self.x.place(x), self.y.place(y))


def draw(chart: Chart, panel: Panel, label: str = "", sources: Sequence[str] = ()) -> Markup:
    """Draw one panel.

    - `label`: the text for screen readers; by default the titles of chart and panel.
    - `sources`: the names of the runs or targets; `Line.source` is the index.
    """
    height = _height(chart)
    frame = _frame(chart, height)
    parts: list[Markup | None] = [_grid(frame), *_axes(frame), *_limits(chart, frame)]
    parts += [
        _line(chart, line, frame, (number, len(panel.lines)), sources)
        for number, line in enumerate(panel.lines)
    ]
    parts.append(_labels(panel, frame))
    return element(
        "svg",
        parts,
        class_="plot",
        viewBox=f"0 0 {chart.width} {height}",
        role="img",
        aria_label=clean(label or " ".join(filter(None, (chart.title, panel.title)))),
    )


@cache
def shapes() -> Markup:
    """Return the shapes of the markers; a page needs them once, before its first chart."""
    d3 = load_d3()
    defs = []
    for number, name in enumerate(SHAPES):
        kind = getattr(d3, f"symbol_{name}")
        path = d3.symbol(kind, 34).digits(2)()
        defs.append(element("path", id=f"m{number}", d=path))
    return element(
        "svg",
        element("defs", defs),
        width=0,
        height=0,
        aria_hidden="true",
        class_="shapes",
        focusable="false",
    )


def point_text(chart: Chart, line: Line, point: Point, source: str = "") -> str:
    """Describe a point: `stm, batch size 100: 12,300 /s (11,900–12,700)`."""
    where = [source, line.name if len(chart.names) > 1 or not point.text else "", point.text]
    if not point.text:
        where.append(x_text(chart.x, point.x))
    elif chart.x.scale != "names":
        where.append(f"{chart.x.label} {figure_text(point.x, chart.x.unit)}")
    figure = figure_text(point.y, chart.y.unit)
    bounds = interval_text(point.y, point.low, point.high, chart.y.unit)
    return f"{', '.join(filter(None, where))}: {figure}{f' ({bounds})' if bounds else ''}"


def x_text(axis: Axis, value: float) -> str:
    """Describe a place on the x axis."""
    if axis.scale == "names":
        return axis.names[int(value)] if 0 <= value < len(axis.names) else ""
    if axis.scale == "nines":
        return "fastest" if value == 0 else f"{value * 100:.10g} %"
    return f"{axis.label} {figure_text(value, axis.unit)}"


# -- the frame --------------------------------------------------------------------------------


def _height(chart: Chart) -> int:
    if not chart.horizontal:
        return HEIGHT
    bars = max((len(panel.lines) for panel in chart.panels), default=1)
    return int(_top(chart) + _BOTTOM + max(1, len(chart.x.names)) * max(22, _ROW * bars + 6))


def _frame(chart: Chart, height: int) -> _Frame:
    """Lay out the axes: the same for all panels of a chart, so that they can be compared."""
    points = [point for line in chart.lines for point in line.points]
    xs = [point.x for point in points]
    ys = _values_of_y(chart, points)
    top, bottom = _top(chart), height - _BOTTOM
    if chart.horizontal:
        longest = int(_SHARE_OF_NAMES * chart.width / _LETTER)
        names = [shorten(clean(name), longest) for name in chart.x.names]
        left = 8 + _LETTER * max(map(len, names), default=0)
        right = chart.width - _RIGHT - 8
        x = lay_out_axis(Axis(chart.x.label, scale="names", names=tuple(names)), [], top, bottom)
        y = lay_out_axis(chart.y, ys, left, right, about=4)
    else:
        # Lay out y twice: its texts decide how much room is left of the frame.
        texts = lay_out_axis(chart.y, ys, bottom, top).texts
        left = 10 + _LETTER * max(map(len, texts), default=0)
        right = chart.width - _RIGHT
        x = lay_out_axis(chart.x, xs, left + 6, right - 6)
        y = lay_out_axis(chart.y, ys, bottom, top)
    return _Frame(x, y, left, right, top, bottom, chart.horizontal)


def _top(chart: Chart) -> int:
    """Return the room above the frame, for the label of y; a horizontal chart has that label below."""
    return 6 if chart.horizontal else _TOP


def _values_of_y(chart: Chart, points: Sequence[Point]) -> list[float]:
    """Return the values that y must include: all figures, and intervals up to a limit."""
    figures = [point.y for point in points]
    bounds = [bound for point in points for bound in (point.low, point.high) if bound is not None]
    if chart.y.scale == "log":
        positive = [figure for figure in figures if figure > 0] or [1.0]
        low, high = min(positive) / _BEYOND, max(positive) * _BEYOND
        figures += [limit for limit, _ in chart.limits]
    else:
        spread = max((abs(figure) for figure in figures), default=1.0)
        low, high = min(figures, default=0.0) - spread / 2, max(figures, default=1.0) + spread / 2
        if figures and min(figures) >= 0:
            low = 0.0
    return figures + [min(max(bound, low), high) for bound in bounds]


def _grid(frame: _Frame) -> Markup:
    """Draw grid lines at the ticks of y, and the base line."""
    base = f"M{_n(frame.left)} {_n(frame.bottom)}H{_n(frame.right)}"
    if frame.horizontal:
        base = f"M{_n(frame.left)} {_n(frame.top)}V{_n(frame.bottom)}"
    minor = _across(frame, frame.y.minor) if len(frame.y.minor) <= _MOST_MINOR else ""
    return join(
        [
            element("path", class_="grid minor", d=minor) if minor else None,
            element("path", class_="grid", d=_across(frame, frame.y.values)),
            element("path", class_="base", d=base),
        ]
    )


def _across(frame: _Frame, values: Iterable[float]) -> str:
    """Return the SVG path of lines across the frame, one at each value of y."""
    places = [_n(frame.y.place(value)) for value in values]
    if frame.horizontal:
        return "".join(f"M{place} {_n(frame.top)}V{_n(frame.bottom)}" for place in places)
    return "".join(f"M{_n(frame.left)} {place}H{_n(frame.right)}" for place in places)


def _axes(frame: _Frame) -> list[Markup]:
    down, across = (frame.x, frame.y) if frame.horizontal else (frame.y, frame.x)
    left = [
        element("text", clean(text), x=_n(frame.left - 6), y=_n(down.place(value) + 4), class_="end")
        for value, text in zip(down.values, down.texts, strict=True)
    ]
    places = [across.place(value) for value in across.values]
    below = [
        element("text", clean(text), x=_n(place), y=_n(frame.bottom + 15), class_="mid")
        for place, text in _that_fit(places, across.texts, frame.right + _RIGHT)
    ]
    labels = [
        element("text", clean(down.label), x=2, y=12, class_="axis") if down.label else Markup(),
        element(
            "text",
            clean(across.label),
            x=_n((frame.left + frame.right) / 2),
            y=_n(frame.bottom + 33),
            class_="axis mid",
        ),
    ]
    return [*left, *below, *labels]


def _that_fit(places: Sequence[float], texts: Sequence[str], end: float) -> list[tuple[float, str]]:
    """Return the texts along an axis with their places, without texts that would overlap the previous."""
    kept: list[tuple[float, str]] = []
    for place, text in zip(places, texts, strict=True):
        half = len(text) * _LETTER / 2
        if kept and place - half < kept[-1][0] + len(kept[-1][1]) * _LETTER / 2 + 6:
            continue
        kept.append((min(max(place, half), end - half), text))
    return kept


def _limits(chart: Chart, frame: _Frame) -> list[Markup]:
    found = []
    for value, text in chart.limits:
        place = frame.y.place(value)
        if frame.horizontal:
            inside = frame.left <= place <= frame.right
            name = element("text", clean(text), x=_n(place), y=_n(frame.bottom + 27), class_="limit mid")
        else:
            inside = frame.top - 1 <= place <= frame.bottom + 1
            name = element("text", clean(text), x=_n(frame.right), y=_n(place + 12), class_="limit end")
        if inside:
            found.append(join([element("path", class_="limit", d=_across(frame, [value])), name]))
    return found


# -- the lines --------------------------------------------------------------------------------


def _line(
    chart: Chart, line: Line, frame: _Frame, place: tuple[int, int], sources: Sequence[str]
) -> Markup | None:
    """Draw one line of a panel. `place` is the number of the line and the count of lines in the panel."""
    if not line.points:
        return None
    number, count = place
    aside = _ROW * (number - (count - 1) / 2) if frame.horizontal else 0.0
    source = sources[line.source] if len(sources) > 1 else ""
    places = [_moved(frame.place(point.x, point.y), aside) for point in line.points]
    colour = chart.colour_of(line)
    parts: list[Markup | None] = []
    if frame.horizontal and frame.y.minor == []:
        parts.append(_bars(places, frame))
    if line.drawn == "curve":
        parts.append(_band(line, frame))
    elif line.drawn != "fit":
        parts.append(_whiskers(line, frame, aside))
    if line.drawn in ("line", "curve", "fit") and not frame.horizontal and len(places) > 1:
        parts.append(element("path", class_="stroke", d=_path(places)))
    if line.drawn != "fit":
        parts += [
            _mark(line, at, colour, point_text(chart, line, point, source))
            for point, at in zip(line.points, places, strict=True)
        ]
    classes = [f"c{colour % COLOURS}", f"d{chart.dash_of(line)}", line.drawn]
    names = chart.names
    return element(
        "g",
        parts,
        class_=" ".join(classes),
        data_l=names.index(line.name) if line.name in names else None,
        data_s=line.source,
    )


def _mark(line: Line, place: tuple[float, float], colour: int, text: str) -> Markup:
    title = element("title", clean(text))
    if line.drawn == "curve":
        radius = "1.8" if len(line.points) <= _MANY else "1"
        return element("circle", title, class_="pt", cx=_n(place[0]), cy=_n(place[1]), r=radius)
    shape = f"#m{colour % len(SHAPES)}"
    # A `use` element draws a shape from `shapes()` at this place; charts.js finds it by its class.
    return element("use", title, class_="pt", href=shape, x=_n(place[0]), y=_n(place[1]))


def _bars(places: Iterable[tuple[float, float]], frame: _Frame) -> Markup:
    zero = frame.y.place(0) if frame.left <= frame.y.place(0) <= frame.right else frame.left
    return join(
        element(
            "rect",
            class_="bar",
            x=_n(min(zero, x)),
            y=_n(y - _ROW / 2 + 2),
            width=_n(abs(x - zero)),
            height=_ROW - 4,
        )
        for x, y in places
    )


def _whiskers(line: Line, frame: _Frame, aside: float) -> Markup | None:
    """Draw the intervals. An end inside the frame gets a small bar; an end outside gets none."""
    path = ""
    for point in line.points:
        if point.low is None or point.high is None or point.low == point.high:
            continue
        ends = [frame.place(point.x, bound) for bound in (point.low, point.high)]
        shown = [_inside(end, frame) for end in ends]
        (x1, y1), (x2, y2) = (_moved(end, aside) for end in shown)
        path += f"M{_n(x1)} {_n(y1)}{f'H{_n(x2)}' if frame.horizontal else f'V{_n(y2)}'}"
        for end, (x, y) in zip(ends, ((x1, y1), (x2, y2)), strict=True):
            if _inside(end, frame) == end:
                path += f"M{_n(x)} {_n(y - 3)}v6" if frame.horizontal else f"M{_n(x - 3)} {_n(y)}h6"
    return element("path", class_="whisker", d=path) if path else None


def _band(line: Line, frame: _Frame) -> Markup | None:
    bounded = [point for point in line.points if point.low is not None and point.high is not None]
    if len(bounded) < 2:
        return None
    lows = [_inside(frame.place(point.x, point.low or 0.0), frame) for point in bounded]
    highs = [_inside(frame.place(point.x, point.high or 0.0), frame) for point in bounded]
    return element("path", class_="band", d=_path([*highs, *reversed(lows)]) + "Z")


def _labels(panel: Panel, frame: _Frame) -> Markup | None:
    """Draw the names of points beside them, inside the picture, where they cover each other the least."""
    points = [
        (line, point, frame.place(point.x, point.y))
        for line in panel.lines
        for point in line.points
        if point.text and line.drawn == "dots"
    ]
    if frame.horizontal or not points:
        return None
    taken = [(x - 4, y - 4, x + 4, y + 4) for _, _, (x, y) in points]
    shown = []
    for line, point, (x, y) in points:
        width = len(point.text) * _LETTER
        options = [
            (x + 7, y - 6), (x - 7 - width, y - 6), (x - width / 2, y - 19), (x - width / 2, y + 7),
            (x + 7, y + 4), (x - 7 - width, y + 4), (x + 7, y - 17), (x - 7 - width, y - 17),
            (x - width / 2, y - 32), (x - 7 - width, y - 28), (x - width / 2, y + 19),
            (x - 7 - width, y + 15),
        ]  # fmt: skip
        last = frame.right + _RIGHT - width
        lefts = [(max(frame.left, min(left, last)), top) for left, top in options]
        boxes = [(left, top, left + width, top + _LABEL_HEIGHT) for left, top in lefts]
        box = min(boxes, key=lambda box: _covered(box, taken) + _below(box, frame))
        taken.append(box)
        shown.append(
            element(
                "text",
                clean(point.text),
                x=_n(box[0]),
                y=_n(box[1] + 10),
                class_="name",
                data_s=line.source,
            )
        )
    return join(shown)


def _covered(box: tuple[float, ...], others: Iterable[tuple[float, ...]]) -> float:
    """Return how many square pixels of other boxes a box covers."""
    return sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in others
    )


def _below(box: tuple[float, ...], frame: _Frame) -> float:
    """Return how many square pixels of a box are below the frame, where the texts of the axis are."""
    return max(0.0, box[3] - frame.bottom) * (box[2] - box[0])


def _path(places: Sequence[tuple[float, float]]) -> str:
    made = load_d3().line(lambda place: place[0], lambda place: place[1])
    return str(made.digits(1)(places))


def _moved(place: tuple[float, float], aside: float) -> tuple[float, float]:
    return place[0], place[1] + aside


def _inside(place: tuple[float, float], frame: _Frame) -> tuple[float, float]:
    x, y = place
    return min(max(x, frame.left), frame.right), min(max(y, frame.top), frame.bottom)


def _n(number: float) -> str:
    """Format a coordinate, to a tenth of a pixel."""
    return f"{number:.1f}".removesuffix(".0")
