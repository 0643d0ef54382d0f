"""What a benchmark says in words: found, in a useful order, once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from memory.benchmarking.text.remarks import remarks

from memory.benchmarking.benchmarks._compression_vectors import picks
from memory.benchmarking.benchmarks.quality import _ruler_says

GROWTH = "search p50 grows like n^0.31 between 10 and 1,000"


class Share:
    value = 0.9


def test_warnings_come_first_then_what_says_most_and_details_last() -> None:
    tree = {
        "scifact": {"sha256": "made from seed 0", "recall_at_5": 0.7},
        "stm": {"codec": "int8", "correlation": "undefined: all alike"},
        "data": {"pick": {"within_1_4": "int8", "within_1_16": "pq"}},
        "growth": GROWTH,
        "ruler": _ruler_says([0.5]),
    }
    found = remarks(tree)
    names = ["ruler", "growth", "pick", "correlation", "sha256", "codec"]
    assert [remark.name for remark in found] == names
    assert [remark.is_warning for remark in found] == [True] + 5 * [False]
    assert [remark.is_detail for remark in found] == 4 * [False] + 2 * [True]


def test_a_ruler_that_is_right_is_no_warning() -> None:
    (remark,) = remarks({"ruler": _ruler_says([0.6791])})
    assert not remark.is_warning
    assert not remark.is_detail


def test_the_same_text_is_said_once_with_all_its_places() -> None:
    tree = {tier: {"correlation": "undefined: all alike"} for tier in ("im", "ltm")}
    (remark,) = remarks(tree)
    assert remark.where == "im/correlation, ltm/correlation"


def test_the_codecs_to_pick_are_one_sentence() -> None:
    table: dict[str, dict[str, Any]] = {
        name: {"vs_full_ratio": ratio, "neighbour_recall_at_10": Share()}
        for name, ratio in (("int8", 1 / 4), ("pq", 1 / 16))
    }
    (remark,) = remarks({"dialogue": {"pick": picks(table)}})
    assert remark.text == "int8 within 1/4 of the bytes, pq within 1/16"
    assert remark.where == "dialogue/pick"


def test_a_long_text_is_cut_where_it_stands_among_others() -> None:
    (remark,) = remarks({"answer": "word " * 1000})
    assert len(remark.short) == 240
    assert remark.text == ("word " * 1000).strip()


names = st.sampled_from(["pick", "growth", "sha256", "within_1_4", ""])
leaves = st.none() | st.floats() | st.just(["in a list"]) | st.text(max_size=5)
trees = st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=6)


@given(st.dictionaries(names, trees, max_size=3))
def test_no_tree_is_an_error_and_no_remark_is_empty(tree: dict[str, Any]) -> None:
    assert all(remark.text.strip() and remark.paths for remark in remarks(tree))
