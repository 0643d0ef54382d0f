"""A changed byte gives a named error or has no effect: `make flips` changes 1,000 bytes."""

from __future__ import annotations

import json
from pathlib import Path

from subprocesses import run_python

import memory

SCRIPTS = Path(memory.__file__).parents[1] / "scripts"
FLIPS = 14


def test_a_changed_byte_is_never_served_as_truth(tmp_path: Path) -> None:
    # In a process of its own, which has no threads: the script forks.
    script = """
sys.path.insert(0, sys.argv[1])
import flips
from pathlib import Path
experiment = flips.run(Path(sys.argv[2]), int(sys.argv[3]), seed=5)
print(json.dumps([experiment.failures, dict(experiment.outcomes)]))
"""
    failures, outcomes = json.loads(run_python(script, SCRIPTS, tmp_path, FLIPS))
    assert failures == []
    assert sum(outcomes.values()) == FLIPS
    assert any("named errors" in outcome for outcome in outcomes)
