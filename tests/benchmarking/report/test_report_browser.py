"""The report in a real browser: both colour schemes, narrow screens, keyboard, screen reader, print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import NARROW, WIDE, Browser, scrolls_sideways, violations
from membench import GOOD, membench, once, options, write
from result_builders import THROUGHPUT, figure, make_result, make_run, storage_figures

from memory.benchmarking.model.records import Failure
from memory.benchmarking.results import BenchmarkResults

RELOADS = 10  # the browser writes a page's storage later: the next page may not see it yet
FIRST, SECOND = "20260801_101500_ab12", "20260802_101500_cd34"
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u2028"
FAILURE = Failure(case="storage.read_latency@agentmemory", round=2, reason="timeout", message=HOSTILE)


@pytest.fixture
def results(tmp_path: Path) -> BenchmarkResults:
    return BenchmarkResults(tmp_path / "benchmark_results")


def some_results(scale: float) -> list[Any]:
    """Results of built-in benchmarks, of a user's own, and of one with markup in its names."""
    own = {f"users_{n}/p50_ms": figure(n * scale) for n in (1, 10, 100)}
    hostile = {f"{HOSTILE} {n}/p50_ms": figure(scale) for n in (1, 2)}
    return [
        make_result(
            storage_figures(scale, tiers=("stm", "im", "ltm")),
            headline=f"complexity_1/batch_10/stm/{THROUGHPUT}",
        ),
        make_result(own, category="mine", benchmark="own"),
        make_result(
            hostile, category="mine", benchmark="odd", target=HOSTILE, params={"agent_id": HOSTILE}
        ),
    ]


@pytest.fixture
def report(results: BenchmarkResults) -> Path:
    make_run(results.output_dir, FIRST, results=some_results(1), failures=[FAILURE])
    return results.generate_report()


@pytest.fixture
def both(results: BenchmarkResults) -> Path:
    make_run(results.output_dir, FIRST, results=some_results(1))
    make_run(results.output_dir, SECOND, results=some_results(2))
    return results.compare_report([FIRST, SECOND])


