"""The Chromium or Chrome that is installed, for the browser tests and the screenshots.

    python scripts/chromium.py    says where it is; installs Debian's if there is none and it may

It is the system's browser and not Playwright's own download, which a closed network can't reach.
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
    "--no-sandbox",  # a container's root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",  # a container's /dev/shm is often too small
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",  # nothing can leave
)
NO_BROWSER = "no browser: "
"""Begins the reason of a test that is skipped; tests/conftest.py tells of them at the end."""
MOST_SECONDS = 600
"""For installing; a network that is not there must not hold up the tests."""


def find() -> str | None:
    """The browser's path; None if there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or next((path for path in APPLICATIONS if Path(path).is_file()), None)


def install() -> str | None:
    """Install Debian's package, quietly; why it could not be, or None if it was."""
    if not shutil.which("apt-get"):
        return "there is no apt-get"
    if os.geteuid() != 0:
        return "only root may install it"
    wanted = ("install", "--yes", "--no-install-recommends", "chromium")
    # A fresh container has no lists of packages, and an old one has lists of packages that are gone.
    for steps in ((wanted,), (("update",), wanted)):
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
    """A headless browser with a new profile; it ends with the block.

    Within it the thread's asyncio loop is Playwright's: `asyncio.run` works again after it.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def main() -> int:
    """Exit code 0 also without a browser: the tests that need one are skipped, and say so."""
    if find() is None:
        print("no Chromium or Chrome is installed: trying Debian's", flush=True)
        problem = install()
        if problem:
            print(f"chromium was not installed ({problem}): the browser tests will not run")
            return 0
    print(f"browser: {find()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
