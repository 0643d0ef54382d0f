"""The end of a run: headline figures, verdicts since the previous run, failures, where the files are."""

from __future__ import annotations

import io
import json
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from membench import GOOD, Done, membench, once, options, write
from result_builders import ENVIRONMENT, THROUGHPUT, figure, make_result, make_run, storage_figures

from memory.benchmarking.model.files import read_result, read_run
from memory.benchmarking.model.records import Environment, Failure, Figure, Run
from memory.benchmarking.run.previous_runs import SincePrevious, verdicts_since_previous
from memory.benchmarking.run.summary import (
    Style,
    print_summary,
    since_text,
    summary_for_machines,
    timings_text,
)
from memory.benchmarking.text.display import NOTHING
from memory.benchmarking.verdicts.compare import compare_runs
from memory.benchmarking.verdicts.headlines import HeadlineVerdict, headline_verdict
from memory.benchmarking.verdicts.records import MetricVerdict

HEADLINE = f"complexity_1/batch_100/stm/{THROUGHPUT}"
FIRST, SECOND = "20260801_101500_ab12", "20260802_101500_cd34"
CASE = ("storage", "write_throughput", "agentmemory")


def a_run(output_dir: Path, run_id: str, scale: float = 1.0, **changes: Any) -> tuple[Path, Run]:
    result = make_result(storage_figures(scale), timestamp=run_id[:15])
    folder = make_run(output_dir, run_id, [result], headline=HEADLINE, **changes)
    return folder, read_run(folder)


def since_previous(folder: Path, run: Run) -> SincePrevious | None:
    results = [read_result(folder / ref.file) for ref in run.results]
    return verdicts_since_previous(folder, run, results).get(CASE)


def summary_of(folder: Path, run: Run) -> str:
    stream = io.StringIO()
    print_summary(folder, run, stream)
    return stream.getvalue()


# -- since the previous run -------------------------------------------------------------------


def test_a_figure_is_compared_with_the_last_run_of_the_same_case(tmp_path: Path) -> None:
    a_run(tmp_path, "20260701_101500_0000", scale=7.0)
    a_run(tmp_path, FIRST)
    found = since_previous(*a_run(tmp_path, SECOND, scale=2.0))
    assert found is not None
    assert found.run_id == FIRST
    headline = headline_verdict(HEADLINE, found.metrics)
    assert headline is not None
    assert headline.change.ratio == pytest.approx(2.0)
    assert (headline.verdict, headline.judged_by) == ("improved", ("p50_ms",))
    text = summary_of(*a_run(tmp_path, "20260803_101500_ef56", scale=4.0))
    assert re.search(r"\+100 % \(\+\d+(.\d)? to \+\d+\), improved \(p50_ms\)\n", text)
    assert f"since {SECOND}: 8 improved (membench compare lists them)\n" in text


@pytest.mark.parametrize("scale", [0.5, 0.9, 0.97, 1.0, 1.03, 1.1, 2.0])
def test_the_verdicts_are_those_of_compare(tmp_path: Path, scale: float) -> None:
    before, _ = a_run(tmp_path, FIRST)
    folder, run = a_run(tmp_path, SECOND, scale)
    found = since_previous(folder, run)
    assert found is not None
    assert [*found.metrics.values()] == compare_runs(before, folder).metrics


def test_each_case_is_compared_with_its_own_previous_run_and_all_are_one_comparison(
    tmp_path: Path,
) -> None:
    def result(name: str, run_id: str, scale: float) -> Any:
        return make_result(storage_figures(scale), benchmark=name, timestamp=run_id[:15])

    names = ("read", "write")
    for run_id, name in zip((FIRST, SECOND), names, strict=True):
        make_run(tmp_path, run_id, [result(name, run_id, 1.0)], headline=HEADLINE)
    now = "20260803_101500_ef56"
    folder = make_run(tmp_path, now, [result(name, now, 1.2) for name in names], headline=HEADLINE)
    run = read_run(folder)
    results = [read_result(folder / ref.file) for ref in run.results]
    together = verdicts_since_previous(folder, run, results)
    run_ids = {benchmark: found.run_id for (_, benchmark, _), found in together.items()}
    assert run_ids == {"read": FIRST, "write": SECOND}
    run.results = run.results[:1]
    (alone,) = verdicts_since_previous(folder, run, results[:1]).values()
    path = HEADLINE.replace(THROUGHPUT, "p50_ms")
    one, two = alone.metrics[path].p, together["storage", "read", "agentmemory"].metrics[path].p
    assert one is not None
    assert two is not None
    assert one < two  # Holm's correction counts the metrics of both cases.


