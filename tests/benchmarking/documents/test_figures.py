"""The tables of figures come from stored measurements (scripts/figures.py); nobody types them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
import figures

ABOUT = {
    "command": "membench run",
    "date": "2026-11-18",
    "version": "0",
    "revision": "abc",
    "machine": "it",
}


def test_the_documents_have_what_was_measured() -> None:
    for document in figures.DOCUMENTS:
        text = document.read_text()
        assert figures.written(text) == text, f"{document.name}: run `python scripts/figures.py --write`"


def test_every_table_of_the_documents_has_a_part() -> None:
    names = {
        name for document in figures.DOCUMENTS for name in figures._TABLE.findall(document.read_text())
    }
    assert names - {"headlines"} <= set(figures.TABLES) == set(figures.PARTS)
    assert {"headlines", "storage", "floor"} <= names


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figures, "STORED", tmp_path)
    return tmp_path


def test_a_table_shows_both_sides_and_their_ratio(stored: Path) -> None:
    path = "write_throughput:texts/batch_1000/{}/one_by_one/throughput_ops_per_second"
    found = {
        figures.OURS: {path.format("stm"): [4000.0, 3900.0, 4100.0]},
        figures.BASELINE: {path.format("store"): [5000.0, None, None]},
    }
    run = {**ABOUT, "run": "20261118", "rounds": 5, "figures": found}
    (stored / "storage.json").write_text(json.dumps(run))
    text = figures.written("a\n<!-- figures: storage -->\nold\n<!-- /figures -->\nb\n")
    assert "| texts written a second, one by one, stm | 5,000 | 4,000 | 0.80 × |" in text
    assert "`membench run`\\\n2026-11-18, version 0 (abc), it, run 20261118 of 5 rounds" in text
    assert "old" not in text
    assert "| one text read by its id, p50 ms, ltm | — | — | — |" in text, "what is missing is said"
    headlines = figures.written("<!-- figures: headlines -->\nold\n<!-- /figures -->")
    assert "0.80 ×" in headlines


def test_a_part_that_was_not_measured_stays_as_it_is(stored: Path) -> None:
    text = "<!-- figures: sizes -->\nold\n<!-- /figures -->"
    assert figures.written(text) == text


def test_the_patterns_of_a_part_match_the_figures_of_its_benchmarks(stored: Path, tmp_path: Path) -> None:
    part = figures.Part(
        figures._membench("--profile", "quick", "--rounds", "1", "--benchmark", "read_latency",
                          "--target", figures.BASELINE),
        figures.PARTS["storage"].keeps,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(figures.PARTS, "storage", part)
        figures.measure("storage", tmp_path / "results")
    (name, figure), *_ = figures.stored("storage")["figures"][figures.BASELINE].items()  # type: ignore[index]
    assert re.fullmatch(r"read_latency:texts/store/single/p50_ms", name)
    assert figure[0] > 0
