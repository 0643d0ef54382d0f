"""Figures of rankings against their definitions, and intervals over clusters."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.benchmarking.measure.ranking import clustered_mean, ranking_figures, separation


def test_the_figures_of_a_known_ranking() -> None:
    figures = ranking_figures(["x", "a", "y", "b", "z", "c"], {"a": 1, "b": 1, "c": 1, "d": 0})
    assert figures["recall_at_1"] == 0
    assert figures["recall_at_5"] == pytest.approx(2 / 3)
    assert figures["recall_at_10"] == 1
    assert (figures["any_at_1"], figures["any_at_5"], figures["all_at_5"], figures["all_at_10"]) == (
        0,
        1,
        0,
        1,
    )
    assert figures["mrr"] == 0.5
    # 1/log2(3) + 1/log2(5) + 1/log2(7), over 1 + 1/log2(3) + 1/log2(4)
    assert figures["ndcg_at_10"] == pytest.approx((0.63093 + 0.43068 + 0.35621) / 2.13093, abs=1e-4)


@given(st.permutations(list("abcdefghijkl")), st.sets(st.sampled_from("abcdefghijkl"), min_size=1))
def test_figures_are_shares_and_grow_with_depth(ranked: list[str], right: set[str]) -> None:
    figures = ranking_figures(ranked, dict.fromkeys(right, 1))
    assert all(0 <= value <= 1 + 1e-12 for value in figures.values())
    assert figures["recall_at_1"] <= figures["recall_at_5"] <= figures["recall_at_10"]
    assert figures["all_at_10"] <= figures["any_at_10"]


def test_a_perfect_ranking_is_perfect() -> None:
    figures = ranking_figures(["a", "b"], {"a": 3, "b": 1})
    assert figures["ndcg_at_10"] == pytest.approx(1)
    assert figures["recall_at_5"] == figures["all_at_5"] == figures["mrr"] == 1


def test_questions_of_one_conversation_count_less_than_independent_ones() -> None:
    values = [float(cluster % 2) for cluster in range(10) for _ in range(20)]
    clusters = [cluster for cluster in range(10) for _ in range(20)]
    together, apart = clustered_mean(values, clusters), clustered_mean(values, range(200))
    assert together.value == apart.value == 0.5
    assert together.low is not None
    assert apart.low is not None
    assert 0.5 - together.low > 3 * (0.5 - apart.low)


def test_the_clustered_interval_covers_the_true_mean_in_about_95_percent() -> None:
    rng = random.Random(1)
    held = 0
    for _ in range(300):
        values, clusters = [], []
        for cluster in range(12):
            level = rng.uniform(0.2, 0.8)
            for _ in range(rng.randrange(5, 30)):
                values.append(float(rng.random() < level))
                clusters.append(cluster)
        estimate = clustered_mean(values, clusters)
        assert estimate.low is not None
        assert estimate.high is not None
        held += estimate.low <= 0.5 <= estimate.high
    assert 0.88 <= held / 300 <= 0.99


def test_a_single_cluster_uses_its_questions_and_a_single_question_has_no_interval() -> None:
    assert clustered_mean([0.0, 1.0, 1.0], ["a"] * 3).low is not None
    assert clustered_mean([1.0], ["a"]).low is None


@given(
    st.lists(st.integers(0, 5).map(float), min_size=1, max_size=20),
    st.lists(st.integers(0, 5).map(float), min_size=1, max_size=20),
)
def test_separation_is_the_share_of_pairs_in_the_right_order(
    higher: list[float], lower: list[float]
) -> None:
    won = sum((a > b) + 0.5 * (a == b) for a in higher for b in lower)
    assert separation(higher, lower) == pytest.approx(won / (len(higher) * len(lower)))
