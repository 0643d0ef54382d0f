"""Charts: points are at their places, names are escaped, and a table has all data."""

from __future__ import annotations

import math
import re
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.benchmarking.errors import MissingDependency
from memory.benchmarking.report.chart_html import data_table, figure
from memory.benchmarking.report.charts import (
    WIDTH,
    Axis,
    Chart,
    Line,
    Panel,
    Point,
    fitting_scale,
    thinned,
    with_fitting_y,
)
from memory.benchmarking.report.svg import HEIGHT, draw, shapes
from memory.benchmarking.report.ticks import lay_out_axis, short_number

SIZES = Axis("batch size", scale="log", ticks=(10, 100, 1000))
RATE = Axis("throughput", "/s")


def lines(*names: str, source: int = 0) -> tuple[Line, ...]:
    return tuple(
        Line(
            name,
            tuple(
                Point(size, (number + 1) * size, size * number, size * (number + 2)) for size in SIZES.ticks
            ),
            source,
        )
        for number, name in enumerate(names)
    )


def chart(*drawn: Line, **changes: object) -> Chart:
    wanted = {"title": "Writing", "x": SIZES, "y": RATE, "panels": (Panel(drawn),)} | changes
    return Chart(**wanted)  # type: ignore[arg-type]


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [found for _, found in self.elements if name in (found.get("class") or "").split()]


def drawn_points(made: Chart) -> list[tuple[float, float]]:
    seen = Seen(draw(made, made.panels[0]))
    return [(float(each["x"] or 0), float(each["y"] or 0)) for each in seen.of_class("pt")]


def test_a_larger_figure_is_drawn_higher_and_a_larger_size_further_right() -> None:
    points = drawn_points(chart(*lines("stm")))
    assert points == sorted(points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors() -> None:
    (first, second, third) = (x for x, _ in drawn_points(chart(*lines("stm"))))
    assert second - first == pytest.approx(third - second, abs=0.2)


def test_a_horizontal_chart_draws_names_down_and_figures_to_the_right() -> None:
    names = Axis("", scale="names", names=("stm", "im", "ltm"))
    line = Line("bytes", (Point(0, 100), Point(1, 200), Point(2, 400)))
    points = drawn_points(chart(line, x=names, y=Axis("bytes", "B"), horizontal=True))
    assert points == sorted(points)
    assert [y for _, y in points] == sorted(y for _, y in points)


def test_every_point_has_a_description_even_without_a_script() -> None:
    texts = Seen(draw(made := chart(*lines("stm", "im")), made.panels[0])).texts
    assert "stm, batch size 100: 100 /s (0–200)" in texts
    assert "im, batch size 1,000: 2,000 /s (1,000–3,000)" in texts


def test_a_point_names_its_source_where_there_are_several() -> None:
    made = chart(*lines("stm"), *lines("stm", source=1))
    texts = Seen(draw(made, made.panels[0], sources=("run one", "run two"))).texts
    assert "run two, stm, batch size 100: 100 /s (0–200)" in texts


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "detroit", None)
    with pytest.raises(MissingDependency, match=r"drawing charts needs detroit: pip install .*\[bench\]"):
        draw(made := chart(*lines("stm")), made.panels[0])


def test_the_table_holds_every_point_with_its_interval() -> None:
    made = chart(*lines("stm", "im"), *lines("stm", source=1))
    table = Seen(data_table(made, ("run one", "run two")))
    assert [text for text in table.texts if "run" in text] == [
        "stm, run one",
        "im, run one",
        "stm, run two",
    ]
    assert table.texts.count("100 /s (0–200)") == 2
    assert table.texts.count("2,000 /s (1,000–3,000)") == 1
    assert len([tag for tag, _ in table.elements if tag == "tr"]) == 1 + len(SIZES.ticks)


