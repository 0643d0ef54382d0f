"""The files and commands of the documents work as they are written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from membench import membench, options

ROOT = Path(__file__).resolve().parents[3]


def blocks(document: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.S)


def test_the_benchmark_of_the_quick_start_runs(tmp_path: Path) -> None:
    (block,) = blocks("memory/benchmarking/README.md")
    file = tmp_path / "my_benchmarks.py"
    file.write_text(block)
    done = membench(*options(file, tmp_path / "out"), "--category", "my_benchmarks", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "my_benchmarks.sorting" in done.out


def test_the_configuration_file_of_the_quick_start_is_used(tmp_path: Path) -> None:
    (block,) = blocks("memory/benchmarking/README.md", "toml")
    (tmp_path / "my.toml").write_text(block)
    done = membench("run", "--config", "my.toml", "--category", "storage", "--dry-run", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "batch_sizes=[50]" in done.out


def test_the_target_of_the_guide_can_be_measured(tmp_path: Path) -> None:
    (tmp_path / "fts5_target.py").write_text(blocks("docs/new-target.md")[0])
    checked = membench("targets", "check", "fts5_target.py:Fts5Target", cwd=tmp_path)
    assert checked.code == 0, checked.out
    assert " 0 broken, " in checked.out
    done = membench(
        "run", "--benchmark", "read_latency", "--target", "fts5_target.py:Fts5Target", "--profile", "quick",
        "--rounds", "1", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "texts/store/single/p50_ms" in done.out


def test_the_commands_of_the_quality_guide_can_be_planned(tmp_path: Path) -> None:
    commands = re.findall(r"^membench (run .*?)(?:  +#.*)?$", (ROOT / "docs/quality.md").read_text(), re.M)
    assert len(commands) > 5
    for command in commands:
        done = membench(*shlex.split(command), "--dry-run", cwd=tmp_path)
        assert done.code == 0, (command, done.err)
        assert "quality.retrieval_quality" in done.out


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_the_page_of_the_benchmarks_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "benchmark_docs.py", "--check"],
        env=_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
