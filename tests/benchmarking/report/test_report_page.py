"""The report page is complete, correct and self-contained, and all its texts are escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_builders import ENVIRONMENT, THROUGHPUT, figure, make_result, make_run, storage_figures

from memory.benchmarking.benchmarks import built_in
from memory.benchmarking.errors import InvalidBenchmarkConfig, NothingMeasured, UnknownName
from memory.benchmarking.model.files import ResultFile
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Environment, Failure, Figure, MachineState, Unit
from memory.benchmarking.report.comparison import comparison_page
from memory.benchmarking.report.page import page
from memory.benchmarking.results import BenchmarkResults
from memory.benchmarking.verdicts.baselines import set_baseline
from memory.benchmarking.verdicts.compare import compare_runs
from memory.benchmarking.verdicts.words import count_text

FAILURE = Failure(
    case="storage.read_latency@agentmemory", round=2, reason="timeout", message="took 60 s & more"
)
FIRST, SECOND = "20260801_101500_ab12", "20260802_101500_cd34"
WITHOUT_END = ("meta", "input")


class Reader(HTMLParser):
    """Collects the elements and texts of a page; fails on tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.code: dict[str, list[str]] = {"style": [], "script": []}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in WITHOUT_END:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.code:
            self.code[self._open[-1]].append(data)
        elif data.strip():
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        return "\n".join(self.texts)

    def values(self, name: str) -> list[str]:
        return [value or "" for attribute, value in self.attributes if attribute == name]


@pytest.fixture
def results(tmp_path: Path) -> BenchmarkResults:
    return BenchmarkResults(tmp_path / "benchmark_results")


def read(path: Path) -> Reader:
    return Reader(path.read_text())


# -- what is on it ----------------------------------------------------------------------------


def test_the_page_shows_what_ran_on_which_machine_and_the_results(results: BenchmarkResults) -> None:
    headline = f"complexity_5/batch_100/stm/{THROUGHPUT}"
    result = make_result(
        storage_figures(),
        headline=headline,
        params={"batch_sizes": [10, 100]},
        not_available={"im": "no such tier"},
    )
    make_run(results.output_dir, results=[result], failures=[FAILURE])
    seen = read(results.generate_report(category="storage"))
    for expected in (
        "Benchmark results: storage", "Run 20260801_101500_ab12", "1 result on agentmemory",
        "took 3 min 20 s",
        "membench run --profile quick", "Test CPU @ 2.0 GHz, 2 cores, 7.8 GB, Linux 6.1",
        "7d927a8b1c2d with changes", "numpy 2.0.0", "write_throughput", "batch_sizes = [10, 100]",
        "2,000 /s", "1,900–2,100", "throughput: stm, complexity 5, batches of 100", "higher is better",
        "no such tier", "1 round failed", "took 60 s & more", "round 3", "All 48 figures",
    ):  # fmt: skip
        assert expected in seen.text
    assert seen.texts.count("p99_ms") == 8


def test_the_page_has_every_figure_with_its_interval(results: BenchmarkResults) -> None:
    make_run(results.output_dir)
    text = read(results.generate_report()).text
    for value in storage_figures().values():
        shown = f"{value.value:,.0f}" if value.value == int(value.value) else ""
        assert shown in text
    assert text.count("/s (") >= 8


def test_the_same_error_is_shown_once_with_all_failed_rounds(results: BenchmarkResults) -> None:
    many = [
        Failure(case=f"storage.{name}@agentmemory", round=0, reason="exception", message="NameError: x")
        for name in ("a", "b", "c")
    ]
    make_run(results.output_dir, failures=[*many, FAILURE])
    text = read(results.generate_report()).text
    assert "4 rounds failed" in text
    assert text.count("NameError: x") == 1
    assert "storage.c@agentmemory, round 1" in text


def test_the_page_shows_how_to_repeat_a_run_of_a_clean_revision(results: BenchmarkResults) -> None:
    clean = Environment(
        **{name: getattr(ENVIRONMENT, name) for name in ENVIRONMENT.__struct_fields__}
        | {"git_dirty": False}
    )
    make_run(results.output_dir, environment=clean)
    text = read(results.generate_report()).text
    assert f"git checkout {ENVIRONMENT.git_revision}\nmembench run --profile quick" in text