def test_a_figure_has_findings_a_legend_and_its_data() -> None:
    made = chart(*lines("stm", "im"), findings=("Twice as quick.",), note="Higher is better.")
    seen = Seen(figure(made))
    assert {"Writing", "Twice as quick.", "Higher is better.", "The data as a table"} <= set(seen.texts)
    assert [each["data-key"] for each in seen.of_class("key")] == ["0", "1"]
    assert [each["data-l"] for _, each in seen.elements if "data-l" in each] == ["0", "1"]


@settings(deadline=None, max_examples=60)
@given(
    st.text(min_size=1, max_size=20)
    | st.sampled_from(
        ["<script>x</script>", '"><img src=x>', "</svg>", "]]>", "\x00\x1b[2J", "\u2028", "\ud800"]
    )
)
def test_names_with_markup_are_escaped(hostile: str) -> None:
    def made(name: str) -> Seen:
        point = (Point(10, 1, text=name),)
        line = Line(name, (Point(10, 1), Point(20, 2)))
        axis = Axis(name, name)
        parts = (Panel((line, Line(f"{name}2", point, 1, "dots")), name),)
        return Seen(
            figure(Chart(name, axis, axis, parts, (name,), name, limits=((1, name),)), (name, name))
        )

    plain = made("a")
    assert [tag for tag, _ in made(hostile).elements] == [tag for tag, _ in plain.elements]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-1e12, 1e12),
            st.floats(0, 1e12),
            st.floats(0, 1e12),
            st.sampled_from(["line", "curve"]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
)
def test_every_point_is_drawn_inside_the_frame(found: list, horizontal: bool) -> None:
    ticks = tuple(float(number) for number in range(len(found)))
    x = Axis("x", scale="names", names=tuple("abcdefgh"[: len(found)])) if horizontal else Axis("x")
    points = tuple(
        Point(number, y, y - down, y + up) for number, (y, down, up, _) in zip(ticks, found, strict=True)
    )
    made = with_fitting_y(chart(Line("all", points, drawn=found[0][3]), x=x, horizontal=horizontal))
    text = draw(made, made.panels[0])
    seen = Seen(text)
    height = float((seen.elements[0][1]["viewbox"] or "").split()[3])
    numbers = re.findall(
        r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf",
        " ".join(
            value or ""
            for _, each in seen.elements
            for name, value in each.items()
            if name in ("d", "x", "y", "cx", "cy")
        ),
    )
    assert all(math.isfinite(float(number)) for number in numbers)
    for each in seen.of_class("pt"):
        across, down = float(each.get("x") or each["cx"] or 0), float(each.get("y") or each["cy"] or 0)
        assert 0 <= across <= WIDTH
        assert 0 <= down <= height


