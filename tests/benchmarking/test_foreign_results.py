"""Folders of results from elsewhere: pipes, devices, links, bombs and escape codes are refused by name."""

from __future__ import annotations

import gzip
import os
import re
import resource
import shutil
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from result_builders import make_run
from view_server import ask, serving

from memory.benchmarking.cli import main
from memory.benchmarking.errors import DamagedResult, InvalidResult, ResultNotSaved
from memory.benchmarking.model.answers import ANSWERS, LARGEST_ANSWERS, read_answers
from memory.benchmarking.model.files import (
    MOST_SAMPLE_BYTES,
    read_result,
    read_result_of,
    read_run,
    read_times,
    write_run,
)
from memory.benchmarking.model.paths import MOST_FIGURES
from memory.benchmarking.model.records import Result
from memory.benchmarking.results import BenchmarkResults
from memory.benchmarking.run.execution import Execution
from memory.benchmarking.verdicts.baselines import set_baseline

RUN, OTHER = "20260801_101500_ab12", "20260802_101500_cd34"
COMMANDS = (
    ("results", "list"),
    ("results", "show", RUN, OTHER),
    ("results", "export", RUN, OTHER, "--format", "csv", "--output", "out.csv"),
    ("results", "report", RUN, OTHER, "--output", "out.html"),
    ("results", "compare-report", RUN, OTHER, "--output", "out.html"),
    ("compare", RUN, OTHER),
    ("history", "storage.*"),
    ("baseline", "set", "main"),
)
"""The commands that read results; each takes `--output-dir` too."""


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """End a test that hangs, and refuse it memory: a hole must fail the test, not stop the machine."""

    def too_long(number: int, frame: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    memory = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    signal.alarm(60)
    resource.setrlimit(resource.RLIMIT_AS, (used + 3_000_000_000, memory[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, memory)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results"
    make_run(folder, RUN)
    make_run(folder, OTHER)
    return folder


def result_path(results: Path, run: str = RUN) -> Path:
    return next((results / run / "storage").glob("*.json"))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link(path: Path) -> None:
    shutil.copy(path.with_name("elsewhere"), path.parents[3] / "elsewhere.json")
    path.symlink_to(path.parents[3] / "elsewhere.json")


def nested(path: Path) -> None:
    data = msgspec.json.decode(path.with_name("elsewhere").read_bytes())
    text = msgspec.json.encode(data | {"results": {}}).replace(
        b'"results":{}', b'"results":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    )
    path.write_bytes(text)


def rather_deep(path: Path) -> None:
    tree: object = 1
    for _ in range(300):
        tree = {"a": tree}
    path.write_bytes(result_with(path, {"results": tree, "metrics": {}}))


def many_keys(path: Path) -> None:
    path.write_bytes(
        result_with(path, {"results": dict.fromkeys(map(str, range(200_000)), 1), "metrics": {}})
    )


def very_many_keys(path: Path) -> None:
    path.write_bytes(result_with(path, {"results": dict.fromkeys(map(str, range(600_000)), 1)}))


def many_figures(path: Path) -> None:
    figures = {str(number): {"value": 1} for number in range(MOST_FIGURES + 1)}
    path.write_bytes(result_with(path, {"metrics": figures}))


def large(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(70_000_000)


def result_with(path: Path, changes: dict[str, object]) -> bytes:
    data = msgspec.json.decode(path.with_name("elsewhere").read_bytes())
    return msgspec.json.encode(data | changes)


HOSTILE: dict[Callable[[Path], None], str] = {
    fifo: "it is not a regular file",
    zeros: "it is a symbolic link, which is not followed",
    link: "it is a symbolic link, which is not followed",
    nested: "is damaged: its values are nested too deep",
    rather_deep: "it is more than 100 levels deep",
    many_keys: "it has more than 100,000 keys",
    very_many_keys: "it has more than 500,000 keys",
    many_figures: "it has more than 50,000 figures",
    large: "it has 70,000,000 bytes; the limit is 64,000,000",
}


@pytest.mark.parametrize("make", HOSTILE)
def test_a_hostile_result_is_one_named_error(results: Path, make: Callable[[Path], None]) -> None:
    path = result_path(results)
    path.rename(path.with_name("elsewhere"))
    make(path)
    (ref,) = read_run(results / RUN).results
    for read in (lambda: read_result(path), lambda: read_result_of(results / RUN, ref)):
        with pytest.raises(DamagedResult) as caught:
            read()
        assert HOSTILE[make] in str(caught.value)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("make", [fifo, zeros, nested, many_keys])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_ends_with_one_line_about_it(
    results: Path,
    make: Callable[[Path], None],
    command: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = result_path(results)
    path.rename(path.with_name("elsewhere"))
    make(path)
    code = main([*command, "--output-dir", str(results)])
    shown = capsys.readouterr()
    assert code in (0, 1, 2, 3)
    assert "Traceback" not in shown.err
    if command[:2] == ("results", "show"):
        assert shown.err.count(path.name) == 1
        assert HOSTILE[make] in shown.err


@pytest.mark.parametrize("make", [fifo, zeros])
def test_a_run_file_that_is_not_regular_is_no_run_or_a_damaged_one(
    results: Path, make: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    (results / RUN / "run.json").unlink()
    make(results / RUN / "run.json")
    for command in COMMANDS:
        assert main([*command, "--output-dir", str(results)]) in (0, 1, 2, 3)
        assert "Traceback" not in capsys.readouterr().err
    with serving(results) as server:
        assert ask(server).status == 200


def test_a_run_names_no_result_outside_of_its_folder(results: Path, tmp_path: Path) -> None:
    run = read_run(results / RUN)
    (ref,) = run.results
    shutil.copy(result_path(results), tmp_path / "outside.json")
    (results / RUN / "linked").symlink_to(tmp_path)
    names = (
        "../../outside.json",
        str(tmp_path / "outside.json"),
        "linked/outside.json",
        "",
        ".",
        "/dev/zero",
    )
    for name in names:
        with pytest.raises(DamagedResult):
            read_result_of(results / RUN, msgspec.structs.replace(ref, file=name))
    assert read_result_of(results / RUN, ref).benchmark == ref.benchmark


def test_a_linked_category_is_not_read(results: Path, tmp_path: Path) -> None:
    shutil.move(results / RUN / "storage", tmp_path / "elsewhere")
    (results / RUN / "storage").symlink_to(tmp_path / "elsewhere")
    (results / "by_hand").symlink_to(tmp_path / "elsewhere")
    found = BenchmarkResults(results).list_results()
    assert {file.run_id for file in found} == {OTHER}


def test_a_run_folder_may_be_a_link(results: Path, tmp_path: Path) -> None:
    shutil.move(results / RUN, tmp_path / "moved")
    (results / RUN).symlink_to(tmp_path / "moved")
    assert len(BenchmarkResults(results).list_results(run=RUN)) == 1


# -- samples ----------------------------------------------------------------------------------


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    np.savez_compressed(path, **{f"0/timing/{name}": array for name, array in arrays.items()})  # type: ignore[arg-type]


def test_a_small_file_of_samples_that_grows_large_is_refused(tmp_path: Path) -> None:
    """A million zeros compress to a kilobyte. They are written by hand: gigabytes would take too long."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("0/timing/calls_and_work.npy", "w") as member:
            np.lib.format.write_array(member, np.array([1, 1]))
        with archive.open("0/timing/wall_ns.npy", "w", force_zip64=True) as member:
            header = {"descr": "<i8", "fortran_order": False, "shape": (MOST_SAMPLE_BYTES,)}
            np.lib.format.write_array_header_1_0(member, header)
            for _ in range(MOST_SAMPLE_BYTES // 1_000_000 + 1):
                member.write(bytes(1_000_000))
    assert path.stat().st_size < 2_000_000
    with pytest.raises(DamagedResult, match="it has more than 256,000,000 bytes of samples"):
        read_times(path, ["timing"])


def test_samples_that_claim_another_size_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "claims.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("0/timing/calls_and_work.npy", "w") as member:
            np.lib.format.write_array(member, np.array([1, 1]))
        with archive.open("0/timing/wall_ns.npy", "w") as member:
            header = {"descr": "<i8", "fortran_order": False, "shape": (10**12,)}
            np.lib.format.write_array_header_1_0(member, header)
            member.write(bytes(8000))
    with pytest.raises(DamagedResult, match=r"claims\.npz is damaged"):
        read_times(path, ["timing"])


def test_samples_are_read_as_before_and_pickles_are_not(tmp_path: Path) -> None:
    path = tmp_path / "good.npz"
    write_arrays(path, wall_ns=np.arange(5), calls_and_work=np.array([3, 1]), block_samples=np.arange(2))
    ((calls, samples),) = read_times(path, ["timing"])["timing"]
    assert (calls, samples.tolist()) == (3, [0, 1, 2, 3, 4])
    write_arrays(path, wall_ns=np.array([object()]), calls_and_work=np.array([3, 1]))
    with pytest.raises(DamagedResult, match="Object arrays cannot be loaded"):
        read_times(path, ["timing"])
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedResult, match="it is not a regular file"):
        read_times(path, ["timing"])


@pytest.mark.parametrize("name", ["../outside.gz", "bomb.gz", "pipe.gz", "cut.gz", "deep.gz"])
def test_hostile_answers_are_one_named_error(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    good = gzip.compress(b'{"rounds": []}')
    (tmp_path / "outside.gz").write_bytes(good)
    (folder / "bomb.gz").write_bytes(gzip.compress(bytes(LARGEST_ANSWERS + 1), 1))
    (folder / "cut.gz").write_bytes(good[:-4])
    (folder / "deep.gz").write_bytes(gzip.compress(b"[" * 100_000))
    os.mkfifo(folder / "pipe.gz")
    (folder / "good.gz").write_bytes(good)
    result = Result(benchmark="b", category="c", timestamp="", results={}, metadata={ANSWERS: "good.gz"})
    assert read_answers(result, folder) == []
    result.metadata[ANSWERS] = name
    with pytest.raises(DamagedResult, match=re.escape(name)):
        read_answers(result, folder)


# -- what is written ----------------------------------------------------------------------------


def test_what_could_not_be_read_again_is_not_saved(tmp_path: Path) -> None:
    manager = BenchmarkResults(tmp_path)
    with pytest.raises(InvalidResult, match="more than 50,000 figures"):
        manager.save_result("mine", "large", dict.fromkeys(map(str, range(MOST_FIGURES + 1)), 1))
    file = manager.save_result("mine", "large", dict.fromkeys(map(str, range(MOST_FIGURES)), 1))
    assert len(manager.load_result(file).metrics) == MOST_FIGURES


def test_no_link_in_a_resumed_run_leads_to_a_file_that_is_changed(results: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "folder").mkdir(parents=True)
    (victim / "file").write_text("precious")
    run = read_run(results / RUN)
    run.status = "interrupted"
    write_run(results / RUN, run)

    def attempt(link: Path, target: Path) -> None:
        link.symlink_to(target)
        with pytest.raises(ResultNotSaved, match="symbolic link"):
            Execution(results / RUN, run).execute()
        assert (victim / "file").read_text() == "precious"
        assert (victim / "folder").is_dir()
        link.unlink()

    attempt(results / RUN / ".lock", victim / "file")
    attempt(results / ".scratch", victim)
    attempt(results / RUN / "logs", victim)
    attempt(results / RUN / "rounds", victim)


def test_a_baseline_copies_no_file_from_outside(results: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    (results / RUN / "storage" / "key").symlink_to(tmp_path / "secret" / "key")
    (results / RUN / "linked").symlink_to(tmp_path / "secret")
    baseline = set_baseline(results, "main", results / RUN)
    copied = [path.name for path in (results / "baselines" / baseline.copy).rglob("*")]
    assert "key" not in copied
    assert "run.json" in copied


# -- names ------------------------------------------------------------------------------------

ESCAPE = "\x1b]0;owned\x07\x1b[31m\n\u202e"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_escape_code_of_a_name_reaches_the_terminal(
    results: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = results / f"20260803_{ESCAPE}"
    shutil.copytree(results / OTHER, hostile)
    run = read_run(hostile)
    run.id += ESCAPE
    run.command += ESCAPE
    run.profile += ESCAPE
    run.targets = [ESCAPE]
    write_run(hostile, run)
    (hostile / f"category{ESCAPE}").mkdir()
    (hostile / f"category{ESCAPE}" / f"x{ESCAPE}_20260803_101500.json").write_text("{")
    (results / f"by_hand{ESCAPE}").mkdir()
    (results / f"by_hand{ESCAPE}" / f"x{ESCAPE}_20260803_101500.json").write_text("{")
    named = [hostile.name if part == OTHER else part for part in command]
    if command[:2] == ("baseline", "set"):
        named.append(hostile.name)
    main([*named, "--output-dir", str(results)])
    shown = capsys.readouterr()
    left = {letter for letter in shown.out + shown.err if not letter.isprintable()}
    assert left <= {"\n"}
    assert "owned" in shown.out + shown.err or command[0] == "history" or "--output" in command


# -- view -------------------------------------------------------------------------------------


def test_a_linked_folder_of_logs_is_not_shown(results: Path, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key.log").write_text("very secret")
    (results / RUN / "logs").symlink_to(tmp_path / "secrets")
    with serving(results) as server:
        answer = ask(server, f"/run/{RUN}/log/key.log")
    assert answer.status == 404
    assert "very secret" not in answer.body
