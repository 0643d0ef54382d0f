"""Every target keeps its promises, and a broken promise is found and named with its line."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest
import strange_targets
from membench import LIGHT, membench, options, surroundings, write
from postgres_servers import running_server
from strange_targets import place_of

from memory.benchmarking.conformance.records import Outcome
from memory.benchmarking.conformance.suite import CHECKS
from memory.benchmarking.errors import EXIT_BROKEN, EXIT_FAILED, EXIT_FINE
from memory.benchmarking.run.checking import check_target
from memory.benchmarking.targets import _BUILT_IN, load_target, make_target
from memory.benchmarking.targets.base import Item
from memory.benchmarking.targets.interpreters import version_here

DESCRIBED = ("mcp", "http")
"""Targets that need a description of a server; test_described_servers.py tests them."""
HERE = [name for name in _BUILT_IN if name not in DESCRIBED and version_here(load_target(name)) is not None]
"""The built-in targets that this interpreter can run; `make targets` checks all of them."""
ON_A_SERVER = "agentmemory-postgres"
FEW = (
    "contents_come_back_unchanged",
    "agents_are_kept_apart",
    "a_deleted_memory_is_gone",
    "a_folder_opened_again_is_the_same",
)
"""The checks of a target that starts a server for each check. `make targets` runs all of them."""
HONEST = ["FindsLater", "HasNoGet", "Rewrites", "FewHits"]


@pytest.mark.parametrize(
    ("name", "check"),
    [
        (name, check)
        for name in (*HERE, LIGHT, *map(place_of, HONEST))
        for check in (FEW if name == ON_A_SERVER else CHECKS)
    ],
    ids=lambda part: part[-36:],
)
def test_a_target_keeps_its_promises(name: str, check: str, tmp_path: Path) -> None:
    outcome = CHECKS[check].run(name, tmp_path / "check")
    if outcome.state == "does not apply":
        pytest.skip(outcome.reason)
    assert outcome.state == "kept", outcome


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a PostgreSQL server that syncs its commits."""
    with running_server(fsync="on") as server:
        yield f"postgresql://postgres@/postgres?host={server.folder}"


@pytest.mark.skipif(ON_A_SERVER not in HERE, reason="no PostgreSQL server is installed")
@pytest.mark.parametrize("check", [*FEW, "another_process_is_seen_at_once"])
def test_a_memory_on_a_server_that_is_there_keeps_its_promises(
    check: str, address: str, tmp_path: Path
) -> None:
    outcome = CHECKS[check].run(f"{ON_A_SERVER}={address}", tmp_path / "check")
    assert outcome.state == "kept", outcome


@pytest.mark.skipif(ON_A_SERVER not in HERE, reason="no PostgreSQL server is installed")
def test_a_copied_folder_is_a_copy_of_the_memory_on_the_server(address: str, tmp_path: Path) -> None:
    opened = []
    for name in ("first", "copy"):
        if name == "copy":
            copytree(tmp_path / "first", tmp_path / "copy")
        (tmp_path / name).mkdir(exist_ok=True)
        target = make_target(f"{ON_A_SERVER}={address}")
        target.open(tmp_path / name)
        target.add([Item("ann" if name == "first" else "bob", f"in {name}")])
        opened.append(target)
    counts = [sum(target.count().values()) for target in opened]
    for target, name in zip(opened, ("first", "copy"), strict=True):
        target.close()
        target.discard(tmp_path / name)
    assert counts == [1, 2]


def test_every_check_says_in_words_what_is_promised() -> None:
    promises = [check.promise for check in CHECKS.values()]
    assert len(promises) == len(set(promises)) >= 31
    assert all(promise and len(promise) < 100 for promise in promises)


def run_check(check: str, target: str, folder: Path) -> Outcome:
    return CHECKS[check].run(place_of(target), folder / "check")


@pytest.mark.parametrize(
    ("target", "check", "method", "came"),
    [
        ("SaysItFindsAtOnce", "a_new_memory_is_found_at_once", "search", "["),
        ("NeverFlushes", "a_flushed_memory_is_found", "search", "[]"),
        ("RefusesEqualTexts", "two_equal_texts_in_one_batch", "add", "2"),
        ("CountsTwice", "the_same_id_twice_in_delete", "delete", "2"),
        ("GetsOnce", "the_same_id_twice_in_get", "get", "["),
        ("ReturnsTooMany", "a_search_returns_the_best_first", "search", "[Found("),
        ("HasAStuckDial", "a_dial_changes_what_is_found", "turn_dial", "the same hits, "),
        ("HasNoConfidence", "a_search_returns_the_best_first", "search", "[None, None]"),
        ("StopsDeletingAtHundred", "delete_all_returns_how_many", "delete_all", "100"),
    ],
)
def test_a_broken_promise_is_named_with_the_method_and_its_line(
    target: str, check: str, method: str, came: str, tmp_path: Path
) -> None:
    outcome = run_check(check, target, tmp_path)
    assert outcome.state == "broken"
    assert outcome.method == method
    assert outcome.came.startswith(came)
    function = getattr(getattr(strange_targets, target), method)
    file, line = outcome.place.rsplit(":", 1)
    assert file == inspect.getfile(function)
    assert int(line) == inspect.getsourcelines(function)[1]


