"""The pages of `membench view` in a real browser. What holds for every page is checked by the fixture: no
complaint of the console, no error of a script, no request that leaves the machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import NARROW, WIDE, Browser, scrolls_sideways, violations
from many_runs import make_many_runs
from membench import COMMAND, PATIENCE, once, options, surroundings, write
from result_builders import figure, make_result, make_run, storage_figures
from view_server import serving, viewing

from memory.benchmarking.records import Failure
from memory.benchmarking.view.choice import PER_PAGE
from memory.benchmarking.view.layout import compare_address, history_address, run_address
from memory.benchmarking.view.server import ViewServer

RUNS = 120
HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"
CASE = ("storage", "write_throughput", "agentmemory")
METRIC = "complexity_1/batch_10/stm/throughput_ops_per_second"


def hostile_runs(folder: Path) -> None:
    """Names that hold markup, wherever a name can be."""
    name = HOSTILE.replace("/", "∕")
    metrics = {f"{name}/{name}_ms": figure(1.0), "plain_ms": figure(2.0)}
    for number, scale in enumerate((1.0, 2.0)):
        result = make_result(
            {path: figure(each.value * scale) for path, each in metrics.items()},
            benchmark=f"{name}-bench",
            category=f"{name}-cat",
            target=HOSTILE,
            params={HOSTILE: HOSTILE},
            not_available={HOSTILE: HOSTILE},
        )
        make_run(
            folder,
            f"2026080{number + 1}_101500_{name}",
            [result],
            failures=[Failure(case=HOSTILE, round=0, reason="crash", message=HOSTILE)],
            profile=HOSTILE,
            command=HOSTILE,
            headline=f"{name}/{name}_ms",
        )


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    folder = once(tmp_path_factory, "many_runs", lambda path: make_many_runs(path, RUNS))
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    """Three runs, the last of them slower; one that failed, one that is damaged."""
    folder = tmp_path_factory.mktemp("few")
    for number, scale in enumerate((1.0, 1.01, 0.5), start=1):
        make_run(folder, f"2026080{number}_101500_ab1{number}", [make_result(storage_figures(scale))])
    failure = Failure(case="storage.write_throughput@agentmemory", round=0, reason="crash", message="gone")
    make_run(folder, "20260804_101500_ab14", failures=[failure] * 7)
    make_run(folder, "20260805_101500_ab15")
    (folder / "20260805_101500_ab15" / "run.json").write_text("{")
    with serving(folder) as server:
        yield server


def address(server: ViewServer, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


def sign_in(browser: Browser, server: ViewServer, path: str = "/", **options: Any) -> Any:
    """The page that someone sees who has opened the link before."""
    return browser.open(address(server, path), cookie=(server.cookie, server.token), **options)


def follow(page: Any, link: str) -> None:
    with page.expect_navigation():
        page.click(link)


def listed(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("table.runs th[scope=row] a").all_inner_texts()]


def wait_for_count(page: Any, text: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator("#count")).to_have_text(text)


def wait_for_rows(page: Any, count: int) -> None:
    from playwright.sync_api import expect

    expect(page.locator("main tbody tr")).to_have_count(count)


# -- open -------------------------------------------------------------------------------------


def test_the_link_opens_the_list_and_its_token_leaves_the_address(
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
    # The browser itself tells of the status, and that is all it tells.
    assert [error for error in browser.errors if "403" not in error] == []
    browser.errors.clear()


def test_pages_lead_to_pages(browser: Browser, many: ViewServer) -> None:
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


def test_the_list_follows_what_is_typed_and_chosen(browser: Browser, many: ViewServer) -> None:
    page = sign_in(browser, many)
    page.select_option("#profile", "quick")
    wait_for_count(page, f"40 of {RUNS} runs")
    page.select_option("#status", "failed")
    wait_for_count(page, f"1 of {RUNS} runs")
    assert "status=failed" in page.url
    page.reload()  # the address holds the choice
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
    page.fill("#text", "ab13")  # the choice outlives the filter
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
    follow(page, "text=Compare with the run before")
    assert "improved" in page.inner_text(".note")


def test_the_values_of_a_chart_are_told_on_the_arrow_keys(browser: Browser, many: ViewServer) -> None:
    page = sign_in(browser, many, history_address(CASE, METRIC))
    page.focus("svg.plot")
    page.keyboard.press("ArrowRight")
    assert re.search(r"\d /s \(", page.inner_text(".told"))


# -- for everyone -----------------------------------------------------------------------------


def test_the_colours_are_switched_and_stay(browser: Browser, few: ViewServer) -> None:
    page = sign_in(browser, few)
    back = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(back)
    page.click("text=Dark")
    dark = page.evaluate(back)
    assert dark != light
    follow(page, "text=History")
    assert page.evaluate(back) == dark
    page.click("text=Light")
    assert page.evaluate(back) == light


def test_the_system_decides_until_somebody_does(browser: Browser, few: ViewServer) -> None:
    light, dark = (
        sign_in(browser, few, dark=is_dark).evaluate("getComputedStyle(document.body).backgroundColor")
        for is_dark in (False, True)
    )
    assert light != dark


def test_everything_can_be_done_by_key(browser: Browser, few: ViewServer) -> None:
    page = sign_in(browser, few)
    press = page.keyboard.press

    def focused() -> str:
        return page.evaluate(
            "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
        )

    press("Tab")
    assert focused() == "Skip to the content"
    press("Enter")
    press("Tab")
    page.keyboard.type("ab1")  # the search is the first thing of the content
    assert page.input_value("#text") == "ab1"
    for run in ("20260803_101500_ab13", "20260802_101500_ab12"):
        for _ in range(40):
            if focused() == f"Compare {run}":
                break
            press("Tab")
        assert focused() == f"Compare {run}"
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        press("Space")
    for _ in range(40):
        if focused() == "Compare":
            break
        press("Shift+Tab")
    press("Enter")
    page.wait_for_url("**/compare?*")
    assert page.inner_text("h2") == "20260803_101500_ab13 against 20260802_101500_ab12"


PAGES = {
    "list": "/",
    "list of none": "/?text=nothing",
    "run": "/run/20260803_101500_ab13",
    "failed run": "/run/20260804_101500_ab14",
    "damaged run": "/run/20260805_101500_ab15",
    "comparison": compare_address("20260801_101500_ab11", "20260802_101500_ab12", "20260803_101500_ab13"),
    "side by side": compare_address("20260801_101500_ab11", "20260803_101500_ab13").replace(
        "compare", "side-by-side"
    ),
    "history": history_address(CASE, METRIC),
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(
    ("width", "dark"), [(WIDE, False), (NARROW, True)], ids=["wide", "narrow and dark"]
)
def test_nothing_serious_keeps_anyone_from_using_a_page(
    browser: Browser, few: ViewServer, name: str, width: int, dark: bool
) -> None:
    page = sign_in(browser, few, PAGES[name], width=width, dark=dark)
    assert not scrolls_sideways(page)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert not scrolls_sideways(page)
    assert violations(page) == []


def test_without_scripts_there_is_still_everything(running_browser: Any, few: ViewServer) -> None:
    context = running_browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(few.link)
    page.fill("#text", "ab13")
    page.click("button:has-text('Show')")
    assert listed(page) == ["20260803_101500_ab13"]
    context.close()


# -- names that hold markup -------------------------------------------------------------------


def test_a_hostile_name_stays_text(browser: Browser, tmp_path: Path) -> None:
    hostile_runs(tmp_path)
    with serving(tmp_path) as server:
        page = sign_in(browser, server)
        ids = listed(page)
        assert len(ids) == 2
        assert HOSTILE.replace("/", "∕") in ids[0]
        case = (f"{HOSTILE}-cat", f"{HOSTILE}-bench", HOSTILE)
        paths = (
            run_address(ids[0]),
            compare_address(*ids),
            history_address(case, f"{HOSTILE}/{HOSTILE}_ms"),
        )
        for path in ("/", *paths, "/?text=" + HOSTILE, "/run/" + HOSTILE, "/history?case=" + HOSTILE):
            page.goto(address(server, path.replace("#", "%23")))
            assert page.locator("img").count() == 0
            assert page.title() != "hacked"
            assert "onerror" in page.content()  # it is there, and it is text
        browser.errors[:] = [error for error in browser.errors if "404" not in error]


# -- live -------------------------------------------------------------------------------------

SLOW = """
import os, time

