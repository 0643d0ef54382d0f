"""The command line: output, imports, error messages and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from membench import COMMAND, GOOD, LIGHT, PATIENCE, membench, only_run, options, surroundings, write

import memory
from memory.benchmarking.cli import main
from memory.benchmarking.model.files import read_run

ROOT = Path(memory.__file__).parent.parent
HEAVY = {"numpy", "pandas", "matplotlib", "scipy", "rich", "psutil", "pyarrow", "tokenizers"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the commands of a test in its own folder, and remove the modules that they load."""
    monkeypatch.chdir(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith("membench_file_")]:
        del sys.modules[name]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "good.py", GOOD)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return the single error line of a command that runs in this process."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert err.startswith("membench")
    return err.removeprefix("membench: ").strip()


# -- quick answers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["run", "--help"], ["list"], ["list", "--json"], ["list", "--verbose"], ["--version"]],
    ids=" ".join,
)
def test_help_and_list_load_no_heavy_library(arguments: list[str], tmp_path: Path) -> None:
    program = f"""
import sys
from memory.benchmarking.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert not HEAVY & {name.partition(".")[0] for name in done.stderr.split()}
    assert done.stdout


def test_the_command_can_be_started_in_three_ways(tmp_path: Path) -> None:
    ways = [COMMAND, (sys.executable, str(ROOT / "scripts" / "benchmark.py"))]
    installed = Path(sys.executable).with_name("membench")
    if installed.exists():
        ways.append((str(installed),))
    answers = [
        subprocess.run([*way, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for way in ways
    ]
    assert len(set(answers)) == 1
    assert answers[0].startswith("usage: membench ")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"membench {memory.__version__}\n"


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "list", "--verbose"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=PATIENCE)
    assert err == ""


# -- list -------------------------------------------------------------------------------------


def test_the_list_has_benchmarks_targets_and_profiles(
    good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "--path", str(good)]) == 0
    out = capsys.readouterr().out
    assert re.search(
        r"^storage\n(  .+\n)*  read_latency +How long it takes to read one memory", out, re.MULTILINE
    )
    assert re.search(r"^good\n  good +Writes something in capitals\.$", out, re.MULTILINE)
    assert re.search(r"^targets:   agentmemory, agentmemory-disk, .*\bsqlite-baseline\b", out, re.MULTILINE)
    assert "profiles:  quick, standard, full" in out


def test_the_long_list_has_parameters_and_defaults(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--verbose", "--path", str(good), "--category", "good"]) == 0
    out = capsys.readouterr().out
    assert "      Writes something in capitals.\n" in out
    assert re.search(r"^ +size = 3$", out, re.MULTILINE)
    assert "storage" not in out
    assert "targets:" not in out


def test_the_list_as_json_can_hold_any_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "odd.py", "def benchmark_x(a=(1, 2), b=print, c={1: 2}, d=b'x'): pass")
    assert main(["list", "--json", "--path", str(file), "--category", "odd"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["benchmarks"]
    assert "[1, 2]" in json.dumps(listed["parameters"]["a"])
    assert set(listed["parameters"]) == {"a", "b", "c", "d"}


def test_a_broken_file_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "broken.py", "1 / 0")
    assert main(["list", "--path", str(file)]) == 1
    out, err = capsys.readouterr()
    assert "read_latency" in out
    assert (
        err
        == f"membench: broken.py can't be loaded: ZeroDivisionError: division by zero ({file}, line 1)\n"
    )


# -- stderr -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--category", "storag"], "there is no category 'storag': did you mean 'storage'?"),
        (
            ["run", "--benchmark", "read_latencie"],
            "there is no benchmark 'read_latencie': did you mean 'read_latency'?",
        ),
        (
            ["run", "--category", "storage", "--benchmark", "search"],
            "no benchmark 'search' in storage: known: footprint, memory_efficiency, read_latency, "
            "write_throughput",
        ),
        (
            ["run", "--target", "sqlite-base"],
            "there is no target 'sqlite-base': did you mean 'sqlite-baseline'?",
        ),
        (["run", "--target", ":X"], "target ':X' can't be loaded: ValueError: Empty module name"),
        (["run", "--target", "os:path"], "target 'os:path' is not a class that derives from Target"),
        (["run", "--target", "none.py:X"], "none.py is not a file: pass the path of a Python file"),
        (["run", "--profile", "quik"], "there is no profile 'quik': did you mean 'quick'?"),
        (["run", "--config", "none.json"], "there is no file none.json"),
        (["run", "--params", "none.json"], "there is no file none.json"),
        (["run", "--params", "{"], "--params is not JSON: "),
        (["run", "--params", '{"a":' * 100_000], "--params is not JSON: maximum recursion depth"),
        (
            ["run", "--category", "storage", "--params", '{"batch_size": 1}'],
            "--params: no chosen benchmark takes 'batch_size': did you mean 'batch_sizes'?",
        ),
        (["run", "--params", '{"num_samples": 0}'], "num_samples is 0: expected `int` >= 1"),
        (["run", "--set", "storage.batch_sizes"], "--set storage.batch_sizes: write it as "),
        (["run", "--set", "storage.batch_size=1"], "storage.batch_size is not a parameter: did you mean "),
        (["run", "--rounds", "0"], "rounds is 0: expected `int` >= 1"),
        (["run", "--rounds", "many"], "rounds is 'many': expected `int`, got `str`"),
        (["run", "--seed", "-1"], "seed is -1: expected `int` >= 0"),
        (["run", "--timeout", "0"], "timeout_seconds is 0: expected `float` > 0.0"),
        (["run", "--workers", "2"], "--workers has no effect without --parallel: add --parallel"),
        (["run", "--parallel", "--workers", "0"], "--workers is 0: use a whole number ≥ 1"),
        (["run", "--resume", "none"], "there is no run 'none' in benchmark_results: there are no runs yet"),
        (["run", "--path", "none.py"], "none.py is not a file: pass the path of a Python file"),
        (["run", "--path", "."], "holds no function whose name starts with benchmark_"),
        (["list", "--category", "storag"], "there is no category 'storag': did you mean 'storage'?"),
        (["run", "--workers", "x"], "invalid int value: 'x'"),
        (["run", "--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["rum"], "'rum'"),
        ([], "COMMAND"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)  # fmt: skip
def test_bad_input_is_one_line_with_the_value_and_what_to_do(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # If a wrong value is accepted, fail at once and not after a whole run.
    harmless = ["--dry-run"] if arguments[:1] == ["run"] and "--resume" not in arguments else []
    line = complaint(capsys, *arguments, *harmless)
    assert message in line
    assert list(tmp_path.iterdir()) == [], "nothing was run"


# -- what is run ------------------------------------------------------------------------------


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Return the plan of a run, as JSON."""
    assert main(["run", "--dry-run", "--json", *map(str, arguments)]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def params_of(plan: dict[str, Any]) -> dict[str, Any]:
    return {f"{case['category']}.{case['benchmark']}": case["params"] for case in plan["cases"]}


def test_a_dry_run_shows_the_plan_and_its_time_and_runs_nothing(
    tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--dry-run", "--profile", "quick", "--category", "storage"]) == 0
    out = capsys.readouterr().out
    assert re.search(
        r"^storage.read_latency +agentmemory +0:0\d +num_samples=200, batch_sizes=\[10\]", out, re.M
    )
    assert re.search(r"\n\n4 cases, 7 rounds, quick profile: about 0:\d\d; nothing was run\n$", out)
    assert main(["run", "--dry-run", "--path", str(good), "--category", "good"]) == 0
    assert "about 0:00, plus those with ?, which never ran here; nothing was run" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.py"]


def test_everything_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["benchmarks"]
    plan = planned(capsys)
    assert set(params_of(plan)) == {f"{each['category']}.{each['benchmark']}" for each in listed}
    assert plan["profile"] == "standard"
    assert {case["target"] for case in plan["cases"]} == {"agentmemory"}


def test_categories_benchmarks_and_targets_may_be_repeated(
    good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(
        capsys, "--category", "storage", "--category", "good", "--benchmark", "read_latency",
        "--benchmark", "good.good", "--target", LIGHT, "--target", "agentmemory", "--target", LIGHT,
        "--path", good, "--profile", "quick", "--rounds", 4,
    )  # fmt: skip
    assert [(case["benchmark"], case["target"]) for case in plan["cases"]] == [
        ("read_latency", LIGHT), ("read_latency", "agentmemory"), ("good", LIGHT), ("good", "agentmemory"),
    ]  # fmt: skip
    assert plan["rounds"] == 4
    assert plan["estimated_seconds"] is None, "nothing is known of the user's own"
    assert plan["cases"][0]["estimated_seconds"] > 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "c.json",
            '{"profile": "quick", "rounds": 7, "storage": {"batch_sizes": [3]}, "good": {"size": 9}}',
        ),
        ("c.toml", 'profile = "quick"\nrounds = 7\n[storage]\nbatch_sizes = [3]\n[good]\nsize = 9\n'),
    ],
)
def test_options_override_the_configuration_file(
    name: str, content: str, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(content)
    common = ("--path", good, "--config", name, "--benchmark", "read_latency", "--benchmark", "good")
    plan = planned(capsys, *common)
    assert (plan["profile"], plan["rounds"]) == ("quick", 7)
    assert params_of(plan)["good.good"] == {"size": 9}
    assert params_of(plan)["storage.read_latency"]["batch_sizes"] == [3]
    assert params_of(plan)["storage.read_latency"]["num_samples"] == 200
    plan = planned(
        capsys, *common, "--profile", "full", "--set", "good.size=10", "--set", "storage.batch_sizes=4,5",
        "--rounds", 8,
    )  # fmt: skip
    assert (plan["profile"], plan["rounds"]) == ("full", 8)
    assert params_of(plan)["good.good"] == {"size": 10}
    assert params_of(plan)["storage.read_latency"] == {
        "num_samples": 1000, "batch_sizes": [4, 5], "settle_memories": 2000,
        "contents": ["states", "texts"],
    }  # fmt: skip
    plan = planned(capsys, *common, "--set", "good.size=10", "--params", '{"size": 11, "batch_sizes": [6]}')
    assert params_of(plan)["good.good"] == {"size": 11}
    assert params_of(plan)["storage.read_latency"]["batch_sizes"] == [6]


def test_parameters_from_a_file(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.json").write_text('{"size": 11}')
    (tmp_path / "p.toml").write_text("size = 12")
    for name, size in (("p.json", 11), ("p.toml", 12)):
        plan = planned(capsys, "--path", good, "--category", "good", "--params", name)
        assert params_of(plan) == {"good.good": {"size": size}}


def test_a_setting_of_an_unknown_category_is_named(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = complaint(capsys, "run", "--path", good, "--set", "god.size=1", "--dry-run")
    assert line == "god is not a setting or a category: did you mean 'good'?"


@pytest.mark.parametrize("arguments", [("--set", "broken.size=1"), ("--config", "settings.json")])
def test_settings_do_not_hide_why_a_file_can_not_be_loaded(
    arguments: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "broken.py", "import no_such_package\ndef benchmark_a(size: int = 1): ...")
    write(tmp_path / "settings.json", '{"broken": {"size": 1}}')
    line = complaint(capsys, "run", "--path", "broken.py", "--category", "broken", *arguments, "--dry-run")
    assert line.startswith(
        "broken.py can't be loaded: ModuleNotFoundError: No module named 'no_such_package'"
    )


# -- what is printed --------------------------------------------------------------------------


def test_json_is_one_document_and_nothing_else(good: Path, tmp_path: Path) -> None:
    done = membench(*options(good, Path("out"), "--json"), cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    folder, run = only_run(tmp_path / "out")
    assert document["run"] == run.id
    assert (tmp_path / document["folder"]).samefile(folder)
    assert document["status"] == "complete"
    assert document["failures"] == []
    assert set(document["timings"]) == {"start", "load", "benchmark", "save and end", "all"}
    (result,) = document["results"]
    assert (result["benchmark"], result["rounds"]) == ("good", 1)
    assert result["headline"] == "upper/throughput_ops_per_second"


def test_quiet_prints_the_folder_and_nothing_else(good: Path, tmp_path: Path) -> None:
    done = membench(*options(good, Path("out"), "--quiet"), cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert read_run(tmp_path / done.out.strip()).status == "complete"
    assert done.out.count("\n") == 1


def test_a_round_that_fails_is_in_the_document_and_in_the_exit_code(tmp_path: Path) -> None:
    file = write(
        tmp_path / "some.py", "def benchmark_a(): return {'a': 1}\ndef benchmark_b(): return 1 / 0"
    )
    done = membench(*options(file, Path("out"), "--json"), cwd=tmp_path)
    document = json.loads(done.out)
    assert done.code == 1
    assert document["status"] == "failed"
    assert [result["benchmark"] for result in document["results"]] == ["a"]
    (failure,) = document["failures"]
    assert failure["reason"] == "exception"
    assert failure["message"].startswith("ZeroDivisionError: division by zero")
    assert re.fullmatch(
        r"not complete: .* continue with: membench run --resume \S+ --output-dir out\n", done.err
    )


def test_the_default_folder_is_shared_by_run_and_results(good: Path, tmp_path: Path) -> None:
    arguments = [
        argument for argument in options(good, Path("x")) if str(argument) not in ("--output-dir", "x")
    ]
    done = membench(*arguments, "--quiet", cwd=tmp_path)
    assert done.out.startswith("benchmark_results/")
    listed = membench("results", "list", cwd=tmp_path)
    assert Path(done.out.strip()).name in listed.out


def test_the_printed_resume_command_works_for_a_folder_with_a_space(tmp_path: Path) -> None:
    file = write(
        tmp_path / "some.py", "def benchmark_b(): raise SystemExit(3)\ndef benchmark_a(): return {'a': 1}"
    )
    done = membench(*options(file, Path("my runs")), cwd=tmp_path)
    command = done.err.splitlines()[-1].partition("continue with: ")[2]
    assert command.startswith("membench run --resume ")
    write(file, "def benchmark_b(): return {'b': 1}\ndef benchmark_a(): return {'a': 1}")
    script = command.replace("membench", " ".join(COMMAND), 1)
    again = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=surroundings(), capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    assert only_run(tmp_path / "my runs")[1].status == "complete"


def test_the_worker_finds_modules_where_the_command_does(good: Path, tmp_path: Path) -> None:
    """PYTHONPATH may be relative, and the command may be started anywhere."""
    write(tmp_path / "lib" / "only_here.py", "FIGURE = 4.0")
    file = write(
        tmp_path / "some.py", "import only_here\ndef benchmark_a(): return {'a': only_here.FIGURE}"
    )
    done = membench(*options(file, Path("out"), "--json"), cwd=tmp_path, env=surroundings(PYTHONPATH="lib"))
    assert done.code == 0, done.err
    assert json.loads(done.out)["results"][0]["value"] == 4.0
    assert os.listdir(tmp_path / "lib") != []
