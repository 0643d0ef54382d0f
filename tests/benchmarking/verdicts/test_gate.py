"""The gate: nothing that is missing, damaged or incomplete passes. Every exit code by the real command."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from membench import LIGHT, membench, write
from result_builders import ENVIRONMENT, make_result, make_run

from memory.benchmarking.cli import main
from memory.benchmarking.measure.statistics import welch
from memory.benchmarking.metrics import SHARE
from memory.benchmarking.model.files import read_run, write_run
from memory.benchmarking.model.records import Failure, Figure
from memory.benchmarking.verdicts.baselines import set_baseline
from memory.benchmarking.verdicts.compare import compare_runs
from memory.benchmarking.verdicts.decide import Evidence, decide
from memory.benchmarking.verdicts.formats import render
from memory.benchmarking.verdicts.noise import uncalibrated
from memory.benchmarking.verdicts.scales import limits_of
from memory.benchmarking.verdicts.thresholds import Thresholds
from memory.benchmarking.view.compare_page import tone_of

BASE, NOW, NEXT = "20260801_101500_aaaa", "20260802_101500_bbbb", "20260803_101500_cccc"
SEEDS = list(range(6))

Compare = Callable[..., tuple[int, str]]


def steady(value: float = 1.0, rounds: int = 6) -> Figure:
    """A figure that is nearly the same in every round."""
    values = [value * (1 + 0.001 * (number % 3)) for number in range(rounds)]
    return Figure(value=value, low=value * 0.99, high=value * 1.01, rounds=values, samples=200)


PLAIN: Mapping[str, Figure] = {
    f"{tier}/{leaf}": steady() for tier in ("stm", "ltm") for leaf in ("cpu_ms", "p50_ms")
}


def stored(
    folder: Path,
    run_id: str,
    benchmarks: Mapping[str, Mapping[str, Figure]] | None = None,
    **changes: object,
) -> Path:
    benchmarks = benchmarks or {"read_latency": PLAIN, "write_throughput": PLAIN}
    results = [
        make_result(metrics, benchmark=name, timestamp=run_id[:15], params={}, seeds=SEEDS, rounds=6)
        for name, metrics in benchmarks.items()
    ]
    return make_run(folder, run_id, results, **{"rounds": 6, **changes})


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results with the baseline `main`, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMBENCH_CONFIG", raising=False)
    folder = tmp_path / "benchmark_results"
    set_baseline(folder, "main", stored(folder, BASE))
    return folder


@pytest.fixture
def compare(results: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    """Runs `membench compare --baseline main` and returns its exit code and everything it prints."""

    def run(*arguments: str, base: Sequence[str] = ("--baseline", "main")) -> tuple[int, str]:
        code = main(["compare", *base, *arguments])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


# -- something of the base is gone ------------------------------------------------------------


def test_the_same_benchmarks_and_metrics_pass(results: Path, compare: Compare) -> None:
    stored(results, NOW)
    assert compare()[0] == 0


def test_a_benchmark_that_is_gone_fails_and_is_named(results: Path, compare: Compare) -> None:
    stored(results, NOW, {"read_latency": PLAIN})
    code, printed = compare()
    assert code == 2
    assert "Missing, though the base has it: storage.write_throughput;" in printed
    assert "--allow-missing 'storage.write_throughput'" in printed


def test_a_metric_that_is_gone_fails_and_is_named(results: Path, compare: Compare) -> None:
    fewer = {path: figure for path, figure in PLAIN.items() if path != "ltm/p50_ms"}
    stored(results, NOW, {"read_latency": fewer, "write_throughput": PLAIN})
    code, printed = compare()
    assert code == 2
    assert "Missing, though the base has it: storage.read_latency ltm/p50_ms;" in printed


def test_a_metric_that_some_rounds_lack_is_missing(results: Path, compare: Compare) -> None:
    partly = {**PLAIN, "ltm/p50_ms": steady(rounds=2)}
    stored(results, NOW, {"read_latency": partly, "write_throughput": PLAIN})
    code, printed = compare()
    assert code == 2
    assert "not in every round of the current run" in printed


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("storage.write_throughput", 0),
        ("storage.*", 0),
        ("*@agentmemory", 0),
        ("storage.read_latency", 2),
        ("*/p50_ms", 2),
    ],
)
def test_a_benchmark_may_be_removed_on_purpose(
    results: Path, compare: Compare, pattern: str, code: int
) -> None:
    stored(results, NOW, {"read_latency": PLAIN})
    found, printed = compare("--allow-missing", pattern)
    assert found == code
    assert (f"--allow-missing {pattern!r} fits nothing" in printed) == (code == 2)


def test_several_patterns_may_be_given(results: Path, compare: Compare) -> None:
    fewer = {path: figure for path, figure in PLAIN.items() if path != "ltm/p50_ms"}
    stored(results, NOW, {"read_latency": fewer})
    assert compare("--allow-missing", "storage.write_throughput")[0] == 2
    assert compare("--allow-missing", "ltm/p50_ms")[0] == 2
    allowed = ("--allow-missing", "storage.write_throughput", "--allow-missing", "ltm/p50_ms")
    assert compare(*allowed)[0] == 0


# -- something is damaged ---------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{", b"{}", None])
def test_a_damaged_result_of_the_current_run_fails(
    results: Path, compare: Compare, content: bytes | None
) -> None:
    file = next(stored(results, NOW).glob("*/write_throughput*.json"))
    file.unlink() if content is None else file.write_bytes(content)
    code, printed = compare()
    assert code == 1
    assert f"Not to be trusted: {'there is no file ' if content is None else ''}" in printed
    assert str(file.name) in printed


def test_a_truncated_result_of_the_base_fails(results: Path, compare: Compare) -> None:
    stored(results, NOW)
    file = next((results / "baselines").glob("main@*/*/write_throughput*.json"))
    file.write_bytes(file.read_bytes()[:-100])
    code, printed = compare()
    assert code == 1
    assert "is damaged" in printed
    assert file.name in printed


def test_a_damaged_record_of_the_newest_run_fails(results: Path, compare: Compare) -> None:
    stored(results, NOW)
    broken = stored(results, NEXT) / "run.json"
    broken.write_bytes(broken.read_bytes()[:-200])
    code, printed = compare()
    assert code == 1
    assert f"{NEXT}/run.json is damaged" in printed


# -- the newest run is not complete -----------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"),
    [("failed", "failed"), ("interrupted", "was interrupted"), ("running", "is still running")],
)
def test_an_older_run_is_never_judged_in_place_of_the_newest(
    results: Path, compare: Compare, status: str, words: str
) -> None:
    stored(results, NOW)
    stored(results, NEXT, status=status)
    for base in (("--baseline", "main"), ("--last",), ("--baseline-dir", "benchmark_results")):
        code, printed = compare(base=base)
        assert code == 1
        assert f"the newest run, {NEXT}, {words}" in printed
    assert compare("bbbb")[0] == 0  # the run that is named


def test_the_newest_run_is_not_skipped_if_its_record_is_gone(
    results: Path, compare: Compare, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(results, NOW)
    (stored(results, NEXT) / "run.json").unlink()
    for base in (("--baseline", "main"), ("--last",), ("--baseline-dir", "benchmark_results")):
        code, printed = compare(base=base)
        assert code == 1
        assert f"the newest run, {NEXT}, has no run.json" in printed
    assert main(["baseline", "set", "main"]) == 1
    assert f"the newest run, {NEXT}, has no run.json" in capsys.readouterr().err
    assert compare("bbbb")[0] == 0  # the run that is named
    shutil.rmtree(results / NEXT)
    assert compare()[0] == 0


def test_failed_rounds_are_named(results: Path, compare: Compare) -> None:
    failure = Failure(
        case="storage.read_latency@agentmemory", round=2, reason="exception", message="KeyError: 'a'"
    )
    stored(results, NOW, failures=[failure])
    for arguments in ((), ("bbbb",)):
        code, printed = compare(*arguments)
        assert code == 1
        assert "failed in 1 round (the first: storage.read_latency@agentmemory, KeyError: 'a')" in printed


def test_a_run_before_that_failed_is_skipped_with_a_note(results: Path, compare: Compare) -> None:
    stored(results, NOW, status="failed")
    stored(results, NEXT)
    code, printed = compare(base=["--last"])
    assert code == 0
    assert f"not used as the base: {NOW} failed" in printed


def test_a_baseline_is_never_an_older_or_a_failed_run(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(results, NOW, status="failed")
    assert main(["baseline", "set", "main"]) == 1
    assert f"the newest run, {NOW}, failed" in capsys.readouterr().err
    assert main(["baseline", "set", "main", NOW]) == 1
    assert "a baseline has to be complete" in capsys.readouterr().err
    assert main(["baseline", "set", "main", BASE]) == 0


@pytest.mark.parametrize("content", [b"", b"{", None])
def test_a_run_with_a_damaged_result_is_no_baseline(
    results: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    before = next((results / "baselines").glob("main@*"))
    file = next(stored(results, NOW).glob("*/write_throughput*.json"))
    file.unlink() if content is None else file.write_bytes(content)
    assert main(["baseline", "set", "main"]) == 1
    assert file.name in capsys.readouterr().err
    assert next((results / "baselines").glob("main@*")) == before


def test_a_result_that_warns_of_itself_is_not_trusted(results: Path, compare: Compare) -> None:
    file = next(stored(results, NOW).glob("*/write_throughput*.json"))
    result = json.loads(file.read_bytes())
    result["results"]["ruler"] = "NOT TO BE TRUSTED: the ruler is bent"
    file.write_text(json.dumps(result))
    code, printed = compare()
    assert code == 1
    assert "storage.write_throughput: NOT TO BE TRUSTED: the ruler is bent" in printed


# -- shares -----------------------------------------------------------------------------------


@given(
    before=st.lists(st.floats(0, 1), min_size=2, max_size=6),
    now=st.lists(st.floats(0, 1), min_size=2, max_size=6),
)
def test_the_interval_of_a_share_is_possible(before: list[float], now: list[float]) -> None:
    effect = welch(now, before)
    evidence = Evidence(
        category="quality",
        benchmark="retrieval_quality",
        target="agentmemory",
        path="target/recall_at_5",
        better="higher",
        base=statistics.fmean(before),
        current=statistics.fmean(now),
        log_ratio=effect.value,
        error=effect.error,
        freedom=effect.freedom,
        scale="difference",
        limits=limits_of("target/recall_at_5", SHARE, (*before, *now)),
    )
    (found,) = decide([evidence], threshold=Thresholds(), noise=uncalibrated("stored"))
    assert found.base is not None
    assert found.low is not None
    assert found.high is not None
    assert found.change is not None
    assert found.low <= found.change <= found.high
    assert -1e-9 <= found.base + found.low <= found.base + found.high <= 1 + 1e-9
    assert found.detectable is None or found.detectable <= 1


def test_a_share_is_never_lower_by_more_than_it_was(results: Path, compare: Compare) -> None:
    def recall(*rounds: float) -> Figure:
        return Figure(value=statistics.fmean(rounds), rounds=list(rounds))

    now = {**PLAIN, "recall_at_5": recall(0.9, 0.0)}
    set_baseline(
        results,
        "two",
        stored(results, BASE, {"read_latency": {**PLAIN, "recall_at_5": recall(0.99, 0.97)}}),
    )
    stored(results, NOW, {"read_latency": now})
    _, printed = compare("--all", base=("--baseline", "two"))
    assert "0.530 lower (0.980 lower to 0.0200 higher)" in printed, printed


# -- every exit code --------------------------------------------------------------------------


def test_a_regression_is_exit_code_2_even_if_something_else_is_wrong(
    results: Path, compare: Compare
) -> None:
    slower = {path: steady(2.0) for path in PLAIN}
    folder = stored(results, NOW, {"read_latency": slower, "write_throughput": PLAIN})
    next(folder.glob("*/write_throughput*.json")).write_text("{")
    code, printed = compare()
    assert code == 2
    assert "NOT TO BE TRUSTED" in printed


def test_other_parameters_are_exit_code_3(results: Path, compare: Compare) -> None:
    changed = [
        make_result(PLAIN, benchmark=name, timestamp=NOW[:15], params=params, seeds=SEEDS, rounds=6)
        for name, params in (("read_latency", {"num_samples": 5}), ("write_throughput", {}))
    ]
    make_run(results, NOW, changed, rounds=6)
    code, printed = compare()
    assert code == 3
    assert "Not comparable with the base: storage.read_latency: incomparable, other parameters" in printed


def test_another_environment_is_exit_code_3(results: Path, compare: Compare) -> None:
    stored(results, NOW, environment=msgspec.structs.replace(ENVIRONMENT, fingerprint="beef", cores=8))
    assert compare()[0] == 3
    assert compare("--force")[0] == 0


def test_an_undecided_metric_is_exit_code_4_if_strict(results: Path, compare: Compare) -> None:
    wide = steady(1.0)
    wide = msgspec.structs.replace(wide, rounds=[0.5, 2.0, 0.6, 1.8, 0.7, 1.4])
    stored(results, NOW, {"read_latency": {**PLAIN, "ltm/p50_ms": wide}, "write_throughput": PLAIN})
    assert compare()[0] == 0
    code, printed = compare("--strict")
    assert code == 4
    assert "1 of 8 metrics could not be decided." in printed


def test_bad_input_and_nothing_to_compare_are_exit_code_1(results: Path, compare: Compare) -> None:
    assert compare("--last", base=())[0] == 1  # there is one run
    stored(results, NOW, {"other": {"stm/p50_ms": steady()}})
    assert compare()[0] == 1  # they have no benchmark in common
    assert compare("--threshold", "-1")[0] == 1


def test_the_documents_have_the_exit_codes_in_one_table() -> None:
    text = (Path(__file__).parents[3] / "docs/compare.md").read_text()
    section = text.partition("## Exit codes\n")[2].partition("\n## ")[0]
    assert [code for code in "01234" if f"\n| {code} | " in section] == list("01234")
    assert "--allow-missing" in section


# -- the other formats ------------------------------------------------------------------------


def test_every_format_shows_what_fails(results: Path) -> None:
    base = results / BASE
    gone = compare_runs(base, stored(results, NOW, {"read_latency": PLAIN}))
    damaged = stored(results, NEXT)
    next(damaged.glob("*/write_throughput*.json")).write_text("{")
    problem = compare_runs(base, damaged)
    for found, words in ((gone, "storage.write_throughput"), (problem, "is damaged")):
        assert words in render(found, "markdown").partition("<details>")[0]
        failed = ElementTree.fromstring(render(found, "junit")).findall(".//failure")
        assert len(failed) == (1 if found is gone else 2)
        assert "::error " in render(found, "github")
    assert json.loads(render(gone, "json"))["exit_code"] == 2
    assert json.loads(render(problem, "json"))["exit_code"] == 1


def test_the_viewer_is_green_only_if_everything_was_decided(results: Path) -> None:
    base = results / BASE
    assert tone_of(compare_runs(base, stored(results, NOW))) == "good"
    gone = stored(results, NEXT, {"read_latency": PLAIN})
    assert tone_of(compare_runs(base, gone)) == "bad"
    shutil.rmtree(gone)
    wide = msgspec.structs.replace(steady(), rounds=[0.5, 2.0, 0.6, 1.8, 0.7, 1.4])
    undecided = stored(
        results, NEXT, {"read_latency": {**PLAIN, "ltm/p50_ms": wide}, "write_throughput": PLAIN}
    )
    assert tone_of(compare_runs(base, undecided)) == "warn"
    run = read_run(undecided)
    run.status = "failed"
    write_run(undecided, run)
    assert tone_of(compare_runs(base, undecided)) == "bad"


# -- ab ---------------------------------------------------------------------------------------


def test_ab_fails_if_the_current_side_lacks_a_figure(tmp_path: Path) -> None:
    file = write(
        tmp_path / "own.py",
        """
        def benchmark_sizes(both: bool = True, bench=None):
            "Has one figure or two."
            return {"a_bytes": 10, **({"b_bytes": 20} if both else {})}
        """,
    )
    for name, both in (("old", True), ("new", False)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"own": {"sizes": {"both": both}}}))
    command = ("ab", "--path", file, "--category", "own", "--target", LIGHT)
    sides = ("--base-config", "old.json", "--current-config", "new.json")
    done = membench(*command, *sides, cwd=tmp_path)
    assert done.code == 2, done.err
    assert "Missing, though the base has it: own.sizes b_bytes" in done.out
    show = ("ab", "--show", "latest")
    assert membench(*show, cwd=tmp_path).code == 2
    assert membench(*show, "--allow-missing", "b_bytes", cwd=tmp_path).code == 0
