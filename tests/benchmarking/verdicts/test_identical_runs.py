"""The script that counts false changes between runs of identical code."""

from __future__ import annotations

import random
from pathlib import Path

from identical_runs import PLACES, all_pairs, report, simulated_pairs, simulated_run


def test_simulated_runs_of_identical_code_have_no_false_change_at_any_place() -> None:
    pairs = list(simulated_pairs(3, rounds=5))
    now = {place: [] for place in PLACES}
    for place, rule, count in (each for pair in pairs for each in pair):
        if rule == "now":
            now[place].append((count.headlines, count.figures))
            assert (count.of_headlines, count.of_figures) == (19, 304)
    assert now == {place: [(0, 0)] * 3 for place in PLACES}
    before = [count for pair in pairs for _, rule, count in pair if rule == "before"]
    assert sum(count.figures for count in before) > 0


def test_all_pairs_of_the_runs_are_counted(tmp_path: Path) -> None:
    folders = [
        simulated_run(tmp_path, f"2026010{day}_000000_0000", 3, random.Random(day)) for day in (1, 2, 3)
    ]
    pairs = list(all_pairs(folders))
    assert len(pairs) == 3
    assert "| membench compare | now | 0 of 57 | 0 of 912 | 0 of 3 | 0 of 3 |" in report(pairs)
