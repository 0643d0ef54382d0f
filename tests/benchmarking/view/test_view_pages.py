"""The pages of `membench view` in a real browser.

The fixture checks every page: no console errors, no script errors, no requests to other machines."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from many_runs import make_many_runs
from membench import COMMAND, PATIENCE, once, options, surroundings, write
from result_builders import make_run
from view_server import (
    CASE,
    METRIC,
    address,
    follow,
    listed,
    make_few_runs,
    serving,
    sign_in,
    viewing,
    wait_for_count,
    wait_for_rows,
)

from memory.benchmarking.view.layout import history_address, run_address
from memory.benchmarking.view.run_filter import PER_PAGE
from memory.benchmarking.view.server import ViewServer

RUNS = 120


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    folder = once(tmp_path_factory, "many_runs", lambda path: make_many_runs(path, RUNS))
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    folder = tmp_path_factory.mktemp("few")
    make_few_runs(folder)
    with serving(folder) as server:
        yield server


# -- open -------------------------------------------------------------------------------------


def test_the_link_opens_the_list_and_removes_the_token_from_the_address(
    browser: Browser, many: ViewServer
) -> None:
    page = browser.open(many.link)
    assert page.inner_text("#count") == f"{RUNS} runs"
    assert len(listed(page)) == PER_PAGE
    assert "token" not in page.url
    page.reload()
    assert len(listed(page)) == PER_PAGE


def test_a_wrong_link_shows_why_and_nothing_else(browser: Browser, many: ViewServer) -> None:
    page = browser.open(address(many, "/?token=wrong"))
    assert "This link is not valid" in page.inner_text("h1")
    # The only console message is the one about the status, from the browser itself.
    assert [error for error in browser.errors if "403" not in error] == []
    browser.errors.clear()


def test_pages_link_to_each_other(browser: Browser, many: ViewServer) -> None:
    page = sign_in(browser, many)
    newest = listed(page)
    follow(page, "text=Older")
    assert "page 2 of 3" in page.inner_text(".pager")
    assert not set(newest) & set(listed(page))
    follow(page, "table.runs th[scope=row] a >> nth=0")
    assert page.inner_text("h1").startswith("Run ")
    follow(page, ".headlines td a >> nth=0")
    assert page.inner_text("h1") == "History"
    page.go_back()
    page.go_back()
    assert "page 2 of 3" in page.inner_text(".pager")


# -- filter -----------------------------------------------------------------------------------


def test_the_list_is_filtered_while_the_user_types(browser: Browser, many: ViewServer) -> None:
    page = sign_in(browser, many)
    page.select_option("#profile", "quick")
    wait_for_count(page, f"40 of {RUNS} runs")
    page.select_option("#status", "failed")
    wait_for_count(page, f"1 of {RUNS} runs")
    assert "status=failed" in page.url
    page.reload()  # the address holds the filter
    wait_for_count(page, f"1 of {RUNS} runs")
    page.select_option("#status", "")
    page.fill("#text", "QUICK  storage_3")
    wait_for_count(page, f"40 of {RUNS} runs")
    page.fill("#text", "nothing of the kind")
    wait_for_count(page, f"0 of {RUNS} runs")
    follow(page, "text=Show all runs")
    wait_for_count(page, f"{RUNS} runs")


def test_the_list_can_be_narrowed_by_day_and_target(browser: Browser, many: ViewServer) -> None:
    page = sign_in(browser, many)
    page.fill("#since", "2026-01-02")
    page.fill("#until", "2026-01-03")
    wait_for_count(page, f"24 of {RUNS} runs")
    page.select_option("#target", "sqlite")
    wait_for_count(page, f"6 of {RUNS} runs")


# -- compare ----------------------------------------------------------------------------------


def test_runs_are_chosen_and_compared(browser: Browser, few: ViewServer) -> None:
    page = sign_in(browser, few)
    assert page.is_disabled("#compare")
    assert page.is_disabled("[aria-label='Compare 20260805_101500_ab15']")  # damaged
    page.check("[aria-label='Compare 20260801_101500_ab11']")
    page.fill("#text", "ab13")  # the choice stays
    wait_for_rows(page, 1)
    page.check("[aria-label='Compare 20260803_101500_ab13']")
    assert page.inner_text("#chosen") == "2 runs chosen"
    follow(page, "#compare")
    assert page.inner_text("h2") == "20260803_101500_ab13 against 20260801_101500_ab11"
    assert "regressed" in page.inner_text(".note")
    assert "slower" in page.inner_text("tbody tr >> nth=0")
    before = page.inner_text("#comparison")
    page.select_option("#base", "20260803_101500_ab13")
    page.wait_for_function(
        "before => document.querySelector('#comparison').innerText !== before", arg=before
    )
    assert "faster" in page.inner_text("tbody tr >> nth=0")
    page.fill("#text", "batch_100/ltm p50")
    wait_for_rows(page, 2)
    follow(page, "text=Charts side by side")
    assert page.locator("svg.plot").count() > 1


def test_one_run_can_not_be_compared(browser: Browser, few: ViewServer) -> None:
    page = sign_in(browser, few, "/compare?run=20260801_101500_ab11")
    assert "Choose from two to" in page.inner_text(".note")


# -- history ----------------------------------------------------------------------------------


def test_the_history_shows_where_the_level_changed(browser: Browser, many: ViewServer) -> None:
    page = sign_in(browser, many, history_address(CASE, METRIC) + "&last=200")
    (change,) = page.locator(".changes li").all_inner_texts()
    assert re.match(r"better from 20260106_080000_003c .* on: .* \+(19|20|21)\.\d %", change), change
    assert page.locator("svg.plot .fit").count() == 2
    follow(page, "text=Compare with the previous run")
    assert "improved" in page.inner_text(".note")


def test_arrow_keys_show_the_values_of_a_chart(browser: Browser, many: ViewServer) -> None:
    page = sign_in(browser, many, history_address(CASE, METRIC))
    page.focus("svg.plot")
    page.keyboard.press("ArrowRight")
    assert re.search(r"\d /s \(", page.inner_text(".tooltip"))


# -- live -------------------------------------------------------------------------------------

SLOW = """
import os, time

