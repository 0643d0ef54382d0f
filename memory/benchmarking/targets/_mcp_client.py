"""A small client of the Model Context Protocol (MCP) over stdio: it starts a server and calls its tools.

The messages are JSON-RPC 2.0, one a line. The official SDK is not used: it is asynchronous, and its event
loop, thread and validation would be timed with every call.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PROTOCOL = "2025-06-18"
_END_SECONDS = 5.0
"""How long a server may take to end by itself after its input was closed."""
_METHOD_NOT_FOUND = -32601


class ToolFailed(RuntimeError):
    """The server answered a call with an error, or ended."""


class McpServer:
    """A running MCP server.

    Args:
        command: the program and its arguments.
        log: the file for what the server prints on stderr.
        environment: variables for the server, besides those of this process.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._last_id = 0
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
            )
        client = {"name": "membench", "version": "1"}
        hello = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
        try:
            self._request("initialize", hello)
            self._send({"method": "notifications/initialized"})
        except BaseException:
            self.close()
            raise

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool; return the structured content, else the text, parsed if it is JSON."""
        result = self._request("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(part["text"] for part in result.get("content", ()) if part.get("type") == "text")
        if result.get("isError"):
            raise ToolFailed(f"the tool {tool} failed: {text}")
        if result.get("structuredContent") is not None:
            return result["structuredContent"]
        try:
            return json.loads(text)
        except ValueError:
            return text

    def ping_ms(self, count: int = 20) -> float:
        """Return the milliseconds of the fastest of some empty round trips."""
        return min(self._ping() for _ in range(count))

    def close(self) -> None:
        """Close the server's input, so that it ends; kill it if it does not."""
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: PT018
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ping(self) -> float:
        began = time.perf_counter()
        self._request("ping", {})
        return (time.perf_counter() - began) * 1000

    def _request(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._last_id += 1
            self._send({"id": self._last_id, "method": method, "params": parameters})
            while True:
                message = self._receive(method)
                if "method" in message:
                    self._refuse(message)
                elif message.get("id") == self._last_id:
                    break
        if "error" in message:
            raise ToolFailed(f"the server answered {method} with an error: {message['error']['message']}")
        answer: dict[str, Any] = message["result"]
        return answer

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(str(message.get("method", "an answer"))) from None

    def _receive(self, method: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended(method)
        message: dict[str, Any] = json.loads(line)
        return message

    def _refuse(self, message: Mapping[str, Any]) -> None:
        """Answer a request of the server; notifications need no answer."""
        if message["method"] == "ping":
            self._send({"id": message["id"], "result": {}})
        elif "id" in message:
            error = {"code": _METHOD_NOT_FOUND, "message": "this client has no such method"}
            self._send({"id": message["id"], "error": error})

    def _ended(self, method: str) -> ToolFailed:
        errors = " ".join(self._log.read_text(errors="replace").split())[-500:]
        return ToolFailed(f"the MCP server ended at {method}: {errors or 'it printed no error'}")
