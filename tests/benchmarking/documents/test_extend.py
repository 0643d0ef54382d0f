"""The example of docs/extend.md: one file is enough for a benchmark with profiles, a goal and a chart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from membench import LIGHT, membench, only_run

from memory.benchmarking.model.files import read_result

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "extend.md"
CHOSEN = ("--path", "my_benchmarks.py", "--category", "my_benchmarks", "--target", LIGHT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fresh folder with the example's one file in it."""
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S)
    (tmp_path / "my_benchmarks.py").write_text(example)
    return tmp_path


@pytest.mark.parametrize(
    ("profile", "sizes", "seconds"),
    [
        ("quick", [100, 1000], 0.1),
        ("standard", [100, 1000, 10000], 0.5),
        ("full", [100, 1000, 100000], 3.0),
    ],
)
def test_a_profile_gives_the_declared_sizes_and_the_expected_time(
    folder: Path, profile: str, sizes: list[int], seconds: float
) -> None:
    done = membench("run", *CHOSEN, "--profile", profile, "--dry-run", "--json", cwd=folder)
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    (case,) = plan["cases"]
    assert case["params"] == {"sizes": sizes}
    rounds = 2 if profile == "quick" else plan["rounds"]
    harness = 0.7  # seconds that every round takes besides the benchmark
    assert case["estimated_seconds"] == pytest.approx((seconds + harness) * rounds)


def test_the_report_shows_chart_goal_and_sentences_without_the_file(folder: Path) -> None:
    done = membench(
        "run", *CHOSEN, "--profile", "quick", "--output-dir", "out", "--set", "seconds=0.001", cwd=folder
    )
    assert done.code == 0, done.err
    run_folder, run = only_run(folder / "out")
    (ref,) = run.results
    assert (ref.rounds, ref.headline) == (2, "size_1000/p50_ms")
    assert read_result(run_folder / ref.file).metadata["params"] == {"sizes": [100, 1000]}
    (folder / "my_benchmarks.py").unlink()
    done = membench("results", "report", "--output-dir", "out", "--output", "page.html", cwd=folder)
    assert done.code == 0, done.err
    page = (folder / "page.html").read_text()
    assert "Time to sort, by number of values" in page
    assert "goal: 50 ms" in page, "the line of the goal in the chart"
    assert "Ten times the size cost" in page, "how it grows"
    assert "my benchmarks median" in page, "the goal among what stands out"
    assert "(goal: 50 ms)" in page
    assert "How long it takes to sort random numbers." in page
    assert "How fast Python sorts." in page


def test_a_parameter_of_the_example_is_set_as_a_built_in_one(folder: Path) -> None:
    options = ("--dry-run", "--json", "--set", "my_benchmarks.sizes=10,20")
    done = membench("run", *CHOSEN, *options, cwd=folder)
    assert json.loads(done.out)["cases"][0]["params"] == {"sizes": [10, 20]}, done.err
    done = membench("run", *CHOSEN, "--set", "my_benchmarks.sizes=ten", "--dry-run", cwd=folder)
    assert done.code == 1
    assert "my_benchmarks.sizes is ['ten']" in done.error
