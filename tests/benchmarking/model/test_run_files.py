"""The files of a run: written atomically, found by name, with clear errors for damaged ones."""

from __future__ import annotations

import multiprocessing
import os
import re
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_builders import make_run
from subprocesses import run_python

from memory.benchmarking.errors import DamagedResult, ResultNotSaved, UnknownName
from memory.benchmarking.model.files import (
    delete_run,
    encode_json,
    find_run,
    new_run_folder,
    read_result,
    read_run,
    read_times,
    result_files,
    run_folders,
    write_new,
    write_samples,
    write_whole,
)
from memory.benchmarking.model.records import FORMAT, Round, Samples

# -- writing ----------------------------------------------------------------------------------


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_whole(path, b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    script = """
    import resource, signal
    from pathlib import Path
    from memory.benchmarking.errors import ResultNotSaved
    from memory.benchmarking.model.files import write_whole, write_new
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    path = Path(sys.argv[1])
    for write in (
        lambda: write_whole(path, bytes(2000)),
        lambda: write_new(path.parent, "new", ".json", bytes(2000)),
    ):
        try:
            write()
        except ResultNotSaved as problem:
            print(problem)
    """
    first, second = run_python(script, path).splitlines()
    assert first == f"{path} can't be written: File too large"
    assert second == f"{tmp_path} can't be written to: File too large"
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def write_in_another_process(folder: str, number: int) -> str:
    return write_new(Path(folder), "name", ".json", str(number).encode()).name


def test_names_never_collide_even_between_processes(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        names = pool.starmap(write_in_another_process, [(str(tmp_path), number) for number in range(20)])
    assert sorted(names) == sorted(["name.json", *(f"name_{number}.json" for number in range(2, 21))])
    assert {path.read_text() for path in tmp_path.iterdir()} == {str(number) for number in range(20)}


def test_a_run_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    folders = {new_run_folder(tmp_path / "out") for _ in range(20)}
    assert len(folders) == 20
    assert all(re.fullmatch(r"\d{8}_\d{6}_[0-9a-f]{4}", folder.name) for folder in folders)


def test_the_error_names_a_broken_link(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ResultNotSaved, match=str(tmp_path / "out")):
        new_run_folder(tmp_path / "out")


def test_a_list_of_numbers_is_written_on_one_line(tmp_path: Path) -> None:
    text = encode_json({"rounds": [1.5, 2e-9, -3], "texts": ["a", "[\n 1"], "empty": []}).decode()
    assert '"rounds": [ 1.5, 2e-9, -3 ]' in text
    assert msgspec.json.decode(text) == {"rounds": [1.5, 2e-9, -3], "texts": ["a", "[\n 1"], "empty": []}


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
        max_leaves=20,
    )
)  # fmt: skip
def test_encoded_json_decodes_to_the_same_value(value: object) -> None:
    assert msgspec.json.decode(encode_json(value)) == value


def test_a_value_that_json_can_not_hold_is_refused() -> None:
    with pytest.raises(ResultNotSaved, match="can't be written as JSON"):
        encode_json({"what": object()})
    with pytest.raises(ResultNotSaved, match="can't be written as JSON"):
        encode_json({"what": "\ud800"})


# -- samples ----------------------------------------------------------------------------------


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little", signed=True) for value in values)


def a_round(number: int, samples: dict[str, Samples]) -> Round:
    return Round(
        number=number, seed=0, figures={}, samples=samples, other={}, not_available={}, started_at=0.0,
        load_seconds=0.0, seconds=0.0, peak_rss_bytes=0, wall_to_cpu=None,
    )  # fmt: skip


def some_samples(*values: int) -> Samples:
    return Samples(
        wall_ns=numbers(*values), block_samples=numbers(1), block_wall_ns=numbers(2),
        block_cpu_ns=numbers(3), calls_per_sample=4, work=5,
    )  # fmt: skip


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    names = ["", "a", "a/b", "größe ⚙/x y", "../up", "file", "allow_pickle"]
    rounds = [a_round(n, {name: some_samples(n, len(name)) for name in names}) for n in range(2)]
    write_samples(path, rounds)
    times = read_times(path, names)
    assert set(times) == set(names)
    for name, in_rounds in times.items():
        assert [(calls, list(ns)) for calls, ns in in_rounds] == [(4, [n, len(name)]) for n in range(2)]
    with np.load(path) as arrays:
        for n, name in product(range(2), names):
            for what, value in (("block_samples", [1]), ("block_wall_ns", [2]), ("block_cpu_ns", [3])):
                assert list(arrays[f"{n}/{name}/{what}"]) == value
            assert list(arrays[f"{n}/{name}/calls_and_work"]) == [4, 5]