# -- what stands out --------------------------------------------------------------------------


def moments(meter: float, count: int = 10) -> list[MachineState]:
    return [
        MachineState(
            case="storage.write_throughput@agentmemory", round=number, started_at=0, seconds=1,
            busy_percent=50, wall_to_cpu=meter,
        )
        for number in range(count)
    ]  # fmt: skip


def test_a_busy_machine_a_leak_and_lost_data_are_insights(results: BenchmarkResults) -> None:
    lost = make_result(
        {"ltm/content_exact_rate": figure(0.98)},
        category="memory_transition", benchmark="transition_accuracy",
    )  # fmt: skip
    lost.units["content_exact_rate"] = Unit(unit="", better="higher")
    leaking = make_result(
        {"error_rate": figure(0.02), "leak_bytes_per_operation": figure(40)},
        category="scalability", benchmark="resource_utilization",
    )  # fmt: skip
    leaking.units["leak_bytes_per_operation"] = Unit(unit="B", better="lower")
    growing = make_result({"growth/search/growth_exponent": figure(1.1)}, benchmark="odd")
    make_run(results.output_dir, results=[lost, leaking, growing], moments=moments(1.4))
    text = read(results.generate_report()).text
    assert "in 10 of 10 rounds wall time was more than 1.15 times CPU time" in text
    assert "content exact rate (ltm) is 0.980" in text
    assert "error rate is 0.0200" in text
    assert "the process grew by 40.0 B per operation (38.0–42.0)" in text
    assert "storage.odd (search) grows about as fast as its data: n^1.10" in text


def test_a_quiet_complete_run_is_called_good(results: BenchmarkResults) -> None:
    fine = make_result(
        {"ltm/content_exact_rate": Figure(value=1.0, rounds=[1.0, 1.0])},
        category="memory_transition", benchmark="transition_accuracy",
    )  # fmt: skip
    fast = make_result(
        {"invoke/p50_ms": figure(3.0)}, category="agent_execution", benchmark="simple_invocation"
    )
    make_run(results.output_dir, results=[fine, fast], moments=moments(1.01))
    text = read(results.generate_report()).text
    assert "The machine was quiet" in text
    assert "kept content, id, step and kind exactly" in text
    assert "agent execution median 3.00 ms (goal: 50 ms)" in text


def test_a_missed_goal_and_a_wide_interval_are_insights(results: BenchmarkResults) -> None:
    slow = make_result(
        {"entries_10/search/p50_ms": Figure(value=12, low=3, high=48, rounds=[6, 24])},
        category="memory_search", benchmark="short_query",
    )  # fmt: skip
    make_run(results.output_dir, results=[slow])
    text = read(results.generate_report()).text
    assert "Goal missed: memory_search.short_query" in text
    assert "Wide intervals, because the rounds differ: memory_search.short_query (×÷ 4.0)" in text


def test_a_warning_comes_first_and_nothing_is_called_good(
    results: BenchmarkResults,
) -> None:
    figures = {f"scifact/{by}/all_questions/recall_at_5": figure(0.8) for by in ("target", "bm25")}
    wrong = make_result(figures, category="quality", benchmark="retrieval_quality")
    make_run(results.output_dir, FIRST, results=[wrong], moments=moments(1.4))
    assert "Of the passages that answer" in read(results.generate_report()).text
    wrong.results["ruler"] = "NOT TO BE TRUSTED: 0.7, not 0.6"
    make_run(results.output_dir, SECOND, results=[wrong], moments=moments(1.4))
    seen = read(results.generate_report())
    out = seen.texts[seen.texts.index("What stands out") :]
    assert out[1:4] == ["✕", "Bad:", "quality.retrieval_quality, ruler: NOT TO BE TRUSTED: 0.7, not 0.6."]
    assert "Of the passages that answer" not in seen.text
    assert "NOT TO BE TRUSTED: 0.7, not 0.6" in out


def test_each_data_set_has_its_own_sentence_beside_bm25(results: BenchmarkResults) -> None:
    recalls = {"talks/target": 0.7, "talks/bm25": 0.5, "papers/target": 0.4, "papers/bm25": 0.5}
    figures = {f"{name}/all_questions/recall_at_5": figure(value) for name, value in recalls.items()}
    found = make_result(figures, category="quality", benchmark="retrieval_quality")
    make_run(results.output_dir, results=[found])
    text = read(results.generate_report()).text
    for name, value in (("talks", "70.0%"), ("papers", "40.0%")):
        assert f"Of the passages that answer a question of {name}, {value} are among the first five" in text


