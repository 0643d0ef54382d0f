"""The guides to comparing and to CI: their commands are taken, their examples run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from memory.benchmarking.cli import make_parser
from memory.benchmarking.config import BenchmarkConfig

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = ("docs/compare.md", "docs/ci.md", "examples/ci/github-actions.yml")


def commands(document: str) -> list[str]:
    """Return the commands of a document, without `membench`; synopses with [options] are left out."""
    text = (ROOT / document).read_text().replace("\\\n", " ")
    found = re.findall(r"(?:membench|python -m memory\.benchmarking\.cli) ([a-z]+ [^\n`|]*)", text)
    whole = [re.split(r" (?:#|>>?|\|\||2>&1|;)", command)[0].strip() for command in found]
    return [command for command in whole if "[" not in command]


@pytest.mark.parametrize(
    ("document", "command"), [(name, each) for name in DOCUMENTS for each in commands(name)]
)
def test_every_command_of_the_guide_is_taken(document: str, command: str) -> None:
    try:
        make_parser().parse_args(shlex.split(command))
    except SystemExit:
        pytest.fail(f"{document}: membench {command}")


def test_there_are_commands_to_be_tested() -> None:
    assert len(commands("docs/compare.md") + commands("docs/ci.md")) > 10
    assert any(command.startswith("ab --base") for command in commands("examples/ci/github-actions.yml"))


def test_the_guides_thresholds_are_taken(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/compare.md").read_text(), re.S)
    file = tmp_path / "membench.toml"
    file.write_text(block)
    settings = BenchmarkConfig.load(file).compare
    assert settings.threshold == 0.1
    assert settings.thresholds["p99_ms"] == 0.3
