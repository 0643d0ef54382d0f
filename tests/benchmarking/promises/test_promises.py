"""The checks find every fault that they should find, and call nothing broken that is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from faulty_targets import FOUND_BY, KILLED
from further_faults import FURTHER
from membench import membench

from memory.benchmarking.bench import Bench
from memory.benchmarking.benchmarks.promises import BENCHMARKS, benchmark_deletion
from memory.benchmarking.commands.check import _longest_seconds
from memory.benchmarking.promises import suite
from memory.benchmarking.promises.durability import syncs_in
from memory.benchmarking.promises.patience import wait_for
from memory.benchmarking.promises.suite import PROMISES, all_checks, checks_of, run_check, run_check_here
from memory.benchmarking.promises.trial import Trial
from memory.benchmarking.run.discovery import discover
from memory.benchmarking.run.worker import flatten_result

SUPPORT = Path(__file__).parents[1] / "support"
FAULTY = SUPPORT / "faulty_targets.py"
SURVIVED = {
    KILLED,
    "a_full_disk_is_an_error_and_loses_nothing",
    "damaged_files_are_not_served_as_truth",
}
WITH_PROCESSES = {
    *SURVIVED,
    "an_acknowledged_write_reaches_the_disk",
    "another_process_no_longer_sees_it",
    "another_process_reads_it",
    "processes_lose_nothing",
}
"""Checks that start processes for the SQLite baseline; `make promises` runs these for every fault too."""


def status_of(name: str, target: str, folder: Path) -> str:
    """Run one check in this process."""
    folder.mkdir()
    return run_check_here(all_checks()[name], Trial(target, folder, "quick", seed=1)).status


@pytest.mark.parametrize("fault", FOUND_BY)
def test_a_fault_is_found_by_the_right_checks_and_no_others(fault: str, tmp_path: Path) -> None:
    target = f"{FAULTY}:{fault}"
    names = [name for name in all_checks() if name not in WITH_PROCESSES]
    broken = {name for name in names if status_of(name, target, tmp_path / name) == "broken"}
    assert broken == FOUND_BY[fault] - WITH_PROCESSES


@pytest.mark.parametrize(
    ("fault", "name"), [(fault, name) for fault in FURTHER for name in sorted(FURTHER[fault])]
)
def test_a_further_fault_is_found_and_shown_by_code(fault: str, name: str, tmp_path: Path) -> None:
    outcome = run_check(
        all_checks()[name], f"{SUPPORT / 'further_faults.py'}:{fault}", tmp_path, "quick", 1
    )
    assert outcome.status in ("broken", "not tried"), outcome.evidence
    if outcome.status == "broken":
        lines = [line for line in outcome.code.splitlines() if not line.startswith("content = ")]
        assert lines
        # `membench check` indents code by 20 columns.
        assert all(len(line) <= 60 for line in lines), lines


def test_every_check_has_a_fault_that_it_must_find() -> None:
    found = set().union(*FOUND_BY.values(), *FURTHER.values())
    assert found == set(all_checks())


@pytest.mark.parametrize("fault", [name for name, found in FOUND_BY.items() if KILLED in found])
def test_a_kill_shows_what_was_acknowledged_and_not_stored(fault: str, tmp_path: Path) -> None:
    outcome = run_check(all_checks()[KILLED], f"{FAULTY}:{fault}", tmp_path, "quick", seed=1)
    assert outcome.status == "broken"
    assert "target.get" in outcome.code
    assert outcome.figures["lost"] + outcome.figures["back"] > 0


def test_a_hanging_system_costs_only_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "wait_for", partial(wait_for, idle_seconds=5.0))
    check = all_checks()["deleted_in_a_batch_is_gone"]
    outcome = run_check(check, f"{FAULTY}:Hangs", tmp_path, "quick", seed=1)
    assert (outcome.status, outcome.evidence) == ("broken", "hung: it did nothing for 5 s")
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_slow_writer_is_killed_when_it_has_stored_something(tmp_path: Path) -> None:
    outcome = run_check(all_checks()[KILLED], f"{FAULTY}:Slow", tmp_path, "quick", seed=1)
    assert outcome.status == "kept", outcome.evidence
    # Without waiting for answers there would be about one a kill.
    assert outcome.figures["acknowledged"] >= 5 * outcome.figures["kills"]


def test_names_that_look_alike_are_escaped(tmp_path: Path) -> None:
    tmp_path /= "store"
    tmp_path.mkdir()
    trial = Trial(f"{FAULTY}:LeaksAcrossAgents", tmp_path, "quick", seed=1)
    outcome = run_check_here(all_checks()["similar_names_stay_apart"], trial)
    assert outcome.evidence.isascii()
    assert outcome.code.isascii()


def test_an_endless_loop_is_told_by_its_cpu_time(tmp_path: Path) -> None:
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", parent], start_new_session=True) as process:
        try:
            assert wait_for(process, str(tmp_path), 1.5) == "it did not end within 1.5 s of CPU time"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_crashing_system_costs_only_its_check(tmp_path: Path) -> None:
    check = all_checks()["odd_searches_are_answered"]
    outcome = run_check(check, f"{FAULTY}:Crashes", tmp_path, "quick", seed=1)
    assert (outcome.status, outcome.evidence) == ("broken", "crashed with SIGABRT")


@pytest.mark.parametrize("target", ["agentmemory", "sqlite-baseline"])
def test_our_own_targets_keep_what_they_promise(target: str, tmp_path: Path) -> None:
    names = [name for name in all_checks() if name not in WITH_PROCESSES and "process" not in name]
    found = {name: status_of(name, target, tmp_path / name) for name in names}
    assert {name for name, status in found.items() if status == "broken"} == set()
    assert sum(status == "kept" for status in found.values()) >= 18


@pytest.mark.parametrize("name", sorted(SURVIVED))
def test_our_memory_survives_kills_full_disks_and_flips(name: str, tmp_path: Path) -> None:
    outcome = run_check(all_checks()[name], "agentmemory", tmp_path, "quick", seed=2)
    assert outcome.status in ("kept", "not tried"), outcome.evidence


def test_what_is_not_promised_is_measured_all_the_same(tmp_path: Path) -> None:
    check = all_checks()["processes_lose_nothing"]
    outcome = run_check(check, "sqlite-baseline", tmp_path, "quick", seed=1)
    assert outcome.status == "not promised"
    assert outcome.figures["operations"] == 188, "120 added, 32 updated, 24 deleted, 12 searches"


def test_a_sync_that_strace_logs_in_two_lines_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "12 fsync(3)                         = 0\n"
        "12 fdatasync(4 <unfinished ...>\n"
        "13 fsync(5)                         = -1 EIO (Input/output error)\n"
        "12 <... fdatasync resumed>)         = 0\n"
    )
    assert syncs_in(log) == 2


def test_every_check_belongs_to_a_promise_and_every_promise_to_a_benchmark() -> None:
    assert {check.promise for check in all_checks().values()} == set(PROMISES) == set(BENCHMARKS)
    assert len(all_checks()) >= 30
    assert all(check.question.endswith(".") for check in all_checks().values())
    assert all(checks_of(promise) for promise in PROMISES)


def test_every_figure_of_a_check_is_declared(tmp_path: Path) -> None:
    found = discover().select(["promises"])
    assert {each.name for each in found} == set(BENCHMARKS.values())
    for each in found:
        if each.name in ("erasure", "ids", "exactness", "freshness"):
            tree = each.function("quick", bench=Bench(target="sqlite-baseline", scratch=tmp_path))
            names = {path.rpartition("/")[2] for path in flatten_result(tree).figures}
            assert names <= set(each.metrics), each.name


def test_a_benchmark_reports_the_figures_of_each_check() -> None:
    found = benchmark_deletion(
        "quick", ["deleted_one_by_one_is_gone"], bench=Bench(target="sqlite-baseline")
    )
    assert found["kept_share"] == 1.0
    group = found["deleted_one_by_one_is_gone"]
    assert (group["kept"], group["status"], group["still_found"]) == (1.0, "kept", 0)


def test_check_prints_evidence_and_code_and_exits_with_2(tmp_path: Path) -> None:
    name = "delete_all_deletes_all_of_one_agent"
    target = f"{FAULTY}:DeletesEverybody"
    done = membench("check", "--target", target, "--only", name, cwd=tmp_path)
    assert done.code == 2
    assert "BROKEN" in done.out
    assert "20 other memories gone" in " ".join(done.out.split())
    assert 'target.delete_all("ann")' in done.out
    assert 'target.get("bob", [other])' in done.out, "the code shows what was broken"
    assert membench("check", "--only", name, cwd=tmp_path).code == 0


def test_a_round_may_take_as_long_as_all_its_checks() -> None:
    checks = checks_of("acknowledged is durable")
    assert float(_longest_seconds("quick")) > sum(check.seconds["quick"] for check in checks)


def test_check_prints_json(tmp_path: Path) -> None:
    done = membench("check", "--only", "any_text_is_read_back", "--json", cwd=tmp_path)
    (outcome,) = json.loads(done.out)["agentmemory"]
    assert (outcome["status"], outcome["promise"]) == ("kept", "contents are exact")


def test_an_unknown_check_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    done = membench("check", "--only", "any_text_is_read", cwd=tmp_path)
    assert done.code == 1
    assert "any_text_is_read_back" in done.err


def test_the_report_says_first_that_a_promise_was_broken(tmp_path: Path) -> None:
    faulty = Path(__file__).parents[1] / "support" / "faulty_targets.py"
    target = f"{faulty}:CorruptsUnicode"
    done = membench(
        "run", "--benchmark", "exactness", "--profile", "quick", "--target", target, "--quiet", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert membench("results", "report", cwd=tmp_path).code == 0
    (page,) = tmp_path.rglob("*.html")
    assert "a promise was broken, 0.750 of its checks were kept" in page.read_text()