def elsewhere(**changes: Any) -> Environment:
    return msgspec.structs.replace(ENVIRONMENT, **changes)


@pytest.mark.parametrize(
    "other",
    [
        {"environment": elsewhere(fingerprint="another")},
        {"parallel": 2},
        {"started_at": "2026-08-09T10:15:00"},
    ],
    ids=["another machine", "rounds in parallel", "a later run"],
)
def test_a_figure_is_not_compared_with(other: dict[str, Any], tmp_path: Path) -> None:
    a_run(tmp_path, FIRST, scale=1.0, **other)
    folder, run = a_run(tmp_path, SECOND)
    assert since_previous(folder, run) is None
    assert re.search(rf"{NOTHING}\n", summary_of(folder, run))


def test_a_parallel_run_is_never_compared(tmp_path: Path) -> None:
    a_run(tmp_path, FIRST)
    folder, run = a_run(tmp_path, SECOND, parallel=2)
    assert since_previous(folder, run) is None
    assert "2 rounds ran in parallel" in summary_of(folder, run)
    assert summary_for_machines(folder, run, interrupted=False)["gates"] is False


def test_other_parameters_are_another_case(tmp_path: Path) -> None:
    folder, run = a_run(tmp_path, FIRST)
    (ref,) = run.results
    run.results = [msgspec.structs.replace(ref, params_digest="1")]
    (folder / "run.json").write_bytes(msgspec.json.encode(run))
    assert since_previous(*a_run(tmp_path, SECOND)) is None


def test_a_damaged_previous_run_does_not_hide_the_ones_before_it(tmp_path: Path) -> None:
    first, _ = a_run(tmp_path, FIRST)
    broken, _ = a_run(tmp_path, "20260801_111500_ab12")
    (broken / "run.json").write_text("{")
    folder, run = a_run(tmp_path, SECOND)
    found = since_previous(folder, run)
    assert found is not None
    assert found.run_id == FIRST
    for path in (first / "storage").iterdir():
        path.write_text("{")
    assert since_previous(folder, run) is None


def test_damaged_noise_is_named_and_the_figures_are_shown(tmp_path: Path) -> None:
    a_run(tmp_path, FIRST)
    (tmp_path / "noise").mkdir()
    (tmp_path / "noise" / f"{ENVIRONMENT.fingerprint}.json").write_text("{")
    text = summary_of(*a_run(tmp_path, SECOND))
    assert "not compared with the previous run: " in text
    assert "10,000 /s" in text


def a_change(ratio: float, low: float | None = None, high: float | None = None, **fields: Any) -> Any:
    return MetricVerdict(
        category="c", benchmark="b", target="t", path="p50_ms", unit="ms", better="lower",
        base=1.0, current=ratio, ratio=ratio, low=low, high=high, **fields,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "verdict", "judged_by", "text"),
    [
        (a_change(1.081, 1.069, 1.094), "regressed", (), "+8.1 % (+6.9 to +9.4), regressed"),
        (a_change(0.5, 0.4, 0.6), "improved", (), "-50.0 % (-60.0 to -40.0), improved"),
        (a_change(1.05, 0.9, 1.2), "inconclusive", (), "+5.0 % (-10.0 to +20.0), inconclusive"),
        (a_change(1.0, 1.0, 1.0), "unchanged", (), "the same, unchanged"),
        (a_change(1.5), "inconclusive", (), "+50.0 %, inconclusive: one round only"),
        (a_change(0.5, 0.4, 0.6), None, (), "-50.0 % (-60.0 to -40.0), not judged"),
        (
            a_change(0.9, 0.8, 1.0), "regressed", ("cpu_ms", "p50_ms"),
            "-10.0 % (-20.0 to +0.0), regressed (cpu_ms, p50_ms)",
        ),
        (a_change(0.9, -0.2, 0.0, scale="difference"), "regressed", (),
         "-10.0 % (-20.0 to +0.0), regressed"),
    ],
)  # fmt: skip
def test_the_change_is_shown_with_its_verdict(
    change: MetricVerdict, verdict: Any, judged_by: tuple[str, ...], text: str
) -> None:
    assert since_text(HeadlineVerdict(change, verdict, judged_by)) == text


