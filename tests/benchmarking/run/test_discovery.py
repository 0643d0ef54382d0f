"""Finding benchmarks: in the package, in installed packages, in the user's own files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from membench import LIGHT, membench, only_run, options, surroundings, write

from memory.benchmarking.config import setting_names
from memory.benchmarking.errors import BrokenBenchmark, UnknownName
from memory.benchmarking.model.benchmark import benchmarks_of, import_benchmarks, load_benchmark
from memory.benchmarking.model.files import LOGS, ROUNDS, read_result
from memory.benchmarking.model.records import Case
from memory.benchmarking.model.user_files import cause_of, load_file
from memory.benchmarking.run.discovery import BenchmarkCatalog, discover


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    """Unload the modules that a test has loaded."""
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        if name.startswith(("membench_file_", "neighbour", "announced")):
            del sys.modules[name]


def declared(arguments: str) -> str:
    """Return the source of a benchmark with this declaration."""
    return f"import memory.benchmarking as m\n@m.declare({arguments})\ndef benchmark_x(size: int = 1): pass"


def problem_of(found: BenchmarkCatalog) -> str:
    (problem,) = found.problems.values()
    assert "\n" not in str(problem)
    return str(problem)


def test_our_benchmarks_are_found_by_their_prefix() -> None:
    found = discover()
    assert not found.problems
    names = {each.full_name for each in found.benchmarks}
    assert {"storage.write_throughput", "storage.read_latency", "storage.memory_efficiency"} <= names
    for each in found.benchmarks:
        assert each.summary, f"{each.full_name} does not say what it measures"
        assert each.takes_bench
        assert each.source is None


def test_a_file_is_a_category_and_its_functions_are_benchmarks(tmp_path: Path) -> None:
    file = write(
        tmp_path / "mine.py",
        '''
        from memory.benchmarking.benchmarks.storage import benchmark_read_latency
        benchmark_number = 3
        class benchmark_class: pass
        def helper(): pass
        def benchmark_(): pass
        def benchmark_zwei(size: int = 3, *, words: "list[str]" = ("a",), bench=None, **kwargs):
            """Says what it is.

            And more."""
        def benchmark_eins(odd: "NoSuchName" = None): pass
        ''',
    )
    found = discover([file])
    zwei, eins = (each for each in found.benchmarks if each.category == "mine")
    assert (zwei.full_name, eins.full_name) == ("mine.zwei", "mine.eins")
    assert zwei.summary == "Says what it is."
    assert zwei.defaults == {"size": 3, "words": ("a",)}
    assert zwei.types == {"size": int, "words": list[str]}
    assert zwei.takes_bench
    assert not eins.takes_bench
    assert zwei.source == str(file)
    assert eins.summary == ""
    assert set(eins.types) == {"odd"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def benchmark_x(:", r"mine.py can't be loaded: SyntaxError: .* \(.*mine.py, line 1\)"),
        ("import nothing_like_it", r"can't be loaded: ModuleNotFoundError: .*nothing_like_it.*line 1\)"),
        ("\n\n1 / 0", r"can't be loaded: ZeroDivisionError: division by zero \(.*mine.py, line 3\)"),
        ("import sys; sys.exit(0)", r"can't be loaded: SystemExit: 0 \(.*mine.py, line 1\)"),
        ("x = 1", "mine.py holds no function whose name starts with benchmark_"),
        ("def benchmark_x(a): pass", "mine.x: the parameter 'a' has no default; give it one"),
        ("def benchmark_x(*, a): pass", "mine.x: the parameter 'a' has no default; give it one"),
        ("async def benchmark_x(): pass", r"mine.x is async: .* calls asyncio.run\(...\)"),
        (declared("profiles={'quik': {}}"), "mine.x: there is no profile 'quik': did you mean 'quick'"),
        (declared("rounds={'fast': 1}"), "mine.x: there is no profile 'fast'"),
        (
            declared("profiles={'quick': {'siz': 1}}"),
            "mine.x: profile quick sets 'siz', which is not a parameter: did you mean 'size'",
        ),
        (declared("goals={'p50_ms': 'fast'}"), "mine.x: goals, charts, notes or versus can't be used: "),
        (declared("charts=['a line']"), "mine.x: goals, charts, notes or versus can't be used: .*charts"),
        (
            declared("profiles={'quick': {'size': 'a'}}"),
            "profile quick: mine.x.size is 'a': expected `int`, got `str`",
        ),
    ],
)
def test_a_file_that_can_not_be_used_shows_its_own_cause(source: str, message: str, tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", source)
    found = discover([file])
    assert re.search(message, problem_of(found))
    assert found.select(["storage"]), "the others are there"
    for categories in ([], ["mine"]):
        with pytest.raises(BrokenBenchmark, match=message):
            found.select(categories)
    assert str(tmp_path) not in sys.path


def test_an_error_of_many_lines_is_one_line() -> None:
    problem = ValueError("first\n\tsecond")
    problem.add_note("a note")
    assert cause_of(problem) == "ValueError: first second"
    assert len(cause_of(ValueError("x" * 10_000))) < 600
    syntax = SyntaxError("odd", ("f.py", 3, 1, "text", 3, 2))
    syntax.add_note("a note\nof two lines")
    assert cause_of(syntax) == "SyntaxError: odd (f.py, line 3)"


@pytest.mark.parametrize("name", ["none.py", "mine.txt", "."])
def test_a_path_that_is_not_a_python_file_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("def benchmark_x(): pass")
    message = problem_of(discover([tmp_path / name]))
    assert str((tmp_path / name).resolve()) in message


def test_a_file_can_import_its_neighbours_also_while_it_runs(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "neighbour_one.py", "FIGURE = 1.0")
    write(tmp_path / "mine" / "neighbour_two.py", "FIGURE = 2.0")
    file = write(
        tmp_path / "mine" / "mine.py",
        """
        import neighbour_one
        def benchmark_x():
            import neighbour_two
            return {"one": neighbour_one.FIGURE, "two": neighbour_two.FIGURE}
        """,
    )
    done = membench(*options(file, tmp_path / "out"), cwd=tmp_path)
    assert done.code == 0, done.err
    folder, run = only_run(tmp_path / "out")
    assert read_result(folder / run.results[0].file).results == {"one": 1.0, "two": 2.0}


def test_a_folder_holds_benchmarks_and_their_helpers(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "first.py", "from helper import F\ndef benchmark_x(): return {'f': F}")
    write(tmp_path / "mine" / "second.py", "def benchmark_x(): pass")
    write(tmp_path / "mine" / "helper.py", "F = 1.0")
    write(tmp_path / "mine" / "_private.py", "1 / 0")
    found = discover([tmp_path / "mine"])
    sys.modules.pop("helper", None)
    assert not found.problems
    assert {"first.x", "second.x"} <= {each.full_name for each in found.benchmarks}
    assert "helper" not in found.categories()


def test_a_benchmark_in_two_places_is_an_error_that_names_both(tmp_path: Path) -> None:
    one = write(tmp_path / "one" / "mine.py", "def benchmark_x(): pass")
    two = write(tmp_path / "two" / "mine.py", "def benchmark_x(): pass")
    assert problem_of(discover([one, two])) == (
        f"mine.x is in {one} and in {two}: give one of them another name"
    )
    assert not discover([one, one]).problems, "the same file given twice is one place"


def test_a_user_may_add_to_a_category_of_ours_but_not_replace_it(tmp_path: Path) -> None:
    added = write(tmp_path / "one" / "storage.py", "def benchmark_own(size: int = 3): pass")
    found = discover([added])
    assert {"own", "read_latency"} <= {each.name for each in found.select(["storage"])}
    replaced = write(tmp_path / "two" / "storage.py", "def benchmark_read_latency(): pass")
    message = problem_of(discover([replaced]))
    assert message.startswith("storage.read_latency is in memory.benchmarking.benchmarks.storage and in ")
    assert str(replaced) in message


@pytest.mark.parametrize("name", sorted({ROUNDS, LOGS, "my file", "a.b", *setting_names()}))
def test_a_category_can_not_have_a_name_that_a_run_uses(name: str, tmp_path: Path) -> None:
    file = write(tmp_path / f"{name}.py", "def benchmark_x(): pass")
    assert problem_of(discover([file])) == (
        f"{name!r} can't be the name of a category ({file}: rename the file)"
    )


def test_a_wrong_name_names_the_nearest() -> None:
    found = discover()
    with pytest.raises(UnknownName, match="there is no category 'storag': did you mean 'storage'"):
        found.select(["storag"])
    with pytest.raises(
        UnknownName, match="no benchmark 'read_latenc' in storage: did you mean 'read_latency'"
    ):
        found.select(["storage"], ["read_latenc"])
    with pytest.raises(UnknownName, match=r"did you mean 'storage\.read_latency'"):
        found.select([], ["storage.read_latencie"])
    (one,) = found.select([], ["storage.read_latency"])
    assert [one] == found.select(["storage"], ["read_latency"])


def test_modules_with_the_same_name_are_loaded_from_both_folders(tmp_path: Path) -> None:
    one, two = (write(tmp_path / name / "same.py", f"FROM = {name!r}") for name in ("one", "two"))
    assert load_file(one).FROM == "one"  # type: ignore[attr-defined]
    assert load_file(two).FROM == "two"  # type: ignore[attr-defined]
    assert load_file(two) is load_file(two)


def test_a_category_can_be_a_package_with_one_file_for_each_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "neighbours" / "__init__.py", '"""About the category."""')
    write(tmp_path / "neighbours" / "second.py", '"""A file."""\ndef benchmark_y(): pass')
    write(tmp_path / "neighbours" / "first.py", '"""A file."""\ndef benchmark_x(): pass')
    write(tmp_path / "neighbours" / "_helper.py", "def benchmark_no(): pass")
    monkeypatch.syspath_prepend(tmp_path)
    found = benchmarks_of(import_benchmarks("neighbours"), "neighbours")
    assert [each.full_name for each in found] == ["neighbours.x", "neighbours.y"]
    assert {each.presentation.category for each in found} == {"About the category."}
    case = Case(category="neighbours", benchmark="y", target="light", params={}, module="neighbours")
    assert load_benchmark(case).function is found[1].function
    write(tmp_path / "neighbours" / "third.py", "import nothing_like_it")
    with pytest.raises(BrokenBenchmark, match=r"neighbours\.third can't be loaded: ModuleNotFoundError"):
        benchmarks_of(import_benchmarks("neighbours"), "neighbours")


# -- installed packages -----------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment with a package that announces two categories, one broken, and three targets, two
    broken."""
    site = tmp_path / "site"
    write(site / "announced.py", "def benchmark_x(size: int = 3, bench=None): return {'size': size}")
    write(site / "announced_broken.py", "import nothing_like_it")
    write(
        site / "announced_targets.py",
        f"""
        import sys
        sys.path.insert(0, {str(Path(LIGHT).parent)!r})
        from light_target import LightTarget
        class Other(LightTarget):
            name = "other"
        NOT_A_TARGET = 3
        """,
    )
    write(
        site / "announced-1.0.dist-info" / "entry_points.txt",
        """
        [agentmemory.benchmarks]
        elsewhere = announced
        broken = announced_broken
        [agentmemory.targets]
        other = announced_targets:Other
        wrong = announced_targets:NOT_A_TARGET
        absent = announced_targets:Absent
        """,
    )
    write(site / "announced-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: announced\n")
    return surroundings(PYTHONPATH=str(site))