def test_an_interval_that_is_too_wide_is_replaced_and_explained(results: BenchmarkResults) -> None:
    wide = make_result({"create/p50_ms": Figure(value=0.722, low=2e-10, high=2e9, rounds=[0.1, 5.0])})
    make_run(results.output_dir, results=[wide])
    seen = read(results.generate_report())
    assert "too few rounds" in seen.texts
    assert "722 µs (too few rounds)" in seen.texts
    assert "storage.write_throughput (too few rounds)" in seen.text
    assert "“Too few rounds” replaces an interval" in seen.text
    assert "2,000,000" not in seen.text


# -- in words ---------------------------------------------------------------------------------


def test_the_notes_of_a_benchmark_are_in_its_section(results: BenchmarkResults) -> None:
    said = make_result({"p50_ms": figure(1)}, benchmark="mine")
    said.results |= {
        "growth": "search p50 grows like n^0.31",
        "im": {"correlation": "undefined: all alike"},
        "sha256": "0123abcd",
    }
    make_run(results.output_dir, results=[said])
    seen = read(results.generate_report())
    words = seen.texts[seen.texts.index("Notes:") :]
    assert words[1:6:2] == ["growth", "im/correlation", "1 figure"]
    assert words[2] == ": search p50 grows like n^0.31"
    assert seen.texts[seen.texts.index("notes") + 1] == "sha256: 0123abcd"


def test_a_finding_of_a_chart_is_not_repeated_as_a_note(results: BenchmarkResults) -> None:
    codecs = make_result(
        {
            f"navigation/codecs/{codec}/{leaf}": figure(value)
            for codec, size in (("int8", 256.0), ("pq", 64.0))
            for leaf, value in (("bytes_per_vector", size), ("neighbour_recall_at_10", 0.9))
        },
        category="compression", benchmark="embedding_quality",
    )  # fmt: skip
    codecs.results["navigation"]["pick"] = {"within_1_4": "int8", "within_1_16": "pq"}
    declared = built_in()["compression.embedding_quality"].presentation
    codecs.metadata["presentation"] = msgspec.to_builtins(declared)
    grows = make_result(
        {f"entries_{size}/search/p50_ms": figure(size**0.3) for size in (10, 1000)},
        category="memory_search", benchmark="short_query",
    )  # fmt: skip
    grows.results["growth"] = "search p50 grows like n^0.31"
    make_run(results.output_dir, results=[codecs, grows])
    seen = read(results.generate_report())
    assert "Pick for navigation: int8 within 1/4, pq within 1/16." in seen.texts
    assert "Ten times the memories cost" in seen.text
    assert "Notes:" not in seen.texts


def test_notes_of_several_runs_name_their_run(results: BenchmarkResults) -> None:
    for run_id, ruler in ((FIRST, "right: 0.6"), (SECOND, "right: 0.7")):
        made = make_result({"p50_ms": figure(1)})
        made.results |= {"ruler": ruler, "note": "the same in both"}
        make_run(results.output_dir, run_id, results=[made])
    seen = read(results.generate_report(run=[FIRST, SECOND]))
    text = " ".join(seen.texts)
    assert re.search(rf"right: 0.6 \([^)]*{FIRST}[^)]*\)", text)
    assert re.search(rf"right: 0.7 \([^)]*{SECOND}[^)]*\)", text)
    assert re.search(rf"the same in both \([^)]*{FIRST}[^)]*{SECOND}[^)]*\)", text)


# -- alone and safe ---------------------------------------------------------------------------


def test_the_page_loads_no_other_file(results: BenchmarkResults) -> None:
    make_run(results.output_dir, FIRST)
    make_run(results.output_dir, SECOND)
    for path in (results.generate_report(), results.compare_report([FIRST, SECOND])):
        seen = read(path)
        assert not {"link", "img", "iframe", "object", "embed", "form"} & set(seen.tags)
        assert not {"src", "style", "onclick", "onload"} & {name for name, _ in seen.attributes}
        assert all(address.startswith("#") for address in seen.values("href"))


