"""Any memory behind an MCP server over stdio: `--target mcp=server.toml`. See docs/described-servers.md."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.targets._described_server import DescribedServerTarget, fill
from memory.benchmarking.targets._mcp_client import McpServer


class McpTarget(DescribedServerTarget):
    name = "mcp"
    limits = "Every memory is one call. The transport over stdio is part of every figure."

    def connect(self, folder: Path) -> None:
        server = self.description.get("server", {})
        here = Path(self.address).resolve().parent
        values = {"folder": str(folder.resolve()), "here": str(here), "python": sys.executable}
        command = fill(server.get("command", []), values)
        if not command or shutil.which(command[0]) is None:
            raise InvalidBenchmarkConfig(
                f"{self.address}: [server] command is {command!r}: name a program that exists"
            )
        self._server = McpServer(command, folder / "server.log", fill(server.get("env", {}), values))

    def close(self) -> None:
        super().close()
        self._server.close()

    def call(self, call: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        return self._server.call(call["tool"], fill(call.get("arguments", {}), values))

    def transport_ms(self) -> float:
        return self._server.ping_ms()
