"""The league's page in a real browser: twenty systems, narrow, dark, print, keyboard, without scripts."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from browser import WIDE, Browser, scrolls_sideways, violations
from league_builders import league_run

from memory.benchmarking.league.gather import league_of
from memory.benchmarking.league.page import league_page
from memory.benchmarking.view.server import ViewServer

HOSTILE = "<img src=x onerror=alert(1)>"
NARROW = 400
MOST_BYTES = 3_000_000


def page_of(folder: Path, systems: int, *names: str) -> Path:
    path = folder / "league.html"
    path.write_text(league_page(league_of([league_run(folder, systems, names)])), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "dark"), [(NARROW, True), (WIDE, False)])
def test_twenty_systems_are_accessible_and_fit_every_screen(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    path = page_of(tmp_path, 20)
    assert path.stat().st_size < MOST_BYTES
    page = browser.open(path, width=width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert violations(page) == []
    assert not scrolls_sideways(page)


def test_the_table_is_sorted_by_keyboard_and_filtered(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_of(tmp_path, 6))

    def shown() -> list[str]:
        return page.eval_on_selector_all(
            "#league-table tbody tr:not([hidden])", "rows => rows.map(row => row.dataset.system)"
        )

    page.focus("th[data-axis='installed'] button")
    page.keyboard.press("Enter")
    assert shown() == [f"system-{number}" for number in range(6)]
    page.keyboard.press("Enter")
    assert shown() == [f"system-{number}" for number in reversed(range(6))]
    assert page.get_attribute("th[data-axis='installed']", "aria-sort") == "descending"
    page.focus("th[data-axis='disk'] button")
    page.keyboard.press("Space")
    assert shown()[-1] == "system-2", "a system without a figure comes last"
    page.fill("#filter-name", "M-4")
    assert shown() == ["system-4"]
    assert page.inner_text("#filter-count") == "1 of 6 systems"
    page.fill("#filter-name", "")
    page.select_option("#filter-durability", "machine")
    assert sorted(shown()) == ["system-1", "system-4"]
    page.uncheck("[data-group-switch='Space']")
    assert page.is_hidden("th[data-axis='disk']")


def test_a_click_on_a_promise_shows_its_evidence(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_of(tmp_path, 4))
    page.click("table.promises tbody tr:nth-child(4) a.mark >> nth=0")
    assert "12 of 100 writes were lost" in page.inner_text("#evidence")
    assert "target.delete_all" in page.inner_text("#evidence")


def test_two_systems_stand_side_by_side(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_of(tmp_path, 4))
    page.select_option("#pair-0", "system-3")
    page.select_option("#pair-1", "system-2")
    assert page.inner_text("#pair-table thead").split() == ["Axis", "system-3", "system-2"]
    assert "took > 240 s" in page.inner_text("#pair-table")
    assert page.locator("#pair-table td.better").count() > 3


def test_side_by_side_nothing_is_better_while_the_intervals_overlap(
    browser: Browser, tmp_path: Path
) -> None:
    page = browser.open(page_of(tmp_path, 3))
    page.select_option("#pair-0", "system-0")
    page.select_option("#pair-1", "system-1")
    better = page.eval_on_selector_all(
        "#pair-table td.better", "cells => cells.map(cell => cell.parentNode.cells[0].textContent)"
    )
    assert any("Write" in axis for axis in better)
    assert not any("Quality" in axis for axis in better), (
        "0.80 and 0.78, with intervals of 0.03 to each side"
    )


def test_a_link_to_a_system_opens_its_details(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_of(tmp_path, 3))
    page.click("#league-table a.name >> nth=1")
    page.locator("#system-system-1 table").first.wait_for(state="visible")


def test_the_page_is_complete_without_scripts_and_on_paper(browser: Browser, tmp_path: Path) -> None:
    path = page_of(tmp_path, 3)
    page = browser.without_scripts().new_page()
    page.goto(path.resolve().as_uri())
    assert page.is_visible("#league-table")
    assert page.is_hidden("#controls")
    assert page.is_hidden("#pair")
    page.emulate_media(media="print")
    assert page.is_visible("#league-table")
    assert page.is_visible(".situation >> nth=0")
    for title in ("System", "Text search", "Installed"):
        assert page.is_visible(f'#league-table thead button:has-text("{title}")'), (
            "a printed table has its titles"
        )


def test_names_are_never_markup(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_of(tmp_path, 3, HOSTILE))
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("#league-table")
    page.select_option("#pair-1", HOSTILE)
    assert page.locator("img").count() == 0


def test_the_viewer_shows_the_league_of_a_run(browser: Browser, tmp_path: Path) -> None:
    _, run = league_run(tmp_path, 4)
    with ViewServer(tmp_path) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.open(server.link)
        page.goto(f"http://127.0.0.1:{server.server_port}/run/{run.id}")
        page.click("text=Which system fits whom")
        page.wait_for_selector("#league-table", state="visible")
        page.click("th[data-axis='installed'] button")
        assert page.get_attribute("th[data-axis='installed']", "aria-sort") == "ascending"
        server.shutdown()
