"""Every Python block of the documents runs by itself, in an empty folder, as a new user would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "memory" / "benchmarking" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
TIMEOUT_SECONDS = 60
"""Ends a block that hangs. A block takes one to five seconds on an idle machine."""

# A comment right before the fence says why a block can't run: <!-- not run: needs a server -->
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n+)?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[object]:
    """Return the blocks that run, each as a test parameter named by its file and line."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            if match[1] is None:
                line = text.count("\n", 0, match.start(2)) + 1
                found.append(pytest.param(match[2], id=f"{document.relative_to(ROOT)}:{line}"))
    return found


@pytest.mark.parametrize("code", blocks())
def test_a_python_block_runs_by_itself(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr


def test_the_documents_have_blocks() -> None:
    assert len(blocks()) >= 20
