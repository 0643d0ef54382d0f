"""`membench results`: its output for people and for programs."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from result_builders import THROUGHPUT, figure, make_result, make_run, storage_figures

from memory.benchmarking.commands.results import EXPORT_FORMATS, add_parser, execute
from memory.benchmarking.errors import InvalidBenchmarkConfig, NothingMeasured, UnknownName
from memory.benchmarking.model.records import Failure, Figure, Unit
from memory.benchmarking.report.export import WRITERS
from memory.benchmarking.results import BenchmarkResults
from memory.benchmarking.text.display import text_width

Command = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "benchmark_results"


@pytest.fixture
def results(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> int:
        parser = argparse.ArgumentParser()
        add_parser(parser.add_subparsers(required=True))
        return execute(parser.parse_args(["results", *arguments, "--output-dir", str(folder)]))

    return run


Output = pytest.CaptureFixture[str]


# -- list -------------------------------------------------------------------------------------


def test_list_has_a_line_per_run_the_newest_first(results: Command, folder: Path, capsys: Output) -> None:
    failure = Failure(case="storage.x@agentmemory", round=1, reason="crash", message="")
    make_run(folder, "20260801_101500_ab12")
    two = [make_result(storage_figures(), target=target) for target in ("agentmemory", "sqlite-baseline")]
    make_run(folder, "20260802_101500_cd34", two, failures=[failure])
    assert results("list") == 0
    _, newest, oldest = capsys.readouterr().out.splitlines()
    assert newest.split()[0] == "20260802_101500_cd34"
    for part in ("failed, 1 failed", "quick", "storage 2", "agentmemory, sqlite-baseline", "7d927a8+"):
        assert part in newest
    assert oldest.split()[0] == "20260801_101500_ab12"
    assert "complete" in oldest


def test_list_shows_the_newest_twenty_and_counts_the_rest(
    results: Command, folder: Path, capsys: Output
) -> None:
    for number in range(23):
        make_run(folder, f"202608{number + 1:02}_101500_ab12", [make_result({"p50_ms": figure(1)})])
    assert results("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 22
    assert lines[1].startswith("20260823")
    assert lines[-1].startswith("… and 3 older runs")
    assert results("list", "--all") == 0
    assert len(capsys.readouterr().out.splitlines()) == 24


def test_list_of_an_empty_folder_says_how_to_make_a_run(results: Command, capsys: Output) -> None:
    assert results("list") == 0
    assert "membench run" in capsys.readouterr().out
    assert results("list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"runs": [], "by_hand": []}


def test_list_counts_what_was_saved_by_hand(results: Command, folder: Path, capsys: Output) -> None:
    file = BenchmarkResults(folder).save_result("storage", "x", {"p50_ms": 1})
    assert results("list") == 0
    assert capsys.readouterr().out == f"saved by hand: storage 1, the last in {file}\n"


def test_list_chooses_by_category_and_benchmark(results: Command, folder: Path, capsys: Output) -> None:
    make_run(folder, "20260801_101500_ab12")
    other = make_result({"p50_ms": figure(1)}, category="retrieval", benchmark="search_latency")
    make_run(folder, "20260802_101500_cd34", [other])
    assert results("list", "--category", "storage") == 0
    assert "cd34" not in capsys.readouterr().out
    assert results("list", "--benchmark", "search_latency") == 0
    assert "ab12" not in capsys.readouterr().out
    with pytest.raises(UnknownName, match="did you mean 'retrieval'"):
        results("list", "--category", "retreival")
    with pytest.raises(UnknownName, match="did you mean 'search_latency'"):
        results("list", "--benchmark", "search_latenzy")


def test_list_names_files_that_are_cut_short_and_shows_the_rest(
    results: Command, folder: Path, capsys: Output
) -> None:
    make_run(folder, "20260801_101500_ab12")
    second = make_run(folder, "20260802_101500_cd34")
    third = make_run(folder, "20260803_101500_ef56")
    (damaged,) = (second / "storage").glob("*.json")
    damaged.write_bytes(damaged.read_bytes()[:-20])
    (third / "run.json").write_bytes(b"{")
    assert results("list") == 0
    shown = capsys.readouterr()
    assert [line.split()[0][-4:] for line in shown.out.splitlines()] == ["run", "ef56", "cd34", "ab12"]
    assert "damaged" in shown.out.splitlines()[1]
    assert str(damaged) in shown.err
    assert str(third / "run.json") in shown.err


def test_list_fails_if_every_run_is_damaged(results: Command, folder: Path, capsys: Output) -> None:
    file = BenchmarkResults(folder).save_result("storage", "x", {"p50_ms": 1})
    file.path.write_bytes(b"")
    assert results("list") == 1
    assert "cut short" in capsys.readouterr().err


def test_list_as_json_has_all_runs(results: Command, folder: Path, capsys: Output) -> None:
    for number in range(22):
        make_run(folder, f"202608{number + 1:02}_101500_ab12", [make_result({"p50_ms": figure(1)})])
    assert results("list", "--json") == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert len(runs) == 22
    assert runs[0]["status"] == "complete"
    assert Path(runs[0]["results"][0]["file"]).is_file()


def test_list_loads_no_heavy_library(folder: Path) -> None:
    make_run(folder)
    code = (
        "import argparse, sys\n"
        "from memory.benchmarking.commands.results import add_parser, execute\n"
        "parser = argparse.ArgumentParser()\n"
        "add_parser(parser.add_subparsers())\n"
        "assert execute(parser.parse_args(['results', 'list', '--output-dir', sys.argv[1]])) == 0\n"
        "assert execute(parser.parse_args(['results', 'show', '--output-dir', sys.argv[1]])) == 0\n"
        "print(sorted({'numpy', 'pandas', 'matplotlib', 'scipy', 'rich'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


# -- show -------------------------------------------------------------------------------------


def test_show_has_environment_headline_figures_failures_and_gaps(
    results: Command, folder: Path, capsys: Output
) -> None:
    result = make_result(
        storage_figures(),
        headline=f"complexity_5/batch_100/stm/{THROUGHPUT}",
        params={"batch_sizes": [10, 100]},
        not_available={"complexity_1/im": "there is no im tier"},
    )
    failure = Failure(
        case="storage.x@agentmemory",
        round=3,
        reason="exception",
        message="ValueError: no",
        log="logs/x.txt",
    )
    make_run(folder, results=[result], failures=[failure])
    assert results("show") == 0
    text = capsys.readouterr().out
    for part in (
        "Run 20260801_101500_ab12", "Test CPU @ 2.0 GHz", "7d927a8b1c2d with changes", "took 3 min 20 s",
        "batch_sizes = [10, 100]", "2,000 /s (1,900–2,100)", "n/a  complexity_1/im: there is no im tier",
        "storage.x@agentmemory, round 4: exception", "ValueError: no", "log: logs/x.txt", "--all-metrics",
    ):  # fmt: skip
        assert part in text
    (line,) = [line for line in text.splitlines() if "complexity_1/batch_10/stm" in line]
    assert line.split()[:5] == ["complexity_1/batch_10/stm", "3,160", "/s", "±5", "%"]


def test_show_fits_eighty_columns(results: Command, folder: Path, capsys: Output) -> None:
    figures = storage_figures(
        tiers=("stm", "im", "ltm"), batches=(10, 100, 1000, 10000), complexities=(1, 5, 10)
    )
    make_run(folder, results=[make_result(figures)])
    results("show")
    lines = capsys.readouterr().out.splitlines()
    assert all(text_width(line) <= 80 for line in lines if not line.startswith("  file"))
    assert len(lines) < 60
    assert any("12 more lines" in line for line in lines)


def test_show_prints_a_wide_interval_as_a_factor(results: Command, folder: Path, capsys: Output) -> None:
    figures = {
        f"batch_{batch}/{leaf}": Figure(value=10.0, low=10 / factor, high=10 * factor)
        for batch in (1, 2)
        for leaf, factor in (("p50_ms", 1.05), ("p99_ms", 2.5), ("max_ms", 40.0))
    }
    make_run(
        folder, results=[make_result(figures | {"batch_1/x_ms": figure(1), "batch_2/x_ms": figure(0)})]
    )
    results("show")
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if line.startswith("  batch_1")]
    assert "10.0 ms ±5 %" in line
    assert "10.0 ms ×÷2.5" in line
    assert "10.0 ms ×÷?" in line
    assert text.count("×÷2: the interval goes from half to twice") == 1
    assert text.count("×÷?: too few rounds") == 1


def test_show_explains_only_the_signs_it_uses(results: Command, folder: Path, capsys: Output) -> None:
    figures = {f"batch_{batch}/p50_ms": Figure(value=10.0, low=0.1, high=1000.0) for batch in (1, 2)}
    make_run(folder, results=[make_result(figures)])
    results("show")
    text = capsys.readouterr().out
    assert "×÷?: too few rounds" in text
    assert "×÷2" not in text
    results("show", "--all-metrics")
    assert capsys.readouterr().out.count("10.0 ms  too few rounds") == 2


def test_show_has_the_bounds_of_shares_and_of_differences_in_place_of_per_cent(
    results: Command, folder: Path, capsys: Output
) -> None:
    figures = {
        f"{where}/{leaf}": Figure(value=value, low=low, high=high)
        for where in ("a", "b")
        for leaf, value, low, high in (
            ("recall_at_5", 0.0172, -0.0279, 0.0623), ("overhead_us", 8.3, -276.0, 293.0),
        )
    }  # fmt: skip
    make_run(folder, results=[make_result(figures)])
    results("show")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  a ")]
    assert "0.0172 (-0.0279 to 0.0623)" in line
    assert "8.30 µs (-276 to 293)" in line


def test_show_gives_the_bytes_of_a_codec_beside_its_recall(
    results: Command, folder: Path, capsys: Output
) -> None:
    figures = {
        f"navigation/codecs/{codec}/{leaf}": figure(value)
        for codec in ("autoencoder", "pq")
        for leaf, value in (
            ("reconstruction_mse", 1e-4), ("cosine_similarity", 0.9), ("bytes_per_vector", 64.0),
            ("neighbour_recall_at_10", 0.8),
        )
    }  # fmt: skip
    headline = "navigation/codecs/pq/neighbour_recall_at_10"
    made = make_result(figures, headline=headline)
    made.units |= {
        leaf: Unit(unit=unit, better=better)
        for leaf, unit, better in (
            ("reconstruction_mse", "", "lower"), ("cosine_similarity", "", "higher"),
            ("bytes_per_vector", "B", "lower"), ("neighbour_recall_at_10", "", "higher"),
        )
    }  # fmt: skip
    make_run(folder, results=[made])
    results("show")
    lines = capsys.readouterr().out.splitlines()
    assert ["neighbour_recall_at_10", "bytes_per_vector"] in [line.split()[:2] for line in lines]


def test_show_keeps_the_lines_closest_to_the_headline(
    results: Command, folder: Path, capsys: Output
) -> None:
    kinds = [f"kind_of_{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    figures = {f"first/{kind}/recall_at_5": figure(0.5) for kind in kinds}
    figures |= {f"second/{kind}/recall_at_5": figure(0.5) for kind in kinds[:3]}
    make_run(folder, results=[make_result(figures, headline="second/kind_of_b/recall_at_5")])
    results("show")
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split()[0] for line in lines if "(0.475–0.525)" in line and "▸" not in line]
    assert shown == [f"first/{kind}" for kind in kinds[:21]] + [f"second/{kind}" for kind in kinds[:3]]
    gap = lines.index("  …")
    assert lines[gap - 1].split()[0] == "first/kind_of_u"
    assert lines[gap + 1].split()[0] == "second/kind_of_a"
    assert "… 5 more lines: --all-metrics" in lines[gap + 4]


def test_show_prints_the_notes_of_a_result(results: Command, folder: Path, capsys: Output) -> None:
    made = make_result(storage_figures(), presentation={"notes": ["growth", "pick"]})
    made.results |= {
        "sha256": "0123abcd",
        "stm": {"growth": "stm search p50 grows like n^0.31 between 1,000 and 100,000"},
        "navigation": {"pick": {"within_1_4": "int8", "within_1_16": "pq"}},
        "ruler": "NOT TO BE TRUSTED: 0.7, not 0.6",
    }
    make_run(folder, results=[made])
    results("show")
    text = capsys.readouterr().out
    warning = text.index("  ! ruler: NOT TO BE TRUSTED: 0.7, not 0.6\n")
    growth = text.index("    stm/growth: stm search p50 grows like n^0.31 between 1,000 and 100,000\n")
    pick = text.index("    navigation/pick: int8 within 1/4, pq within 1/16\n")
    assert text.index("▸") < warning < text.index("complexity_5/batch_100/ltm") < growth < pick
    assert text.count("ruler") == 1
    assert "0123abcd" not in text
    results("show", "--all-metrics")
    assert "    sha256: 0123abcd\n" in capsys.readouterr().out
    results("show", "--metric", "p50_ms")
    text = capsys.readouterr().out
    assert "! ruler" in text
    assert "growth" not in text


def test_show_limits_the_notes(results: Command, folder: Path, capsys: Output) -> None:
    made = make_result({"p50_ms": figure(1)})
    made.results |= {f"answer_{number}": f"answer number {number} " * 100 for number in range(30)}
    make_run(folder, results=[made])
    results("show")
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("    answer_") for line in lines) == 24
    assert lines[-1] == "    … 6 more: --all-metrics"
    assert len(lines) < 150
    results("show", "--all-metrics")
    text = capsys.readouterr().out
    assert sum(line.startswith("    answer_") for line in text.splitlines()) == 30
    assert text.count("number") == 3000


def test_show_all_metrics_lists_every_figure(results: Command, folder: Path, capsys: Output) -> None:
    make_run(folder)
    results("show", "--all-metrics")
    lines = capsys.readouterr().out.splitlines()
    assert sum("p99_ms" in line for line in lines) == 8
    assert sum("items_processed" in line for line in lines) == 8


def test_show_chooses_metrics_by_pattern(results: Command, folder: Path, capsys: Output) -> None:
    make_run(folder)
    results("show", "--metric", "p9*_ms")
    lines = capsys.readouterr().out.splitlines()
    assert sum("p99_ms" in line or "p95_ms" in line for line in lines) == 16
    assert not any("p50_ms" in line for line in lines)
    with pytest.raises(UnknownName, match="did you mean 'p50_ms'"):
        results("show", "--metric", "p50_mss")


def test_show_takes_a_file_a_part_of_an_id_and_a_result_saved_by_hand(
    results: Command, folder: Path, capsys: Output
) -> None:
    make_run(folder, "20260801_101500_ab12")
    make_run(folder, "20260802_101500_cd34")
    by_hand = BenchmarkResults(folder).save_result("storage", "mine", {"p50_ms": 1.5, "sub": {"n": 3}})
    assert results("show", "ab12") == 0
    assert "Run 20260801_101500_ab12" in capsys.readouterr().out
    assert results("show", str(by_hand), f"storage/{by_hand.path.name}") == 0
    assert capsys.readouterr().out.count("1.50 ms") == 4
    with pytest.raises(UnknownName):
        results("show", "nothing.json")
    with pytest.raises(UnknownName):
        results("show", "zz99")


def test_show_as_json_has_the_whole_record(results: Command, folder: Path, capsys: Output) -> None:
    make_run(folder)
    assert results("show", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runs"]["20260801_101500_ab12"]["seed"] == 7
    assert len(document["results"][0]["result"]["metrics"]) == 48


def test_show_without_results_says_what_to_do(results: Command) -> None:
    with pytest.raises(NothingMeasured, match="membench run"):
        results("show")


def test_show_skips_damaged_files_and_names_them(results: Command, folder: Path, capsys: Output) -> None:
    run = make_run(folder, results=[make_result({"p50_ms": figure(1)}), make_result({"p50_ms": figure(2)})])
    (damaged, _) = sorted((run / "storage").glob("*.json"))
    damaged.write_bytes(b"{}")
    assert results("show") == 0
    shown = capsys.readouterr()
    assert "2.00 ms" in shown.out
    assert str(damaged) in shown.err


def test_names_from_files_can_not_send_control_codes(
    results: Command, folder: Path, capsys: Output
) -> None:
    hostile = "\x1b[31mred\x1b]0;title\x07"
    failure = Failure(case=hostile, round=1, reason="exception", message=hostile, log=hostile)
    result = make_result(
        {f"{hostile}/p50_ms": figure(1)},
        target=hostile,
        params={hostile: hostile},
        not_available={hostile: hostile},
    )
    result.results |= {hostile: f"a {hostile}", "ruler": f"NOT TO BE TRUSTED {hostile}"}
    make_run(folder, results=[result], failures=[failure], command=hostile)
    for arguments in (["list"], ["show"], ["show", "--all-metrics"]):
        results(*arguments)
        assert "\x1b" not in capsys.readouterr().out


# -- export, report, rm -----------------------------------------------------------------------


def test_the_command_offers_every_format() -> None:
    assert tuple(WRITERS) == EXPORT_FORMATS


def test_export_writes_to_standard_output_or_a_file(
    results: Command, folder: Path, tmp_path: Path, capsys: Output
) -> None:
    make_run(folder)
    assert results("export", "--format", "csv") == 0
    assert len(capsys.readouterr().out.splitlines()) == 49
    out = tmp_path / "new" / "table.parquet"
    assert results("export", "ab12", "--format", "parquet", "--output", str(out)) == 0
    assert out.read_bytes().startswith(b"PAR1")
    with pytest.raises(InvalidBenchmarkConfig, match="--output"):
        results("export", "--format", "parquet")


def test_report_prints_the_path_of_the_page(results: Command, folder: Path, capsys: Output) -> None:
    make_run(folder)
    assert results("report", "--category", "storage") == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == folder / "reports" / "storage.html"
    assert "Run 20260801_101500_ab12" in path.read_text()


def test_report_names_each_damaged_file_once(results: Command, folder: Path, capsys: Output) -> None:
    run = make_run(folder, results=[make_result({"p50_ms": figure(1)}), make_result({"p50_ms": figure(2)})])
    damaged = sorted((run / "storage").glob("*.json"))[0]
    damaged.write_bytes(b"{}")
    assert results("report") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: left out: {damaged}")


def test_rm_deletes_only_the_named_runs(results: Command, folder: Path, capsys: Output) -> None:
    first = make_run(folder, "20260801_101500_ab12")
    second = make_run(folder, "20260802_101500_cd34")
    assert results("rm", first.name, "--yes") == 0
    assert capsys.readouterr().out == f"deleted {first.name}\n"
    assert not first.exists()
    assert second.exists()


def test_rm_with_one_wrong_name_deletes_nothing(results: Command, folder: Path) -> None:
    first = make_run(folder)
    for wrong in ("ab12", "latest", "..", "storage"):
        with pytest.raises(UnknownName):
            results("rm", first.name, wrong, "--yes")
    assert first.exists()


def test_rm_asks_for_confirmation_and_refuses_without_a_terminal(
    results: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    run = make_run(folder)
    with pytest.raises(InvalidBenchmarkConfig, match="--yes"):
        results("rm", run.name)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert results("rm", run.name) == 1
    assert run.exists()
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    assert results("rm", run.name) == 0
    assert not run.exists()
