"""The notes of a result: each text once, in a useful order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memory.benchmarking.benchmarks._compression_vectors import picks
from memory.benchmarking.benchmarks.quality import _ruler_note
from memory.benchmarking.model.records import Result
from memory.benchmarking.text.notes import ResultNote, result_notes

GROWTH = "search p50 grows like n^0.31 between 10 and 1,000"


class Share:
    value = 0.9


def notes(tree: dict[str, Any], *first: str) -> list[ResultNote]:
    """Return the notes of a result whose benchmark declares some names to come first."""
    metadata = {"presentation": {"notes": first}}
    return result_notes(Result(benchmark="b", category="c", timestamp="t", results=tree, metadata=metadata))


def test_warnings_come_first_then_declared_notes_and_details_last() -> None:
    tree = {
        "scifact": {"sha256": "made from seed 0", "recall_at_5": 0.7},
        "stm": {"codec": "int8", "correlation": "undefined: all alike"},
        "data": {"pick": {"within_1_4": "int8", "within_1_16": "pq"}},
        "growth": GROWTH,
        "ruler": _ruler_note([0.5]),
    }
    found = notes(tree, "ruler", "growth", "pick")
    names = ["ruler", "growth", "pick", "correlation", "sha256", "codec"]
    assert [note.name for note in found] == names
    assert [note.is_warning for note in found] == [True] + 5 * [False]
    assert [note.is_detail for note in found] == 4 * [False] + 2 * [True]


def test_a_ruler_that_is_right_is_not_a_warning() -> None:
    (note,) = notes({"ruler": _ruler_note([0.6791])})
    assert not note.is_warning
    assert not note.is_detail


def test_the_same_text_is_one_note_with_all_its_paths() -> None:
    tree = {tier: {"correlation": "undefined: all alike"} for tier in ("im", "ltm")}
    (note,) = notes(tree)
    assert note.where == "im/correlation, ltm/correlation"


def test_a_declared_branch_of_texts_is_one_note() -> None:
    table: dict[str, dict[str, Any]] = {
        name: {"vs_full_ratio": ratio, "neighbour_recall_at_10": Share()}
        for name, ratio in (("int8", 1 / 4), ("pq", 1 / 16))
    }
    (note,) = notes({"dialogue": {"pick": picks(table)}}, "pick")
    assert note.text == "int8 within 1/4, pq within 1/16"
    assert note.where == "dialogue/pick"


def test_a_long_note_has_a_short_form() -> None:
    (note,) = notes({"answer": "word " * 1000})
    assert len(note.short) == 240
    assert note.text == ("word " * 1000).strip()


names = st.sampled_from(["pick", "growth", "sha256", "within_1_4", ""])
leaves = st.none() | st.floats() | st.just(["in a list"]) | st.text(max_size=5)
trees = st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=6)


@given(st.dictionaries(names, trees, max_size=3))
def test_every_tree_has_notes_without_an_error_and_no_note_is_empty(tree: dict[str, Any]) -> None:
    assert all(note.text.strip() and note.paths for note in notes(tree, "pick"))