def test_the_policy_allows_our_style_and_scripts_and_nothing_else(results: BenchmarkResults) -> None:
    make_run(results.output_dir)
    seen = read(results.generate_report())
    (policy,) = (value for value in seen.values("content") if "default-src" in value)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for kind, pieces in seen.code.items():
        (rule,) = (rule for rule in policy.split("; ") if rule.startswith(f"{kind}-src"))
        hashes = {
            f"'sha256-{base64.b64encode(hashlib.sha256(piece.encode()).digest()).decode()}'"
            for piece in pieces
        }
        assert set(rule.split()[1:]) == hashes


def test_every_link_leads_to_a_part_of_the_page(results: BenchmarkResults) -> None:
    odd = make_result({"p50_ms": figure(1)}, category="my own", benchmark="a b&c")
    make_run(results.output_dir, FIRST, results=[make_result(storage_figures()), odd])
    make_run(results.output_dir, SECOND, results=[make_result(storage_figures(2)), odd])
    for path in (results.generate_report(), results.compare_report([FIRST, SECOND])):
        seen = read(path)
        assert {address[1:] for address in seen.values("href")} <= set(seen.values("id"))
        ids = seen.values("id")
        assert len(ids) == len(set(ids))


@settings(deadline=None, max_examples=60)
@given(
    st.text(min_size=1, max_size=20)
    | st.sampled_from(
        [
            "<script>",
            '" onload="x',
            "</style>",
            "&lt;",
            "]]>",
            "</script>",
            "\u2028",
            "<!--",
            "\ud800",
            "\x00",
        ]
    )
)
def test_names_with_markup_are_escaped(hostile: str) -> None:
    def made(name: str) -> tuple[Reader, Reader]:
        result = make_result(
            {f"one {name}/p50_ms": figure(1), f"two {name}/p50_ms": figure(2), f"{name}/p99_ms": figure(2)},
            benchmark=f"{name}b",
            category=f"{name}c",
            target=f"{name}t",
            params={name: name},
            not_available={name: name},
        )
        result.results |= {f"{name}said": f"a {name} b", "ruler": f"NOT TO BE TRUSTED {name}"}
        file = ResultFile("20260801_101500", Path("x.json"), "storage", "x")
        loaded = [LoadedResult(file, result), LoadedResult(file, result)]
        problems = [ValueError(name)]
        report = page(loaded, {}, category=name, problems=problems)
        both = comparison_page(loaded, {}, problems=problems)
        return Reader(report.encode("utf-8", "replace").decode()), Reader(
            both.encode("utf-8", "replace").decode()
        )

    def shape(seen: Reader) -> tuple[list[str], list[str], dict[str, list[str]]]:
        return seen.tags, [name for name, _ in seen.attributes], seen.code

    for seen, plain in zip(made(hostile), made("a"), strict=True):
        assert shape(seen) == shape(plain)


def test_a_name_can_not_write_the_page_outside_its_folder(results: BenchmarkResults) -> None:
    folder = make_run(results.output_dir)
    path = results.generate_report(run=str(folder))
    assert path.parent == results.output_dir / "reports"


# -- which runs -------------------------------------------------------------------------------


def test_the_page_shows_the_newest_run_and_what_was_saved_by_hand(results: BenchmarkResults) -> None:
    for number in range(1, 4):
        make_run(results.output_dir, f"2026080{number}_101500_ab12")
    results.save_result("storage", "by_hand", {"p50_ms": 1.5})
    text = read(results.generate_report(category="storage")).text
    assert "Run 20260803_101500_ab12" in text
    assert "20260802_101500_ab12" not in text
    assert "2 older runs are not on this page" in text
    assert "by_hand" in text
    assert "1 result saved by hand" in text


def test_a_run_is_reported_by_its_id_at_the_given_path(results: BenchmarkResults, tmp_path: Path) -> None:
    for number in range(1, 3):
        make_run(results.output_dir, f"2026080{number}_101500_ab12")
    path = results.generate_report(run="20260801", path=tmp_path / "sub" / "page.html")
    assert path == tmp_path / "sub" / "page.html"
    assert "Run 20260801_101500_ab12" in path.read_text()
    assert "20260802" not in path.read_text()