def benchmark_slow(bench=None):
    "Waits until it is let go on."
    while not os.path.exists({gate!r}):
        time.sleep(0.02)
    return {{"upper": bench.time(lambda: "a".upper())}}
"""


def test_a_run_is_followed_while_it_goes_on(browser: Browser, tmp_path: Path) -> None:
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
                page.wait_for_selector("text=Now: waiting.slow@")
                gate.touch()
                page.wait_for_selector("h1 >> text=complete", timeout=PATIENCE * 1000)
            finally:
                process.send_signal(signal.SIGTERM)
        assert page.locator("progress").count() == 0
        assert "waiting.slow" in page.inner_text("#run")


def test_a_run_whose_process_was_killed_is_not_shown_as_going_on(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path, status="running")
    (run / ".lock").touch()
    with serving(tmp_path) as server:
        page = sign_in(browser, server, run_address(run.name))
        assert "interrupted" in page.inner_text("h1")
        assert f"membench run --resume {run.name}" in page.inner_text(".note")


def test_a_new_run_appears_and_a_removed_one_goes(browser: Browser, tmp_path: Path) -> None:
    first = make_run(tmp_path, "20260801_101500_ab11")
    with serving(tmp_path) as server:
        page = sign_in(browser, server)
        page.focus("#text")
        make_run(tmp_path, "20260802_101500_ab12")
        page.wait_for_selector("text=20260802_101500_ab12")
        assert page.evaluate("document.activeElement.id") == "text"  # whoever types is not disturbed
        os.rename(first, tmp_path.parent / f"{tmp_path.name}-removed")
        page.wait_for_selector("text=20260801_101500_ab11", state="detached")


def test_an_ended_view_says_so(browser: Browser, tmp_path: Path) -> None:
    make_run(tmp_path)
    with viewing(tmp_path) as view:
        page = browser.open(view.link)
    page.wait_for_selector("text=The view was ended")
    assert all("ERR_" in error for error in browser.errors)
    browser.errors.clear()
