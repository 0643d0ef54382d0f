"""Every `membench` command that a document shows has arguments that the command line accepts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from memory.benchmarking.cli import make_parser
from memory.benchmarking.config import BenchmarkConfig

ROOT = Path(__file__).resolve().parents[3]
WORKFLOW = "examples/ci/github-actions.yml"
DOCUMENTS = (
    "README.md",
    "memory/benchmarking/README.md",
    WORKFLOW,
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
)

COMMAND = re.compile(
    r"^ *(?:- )?(?:run: |if ! )?"  # a line of a shell block, of a YAML list, or of a workflow's step
    r"(?:membench|python -m memory\.benchmarking\.cli) ([a-z]+ [^\n|]*)",
    re.MULTILINE,
)


def commands(document: str) -> list[str]:
    """Return the commands of a document, without `membench`; synopses with [options] are left out."""
    text = (ROOT / document).read_text().replace("\\\n", " ")
    found = COMMAND.findall(text)
    whole = [re.split(r" (?:#|>>?|\|\||2>&1|;)", command)[0].strip() for command in found]
    return [command for command in whole if "[" not in command]


@pytest.mark.parametrize(
    ("document", "command"), [(name, command) for name in DOCUMENTS for command in commands(name)]
)
def test_the_command_line_accepts_every_command_of_the_documents(document: str, command: str) -> None:
    try:
        make_parser().parse_args(shlex.split(command))
    except SystemExit:
        pytest.fail(f"{document}: membench {command}")


def test_the_documents_have_commands() -> None:
    assert sum(len(commands(document)) for document in DOCUMENTS) > 50
    assert any(command.startswith("ab --base") for command in commands(WORKFLOW))


def test_the_thresholds_of_the_guide_can_be_loaded(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/compare.md").read_text(), re.S)
    file = tmp_path / "membench.toml"
    file.write_text(block)
    settings = BenchmarkConfig.load(file).compare
    assert settings.threshold == 0.1
    assert settings.thresholds["p99_ms"] == 0.3