def test_runs_on_one_page_can_be_hidden_and_share_one_table(results: BenchmarkResults) -> None:
    for run_id, scale in ((FIRST, 1), (SECOND, 3)):
        made = make_result(storage_figures(scale), headline=f"complexity_1/batch_10/stm/{THROUGHPUT}")
        make_run(results.output_dir, run_id, results=[made])
    seen = read(results.generate_report(run=[FIRST, SECOND]))
    assert seen.values("data-source-switch") == ["0", "1"]
    assert "3,160 /s (3,000–3,320)" in seen.texts
    assert "9,490 /s (9,010–9,960)" in seen.texts


def test_results_by_hand_of_one_benchmark_are_named_by_their_time(results: BenchmarkResults) -> None:
    for stamp in ("20260801_101500", "20260801_111500"):
        results.save_result("storage", "mine", {"batch_10": {"p50_ms": 1.5}}, timestamp=stamp)
    text = read(results.generate_report()).text
    assert "saved by hand 2026-08-01 10:15:00" in text
    assert "saved by hand 2026-08-01 11:15:00" in text


def test_a_run_with_only_failures_has_a_page(results: BenchmarkResults) -> None:
    make_run(results.output_dir, results=[], failures=[FAILURE])
    assert "1 round failed" in results.generate_report(run="latest").read_text()


def test_a_report_without_results_is_an_error_that_says_what_to_do(results: BenchmarkResults) -> None:
    with pytest.raises(NothingMeasured, match="membench run"):
        results.generate_report()
    make_run(results.output_dir)
    with pytest.raises(UnknownName, match="did you mean 'storage'"):
        results.generate_report(category="strage")


# -- against another --------------------------------------------------------------------------


def slower_and_before(results: BenchmarkResults) -> None:
    make_run(results.output_dir, FIRST, results=[make_result(storage_figures(2.0))])
    make_run(results.output_dir, SECOND, results=[make_result(storage_figures(1.0))])


@pytest.mark.parametrize("name", [FIRST, "ab12", "main"])
def test_a_baseline_adds_a_verdict_to_every_figure(results: BenchmarkResults, name: str) -> None:
    slower_and_before(results)
    set_baseline(results.output_dir, "main", results.output_dir / FIRST)
    seen = read(results.generate_report(run=SECOND, baseline=name))
    assert "Against the baseline" in seen.text
    assert re.search(r"\d+ regressed", seen.text)
    assert "50.0 % slower" in seen.text or "slower" in seen.text
    assert "since the baseline" in seen.texts
    assert seen.values("data-source-switch") == ["0", "1"]


def test_a_figure_has_the_verdict_of_its_own_target(results: BenchmarkResults) -> None:
    for run_id, scale in ((FIRST, 1.0), (SECOND, 4.0)):
        made = [
            make_result({f"{target}/p50_ms": figure(factor, samples=500)}, target=target)
            for target, factor in (("slower", scale), ("same", 1.0))
        ]
        make_run(results.output_dir, run_id, results=made)
    seen = read(results.generate_report(baseline=FIRST))
    after = seen.texts[seen.texts.index("All 2 figures") :]
    assert "regressed" in after[after.index("slower") : after.index("same")]
    assert "regressed" not in after[after.index("same") :]


def test_the_baseline_is_not_counted_as_a_run_that_is_left_out(results: BenchmarkResults) -> None:
    slower_and_before(results)
    assert "older run" not in read(results.generate_report(baseline=FIRST)).text


def test_insights_are_those_of_the_run_and_not_of_its_baseline(results: BenchmarkResults) -> None:
    for run_id, meter in ((FIRST, 3.0), (SECOND, 1.0)):
        make_run(results.output_dir, run_id, moments=moments(meter))
    text = read(results.generate_report(baseline=FIRST)).text
    assert "The machine was quiet" in text
    assert "Other programs used the machine" not in text


def test_an_unknown_baseline_is_an_error(results: BenchmarkResults) -> None:
    slower_and_before(results)
    with pytest.raises(UnknownName, match="no run 'main'"):
        results.generate_report(baseline="main")
    with pytest.raises(InvalidBenchmarkConfig, match="already"):
        results.generate_report(run=SECOND, baseline=SECOND)


