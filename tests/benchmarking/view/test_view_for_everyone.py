"""Accessibility of `membench view`: keyboard, narrow screens, dark colours, screen readers, no scripts.

Also: names with markup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import NARROW, WIDE, Browser, scrolls_sideways, violations
from result_builders import figure, make_result, make_run
from view_server import CASE, METRIC, address, follow, listed, make_few_runs, serving, sign_in

from memory.benchmarking.model.records import Failure
from memory.benchmarking.view.layout import compare_address, history_address, run_address
from memory.benchmarking.view.server import ViewServer

HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    folder = tmp_path_factory.mktemp("few")
    make_few_runs(folder)
    with serving(folder) as server:
        yield server


def test_the_colour_scheme_is_switched_and_remembered(browser: Browser, few: ViewServer) -> None:
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


def test_the_system_chooses_the_colours_until_the_user_does(browser: Browser, few: ViewServer) -> None:
    light, dark = (
        sign_in(browser, few, dark=is_dark).evaluate("getComputedStyle(document.body).backgroundColor")
        for is_dark in (False, True)
    )
    assert light != dark


def test_everything_can_be_done_with_the_keyboard(browser: Browser, few: ViewServer) -> None:
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
    page.keyboard.type("ab1")  # the search field is the first tab stop of the content
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
def test_no_page_has_serious_accessibility_problems(
    browser: Browser, few: ViewServer, name: str, width: int, dark: bool
) -> None:
    page = sign_in(browser, few, PAGES[name], width=width, dark=dark)
    assert not scrolls_sideways(page)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert not scrolls_sideways(page)
    assert violations(page) == []


def test_without_scripts_every_page_still_works(running_browser: Any, few: ViewServer) -> None:
    context = running_browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(few.link)
    page.fill("#text", "ab13")
    page.click("button:has-text('Show')")
    assert listed(page) == ["20260803_101500_ab13"]
    context.close()


def hostile_runs(folder: Path) -> None:
    """A run with markup in every place where a name can be."""
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


def test_a_name_with_markup_is_shown_as_text(browser: Browser, tmp_path: Path) -> None:
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
            assert "onerror" in page.content()  # it is on the page, as text
        browser.errors[:] = [error for error in browser.errors if "404" not in error]
