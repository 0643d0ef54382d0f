"""Finds the installed Chromium or Chrome, for the browser tests and the screenshots.

    python scripts/chromium.py    prints its path; without a browser, root installs Debian's package

It does not use Playwright's own browser, which can't be downloaded in a closed network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
FLAGS = (
    "--no-sandbox",  # it does not work for root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",  # a container's /dev/shm is often too small
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",  # no network
)
NO_BROWSER = "no browser: "
"""The start of a skipped test's reason; tests/conftest.py lists these tests at the end."""
MOST_SECONDS = 600
"""Limit for the installation; a missing network must not block the tests."""


def find() -> str | None:
    """Return the browser's path; None if there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or next((path for path in APPLICATIONS if Path(path).is_file()), None)


def install() -> str | None:
    """Install Debian's package quietly; return None, or why it failed."""
    if not shutil.which("apt-get"):
        return "there is no apt-get"
    if os.geteuid() != 0:
        return "only root can install it"
    install_it = ("install", "--yes", "--no-install-recommends", "chromium")
    # The package lists of a container may be missing or out of date: then update them and try again.
    for steps in ((install_it,), (("update",), install_it)):
        problem = next(filter(None, map(_apt_get, steps)), None)
        if problem is None:
            return None
    return problem


def _apt_get(arguments: tuple[str, ...]) -> str | None:
    command = ["apt-get", "--quiet=2", "--option=Acquire::Retries=1", "--option=Acquire::http::Timeout=30"]
    try:
        done = subprocess.run(
            [*command, *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"apt-get took more than {MOST_SECONDS} s"
    if done.returncode == 0:
        return None
    return next((line for line in done.stderr.splitlines() if line.startswith("E:")), "apt-get failed")


@contextmanager
def started(path: str) -> Iterator[Browser]:
    """Start a headless browser with a new profile; it is closed at the end of the block.

    Inside the block `asyncio.run` does not work, because Playwright uses the thread's event loop.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def main() -> int:
    """Return 0 also without a browser: the tests that need one are then skipped."""
    if find() is None:
        print("no Chromium or Chrome is installed: installing Debian's package", flush=True)
        problem = install()
        if problem:
            print(f"chromium was not installed ({problem}): the browser tests are skipped")
            return 0
    print(f"browser: {find()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
