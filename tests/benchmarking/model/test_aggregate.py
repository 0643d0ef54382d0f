"""From rounds to a result: figures with their intervals, the tree, the headline."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.benchmarking.metrics import Declaration, Metric
from memory.benchmarking.model.aggregate import _plant, headline_of, make_result, params_digest
from memory.benchmarking.model.files import encode_json
from memory.benchmarking.model.records import Case, Figure, Round, Samples, Unit

CASE = Case(category="c", benchmark="b", target="t", params={"size": 3, "names": ["a"]})


def a_round(number: int, figures: dict[str, float], **more: Any) -> Round:
    values = {
        "samples": {},
        "other": {},
        "not_available": {},
        "started_at": 0.0,
        "load_seconds": 0.1,
        "seconds": 2.0,
        "peak_rss_bytes": 1000,
        "wall_to_cpu": 1.0,
    }
    return Round(number=number, seed=number * 10, figures=figures, **(values | more))


def result_of(*rounds: Round, declaration: Declaration | None = None) -> Any:
    return make_result(CASE, rounds, declaration or Declaration(), "20260801_101500", {"profile": "quick"})


def test_a_result_has_the_centre_the_interval_and_every_round() -> None:
    result = result_of(*(a_round(number, {"a/x_ms": value}) for number, value in ((2, 4), (0, 1), (1, 2))))
    figure = result.metrics["a/x_ms"]
    assert figure.rounds == [1, 2, 4], "in the order of their numbers"
    assert figure.value == pytest.approx(2)
    assert figure.low < 2 < figure.high
    assert figure.interval_from == "rounds"
    assert result.results == {"a": {"x_ms": pytest.approx(2)}}
    assert result.units["x_ms"] == Unit(unit="ms", better="lower")
    assert result.metadata["rounds"] == 3
    assert result.metadata["seeds"] == [0, 10, 20]
    assert result.metadata["execution_time"] == 6.0
    assert result.metadata["params"] == CASE.params
    assert result.metadata["profile"] == "quick"
    assert result.metadata["headline"] == "a/x_ms"


def test_one_round_has_no_interval() -> None:
    figure = result_of(a_round(0, {"a": 3})).metrics["a"]
    assert (figure.value, figure.low, figure.high, figure.interval_from) == (3, None, None, "")


def test_a_figure_that_some_rounds_lack_is_made_from_the_others() -> None:
    result = result_of(a_round(0, {"a": 1, "b": 5}), a_round(1, {"a": 1}))
    assert result.metrics["b"].rounds == [5]
    assert result.metrics["a"].rounds == [1, 1]


def test_an_interval_over_units_of_a_round_is_kept_and_named() -> None:
    rounds = [
        a_round(n, {"recall": v}, intervals={"recall": (v - 0.1, v + 0.1)})
        for n, v in enumerate((0.4, 0.6))
    ]
    figure = result_of(*rounds).metrics["recall"]
    assert (figure.value, figure.low, figure.high) == pytest.approx((0.5, 0.4, 0.6))
    assert figure.interval_from == "units"


def test_the_interval_of_a_share_ends_at_one() -> None:
    rounds = [a_round(n, {"recall": v, "speedup": v}) for n, v in enumerate((0.97, 1.0, 0.99))]
    metrics = result_of(*rounds).metrics
    assert metrics["recall"].high == 1.0
    assert metrics["speedup"].high > 1.0
    assert metrics["recall"].low == metrics["speedup"].low
    odd = result_of(a_round(0, {"recall": 0.9}), a_round(1, {"recall": 1.2})).metrics["recall"]
    assert odd.high > 1.2  # Not a share, so its interval is not cut off.


def test_a_signed_figure_has_the_mean_of_its_rounds_even_if_all_are_positive() -> None:
    rounds = [a_round(n, {"growth_exponent": v, "p50_ms": v}) for n, v in enumerate((0.01, 0.4))]
    metrics = result_of(*rounds).metrics
    assert metrics["growth_exponent"].value == pytest.approx(0.205)
    assert metrics["growth_exponent"].low < 0
    assert metrics["p50_ms"].value == pytest.approx((0.01 * 0.4) ** 0.5)


def test_a_sentence_is_filled_in_with_the_figure_over_all_rounds() -> None:
    figures = [0.2, 0.4]
    rounds = [
        a_round(
            n,
            {"all/growth_exponent": v, "growth_exponent": 7},
            other={"all/growth": "it grows like n^{growth_exponent} to {here}", "note": "{a} text"},
        )
        for n, v in enumerate(figures)
    ]
    result = result_of(*rounds)
    figure = result.metrics["all/growth_exponent"]
    shown = f"0.30 ({figure.low:.2f} to {figure.high:.2f})"
    assert result.results["all"]["growth"] == f"it grows like n^{shown} to {{here}}"
    assert result.results["note"] == "{a} text"


def test_the_number_of_samples_is_that_of_the_round_with_the_fewest() -> None:
    def with_samples(number: int, count: int) -> Round:
        samples = Samples(
            wall_ns=bytes(8 * count), block_samples=b"", block_wall_ns=b"", block_cpu_ns=b"",
            calls_per_sample=1, work=1,
        )  # fmt: skip
        return a_round(number, {"a/p50_ms": 1.0, "other": 1.0}, samples={"a": samples})

    metrics = result_of(with_samples(0, 20), with_samples(1, 10)).metrics
    assert metrics["a/p50_ms"].samples == 10
    assert metrics["other"].samples == 0


def test_a_leaf_that_is_not_available_is_null_and_has_its_reason() -> None:
    result = result_of(a_round(0, {"a": 1}, not_available={"b/c": "why"}))
    assert result.results == {"b": {"c": None}, "a": 1}
    assert result.metadata["not_available"] == {"b/c": "why"}
    nothing = result_of(a_round(0, {}, not_available={"": "no tiers"}))
    assert nothing.results == {}
    assert nothing.metadata["headline"] == ""


def test_rounds_with_different_trees_still_give_a_result() -> None:
    rounds = [
        a_round(0, {"a": 1.0, "b/c": 1.0}),
        a_round(1, {"a/x": 2.0}, not_available={"b": "why"}),
        a_round(2, {"a/x": 2.0}, other={"a/x": "text", "b": "text"}),
    ]
    result = result_of(*rounds)
    assert result.results == {"a": {"x": 2.0}, "b": {"c": 1.0}}
    assert set(result.metrics) == {"a", "a/x", "b/c"}


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "a/b", "a/b/c", "d"]),
            st.floats(allow_nan=False, allow_infinity=False),
            min_size=1,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_finite_figures_give_a_result_that_can_be_saved(rounds: list[dict[str, float]]) -> None:
    result = result_of(*(a_round(number, figures) for number, figures in enumerate(rounds)))
    assert encode_json(result)
    for path, figure in result.metrics.items():
        given_figures = [figures[path] for figures in rounds if path in figures]
        assert figure.rounds == pytest.approx(given_figures, rel=1e-8)
        assert min(given_figures) - abs(figure.value) * 1e-6 <= figure.value
        assert figure.value <= max(given_figures) + abs(figure.value) * 1e-6


def test_a_leaf_never_replaces_a_branch() -> None:
    tree: dict[str, Any] = {}
    for path in ("a", "a/b", "a", "c/d/e", "c/d"):
        _plant(tree, path, path)
    assert tree == {"a": {"b": "a/b"}, "c": {"d": {"e": "c/d/e"}}}


# -- the headline -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "headline"),
    [
        ("stm/batch_*/p50_ms", "stm/batch_100/p50_ms"),
        ("none/*|ltm/*/p50_ms|stm/*", "ltm/batch_10/p50_ms"),
        ("none", "stm/batch_10/p50_ms"),
        ("", "stm/batch_10/p50_ms"),
    ],
)
def test_the_last_match_of_the_first_pattern_that_fits_is_the_headline(
    patterns: str, headline: str
) -> None:
    paths = ["count", "stm/batch_10/p50_ms", "stm/batch_100/p50_ms", "ltm/batch_10/p50_ms"]
    metrics = {path: Figure(value=1.0) for path in paths}
    units = {"count": Unit(unit="", better="neither"), "p50_ms": Unit(unit="ms", better="lower")}
    assert headline_of(patterns, metrics, units) == headline


def test_a_result_without_directions_shows_its_first_figure() -> None:
    assert result_of(a_round(0, {"count": 1, "more": 2})).metadata["headline"] == "count"


def test_a_declared_metric_overrides_the_one_of_its_name() -> None:
    declaration = Declaration(metrics={"x_ms": Metric("ms", "neither")})
    assert result_of(a_round(0, {"x_ms": 1}), declaration=declaration).units["x_ms"].better == "neither"


# -- which cases measure the same -------------------------------------------------------------


def test_the_digest_depends_on_the_parameters_and_not_on_their_order() -> None:
    other = Case(category="c", benchmark="b", target="t", params={"names": ["a"], "size": 3})
    assert params_digest(CASE) == params_digest(other)
    for params in ({"size": 4, "names": ["a"]}, {"size": 3}, {"size": 3, "names": ["a", "b"]}):
        changed = Case(category="c", benchmark="b", target="t", params=params)
        assert params_digest(changed) != params_digest(CASE)


def test_figures_have_nine_digits() -> None:
    result = result_of(a_round(0, {"a": math.pi}))
    assert result.metrics["a"].value == 3.14159265


def test_a_figure_that_only_some_rounds_have_is_not_also_not_available() -> None:
    missing = {"p99_ms": "too few samples", "x": "no"}
    result = result_of(a_round(0, {"p99_ms": 2.0}), a_round(1, {"p50_ms": 1.0}, not_available=missing))
    assert result.metrics["p99_ms"].rounds == [2.0]
    assert result.results["p99_ms"] == 2.0
    assert result.metadata["not_available"] == {"x": "no"}


def test_items_processed_is_a_whole_number_everywhere_in_the_file() -> None:
    path = "stm/items_processed"
    text = encode_json(result_of(*(a_round(number, {path: 7.0 + number}) for number in range(3)))).decode()
    figure = json.loads(text)["metrics"][path]
    assert figure["value"] == json.loads(text)["results"]["stm"]["items_processed"]
    numbers = [figure["value"], figure["low"], figure["high"], *figure["rounds"]]
    assert all(isinstance(number, int) for number in numbers), numbers
