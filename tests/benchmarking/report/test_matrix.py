"""The matrix: the best is marked only where the figures show it, and everything missing has a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from membench import membench
from result_builders import figure, make_result, make_run

from memory.benchmarking.model.files import ResultFile
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Case, Failure, Figure, Result
from memory.benchmarking.report.charts import Axis, Chart, Line, Panel, Point
from memory.benchmarking.report.gather import gather
from memory.benchmarking.report.matrix import Matrix, make_matrix, matrix_notes
from memory.benchmarking.report.matrix_text import matrix_text
from memory.benchmarking.report.sources import Source
from memory.benchmarking.text.display import text_width

RATE = "store/throughput_ops_per_second"
TIME = "all/size_500/p50_ms"


def result(target: str, metrics: dict[str, Figure], **metadata: Any) -> Result:
    info = {
        "name": target,
        "durability": metadata.pop("durability", "process"),
        "search_by": metadata.pop("search_by", "vector"),
    }
    declared = {"write_figures": "*throughput*", "search_figures": "*p50*", **metadata}
    return make_result(metrics, target=target, target_info=info, **declared)


def matrix_of(*results: Result) -> Matrix:
    targets = [*dict.fromkeys(str(each.metadata["target"]) for each in results)]
    loaded = [
        (
            targets.index(str(each.metadata["target"])),
            LoadedResult(ResultFile("1", Path("x.json"), each.category, each.benchmark), each),
        )
        for each in results
    ]
    return make_matrix(gather(loaded), [Source(name, "", None, name) for name in targets])


def best_of(matrix: Matrix) -> list[str]:
    (row,) = matrix.rows
    return [column.name for column, cell in zip(matrix.columns, row.cells, strict=True) if cell.best]


def test_the_best_is_marked_where_the_intervals_separate_it() -> None:
    assert best_of(matrix_of(*(result(f"t{n}", {RATE: figure(n)}) for n in (100, 120, 150)))) == ["t150"]
    assert best_of(matrix_of(*(result(f"t{n}", {TIME: figure(n)}) for n in (100, 120, 150)))) == ["t100"]
    assert best_of(matrix_of(*(result(f"t{n}", {RATE: figure(n)}) for n in (100, 145, 150)))) == []


def test_without_intervals_nothing_is_the_best() -> None:
    assert best_of(matrix_of(*(result(f"t{n}", {RATE: Figure(value=n)}) for n in (1, 1000)))) == []
    unknown = matrix_of(result("a", {RATE: figure(1)}), result("b", {RATE: Figure(value=1000)}))
    assert best_of(unknown) == [], "the other one may be better"


def test_writes_are_ranked_only_within_their_durability() -> None:
    rates = {"a": ("process", 9000), "b": ("process", 5000), "c": ("machine", 300), "d": ("machine", 100)}
    found = matrix_of(
        *(result(name, {RATE: figure(rate)}, durability=kind) for name, (kind, rate) in rates.items())
    )
    assert best_of(found) == ["a", "c"]
    assert "writes are ranked only against writes of the same durability" in matrix_notes(found)[0]
    alone = matrix_of(result("a", {RATE: figure(9000)}, durability="ram"), result("b", {RATE: figure(1)}))
    assert best_of(alone) == [], "each is the only one of its class"


def test_another_tier_is_the_same_figure_and_another_size_is_not() -> None:
    tiers = matrix_of(result("a", {"stm/p50_ms": figure(1)}), result("b", {"store/p50_ms": figure(5)}))
    assert best_of(tiers) == ["a"]
    sizes = matrix_of(result("a", {TIME: figure(1)}), result("b", {"all/size_1500/p50_ms": figure(5)}))
    assert best_of(sizes) == []
    assert [cell.unlike for cell in sizes.rows[0].cells] == [False, True]
    assert "≠ 5.00 ms" in matrix_text(sizes)


def test_a_missing_figure_has_its_reason() -> None:
    found = matrix_of(
        result("a", {TIME: figure(1)}),
        result("b", {}, not_available={"": "b can't search"}),
        result("c", {"store/p50_ms": figure(2)}, not_available={"all": "c has few hits", "x": "no"}),
    )
    cells = found.rows[0].cells
    assert [cell.missing for cell in cells] == ["", "n/a", "n/a"]
    assert [cell.reason for cell in cells] == ["", "b can't search", "c has few hits"]
    assert found.reasons == {"b can't search": 1, "c has few hits": 2}


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    """A run of ten targets: one of them failed."""
    results = []
    for number in range(9):
        name = f"memory-system-{number}"
        more = {
            "durability": "machine" if number > 4 else "process",
            "search_by": "both" if number == 3 else "vector",
        }
        results.append(result(name, {RATE: figure(100 * (number + 1))}, **more))
        times = {TIME: figure(number + 1)} if number else {}
        results.append(
            result(
                name, times, category="retrieval", benchmark="vector_search_latency",
                not_available={} if number else {"": "memory-system-0 can't be searched by a vector"},
                **more,
            )
        )  # fmt: skip
    case = Case(category="storage", benchmark="write_throughput", target="broken", params={})
    failure = Failure(case=case.key, round=0, reason="exception", message="Traceback\nOSError: no disk")
    folder = make_run(
        tmp_path / "out", results=results, failures=[failure], headline=RATE,
        targets=[*(f"memory-system-{number}" for number in range(9)), "broken"],
        cases=[
            case,
            *(
                Case(category=each.category, benchmark=each.benchmark,
                     target=str(each.metadata["target"]), params={})
                for each in results
            ),
        ],
    )  # fmt: skip
    assert folder.is_dir()
    return tmp_path


def test_the_terminal_gets_blocks_of_at_most_100_columns(ten: Path) -> None:
    from memory.benchmarking.model.files import read_run, run_folders
    from memory.benchmarking.run.summary import print_summary

    (folder,) = run_folders(ten / "out")
    log = ten / "summary.txt"
    with log.open("w") as stream:
        print_summary(folder, read_run(folder), stream)
    text = log.read_text()
    blocks = text.partition("★ is the best")[0].strip("\n").split("\n\n")
    assert len(blocks) > 1
    assert max(text_width(line) for block in blocks for line in block.splitlines()) <= 100
    for name in [*(f"memory-system-{number}" for number in range(9)), "broken"]:
        assert text.count(f" {name}") >= 1, name
    assert "★ 500 /s" in text
    assert "★ 900 /s" in text
    assert "failed (" in text
    assert "OSError: no disk" in text
    assert ") memory-system-0 can't be searched by a vector" in text


def test_the_pages_have_the_matrix(ten: Path) -> None:
    membench("results", "report", "--output-dir", "out", "--output", "report.html", cwd=ten)
    names = [f"latest@memory-system-{number}" for number in range(9)]
    done = membench(
        "results", "compare-report", "--output-dir", "out", *names, "--output", "both.html", cwd=ten
    )
    assert done.code == 0, done.err
    for name in ("report.html", "both.html"):
        page = (ten / name).read_text()
        assert page.count('class="matrix"') == 1
        assert "writes: machine" in page
        assert "search: both" in page
        assert "memory-system-0 can&#x27;t be searched by a vector" in page
        assert "inside the time of every text search" in page
        assert "before" not in page.partition("<main")[2].partition("How to read")[0].lower()


def test_a_figure_that_is_not_compared_is_listed(tmp_path: Path) -> None:
    """A system without tiers had its headline at another path, and was left out in silence."""
    make_run(
        tmp_path / "out",
        results=[
            result("a", {"all/size_1500/p50_ms": figure(1)}),
            result("b", {"store/size_500/p50_ms": figure(2)}),
        ],
    )
    done = membench(
        "results", "compare-report", "--output-dir", "out", "latest@a", "latest@b", "--output", "x.html",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    page = (tmp_path / "x.html").read_text()
    assert "1 headline figure not compared" in page


def test_many_targets_have_a_colour_each() -> None:
    lines = [Line("store", (Point(1, 1),), source, colour=3) for source in range(10)]
    lines.append(Line("stm", (Point(1, 1),), 0, colour=0))
    chart = Chart("x", Axis("x"), Axis("y"), (Panel(tuple(lines)),))
    assert [chart.colour_of(line) for line in lines] == [*range(10), 0]
    assert chart.dash_of(lines[0]) != chart.dash_of(lines[-1]), "its tiers are told apart by dashes"
