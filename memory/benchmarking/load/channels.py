"""How the coordinator talks to a client: a process on this machine, or a connection to another host."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any, BinaryIO, Protocol, cast

import msgspec

from memory.benchmarking.errors import BrokenBenchmark

_CONNECT_SECONDS = 30.0
_END_SECONDS = 30.0
"""How long a client may take to end after its orders have ended."""


class Channel(Protocol):
    """A client that obeys orders, one at a time."""

    def send(self, order: dict[str, Any]) -> None: ...

    def receive(self) -> dict[str, Any]: ...

    def end(self) -> None:
        """End the client; nothing of it is left."""


class LocalClient:
    """A client process on this machine."""

    def __init__(self, target: str, embedder: str) -> None:
        command = [sys.executable, "-m", "memory.benchmarking.load.client", target]
        self._process = subprocess.Popen(
            [*command, *(["--embedder", embedder] if embedder else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def send(self, order: dict[str, Any]) -> None:
        _write(cast("BinaryIO", self._process.stdin), order)

    def receive(self) -> dict[str, Any]:
        return _read(cast("BinaryIO", self._process.stdout), "a client process ended: see the log")

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # it has ended by itself
                pipe.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class RemoteClient:
    """A client that listens on another host. `address` is `HOST:PORT#SECRET`."""

    def __init__(self, address: str) -> None:
        place, _, secret = address.partition("#")
        host, _, port = place.rpartition(":")
        self.place = place
        try:
            self._socket = socket.create_connection((host, int(port)), _CONNECT_SECONDS)
        except OSError as problem:
            raise BrokenBenchmark(f"the load generator at {place} can't be reached: {problem}") from problem
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = cast("BinaryIO", self._socket.makefile("rwb"))
        self._stream.write(secret.encode() + b"\n")

    def send(self, order: dict[str, Any]) -> None:
        _write(self._stream, order)

    def receive(self) -> dict[str, Any]:
        return _read(self._stream, f"the load generator at {self.place} ended")

    def end(self) -> None:
        with suppress(OSError):  # the other end is gone
            self._stream.close()
        self._socket.close()


def _write(pipe: BinaryIO, order: dict[str, Any]) -> None:
    with suppress(OSError):  # the client has ended; the missing answer is reported
        pipe.write(msgspec.json.encode(order) + b"\n")
        pipe.flush()


def _read(pipe: BinaryIO, ended: str) -> dict[str, Any]:
    try:
        line = pipe.readline()
    except OSError:
        line = b""
    if not line.endswith(b"\n"):
        raise BrokenBenchmark(ended)
    answer: dict[str, Any] = msgspec.json.decode(line)
    if answer.get("is_error"):
        raise AssertionError(answer["problem"])
    return answer
