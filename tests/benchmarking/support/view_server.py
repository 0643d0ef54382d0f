"""Runs `membench view` in this process or in another one; sends requests to it."""

from __future__ import annotations

import http.client
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from browser import Browser
from membench import COMMAND, surroundings
from result_builders import make_result, make_run, storage_figures

from memory.benchmarking.model.records import Failure
from memory.benchmarking.view.server import ViewServer

CASE = ("storage", "write_throughput", "agentmemory")
METRIC = "complexity_1/batch_10/stm/throughput_ops_per_second"
"""A metric of every run that `make_few_runs` and `make_many_runs` write."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: str


def ask(
    server: ViewServer,
    path: str = "/",
    *,
    method: str = "GET",
    signed_in: bool = True,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Send one request, by default with the cookie of a user who opened the link."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    sent = {"Cookie": f"{server.cookie}={server.token}"} if signed_in else {}
    try:
        connection.request(method, path, headers=sent | (headers or {}))
        answer = connection.getresponse()
        body = answer.read().decode()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)
    finally:
        connection.close()


@contextmanager
def serving(output_dir: Path) -> Iterator[ViewServer]:
    """Serve from a thread of this process."""
    with ViewServer(output_dir) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Viewing:
    """Run the command itself."""

    process: subprocess.Popen[str]
    link: str


@contextmanager
def viewing(output_dir: Path, *options: str) -> Iterator[Viewing]:
    with subprocess.Popen(
        [*COMMAND, "view", "--output-dir", str(output_dir), "--no-open", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=surroundings(),
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, process.stderr and process.stderr.read()
            yield Viewing(process, found[0])
        finally:
            process.kill()


def make_few_runs(folder: Path) -> None:
    """Write three runs, the last of them slower, one that failed and one that is damaged."""
    for number, scale in enumerate((1.0, 1.01, 0.5), start=1):
        make_run(folder, f"2026080{number}_101500_ab1{number}", [make_result(storage_figures(scale))])
    failure = Failure(case="storage.write_throughput@agentmemory", round=0, reason="crash", message="gone")
    make_run(folder, "20260804_101500_ab14", failures=[failure] * 7)
    make_run(folder, "20260805_101500_ab15")
    (folder / "20260805_101500_ab15" / "run.json").write_text("{")


# -- in a browser -----------------------------------------------------------------------------


def address(server: ViewServer, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


def sign_in(browser: Browser, server: ViewServer, path: str = "/", **options: Any) -> Any:
    """Open a page as a user who has opened the link before."""
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