@pytest.mark.parametrize(
    ("target", "check", "method", "source"),
    [
        ("RefusesSpaces", "agent_names_may_be_any_text", "add", 'raise ValueError(f"user id'),
        ("FailsWithLargeK", "k_may_be_larger_than_the_store", "search", "raise IndexError"),
        ("MaxKTooLarge", "max_k_is_reached", "search", 'raise ValueError(f"k is'),
    ],
)
def test_an_exception_is_named_with_the_line_that_raised_it(
    target: str, check: str, method: str, source: str, tmp_path: Path
) -> None:
    outcome = run_check(check, target, tmp_path)
    assert (outcome.state, outcome.method) == ("broken", method)
    file, line = outcome.place.rsplit(":", 1)
    assert source in Path(file).read_text().splitlines()[int(line) - 1]


def test_a_check_that_ends_the_process_is_broken_and_the_others_run() -> None:
    report = check_target(place_of("Crashes"))
    broken = [each for each in report.outcomes if each.state == "broken"]
    # An update is also part of the check that agents are kept apart.
    assert {each.check for each in broken} == {"an_update_replaces_the_content", "agents_are_kept_apart"}
    assert all("the process ended" in each.came for each in broken)
    assert len(report.outcomes) == len(CHECKS)
    assert report.mark == f"2 of {report.count('kept') + 2} broken"


def test_a_check_that_hangs_is_ended() -> None:
    report = check_target(place_of("Hangs"), seconds=10)
    (broken,) = [each for each in report.outcomes if each.state == "broken"]
    assert broken.check == "maintenance_keeps_every_memory"
    assert broken.came == "it did nothing for 10 s"


# -- the command ------------------------------------------------------------------------------

LOUD = """
from light_target import LightTarget


class Loud(LightTarget):
    name = "loud"

    def get(self, agent_id, ids):
        return [content and str(content).upper() for content in super().get(agent_id, ids)]
"""


def test_the_command_prints_each_check_and_its_exit_code_tells_the_outcome(tmp_path: Path) -> None:
    done = membench("targets", "check", LIGHT, cwd=tmp_path)
    assert (done.code, done.err) == (EXIT_FINE, "")
    assert "  kept    Two folders are two stores\n" in done.out
    assert "  n/a     Several threads may use one open store: it declares" in done.out
    assert done.out.splitlines()[-1].endswith("kept, 0 broken, 18 do not apply")
    missing = membench("targets", "check", "nothing", cwd=tmp_path)
    assert missing.code == EXIT_FAILED
    assert missing.error.startswith("membench: there is no target 'nothing'")


def test_the_mark_of_a_check_is_in_the_list_and_in_results_until_the_target_changes(
    tmp_path: Path,
) -> None:
    env = surroundings(
        MEMBENCH_TARGETS=str(tmp_path / "targets"), PYTHONPATH=str(Path(LIGHT.partition(":")[0]).parent)
    )
    file = write(tmp_path / "loud.py", LOUD)
    target = "loud.py:Loud"
    good = write(
        tmp_path / "good.py", "def benchmark_good(bench=None): return {'upper': bench.time('a'.upper)}"
    )

    def summary() -> str:
        return membench(*options(good, Path("out"), target=target), cwd=tmp_path, env=env).out

    assert "conformance: loud not checked (membench targets check TARGET)" in summary()
    done = membench("targets", "check", target, cwd=tmp_path, env=env)
    assert done.code == EXIT_BROKEN
    assert f"method    get ({file}:8)" in done.out
    assert "expected  'a plain text' as it was stored\n            came      'A PLAIN TEXT'" in done.out
    described = [line for line in done.out.splitlines() if line.startswith("            came ")]
    assert len(described) == len(set(described)), "the same fault is described twice"
    answer = json.loads(membench("targets", "check", target, "--json", cwd=tmp_path, env=env).out)
    states = [each["state"] for each in answer[0]["outcomes"]]
    mark = f"{states.count('broken')} of {states.count('broken') + states.count('kept')} broken"
    assert f"conformance: loud {mark}" in summary()
    page = membench("results", "report", "--output-dir", "out", cwd=tmp_path, env=env).out.strip()
    assert f"conformance: {mark}" in (tmp_path / page).read_text()
    file.write_text(LOUD + "\n")
    assert "conformance: loud not checked" in summary()
