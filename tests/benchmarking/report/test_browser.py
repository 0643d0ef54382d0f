"""The helpers of the browser tests find the problems that they look for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import chromium
import pytest
from browser import NARROW, Browser, scrolls_sideways, violations

TESTS = Path(__file__).parents[2]


def page_of(folder: Path, body: str) -> Path:
    path = folder / "page.html"
    path.write_text(
        f"<!doctype html><html lang=en><title>Test</title><main><h1>Test</h1>{body}</main></html>"
    )
    return path


def test_a_good_page_is_found_good(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_of(tmp_path, "<p>fine</p>"), width=NARROW)
    assert page.inner_text("p") == "fine"
    assert violations(page) == []
    assert not scrolls_sideways(page)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("console.error('so sad')", "console: so sad"),
        ("nowhere.at.all()", "script: nowhere is not defined"),
    ],
)
def test_script_errors_are_reported(browser: Browser, tmp_path: Path, script: str, told: str) -> None:
    browser.open(page_of(tmp_path, f"<script>{script}</script>"))
    assert browser.errors == [told]
    browser.errors.clear()


def test_requests_to_other_machines_are_blocked_and_reported(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(tmp_path, "<img alt='' src='https://example.com/dot.png'>"))
    assert browser.left_the_machine == ["https://example.com/dot.png"]
    assert "ERR_NAME_NOT_RESOLVED" in browser.errors[0]
    browser.errors.clear()
    browser.left_the_machine.clear()


def test_accessibility_problems_are_found(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_of(tmp_path, "<button></button><p style='color: #ccc'>pale</p>"))
    found = violations(page)
    assert {each.partition(":")[0] for each in found} == {"button-name", "color-contrast"}


def test_a_page_that_is_too_wide_is_found(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_of(tmp_path, "<p style='width: 500px'>wide</p>"), width=NARROW)
    assert scrolls_sideways(page)


def test_without_a_browser_the_tests_are_skipped_and_named_at_the_end(tmp_path: Path) -> None:
    """Run a separate test session, with two processes, that finds no browser."""
    if any(Path(path).is_file() for path in chromium.APPLICATIONS):
        pytest.skip("the browser of this system is found without PATH")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider"),
            *(str(Path(__file__)), "-k", "good_page or too_wide"),
        ],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if "browser tests were NOT run" in line)
    assert "tests/benchmarking/report/test_browser.py::test_a_good_page_is_found_good" in lines[start:]
    assert any(line.startswith("2 tests: no browser: ") for line in lines[start:])
