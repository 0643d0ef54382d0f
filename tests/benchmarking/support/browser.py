"""Pages in a real browser: checks for script errors, requests to other machines, and accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import chromium
import pytest

LOCAL_SCHEMES = ("file", "data", "blob", "about", "chrome-error")
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
NARROW = 360
WIDE = 1400
PATIENCE_MS = 20_000
SERIOUS = ("serious", "critical")


class Browser:
    """Opens pages, and records their errors."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self.errors: list[str] = []
        """Errors of scripts and of the console; a test removes those that it causes on purpose."""
        self.left_the_machine: list[str] = []

    def open(
        self,
        where: str | Path,
        *,
        width: int = WIDE,
        height: int = 900,
        dark: bool = False,
        cookie: tuple[str, str] | None = None,
    ) -> Any:
        """Open an address or a local file in a Playwright page with its own profile."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.errors.append(f"script: {error.error}"))
        context.on("request", lambda request: self._asked_for(request.url))
        if cookie is not None:
            context.add_cookies([{"name": cookie[0], "value": cookie[1], "url": str(where)}])
        page = context.new_page()
        page.on("websocket", lambda socket: self._asked_for(socket.url))
        page.goto(where.resolve().as_uri() if isinstance(where, Path) else where)
        return page

    def without_scripts(self) -> Any:
        """Open a page without scripts, as many file previews do."""
        context = self._browser.new_context(java_script_enabled=False)
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.on("request", lambda request: self._asked_for(request.url))
        return context

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"console: {message.text}")

    def _asked_for(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in LOCAL_SCHEMES and parts.hostname not in LOCAL_HOSTS:
            self.left_the_machine.append(url)

    def close_pages(self) -> None:
        for context in self._contexts:
            context.close()
        self._contexts.clear()

    def check(self) -> None:
        """Check what must hold for every page of every test."""
        assert self.errors == []
        assert self.left_the_machine == []


def violations(page: Any) -> list[str]:
    """Return the serious and critical problems that axe-core finds, one line with its element each."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:120]} ({node['failureSummary']})"
        for each in found
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]


def scrolls_sideways(page: Any) -> bool:
    """Return whether the page itself, not only a table in it, is wider than the window."""
    return bool(page.evaluate("document.scrollingElement.scrollWidth > window.innerWidth"))


@contextmanager
def started_or_skipped() -> Iterator[Any]:
    """Start the installed browser; without one, skip the test with a reason that is listed at the end."""
    path = chromium.find()
    if path is None:
        pytest.skip(f"{chromium.NO_BROWSER}no Chromium or Chrome is installed")
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        pytest.skip(f"{chromium.NO_BROWSER}playwright is not installed")
    with chromium.started(path) as running:
        yield running