@pytest.mark.parametrize(
    ("axis", "values", "texts", "label"),
    [
        (Axis("p50", "ms", "log"), [0.001, 0.5, 20], ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"], "p50"),
        (Axis("p50", "ms"), [0.002, 0.0085], ["0", "2", "4", "6", "8", "10"], "p50 (µs)"),
        (Axis("rate", "/s"), [900, 41_000], ["0", "10k", "20k", "30k", "40k", "50k"], "rate (per second)"),
        (Axis("recall", low=0, high=1), [0.31, 0.9], ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"], "recall"),
        (Axis("n", scale="log", ticks=(10, 1000, 10_000)), [10, 1000], ["10", "1k", "10k"], "n"),
        (Axis("share", scale="nines"), [0.5, 0.999], ["min", "50 %", "90 %", "99 %", "99.9 %"], "share"),
    ],
)  # fmt: skip
def test_axis_ticks_use_readable_units(
    axis: Axis, values: list[float], texts: list[str], label: str
) -> None:
    made = lay_out_axis(axis, values, 0, 300)
    assert made.texts == texts
    assert made.label == label


def test_an_interval_down_to_zero_does_not_squeeze_a_logarithmic_axis() -> None:
    wide = Line("a", (Point(10, 5, 1e-9, 1e9), Point(100, 8), Point(1000, 300)))
    ys = [y for _, y in drawn_points(chart(wide, y=Axis("ms", "ms", "log")))]
    assert max(ys) - min(ys) > HEIGHT / 4


def test_a_scale_is_logarithmic_only_where_figures_are_positive_and_far_apart() -> None:
    assert fitting_scale([1, 100]) == "log"
    assert fitting_scale([1, 10]) == "linear"
    assert fitting_scale([0, 100]) == "linear"
    assert fitting_scale([]) == "linear"


@given(st.integers(1, 500), st.integers(2, 60))
def test_thinning_keeps_both_ends_and_the_order(count: int, most: int) -> None:
    points = tuple(Point(number, 0) for number in range(count))
    kept = thinned(points, most)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert len(kept) == min(count, most)
    assert list(kept) == sorted(kept, key=lambda point: point.x)


def test_lines_with_the_same_name_differ_by_source() -> None:
    one, other = lines("all")[0], lines("all", source=1)[0]
    both = chart(one, other)
    assert both.colour_of(one) != both.colour_of(other)
    tiers = chart(*lines("stm", "im"), *lines("stm", "im", source=1))
    assert [tiers.colour_of(line) for line in tiers.lines] == [0, 1, 0, 1]


def test_names_of_points_stay_inside_the_picture_and_apart() -> None:
    crowd = tuple(
        Point(100 * 1.02**number, 50.0, text=name)
        for number, name in enumerate(("langgraph-memory", "mem0", "qdrant", "chroma"))
    )
    far = (Point(1, 50.0, text="first"), Point(110, 50.0, text="agentmemory-postgres"))
    drawn = chart(Line("", (*far, *crowd), drawn="dots"), x=Axis("time", "ms", "log"), width=560)
    boxes = [
        (float(each["x"] or 0), float(each["y"] or 0), each["text"] or "")
        for each in named(str(draw(drawn, drawn.panels[0])))
    ]
    assert len(boxes) == 6
    for left, _, text in boxes:
        assert 0 < left < left + 6 * len(text) < 560, text
    for number, (left, top, text) in enumerate(boxes):
        for other_left, other_top, other in boxes[:number]:
            apart = left >= other_left + 6 * len(other) or other_left >= left + 6 * len(text)
            assert apart or abs(top - other_top) >= 11, (text, other)


def named(svg: str) -> list[dict[str, str]]:
    """Return the names beside points, with their places."""
    found = []
    for tag, text in re.findall(r"<text([^>]*)>([^<]*)</text>", svg):
        attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if attributes.get("class") == "name":
            found.append({**attributes, "text": text})
    return found


def test_long_names_are_whole_where_the_picture_is_wide() -> None:
    axis = Axis("", scale="names", names=("machine · agentmemory-postgres",))
    wide = chart(Line("", (Point(0, 5.0),)), x=axis, horizontal=True, width=560)
    assert axis.names[0] in str(draw(wide, wide.panels[0]))


def test_short_numbers() -> None:
    found = [short_number(value) for value in (0, 0.05, 1, 999, 1000, 1234, 12_000, 2.5e6, 3e9, 1e-7)]
    assert found == ["0", "0.05", "1", "999", "1k", "1234", "12k", "2.5M", "3G", "1e-07"]


def test_every_marker_has_a_shape() -> None:
    ids = {each["id"] for tag, each in Seen(shapes()).elements if tag == "path"}
    assert ids == {f"m{number}" for number in range(7)}


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_ticks_of_a_narrow_axis_differ(scale: str) -> None:
    for value in (1.2345e-7, 1.2345, 15_401_234.0):
        values = [value, value * 1.00002]
        axis = Axis("time", "ms", scale=scale, low=values[0], high=values[1])  # type: ignore[arg-type]
        texts = lay_out_axis(axis, values, 0, 100).texts
        assert len(texts) > 2
        assert len(set(texts)) == len(texts), texts