def test_a_comparison_of_runs_starts_with_the_differences(results: BenchmarkResults) -> None:
    slower_and_before(results)
    seen = read(results.compare_report([FIRST, SECOND]))
    assert seen.text.index("Differences") < seen.text.index("write_throughput")
    assert "regressed" in seen.texts
    assert "× 0.5 (" in seen.text
    assert re.search(r"\d+ regressed", seen.text)


def test_targets_of_one_run_are_compared_by_their_names(results: BenchmarkResults) -> None:
    two = [
        make_result(
            storage_figures(scale), target=target, headline=f"complexity_1/batch_10/stm/{THROUGHPUT}"
        )
        for target, scale in (("agentmemory", 2.0), ("sqlite-baseline", 1.0))
    ]
    make_run(results.output_dir, FIRST, results=two)
    for names in (
        ["sqlite-baseline", "agentmemory"],
        [f"latest@{t}" for t in ("sqlite-baseline", "agentmemory")],
    ):
        seen = read(results.compare_report(names))
        assert "agentmemory against sqlite-baseline." in seen.texts
        assert "better" in seen.texts
        assert "× 2 (" in seen.text
        assert "All figures that clearly differ" in seen.texts


@pytest.mark.parametrize("scale", [0.5, 0.9, 0.97, 1.0, 1.03, 1.1, 2.0])
def test_the_verdicts_on_the_page_are_those_of_compare(results: BenchmarkResults, scale: float) -> None:
    headline = f"complexity_1/batch_10/stm/{THROUGHPUT}"
    folders = [
        make_run(results.output_dir, run_id, [make_result(storage_figures(by), headline=headline)])
        for run_id, by in ((FIRST, 1.0), (SECOND, scale))
    ]
    judged = compare_runs(*folders)
    (verdict,) = (
        each.verdict for each in judged.metrics if each.path == headline.replace(THROUGHPUT, "p50_ms")
    )
    seen = read(results.compare_report([FIRST, SECOND]))
    assert verdict in seen.texts
    assert f"{count_text(judged)}" in seen.texts


def test_three_runs_stand_side_by_side(results: BenchmarkResults) -> None:
    ids = [f"2026080{number}_101500_ab1{number}" for number in (1, 2, 3)]
    for number, run_id in enumerate(ids):
        make_run(results.output_dir, run_id, results=[make_result(storage_figures(1 + number))])
    seen = read(results.compare_report(ids))
    assert seen.values("data-source-switch") == ["0", "1", "2"]
    assert seen.text.count("Judged: ") == 2


def test_another_environment_is_named_and_nothing_is_judged(results: BenchmarkResults) -> None:
    slower_and_before(results)
    other = Environment(
        **{name: getattr(ENVIRONMENT, name) for name in ENVIRONMENT.__struct_fields__}
        | {"fingerprint": "beef", "cores": 64}
    )
    make_run(results.output_dir, "20260803_101500_ef56", environment=other)
    text = read(results.compare_report([FIRST, "ef56"])).text
    assert "was measured in another environment" in text
    assert "cores: 2 → 64" in text
    assert "regressed" not in text


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["latest"], "at least two"),
        (["latest", SECOND], "named twice"),
        (["latest", "nothing"], r"no run 'nothing'.*known: agentmemory"),
        (["latest", "latest@redis"], r"no target 'redis'.*agentmemory"),
    ],
)
def test_comparing_an_unknown_run_is_an_error_that_names_it(
    results: BenchmarkResults, names: list[str], message: str
) -> None:
    slower_and_before(results)
    with pytest.raises((UnknownName, InvalidBenchmarkConfig), match=message):
        results.compare_report(names)


# -- the document -----------------------------------------------------------------------------


def test_the_example_of_the_document_makes_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reports.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    make_run(tmp_path / "benchmark_results")
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert Path("benchmark_results/plots/throughput.pdf").read_bytes().startswith(b"%PDF")


def test_every_picture_of_the_documents_is_there_and_small() -> None:
    root = Path(__file__).parents[3]
    named = set()
    for document in (root / "README.md", *(root / "docs").glob("*.md")):
        for found in re.findall(r"(?:\]\(|src=\")([^)\"]+\.png)", document.read_text()):
            picture = document.parent / found
            assert picture.stat().st_size <= 150_000, picture
            named.add(picture.name)
    assert named == {path.name for path in (root / "docs" / "images").glob("*.png")}
