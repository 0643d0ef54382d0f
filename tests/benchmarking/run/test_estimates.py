"""`--dry-run` knows how long every built-in benchmark takes, with no promise beyond the cores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory.benchmarking.benchmarks import built_in
from memory.benchmarking.cli import main
from memory.benchmarking.model.environment import available_cores
from memory.benchmarking.model.profiles import PROFILES


@pytest.mark.parametrize("profile", PROFILES)
def test_every_built_in_benchmark_has_an_estimate(profile: str) -> None:
    missing = [
        name
        for name, benchmark in built_in().items()
        if not benchmark.declaration.expected_seconds.get(profile, 0) > 0
    ]
    assert not missing


def plan(capsys: pytest.CaptureFixture[str], *options: str) -> float:
    assert main(["run", "--dry-run", "--json", *options]) == 0
    seconds = json.loads(capsys.readouterr().out)["estimated_seconds"]
    assert isinstance(seconds, float)
    return seconds


def test_more_workers_than_cores_do_not_shorten_the_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--output-dir", str(tmp_path / "none"), "--profile", "quick", "--category", "storage")
    alone = plan(capsys, *place)
    many = plan(capsys, *place, "--parallel", "--workers", "64")
    assert many == pytest.approx(alone / min(64, available_cores()))


def test_the_plan_has_no_question_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "--profile", "full", "--output-dir", str(tmp_path / "none")]) == 0
    assert "?" not in capsys.readouterr().out
