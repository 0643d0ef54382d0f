"""The browser for tests that look at pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Browser, started_or_skipped


@pytest.fixture(scope="session", autouse=True)
def own_target_environments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither see nor change the environments and checks in the user's cache."""
    before = os.environ.get("MEMBENCH_TARGETS")
    os.environ["MEMBENCH_TARGETS"] = str(tmp_path_factory.mktemp("targets"))
    yield
    os.environ.pop("MEMBENCH_TARGETS")
    if before is not None:
        os.environ["MEMBENCH_TARGETS"] = before


@pytest.fixture(scope="module")
def running_browser() -> Iterator[Any]:
    """One browser for all tests of a file, in each test process that has some of them.

    Not for longer: while Playwright runs, no other test of the process can use `asyncio.run`.
    """
    with started_or_skipped() as running:
        yield running


@pytest.fixture
def browser(running_browser: Any) -> Iterator[Browser]:
    """Pages for one test; in the end none may have complained or asked for anything outside."""
    each = Browser(running_browser)
    yield each
    each.close_pages()
    each.check()
