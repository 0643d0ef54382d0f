"""What docs/agents.md shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from subprocesses import run_python

GUIDE = Path(__file__).parents[2] / "docs" / "agents.md"


def test_the_guides_examples_run(tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    assert len(examples) >= 6
    run_python("\n".join(examples), cwd=tmp_path)
    assert {"memory.db", "sessions.db"} <= {path.name for path in tmp_path.iterdir()}
