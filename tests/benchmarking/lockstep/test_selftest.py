"""`membench selftest` and `membench calibrate`: how reliable the gate is, and how noisy the machine."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from light_target import LightTarget
from membench import LIGHT, membench, write

from memory.benchmarking.lockstep.extra_work import add_extra_work
from memory.benchmarking.lockstep.selftest import Share
from memory.benchmarking.model.environment import describe
from memory.benchmarking.verdicts.noise import load_noise

READS = """
from memory.benchmarking.targets import Item

def benchmark_reads(bench=None):
    with bench.target() as target:
        ids = target.add([Item("ann", {"n": n}) for n in range(100)])
        return {"read": bench.time(lambda: target.get("ann", ids))}
"""


class SlowTarget(LightTarget):
    """A target whose reads take `seconds`."""

    seconds = 0.002
    reads = 0

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        SlowTarget.reads += 1
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return []


def test_extra_work_makes_each_read_longer_by_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("get", "get_one", "search", "search_vector"):
        monkeypatch.setattr(SlowTarget, name, getattr(SlowTarget, name))  # restored after the test
    add_extra_work(f"{__name__}:SlowTarget", 0.5)
    target = SlowTarget()
    start = time.perf_counter()
    for _ in range(5):
        target.get("ann", [])
    assert time.perf_counter() - start >= 5 * 0.002 * 1.5
    assert SlowTarget.reads == 5


def test_a_share_has_an_exact_interval() -> None:
    assert str(Share(0, 20)) == "0 of 20 (0 to 17 %)"
    assert str(Share(0, 0)) == "–"


def test_selftest_counts_the_alarms_of_the_gate_and_of_the_usual_rule(tmp_path: Path) -> None:
    """Its time is enough for one comparison: that of identical code."""
    write(tmp_path / "reading.py", READS)
    done = membench(
        "selftest", "--path", "reading.py", "--benchmark", "reading.reads", "--target", LIGHT,
        "--minutes", 0.001, "--set", "seconds=0.005", "--output-dir", "out", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    counts = json.loads(done.out)
    assert [each["extra_work"] for each in counts] == [0.0, 0.05, 0.1, 0.2]
    for rule in ("ab", "mean_above_10_percent"):
        assert [each[rule]["of"] for each in counts] == [1, 0, 0, 0]
    assert not list((tmp_path / "out").rglob(".scratch"))


def test_calibrate_stores_the_noise_in_lockstep_and_between_stored_runs(tmp_path: Path) -> None:
    write(tmp_path / "reading.py", READS)
    done = membench(
        "calibrate", "--path", "reading.py", "--benchmark", "reading.reads", "--target", LIGHT,
        "--minutes", 0.001, "--rounds", 1, "--set", "seconds=0.005", "--output-dir", "out", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    fingerprint = describe(tmp_path / "out").fingerprint
    lockstep, stored = (load_noise(tmp_path / "out", fingerprint, kind) for kind in ("lockstep", "stored"))
    assert lockstep.calibrated
    assert stored.calibrated
    assert any(key.endswith(":read/cpu_ms") for key in lockstep.floors)
    assert any(key.endswith(":read/p50_ms") for key in stored.floors)
    assert "3 runs and 3 pairs" in done.out
    assert not list((tmp_path / "out").rglob(".scratch"))


@pytest.mark.parametrize(
    ("command", "given", "said"),
    [
        ("selftest", ["--minutes", "0"], "--minutes is 0.0: use a number > 0"),
        ("selftest", ["--comparisons", "0"], "--comparisons is 0"),
        ("selftest", ["--benchmark", "storage.reads"], "there is no benchmark 'storage.reads'"),
        ("calibrate", ["--minutes", "-1"], "--minutes is -1.0"),
        ("calibrate", ["--category", "storge"], "did you mean 'storage'?"),
    ],
)
def test_bad_input_gives_a_one_line_error(
    tmp_path: Path, command: str, given: list[str], said: str
) -> None:
    done = membench(command, *given, cwd=tmp_path)
    assert done.code == 1
    assert said in done.error