def test_installed_packages_announce_benchmarks_and_targets(
    installed: dict[str, str], tmp_path: Path
) -> None:
    done = membench("list", "--json", cwd=tmp_path, env=installed)
    listed = json.loads(done.out)
    (elsewhere,) = [each for each in listed["benchmarks"] if each["category"] == "elsewhere"]
    assert elsewhere["benchmark"] == "x"
    assert "size" in elsewhere["parameters"]
    assert {"other", "agentmemory", "sqlite-baseline"} <= set(listed["targets"])
    assert "nothing_like_it" in listed["problems"]["broken"]
    assert done.code == 1
    assert "announced_broken can't be loaded" in done.error


def test_an_announced_benchmark_runs_on_an_announced_target(
    installed: dict[str, str], tmp_path: Path
) -> None:
    done = membench(
        "run", "--category", "elsewhere", "--target", "other", "--set", "elsewhere.size=7",
        "--rounds", 1, "--output-dir", "out",
        cwd=tmp_path, env=installed,
    )  # fmt: skip
    assert done.code == 0, done.err
    folder, run = only_run(tmp_path / "out")
    (ref,) = run.results
    assert (ref.category, ref.target) == ("elsewhere", "other")
    assert read_result(folder / ref.file).results == {"size": 7.0}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("wrong", "target 'wrong' is not a class that derives from Target: see docs/new-target.md"),
        ("absent", "target 'absent' can't be loaded: AttributeError: .*Absent"),
        ("othr", "there is no target 'othr': did you mean 'other'?"),
    ],
)
def test_a_target_that_can_not_be_used_is_named(
    installed: dict[str, str], tmp_path: Path, target: str, message: str
) -> None:
    done = membench("run", "--category", "elsewhere", "--target", target, cwd=tmp_path, env=installed)
    assert done.code == 1
    assert re.search(message, done.error)
    assert not (tmp_path / "benchmark_results").exists()