def test_a_share_that_was_zero_is_compared_in_points(tmp_path: Path) -> None:
    for run_id, rate in ((FIRST, 0.0), (SECOND, 0.2)):
        rounds = Figure(value=rate, low=rate, high=rate, rounds=[rate] * 3)
        result = make_result({"error_rate": rounds}, timestamp=run_id[:15])
        folder = make_run(tmp_path, run_id, [result], headline="error_rate")
    assert "0.200 higher, regressed" in summary_of(folder, read_run(folder))


def test_without_a_previous_run_there_is_no_change() -> None:
    assert since_text(None) == NOTHING


def test_a_headline_that_is_not_judged_has_the_worst_verdict_of_its_timing(tmp_path: Path) -> None:
    def run(run_id: str, cpu_ms: float, p50_ms: float) -> tuple[Path, Run]:
        values = {"cpu_ms": cpu_ms, "p50_ms": p50_ms, THROUGHPUT: 1000 / p50_ms, "total_bytes": 10}
        metrics = {f"stm/{leaf}": figure(value, samples=100) for leaf, value in values.items()}
        result = make_result(metrics, timestamp=run_id[:15])
        folder = make_run(tmp_path, run_id, [result], headline=f"stm/{THROUGHPUT}")
        return folder, read_run(folder)

    run(FIRST, 1.0, 2.0)
    found = since_previous(*run(SECOND, 0.5, 4.0))
    assert found is not None
    headline = headline_verdict(f"stm/{THROUGHPUT}", found.metrics)
    assert headline is not None
    assert (headline.verdict, headline.judged_by) == ("regressed", ("p50_ms",))
    assert headline_verdict("stm/nothing", found.metrics) is None


LOADED = """
import sys
from pathlib import Path
from memory.benchmarking.model.files import read_run
from memory.benchmarking.run.summary import print_summary
folder = Path(sys.argv[1])
print_summary(folder, read_run(folder), open("/dev/null", "w"))
print(*sorted({"scipy.special", "scipy.stats", "scipy.optimize"} & set(sys.modules)))
"""