@pytest.mark.parametrize(("width", "dark"), [(NARROW, True), (WIDE, False)])
def test_the_report_is_accessible_in_both_colour_schemes_and_on_every_screen(
    browser: Browser, report: Path, width: int, dark: bool
) -> None:
    page = browser.open(report, width=width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert violations(page) == []
    assert not scrolls_sideways(page)


@pytest.mark.parametrize(("width", "dark"), [(NARROW, False), (WIDE, True)])
def test_the_comparison_is_accessible(browser: Browser, both: Path, width: int, dark: bool) -> None:
    page = browser.open(both, width=width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert violations(page) == []
    assert not scrolls_sideways(page)


def test_a_name_with_markup_is_shown_and_not_run(browser: Browser, report: Path) -> None:
    page = browser.open(report)
    asked = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    assert page.locator("img").count() == 0
    assert "<img src=x onerror=alert(1)>" in page.inner_text(".note.bad")
    assert "<img src=x onerror=alert(1)>" in page.text_content("#mine\\.odd")
    assert asked == []


def test_a_tooltip_shows_the_value_under_the_pointer(browser: Browser, report: Path) -> None:
    page = browser.open(report)
    point = page.locator("#storage\\.write_throughput svg.plot .pt").first
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    tooltip = page.locator(".tooltip")
    assert tooltip.is_visible()
    assert tooltip.inner_text() == "agentmemory, stm, batch size 10: 3,160 /s (3,000–3,320)"
    page.mouse.move(2, 2)
    assert not tooltip.is_visible()


def test_the_tooltip_stays_at_its_point_when_the_page_scrolls(browser: Browser, report: Path) -> None:
    page = browser.open(report)
    page.locator("#storage\\.write_throughput svg.plot").first.focus()
    page.keyboard.press("ArrowRight")
    above_the_point = """() => document.querySelector(".here").getBoundingClientRect().top
        - document.querySelector(".tooltip").getBoundingClientRect().bottom"""
    before = page.evaluate(above_the_point)
    page.evaluate(
        """() => new Promise((done) => {
            addEventListener("scroll", () => requestAnimationFrame(done), { once: true });
            scrollBy(0, 30);
        })"""
    )
    assert page.locator(".tooltip").is_visible()
    assert abs(page.evaluate(above_the_point) - before) < 1


def test_arrow_keys_move_along_a_line_and_to_the_next_one(browser: Browser, report: Path) -> None:
    page = browser.open(report)
    plot = page.locator("#storage\\.write_throughput svg.plot").first
    plot.focus()
    tooltip = page.locator(".tooltip")
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "End"):
        page.keyboard.press(key)
        said.append(tooltip.inner_text().partition(":")[0].removeprefix("agentmemory, "))
    assert said == [
        "stm, batch size 10", "stm, batch size 100", "im, batch size 100", "im, batch size 10",
        "im, batch size 100",
    ]  # fmt: skip
    assert tooltip.get_attribute("role") == "status"
    page.keyboard.press("Escape")
    assert not tooltip.is_visible()


def test_a_line_can_be_hidden_and_shown_with_the_keyboard(browser: Browser, report: Path) -> None:
    page = browser.open(report)
    chart = page.locator("#storage\\.write_throughput figure").first
    key = chart.get_by_role("button", name="im", exact=True)
    line = chart.locator("g[data-l='1']").first
    assert line.is_visible()
    key.focus()
    page.keyboard.press("Enter")
    assert key.get_attribute("aria-pressed") == "false"
    assert not line.is_visible()
    page.keyboard.press("Space")
    assert line.is_visible()


def test_a_run_can_be_hidden_on_the_whole_page(browser: Browser, both: Path) -> None:
    page = browser.open(both)
    box = page.get_by_role("checkbox", name=f"{SECOND} · agentmemory")
    lines = page.locator(f"figure g[data-s='{box.get_attribute('data-source-switch')}']")
    visible = "(all) => all.filter((each) => each.getClientRects().length).length"
    shown = lines.evaluate_all(visible)
    assert shown > 3
    box.uncheck()
    assert lines.evaluate_all(visible) == 0
    box.check()
    assert lines.evaluate_all(visible) == shown


def test_the_colour_scheme_can_be_switched_and_is_remembered(browser: Browser, report: Path) -> None:
    page = browser.open(report)
    background = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('svg.plot .stroke')).stroke"
    light, light_line = page.evaluate(background), page.evaluate(line)
    page.locator("[data-theme-switch]").click()
    assert page.evaluate(background) != light
    assert page.evaluate(line) != light_line
    for _ in range(RELOADS):
        page.reload()
        if page.evaluate(background) != light:
            return
    pytest.fail("the choice was forgotten")


def test_the_page_prints_in_light_colours_with_its_legends(browser: Browser, report: Path) -> None:
    page = browser.open(report, dark=True)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(26, 29, 33)"
    assert page.locator(".legend .key").first.is_visible()
    assert not page.locator("[data-theme-switch]").is_visible()
    assert len(page.pdf(format="A4")) > 10_000


def test_the_first_tab_stop_skips_the_bar(browser: Browser, report: Path) -> None:
    page = browser.open(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_without_scripts_the_page_is_complete(browser: Browser, report: Path) -> None:
    context = browser.without_scripts()
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    assert page.locator("svg.plot .stroke").first.is_visible()
    titles = page.locator("svg.plot .pt title").all_text_contents()
    assert "agentmemory, stm, batch size 10: 3,160 /s (3,000–3,320)" in titles
    page.locator("#storage\\.write_throughput details.data summary").first.click()
    assert page.locator("#storage\\.write_throughput details.data table").first.is_visible()


def test_a_real_run_has_its_distribution_on_the_page(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def run(folder: Path) -> None:
        done = membench(
            *options(write(folder / "shout.py", GOOD), folder / "results", "--rounds", 2), cwd=folder
        )
        assert done.code == 0, done.err

    folder = once(tmp_path_factory, "report_of_a_real_run", run)
    path = BenchmarkResults(folder / "results").generate_report()
    page = browser.open(path)
    assert "How long calls take" in page.inner_text("#shout")
    curve = page.locator("#shout g.curve .pt")
    assert curve.count() > 5