def benchmark_slow(bench=None):
    "Waits until it is let go on."
    while not os.path.exists({gate!r}):
        time.sleep(0.02)
    return {{"upper": bench.time(lambda: "a".upper())}}
"""


def test_the_page_of_a_running_run_updates_itself(browser: Browser, tmp_path: Path) -> None:
    results, gate = tmp_path / "results", tmp_path / "gate"
    results.mkdir()
    file = write(tmp_path / "waiting.py", SLOW.format(gate=str(gate)))
    with serving(results) as server:
        page = sign_in(browser, server)
        assert "There are no runs" in page.inner_text("main")
        with subprocess.Popen(
            [*COMMAND, *map(str, options(file, results, "--rounds", 2))],
            env=surroundings(),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                page.wait_for_selector("table.runs progress", timeout=PATIENCE * 1000)
                assert "0 of 2 rounds" in page.inner_text("table.runs")
                page.click("table.runs th[scope=row] a")
                page.wait_for_selector("text=Running now: waiting.slow@")
                gate.touch()
                page.wait_for_selector("h1 >> text=complete", timeout=PATIENCE * 1000)
            finally:
                process.send_signal(signal.SIGTERM)
        assert page.locator("progress").count() == 0
        assert "How long calls take" in page.inner_text("#waiting\\.slow")


def test_a_run_whose_process_was_killed_is_not_shown_as_running(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path, status="running")
    (run / ".lock").touch()
    with serving(tmp_path) as server:
        page = sign_in(browser, server, run_address(run.name))
        assert "interrupted" in page.inner_text("h1")
        assert f"membench run --resume {run.name}" in page.inner_text(".note")


def test_new_runs_appear_and_deleted_runs_disappear(browser: Browser, tmp_path: Path) -> None:
    first = make_run(tmp_path, "20260801_101500_ab11")
    with serving(tmp_path) as server:
        page = sign_in(browser, server)
        page.focus("#text")
        make_run(tmp_path, "20260802_101500_ab12")
        page.wait_for_selector("text=20260802_101500_ab12")
        assert page.evaluate("document.activeElement.id") == "text"  # the focus stays
        os.rename(first, tmp_path.parent / f"{tmp_path.name}-removed")
        page.wait_for_selector("text=20260801_101500_ab11", state="detached")


def test_a_stopped_server_is_reported(browser: Browser, tmp_path: Path) -> None:
    make_run(tmp_path)
    with viewing(tmp_path) as view:
        page = browser.open(view.link)
    page.wait_for_selector("text=The server has stopped")
    assert all("ERR_" in error for error in browser.errors)
    browser.errors.clear()
