"""`membench view` in this process or in one of its own, and requests to it as they are."""

from __future__ import annotations

import http.client
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from membench import COMMAND, surroundings

from memory.benchmarking.view.server import ViewServer


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
    """One request, with the cookie of someone who opened the link unless told otherwise."""
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
    """Served by a thread of this process."""
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
    """The command itself."""

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
