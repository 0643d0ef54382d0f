"""The guides to comparing and to CI: their commands are taken, their examples run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from result_builders import make_run

from memory.benchmarking.cli import make_parser
from memory.benchmarking.config import BenchmarkConfig

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = ("docs/ci.md", "examples/ci/github-actions.yml")


def commands(document: str) -> list[str]:
    """What is run by name; lines that end with a backslash go on."""
    text = (ROOT / document).read_text().replace("\\\n", " ")
    found = re.findall(r"(?:membench|python -m memory\.benchmarking\.cli) ([a-z]+ [^\n`|]*)", text)
    return [re.split(r" (?:#|>>?|\|\||2>&1|;)", command)[0].strip() for command in found]


@pytest.mark.parametrize(
    ("document", "command"), [(name, each) for name in DOCUMENTS for each in commands(name)]
)
def test_every_command_of_the_guide_is_taken(document: str, command: str) -> None:
    try:
        make_parser().parse_args(shlex.split(command))
    except SystemExit:
        pytest.fail(f"{document}: membench {command}")


def test_there_are_commands_to_be_tested() -> None:
    assert len(commands("docs/ci.md")) > 10
    assert any(command.startswith("ab --base") for command in commands("examples/ci/github-actions.yml"))


def test_the_guides_thresholds_are_taken(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/ci.md").read_text(), re.S)
    file = tmp_path / "membench.toml"
    file.write_text(block)
    settings = BenchmarkConfig.load(file).compare
    assert settings.threshold == 0.1
    assert settings.thresholds["p99_ms"] == 0.3


def test_the_references_example_of_comparing_runs(tmp_path: Path) -> None:
    example = re.findall(r"```python\n(.*?)```", (ROOT / "docs/benchmarking.md").read_text(), re.S)[-1]
    for run_id in ("20261116_115624_1af3", "20261116_120514_4f93"):
        make_run(tmp_path / "benchmark_results", run_id)
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("0 []\nstorage.write_throughput ")
