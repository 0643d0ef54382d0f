"""Terminal output: any encoding works, programs get exact bytes, and small plots are correct."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from membench import COMMAND, PATIENCE, membench, surroundings
from result_builders import THROUGHPUT, figure, make_result, make_run, storage_figures

from memory.benchmarking.model.records import Failure, Figure, Unit
from memory.benchmarking.text.display import text_width
from memory.benchmarking.text.terminal import bar, can_draw, replace_unencodable, sparkline

BLOCKS = "▁▂▃▄▅▆▇█▏▎▍▌▋▊▉"
HEADLINE = f"complexity_1/batch_1000/stm/{THROUGHPUT}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rounds = {"odd/p50_ms": Figure(value=2, low=1, high=3, rounds=[1, 2, 3])}
    made = make_result(
        storage_figures(batches=(10, 100, 1000), complexities=(1,)) | rounds, headline=HEADLINE
    )
    make_run(tmp_path / "results", results=[made])
    return tmp_path


def on_a_terminal(*arguments: object, cwd: Path, columns: int = 100, **changes: str | None) -> str:
    """Return what a command prints on a pseudo terminal."""
    ours, theirs = pty.openpty()
    environment = surroundings(**{"TERM": "xterm-256color", "COLUMNS": str(columns)} | changes)
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    return shown.decode().replace("\r\n", "\n")


# -- results show -----------------------------------------------------------------------------


def test_a_terminal_gets_bars_and_sparklines(folder: Path) -> None:
    show = ("results", "show", "--output-dir", "results")
    assert f"\x1b[36m{sparkline([1, 2, 3])}\x1b[0m" in on_a_terminal(*show, "--all-metrics", cwd=folder)
    text = on_a_terminal(*show, cwd=folder, NO_COLOR="1")
    assert "batch_size 10 to 1,000" in text
    (along,) = (line for line in text.splitlines() if "batch_size 10 to" in line)
    assert along.split()[0] == sparkline([10**0.5, 100**0.5, 1000**0.5])
    lengths = [line.count("█") for line in text.splitlines() if "batch_" in line and "█" in line]
    assert max(lengths) == 12
    everything = on_a_terminal(*show, "--all-metrics", cwd=folder, NO_COLOR="1")
    (line,) = (line for line in everything.splitlines() if "1.00–3.00" in line)
    assert line.endswith(sparkline([1, 2, 3]))


def test_a_pipe_gets_plain_text(folder: Path) -> None:
    text = membench("results", "show", "--output-dir", "results", cwd=folder).out
    assert not set(BLOCKS) & set(text)
    assert "\x1b" not in text


def test_no_colour_means_no_colour_and_still_bars(folder: Path) -> None:
    text = on_a_terminal("results", "show", "--output-dir", "results", cwd=folder, NO_COLOR="1")
    assert "\x1b" not in text
    assert "█" in text


@pytest.mark.parametrize("changes", [{"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_terminal_that_can_not_draw_gets_plain_text(folder: Path, changes: dict[str, str]) -> None:
    environment = {"NO_COLOR": "1"} | changes
    text = on_a_terminal("results", "show", "--output-dir", "results", cwd=folder, **environment)
    assert not set(BLOCKS) & set(text)
    assert "/s" in text


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_nothing_is_wider_than_the_terminal(folder: Path, columns: int) -> None:
    text = on_a_terminal(
        "results", "show", "--output-dir", "results", cwd=folder, columns=columns, NO_COLOR="1"
    )
    whole = (
        "file",
        "command",
        "packages",
    )  # paths and commands are not shortened, so that they can be copied
    wide = [
        line
        for line in text.splitlines()
        if text_width(line) > columns and not line.strip().startswith(whole) and " " in line.strip()
    ]
    assert wide == []


@pytest.mark.parametrize("command", ["results list", "compare --last --force"])
def test_lines_break_between_words(tmp_path: Path, command: str) -> None:
    both = [make_result(storage_figures(), target=name) for name in ("agentmemory", "sqlite-baseline")]
    ids = ("20260801_101500_ab12", "20260802_101500_cd34")
    for run_id in ids:
        make_run(tmp_path / "results", run_id, both)
    arguments = (*command.split(), "--output-dir", "results")
    text = on_a_terminal(*arguments, cwd=tmp_path, columns=80, NO_COLOR="1")
    assert [line for line in text.splitlines() if text_width(line) > 80 and " " in line.strip()] == []
    assert set(ids) <= set(text.split())
    words = set(membench(*arguments, cwd=tmp_path).out.split())
    names = {word for word in words if "." in word or "/" in word or "-" in word}
    assert {name.strip(",;") for name in names} <= {word.strip(",;") for word in text.split()}


def test_a_bar_takes_no_room_from_a_second_figure(tmp_path: Path) -> None:
    codecs = {
        f"navigation/codecs/{codec}/{leaf}": figure(value)
        for codec, recall in (("autoencoder", 0.5), ("pq", 0.9))
        for leaf, value in (("recall_of_neighbours_at_10", recall), ("bytes_per_vector", 64.0))
    }
    made = make_result(codecs)
    made.units["bytes_per_vector"] = Unit(unit="B", better="lower")
    make_run(tmp_path / "results", results=[made])
    show = ("results", "show", "--output-dir", "results")
    narrow, wide = (
        on_a_terminal(*show, cwd=tmp_path, columns=columns, NO_COLOR="1") for columns in (80, 120)
    )
    assert "64.0 B" in narrow
    assert "█" not in narrow
    assert "64.0 B" in wide
    assert "█" in wide


def test_the_same_error_is_printed_once(tmp_path: Path) -> None:
    failures = [
        Failure(case=f"storage.{n}@agentmemory", round=0, reason="exception", message="NameError: x")
        for n in range(9)
    ]
    make_run(tmp_path / "results", failures=failures)
    text = membench("results", "show", "--output-dir", "results", cwd=tmp_path).out
    assert "9 rounds failed" in text
    assert text.count("NameError: x") == 1
    assert "and 6 more rounds with the same error" in text


# -- signs that are not there -----------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "utf-8"])
@pytest.mark.parametrize("arguments", [["results", "show"], ["results", "list"], ["list", "--verbose"]])
def test_every_encoding_of_the_terminal_works(folder: Path, encoding: str, arguments: list[str]) -> None:
    env = surroundings(PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    more = ["--output-dir", "results"] if arguments[0] == "results" else []
    done = subprocess.run(
        [*COMMAND, *arguments, *more], cwd=folder, env=env, capture_output=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    done.stdout.decode(encoding)


def test_unencodable_characters_are_replaced() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    replace_unencodable(stream)
    stream.write("1.2 µs ±5 % ×÷2 — 3–4 … ▸ 日 \ud800")
    stream.flush()
    assert raw.getvalue() == b"1.2 us +-5 % x/2 - 3-4 ... > ? ?"


def test_json_is_utf_8_whatever_the_terminal_is(folder: Path) -> None:
    make_run(folder / "results", "20260802_101500_cd34", [make_result({"µ — 日/p50_us": figure(1)})])
    env = surroundings(PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    for arguments in (["results", "show", "--json"], ["results", "list", "--json"]):
        done = subprocess.run(
            [*COMMAND, *arguments, "--output-dir", "results"],
            cwd=folder, env=env, capture_output=True, timeout=PATIENCE,
        )  # fmt: skip
        document = json.loads(done.stdout.decode())
        if "show" in arguments:
            (shown,) = document["results"]
            assert [*shown["result"]["metrics"]] == ["µ — 日/p50_us"]
            assert shown["result"]["units"]["p50_us"]["unit"] == "µs"


def test_a_stream_that_is_no_terminal_can_not_draw() -> None:
    assert not can_draw(io.StringIO())
    assert not can_draw(sys.__stdin__ if sys.__stdin__ and not sys.__stdin__.isatty() else io.StringIO())


# -- small plots ------------------------------------------------------------------------------


@given(st.floats(0, 1e300), st.floats(0, 1e300), st.floats(1e-300, 1e300), st.integers(1, 40))
def test_a_longer_bar_is_a_larger_value(one: float, other: float, of: float, width: int) -> None:
    def eighths(text: str) -> int:
        return sum(8 if letter == "█" else " ▏▎▍▌▋▊▉".index(letter) for letter in text)

    small, large = sorted((one, other))
    assert eighths(bar(small, of, width)) <= eighths(bar(large, of, width)) <= 8 * width
    assert (bar(large, of, width) == "") == (large == 0)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20))
def test_a_sparkline_has_one_character_for_each_number_in_order(values: list[float]) -> None:
    known = [value for value in values if abs(value) < float("inf")]
    line = sparkline(values)
    assert len(line) == len(known)
    pairs = sorted(zip(known, line, strict=True))
    assert [letter for _, letter in pairs] == sorted(letter for _, letter in pairs)
    if len(set(known)) > 1:
        assert {line[known.index(min(known))], line[known.index(max(known))]} == {"▁", "█"}
