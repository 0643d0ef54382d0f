"""Load generators that listen: the secret, the common start, merged histograms."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.benchmarking.errors import BrokenBenchmark
from memory.benchmarking.load.channels import RemoteClient
from memory.benchmarking.load.clients import LoadClients
from memory.benchmarking.workloads.mixes import mix_of

TARGET = f"{Path(__file__).parents[1] / 'support' / 'timed_target.py'}:TimedTarget"
SECRET = "a secret of the test"


@pytest.fixture
def addresses() -> Iterator[list[str]]:
    """Start two generators as a node does; they end with their standard input."""
    command = [sys.executable, "-m", "memory.benchmarking.load.client", TARGET, "--listen", "127.0.0.1"]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    found = []
    for process in started:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(SECRET.encode() + b"\n")
        process.stdin.flush()
        found.append(f"127.0.0.1:{int(process.stdout.readline())}#{SECRET}")
    yield found
    for process in started:
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_load_from_two_hosts_is_merged(addresses: list[str], tmp_path: Path) -> None:
    for _ in range(2):  # a generator serves one connection after the other
        with LoadClients(TARGET, "", processes=1, threads=1, remote=addresses) as clients:
            clients.open(tmp_path, mix_of("add=1"), "seed", agents=2, memories=3)
            probe = clients.probe(100.0, 1.0, 1000.0, "seed", to_the_end=True)
            clients.clean()
            clients.close()
            assert len(clients.hosts) == 2
        parts = [answer["done"] for answer in probe.answers]
        assert all(parts), "both sent load"
        assert probe.latencies.count == sum(parts) == probe.total("arrivals")
        for host in clients.hosts:
            assert host.name == socket.gethostname()
            assert abs(host.offset_seconds) <= host.offset_error_seconds + 0.001


def test_a_wrong_secret_is_refused(addresses: list[str]) -> None:
    stranger = RemoteClient(addresses[0].replace(SECRET, "another one"))
    stranger.send({"do": "clock"})
    with pytest.raises(BrokenBenchmark, match="ended"):
        stranger.receive()
    stranger.end()
    friend = RemoteClient(addresses[0])
    friend.send({"do": "clock"})
    assert friend.receive()["host"] == socket.gethostname()
    friend.end()


def test_a_generator_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BrokenBenchmark, match=f"127.0.0.1:{port} can't be reached"):
        RemoteClient(f"127.0.0.1:{port}#x")