def test_scipy_is_loaded_only_to_compare_and_then_only_the_small_part(tmp_path: Path) -> None:
    def loaded(folder: Path) -> str:
        command = [sys.executable, "-c", LOADED, str(folder)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    first, _ = a_run(tmp_path, FIRST)
    assert loaded(first) == ""
    assert loaded(a_run(tmp_path, SECOND)[0]) == "scipy.special"


# -- the table --------------------------------------------------------------------------------


def test_the_summary_has_figure_interval_and_where_the_files_are(tmp_path: Path) -> None:
    folder, run = a_run(tmp_path, FIRST)
    head, line, path, empty, where, more = summary_of(folder, run).splitlines()

    assert head.split()[-4:] == ["since", "the", "last", "run"]
    assert re.fullmatch(rf"storage.write_throughput  10,000 /s  9,500–10,500\s+{NOTHING}", line)
    assert path == f"  {HEADLINE}"
    assert empty == ""
    assert where == f"1 result of quick run {FIRST} in {folder}"
    assert more == f"more: membench results show {folder}"


def test_targets_are_named_where_they_are_not_the_usual_one(tmp_path: Path) -> None:
    result = make_result(storage_figures(), timestamp=FIRST[:15], target="sqlite-baseline")
    folder = make_run(tmp_path, FIRST, [result], headline=HEADLINE)
    assert "storage.write_throughput on sqlite-baseline" in summary_of(folder, read_run(folder))


def test_a_failed_round_is_named_with_its_log(tmp_path: Path) -> None:
    failure = Failure(
        case="c.b@t", round=1, reason="crash", message="crashed\x1b with SIGSEGV", log="logs/x.log"
    )
    folder, run = a_run(tmp_path, FIRST, failures=[failure])
    text = summary_of(folder, run)
    assert "\n1 round failed:\n  c.b@t round 2: crashed� with SIGSEGV\n" in text
    assert f"    log: {folder}/logs/x.log\n" in text


def test_a_benchmark_that_is_not_available_is_shown_with_its_reason(tmp_path: Path) -> None:
    result = make_result({}, timestamp=FIRST[:15], not_available={"a/b": "it has no tiers"})
    folder = make_run(tmp_path, FIRST, [result], headline="")
    text = summary_of(folder, read_run(folder))
    assert re.search(r"storage.write_throughput\s+n/a", text)
    assert "storage.write_throughput a/b: n/a, it has no tiers" in text


def test_many_figures_without_a_value_for_one_reason_take_one_line(tmp_path: Path) -> None:
    missing = {f"a/{number}": "it has no tiers" for number in range(4)} | {"b": "it has no search"}
    result = make_result(storage_figures(), timestamp=FIRST[:15], not_available=missing)
    text = summary_of(folder := make_run(tmp_path, FIRST, [result], headline=HEADLINE), read_run(folder))
    notes = [line for line in text.splitlines() if "n/a, " in line or "are n/a" in line]
    assert notes == [
        "storage.write_throughput: 4 figures are n/a, it has no tiers",
        "storage.write_throughput b: n/a, it has no search",
    ]


def test_a_benchmark_without_any_figure_takes_one_line_and_one_note(tmp_path: Path) -> None:
    result = make_result({}, timestamp=FIRST[:15], not_available={"": "it has no search"})
    folder = make_run(tmp_path, FIRST, [result], headline="")
    _, line, note, empty, *_ = summary_of(folder, read_run(folder)).splitlines()
    assert line.split() == ["storage.write_throughput", "n/a"]
    assert note == "storage.write_throughput: n/a, it has no search"
    assert empty == ""


def test_a_result_that_distrusts_itself_is_a_warning_at_the_end(tmp_path: Path) -> None:
    wrong, right = (make_result(storage_figures(), timestamp=FIRST[:15]) for _ in range(2))
    wrong.results["ruler"] = "NOT TO BE TRUSTED: 0.7\x1b, not 0.6"
    right.results["ruler"] = "right: 0.6"
    folder = make_run(tmp_path, FIRST, [wrong, right], headline=HEADLINE)
    text = summary_of(folder, read_run(folder))
    warning = "\n\nWARNING: storage.write_throughput ruler: NOT TO BE TRUSTED: 0.7�, not 0.6\n\n2 results"
    assert warning in text
    assert "right" not in text


def test_a_very_wide_interval_is_shown_as_too_few_rounds_and_as_numbers_in_json(tmp_path: Path) -> None:
    result = make_result({"a/p50_ms": Figure(value=0.722, low=2e-10, high=2e9)}, timestamp=FIRST[:15])
    folder = make_run(tmp_path, FIRST, [result], headline="a/p50_ms")
    assert re.search(r"722 µs  too few rounds", summary_of(folder, read_run(folder)))
    (found,) = summary_for_machines(folder, read_run(folder), interrupted=False)["results"]
    assert (found["low"], found["high"]) == (2e-10, 2e9)


def test_colours_are_for_terminals_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    near, far = pty.openpty()
    with open(near, "wb"), open(far, "w") as terminal:
        assert Style(terminal).red("x") == "\033[31mx\033[0m"
        monkeypatch.setenv("NO_COLOR", "1")
        assert Style(terminal).red("x") == "x"
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("TERM", "dumb")
        assert Style(terminal).bold("x") == "x"
    assert Style(io.StringIO()).dim("x") == "x"


def test_the_summary_as_json_is_one_document(tmp_path: Path) -> None:
    a_run(tmp_path, FIRST)
    folder, run = a_run(tmp_path, SECOND, scale=2.0)
    document = json.loads(msgspec.json.encode(summary_for_machines(folder, run, interrupted=True)))
    assert document["run"] == SECOND
    assert document["interrupted"] is True
    assert document["gates"] is True
    assert document["fingerprint"] == ENVIRONMENT.fingerprint
    (result,) = document["results"]
    assert result["headline"] == HEADLINE
    assert (result["value"], result["unit"]) == (20_000.0, "/s")
    assert result["change"]["since"] == FIRST
    assert result["change"]["ratio"] == pytest.approx(2.0)
    assert result["change"]["verdict"] == "improved"
    assert Path(result["file"]).is_file()


def test_a_headline_without_a_figure_is_null_in_json(tmp_path: Path) -> None:
    result = make_result({"a": Figure(value=1.0)}, timestamp=FIRST[:15])
    folder = make_run(tmp_path, FIRST, [result], headline="b")
    (found,) = summary_for_machines(folder, read_run(folder), interrupted=False)["results"]
    assert (found["value"], found["unit"], found["change"]) == (None, None, None)


# -- where the time went ----------------------------------------------------------------------


def test_the_share_of_the_harness_is_the_time_outside_the_benchmarks(tmp_path: Path) -> None:
    timings = {"start": 1.0, "load": 0.5, "benchmark": 8.0, "save and end": 0.25, "all": 10.0}
    text = timings_text(a_run(tmp_path, FIRST, timings=timings)[1])
    assert re.search(r"benchmark +8.00 s +80.0 %", text)
    assert re.search(r"plan, collect, wait +0.25 s +2.5 %", text)
    assert text.endswith("the harness itself: 20.0 % of the run")
    in_parallel = timings_text(a_run(tmp_path, SECOND, timings=timings, parallel=2)[1])
    assert "plan, collect, wait" not in in_parallel
    assert in_parallel.endswith("the harness itself: 17.9 % of all rounds")


# -- two real runs ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Done, Done]:
    """The same benchmark two times, then with rounds in parallel."""

    def run(folder: Path) -> None:
        file = write(folder / "good.py", GOOD)
        common = options(file, folder / "out", "--rounds", 2)
        for number, more in enumerate((("--timings",), ("--json",), ("--parallel", "--json"))):
            done = membench(*common, *more, cwd=folder)
            (folder / f"{number}.json").write_bytes(msgspec.json.encode(done))

    folder = once(tmp_path_factory, "twice", run)
    one, two, three = (
        msgspec.json.decode((folder / f"{number}.json").read_bytes(), type=Done) for number in range(3)
    )
    return one, two, three


def test_a_second_run_is_compared_with_the_first(twice: tuple[Done, Done, Done]) -> None:
    one, two, _ = twice
    assert (one.code, two.code) == (0, 0)
    first = re.search(r"quick run (\S+) in|standard run (\S+) in", one.out)
    assert first
    document = json.loads(two.out)
    (result,) = document["results"]
    assert result["change"]["since"] == (first[1] or first[2])
    assert 0 < result["change"]["low"] <= result["change"]["ratio"] <= result["change"]["high"]
    assert (result["unit"], document["status"]) == ("/s", "complete")
    assert two.err == ""


def test_a_parallel_run_reports_no_change(twice: tuple[Done, Done, Done]) -> None:
    document = json.loads(twice[2].out)
    assert document["gates"] is False
    assert document["results"][0]["change"] is None


def test_timings_add_up_to_the_run(twice: tuple[Done, Done, Done]) -> None:
    rows = re.findall(r"^(\w[\w, ]*?) +([\d.]+) s( +[\d.]+ %)?$", twice[0].out, re.MULTILINE)
    seconds = {name: float(value) for name, value, _ in rows}
    assert {"start", "load", "benchmark", "save and end", "plan, collect, wait", "all"} == set(seconds)
    assert sum(seconds.values()) == pytest.approx(2 * seconds["all"], abs=0.05)
    assert "the harness itself: " in twice[0].out