def test_without_timings_no_file_of_samples_is_written(tmp_path: Path) -> None:
    write_samples(tmp_path / "a.npz", [a_round(0, {})])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        read_times(tmp_path / "a.npz", ["a"])


def test_the_error_for_damaged_samples_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_samples(path, [a_round(0, {"a": some_samples(1)})])
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DamagedResult, match=f"{path} is damaged"):
        read_times(path, ["a"])


# -- reading ----------------------------------------------------------------------------------


def test_the_error_names_a_truncated_file(tmp_path: Path) -> None:
    path = make_run(tmp_path) / "run.json"
    whole = path.read_bytes()
    for end in (*range(0, len(whole) - 2, 97), len(whole) - 2):
        path.write_bytes(whole[:end])
        with pytest.raises(DamagedResult, match=f"{path} is damaged or not a result file"):
            read_run(path.parent)
        assert path.read_bytes() == whole[:end]


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path, format=FORMAT + 1)
    with pytest.raises(DamagedResult, match=f"has format {FORMAT + 1}: install a newer version"):
        read_run(folder)


def test_the_error_names_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=f"there is no file {tmp_path}/none.json"):
        read_result(tmp_path / "none.json")
    with pytest.raises(DamagedResult, match=f"{tmp_path} can't be read: Is a directory"):
        read_result(tmp_path)


def test_a_run_is_found_by_id_part_path_or_as_the_latest(tmp_path: Path) -> None:
    first = make_run(tmp_path, "20260801_101500_ab12")
    last = make_run(tmp_path, "20260802_101500_cd34")
    (tmp_path / "20260803_101500_ef56").mkdir()  # not a run, because it has no run.json
    assert run_folders(tmp_path) == [first, last]
    assert run_folders(first) == [first]
    assert find_run(tmp_path, "latest") == last
    assert find_run(tmp_path, "ab12") == first
    assert find_run(tmp_path, first.name) == first
    assert find_run(Path("nowhere"), str(first)) == first


@pytest.mark.parametrize(
    ("run_id", "message"),
    [
        ("101500", "'101500' fits 2 runs: 20260801_101500_ab12, 20260802_101500_cd34"),
        ("20260802_101500_cd35", "there is no run .* did you mean '20260802_101500_cd34'?"),
    ],
)
def test_the_error_for_an_ambiguous_run_lists_the_candidates(
    tmp_path: Path, run_id: str, message: str
) -> None:
    make_run(tmp_path, "20260801_101500_ab12")
    make_run(tmp_path, "20260802_101500_cd34")
    with pytest.raises(UnknownName, match=message.replace("?", r"\?")):
        find_run(tmp_path, run_id)


def test_the_error_says_that_there_are_no_runs(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"there is no run 'latest' in .*: there are no runs yet"):
        find_run(tmp_path / "none", "latest")
    (tmp_path / "file").touch()
    with pytest.raises(UnknownName, match=f"{tmp_path / 'file'} can't be read: Not a directory"):
        run_folders(tmp_path / "file")


def test_results_are_listed_without_opening_their_files(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    (path,) = (folder / "storage").glob("*.json")
    path.write_bytes(b"not looked at")
    for name in ("rounds", "logs", ".hidden"):
        write_whole(folder / name / "x_20260801_101500.json", b"")
    write_whole(folder / "storage" / "notes.json", b"")
    write_whole(tmp_path / "by_hand" / "y_20260801_101500_2.json", b"")
    found = list(result_files(tmp_path))
    assert [(file.category, file.benchmark, file.run_id) for file in found] == [
        ("storage", "write_throughput", folder.name),
        ("by_hand", "y", ""),
    ]
    assert list(result_files(folder)) == [found[0]]
    assert os.fspath(found[0]) == str(found[0]) == str(path)
    assert list(result_files(tmp_path / "none")) == []


def test_a_deleted_run_is_gone(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    delete_run(folder)
    assert list(tmp_path.iterdir()) == []
